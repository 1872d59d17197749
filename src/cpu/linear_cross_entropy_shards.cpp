// Linear cross entropy of a split vocabulary: the statistics of a shard, and the loss from those of all.
#include "onehot/linear_cross_entropy_shards.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "cpu/cross_entropy_parts.h"
#include "cpu/linear_cross_entropy.h"
#include "cpu/linear_layer.h"
#include "cpu/linear_statistics.h"
#include "cpu/linear_tokens.h"
#include "cpu/rows_simd.h"
#include "ops/linear_cross_entropy.h"

namespace onehot::cpu {
namespace {

class FusedStatistics final : public PlanBody {
 public:
  FusedStatistics(const LinearCrossEntropyStatistics& op, Arithmetic arithmetic, Isa isa)
      : op_(op),
        shard_(ShardOf(op.shard, op.V())),
        instruction_set_(RowKernelsFor(isa).target),
        kernels_(LinearKernelsFor(isa)),
        layer_(LayerOf(op), LinearMemory::ForStatistics(LayerOf(op), arithmetic), isa, layout_),
        live_(op.N(), layout_),
        statistics_(layer_, live_, op.N(), shard_.first, static_cast<float>(op.options.loss.softcap),
                    {op.smoothing.has_value(), op.moment.has_value(), op.argmax.has_value()}, isa, layout_),
        loss_(LogitsLike(op.N(), shard_.num_classes), op.target, op.options.loss, 1, isa, layout_) {
    values_ = layout_.Book<float>(op.N());
    SetProducts(2.0 * static_cast<double>(op.N()) * static_cast<double>(op.V()) * static_cast<double>(op.H()), "");
    if (op.logits) logits_at_ = Flatten(WithoutAxis(*op.logits, op.logits->rank - 1), op.logits->rank - 1);
  }

  std::string_view instruction_set() const override { return instruction_set_; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t N = op_.N(), V = op_.V();
    const int threads = layer_.Threads(options.threads);
    TouchScratch(scratch, scratch_bytes(), threads);
    if (Status bad = loss_.targets.Read(scratch, threads); !bad.ok()) return bad;
    Progress progress(options, N * V);
    const Tokens tokens(0, live_.Find(scratch, loss_.targets), threads);
    const float* const weight = loss_.LoadWeights(scratch);
    layer_.PackInput(scratch, tokens, live_.Positions(scratch));
    statistics_.Run(scratch, tokens, weight, progress, [&](const ClassRange& range, const TokenBlock& block, float* u) {
      if (op_.logits) StoreLogits(scratch, range, block, u);
    });
    if (progress.stopped()) return Cancelled();
    ClearIgnoredLogits(scratch, tokens);
    Results(scratch, tokens);
    progress.Advance(0, 0);
    return progress.stopped() ? Cancelled() : Status::Ok();
  }

 private:
  static LinearCrossEntropy LayerOf(const LinearCrossEntropyStatistics& op) {
    LinearCrossEntropy layer{.input = op.input, .weight = op.weight, .target = op.target};
    layer.options = op.options;
    return layer;
  }

  OutputPart LogitsRow(std::int64_t position, std::int64_t first, std::int64_t columns) const {
    const TensorView& out = *op_.logits;
    const std::int64_t offset = logits_at_.Offset(position) + first * StrideOf(out, -1);
    return {
        static_cast<std::byte*>(out.data) + offset * SizeOf(out.dtype), out.dtype, 0, StrideOf(out, -1), 1, columns};
  }
  void StoreLogits(Scratch scratch, const ClassRange& range, const TokenBlock& block, float* u) const {
    if (const auto softcap = static_cast<float>(op_.options.loss.softcap); softcap > 0)
      kernels_.soft_cap(u, block.count, layer_.g_row(Pass::kStatistics), range.count, softcap);
    for (std::int64_t i = 0; i < block.count; ++i)
      kernels_.store(u + i * layer_.g_row(Pass::kStatistics), 0,
                     LogitsRow(live_.Positions(scratch)[block.begin + i], range.first, range.count));
  }
  void ClearIgnoredLogits(Scratch scratch, const Tokens& tokens) const {
    if (!op_.logits || tokens.count == op_.N()) return;
    constexpr float kZeros[kTileColumns] = {};
    std::int64_t next = 0;
    for (std::int64_t position = 0; position < op_.N(); ++position) {
      if (next < tokens.count && live_.Positions(scratch)[next] == position) {
        ++next;
        continue;
      }
      for (std::int64_t v = 0; v < op_.V(); v += kTileColumns)
        kernels_.store(kZeros, 0, LogitsRow(position, v, std::min(kTileColumns, op_.V() - v)));
    }
  }

  void Results(Scratch scratch, const Tokens& tokens) const {
    const LinearStatistics::Arrays of = statistics_.Get(scratch);
    const std::int64_t n = tokens.count, V = op_.V();
    float* const value = scratch.Get(values_).data();
    constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
    // The loops' maximum passes over NaN; the sum does not.
    for (std::int64_t i = 0; i < n; ++i)
      if (std::isnan(of.sum[i]) && of.max[i] != -kMinusInfinity) of.max[i] = of.sum[i];
    live_.Scatter(scratch, n, OutputPerPosition(op_.max), of.max);
    live_.Scatter(scratch, n, OutputPerPosition(op_.sum_exp), of.sum);
    live_.Scatter(scratch, n, OutputPerPosition(op_.moment), of.moment);
    if (op_.target_logit) {
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t v = live_.Classes(scratch)[i] - shard_.first;
        value[i] = v < 0 || v >= V                                            ? 0
                   : of.target[i] == kMinusInfinity && !std::isnan(of.max[i]) ? kMinusInfinity
                                                                              : of.target[i] - of.max[i];
      }
      live_.Scatter(scratch, n, OutputPerPosition(op_.target_logit), value);
    }
    if (op_.smoothing) {
      for (std::int64_t i = 0; i < n; ++i) value[i] = 0 - of.linear[i];  // +0 of 0
      live_.Scatter(scratch, n, OutputPerPosition(op_.smoothing), value);
    }
    if (!op_.argmax) return;
    for (std::int64_t i = 0; i < n; ++i) of.argmax[i] = V == 0 ? -1 : of.argmax[i] + shard_.first;
    live_.Scatter(scratch, n, op_.argmax, of.argmax);
  }

  const LinearCrossEntropyStatistics op_;
  const VocabularyShard shard_;
  const std::string_view instruction_set_;
  const LinearKernels& kernels_;
  const LinearLayer layer_;
  const LiveTokens live_;
  const LinearStatistics statistics_;
  const LossProblem loss_;
  Positions logits_at_;
  Piece<float> values_;
};

}  // namespace

std::string_view RefuseFusedStatistics(const LinearCrossEntropyStatistics& op, Isa) {
  return RefuseFusedLayer(ArgumentsOf(op), ShardOf(op.shard, op.V()).num_classes);
}

std::unique_ptr<PlanBody> PlanFusedStatistics(const LinearCrossEntropyStatistics& op, Isa isa) {
  return std::make_unique<FusedStatistics>(op, Arithmetic::kF32, isa);
}

std::string_view RefuseBf16Statistics(const LinearCrossEntropyStatistics& op, Isa isa) {
  return RefuseBf16Layer(ArgumentsOf(op), ShardOf(op.shard, op.V()).num_classes, op.options.reproducible, isa);
}

std::unique_ptr<PlanBody> PlanBf16Statistics(const LinearCrossEntropyStatistics& op, Isa isa) {
  return std::make_unique<FusedStatistics>(op, Arithmetic::kBf16, isa);
}

}  // namespace onehot::cpu
