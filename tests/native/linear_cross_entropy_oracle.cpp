#include "tests/native/linear_cross_entropy_oracle.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/native/linear_cross_entropy_oracle_parts.h"

namespace onehot::test {
namespace {

using namespace linear;  // NOLINT: the other half of this file

// The problem as plain numbers.
struct Numbers {
  explicit Numbers(const LinearCrossEntropy& op)
      : N(static_cast<std::size_t>(op.N())),
        H(static_cast<std::size_t>(op.H())),
        V(static_cast<std::size_t>(op.V())),
        x(Elements(op.input)),
        W(Elements(op.weight)),
        bias(ElementsOr(op.options.bias, op.V(), 0)),
        w(ElementsOr(op.options.loss.weight, op.V(), 1)),
        t(ElementsOr(op.options.loss.token_weight, op.N(), 1)),
        y(TargetsOf(op.target)),
        alpha(op.options.logit_scale),
        eps(op.options.loss.label_smoothing),
        zeta(op.options.loss.z_loss),
        cap(op.options.loss.softcap),
        none(op.options.loss.reduction == Reduction::kNone),
        mean(op.options.loss.reduction == Reduction::kMean),
        blocks(std::ceil(static_cast<Real>(V) / 1024)) {
    for (std::size_t i = 0; i < N; ++i) {
      if (Ignored(op, i)) continue;
      const Real w_y = w[static_cast<std::size_t>(y[i])];
      ++live;
      total += t[i] * w_y, total_z += t[i], magnitude += std::abs(t[i] * w_y);
    }
    for (const Real w_v : w) S += w_v, S_magnitude += std::abs(w_v);
    const auto& given = op.options.loss.denominator;
    D = mean ? (given ? Elements(*given)[0] : total) : 1;
    D_z = mean ? (given ? D : total_z) : 1;
    e_D = mean && !given && magnitude > 0 ? 1 + magnitude / std::abs(total) : 1;
  }
  bool Ignored(const LinearCrossEntropy& op, std::size_t i) const { return y[i] == op.options.loss.ignore_index; }

  std::size_t N, H, V;
  Reals x, W, bias, w, t;
  std::vector<std::int64_t> y;
  double alpha;
  Real eps, zeta;
  double cap;
  bool none, mean;
  Real blocks;
  std::int64_t live = 0;
  Real total = 0, total_z = 0, magnitude = 0, S = 0, S_magnitude = 0, D = 1, D_z = 1, e_D = 1;
};

// One position. Every e_ is in units of u.
struct Position {
  Reals z, e_z, distance, e_distance, p, e_p;  // distance: lse - z; e_p is relative
  Real max = 0, log_sum = 0, lse = 0, e_lse = 0, entropy = 0, e_entropy = 0;
  Argmax argmax;

  Position(const Numbers& n, std::size_t i, Products products) {
    for (Reals* each : {&distance, &e_distance, &p, &e_p}) each->assign(n.V, 0);
    const Logits logits = DefineLogits(n.x.data() + i * n.H, n.W, n.bias, n.alpha, n.cap, products);
    z = logits.z, e_z = logits.e_z;
    argmax = DefineArgmax(logits);
    max = n.V == 0 ? -kInfinity : z[static_cast<std::size_t>(argmax.index)];
    Softmax(n);
  }

 private:
  void Softmax(const Numbers& n) {
    const auto best = static_cast<std::size_t>(argmax.index);
    const bool nothing = max == -kInfinity;  // every class is masked
    Real sum = 0, shifted = 0, e_shifted = 0;
    for (std::size_t v = 0; v < n.V && !nothing; ++v) {
      if (z[v] == -kInfinity) continue;
      p[v] = std::exp(z[v] - max);
      sum += p[v];
      shifted += p[v] * (max - z[v]);
      e_shifted += p[v] * (e_z[v] + e_z[best] + (max - z[v]));
    }
    shifted /= sum, e_shifted /= sum;
    log_sum = std::log(sum);
    lse = nothing ? max : log_sum + max;
    const Real e_sum = e_shifted + kFunction + kBlock + n.blocks * (kFold + 2 * e_shifted);
    const Real e_log = e_sum + kFunction * std::abs(log_sum);
    e_lse = e_log + e_z[best] + std::abs(lse);

    Real e_terms = 0;
    entropy = nothing ? kNaN : 0;
    for (std::size_t v = 0; v < n.V; ++v) {
      if (nothing) {
        p[v] = distance[v] = kNaN;
        continue;
      }
      p[v] /= sum;
      if (z[v] == -kInfinity) {
        distance[v] = kInfinity;
        continue;
      }
      const Real below = max - z[v], e_d = e_z[v] + e_z[best] + below;
      distance[v] = log_sum + below;
      e_distance[v] = e_log + e_d + std::abs(distance[v]);
      // Either exp(z - lse), from an lse that was rounded, or exp(z - max) / sum.
      e_p[v] = e_lse + e_z[v] + std::abs(z[v] - lse) + e_d + kFunction + 2;
      entropy += p[v] * distance[v];
      e_terms += p[v] * (1 + below) * (e_d + kFunction);
    }
    e_entropy = e_log + e_terms + shifted * (kBlock + kFunction + n.blocks * kFold + e_sum + 4) + 2 * entropy;
  }
};

// The loss terms l and q of a position.
struct Terms {
  Real l = 0, e_l = 0, q = 0, e_q = 0;

  Terms(const Numbers& n, const Position& at, std::size_t y) {
    l = (1 - n.eps) * n.w[y] * at.distance[y];
    e_l = std::abs(n.w[y]) * (at.e_distance[y] + kFactors * at.distance[y]);
    Real smooth = 0, e_smooth = 0;
    for (std::size_t v = 0; n.eps > 0 && v < n.V; ++v) {
      if (n.w[v] == 0) continue;  // adds 0, however far z is
      smooth += n.w[v] * at.distance[v];
      e_smooth += std::abs(n.w[v]) * (at.e_distance[v] + (kBlock + n.blocks + kFactors) *
                                                             (std::abs(at.max - at.z[v]) + std::abs(at.log_sum)));
    }
    if (n.eps > 0) l += n.eps / static_cast<Real>(n.V) * smooth, e_l += n.eps / static_cast<Real>(n.V) * e_smooth;
    if (n.zeta == 0) return;
    q = n.zeta * at.lse * at.lse;
    e_q = n.zeta * (2 * std::abs(at.lse) * at.e_lse + kFactors * at.lse * at.lse);
  }
};

void DefineLoss(const LinearCrossEntropy& op, const Numbers& n, const std::vector<std::optional<Position>>& positions,
                LinearCrossEntropyDefinition& want) {
  Real sum = 0, e_sum = 0, size = 0, sum_z = 0, e_sum_z = 0, size_z = 0;
  for (std::size_t i = 0; i < n.N; ++i) {
    if (!positions[i]) {
      for (Bounded* output : {&want.lse, &want.target_logit, &want.log_probability, &want.entropy}) output->Add(0, 0);
      if (n.none) want.loss.Add(0, 0);
      want.argmax.emplace_back();
      continue;
    }
    const Position& at = *positions[i];
    const auto y = static_cast<std::size_t>(n.y[i]);
    want.lse.Add(at.lse, at.e_lse);
    want.target_logit.Add(at.z[y], at.e_z[y]);
    want.log_probability.Add(-at.distance[y], at.e_distance[y]);
    want.entropy.Add(at.entropy, at.e_entropy);
    want.argmax.push_back(at.argmax);
    const Terms of(n, at, y);
    const Real t = n.t[i], t_size = std::abs(t);
    if (n.none) want.loss.Add(t * (of.l + of.q), t_size * (of.e_l + of.e_q + 3 * (std::abs(of.l) + of.q)));
    sum += t * of.l, e_sum += t_size * (of.e_l + 3 * std::abs(of.l)), size += t_size * std::abs(of.l);
    sum_z += t * of.q, e_sum_z += t_size * (of.e_q + 3 * of.q), size_z += t_size * of.q;
  }
  want.total_weight.Add(n.none ? 0 : n.total, 0, n.none ? 0 : SumError(n.N) * n.magnitude);
  if (n.none) return;
  if (n.mean && n.live == 0 && op.options.loss.zero_if_empty) {
    want.loss.Add(0, 0);
    return;
  }
  const Real D = std::abs(n.D), D_z = std::abs(n.D_z);
  const bool z = n.zeta > 0;
  want.loss.Add(sum / n.D + (z ? sum_z / n.D_z : 0), e_sum / D + (z ? e_sum_z / D_z : 0),
                // Twice: for the sum and for D. With weights of both signs D may cancel.
                SumError(n.N) * (size / D * (1 + n.magnitude / D) + (z ? 2 * size_z / D_z : 0)));
}

// du of one position, and its error in units of u.
void DefineLogitGradient(const LinearCrossEntropy& op, const Numbers& n, const Position& at, std::size_t i, Real g,
                         Real r, Real h, Reals& du, Reals& e_du) {
  const auto y = static_cast<std::size_t>(n.y[i]);
  const Real V = static_cast<Real>(n.V);
  const bool has_g = op.upstream.loss.has_value();
  const Real a = has_g ? g * n.t[i] / n.D : 0, a_z = has_g ? g * n.t[i] / n.D_z : 0;
  const Real of_target = std::abs(a * n.w[y]) * (1 + n.e_D / kFactors) + std::abs(r);
  const Real smooth = std::abs(a) * n.eps / V, of_z = 2 * std::abs(a_z) * n.zeta;
  const Real of_p = of_target + smooth * n.S_magnitude + (n.zeta > 0 ? of_z * std::abs(at.lse) : 0);
  for (std::size_t v = 0; v < n.V; ++v) {
    const Real p = at.p[v], hit = v == y ? 1 : 0;
    Real d = a * (1 - n.eps) * n.w[y] * (p - hit);
    if (n.eps > 0) d += a * n.eps / V * (n.S * p - n.w[v]);
    if (n.zeta > 0) d += 2 * a_z * n.zeta * at.lse * p;
    if (op.upstream.log_probability) d += r * (hit - p);
    const bool out = at.z[v] == -kInfinity && !std::isnan(p);
    // p log p is 0 where p is.
    if (op.upstream.entropy && !out) d -= h * p * (at.entropy - at.distance[v]);
    Real e = p * of_p * (at.e_p[v] + kFactors + n.e_D) + p * smooth * n.S_magnitude * (kBlock + n.blocks) +
             p * of_z * at.e_lse + hit * of_target * kFactors + smooth * std::abs(n.w[v]) * (kFactors + n.e_D) +
             // Times 2^53, since errors are multiplied by u >= 2^-53.
             (of_p + std::abs(h) * 256) * kVanishing * 0x1p53L;
    if (!out)
      e += std::abs(h) * p *
           ((std::abs(at.distance[v]) + std::abs(at.entropy)) * (at.e_p[v] + kFactors) + at.e_distance[v] + at.e_lse +
            at.e_entropy);
    if (n.cap > 0) {
      const Real ratio = out ? 1 : std::abs(at.z[v]) / n.cap;
      e = e * (1 - ratio * ratio) + std::abs(d) * (2 * ratio * (at.e_z[v] / n.cap + 2 * ratio) + 3);
      d *= 1 - ratio * ratio;
    }
    du[v] = d, e_du[v] = e;
  }
}

}  // namespace

LinearCrossEntropyDefinition Define(const LinearCrossEntropy& op, Products products) {
  const Numbers n(op);
  const Real of_classes = static_cast<Real>(n.V) + kProduct, of_positions = static_cast<Real>(n.N) + kProduct;
  LinearCrossEntropyDefinition want;
  want.grad_input = Old(op.grad.input, op.grad.accumulate, n.N * n.H, of_classes);
  want.grad_weight = Old(op.grad.weight, op.grad.accumulate, n.V * n.H, of_positions);
  want.grad_bias = Old(op.grad.bias, op.grad.accumulate, n.V, of_positions);

  const Reals g = ElementsOr(op.upstream.loss, n.none ? op.N() : 1, 0);
  const Reals r = ElementsOr(op.upstream.log_probability, op.N(), 0), h = ElementsOr(op.upstream.entropy, op.N(), 0);
  std::vector<std::optional<Position>> positions(n.N);
  Reals du(n.V), e_du(n.V);
  for (std::size_t i = 0; i < n.N; ++i) {
    if (n.Ignored(op, i)) continue;
    positions[i].emplace(n, i, products);
    DefineLogitGradient(op, n, *positions[i], i, g[n.none ? i : 0], r[i], h[i], du, e_du);
    for (std::size_t v = 0; v < n.V; ++v) {
      const Real d = n.alpha * du[v], e_d = std::abs(n.alpha) * e_du[v];
      for (std::size_t k = 0; k < n.H; ++k) {
        AddProduct(want.grad_input, i * n.H + k, d, e_d, n.W[v * n.H + k], of_classes, products);
        AddProduct(want.grad_weight, v * n.H + k, d, e_d, n.x[i * n.H + k], of_positions, products);
      }
      AddProduct(want.grad_bias, v, d, e_d, 1, of_positions, Products::kF32);  // nothing is multiplied
    }
  }
  DefineLoss(op, n, positions, want);
  return want;
}

::testing::AssertionResult Within(const Tensor& got, const std::vector<Argmax>& want, double u) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto index = got.Get<std::int64_t>(static_cast<std::int64_t>(i));
    const auto is_it = [&](const Argmax::Rival& rival) { return rival.index == index && rival.gap <= u; };
    if (index == want[i].index || std::ranges::any_of(want[i].rivals, is_it)) continue;
    return ::testing::AssertionFailure() << "position " << i << ": got " << index << ", want " << want[i].index
                                         << " or one of " << want[i].rivals.size() << " rivals";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace onehot::test
