#include "onehot/linear_cross_entropy_shards.h"

#include <cmath>

#include "ops/linear_cross_entropy.h"
#include "ref/linear_cross_entropy.h"
#include "ref/linear_rows.h"
#include "ref/loss_terms.h"

namespace onehot::ref {
namespace {

// z_v - max; -infinity stays, whatever the maximum is.
double Below(const Classes& classes, std::int64_t v) {
  return classes.Z(v) == -kInfinity ? -kInfinity : classes.Z(v) - classes.max();
}

class StatisticsPlan final : public PlanBody {
 public:
  explicit StatisticsPlan(const LinearCrossEntropyStatistics& op) : op_(op), shard_(ShardOf(op.shard, op.V())) {
    row_ = layout_.Book<double>(op.V());
  }

  Status Run(Scratch scratch, const RunOptions& run) const override {
    const CrossEntropyOptions& options = op_.options.loss;
    const auto skip = [](std::int64_t, std::int64_t) {};
    if (Status bad = ForEachTarget(op_.target, shard_.num_classes, options.ignore_index, {}, skip); !bad.ok())
      return bad;
    const std::int64_t V = op_.V();
    const Rows rows(op_.input, op_.weight);
    const Factor weight(options.weight), bias(op_.options.bias);
    const auto row = scratch.Get(row_);
    const ConstTensorView logits(row.data(), DType::kF64, {V});
    Classes classes(logits, 0, options.softcap);
    const Positions out_at =
        op_.logits ? Flatten(WithoutAxis(*op_.logits, op_.logits->rank - 1), op_.logits->rank - 1) : Positions{};
    return ForEachTarget(
        op_.target, shard_.num_classes, options.ignore_index, run, [&](std::int64_t i, std::int64_t y) {
          double max = 0, sum = 0, target_logit = 0, smoothing = 0, moment = 0;
          std::int64_t argmax = -1;
          if (y >= 0) {
            for (std::int64_t v = 0; v < V; ++v)
              row[static_cast<std::size_t>(v)] =
                  op_.options.logit_scale * (bias.given() ? rows.Dot(i, v) + bias[v] : rows.Dot(i, v));
            classes.MoveTo(0);
            max = classes.max(), sum = classes.sum_exp();
            if (V > 0) argmax = shard_.first + classes.argmax();
            if (y >= shard_.first && y < shard_.first + V) target_logit = Below(classes, y - shard_.first);
            for (std::int64_t v = 0; v < V; ++v) {
              const double below = -Below(classes, v), w = weight[shard_.first + v];
              if (w != 0) smoothing += w * below;
              if (below != kInfinity) moment -= std::exp(-below) * below;
            }
          }
          StoreAt(op_.max, i, max);
          StoreAt(op_.sum_exp, i, sum);
          StoreAt(op_.target_logit, i, target_logit);
          StoreAt(op_.smoothing, i, smoothing);
          StoreAt(op_.moment, i, moment);
          StoreArgmax(op_.argmax, i, argmax);
          for (std::int64_t v = 0; op_.logits && v < V; ++v)
            Store(*op_.logits, out_at.Offset(i) + v * op_.logits->stride(-1), y >= 0 ? classes.Z(v) : 0.0);
        });
  }

 private:
  const LinearCrossEntropyStatistics op_;
  const VocabularyShard shard_;
  Piece<double> row_;
};

class LossPlan final : public PlanBody {
 public:
  explicit LossPlan(const LinearCrossEntropyLoss& op) : op_(op) {}

  Status Run(Scratch, const RunOptions& run) const override {
    const CrossEntropyOptions& options = op_.options;
    const Factor max(op_.max), sum_exp(op_.sum_exp), target_logit(op_.target_logit), smoothing(op_.smoothing),
        moment(op_.moment), weight(options.weight), token_weight(options.token_weight);
    const std::int64_t zero = 0;
    // Without targets every position is of class 0, which has no weight of its own then.
    ConstTensorView target(&zero, DType::kI64, {});
    target.rank = op_.max.rank, target.dims = op_.max.dims;
    for (int axis = 0; axis < target.rank; ++axis) target.strides[static_cast<std::size_t>(axis)] = 0;
    if (op_.target) target = *op_.target;
    const std::int64_t C = op_.target ? op_.num_classes : 1,
                       ignore_index = op_.target ? options.ignore_index : std::int64_t{-1};
    CrossEntropyOptions counted = options;
    counted.ignore_index = ignore_index;
    Denominators denominators{};
    double total_weight = 0;
    if (Status bad = FindDenominators(target, C, counted, &total_weight, &denominators); !bad.ok()) return bad;
    const double eps = options.label_smoothing;
    double all_weights = weight.given() ? 0 : static_cast<double>(op_.num_classes);
    for (std::int64_t v = 0; weight.given() && v < op_.num_classes; ++v) all_weights += weight[v];

    LossOutput loss(op_.loss, options);
    const Status stopped = ForEachTarget(target, C, ignore_index, run, [&](std::int64_t i, std::int64_t y) {
      const double log_sum = std::log(sum_exp[i]), lse = max[i] + log_sum;
      LossTerms terms{0, 0};
      if (y >= 0 && op_.loss) {
        const double hit = eps < 1 ? (1 - eps) * weight[y] * (log_sum - target_logit[i]) : 0;
        const double smooth =
            eps > 0 ? eps / static_cast<double>(op_.num_classes) * (smoothing[i] + log_sum * all_weights) : 0;
        terms.loss = token_weight[i] * (hit + smooth);
        if (options.z_loss > 0) terms.z_loss = token_weight[i] * options.z_loss * lse * lse;
      }
      loss.Add(i, terms);
      StoreAt(op_.lse, i, y >= 0 ? lse : 0);
      if (op_.log_probability) StoreAt(op_.log_probability, i, y >= 0 ? target_logit[i] - log_sum : 0);
      if (op_.entropy) StoreAt(op_.entropy, i, y >= 0 ? log_sum - moment[i] / sum_exp[i] : 0);
      if (op_.probability) StoreProbability(i, y >= 0, max[i], sum_exp[i]);
    });
    if (!stopped.ok()) return stopped;
    if (op_.total_weight) Store(*op_.total_weight, 0, options.reduction == Reduction::kNone ? 0.0 : total_weight);
    loss.Finish(denominators);
    return Status::Ok();
  }

 private:
  void StoreProbability(std::int64_t i, bool counts, double max, double sum) const {
    const auto at = [&](const TensorLayout& tensor) {
      return Flatten(WithoutAxis(tensor, tensor.rank - 1), tensor.rank - 1).Offset(i);
    };
    const std::int64_t from = at(*op_.logits), to = at(*op_.probability);
    for (std::int64_t v = 0; v < op_.logits->dim(-1); ++v) {
      const double z = Load(*op_.logits, from + v * op_.logits->stride(-1));
      Store(*op_.probability, to + v * op_.probability->stride(-1), counts ? std::exp(z - max) / sum : 0.0);
    }
  }

  const LinearCrossEntropyLoss op_;
};

}  // namespace

std::unique_ptr<PlanBody> PlanLinearCrossEntropyStatistics(const LinearCrossEntropyStatistics& op, Isa) {
  return std::make_unique<StatisticsPlan>(op);
}

std::unique_ptr<PlanBody> PlanLinearCrossEntropyLoss(const LinearCrossEntropyLoss& op, Isa) {
  return std::make_unique<LossPlan>(op);
}

}  // namespace onehot::ref
