#include "ref/cross_entropy.h"

#include "ref/loss_terms.h"

namespace onehot::ref {
namespace {

class CrossEntropyPlan final : public PlanBody {
 public:
  explicit CrossEntropyPlan(const CrossEntropy& op) : op_(op) {}

  Status Run(Scratch, const RunOptions& run) const override {
    const CrossEntropyOptions& options = op_.options;
    Denominators denominators{};
    double total_weight = 0;
    if (Status bad = FindDenominators(op_.target, op_.C(), options, &total_weight, &denominators); !bad.ok())
      return bad;

    const int axis = op_.ClassAxis();
    const std::int64_t C = op_.C();
    const Positions input_at = Flatten(WithoutAxis(op_.input, axis), op_.input.rank - 1);
    const Factor weight(options.weight), token_weight(options.token_weight);
    const bool none = options.reduction == Reduction::kNone;
    Classes classes(op_.input, axis, options.softcap);
    LossOutput loss(op_.loss, options);
    const auto visit = [&](std::int64_t i, std::int64_t y) {
      LossTerms terms{0, 0};
      double lse = 0, log_probability = 0, entropy = 0;
      std::int64_t argmax = -1;
      if (y >= 0) {
        classes.MoveTo(input_at.Offset(i));
        lse = classes.lse(), log_probability = -classes.Distance(y), argmax = classes.argmax();
        entropy = op_.entropy ? classes.Entropy() : 0;
        terms = LossOf(classes, y, options, weight, token_weight[i]);
      }
      loss.Add(i, terms);
      StoreAt(op_.lse, i, lse);
      StoreAt(op_.log_probability, i, log_probability);
      StoreAt(op_.entropy, i, entropy);
      StoreArgmax(op_.argmax, i, argmax);
    };
    if (Status stopped = ForEachTarget(op_.target, C, options.ignore_index, run, visit); !stopped.ok()) return stopped;

    if (op_.total_weight) Store(*op_.total_weight, 0, none ? 0.0 : total_weight);
    loss.Finish(denominators);
    return Status::Ok();
  }

 private:
  const CrossEntropy op_;
};

class CrossEntropyBackwardPlan final : public PlanBody {
 public:
  explicit CrossEntropyBackwardPlan(const CrossEntropyBackward& op) : op_(op) { row_ = layout_.Book<double>(op.C()); }

  Status Run(Scratch scratch, const RunOptions& run) const override {
    const CrossEntropyOptions& options = op_.options;
    Denominators denominators{};
    double total_weight = 0;
    if (Status bad = FindDenominators(op_.target, op_.C(), options, &total_weight, &denominators); !bad.ok())
      return bad;

    const int axis = op_.ClassAxis();
    const std::int64_t C = op_.C();
    const Positions input_at = Flatten(WithoutAxis(op_.input, axis), op_.input.rank - 1);
    const Positions out_at = Flatten(WithoutAxis(op_.out, axis), op_.out.rank - 1);
    const Factor weight(options.weight), token_weight(options.token_weight);
    const Factor upstream_log_probability(op_.grad_log_probability), upstream_entropy(op_.grad_entropy);
    const bool none = options.reduction == Reduction::kNone;
    double all_weights = 0;
    for (std::int64_t v = 0; v < C; ++v) all_weights += weight[v];
    Classes classes(op_.input, axis, options.softcap);
    const auto row = scratch.Get(row_);
    return ForEachTarget(op_.target, C, options.ignore_index, run, [&](std::int64_t i, std::int64_t y) {
      const auto store = [&](std::int64_t v, double value) {
        Store(op_.out, out_at.Offset(i) + v * op_.out.stride(axis), value);
      };
      if (y < 0) {
        for (std::int64_t v = 0; v < C; ++v) store(v, 0.0);
        return;
      }
      classes.MoveTo(input_at.Offset(i));
      const Positions grad_at = op_.grad_loss ? Flatten(*op_.grad_loss, op_.grad_loss->rank) : Positions{};
      const double g = op_.grad_loss ? Load(*op_.grad_loss, none ? grad_at.Offset(i) : 0) * token_weight[i] : 0;
      const Upstream upstream{.loss = op_.grad_loss.has_value(),
                              .log_probability = upstream_log_probability.given(),
                              .entropy = upstream_entropy.given(),
                              .a = g / denominators.D,
                              .a_z = g / denominators.D_z,
                              .r = upstream_log_probability.given() ? upstream_log_probability[i] : 0,
                              .h = upstream_entropy.given() ? upstream_entropy[i] : 0};
      GradientOf(classes, 0, classes.C(), y, options, weight, all_weights, upstream,
                 [&](std::int64_t v, double d) { row[static_cast<std::size_t>(v)] = d; });
      // Last, since out may be input.
      for (std::int64_t v = 0; v < C; ++v) store(v, row[static_cast<std::size_t>(v)]);
    });
  }

 private:
  const CrossEntropyBackward op_;
  Piece<double> row_;
};

}  // namespace

std::unique_ptr<PlanBody> PlanCrossEntropy(const CrossEntropy& op, Isa) {
  return std::make_unique<CrossEntropyPlan>(op);
}

std::unique_ptr<PlanBody> PlanCrossEntropyBackward(const CrossEntropyBackward& op, Isa) {
  return std::make_unique<CrossEntropyBackwardPlan>(op);
}

}  // namespace onehot::ref
