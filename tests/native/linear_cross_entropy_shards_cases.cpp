#include "tests/native/linear_cross_entropy_shards_cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/native/linear_cross_entropy_oracle.h"
#include "tests/native/linear_cross_entropy_oracle_parts.h"

namespace onehot::test {
namespace {

using linear::Real;

DType Accumulator(DType input) {
  return input == DType::kF64 ? DType::kF64 : DType::kF32;
}

LinearCrossEntropyCase WithWideResult(LinearCrossEntropyCase c) {
  if (!c.result && SizeOf(c.input) == 2) c.result = DType::kF32;
  return c;
}

Dims WithClasses(Dims positions, std::int64_t classes) {
  positions.push_back(classes);
  return positions;
}

ConstTensorView Const(const Tensor& tensor) {
  return tensor.view();
}

// What rounding to that dtype may have changed, from the result: half a unit in its last place, and of the smallest.
Real RoundingOf(DType dtype, Real x) {
  switch (dtype) {
    case DType::kBF16:
      return std::abs(x) * 0x1p-8L + 0x1p-134L;
    case DType::kF16:
      return std::abs(x) * 0x1p-11L + 0x1p-25L;
    case DType::kF32:
      return std::abs(x) * 0x1p-24L + 0x1p-150L;
    default:
      return std::abs(x) * 0x1p-53L;
  }
}

Bounded Twice(Bounded want) {
  for (auto* errors : {&want.error, &want.floor})
    for (Real& error : *errors) error *= 2;
  return want;
}

// NaN in every element, or -1.
void Forget(Tensor& tensor) {
  const std::vector<std::byte> ones(8, std::byte{0xFF});
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.SetBytes(i, ones.data());
}

// A copy of the elements that a view names.
Tensor CopyOf(const TensorView& view) {
  Tensor copy(view.dtype, Dims(view.dims.begin(), view.dims.begin() + view.rank));
  for (std::int64_t i = 0; i < view.numel(); ++i)
    copy.SetBytes(i, static_cast<const std::byte*>(view.data) + OffsetOf(view, i) * SizeOf(view.dtype));
  return copy;
}

// Unit roundoff of a step whose inputs are numbers of that dtype.
double Unit(const Target& target, const ShardedProblem& problem) {
  return UnitRoundoff(target, problem.whole.c.input, problem.whole.c.V);
}
// Of all steps together: statistics in between are f32 whatever computes them.
double UnitOfAll(const ShardedProblem& problem) {
  return problem.whole.c.input == DType::kF64 ? 0x1p-53 * (1 + static_cast<double>(problem.whole.c.V) / 64) : 0x1p-24;
}

void ExpectStatistics(ShardedProblem& problem, std::size_t s, const StatisticsDefinition& want, double u) {
  const Shard& shard = problem.shards[s];
  EXPECT_TRUE(Within(shard.max, want.max, u)) << "max";
  EXPECT_TRUE(Within(shard.sum_exp, want.sum_exp, u)) << "sum_exp";
  EXPECT_TRUE(Within(shard.target_logit, want.target_logit, u)) << "target_logit";
  EXPECT_TRUE(Within(shard.smoothing, want.smoothing, u)) << "smoothing";
  EXPECT_TRUE(Within(shard.moment, want.moment, u)) << "moment";
  EXPECT_TRUE(Within(shard.argmax, want.argmax, u)) << "argmax";
  EXPECT_TRUE(Within(shard.logits, want.logits, u)) << "logits";
}

void ExpectLoss(ShardedProblem& problem, const LinearCrossEntropyDefinition& whole, double u) {
  const ShardLossDefinition want = Define(problem.loss());
  const LinearCrossEntropyProblem& got = problem.whole;
  EXPECT_TRUE(Within(got.loss, want.loss, u)) << "loss of the statistics";
  EXPECT_TRUE(Within(got.lse, want.lse, u)) << "lse of the statistics";
  EXPECT_TRUE(Within(got.log_probability, want.log_probability, u)) << "log_probability of the statistics";
  EXPECT_TRUE(Within(got.entropy, want.entropy, u)) << "entropy of the statistics";
  EXPECT_TRUE(Within(got.total_weight, want.total_weight, u)) << "total_weight";
  const double all = UnitOfAll(problem);
  EXPECT_TRUE(Within(got.loss, Twice(whole.loss), all)) << "loss of all classes";
  EXPECT_TRUE(Within(got.lse, Twice(whole.lse), all)) << "lse of all classes";
  EXPECT_TRUE(Within(got.log_probability, Twice(whole.log_probability), all)) << "log_probability of all classes";
  EXPECT_TRUE(Within(got.entropy, Twice(whole.entropy), all)) << "entropy of all classes";
  EXPECT_TRUE(Within(problem.argmax, whole.argmax, all)) << "argmax of all classes";
}

// Runs the backward of every shard, and compares the gradients of the whole.
void ExpectGradients(ShardedProblem& problem, const Target& target, const RunOptions& options, Given given,
                     const LinearCrossEntropyDefinition& whole) {
  SCOPED_TRACE(::testing::Message() << "given " << kGivenNames[static_cast<int>(given)]);
  LinearCrossEntropyProblem& got = problem.whole;
  const auto gradients = got.gradient_tensors();
  std::vector<Tensor> old;
  for (const Tensor* gradient : gradients) old.push_back(*gradient);
  const double u = Unit(target, problem), all = UnitOfAll(problem);
  Bounded input = Twice(whole.grad_input);
  Tensor sum(DType::kF64, got.c.input_dims());
  std::vector<Real> parts(static_cast<std::size_t>(sum.numel()), 0);
  for (std::size_t s = 0; s < problem.shards.size(); ++s) {
    SCOPED_TRACE(::testing::Message() << "shard " << s);
    Forget(problem.shards[s].grad_input);
    const LinearCrossEntropyBackward op = problem.backward(s, given);
    const ShardGradients want = Define(op, ProductsOf(target));
    EXPECT_OK(RunLike(target, op, options));
    const Tensor part = CopyOf(*op.grad.input);
    EXPECT_TRUE(Within(part, want.input, u)) << "grad.input of what is given";
    EXPECT_TRUE(Within(CopyOf(*op.grad.weight), want.weight, u)) << "grad.weight of what is given";
    EXPECT_TRUE(Within(CopyOf(*op.grad.bias), want.bias, u)) << "grad.bias of what is given";
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const Real x = part.Value(static_cast<std::int64_t>(k));
      parts[k] = got.c.accumulate ? x : parts[k] + x;
      input.floor[k] += RoundingOf(part.layout().dtype, x);
    }
    EXPECT_TRUE(problem.shards[s].grad_input.GapsUntouched());
  }
  for (std::size_t k = 0; k < parts.size(); ++k)
    sum.SetValue(static_cast<std::int64_t>(k), static_cast<double>(parts[k]));
  EXPECT_TRUE(Within(sum, input, all)) << "grad.input of all classes";
  EXPECT_TRUE(Within(got.grad_weight, Twice(whole.grad_weight), all)) << "grad.weight of all classes";
  EXPECT_TRUE(Within(got.grad_bias, Twice(whole.grad_bias), all)) << "grad.bias of all classes";
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    EXPECT_TRUE(gradients[k]->GapsUntouched()) << kLinearOutputs[kLinearResults + k];
    *gradients[k] = old[k];
  }
}

}  // namespace

bool Suffices(Given given, const LinearCrossEntropyCase& c) {
  return given != Given::kProbability || (c.softcap == 0 && c.z_loss == 0 && !c.h);
}

ShardedProblem::ShardedProblem(const LinearCrossEntropyCase& c, const Sizes& sizes, std::uint64_t seed)
    : ShardedProblem(LinearCrossEntropyProblem(WithWideResult(c), seed), sizes) {}

ShardedProblem::ShardedProblem(LinearCrossEntropyProblem whole_, const Sizes& sizes)
    : whole(std::move(whole_)),
      max(Accumulator(whole.c.input), whole.c.positions),
      sum_exp(max),
      target_logit(max),
      smoothing(max),
      moment(max),
      argmax(DType::kI64, whole.c.positions),
      lse(max),
      entropy(max) {
  const LinearCrossEntropyCase& c = whole.c;
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    shards.push_back({.range = {.first = first, .num_classes = c.V},
                      .size = size,
                      .max = max,
                      .sum_exp = max,
                      .target_logit = max,
                      .smoothing = max,
                      .moment = max,
                      .argmax = argmax,
                      .logits = Tensor(Accumulator(c.input), WithClasses(c.positions, size)),
                      .grad_input = Tensor(c.gradient.value_or(c.input), c.input_dims()),
                      .probability = Tensor(Accumulator(c.input), WithClasses(c.positions, size))});
    first += size;
  }
  EXPECT_EQ(first, c.V);
  if (whole.class_weight) wide_class_weight_ = Wide(*whole.class_weight);
  if (whole.token_weight) wide_token_weight_ = Wide(*whole.token_weight);
}

Tensor ShardedProblem::Wide(const Tensor& tensor) const {
  const TensorLayout& layout = tensor.layout();
  if (SizeOf(layout.dtype) != 2) return tensor;
  Tensor wide(DType::kF32, Dims(layout.dims.begin(), layout.dims.begin() + layout.rank));
  wide.SetAll(tensor.Values());
  return wide;
}

LinearCrossEntropyStatistics ShardedProblem::statistics(std::size_t s) {
  Shard& shard = shards[s];
  LinearCrossEntropyStatistics op{.input = Const(whole.input),
                                  .weight = RowsOf(Const(whole.weight), shard.range.first, shard.size),
                                  .target = Const(whole.target),
                                  .shard = shard.range,
                                  .max = shard.max.view(),
                                  .sum_exp = shard.sum_exp.view(),
                                  .target_logit = shard.target_logit.view(),
                                  .smoothing = shard.smoothing.view(),
                                  .moment = shard.moment.view(),
                                  .argmax = shard.argmax.view(),
                                  .logits = shard.logits.view(),
                                  .options = whole.options()};
  if (op.options.bias) op.options.bias = RowsOf(*op.options.bias, shard.range.first, shard.size);
  return op;
}

LinearCrossEntropyLoss ShardedProblem::loss() {
  LinearCrossEntropyLoss op{.max = Const(max),
                            .sum_exp = Const(sum_exp),
                            .target_logit = Const(target_logit),
                            .smoothing = Const(smoothing),
                            .moment = Const(moment),
                            .target = Const(whole.target),
                            .num_classes = whole.c.V,
                            .loss = whole.loss.view(),
                            .lse = whole.lse.view(),
                            .log_probability = whole.log_probability.view(),
                            .entropy = whole.entropy.view(),
                            .total_weight = whole.total_weight.view(),
                            .options = whole.options().loss};
  if (wide_class_weight_) op.options.weight = Const(*wide_class_weight_);
  if (wide_token_weight_) op.options.token_weight = Const(*wide_token_weight_);
  return op;
}

LinearCrossEntropyLoss ShardedProblem::probabilities(std::size_t s) {
  return {.max = Const(max),
          .sum_exp = Const(sum_exp),
          .target = Const(whole.target),
          .num_classes = whole.c.V,
          .logits = Const(shards[s].logits),
          .probability = shards[s].probability.view(),
          .options = {.ignore_index = whole.c.ignore_index}};
}

LinearCrossEntropyBackward ShardedProblem::backward(std::size_t s, Given given) {
  Shard& shard = shards[s];
  LinearCrossEntropyBackward op = whole.backward();
  op.shard = shard.range;
  op.weight = RowsOf(op.weight, shard.range.first, shard.size);
  if (op.options.bias) op.options.bias = RowsOf(*op.options.bias, shard.range.first, shard.size);
  if (!whole.c.accumulate) op.grad.input = shard.grad_input.view();
  op.grad.weight = RowsOf(*op.grad.weight, shard.range.first, shard.size);
  op.grad.bias = RowsOf(*op.grad.bias, shard.range.first, shard.size);
  if (given == Given::kMaxAndSum) op.max = Const(max), op.sum_exp = Const(sum_exp);
  if (given == Given::kLse) op.lse = Const(lse);
  if (given == Given::kProbability) op.probability = Const(shard.probability);
  if (whole.c.h) op.entropy = Const(entropy);
  return op;
}

void ShardedProblem::Fold() {
  const linear::Reals w = linear::ElementsOr(whole.options().loss.weight, whole.c.V, 1);
  for (std::int64_t i = 0; i < max.numel(); ++i) {
    Real M = -linear::kInfinity;
    std::int64_t best = -1;
    for (const Shard& shard : shards) {
      const Real of_shard = shard.max.Value(i);
      if (std::isnan(M) || shard.size == 0) continue;
      if (of_shard > M || std::isnan(of_shard) || best < 0) M = of_shard, best = shard.argmax.Get<std::int64_t>(i);
    }
    Real sum = 0, of_target = 0, smooth = 0, mean = 0;
    for (const Shard& shard : shards) {
      if (shard.size == 0) continue;
      const Real below = shard.max.Value(i) - M;
      const std::int64_t y = static_cast<std::int64_t>(whole.target.Value(i)) - shard.range.first;
      if (y >= 0 && y < shard.size) of_target = shard.target_logit.Value(i) + below;
      Real W = 0;
      for (std::int64_t v = 0; v < shard.size; ++v) W += w[static_cast<std::size_t>(shard.range.first + v)];
      // A shard that is all at -infinity, and has no weight.
      smooth += shard.smoothing.Value(i) + (W == 0 && std::isinf(below) ? 0 : -below * W);
      if (shard.max.Value(i) == -HUGE_VAL) continue;
      const Real factor = std::exp(below);
      sum += factor * shard.sum_exp.Value(i);
      mean += factor * (shard.moment.Value(i) + below * shard.sum_exp.Value(i));
    }
    const auto set = [i](Tensor& tensor, Real x) { tensor.SetValue(i, static_cast<double>(x)); };
    set(max, M), set(sum_exp, sum), set(target_logit, of_target), set(smoothing, smooth), set(moment, mean);
    argmax.Set(i, best);
  }
}

std::string ShardedProblem::Describe() const {
  std::string text = whole.c.Describe() + " shards";
  for (const Shard& shard : shards) text.append(" ").append(std::to_string(shard.size));
  return text;
}

void ExpectShardedRight(ShardedProblem& problem, const std::vector<int>& threads) {
  SCOPED_TRACE(problem.Describe());
  LinearCrossEntropyProblem& whole = problem.whole;
  const Wanted of_all(whole.forward());
  std::vector<Wanted<LinearCrossEntropyStatistics>> want;
  for (std::size_t s = 0; s < problem.shards.size(); ++s) want.emplace_back(problem.statistics(s));

  for (const Target& target : Targets<LinearCrossEntropyStatistics>()) {
    if (!Takes(target, problem.statistics(0))) continue;
    for (const int count : threads) {
      SCOPED_TRACE(target.name() + " threads " + std::to_string(count));
      const RunOptions options = WithThreads(count);
      for (std::size_t s = 0; s < problem.shards.size(); ++s) {
        SCOPED_TRACE(::testing::Message() << "shard " << s);
        for (Tensor* output : problem.shards[s].statistics()) Forget(*output);
        EXPECT_OK(RunOn(target, problem.statistics(s), options));
        ExpectStatistics(problem, s, want[s].For(target), Unit(target, problem));
        for (const Tensor* output : problem.shards[s].statistics()) EXPECT_TRUE(output->GapsUntouched());
      }
      problem.Fold();
      for (Tensor* output : problem.losses()) Forget(*output);
      EXPECT_OK(RunLike(target, problem.loss(), options));
      for (const Tensor* output : problem.losses()) EXPECT_TRUE(output->GapsUntouched());
      ExpectLoss(problem, of_all.For(target), UnitOfAll(problem));
      problem.lse = whole.lse, problem.entropy = whole.entropy;
      for (const Given given : kGivens) {
        if (!Suffices(given, whole.c)) continue;
        for (std::size_t s = 0; s < problem.shards.size() && given == Given::kProbability; ++s) {
          Forget(problem.shards[s].probability);
          const ShardLossDefinition p = Define(problem.probabilities(s));
          EXPECT_OK(RunLike(target, problem.probabilities(s), options));
          EXPECT_TRUE(Within(problem.shards[s].probability, p.probability, UnitOfAll(problem))) << "probability";
          EXPECT_TRUE(problem.shards[s].probability.GapsUntouched());
        }
        ExpectGradients(problem, target, options, given, of_all.For(target));
      }
      if (target.is_ref()) break;
    }
  }
}

void ExpectOneShardHasTheBits(const LinearCrossEntropyCase& c, std::uint64_t seed) {
  ShardedProblem problem(c, {c.V}, seed);
  SCOPED_TRACE(problem.Describe());
  LinearCrossEntropyProblem once(problem.whole.c, seed);
  for (const Target& target : Targets<LinearCrossEntropyStatistics>()) {
    if (target.is_ref() || !Takes(target, problem.statistics(0))) continue;
    SCOPED_TRACE(target.name());
    const LinearCrossEntropyProblem clean_once = once;
    EXPECT_OK(RunOn(target, once.forward()));
    EXPECT_OK(RunOn(target, problem.statistics(0)));
    // A fold of one: the numbers themselves.
    const std::vector<Tensor*> statistics = problem.shards[0].statistics(), folded = problem.folded();
    for (std::size_t k = 0; k < folded.size(); ++k) *folded[k] = *statistics[k];
    EXPECT_OK(RunLike(target, problem.loss()));
    problem.lse = problem.whole.lse, problem.entropy = problem.whole.entropy;
    const std::vector<Tensor*> want = {&once.loss, &once.lse, &once.log_probability, &once.entropy, &once.total_weight};
    const char* const names[] = {"loss", "lse", "log_probability", "entropy", "total_weight"};
    const std::vector<Tensor*> got = problem.losses();
    for (std::size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(SameBits(*got[k], want[k]->Bytes())) << names[k];
    EXPECT_TRUE(SameBits(problem.argmax, once.argmax.Bytes())) << "argmax";

    const LinearCrossEntropyProblem clean = problem.whole;
    EXPECT_OK(RunLike(target, problem.backward(0, Given::kMaxAndSum)));
    const Tensor& grad_input = c.accumulate ? problem.whole.grad_input : problem.shards[0].grad_input;
    EXPECT_TRUE(SameBits(grad_input, once.grad_input.Bytes())) << "grad.input";
    EXPECT_TRUE(SameBits(problem.whole.grad_weight, once.grad_weight.Bytes())) << "grad.weight";
    EXPECT_TRUE(SameBits(problem.whole.grad_bias, once.grad_bias.Bytes())) << "grad.bias";
    once = clean_once;
    problem.whole = clean;
  }
}

}  // namespace onehot::test
