// Faults that users of such operators have hit (shared/cases.md), targets that name no class, data that is not there, and
// runs that are watched and stopped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/native/linear_cross_entropy_cases.h"
#include "tests/native/linear_cross_entropy_oracle.h"

namespace onehot::test {
namespace {

// ---- reported faults

LinearCrossEntropyProblem SmallProblem(LinearCrossEntropyCase c) {
  c.positions = {3}, c.H = 2, c.V = 3, c.ignored = 0;
  LinearCrossEntropyProblem problem(c);
  problem.input.SetAll({1, 0, 0, 1, 1, 1});
  problem.weight.SetAll({1, 0, 0, 1, 1, 1});
  SetIndices(problem.target, {0, 1, 2});
  return problem;
}

void ExpectNear(const Tensor& got, const std::vector<double>& want, double tolerance = 2e-6) {
  for (std::size_t k = 0; k < want.size(); ++k)
    EXPECT_NEAR(got.Value(static_cast<std::int64_t>(k)), want[k], tolerance) << k;
}

// Upstream [1, -2, .5] for each position, not its first element for all.
TEST(LinearCrossEntropyFaults, UpstreamOfEachPosition) {
  LinearCrossEntropyProblem problem = SmallProblem({.reduction = Reduction::kNone});
  problem.upstream_loss->SetAll({1, -2, .5});
  OnTargets(problem.forward(), problem.outputs(), {1, 3}, [&](const Target&) {
    ExpectNear(problem.loss, {.861995, .861995, .551445});
    ExpectNear(problem.grad_input, {-.155362, .577681, -1.155362, .310725, -.105971, -.105971});
    ExpectNear(problem.grad_weight, {-.471710, -.204754, .261333, 1.261333, .210377, -1.056579});
  });
  SetIndices(problem.target, {kDefaultIgnoreIndex, 1, 2});
  OnTargets(problem.forward(), problem.outputs(), {1, 3}, [&](const Target&) {
    EXPECT_EQ(problem.grad_input.Value(0), 0);
    EXPECT_EQ(problem.grad_input.Value(1), 0);
    ExpectNear(problem.grad_weight, {.105971, -.204754, .105971, 1.261333, -.211942, -1.056579});
  });
}

// The upstream gradient scales all gradients, 0 included.
TEST(LinearCrossEntropyFaults, UpstreamOfAMean) {
  LinearCrossEntropyProblem problem = SmallProblem({.bias = true});
  problem.bias->SetAll({0, 0, 0});
  for (const double g : {1., .5, 0.}) {
    problem.upstream_loss->SetValue(0, g);
    OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
      ExpectNear(problem.loss, {.758478});
      ExpectNear(problem.grad_weight, {-.365740 * g / 3, .367304 * g / 3, .367304 * g / 3, -.365740 * g / 3,
                                       -.001564 * g / 3, -.001564 * g / 3});
      // Row 0: p - one-hot = [-.577681, .155362, .422319]
      ExpectNear(problem.grad_input, {-.155362 * g / 3, .577681 * g / 3});
      ExpectNear(problem.grad_bias, {-.210377 * g / 3, -.210377 * g / 3, .420754 * g / 3});
    });
  }
}

// 4096 times 1/2: a running sum in bf16 stalls at 128.
TEST(LinearCrossEntropyFaults, WeightGradientOfManyPositions) {
  for (const DType input : {DType::kBF16, DType::kF16, DType::kF32}) {
    LinearCrossEntropyProblem problem(
        {.positions = {4096}, .H = 1, .V = 2, .input = input, .reduction = Reduction::kSum, .ignored = 0});
    problem.input.SetAll(std::vector<double>(4096, 1));
    problem.weight.SetAll({0, 0});
    SetIndices(problem.target, std::vector<std::int64_t>(4096, 1));
    problem.upstream_loss->SetValue(0, 1);
    OnTargets(problem.forward(), problem.outputs(), {1, 3}, [&](const Target&) {
      ExpectNear(problem.grad_weight, {2048, -2048}, 0);
      ExpectNear(problem.grad_bias, {2048, -2048}, 0);
    });
  }
}

// p = .999, p - 1 = -.001; rounded to bf16 first, .999 is 1.
TEST(LinearCrossEntropyFaults, TargetProbabilityIsNotRoundedBeforeSubtracting) {
  LinearCrossEntropyProblem problem(
      {.positions = {1}, .H = 1, .V = 2, .input = DType::kBF16, .reduction = Reduction::kSum, .ignored = 0});
  problem.input.SetValue(0, 1);
  problem.weight.SetAll({0, -std::log(999.)});
  SetIndices(problem.target, {0});
  problem.upstream_loss->SetValue(0, 1);
  ExpectRightEverywhere(problem);
  const double q = std::exp(problem.weight.Value(1)), p1 = q / (1 + q);  // of the logit as bf16 has it
  OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
    // p1 = .00103 in bf16 has steps of 2^-17; p - 1 is off by 2^-24 at most before it is rounded, alike.
    ExpectNear(problem.grad_weight, {-p1, p1}, 0x1p-18 + 0x1p-22);
    ExpectNear(problem.grad_bias, {-p1, p1}, 0x1p-18 + 0x1p-22);
  });
}

// Logits of 2^24 have no digits left for log 8: shifted logits are 0, and the loss is log 8 to the last place. Gradients
// too, where lse is not given.
TEST(LinearCrossEntropyFaults, LargeCommonLogits) {
  for (const DType input : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16})
    for (const double sign : {1., -1.}) {
      LinearCrossEntropyProblem problem({.positions = {2},
                                         .H = 1,
                                         .V = 8,
                                         .input = input,
                                         .result = DType::kF64,
                                         .reduction = Reduction::kSum,
                                         .ignored = 0});
      problem.input.SetAll({sign * 0x1p12, sign * 0x1p12});
      problem.weight.SetAll(std::vector<double>(8, 0x1p12));
      SetIndices(problem.target, {2, 2});
      problem.upstream_loss->SetValue(0, 1);
      const double log8 = 2.0794415416798357;
      OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
        ExpectNear(problem.loss, {2 * log8}, 2 * 0x1p-21);
        ExpectNear(problem.log_probability, {-log8, -log8}, 0x1p-21);
        ExpectNear(problem.entropy, {log8, log8}, 0x1p-21);
        const double eighth = .25;  // of two positions
        ExpectNear(problem.grad_bias, {eighth, eighth, -1.75, eighth}, eighth * 0x1p-20);
      });
    }
}

// 70000 times exp(0): f16 ends at 65504. Gradients are below its normal numbers.
TEST(LinearCrossEntropyFaults, SumOfExponentialsInF16) {
  LinearCrossEntropyProblem problem(
      {.positions = {1}, .H = 1, .V = 70000, .input = DType::kF16, .result = DType::kF32, .ignored = 0});
  problem.input.SetValue(0, 0);
  OnTargets(problem.forward(), problem.outputs(), {2},
            [&](const Target&) { ExpectNear(problem.loss, {11.15625052}, 4e-6); });
  OnTargets(
      [&] {
        LinearCrossEntropy op = problem.forward();
        op.loss->dtype = DType::kF16;
        return op;
      }(),
      problem.outputs(), {2},
      [&](const Target&) {
        Tensor half(DType::kF16, {1});
        half.SetBytes(0, problem.loss.Bytes().data());
        EXPECT_EQ(half.Value(0), 11.15625);
      });
  problem.c.logit_scale = 0.5;
  problem.input.SetValue(0, 2);
  ExpectRightEverywhere(problem);
}

TEST(LinearCrossEntropyFaults, BiasIsAddedOnce) {
  LinearCrossEntropyProblem problem({.positions = {1}, .H = 600, .V = 3, .bias = true, .ignored = 0});
  problem.input.SetAll(std::vector<double>(600, 0));
  problem.bias->SetAll({5, 0, 0});
  SetIndices(problem.target, {0});
  OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) { ExpectNear(problem.loss, {.013386}); });
}

TEST(LinearCrossEntropyFaults, AClassAtMinusInfinity) {
  LinearCrossEntropyProblem problem = SmallProblem({.bias = true, .reduction = Reduction::kSum});
  problem.bias->SetAll({0, 0, -HUGE_VAL});
  SetIndices(problem.target, {0, 1, 0});
  OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
    ExpectNear(problem.loss, {1.319671});
    for (const Tensor* gradient : problem.gradient_tensors())
      for (const double x : gradient->Values()) EXPECT_TRUE(std::isfinite(x));
    EXPECT_EQ(problem.grad_weight.Value(4), 0);
    EXPECT_EQ(problem.grad_weight.Value(5), 0);
    EXPECT_EQ(problem.grad_bias.Value(2), 0);
  });
}

TEST(LinearCrossEntropyFaults, LabelSmoothing) {
  LinearCrossEntropyProblem problem({.positions = {1}, .H = 1, .V = 4, .label_smoothing = .2, .ignored = 0});
  problem.input.SetValue(0, 1);
  problem.weight.SetAll({2, .5, -1, 1});
  SetIndices(problem.target, {0});
  OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) { ExpectNear(problem.loss, {.770182}); });
}

// bf16 logits would be off by 2^-9 of 100.
TEST(LinearCrossEntropyFaults, LossIsNotQuantised) {
  LinearCrossEntropyProblem problem({.positions = {30},
                                     .H = 100,
                                     .V = 300,
                                     .input = DType::kBF16,
                                     .result = DType::kF32,
                                     .gradient = DType::kF32,
                                     .reduction = Reduction::kNone});
  ExpectRightEverywhere(problem);
}

// ---- targets that name no class

// Outputs are NaN before and after, and so are their surroundings.
void ExpectBadTarget(LinearCrossEntropyProblem& problem, const std::string& message) {
  ExpectBadData(problem.forward(), problem.outputs(), message);
  ExpectBadData(problem.backward(), problem.gradient_tensors(), message);
  LinearCrossEntropyBackward op = problem.backward();
  op.lse = ConstTensorView(problem.lse.view());
  ExpectBadData(op, problem.gradient_tensors(), message);
  LinearCrossEntropy nothing = problem.forward();
  nothing = {.input = nothing.input, .weight = nothing.weight, .target = nothing.target, .options = nothing.options};
  ExpectBadData(nothing, problem.outputs(), message);
}

TEST(LinearCrossEntropyBadData, JustOutside) {
  for (const bool accumulate : {false, true}) {
    LinearCrossEntropyProblem problem({.positions = {2, 3}, .H = 5, .V = 4, .ignored = 0, .accumulate = accumulate});
    problem.target.Set<std::int64_t>(4, 4);
    ExpectBadTarget(problem, "target[1, 1] (position 4) = 4 is outside [0, 4)");
    problem.target.Set<std::int64_t>(3, -1);
    ExpectBadTarget(problem, "target[1, 0] (position 3) = -1 is outside [0, 4)");
    problem.target.Set<std::int64_t>(0, -100);  // is ignore_index
    ExpectBadTarget(problem, "target[1, 0] (position 3) = -1 is outside [0, 4)");
    problem.c.ignore_index = -1;
    ExpectBadTarget(problem, "target[0, 0] (position 0) = -100 is outside [0, 4)");
  }
  LinearCrossEntropyProblem none({.positions = {2}, .H = 5, .V = 0, .ignored = 0});
  SetIndices(none.target, {0, 0});
  ExpectBadTarget(none, "target[0] = 0 is outside [0, 0)");
}

// Values that look right in their low 32 bits, or 16, or 8.
TEST(LinearCrossEntropyBadData, ValuesThatNarrow) {
  LinearCrossEntropyProblem problem({.positions = {5}, .H = 2, .V = 3, .ignored = 0});
  for (const std::int64_t value :
       {std::int64_t{3}, std::int64_t{8}, std::int64_t{-1}, std::int64_t{256}, std::int64_t{65537},
        std::int64_t{1} << 31, (std::int64_t{1} << 32) + 1, std::numeric_limits<std::int64_t>::min(),
        std::numeric_limits<std::int64_t>::max(), -(std::int64_t{1} << 32) + 1, (std::int64_t{1} << 32) - 100}) {
    problem.target.Set(2, value);
    ExpectBadTarget(problem, "target[2] = " + std::to_string(value) + " is outside [0, 3)");
  }
}

TEST(LinearCrossEntropyBadData, EveryTargetDType) {
  for (const DType dtype : kTargetDTypes)
    for (const DType input : kGradientDTypes) {
      LinearCrossEntropyProblem problem(
          {.positions = {40}, .H = 3, .V = 100, .input = input, .target = dtype, .ignore_index = 100, .ignored = 0});
      problem.target.SetValue(37, 101);
      ExpectBadTarget(problem, "target[37] = 101 is outside [0, 100)");
      const int last = dtype == DType::kU8 ? 255 : -1;
      problem.target.SetValue(21, last);
      ExpectBadTarget(problem, "target[21] = " + std::to_string(last) + " is outside [0, 100)");
    }
}

TEST(LinearCrossEntropyBadData, EveryPosition) {
  for (const std::int64_t N : {1, 17, 70})
    for (std::int64_t bad = 0; bad < N; ++bad) {
      LinearCrossEntropyProblem problem({.positions = {N}, .H = 2, .V = 3, .ignored = 0});
      problem.target.Set<std::int64_t>(bad, 3);
      if (bad + 9 < N) problem.target.Set<std::int64_t>(bad + 9, 77);
      ExpectBadTarget(problem, "target[" + std::to_string(bad) + "] = 3 is outside [0, 3)");
    }
}

// ---- data that is not there, found when a plan runs

template <class Op, class F>
void ExpectMissing(const Op& good, const std::string& argument, F&& drop) {
  Op op = good;
  drop(op);
  for (const Target& target : Targets<Op>()) {
    if (!Takes(target, op)) continue;
    EXPECT_STATUS(RunOn(target, op), Code::kNullArgument, argument + ": data must not be null");
  }
}

TEST(LinearCrossEntropyErrors, DataThatIsNotThere) {
  LinearCrossEntropyProblem problem(WithEverything({.positions = {3}, .H = 2, .V = 5, .denominator = true}));
  const auto both = [&](const std::string& argument, auto&& drop) {
    ExpectMissing(problem.forward(), argument, drop);
    LinearCrossEntropyBackward backward = problem.backward();
    backward.lse = ConstTensorView(problem.lse.view());
    ExpectMissing(backward, argument, drop);
  };
  both("input", [](auto& op) { op.input.data = nullptr; });
  both("weight", [](auto& op) { op.weight.data = nullptr; });
  both("target", [](auto& op) { op.target.data = nullptr; });
  both("bias", [](auto& op) { op.options.bias->data = nullptr; });
  both("class weight", [](auto& op) { op.options.loss.weight->data = nullptr; });
  both("token_weight", [](auto& op) { op.options.loss.token_weight->data = nullptr; });
  both("denominator", [](auto& op) { op.options.loss.denominator->data = nullptr; });
  both("upstream.loss", [](auto& op) { op.upstream.loss->data = nullptr; });
  both("upstream.log_probability", [](auto& op) { op.upstream.log_probability->data = nullptr; });
  both("upstream.entropy", [](auto& op) { op.upstream.entropy->data = nullptr; });
  both("grad.input", [](auto& op) { op.grad.input->data = nullptr; });
  both("grad.weight", [](auto& op) { op.grad.weight->data = nullptr; });
  both("grad.bias", [](auto& op) { op.grad.bias->data = nullptr; });
  both("lse", [](auto& op) { op.lse->data = nullptr; });
  const LinearCrossEntropy op = problem.forward();
  ExpectMissing(op, "loss", [](auto& o) { o.loss->data = nullptr; });
  ExpectMissing(op, "target_logit", [](auto& o) { o.target_logit->data = nullptr; });
  ExpectMissing(op, "log_probability", [](auto& o) { o.log_probability->data = nullptr; });
  ExpectMissing(op, "entropy", [](auto& o) { o.entropy->data = nullptr; });
  ExpectMissing(op, "argmax", [](auto& o) { o.argmax->data = nullptr; });
  ExpectMissing(op, "total_weight", [](auto& o) { o.total_weight->data = nullptr; });
}

// ---- progress

template <class Op>
void ExpectProgress(const Op& op, const std::vector<Tensor*>& outputs) {
  for (const Target& target : Targets<Op>()) {
    if (target.is_ref() || !Takes(target, op)) continue;
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(target.name() + " threads " + std::to_string(threads));
      EXPECT_OK(RunOn(target, op, WithThreads(threads)));
      std::vector<std::vector<std::byte>> want;
      for (const Tensor* output : outputs) want.push_back(output->Bytes());
      const auto expect_same = [&] {
        for (std::size_t k = 0; k < outputs.size(); ++k) EXPECT_TRUE(SameBits(*outputs[k], want[k]));
      };
      std::int64_t calls = 0, last = 0, last_total = 0;
      RunOptions options = WithThreads(threads);
      options.progress = [&, caller = std::this_thread::get_id()](std::int64_t done, std::int64_t total) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_GE(done, last);
        EXPECT_LE(done, total);
        EXPECT_GT(total, 0);
        EXPECT_TRUE(calls == 0 || total == last_total);
        last = done, last_total = total, ++calls;
        return true;
      };
      EXPECT_OK(RunOn(target, op, options));
      expect_same();
      if (threads == 1) {
        EXPECT_GT(calls, 1);
        EXPECT_GT(last, last_total / 2);
      }
      const std::int64_t all = calls;
      for (const std::int64_t until : {std::int64_t{1}, all}) {
        calls = 0;
        options.progress = [&](std::int64_t, std::int64_t) { return ++calls < until; };
        const Status status = RunOn(target, op, options);
        EXPECT_EQ(status.code(), calls >= until && until > 0 ? Code::kCancelled : Code::kOk);
        if (threads == 1) {
          EXPECT_EQ(calls, until);
        }
      }
      // A cancelled plan runs again, and right.
      EXPECT_OK(RunOn(target, op, WithThreads(threads)));
      expect_same();
    }
  }
}

TEST(LinearCrossEntropyProgress, RisesAndStaysWithinTheTotal) {
  LinearCrossEntropyProblem problem({.positions = {150}, .H = 20, .V = 2100, .input = DType::kBF16});
  ExpectProgress(problem.forward(), problem.outputs());
  ExpectProgress(problem.backward(), problem.gradient_tensors());
  LinearCrossEntropy loss = problem.forward();
  loss.grad = {};
  ExpectProgress(loss, problem.results());

  LinearCrossEntropyProblem few({.positions = {20}, .H = 70, .V = 2100});
  ExpectProgress(few.forward(), few.outputs());
}

}  // namespace
}  // namespace onehot::test
