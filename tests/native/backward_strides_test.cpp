// Embedding backward over everything that a view can be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/native/cases.h"
#include "tests/native/strides.h"

namespace onehot::test {
namespace {

BackwardProblem Fill(BackwardProblem problem, bool accumulate = false) {
  const std::int64_t V = problem.out.layout().dims[0];
  FillGradient(problem.grad, 11);
  SetIndices(problem.indices, Indices(Spread::kZipf, problem.indices.numel(), V, 12));
  problem.options.accumulate = accumulate;
  if (accumulate) FillOld(problem.out, 13);
  return problem;
}

class BackwardStrides : public ::testing::TestWithParam<std::pair<DType, DType>> {};

INSTANTIATE_TEST_SUITE_P(GradAndOut, BackwardStrides,
                         ::testing::Values(std::pair(DType::kF32, DType::kF32), std::pair(DType::kF64, DType::kF64),
                                           std::pair(DType::kF16, DType::kF16), std::pair(DType::kBF16, DType::kBF16),
                                           std::pair(DType::kF16, DType::kF32), std::pair(DType::kBF16, DType::kF32)),
                         [](const auto& info) {
                           return std::string(Name(info.param.first)) + "_" + std::string(Name(info.param.second));
                         });

TEST_P(BackwardStrides, Grad) {
  const auto [grad, out] = GetParam();
  for (const std::int64_t D : {1, 2, 7, 16, 35, 130})
    for (std::size_t f = 0; f < std::size(kForms); ++f) {
      SCOPED_TRACE("form " + std::to_string(f) + " D " + std::to_string(D));
      ExpectRightEverywhere(
          Fill({Tensor(grad, {97, D}, StridesOf(kForms[f], 97, D)), Tensor(DType::kI64, {97}), Tensor(out, {23, D})}));
    }
}

// Gaps between the elements of out belong to somebody else.
TEST_P(BackwardStrides, Out) {
  const auto [grad, out] = GetParam();
  for (const std::int64_t D : {1, 2, 7, 16, 35, 130})
    for (std::size_t f = 0; f < std::size(kForms); ++f)
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE("form " + std::to_string(f) + " D " + std::to_string(D));
        ExpectRightEverywhere(
            Fill({Tensor(grad, {97, D}), Tensor(DType::kI32, {97}), Tensor(out, {23, D}, StridesOf(kForms[f], 23, D))},
                 accumulate));
      }
}

// Rows wider than anything that is kept on a stack.
TEST_P(BackwardStrides, WideOut) {
  const auto [grad, out] = GetParam();
  for (const std::int64_t D : {511, 512, 513, 1100, 2057})
    for (const Form form : {Form::kTransposed, Form::kColumnsBackwards, Form::kEverySecondColumn, Form::kRowGaps})
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE("form " + std::to_string(static_cast<int>(form)) + " D " + std::to_string(D));
        ExpectRightEverywhere(
            Fill({Tensor(grad, {41, D}), Tensor(DType::kI32, {41}), Tensor(out, {5, D}, StridesOf(form, 5, D))},
                 accumulate));
      }
}

TEST_P(BackwardStrides, GradAndOutTogether) {
  const auto [grad, out] = GetParam();
  for (std::size_t f = 0; f < std::size(kForms); ++f)
    for (std::size_t g = 0; g < std::size(kForms); ++g) {
      SCOPED_TRACE("forms " + std::to_string(f) + ", " + std::to_string(g));
      ExpectRightEverywhere(Fill({Tensor(grad, {61, 19}, StridesOf(kForms[f], 61, 19)), Tensor(DType::kI64, {61}),
                                  Tensor(out, {31, 19}, StridesOf(kForms[g], 31, 19))},
                                 (f + g) % 2 == 0));
    }
}

// The gradient of a sum arrives expanded: one row, or one number, for all positions.
TEST_P(BackwardStrides, ExpandedGrad) {
  const auto [grad, out] = GetParam();
  for (const std::int64_t D : {1, 5, 16, 67})
    for (const Dims& strides : std::vector<Dims>{{0, 1}, {0, -1}, {0, 3}, {1, 0}, {-2, 0}, {0, 0}}) {
      SCOPED_TRACE("D " + std::to_string(D) + " strides " + std::to_string(strides[0]) + ", " +
                   std::to_string(strides[1]));
      ExpectRightEverywhere(Fill({Tensor(grad, {1300, D}, strides), Tensor(DType::kI64, {1300}), Tensor(out, {9, D})}),
                            3);
    }
}

// Overlapping windows: input rows may share memory.
TEST_P(BackwardStrides, OverlappingGradRows) {
  const auto [grad, out] = GetParam();
  ExpectRightEverywhere(Fill({Tensor(grad, {200, 24}, {1, 1}), Tensor(DType::kI64, {200}), Tensor(out, {17, 24})}));
  ExpectRightEverywhere(Fill({Tensor(grad, {200, 24}, {5, 2}), Tensor(DType::kI64, {200}), Tensor(out, {17, 24})}));
}

// Leading axes in any memory order: they do not merge into one stride.
TEST_P(BackwardStrides, GradOfRankThree) {
  const auto [grad, out] = GetParam();
  const Dims dims{6, 11, 9};
  std::vector<std::size_t> order{0, 1, 2};
  do {
    for (const std::int64_t gap : {0, 4}) {
      SCOPED_TRACE("innermost axis " + std::to_string(order[2]) + " gap " + std::to_string(gap));
      ExpectRightEverywhere(Fill(
          {Tensor(grad, dims, PermutedStrides(dims, order, gap)), Tensor(DType::kI64, {6, 11}), Tensor(out, {13, 9})}));
    }
  } while (std::ranges::next_permutation(order).found);
  // One leading axis expanded, the other not.
  ExpectRightEverywhere(Fill({Tensor(grad, dims, {0, 9, 1}), Tensor(DType::kI64, {6, 11}), Tensor(out, {13, 9})}));
  ExpectRightEverywhere(Fill({Tensor(grad, dims, {9, 0, 1}), Tensor(DType::kI64, {6, 11}), Tensor(out, {13, 9})}));
}

TEST_P(BackwardStrides, GradOfRankEight) {
  const auto [grad, out] = GetParam();
  const Dims dims{2, 3, 2, 2, 1, 3, 2, 5};
  const Dims positions(dims.begin(), dims.end() - 1);
  for (const auto& order : std::vector<std::vector<std::size_t>>{
           {0, 1, 2, 3, 4, 5, 6, 7}, {7, 6, 5, 4, 3, 2, 1, 0}, {3, 0, 6, 1, 4, 2, 5, 7}, {5, 7, 1, 0, 2, 6, 3, 4}})
    for (const std::int64_t gap : {0, 1})
      ExpectRightEverywhere(Fill({Tensor(grad, dims, PermutedStrides(dims, order, gap)), Tensor(DType::kI64, positions),
                                  Tensor(out, {7, 5})}));
}

// Channels first, as images come: position (n, h, w) and channel c of an N x C x H x W tensor.
TEST_P(BackwardStrides, ChannelsFirst) {
  const auto [grad, out] = GetParam();
  const std::int64_t N = 3, C = 10, H = 7, W = 5;
  ExpectRightEverywhere(Fill(
      {Tensor(grad, {N, H, W, C}, {C * H * W, W, 1, H * W}), Tensor(DType::kI64, {N, H, W}), Tensor(out, {20, C})}));
}

class IndexStrides : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Index, IndexStrides, ::testing::ValuesIn(kIndexDTypes),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(IndexStrides, EveryForm) {
  const std::int64_t V = GetParam() == DType::kBool ? 2 : 29;
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{3, 4}, {17, 61}, {1, 33}, {33, 1}})
    for (std::size_t f = 0; f < std::size(kForms); ++f) {
      SCOPED_TRACE("form " + std::to_string(f) + " rows " + std::to_string(rows));
      ExpectRightEverywhere(Fill({Tensor(DType::kF32, {rows * columns, 3}),
                                  Tensor(GetParam(), {rows, columns}, StridesOf(kForms[f], rows, columns)),
                                  Tensor(DType::kF32, {V, 3})}));
    }
  // Expanded: a whole axis, or all of it, is one number.
  for (const Dims& strides : std::vector<Dims>{{0, 1}, {1, 0}, {0, 0}, {0, -2}})
    ExpectRightEverywhere(
        Fill({Tensor(DType::kF32, {600, 3}), Tensor(GetParam(), {20, 30}, strides), Tensor(DType::kF32, {V, 3})}));
}

TEST_P(IndexStrides, RanksZeroToEight) {
  const std::int64_t V = GetParam() == DType::kBool ? 2 : 5;
  ExpectRightEverywhere(Fill({Tensor(DType::kF32, {9}), Tensor(GetParam(), {}), Tensor(DType::kF32, {V, 9})}));
  ExpectRightEverywhere(Fill({Tensor(DType::kF32, {1, 9}), Tensor(GetParam(), {}), Tensor(DType::kF32, {V, 9})}));
  ExpectRightEverywhere(Fill({Tensor(DType::kF32, {9}), Tensor(GetParam(), {1, 1}), Tensor(DType::kF32, {V, 9})}));
  const Dims dims{2, 3, 1, 2, 3, 2, 1, 2};
  for (const auto& order : std::vector<std::vector<std::size_t>>{{0, 1, 2, 3, 4, 5, 6, 7}, {7, 0, 6, 1, 5, 2, 4, 3}})
    ExpectRightEverywhere(
        Fill({Tensor(DType::kF32, {144, 4}), Tensor(GetParam(), dims, PermutedStrides(dims, order, 1)),
              Tensor(DType::kF32, {V, 4})}));
}

// The shape of grad and that of indices need only agree in the number of positions.
TEST(BackwardStridesMixed, RanksOfGradAndIndicesDiffer) {
  for (const Dims& grad : std::vector<Dims>{{24, 7}, {2, 12, 7}, {4, 3, 2, 7}, {1, 24, 1, 7}})
    for (const Dims& indices : std::vector<Dims>{{24}, {3, 8}, {2, 3, 4}, {24, 1, 1}})
      ExpectRightEverywhere(
          Fill({Tensor(DType::kF32, grad), Tensor(DType::kI64, indices), Tensor(DType::kF32, {5, 7})}));
}

TEST(BackwardStridesMixed, Counts) {
  for (const std::int64_t stride : {1, 2, 7, -1, -3}) {
    BackwardProblem problem =
        Fill({Tensor(DType::kF32, {500, 3}), Tensor(DType::kI64, {500}), Tensor(DType::kF32, {41, 3})});
    problem.counts.emplace(DType::kI64, Dims{41}, Dims{stride});
    problem.options.padding_idx = 3;
    ExpectRightEverywhere(std::move(problem));
  }
}

// Strides of axes with one element mean nothing.
TEST(BackwardStridesMixed, StridesOfSingleElementAxesAreIgnored) {
  ExpectRightEverywhere(Fill({Tensor(DType::kF32, {50, 1}, {1, 1000000007}), Tensor(DType::kI64, {50, 1}, {1, 0}),
                              Tensor(DType::kF32, {7, 1}, {1, 0})}));
  ExpectRightEverywhere(Fill({Tensor(DType::kF32, {1, 8}, {-999999937, 1}), Tensor(DType::kI64, {1}, {0}),
                              Tensor(DType::kF32, {1, 8}, {0, 1})}));
}

// Rows 3 apart, columns 2 apart: 0 2 | 3 5 | 6 8 interleaves and yet no two meet.
TEST(BackwardStridesMixed, InterleavedOut) {
  for (const bool accumulate : {false, true}) {
    ExpectRightEverywhere(
        Fill({Tensor(DType::kF32, {9, 2}), Tensor(DType::kI64, {9}), Tensor(DType::kF32, {3, 2}, {3, 2})}, accumulate));
    ExpectRightEverywhere(
        Fill({Tensor(DType::kF32, {9, 2}), Tensor(DType::kI64, {9}), Tensor(DType::kF32, {3, 2}, {2, 3})}, accumulate));
  }
}

// Long enough for several threads.
TEST(BackwardStridesMixed, LargeAndStrided) {
  ExpectRightEverywhere(
      Fill({Tensor(DType::kF32, {120, 100, 33}, {33, 120 * 33, 1}), Tensor(DType::kI32, {120, 100}, {1, 120}),
            Tensor(DType::kF32, {3000, 33}, StridesOf(Form::kTransposed, 3000, 33))}),
      3);
  ExpectRightEverywhere(
      Fill({Tensor(DType::kBF16, {9000, 64}, StridesOf(Form::kTransposed, 9000, 64)), Tensor(DType::kI64, {9000}, {-2}),
            Tensor(DType::kBF16, {50, 64}, StridesOf(Form::kRowGaps, 50, 64))},
           true),
      3);
}

}  // namespace
}  // namespace onehot::test
