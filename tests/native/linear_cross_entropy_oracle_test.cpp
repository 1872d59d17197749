// The oracle of linear cross entropy against numbers worked by hand, finite differences, and the oracle of cross entropy.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/native/data.h"
#include "tests/native/linear_cross_entropy_cases.h"
#include "tests/native/linear_cross_entropy_oracle.h"

namespace onehot::test {
namespace {

constexpr double kDigits = 1e-6;  // the numbers below have six, some of them sums of two

void ExpectNear(const Bounded& got, const std::vector<double>& want) {
  ASSERT_EQ(got.value.size(), want.size());
  for (std::size_t k = 0; k < want.size(); ++k) EXPECT_NEAR(static_cast<double>(got.value[k]), want[k], kDigits) << k;
}

// In f64, with nothing upstream but g, which is 1.
LinearCrossEntropyProblem Problem(LinearCrossEntropyCase c, const std::vector<double>& x, const std::vector<double>& W,
                                  const std::vector<std::int64_t>& targets) {
  c.input = DType::kF64;
  c.positions = {static_cast<std::int64_t>(targets.size())};
  LinearCrossEntropyProblem problem(c);
  problem.input.SetAll(x);
  problem.weight.SetAll(W);
  SetIndices(problem.target, targets);
  for (std::int64_t k = 0; c.g && k < problem.upstream_loss->numel(); ++k) problem.upstream_loss->SetValue(k, 1);
  return problem;
}

LinearCrossEntropyDefinition DefinitionOf(LinearCrossEntropyProblem& problem) {
  return Define(problem.forward());
}

const std::vector<double> kSmall = {1, 0, 0, 1, 1, 1};  // x and W of problem P

LinearCrossEntropyProblem SmallProblem(LinearCrossEntropyCase c, const std::vector<std::int64_t>& targets = {0, 1, 2}) {
  c.H = 2, c.V = 3;
  return Problem(c, kSmall, kSmall, targets);
}

// Logits [1, 0, 1], [0, 1, 1], [1, 1, 2]: e / (2 e + 1) = .422319, 1 / (2 e + 1) = .155362, 1 / (2 + e) = .211942,
// e / (2 + e) = .576117; log(2 e + 1) = 1.861995, log(2 e + e^2) = 2.551445.
TEST(LinearCrossEntropyOracle, SmallProblem) {
  LinearCrossEntropyProblem none = SmallProblem({.reduction = Reduction::kNone});
  LinearCrossEntropyDefinition want = DefinitionOf(none);
  ExpectNear(want.loss, {.861995, .861995, .551445});
  ExpectNear(want.lse, {1.861995, 1.861995, 2.551445});
  ExpectNear(want.target_logit, {1, 1, 2});
  ExpectNear(want.log_probability, {-.861995, -.861995, -.551445});
  // 2 x .422319 x .861995 + .155362 x 1.861995; 2 x .211942 x 1.551445 + .576117 x .551445
  ExpectNear(want.entropy, {1.017357, 1.017357, .975328});
  ExpectNear(want.total_weight, {0});
  const std::int64_t argmax[] = {0, 1, 2};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(want.argmax[i].index, argmax[i]);

  LinearCrossEntropyProblem sum = SmallProblem({.reduction = Reduction::kSum});
  want = DefinitionOf(sum);
  ExpectNear(want.loss, {.861995 + .861995 + .551445});
  ExpectNear(want.total_weight, {3});
  ExpectNear(want.grad_weight, {-.365740, .367304, .367304, -.365740, -.001564, -.001564});
  // Sums over positions of p - one-hot.
  ExpectNear(want.grad_bias,
             {.422319 - 1 + .155362 + .211942, .422319 - 1 + .155362 + .211942, 2 * .422319 + .576117 - 1});
}

TEST(LinearCrossEntropyOracle, UpstreamOfEachPosition) {
  LinearCrossEntropyProblem all = SmallProblem({.reduction = Reduction::kNone});
  all.upstream_loss->SetAll({1, -2, .5});
  LinearCrossEntropyDefinition want = DefinitionOf(all);
  ExpectNear(want.grad_input, {-.155362, .577681, -1.155362, .310725, -.105971, -.105971});
  ExpectNear(want.grad_weight, {-.471710, -.204754, .261333, 1.261333, .210377, -1.056579});
  LinearCrossEntropyProblem some = SmallProblem({.reduction = Reduction::kNone}, {kDefaultIgnoreIndex, 1, 2});
  some.upstream_loss->SetAll({1, -2, .5});
  want = DefinitionOf(some);
  EXPECT_EQ(want.grad_input.value[0], 0);
  EXPECT_EQ(want.grad_input.value[1], 0);
  EXPECT_EQ(want.argmax[0].index, -1);
  ExpectNear(want.grad_weight, {.105971, -.204754, .105971, 1.261333, -.211942, -1.056579});
}

TEST(LinearCrossEntropyOracle, UpstreamOfTheMean) {
  for (const double g : {1., .5, 0.}) {
    LinearCrossEntropyProblem problem = SmallProblem({});
    problem.upstream_loss->SetAll({g});
    const LinearCrossEntropyDefinition want = DefinitionOf(problem);
    ExpectNear(want.loss, {.758478});
    ExpectNear(want.grad_weight, {-.365740 * g / 3, .367304 * g / 3, .367304 * g / 3, -.365740 * g / 3,
                                  -.001564 * g / 3, -.001564 * g / 3});
  }
}

TEST(LinearCrossEntropyOracle, AccumulateAddsTheOldGradients) {
  LinearCrossEntropyProblem problem = SmallProblem({.reduction = Reduction::kSum, .accumulate = true});
  problem.grad_weight.SetAll({1, 2, 3, 4, 5, 6});
  const LinearCrossEntropyDefinition want = DefinitionOf(problem);
  ExpectNear(want.grad_weight, {1 - .365740, 2 + .367304, 3 + .367304, 4 - .365740, 5 - .001564, 6 - .001564});
}

TEST(LinearCrossEntropyOracle, ManyPositions) {
  LinearCrossEntropyProblem problem = Problem({.H = 1, .V = 2, .reduction = Reduction::kSum},
                                              std::vector<double>(4096, 1), {0, 0}, std::vector<std::int64_t>(4096, 1));
  const LinearCrossEntropyDefinition want = DefinitionOf(problem);
  ExpectNear(want.grad_weight, {2048, -2048});
  ExpectNear(want.grad_bias, {2048, -2048});
  ExpectNear(want.loss, {4096 * std::log(2.)});
}

TEST(LinearCrossEntropyOracle, SingleNumbers) {
  LinearCrossEntropyProblem problem =
      Problem({.H = 1, .V = 2, .reduction = Reduction::kSum}, {1}, {0, -std::log(999.)}, {0});
  ExpectNear(DefinitionOf(problem).grad_bias, {-1e-3, 1e-3});
  problem = Problem({.H = 1, .V = 8}, {0x1p12}, std::vector<double>(8, 0x1p12), {3});
  ExpectNear(DefinitionOf(problem).loss, {2.0794415});
  problem = Problem({.H = 1, .V = 70000}, {0}, std::vector<double>(70000, 0), {3});
  ExpectNear(DefinitionOf(problem).loss, {11.1562505});
  problem = Problem({.H = 600, .V = 3, .bias = true}, std::vector<double>(600, 0), std::vector<double>(1800, 1), {0});
  problem.bias->SetAll({5, 0, 0});
  ExpectNear(DefinitionOf(problem).loss, {.013386});
  problem = Problem({.H = 1, .V = 4, .label_smoothing = .2}, {1}, {2, .5, -1, 1}, {0});
  ExpectNear(DefinitionOf(problem).loss, {.770182});
  problem = Problem({.H = 2, .V = 1}, {1, 2}, {3, 4}, {0});
  ExpectNear(DefinitionOf(problem).loss, {0});
  ExpectNear(DefinitionOf(problem).grad_weight, {0, 0});
}

// The third class is out: log(e + 1) - 1, log(1 + e) - 1, log 2.
TEST(LinearCrossEntropyOracle, AClassAtMinusInfinity) {
  LinearCrossEntropyProblem problem = SmallProblem({.bias = true, .reduction = Reduction::kSum}, {0, 1, 0});
  problem.bias->SetAll({0, 0, -HUGE_VAL});
  LinearCrossEntropyDefinition want = DefinitionOf(problem);
  ExpectNear(want.loss, {1.319671});
  for (const Bounded* gradient : {&want.grad_input, &want.grad_weight, &want.grad_bias})
    for (const long double x : gradient->value) EXPECT_TRUE(std::isfinite(x));
  EXPECT_EQ(want.grad_weight.value[4], 0);
  EXPECT_EQ(want.grad_weight.value[5], 0);
  EXPECT_EQ(want.grad_bias.value[2], 0);
  problem.c.label_smoothing = .1;
  EXPECT_EQ(DefinitionOf(problem).loss.value[0], HUGE_VALL);
  problem.class_weight = Tensor(DType::kF64, {3});
  problem.class_weight->SetAll({1, 1, 0});
  // eps / 3 times 2 log(e + 1) - 1 twice and 2 log 2, the rest .9 times the sum above
  ExpectNear(DefinitionOf(problem).loss, {.9 * 1.319671 + .1 / 3 * (2 * 1.626523 + 2 * .693147)});
}

// c = 2, u = .5 (x w + b) = [2 atanh(1/2), 0]: z = [1, 0], slopes [3/4, 1]; p = [.731059, .268941], du = [-.201706,
// .268941]. With x = 4, W = [1.5 w, 0]: du W = -.201706 x 1.5 w.
TEST(LinearCrossEntropyOracle, SoftcapAndLogitScale) {
  const double b = -1, w = (4 * std::atanh(.5) - b) / 4;
  LinearCrossEntropyProblem problem =
      Problem({.H = 1, .V = 2, .bias = true, .softcap = 2, .logit_scale = .5}, {4}, {w, 0}, {0});
  problem.bias->SetAll({b, 0});
  const LinearCrossEntropyDefinition want = DefinitionOf(problem);
  ExpectNear(want.loss, {.313262});
  ExpectNear(want.target_logit, {1});
  ExpectNear(want.grad_bias, {.5 * -.201706, .5 * .268941});
  ExpectNear(want.grad_weight, {2 * -.201706, 2 * .268941});
  ExpectNear(want.grad_input, {.5 * -.201706 * w});
}

// With W = 1 and no bias logits are alpha x, and grad.input is alpha times the gradient that cross entropy has for them.
TEST(LinearCrossEntropyOracle, EqualsThatOfCrossEntropy) {
  for (const Reduction reduction : kReductions)
    for (const double cap : {0., 4.}) {
      LinearCrossEntropyCase c = WithEverything({.positions = {9}, .H = 7, .V = 7, .input = DType::kF64});
      c.reduction = reduction, c.softcap = cap, c.logit_scale = -0.5, c.ignored = 0.3, c.bias = false;
      LinearCrossEntropyProblem problem(c);
      Tensor logits(DType::kF64, {9, 7}), gradient(DType::kF64, {9, 7});
      for (std::int64_t k = 0; k < 49; ++k) problem.weight.SetValue(k, k % 8 == 0 ? 1 : 0);
      for (std::int64_t k = 0; k < 63; ++k) logits.SetValue(k, -0.5 * problem.input.Value(k));
      const CrossEntropy forward{
          .input = std::as_const(logits).view(), .target = std::as_const(problem.target).view(), .options = [&] {
            CrossEntropyOptions options = problem.options().loss;
            options.class_axis = 1;
            return options;
          }()};
      const CrossEntropyBackward backward{.input = forward.input,
                                          .target = forward.target,
                                          .out = gradient.view(),
                                          .grad_loss = problem.upstream().loss,
                                          .grad_log_probability = problem.upstream().log_probability,
                                          .grad_entropy = problem.upstream().entropy,
                                          .options = forward.options};
      const LinearCrossEntropyDefinition got = DefinitionOf(problem);
      const CrossEntropyDefinition want = Define(forward);
      const auto expect = [](const Bounded& a, const Bounded& b, long double factor) {
        ASSERT_EQ(a.value.size(), b.value.size());
        for (std::size_t k = 0; k < a.value.size(); ++k)
          EXPECT_LE(std::abs(a.value[k] - factor * b.value[k]), 1e-15L * (1 + std::abs(a.value[k])));
      };
      expect(got.loss, want.loss, 1), expect(got.lse, want.lse, 1), expect(got.entropy, want.entropy, 1);
      expect(got.log_probability, want.log_probability, 1), expect(got.total_weight, want.total_weight, 1);
      expect(got.grad_input, Define(backward), -0.5L);
    }
}

// Positions that are ignored might as well not be there.
TEST(LinearCrossEntropyOracle, IgnoredPositionsAsIfDeleted) {
  for (const Reduction reduction : kReductions) {
    LinearCrossEntropyCase c = WithEverything({.positions = {20}, .H = 5, .V = 9, .input = DType::kF64});
    c.reduction = reduction, c.ignored = 0;
    LinearCrossEntropyProblem all(c);
    for (std::int64_t i = 12; i < 20; ++i) all.target.Set(i, kDefaultIgnoreIndex);
    c.positions = {12};
    LinearCrossEntropyProblem some(c);  // the first 12 rows: filled in order, with the same seeds
    some.weight = all.weight, some.class_weight = all.class_weight, some.bias = all.bias, some.target = [&] {
      Tensor target(DType::kI64, {12});
      for (std::int64_t i = 0; i < 12; ++i) target.Set(i, all.target.Get<std::int64_t>(i));
      return target;
    }();
    const LinearCrossEntropyDefinition a = DefinitionOf(all), b = DefinitionOf(some);
    for (std::size_t k = 0; k < 45; ++k) EXPECT_EQ(a.grad_weight.value[k], b.grad_weight.value[k]);
    for (std::size_t k = 0; k < b.loss.value.size(); ++k) EXPECT_EQ(a.loss.value[k], b.loss.value[k]);
    for (std::size_t k = 60; k < 100; ++k) EXPECT_EQ(a.grad_input.value[k], 0);
  }
}

TEST(LinearCrossEntropyOracle, NothingCounts) {
  for (const std::vector<std::int64_t>& targets : {std::vector<std::int64_t>{}, {-100, -100}}) {
    LinearCrossEntropyCase c{.H = 1, .V = 2};
    LinearCrossEntropyProblem problem = Problem(c, std::vector<double>(targets.size(), 1), {1, 2}, targets);
    EXPECT_TRUE(std::isnan(DefinitionOf(problem).loss.value[0]));
    ExpectNear(DefinitionOf(problem).grad_weight, {0, 0});
    problem.c.zero_if_empty = true;
    ExpectNear(DefinitionOf(problem).loss, {0});
    problem.c.reduction = Reduction::kSum;
    ExpectNear(DefinitionOf(problem).loss, {0});
  }
}

// g . loss + r . log_probability + h . entropy.
long double Objective(LinearCrossEntropyProblem& problem) {
  const LinearCrossEntropyDefinition now = DefinitionOf(problem);
  long double sum = 0;
  for (std::size_t k = 0; problem.c.g && k < now.loss.value.size(); ++k)
    sum += problem.upstream_loss->Value(static_cast<std::int64_t>(k)) * now.loss.value[k];
  for (std::size_t i = 0; i < now.lse.value.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (problem.c.r) sum += problem.upstream_log_probability->Value(at) * now.log_probability.value[i];
    if (problem.c.h) sum += problem.upstream_entropy->Value(at) * now.entropy.value[i];
  }
  return sum;
}

// Five points, step s: the error is s^4 / 30 of the fifth derivative. That of the objective by a logit is below 2000, and
// a step of an element below 1 moves logits, alpha = 1.25, by 2.5 s against each other at most, which to the fifth is
// below 100. Rounding in long double is smaller.
constexpr double kStep = 0x1p-12;
constexpr double kTolerance = 2000 * 100 * kStep * kStep * kStep * kStep / 30;

TEST(LinearCrossEntropyOracle, GradientsEqualFiniteDifferences) {
  for (unsigned options = 0; options < 128; ++options)
    for (unsigned upstream = 1; upstream < 8; ++upstream) {
      LinearCrossEntropyCase c{.positions = {3}, .H = 2, .V = 3, .input = DType::kF64, .bias = true};
      c.weight = (options & 1) != 0, c.token_weight = (options & 2) != 0, c.denominator = (options & 4) != 0;
      c.label_smoothing = (options & 8) != 0 ? 0.3 : 0, c.z_loss = (options & 16) != 0 ? 0.05 : 0;
      c.softcap = (options & 32) != 0 ? 3 : 0, c.logit_scale = (options & 64) != 0 ? 1.25 : 1;
      c.g = (upstream & 1) != 0, c.r = (upstream & 2) != 0, c.h = (upstream & 4) != 0, c.ignored = 0;
      c.reduction = kReductions[(options + upstream) % 3];
      SCOPED_TRACE(c.Describe());
      LinearCrossEntropyProblem problem(c, options * 8 + upstream);
      Random random(options + 100);
      problem.target.Set(1, kDefaultIgnoreIndex);
      Tensor* const inputs[] = {&problem.input, &problem.weight, &*problem.bias};
      for (Tensor* tensor : inputs)
        for (std::int64_t k = 0; k < tensor->numel(); ++k) tensor->SetValue(k, 2 * random.Unit() - 1);
      const LinearCrossEntropyDefinition want = DefinitionOf(problem);
      const Bounded* const gradients[] = {&want.grad_input, &want.grad_weight, &want.grad_bias};
      for (std::size_t which = 0; which < 3; ++which) {
        Tensor& tensor = *inputs[which];
        for (std::int64_t k = 0; k < tensor.numel(); ++k) {
          const double x = tensor.Value(k);
          long double f[4];
          const double steps[] = {-2, -1, 1, 2};
          for (int j = 0; j < 4; ++j) tensor.SetValue(k, x + steps[j] * kStep), f[j] = Objective(problem);
          tensor.SetValue(k, x);
          const long double slope = (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * kStep);
          ASSERT_NEAR(static_cast<double>(gradients[which]->value[static_cast<std::size_t>(k)]),
                      static_cast<double>(slope), kTolerance)
              << kLinearOutputs[kLinearResults + which] << " element " << k;
        }
      }
    }
}

// Products of bf16: the same values, bounds wider by 2^-8 of what went into products, those of grad.bias not at all.
TEST(LinearCrossEntropyOracle, BoundsOfBf16Products) {
  // z = [0, 0], p = 1/2, du = [-1, 1]: grad.weight = du 3, grad.input = du W = 0, of two terms of 5.
  LinearCrossEntropyProblem problem =
      Problem({.H = 2, .V = 2, .reduction = Reduction::kSum}, {3, 0}, {0, 5, 0, 5}, {0});
  problem.upstream_loss = Tensor(DType::kF64, {1});
  problem.upstream_loss->SetValue(0, 2);
  const LinearCrossEntropyDefinition f32 = Define(problem.forward());
  const LinearCrossEntropyDefinition bf16 = Define(problem.forward(), Products::kBF16);
  EXPECT_EQ(bf16.grad_weight.value, f32.grad_weight.value);
  EXPECT_EQ(bf16.grad_input.value, f32.grad_input.value);
  EXPECT_NEAR(static_cast<double>(bf16.grad_weight.floor[0]), 3 * 0x1p-8, 1e-9);
  EXPECT_NEAR(static_cast<double>(bf16.grad_input.floor[1]), 2 * 5 * 0x1p-8, 1e-9);
  EXPECT_NEAR(static_cast<double>(f32.grad_weight.floor[0]), 0, 1e-9);
  for (std::size_t k = 0; k < 4; ++k)
    EXPECT_NEAR(static_cast<double>(bf16.grad_weight.error[k] / std::max(f32.grad_weight.error[k], 1e-300L)),
                f32.grad_weight.error[k] == 0 ? 0 : 1 + 0x1p-8, 1e-3);
  EXPECT_EQ(bf16.grad_bias.error.size(), f32.grad_bias.error.size());
  for (std::size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(bf16.grad_bias.floor[k], f32.grad_bias.floor[k]);
    EXPECT_NEAR(static_cast<double>(bf16.grad_bias.error[k]), static_cast<double>(f32.grad_bias.error[k]), 1e-9);
  }
  EXPECT_EQ(ProductsOf({"cpu:bf16", ""}), Products::kBF16);
  for (const char* other : {"cpu:fused", "ref"}) EXPECT_EQ(ProductsOf({other, ""}), Products::kF32);
}

TEST(LinearCrossEntropyOracle, RivalsOfTheArgmax) {
  LinearCrossEntropyProblem problem =
      Problem({.H = 2, .V = 3}, {1, 1}, {1, 0x1p-30, 1, 0, 0, 0.5}, {0});  // 2^-30 is less than f32 sees
  const std::vector<Argmax> want = DefinitionOf(problem).argmax;
  EXPECT_EQ(want[0].index, 0);
  Tensor got(DType::kI64, {1});
  for (const std::int64_t index : {0, 1, 2, -1}) {
    got.Set(0, index);
    EXPECT_EQ(static_cast<bool>(Within(got, want, 0x1p-24)), index == 0 || index == 1);
    EXPECT_EQ(static_cast<bool>(Within(got, want, 0x1p-53)), index == 0);
  }
}

}  // namespace
}  // namespace onehot::test
