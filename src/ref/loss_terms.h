// The formulas of onehot/cross_entropy.h for one position, in f64.
#ifndef ONEHOT_REF_LOSS_TERMS_H_
#define ONEHOT_REF_LOSS_TERMS_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "onehot/cross_entropy.h"
#include "ref/elements.h"

namespace onehot::ref {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The classes of one position: z, and what is made of all of them.
class Classes {
 public:
  Classes(const ConstTensorView& input, int axis, double softcap)
      : input_(input), C_(input.dim(axis)), step_(input.stride(axis)), softcap_(softcap) {}

  // Takes the classes at this offset, and what all of them come to from themselves ...
  void MoveTo(std::int64_t offset) {
    offset_ = offset;
    max_ = -kInfinity, argmax_ = 0;
    for (std::int64_t v = 0; v < C_; ++v) {
      const double z = Z(v);
      if (z > max_ || (std::isnan(z) && !std::isnan(max_))) max_ = z, argmax_ = v;
    }
    double sum = 0;
    for (std::int64_t v = 0; v < C_ && max_ != -kInfinity; ++v) sum += std::exp(Z(v) - max_);
    sum_ = sum, log_sum_ = std::log(sum);
  }
  // ... or, where they are only some of the vocabulary, from the caller.
  void Given(double max, double log_sum, std::optional<double> entropy) {
    max_ = max, log_sum_ = log_sum, entropy_ = entropy;
  }

  double Z(std::int64_t v) const {
    const double u = Load(input_, offset_ + v * step_);
    return softcap_ > 0 && u != -kInfinity ? softcap_ * std::tanh(u / softcap_) : u;
  }
  // lse - z_v from shifted logits: large common logits cancel.
  double Distance(std::int64_t v) const { return log_sum_ + (max_ - Z(v)); }
  double P(std::int64_t v) const { return std::exp(-Distance(v)); }
  double lse() const { return log_sum_ + max_; }
  double max() const { return max_; }
  double sum_exp() const { return sum_; }
  std::int64_t argmax() const { return argmax_; }
  std::int64_t C() const { return C_; }
  double Entropy() const {
    if (entropy_) return *entropy_;
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
  double max_ = 0, sum_ = 0, log_sum_ = 0;
  std::optional<double> entropy_;
};

// The same where probabilities are all that is known.
class Probabilities {
 public:
  Probabilities(const ConstTensorView& tensor, std::int64_t offset) : tensor_(tensor), offset_(offset) {}

  double P(std::int64_t v) const { return Load(tensor_, offset_ + v * tensor_.stride(-1)); }
  std::int64_t C() const { return tensor_.dim(-1); }
  double Slope(std::int64_t) const { return 1; }
  // Not asked for: ops refuses the options that need them.
  double lse() const { return 0; }
  double Distance(std::int64_t) const { return 0; }
  double Entropy() const { return 0; }

 private:
  const ConstTensorView& tensor_;
  const std::int64_t offset_;
};

struct Denominators {
  double D, D_z;
  bool empty;
};

// Checks all targets on the way.
inline Status FindDenominators(const ConstTensorView& target, std::int64_t C, const CrossEntropyOptions& options,
                               double* total_weight, Denominators* found) {
  const Factor weight(options.weight), token_weight(options.token_weight);
  OrderedSum total, total_z;
  bool empty = true;
  if (Status bad = ForEachTarget(target, C, options.ignore_index, {},
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

// The two parts of a position's loss, token weight included.
struct LossTerms {
  double loss, z_loss;
};

inline LossTerms LossOf(const Classes& classes, std::int64_t y, const CrossEntropyOptions& options,
                        const Factor& weight, double token_weight) {
  const double eps = options.label_smoothing, lse = classes.lse();
  double smooth = 0;
  for (std::int64_t v = 0; eps > 0 && v < classes.C(); ++v)
    if (weight[v] != 0) smooth += weight[v] * classes.Distance(v);
  const double loss = (eps < 1 ? (1 - eps) * weight[y] * classes.Distance(y) : 0) +
                      (eps > 0 ? eps / static_cast<double>(classes.C()) * smooth : 0);
  const double z_loss = options.z_loss > 0 ? options.z_loss * lse * lse : 0;
  return {loss * token_weight, z_loss * token_weight};
}

// The losses of all positions: one by one, or their sum in the order of onehot/nll_loss.h.
class LossOutput {
 public:
  LossOutput(const std::optional<TensorView>& loss, const CrossEntropyOptions& options)
      : loss_(loss), options_(options), at_(loss ? Flatten(*loss, loss->rank) : Positions{}) {}

  void Add(std::int64_t position, const LossTerms& terms) {
    if (options_.reduction != Reduction::kNone) {
      sum_.Add(position, terms.loss), sum_z_.Add(position, terms.z_loss);
    } else if (loss_) {
      Store(*loss_, at_.Offset(position), terms.loss + terms.z_loss);
    }
  }
  // After all positions.
  void Finish(const Denominators& denominators) {
    if (!loss_ || options_.reduction == Reduction::kNone) return;
    double loss = sum_.Total() / denominators.D;
    if (options_.z_loss > 0) loss += sum_z_.Total() / denominators.D_z;
    if (options_.reduction == Reduction::kMean && denominators.empty && options_.zero_if_empty) loss = 0;
    Store(*loss_, 0, loss);
  }

 private:
  const std::optional<TensorView>& loss_;
  const CrossEntropyOptions& options_;
  const Positions at_;
  OrderedSum sum_, sum_z_;
};

// One of the outputs that have an element for each position, if it is asked for.
inline void StoreAt(const std::optional<TensorView>& tensor, std::int64_t position, double value) {
  if (tensor) Store(*tensor, Flatten(*tensor, tensor->rank).Offset(position), value);
}
inline void StoreArgmax(const std::optional<TensorView>& tensor, std::int64_t position, std::int64_t argmax) {
  if (!tensor) return;
  const Positions at = Flatten(*tensor, tensor->rank);
  static_cast<std::int64_t*>(tensor->data)[at.Offset(position)] = argmax;
}

// Upstream gradients of one position: of the loss, token weight included, divided by D and by D_z; and of the others.
struct Upstream {
  bool loss, log_probability, entropy;  // given
  double a, a_z, r, h;
};

// Calls store(v, d) with the gradient of each logit before the softcap. Classes is one of the above; its class 0 is
// `first` of num_classes, of which y and weight speak.
template <class Classes, class F>
void GradientOf(const Classes& classes, std::int64_t first, std::int64_t num_classes, std::int64_t y,
                const CrossEntropyOptions& options, const Factor& weight, double all_weights, const Upstream& upstream,
                F&& store) {
  const double eps = options.label_smoothing, smooth = eps / static_cast<double>(num_classes);
  const double entropy = upstream.entropy ? classes.Entropy() : 0;
  for (std::int64_t v = 0; v < classes.C(); ++v) {
    const double p = classes.P(v), hit = first + v == y ? 1 : 0;
    double d = 0;
    if (upstream.loss) {
      d = upstream.a * ((1 - eps) * weight[y] * (p - hit));
      if (eps > 0) d += upstream.a * smooth * (all_weights * p - weight[first + v]);
      if (options.z_loss > 0) d += 2 * upstream.a_z * options.z_loss * classes.lse() * p;
    }
    if (upstream.log_probability) d += upstream.r * (hit - p);
    if (upstream.entropy && p != 0) d -= upstream.h * p * (entropy - classes.Distance(v));
    store(v, d * classes.Slope(v));
  }
}

}  // namespace onehot::ref

#endif  // ONEHOT_REF_LOSS_TERMS_H_
