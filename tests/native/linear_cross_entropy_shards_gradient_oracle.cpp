// The gradients of linear cross entropy from what is known of all logits of a position.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tests/native/linear_cross_entropy_oracle_parts.h"
#include "tests/native/linear_cross_entropy_shards_oracle.h"

namespace onehot::test {
namespace {

using namespace linear;  // NOLINT: the oracle of one operator in several files

struct Problem {
  explicit Problem(const LinearCrossEntropyBackward& op)
      : N(static_cast<std::size_t>(op.N())),
        H(static_cast<std::size_t>(op.H())),
        V(static_cast<std::size_t>(op.V())),
        first(op.shard ? op.shard->first : 0),
        all(op.shard ? op.shard->num_classes : op.V()),
        x(Elements(op.input)),
        W(Elements(op.weight)),
        bias(ElementsOr(op.options.bias, op.V(), 0)),
        w(ElementsOr(op.options.loss.weight, all, 1)),
        t(ElementsOr(op.options.loss.token_weight, op.N(), 1)),
        y(TargetsOf(op.target)) {
    const CrossEntropyOptions& loss = op.options.loss;
    Real total = 0, total_z = 0, size = 0;
    for (std::size_t i = 0; i < N; ++i) {
      if (y[i] == loss.ignore_index) continue;
      const Real w_y = w[static_cast<std::size_t>(y[i])];
      total += t[i] * w_y, total_z += t[i], size += std::abs(t[i] * w_y);
    }
    for (const Real w_v : w) S += w_v, S_size += std::abs(w_v);
    if (loss.reduction != Reduction::kMean) return;
    D = total, D_z = total_z;
    if (loss.denominator)
      D = D_z = Elements(*loss.denominator)[0];
    else if (size > 0)
      e_D = 1 + size / std::abs(total);
  }

  std::size_t N, H, V;
  std::int64_t first, all;
  Reals x, W, bias, w, t;
  std::vector<std::int64_t> y;
  Real S = 0, S_size = 0, D = 1, D_z = 1, e_D = 1;
};

// What the formula of du reads of a position, from what is given. e_p is relative.
struct Known {
  Reals z, e_z, p, e_p, distance, e_distance;
  Real lse = 0, e_lse = 0, entropy = 0;
};

Known KnownOf(const LinearCrossEntropyBackward& op, const Problem& n, std::size_t i, Products products) {
  const auto at = static_cast<std::int64_t>(i);
  const auto value = [&](const std::optional<ConstTensorView>& tensor) -> Real {
    return tensor ? ValueAt(*tensor, tensor->data, OffsetOf(*tensor, at)) : 0;
  };
  Known known;
  known.p.resize(n.V), known.e_p.resize(n.V), known.distance.resize(n.V), known.e_distance.resize(n.V);
  if (op.probability) {
    for (std::size_t v = 0; v < n.V; ++v) {
      const auto k = static_cast<std::int64_t>(i * n.V + v);
      known.p[v] = ValueAt(*op.probability, op.probability->data, OffsetOf(*op.probability, k));
    }
    return known;
  }
  Logits logits =
      DefineLogits(n.x.data() + i * n.H, n.W, n.bias, op.options.logit_scale, op.options.loss.softcap, products);
  known.z = std::move(logits.z), known.e_z = std::move(logits.e_z);
  known.entropy = value(op.entropy);
  const Real log = op.lse ? 0 : std::log(value(op.sum_exp)), base = op.lse ? value(op.lse) : value(op.max);
  const Real e_log = kFunction * std::abs(log);
  known.lse = base + log, known.e_lse = e_log + (op.lse ? 0 : std::abs(known.lse));
  for (std::size_t v = 0; v < n.V; ++v) {
    const Real shifted = known.z[v] - base, e_shifted = known.e_z[v] + std::abs(shifted);
    known.p[v] = std::exp(shifted) / (op.lse ? 1 : value(op.sum_exp));
    if (known.p[v] == 0 && !std::isfinite(shifted)) continue;
    known.e_p[v] = e_shifted + kFunction + 2;
    known.distance[v] = log - shifted;
    // One order of the two sums, or the other.
    known.e_distance[v] = e_log + e_shifted + std::abs(known.distance[v]) + known.e_lse;
  }
  return known;
}

// du of a position, and its error in units of u.
void LogitGradient(const LinearCrossEntropyBackward& op, const Problem& n, const Known& known, std::size_t i, Real g,
                   Real r, Real h, Reals& du, Reals& e_du) {
  const CrossEntropyOptions& loss = op.options.loss;
  const Real eps = loss.label_smoothing, zeta = loss.z_loss, cap = loss.softcap, V = static_cast<Real>(n.all);
  const Real a = op.upstream.loss ? g * n.t[i] / n.D : 0, a_z = op.upstream.loss ? g * n.t[i] / n.D_z : 0;
  const Real w_y = n.w[static_cast<std::size_t>(n.y[i])];
  const Real of_target = std::abs(a * w_y) + std::abs(r), smooth = std::abs(a) * eps / V;
  const Real of_z = 2 * std::abs(a_z) * zeta;
  const Real of_p = of_target + smooth * n.S_size + of_z * std::abs(known.lse);
  for (std::size_t v = 0; v < n.V; ++v) {
    const Real p = known.p[v], hit = n.first + static_cast<std::int64_t>(v) == n.y[i] ? 1 : 0;
    const bool out = !known.z.empty() && known.z[v] == -kInfinity && p == 0;
    Real d = a * (1 - eps) * w_y * (p - hit);
    if (eps > 0) d += a * eps / V * (n.S * p - n.w[static_cast<std::size_t>(n.first) + v]);
    if (zeta > 0) d += 2 * a_z * zeta * known.lse * p;
    if (op.upstream.log_probability) d += r * (hit - p);
    if (op.upstream.entropy && !out) d -= h * p * (known.entropy - known.distance[v]);
    Real e = p * of_p * (known.e_p[v] + kFactors + n.e_D) + hit * of_target * (kFactors + n.e_D) +
             p * smooth * n.S_size * (kBlock + std::ceil(V / 1024)) + p * of_z * known.e_lse +
             smooth * std::abs(n.w[static_cast<std::size_t>(n.first) + v]) * (kFactors + n.e_D) +
             // Times 2^53, since errors are multiplied by u >= 2^-53.
             (of_p + std::abs(h) * 256) * kVanishing * 0x1p53L;
    if (!out)
      e += std::abs(h) * p *
           ((std::abs(known.distance[v]) + std::abs(known.entropy)) * (known.e_p[v] + kFactors) + known.e_distance[v]);
    if (cap > 0) {
      const Real ratio = out ? 1 : std::abs(known.z[v]) / cap;
      e = e * std::abs(1 - ratio * ratio) + std::abs(d) * (2 * ratio * (known.e_z[v] / cap + 2 * ratio) + 3);
      d *= 1 - ratio * ratio;
    }
    du[v] = d, e_du[v] = e;
  }
}

}  // namespace

ShardGradients Define(const LinearCrossEntropyBackward& op, Products products) {
  const Problem n(op);
  const Real of_classes = static_cast<Real>(n.V) + kProduct, of_positions = static_cast<Real>(n.N) + kProduct;
  ShardGradients want{.input = Old(op.grad.input, op.grad.accumulate, n.N * n.H, of_classes),
                      .weight = Old(op.grad.weight, op.grad.accumulate, n.V * n.H, of_positions),
                      .bias = Old(op.grad.bias, op.grad.accumulate, n.V, of_positions)};
  const bool none = op.options.loss.reduction == Reduction::kNone;
  const Reals g = ElementsOr(op.upstream.loss, none ? op.N() : 1, 0);
  const Reals r = ElementsOr(op.upstream.log_probability, op.N(), 0), h = ElementsOr(op.upstream.entropy, op.N(), 0);
  Reals du(n.V), e_du(n.V);
  for (std::size_t i = 0; i < n.N; ++i) {
    if (n.y[i] == op.options.loss.ignore_index) continue;
    LogitGradient(op, n, KnownOf(op, n, i, products), i, g[none ? i : 0], r[i], h[i], du, e_du);
    for (std::size_t v = 0; v < n.V; ++v) {
      const Real alpha = op.options.logit_scale, d = alpha * du[v], e_d = std::abs(alpha) * e_du[v];
      for (std::size_t k = 0; k < n.H; ++k) {
        AddProduct(want.input, i * n.H + k, d, e_d, n.W[v * n.H + k], of_classes, products);
        AddProduct(want.weight, v * n.H + k, d, e_d, n.x[i * n.H + k], of_positions, products);
      }
      AddProduct(want.bias, v, d, e_d, 1, of_positions, Products::kF32);  // nothing is multiplied
    }
  }
  return want;
}

}  // namespace onehot::test
