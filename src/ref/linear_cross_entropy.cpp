#include "ref/linear_cross_entropy.h"

#include <algorithm>

#include "ops/linear_cross_entropy.h"
#include "ref/linear_rows.h"
#include "ref/loss_terms.h"

namespace onehot::ref {
namespace {

class LinearCrossEntropyPlan final : public PlanBody {
 public:
  explicit LinearCrossEntropyPlan(const LinearCrossEntropy& op) : op_(op), shard_{0, op.V()} { Book(); }
  explicit LinearCrossEntropyPlan(const LinearCrossEntropyBackward& op)
      : op_(WithoutOutputs(op)),
        given_{op.lse, op.max, op.sum_exp, op.entropy, op.probability},
        shard_(ShardOf(op.shard, op.V())) {
    Book();
  }

  // Of all classes of the vocabulary, from the caller.
  struct Given {
    std::optional<ConstTensorView> lse, max, sum_exp, entropy, probability;
  };

  void Book() {
    const LinearCrossEntropy& op = op_;
    row_ = layout_.Book<double>(op.V());
    if (wanted()) du_ = layout_.Book<double>(op.V());
    if (op.grad.weight) grad_weight_ = layout_.Book<double>(op.V() * op.H());
    if (op.grad.bias) grad_bias_ = layout_.Book<double>(op.V());
  }

  Status Run(Scratch scratch, const RunOptions& run) const override {
    const CrossEntropyOptions& options = op_.options.loss;
    Denominators denominators{};
    double total_weight = 0;
    if (Status bad = FindDenominators(op_.target, shard_.num_classes, options, &total_weight, &denominators); !bad.ok())
      return bad;

    const std::int64_t V = op_.V();
    const double alpha = op_.options.logit_scale;
    const Rows rows(op_.input, op_.weight);
    const Factor weight(options.weight), token_weight(options.token_weight), bias(op_.options.bias);
    const Factor lse_given(given_.lse), max_given(given_.max), sum_given(given_.sum_exp), entropy_given(given_.entropy);
    const Positions probability_at =
        given_.probability
            ? Flatten(WithoutAxis(*given_.probability, given_.probability->rank - 1), given_.probability->rank - 1)
            : Positions{};
    const Factor log_probability_upstream(op_.upstream.log_probability), entropy_upstream(op_.upstream.entropy);
    const bool none = options.reduction == Reduction::kNone;
    const auto row = scratch.Get(row_), du = scratch.Get(du_), grad_weight = scratch.Get(grad_weight_),
               grad_bias = scratch.Get(grad_bias_);
    std::fill(grad_weight.begin(), grad_weight.end(), 0.0);
    std::fill(grad_bias.begin(), grad_bias.end(), 0.0);
    double all_weights = weight.given() ? 0 : static_cast<double>(shard_.num_classes);
    for (std::int64_t v = 0; weight.given() && v < shard_.num_classes; ++v) all_weights += weight[v];

    const ConstTensorView logits(row.data(), DType::kF64, {V});
    Classes classes(logits, 0, options.softcap);
    LossOutput loss(op_.loss, options);
    const auto visit = [&](std::int64_t i, std::int64_t y) {
      LossTerms terms{0, 0};
      double lse = 0, target_logit = 0, log_probability = 0, entropy = 0;
      std::int64_t argmax = -1;
      if (y >= 0) {
        for (std::int64_t v = 0; !given_.probability && v < V; ++v)
          row[static_cast<std::size_t>(v)] = alpha * (bias.given() ? rows.Dot(i, v) + bias[v] : rows.Dot(i, v));
        if (!given_.probability) classes.MoveTo(0);
        const std::optional<double> h = given_.entropy ? std::optional(entropy_given[i]) : std::nullopt;
        if (given_.lse) classes.Given(lse_given[i], 0, h);
        if (given_.max) classes.Given(max_given[i], std::log(sum_given[i]), h);
      }
      if (y >= 0 && outputs()) {
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
        const auto gradient = [&](const auto& p) {
          GradientOf(p, shard_.first, shard_.num_classes, y, options, weight, all_weights, upstream,
                     [&](std::int64_t v, double d) { du[static_cast<std::size_t>(v)] = alpha * d; });
        };
        if (given_.probability)
          gradient(Probabilities(*given_.probability, probability_at.Offset(i)));
        else
          gradient(classes);
      }
      AddGradients(i, y >= 0, du, rows, grad_weight, grad_bias);
    };
    if (Status stopped = ForEachTarget(op_.target, shard_.num_classes, options.ignore_index, run, visit); !stopped.ok())
      return stopped;

    StoreSums(op_.grad.weight, V, op_.H(), grad_weight);
    StoreSums(op_.grad.bias, V, 1, grad_bias);
    if (op_.total_weight) Store(*op_.total_weight, 0, none ? 0.0 : total_weight);
    loss.Finish(denominators);
    return Status::Ok();
  }

 private:
  bool outputs() const {
    return op_.loss || op_.lse || op_.target_logit || op_.log_probability || op_.entropy || op_.argmax;
  }
  bool wanted() const { return op_.grad.input || op_.grad.weight || op_.grad.bias; }

  // The row of grad_input of one position, and what it adds to the others. An ignored one adds nothing, NaN or not.
  void AddGradients(std::int64_t i, bool counts, std::span<const double> du, const Rows& rows,
                    std::span<double> grad_weight, std::span<double> grad_bias) const {
    const std::int64_t V = op_.V(), H = op_.H();
    if (op_.grad.input) {
      const TensorView& out = *op_.grad.input;
      const Positions at = Flatten(WithoutAxis(out, out.rank - 1), out.rank - 1);
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t offset = at.Offset(i) + h * out.stride(-1);
        double total = op_.grad.accumulate ? Load(ConstTensorView(out), offset) : 0;
        for (std::int64_t v = 0; counts && v < V; ++v) total += du[static_cast<std::size_t>(v)] * rows.W(v, h);
        Store(out, offset, total);
      }
    }
    if (!counts) return;
    for (std::int64_t v = 0; op_.grad.weight && v < V; ++v)
      for (std::int64_t h = 0; h < H; ++h)
        grad_weight[static_cast<std::size_t>(v * H + h)] += du[static_cast<std::size_t>(v)] * rows.X(i, h);
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
  const Given given_;
  const VocabularyShard shard_;
  Piece<double> row_, du_, grad_weight_, grad_bias_;
};

}  // namespace

std::unique_ptr<PlanBody> PlanLinearCrossEntropy(const LinearCrossEntropy& op, Isa) {
  return std::make_unique<LinearCrossEntropyPlan>(op);
}

std::unique_ptr<PlanBody> PlanLinearCrossEntropyBackward(const LinearCrossEntropyBackward& op, Isa) {
  return std::make_unique<LinearCrossEntropyPlan>(op);
}

}  // namespace onehot::ref
