// Embedding backward where the output does not fit the caches, or a row does not fit a block: on line boundaries and
// off them.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tests/native/cases.h"
#include "tests/native/targets.h"

namespace onehot::test {
namespace {

class BackwardLarge : public ::testing::TestWithParam<std::pair<DType, DType>> {
  const OutputsPastCaches past_caches_;
};

INSTANTIATE_TEST_SUITE_P(GradAndOut, BackwardLarge,
                         ::testing::Values(std::pair(DType::kF32, DType::kF32), std::pair(DType::kF64, DType::kF64),
                                           std::pair(DType::kF16, DType::kF16), std::pair(DType::kBF16, DType::kBF16),
                                           std::pair(DType::kF16, DType::kF32), std::pair(DType::kBF16, DType::kF32)),
                         [](const auto& info) {
                           return std::string(Name(info.param.first)) + "_" + std::string(Name(info.param.second));
                         });

// Six million bytes of output.
std::int64_t Rows(std::int64_t D, DType out) {
  return 6000000 / (D * SizeOf(out)) + 1;
}

TEST_P(BackwardLarge, EveryWidth) {
  const auto [grad, out] = GetParam();
  // Widths whose rows are whole lines, and others; rows shorter and longer than a vector, and than four of them.
  for (const std::int64_t D : {1, 8, 16, 32, 60, 64, 96, 128, 256, 1040, 2080})
    for (const Placed placed : {Placed::kAtLine, Placed::kAnywhere}) {
      if (placed == Placed::kAnywhere && D != 16 && D != 60 && D != 256) continue;
      // Rows named once, a few times and not at all.
      const std::int64_t V = Rows(D, out);
      ExpectPromisedEverywhere(BackwardCase{
          .N = 1 + 60000 / D, .V = V, .D = D, .spread = Spread::kZipf, .grad = grad, .out = out, .placed = placed});
    }
}

TEST_P(BackwardLarge, EveryOption) {
  const auto [grad, out] = GetParam();
  for (const std::int64_t D : {64, 1040})
    for (const int options : {0, 1, 2, 7})
      ExpectRightEverywhere(
          BackwardCase{.N = 1 + 60000 / D,
                       .V = Rows(D, out),
                       .D = D,
                       .spread = Spread::kUniform,
                       .grad = grad,
                       .out = out,
                       .padding_idx = (options & 1) != 0 ? std::optional<std::int64_t>(-5) : std::nullopt,
                       .scale = (options & 2) != 0,
                       .accumulate = (options & 4) != 0,
                       .counts = (options & 1) != 0,
                       .placed = Placed::kAtLine},
          3);
}

TEST_P(BackwardLarge, HotRows) {
  const auto [grad, out] = GetParam();
  for (const std::int64_t D : {64, 1040})
    for (const std::int64_t times : {9, 512, 1100})
      ExpectPromisedEverywhere(BackwardCase{.N = 1200,
                                            .V = Rows(D, out),
                                            .D = D,
                                            .hot = times,
                                            .grad = grad,
                                            .out = out,
                                            .scale = times % 2 == 1,
                                            .accumulate = times == 9,
                                            .placed = Placed::kAtLine},
                               3);
}

// Few rows, each of many columns and with many terms: sums are kept between passes.
TEST_P(BackwardLarge, WideRowsWithManyTerms) {
  const auto [grad, out] = GetParam();
  for (const std::int64_t D : {1023, 1025, 2100})
    for (const bool all_options : {false, true})
      ExpectRightEverywhere(BackwardCase{.N = 650,
                                         .V = 4,
                                         .D = D,
                                         .hot = 520,
                                         .grad = grad,
                                         .out = out,
                                         .padding_idx = all_options ? std::optional<std::int64_t>(0) : std::nullopt,
                                         .scale = all_options,
                                         .accumulate = all_options},
                            3);
}

// Rows on line boundaries with gaps between them, which stay as they are.
TEST_P(BackwardLarge, AlignedRowsWithGaps) {
  const auto [grad, out] = GetParam();
  for (const std::int64_t D : {64, 61}) {
    const std::int64_t V = Rows(D, out), stride = 128;
    BackwardProblem problem(Tensor(grad, {900, D}, Placed::kAtLine), Tensor(DType::kI64, {900}),
                            Tensor(out, {V, D}, {stride, 1}, Placed::kAtLine));
    FillGradient(problem.grad, 1);
    SetIndices(problem.indices, Indices(Spread::kZipf, 900, V, 2));
    ExpectRightEverywhere(std::move(problem));
  }
}

}  // namespace
}  // namespace onehot::test
