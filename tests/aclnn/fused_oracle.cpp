#include "tests/aclnn/fused_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/native/oracle.h"

namespace onehot::test::fused {
namespace {

// The unit roundoff of float. Bounds are to first order in it; kMore covers the rest: no bound here is above 1e-2
// relative, and squares of that are below 1 % of it.
constexpr double kU = 0x1p-24, kMore = 1.01;
// exp and log are taken to be right to 4 units in the last place.
constexpr double kFunction = 8 * kU;
// A float below 2^-126 may count as 0.
constexpr double kVanishing = 0x1p-126;

std::size_t Size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

// Each logit is a chain of H fused multiply-adds: H u times the sum of |terms|.
Bounded Logits(const Tensor& input, const Tensor& weight) {
  const std::int64_t N = input.layout().dim(0), H = input.layout().dim(1), V = weight.layout().dim(0);
  const std::vector<double> x = input.Values(), w = weight.Values();
  Bounded logits;
  for (std::int64_t b = 0; b < N; ++b)
    for (std::int64_t v = 0; v < V; ++v) {
      double sum = 0, magnitude = 0;
      for (std::int64_t h = 0; h < H; ++h) {
        const double term = x[Size(b * H + h)] * w[Size(v * H + h)];
        sum += term, magnitude += std::abs(term);
      }
      logits.Add(sum, kMore * static_cast<double>(H) * kU * magnitude);
    }
  return logits;
}

// Relative, of e^(logit - max): what the difference is off by, its rounding, and the function.
double ExpError(double distance, double logit_error) {
  return kMore * (logit_error + kU * std::abs(distance) + kFunction);
}

template <class At>
::testing::AssertionResult WithinBounds(std::int64_t count, const Bounded& want, At&& at, DType dtype, bool round) {
  if (count != static_cast<std::int64_t>(want.value.size()))
    return ::testing::AssertionFailure() << count << " elements, want " << want.value.size();
  std::int64_t outside = 0, worst = 0;
  double worst_ratio = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    const double got = at(k), value = want.value[Size(k)];
    double bound = want.bound[Size(k)];
    if (round && std::isfinite(value))
      bound += static_cast<double>(HalfUnitInLastPlace(dtype, std::abs(value) + bound));
    const double error = std::abs(got - value);
    if (got == value || (std::isfinite(value) && error <= bound)) continue;
    const double ratio = std::isfinite(error) ? error / bound : std::numeric_limits<double>::infinity();
    if (outside++ == 0 || ratio > worst_ratio) worst_ratio = ratio, worst = k;
  }
  if (outside == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "worst at " << worst << ": got " << at(worst) << ", want "
                                       << want.value[Size(worst)] << " within " << want.bound[Size(worst)]
                                       << " and a rounding, off by " << worst_ratio << " times that; " << outside
                                       << " of " << count << " outside";
}

}  // namespace

::testing::AssertionResult Within(const Tensor& got, const Bounded& want) {
  return WithinBounds(
      got.numel(), want, [&](std::int64_t k) { return got.Value(k); }, got.layout().dtype, true);
}

::testing::AssertionResult Within(const std::vector<double>& got, const Bounded& want) {
  return WithinBounds(
      static_cast<std::int64_t>(got.size()), want, [&](std::int64_t k) { return got[Size(k)]; }, DType::kF64, false);
}

Bounded Exactly(const Tensor& tensor) {
  return {tensor.Values(), std::vector<double>(Size(tensor.numel()))};
}

std::int64_t Integer(const Tensor& tensor, std::int64_t position) {
  return tensor.layout().dtype == DType::kI64 ? tensor.Get<std::int64_t>(position) : tensor.Get<std::int32_t>(position);
}

Statistics DefineStatistics(const Tensor& input, const Tensor& weight, const Tensor& target, std::int64_t start,
                            std::int64_t end) {
  const std::int64_t N = input.layout().dim(0), V = weight.layout().dim(0);
  Statistics all{.logits = Logits(input, weight), .max = {}, .sum_exp = {}, .predicted = {}, .row = {}};
  for (std::int64_t b = 0; b < N; ++b) {
    const auto first = static_cast<std::ptrdiff_t>(b * V), last = first + static_cast<std::ptrdiff_t>(V);
    const std::vector<double> logit(all.logits.value.begin() + first, all.logits.value.begin() + last);
    const std::vector<double> error(all.logits.bound.begin() + first, all.logits.bound.begin() + last);
    double max = -std::numeric_limits<double>::infinity(), off = 0;
    for (const double x : logit) max = std::max(max, x);
    for (const double e : error) off = std::max(off, e);
    all.max.Add(max, off);

    // V additions in any order; the maximum that is subtracted is off as well.
    double sum = 0, sum_error = 0;
    for (std::size_t v = 0; v < logit.size(); ++v) {
      const double p = std::exp(logit[v] - max);
      sum += p;
      sum_error += p * ExpError(logit[v] - max, error[v] + off) + kVanishing;
    }
    all.sum_exp.Add(sum, sum_error + kMore * static_cast<double>(V) * kU * sum);

    const std::int64_t t = Integer(target, b);
    const bool here = t >= start && t <= end && t - start < V;
    all.row.push_back(here ? t - start : -1);
    const double predicted = here ? logit[Size(t - start)] - max : 0;
    all.predicted.Add(predicted, here ? error[Size(t - start)] + off : 0);
  }
  return all;
}

Bounded DefineLoss(const Tensor& sum_exp, const Tensor& predicted) {
  Bounded loss;
  for (std::int64_t b = 0; b < sum_exp.numel(); ++b) {
    const double log_sum = std::log(sum_exp.Value(b));
    loss.Add(log_sum - predicted.Value(b), kMore * kFunction * std::abs(log_sum));
  }
  return loss;
}

Bounded DefineSoftmax(const Bounded& logits, const Tensor& max, const Tensor& sum_exp) {
  const std::size_t N = Size(max.numel()), V = N == 0 ? 0 : logits.value.size() / N;
  Bounded softmax;
  for (std::size_t k = 0; k < logits.value.size(); ++k) {
    const auto b = static_cast<std::int64_t>(k / V);
    const double distance = logits.value[k] - max.Value(b);
    const double p = std::exp(distance) / sum_exp.Value(b);
    // Beside the exponential a quotient, or a reciprocal and a product.
    softmax.Add(p, p * (ExpError(distance, logits.bound[k]) + 2 * kMore * kU) + kVanishing);
  }
  return softmax;
}

Bounded DefineProbability(const Tensor& input, const Tensor& weight, const Tensor& max, const Tensor& sum_exp,
                          const std::vector<double>& sum_exp_error) {
  Bounded p = DefineSoftmax(Logits(input, weight), max, sum_exp);
  const std::size_t V = Size(weight.layout().dim(0));
  if (!sum_exp_error.empty())
    for (std::size_t k = 0; k < p.value.size(); ++k) p.bound[k] += kMore * p.value[k] * sum_exp_error[k / V];
  return p;
}

Gradients DefineGradients(const Tensor& grad, const Tensor& input, const Tensor& weight,
                          const std::vector<std::int64_t>& row, const Bounded& probability) {
  const std::int64_t N = input.layout().dim(0), H = input.layout().dim(1), V = weight.layout().dim(0);
  const std::vector<double> x = input.Values(), w = weight.Values();
  // p - 1, the product with grad and the packing of it round once each, errors and all. For products of bf16 it is
  // rounded to bf16 too, half a unit of 2^-7 in [1, 2).
  const double rounded = 3 * kU + (input.layout().dtype == DType::kBF16 ? 0x1p-8 : 0);
  std::vector<double> g, g_error;
  for (std::int64_t b = 0; b < N; ++b)
    for (std::int64_t v = 0; v < V; ++v) {
      const double upstream = grad.Value(b), hot = v == row[Size(b)] ? 1 : 0;
      const std::size_t k = Size(b * V + v);
      g.push_back(upstream * (probability.value[k] - hot));
      g_error.push_back((1 + rounded) * std::abs(upstream) * probability.bound[k] +
                        kMore * rounded * std::abs(g.back()));
    }
  // A chain over `terms`, each rounding at most the sum of magnitudes.
  Gradients all;
  const auto product = [](std::int64_t terms, auto&& term, auto&& term_error, Bounded& out) {
    double sum = 0, magnitude = 0, error = 0;
    for (std::int64_t k = 0; k < terms; ++k) {
      sum += term(k), magnitude += std::abs(term(k)), error += std::abs(term_error(k));
    }
    out.Add(sum, error + kMore * static_cast<double>(terms) * kU * (magnitude + error));
  };
  for (std::int64_t b = 0; b < N; ++b)
    for (std::int64_t h = 0; h < H; ++h)
      product(
          V, [&](std::int64_t v) { return g[Size(b * V + v)] * w[Size(v * H + h)]; },
          [&](std::int64_t v) { return g_error[Size(b * V + v)] * w[Size(v * H + h)]; }, all.input);
  for (std::int64_t v = 0; v < V; ++v)
    for (std::int64_t h = 0; h < H; ++h)
      product(
          N, [&](std::int64_t b) { return g[Size(b * V + v)] * x[Size(b * H + h)]; },
          [&](std::int64_t b) { return g_error[Size(b * V + v)] * x[Size(b * H + h)]; }, all.weight);
  return all;
}

}  // namespace onehot::test::fused
