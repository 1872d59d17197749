// Conversions between element types, against a rounding that is worked out by search instead of by bits.
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/native/data.h"
#include "tests/native/tensor.h"

namespace onehot::test {
namespace {

// Value of a 16-bit pattern from its three fields.
double FromFields(std::uint16_t bits, int fraction_bits, int bias) {
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int exponent = (bits & 0x7FFF) >> fraction_bits;
  const int top = 0x7FFF >> fraction_bits;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == top) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}
double Exact(F16 x) {
  return FromFields(x.bits, 10, 15);
}
double Exact(BF16 x) {
  return FromFields(x.bits, 7, 127);
}

template <class T>
constexpr std::uint16_t kInfinity = std::is_same_v<T, F16> ? 0x7C00 : 0x7F80;

// The number that would follow the largest one, were there another exponent.
template <class T>
const double kBeyond = std::is_same_v<T, F16> ? 0x1p16 : 0x1p128;

double Magnitude(double x) {
  return std::abs(x);
}

// The neighbour of x that is nearest, the one with an even pattern in a tie. Patterns of positive numbers ascend with
// them.
template <class T>
std::uint16_t Nearest(double x) {
  const double size = Magnitude(x);
  std::uint16_t low = 0, high = kInfinity<T>;  // value(low) <= size < value(high)
  if (std::isinf(size)) {
    low = high;
  } else {
    while (high - low > 1) {
      const auto middle = static_cast<std::uint16_t>((low + high) / 2);
      (Exact(T{middle}) <= size ? low : high) = middle;
    }
    const double above = high == kInfinity<T> ? kBeyond<T> : Exact(T{high});
    const double to_low = size - Exact(T{low}), to_high = above - size;  // exact: neighbours are within a factor of 2
    if (to_high < to_low || (to_high == to_low && low % 2 == 1)) low = high;
  }
  return static_cast<std::uint16_t>(low | (std::signbit(x) ? 0x8000 : 0));
}

template <class T>
class SixteenBits : public ::testing::Test {};
using SixteenBitTypes = ::testing::Types<F16, BF16>;
TYPED_TEST_SUITE(SixteenBits, SixteenBitTypes);

TYPED_TEST(SixteenBits, WidenIsExact) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const TypeParam x{static_cast<std::uint16_t>(bits)};
    const double want = Exact(x);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(Widen(x))) << bits;
    } else {
      EXPECT_EQ(Widen(x), want) << bits;
      EXPECT_EQ(std::signbit(Widen(x)), bits >> 15 != 0) << bits;
    }
  }
}

TYPED_TEST(SixteenBits, NarrowUndoesWiden) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const TypeParam x{static_cast<std::uint16_t>(bits)};
    if (std::isnan(Exact(x))) {
      EXPECT_TRUE(std::isnan(Exact(Narrow<TypeParam>(Widen(x)))));
      // The payload bits that fit: all of them, but a signalling NaN becomes quiet.
      const std::uint16_t quiet = std::is_same_v<TypeParam, F16> ? 0x200 : 0x40;
      EXPECT_EQ(Narrow<TypeParam>(Widen(x)).bits, bits | quiet);
    } else {
      EXPECT_EQ(Narrow<TypeParam>(Widen(x)).bits, bits);
      EXPECT_EQ(Narrow<TypeParam>(Exact(x)).bits, bits);
    }
  }
}

// Every boundary between two neighbours, and the closest f32 and f64 to both sides of it.
TYPED_TEST(SixteenBits, NarrowRoundsToNearestEvenAroundEveryMidpoint) {
  for (std::uint16_t low = 0; low < kInfinity<TypeParam>; ++low) {
    const double a = Exact(TypeParam{low});
    const double b =
        low + 1 == kInfinity<TypeParam> ? kBeyond<TypeParam> : Exact(TypeParam{static_cast<std::uint16_t>(low + 1)});
    const double middle = a + (b - a) / 2;
    const auto even = static_cast<std::uint16_t>(low % 2 == 0 ? low : low + 1);
    for (const double sign : {1.0, -1.0}) {
      const auto sign_bit = static_cast<std::uint16_t>(sign < 0 ? 0x8000 : 0);
      const auto expect = [&](auto x, int bits) {
        EXPECT_EQ(Narrow<TypeParam>(x).bits, bits | sign_bit) << x << " near pattern " << low;
      };
      expect(sign * middle, even);
      expect(sign * std::nextafter(middle, 0.0), low);
      expect(sign * std::nextafter(middle, HUGE_VAL), low + 1);
      expect(static_cast<float>(sign * middle), even);
      expect(static_cast<float>(sign) * std::nextafter(static_cast<float>(middle), 0.0f), low);
      expect(static_cast<float>(sign) * std::nextafter(static_cast<float>(middle), HUGE_VALF), low + 1);
      EXPECT_EQ(Nearest<TypeParam>(sign * middle), even | sign_bit);
    }
  }
}

TYPED_TEST(SixteenBits, NarrowAgreesWithSearch) {
  // f32: every 997th pattern; 997 is prime to 2^32, so all low bits occur.
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 997 * 8) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(Exact(Narrow<TypeParam>(x)))) << bits;
    } else {
      ASSERT_EQ(Narrow<TypeParam>(x).bits, Nearest<TypeParam>(x)) << bits;
    }
  }
  Random random(3);
  for (int i = 0; i < 300000; ++i) {
    const std::uint64_t bits = random.Bits();
    // Any f64, and one whose exponent lies about the range of the type.
    for (const double x :
         {std::bit_cast<double>(bits),
          std::ldexp(1 + random.Unit(), static_cast<int>(bits % 290) - 150) * (bits >> 63 != 0 ? -1 : 1)}) {
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(Exact(Narrow<TypeParam>(x))));
      } else {
        ASSERT_EQ(Narrow<TypeParam>(x).bits, Nearest<TypeParam>(x)) << x;
      }
    }
  }
}

// f64 to 16 bits rounds once: just above a midpoint by less than an f32 can say.
TYPED_TEST(SixteenBits, NarrowFromF64RoundsOnce) {
  const double half_step = std::is_same_v<TypeParam, F16> ? 0x1p-11 : 0x1p-8;
  const std::uint16_t one = std::is_same_v<TypeParam, F16> ? 0x3C00 : 0x3F80;
  EXPECT_EQ(Narrow<TypeParam>(1 + half_step).bits, one);
  EXPECT_EQ(Narrow<TypeParam>(1 + half_step + 0x1p-40).bits, one + 1);
  EXPECT_EQ(Narrow<TypeParam>(1 + 3 * half_step - 0x1p-40).bits, one + 1);
  EXPECT_EQ(Narrow<TypeParam>(1 + 3 * half_step).bits, one + 2);
  EXPECT_EQ(Narrow<TypeParam>(std::numeric_limits<double>::denorm_min()).bits, 0);
  EXPECT_EQ(Narrow<TypeParam>(-std::numeric_limits<double>::denorm_min()).bits, 0x8000);
  EXPECT_EQ(Narrow<TypeParam>(std::numeric_limits<double>::max()).bits, kInfinity<TypeParam>);
}

TEST(DTypes, HandWorkedPatterns) {
  EXPECT_EQ(Widen(F16{0x3C00}), 1.0f);
  EXPECT_EQ(Widen(F16{0xC000}), -2.0f);
  EXPECT_EQ(Widen(F16{0x7BFF}), 65504.0f);
  EXPECT_EQ(Widen(F16{0x0001}), 0x1p-24f);
  EXPECT_EQ(Widen(BF16{0x3F80}), 1.0f);
  EXPECT_EQ(Widen(BF16{0x4049}), 3.140625f);
  EXPECT_EQ(Narrow<F16>(0.1f).bits, 0x2E66);
  EXPECT_EQ(Narrow<BF16>(0.1f).bits, 0x3DCD);
  EXPECT_EQ(Narrow<F16>(65520.0f).bits, 0x7C00);
  EXPECT_EQ(Narrow<float>(1 + 0x1p-24), 1.0f);
  EXPECT_EQ(Narrow<double>(0.1), 0.1);
}

TEST(DTypes, NamesAndSizes) {
  struct Row {
    DType dtype;
    std::string_view name;
    std::int64_t size;
  };
  constexpr Row kTable[] = {{DType::kF32, "f32", 4},   {DType::kF64, "f64", 8}, {DType::kF16, "f16", 2},
                            {DType::kBF16, "bf16", 2}, {DType::kI64, "i64", 8}, {DType::kI32, "i32", 4},
                            {DType::kI16, "i16", 2},   {DType::kI8, "i8", 1},   {DType::kU8, "u8", 1},
                            {DType::kBool, "bool", 1}, {DType::kC64, "c64", 8}, {DType::kC128, "c128", 16}};
  static_assert(std::size(kTable) == std::size(kAllDTypes));
  for (const Row& row : kTable) {
    EXPECT_EQ(Name(row.dtype), row.name);
    EXPECT_EQ(SizeOf(row.dtype), row.size);
  }
}

TEST(DTypes, DispatchFindsTheType) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(AllTypes::Contains(dtype), dtype != DType::kC64 && dtype != DType::kC128);
    if (!AllTypes::Contains(dtype)) continue;
    EXPECT_EQ(ForDType(AllTypes{}, dtype, []<class T>() { return static_cast<std::int64_t>(sizeof(T)); }),
              SizeOf(dtype));
  }
}

}  // namespace
}  // namespace onehot::test
