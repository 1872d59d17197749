#include "cpu/cross_entropy_simd.h"

#include <algorithm>

#include "cpu/nll_forward_simd.h"
#include "cpu/targets_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/cross_entropy_simd.cpp"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {

constexpr std::uint32_t kNone = kIgnored<std::uint32_t>;

// Plain loops: the compiler vectorises them for each instruction set. Branches on what is asked for do not depend on the
// position.
void Losses(const LossOfTask& t) {
  const LossFactors f = t.factors;
  for (std::int64_t i = 0; i < t.count; ++i) {
    const bool live = t.classes[i] != kNone;
    if (t.lse != nullptr) t.lse[i] = live ? t.log_sum[i] + t.max[i] : 0.0f;
    if (t.log_probability != nullptr) t.log_probability[i] = live ? -(t.log_sum[i] + (t.max[i] - t.target[i])) : 0.0f;
  }
  if (t.entropy != nullptr)
    for (std::int64_t i = 0; i < t.count; ++i)
      t.entropy[i] = t.classes[i] != kNone ? t.log_sum[i] - t.moment[i] / t.sum[i] : 0.0f;
  if (t.loss != nullptr) {
    for (std::int64_t i = 0; i < t.count; ++i) {
      const std::uint32_t y = t.classes[i];
      float loss = t.log_sum[i] + (t.max[i] - t.target[i]);
      if (t.weight != nullptr) loss *= y != kNone ? t.weight[y] : 0.0f;
      if (t.linear != nullptr) {
        const float smooth = f.share * (f.all_weights * (t.log_sum[i] + (t.max[i] - t.reference[i])) - t.linear[i]);
        loss = f.label_smoothing == 1 ? smooth : (1 - f.label_smoothing) * loss + smooth;
      }
      if (t.token_weight != nullptr) loss *= t.token_weight[i];
      t.loss[i] = y != kNone ? loss : 0.0f;
    }
  }
  if (t.z_loss != nullptr) {
    for (std::int64_t i = 0; i < t.count; ++i) {
      const float lse = t.log_sum[i] + t.max[i];
      float z_loss = f.z_loss * lse * lse;
      if (t.token_weight != nullptr) z_loss *= t.token_weight[i];
      t.z_loss[i] = t.classes[i] != kNone ? z_loss : 0.0f;
    }
  }
}

void Factors(const FactorTask& t) {
  const LossFactors f = t.factors;
  for (std::int64_t i = 0; i < t.count; ++i) {
    const std::uint32_t y = t.classes[i];
    float g = t.grad_loss == nullptr ? 0.0f : t.grad_loss[t.grad_loss_per_position ? i : 0];
    if (t.token_weight != nullptr) g *= t.token_weight[i];
    const float a = g / t.D, a_z = g / t.D_z;
    float alpha = a * (1 - f.label_smoothing);
    if (t.weight != nullptr) alpha *= y != kNone ? t.weight[y] : 0.0f;
    if (t.grad_loss == nullptr) alpha = 0;  // whatever D is
    if (t.grad_log_probability != nullptr) alpha -= t.grad_log_probability[i];
    t.alpha[i] = alpha;
    if (t.beta != nullptr) {
      const float beta = a * f.share * f.all_weights + 2 * a_z * f.z_loss * (t.log_sum[i] + t.max[i]);
      t.beta[i] = t.grad_loss == nullptr ? 0.0f : beta;
    }
    if (t.gamma != nullptr) t.gamma[i] = t.grad_loss == nullptr ? 0.0f : a * f.share;
  }
}

double FoldLanes(double* lanes) {
  for (std::int64_t width = kSumLanes / 2; width > 0; width /= 2)
    for (std::int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
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
  for (std::int64_t i = 0; i < count; ++i) counted += classes[i] != kNone;
  const auto ones = static_cast<double>(counted);
  if (weight == nullptr && token_weight == nullptr) return {ones, ones, counted};
  double lanes[kSumLanes] = {}, lanes_z[kSumLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    if (classes[i] == kNone) continue;
    const double t = token_weight == nullptr ? 1.0 : static_cast<double>(token_weight[i]);
    lanes[i % kSumLanes] += (weight == nullptr ? 1.0 : static_cast<double>(weight[classes[i]])) * t;
    lanes_z[i % kSumLanes] += t;
  }
  const double D = FoldLanes(lanes);
  return {D, FoldLanes(lanes_z), counted};
}

void WidenClasses(const std::byte* classes, int bytes, std::int64_t count, std::uint32_t* to) {
  ForClassType(bytes, [&]<class K>() HWY_ATTR {
    const K* const from = reinterpret_cast<const K*>(classes);
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] == kIgnored<K> ? kNone : std::uint32_t{from[i]};
  });
}

CrossEntropyKernels CrossEntropyTable() {
  return {Losses, Factors, BlockSum, BlockWeights, WidenClasses};
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
