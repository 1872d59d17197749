#include "ref/cross_entropy.h"

#include <cmath>
#include <limits>

#include "ref/elements.h"

namespace onehot::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The classes of one position: z, and what is made of all of them.
class Classes {
 public:
  Classes(const ConstTensorView& input, int axis, double softcap)
      : input_(input), C_(input.dim(axis)), step_(input.stride(axis)), softcap_(softcap) {}

  void MoveTo(std::int64_t offset) {
    offset_ = offset;
    max_ = -kInfinity, argmax_ = 0;
    for (std::int64_t v = 0; v < C_; ++v) {
      const double z = Z(v);
      if (z > max_ || (std::isnan(z) && !std::isnan(max_))) max_ = z, argmax_ = v;
    }
    double sum = 0;
    for (std::int64_t v = 0; v < C_ && max_ != -kInfinity; ++v) sum += std::exp(Z(v) - max_);
    log_sum_ = std::log(sum);
  }

  double Z(std::int64_t v) const {
    const double u = Load(input_, offset_ + v * step_);
    return softcap_ > 0 && u != -kInfinity ? softcap_ * std::tanh(u / softcap_) : u;
  }
  // lse - z_v from shifted logits: large common logits cancel.
  double Distance(std::int64_t v) const { return log_sum_ + (max_ - Z(v)); }
  double P(std::int64_t v) const { return std::exp(-Distance(v)); }
  double lse() const { return log_sum_ + max_; }
  std::int64_t argmax() const { return argmax_; }
  double Entropy() const {
    double entropy = 0;
    for (std::int64_t v = 0; v < C_; ++v) {
      const double p = P(v);
      if (p != 0) entropy += p * Distance(v);
    }
    return entropy;
  }
  // d z_v / d input_v
  double Slope(std::int64_t v) const {
    if (softcap_ == 0) return 1;
    const double ratio = Z(v) / softcap_;
    return std::isinf(ratio) ? 0 : 1 - ratio * ratio;
  }

 private:
  const ConstTensorView& input_;
  const std::int64_t C_, step_;
  const double softcap_;
  std::int64_t offset_ = 0, argmax_ = 0;
  double max_ = 0, log_sum_ = 0;
};

struct Denominators {
  double D, D_z;
  bool empty;
};

// Checks all targets on the way.
template <class Op>
Status FindDenominators(const Op& op, double* total_weight, Denominators* found) {
  const CrossEntropyOptions& options = op.options;
  const Factor weight(options.weight), token_weight(options.token_weight);
  OrderedSum total, total_z;
  bool empty = true;
  if (Status bad = ForEachTarget(op.target, op.C(), options.ignore_index, {},
                                 [&](std::int64_t i, std::int64_t y) {
                                   if (y < 0) return;
                                   empty = false;
                                   total.Add(i, weight[y] * token_weight[i]);
                                   total_z.Add(i, token_weight[i]);
                                 });
      !bad.ok())
    return bad;
  *found = {total.Total(), total_z.Total(), empty};
  *total_weight = found->D;
  if (options.reduction != Reduction::kMean)
    found->D = found->D_z = 1;
  else if (options.denominator)
    found->D = found->D_z = Load(*options.denominator, 0);
  return Status::Ok();
}

class CrossEntropyPlan final : public PlanBody {
 public:
  explicit CrossEntropyPlan(const CrossEntropy& op) : op_(op) {}

  Status Run(Scratch, const RunOptions& run) const override {
    const CrossEntropyOptions& options = op_.options;
    Denominators denominators{};
    double total_weight = 0;
    if (Status bad = FindDenominators(op_, &total_weight, &denominators); !bad.ok()) return bad;

    const int axis = op_.ClassAxis();
    const std::int64_t C = op_.C();
    const Positions input_at = Flatten(WithoutAxis(op_.input, axis), op_.input.rank - 1);
    const Factor weight(options.weight), token_weight(options.token_weight);
    const bool none = options.reduction == Reduction::kNone;
    const double eps = options.label_smoothing;
    Classes classes(op_.input, axis, options.softcap);
    OrderedSum sum, sum_z;
    const auto store = [](const std::optional<TensorView>& tensor, std::int64_t i, double value) {
      if (tensor) Store(*tensor, Flatten(*tensor, tensor->rank).Offset(i), value);
    };
    const auto visit = [&](std::int64_t i, std::int64_t y) {
      double loss = 0, z_loss = 0, lse = 0, log_probability = 0, entropy = 0;
      std::int64_t argmax = -1;
      if (y >= 0) {
        classes.MoveTo(input_at.Offset(i));
        lse = classes.lse(), log_probability = -classes.Distance(y), argmax = classes.argmax();
        entropy = op_.entropy ? classes.Entropy() : 0;
        double smooth = 0;
        for (std::int64_t v = 0; eps > 0 && v < C; ++v)
          if (weight[v] != 0) smooth += weight[v] * classes.Distance(v);
        loss = (eps < 1 ? (1 - eps) * weight[y] * classes.Distance(y) : 0) +
               (eps > 0 ? eps / static_cast<double>(C) * smooth : 0);
        z_loss = options.z_loss > 0 ? options.z_loss * lse * lse : 0;
        loss *= token_weight[i], z_loss *= token_weight[i];
      }
      if (none) {
        store(op_.loss, i, loss + z_loss);
      } else {
        sum.Add(i, loss), sum_z.Add(i, z_loss);
      }
      store(op_.lse, i, lse);
      store(op_.log_probability, i, log_probability);
      store(op_.entropy, i, entropy);
      if (op_.argmax) {
        const Positions at = Flatten(*op_.argmax, op_.argmax->rank);
        static_cast<std::int64_t*>(op_.argmax->data)[at.Offset(i)] = argmax;
      }
    };
    if (Status stopped = ForEachTarget(op_.target, C, options.ignore_index, run, visit); !stopped.ok()) return stopped;

    if (op_.total_weight) Store(*op_.total_weight, 0, none ? 0.0 : total_weight);
    if (!op_.loss || none) return Status::Ok();
    double loss = sum.Total() / denominators.D;
    if (options.z_loss > 0) loss += sum_z.Total() / denominators.D_z;
    if (options.reduction == Reduction::kMean && denominators.empty && options.zero_if_empty) loss = 0;
    Store(*op_.loss, 0, loss);
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
    if (Status bad = FindDenominators(op_, &total_weight, &denominators); !bad.ok()) return bad;

    const int axis = op_.ClassAxis();
    const std::int64_t C = op_.C();
    const Positions input_at = Flatten(WithoutAxis(op_.input, axis), op_.input.rank - 1);
    const Positions out_at = Flatten(WithoutAxis(op_.out, axis), op_.out.rank - 1);
    const Factor weight(options.weight), token_weight(options.token_weight);
    const Factor upstream_log_probability(op_.grad_log_probability), upstream_entropy(op_.grad_entropy);
    const bool none = options.reduction == Reduction::kNone;
    const double eps = options.label_smoothing, smooth = eps / static_cast<double>(C);
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
      const double a = g / denominators.D, a_z = g / denominators.D_z;
      const double r = upstream_log_probability.given() ? upstream_log_probability[i] : 0;
      const double h = upstream_entropy.given() ? upstream_entropy[i] : 0;
      const double entropy = upstream_entropy.given() ? classes.Entropy() : 0;
      for (std::int64_t v = 0; v < C; ++v) {
        const double p = classes.P(v), hit = v == y ? 1 : 0;
        double d = 0;
        if (op_.grad_loss) {
          d = a * ((1 - eps) * weight[y] * (p - hit));
          if (eps > 0) d += a * smooth * (all_weights * p - weight[v]);
          if (options.z_loss > 0) d += 2 * a_z * options.z_loss * classes.lse() * p;
        }
        if (upstream_log_probability.given()) d += r * (hit - p);
        if (upstream_entropy.given() && p != 0) d -= h * p * (entropy - classes.Distance(v));
        row[static_cast<std::size_t>(v)] = d * classes.Slope(v);
      }
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
