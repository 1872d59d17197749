// Elementary functions of f32 vectors with the same bits on every instruction set: explicit fused multiply-adds, in one
// order. Compiled once per instruction set, hence the guard that toggles.
#if defined(ONEHOT_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEHOT_CPU_MATH_INL_H_
#undef ONEHOT_CPU_MATH_INL_H_
#else
#define ONEHOT_CPU_MATH_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a * b + c, rounded once. Where there is no such instruction, Highway's MulAdd would round twice.
template <class D>
HWY_INLINE hn::Vec<D> Fma([[maybe_unused]] D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4
  HWY_ALIGN hn::TFromD<D> x[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)], y[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)],
      z[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#else
  return hn::MulAdd(a, b, c);
#endif
}

// Coefficients of polynomials below are minimax fits (Lawson's iteration on 400 to 600 Chebyshev points, relative error
// weighted), rounded to f32.

// ln 2 in two parts, for the products with whole numbers.
inline constexpr float kLn2High = 0x1.62e430p-1f, kLn2Low = -0x1.05c610p-29f;

// ln 2^-126: below it e^x is not a normal number.
inline constexpr float kLowestExponent = -0x1.5d589ep6f;

// The larger of a number and a vector; NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> AtLeast(D d, float least, hn::Vec<D> x) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, least)), hn::Set(d, least), x);
#else
  return hn::Max(hn::Set(d, least), x);  // the second operand where one is NaN
#endif
}

// e^x for x from kLowestExponent to 88, with a relative error of at most 2^-23 + |x| 2^-28. Below: any number. NaN stays
// NaN.
template <class D>
HWY_INLINE hn::Vec<D> ExpInRange(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  // Adding 1.5 * 2^23 rounds x / ln 2 to a whole number n, which then stands in the low bits; with the bias, those are the
  // exponent of 2^n.
  const auto magic = hn::Set(d, 0x1.8p23f + 127);
  const auto shifted = Fma(d, x, hn::Set(d, 0x1.715476p0f), magic);
  const auto n = hn::Sub(shifted, magic);
  // The low part of ln 2 is left out: n times it is |x| 2^-28.4, a tenth of what x, a difference, has been rounded by.
  const auto r = Fma(d, n, hn::Set(d, -kLn2High), x);
  // e^r = 1 + r (1 + r q(r)) for |r| <= ln 2 / 2; the fit is within 2^-28.
  auto q = hn::Set(d, 0x1.6a23c2p-10f);
  q = Fma(d, q, r, hn::Set(d, 0x1.123a20p-7f));
  q = Fma(d, q, r, hn::Set(d, 0x1.5558f4p-5f));
  q = Fma(d, q, r, hn::Set(d, 0x1.555492p-3f));
  q = Fma(d, q, r, hn::Set(d, 0x1.fffffcp-2f));
  const auto one = hn::Set(d, 1.0f);
  const auto e = Fma(d, Fma(d, q, r, one), r, one);
  // A product, since NaN would not survive an addition to exponents.
  return hn::Mul(e, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
}

// Below kLowestExponent the number for that, some 2^-126: it does as a term of a sum that has larger ones.
template <class D>
HWY_INLINE hn::Vec<D> ExpTerm(D d, hn::Vec<D> x) {
  return ExpInRange(d, AtLeast(d, kLowestExponent, x));
}

// Below kLowestExponent 0: results are normal numbers or 0.
template <class D>
HWY_INLINE hn::Vec<D> Exp(D d, hn::Vec<D> x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kLowestExponent)), ExpInRange(d, x));
}

// ln x within 1 unit in the last place for normal numbers; -infinity for 0; infinity and NaN stay.
template <class D>
HWY_INLINE hn::Vec<D> Log(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, x);
  // x = 2^e m with m in [sqrt(1/2), sqrt(2)); 0x3F3504F3 are the bits of sqrt(1/2).
  const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3F3504F3)));
  const auto f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e))), hn::Set(d, 1.0f));
  const auto n = hn::ConvertTo(d, e);
  // ln(1 + f) = f - f^2 / 2 + f^3 p(f); the fit is within 2^-27.
  auto p = hn::Set(d, -0x1.38b518p-4f);
  p = Fma(d, p, f, hn::Set(d, 0x1.05658ep-3f));
  p = Fma(d, p, f, hn::Set(d, -0x1.0d8a04p-3f));
  p = Fma(d, p, f, hn::Set(d, 0x1.22d916p-3f));
  p = Fma(d, p, f, hn::Set(d, -0x1.5471b6p-3f));
  p = Fma(d, p, f, hn::Set(d, 0x1.99a00ep-3f));
  p = Fma(d, p, f, hn::Set(d, -0x1.000228p-2f));
  p = Fma(d, p, f, hn::Set(d, 0x1.555554p-2f));
  const auto f2 = hn::Mul(f, f);
  auto low = Fma(d, n, hn::Set(d, kLn2Low), hn::Mul(hn::Mul(f2, f), p));
  low = Fma(d, f2, hn::Set(d, -0.5f), low);
  const auto y = Fma(d, n, hn::Set(d, kLn2High), hn::Add(f, low));
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const auto special = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), x);
  return hn::IfThenElse(hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, infinity)), y, special);
}

// tanh x within 2 units in the last place. NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> Tanh(D d, hn::Vec<D> x) {
  const auto a = hn::Abs(x);
  // Up to 0.625: a + a^3 p(a^2); the fit is within 2^-27.
  const auto a2 = hn::Mul(a, a);
  auto p = hn::Set(d, -0x1.73646ap-8f);
  p = Fma(d, p, a2, hn::Set(d, 0x1.519ca2p-6f));
  p = Fma(d, p, a2, hn::Set(d, -0x1.b82800p-5f));
  p = Fma(d, p, a2, hn::Set(d, 0x1.110692p-3f));
  p = Fma(d, p, a2, hn::Set(d, -0x1.555530p-2f));
  const auto small = Fma(d, hn::Mul(a2, a), p, a);
  // Beyond: 1 - 2 / (e^2a + 1), which is 1 in f32 from 9.02 on; 10 keeps the exponential finite.
  const auto one = hn::Set(d, 1.0f);
  const auto ten = hn::Set(d, 10.0f);
  const auto clamped = hn::IfThenElse(hn::Gt(a, ten), ten, a);
  const auto e = Exp(d, hn::Add(clamped, clamped));
  const auto large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625f)), small, large), x);
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONEHOT_CPU_MATH_INL_H_
