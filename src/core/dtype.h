// Element types, conversions between them, and dispatch from a DType to a C++ type.
#ifndef ONEHOT_CORE_DTYPE_H_
#define ONEHOT_CORE_DTYPE_H_

#include <bit>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "onehot/tensor.h"

namespace onehot {

// Storage only: arithmetic happens in f32 or f64 after Widen.
struct BF16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};
struct Bool {
  std::uint8_t byte;
};

// The type sums are taken in.
template <class T>
using AccumulatorOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline float Widen(BF16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}
inline float Widen(float x) {
  return x;
}
inline double Widen(double x) {
  return x;
}
// Exact. A signalling NaN keeps its payload and becomes quiet, as the CPU's own conversion does.
inline float Widen(F16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1Fu, fraction = x.bits & 0x3FFu;
  if (exponent == 0x1F)
    return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13) | (fraction != 0 ? 0x400000u : 0u));
  if (exponent == 0) {  // fraction * 2^-24, exact in f32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

namespace internal {

// The f64 value as an f32 rounded to odd: the last bit is set if anything was cut off. Rounding that to a narrower type
// gives the same as rounding the f64 directly, since f32 has more than two bits to spare over f16 and bf16
// (Boldo and Melquiond, "When double rounding is odd", 2005).
inline float RoundToOdd(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || x != x) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if ((nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest)) > (x < 0 ? -x : x)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace internal

// Rounds once, to nearest even. NaN stays NaN and keeps the payload bits that fit.
template <class T>
T Narrow(float x);
template <>
inline float Narrow<float>(float x) {
  return x;
}
template <>
inline double Narrow<double>(float x) {
  return x;
}
template <>
inline BF16 Narrow<BF16>(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}
template <>
inline F16 Narrow<F16>(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu))};
  if (magnitude >= 0x47800000u) return {static_cast<std::uint16_t>(sign | 0x7C00u)};  // 2^16 and above, infinity too
  if (magnitude < 0x38800000u) {  // below 2^-14, the smallest normal: units of 2^-24, rounded by the f32 adder,
    // whose last place at 0.5 is 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u))};
  }
  // 13 fraction bits are dropped and the exponent bias goes from 127 to 15; a carry out of the fraction raises the
  // exponent, up to infinity, as it should.
  const std::uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112u << 10)))};
}

template <class T>
T Narrow(double x);
template <>
inline double Narrow<double>(double x) {
  return x;
}
template <>
inline float Narrow<float>(double x) {
  return static_cast<float>(x);
}
template <>
inline BF16 Narrow<BF16>(double x) {
  return Narrow<BF16>(internal::RoundToOdd(x));
}
template <>
inline F16 Narrow<F16>(double x) {
  return Narrow<F16>(internal::RoundToOdd(x));
}

template <class T>
inline constexpr DType kDTypeOf = T::kNoSuchDType;  // a type outside the list does not compile
template <>
inline constexpr DType kDTypeOf<float> = DType::kF32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kF64;
template <>
inline constexpr DType kDTypeOf<F16> = DType::kF16;
template <>
inline constexpr DType kDTypeOf<BF16> = DType::kBF16;
template <>
inline constexpr DType kDTypeOf<std::int64_t> = DType::kI64;
template <>
inline constexpr DType kDTypeOf<std::int32_t> = DType::kI32;
template <>
inline constexpr DType kDTypeOf<std::int16_t> = DType::kI16;
template <>
inline constexpr DType kDTypeOf<std::int8_t> = DType::kI8;
template <>
inline constexpr DType kDTypeOf<std::uint8_t> = DType::kU8;
template <>
inline constexpr DType kDTypeOf<Bool> = DType::kBool;

// A list of element types is a support matrix: Check asks it, dispatch walks it.
template <class... Ts>
struct Types {
  static constexpr bool Contains(DType dtype) { return ((dtype == kDTypeOf<Ts>) || ...); }
};

// Calls f.operator()<T>() for the T in the list whose DType is `dtype`. The dtype must be in the list (Check saw to
// it).
template <class... Ts, class F>
auto ForDType(Types<Ts...>, DType dtype, F&& f) {
  using First = std::tuple_element_t<0, std::tuple<Ts...>>;
  using R = decltype(f.template operator()<First>());
  if constexpr (std::is_void_v<R>) {
    (void)((dtype == kDTypeOf<Ts> && (f.template operator()<Ts>(), true)) || ...);
  } else {
    R result{};
    (void)((dtype == kDTypeOf<Ts> && (result = f.template operator()<Ts>(), true)) || ...);
    return result;
  }
}

}  // namespace onehot

#endif  // ONEHOT_CORE_DTYPE_H_
