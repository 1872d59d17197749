// Reading logits as vectors of f32: any dtype, capped or not, whole vectors or parts of one. Compiled once per
// instruction set, hence the guard that toggles.
#if defined(ONEHOT_CPU_LOGITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEHOT_CPU_LOGITS_INL_H_
#undef ONEHOT_CPU_LOGITS_INL_H_
#else
#define ONEHOT_CPU_LOGITS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cpu/math-inl.h"
#include "cpu/rows-inl.h"
#include "cpu/softmax_simd.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors here have at most as many lanes as classes are dealt to.
using LogitTag = hn::CappedTag<float, kClassLanes>;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Bytes of planes to have on the way: the latency of memory (100 ns) times what one core draws (some 40 GB/s) is 4 KB, and
// bursts want slack. Not much more: planes of images whose sides are powers of two all fall into the same few sets of a cache.
constexpr std::int64_t kAheadBytes = 6 << 10;

// Rows of planes to look ahead.
template <class T>
HWY_INLINE std::int64_t RowsAhead(std::int64_t count) {
  return std::max<std::int64_t>(1, kAheadBytes / (count * static_cast<std::int64_t>(sizeof(T))));
}

struct Cap {
  bool on;
  float c, inverse;

  explicit Cap(float softcap) : on(softcap != 0), c(softcap), inverse(on ? 1 / softcap : 0) {}
};

// z of uncapped logits u. A class at -infinity stays there.
template <class D>
HWY_INLINE hn::Vec<D> Capped(D d, hn::Vec<D> u, const Cap& cap) {
  if (!cap.on) return u;
  const auto z = hn::Mul(hn::Set(d, cap.c), Tanh(d, hn::Mul(u, hn::Set(d, cap.inverse))));
  return hn::IfThenElse(hn::Eq(u, hn::Set(d, kMinusInfinity)), u, z);
}

// p[0], p[step], ...: `count` of them, at most a vector; what is in lanes beyond them is 0.
template <class T, class D>
HWY_INLINE hn::Vec<D> LoadSome(D d, const T* p, std::int64_t step, std::int64_t count) {
  HWY_ALIGN T some[kClassLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) some[i] = p[i * step];
  return LoadWide(d, some);
}

template <class O, class D>
HWY_INLINE void StoreSome(hn::Vec<D> v, D d, O* p, std::int64_t step, std::int64_t count) {
  HWY_ALIGN O some[kClassLanes] = {};
  StoreNarrow(v, d, some, false);
  for (std::int64_t i = 0; i < count; ++i) p[i * step] = some[i];
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONEHOT_CPU_LOGITS_INL_H_
