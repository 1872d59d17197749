// Embedding backward over sizes, distributions, dtypes and options: every implementation, every instruction set.
#include <gtest/gtest.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <string>

#include "tests/native/cases.h"
#include "tests/native/oracle.h"

namespace onehot::test {
namespace {

// Around every vector length of every instruction set, and odd.
constexpr std::int64_t kWidths[] = {1,  2,  3,  4,   5,   7,   8,   9,   15,  16,  17,  31,  32,   33,
                                    63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 300, 768, 1000, 1024};

class BackwardDTypes : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Gradient, BackwardDTypes, ::testing::ValuesIn(kGradientDTypes),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(BackwardDTypes, Widths) {
  for (const std::int64_t D : kWidths)
    ExpectRightEverywhere(BackwardCase{.N = 301, .V = 61, .D = D, .spread = Spread::kZipf, .grad = GetParam()});
}

TEST_P(BackwardDTypes, WidthsWithEveryOption) {
  for (const std::int64_t D : kWidths)
    ExpectRightEverywhere(BackwardCase{.N = 257,
                                       .V = 67,
                                       .D = D,
                                       .spread = Spread::kZipf,
                                       .grad = GetParam(),
                                       .padding_idx = 5,
                                       .scale = true,
                                       .accumulate = true,
                                       .counts = true});
}

TEST_P(BackwardDTypes, SmallSizes) {
  for (const std::int64_t N : {1, 2, 3, 8, 17})
    for (const std::int64_t V : {1, 2, 5, 16})
      for (const std::int64_t D : {1, 3, 8, 19})
        ExpectRightEverywhere(BackwardCase{.N = N, .V = V, .D = D, .grad = GetParam(), .counts = true});
}

// Nothing to do still defines the output.
TEST_P(BackwardDTypes, EmptySizes) {
  for (const bool accumulate : {false, true}) {
    const BackwardCase none{.grad = GetParam(), .accumulate = accumulate, .counts = true};
    for (const auto& [N, V, D] : {std::array<std::int64_t, 3>{0, 3, 5},
                                  {0, 1, 1},
                                  {0, 0, 4},
                                  {0, 0, 0},
                                  {0, 3, 0},
                                  {7, 3, 0},
                                  {1, 1, 0},
                                  {700, 1, 0},
                                  {0, 1001, 64}}) {
      BackwardCase c = none;
      c.N = N, c.V = V, c.D = D;
      ExpectRightEverywhere(c);
    }
  }
}

TEST_P(BackwardDTypes, Spreads) {
  for (const Spread spread : {Spread::kUniform, Spread::kZipf, Spread::kSorted, Spread::kAllEqual, Spread::kFewHot})
    for (const std::int64_t D : {1, 17, 64})
      for (const bool all_options : {false, true})
        ExpectRightEverywhere(BackwardCase{.N = 3001,
                                           .V = 500,
                                           .D = D,
                                           .spread = spread,
                                           .grad = GetParam(),
                                           .padding_idx = all_options ? std::optional<std::int64_t>(3) : std::nullopt,
                                           .scale = all_options,
                                           .accumulate = all_options,
                                           .counts = all_options},
                              3);
}

// The chunks of 512: a last chunk of one, a full one, several.
TEST_P(BackwardDTypes, HotRowsAroundTheChunk) {
  for (const std::int64_t times : {1, 2, 511, 512, 513, 1023, 1024, 1025, 1537, 2500})
    for (const std::int64_t D : {1, 9, 70})
      ExpectRightEverywhere(BackwardCase{.N = 2600, .V = 40, .D = D, .hot = times, .grad = GetParam(), .counts = true},
                            3);
}

TEST_P(BackwardDTypes, HotRowsWithEveryOption) {
  for (const std::int64_t times : {1, 512, 513, 1025, 2050})
    for (const bool hot_row_is_padding : {false, true})
      ExpectRightEverywhere(BackwardCase{.N = 2100,
                                         .V = 30,
                                         .D = 33,
                                         .hot = times,
                                         .grad = GetParam(),
                                         .padding_idx = hot_row_is_padding ? 15 : 0,
                                         .scale = true,
                                         .accumulate = true,
                                         .counts = true},
                            3);
}

// A row so hot that its chunks are many, and rows so few that each is hot.
TEST_P(BackwardDTypes, ManyChunks) {
  ExpectRightEverywhere(BackwardCase{.N = 40000, .V = 1, .D = 5, .grad = GetParam(), .scale = true, .counts = true}, 3);
  ExpectRightEverywhere(BackwardCase{.N = 30001, .V = 3, .D = 16, .grad = GetParam(), .accumulate = true}, 7);
  ExpectRightEverywhere(BackwardCase{.N = 20001, .V = 17, .D = 2, .spread = Spread::kSorted, .grad = GetParam()}, 2);
}

TEST_P(BackwardDTypes, PaddingRows) {
  constexpr std::int64_t V = 11;
  for (const std::optional<std::int64_t> padding :
       std::initializer_list<std::optional<std::int64_t>>{std::nullopt, 0, V / 2, V - 1, -1, -V, -V / 2})
    for (const bool accumulate : {false, true})
      for (const bool scale : {false, true})
        ExpectRightEverywhere(BackwardCase{.N = 101,
                                           .V = V,
                                           .D = 6,
                                           .grad = GetParam(),
                                           .padding_idx = padding,
                                           .scale = scale,
                                           .accumulate = accumulate,
                                           .counts = true});
}

TEST_P(BackwardDTypes, VocabularySizes) {
  for (const std::int64_t V : {1, 2, 255, 256, 257, 999, 1000, 1001, 4095, 4096, 4097, 65535, 65536, 65537})
    ExpectRightEverywhere(BackwardCase{.N = 2000, .V = V, .D = 3, .grad = GetParam(), .counts = true}, 3);
}

TEST_P(BackwardDTypes, ManyRowsFewIndices) {
  ExpectRightEverywhere(BackwardCase{.N = 4, .V = 70000, .D = 1, .grad = GetParam(), .counts = true});
  ExpectRightEverywhere(BackwardCase{.N = 40, .V = 300007, .D = 2, .grad = GetParam(), .scale = true}, 3);
  ExpectRightEverywhere(BackwardCase{.N = 1, .V = 123457, .D = 7, .grad = GetParam(), .accumulate = true}, 3);
}

// Large enough to be cut into parts by anything that cuts.
TEST_P(BackwardDTypes, Larger) {
  ExpectRightEverywhere(BackwardCase{.N = 30011,
                                     .V = 5003,
                                     .D = 31,
                                     .spread = Spread::kZipf,
                                     .grad = GetParam(),
                                     .padding_idx = 7,
                                     .scale = true,
                                     .counts = true},
                        3);
  ExpectRightEverywhere(BackwardCase{.N = 16384, .V = 50257, .D = 17, .spread = Spread::kZipf, .grad = GetParam()}, 2);
  ExpectRightEverywhere(
      BackwardCase{.N = 1500, .V = 700, .D = 771, .spread = Spread::kFewHot, .grad = GetParam(), .accumulate = true},
      2);
}

// 16-bit gradients into an f32 output: no rounding at the end.
class BackwardWidened : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Gradient, BackwardWidened, ::testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(BackwardWidened, Widths) {
  for (const std::int64_t D : kWidths)
    for (const bool all_options : {false, true})
      ExpectRightEverywhere(BackwardCase{.N = 203,
                                         .V = 61,
                                         .D = D,
                                         .spread = Spread::kZipf,
                                         .grad = GetParam(),
                                         .out = DType::kF32,
                                         .padding_idx = all_options ? std::optional<std::int64_t>(-2) : std::nullopt,
                                         .scale = all_options,
                                         .accumulate = all_options,
                                         .counts = all_options});
}

TEST_P(BackwardWidened, HotRows) {
  for (const std::int64_t times : {1, 2, 512, 513, 1025, 2500})
    ExpectRightEverywhere(BackwardCase{.N = 2600,
                                       .V = 40,
                                       .D = 21,
                                       .hot = times,
                                       .grad = GetParam(),
                                       .out = DType::kF32,
                                       .accumulate = times % 2 == 0},
                          3);
}

class BackwardIndexDTypes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Index, BackwardIndexDTypes, ::testing::ValuesIn(kIndexDTypes),
                         [](const auto& info) { return std::string(Name(info.param)); });

// As many rows as the dtype can name, and odd lengths around the vectors of the conversion.
TEST_P(BackwardIndexDTypes, EveryValue) {
  const DType index = GetParam();
  // Every row up to these is exact in the dtype; bool has two.
  const std::int64_t V = index == DType::kBool  ? 2
                         : index == DType::kI8  ? 128
                         : index == DType::kU8  ? 256
                         : index == DType::kF16 ? 2049
                         : index == DType::kI16 ? 32768
                                                : 100003;
  for (const std::int64_t N : {1, 7, 16, 33, 1000, 10007})
    for (const DType grad : {DType::kF32, DType::kBF16})
      ExpectRightEverywhere(BackwardCase{.N = N, .V = V, .D = 3, .grad = grad, .index = index, .counts = true}, 3);
  // The last row.
  BackwardProblem problem = MakeProblem({.N = 5, .V = V, .D = 4, .index = index});
  SetIndices(problem.indices, {0, V - 1, 1, V - 1, 0});
  ExpectRightEverywhere(std::move(problem));
}

TEST_P(BackwardIndexDTypes, EveryOption) {
  for (const Spread spread : {Spread::kZipf, Spread::kAllEqual})
    ExpectRightEverywhere(BackwardCase{.N = 1300,
                                       .V = 2,
                                       .D = 13,
                                       .spread = spread,
                                       .index = GetParam(),
                                       .padding_idx = 0,
                                       .scale = true,
                                       .accumulate = true,
                                       .counts = true},
                          3);
}

TEST(BackwardIndices, FractionsAreTruncatedTowardZero) {
  for (const DType index : {DType::kF64, DType::kF32, DType::kF16}) {
    SCOPED_TRACE(Name(index));
    BackwardProblem problem = MakeProblem({.N = 7, .V = 4, .D = 3, .index = index, .counts = true});
    problem.indices.SetAll({0.75, -0.75, -0.0, 1.5, 2.984375, 3.5, 3.0});
    ExpectRightEverywhere(problem);
    EXPECT_EQ(RowsNamed(problem.indices.view()), (std::vector<std::int64_t>{0, 0, 0, 1, 2, 3, 3}));
  }
}

TEST(BackwardIndices, SmallNegativeFractionsAreRowZero) {
  BackwardProblem problem = MakeProblem({.N = 5, .V = 3, .D = 2, .index = DType::kF64});
  problem.indices.SetAll({-0.9999999999999999, -1e-300, -5e-324, 2.9999999999999996, 1e-320});
  ExpectRightEverywhere(problem);
}

}  // namespace
}  // namespace onehot::test
