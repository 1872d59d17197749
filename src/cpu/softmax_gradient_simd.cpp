#include "cpu/softmax_simd.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/targets_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/softmax_gradient_simd.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

#include "cpu/logits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Every element by itself, so vectors may begin anywhere.

// The lanes of a vector are positions (planes) or classes (rows): what differs between them is where operands come from.
// `hit` is 1 in the lane of the target.
template <class D>
struct Operands {
  hn::Vec<D> max, log_sum, alpha, beta, h, entropy, gamma, weight, hit;
};

template <bool kPlain, class D>
HWY_INLINE hn::Vec<D> GradientOf(D d, hn::Vec<D> z, const Operands<D>& o, const SoftmaxGradientTask& task,
                                 const Cap& cap) {
  auto x = hn::Sub(z, o.max);
  if (task.log_sum != nullptr) x = hn::Sub(x, o.log_sum);
  const auto p = Exp(d, x);
  auto dz = hn::Mul(o.alpha, hn::Sub(p, o.hit));
  if constexpr (!kPlain) {
    if (task.h != nullptr) {
      const auto factor = hn::Sub(o.beta, hn::Mul(o.h, hn::Add(x, o.entropy)));
      dz = hn::Add(dz, hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), hn::Mul(p, factor)));
    } else {
      dz = hn::Add(dz, hn::Mul(p, o.beta));
    }
    if (task.gamma != nullptr) dz = hn::Sub(dz, hn::Mul(o.gamma, o.weight));
    if (cap.on) {
      const auto ratio = hn::Mul(z, hn::Set(d, cap.inverse));
      const auto slope = hn::Sub(hn::Set(d, 1.0f), hn::Mul(ratio, ratio));
      dz = hn::IfThenZeroElse(hn::Eq(z, hn::Set(d, kMinusInfinity)), hn::Mul(dz, slope));
    }
  }
  return dz;
}

// Elements that loops store at a time: as many as fill a vector.
template <class O>
HWY_INLINE std::int64_t StepOf(std::int64_t lanes) {
  return sizeof(O) == 2 ? 2 * lanes : lanes;
}

// Stores a step from vectors at(0) and, if it has two, at(lanes).
template <class O, class D, class F>
HWY_INLINE void StoreStep(D d, O* out, bool stream, F&& at) {
  if constexpr (sizeof(O) == 2) {
    const auto low = at(0), high = at(static_cast<std::int64_t>(hn::Lanes(d)));
    StorePair(low, high, d, out, stream);
  } else {
    StoreNarrow(at(0), d, out, stream);
  }
}

template <class T, class O, bool kPlain>
HWY_NOINLINE void PlaneGradient(const SoftmaxGradientTask& task) {
  const LogitTag d;
  const hn::RebindToUnsigned<LogitTag> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Logits& logits = task.logits;
  const Cap cap(logits.softcap);
  const std::int64_t ahead = RowsAhead<T>(logits.count) * logits.class_step;
  constexpr std::uint32_t kNone = kIgnored<std::uint32_t>;
  const bool ignored = std::find(task.classes, task.classes + logits.count, kNone) != task.classes + logits.count;
  for (std::int64_t v = 0; v < logits.C; ++v) {
    const T* const row = reinterpret_cast<const T*>(logits.data) + v * logits.class_step;
    O* const out = reinterpret_cast<O*>(task.out) + v * task.out_class_step;
    const auto class_here = hn::Set(du, static_cast<std::uint32_t>(v));
    const auto weight = hn::Set(d, task.weight == nullptr ? 1.0f : task.weight[v]);
    // Of a vector of positions from i on, or of the first n of them.
    const auto gradient = [&](std::int64_t i, std::int64_t n, auto whole) ONEHOT_LOOP_ATTR {
      constexpr bool kWhole = decltype(whole)::value;
      const auto operand = [&](const float* from) ONEHOT_LOOP_ATTR {
        if (from == nullptr) return hn::Zero(d);
        return kWhole ? hn::LoadU(d, from + i) : LoadSome(d, from + i, 1, n);
      };
      HWY_ALIGN std::uint32_t some[kClassLanes] = {};
      if constexpr (!kWhole) std::copy_n(task.classes + i, n, some);
      const auto y = kWhole ? hn::LoadU(du, task.classes + i) : hn::Load(du, some);
      auto z = kWhole ? LoadWide(d, row + i) : LoadSome(d, row + i, 1, n);
      if constexpr (!kPlain) z = Capped(d, z, cap);
      const auto hit = hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(y, class_here)), hn::Set(d, 1.0f));
      Operands<LogitTag> o{operand(task.max),
                           operand(task.log_sum),
                           operand(task.alpha),
                           hn::Zero(d),
                           hn::Zero(d),
                           hn::Zero(d),
                           hn::Zero(d),
                           weight,
                           hit};
      if constexpr (!kPlain) {
        o.beta = operand(task.beta), o.h = operand(task.h), o.entropy = operand(task.entropy);
        o.gamma = operand(task.gamma);
      }
      const auto dz = GradientOf<kPlain>(d, z, o, task, cap);
      if (!ignored) return dz;
      return hn::IfThenZeroElse(hn::RebindMask(d, hn::Eq(y, hn::Set(du, kNone))), dz);
    };
    ForVectors(logits.count, out, task.stream, StepOf<O>(lanes),
               [&](std::int64_t i, std::int64_t n, auto whole, auto stream) ONEHOT_LOOP_ATTR {
                 if constexpr (decltype(whole)::value) {
                   hwy::Prefetch(row + ahead + i);
                   StoreStep(d, out + i, decltype(stream)::value,
                             [&](std::int64_t j) ONEHOT_LOOP_ATTR { return gradient(i + j, lanes, whole); });
                 } else {
                   for (std::int64_t k = i; k < i + n; k += lanes) {
                     const std::int64_t some = std::min(lanes, i + n - k);
                     StoreSome(gradient(k, some, whole), d, out + k, 1, some);
                   }
                 }
               });
  }
}

template <class T, class O, bool kPlain>
HWY_NOINLINE void RowGradient(const SoftmaxGradientTask& task, std::int64_t i) {
  const LogitTag d;
  const hn::RebindToUnsigned<LogitTag> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Logits& logits = task.logits;
  const Cap cap(logits.softcap);
  const T* const row = reinterpret_cast<const T*>(logits.data) + i * logits.position_step;
  O* const out = reinterpret_cast<O*>(task.out) + i * task.out_position_step;
  const bool dense_in = logits.class_step == 1, dense_out = task.out_class_step == 1;
  const auto operand = [&](const float* from) HWY_ATTR { return hn::Set(d, from == nullptr ? 0.0f : from[i]); };
  Operands<LogitTag> o{operand(task.max),   operand(task.log_sum), operand(task.alpha),
                       operand(task.beta),  operand(task.h),       operand(task.entropy),
                       operand(task.gamma), hn::Set(d, 1.0f),      hn::Zero(d)};
  const std::uint32_t y = task.classes[i];
  const bool ignored = y == kIgnored<std::uint32_t>;
  const auto first_classes = hn::Iota(du, 0);  // once: it goes through memory
  // Of a vector of classes from v on, or of the first n of them.
  const auto gradient = [&](std::int64_t v, std::int64_t n, auto whole) ONEHOT_LOOP_ATTR {
    constexpr bool kWhole = decltype(whole)::value;
    auto z = kWhole && dense_in ? LoadWide(d, row + v) : LoadSome(d, row + v * logits.class_step, logits.class_step, n);
    if constexpr (!kPlain) z = Capped(d, z, cap);
    // One vector of the row has the target, whose lane is to be found.
    const std::uint32_t place = y - static_cast<std::uint32_t>(v);
    if (place < static_cast<std::uint32_t>(lanes)) {
      const auto here = hn::RebindMask(d, hn::Eq(first_classes, hn::Set(du, place)));
      o.hit = hn::IfThenElseZero(here, hn::Set(d, 1.0f));
    } else {
      o.hit = hn::Zero(d);
    }
    if constexpr (!kPlain) {
      if (task.weight != nullptr)
        o.weight = kWhole ? hn::LoadU(d, task.weight + v) : LoadSome(d, task.weight + v, 1, n);
    }
    return GradientOf<kPlain>(d, z, o, task, cap);
  };
  ForVectors(logits.C, out, task.stream && dense_out, StepOf<O>(lanes),
             [&](std::int64_t v, std::int64_t n, auto whole, auto stream) ONEHOT_LOOP_ATTR {
               if (decltype(whole)::value && dense_out) {
                 StoreStep(d, out + v, decltype(stream)::value, [&](std::int64_t j) ONEHOT_LOOP_ATTR {
                   return ignored ? hn::Zero(d) : gradient(v + j, lanes, whole);
                 });
               } else {
                 for (std::int64_t k = v; k < v + n; k += lanes) {
                   const std::int64_t some = std::min(lanes, v + n - k);
                   const auto dz = ignored ? hn::Zero(d) : gradient(k, some, whole);
                   StoreSome(dz, d, out + k * task.out_class_step, task.out_class_step, some);
                 }
               }
             });
}

template <class T, class O, bool kPlain>
void GradientAs(const SoftmaxGradientTask& task) {
  const Logits& logits = task.logits;
  if (logits.planes() && task.out_position_step == 1) return PlaneGradient<T, O, kPlain>(task);
  for (std::int64_t i = 0; i < logits.count; ++i) RowGradient<T, O, kPlain>(task, i);
}

void Gradient(const SoftmaxGradientTask& task) {
  const bool plain = task.beta == nullptr && task.h == nullptr && task.gamma == nullptr && task.logits.softcap == 0;
  ForDType(Types<float, F16, BF16>{}, task.logits.dtype, [&]<class T>() HWY_ATTR {
    if (task.out_dtype == task.logits.dtype)
      return plain ? GradientAs<T, T, true>(task) : GradientAs<T, T, false>(task);
    plain ? GradientAs<T, float, true>(task) : GradientAs<T, float, false>(task);
  });
}

SoftmaxGradientFunction SoftmaxGradientTable() {
  return Gradient;
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.h"

namespace onehot::cpu {
HWY_EXPORT(SoftmaxGradientTable);

SoftmaxGradientFunction SoftmaxGradientFor(Isa isa) {
  static const auto tables =
      ForEachInstructionSet([](Isa each) { return ONEHOT_DISPATCH(SoftmaxGradientTable, each)(); });
  return tables[static_cast<std::size_t>(isa)];
}

}  // namespace onehot::cpu
#endif
