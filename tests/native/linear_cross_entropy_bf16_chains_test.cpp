// Products of bf16, to the bit: the chains of the header ("bf16"), computed here one operation after the other.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "tests/native/data.h"
#include "tests/native/linear_cross_entropy_cases.h"
#include "tests/native/linear_cross_entropy_shards_cases.h"

namespace onehot::test {
namespace {

float Normal(float x) {
  return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}
float ToBF16(float x) {
  return Widen(Narrow<BF16>(Normal(x)));
}

// A sum of products of bf16 that goes by two terms at a time, the second of them first.
class PairChain {
 public:
  explicit PairChain(float start) : sum_(start) {}
  void Add(float a, float b) {
    if (waits_)
      AddOne(a, b), AddWaiting();
    else
      a_ = a, b_ = b, waits_ = true;
  }
  float Sum() {
    if (waits_) AddWaiting();
    return sum_;
  }

 private:
  void AddOne(float a, float b) { sum_ = Normal(std::fma(Normal(a), Normal(b), sum_)); }
  void AddWaiting() { AddOne(a_, b_), waits_ = false; }

  float sum_, a_ = 0, b_ = 0;
  bool waits_ = false;  // the first of a pair
};

// One term after the other, as the other implementations have it.
class Chain {
 public:
  explicit Chain(float start) : sum_(start) {}
  void Add(float a, float b) { sum_ = std::fma(a, b, sum_); }
  float Sum() const { return sum_; }

 private:
  float sum_;
};

float At(const Tensor& tensor, std::int64_t k) {
  return static_cast<float>(tensor.Value(k));
}

// Signed, over some twelve binades, so that another order of a long sum has other bits.
void FillSpread(Tensor& tensor, std::uint64_t seed) {
  Random random(seed);
  for (std::int64_t k = 0; k < tensor.numel(); ++k)
    tensor.SetValue(k, std::ldexp(2 * random.Unit() - 1, static_cast<int>(random.Below(12)) - 8));
}

// Every instruction set with products of bf16, on one thread and on several: from the same old outputs, then check().
template <class Op, class F>
void OnBf16Targets(const Op& op, const std::vector<Tensor*>& outputs, F&& check) {
  std::vector<Tensor> old;
  for (const Tensor* output : outputs) old.push_back(*output);
  for (const Target& target : Targets<Op>()) {
    if (target.implementation != "cpu:bf16" || !Takes(target, op)) continue;
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(target.name() + " threads " + std::to_string(threads));
      EXPECT_OK(RunOn(target, op, WithThreads(threads)));
      check();
      for (std::size_t k = 0; k < outputs.size(); ++k) *outputs[k] = old[k];
    }
  }
}

// The elements of `got` that differ from those of `want` rounded to its dtype; zeros may be of either sign.
std::size_t Different(const Tensor& got, const std::vector<float>& want) {
  std::size_t different = 0;
  for (std::size_t k = 0; k < want.size(); ++k) {
    const double rounded = got.layout().dtype == DType::kBF16 ? Widen(Narrow<BF16>(want[k])) : want[k];
    if (got.Value(static_cast<std::int64_t>(k)) != rounded) ++different;
  }
  return different;
}

// ---- logits

template <class ChainOf>
std::vector<float> LogitsOf(const LinearCrossEntropyProblem& problem) {
  const LinearCrossEntropyCase& c = problem.c;
  std::vector<float> logits;
  for (std::int64_t i = 0; i < problem.target.numel(); ++i)
    for (std::int64_t v = 0; v < c.V; ++v) {
      ChainOf chain(0);
      for (std::int64_t h = 0; h < c.H; ++h) chain.Add(At(problem.input, i * c.H + h), At(problem.weight, v * c.H + h));
      logits.push_back(problem.target.Get<std::int64_t>(i) == c.ignore_index ? 0 : chain.Sum());
    }
  return logits;
}

TEST(LinearCrossEntropyBf16Chains, Logits) {
  const struct {
    std::int64_t N, H, V;
  } sizes[] = {{1, 1, 1},    {2, 2, 3},    {5, 3, 70},   {7, 17, 33},    {3, 64, 130}, {13, 65, 64},
               {101, 30, 9}, {9, 127, 31}, {1, 1001, 5}, {5, 513, 1030}, {211, 5, 66}};
  for (const auto& [N, H, V] : sizes) {
    ShardedProblem problem({.positions = {N}, .H = H, .V = V, .input = DType::kBF16, .ignored = N > 2 ? 0.3 : 0}, {V});
    FillSpread(problem.whole.input, 1), FillSpread(problem.whole.weight, 2);
    const std::vector<float> want = LogitsOf<PairChain>(problem.whole);
    if (H > 16) {
      EXPECT_TRUE(LogitsOf<Chain>(problem.whole) != want) << "the order makes no difference to this data";
    }
    SCOPED_TRACE(problem.Describe());
    OnBf16Targets(problem.statistics(0), problem.shards[0].statistics(),
                  [&] { EXPECT_EQ(Different(problem.shards[0].logits, want), 0u); });
  }
}

// ---- gradients

struct Gradients {
  std::vector<float> input, weight, bias;
};

// With probability given, reduction none and g a power of 2 of either sign, du = g (p - [v = y]) has one rounding, of
// p - 1, and alpha = -1/2 none. `narrow`: what becomes of alpha du before products.
template <class ChainOf, class Narrowing>
Gradients GradientsOf(const ShardedProblem& sharded, Narrowing&& narrow) {
  const LinearCrossEntropyProblem& problem = sharded.whole;
  const LinearCrossEntropyCase& c = problem.c;
  const std::int64_t N = problem.target.numel();
  const auto start = [&](const Tensor& gradient, std::int64_t k) { return c.accumulate ? At(gradient, k) : 0; };
  std::vector<float> du(static_cast<std::size_t>(N * c.V), 0);
  std::vector<std::int64_t> live;
  for (std::int64_t i = 0; i < N; ++i) {
    const std::int64_t y = problem.target.Get<std::int64_t>(i);
    if (y == c.ignore_index) continue;
    live.push_back(i);
    for (std::int64_t v = 0; v < c.V; ++v) {
      const float p = At(sharded.shards[0].probability, i * c.V + v);
      du[static_cast<std::size_t>(i * c.V + v)] = -0.5f * At(*problem.upstream_loss, i) * (v == y ? p - 1 : p);
    }
  }
  const auto at = [&](std::int64_t i, std::int64_t v) { return du[static_cast<std::size_t>(i * c.V + v)]; };
  Gradients want;
  for (std::int64_t i = 0; i < N; ++i)
    for (std::int64_t h = 0; h < c.H; ++h) {
      ChainOf chain(start(problem.grad_input, i * c.H + h));
      const bool counts = problem.target.Get<std::int64_t>(i) != c.ignore_index;
      for (std::int64_t v = 0; v < c.V && counts; ++v) chain.Add(narrow(at(i, v)), At(problem.weight, v * c.H + h));
      want.input.push_back(chain.Sum());
    }
  for (std::int64_t v = 0; v < c.V; ++v)
    for (std::int64_t h = 0; h < c.H; ++h) {
      ChainOf chain(start(problem.grad_weight, v * c.H + h));
      for (const std::int64_t i : live) chain.Add(narrow(at(i, v)), At(problem.input, i * c.H + h));
      want.weight.push_back(chain.Sum());
    }
  for (std::int64_t v = 0; v < c.V; ++v) {
    float sum = start(problem.grad_bias, v);
    for (const std::int64_t i : live) sum += at(i, v);
    want.bias.push_back(sum);
  }
  return want;
}

ShardedProblem GradientProblem(std::int64_t N, std::int64_t H, std::int64_t V, DType gradient, bool accumulate) {
  LinearCrossEntropyCase c{.positions = {N}, .H = H, .V = V, .input = DType::kBF16};
  c.operand = DType::kF32, c.gradient = gradient, c.reduction = Reduction::kNone, c.logit_scale = -0.5;
  c.ignored = N > 2 ? 0.3 : 0, c.accumulate = accumulate;
  ShardedProblem problem(c, {V});
  FillSpread(problem.whole.input, 3), FillSpread(problem.whole.weight, 4);
  Random random(5);
  Tensor& probability = problem.shards[0].probability;
  // All of f32's digits, and of all sizes; some below 2^-126, which are 0 in products and count for grad_bias.
  for (std::int64_t k = 0; k < probability.numel(); ++k) {
    const double p = std::ldexp(0.5 + random.Unit() / 2, -static_cast<int>(random.Below(9)));
    probability.SetValue(k, k % 17 == 5 ? 0x1p-127 : p);
  }
  for (std::int64_t i = 0; i < N; ++i)
    problem.whole.upstream_loss->SetValue(i, std::ldexp(random.Below(2) == 0 ? 1 : -1, static_cast<int>(i % 5) - 2));
  return problem;
}

TEST(LinearCrossEntropyBf16Chains, Gradients) {
  const struct {
    std::int64_t N, H, V;
  } sizes[] = {{1, 1, 1},    {2, 2, 2},    {3, 5, 7},     {13, 17, 65},   {6, 64, 128},
               {97, 33, 31}, {211, 9, 66}, {5, 40, 1027}, {103, 3, 2051}, {1001, 2, 3}};
  for (const auto& [N, H, V] : sizes)
    for (const DType gradient : {DType::kF32, DType::kBF16})
      for (const bool accumulate : {false, true}) {
        ShardedProblem problem = GradientProblem(N, H, V, gradient, accumulate);
        SCOPED_TRACE(problem.Describe());
        const Gradients want = GradientsOf<PairChain>(problem, ToBF16);
        const Gradients other = GradientsOf<Chain>(problem, ToBF16);
        EXPECT_TRUE(V < 65 || other.input != want.input) << "the order makes no difference to this data";
        EXPECT_TRUE(N < 97 || other.weight != want.weight) << "the order makes no difference to this data";
        LinearCrossEntropyBackward op = problem.backward(0, Given::kProbability);
        LinearCrossEntropyProblem& whole = problem.whole;
        const std::vector<Tensor*> gradients = {accumulate ? &whole.grad_input : &problem.shards[0].grad_input,
                                                &whole.grad_weight, &whole.grad_bias};
        for (const std::optional<std::int64_t> workspace : {std::optional<std::int64_t>{}, {0}}) {
          op.options.max_workspace = workspace;
          OnBf16Targets(op, gradients, [&] {
            EXPECT_EQ(Different(*gradients[0], want.input), 0u) << "grad.input";
            EXPECT_EQ(Different(*gradients[1], want.weight), 0u) << "grad.weight";
            EXPECT_EQ(Different(*gradients[2], want.bias), 0u) << "grad.bias";
          });
        }
      }
}

// Without pairs and without rounding this emulation has the bits of cpu:fused: what is tested here is the difference.
TEST(LinearCrossEntropyBf16Chains, ReproducibleGoesOneByOneAndRoundsNothing) {
  for (const bool accumulate : {false, true}) {
    ShardedProblem problem = GradientProblem(53, 17, 65, DType::kF32, accumulate);
    const Gradients want = GradientsOf<Chain>(problem, [](float x) { return x; });
    LinearCrossEntropyBackward op = problem.backward(0, Given::kProbability);
    op.options.reproducible = true;
    LinearCrossEntropyProblem& whole = problem.whole;
    const std::vector<Tensor*> gradients = {accumulate ? &whole.grad_input : &problem.shards[0].grad_input,
                                            &whole.grad_weight, &whole.grad_bias};
    OnTargets(op, gradients, {1, 3}, [&](const Target& target) {
      EXPECT_NE(target.implementation, "cpu:bf16");
      if (target.is_ref()) return;
      EXPECT_EQ(Different(*gradients[0], want.input), 0u) << "grad.input";
      EXPECT_EQ(Different(*gradients[1], want.weight), 0u) << "grad.weight";
      EXPECT_EQ(Different(*gradients[2], want.bias), 0u) << "grad.bias";
    });
  }
}

// Shards with an even number of classes each continue one chain, where gradients of the input go to one buffer in f32.
TEST(LinearCrossEntropyBf16Chains, EvenShardsAreOneChain) {
  LinearCrossEntropyCase c = WithEverything({.positions = {23}, .H = 14, .V = 91, .input = DType::kBF16});
  c.accumulate = true, c.gradient = DType::kF32;
  ShardedProblem once(c, {91}), split(c, {40, 0, 14, 37});
  const LinearCrossEntropyProblem clean = once.whole;
  for (const Target& target : Targets<LinearCrossEntropyBackward>()) {
    if (target.implementation != "cpu:bf16" || !Takes(target, once.backward(0, Given::kMaxAndSum))) continue;
    SCOPED_TRACE(target.name());
    EXPECT_OK(RunLike(target, once.statistics(0)));
    for (std::size_t k = 0; k < once.folded().size(); ++k) *once.folded()[k] = *once.shards[0].statistics()[k];
    EXPECT_OK(RunLike(target, once.loss()));
    for (ShardedProblem* problem : {&once, &split})
      problem->max = once.max, problem->sum_exp = once.sum_exp, problem->entropy = once.whole.entropy;
    EXPECT_OK(RunOn(target, once.backward(0, Given::kMaxAndSum)));
    for (std::size_t s = 0; s < split.shards.size(); ++s)
      EXPECT_OK(RunOn(target, split.backward(s, Given::kMaxAndSum)));
    const std::vector<Tensor*> got = split.whole.gradient_tensors(), want = once.whole.gradient_tensors();
    for (std::size_t k = 0; k < got.size(); ++k)
      EXPECT_TRUE(SameBits(*got[k], want[k]->Bytes())) << kLinearOutputs[kLinearResults + k];
    LinearCrossEntropyProblem old = clean;
    for (std::size_t k = 0; k < got.size(); ++k)
      *split.whole.gradient_tensors()[k] = *once.whole.gradient_tensors()[k] = *old.gradient_tensors()[k];
  }
}

}  // namespace
}  // namespace onehot::test
