// Linear cross entropy: the vocabulary in chunks, whose logits are made, used and forgotten.
//
//   1. targets are read and checked; tokens are the positions that are not ignored
//   2. chunk by chunk: logits, their statistics, folded into those of the chunks before; then losses
//   3. for gradients, chunk by chunk again: logits once more, their gradient in their place, and its products
#include "cpu/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "cpu/cross_entropy_parts.h"
#include "cpu/linear_layer.h"
#include "cpu/rows_simd.h"
#include "ops/linear_cross_entropy.h"

namespace onehot::cpu {
namespace {

// Logits that will never lie in memory, for what loss operators share.
ConstTensorView LogitsLike(std::int64_t N, std::int64_t V) {
  return {nullptr, DType::kF32, {N, V}};
}

class Fused final : public PlanBody {
 public:
  Fused(const LinearCrossEntropy& op, const std::optional<ConstTensorView>& lse, Isa isa)
      : op_(op),
        instruction_set_(RowKernelsFor(isa).target),
        gradient_(SoftmaxGradientFor(isa)),
        kernels_(LinearKernelsFor(isa)),
        layer_(op, isa, layout_),
        loss_(LogitsLike(op.N(), op.V()), op.target, op.options.loss, 1, isa, layout_),
        given_lse_(lse) {
    const std::int64_t N = op.N();
    const bool outputs = op.loss || op.lse || op.target_logit || op.log_probability || op.entropy || op.argmax;
    smooth_ = op.options.loss.label_smoothing > 0;
    z_loss_ = op.options.loss.z_loss > 0;
    moments_ = op.entropy || op.upstream.entropy;
    statistics_ = outputs || (layer_.wants_gradients() && (!lse || op.upstream.entropy));
    live_ = layout_.Book<std::int64_t>(N);
    classes_ = layout_.Book<std::uint32_t>(N);
    for (Piece<float>* const piece : {&max_, &log_sum_, &sum_, &reference_, &linear_, &moment_, &target_,
                                      &token_weight_, &loss_terms_, &z_terms_, &all_})
      *piece = layout_.Book<float>(N);
    if (z_loss_) z_values_ = layout_.Book<float>(N);
    if (op.argmax) argmax_ = layout_.Book<std::int64_t>(N);
    if (!layer_.wants_gradients()) return;
    for (Piece<float>* const piece : {&alpha_, &beta_, &gamma_, &h_, &entropy_, &upstream_})
      *piece = layout_.Book<float>(N);
  }

  std::string_view instruction_set() const override { return instruction_set_; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t N = op_.N(), work = N * op_.V();
    // As many bytes as take about the time of the products.
    const double bytes = static_cast<double>(work) * static_cast<double>(op_.H() + 1);
    const int threads = layer_.Threads(
        ThreadsFor(bytes > 1e15 ? std::int64_t{1} << 50 : static_cast<std::int64_t>(bytes), options.threads));
    TouchScratch(scratch, scratch_bytes(), threads);
    if (Status bad = loss_.targets.Read(scratch, threads); !bad.ok()) return bad;
    Progress progress(options, (statistics_ ? work : 0) + (layer_.wants_gradients() ? 3 * work : 0));
    const Tokens tokens(FindLive(scratch), threads);
    const float* const weight = loss_.LoadWeights(scratch);
    const LossFactors factors = loss_.Factors(weight);
    Gather(scratch, tokens.count, loss_.token_weight, scratch.Get(token_weight_).data());
    if (statistics_ || layer_.wants_gradients()) layer_.PackInput(scratch, tokens, scratch.Get(live_).data());
    if (statistics_) {
      Statistics(scratch, tokens, weight, progress);
      if (progress.stopped()) return Stopped();
      Losses(scratch, tokens, weight, factors);
    }
    Finish(scratch, weight, threads);
    if (layer_.wants_gradients()) {
      PrepareGradients(scratch, tokens, weight, factors);
      Gradients(scratch, tokens, weight, progress);
    }
    progress.Advance(0, 0);
    return progress.stopped() ? Stopped() : Status::Ok();
  }

 private:
  static Status Stopped() { return Status::Error(Code::kCancelled, "cancelled: outputs are undefined"); }

  // Tokens: positions that are not ignored, and their classes.
  std::int64_t FindLive(Scratch scratch) const {
    std::int64_t* const live = scratch.Get(live_).data();
    std::uint32_t* const classes = scratch.Get(classes_).data();
    std::int64_t count = 0;
    ForClassType(loss_.targets.class_bytes(), [&]<class K>() {
      const K* const all = reinterpret_cast<const K*>(loss_.targets.Classes(scratch));
      for (std::int64_t i = 0; i < op_.N(); ++i) {
        if (all[i] == kIgnored<K>) continue;
        live[count] = i;
        classes[count++] = all[i];
      }
    });
    return count;
  }

  // The elements of tokens; false, and nothing, where there is no tensor.
  bool Gather(Scratch scratch, std::int64_t count, const InputPerPosition& from, float* to) const {
    if (!from) return false;
    const std::int64_t* const live = scratch.Get(live_).data();
    for (std::int64_t i = 0; i < count; ++i) from.Load(live[i], 1, to + i);
    return true;
  }
  const float* TokenWeight(Scratch scratch) const {
    return loss_.token_weight ? scratch.Get(token_weight_).data() : nullptr;
  }

  // What statistics are folded into, and the terms of smoothing, whose references are brought to that of the first chunk.
  void Statistics(Scratch scratch, const Tokens& tokens, const float* weight, Progress& progress) const {
    constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
    const auto all = [&](Piece<float> piece) { return scratch.Get(piece).data(); };
    std::fill_n(all(max_), tokens.count, kMinusInfinity);
    for (const Piece<float> piece : {sum_, reference_, linear_, moment_, target_})
      std::fill_n(all(piece), tokens.count, 0.0f);
    if (op_.argmax) std::fill_n(scratch.Get(argmax_).data(), tokens.count, std::int64_t{0});
    bool weighted = false;  // by chunks so far
    for (std::int64_t chunk = 0; chunk < layer_.chunks() && !progress.stopped(); ++chunk) {
      const std::int64_t first = chunk * kClassBlock, n = layer_.Classes(chunk);
      const float* const chunk_weight = weight == nullptr ? nullptr : weight + first;
      float weights = static_cast<float>(n);
      bool counts = smooth_;
      if (weight != nullptr) {
        weights = 0, counts = false;
        for (std::int64_t v = 0; v < n; ++v)
          weights += chunk_weight[v], counts = counts || (smooth_ && chunk_weight[v] != 0);
      }
      layer_.PackWeight(scratch, tokens, chunk, false);
      tokens.ForBlocks([&](const TokenBlock& block, int thread) {
        if (progress.stopped()) return;
        const float* const u = layer_.Logits(scratch, chunk, block, thread);
        alignas(64) float max[kTokens], sum[kTokens], reference[kTokens], linear[kTokens], moment[kTokens],
            target[kTokens];
        alignas(64) std::uint32_t argmax[kTokens], classes[kTokens];
        ClassesOf(scratch, block, first, n, classes);
        loss_.softmax.statistics({.logits = LogitsOf(u, block, n),
                                  .tile = nullptr,
                                  .weight = chunk_weight,
                                  .max = max,
                                  .sum = sum,
                                  .reference = counts ? reference : nullptr,
                                  .linear = counts ? linear : nullptr,
                                  .moment = moments_ ? moment : nullptr,
                                  .argmax = op_.argmax ? argmax : nullptr,
                                  .classes = classes,
                                  .target = target});
        for (std::int64_t i = 0; i < block.count; ++i) {
          const std::int64_t token = block.begin + i;
          if (classes[i] < n) all(target_)[token] = target[i];
          if (counts) {
            if (!weighted) all(reference_)[token] = reference[i];
            const float apart = reference[i] - all(reference_)[token];
            all(linear_)[token] += linear[i] + (apart == 0 ? 0.0f : apart * weights);
          }
          if (op_.argmax) {
            const float before = all(sum_)[token];  // the first NaN is larger than all numbers
            if (before == before && (max[i] > all(max_)[token] || sum[i] != sum[i]))
              scratch.Get(argmax_)[static_cast<std::size_t>(token)] = first + argmax[i];
          }
        }
        kernels_.fold(block.count, max, sum, moment, all(max_) + block.begin, all(sum_) + block.begin,
                      moments_ ? all(moment_) + block.begin : nullptr);
        progress.Advance(block.count * n, thread);
      });
      weighted = weighted || counts;
    }
    loss_.softmax.log(all(sum_), tokens.count, all(log_sum_));
  }

  // The classes of a block's tokens within a chunk of n; n where they are elsewhere.
  void ClassesOf(Scratch scratch, const TokenBlock& block, std::int64_t first, std::int64_t n,
                 std::uint32_t* classes) const {
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t v = scratch.Get(classes_)[static_cast<std::size_t>(block.begin + i)] - first;
      classes[i] = static_cast<std::uint32_t>(v >= 0 && v < n ? v : n);
    }
  }

  Logits LogitsOf(const float* u, const TokenBlock& block, std::int64_t classes) const {
    return {.data = reinterpret_cast<const std::byte*>(u),
            .dtype = DType::kF32,
            .position_step = layer_.g_row(),
            .class_step = 1,
            .count = block.count,
            .C = classes,
            .softcap = static_cast<float>(op_.options.loss.softcap)};
  }

  // What has one element for each position, and the terms of the loss.
  void Losses(Scratch scratch, const Tokens& tokens, const float* weight, const LossFactors& factors) const {
    const auto all = [&](Piece<float> piece) { return scratch.Get(piece).data(); };
    float* const value = all(all_);
    LossOfTask task{.count = tokens.count,
                    .classes = scratch.Get(classes_).data(),
                    .max = all(max_),
                    .log_sum = all(log_sum_),
                    .target = all(target_),
                    .reference = smooth_ ? all(reference_) : nullptr,
                    .linear = smooth_ ? all(linear_) : nullptr,
                    .moment = moments_ ? all(moment_) : nullptr,
                    .sum = all(sum_),
                    .weight = weight,
                    .token_weight = TokenWeight(scratch),
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
      Scatter(scratch, tokens.count, OutputPerPosition(tensor), value);
    };
    output(op_.lse, &LossOfTask::lse);
    output(op_.log_probability, &LossOfTask::log_probability);
    output(op_.entropy, &LossOfTask::entropy);
    Scatter(scratch, tokens.count, OutputPerPosition(op_.target_logit), all(target_));
    if (op_.argmax) {
      const Positions at = Flatten(*op_.argmax, op_.argmax->rank);
      auto* const out = static_cast<std::int64_t*>(op_.argmax->data);
      for (std::int64_t i = 0; i < op_.N(); ++i) out[at.Offset(i)] = -1;
      for (std::int64_t i = 0; i < tokens.count; ++i)
        out[at.Offset(scratch.Get(live_)[static_cast<std::size_t>(i)])] =
            scratch.Get(argmax_)[static_cast<std::size_t>(i)];
    }
    if (!op_.loss) return;
    std::fill_n(all(loss_terms_), op_.N(), 0.0f);
    std::fill_n(all(z_terms_), op_.N(), 0.0f);
    task.loss = value;
    if (z_loss_) task.z_loss = all(z_values_);
    loss_.kernels.losses(task);
    for (std::int64_t i = 0; i < tokens.count; ++i) {
      const auto position = static_cast<std::size_t>(scratch.Get(live_)[static_cast<std::size_t>(i)]);
      scratch.Get(loss_terms_)[position] = value[i];
      if (z_loss_) scratch.Get(z_terms_)[position] = task.z_loss[i];
    }
    if (op_.options.loss.reduction != Reduction::kNone) return;
    for (std::int64_t i = 0; z_loss_ && i < op_.N(); ++i) all(loss_terms_)[i] += all(z_terms_)[i];
    OutputPerPosition(op_.loss).Store(0, op_.N(), all(loss_terms_));
  }

  // Values of tokens to their positions, 0 to the others.
  void Scatter(Scratch scratch, std::int64_t tokens, const OutputPerPosition& out, const float* values) const {
    if (!out) return;
    std::int64_t next = 0;
    constexpr float kZero = 0;
    for (std::int64_t i = 0; i < op_.N(); ++i) {
      const bool live = next < tokens && scratch.Get(live_)[static_cast<std::size_t>(next)] == i;
      out.Store(i, 1, live ? values + next++ : &kZero);
    }
  }

  // Sums over positions, in the order of onehot/nll_loss.h.
  void Finish(Scratch scratch, const float* weight, int threads) const {
    const CrossEntropyOptions& options = op_.options.loss;
    const bool mean = options.reduction == Reduction::kMean,
               reduced = op_.loss && options.reduction != Reduction::kNone;
    if (!reduced && !op_.total_weight) return;
    WeightSums sums{1, 1, 1};
    if (mean || op_.total_weight) sums = loss_.Denominators(scratch, weight, threads);
    if (op_.total_weight) {
      const double total = options.reduction == Reduction::kNone ? 0.0 : sums.D;
      StorePositions(*op_.total_weight, Positions{}, 0, 1, &total);
    }
    if (!reduced) return;
    double loss = 0, z_loss = 0;
    for (std::int64_t b = 0; b < loss_.sum_blocks(); ++b) {
      const std::int64_t begin = b * kSumBlock, count = std::min(kSumBlock, op_.N() - begin);
      loss += loss_.kernels.block_sum(scratch.Get(loss_terms_).data() + begin, count);
      if (z_loss_) z_loss += loss_.kernels.block_sum(scratch.Get(z_terms_).data() + begin, count);
    }
    const WeightSums divisors = loss_.Divisors(sums);
    loss /= divisors.D;
    if (z_loss_) loss += z_loss / divisors.D_z;
    if (mean && options.zero_if_empty && sums.counted == 0) loss = 0;
    StorePositions(*op_.loss, Positions{}, 0, 1, &loss);
  }

  // The factors of each token's gradient. All of them have the scale of the logits in them.
  void PrepareGradients(Scratch scratch, const Tokens& tokens, const float* weight, const LossFactors& factors) const {
    const CrossEntropyOptions& options = op_.options.loss;
    const auto all = [&](Piece<float> piece) { return scratch.Get(piece).data(); };
    const std::int64_t n = tokens.count;
    if (!statistics_) {
      Gather(scratch, n, given_lse_, all(max_));
      std::fill_n(all(log_sum_), n, 0.0f);
    }
    if (Gather(scratch, n, InputPerPosition(op_.upstream.entropy), all(h_)))
      for (std::int64_t i = 0; i < n; ++i) all(entropy_)[i] = all(log_sum_)[i] - all(moment_)[i] / all(sum_)[i];
    const bool none = options.reduction == Reduction::kNone;
    float grad_loss = 0;
    if (op_.upstream.loss && !none) LoadPositions(*op_.upstream.loss, Positions{}, 0, 1, &grad_loss);
    if (op_.upstream.loss && none) Gather(scratch, n, InputPerPosition(op_.upstream.loss), all(all_));
    const bool log_probability = Gather(scratch, n, InputPerPosition(op_.upstream.log_probability), all(upstream_));
    WeightSums divisors{1, 1, 1};
    if (options.reduction == Reduction::kMean && op_.upstream.loss)
      divisors = loss_.Divisors(options.denominator ? divisors : loss_.Denominators(scratch, weight, tokens.threads));
    loss_.kernels.factors({.count = n,
                           .classes = scratch.Get(classes_).data(),
                           .grad_loss = !op_.upstream.loss ? nullptr
                                        : none             ? all(all_)
                                                           : &grad_loss,
                           .grad_loss_per_position = none,
                           .token_weight = TokenWeight(scratch),
                           .weight = weight,
                           .D = static_cast<float>(divisors.D),
                           .D_z = static_cast<float>(divisors.D_z),
                           .factors = factors,
                           .grad_log_probability = log_probability ? all(upstream_) : nullptr,
                           .max = all(max_),
                           .log_sum = all(log_sum_),
                           .alpha = all(alpha_),
                           .beta = all(beta_),
                           .gamma = all(gamma_)});
    const auto scale = static_cast<float>(op_.options.logit_scale);
    for (const Piece<float> piece : {alpha_, beta_, gamma_, h_})
      for (std::int64_t i = 0; scale != 1 && i < n; ++i) all(piece)[i] *= scale;
  }

  void Gradients(Scratch scratch, const Tokens& tokens, const float* weight, Progress& progress) const {
    const auto all = [&](Piece<float> piece) { return scratch.Get(piece).data(); };
    const bool smooth = smooth_ && op_.upstream.loss, z_loss = z_loss_ && op_.upstream.loss;
    const bool h = op_.upstream.entropy.has_value();
    for (std::int64_t chunk = 0; chunk < layer_.chunks() && !progress.stopped(); ++chunk) {
      const std::int64_t first = chunk * kClassBlock, n = layer_.Classes(chunk);
      layer_.PackWeight(scratch, tokens, chunk, true);
      tokens.ForBlocks([&](const TokenBlock& block, int thread) {
        if (progress.stopped()) return;
        float* const u = layer_.Logits(scratch, chunk, block, thread);
        std::uint32_t classes[kTokens];
        ClassesOf(scratch, block, first, n, classes);
        gradient_({.logits = LogitsOf(u, block, n),
                   .out = reinterpret_cast<std::byte*>(u),
                   .out_dtype = DType::kF32,
                   .out_position_step = layer_.g_row(),
                   .out_class_step = 1,
                   .stream = false,
                   .classes = classes,
                   .max = all(max_) + block.begin,
                   .alpha = all(alpha_) + block.begin,
                   .log_sum = statistics_ ? all(log_sum_) + block.begin : nullptr,
                   .beta = smooth || z_loss || h ? all(beta_) + block.begin : nullptr,
                   .h = h ? all(h_) + block.begin : nullptr,
                   .entropy = h ? all(entropy_) + block.begin : nullptr,
                   .gamma = smooth ? all(gamma_) + block.begin : nullptr,
                   .weight = weight == nullptr ? nullptr : weight + first});
        layer_.AddGradInput(scratch, chunk, block);
        progress.Advance(2 * block.count * n, thread);
      });
      if (progress.stopped()) return;
      layer_.StoreGradWeight(scratch, tokens, chunk);
      progress.Advance(tokens.count * n, 0);
    }
    if (layer_.chunks() == 0 && !op_.grad.accumulate)  // no class, no token
      return layer_.StoreGradInput(scratch, Tokens(0, tokens.threads), scratch.Get(live_).data());
    layer_.StoreGradInput(scratch, tokens, scratch.Get(live_).data());
  }

  const LinearCrossEntropy op_;
  const std::string_view instruction_set_;
  const SoftmaxGradientFunction gradient_;
  const LinearKernels& kernels_;
  const LinearLayer layer_;
  const LossProblem loss_;
  const InputPerPosition given_lse_;
  bool smooth_ = false, z_loss_ = false, moments_ = false, statistics_ = false;
  Piece<std::int64_t> live_, argmax_;
  Piece<std::uint32_t> classes_;
  Piece<float> max_, log_sum_, sum_, reference_, linear_, moment_, target_, token_weight_, loss_terms_, z_terms_, all_,
      z_values_;
  Piece<float> alpha_, beta_, gamma_, h_, entropy_, upstream_;
};

// Op is either operator: f64, and what f32 cannot hold, are left to the definition.
template <class Op>
std::string_view Refuse(const Op& op) {
  if (op.input.dtype == DType::kF64) return "f64 is left to the definition";
  const double scale = op.options.logit_scale;
  if (scale != 0 &&
      !(std::abs(scale) >= std::numeric_limits<float>::min() && std::abs(scale) <= std::numeric_limits<float>::max()))
    return "a logit_scale that f32 cannot hold";
  const CrossEntropy loss{.input = LogitsLike(op.N(), op.V()), .target = op.target};
  CrossEntropy same = loss;
  same.options = op.options.loss, same.options.class_axis = 1;
  return RefuseLogits(same);
}

}  // namespace

std::string_view RefuseFused(const LinearCrossEntropy& op) {
  return Refuse(op);
}

std::unique_ptr<PlanBody> PlanFused(const LinearCrossEntropy& op, Isa isa) {
  return std::make_unique<Fused>(op, std::nullopt, isa);
}

std::string_view RefuseFusedBackward(const LinearCrossEntropyBackward& op) {
  return Refuse(op);
}

std::unique_ptr<PlanBody> PlanFusedBackward(const LinearCrossEntropyBackward& op, Isa isa) {
  return std::make_unique<Fused>(WithoutOutputs(op), op.lse, isa);
}

}  // namespace onehot::cpu
