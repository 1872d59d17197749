// A vocabulary that is split: statistics of the shards, folded, give the loss and the gradients of all classes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tests/native/data.h"
#include "tests/native/linear_cross_entropy_shards_cases.h"

namespace onehot::test {
namespace {

// ---- every option with every other, and with every way to split

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
  kResultF64,
  kShape,
  kSplit,
  kOptions,
};

ShardedProblem ProblemOf(const Levels& levels, std::uint64_t seed) {
  constexpr std::int64_t kIgnored[] = {kDefaultIgnoreIndex, 0, -1};
  constexpr double kSmoothings[] = {0, 0.1, 1}, kScales[] = {1, -1.25};
  struct Shape {
    Dims positions;
    std::int64_t H, V;
  };
  const Shape shapes[] = {{{13}, 9, 37}, {{3, 5}, 33, 19}};
  const Shape& shape = shapes[levels[kShape]];
  LinearCrossEntropyCase c{
      .positions = shape.positions, .H = shape.H, .V = shape.V, .input = kGradientDTypes[levels[kInput]]};
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
  if (levels[kGradientF32] == 1 && SizeOf(c.input) == 2) c.gradient = DType::kF32;
  if (levels[kResultF64] == 1) c.result = DType::kF64;
  const std::int64_t V = shape.V;
  // One, two that are nearly even, uneven with single classes, and empty ones at all ends.
  const Sizes splits[] = {{V}, {V / 2, V - V / 2}, {1, V - 8, 1, 6}, {0, 5, 0, V - 5, 0}};
  return ShardedProblem(c, splits[levels[kSplit]], seed);
}

TEST(LinearCrossEntropyShards, AllPairs) {
  const std::vector<Levels> rows = AllPairs({4, 5, 3, 2, 2, 2, 2, 3, 2, 2, 2, 3, 3, 2, 7, 2, 2, 2, 2, 4});
  EXPECT_GE(rows.size(), 35u);   // five dtypes of target with seven combinations upstream
  EXPECT_LE(rows.size(), 120u);  // or the search has gone astray
  std::uint64_t seed = 1;
  for (const Levels& row : rows) {
    ASSERT_EQ(row.size(), kOptions);
    ShardedProblem problem = ProblemOf(row, seed++);
    ExpectShardedRight(problem);
  }
}

// ---- ways to split

// A shard for each class; more shards than classes; one class; what cases.md has.
TEST(LinearCrossEntropyShards, UnevenAndEmptyShards) {
  const std::pair<std::int64_t, Sizes> splits[] = {{10, {3, 3, 2, 2}}, {3, {1, 1, 1, 0}}, {7, {1, 1, 1, 1, 1, 1, 1}},
                                                   {1, {1}},           {1, {0, 0, 1}},    {1, {1, 0}},
                                                   {33, {32, 1}},      {33, {1, 32}},     {70, {17, 16, 0, 15, 22}}};
  for (const auto& [V, sizes] : splits)
    for (const DType input : kGradientDTypes)
      for (const bool everything : {false, true}) {
        LinearCrossEntropyCase c{.positions = {11}, .H = 6, .V = V, .input = input};
        if (everything) c = WithEverything(c);
        ShardedProblem problem(c, sizes);
        ExpectShardedRight(problem, {1, 3});
      }
}

// Shards of several blocks of 1024 classes, whose borders are not those of blocks.
TEST(LinearCrossEntropyShards, SeveralBlocks) {
  for (const DType input : {DType::kF32, DType::kBF16, DType::kF64})
    for (const bool everything : {false, true}) {
      LinearCrossEntropyCase c{.positions = {7}, .H = 5, .V = 4500, .input = input};
      if (everything) c = WithEverything(c);
      ShardedProblem problem(c, {1500, 1024, 1, 1975});
      ExpectShardedRight(problem, {1, 2});
    }
}

// No position, all ignored, no columns, no classes at all.
TEST(LinearCrossEntropyShards, EmptyExtents) {
  for (const DType input : kGradientDTypes)
    for (const Reduction reduction : kReductions)
      for (const bool zero_if_empty : {false, true}) {
        const auto expect = [&](Dims positions, std::int64_t H, const Sizes& sizes, double ignored = 0.15) {
          std::int64_t V = 0;
          for (const std::int64_t size : sizes) V += size;
          LinearCrossEntropyCase c =
              WithEverything({.positions = std::move(positions), .H = H, .V = V, .input = input, .ignored = ignored});
          c.reduction = reduction, c.zero_if_empty = zero_if_empty;
          // Softcap, z-loss and entropy are what probability is refused with.
          c.softcap = c.z_loss = 0, c.h = false;
          if (V == 0) c.label_smoothing = 0;  // has no V to divide by
          ShardedProblem problem(c, sizes);
          ExpectShardedRight(problem, {1});
        };
        expect({0}, 5, {4, 3}), expect({3, 0, 2}, 5, {4, 3}), expect({0}, 0, {0}), expect({6}, 0, {4, 3});
        expect({9}, 5, {4, 3}, 1), expect({0}, 5, {0, 0});
        if (zero_if_empty) continue;
        // Nothing but ignored positions can be without classes.
        LinearCrossEntropyCase c{.positions = {6}, .H = 5, .V = 0, .input = input, .reduction = reduction};
        ShardedProblem problem(c, {0, 0});
        ExpectShardedRight(problem, {1});
      }
}

// ---- one shard

TEST(LinearCrossEntropyShards, OneShardHasTheBits) {
  std::uint64_t seed = 1;
  for (const DType input : {DType::kF32, DType::kBF16, DType::kF16})
    for (const Reduction reduction : kReductions)
      for (const bool everything : {false, true}) {
        LinearCrossEntropyCase c{.positions = {2, 19}, .H = 21, .V = 37, .input = input};
        if (everything) c = WithEverything(c);
        c.reduction = reduction, c.accumulate = everything;
        ExpectOneShardHasTheBits(c, seed++);
      }
  ExpectOneShardHasTheBits(WithEverything({.positions = {70}, .H = 33, .V = 3000}));
  ExpectOneShardHasTheBits(WithEverything({.positions = {5}, .H = 40, .V = 2100, .input = DType::kBF16}));
}

// Each option alone, where another could hide it.
TEST(LinearCrossEntropyShards, OneShardHasTheBitsWithEachOption) {
  const LinearCrossEntropyCase plain{.positions = {31}, .H = 12, .V = 1100, .reduction = Reduction::kNone};
  LinearCrossEntropyCase cases[] = {plain, plain, plain, plain, plain, plain, plain, plain};
  cases[0].label_smoothing = 0.1, cases[1].z_loss = 1e-3, cases[2].softcap = 5, cases[3].logit_scale = 0.7;
  cases[4].h = true, cases[5].r = true, cases[6].weight = true, cases[7].bias = true;
  for (const LinearCrossEntropyCase& c : cases) ExpectOneShardHasTheBits(c);
}

// Where all gradients of the input go to one buffer in f32, shards continue one chain of sums.
TEST(LinearCrossEntropyShards, PartsOfTheInputGradientAreOneChain) {
  LinearCrossEntropyCase c = WithEverything({.positions = {23}, .H = 14, .V = 90, .input = DType::kF32});
  c.accumulate = true;
  ShardedProblem once(c, {90}), split(c, {40, 0, 13, 37});
  for (const Target& target : Targets<LinearCrossEntropyBackward>()) {
    if (!Takes(target, once.backward(0, Given::kMaxAndSum))) continue;
    SCOPED_TRACE(target.name());
    EXPECT_OK(RunLike({"ref", ""}, once.statistics(0)));
    for (std::size_t k = 0; k < once.folded().size(); ++k) *once.folded()[k] = *once.shards[0].statistics()[k];
    EXPECT_OK(RunLike({"ref", ""}, once.loss()));
    for (ShardedProblem* problem : {&once, &split})
      problem->max = once.max, problem->sum_exp = once.sum_exp, problem->entropy = once.whole.entropy;
    if (target.is_ref()) continue;  // its chains are in f64
    const std::vector<Tensor*> got = split.whole.gradient_tensors(), want = once.whole.gradient_tensors();
    const LinearCrossEntropyProblem clean = once.whole;
    EXPECT_OK(RunOn(target, once.backward(0, Given::kMaxAndSum)));
    for (std::size_t s = 0; s < split.shards.size(); ++s)
      EXPECT_OK(RunOn(target, split.backward(s, Given::kMaxAndSum)));
    for (std::size_t k = 0; k < got.size(); ++k)
      EXPECT_TRUE(SameBits(*got[k], want[k]->Bytes())) << kLinearOutputs[kLinearResults + k];
    for (ShardedProblem* problem : {&once, &split}) {
      LinearCrossEntropyProblem old = clean;
      for (std::size_t k = 0; k < got.size(); ++k) *problem->whole.gradient_tensors()[k] = *old.gradient_tensors()[k];
    }
  }
}

// ---- reported faults (shared/cases.md)

// Logits [2, .5, -1, 1]: smoothing counts all four classes, not those of a shard.
TEST(LinearCrossEntropyShardsFaults, LabelSmoothing) {
  for (const Sizes& sizes : {Sizes{2, 2}, Sizes{1, 3}, Sizes{4}, Sizes{0, 3, 1}}) {
    ShardedProblem problem({.positions = {1}, .H = 1, .V = 4, .label_smoothing = .2, .ignored = 0}, sizes);
    problem.whole.input.SetValue(0, 1);
    problem.whole.weight.SetAll({2, .5, -1, 1});
    SetIndices(problem.whole.target, {0});
    ExpectShardedRight(problem, {1});
    EXPECT_NEAR(problem.whole.loss.Value(0), .770182, 2e-6);
  }
}

// Gradients of shards add up once: grad.input of two shards is that of one.
TEST(LinearCrossEntropyShardsFaults, SmallProblem) {
  for (const Sizes& sizes : {Sizes{3}, Sizes{1, 2}, Sizes{1, 1, 1, 0}}) {
    LinearCrossEntropyCase c{.positions = {3}, .H = 2, .V = 3, .reduction = Reduction::kNone, .ignored = 0};
    ShardedProblem problem(c, sizes);
    problem.whole.input.SetAll({1, 0, 0, 1, 1, 1});
    problem.whole.weight.SetAll({1, 0, 0, 1, 1, 1});
    problem.whole.upstream_loss->SetAll({1, -2, .5});
    SetIndices(problem.whole.target, {0, 1, 2});
    ExpectShardedRight(problem, {1});
    const double losses[] = {.861995, .861995, .551445};
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_NEAR(problem.whole.loss.Value(i), losses[i], 2e-6);
    const double want[] = {-.155362, .577681, -1.155362, .310725, -.105971, -.105971};
    for (std::int64_t k = 0; k < 6; ++k) {
      double sum = 0;
      for (const Shard& shard : problem.shards) sum += shard.grad_input.Value(k);
      EXPECT_NEAR(sum, want[k], 2e-6) << k;
    }
  }
}

// ---- classes at -infinity

// Some of each shard, all of a shard, and the target among them.
TEST(LinearCrossEntropyShards, ClassesTakenOut) {
  const std::vector<std::vector<std::int64_t>> sets = {
      {0, 17, 18, 39}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {30, 31, 32, 33, 34, 35, 36, 37, 38, 39}, {10}};
  for (const DType input : kGradientDTypes)
    for (const double softcap : {0., 5.})
      for (const bool smoothing : {false, true})
        for (const auto& taken_out : sets) {
          LinearCrossEntropyCase c{
              .positions = {12}, .H = 7, .V = 40, .input = input, .bias = true, .weight = smoothing};
          c.label_smoothing = smoothing ? 0.1 : 0, c.softcap = softcap, c.reduction = Reduction::kNone;
          c.h = softcap > 0 || smoothing;
          ShardedProblem problem(c, {10, 1, 19, 10});
          for (const std::int64_t v : taken_out) {
            problem.whole.bias->SetValue(v, -HUGE_VAL);
            if (problem.whole.class_weight) problem.whole.class_weight->SetValue(v, 0);
          }
          if (problem.whole.class_weight) problem = ShardedProblem(std::move(problem.whole), {10, 1, 19, 10});
          for (std::int64_t i = 0; i < 12; ++i) problem.whole.target.Set<std::int64_t>(i, 11 + i % 6);
          ExpectShardedRight(problem, {1});
          if (smoothing) continue;  // the loss would be 0 x infinity
          problem.whole.target.Set<std::int64_t>(5, taken_out.back());
          ExpectShardedRight(problem, {1});
          EXPECT_EQ(problem.whole.loss.Value(5), std::numeric_limits<double>::infinity());
        }
}

TEST(LinearCrossEntropyShards, AllClassesTakenOut) {
  for (const DType input : kGradientDTypes)
    for (const Sizes& sizes : {Sizes{5}, Sizes{2, 3}, Sizes{0, 5}}) {
      LinearCrossEntropyCase c{.positions = {3}, .H = 3, .V = 5, .input = input, .bias = true, .ignored = 0};
      ShardedProblem problem(c, sizes);
      for (std::int64_t v = 0; v < 5; ++v) problem.whole.bias->SetValue(v, -HUGE_VAL);
      ExpectShardedRight(problem, {1});
      EXPECT_EQ(problem.whole.lse.Value(1), -HUGE_VAL);
      EXPECT_TRUE(std::isnan(problem.whole.loss.Value(0)));
      EXPECT_EQ(problem.argmax.Get<std::int64_t>(1), 0);
    }
}

// ---- NaN

// In a row of one shard: no fold may lose it.
TEST(LinearCrossEntropyShards, NaNInOneShard) {
  for (const DType input : kGradientDTypes)
    for (const std::int64_t bad : {0, 12, 39}) {
      ShardedProblem problem({.positions = {5}, .H = 3, .V = 40, .input = input, .ignored = 0}, {10, 1, 19, 10});
      problem.whole.weight.SetValue(3 * bad + 1, std::numeric_limits<double>::quiet_NaN());
      for (const Target& target : Targets<LinearCrossEntropyStatistics>()) {
        if (!Takes(target, problem.statistics(0))) continue;
        SCOPED_TRACE(target.name());
        for (std::size_t s = 0; s < 4; ++s) EXPECT_OK(RunOn(target, problem.statistics(s)));
        problem.Fold();
        EXPECT_OK(RunLike(target, problem.loss()));
        for (const Tensor* result : problem.losses())
          for (std::int64_t k = 0; k < result->numel() && result != &problem.whole.total_weight; ++k)
            EXPECT_TRUE(std::isnan(result->Value(k)));
        for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(problem.argmax.Get<std::int64_t>(i), bad);
      }
    }
}

// ---- large common logits

// Logits of 2^24 have no digits left for log 8: what travels between shards is distances.
TEST(LinearCrossEntropyShards, LargeCommonLogits) {
  for (const DType input : kGradientDTypes)
    for (const double sign : {1., -1.}) {
      LinearCrossEntropyCase c{.positions = {2}, .H = 1, .V = 8, .input = input, .result = DType::kF64};
      c.reduction = Reduction::kSum, c.ignored = 0;
      ShardedProblem problem(c, {3, 1, 4});
      problem.whole.input.SetAll({sign * 0x1p12, sign * 0x1p12});
      problem.whole.weight.SetAll(std::vector<double>(8, 0x1p12));
      SetIndices(problem.whole.target, {2, 2});
      problem.whole.upstream_loss->SetValue(0, 1);
      ExpectShardedRight(problem, {1});
      const double log8 = 2.0794415416798357;
      EXPECT_NEAR(problem.whole.loss.Value(0), 2 * log8, 2 * 0x1p-21);
      EXPECT_NEAR(problem.whole.entropy.Value(1), log8, 0x1p-21);
    }
}

}  // namespace
}  // namespace onehot::test
