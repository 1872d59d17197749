// The three fused operators together, as trainers call them: on one shard of the vocabulary, and on several whose results
// the caller reduces.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "onehot/linear_cross_entropy.h"
#include "tests/aclnn/fused_call.h"
#include "tests/native/data.h"

namespace onehot::test::fused {
namespace {

// A layer over a whole vocabulary, targets skewed, upstream gradients of both signs.
struct Layer {
  std::int64_t tokens, columns, classes;
  Tensor input, weight, target, grad;

  Layer(std::int64_t N, std::int64_t H, std::int64_t V, DType dtype, DType target_dtype = DType::kI64)
      : tokens(N),
        columns(H),
        classes(V),
        input(dtype, {N, H}),
        weight(dtype, {V, H}),
        target(target_dtype, {N}),
        grad(DType::kF32, {N}) {
    Random random(11);
    for (Tensor* tensor : {&input, &weight, &grad})
      for (std::int64_t k = 0; k < tensor->numel(); ++k) tensor->SetValue(k, 4 * random.Unit() - 2);
    const std::vector<std::int64_t> rows = Indices(Spread::kZipf, N, V, 12);
    for (std::int64_t b = 0; b < N; ++b) target.SetValue(b, static_cast<double>(rows[static_cast<std::size_t>(b)]));
    if (N > 1) target.SetValue(0, static_cast<double>(V - 1)), target.SetValue(1, 0);
  }
};

// What one rank has: rows [first, first + V) of the weight, and outputs.
struct Rank {
  std::int64_t first;
  Tensor weight, max, sum_exp, predicted, mask, masked_target, logits, softmax, input_grad, weight_grad;

  Rank(const Layer& layer, std::int64_t start, std::int64_t V)
      : first(start),
        weight(layer.weight.layout().dtype, {V, layer.columns}),
        max(DType::kF32, {layer.tokens}),
        sum_exp(DType::kF32, {layer.tokens}),
        predicted(DType::kF32, {layer.tokens}),
        mask(DType::kU8, {(layer.tokens + 7) / 8}),
        masked_target(layer.target.layout().dtype, {layer.tokens}),
        logits(layer.input.layout().dtype, {layer.tokens, V}),
        softmax(DType::kF32, {layer.tokens, V}),
        input_grad(layer.input.layout().dtype, {layer.tokens, layer.columns}),
        weight_grad(layer.weight.layout().dtype, {V, layer.columns}) {
    for (std::int64_t k = 0; k < weight.numel(); ++k) weight.SetValue(k, layer.weight.Value(start * layer.columns + k));
  }
  std::int64_t V() const { return weight.layout().dim(0); }
};

// How a client writes the end of its shard.
enum class End { kInclusive, kExclusive };

// All ranks of one training step.
class Step {
 public:
  // The logits are kept, and softmax made from them, or not.
  Step(Layer& layer, const std::vector<std::int64_t>& sizes, bool keep_logits, End end = End::kExclusive)
      : layer_(layer),
        max(DType::kF32, {layer.tokens}),
        sum_exp(DType::kF32, {layer.tokens}),
        predicted(DType::kF32, {layer.tokens}),
        loss(DType::kF32, {layer.tokens}) {
    std::int64_t first = 0;
    for (const std::int64_t V : sizes) {
      ranks.push_back(std::make_unique<Rank>(layer, first, V));
      first += V;
    }
    EXPECT_EQ(first, layer.classes);
    for (const auto& r : ranks) {
      FusedCall call{&kMaxSum,
                     {Spec(layer.input),
                      Spec(r->weight),
                      Spec(layer.target),
                      Spec(r->max),
                      Spec(r->sum_exp),
                      Spec(r->predicted),
                      Spec(r->mask),
                      Spec(r->masked_target),
                      {}},
                     {.start = r->first, .end = r->first + r->V() - (end == End::kInclusive ? 1 : 0)}};
      if (keep_logits) call.specs.back() = Spec(r->logits);
      call.ExpectDone();
    }
    Reduce();
    for (const auto& r : ranks) {
      FusedCall call{&kLoss, {Spec(max), Spec(sum_exp), Spec(predicted), {}, {}, {}, Spec(loss), {}}};
      if (keep_logits) call.specs[5] = Spec(r->logits), call.specs[7] = Spec(r->softmax);
      call.ExpectDone();
    }
    for (const auto& r : ranks) {
      if (r->V() == 0) continue;  // it has no gradient of its own
      FusedCall call{&kGrad,
                     {Spec(layer.grad),
                      Spec(layer.input),
                      Spec(r->weight),
                      Spec(r->mask),
                      Spec(r->masked_target),
                      Spec(max),
                      Spec(sum_exp),
                      {},
                      Spec(r->input_grad),
                      Spec(r->weight_grad)}};
      if (keep_logits) call.specs[7] = Spec(r->softmax);  // beside the two others, as clients give it
      call.ExpectDone();
    }
  }

  // Of all ranks, added up where each has a part.
  std::vector<double> InputGrad() const {
    std::vector<double> sum(static_cast<std::size_t>(layer_.input.numel()));
    for (const auto& r : ranks)
      for (std::size_t k = 0; r->V() > 0 && k < sum.size(); ++k)
        sum[k] += r->input_grad.Value(static_cast<std::int64_t>(k));
    return sum;
  }

 private:
  // What ranks do with each other's results, in the floats that they send: the largest maximum, sums and predicted logits
  // relative to it.
  void Reduce() {
    for (std::int64_t b = 0; b < layer_.tokens; ++b) {
      float largest = -INFINITY, sum = 0, target = 0;
      for (const auto& r : ranks) largest = std::max(largest, r->max.Get<float>(b));
      for (const auto& r : ranks) {
        const float shift = r->max.Get<float>(b) - largest;
        sum += std::exp(shift) * r->sum_exp.Get<float>(b);  // 0 * 0 without rows
        const bool elsewhere = (r->mask.Get<std::uint8_t>(b / 8) >> b % 8 & 1) != 0;
        if (!elsewhere) target += r->predicted.Get<float>(b) + shift;
      }
      max.Set(b, largest), sum_exp.Set(b, sum), predicted.Set(b, target);
    }
  }

  Layer& layer_;

 public:
  std::vector<std::unique_ptr<Rank>> ranks;
  Tensor max, sum_exp, predicted, loss;
};

// What the step must give, and how far it may be off.
struct Wanted {
  Bounded loss, input_grad, weight_grad;
};

Wanted Define(const Layer& layer, const Step& step, bool keep_logits) {
  const Statistics whole = DefineStatistics(layer.input, layer.weight, layer.target, 0, layer.classes);
  const auto N = static_cast<std::size_t>(layer.tokens), V = static_cast<std::size_t>(layer.classes);
  const double ranks = static_cast<double>(step.ranks.size());
  Wanted want;
  std::vector<double> relative;  // of exp(z - max) / sum_exp, beside what DefineProbability knows
  for (std::size_t b = 0; b < N; ++b) {
    const double log_sum = std::log(whole.sum_exp.value[b]), predicted = whole.predicted.value[b];
    // The sum: that of one shard; each shard's rescaling rounds a difference of maxima, an exponential, a product and a
    // sum. Beside it the rounding to float.
    double widest = 0;
    for (const auto& r : step.ranks)
      if (r->V() > 0) widest = std::max(widest, whole.max.value[b] - r->max.Value(static_cast<std::int64_t>(b)));
    const double fold = (widest + 12 + ranks) * 0x1p-24 + 2 * whole.max.bound[b];
    const double sum_error = whole.sum_exp.bound[b] / whole.sum_exp.value[b] + 2 * fold;
    relative.push_back(sum_error + 2 * whole.max.bound[b]);
    // log, and what is subtracted: two roundings of it and one of the difference of maxima.
    want.loss.Add(log_sum - predicted, sum_error + 8 * 0x1p-24 * log_sum + whole.predicted.bound[b] +
                                           3 * 0x1p-24 * (std::abs(predicted) + widest));
  }

  // Gradients of the true softmax, with the given one's error.
  Tensor max(DType::kF64, {layer.tokens}), sum_exp(DType::kF64, {layer.tokens});
  max.SetAll(whole.max.value), sum_exp.SetAll(whole.sum_exp.value);
  Bounded p = DefineProbability(layer.input, layer.weight, max, sum_exp, relative);
  if (keep_logits) {  // the softmax of logits that were rounded to 16 bits, half a unit of up to 2^-8 of them
    const double unit = layer.input.layout().dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
    for (std::size_t k = 0; k < p.value.size(); ++k)
      p.bound[k] += p.value[k] * std::expm1(unit * std::abs(whole.logits.value[k]));
  }
  EXPECT_EQ(p.value.size(), N * V);
  const Gradients gradients = DefineGradients(layer.grad, layer.input, layer.weight, whole.row, p);
  want.weight_grad = gradients.weight;
  want.input_grad = gradients.input;
  return want;
}

void ExpectRight(const Layer& layer, const Step& step, bool keep_logits) {
  Wanted want = Define(layer, step, keep_logits);
  EXPECT_TRUE(Within(step.loss, want.loss));
  // Each rank rounds its part, to half a unit in the last place.
  const double unit = layer.input.layout().dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
  for (const auto& r : step.ranks)
    for (std::size_t k = 0; r->V() > 0 && k < want.input_grad.value.size(); ++k)
      want.input_grad.bound[k] += unit * std::abs(r->input_grad.Value(static_cast<std::int64_t>(k))) * 1.01 + 0x1p-25;
  EXPECT_TRUE(Within(step.InputGrad(), want.input_grad));
  for (const auto& r : step.ranks) {
    const auto first = static_cast<std::ptrdiff_t>(r->first * layer.columns);
    const auto last = first + static_cast<std::ptrdiff_t>(r->weight_grad.numel());
    const Bounded rows{{want.weight_grad.value.begin() + first, want.weight_grad.value.begin() + last},
                       {want.weight_grad.bound.begin() + first, want.weight_grad.bound.begin() + last}};
    EXPECT_TRUE(Within(r->weight_grad, rows)) << "from row " << r->first;
  }
}

// Every target is in exactly one shard; a bit beyond the tokens is in none.
void ExpectEachTargetOnce(const Layer& layer, const Step& step) {
  for (std::int64_t b = 0; b < layer.tokens; ++b) {
    int owners = 0;
    for (const auto& r : step.ranks) {
      if ((r->mask.Get<std::uint8_t>(b / 8) >> b % 8 & 1) != 0) continue;
      ++owners;
      EXPECT_EQ(r->first + Integer(r->masked_target, b), Integer(layer.target, b)) << b;
    }
    EXPECT_EQ(owners, 1) << b;
  }
}

TEST(FusedShards, AsOneVocabulary) {
  const std::vector<std::int64_t> splits[] = {{459},    {230, 229},         {128, 331},       {459, 0},
                                              {0, 459}, {131, 200, 0, 128}, {0, 128, 0, 331}, {129, 128, 202}};
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const bool keep_logits : {false, true}) {
      Layer layer(21, 17, 459, dtype);
      for (const std::vector<std::int64_t>& sizes : splits) {
        SCOPED_TRACE(std::string(Name(dtype)) + (keep_logits ? ", logits" : ", none") + ", " +
                     std::to_string(sizes.size()) + " shards, the first " + std::to_string(sizes[0]));
        const Step step(layer, sizes, keep_logits);
        ExpectEachTargetOnce(layer, step);
        ExpectRight(layer, step, keep_logits);
      }
    }
}

// Both conventions, on targets at either end of either shard: the same bits.
TEST(FusedShards, EndIsInclusiveOrExclusive) {
  for (const DType target_dtype : {DType::kI64, DType::kI32}) {
    Layer layer(12, 5, 300, DType::kBF16, target_dtype);
    const double targets[] = {0, 1, 148, 149, 150, 151, 152, 298, 299, 299, 150, 149};
    layer.target.SetAll({targets, targets + 12});
    const Step inclusive(layer, {150, 150}, false, End::kInclusive), exclusive(layer, {150, 150}, false);
    ExpectEachTargetOnce(layer, inclusive);
    ExpectRight(layer, inclusive, false);
    EXPECT_EQ(inclusive.loss.Bytes(), exclusive.loss.Bytes());
    for (std::size_t r = 0; r < 2; ++r) {
      const Rank &a = *inclusive.ranks[r], &b = *exclusive.ranks[r];
      EXPECT_EQ(a.mask.Bytes(), b.mask.Bytes());
      EXPECT_EQ(a.masked_target.Bytes(), b.masked_target.Bytes());
      EXPECT_EQ(a.input_grad.Bytes(), b.input_grad.Bytes());
      EXPECT_EQ(a.weight_grad.Bytes(), b.weight_grad.Bytes());
    }
  }
}

// A token whose target no shard has keeps the softmax part of its gradient in all of them.
TEST(FusedShards, TargetThatNobodyHas) {
  Layer layer(9, 5, 260, DType::kF16);
  layer.target.SetValue(4, 260);
  const Step step(layer, {130, 130}, false);
  for (const auto& r : step.ranks) EXPECT_EQ(r->mask.Get<std::uint8_t>(0) >> 4 & 1, 1);
  ExpectRight(layer, step, false);
}

// With one shard the three are the native operator, to the bit.
TEST(FusedShards, OneShardHasTheBitsOfTheNativeOperator) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Layer layer(37, 19, 1300, dtype);
    const Step step(layer, {1300}, false);
    Tensor loss(DType::kF32, {37}), input_grad(dtype, {37, 19}), weight_grad(dtype, {1300, 19});
    LinearCrossEntropy problem{.input = layer.input.view(),
                               .weight = layer.weight.view(),
                               .target = layer.target.view(),
                               .loss = loss.view(),
                               .upstream = {.loss = layer.grad.view()},
                               .grad = {.input = input_grad.view(), .weight = weight_grad.view()}};
    problem.options.loss.reduction = Reduction::kNone;
    const Result<Plan> plan = Prepare(problem);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    // It is done in f64, without what the three hand over in f32.
    if (plan->implementation() == "ref") GTEST_SKIP() << "not promised of ref";
    ASSERT_TRUE(plan->Run().ok());
    EXPECT_TRUE(step.loss.Bytes() == loss.Bytes()) << plan->implementation();
    EXPECT_TRUE(step.ranks[0]->input_grad.Bytes() == input_grad.Bytes());
    EXPECT_TRUE(step.ranks[0]->weight_grad.Bytes() == weight_grad.Bytes());
  }
}

}  // namespace
}  // namespace onehot::test::fused
