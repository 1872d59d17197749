#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "tests/aclnn/runtime.h"

namespace onehot::test {
namespace {

// The value of binary16 bits by the definition: 1 sign, 5 exponent (bias 15) and 10 fraction bits.
double HalfValue(std::uint32_t bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>(bits >> 10 & 31u);
  const double fraction = static_cast<double>(bits & 1023u);
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST(Float16, EveryValueIsExactAndComesBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = aclFloat16ToFloat(static_cast<aclFloat16>(bits));
    if ((bits & 0x7FFFu) > 0x7C00u) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_GT(aclFloatToFloat16(value) & 0x7FFF, 0x7C00) << bits;
      continue;
    }
    if ((bits & 0x7FFFu) == 0x7C00u) {
      EXPECT_TRUE(std::isinf(value)) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(value), HalfValue(bits)) << bits;
    }
    EXPECT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    EXPECT_EQ(aclFloatToFloat16(value), bits);
  }
}

TEST(Float16, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    // Halfway to the next value: exact in f32, which has 13 more fraction bits.
    const auto half = static_cast<float>((HalfValue(bits) + HalfValue(bits + 1)) / 2);
    const std::uint32_t even = bits + (bits & 1u);
    EXPECT_EQ(aclFloatToFloat16(half), even);
    EXPECT_EQ(aclFloatToFloat16(-half), even | 0x8000u);
    EXPECT_EQ(aclFloatToFloat16(std::nextafter(half, 0.0f)), bits);
    EXPECT_EQ(aclFloatToFloat16(std::nextafter(half, 1e9f)), bits + 1);
  }
  EXPECT_EQ(aclFloatToFloat16(65519.99f), 0x7BFF);  // below the middle between 65504 and 65536
  EXPECT_EQ(aclFloatToFloat16(65520.0f), 0x7C00);
  EXPECT_EQ(aclFloatToFloat16(-std::numeric_limits<float>::max()), 0xFC00);
}

TEST(Base, DataTypeSizes) {
  const std::pair<aclDataType, size_t> sizes[] = {
      {ACL_FLOAT, 4},     {ACL_FLOAT16, 2},  {ACL_INT8, 1},        {ACL_INT32, 4},       {ACL_UINT8, 1},
      {ACL_INT16, 2},     {ACL_UINT16, 2},   {ACL_UINT32, 4},      {ACL_INT64, 8},       {ACL_UINT64, 8},
      {ACL_DOUBLE, 8},    {ACL_BOOL, 1},     {ACL_COMPLEX64, 8},   {ACL_COMPLEX128, 16}, {ACL_BF16, 2},
      {ACL_COMPLEX32, 4}, {ACL_HIFLOAT8, 1}, {ACL_FLOAT8_E5M2, 1}, {ACL_STRING, 0},      {ACL_DT_UNDEFINED, 0},
      {ACL_INT4, 0}};
  for (const auto& [type, size] : sizes) EXPECT_EQ(aclDataTypeSize(type), size) << type;
  EXPECT_EQ(aclDataTypeSize(static_cast<aclDataType>(5)), 0u);
  EXPECT_EQ(aclDataTypeSize(static_cast<aclDataType>(1000)), 0u);
}

TEST(Base, AppLogIsSilentUnlessAskedFor) {
  unsetenv("ONEHOT_LOG");
  testing::internal::CaptureStderr();
  ACL_APP_LOG(ACL_ERROR, "x = %d", 3);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  setenv("ONEHOT_LOG", "1", 1);
  testing::internal::CaptureStderr();
  aclAppLog(ACL_WARNING, "f", "a.c", 7, "x = %d", 3);
  aclAppLog(ACL_WARNING, nullptr, nullptr, 7, nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: a.c:7: f: x = 3\n");
  unsetenv("ONEHOT_LOG");
}

}  // namespace
}  // namespace onehot::test
