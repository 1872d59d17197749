#include "tests/native/linear_cross_entropy_oracle_parts.h"

#include <cmath>

namespace onehot::test {

Products ProductsOf(const Target& target) {
  return target.implementation == "cpu:bf16" ? Products::kBF16 : Products::kF32;
}

}  // namespace onehot::test

namespace onehot::test::linear {

Reals Elements(const ConstTensorView& tensor) {
  Reals elements;
  elements.reserve(static_cast<std::size_t>(tensor.numel()));
  for (std::int64_t i = 0; i < tensor.numel(); ++i)
    elements.push_back(ValueAt(tensor, tensor.data, OffsetOf(tensor, i)));
  return elements;
}

Reals ElementsOr(const std::optional<ConstTensorView>& tensor, std::int64_t count, Real otherwise) {
  return tensor ? Elements(*tensor) : Reals(static_cast<std::size_t>(count), otherwise);
}

std::vector<std::int64_t> TargetsOf(const ConstTensorView& target) {
  std::vector<std::int64_t> targets;
  for (std::int64_t i = 0; i < target.numel(); ++i) {
    const std::int64_t offset = OffsetOf(target, i);
    // Not by way of a double, which ends at 2^53.
    targets.push_back(target.dtype == DType::kI64 ? static_cast<const std::int64_t*>(target.data)[offset]
                                                  : static_cast<std::int64_t>(ValueAt(target, target.data, offset)));
  }
  return targets;
}

Real SumError(std::size_t N) {
  return (4096.0L / 16 + 5 + std::ceil(static_cast<Real>(N) / 4096)) * 0x1p-53L;
}

Logits DefineLogits(const Real* x, const Reals& W, const Reals& bias, double logit_scale, double softcap,
                    Products products) {
  const std::size_t V = bias.size(), H = V == 0 ? 0 : W.size() / V;
  const Real terms = static_cast<Real>(H) + kProduct, alpha = logit_scale, cap = softcap;
  Logits logits{.z = Reals(V), .e_z = Reals(V)};
  for (std::size_t v = 0; v < V; ++v) {
    Real sum = bias[v], size = std::isfinite(sum) ? std::abs(sum) : 0, vanished = 0;
    for (std::size_t h = 0; h < H; ++h) {
      const Real product = x[h] * W[v * H + h];
      sum += product, size += std::abs(product);
      // Either operand may count as 0, or the sum so far.
      if (products == Products::kBF16) vanished += kVanishing * (std::abs(x[h]) + std::abs(W[v * H + h]) + 1);
    }
    const Real u = alpha * sum;
    const bool masked = u == -kInfinity;
    logits.z[v] = cap > 0 && !masked ? cap * std::tanh(u / cap) : u;
    if (masked) continue;
    const Real error = terms * size + vanished * 0x1p24L;  // in units of u, which is 2^-24 for products of bf16
    logits.e_z[v] = std::abs(alpha) * error + (cap > 0 ? kCapped * std::abs(logits.z[v]) : 0);
  }
  return logits;
}

Argmax DefineArgmax(const Logits& logits) {
  const Reals &z = logits.z, &e_z = logits.e_z;
  Argmax argmax;
  argmax.index = 0;
  Real max = -kInfinity;
  for (std::size_t v = 0; v < z.size() && !std::isnan(max); ++v)
    if (z[v] > max || std::isnan(z[v])) max = z[v], argmax.index = static_cast<std::int64_t>(v);
  const auto best = static_cast<std::size_t>(argmax.index);
  for (std::size_t v = 0; v < z.size(); ++v) {
    const Real error = e_z[v] + e_z[best];
    // A gap of 0 is a tie, which goes to the lowest index unless rounding may break it.
    if (error > 0 && (max - z[v]) / error < 0x1p-22L)
      argmax.rivals.push_back({static_cast<std::int64_t>(v), (max - z[v]) / error});
  }
  return argmax;
}

Bounded Old(const std::optional<TensorView>& gradient, bool accumulate, std::size_t count, Real terms) {
  Bounded want;
  want.value.assign(count, 0);
  if (gradient && accumulate) want.value = Elements(*gradient);
  want.floor.assign(count, terms * kVanishing);
  for (const Real old : want.value) want.error.push_back(terms * std::abs(old));
  return want;
}

}  // namespace onehot::test::linear
