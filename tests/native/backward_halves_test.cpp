// Small tables, whose sums stay in cache whole: one thread, two that share the columns, and more that share the rows,
// all give the promised bits.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

#include "tests/native/cases.h"

namespace onehot::test {
namespace {

TEST(BackwardSmallTable, ThreadsShareColumnsOrRows) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    // Rows of one pair of lines, of two and a bit, and of the widest that count as narrow, in each dtype.
    for (const std::int64_t D : {33, 64, 100, 128})
      for (const int threads : {1, 2, 3, 12})
        // Rows named once, often, and so often that their sums are cut into three chunks.
        for (const Spread spread : {Spread::kZipf, Spread::kFewHot})
          ExpectPromisedEverywhere(
              BackwardCase{.N = 3600, .V = 90, .D = D, .spread = spread, .grad = dtype, .out = dtype}, threads);
}

TEST(BackwardSmallTable, HalvesTakeEveryOption) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int options : {1, 2, 4, 7})
      ExpectRightEverywhere(
          BackwardCase{.N = 5000,
                       .V = 90,
                       .D = dtype == DType::kF32 ? 66 : 127,
                       .spread = Spread::kFewHot,
                       .grad = dtype,
                       .out = DType::kF32,
                       .padding_idx = (options & 1) != 0 ? std::optional<std::int64_t>(3) : std::nullopt,
                       .scale = (options & 2) != 0,
                       .accumulate = (options & 4) != 0,
                       .counts = (options & 1) != 0},
          2);
}

}  // namespace
}  // namespace onehot::test
