#include "cpu/nll_forward_simd.h"

#include <algorithm>

#include "cpu/targets_simd.h"
#include "ops/losses.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/nll_forward_simd.cpp"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {

// x[i] = the input of position i and its class; anything where it is ignored. `count` is a multiple of kSumLanes but for
// the last positions.
template <class T, class K>
HWY_INLINE void LoadInputs(const T* input, std::int64_t step, std::int64_t class_stride, const K* classes,
                           std::int64_t count, T* x) {
  std::int64_t i = 0;
  for (; i < count; i += kSumLanes) {
    const std::int64_t lanes = std::min(kSumLanes, count - i);
    const K first = classes[i];
    bool same = step == 1 && lanes == kSumLanes && first != kIgnored<K>;
    for (std::int64_t l = 0; same && l < kSumLanes; ++l) same &= classes[i + l] == first;
    if (same) {  // as in most of a map of labels: one load
      const T* const from = input + i + static_cast<std::int64_t>(first) * class_stride;
      for (std::int64_t l = 0; l < kSumLanes; ++l) x[i + l] = from[l];
    } else {
      for (std::int64_t l = 0; l < lanes; ++l) {
        const K y = classes[i + l];
        const std::int64_t c = y == kIgnored<K> ? 0 : static_cast<std::int64_t>(y);
        x[i + l] = input[(i + l) * step + c * class_stride];
      }
    }
  }
}

template <class T, class K, class F>
HWY_INLINE void ForTerms(const LossTask& task, F&& term) {
  const K* const classes = reinterpret_cast<const K*>(task.classes);
  T x[kSumBlock];
  if (task.C > 0) {
    const T* const input = static_cast<const T*>(task.input->data);
    const Positions& at = *task.input_at;
    // Positions of one run of the innermost axis lie at one distance.
    const std::int64_t run = at.uniform() ? at.count : at.dims[static_cast<std::size_t>(at.rank - 1)];
    const std::int64_t step = at.rank == 0 ? 0 : at.strides[static_cast<std::size_t>(at.rank - 1)];
    for (std::int64_t done = 0; done < task.count;) {
      const std::int64_t position = task.begin + done;
      const std::int64_t count = std::min(task.count - done, run - position % run);
      LoadInputs(input + at.Offset(position), step, task.class_stride, classes + done, count, x + done);
      done += count;
    }
  }
  double w[kSumLanes], v[kSumLanes];
  for (std::int64_t i = 0; i < task.count; i += kSumLanes) {
    const std::int64_t lanes = std::min(kSumLanes, task.count - i);
    for (std::int64_t l = 0; l < kSumLanes; ++l) w[l] = v[l] = 0;
    for (std::int64_t l = 0; l < lanes; ++l) {
      const K y = classes[i + l];
      double weight = 1;
      if (task.weight != nullptr) weight = task.weight[std::min<std::int64_t>(y, task.C - 1)];
      if (task.token_weight != nullptr) weight *= task.token_weight[i + l];
      const bool live = y != kIgnored<K>;
      w[l] = live ? weight : 0.0;
      v[l] = live ? -(weight * static_cast<double>(Widen(x[i + l]))) : 0.0;
    }
    term(i, w, v);
  }
}

template <class F>
HWY_INLINE void ForTypes(const LossTask& task, F&& f) {
  ForDType(LossTypes{}, task.input->dtype, [&]<class T>() HWY_ATTR {
    ForClassType(task.class_bytes, [&]<class K>() HWY_ATTR { f.template operator()<T, K>(); });
  });
}

LossSums Sums(const LossTask& task) {
  double loss[kSumLanes] = {}, weight[kSumLanes] = {};
  std::int64_t counted = 0;
  ForTypes(task, [&]<class T, class K>() HWY_ATTR {
    const K* const classes = reinterpret_cast<const K*>(task.classes);
    for (std::int64_t i = 0; i < task.count; ++i) counted += classes[i] != kIgnored<K>;
    if (counted == 0) return;
    double losses[kSumLanes] = {}, weights[kSumLanes] = {};
    ForTerms<T, K>(task, [&](std::int64_t, const double* w, const double* v) HWY_ATTR {
      for (std::int64_t l = 0; l < kSumLanes; ++l) losses[l] += v[l];
      for (std::int64_t l = 0; l < kSumLanes; ++l) weights[l] += w[l];
    });
    std::copy_n(losses, kSumLanes, loss);
    std::copy_n(weights, kSumLanes, weight);
  });
  for (std::int64_t width = kSumLanes / 2; width > 0; width /= 2) {
    for (std::int64_t j = 0; j < width; ++j) {
      loss[j] += loss[j + width];
      weight[j] += weight[j + width];
    }
  }
  return {loss[0], weight[0], counted};
}

void Terms(const LossTask& task, double* terms) {
  ForTypes(task, [&]<class T, class K>() HWY_ATTR {
    ForTerms<T, K>(task, [&](std::int64_t i, const double*, const double* v)
                             HWY_ATTR { std::copy_n(v, std::min(kSumLanes, task.count - i), terms + i); });
  });
}

NllForwardKernels NllForwardTable() {
  return {Sums, Terms};
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.h"

namespace onehot::cpu {
HWY_EXPORT(NllForwardTable);

const NllForwardKernels& NllForwardKernelsFor(Isa isa) {
  static const auto tables = ForEachInstructionSet([](Isa each) { return ONEHOT_DISPATCH(NllForwardTable, each)(); });
  return tables[static_cast<std::size_t>(isa)];
}

}  // namespace onehot::cpu
#endif
