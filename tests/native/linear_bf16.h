// What tests of bf16 pairs share.
#ifndef TESTS_NATIVE_LINEAR_BF16_H_
#define TESTS_NATIVE_LINEAR_BF16_H_

#include "cpu/linear_bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/dtype.h"
#include "tests/native/tensor.h"

namespace onehot::test {

template <class T>
using Line = std::vector<T, LineAllocator<T>>;

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline BF16 Number(cpu::Bf16Pair pair, std::int64_t n) {
  return {static_cast<std::uint16_t>(n % 2 == 0 ? pair & 0xFFFFu : pair >> 16)};
}
inline cpu::Bf16Pair PairOf(BF16 first, BF16 second) {
  return first.bits | cpu::Bf16Pair{second.bits} << 16;
}

// What packing makes of a number: the nearest bf16, but zero below the smallest normal number if it has to be rounded.
inline BF16 Rounded(float x) {
  return Narrow<BF16>(std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x);
}

class LinearBf16 : public testing::Test {
 protected:
  void SetUp() override {
    kernels_ = cpu::Bf16KernelsFor(Isa::kBest);
    if (kernels_ == nullptr) GTEST_SKIP() << "this CPU has no bf16 products";
  }
  const cpu::Bf16Kernels* kernels_ = nullptr;
};

}  // namespace onehot::test

#endif  // TESTS_NATIVE_LINEAR_BF16_H_
