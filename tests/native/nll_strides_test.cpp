// The NLL loss over everything that a view can be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/native/nll_cases.h"
#include "tests/native/nll_oracle.h"
#include "tests/native/strides.h"

namespace onehot::test {
namespace {

class NllStrides : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, NllStrides, ::testing::ValuesIn(kGradientDTypes),
                         [](const auto& info) { return std::string(onehot::Name(info.param)); });

Tensor Filled(DType dtype, const Dims& dims, const Dims& strides) {
  Tensor tensor(dtype, dims, strides);
  FillGradient(tensor, 77);
  return tensor;
}

// All orders of the axes in memory, with gaps and without, for input and for out: channels_last is one of them.
TEST_P(NllStrides, AllPermutations) {
  std::size_t round = 0;
  for (const Dims& dims : std::vector<Dims>{{2, 5, 3, 4}, {2, 7, 19, 33}})
    for (const std::int64_t gap : {0, 3})
      for (const Dims& strides : AllPermutedStrides(dims, gap))
        for (const Reduction reduction : {Reduction::kNone, Reduction::kMean}) {
          ++round;
          ExpectRightBoth({.dims = dims,
                           .dtype = GetParam(),
                           .target = kTargetDTypes[round % 5],
                           .reduction = reduction,
                           .weight = DType::kF32,
                           .like = {.blocky = round % 3 == 0},
                           .accumulate = round % 4 == 0,
                           .strides = strides});
        }
}

TEST_P(NllStrides, AllPermutationsForEveryClassAxis) {
  const Dims dims{3, 4, 5};
  for (int axis = -3; axis < 3; ++axis)
    for (const std::int64_t gap : {0, 1})
      for (const Dims& strides : AllPermutedStrides(dims, gap))
        ExpectRightBoth({.dims = dims,
                         .class_axis = axis,
                         .dtype = GetParam(),
                         .target = DType::kI32,
                         .reduction = Reduction::kNone,
                         .strides = strides});
}

TEST_P(NllStrides, AxesBackwards) {
  for (const Dims& dims : std::vector<Dims>{{2, 5, 3, 4}, {1, 3, 4, 70}})
    for (unsigned axes = 0; axes < 16; ++axes)
      for (const bool last : {false, true})
        ExpectRightBoth({.dims = dims,
                         .dtype = GetParam(),
                         .target = DType::kU8,
                         .reduction = Reduction::kNone,
                         .accumulate = axes % 2 == 1,
                         .strides = Reversed(last ? PermutedStrides(dims, {0, 2, 3, 1}) : DenseStrides(dims), axes)});
}

TEST_P(NllStrides, PaddedRowsAndPlanes) {
  for (const Dims& dims : std::vector<Dims>{{37, 21}, {9, 1000}, {1000, 3}})
    for (const Form form : kForms)
      for (const bool accumulate : {false, true})
        ExpectRightBoth({.dims = dims,
                         .dtype = GetParam(),
                         .reduction = Reduction::kMean,
                         .accumulate = accumulate,
                         .strides = StridesOf(form, dims[0], dims[1])});
  const std::int64_t C = 6, H = 5, W = 67;
  for (const std::int64_t pad : {1, 3, 61})
    for (const std::int64_t step : {1, 2})
      ExpectRightBoth({.dims = {2, C, H, W},
                       .dtype = GetParam(),
                       .target = DType::kI8,
                       .reduction = Reduction::kSum,
                       .strides = {C * H * (step * W + pad) + 5, H * (step * W + pad), step * W + pad, step}});
}

TEST_P(NllStrides, Target) {
  const Dims positions{3, 4, 33};
  for (const DType target : kTargetDTypes)
    for (const std::int64_t gap : {0, 2})
      for (const Dims& strides : AllPermutedStrides(positions, gap))
        ExpectRightBoth({.dims = {3, 7, 4, 33},
                         .dtype = GetParam(),
                         .target = target,
                         .reduction = Reduction::kNone,
                         .target_strides = strides});
  for (unsigned axes = 1; axes < 8; ++axes)
    ExpectRightBoth({.dims = {3, 7, 4, 33},
                     .dtype = GetParam(),
                     .reduction = Reduction::kMean,
                     .target_strides = Reversed(DenseStrides(positions), axes)});
  // Expanded: one target for an axis, or for all of it. The last one that is written holds everywhere.
  for (const Dims& strides : std::vector<Dims>{{0, 33, 1}, {33, 0, 1}, {1, 3, 0}, {0, 0, 0}})
    for (const Reduction reduction : kReductions)
      ExpectRightBoth({.dims = {3, 7, 4, 33}, .dtype = GetParam(), .reduction = reduction, .target_strides = strides});
}

TEST_P(NllStrides, ExpandedInput) {
  for (const Dims& strides : std::vector<Dims>{{0, 33, 1}, {33, 0, 1}, {231, 33, 0}, {0, 0, 0}, {0, 1, 1}, {-2, 3, 0}})
    for (const Reduction reduction : kReductions)
      ExpectRightForward({.dims = {4, 7, 33}, .dtype = GetParam(), .reduction = reduction, .strides = strides});
}

// Everything else that is read or written may have strides too.
TEST_P(NllStrides, OtherTensors) {
  const Dims dims{3, 7, 4, 33}, positions{3, 4, 33};
  std::vector<Dims> strides = AllPermutedStrides(positions, 1);
  for (unsigned axes = 1; axes < 8; ++axes) strides.push_back(Reversed(DenseStrides(positions), axes));
  const std::size_t outputs = strides.size();  // the rest overlap themselves
  for (const Dims& expanded : std::vector<Dims>{{0, 33, 1}, {33, 0, 1}, {4, 1, 0}, {0, 0, 0}, {0, 0, -1}})
    strides.push_back(expanded);
  for (std::size_t s = 0; s < strides.size(); ++s) {
    SCOPED_TRACE(s);
    const NllCase c{.dims = dims,
                    .dtype = GetParam(),
                    .reduction = Reduction::kNone,
                    .weight = GetParam(),
                    .token_weight = GetParam(),
                    .accumulate = s % 2 == 1};
    NllProblem forward = MakeForward(c);
    forward.weight = Filled(GetParam(), {7}, {std::vector<std::int64_t>{1, -1, 3, 0, -2}[s % 5]});
    forward.token_weight = Filled(GetParam(), positions, strides[s]);
    if (s < outputs) forward.loss = Tensor(GetParam(), positions, strides[s]);
    ExpectRight(std::move(forward));
    NllBackwardProblem backward = MakeBackward(c);
    backward.weight = Filled(GetParam(), {7}, {std::vector<std::int64_t>{1, -1, 3, 0, -2}[s % 5]});
    backward.token_weight = Filled(GetParam(), positions, strides[s]);
    backward.grad_output = Filled(DType::kF32, positions, strides[strides.size() - 1 - s]);
    ExpectRight(backward);
    if (s >= outputs) continue;
    backward.options.compact = true, backward.options.num_classes = 7;
    backward.out = Filled(GetParam(), positions, strides[s]);
    ExpectRight(std::move(backward));
  }
}

// Strides of axes with one element mean nothing.
TEST_P(NllStrides, SingleElementAxes) {
  ExpectRightBoth({.dims = {1, 5, 1, 33}, .dtype = GetParam(), .strides = {1000000007, 33, -99, 1}});
  ExpectRightBoth({.dims = {6, 1, 33}, .dtype = GetParam(), .strides = {33, 0, 1}});
  ExpectRightBoth({.dims = {6, 5, 1}, .dtype = GetParam(), .strides = {5, 1, 0}});
}

// A reduced gradient and reduced results are one element of any rank.
TEST_P(NllStrides, OneElementOfAnyRank) {
  for (const Dims& one : std::vector<Dims>{{}, {1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    NllProblem forward = MakeForward({.dims = {3, 5, 4}, .dtype = GetParam(), .denominator = DType::kF32});
    forward.loss = Tensor(GetParam(), one), forward.total_weight = Tensor(DType::kF64, one);
    forward.denominator = Filled(DType::kF32, one, DenseStrides(one));
    ExpectRight(std::move(forward));
    NllBackwardProblem backward = MakeBackward({.dims = {3, 5, 4}, .dtype = GetParam()});
    backward.grad_output = Filled(GetParam(), one, DenseStrides(one));
    backward.total_weight = Filled(GetParam(), one, DenseStrides(one));
    ExpectRight(std::move(backward));
  }
}

// out at every offset from a cache line, with nothing written beside it.
TEST_P(NllStrides, AnyAlignment) {
  const OutputsPastCaches past_caches;
  const auto expect = [&](const NllCase& c, std::int64_t shifts) {
    NllBackwardProblem problem = MakeBackward(c);
    const Bits promise = Promise(problem.op());
    const std::int64_t count = problem.out.numel(), size = SizeOf(GetParam());
    for (std::int64_t shift = 0; shift < shifts; ++shift) {
      Tensor room(GetParam(), {count + 64}, Placed::kAtLine);
      NllLossBackward op = problem.op();
      op.out = TensorView(static_cast<std::byte*>(room.view().data) + shift * size, problem.out.layout());
      // 0xFF around it, as it was.
      Bits want(static_cast<std::size_t>((count + 64) * size), std::byte{0xFF});
      std::copy(promise.begin(), promise.end(), want.begin() + shift * size);
      OnEveryTarget(op, {&room}, {2}, [&] { EXPECT_EQ(room.Bytes(), want) << "shift " << shift; });
    }
  };
  for (const std::int64_t P : {1, 5, 67, 256})
    expect({.dims = {2, 5, P}, .dtype = GetParam(), .target = DType::kI32, .reduction = Reduction::kSum},
           64 / SizeOf(GetParam()) + 1);
  expect({.dims = {70, 21}, .dtype = GetParam(), .reduction = Reduction::kNone}, 64 / SizeOf(GetParam()) + 1);
  // Large enough to be stored past the caches.
  expect({.dims = {2, 21, 54001}, .dtype = GetParam(), .target = DType::kU8, .reduction = Reduction::kSum}, 2);
}

// Long enough for several threads, and strided.
TEST_P(NllStrides, Large) {
  const Dims dims{2, 21, 50, 61};
  for (const auto& order :
       std::vector<std::vector<std::size_t>>{{0, 2, 3, 1}, {1, 0, 2, 3}, {3, 2, 1, 0}, {0, 3, 1, 2}})
    for (const Reduction reduction : kReductions)
      ExpectRightBoth({.dims = dims,
                       .dtype = GetParam(),
                       .target = DType::kI16,
                       .reduction = reduction,
                       .like = {.blocky = true},
                       .strides = PermutedStrides(dims, order)},
                      {1, 3});
}

}  // namespace
}  // namespace onehot::test
