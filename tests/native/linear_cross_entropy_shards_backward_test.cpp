// Gradients from what is known of all logits: the numbers given are the ones that count, whatever else is asked for and
// however tensors lie in memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tests/native/data.h"
#include "tests/native/linear_cross_entropy_oracle.h"
#include "tests/native/linear_cross_entropy_shards_cases.h"
#include "tests/native/strides.h"

namespace onehot::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr const char* kGradients[] = {"grad.input", "grad.weight", "grad.bias"};

// Numbers that no softmax gave: a sum 1.5 to 2 times too large, a wrong entropy, rows of probability that do not add up
// to 1.
void Disturb(ShardedProblem& problem) {
  const LinearCrossEntropyDefinition want = Define(problem.whole.forward());
  Random random(5);
  const auto number = [](const Bounded& numbers, std::int64_t i) {
    return static_cast<double>(numbers.value[static_cast<std::size_t>(i)]);
  };
  for (std::int64_t i = 0; i < problem.max.numel(); ++i) {
    const double lse = number(want.lse, i) + random.Unit();
    problem.lse.SetValue(i, lse);
    problem.max.SetValue(i, lse - 1.25);
    problem.sum_exp.SetValue(i, std::exp(1.25) * (1.5 + random.Unit() / 2));
    problem.entropy.SetValue(i, number(want.entropy, i) + random.Unit());
  }
  for (Shard& shard : problem.shards)
    for (std::int64_t k = 0; k < shard.probability.numel(); ++k)
      shard.probability.SetValue(k, random.Below(5) == 0 ? 0 : random.Unit() * random.Unit());
}

std::vector<Tensor*> GradientsOf(ShardedProblem& problem, std::size_t s) {
  return {problem.whole.c.accumulate ? &problem.whole.grad_input : &problem.shards[s].grad_input,
          &problem.whole.grad_weight, &problem.whole.grad_bias};
}

// A whole gradient's rows of a shard.
Tensor RowsOfTensor(Tensor& tensor, std::int64_t first, std::int64_t count) {
  const TensorView rows = RowsOf(tensor.view(), first, count);
  Tensor copy(rows.dtype, Dims(rows.dims.begin(), rows.dims.begin() + rows.rank));
  for (std::int64_t i = 0; i < rows.numel(); ++i)
    copy.SetBytes(i, static_cast<const std::byte*>(rows.data) + OffsetOf(rows, i) * SizeOf(rows.dtype));
  return copy;
}

LinearCrossEntropyCase CaseFor(Given given, DType input, bool accumulate) {
  LinearCrossEntropyCase c = WithEverything({.positions = {2, 12}, .H = 9, .V = 40, .input = input});
  if (given == Given::kProbability) c.softcap = c.z_loss = 0, c.h = false;
  c.accumulate = accumulate;
  return c;
}

TEST(LinearCrossEntropyGiven, NumbersThatAreGivenCount) {
  for (const DType input : kGradientDTypes)
    for (const Given given : kGivens)
      for (const bool accumulate : {false, true})
        for (const Reduction reduction : kReductions) {
          LinearCrossEntropyCase c = CaseFor(given, input, accumulate);
          c.reduction = reduction;
          ShardedProblem problem(c, {11, 0, 28, 1});
          Disturb(problem);
          SCOPED_TRACE(problem.Describe() + " given " + kGivenNames[static_cast<int>(given)]);
          for (std::size_t s = 0; s < problem.shards.size(); ++s) {
            const Shard& shard = problem.shards[s];
            const LinearCrossEntropyBackward op = problem.backward(s, given);
            const Wanted all(op);
            const std::vector<Tensor*> gradients = GradientsOf(problem, s);
            BitsByGroup bits;
            OnTargets(op, gradients, {1, 2, 3}, [&](const Target& target) {
              const ShardGradients& want = all.For(target);
              const double u = UnitRoundoff(target, input, shard.size);
              EXPECT_TRUE(Within(*gradients[0], want.input, u)) << "grad.input";
              EXPECT_TRUE(Within(RowsOfTensor(*gradients[1], shard.range.first, shard.size), want.weight, u));
              EXPECT_TRUE(Within(RowsOfTensor(*gradients[2], shard.range.first, shard.size), want.bias, u));
              bits.ExpectSame(target, gradients, kGradients);
            });
          }
        }
}

// Halving all of p, with r = 1 alone upstream: grad.bias_v = sum of ([v = y] - p_v / 2), for each way to say so.
TEST(LinearCrossEntropyGiven, ByHand) {
  // z = [log 4, 0, 0], p = [4, 1, 1] / 6, halved.
  for (const Given given : kGivens)
    for (const DType input : {DType::kF32, DType::kF64, DType::kBF16}) {
      LinearCrossEntropyCase c{
          .positions = {1}, .H = 1, .V = 3, .input = input, .bias = true, .ignored = 0, .g = false};
      c.bias_dtype = c.gradient = input == DType::kF64 ? DType::kF64 : DType::kF32;
      c.r = true;
      ShardedProblem problem(c, {2, 1});
      problem.whole.input.SetAll({1}), problem.whole.weight.SetAll({0, 0, 0});
      problem.whole.bias->SetAll({std::log(4.), 0, 0});
      problem.whole.upstream_log_probability->SetValue(0, 1);
      SetIndices(problem.whole.target, {1});
      problem.max.SetValue(0, std::log(4.)), problem.sum_exp.SetValue(0, 3);
      problem.lse.SetValue(0, std::log(12.));
      problem.shards[0].probability.SetAll({4. / 12, 1. / 12}), problem.shards[1].probability.SetAll({1. / 12});
      for (const Target& target : Targets<LinearCrossEntropyBackward>()) {
        if (!Takes(target, problem.backward(0, given))) continue;
        for (std::size_t s = 0; s < 2; ++s) EXPECT_OK(RunOn(target, problem.backward(s, given)));
        const double want[] = {-4. / 12, 1 - 1. / 12, -1. / 12};
        for (std::int64_t v = 0; v < 3; ++v) EXPECT_NEAR(problem.whole.grad_bias.Value(v), want[v], 1e-6);
      }
    }
}

// ---- any subset, the same bits

TEST(LinearCrossEntropyGiven, AnySubsetOfGradients) {
  for (const DType input : kGradientDTypes)
    for (const Given given : kGivens)
      for (const bool accumulate : {false, true}) {
        ShardedProblem problem(CaseFor(given, input, accumulate), {5, 33, 2});
        Disturb(problem);
        const std::vector<Tensor*> gradients = GradientsOf(problem, 1);
        std::vector<std::vector<std::byte>> old;
        for (const Tensor* gradient : gradients) old.push_back(gradient->Bytes());
        BitsByGroup bits;
        OnTargets(problem.backward(1, given), gradients, {2},
                  [&](const Target& target) { bits.ExpectSame(target, gradients, kGradients); });
        for (unsigned subset = 0; subset < 8; ++subset) {
          LinearCrossEntropyBackward op = problem.backward(1, given);
          if ((subset & 1) == 0) op.grad.input = std::nullopt;
          if ((subset & 2) == 0) op.grad.weight = std::nullopt;
          if ((subset & 4) == 0) op.grad.bias = std::nullopt;
          OnTargets(op, gradients, {1, 3}, [&](const Target& target) {
            for (std::size_t k = 0; k < 3; ++k)
              EXPECT_TRUE(SameBits(*gradients[k], (subset >> k & 1u) != 0 ? bits.Of(target)[k] : old[k]))
                  << kGradients[k] << " of subset " << subset;
          });
        }
      }
}

// Ragged shares along positions and along classes.
TEST(LinearCrossEntropyGiven, AnyNumberOfThreads) {
  struct Size {
    std::int64_t N, H, V;
  };
  for (const Size& size : {Size{67, 33, 1101}, Size{5, 20, 3000}, Size{300, 17, 50}})
    for (const DType input : {DType::kF32, DType::kBF16})
      for (const Given given : kGivens) {
        LinearCrossEntropyCase c = CaseFor(given, input, input == DType::kBF16);
        c.positions = {size.N}, c.H = size.H, c.V = size.V + 9;
        ShardedProblem problem(c, {5, size.V, 4});
        Disturb(problem);
        const std::vector<Tensor*> gradients = GradientsOf(problem, 1);
        BitsByGroup bits;
        OnTargets(problem.backward(1, given), gradients, {1, 2, 3, 7},
                  [&](const Target& target) { bits.ExpectSame(target, gradients, kGradients); });
      }
}

TEST(LinearCrossEntropyGiven, Layouts) {
  for (const DType input : kGradientDTypes)
    for (const Given given : kGivens) {
      ShardedProblem dense(CaseFor(given, input, false), {7, 33});
      Disturb(dense);
      BitsByGroup bits;
      const auto expect = [&](ShardedProblem& problem) {
        const std::vector<Tensor*> gradients = GradientsOf(problem, 1);
        OnTargets(problem.backward(1, given), gradients, {2},
                  [&](const Target& target) { bits.ExpectSame(target, gradients, kGradients); });
      };
      expect(dense);
      for (const Form form : kForms) {
        ShardedProblem problem = dense;
        problem.whole.weight = Relaid(problem.whole.weight, StridesOf(form, 40, 9));
        problem.whole.grad_weight = Relaid(problem.whole.grad_weight, StridesOf(form, 40, 9));
        expect(problem);
      }
      std::vector<Dims> all = AllPermutedStrides({2, 12, 33}, 5);
      for (const Dims& strides : {Dims{1000, 66, 2}, Dims{-396, 33, -1}}) all.push_back(strides);
      for (const Dims& strides : all) {
        ShardedProblem problem = dense;
        problem.shards[1].probability = Relaid(problem.shards[1].probability, strides);
        problem.whole.input = Relaid(problem.whole.input, strides);
        problem.shards[1].grad_input = Relaid(problem.shards[1].grad_input, strides);
        expect(problem);
      }
      for (const Dims& strides : {Dims{1, 2}, Dims{50, 4}, Dims{-12, -1}}) {
        ShardedProblem problem = dense;
        for (Tensor* tensor : {&problem.max, &problem.sum_exp, &problem.lse, &problem.entropy, &problem.whole.target})
          *tensor = Relaid(*tensor, strides);
        expect(problem);
      }
    }
}

// ---- what is not read

// Without upstream.entropy, entropy is not read.
TEST(LinearCrossEntropyGiven, EntropyIsReadOnlyForItsUpstream) {
  for (const DType input : kGradientDTypes)
    for (const Given given : {Given::kMaxAndSum, Given::kLse}) {
      LinearCrossEntropyCase c = CaseFor(given, input, false);
      c.h = false;
      ShardedProblem problem(c, {40});
      Disturb(problem);
      const std::vector<Tensor*> gradients = GradientsOf(problem, 0);
      BitsByGroup bits;
      LinearCrossEntropyBackward op = problem.backward(0, given);
      OnTargets(op, gradients, {2}, [&](const Target& target) { bits.ExpectSame(target, gradients, kGradients); });
      for (std::int64_t i = 0; i < problem.entropy.numel(); ++i) problem.entropy.SetValue(i, kNaN);
      op.entropy = std::as_const(problem.entropy).view();
      OnTargets(op, gradients, {2}, [&](const Target& target) { bits.ExpectSame(target, gradients, kGradients); });
    }
}

// With probability, input is read for grad.weight alone; and probability itself is never written.
TEST(LinearCrossEntropyGiven, ProbabilityStandsForTheInput) {
  for (const DType input : kGradientDTypes) {
    ShardedProblem problem(CaseFor(Given::kProbability, input, false), {7, 33});
    Disturb(problem);
    const std::vector<Tensor*> gradients = GradientsOf(problem, 1);
    const Buffer before = problem.shards[1].probability.buffer();
    BitsByGroup bits;
    LinearCrossEntropyBackward op = problem.backward(1, Given::kProbability);
    OnTargets(op, gradients, {1, 3}, [&](const Target& target) { bits.ExpectSame(target, gradients, kGradients); });
    EXPECT_TRUE(problem.shards[1].probability.buffer() == before);
    for (std::int64_t k = 0; k < problem.whole.input.numel(); ++k) problem.whole.input.SetValue(k, kNaN);
    op.grad.weight = std::nullopt;
    OnTargets(op, gradients, {1, 3}, [&](const Target& target) {
      for (const std::size_t k : {std::size_t{0}, std::size_t{2}})
        EXPECT_TRUE(SameBits(*gradients[k], bits.Of(target)[k])) << kGradients[k];
    });
  }
}

// NaN in what is given to positions that do not count.
TEST(LinearCrossEntropyGiven, NaNInIgnoredPositions) {
  for (const DType input : kGradientDTypes)
    for (const Given given : kGivens) {
      LinearCrossEntropyCase c = CaseFor(given, input, false);
      c.ignored = 0.3;
      ShardedProblem problem(c, {7, 33});
      Disturb(problem);
      const std::vector<Tensor*> gradients = GradientsOf(problem, 1);
      BitsByGroup bits;
      const LinearCrossEntropyBackward op = problem.backward(1, given);
      OnTargets(op, gradients, {2}, [&](const Target& target) { bits.ExpectSame(target, gradients, kGradients); });
      for (std::int64_t i = 0; i < 24; ++i) {
        if (problem.whole.target.Get<std::int64_t>(i) != c.ignore_index) continue;
        for (Tensor* tensor : {&problem.max, &problem.sum_exp, &problem.lse, &problem.entropy})
          tensor->SetValue(i, kNaN);
        for (std::int64_t v = 0; v < 33; ++v) problem.shards[1].probability.SetValue(33 * i + v, kNaN);
        for (std::int64_t h = 0; h < 9; ++h) problem.whole.input.SetValue(9 * i + h, kNaN);
      }
      OnTargets(op, gradients, {2}, [&](const Target& target) { bits.ExpectSame(target, gradients, kGradients); });
    }
}

// ---- without a shard

// max and sum_exp, or probability, of all classes and no shard: as one shard of all. Without entropy, it is computed.
TEST(LinearCrossEntropyGiven, WithoutShard) {
  for (const DType input : kGradientDTypes)
    for (const Given given : kGivens)
      for (const bool accumulate : {false, true}) {
        ShardedProblem problem(CaseFor(given, input, accumulate), {40});
        Disturb(problem);
        const std::vector<Tensor*> gradients = GradientsOf(problem, 0);
        BitsByGroup bits;
        LinearCrossEntropyBackward op = problem.backward(0, given);
        OnTargets(op, gradients, {1}, [&](const Target& target) { bits.ExpectSame(target, gradients, kGradients); });
        op.shard = std::nullopt;
        OnTargets(op, gradients, {2}, [&](const Target& target) { bits.ExpectSame(target, gradients, kGradients); });
      }
}

TEST(LinearCrossEntropyGiven, EntropyIsComputedWhereItIsNotGiven) {
  for (const DType input : kGradientDTypes)
    for (const Given given : {Given::kMaxAndSum, Given::kLse}) {
      ShardedProblem problem(CaseFor(given, input, false), {40});
      const Wanted all(problem.whole.forward());
      const LinearCrossEntropyDefinition exact = Define(problem.whole.forward());
      // The true numbers, rounded.
      const StatisticsDefinition statistics = Define(problem.statistics(0));
      for (std::int64_t i = 0; i < 24; ++i) {
        const auto k = static_cast<std::size_t>(i);
        problem.max.SetValue(i, static_cast<double>(statistics.max.value[k]));
        problem.sum_exp.SetValue(i, static_cast<double>(statistics.sum_exp.value[k]));
        problem.lse.SetValue(i, static_cast<double>(exact.lse.value[k]));
      }
      LinearCrossEntropyBackward op = problem.backward(0, given);
      op.shard = std::nullopt, op.entropy = std::nullopt;
      const std::vector<Tensor*> gradients = GradientsOf(problem, 0);
      // Twice, as in linear_cross_entropy_shards_cases.h: what is given was rounded to f32, whatever the arithmetic.
      const auto twice = [](Bounded bounded) {
        for (auto& error : bounded.error) error *= 2;
        return bounded;
      };
      OnTargets(op, gradients, {2}, [&](const Target& target) {
        const LinearCrossEntropyDefinition& want = all.For(target);
        const double u = input == DType::kF64 ? UnitRoundoff(target, input, 40) : 0x1p-24;
        EXPECT_TRUE(Within(*gradients[0], twice(want.grad_input), u)) << "grad.input";
        EXPECT_TRUE(Within(*gradients[1], twice(want.grad_weight), u)) << "grad.weight";
        EXPECT_TRUE(Within(*gradients[2], twice(want.grad_bias), u)) << "grad.bias";
      });
    }
}

}  // namespace
}  // namespace onehot::test
