#include "tests/native/cross_entropy_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tests/native/oracle.h"

namespace onehot::test {
namespace {

using Real = long double;

constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

// In units of u. exp, log and tanh: 4 units in the last place.
constexpr Real kFunction = 8;
// softcap and input / softcap are rounded, and so is the product: beside tanh four roundings, and two to spare.
constexpr Real kCapped = kFunction + 6;
// A block of 1024 classes: 64 additions in a lane, 4 when lanes are folded.
constexpr Real kBlock = 64 + 4;
// Rescaling a block: a function, a product, a sum.
constexpr Real kFold = kFunction + 2;
// Factors of a term: a product each, and the rounding of eps, zeta, 1 - eps, C and D to f32.
constexpr Real kFactors = 12;
// A probability below 2^-126 may count as 0; times 2^53, since bounds are multiplied by u >= 2^-53.
constexpr Real kVanishing = 0x1p-126L * 0x1p53L;

Real ElementOf(const ConstTensorView& tensor, std::int64_t position) {
  return ValueAt(tensor, tensor.data, OffsetOf(tensor, position));
}

Real ElementOf(const std::optional<ConstTensorView>& tensor, std::int64_t position, Real otherwise) {
  return tensor ? ElementOf(*tensor, position) : otherwise;
}

std::int64_t TargetOf(const ConstTensorView& target, std::int64_t i) {
  const std::int64_t offset = OffsetOf(target, i);
  return target.dtype == DType::kI64 ? static_cast<const std::int64_t*>(target.data)[offset]
                                     : static_cast<std::int64_t>(ValueAt(target, target.data, offset));
}

// The softmax of one position. Every e_ is in units of u.
struct Softmax {
  std::vector<Real> z, e_z;
  std::vector<Real> distance, e_distance;  // lse - z_v
  std::vector<Real> p, e_p;                // e_p relative
  Real max = 0, log_sum = 0, lse = 0, e_lse = 0, entropy = 0, e_entropy = 0;
  std::int64_t argmax = -1;

  template <class Op>
  void Compute(const Op& op, std::int64_t i) {
    const std::int64_t C = op.C();
    const auto size = static_cast<std::size_t>(C);
    const int axis = op.ClassAxis();
    const Real cap = op.options.softcap;
    for (auto* v : {&z, &e_z, &distance, &e_distance, &p, &e_p}) v->assign(size, 0);
    const std::int64_t start = OffsetOf(op.input, ClassPosition(op.input, axis, i, 0));
    max = -kInfinity, argmax = 0;
    for (std::size_t v = 0; v < size; ++v) {
      const Real x = ValueAt(op.input, op.input.data, start + static_cast<std::int64_t>(v) * op.input.stride(axis));
      z[v] = cap > 0 && x != -kInfinity ? cap * std::tanh(x / cap) : x;
      e_z[v] = cap > 0 && std::isfinite(z[v]) ? kCapped * std::abs(z[v]) : 0;
      if (std::isnan(max)) continue;
      if (z[v] > max || std::isnan(z[v])) max = z[v], argmax = static_cast<std::int64_t>(v);
    }
    const auto best = static_cast<std::size_t>(argmax);

    Real sum = 0, shifted = 0, e_shifted = 0;  // the last two weighted with p, once sum is known
    for (std::size_t v = 0; v < size && max != -kInfinity; ++v) {
      if (z[v] == -kInfinity) continue;
      p[v] = std::exp(z[v] - max);
      sum += p[v];
      shifted += p[v] * (max - z[v]);
      e_shifted += p[v] * (e_z[v] + e_z[best] + (max - z[v]));
    }
    shifted /= sum, e_shifted /= sum;
    log_sum = std::log(sum);
    lse = max == -kInfinity ? max : log_sum + max;
    const Real blocks = std::ceil(static_cast<Real>(C) / 1024);
    const Real e_sum = e_shifted + kFunction + kBlock + blocks * (kFold + 2 * e_shifted);
    const Real e_log = e_sum + kFunction * std::abs(log_sum);
    e_lse = e_log + e_z[best] + std::abs(lse);

    // -sum of p log p
    Real e_terms = 0;
    entropy = max == -kInfinity ? std::numeric_limits<Real>::quiet_NaN() : 0;
    for (std::size_t v = 0; v < size; ++v) {
      p[v] /= sum;
      if (max == -kInfinity) p[v] = distance[v] = std::numeric_limits<Real>::quiet_NaN();
      if (z[v] == -kInfinity) {
        if (max != -kInfinity) distance[v] = kInfinity;
        continue;
      }
      const Real e_d = e_z[v] + e_z[best] + std::abs(max - z[v]);
      distance[v] = log_sum + (max - z[v]);
      e_distance[v] = e_log + e_d + std::abs(distance[v]);
      // Either exp(z - lse), from an lse that was rounded, or exp(z - max) / sum.
      e_p[v] = e_lse + e_z[v] + std::abs(z[v] - lse) + e_d + kFunction + 2;
      entropy += p[v] * distance[v];
      e_terms += p[v] * (1 + std::abs(max - z[v])) * (e_d + kFunction);
    }
    e_entropy = e_log + e_terms + shifted * (kBlock + kFunction + blocks * kFold + e_sum + 4) + 2 * std::abs(entropy);
  }
};

struct Denominators {
  Real D = 0, D_z = 0, magnitude = 0;
  std::int64_t live = 0;
};

template <class Op>
Denominators Count(const Op& op) {
  Denominators found;
  for (std::int64_t i = 0; i < op.N(); ++i) {
    const std::int64_t y = TargetOf(op.target, i);
    if (y == op.options.ignore_index) continue;
    const Real t = ElementOf(op.options.token_weight, i, 1), w = ElementOf(op.options.weight, y, 1);
    ++found.live;
    found.D += t * w, found.D_z += t, found.magnitude += std::abs(t * w);
  }
  return found;
}

// Of sums in f64 over N positions, as a share of the sum of magnitudes: 4096 / 16 additions in a lane, 4 when lanes are
// folded, one for each block and the term's own.
Real SumError(std::int64_t N) {
  return (4096.0L / 16 + 5 + std::ceil(static_cast<Real>(N) / 4096)) * 0x1p-53L;
}

}  // namespace

std::int64_t ClassPosition(const TensorLayout& classes, int axis, std::int64_t i, std::int64_t v) {
  std::int64_t inner = 1;
  for (int k = axis + 1; k < classes.rank; ++k) inner *= classes.dim(k);
  return (i / inner * classes.dim(axis) + v) * inner + i % inner;
}

CrossEntropyDefinition Define(const CrossEntropy& op) {
  const CrossEntropyOptions& options = op.options;
  const bool none = options.reduction == Reduction::kNone, mean = options.reduction == Reduction::kMean;
  const Real eps = options.label_smoothing, zeta = options.z_loss;
  const std::int64_t C = op.C();
  const Real blocks = std::ceil(static_cast<Real>(C) / 1024);
  CrossEntropyDefinition want;
  Softmax softmax;
  Real sum = 0, e_sum = 0, magnitude = 0, sum_z = 0, e_sum_z = 0, magnitude_z = 0;
  for (std::int64_t i = 0; i < op.N(); ++i) {
    const std::int64_t target = TargetOf(op.target, i);
    if (target == options.ignore_index) {
      for (Bounded* output : {&want.lse, &want.log_probability, &want.entropy}) output->Add(0, 0);
      if (none) want.loss.Add(0, 0);
      want.argmax.push_back(-1);
      continue;
    }
    const auto y = static_cast<std::size_t>(target);
    softmax.Compute(op, i);
    want.lse.Add(softmax.lse, softmax.e_lse);
    want.log_probability.Add(-softmax.distance[y], softmax.e_distance[y]);
    want.entropy.Add(softmax.entropy, softmax.e_entropy);
    want.argmax.push_back(softmax.argmax);

    const Real w = ElementOf(options.weight, target, 1), t = ElementOf(options.token_weight, i, 1);
    Real l = (1 - eps) * w * softmax.distance[y];
    Real e_l = std::abs(w) * (softmax.e_distance[y] + kFactors * softmax.distance[y]);
    if (eps > 0) {
      Real smooth = 0, e_smooth = 0;
      for (std::size_t v = 0; v < softmax.z.size(); ++v) {
        const Real w_v = ElementOf(options.weight, static_cast<std::int64_t>(v), 1);
        if (w_v == 0) continue;
        smooth += w_v * softmax.distance[v];
        e_smooth += std::abs(w_v) *
                    (softmax.e_distance[v] +
                     (kBlock + blocks + kFactors) * (std::abs(softmax.max - softmax.z[v]) + std::abs(softmax.log_sum)));
      }
      l += eps / static_cast<Real>(C) * smooth, e_l += eps / static_cast<Real>(C) * e_smooth;
    }
    const Real lse = softmax.lse, q = zeta == 0 ? 0 : zeta * lse * lse;
    const Real e_q = zeta * (2 * std::abs(lse) * softmax.e_lse + kFactors * lse * lse);
    if (none) want.loss.Add(t * (l + q), std::abs(t) * (e_l + e_q + 3 * (std::abs(l) + q)));
    sum += t * l, e_sum += std::abs(t) * (e_l + 3 * std::abs(l)), magnitude += std::abs(t * l);
    sum_z += t * q, e_sum_z += std::abs(t) * (e_q + 3 * q), magnitude_z += std::abs(t * q);
  }

  const Denominators found = Count(op);
  want.total_weight.Add(none ? 0 : found.D, 0, SumError(op.N()) * found.magnitude);
  if (none) return want;
  if (mean && found.live == 0 && options.zero_if_empty) {
    want.loss.Add(0, 0);
    return want;
  }
  const Real D = !mean ? 1 : ElementOf(options.denominator, 0, found.D);
  const Real D_z = !mean ? 1 : ElementOf(options.denominator, 0, found.D_z);
  const Real loss = sum / D + (zeta > 0 ? sum_z / D_z : 0);
  want.loss.Add(loss, e_sum / std::abs(D) + (zeta > 0 ? e_sum_z / std::abs(D_z) : 0),
                // Twice: for the sum and for D. With weights of both signs D may cancel.
                SumError(op.N()) * (magnitude / std::abs(D) * (1 + found.magnitude / std::abs(D)) +
                                    (zeta > 0 ? 2 * magnitude_z / std::abs(D_z) : 0)));
  return want;
}

Bounded Define(const CrossEntropyBackward& op) {
  const CrossEntropyOptions& options = op.options;
  const bool none = options.reduction == Reduction::kNone, mean = options.reduction == Reduction::kMean;
  const Real eps = options.label_smoothing, zeta = options.z_loss, cap = options.softcap;
  const std::int64_t C = op.C();
  const Real classes = static_cast<Real>(C), blocks = std::ceil(classes / 1024);
  const Denominators found = Count(op);
  const Real D = !mean ? 1 : ElementOf(options.denominator, 0, found.D);
  const Real D_z = !mean ? 1 : ElementOf(options.denominator, 0, found.D_z);
  // How far D, a sum in f64, may be off, in units of any u.
  const Real e_D = 1 + found.magnitude / std::abs(found.D);
  Real S = 0, S_magnitude = 0;
  for (std::int64_t v = 0; v < C; ++v) {
    const Real w_v = ElementOf(options.weight, v, 1);
    S += w_v, S_magnitude += std::abs(w_v);
  }

  Bounded want;
  want.value.assign(static_cast<std::size_t>(op.out.numel()), 0);
  want.error = want.floor = want.value;
  Softmax softmax;
  for (std::int64_t i = 0; i < op.N(); ++i) {
    const std::int64_t target = TargetOf(op.target, i);
    if (target == options.ignore_index) continue;
    softmax.Compute(op, i);
    const Real w = ElementOf(options.weight, target, 1), t = ElementOf(options.token_weight, i, 1);
    const Real g = op.grad_loss ? ElementOf(*op.grad_loss, none ? i : 0) : 0;
    const Real r = ElementOf(op.grad_log_probability, i, 0), h = ElementOf(op.grad_entropy, i, 0);
    const Real a = op.grad_loss ? g * t / D : 0, a_z = op.grad_loss ? g * t / D_z : 0, lse = softmax.lse;
    for (std::int64_t k = 0; k < C; ++k) {
      const auto v = static_cast<std::size_t>(k);
      const Real p = softmax.p[v], hit = k == target ? 1 : 0, distance = softmax.distance[v];
      const Real w_v = ElementOf(options.weight, k, 1);
      Real d = a * (1 - eps) * w * (p - hit);
      if (eps > 0) d += a * eps / classes * (S * p - w_v);
      if (zeta > 0) d += 2 * a_z * zeta * lse * p;
      if (op.grad_log_probability) d += r * (hit - p);
      // p_v log p_v is 0 where p_v is.
      if (op.grad_entropy && p != 0) d -= h * p * (softmax.entropy - distance);

      const Real of_target = std::abs(a * w) * (1 + e_D / kFactors) + std::abs(r);
      const Real smooth = std::abs(a) * eps / classes;
      const Real of_p = of_target + smooth * S_magnitude + 2 * std::abs(a_z) * zeta * std::abs(lse);
      const Real far = p == 0 ? 0 : distance;
      Real e = p * of_p * (softmax.e_p[v] + kFactors + e_D) + p * smooth * S_magnitude * (kBlock + blocks) +
               p * 2 * std::abs(a_z) * zeta * softmax.e_lse + hit * of_target * kFactors +
               smooth * std::abs(w_v) * (kFactors + e_D) +
               std::abs(h) * p *
                   ((std::abs(far) + std::abs(softmax.entropy)) * (softmax.e_p[v] + kFactors) + softmax.e_distance[v] +
                    softmax.e_lse + softmax.e_entropy) +
               (of_p + std::abs(h) * 256) * kVanishing;
      if (cap > 0) {
        const Real ratio = std::isinf(softmax.z[v]) ? 1 : softmax.z[v] / cap;
        e = e * (1 - ratio * ratio) + std::abs(d) * (2 * (kCapped + 2) * ratio * ratio + 3);
        d *= 1 - ratio * ratio;
      }
      const auto at = static_cast<std::size_t>(ClassPosition(op.out, op.ClassAxis(), i, k));
      want.value[at] = d, want.error[at] = e;
    }
  }
  return want;
}

double UnitRoundoff(const Target& target, DType input, std::int64_t C) {
  if (target.is_ref()) return 0x1p-53 * (1 + static_cast<double>(C) / 64);
  return input == DType::kF64 ? 0x1p-53 : 0x1p-24;
}

::testing::AssertionResult Within(const Tensor& got, const Bounded& want, double u) {
  if (got.numel() != static_cast<std::int64_t>(want.value.size()))
    return ::testing::AssertionFailure() << got.numel() << " elements, want " << want.value.size();
  std::size_t outside = 0, worst = 0;
  long double worst_ratio = 0;
  const auto bound_at = [&](std::size_t k) {
    const long double sum = want.error[k] * u + want.floor[k];
    return sum + HalfUnitInLastPlace(got.layout().dtype, std::abs(want.value[k]) + sum);
  };
  for (std::size_t k = 0; k < want.value.size(); ++k) {
    const long double x = got.Value(static_cast<std::int64_t>(k)), value = want.value[k];
    if (x == value || (std::isnan(x) && std::isnan(value))) continue;
    const long double error = std::abs(x - value);
    if (std::isfinite(value) && error <= bound_at(k)) continue;
    const long double ratio = std::isfinite(error) ? error / bound_at(k) : kInfinity;
    if (outside++ == 0 || ratio > worst_ratio) worst_ratio = ratio, worst = k;
  }
  if (outside == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "worst at " << worst << ": got "
                                       << got.Value(static_cast<std::int64_t>(worst)) << ", want " << want.value[worst]
                                       << " within " << bound_at(worst) << ", off by " << worst_ratio << " times that; "
                                       << outside << " of " << want.value.size() << " outside";
}

}  // namespace onehot::test
