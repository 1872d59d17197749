#include "ref/linear_cross_entropy.h"

#include <algorithm>

#include "ops/linear_cross_entropy.h"
#include "ref/loss_terms.h"

namespace onehot::ref {
namespace {

class LinearCrossEntropyPlan final : public PlanBody {
 public:
  explicit LinearCrossEntropyPlan(const LinearCrossEntropy& op) : op_(op) {
    row_ = layout_.Book<double>(op.V());
    if (wanted()) du_ = layout_.Book<double>(op.V());
    if (op.grad.weight) grad_weight_ = layout_.Book<double>(op.V() * op.H());
    if (op.grad.bias) grad_bias_ = layout_.Book<double>(op.V());
  }

  Status Run(Scratch scratch, const RunOptions& run) const override {
    const CrossEntropyOptions& options = op_.options.loss;
    Denominators denominators{};
    double total_weight = 0;
    if (Status bad = FindDenominators(op_.target, op_.V(), options, &total_weight, &denominators); !bad.ok())
      return bad;

    const std::int64_t V = op_.V(), H = op_.H();
    const double alpha = op_.options.logit_scale;
    const Positions input_at = Flatten(WithoutAxis(op_.input, op_.input.rank - 1), op_.input.rank - 1);
    const Factor weight(options.weight), token_weight(options.token_weight), bias(op_.options.bias);
    const Factor log_probability_upstream(op_.upstream.log_probability), entropy_upstream(op_.upstream.entropy);
    const bool none = options.reduction == Reduction::kNone;
    const auto row = scratch.Get(row_), du = scratch.Get(du_), grad_weight = scratch.Get(grad_weight_),
               grad_bias = scratch.Get(grad_bias_);
    std::fill(grad_weight.begin(), grad_weight.end(), 0.0);
    std::fill(grad_bias.begin(), grad_bias.end(), 0.0);
    double all_weights = 0;
    for (std::int64_t v = 0; v < V; ++v) all_weights += weight[v];

    const ConstTensorView logits(row.data(), DType::kF64, {V});
    Classes classes(logits, 0, options.softcap);
    LossOutput loss(op_.loss, options);
    const auto x = [&](std::int64_t i, std::int64_t h) {
      return Load(op_.input, input_at.Offset(i) + h * op_.input.stride(-1));
    };
    const auto w = [&](std::int64_t v, std::int64_t h) {
      return Load(op_.weight, v * op_.weight.stride(0) + h * op_.weight.stride(1));
    };
    const auto visit = [&](std::int64_t i, std::int64_t y) {
      LossTerms terms{0, 0};
      double lse = 0, target_logit = 0, log_probability = 0, entropy = 0;
      std::int64_t argmax = -1;
      if (y >= 0) {
        for (std::int64_t v = 0; v < V; ++v) {
          double dot = 0;
          for (std::int64_t h = 0; h < H; ++h) dot += x(i, h) * w(v, h);
          row[static_cast<std::size_t>(v)] = alpha * (bias.given() ? dot + bias[v] : dot);
        }
        classes.MoveTo(0);
        lse = classes.lse(), target_logit = classes.Z(y), log_probability = -classes.Distance(y);
        argmax = classes.argmax(), entropy = op_.entropy ? classes.Entropy() : 0;
        terms = LossOf(classes, y, options, weight, token_weight[i]);
      }
      loss.Add(i, terms);
      StoreAt(op_.lse, i, lse);
      StoreAt(op_.target_logit, i, target_logit);
      StoreAt(op_.log_probability, i, log_probability);
      StoreAt(op_.entropy, i, entropy);
      StoreArgmax(op_.argmax, i, argmax);
      if (!wanted()) return;

      std::fill(du.begin(), du.end(), 0.0);
      if (y >= 0) {
        const Positions grad_at =
            op_.upstream.loss ? Flatten(*op_.upstream.loss, op_.upstream.loss->rank) : Positions{};
        const double g =
            op_.upstream.loss ? Load(*op_.upstream.loss, none ? grad_at.Offset(i) : 0) * token_weight[i] : 0;
        const Upstream upstream{.loss = op_.upstream.loss.has_value(),
                                .log_probability = log_probability_upstream.given(),
                                .entropy = entropy_upstream.given(),
                                .a = g / denominators.D,
                                .a_z = g / denominators.D_z,
                                .r = log_probability_upstream.given() ? log_probability_upstream[i] : 0,
                                .h = entropy_upstream.given() ? entropy_upstream[i] : 0};
        GradientOf(classes, y, options, weight, all_weights, upstream,
                   [&](std::int64_t v, double d) { du[static_cast<std::size_t>(v)] = alpha * d; });
      }
      AddGradients(i, y >= 0, du, x, w, grad_weight, grad_bias);
    };
    if (Status stopped = ForEachTarget(op_.target, V, options.ignore_index, run, visit); !stopped.ok()) return stopped;

    StoreSums(op_.grad.weight, V, H, grad_weight);
    StoreSums(op_.grad.bias, V, 1, grad_bias);
    if (op_.total_weight) Store(*op_.total_weight, 0, none ? 0.0 : total_weight);
    loss.Finish(denominators);
    return Status::Ok();
  }

 private:
  bool wanted() const { return op_.grad.input || op_.grad.weight || op_.grad.bias; }

  // The row of grad_input of one position, and what it adds to the others. An ignored one adds nothing, NaN or not.
  template <class X, class W>
  void AddGradients(std::int64_t i, bool counts, std::span<const double> du, const X& x, const W& w,
                    std::span<double> grad_weight, std::span<double> grad_bias) const {
    const std::int64_t V = op_.V(), H = op_.H();
    if (op_.grad.input) {
      const TensorView& out = *op_.grad.input;
      const Positions at = Flatten(WithoutAxis(out, out.rank - 1), out.rank - 1);
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t offset = at.Offset(i) + h * out.stride(-1);
        double total = op_.grad.accumulate ? Load(ConstTensorView(out), offset) : 0;
        for (std::int64_t v = 0; counts && v < V; ++v) total += du[static_cast<std::size_t>(v)] * w(v, h);
        Store(out, offset, total);
      }
    }
    if (!counts) return;
    for (std::int64_t v = 0; op_.grad.weight && v < V; ++v)
      for (std::int64_t h = 0; h < H; ++h)
        grad_weight[static_cast<std::size_t>(v * H + h)] += du[static_cast<std::size_t>(v)] * x(i, h);
    for (std::int64_t v = 0; op_.grad.bias && v < V; ++v)
      grad_bias[static_cast<std::size_t>(v)] += du[static_cast<std::size_t>(v)];
  }

  void StoreSums(const std::optional<TensorView>& out, std::int64_t rows, std::int64_t columns,
                 std::span<const double> sums) const {
    if (!out) return;
    const Positions at = Flatten(*out, out->rank);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const double old = op_.grad.accumulate ? Load(ConstTensorView(*out), at.Offset(i)) : 0;
      Store(*out, at.Offset(i), old + sums[static_cast<std::size_t>(i)]);
    }
  }

  const LinearCrossEntropy op_;
  Piece<double> row_, du_, grad_weight_, grad_bias_;
};

}  // namespace

std::unique_ptr<PlanBody> PlanLinearCrossEntropy(const LinearCrossEntropy& op, Isa) {
  return std::make_unique<LinearCrossEntropyPlan>(op);
}

std::unique_ptr<PlanBody> PlanLinearCrossEntropyBackward(const LinearCrossEntropyBackward& op, Isa) {
  return std::make_unique<LinearCrossEntropyPlan>(WithoutOutputs(op));
}

}  // namespace onehot::ref
