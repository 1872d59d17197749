// What a shard knows of its logits: numbers worked by hand, every subset of outputs, layouts, and what is not read.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tests/native/data.h"
#include "tests/native/linear_cross_entropy_oracle_parts.h"
#include "tests/native/linear_cross_entropy_shards_cases.h"
#include "tests/native/strides.h"

namespace onehot::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const std::vector<int> kThreads = {1, 2, 3, 7};

using Outputs = std::vector<Tensor*>;

// The outputs, and what is needed to ask for some of them.
std::optional<TensorView>* FieldsOf(LinearCrossEntropyStatistics& op, std::size_t k) {
  std::optional<TensorView>* const fields[] = {&op.max,    &op.sum_exp, &op.target_logit, &op.smoothing,
                                               &op.moment, &op.argmax,  &op.logits};
  return fields[k];
}

// Bits of all outputs on each target, whatever the number of threads.
void ExpectBits(const LinearCrossEntropyStatistics& op, const Outputs& outputs, BitsByGroup& bits,
                const std::vector<int>& threads = {2}) {
  OnTargets(op, outputs, threads, [&](const Target& target) { bits.ExpectSame(target, outputs, kStatistics); });
}

// ---- by hand

// Logits [2, .5, -1, 1] in two shards; e^-1.5 = .22313016, e^-2 = .13533528.
TEST(LinearCrossEntropyStatistics, ByHand) {
  ShardedProblem problem({.positions = {3}, .H = 1, .V = 4, .ignored = 0}, {2, 2});
  LinearCrossEntropyProblem& whole = problem.whole;
  whole.input.SetAll({1, 1, 1});
  whole.weight.SetAll({2, .5, -1, 1});
  SetIndices(whole.target, {1, kDefaultIgnoreIndex, 2});
  const double want[2][7] = {{2, 1.22313016, -1.5, 1.5, -.33469524, 0, 2}, {1, 1.13533528, -2, 2, -.27067057, 3, -1}};
  for (std::size_t s = 0; s < 2; ++s) {
    const Outputs outputs = problem.shards[s].statistics();
    OnTargets(problem.statistics(s), outputs, {1, 3}, [&](const Target&) {
      for (std::size_t k = 0; k < 7; ++k) {
        SCOPED_TRACE(std::string(kStatistics[k]) + " of shard " + std::to_string(s));
        const bool of_target = k == 2;  // positions 0 and 2 have theirs in one shard each
        for (const std::int64_t i : {0, 2})
          EXPECT_NEAR(outputs[k]->Value(k == 6 ? 2 * i : i), of_target && i == (s == 0 ? 2 : 0) ? 0 : want[s][k], 1e-6);
        EXPECT_EQ(outputs[k]->Value(k == 6 ? 2 : 1), k == 5 ? -1 : 0) << "ignored";
      }
    });
  }
}

// The folded statistics of the oracle are those of all classes.
TEST(LinearCrossEntropyStatistics, FoldOfTheDefinition) {
  ShardedProblem one(WithEverything({.positions = {9}, .H = 5, .V = 23, .input = DType::kF64}), {23});
  ShardedProblem split(one.whole, {4, 0, 18, 1});
  for (ShardedProblem* problem : {&one, &split}) {
    for (std::size_t s = 0; s < problem->shards.size(); ++s) {
      const StatisticsDefinition want = Define(problem->statistics(s));
      Shard& shard = problem->shards[s];
      const std::pair<Tensor*, const Bounded*> statistics[] = {{&shard.max, &want.max},
                                                               {&shard.sum_exp, &want.sum_exp},
                                                               {&shard.target_logit, &want.target_logit},
                                                               {&shard.smoothing, &want.smoothing},
                                                               {&shard.moment, &want.moment}};
      for (const auto& [tensor, numbers] : statistics)
        for (std::int64_t i = 0; i < 9; ++i)
          tensor->SetValue(i, static_cast<double>(numbers->value[static_cast<std::size_t>(i)]));
      for (std::int64_t i = 0; i < 9; ++i) shard.argmax.Set(i, want.argmax[static_cast<std::size_t>(i)].index);
    }
    problem->Fold();
  }
  for (std::size_t k = 0; k < 5; ++k)
    for (std::int64_t i = 0; i < 9; ++i) {
      const double want = one.folded()[k]->Value(i);
      EXPECT_NEAR(split.folded()[k]->Value(i), want, 1e-13 * (1 + std::abs(want))) << kStatistics[k];
    }
  EXPECT_TRUE(SameBits(split.argmax, one.argmax.Bytes()));

  // And so are the loss and all that follows from them, by the other oracle.
  const ShardLossDefinition got = Define(split.loss());
  const LinearCrossEntropyDefinition want = Define(split.whole.forward());
  const std::pair<const Bounded*, const Bounded*> results[] = {{&got.loss, &want.loss},
                                                               {&got.lse, &want.lse},
                                                               {&got.log_probability, &want.log_probability},
                                                               {&got.entropy, &want.entropy},
                                                               {&got.total_weight, &want.total_weight}};
  for (const auto& [mine, other] : results)
    for (std::size_t k = 0; k < mine->value.size(); ++k)
      EXPECT_NEAR(static_cast<double>(mine->value[k]), static_cast<double>(other->value[k]), 1e-12);
  for (std::int64_t i = 0; i < 9; ++i)
    split.entropy.SetValue(i, static_cast<double>(want.entropy.value[static_cast<std::size_t>(i)]));
  std::vector<linear::Real> parts(45, 0);
  for (std::size_t s = 0; s < split.shards.size(); ++s) {
    const ShardGradients gradients = Define(split.backward(s, Given::kMaxAndSum));
    for (std::size_t k = 0; k < parts.size(); ++k) parts[k] += gradients.input.value[k];
    const auto first = static_cast<std::size_t>(split.shards[s].range.first);
    for (std::size_t k = 0; k < gradients.weight.value.size(); ++k)
      EXPECT_NEAR(static_cast<double>(gradients.weight.value[k]),
                  static_cast<double>(want.grad_weight.value[5 * first + k]), 1e-12);
    for (std::size_t k = 0; k < gradients.bias.value.size(); ++k)
      EXPECT_NEAR(static_cast<double>(gradients.bias.value[k]), static_cast<double>(want.grad_bias.value[first + k]),
                  1e-12);
  }
  for (std::size_t k = 0; k < parts.size(); ++k)
    EXPECT_NEAR(static_cast<double>(parts[k]), static_cast<double>(want.grad_input.value[k]), 1e-12);
}

// z rounded once to the dtype of input, or to f32; which makes no difference to the others. With a softcap it is capped.
TEST(LinearCrossEntropyStatistics, Logits) {
  for (const DType input : kGradientDTypes)
    for (const DType dtype : {input, DType::kF32})
      for (const bool softcap : {false, true}) {
        LinearCrossEntropyCase c = WithEverything({.positions = {11}, .H = 6, .V = 1121, .input = input});
        if (!softcap) c.softcap = 0;
        ShardedProblem problem(c, {16, 1105});
        Shard& shard = problem.shards[1];
        const Outputs outputs = shard.statistics(), others(outputs.begin(), outputs.end() - 1);
        LinearCrossEntropyStatistics op = problem.statistics(1);
        op.logits = std::nullopt;
        BitsByGroup bits;
        OnTargets(op, others, {2}, [&](const Target& target) { bits.ExpectSame(target, others, kStatistics); });
        shard.logits = Tensor(dtype, {11, 1105});
        op.logits = shard.logits.view();
        const Wanted want(op);
        OnTargets(op, outputs, {1, 3}, [&](const Target& target) {
          EXPECT_TRUE(Within(shard.logits, want.For(target).logits, UnitRoundoff(target, input, 1105)));
          bits.ExpectSame(target, others, kStatistics);
        });
      }
}

// Without `shard`, all classes.
TEST(LinearCrossEntropyStatistics, NoShardIsAllClasses) {
  for (const DType input : kGradientDTypes) {
    ShardedProblem problem(WithEverything({.positions = {11}, .H = 6, .V = 21, .input = input}), {21});
    const Outputs outputs = problem.shards[0].statistics();
    BitsByGroup bits;
    ExpectBits(problem.statistics(0), outputs, bits);
    LinearCrossEntropyStatistics op = problem.statistics(0);
    op.shard = std::nullopt;
    ExpectBits(op, outputs, bits);
  }
}

// ---- the same bits

// What is not asked for is not written, and does not change the bits of the others.
TEST(LinearCrossEntropyStatistics, AnySubsetOfOutputs) {
  for (const DType input : kGradientDTypes)
    for (const bool softcap : {false, true}) {
      LinearCrossEntropyCase c = WithEverything({.positions = {9}, .H = 3, .V = 1130, .input = input});
      if (!softcap) c.softcap = 0;
      ShardedProblem problem(c, {20, 1100, 10});
      const Outputs outputs = problem.shards[1].statistics();
      BitsByGroup bits;
      ExpectBits(problem.statistics(1), outputs, bits);
      for (unsigned subset = 0; subset < 128; subset += subset < 8 ? 1 : 5) {
        LinearCrossEntropyStatistics op = problem.statistics(1);
        for (std::size_t k = 0; k < 7; ++k)
          if ((subset >> k & 1u) == 0) *FieldsOf(op, k) = std::nullopt;
        OnTargets(op, outputs, {2}, [&](const Target& target) {
          for (std::size_t k = 0; k < 7; ++k) {
            const std::vector<std::byte> untouched(outputs[k]->Bytes().size(), std::byte{0xFF});
            EXPECT_TRUE(SameBits(*outputs[k], (subset >> k & 1u) != 0 ? bits.Of(target)[k] : untouched))
                << kStatistics[k] << " of subset " << subset;
          }
        });
      }
    }
}

// Enough for every thread to get a share, along positions and along classes; ragged against any block.
TEST(LinearCrossEntropyStatistics, AnyNumberOfThreads) {
  struct Size {
    std::int64_t N, H, V;
  };
  for (const Size& size :
       {Size{67, 33, 1101}, Size{5, 20, 3000}, Size{300, 17, 50}, Size{1, 100, 2500}, Size{70, 1, 70}})
    for (const DType input : {DType::kF32, DType::kBF16}) {
      ShardedProblem problem(WithEverything({.positions = {size.N}, .H = size.H, .V = size.V + 9, .input = input}),
                             {5, size.V, 4});
      BitsByGroup bits;
      ExpectBits(problem.statistics(1), problem.shards[1].statistics(), bits, kThreads);
    }
}

TEST(LinearCrossEntropyStatistics, Layouts) {
  for (const DType input : kGradientDTypes) {
    LinearCrossEntropyCase c = WithEverything({.positions = {2, 15}, .H = 21, .V = 37, .input = input});
    c.softcap = 0;
    ShardedProblem dense(c, {4, 30, 3});
    BitsByGroup bits;
    ExpectBits(dense.statistics(1), dense.shards[1].statistics(), bits);
    for (const Form form : kForms) {
      ShardedProblem problem = dense;
      problem.whole.weight = Relaid(problem.whole.weight, StridesOf(form, 37, 21));
      ExpectBits(problem.statistics(1), problem.shards[1].statistics(), bits);
    }
    std::vector<Dims> all = AllPermutedStrides({2, 15, 30}, 5);
    for (const Dims& strides : {Dims{1000, 60, 2}, Dims{-450, 30, -1}, Dims{31, -62, 1}}) all.push_back(strides);
    for (const Dims& strides : all) {
      ShardedProblem problem = dense;
      problem.whole.input = Relaid(problem.whole.input, strides);
      problem.shards[1].logits = Relaid(problem.shards[1].logits, strides);
      ExpectBits(problem.statistics(1), problem.shards[1].statistics(), bits);
    }
    for (const Dims& strides : {Dims{1, 2}, Dims{45, 3}, Dims{-15, -1}}) {
      ShardedProblem problem = dense;
      Shard& shard = problem.shards[1];
      for (Tensor* tensor : {&problem.whole.target, &shard.max, &shard.sum_exp, &shard.target_logit, &shard.smoothing,
                             &shard.moment, &shard.argmax})
        *tensor = Relaid(*tensor, strides);
      for (Tensor* tensor : {&*problem.whole.bias, &*problem.whole.class_weight})
        *tensor = Relaid(*tensor, {strides[1]});
      ExpectBits(problem.statistics(1), shard.statistics(), bits);
    }
  }
}

// Of the loss only softcap, weight and ignore_index are read.
TEST(LinearCrossEntropyStatistics, OptionsThatAreNotRead) {
  ShardedProblem problem(WithEverything({.positions = {11}, .H = 6, .V = 21}), {6, 15});
  const Outputs outputs = problem.shards[1].statistics();
  BitsByGroup bits;
  ExpectBits(problem.statistics(1), outputs, bits);
  LinearCrossEntropyStatistics op = problem.statistics(1);
  op.options.loss.label_smoothing = 0, op.options.loss.z_loss = 0, op.options.loss.reduction = Reduction::kSum;
  op.options.loss.zero_if_empty = true, op.options.loss.class_axis = -50;
  op.options.loss.token_weight = std::nullopt, op.options.loss.denominator = std::nullopt;
  ExpectBits(op, outputs, bits);
  Tensor nothing(DType::kF32, {11});
  op.options.loss.token_weight = std::as_const(nothing).view();  // NaN
  ExpectBits(op, outputs, bits);
}

// ---- argmax

// The lowest class of the vocabulary among equals, which small integers are exactly; the shard of the fold is the first.
TEST(LinearCrossEntropyStatistics, ArgmaxOfEquals) {
  for (const DType input : kGradientDTypes) {
    ShardedProblem problem({.positions = {4}, .H = 2, .V = 2100, .input = input, .ignored = 0}, {35, 0, 965, 1100});
    LinearCrossEntropyProblem& whole = problem.whole;
    for (std::int64_t k = 0; k < 4200; ++k) whole.weight.SetValue(k, 1);
    whole.input.SetAll({1, 2, 1, 3, -1, -1, 0, 0});
    for (const std::int64_t v : {40, 999, 1030, 2099}) whole.weight.SetValue(2 * v, 3);
    const std::int64_t want[4][4] = {{0, 0, 0, 0}, {-1, -1, -1, -1}, {40, 40, 35, 35}, {1030, 1030, 1000, 1000}};
    const std::int64_t folded[] = {40, 40, 0, 0};
    for (const Target& target : Targets<LinearCrossEntropyStatistics>()) {
      if (!Takes(target, problem.statistics(0))) continue;
      SCOPED_TRACE(target.name());
      for (std::size_t s = 0; s < 4; ++s) {
        EXPECT_OK(RunOn(target, problem.statistics(s), WithThreads(3)));
        for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(problem.shards[s].argmax.Get<std::int64_t>(i), want[s][i]);
      }
      problem.Fold();
      for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(problem.argmax.Get<std::int64_t>(i), folded[i]);
    }
  }
}

// ---- NaN and infinity

// A NaN makes its own position NaN; argmax is the first NaN.
TEST(LinearCrossEntropyStatistics, NaNInAPosition) {
  for (const DType input : kGradientDTypes) {
    ShardedProblem problem({.positions = {20}, .H = 18, .V = 33, .input = input, .ignored = 0}, {8, 25});
    const Outputs outputs = problem.shards[1].statistics();
    BitsByGroup clean;
    ExpectBits(problem.statistics(1), outputs, clean);
    problem.whole.input.SetValue(7 * 18 + 4, kNaN);
    SetIndices(problem.whole.target, std::vector<std::int64_t>(20, 9));
    ShardedProblem other = problem;
    other.whole.input.SetValue(7 * 18 + 4, 1);
    BitsByGroup without;
    ExpectBits(other.statistics(1), other.shards[1].statistics(), without);
    OnTargets(problem.statistics(1), outputs, {1, 3}, [&](const Target& target) {
      for (std::size_t k = 0; k < 7; ++k) {
        const std::int64_t of_each = outputs[k]->numel() / 20, size = SizeOf(outputs[k]->layout().dtype);
        Tensor want = *outputs[k];
        for (std::int64_t e = 0; e < want.numel(); ++e) want.SetBytes(e, without.Of(target)[k].data() + e * size);
        for (std::int64_t e = 7 * of_each; e < 8 * of_each; ++e)
          k == 5 ? want.Set<std::int64_t>(e, 8) : want.SetValue(e, kNaN);
        EXPECT_TRUE(SameBits(*outputs[k], want.Bytes())) << kStatistics[k];
      }
    });
  }
}

// NaN in rows that do not count changes nothing.
TEST(LinearCrossEntropyStatistics, NaNInIgnoredPositions) {
  for (const DType input : kGradientDTypes) {
    LinearCrossEntropyCase c = WithEverything({.positions = {40}, .H = 18, .V = 70, .input = input});
    c.ignored = 0.3;
    ShardedProblem problem(c, {30, 40});
    const Outputs outputs = problem.shards[1].statistics();
    BitsByGroup bits;
    ExpectBits(problem.statistics(1), outputs, bits);
    std::int64_t ignored = 0;
    for (std::int64_t i = 0; i < 40; ++i) {
      if (problem.whole.target.Get<std::int64_t>(i) != c.ignore_index) continue;
      ++ignored;
      for (std::int64_t h = 0; h < 18; ++h) problem.whole.input.SetValue(i * 18 + h, h % 3 == 0 ? HUGE_VAL : kNaN);
    }
    ASSERT_GT(ignored, 0);
    ExpectBits(problem.statistics(1), outputs, bits);
  }
}

// +infinity goes to smoothing for a class at -infinity, but where its weight is 0; its term of moment and sum_exp is 0.
TEST(LinearCrossEntropyStatistics, ClassesAtMinusInfinity) {
  for (const DType input : kGradientDTypes)
    for (const double weight : {0., 2.}) {
      ShardedProblem problem({.positions = {4}, .H = 3, .V = 12, .input = input, .bias = true, .weight = true}, {6, 6});
      problem.whole.bias->SetValue(7, -HUGE_VAL);
      problem.whole.class_weight->SetValue(7, weight);
      SetIndices(problem.whole.target, {7, 6, 0, 11});
      Shard& shard = problem.shards[1];
      const StatisticsDefinition want = Define(problem.statistics(1));
      OnTargets(problem.statistics(1), shard.statistics(), {1}, [&](const Target&) {
        for (std::int64_t i = 0; i < 4; ++i) {
          EXPECT_EQ(std::isinf(shard.smoothing.Value(i)), weight != 0);
          EXPECT_TRUE(std::isfinite(shard.moment.Value(i)));
          EXPECT_TRUE(std::isfinite(shard.sum_exp.Value(i)));
          EXPECT_EQ(shard.logits.Value(6 * i + 1), -HUGE_VAL);
        }
        EXPECT_EQ(shard.target_logit.Value(0), -HUGE_VAL);
        EXPECT_EQ(shard.target_logit.Value(2), 0) << "in the other shard";
        EXPECT_NEAR(shard.sum_exp.Value(1), static_cast<double>(want.sum_exp.value[1]), 1e-4);
      });
    }
}

}  // namespace
}  // namespace onehot::test
