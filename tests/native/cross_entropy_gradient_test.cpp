// The gradient against finite differences of the forward, for every combination of options; and what follows from the
// definition whatever the numbers are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "onehot/nll_loss.h"
#include "tests/native/cross_entropy_cases.h"
#include "tests/native/cross_entropy_oracle.h"

namespace onehot::test {
namespace {

// g . loss + r . log_probability + h . entropy, by ref in f64.
class Objective {
 public:
  explicit Objective(CrossEntropyProblem& problem)
      : problem_(problem), plan_(PrepareOn({"ref", ""}, problem.forward())) {
    EXPECT_TRUE(plan_.ok()) << plan_.status().message();
  }
  double operator()() {
    EXPECT_OK(plan_->Run());
    double sum = 0;
    if (problem_.grad_loss)
      for (std::int64_t k = 0; k < problem_.loss.numel(); ++k)
        sum += problem_.grad_loss->Value(k) * problem_.loss.Value(k);
    for (std::int64_t i = 0; i < problem_.lse.numel(); ++i) {
      if (problem_.grad_log_probability)
        sum += problem_.grad_log_probability->Value(i) * problem_.log_probability.Value(i);
      if (problem_.grad_entropy) sum += problem_.grad_entropy->Value(i) * problem_.entropy.Value(i);
    }
    return sum;
  }

 private:
  CrossEntropyProblem& problem_;
  Result<Plan> plan_;
};

// Five points, step s: the error is s^4 / 30 of the fifth derivative, which is below 2000 for these problems (z-loss with
// logits below 4 is the largest), and 1.5 u / s of the objective, which is below 500.
constexpr double kStep = 0x1p-10;
constexpr double kTolerance = 2000 * kStep * kStep * kStep * kStep / 30 + 1.5 * 0x1p-53 / kStep * 500 * 4;

std::vector<double> FiniteDifferences(CrossEntropyProblem& problem) {
  Objective objective(problem);
  std::vector<double> slopes;
  for (std::int64_t k = 0; k < problem.input.numel(); ++k) {
    const double x = problem.input.Value(k);
    double f[4];
    const double steps[] = {-2, -1, 1, 2};
    for (int j = 0; j < 4; ++j) {
      problem.input.SetValue(k, x + steps[j] * kStep);
      f[j] = objective();
    }
    problem.input.SetValue(k, x);
    slopes.push_back((8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * kStep));
  }
  return slopes;
}

class CrossEntropyGradient : public ::testing::TestWithParam<Reduction> {};
INSTANTIATE_TEST_SUITE_P(Reductions, CrossEntropyGradient, ::testing::ValuesIn(kReductions),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(CrossEntropyGradient, EqualsFiniteDifferencesForEveryCombinationOfOptions) {
  for (unsigned options = 0; options < 64; ++options)
    for (unsigned upstream = 1; upstream < 8; ++upstream) {
      CrossEntropyCase c{.dims = {2, 4, 2}, .input = DType::kF64, .reduction = GetParam(), .ignored = 0};
      c.weight = (options & 1) != 0;
      c.token_weight = (options & 2) != 0;
      c.denominator = (options & 4) != 0;
      c.label_smoothing = (options & 8) != 0 ? 0.3 : 0;
      c.z_loss = (options & 16) != 0 ? 0.05 : 0;
      c.softcap = (options & 32) != 0 ? 3 : 0;
      c.g = (upstream & 1) != 0, c.r = (upstream & 2) != 0, c.h = (upstream & 4) != 0;
      SCOPED_TRACE(c.Describe());
      CrossEntropyProblem problem(c, options * 8 + upstream);
      Random random(options + 100);
      for (std::int64_t k = 0; k < problem.input.numel(); ++k) problem.input.SetValue(k, 5 * random.Unit() - 2);
      problem.target.Set(1, kDefaultIgnoreIndex);
      const std::vector<double> want = FiniteDifferences(problem);
      OnTargets(problem.backward(), {&problem.out}, {1}, [&](const Target&) {
        for (std::size_t k = 0; k < want.size(); ++k)
          ASSERT_NEAR(problem.out.Value(static_cast<std::int64_t>(k)), want[k], kTolerance) << "element " << k;
      });
    }
}

// Nothing upstream: 0 everywhere.
TEST(CrossEntropyGradients, NoUpstreamGradient) {
  CrossEntropyProblem problem({.dims = {5, 33}, .g = false});
  OnTargets(problem.backward(), {&problem.out}, {1}, [&](const Target&) {
    for (std::int64_t k = 0; k < problem.out.numel(); ++k) EXPECT_EQ(problem.out.Value(k), 0);
  });
}

// Each upstream gradient times its own derivative: they add up. Of f32 sums of three terms, each within its bound.
TEST(CrossEntropyGradients, UpstreamGradientsAreLinear) {
  CrossEntropyProblem problem(
      {.dims = {6, 40}, .input = DType::kF64, .reduction = Reduction::kNone, .r = true, .h = true});
  OnTargets(problem.backward(), {&problem.out}, {1}, [&](const Target& target) {
    std::vector<double> sum(static_cast<std::size_t>(problem.out.numel()));
    Tensor part(DType::kF64, problem.c.dims);
    for (int k = 0; k < 3; ++k) {
      CrossEntropyBackward op = problem.backward();
      op.out = part.view();
      if (k != 0) op.grad_loss.reset();
      if (k != 1) op.grad_log_probability.reset();
      if (k != 2) op.grad_entropy.reset();
      EXPECT_OK(RunOn(target, op));
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += part.Value(static_cast<std::int64_t>(e));
    }
    for (std::size_t e = 0; e < sum.size(); ++e)
      EXPECT_NEAR(problem.out.Value(static_cast<std::int64_t>(e)), sum[e], 1e-12);
  });
}

// A number added to all logits of a position changes nothing but lse: sums of the gradient over classes are 0 but for
// z-loss, where they are 2 a' zeta lse.
TEST(CrossEntropyGradients, SumsOverClassesVanish) {
  for (const bool z_loss : {false, true}) {
    CrossEntropyCase c = WithEverything({.dims = {9, 50}, .input = DType::kF64, .reduction = Reduction::kSum});
    c.softcap = 0, c.z_loss = z_loss ? 0.01 : 0;
    CrossEntropyProblem problem(c);
    const CrossEntropyDefinition want = Define(problem.forward());
    OnTargets(problem.backward(), {&problem.out}, {1}, [&](const Target&) {
      for (std::int64_t i = 0; i < 9; ++i) {
        double sum = 0, magnitude = 1;
        for (std::int64_t v = 0; v < 50; ++v) {
          sum += problem.out.Value(i * 50 + v);
          magnitude += std::abs(problem.out.Value(i * 50 + v));
        }
        const double lse = static_cast<double>(want.lse.value[static_cast<std::size_t>(i)]);
        EXPECT_NEAR(sum, 2 * problem.grad_loss->Value(0) * problem.token_weight->Value(i) * c.z_loss * lse,
                    magnitude * 1e-12);
      }
    });
  }
}

// Positions that are ignored might as well not be there, whatever else is asked for.
TEST(CrossEntropyGradients, IgnoredPositionsAsIfDeleted) {
  for (const Reduction reduction : kReductions) {
    const CrossEntropyCase c = WithEverything({.dims = {40, 33}, .reduction = reduction, .ignored = 0.4});
    CrossEntropyProblem all(c);
    std::vector<std::int64_t> live;
    for (std::int64_t i = 0; i < 40; ++i)
      if (all.target.Get<std::int64_t>(i) != c.ignore_index) live.push_back(i);
    ASSERT_LT(live.size(), 40u);
    CrossEntropyCase fewer = c;
    fewer.dims[0] = static_cast<std::int64_t>(live.size()), fewer.ignored = 0;
    CrossEntropyProblem some(fewer);
    some.weight = all.weight;
    if (reduction != Reduction::kNone) some.grad_loss = all.grad_loss;
    for (std::size_t j = 0; j < live.size(); ++j) {
      const auto to = static_cast<std::int64_t>(j);
      some.target.Set(to, all.target.Get<std::int64_t>(live[j]));
      some.token_weight->SetValue(to, all.token_weight->Value(live[j]));
      some.grad_log_probability->SetValue(to, all.grad_log_probability->Value(live[j]));
      some.grad_entropy->SetValue(to, all.grad_entropy->Value(live[j]));
      if (reduction == Reduction::kNone) some.grad_loss->SetValue(to, all.grad_loss->Value(live[j]));
      for (std::int64_t v = 0; v < 33; ++v) some.input.SetValue(to * 33 + v, all.input.Value(live[j] * 33 + v));
    }
    // lse has the same bits; sums over positions lie in other lanes, so that D, in f64, and with it a gradient may round
    // to a neighbour.
    OnTargets(some.backward(), {&some.out}, {1}, [&](const Target& target) {
      EXPECT_OK(RunOn(target, all.backward()));
      for (std::size_t j = 0; j < live.size(); ++j)
        for (std::int64_t v = 0; v < 33; ++v) {
          const double want = some.out.Value(static_cast<std::int64_t>(j) * 33 + v);
          EXPECT_NEAR(all.out.Value(live[j] * 33 + v), want, 4 * 0x1p-23 * (std::abs(want) + 1e-6));
        }
    });
    OnTargets(some.forward(), some.outputs(), {1}, [&](const Target& target) {
      EXPECT_OK(RunOn(target, all.forward()));
      for (std::size_t j = 0; j < live.size(); ++j) {
        EXPECT_EQ(all.lse.Value(live[j]), some.lse.Value(static_cast<std::int64_t>(j)));
        EXPECT_EQ(all.entropy.Value(live[j]), some.entropy.Value(static_cast<std::int64_t>(j)));
      }
      if (reduction == Reduction::kNone) return;
      EXPECT_NEAR(all.loss.Value(0), some.loss.Value(0), 0x1p-23 * some.loss.Value(0));
      EXPECT_NEAR(all.total_weight.Value(0), some.total_weight.Value(0), 0x1p-23 * some.total_weight.Value(0));
    });
  }
}

// The loss is NllLoss of the log-probabilities: of f32 log-probabilities, rounded once more.
TEST(CrossEntropyGradients, EqualsNllLossOfLogSoftmax) {
  for (const Reduction reduction : kReductions) {
    CrossEntropyProblem problem({.dims = {5, 37, 7}, .weight = true, .token_weight = true, .reduction = reduction});
    const CrossEntropyDefinition want = Define(problem.forward());
    Tensor log_softmax(DType::kF32, problem.c.dims),
        nll(DType::kF32, reduction == Reduction::kNone ? Dims{5, 7} : Dims{});
    Tensor total(DType::kF32, {});
    OnTargets(problem.forward(), problem.outputs(), {2}, [&](const Target& target) {
      for (std::int64_t i = 0; i < 35; ++i)
        for (std::int64_t v = 0; v < 37; ++v) {
          const std::int64_t at = ClassPosition(problem.input.layout(), 1, i, v);
          log_softmax.SetValue(
              at, problem.input.Value(at) - static_cast<double>(want.lse.value[static_cast<std::size_t>(i)]));
        }
      const NllLoss op{.input = std::as_const(log_softmax).view(),
                       .target = std::as_const(problem.target).view(),
                       .loss = nll.view(),
                       .total_weight = total.view(),
                       .weight = std::as_const(*problem.weight).view(),
                       .token_weight = std::as_const(*problem.token_weight).view(),
                       .reduction = reduction};
      const Result<Plan> plan = Prepare(op);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      EXPECT_OK(plan->Run());
      // Log-probabilities below 64 have been rounded by 2^-19 at most, and so have ignored ones that are 0.
      const double u = UnitRoundoff(target, DType::kF32, 37);
      for (std::int64_t k = 0; k < nll.numel(); ++k) {
        const auto at = static_cast<std::size_t>(k);
        const auto bound = static_cast<double>(want.loss.error[at]) * u;
        EXPECT_NEAR(problem.loss.Value(k), nll.Value(k), bound + 0x1p-22 * std::abs(nll.Value(k))) << k;
      }
      EXPECT_EQ(problem.total_weight.Value(0), total.Value(0));
    });
  }
}

}  // namespace
}  // namespace onehot::test
