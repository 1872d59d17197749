// Faults of NLL losses that users have reported somewhere, each with numbers worked by hand, and their siblings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/native/nll_cases.h"
#include "tests/native/reserved.h"

namespace onehot::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(NllReportedFaults, AnUncheckedTargetDoesNotWriteAnotherRow) {
  Tensor grad(DType::kF32, {3}), target(DType::kI64, {3}), out(DType::kF32, {3, 4});
  SetIndices(target, {4, 1, 1});
  const NllLossBackward op{
      .grad_output = grad.view(), .target = target.view(), .out = out.view(), .reduction = Reduction::kNone};
  ExpectBadData(op, {&out}, "target[0] = 4 is outside [0, 4)");
}

TEST(NllReportedFaults, EverythingIgnored) {
  for (const DType dtype : kGradientDTypes)
    for (const bool zero_if_empty : {false, true}) {
      NllProblem problem = MakeForward({.dims = {2, 4, 9, 8}, .dtype = dtype, .zero_if_empty = zero_if_empty});
      SetIndices(problem.target, std::vector<std::int64_t>(144, -100));
      OnEveryTarget(problem.op(), {&problem.loss, &*problem.total_weight}, {1, 3}, [&] {
        EXPECT_EQ(std::isnan(problem.loss.Value(0)), !zero_if_empty);
        EXPECT_TRUE(!zero_if_empty || problem.loss.Value(0) == 0);
        EXPECT_EQ(problem.total_weight->Value(0), 0);
      });
      NllBackwardProblem backward = MakeBackward({.dims = {2, 4, 9, 8}, .dtype = dtype});
      SetIndices(backward.target, std::vector<std::int64_t>(144, -100));
      backward.total_weight->SetValue(0, 0);
      OnEveryTarget(backward.op(), {&backward.out}, {1, 3},
                    [&] { EXPECT_THAT(backward.out.Bytes(), Each(std::byte{0})); });
    }
}

TEST(NllReportedFaults, EmptyDims) {
  for (const Dims& dims : std::vector<Dims>{{0, 3, 5, 7}, {2, 3, 0, 7}})
    for (const bool zero_if_empty : {false, true}) {
      NllProblem problem = MakeForward({.dims = dims, .zero_if_empty = zero_if_empty});
      OnEveryTarget(problem.op(), {&problem.loss, &*problem.total_weight}, {1}, [&] {
        EXPECT_EQ(std::isnan(problem.loss.Value(0)), !zero_if_empty);
        EXPECT_EQ(problem.total_weight->Value(0), 0);
      });
      problem.options.reduction = Reduction::kSum;
      OnEveryTarget(problem.op(), {&problem.loss, &*problem.total_weight}, {1},
                    [&] { EXPECT_EQ(problem.loss.Value(0), 0); });
      NllProblem none = MakeForward({.dims = dims, .reduction = Reduction::kNone});
      OnEveryTarget(none.op(), {&none.loss, &*none.total_weight}, {1},
                    [&] { EXPECT_EQ(none.total_weight->Value(0), 0); });
    }
}

TEST(NllReportedFaults, TheLossDoesNotDifferFromRunToRun) {
  ExpectRightForward({.dims = {16, 2, 256, 256}, .result = DType::kF64, .weight = DType::kF32}, {1, 2, 3, 7, 7, 0});
}

// Weights of .3 and inputs of -1.3 as bf16 has them: .30078125 and -1.296875. The mean is 1.296875 exactly, whatever the
// weight; so is it in f16, and what is near .3 in each dtype.
TEST(NllReportedFaults, WeightedMeanInSixteenBits) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const std::int64_t N : {1000, 100000}) {
      Tensor x(dtype, {}), w(dtype, {}), target(DType::kU8, {}), loss(dtype, {}), total(DType::kF64, {});
      x.SetValue(0, -1.3), w.SetValue(0, .3), target.SetValue(0, 0);
      NllLoss op;
      op.input = ConstTensorView(x.view().data, LayoutOf(dtype, {N, 1}, {0, 0}));
      op.target = ConstTensorView(target.view().data, LayoutOf(DType::kU8, {N}, {0}));
      op.weight = ConstTensorView(w.view().data, LayoutOf(dtype, {1}, {0}));
      op.loss = loss.view(), op.total_weight = total.view();
      EXPECT_TRUE(dtype == DType::kF16 || x.Value(0) == -1.296875);
      OnEveryTarget(op, {&loss, &total}, {1, 3}, [&] {
        EXPECT_EQ(loss.Value(0), -x.Value(0));
        EXPECT_EQ(total.Value(0), w.Value(0) * static_cast<double>(N));
      });
    }
}

// f32 sums of 2^25 ones stall at 2^24.
TEST(NllReportedFaults, MeanOverManyPixels) {
  const std::int64_t N = std::int64_t{1} << 25;
  const float x[] = {-1, -0.1F};
  const std::uint8_t y = 0;
  Tensor loss(DType::kF32, {}), total(DType::kF32, {});
  NllLoss op;
  op.target = ConstTensorView(&y, LayoutOf(DType::kU8, {1, N}, {0, 0}));
  op.loss = loss.view(), op.total_weight = total.view();
  // Once each: what the instruction sets have of their own is covered by smaller sums.
  for (const Target& target : {Targets<NllLoss>().front(), Targets<NllLoss>().back()}) {
    SCOPED_TRACE(target.name());
    for (const float& value : x) {
      op.input = ConstTensorView(&value, LayoutOf(DType::kF32, {1, 1, N}, {0, 0, 0}));
      op.reduction = Reduction::kMean;
      EXPECT_OK(RunOn(target, op, WithThreads(2)));
      EXPECT_NEAR(loss.Value(0), -value, 1e-6 * -value);
      EXPECT_EQ(total.Value(0), 33554432);
    }
    op.input = ConstTensorView(&x[0], LayoutOf(DType::kF32, {1, 1, N}, {0, 0, 0}));
    op.reduction = Reduction::kSum;
    EXPECT_OK(RunOn(target, op, WithThreads(2)));
    EXPECT_EQ(loss.Value(0), 33554432);
  }
}

// channels_last and all other orders of the axes give the bits of the contiguous copy.
TEST(NllReportedFaults, PermutedIsAsTheContiguousCopy) {
  const Dims dims{2, 5, 3, 4};
  for (const DType dtype : kGradientDTypes) {
    const NllCase c{.dims = dims, .dtype = dtype, .weight = dtype};
    NllProblem dense = MakeForward(c);
    NllBackwardProblem dense_backward = MakeBackward(c);
    EXPECT_OK(RunOn(Targets<NllLoss>().front(), dense.op()));
    EXPECT_OK(RunOn(Targets<NllLossBackward>().front(), dense_backward.op()));
    for (const Dims& strides : AllPermutedStrides(dims)) {
      Tensor input(dtype, dims, strides), out(dtype, dims, strides), loss(dtype, {});
      input.SetAll(dense.input.Values());
      NllLoss op = dense.op();
      op.input = input.view(), op.loss = loss.view(), op.total_weight.reset();
      OnEveryTarget(op, {&loss}, {2}, [&] { EXPECT_EQ(loss.Bytes(), dense.loss.Bytes()); });
      NllLossBackward backward = dense_backward.op();
      backward.out = out.view();
      OnEveryTarget(backward, {&out}, {2}, [&] { EXPECT_EQ(out.Bytes(), dense_backward.out.Bytes()); });
    }
  }
}

TEST(NllReportedFaults, IgnoreIndexInsideTheClasses) {
  for (const DType dtype : kGradientDTypes)
    for (const DType target_dtype : kTargetDTypes) {
      Tensor input(dtype, {3, 4}), target(target_dtype, {3}), loss(dtype, {3}), grad(dtype, {3}), out(dtype, {3, 4});
      input.SetAll({-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12});
      SetIndices(target, {0, 3, 0});
      const NllLoss op{.input = input.view(),
                       .target = target.view(),
                       .loss = loss.view(),
                       .reduction = Reduction::kNone,
                       .ignore_index = 0};
      OnEveryTarget(op, {&loss}, {1}, [&] { EXPECT_THAT(loss.Values(), ElementsAre(0, 8, 0)); });
      grad.SetAll({5, 6, 7});
      const NllLossBackward backward{.grad_output = grad.view(),
                                     .target = target.view(),
                                     .out = out.view(),
                                     .reduction = Reduction::kNone,
                                     .ignore_index = 0};
      OnEveryTarget(backward, {&out}, {1},
                    [&] { EXPECT_THAT(out.Values(), ElementsAre(0, 0, 0, 0, 0, 0, 0, -6, 0, 0, 0, 0)); });
    }
}

// weight [-1, 2]: terms 1 * -1 * ... add up with their signs; D = -1 + 2 + 2 = 3; loss (-1 * 1 + 2 * 4 + 2 * 6) / 3.
TEST(NllReportedFaults, NegativeWeights) {
  for (const DType dtype : kGradientDTypes) {
    Tensor input(dtype, {3, 2}), target(DType::kI64, {3}), weight(dtype, {2}), loss(DType::kF64, {}), grad(dtype, {}),
        out(dtype, {3, 2}), total(dtype, {});
    input.SetAll({-1, -2, -3, -4, -5, -6});
    SetIndices(target, {0, 1, 1});
    weight.SetAll({-1, 2}), grad.SetAll({3}), total.SetAll({3});
    NllLoss op{.input = input.view(), .target = target.view(), .loss = loss.view()};
    op.weight = weight.view();
    OnEveryTarget(op, {&loss}, {1}, [&] { EXPECT_EQ(loss.Value(0), 19.0 / 3.0); });
    NllLossBackward backward{.grad_output = grad.view(), .target = target.view(), .out = out.view()};
    backward.weight = weight.view(), backward.total_weight = total.view();
    OnEveryTarget(backward, {&out}, {1}, [&] { EXPECT_THAT(out.Values(), ElementsAre(1, 0, 0, -2, 0, -2)); });
    // A weight of -0 is a weight of 0: what it multiplies is a zero, and everything else is as it was.
    weight.SetAll({-0.0, 2});
    OnEveryTarget(backward, {&out}, {1}, [&] { EXPECT_THAT(out.Values(), ElementsAre(0, 0, 0, -2, 0, -2)); });
    OnEveryTarget(op, {&loss}, {1}, [&] { EXPECT_EQ(loss.Value(0), 5); });
  }
}

// 90000 is beyond f16: the loss is right, since sums are in f64, the total weight is infinite in f16 and right in f32.
TEST(NllReportedFaults, TotalWeightBeyondF16) {
  const std::int64_t H = 300, W = 300;
  NllProblem problem = MakeForward({.dims = {1, 3, H, W}, .dtype = DType::kF16, .like = {.ignored = 0}});
  problem.input.SetAll(std::vector<double>(static_cast<std::size_t>(3 * H * W), -1.5));
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kF64}) {
    problem.total_weight.emplace(dtype, Dims{});
    OnEveryTarget(problem.op(), {&problem.loss, &*problem.total_weight}, {1, 3}, [&] {
      EXPECT_EQ(problem.loss.Value(0), 1.5);
      EXPECT_EQ(problem.total_weight->Value(0), dtype == DType::kF16 ? std::numeric_limits<double>::infinity() : 90000);
    });
  }
  // Backward with the total weight in f32: 2^16 / 90000 is no zero; with the infinite one it is one.
  Tensor grad(DType::kF16, {}), out(DType::kF16, {1, 3, H, W});
  grad.SetValue(0, 45000);
  NllLossBackward backward{.grad_output = grad.view(), .target = problem.target.view(), .out = out.view()};
  Tensor total(DType::kF32, {});
  total.SetValue(0, 90000);
  backward.total_weight = total.view();
  OnEveryTarget(backward, {&out}, {3}, [&] {
    double sum = 0;
    for (const double value : out.Values()) sum += value;
    EXPECT_EQ(sum, -0.5 * 90000);
  });
}

// PyTorch's example of an image: 32-bit targets, sizes of a detector's head.
TEST(NllReportedFaults, DetectorShapes) {
  ExpectRightBoth({.dims = {5, 4, 8, 8}, .target = DType::kI32, .reduction = Reduction::kNone}, {1, 3});
  ExpectRightBoth({.dims = {4, 81, 873}, .target = DType::kI32, .weight = DType::kF32}, {1, 3});
  ExpectRightBoth({.dims = {256, 100}, .ignore_index = 1}, {1, 3});
  ExpectRightBoth({.dims = {4800}, .target = DType::kI32}, {1, 3});
}

}  // namespace
}  // namespace onehot::test
