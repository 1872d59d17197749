#include "tests/native/linear_cross_entropy_shards_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tests/native/linear_cross_entropy_oracle_parts.h"

namespace onehot::test {
namespace {

using namespace linear;  // NOLINT: the oracle of one operator in several files

Real Sum(const Reals& terms) {
  Real sum = 0;
  for (const Real term : terms) sum += term;
  return sum;
}

Real Magnitude(const Reals& terms) {
  Real sum = 0;
  for (const Real term : terms) sum += std::abs(term);
  return sum;
}

Real Blocks(std::size_t classes) {
  return std::ceil(static_cast<Real>(classes) / 1024);
}

// The numbers of a position that is not ignored. w: class weights of the shard; y: in the shard, or not.
void AddStatistics(const Logits& logits, const Reals& w, std::optional<std::size_t> y, std::int64_t first, bool f32,
                   StatisticsDefinition& want) {
  const Reals &z = logits.z, &e_z = logits.e_z;
  const std::size_t V = z.size();
  if (V == 0) {
    want.max.Add(-kInfinity, 0);
    for (Bounded* output : {&want.sum_exp, &want.target_logit, &want.smoothing, &want.moment}) output->Add(0, 0);
    want.argmax.emplace_back();
    return;
  }
  Argmax argmax = DefineArgmax(logits);
  const Real max = z[static_cast<std::size_t>(argmax.index)];
  // The largest of rounded logits may be another than the largest logit, if that is close. Units of u are at most 2^-22.
  Real e_max = 0;
  for (std::size_t v = 0; v < V; ++v)
    if (const Real reach = e_z[v] - (max - z[v]) * 0x1p22L; reach > e_max) e_max = reach;

  Real sum = 0, moment = 0, smoothing = 0, e_shifted = 0, e_moment = 0, e_smoothing = 0, steepness = 0;
  for (std::size_t v = 0; v < V; ++v) {
    if (z[v] == -kInfinity) {
      if (w[v] != 0) smoothing = kInfinity;
      continue;
    }
    const Real below = max - z[v], p = std::exp(-below), e_d = e_z[v] + e_max + below;
    sum += p, moment -= p * below, smoothing += w[v] * below;
    e_shifted += p * e_d, e_moment += p * (1 + below) * (e_d + kFunction), steepness += p * (1 + below);
    e_smoothing += std::abs(w[v]) * (e_z[v] + e_max + below * (2 * kBlock + kFold * Blocks(V) + kFactors));
  }
  e_shifted /= std::max(sum, std::numeric_limits<Real>::min());
  const Real e_sum = e_shifted + kFunction + kBlock + Blocks(V) * (kFold + 2 * e_shifted);
  e_moment += -moment * 2 * (kFunction + kBlock + Blocks(V) * (kFold + e_shifted));
  // Distances may be those from max in f32, or before it was rounded to that.
  const Real rounding = f32 && std::isfinite(max) ? std::abs(max) * 0x1p-24L : 0;
  want.max.Add(max, e_max);
  want.sum_exp.Add(sum, sum * e_sum, sum * rounding);
  want.moment.Add(moment, e_moment, steepness * rounding + static_cast<Real>(V) * 128 * kVanishing);
  want.smoothing.Add(smoothing, e_smoothing, Magnitude(w) * rounding);
  if (y && z[*y] == -kInfinity)
    want.target_logit.Add(-kInfinity, 0);  // also with max there, so that a fold with other shards is right
  else if (y)
    want.target_logit.Add(z[*y] - max, e_z[*y] + e_max + max - z[*y], rounding);
  else
    want.target_logit.Add(0, 0);
  argmax.index += first;
  for (Argmax::Rival& rival : argmax.rivals) rival.index += first;
  want.argmax.push_back(argmax);
}

}  // namespace

StatisticsDefinition Define(const LinearCrossEntropyStatistics& op, Products products) {
  const auto V = static_cast<std::size_t>(op.V()), H = static_cast<std::size_t>(op.H());
  const std::int64_t first = op.shard ? op.shard->first : 0, all = op.shard ? op.shard->num_classes : op.V();
  const Reals x = Elements(op.input), W = Elements(op.weight), bias = ElementsOr(op.options.bias, op.V(), 0);
  const Reals weights = ElementsOr(op.options.loss.weight, all, 1);
  const Reals w(weights.begin() + first, weights.begin() + first + op.V());
  const std::vector<std::int64_t> targets = TargetsOf(op.target);
  StatisticsDefinition want;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == op.options.loss.ignore_index) {
      for (Bounded* output : {&want.max, &want.sum_exp, &want.target_logit, &want.smoothing, &want.moment})
        output->Add(0, 0);
      for (std::size_t v = 0; v < V; ++v) want.logits.Add(0, 0);
      want.argmax.emplace_back();
      continue;
    }
    const Logits logits =
        DefineLogits(x.data() + i * H, W, bias, op.options.logit_scale, op.options.loss.softcap, products);
    for (std::size_t v = 0; v < V; ++v) want.logits.Add(logits.z[v], logits.e_z[v]);
    const std::int64_t row = targets[i] - first;
    AddStatistics(logits, w, row >= 0 && row < op.V() ? std::optional(static_cast<std::size_t>(row)) : std::nullopt,
                  first, op.input.dtype != DType::kF64, want);
  }
  return want;
}

ShardLossDefinition Define(const LinearCrossEntropyLoss& op) {
  const CrossEntropyOptions& options = op.options;
  const auto N = static_cast<std::size_t>(op.N());
  const Reals max = Elements(op.max), sum_exp = Elements(op.sum_exp), t = ElementsOr(options.token_weight, op.N(), 1);
  const Reals target_logit = ElementsOr(op.target_logit, op.N(), 0), moment = ElementsOr(op.moment, op.N(), 0);
  const Reals smoothing = ElementsOr(op.smoothing, op.N(), 0), w = ElementsOr(options.weight, op.num_classes, 1);
  const std::vector<std::int64_t> y = op.target ? TargetsOf(*op.target) : std::vector<std::int64_t>(N, 0);
  const std::size_t columns = op.logits ? static_cast<std::size_t>(op.logits->dim(-1)) : 0;
  const Reals logits = op.logits ? Elements(*op.logits) : Reals();
  const Real eps = options.label_smoothing, zeta = options.z_loss, V = static_cast<Real>(op.num_classes);
  const Real S = Sum(w), S_size = Magnitude(w), e_S = kBlock + Blocks(w.size());
  const bool none = options.reduction == Reduction::kNone, mean = options.reduction == Reduction::kMean;

  ShardLossDefinition want;
  Real sum = 0, e_sum = 0, size = 0, sum_z = 0, e_sum_z = 0, total = 0, total_z = 0, total_size = 0;
  std::int64_t live = 0;
  for (std::size_t i = 0; i < N; ++i) {
    if (op.target && y[i] == options.ignore_index) {
      for (Bounded* output : {&want.lse, &want.log_probability, &want.entropy}) output->Add(0, 0);
      if (none) want.loss.Add(0, 0);
      for (std::size_t v = 0; v < columns; ++v) want.probability.Add(0, 0);
      continue;
    }
    ++live;
    const Real log = std::log(sum_exp[i]), e_log = kFunction * std::abs(log), lse = max[i] + log;
    const Real e_lse = e_log + std::abs(lse);
    want.lse.Add(lse, e_lse);
    const Real distance = log - target_logit[i], e_distance = e_log + std::abs(distance);
    want.log_probability.Add(-distance, e_distance);
    const Real mean_z = moment[i] / sum_exp[i], entropy = log - mean_z;
    want.entropy.Add(entropy, e_log + 2 * std::abs(mean_z) + std::abs(entropy));
    for (std::size_t v = 0; v < columns; ++v) {
      const Real shifted = logits[i * columns + v] - max[i], p = std::exp(shifted) / sum_exp[i];
      want.probability.Add(p, p == 0 ? 0 : p * (std::abs(shifted) + kFunction + 2), kVanishing);
    }

    const Real w_y = op.target && !w.empty() ? w[static_cast<std::size_t>(y[i])] : 1, t_size = std::abs(t[i]);
    Real l = (1 - eps) * w_y * distance, e_l = std::abs(w_y) * (e_distance + kFactors * std::abs(distance));
    if (eps > 0) {
      l += eps / V * (smoothing[i] + log * S);
      e_l += eps / V * (kFactors * std::abs(smoothing[i]) + S_size * (e_log + std::abs(log) * (e_S + kFactors)));
    }
    const Real q = zeta > 0 ? zeta * lse * lse : 0;
    const Real e_q = zeta > 0 ? zeta * (2 * std::abs(lse) * e_lse + kFactors * lse * lse) : 0;
    if (none) want.loss.Add(t[i] * (l + q), t_size * (e_l + e_q + 3 * (std::abs(l) + q)));
    sum += t[i] * l, e_sum += t_size * (e_l + 3 * std::abs(l)), size += t_size * std::abs(l);
    sum_z += t[i] * q, e_sum_z += t_size * (e_q + 3 * q);
    total += t[i] * w_y, total_z += t[i], total_size += std::abs(t[i] * w_y);
  }
  want.total_weight.Add(none ? 0 : total, 0, none ? 0 : SumError(N) * total_size);
  if (none) return want;
  const Real given = mean && options.denominator ? Elements(*options.denominator)[0] : 0;
  const Real D = !mean                 ? 1
                 : options.denominator ? given
                                       : total,
             D_z = !mean                 ? 1
                   : options.denominator ? given
                                         : total_z;
  if (mean && live == 0 && options.zero_if_empty) {
    want.loss.Add(0, 0);
    return want;
  }
  const bool z = zeta > 0;
  want.loss.Add(
      sum / D + (z ? sum_z / D_z : 0), e_sum / std::abs(D) + (z ? e_sum_z / std::abs(D_z) : 0),
      // Twice: for the sum and for D. With weights of both signs D may cancel.
      SumError(N) * (size / std::abs(D) * (1 + total_size / std::abs(D)) + (z ? 2 * std::abs(sum_z / D_z) : 0)));
  return want;
}

}  // namespace onehot::test
