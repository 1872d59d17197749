// Products of bf16: which problems take them, what `reproducible` does, and what is rounded when, worked by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "tests/native/env.h"
#include "tests/native/linear_cross_entropy_cases.h"
#include "tests/native/linear_cross_entropy_oracle.h"
#include "tests/native/linear_cross_entropy_shards_cases.h"

namespace onehot::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Asked of the CPU, not of the library. A list that starts below AVX-512 is that of a build or a CPU without it.
bool HasBf16Products(std::string_view instruction_set) {
#if defined(__x86_64__)
  return instruction_set.starts_with("AVX3") && __builtin_cpu_supports("avx512bf16") != 0;
#else
  static_cast<void>(instruction_set);
  return false;
#endif
}
bool HasBf16Products() {
  return HasBf16Products(InstructionSets().front());
}

const Target kBf16{"cpu:bf16", std::string(InstructionSets().front())};

// Nothing is asked for by the environment, whatever the test was started with.
class LinearCrossEntropyBf16 : public ::testing::Test {
 private:
  const ScopedEnv force_{"ONEHOT_FORCE", nullptr}, isa_{"ONEHOT_MAX_ISA", nullptr};
};
// The same where there are such products.
class LinearCrossEntropyBf16Products : public LinearCrossEntropyBf16 {
 protected:
  void SetUp() override {
    if (!HasBf16Products()) GTEST_SKIP() << "this CPU has no bf16 products";
  }
};

// One problem of each operator that has the row, in one dtype.
struct Problems {
  ShardedProblem problem;

  explicit Problems(DType input) : problem({.positions = {27}, .H = 19, .V = 75, .input = input}, {75}) {}

  // f(op, its outputs)
  template <class F>
  void ForEach(F&& f) {
    LinearCrossEntropyProblem& whole = problem.whole;
    f(whole.forward(), whole.outputs());
    f(whole.backward(), whole.gradient_tensors());
    f(problem.statistics(0), problem.shards[0].statistics());
  }
};

template <class Op>
std::string Implementation(const Op& op) {
  const Result<Plan> plan = Prepare(op);
  return plan.ok() ? std::string(plan->implementation()) : plan.status().message();
}

// The bytes of all outputs after a run of whatever Prepare takes.
template <class Op>
std::vector<std::vector<std::byte>> BitsOf(const Op& op, const std::vector<Tensor*>& outputs) {
  const Result<Plan> plan = Prepare(op);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_OK(RunHostile(*plan));
  std::vector<std::vector<std::byte>> bits;
  for (const Tensor* output : outputs) bits.push_back(output->Bytes());
  return bits;
}

// ---- which is taken

TEST_F(LinearCrossEntropyBf16, IsTakenForBf16WhereTheCpuHasIt) {
  Problems(DType::kBF16).ForEach([](const auto& op, const auto&) {
    const Result<Plan> plan = Prepare(op);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->implementation(), HasBf16Products() ? "cpu:bf16" : "cpu:fused");
    EXPECT_EQ(plan->instruction_set(), InstructionSets().front());
    EXPECT_EQ(plan->considered()[0].implementation, "cpu:bf16");
    EXPECT_EQ(plan->considered()[0].refusal.empty(), HasBf16Products());
  });
}

TEST_F(LinearCrossEntropyBf16, IsNotTakenForOtherDTypes) {
  for (const DType input : {DType::kF32, DType::kF16, DType::kF64})
    Problems(input).ForEach([&](const auto& op, const auto&) {
      const Result<Plan> plan = Prepare(op);
      ASSERT_TRUE(plan.ok());
      EXPECT_EQ(plan->implementation(), input == DType::kF64 ? "ref" : "cpu:fused");
      EXPECT_THAT(std::string(plan->considered()[0].refusal), HasSubstr("bf16"));
      const ScopedEnv force("ONEHOT_FORCE", "cpu:bf16");
      EXPECT_EQ(Prepare(op).status().code(), Code::kUnsupported);
      EXPECT_THAT(Prepare(op).status().message(),
                  StartsWith("ONEHOT_FORCE: cpu:bf16 refuses this linear_cross_entropy"));
    });
}

// With every instruction set that may be asked for: the products need AVX-512 to be used.
TEST_F(LinearCrossEntropyBf16, NeedsItsInstructionSet) {
  bool refused = false;
  for (const std::string_view set : InstructionSets()) {
    SCOPED_TRACE(set);
    const ScopedEnv isa("ONEHOT_MAX_ISA", std::string(set).c_str());
    Problems(DType::kBF16).ForEach([&](const auto& op, const auto&) {
      EXPECT_EQ(Implementation(op), HasBf16Products(set) ? "cpu:bf16" : "cpu:fused");
      const ScopedEnv force("ONEHOT_FORCE", "cpu:bf16");
      const Result<Plan> plan = Prepare(op);
      ASSERT_EQ(plan.ok(), HasBf16Products(set));
      if (plan.ok()) {
        EXPECT_EQ(plan->instruction_set(), set);
        return;
      }
      refused = true;
      EXPECT_EQ(plan.status().code(), Code::kUnsupported);
      EXPECT_THAT(plan.status().message(), StartsWith("ONEHOT_FORCE: cpu:bf16 refuses this linear_cross_entropy"));
    });
  }
  EXPECT_TRUE(refused) << "every CPU has an instruction set below AVX-512";
}

// ---- reproducible

// The bits of cpu:fused, which has no such products; and other bits than with them, or this test sees nothing.
TEST_F(LinearCrossEntropyBf16, ReproducibleHasTheBitsOfTheOther) {
  Problems(DType::kBF16).ForEach([](const auto& op, const std::vector<Tensor*>& outputs) {
    auto reproducible = op;
    reproducible.options.reproducible = true;
    EXPECT_EQ(Implementation(reproducible), "cpu:fused");
    const Result<Plan> plan = Prepare(reproducible);
    ASSERT_EQ(plan->considered().size(), 2u);
    EXPECT_EQ(plan->considered()[0].implementation, "cpu:bf16");
    EXPECT_FALSE(plan->considered()[0].refusal.empty());
    const auto bits = BitsOf(op, outputs), want = [&] {
      const ScopedEnv force("ONEHOT_FORCE", "cpu:fused");
      return BitsOf(op, outputs);
    }();
    EXPECT_EQ(BitsOf(reproducible, outputs), want);
    EXPECT_EQ(bits == want, !HasBf16Products());
    const ScopedEnv force("ONEHOT_FORCE", "cpu:bf16");
    EXPECT_EQ(Prepare(reproducible).status().code(), Code::kUnsupported);
    EXPECT_THAT(Prepare(reproducible).status().message(),
                StartsWith("ONEHOT_FORCE: cpu:bf16 refuses this linear_cross_entropy"));
    if (HasBf16Products()) {
      EXPECT_THAT(Prepare(reproducible).status().message(), HasSubstr("reproducible"));
    }
  });
}

// Nothing else is refused, and no other bit changes.
TEST_F(LinearCrossEntropyBf16, ReproducibleChangesNothingElse) {
  for (const DType input : kGradientDTypes)
    Problems(input).ForEach([](const auto& op, const std::vector<Tensor*>& outputs) {
      auto reproducible = op;
      reproducible.options.reproducible = true;
      for (const char* force : {"cpu:fused", "ref"}) {
        const ScopedEnv forced("ONEHOT_FORCE", force);
        if (!Prepare(op).ok()) continue;  // f64
        EXPECT_EQ(Implementation(reproducible), force);
        EXPECT_EQ(BitsOf(reproducible, outputs), BitsOf(op, outputs)) << force;
      }
    });
}

// ---- alpha du is rounded once

// Two equal logits, p = 1/2 exactly: alpha du is +-alpha g / 2, target second. x = (1, 0), and the weight has a 1 where
// x has none: grad_weight[v, 0] and grad_input[1] are what went into the products, grad_bias what did not.
TEST_F(LinearCrossEntropyBf16Products, AlphaDuIsRoundedOnceToNearestEven) {
  const struct {
    double alpha, du, want;
  } cases[] = {
      {1, 1 + 0x1p-8, 1},                                // a tie, to even
      {1, 1 + 3 * 0x1p-8, 1 + 0x1p-6},                   // another, up: cut off it would be 1 + 2^-7
      {1, 1 + 0x1p-8 + 0x1p-20, 1 + 0x1p-7},             // just above a tie
      {1, 1 + 3 * 0x1p-8 - 0x1p-20, 1 + 0x1p-7},         // just below one
      {1, -3 - 0x1p-7, -3},                              // a tie of the next binade
      {1, 1.9999, 2},                                    // to the next binade
      {1, 0x1.8p-100 + 0x1p-109, 0x1.8p-100},            // far from 1
      {1.5, 1 + 0x1p-8, 1.5 + 0x1p-7},                   // 1.5 + 3/4 of a unit. Of du rounded before, 1.5
      {-0.75, 1 + 0x1p-7 + 0x1p-9, -0.75 - 2 * 0x1p-8},  // .75 + 1.875 units
      {1, 0x1p-126, 0x1p-126},                           // the least that is not 0
  };
  for (const auto& [alpha, du, want] : cases)
    for (const bool backward : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "alpha " << alpha << " du " << du << " backward " << backward);
      LinearCrossEntropyCase c{.positions = {1}, .H = 2, .V = 2, .input = DType::kBF16, .operand = DType::kF32};
      c.gradient = DType::kF32, c.reduction = Reduction::kNone, c.ignored = 0, c.logit_scale = alpha;
      LinearCrossEntropyProblem problem(c);
      problem.input.SetAll({1, 0});
      problem.weight.SetAll({0, 1, 0, 0});
      SetIndices(problem.target, {1});
      problem.upstream_loss->SetValue(0, 2 * du);
      EXPECT_OK(backward ? RunOn(kBf16, problem.backward()) : RunOn(kBf16, problem.forward()));
      EXPECT_EQ(problem.grad_weight.Values(), (std::vector<double>{want, 0, -want, 0}));
      EXPECT_EQ(problem.grad_input.Values(), (std::vector<double>{0, want}));
      const float exact = static_cast<float>(alpha * static_cast<double>(static_cast<float>(du)));
      EXPECT_EQ(problem.grad_bias.Values(), (std::vector<double>{exact, -exact}));
    }
}

// A thousand times 1 + 2^-8, a tie: rounded they are 1 each.
TEST_F(LinearCrossEntropyBf16Products, GradBiasIsTheSumOfWhatWasNotRounded) {
  for (const bool bias : {false, true}) {
    LinearCrossEntropyCase c{.positions = {1001}, .H = 1, .V = 2, .input = DType::kBF16, .operand = DType::kF32};
    c.gradient = DType::kF32, c.reduction = Reduction::kSum, c.ignored = 0, c.bias = bias;
    LinearCrossEntropyProblem problem(c);
    problem.input.SetAll(std::vector<double>(1001, 1));
    problem.weight.SetAll({0, 0});
    if (bias) problem.bias->SetAll({-2, -2});
    SetIndices(problem.target, std::vector<std::int64_t>(1001, 0));
    problem.upstream_loss->SetValue(0, 2 + 0x1p-7);
    for (const int threads : {1, 3}) {
      EXPECT_OK(RunOn(kBf16, problem.forward(), WithThreads(threads)));
      EXPECT_EQ(problem.grad_weight.Values(), (std::vector<double>{-1001, 1001}));
      // 11 bits and 8: every partial sum is exact.
      EXPECT_EQ(problem.grad_bias.Values(), (std::vector<double>{-1001 * (1 + 0x1p-8), 1001 * (1 + 0x1p-8)}));
    }
  }
}

// p = 1 - 2^-12 in f32; rounded to bf16 it would be 1 and p - 1 nothing.
TEST_F(LinearCrossEntropyBf16Products, TargetProbabilityIsNotRoundedBeforeSubtracting) {
  LinearCrossEntropyCase c{.positions = {1}, .H = 1, .V = 2, .input = DType::kBF16, .operand = DType::kF32};
  c.gradient = DType::kF32, c.reduction = Reduction::kSum, c.ignored = 0;
  ShardedProblem problem(c, {2});
  LinearCrossEntropyProblem& whole = problem.whole;
  whole.input.SetAll({1}), whole.weight.SetAll({0, 1});
  SetIndices(whole.target, {0});
  whole.upstream_loss->SetValue(0, 1);
  problem.shards[0].probability.SetAll({1 - 0x1p-12, 0x1p-12});
  EXPECT_OK(RunOn(kBf16, problem.backward(0, Given::kProbability)));
  EXPECT_EQ(whole.grad_weight.Values(), (std::vector<double>{-0x1p-12, 0x1p-12}));
  EXPECT_EQ(whole.grad_bias.Values(), (std::vector<double>{-0x1p-12, 0x1p-12}));
  EXPECT_EQ(problem.shards[0].grad_input.Value(0), 0x1p-12);

  // And of logits 0 and -8: p - 1 is -3.4e-4 with all of f32 but the 2^-24 that p is off by, exp in f32 some more.
  whole.weight.SetAll({0, -8});
  EXPECT_OK(RunOn(kBf16, whole.forward()));
  const double q = std::exp(-8.0) / (1 + std::exp(-8.0));
  EXPECT_NEAR(whole.grad_bias.Value(0), -q, 0x1p-21);
  EXPECT_NEAR(whole.grad_weight.Value(0), -q, 0x1p-21 + q * 0x1p-8);
}

// ---- below 2^-126

// 2^-127 2^100 is 0; so is 2^-110 2^-20, which is below as a sum. Just above they count. f32 loses none of the first.
TEST_F(LinearCrossEntropyBf16Products, NumbersBelowTheSmallestNormalAreZeros) {
  const struct {
    double x, w, bf16;
  } cases[] = {{0x1p-127, 0x1p100, 0}, {0x1p100, 0x1p-127, 0},          {0x1p-126, 0x1p100, 0x1p-26},
               {0x1p-110, 0x1p-20, 0}, {-0x1p-106, 0x1p-20, -0x1p-126}, {0x1.fcp-127, 0x1p126, 0}};
  for (const auto& [x, w, want] : cases)
    for (const bool second : {false, true}) {  // of the pair
      SCOPED_TRACE(::testing::Message() << x << " times " << w << " second " << second);
      ShardedProblem problem({.positions = {1}, .H = 2, .V = 1, .input = DType::kBF16, .ignored = 0}, {1});
      problem.whole.input.SetAll({0, 0}), problem.whole.weight.SetAll({0, 0});
      problem.whole.input.SetValue(second ? 1 : 0, x), problem.whole.weight.SetValue(second ? 1 : 0, w);
      EXPECT_OK(RunOn(kBf16, problem.statistics(0)));
      EXPECT_EQ(problem.shards[0].logits.Value(0), want);
    }
}

// Whatever is taken for 0 stays within the bounds, of all outputs.
TEST_F(LinearCrossEntropyBf16, SubnormalInputsStayWithinTheBounds) {
  const struct {
    double input, weight;
  } sizes[] = {{0x1p-125, 1}, {0x1p-125, 0x1p110}, {1, 0x1p-127}, {0x1p110, 0x1p-127}};
  for (const auto& [of_input, of_weight] : sizes) {
    LinearCrossEntropyCase c{.positions = {13}, .H = 7, .V = 21, .input = DType::kBF16, .h = true};
    LinearCrossEntropyProblem problem(c);
    // Elements near the least normal number on both sides of it.
    for (std::int64_t k = 0; k < problem.input.numel(); ++k)
      problem.input.SetValue(k, problem.input.Value(k) * of_input);
    for (std::int64_t k = 0; k < problem.weight.numel(); ++k)
      problem.weight.SetValue(k, problem.weight.Value(k) * of_weight);
    ExpectRightEverywhere(problem);
  }
}

// ---- sizes

// Several blocks of tokens and chunks of classes, all ends odd, with everything and with positions in between ignored.
TEST_F(LinearCrossEntropyBf16, LargeOddSizes) {
  for (const bool accumulate : {false, true}) {
    LinearCrossEntropyCase c = WithEverything({.positions = {211}, .H = 33, .V = 1051, .input = DType::kBF16});
    c.accumulate = accumulate, c.ignored = 0.3;
    if (accumulate) c.gradient = DType::kF32;
    ExpectRightEverywhere(c, 7);
  }
  ExpectRightEverywhere({.positions = {97}, .H = 5, .V = 2051, .input = DType::kBF16, .bias = true}, 8);
}

// Pairs of which one is missing, in each direction, alone and together; every second position ignored, and all but one.
TEST_F(LinearCrossEntropyBf16, PairsThatLackOne) {
  for (const std::int64_t N : {1, 2, 3, 13})
    for (const std::int64_t H : {1, 2, 3, 33})
      for (const std::int64_t V : {1, 2, 3, 65})
        for (const std::int64_t live : {0, 1, 2}) {
          LinearCrossEntropyCase c{.positions = {N}, .H = H, .V = V, .input = DType::kBF16, .ignored = 0};
          c.bias = true, c.reduction = Reduction::kSum;
          LinearCrossEntropyProblem problem(c, static_cast<std::uint64_t>(N + H + V));
          for (std::int64_t i = 0; i < N; ++i)
            if (live == 1 ? i % 2 == 0 : live == 2 && i != N / 2) problem.target.Set(i, kDefaultIgnoreIndex);
          ExpectRightEverywhere(problem);
        }
}

}  // namespace
}  // namespace onehot::test
