// What holds between the NLL loss and its gradient, and between problems, whatever the numbers are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tests/native/nll_cases.h"

namespace onehot::test {
namespace {

// The loss is linear in x, so a difference quotient of any width is the gradient but for rounding: x is at most 16 and
// steps are 1, terms are some 2^12 at most and there are 24 of them.
TEST(NllProperties, FiniteDifferences) {
  for (const int class_axis : {0, 1, -1})
    for (const Reduction reduction : {Reduction::kMean, Reduction::kSum}) {
      const NllCase c{.dims = {4, 3, 5},
                      .class_axis = class_axis,
                      .dtype = DType::kF64,
                      .reduction = reduction,
                      .weight = DType::kF64,
                      .token_weight = DType::kF64};
      NllProblem forward = MakeForward(c);
      NllBackwardProblem backward = MakeBackward(c);
      backward.target = forward.target, backward.weight = forward.weight;
      backward.token_weight = forward.token_weight;
      for (const Target& target : Targets<NllLoss>()) {
        if (!Takes(target, forward.op())) continue;
        SCOPED_TRACE(target.name());
        EXPECT_OK(RunOn(target, forward.op()));
        if (backward.total_weight) backward.total_weight->SetValue(0, forward.total_weight->Value(0));
        EXPECT_OK(RunOn(Targets<NllLossBackward>().front(), backward.op()));
        const double loss = forward.loss.Value(0), g = backward.grad_output.Value(0);
        for (std::int64_t k = 0; k < forward.input.numel(); ++k) {
          const double x = forward.input.Value(k);
          forward.input.SetValue(k, x + 1);
          EXPECT_OK(RunOn(target, forward.op()));
          forward.input.SetValue(k, x);
          const double scale = 1 + std::abs(loss) + std::abs(forward.loss.Value(0));
          EXPECT_NEAR(g * (forward.loss.Value(0) - loss), backward.out.Value(k), 0x1p-40 * scale) << k;
        }
      }
    }
}

// <g, loss(x)> = <backward(g), x> for every g and x, with reduction none.
TEST(NllProperties, BackwardIsTheAdjoint) {
  for (const Dims& dims : std::vector<Dims>{{50, 7}, {3, 7, 40}, {2, 150, 6, 7}}) {
    const NllCase c{.dims = dims,
                    .dtype = DType::kF64,
                    .reduction = Reduction::kNone,
                    .weight = DType::kF64,
                    .token_weight = DType::kF32};
    NllProblem forward = MakeForward(c);
    NllBackwardProblem backward = MakeBackward(c);
    backward.target = forward.target, backward.weight = forward.weight;
    backward.token_weight = forward.token_weight;
    FillGradient(backward.grad_output, 1234);
    for (const Target& target : Targets<NllLossBackward>()) {
      if (!Takes(target, backward.op())) continue;
      SCOPED_TRACE(target.name());
      EXPECT_OK(RunOn(Targets<NllLoss>().front(), forward.op()));
      EXPECT_OK(RunOn(target, backward.op()));
      long double left = 0, right = 0, magnitude = 0;
      for (std::int64_t i = 0; i < forward.loss.numel(); ++i)
        left += static_cast<long double>(backward.grad_output.Value(i)) * forward.loss.Value(i);
      for (std::int64_t k = 0; k < forward.input.numel(); ++k) {
        const long double term = static_cast<long double>(backward.out.Value(k)) * forward.input.Value(k);
        right += term, magnitude += std::abs(term);
      }
      EXPECT_GT(magnitude, 0);
      // Each side rounds a term twice, to 2^-53 of it.
      EXPECT_LE(std::abs(left - right), 5 * 0x1p-53L * magnitude);
    }
  }
}

// The gradient of a run that knows only the total weight of the forward one is that of PyTorch's autograd.
TEST(NllProperties, GradientsOfTheMeanAddUpToMinusOne) {
  for (const DType dtype : kGradientDTypes) {
    NllProblem forward = MakeForward({.dims = {3, 5, 20}, .dtype = dtype});
    NllBackwardProblem backward = MakeBackward({.dims = {3, 5, 20}, .dtype = dtype});
    backward.grad_output.SetValue(0, 1);
    for (const Target& target : Targets<NllLossBackward>()) {
      if (!Takes(target, backward.op())) continue;
      EXPECT_OK(RunOn(Targets<NllLoss>().front(), forward.op()));
      backward.total_weight->SetValue(0, forward.total_weight->Value(0));
      EXPECT_OK(RunOn(target, backward.op()));
      const std::vector<double> out = backward.out.Values();
      const double eps = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
      EXPECT_NEAR(std::accumulate(out.begin(), out.end(), 0.0), -1, eps) << target.name();
    }
  }
}

// Deleting the ignored positions changes neither loss nor total weight but for the order of sums, which integers do not
// see.
TEST(NllProperties, IgnoredPositionsMightAsWellNotBeThere) {
  NllProblem all = MakeForward({.dims = {500, 6}, .dtype = DType::kF64, .weight = DType::kF64});
  std::vector<double> kept, targets;
  for (std::int64_t k = 0; k < 3000; ++k) all.input.SetValue(k, static_cast<double>(-1 - k % 17));
  all.weight->SetAll({1, 2, 3, 4, 5, 6});
  for (std::int64_t i = 0; i < 500; ++i) {
    if (all.target.Value(i) == -100) continue;
    targets.push_back(all.target.Value(i));
    for (std::int64_t c = 0; c < 6; ++c) kept.push_back(all.input.Value(6 * i + c));
  }
  ASSERT_LT(targets.size(), 500u);
  NllProblem some = MakeForward(
      {.dims = {static_cast<std::int64_t>(targets.size()), 6}, .dtype = DType::kF64, .weight = DType::kF64});
  some.input.SetAll(kept), some.target.SetAll(targets), some.weight->SetAll({1, 2, 3, 4, 5, 6});
  for (const Target& target : Targets<NllLoss>()) {
    if (!Takes(target, all.op())) continue;
    EXPECT_OK(RunOn(target, all.op()));
    EXPECT_OK(RunOn(target, some.op()));
    EXPECT_EQ(all.loss.Value(0), some.loss.Value(0));
    EXPECT_EQ(all.total_weight->Value(0), some.total_weight->Value(0));
  }
}

// compact is what the gradient holds at the targets, and accumulating twice onto zeros doubles it.
TEST(NllProperties, CompactAndAccumulateAgreeWithThePlainGradient) {
  for (const DType dtype : kGradientDTypes) {
    const NllCase c{.dims = {200, 9}, .dtype = dtype, .reduction = Reduction::kNone};
    NllBackwardProblem plain = MakeBackward(c),
                       compact = MakeBackward(
                           {.dims = {200, 9}, .dtype = dtype, .reduction = Reduction::kNone, .compact = true});
    for (const Target& target : Targets<NllLossBackward>()) {
      if (!Takes(target, plain.op()) || !Takes(target, compact.op())) continue;
      EXPECT_OK(RunOn(target, plain.op()));
      EXPECT_OK(RunOn(target, compact.op()));
      for (std::int64_t i = 0; i < 200; ++i) {
        const auto y = static_cast<std::int64_t>(plain.target.Value(i));
        ASSERT_EQ(compact.out.Value(i), y < 0 ? 0 : plain.out.Value(9 * i + y)) << i;
      }
      Tensor twice(dtype, {200, 9});
      twice.SetAll(std::vector<double>(1800, 0));
      NllLossBackward op = plain.op();
      op.out = twice.view(), op.accumulate = true;
      EXPECT_OK(RunOn(target, op));
      EXPECT_OK(RunOn(target, op));
      for (std::int64_t k = 0; k < 1800; ++k) ASSERT_EQ(twice.Value(k), 2 * plain.out.Value(k)) << k;
    }
  }
}

// num_classes is the range of targets in compact, and nothing where out has a class axis.
TEST(NllProperties, NumClassesCountsInCompactAlone) {
  NllBackwardProblem plain = MakeBackward({.dims = {20, 9}});
  plain.options.num_classes = -5;
  ExpectRight(std::move(plain));
}

}  // namespace
}  // namespace onehot::test
