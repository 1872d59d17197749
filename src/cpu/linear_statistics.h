// Statistics of the logits of tokens, a chunk of classes at a time.
#ifndef ONEHOT_CPU_LINEAR_STATISTICS_H_
#define ONEHOT_CPU_LINEAR_STATISTICS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/scratch.h"
#include "cpu/cross_entropy_parts.h"
#include "cpu/linear_layer.h"
#include "cpu/linear_tokens.h"
#include "cpu/softmax_simd.h"

namespace onehot::cpu {

class LinearStatistics {
 public:
  struct Wants {
    bool smoothing, moment, argmax;
  };

  // `first`: which class of the vocabulary the layer's class 0 is.
  LinearStatistics(const LinearLayer& layer, const LiveTokens& live, std::int64_t N, std::int64_t first, float softcap,
                   const Wants& wants, Isa isa, ScratchLayout& layout)
      : kernels_(LinearKernelsFor(isa)),
        softmax_(SoftmaxKernelsFor(isa)),
        layer_(layer),
        live_(live),
        first_(first),
        softcap_(softcap),
        wants_(wants) {
    for (Piece<float>* const piece : {&max_, &log_sum_, &sum_, &target_}) *piece = layout.Book<float>(N);
    if (wants.smoothing) reference_ = layout.Book<float>(N), linear_ = layout.Book<float>(N);
    if (wants.moment) moment_ = layout.Book<float>(N);
    if (wants.argmax) argmax_ = layout.Book<std::int64_t>(N);
  }

  // Of each token. What is not wanted is null. target is z_y, 0 where the class is not one of the layer; linear is the sum
  // of w (z - max), classes with w = 0 left out.
  struct Arrays {
    float *max, *log_sum, *sum, *target;
    float *reference, *linear, *moment;
    std::int64_t* argmax;
  };
  Arrays Get(Scratch scratch) const {
    const auto all = [&]<class T>(Piece<T> piece) { return piece.count > 0 ? scratch.Get(piece).data() : nullptr; };
    return {all(max_),       all(log_sum_), all(sum_),    all(target_),
            all(reference_), all(linear_),  all(moment_), all(argmax_)};
  }

  // Makes them of all chunks for some tokens. `weight` of all classes of the vocabulary, or null. Calls
  // seen(range, block, u) when a block's logits are there and no longer needed.
  template <class F>
  void Run(Scratch scratch, const Tokens& tokens, const float* weight, Progress& progress, F&& seen) const {
    const Arrays all = Get(scratch);
    Start(all, tokens);
    bool weighted = false;  // by chunks so far
    layer_.ForClasses(Pass::kStatistics, [&](const ClassRange& range) {
      const ChunkWeights weights = WeightsOf(weight, range);
      layer_.TakeWeight(scratch, tokens, Pass::kStatistics, range, true);
      tokens.ForBlocks([&](const TokenBlock& block, int thread) {
        if (progress.stopped()) return;
        float* const u = layer_.Logits(scratch, Pass::kStatistics, range, block, thread);
        Fold(scratch, all, u, range, block, weights, weighted);
        seen(range, block, u);
        progress.Advance(block.count * range.count, thread);
      });
      weighted = weighted || weights.counts;
      return !progress.stopped();
    });
    if (wants_.argmax)
      for (std::int64_t i = tokens.first; i < tokens.first + tokens.count; ++i)
        all.argmax[i] = std::max(all.argmax[i], ~all.argmax[i]);
    softmax_.log(all.sum + tokens.first, tokens.count, all.log_sum + tokens.first);
    if (wants_.smoothing) Rebase(all, tokens, weight);
  }

  // A block's logits of a chunk as the loops of cpu/softmax_simd.h take them.
  Logits LogitsOf(const float* u, Pass pass, const TokenBlock& block, std::int64_t classes) const {
    return {.data = reinterpret_cast<const std::byte*>(u),
            .dtype = DType::kF32,
            .position_step = layer_.g_row(pass),
            .class_step = 1,
            .count = block.count,
            .C = classes,
            .softcap = softcap_};
  }

 private:
  struct ChunkWeights {
    const float* weight;  // of the chunk's classes; null: all 1
    float sum;
    bool counts;  // in `linear`
  };

  ChunkWeights WeightsOf(const float* weight, const ClassRange& range) const {
    if (weight == nullptr) return {nullptr, static_cast<float>(range.count), wants_.smoothing};
    ChunkWeights found{weight + first_ + range.first, 0, false};
    for (std::int64_t v = 0; v < range.count; ++v) {
      found.sum += found.weight[v];
      found.counts = found.counts || (wants_.smoothing && found.weight[v] != 0);
    }
    return found;
  }

  void Start(const Arrays& all, const Tokens& tokens) const {
    constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
    std::fill_n(all.max + tokens.first, tokens.count, kMinusInfinity);
    for (float* const array : {all.sum, all.reference, all.linear, all.moment, all.target})
      if (array != nullptr) std::fill_n(array + tokens.first, tokens.count, 0.0f);
    if (all.argmax != nullptr) std::fill_n(all.argmax + tokens.first, tokens.count, std::int64_t{0});
  }

  // From sums relative to a reference to sums relative to the maximum.
  void Rebase(const Arrays& all, const Tokens& tokens, const float* weight) const {
    double weights = static_cast<double>(layer_.V());
    if (weight != nullptr) {
      weights = 0;
      for (std::int64_t v = 0; v < layer_.V(); ++v) weights += static_cast<double>(weight[first_ + v]);
    }
    for (std::int64_t i = tokens.first; i < tokens.first + tokens.count; ++i) {
      const double linear = static_cast<double>(all.linear[i]);
      const double apart = static_cast<double>(all.max[i]) - static_cast<double>(all.reference[i]);
      // -infinity stays, and without weights nothing counts, however far apart: no 0 times infinity.
      if (weights != 0 && !std::isinf(all.linear[i])) all.linear[i] = static_cast<float>(linear - apart * weights);
    }
  }

  // Terms of smoothing are relative to a reference, which is brought to that of the first chunk that has any.
  void Fold(Scratch scratch, const Arrays& all, const float* u, const ClassRange& range, const TokenBlock& block,
            const ChunkWeights& weights, bool weighted) const {
    const std::int64_t first = range.first, n = range.count;
    alignas(64) float max[kTokens], sum[kTokens], reference[kTokens], linear[kTokens], moment[kTokens], target[kTokens];
    alignas(64) std::uint32_t argmax[kTokens], classes[kTokens];
    live_.ClassesOf(scratch, block, first_ + first, n, classes);
    softmax_.statistics({.logits = LogitsOf(u, Pass::kStatistics, block, n),
                         .tile = nullptr,
                         .weight = weights.weight,
                         .max = max,
                         .sum = sum,
                         .reference = weights.counts ? reference : nullptr,
                         .linear = weights.counts ? linear : nullptr,
                         .moment = wants_.moment ? moment : nullptr,
                         .argmax = wants_.argmax ? argmax : nullptr,
                         .classes = classes,
                         .target = target});
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t token = block.begin + i;
      if (classes[i] < n) all.target[token] = target[i];
      if (weights.counts) {
        if (!weighted) all.reference[token] = reference[i];
        const float apart = reference[i] - all.reference[token];
        all.linear[token] += linear[i] + (apart == 0 ? 0.0f : apart * weights.sum);
      }
      if (wants_.argmax) {
        // The first NaN is larger than all numbers, +infinity in a chunk before it included. One that was found is negative.
        const bool nan = std::isnan(u[i * layer_.g_row(Pass::kStatistics) + argmax[i]]);
        std::int64_t& found = all.argmax[token];
        if (found >= 0 && (nan || max[i] > all.max[token])) found = nan ? ~(first + argmax[i]) : first + argmax[i];
      }
    }
    kernels_.fold(block.count, max, sum, moment, all.max + block.begin, all.sum + block.begin,
                  wants_.moment ? all.moment + block.begin : nullptr);
  }

  const LinearKernels& kernels_;
  const SoftmaxKernels& softmax_;
  const LinearLayer& layer_;
  const LiveTokens& live_;
  const std::int64_t first_;
  const float softcap_;
  const Wants wants_;
  Piece<float> max_, log_sum_, sum_, reference_, linear_, moment_, target_;
  Piece<std::int64_t> argmax_;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_STATISTICS_H_
