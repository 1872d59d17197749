#include "cpu/cross_entropy_simd.h"

#include <algorithm>

#include "cpu/ordered_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/cross_entropy_simd.cpp"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

#include "cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {

constexpr std::uint32_t kIgnoredClass = kIgnored<std::uint32_t>;

// The loops below are plain ones, each over few arrays that do not overlap, so that the compiler vectorises them for each
// instruction set. What is asked for is decided outside of them.
template <class F>
HWY_INLINE void ForEach(std::int64_t count, const std::uint32_t* HWY_RESTRICT classes, float* HWY_RESTRICT to, F&& f) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = classes[i] != kIgnoredClass ? f(i) : 0.0f;
}

// Ignored positions become 0, whatever their factor.
HWY_INLINE void Multiply(std::int64_t count, const std::uint32_t* HWY_RESTRICT classes, const float* HWY_RESTRICT by,
                         float* HWY_RESTRICT to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = classes[i] != kIgnoredClass ? to[i] * by[i] : 0.0f;
}

HWY_INLINE void MultiplyByClass(std::int64_t count, const std::uint32_t* HWY_RESTRICT classes,
                                const float* HWY_RESTRICT weight, float* HWY_RESTRICT to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] *= classes[i] != kIgnoredClass ? weight[classes[i]] : 0.0f;
}

void Losses(const LossOfTask& t) {
  const LossFactors f = t.factors;
  const float* HWY_RESTRICT const max = t.max;
  const float* HWY_RESTRICT const log_sum = t.log_sum;
  const float* HWY_RESTRICT const target = t.target;
  if (t.lse != nullptr)
    ForEach(t.count, t.classes, t.lse, [=](std::int64_t i) HWY_ATTR { return log_sum[i] + max[i]; });
  if (t.log_probability != nullptr) {
    ForEach(t.count, t.classes, t.log_probability,
            [=](std::int64_t i) HWY_ATTR { return -(log_sum[i] + (max[i] - target[i])); });
  }
  if (t.entropy != nullptr) {
    ForEach(t.count, t.classes, t.entropy,
            [=, moment = t.moment, sum = t.sum](std::int64_t i) HWY_ATTR { return log_sum[i] - moment[i] / sum[i]; });
  }
  if (t.loss != nullptr) {
    ForEach(t.count, t.classes, t.loss, [=](std::int64_t i) HWY_ATTR { return log_sum[i] + (max[i] - target[i]); });
    if (t.weight != nullptr) MultiplyByClass(t.count, t.classes, t.weight, t.loss);
    if (t.linear != nullptr) {
      float* HWY_RESTRICT const loss = t.loss;
      const float* HWY_RESTRICT const reference = t.reference;
      const float* HWY_RESTRICT const linear = t.linear;
      for (std::int64_t i = 0; i < t.count; ++i) {
        const float smooth = f.share * (f.all_weights * (log_sum[i] + (max[i] - reference[i])) - linear[i]);
        const float both = f.label_smoothing == 1 ? smooth : (1 - f.label_smoothing) * loss[i] + smooth;
        loss[i] = t.classes[i] != kIgnoredClass ? both : 0.0f;
      }
    }
    if (t.token_weight != nullptr) Multiply(t.count, t.classes, t.token_weight, t.loss);
  }
  if (t.z_loss != nullptr) {
    ForEach(t.count, t.classes, t.z_loss, [=](std::int64_t i) HWY_ATTR {
      const float lse = log_sum[i] + max[i];
      return f.z_loss * lse * lse;
    });
    if (t.token_weight != nullptr) Multiply(t.count, t.classes, t.token_weight, t.z_loss);
  }
}

void Factors(const FactorTask& t) {
  const LossFactors f = t.factors;
  const std::int64_t count = t.count;
  if (t.grad_loss == nullptr) {  // whatever D is
    std::fill_n(t.alpha, count, 0.0f);
    if (t.beta != nullptr) std::fill_n(t.beta, count, 0.0f);
    if (t.gamma != nullptr) std::fill_n(t.gamma, count, 0.0f);
  } else {
    // alpha is g t for now.
    float* HWY_RESTRICT const alpha = t.alpha;
    if (t.grad_loss_per_position) {
      std::copy_n(t.grad_loss, count, alpha);
    } else {
      std::fill_n(alpha, count, t.grad_loss[0]);
    }
    if (t.token_weight != nullptr) Multiply(count, t.classes, t.token_weight, alpha);
    if (t.beta != nullptr) {
      float* HWY_RESTRICT const beta = t.beta;
      const float* HWY_RESTRICT const max = t.max;
      const float* HWY_RESTRICT const log_sum = t.log_sum;
      // A term whose option is off is left out, whatever its divisor is.
      std::fill_n(beta, count, 0.0f);
      if (f.share != 0)
        for (std::int64_t i = 0; i < count; ++i) beta[i] = alpha[i] / t.D * f.share * f.all_weights;
      if (f.z_loss != 0)
        for (std::int64_t i = 0; i < count; ++i) beta[i] += 2 * (alpha[i] / t.D_z) * f.z_loss * (log_sum[i] + max[i]);
    }
    const float kept = 1 - f.label_smoothing;
    for (std::int64_t i = 0; i < count; ++i) alpha[i] /= t.D;
    if (t.gamma != nullptr) {
      float* HWY_RESTRICT const gamma = t.gamma;
      for (std::int64_t i = 0; i < count; ++i) gamma[i] = alpha[i] * f.share;
    }
    if (kept != 1)
      for (std::int64_t i = 0; i < count; ++i) alpha[i] *= kept;
    if (t.weight != nullptr) MultiplyByClass(count, t.classes, t.weight, alpha);
  }
  if (t.grad_log_probability != nullptr) {
    const float* HWY_RESTRICT const r = t.grad_log_probability;
    for (std::int64_t i = 0; i < count; ++i) t.alpha[i] -= r[i];
  }
}

double BlockSum(const float* terms, std::int64_t count) {
  double lanes[kSumLanes] = {};
  std::int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes)
    for (std::int64_t l = 0; l < kSumLanes; ++l) lanes[l] += static_cast<double>(terms[i + l]);
  for (std::int64_t l = 0; i + l < count; ++l) lanes[l] += static_cast<double>(terms[i + l]);
  return FoldLanes(lanes);
}

WeightSums BlockWeights(const std::uint32_t* classes, std::int64_t count, const float* weight,
                        const float* token_weight) {
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < count; ++i) counted += classes[i] != kIgnoredClass;
  const auto ones = static_cast<double>(counted);
  if (weight == nullptr && token_weight == nullptr) return {ones, ones, counted};
  double lanes[kSumLanes] = {}, lanes_z[kSumLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    if (classes[i] == kIgnoredClass) continue;
    const double t = token_weight == nullptr ? 1.0 : static_cast<double>(token_weight[i]);
    lanes[i % kSumLanes] += (weight == nullptr ? 1.0 : static_cast<double>(weight[classes[i]])) * t;
    lanes_z[i % kSumLanes] += t;
  }
  const double D = FoldLanes(lanes);
  return {D, FoldLanes(lanes_z), counted};
}

void Classes(const ClassRun& classes, std::uint32_t* to) {
  WidenClasses(classes, to);
}

CrossEntropyKernels CrossEntropyTable() {
  return {Losses, Factors, BlockSum, BlockWeights, Classes};
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.h"

namespace onehot::cpu {
HWY_EXPORT(CrossEntropyTable);

const CrossEntropyKernels& CrossEntropyKernelsFor(Isa isa) {
  static const auto tables = ForEachInstructionSet([](Isa each) { return ONEHOT_DISPATCH(CrossEntropyTable, each)(); });
  return tables[static_cast<std::size_t>(isa)];
}

}  // namespace onehot::cpu
#endif
