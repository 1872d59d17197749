#include "ref/nll_loss.h"

#include "ref/elements.h"

namespace onehot::ref {
namespace {

class NllLossPlan final : public PlanBody {
 public:
  explicit NllLossPlan(const NllLoss& op) : op_(op) {}

  Status Run(Scratch, const RunOptions& options) const override {
    const int axis = op_.ClassAxis();
    const Positions input_at = Flatten(WithoutAxis(op_.input, axis), op_.input.rank - 1);
    const Positions loss_at = Flatten(op_.loss, op_.loss.rank);
    const Factor weight(op_.weight), token_weight(op_.token_weight);
    const bool none = op_.reduction == Reduction::kNone, mean = op_.reduction == Reduction::kMean;
    const auto for_each = [&](const RunOptions& how, auto&& visit) {
      return ForEachTarget(op_.target, op_.C(), op_.ignore_index, how, visit);
    };
    if (Status bad = for_each({}, [](std::int64_t, std::int64_t) {}); !bad.ok()) return bad;

    OrderedSum sum, total;
    bool empty = true;
    if (Status stopped = for_each(options,
                                  [&](std::int64_t i, std::int64_t y) {
                                    double term = 0, w = 0;
                                    if (y >= 0) {
                                      empty = false;
                                      w = weight[y] * token_weight[i];
                                      term = -(w * Load(op_.input, input_at.Offset(i) + y * op_.input.stride(axis)));
                                    }
                                    if (none) return Store(op_.loss, loss_at.Offset(i), term);
                                    sum.Add(i, term);
                                    total.Add(i, w);
                                  });
        !stopped.ok())
      return stopped;

    const double D = total.Total();
    if (op_.total_weight) Store(*op_.total_weight, 0, D);
    if (none) return Status::Ok();
    double loss = sum.Total();
    if (mean) loss /= op_.denominator ? Load(*op_.denominator, 0) : D;
    if (mean && empty && op_.zero_if_empty) loss = 0;
    Store(op_.loss, 0, loss);
    return Status::Ok();
  }

 private:
  const NllLoss op_;
};

class NllLossBackwardPlan final : public PlanBody {
 public:
  explicit NllLossBackwardPlan(const NllLossBackward& op) : op_(op) {}

  Status Run(Scratch, const RunOptions& options) const override {
    if (Status bad = ForEachTarget(op_.target, op_.C(), op_.ignore_index, {}, [](std::int64_t, std::int64_t) {});
        !bad.ok())
      return bad;
    return op_.out.dtype == DType::kF64 ? RunAs<double>(options) : RunAs<float>(options);
  }

 private:
  // Real is what the value is computed in.
  template <class Real>
  Status RunAs(const RunOptions& options) const {
    const int axis = op_.ClassAxis();
    const std::int64_t step = op_.compact ? 0 : op_.out.stride(axis), classes = op_.compact ? 1 : op_.C();
    const Positions out_at =
        op_.compact ? Flatten(op_.out, op_.out.rank) : Flatten(WithoutAxis(op_.out, axis), op_.out.rank - 1);
    const Positions grad_at = Flatten(op_.grad_output, op_.grad_output.rank);
    const Factor weight(op_.weight), token_weight(op_.token_weight);
    const bool none = op_.reduction == Reduction::kNone, mean = op_.reduction == Reduction::kMean;
    return ForEachTarget(op_.target, op_.C(), op_.ignore_index, options, [&](std::int64_t i, std::int64_t y) {
      if (!op_.accumulate)
        for (std::int64_t c = 0; c < classes; ++c) Store(op_.out, out_at.Offset(i) + c * step, Real{0});
      if (y < 0) return;
      Real factor = 1;
      if (weight.given()) factor *= static_cast<Real>(weight[y]);
      if (token_weight.given()) factor *= static_cast<Real>(token_weight[i]);
      Real value = factor * static_cast<Real>(Load(op_.grad_output, none ? grad_at.Offset(i) : 0));
      if (mean) value /= static_cast<Real>(Load(*op_.total_weight, 0));
      const std::int64_t offset = out_at.Offset(i) + (op_.compact ? 0 : y * step);
      value = -value;
      if (op_.accumulate) value = static_cast<Real>(Load(op_.out, offset)) + value;
      Store(op_.out, offset, value);
    });
  }

  const NllLossBackward op_;
};

}  // namespace

std::unique_ptr<PlanBody> PlanNllLoss(const NllLoss& op, Isa) {
  return std::make_unique<NllLossPlan>(op);
}

std::unique_ptr<PlanBody> PlanNllLossBackward(const NllLossBackward& op, Isa) {
  return std::make_unique<NllLossBackwardPlan>(op);
}

}  // namespace onehot::ref
