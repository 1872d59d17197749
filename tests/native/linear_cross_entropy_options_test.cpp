// Every option of linear cross entropy with every level of every other, against the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tests/native/data.h"
#include "tests/native/linear_cross_entropy_cases.h"
#include "tests/native/linear_cross_entropy_oracle.h"

namespace onehot::test {
namespace {

// What may differ between two problems, and at how many levels.
enum Option : std::size_t {
  kInput,
  kTarget,
  kBias,
  kClassWeight,
  kTokenWeight,
  kOperandF32,
  kDenominator,
  kSmoothing,
  kZLoss,
  kSoftcap,
  kScale,
  kIgnoreIndex,
  kReduction,
  kZeroIfEmpty,
  kUpstream,
  kAccumulate,
  kGradientF32,
  kResult,
  kShape,
  kOptions,
};
const Levels kLevels = {4, 5, 3, 2, 2, 2, 2, 3, 2, 2, 3, 4, 3, 2, 7, 2, 2, 3, 3};

LinearCrossEntropyCase CaseOf(const Levels& levels) {
  constexpr std::int64_t kIgnored[] = {kDefaultIgnoreIndex, 0, 7, -1};  // two of them inside [0, V)
  constexpr double kSmoothings[] = {0, 0.1, 1}, kScales[] = {1, 0.5, -1.25};
  struct Shape {
    Dims positions;
    std::int64_t H, V;
  };
  const Shape shapes[] = {{{13}, 9, 37}, {{3, 5}, 33, 19}, {{40}, 4, 90}};
  const DType input = kGradientDTypes[levels[kInput]];
  const bool half = SizeOf(input) == 2;
  const Shape& shape = shapes[levels[kShape]];
  LinearCrossEntropyCase c{.positions = shape.positions, .H = shape.H, .V = shape.V, .input = input};
  c.target = kTargetDTypes[levels[kTarget]];
  c.bias = levels[kBias] > 0;
  if (levels[kBias] == 2) c.bias_dtype = DType::kF32;
  c.weight = levels[kClassWeight] == 1, c.token_weight = levels[kTokenWeight] == 1;
  if (levels[kOperandF32] == 1) c.operand = DType::kF32;
  c.denominator = levels[kDenominator] == 1;
  c.label_smoothing = kSmoothings[levels[kSmoothing]];
  c.z_loss = levels[kZLoss] == 1 ? 2e-3 : 0;
  c.softcap = levels[kSoftcap] == 1 ? 3 : 0;
  c.logit_scale = kScales[levels[kScale]];
  c.ignore_index = kIgnored[levels[kIgnoreIndex]], c.ignored = 0.2;
  c.reduction = kReductions[levels[kReduction]];
  c.zero_if_empty = levels[kZeroIfEmpty] == 1;
  const std::size_t upstream = levels[kUpstream] + 1;
  c.g = (upstream & 1) != 0, c.r = (upstream & 2) != 0, c.h = (upstream & 4) != 0;
  c.accumulate = levels[kAccumulate] == 1;
  if (levels[kGradientF32] == 1 && half) c.gradient = DType::kF32;
  if (levels[kResult] > 0) c.result = levels[kResult] == 2 || !half ? DType::kF64 : DType::kF32;
  return c;
}

TEST(LinearCrossEntropyOptions, AllPairs) {
  const std::vector<Levels> rows = AllPairs(kLevels);
  EXPECT_GE(rows.size(), 35u);   // five dtypes of target with seven of upstream
  EXPECT_LE(rows.size(), 120u);  // or the search has gone astray
  std::uint64_t seed = 1;
  for (const Levels& row : rows) ExpectRightEverywhere(CaseOf(row), seed++);
}

// Three reductions, seven combinations upstream, with and without accumulate: everything that sends a gradient.
TEST(LinearCrossEntropyOptions, UpstreamGradients) {
  for (const Reduction reduction : kReductions)
    for (unsigned upstream = 0; upstream < 8; ++upstream)
      for (const bool accumulate : {false, true}) {
        LinearCrossEntropyCase c{.positions = {11}, .H = 6, .V = 21, .z_loss = 1e-2, .reduction = reduction};
        c.g = (upstream & 1) != 0, c.r = (upstream & 2) != 0, c.h = (upstream & 4) != 0, c.accumulate = accumulate;
        ExpectRightEverywhere(c, upstream + 1);
      }
}

// Upstream gradients of the loss may be wider than the input, or f32.
TEST(LinearCrossEntropyOptions, UpstreamDTypes) {
  for (const DType input : kGradientDTypes)
    for (const DType dtype : {input, DType::kF32, DType::kF64})
      for (const Reduction reduction : kReductions) {
        LinearCrossEntropyProblem problem(
            {.positions = {11}, .H = 6, .V = 21, .input = input, .reduction = reduction, .ignored = 0});
        Tensor upstream(dtype, reduction == Reduction::kNone ? Dims{11} : Dims{1, 1});
        for (std::int64_t k = 0; k < upstream.numel(); ++k) upstream.SetValue(k, 0.1 * static_cast<double>(k - 4));
        problem.upstream_loss = upstream;
        ExpectRightEverywhere(problem);
      }
}

// A denominator of f32, of any rank; not read but for mean, where nothing may come of it being NaN.
TEST(LinearCrossEntropyOptions, Denominators) {
  for (const Reduction reduction : kReductions) {
    LinearCrossEntropyProblem problem(
        WithEverything({.positions = {11}, .H = 6, .V = 21, .denominator = true, .reduction = reduction}));
    problem.denominator = Tensor(DType::kF32, {1, 1});
    problem.denominator->SetValue(0, reduction == Reduction::kMean ? 5.25 : std::nan(""));
    ExpectRightEverywhere(problem);
  }
}

// Negative and zero weights of classes and tokens: linear in both.
TEST(LinearCrossEntropyOptions, OddWeights) {
  for (const Reduction reduction : kReductions)
    for (const double smoothing : {0., .2}) {
      LinearCrossEntropyProblem problem({.positions = {40},
                                         .H = 6,
                                         .V = 11,
                                         .weight = true,
                                         .token_weight = true,
                                         .denominator = reduction == Reduction::kMean,
                                         .label_smoothing = smoothing,
                                         .reduction = reduction});
      problem.class_weight->SetAll({0, -1, 2, 0, 0.5, 3, -0.25, 1, 1, 0, -2});
      for (std::int64_t i = 0; i < 40; ++i) problem.token_weight->SetValue(i, static_cast<double>(i % 4 - 1));
      ExpectRightEverywhere(problem);
    }
}

// Without a bias grad.bias is the same sum. With one of zeros it has the same values.
TEST(LinearCrossEntropyOptions, BiasGradientWithoutBias) {
  LinearCrossEntropyCase c{.positions = {23}, .H = 6, .V = 21};
  LinearCrossEntropyProblem without(c);
  ExpectRightEverywhere(without);
  c.bias = true;
  LinearCrossEntropyProblem with(c);
  with.bias->SetAll(std::vector<double>(21, 0));
  OnTargets(without.forward(), without.outputs(), {1}, [&](const Target& target) {
    EXPECT_OK(RunOn(target, with.forward()));
    EXPECT_EQ(with.grad_bias.Values(), without.grad_bias.Values());
    EXPECT_EQ(with.loss.Values(), without.loss.Values());
  });
}

// logit_scale 0: all logits are 0, gradients too.
TEST(LinearCrossEntropyOptions, LogitScaleOfZero) {
  LinearCrossEntropyProblem problem(
      {.positions = {9}, .H = 6, .V = 8, .bias = true, .logit_scale = 0, .reduction = Reduction::kNone, .ignored = 0});
  OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
    for (std::int64_t i = 0; i < 9; ++i) {
      EXPECT_NEAR(problem.loss.Value(i), std::log(8.), 0x1p-21);
      EXPECT_EQ(problem.target_logit.Value(i), 0);
      EXPECT_EQ(problem.argmax.Get<std::int64_t>(i), 0);
    }
    for (const Tensor* gradient : problem.gradient_tensors())
      for (const double x : gradient->Values()) EXPECT_EQ(x, 0);
  });
}

// Classes that a bias of -infinity takes out, the target among them, under every option that meets them.
TEST(LinearCrossEntropyOptions, ClassesTakenOut) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType input : kGradientDTypes)
    for (const double softcap : {0., 5.})
      for (const double smoothing : {0., 0.1})
        for (const bool weights : {false, true}) {
          LinearCrossEntropyProblem problem({.positions = {12},
                                             .H = 7,
                                             .V = 40,
                                             .input = input,
                                             .bias = true,
                                             .weight = weights,
                                             .label_smoothing = smoothing,
                                             .z_loss = 1e-3,
                                             .softcap = softcap,
                                             .logit_scale = 0.75,
                                             .reduction = Reduction::kNone,
                                             .h = true});
          for (const std::int64_t v : {0, 17, 18, 39}) {
            problem.bias->SetValue(v, -inf);
            if (weights) problem.class_weight->SetValue(v, 0);
          }
          for (std::int64_t i = 0; i < 12; ++i) problem.target.Set<std::int64_t>(i, 1 + i);
          ExpectRightEverywhere(problem);
          if (smoothing > 0) continue;  // the loss would be 0 x infinity by weights
          problem.target.Set<std::int64_t>(3, 17);
          if (weights) problem.class_weight->SetValue(17, 1);
          ExpectRightEverywhere(problem);
          OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
            EXPECT_EQ(problem.loss.Value(3), inf);
            EXPECT_EQ(problem.target_logit.Value(3), -inf);
            for (const Tensor* gradient : problem.gradient_tensors())
              for (const double x : gradient->Values()) ASSERT_TRUE(std::isfinite(x));
          });
        }
}

// Whole blocks of classes taken out, and all but one class.
TEST(LinearCrossEntropyOptions, BlocksOfClassesTakenOut) {
  for (const auto& [first, last] :
       {std::pair<std::int64_t, std::int64_t>{0, 1024}, {1024, 2048}, {1, 3000}, {0, 2999}}) {
    LinearCrossEntropyProblem problem(
        {.positions = {3}, .H = 3, .V = 3000, .bias = true, .reduction = Reduction::kNone, .ignored = 0, .h = true});
    for (std::int64_t v = first; v < last; ++v) problem.bias->SetValue(v, -HUGE_VAL);
    for (std::int64_t i = 0; i < 3; ++i) problem.target.Set<std::int64_t>(i, first == 0 ? 2999 : 0);
    ExpectRightEverywhere(problem);
  }
}

// With all of them out, lse is -infinity, the loss NaN and argmax 0.
TEST(LinearCrossEntropyOptions, AllClassesTakenOut) {
  LinearCrossEntropyProblem problem({.positions = {3}, .H = 3, .V = 5, .bias = true, .ignored = 0});
  for (std::int64_t v = 0; v < 5; ++v) problem.bias->SetValue(v, -HUGE_VAL);
  ExpectRightEverywhere(problem);
  OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
    EXPECT_EQ(problem.lse.Value(1), -HUGE_VAL);
    EXPECT_TRUE(std::isnan(problem.loss.Value(0)));
    EXPECT_EQ(problem.argmax.Get<std::int64_t>(1), 0);
  });
}

// The lowest index among equals, which small integers are exactly.
TEST(LinearCrossEntropyOptions, ArgmaxOfEquals) {
  for (const DType input : kGradientDTypes) {
    LinearCrossEntropyProblem problem({.positions = {4}, .H = 2, .V = 2100, .input = input, .ignored = 0});
    for (std::int64_t k = 0; k < 4200; ++k) problem.weight.SetValue(k, 1);
    problem.input.SetAll({1, 2, 1, 3, -1, -1, 0, 0});
    for (const std::int64_t v : {40, 1000, 1030, 2099}) problem.weight.SetValue(2 * v, 3);
    const std::int64_t want[] = {40, 40, 0, 0};
    OnTargets(problem.forward(), problem.outputs(), {1, 3}, [&](const Target&) {
      for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(problem.argmax.Get<std::int64_t>(i), want[i]) << i;
    });
  }
}

// NaN is larger than +infinity, and the first one counts, wherever the blocks of classes end.
TEST(LinearCrossEntropyOptions, ArgmaxOfNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType input : kGradientDTypes) {
    LinearCrossEntropyProblem problem({.positions = {3}, .H = 2, .V = 3100, .input = input, .ignored = 0});
    for (std::int64_t k = 0; k < 6200; ++k) problem.weight.SetValue(k, 1);
    problem.input.SetAll({1, 0.5, 0.25, 0.5, -1, 2});
    const auto expect = [&](const std::vector<std::int64_t>& want) {
      OnTargets(problem.forward(), problem.outputs(), {1, 3}, [&](const Target&) {
        for (std::int64_t i = 0; i < 3; ++i)
          EXPECT_EQ(problem.argmax.Get<std::int64_t>(i), want[static_cast<std::size_t>(i)]) << i;
      });
    };
    for (const std::int64_t v : {30, 1500, 2500}) problem.weight.SetValue(2 * v, HUGE_VAL);
    expect({30, 30, 0});
    for (const std::int64_t v : {3000, 2048, 2049}) problem.weight.SetValue(2 * v + 1, nan);
    expect({2048, 2048, 2048});
    problem.weight.SetValue(2 * 7, nan);
    expect({7, 7, 7});
  }
}

}  // namespace
}  // namespace onehot::test
