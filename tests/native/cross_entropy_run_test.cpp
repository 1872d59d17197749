// Faults that users of cross entropy have reported somewhere, targets that name no class, and how a plan runs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/native/cross_entropy_cases.h"
#include "tests/native/cross_entropy_oracle.h"

namespace onehot::test {
namespace {

// ---- reported faults

TEST(CrossEntropyFaults, SmallProblem) {
  for (const DType input : kGradientDTypes)
    for (const Reduction reduction : kReductions) {
      CrossEntropyProblem problem({.dims = {3, 3}, .input = input, .result = DType::kF64, .reduction = reduction});
      problem.input.SetAll({1, 0, 1, 0, 1, 1, 1, 1, 2});
      SetIndices(problem.target, {0, 1, 2});
      OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
        if (reduction == Reduction::kNone) {
          EXPECT_NEAR(problem.loss.Value(0), .861995, 1e-6);
          EXPECT_NEAR(problem.loss.Value(1), .861995, 1e-6);
          EXPECT_NEAR(problem.loss.Value(2), .551445, 1e-6);
        } else {
          EXPECT_NEAR(problem.loss.Value(0), reduction == Reduction::kMean ? .758478 : 2.275434, 1e-6);
        }
      });
    }
}

// Upstream [1, -2, .5] for each position, not its first element for all. With x = W = [[1, 0], [0, 1], [1, 1]] the
// gradient of x is that of the logits times W.
TEST(CrossEntropyFaults, UpstreamGradientOfEachPosition) {
  CrossEntropyProblem problem({.dims = {3, 3}, .reduction = Reduction::kNone});
  problem.input.SetAll({1, 0, 1, 0, 1, 1, 1, 1, 2});
  problem.grad_loss->SetAll({1, -2, .5});
  const double want[] = {-.155362, .577681, -1.155362, .310725, -.105971, -.105971};
  for (const bool first_ignored : {false, true}) {
    SetIndices(problem.target, {first_ignored ? kDefaultIgnoreIndex : 0, 1, 2});
    OnTargets(problem.backward(), {&problem.out}, {1}, [&](const Target&) {
      for (std::int64_t i = 0; i < 3; ++i) {
        const double dz[] = {problem.out.Value(3 * i), problem.out.Value(3 * i + 1), problem.out.Value(3 * i + 2)};
        const bool zero = first_ignored && i == 0;
        EXPECT_NEAR(dz[0] + dz[2], zero ? 0 : want[2 * i], 1e-6);
        EXPECT_NEAR(dz[1] + dz[2], zero ? 0 : want[2 * i + 1], 1e-6);
      }
    });
  }
}

// The gradient of a mean scales with the upstream gradient, 0 included.
TEST(CrossEntropyFaults, UpstreamGradientOfAMean) {
  CrossEntropyProblem problem({.dims = {3, 3}});
  problem.input.SetAll({1, 0, 1, 0, 1, 1, 1, 1, 2});
  SetIndices(problem.target, {0, 1, 2});
  for (const double g : {1., .5, 0.}) {
    problem.grad_loss->SetValue(0, g);
    OnTargets(problem.backward(), {&problem.out}, {1},
              [&](const Target&) { EXPECT_NEAR(problem.out.Value(0), -.577681 * g / 3, 1e-6); });
  }
}

TEST(CrossEntropyFaults, LabelSmoothing) {
  for (const DType input : kGradientDTypes) {
    CrossEntropyProblem problem({.dims = {4}, .input = input, .result = DType::kF64, .label_smoothing = .2});
    problem.input.SetAll({2, .5, -1, 1});
    SetIndices(problem.target, {0});
    OnTargets(problem.forward(), problem.outputs(), {1},
              [&](const Target&) { EXPECT_NEAR(problem.loss.Value(0), .770182, 1e-6); });
  }
}

// 2^24 in f32 has no digits left for log 8: shifted logits are 0, and the loss is log 8 to the last place.
TEST(CrossEntropyFaults, LargeCommonLogits) {
  for (const DType input : {DType::kF32, DType::kF64, DType::kBF16})
    for (const double common : {0x1p24, -0x1p24, 1e30}) {
      CrossEntropyProblem problem({.dims = {1, 8}, .input = input, .result = DType::kF64, .ignored = 0, .r = true});
      problem.input.SetAll(std::vector<double>(8, common));
      OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
        EXPECT_NEAR(problem.loss.Value(0), 2.0794415416798357, 0x1p-21);
        EXPECT_NEAR(problem.log_probability.Value(0), -2.0794415416798357, 0x1p-21);
        EXPECT_NEAR(problem.entropy.Value(0), 2.0794415416798357, 0x1p-21);
      });
    }
}

// Gradients too, where the shift is not lost in lse: 2^12 leaves 11 bits behind the point of f32.
TEST(CrossEntropyFaults, GradientOfLargeCommonLogits) {
  CrossEntropyProblem problem({.dims = {1, 8}, .ignored = 0});
  problem.input.SetAll(std::vector<double>(8, 0x1p12));
  SetIndices(problem.target, {2});
  problem.grad_loss->SetValue(0, 1);
  OnTargets(problem.backward(), {&problem.out}, {1}, [&](const Target&) {
    for (std::int64_t v = 0; v < 8; ++v)
      EXPECT_NEAR(problem.out.Value(v), v == 2 ? -.875 : .125, .125 * 0x1p-12) << "lse is rounded by 2^-12 at most";
  });
}

// p = .999, p - 1 = -.001; rounded to bf16 first, .999 is 1.
TEST(CrossEntropyFaults, TargetProbabilityIsNotRoundedBeforeSubtracting) {
  CrossEntropyProblem problem({.dims = {2}, .input = DType::kBF16, .reduction = Reduction::kSum});
  problem.input.SetAll({0, -std::log(999.0)});
  SetIndices(problem.target, {0});
  problem.grad_loss->SetValue(0, 1);
  const double q = std::exp(problem.input.Value(1)), p1 = q / (1 + q);  // of the logit as bf16 has it
  Tensor want(DType::kBF16, {1});
  want.SetValue(0, -p1);
  OnTargets(problem.backward(), {&problem.out}, {1}, [&](const Target&) {
    EXPECT_NEAR(problem.out.Value(0), -1e-3, 3e-5);
    // p1 = .00103 in bf16 has steps of 2^-17; p - 1 is off by 2^-24 at most before it is rounded.
    EXPECT_NEAR(problem.out.Value(0), -p1, 0x1p-18 + 0x1p-22);
    EXPECT_NEAR(problem.out.Value(1), want.Value(0) * -1, 0x1p-17);
  });
}

// 70000 times exp(0): f16 ends at 65504.
TEST(CrossEntropyFaults, SumOfExponentialsInF16) {
  CrossEntropyProblem problem({.dims = {1, 70000}, .input = DType::kF16, .result = DType::kF32, .ignored = 0});
  problem.input.SetAll(std::vector<double>(70000, 0));
  OnTargets(problem.forward(), problem.outputs(), {2},
            [&](const Target&) { EXPECT_NEAR(problem.loss.Value(0), 11.15625052, 4e-6); });
}

TEST(CrossEntropyFaults, AClassAtMinusInfinity) {
  const double inf = std::numeric_limits<double>::infinity();
  CrossEntropyProblem problem({.dims = {3, 3}, .reduction = Reduction::kSum});
  problem.input.SetAll({1, 0, -inf, 0, 1, -inf, 1, 1, -inf});
  SetIndices(problem.target, {0, 1, 0});
  OnTargets(problem.forward(), problem.outputs(), {1},
            [&](const Target&) { EXPECT_NEAR(problem.loss.Value(0), 1.319671, 1e-6); });
  OnTargets(problem.backward(), {&problem.out}, {1}, [&](const Target&) {
    for (std::int64_t k = 0; k < 9; ++k) EXPECT_TRUE(std::isfinite(problem.out.Value(k)));
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(problem.out.Value(3 * i + 2), 0);
  });
}

// The mean of f32 losses over many positions, where an f32 running sum would have lost three digits.
TEST(CrossEntropyFaults, MeanOverManyPositions) {
  const std::int64_t N = std::int64_t{1} << 18;
  CrossEntropyProblem problem({.dims = {N, 2}, .ignored = 0});
  for (std::int64_t k = 0; k < N; ++k) {
    problem.input.SetValue(2 * k, 0), problem.input.SetValue(2 * k + 1, -200.1);
    problem.target.Set<std::int64_t>(k, 1);
  }
  CrossEntropy op = problem.forward();
  op.entropy = op.argmax = op.log_probability = op.lse = std::nullopt;
  OnTargets(op, problem.outputs(), {2},
            [&](const Target&) { EXPECT_EQ(problem.loss.Value(0), -problem.input.Value(1)); });
}

// ---- targets that name no class

constexpr std::int64_t kI64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kI64Min = std::numeric_limits<std::int64_t>::min();

void ExpectBadTarget(CrossEntropyProblem& problem, const std::string& message) {
  ExpectBadData(problem.forward(), problem.outputs(), message);
  ExpectBadData(problem.backward(), {&problem.out}, message);
}

TEST(CrossEntropyBadData, JustOutside) {
  for (const int axis : {0, 1, 2}) {
    Dims dims = {2, 3};
    dims.insert(dims.begin() + axis, 4);
    CrossEntropyProblem problem({.dims = dims, .class_axis = axis, .ignored = 0});
    problem.target.Set<std::int64_t>(4, 4);
    ExpectBadTarget(problem, "target[1, 1] (position 4) = 4 is outside [0, 4)");
    problem.target.Set<std::int64_t>(3, -1);
    ExpectBadTarget(problem, "target[1, 0] (position 3) = -1 is outside [0, 4)");
    // ignore_index is good, and only that value.
    problem.target.Set<std::int64_t>(0, -100);
    ExpectBadTarget(problem, "target[1, 0] (position 3) = -1 is outside [0, 4)");
    problem.c.ignore_index = -1;
    ExpectBadTarget(problem, "target[0, 0] (position 0) = -100 is outside [0, 4)");
  }
  CrossEntropyProblem one({.dims = {3}, .ignored = 0});
  one.target.Set<std::int64_t>(0, 3);
  ExpectBadTarget(one, "target[0] = 3 is outside [0, 3)");
}

// Values that look right in their low 32 bits, or 16, or 8.
TEST(CrossEntropyBadData, ValuesThatNarrow) {
  CrossEntropyProblem problem({.dims = {5, 3}, .ignored = 0});
  for (const std::int64_t value :
       {std::int64_t{3}, std::int64_t{8}, std::int64_t{256}, std::int64_t{65537}, std::int64_t{1} << 31,
        (std::int64_t{1} << 32) + 1, kI64Min, kI64Max, kI64Min + 1, -(std::int64_t{1} << 32) + 1,
        (std::int64_t{1} << 40) + 2, (std::int64_t{1} << 32) - 100}) {
    problem.target.Set(2, value);
    ExpectBadTarget(problem, "target[2] = " + std::to_string(value) + " is outside [0, 3)");
  }
  // Each of them may be ignore_index.
  for (const std::int64_t value : {kI64Min, kI64Max, (std::int64_t{1} << 32) + 1}) {
    problem.target.Set(2, value);
    problem.c.ignore_index = value;
    ExpectRightEverywhere(problem);
  }
  problem.target.Set<std::int64_t>(2, 1);  // is no (2^32 + 1)
  ExpectRightEverywhere(problem);
}

TEST(CrossEntropyBadData, EveryTargetDType) {
  for (const DType dtype : kTargetDTypes) {
    CrossEntropyProblem problem({.dims = {40, 100}, .target = dtype, .ignore_index = 100, .ignored = 0});
    problem.target.SetValue(37, 101);
    ExpectBadTarget(problem, "target[37] = 101 is outside [0, 100)");
    const int last = dtype == DType::kU8 ? 255 : -1;
    problem.target.SetValue(21, last);
    ExpectBadTarget(problem, "target[21] = " + std::to_string(last) + " is outside [0, 100)");
  }
}

// At every place of a vector and of a thread's share; the smallest wins.
TEST(CrossEntropyBadData, EveryPosition) {
  for (const std::int64_t N : {1, 17, 70})
    for (std::int64_t bad = 0; bad < N; ++bad) {
      CrossEntropyProblem problem({.dims = {N, 3}, .ignored = 0});
      problem.target.Set<std::int64_t>(bad, 3);
      if (bad + 9 < N) problem.target.Set<std::int64_t>(bad + 9, 77);
      ExpectBadTarget(problem, "target[" + std::to_string(bad) + "] = 3 is outside [0, 3)");
    }
  CrossEntropyProblem large({.dims = {60000, 2}, .ignored = 0.1});
  large.target.Set<std::int64_t>(59999, -7);
  ExpectBadTarget(large, "target[59999] = -7 is outside [0, 2)");
  large.target.Set<std::int64_t>(40001, 2);
  ExpectBadTarget(large, "target[40001] = 2 is outside [0, 2)");
}

// ---- progress

TEST(CrossEntropyProgress, RisesAndStaysWithinTheTotal) {
  CrossEntropyProblem rows({.dims = {12000, 65}}), picture({.dims = {2, 65, 80, 80}});
  for (CrossEntropyProblem* problem : {&rows, &picture}) {
    const auto expect = [&](const auto& op, const std::vector<Tensor*>& outputs) {
      using Op = std::decay_t<decltype(op)>;
      for (const Target& target : Targets<Op>()) {
        if (target.is_ref() || !Takes(target, op)) continue;
        for (const int threads : {1, 3}) {
          SCOPED_TRACE(problem->c.Describe() + " " + target.name() + " threads " + std::to_string(threads));
          EXPECT_OK(RunOn(target, op, WithThreads(threads)));
          std::vector<std::vector<std::byte>> want;
          for (const Tensor* output : outputs) want.push_back(output->Bytes());
          std::int64_t calls = 0, last = 0, last_total = 0;
          RunOptions options = WithThreads(threads);
          const std::thread::id caller = std::this_thread::get_id();
          options.progress = [&](std::int64_t done, std::int64_t total) {
            EXPECT_EQ(std::this_thread::get_id(), caller);
            EXPECT_GE(done, last);
            EXPECT_LE(done, total);
            EXPECT_GT(total, 0);
            EXPECT_TRUE(calls == 0 || total == last_total);
            last = done, last_total = total, ++calls;
            return true;
          };
          EXPECT_OK(RunOn(target, op, options));
          for (std::size_t k = 0; k < outputs.size(); ++k) EXPECT_TRUE(SameBits(*outputs[k], want[k]));
          if (threads == 1) {
            EXPECT_GT(calls, 1);
            EXPECT_GT(last, last_total / 2);
          }
          calls = 0;
          options.progress = [&](std::int64_t, std::int64_t) { return ++calls < 1; };
          const Status status = RunOn(target, op, options);
          EXPECT_EQ(status.code(), calls > 0 ? Code::kCancelled : Code::kOk);
          if (threads == 1) {
            EXPECT_EQ(calls, 1);
          }
          // A cancelled plan runs again, and right.
          EXPECT_OK(RunOn(target, op, WithThreads(threads)));
          for (std::size_t k = 0; k < outputs.size(); ++k) EXPECT_TRUE(SameBits(*outputs[k], want[k]));
        }
      }
    };
    expect(problem->forward(), problem->outputs());
    expect(problem->backward(), {&problem->out});
  }
}

// ---- two threads at once

TEST(CrossEntropyConcurrency, PlansOverSharedInputs) {
  CrossEntropyProblem problem(WithEverything({.dims = {2, 40, 7, 9}, .input = DType::kBF16}));
  for (const Target& target : Targets<CrossEntropyBackward>()) {
    if (!Takes(target, problem.backward())) continue;
    SCOPED_TRACE(target.name());
    EXPECT_OK(RunOn(target, problem.backward()));
    std::vector<Tensor> outs(4, Tensor(DType::kBF16, problem.c.dims));
    std::vector<Result<Plan>> plans;
    for (Tensor& out : outs) {
      CrossEntropyBackward op = problem.backward();
      op.out = out.view();
      plans.push_back(PrepareOn(target, op));
      ASSERT_TRUE(plans.back().ok());
    }
    const std::vector<Status> statuses = RunAtOnce(plans);
    for (std::size_t t = 0; t < outs.size(); ++t) {
      EXPECT_OK(statuses[t]);
      EXPECT_TRUE(SameBits(outs[t], problem.out.Bytes()));
    }
  }
}

}  // namespace
}  // namespace onehot::test
