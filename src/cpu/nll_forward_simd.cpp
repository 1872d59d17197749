#include "cpu/nll_forward_simd.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cpu/ordered_sum.h"
#include "cpu/rows_simd.h"
#include "cpu/targets_simd.h"
#include "ops/losses.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/nll_forward_simd.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

#include "cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether all of kSumLanes classes are the same and none is ignored, as in most of a map of labels.
template <class K>
HWY_INLINE bool AllSame(const K* classes) {
  const hn::CappedTag<K, kSumLanes> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto first = hn::Set(d, classes[0]);
  bool same = classes[0] != kIgnored<K>;
  for (std::int64_t l = 0; l < kSumLanes; l += lanes) same &= hn::AllTrue(d, hn::Eq(hn::LoadU(d, classes + l), first));
  return same;
}

// x[i] = the input of position i and its class, 0 where it is ignored.
template <class T, class K>
HWY_INLINE void LoadInputs(const T* input, std::int64_t step, std::int64_t class_stride, const K* classes,
                           std::int64_t count, T* x) {
  // Positions to look ahead. Labels as random as may be name a line each, and 64 lines are what a core keeps on the way.
  // Where labels are alike a line has 16 positions or more, which take some 10 ns: 256 are the latency of memory.
  constexpr std::int64_t kAhead = 64, kAheadAlike = 256;
  const auto at = [&](std::int64_t i) HWY_ATTR {
    const K y = classes[i];
    return input + i * step + (y == kIgnored<K> ? 0 : static_cast<std::int64_t>(y)) * class_stride;
  };
  std::int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    if (step == 1 && AllSame(classes + i)) {
      if (i + kAheadAlike + kSumLanes <= count) {
        hwy::Prefetch(at(i + kAheadAlike));
        hwy::Prefetch(at(i + kAheadAlike + kSumLanes - 1));
      }
      std::memcpy(x + i, at(i), kSumLanes * sizeof(T));
      continue;
    }
    if (i + kAhead + kSumLanes <= count)
      for (std::int64_t l = 0; l < kSumLanes; ++l) hwy::Prefetch(at(i + kAhead + l));
    for (std::int64_t l = 0; l < kSumLanes; ++l) {
      const T value = *at(i + l);
      x[i + l] = classes[i + l] == kIgnored<K> ? T{} : value;
    }
  }
  for (; i < count; ++i) x[i] = classes[i] == kIgnored<K> ? T{} : *at(i);
}

// The inputs of a block, as above; zeros after them up to whole kSumLanes.
template <class T, class K>
HWY_INLINE void LoadBlock(const LossTask& task, T* x) {
  const K* const classes = reinterpret_cast<const K*>(task.classes);
  const std::int64_t padded = (task.count + kSumLanes - 1) / kSumLanes * kSumLanes;
  std::fill(x + (task.C > 0 ? task.count : 0), x + padded, T{});
  if (task.C == 0) return;
  const T* const input = static_cast<const T*>(task.input->data);
  const Positions& at = *task.input_at;
  for (std::int64_t done = 0; done < task.count;) {
    const std::int64_t position = task.begin + done;
    const std::int64_t count = std::min(task.count - done, at.run() - position % at.run());
    LoadInputs(input + at.Offset(position), at.step(), task.class_stride, classes + done, count, x + done);
    done += count;
  }
}

// w_y t of each position, 0 where it is ignored and after the last; false if all of them are 1 or ignored.
template <class K>
HWY_INLINE bool LoadWeights(const LossTask& task, double* w) {
  if (task.C == 0 || (task.weight == nullptr && task.token_weight == nullptr)) return false;  // C = 0: all are ignored
  const K* const classes = reinterpret_cast<const K*>(task.classes);
  for (std::int64_t i = 0; i < task.count; ++i) {
    const K y = classes[i];
    double weight = 1;
    if (task.weight != nullptr) weight = task.weight[std::min<std::int64_t>(y, task.C - 1)];
    if (task.token_weight != nullptr) weight *= task.token_weight[i];
    w[i] = y == kIgnored<K> ? 0.0 : weight;
  }
  std::fill(w + task.count, w + (task.count + kSumLanes - 1) / kSumLanes * kSumLanes, 0.0);
  return true;
}

template <class F>
HWY_INLINE void ForTypes(const LossTask& task, F&& f) {
  ForDType(LossTypes{}, task.input->dtype, [&]<class T>() HWY_ATTR {
    ForClassType(task.class_bytes, [&]<class K>() HWY_ATTR { f.template operator()<T, K>(); });
  });
}

// x as f64, wherever it starts.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadDouble(D d, const T* x) {
  if constexpr (std::is_same_v<T, double>) {
    return hn::LoadU(d, x);
  } else {
    const hn::Rebind<float, D> df;
    return hn::PromoteTo(d, LoadWide(df, x));
  }
}

template <class T, class K>
HWY_NOINLINE LossSums SumsOf(const LossTask& task) {
  const K* const classes = reinterpret_cast<const K*>(task.classes);
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < task.count; ++i) counted += classes[i] != kIgnored<K>;
  if (counted == 0) return {0, 0, 0};
  HWY_ALIGN T x[kSumBlock];
  HWY_ALIGN double w[kSumBlock];
  HWY_ALIGN double losses[kSumLanes] = {}, weights[kSumLanes] = {};
  LoadBlock<T, K>(task, x);
  const bool weighted = LoadWeights<K>(task, w);
  const hn::CappedTag<double, kSumLanes> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // Ignored positions add -0, or -(0 * 0), which changes no sum that began at +0.
  for (std::int64_t i = 0; i < task.count; i += kSumLanes) {
    for (std::int64_t l = 0; l < kSumLanes; l += lanes) {
      auto v = LoadDouble(d, x + i + l);
      if (weighted) {
        const auto weight = hn::Load(d, w + i + l);
        v = hn::Mul(weight, v);
        hn::Store(hn::Add(hn::Load(d, weights + l), weight), d, weights + l);
      }
      hn::Store(hn::Sub(hn::Load(d, losses + l), v), d, losses + l);
    }
  }
  const double loss = FoldLanes(losses);
  return {loss, weighted ? FoldLanes(weights) : static_cast<double>(counted), counted};
}

LossSums Sums(const LossTask& task) {
  LossSums sums{};
  ForTypes(task, [&]<class T, class K>() HWY_ATTR { sums = SumsOf<T, K>(task); });
  return sums;
}

void Terms(const LossTask& task, double* terms) {
  ForTypes(task, [&]<class T, class K>() HWY_ATTR {
    const K* const classes = reinterpret_cast<const K*>(task.classes);
    HWY_ALIGN T x[kSumBlock];
    HWY_ALIGN double w[kSumBlock];
    LoadBlock<T, K>(task, x);
    const bool weighted = LoadWeights<K>(task, w);
    for (std::int64_t i = 0; i < task.count; ++i) {
      const auto value = static_cast<double>(Widen(x[i]));
      terms[i] = classes[i] == kIgnored<K> ? 0.0 : -(weighted ? w[i] * value : value);
    }
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
