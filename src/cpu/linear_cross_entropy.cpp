// Linear cross entropy: the vocabulary in chunks, whose logits are made, used and forgotten.
//
//   1. targets are read and checked; tokens are the positions that are not ignored
//   2. chunk by chunk: logits, their statistics, folded into those of the chunks before; then losses
//   3. for gradients, chunk by chunk again: logits once more, their gradient in their place, and its products
//
// Where there is memory, 2 and 3 are done for one group of tokens after the other, whose logits stay (linear_memory.h).
#include "cpu/linear_cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "cpu/cross_entropy_parts.h"
#include "cpu/linear_bf16.h"
#include "cpu/linear_layer.h"
#include "cpu/linear_statistics.h"
#include "cpu/linear_tokens.h"
#include "cpu/rows_simd.h"
#include "ops/linear_cross_entropy.h"

namespace onehot::cpu {
namespace {

// What the caller knows of all logits of a position.
struct Given {
  std::optional<ConstTensorView> lse, max, sum_exp, entropy, probability;
  bool any() const { return lse || max || probability; }
};

class Fused final : public PlanBody {
 public:
  Fused(const LinearCrossEntropy& op, const Given& given, const VocabularyShard& shard, Arithmetic arithmetic, Isa isa)
      : op_(op),
        given_(given),
        first_(shard.first),
        num_classes_(shard.num_classes),
        wants_(WantsOf(op, given)),
        instruction_set_(RowKernelsFor(isa).target),
        gradient_(SoftmaxGradientFor(isa)),
        kernels_(LinearKernelsFor(isa)),
        layer_(op, MemoryOf(arithmetic), isa, layout_),
        live_(op.N(), layout_),
        statistics_(layer_, live_, op.N(), shard.first, static_cast<float>(op.options.loss.softcap), wants_.of, isa,
                    layout_),
        loss_(LogitsLike(op.N(), shard.num_classes), op.target, op.options.loss, 1, isa, layout_) {
    const std::int64_t N = op.N();
    Describe();
    if (loss_.token_weight) token_weight_ = layout_.Book<float>(N);
    for (Piece<float>* const piece : {&loss_terms_, &all_}) *piece = layout_.Book<float>(N);
    if (z_loss()) z_values_ = layout_.Book<float>(N), z_terms_ = layout_.Book<float>(N);
    if (!layer_.wants_gradients()) return;
    for (Piece<float>* const piece : {&alpha_, &beta_, &gamma_, &h_, &entropy_, &upstream_})
      *piece = layout_.Book<float>(N);
  }

  std::string_view instruction_set() const override { return instruction_set_; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t work = op_.N() * op_.V();
    const int threads = layer_.Threads(options.threads);
    TouchScratch(scratch, scratch_bytes(), threads);
    if (Status bad = loss_.targets.Read(scratch, threads); !bad.ok()) return bad;
    Progress progress(options, (wants_.statistics ? work : 0) + (layer_.wants_gradients() ? 3 * work : 0));
    const Tokens tokens(0, live_.Find(scratch, loss_.targets), threads);
    const float* const weight = loss_.LoadWeights(scratch);
    const LossFactors factors = loss_.Factors(weight);
    live_.Gather(scratch, 0, tokens.count, loss_.token_weight, scratch.Get(token_weight_).data());
    if (wants_.statistics || layer_.wants_gradients()) layer_.PackInput(scratch, tokens, live_.Positions(scratch));
    const bool mean = op_.options.loss.reduction == Reduction::kMean;
    WeightSums divisors{1, 1, 1};
    if (mean && op_.upstream.loss)
      divisors = loss_.Divisors(op_.options.loss.denominator ? divisors : loss_.Denominators(scratch, weight, threads));

    // One group after the other; all at once where only one chunk's logits are kept.
    const std::int64_t most = layer_.group() > 0 ? layer_.group() : std::max<std::int64_t>(tokens.count, 1);
    for (std::int64_t begin = 0; begin == 0 || begin < tokens.count; begin += most) {
      const Tokens group(begin, std::min(most, tokens.count - begin), threads);
      if (wants_.statistics) statistics_.Run(scratch, group, weight, progress, [](auto&&...) {});
      if (progress.stopped()) return Cancelled();
      if (!layer_.wants_gradients()) continue;
      PrepareGradients(scratch, group, weight, factors, divisors);
      Gradients(scratch, group, begin + most >= tokens.count, weight, progress);
      if (progress.stopped()) return Cancelled();
    }
    if (layer_.wants_gradients()) {
      // Without classes no token has a row of its own.
      const bool none = op_.V() == 0 && !op_.grad.accumulate;
      layer_.StoreGradInput(scratch, none ? Tokens(0, 0, threads) : tokens, live_.Positions(scratch));
    }
    if (wants_.statistics) Losses(scratch, tokens, weight, factors);
    const float* const z_terms = z_loss() ? scratch.Get(z_terms_).data() : nullptr;
    loss_.StoreReduced(scratch, weight, threads, op_.loss, op_.total_weight, scratch.Get(loss_terms_).data(), z_terms);
    progress.Advance(0, 0);
    return progress.stopped() ? Cancelled() : Status::Ok();
  }

 private:
  struct WantsAll {
    bool statistics;
    LinearStatistics::Wants of;
  };

  static WantsAll WantsOf(const LinearCrossEntropy& op, const Given& given) {
    const bool gradients = op.grad.input || op.grad.weight || op.grad.bias;
    const bool outputs = op.loss || op.lse || op.target_logit || op.log_probability || op.entropy || op.argmax;
    const bool entropy = op.upstream.entropy && !(given.any() && given.entropy);
    return {
        outputs || (gradients && (!given.any() || entropy)),
        {op.loss && op.options.loss.label_smoothing > 0, op.entropy || (gradients && entropy), op.argmax.has_value()}};
  }

  LinearMemory MemoryOf(Arithmetic arithmetic) const {
    const bool gradients = op_.grad.input || op_.grad.weight || op_.grad.bias;
    // At most: 7 statistics and argmax, tokens and their classes, 5 of the loss, 6 factors; targets; and a line for each piece
    // to be rounded up to.
    constexpr double kTokenBytes = 7 * 4 + 8 + 8 + 4 + 5 * 4 + 6 * 4 + 4, kLines = 40 * 64;
    const double weights = op_.options.loss.weight ? 4 * static_cast<double>(num_classes_) : 0;
    const double sums = 24 * static_cast<double>(SumBlocks(op_.N())) + 8 * static_cast<double>(op_.N() / 32768 + 1);
    return LinearMemory::For(op_, arithmetic, wants_.statistics && gradients,
                             kTokenBytes * static_cast<double>(op_.N()) + kLines + weights + sums);
  }

  // For Plan::flops and Plan::order.
  void Describe() {
    const int gradients = (op_.grad.input ? 1 : 0) + (op_.grad.weight ? 1 : 0);
    const bool once = layer_.group() > 0 || given_.probability || !layer_.wants_gradients();
    const int products = (wants_.statistics ? 1 : 0) + (layer_.wants_gradients() && !once ? 1 : 0) + gradients;
    std::string order = fmt::format("{} product{}", products, products == 1 ? "" : "s");
    if (layer_.group() >= op_.N() && layer_.group() > 0)
      order += ", all logits in working memory";
    else if (layer_.group() > 0)
      order += fmt::format(", all logits of {} positions at a time", layer_.group());
    else
      order += fmt::format(", {} classes at a time",
                           std::min(op_.V(), layer_.wants_gradients() ? layer_.chunk() : kClassBlock));
    SetProducts(
        2.0 * products * static_cast<double>(op_.N()) * static_cast<double>(op_.V()) * static_cast<double>(op_.H()),
        std::move(order));
  }

  bool z_loss() const { return op_.options.loss.z_loss > 0; }
  const float* TokenWeight(Scratch scratch, std::int64_t first) const {
    return loss_.token_weight ? scratch.Get(token_weight_).data() + first : nullptr;
  }

  // What has one element for each position, and the terms of the loss.
  void Losses(Scratch scratch, const Tokens& tokens, const float* weight, const LossFactors& factors) const {
    const auto all = [&](Piece<float> piece) { return scratch.Get(piece).data(); };
    const LinearStatistics::Arrays of = statistics_.Get(scratch);
    float* const value = all(all_);
    LossOfTask task{.count = tokens.count,
                    .classes = live_.Classes(scratch),
                    .max = of.max,
                    .log_sum = of.log_sum,
                    .target = of.target,
                    .reference = of.linear == nullptr ? nullptr : of.max,
                    .linear = of.linear,
                    .moment = of.moment,
                    .sum = of.sum,
                    .weight = weight,
                    .token_weight = TokenWeight(scratch, 0),
                    .factors = factors,
                    .lse = nullptr,
                    .log_probability = nullptr,
                    .entropy = nullptr,
                    .loss = nullptr,
                    .z_loss = nullptr};
    const auto output = [&](const std::optional<TensorView>& tensor, float* LossOfTask::*result) {
      if (!tensor) return;
      LossOfTask one = task;
      one.*result = value;
      loss_.kernels.losses(one);
      live_.Scatter(scratch, tokens.count, OutputPerPosition(tensor), value);
    };
    output(op_.lse, &LossOfTask::lse);
    output(op_.log_probability, &LossOfTask::log_probability);
    output(op_.entropy, &LossOfTask::entropy);
    live_.Scatter(scratch, tokens.count, OutputPerPosition(op_.target_logit), of.target);
    live_.Scatter(scratch, tokens.count, op_.argmax, of.argmax);
    if (!op_.loss) return;
    float* const terms = all(loss_terms_);
    float* const z_terms = z_loss() ? all(z_terms_) : nullptr;
    std::fill_n(terms, op_.N(), 0.0f);
    if (z_loss()) std::fill_n(z_terms, op_.N(), 0.0f);
    task.loss = value;
    if (z_loss()) task.z_loss = all(z_values_);
    loss_.kernels.losses(task);
    for (std::int64_t i = 0; i < tokens.count; ++i) {
      const std::int64_t position = live_.Positions(scratch)[i];
      terms[position] = value[i];
      if (z_loss()) z_terms[position] = task.z_loss[i];
    }
    if (op_.options.loss.reduction != Reduction::kNone) return;
    for (std::int64_t i = 0; z_loss() && i < op_.N(); ++i) terms[i] += z_terms[i];
    OutputPerPosition(op_.loss).Store(0, op_.N(), terms);
  }

  // What the caller knows of all logits, as statistics.
  void TakeGiven(Scratch scratch, const Tokens& tokens) const {
    const LinearStatistics::Arrays of = statistics_.Get(scratch);
    const auto gather = [&](const std::optional<ConstTensorView>& from, float* to) {
      if (!live_.Gather(scratch, 0, tokens.count, InputPerPosition(from), to)) std::fill_n(to, tokens.count, 0.0f);
    };
    gather(given_.lse ? given_.lse : given_.max, of.max);
    gather(given_.sum_exp, of.sum);
    if (given_.sum_exp)
      loss_.softmax.log(of.sum, tokens.count, of.log_sum);
    else
      std::fill_n(of.log_sum, tokens.count, 0.0f);
  }

  // The factors of each token's gradient. All of them have the scale of the logits in them.
  void PrepareGradients(Scratch scratch, const Tokens& tokens, const float* weight, const LossFactors& factors,
                        const WeightSums& divisors) const {
    if (!wants_.statistics) TakeGiven(scratch, tokens);
    const std::int64_t first = tokens.first, n = tokens.count;
    const auto all = [&](Piece<float> piece) { return scratch.Get(piece).data() + first; };
    const LinearStatistics::Arrays of = statistics_.Get(scratch);
    const auto gather = [&](const std::optional<ConstTensorView>& from, float* to) {
      return live_.Gather(scratch, first, n, InputPerPosition(from), to);
    };
    if (gather(op_.upstream.entropy, all(h_))) {
      if (wants_.of.moment)
        for (std::int64_t i = 0; i < n; ++i)
          all(entropy_)[i] = of.log_sum[first + i] - of.moment[first + i] / of.sum[first + i];
      else
        gather(given_.entropy, all(entropy_));
    }
    const bool none = op_.options.loss.reduction == Reduction::kNone;
    float grad_loss = 0;
    if (op_.upstream.loss && !none) LoadPositions(*op_.upstream.loss, Positions{}, 0, 1, &grad_loss);
    if (none) gather(op_.upstream.loss, all(all_));
    const bool log_probability = gather(op_.upstream.log_probability, all(upstream_));
    loss_.kernels.factors({.count = n,
                           .classes = live_.Classes(scratch) + first,
                           .grad_loss = !op_.upstream.loss ? nullptr
                                        : none             ? all(all_)
                                                           : &grad_loss,
                           .grad_loss_per_position = none,
                           .token_weight = TokenWeight(scratch, first),
                           .weight = weight,
                           .D = static_cast<float>(divisors.D),
                           .D_z = static_cast<float>(divisors.D_z),
                           .factors = factors,
                           .grad_log_probability = log_probability ? all(upstream_) : nullptr,
                           .max = of.max + first,
                           .log_sum = of.log_sum + first,
                           .alpha = all(alpha_),
                           .beta = all(beta_),
                           .gamma = all(gamma_)});
    const auto scale = static_cast<float>(op_.options.logit_scale);
    for (const Piece<float> piece : {alpha_, beta_, gamma_, h_})
      for (std::int64_t i = 0; scale != 1 && i < n; ++i) all(piece)[i] *= scale;
  }

  // Of tokens whose factors are there; `last` of all.
  void Gradients(Scratch scratch, const Tokens& tokens, bool last, const float* weight, Progress& progress) const {
    const bool keeps_logits = layer_.group() > 0;
    layer_.ForClasses(Pass::kGradients, [&](const ClassRange& range) {
      layer_.TakeWeight(scratch, tokens, Pass::kGradients, range, !keeps_logits && !given_.probability);
      tokens.ForBlocks([&](const TokenBlock& block, int thread) {
        if (progress.stopped()) return;
        if (given_.probability)
          layer_.LoadBlock(scratch, range, block, thread, *given_.probability, live_.Positions(scratch));
        else if (!keeps_logits)
          layer_.Logits(scratch, Pass::kGradients, range, block, thread);
        GradientOf(scratch, range, block, thread, weight);
        layer_.TakeGradient(scratch, range, block, thread);
        progress.Advance(block.count * range.count, thread);
      });
      if (progress.stopped()) return false;
      layer_.AddGradInput(scratch, tokens, range, progress);
      if (progress.stopped()) return false;
      layer_.StoreGradWeight(scratch, tokens, last, range, progress);
      return !progress.stopped();
    });
  }

  // du of a block and some classes in the place of u, or of p.
  void GradientOf(Scratch scratch, const ClassRange& range, const TokenBlock& block, int thread,
                  const float* weight) const {
    const bool smooth = op_.options.loss.label_smoothing > 0 && op_.upstream.loss;
    const bool h = op_.upstream.entropy.has_value(), beta = smooth || h || (z_loss() && op_.upstream.loss);
    const std::int64_t first = first_ + range.first, n = range.count;
    const auto all = [&](Piece<float> piece) { return scratch.Get(piece).data() + block.begin; };
    const LinearStatistics::Arrays of = statistics_.Get(scratch);
    float* const u = layer_.Block(scratch, Pass::kGradients, range, block, thread);
    const float* const chunk_weight = weight == nullptr ? nullptr : weight + first;
    std::uint32_t classes[kTokens];
    live_.ClassesOf(scratch, block, first, n, classes);
    if (given_.probability)
      return kernels_.probability_gradient(u, block.count, layer_.g_row(Pass::kGradients), n, classes, all(alpha_),
                                           beta ? all(beta_) : nullptr, smooth ? all(gamma_) : nullptr, chunk_weight);
    gradient_({.logits = statistics_.LogitsOf(u, Pass::kGradients, block, n),
               .out = reinterpret_cast<std::byte*>(u),
               .out_dtype = DType::kF32,
               .out_position_step = layer_.g_row(Pass::kGradients),
               .out_class_step = 1,
               .stream = false,
               .classes = classes,
               .max = of.max + block.begin,
               .alpha = all(alpha_),
               .log_sum = given_.lse && !wants_.statistics ? nullptr : of.log_sum + block.begin,
               .beta = beta ? all(beta_) : nullptr,
               .h = h ? all(h_) : nullptr,
               .entropy = h ? all(entropy_) : nullptr,
               .gamma = smooth ? all(gamma_) : nullptr,
               .weight = chunk_weight});
  }

  const LinearCrossEntropy op_;
  const Given given_;
  const std::int64_t first_, num_classes_;
  const WantsAll wants_;
  const std::string_view instruction_set_;
  const SoftmaxGradientFunction gradient_;
  const LinearKernels& kernels_;
  const LinearLayer layer_;
  const LiveTokens live_;
  const LinearStatistics statistics_;
  const LossProblem loss_;
  Piece<float> token_weight_, loss_terms_, z_terms_, all_, z_values_;
  Piece<float> alpha_, beta_, gamma_, h_, entropy_, upstream_;
};

}  // namespace

std::string_view RefuseFusedLayer(const LinearLayerArguments& op, std::int64_t num_classes) {
  if (op.input.dtype == DType::kF64) return "f64 is left to the definition";
  const double scale = op.options.logit_scale;
  if (scale != 0 &&
      !(std::abs(scale) >= std::numeric_limits<float>::min() && std::abs(scale) <= std::numeric_limits<float>::max()))
    return "a logit_scale that f32 cannot hold";
  CrossEntropy loss{.input = LogitsLike(op.target.numel(), num_classes), .target = op.target};
  loss.options = op.options.loss, loss.options.class_axis = 1;
  return RefuseLogits(loss);
}

std::string_view RefuseBf16Layer(const LinearLayerArguments& op, std::int64_t num_classes, bool reproducible, Isa isa) {
  if (op.input.dtype != DType::kBF16) return "input is not bf16";
  if (reproducible) return "reproducible asks for the bits that every CPU has";
  if (Bf16KernelsFor(isa) == nullptr) return "no products of bf16 (AVX512_BF16), or ONEHOT_MAX_ISA rules them out";
  return RefuseFusedLayer(op, num_classes);
}

std::string_view RefuseFused(const LinearCrossEntropy& op, Isa) {
  return RefuseFusedLayer(ArgumentsOf(op), op.V());
}

std::unique_ptr<PlanBody> PlanFused(const LinearCrossEntropy& op, Isa isa) {
  return std::make_unique<Fused>(op, Given{}, VocabularyShard{0, op.V()}, Arithmetic::kF32, isa);
}

std::string_view RefuseBf16(const LinearCrossEntropy& op, Isa isa) {
  return RefuseBf16Layer(ArgumentsOf(op), op.V(), op.options.reproducible, isa);
}

std::unique_ptr<PlanBody> PlanBf16(const LinearCrossEntropy& op, Isa isa) {
  return std::make_unique<Fused>(op, Given{}, VocabularyShard{0, op.V()}, Arithmetic::kBf16, isa);
}

namespace {

std::unique_ptr<PlanBody> PlanBackward(const LinearCrossEntropyBackward& op, Arithmetic arithmetic, Isa isa) {
  const Given given{op.lse, op.max, op.sum_exp, op.entropy, op.probability};
  return std::make_unique<Fused>(WithoutOutputs(op), given, ShardOf(op.shard, op.V()), arithmetic, isa);
}

}  // namespace

std::string_view RefuseFusedBackward(const LinearCrossEntropyBackward& op, Isa) {
  return RefuseFusedLayer(ArgumentsOf(op), ShardOf(op.shard, op.V()).num_classes);
}

std::unique_ptr<PlanBody> PlanFusedBackward(const LinearCrossEntropyBackward& op, Isa isa) {
  return PlanBackward(op, Arithmetic::kF32, isa);
}

std::string_view RefuseBf16Backward(const LinearCrossEntropyBackward& op, Isa isa) {
  return RefuseBf16Layer(ArgumentsOf(op), ShardOf(op.shard, op.V()).num_classes, op.options.reproducible, isa);
}

std::unique_ptr<PlanBody> PlanBf16Backward(const LinearCrossEntropyBackward& op, Isa isa) {
  return PlanBackward(op, Arithmetic::kBf16, isa);
}

}  // namespace onehot::cpu
