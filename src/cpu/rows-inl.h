// What loops over rows are made of: widening loads and narrowing stores for vectors of the accumulator type, and ways
// past the caches. Compiled once per instruction set, hence the guard that toggles.
#if defined(ONEHOT_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEHOT_CPU_ROWS_INL_H_
#undef ONEHOT_CPU_ROWS_INL_H_
#else
#define ONEHOT_CPU_ROWS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "cpu/rows_simd.h"
#include "hwy/highway.h"

// For lambdas that are the body of a loop over vectors: as calls they keep their constants in memory (measured: 9.7 ns a
// vector, and 3.6 inlined). Not under the address sanitizer, whose checks would make minutes of compilation of it.
#undef ONEHOT_LOOP_ATTR
#if defined(__SANITIZE_ADDRESS__)
#define ONEHOT_LOOP_ATTR HWY_ATTR
#else
#define ONEHOT_LOOP_ATTR HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls step(d, c) for columns c, c + lanes(d), ...: whole vectors, then fours, then single ones. No element past the
// row is touched.
template <class Acc, class F>
HWY_INLINE void ForColumns(std::int64_t columns, F&& step) {
  const hn::ScalableTag<Acc> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) step(d, c);
  if (c == columns) return;
  const hn::CappedTag<Acc, 4> d4;
  const auto four = static_cast<std::int64_t>(hn::Lanes(d4));
  for (; c + four <= columns; c += four) step(d4, c);
  const hn::CappedTag<Acc, 1> d1;
  for (; c < columns; ++c) step(d1, c);
}

// Highway 1.0.3 converts f16 correctly only where the CPU has the instruction (F16C, which AVX2 targets imply, or
// NEON).
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4
#undef ONEHOT_VECTOR_F16
#define ONEHOT_VECTOR_F16 0
#else
#undef ONEHOT_VECTOR_F16
#define ONEHOT_VECTOR_F16 1
#endif

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const float* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const double* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const BF16* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const F16* p) {
#if ONEHOT_VECTOR_F16
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)];
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) wide[i] = Widen(p[i]);
  return hn::Load(d, wide);
#endif
}

template <class D, class T>
HWY_INLINE void StoreVector(hn::Vec<D> v, [[maybe_unused]] D d, T* p, bool stream) {
  // Highway 1.0.3 streams 16 bytes even where the vector has fewer.
  if (stream && hn::Lanes(d) * sizeof(T) >= 16) {
    hn::Stream(v, d, p);
  } else {
    hn::StoreU(v, d, p);
  }
}

template <class D>
HWY_INLINE void StoreNarrow(hn::Vec<D> v, D d, float* p, bool stream) {
  StoreVector(v, d, p, stream);
}

template <class D>
HWY_INLINE void StoreNarrow(hn::Vec<D> v, D d, double* p, bool stream) {
  StoreVector(v, d, p, stream);
}

// The bits of a BF16 in the upper half of each lane, rounded to nearest even by hand: Highway 1.0.3's own conversion
// truncates, and the instruction that AVX-512 has takes subnormal numbers for zeros. NaN stays, and becomes quiet.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundToUpperHalf(D, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::IfThenZeroElse(nan, hn::Add(odd, hn::Set(du, 0x7FFFu))));
  return hn::IfThenElse(nan, hn::Or(rounded, hn::Set(du, 0x400000u)), rounded);
}

template <class D>
HWY_INLINE void StoreNarrow(hn::Vec<D> v, D d, BF16* p, bool stream) {
  const hn::RebindToSigned<D> d32;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto result = hn::BitCast(d32, hn::ShiftRight<16>(RoundToUpperHalf(d, v)));
  StoreVector(hn::DemoteTo(d16, result), d16, reinterpret_cast<std::uint16_t*>(p), stream);
}

template <class D>
HWY_INLINE void StoreNarrow(hn::Vec<D> v, D d, F16* p, bool stream) {
#if ONEHOT_VECTOR_F16
  // As 16-bit integers, which every Stream can store.
  const hn::Rebind<hwy::float16_t, D> d16;
  const hn::Rebind<std::uint16_t, D> du16;
  StoreVector(hn::BitCast(du16, hn::DemoteTo(d16, v)), du16, reinterpret_cast<std::uint16_t*>(p), stream);
#else
  (void)stream;
  HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, d, wide);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) p[i] = Narrow<F16>(wide[i]);
#endif
}

// Two vectors side by side.
template <class T, class D>
HWY_INLINE void StorePair(hn::Vec<D> low, hn::Vec<D> high, D d, T* p, bool stream) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, BF16>) {  // the upper halves of both are one vector
    const hn::Repartition<std::uint16_t, D> d16;
    return StoreVector(
        hn::ConcatOdd(d16, hn::BitCast(d16, RoundToUpperHalf(d, high)), hn::BitCast(d16, RoundToUpperHalf(d, low))),
        d16, reinterpret_cast<std::uint16_t*>(p), stream);
  }
#endif
  StoreNarrow(low, d, p, stream);
  StoreNarrow(high, d, p + hn::Lanes(d), stream);
}

// Calls f(i, n, whole, stream) for [0, count): n elements from i on, whole vectors of them if `whole`, whole lines that may
// go past the caches if `stream`, both std::bool_constant.
template <class O, class F>
HWY_INLINE void ForVectors(std::int64_t count, const O* out, bool stream, std::int64_t lanes, F&& f) {
  constexpr std::true_type kYes;
  constexpr std::false_type kNo;
  std::int64_t i = 0;
  if (stream) {
    const auto misaligned = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(out) & (kStreamAlign - 1));
    const std::int64_t head = std::min(count, misaligned / static_cast<std::int64_t>(sizeof(O)));
    for (; i < head; i += lanes) f(i, std::min(lanes, head - i), kNo, kNo);
    i = head;
    constexpr std::int64_t kLine = kStreamAlign / static_cast<std::int64_t>(sizeof(O));
    const std::int64_t lines = i + (count - i) / kLine * kLine;
    for (; i < lines; i += lanes) f(i, lanes, kYes, kYes);
  }
  for (; i + lanes <= count; i += lanes) f(i, lanes, kYes, kNo);
  if (i < count) f(i, count - i, kNo, kNo);
}

// Calls f(base + i) where bit i of `bits` is set.
template <class F>
HWY_INLINE void ForBits(std::uint64_t bits, std::int64_t base, F&& f) {
  for (; bits != 0; bits &= bits - 1) f(base + std::countr_zero(bits));
}

inline void Zero(std::byte* out, std::int64_t bytes) {
  std::memset(out, 0, static_cast<std::size_t>(bytes));
}

inline void ZeroStream(std::byte* out, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto head = std::min<std::int64_t>(bytes, -reinterpret_cast<std::uintptr_t>(out) & (kStreamAlign - 1));
  if (head > 0) std::memset(out, 0, static_cast<std::size_t>(head));
  auto* p = reinterpret_cast<std::uint8_t*>(out + head);
  std::int64_t left = bytes - head;
  const auto zero = hn::Zero(d);
  for (; left >= kStreamAlign; left -= kStreamAlign)
    for (std::int64_t i = 0; i < kStreamAlign; i += lanes, p += lanes) hn::Stream(zero, d, p);
  if (left > 0) std::memset(p, 0, static_cast<std::size_t>(left));
}

inline void CopyStream(const std::byte* in, std::byte* out, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto head = std::min<std::int64_t>(bytes, -reinterpret_cast<std::uintptr_t>(out) & (kStreamAlign - 1));
  if (head > 0) std::memcpy(out, in, static_cast<std::size_t>(head));
  const std::int64_t end = bytes - (bytes - head) % kStreamAlign;
  for (std::int64_t i = head; i < end; i += lanes)
    hn::Stream(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(in) + i), d,
               reinterpret_cast<std::uint8_t*>(out) + i);
  if (end < bytes) std::memcpy(out + end, in + end, static_cast<std::size_t>(bytes - end));
}

inline std::uint64_t NonZero64(const std::uint32_t* counts) {
  const hn::ScalableTag<std::uint32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  std::uint64_t word = 0;
  for (std::int64_t j = 0; j < 64; j += lanes) {
    std::uint8_t bits[8] = {};  // StoreMaskBits writes at least one byte, whatever the number of lanes
    hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, counts + j), zero), bits);
    std::uint64_t part = 0;
    std::memcpy(&part, bits, sizeof part);
    word |= part << j;
  }
  return word;
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONEHOT_CPU_ROWS_INL_H_
