// NLL losses of sizes above 2^31. What needs no memory of that size runs always; the rest where ONEHOT_BIG_TESTS=1.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/native/losses.h"
#include "tests/native/nll_cases.h"
#include "tests/native/reserved.h"

namespace onehot::test {
namespace {

// Classes 2^29 elements apart: the offset of class 7 passes 2^31 elements and 2^33 bytes.
constexpr std::int64_t kFar = std::int64_t{1} << 29;

TEST(NllBig, OffsetsAbove32Bits) {
  Reserved x(8 * kFar * 4 + 4096);
  if (!x.ok()) GTEST_SKIP() << "no address space";
  Tensor target(DType::kI64, {4}), loss(DType::kF32, {4});
  SetIndices(target, {7, 0, 4, 7});
  // Class axis far apart, and positions far apart.
  for (const Dims& strides : std::vector<Dims>{{1, kFar}, {kFar, 1}}) {
    const TensorLayout layout = LayoutOf(DType::kF32, {4, 8}, strides);
    const auto at = [&](std::int64_t i, std::int64_t c) -> float& {
      return x.as<float>()[i * strides[0] + c * strides[1]];
    };
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t c = 0; c < 8; ++c) at(i, c) = static_cast<float>(10 * i + c);
    NllLoss op{.input = ConstTensorView(x.as<void>(), layout), .target = target.view(), .loss = loss.view()};
    op.reduction = Reduction::kNone;
    OnEveryTarget(op, {&loss}, {2}, [&] {
      const double y[] = {7, 0, 4, 7};
      for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(loss.Value(i), -(10.0 * static_cast<double>(i) + y[i]));
    });
    Tensor grad(DType::kF32, {4});
    grad.SetAll({1, 2, 3, 4});
    NllLossBackward backward{
        .grad_output = grad.view(), .target = target.view(), .out = TensorView(x.as<void>(), layout)};
    backward.reduction = Reduction::kNone;
    for (const Target& on : Targets<NllLossBackward>()) {
      if (!Takes(on, backward)) continue;
      SCOPED_TRACE(on.name());
      for (std::int64_t i = 0; i < 4; ++i)
        for (std::int64_t c = 0; c < 8; ++c) at(i, c) = -99;
      EXPECT_OK(RunOn(on, backward));
      for (std::int64_t i = 0; i < 4; ++i)
        for (std::int64_t c = 0; c < 8; ++c)
          EXPECT_EQ(at(i, c), c == target.Get<std::int64_t>(i) ? static_cast<float>(-1 - i) : 0.0F) << i << ' ' << c;
    }
  }
}

// 2^31 + 65536 elements of out, the last row of which starts at 2^31; and the same with pixels.
TEST(NllBig, OutAbove31Bits) {
  if (!BigTestsWanted()) GTEST_SKIP() << "4 GiB; set ONEHOT_BIG_TESTS=1";
  const std::int64_t N = 32769, C = 65536;
  Reserved out(static_cast<std::size_t>(N * C) * 2);
  if (!out.ok()) GTEST_SKIP() << "no memory";
  Tensor grad(DType::kF32, {N}), target(DType::kI64, {N});
  FillGradient(grad, 1);
  FillTargets(target, C, {}, 2);
  target.Set(N - 1, C - 1);
  for (const bool pixels : {false, true}) {
    NllLossBackward op;
    op.grad_output = grad.view(), op.target = target.view(), op.reduction = Reduction::kNone;
    op.class_axis = pixels ? 0 : 1;
    op.out =
        pixels ? TensorView(out.as<void>(), DType::kBF16, {C, N}) : TensorView(out.as<void>(), DType::kBF16, {N, C});
    out.as<std::uint16_t>()[N * C / 2] = 0xFFFF;
    EXPECT_OK(RunOn(Targets<NllLossBackward>().front(), op));
    std::int64_t others = 0;
    for (std::int64_t k = 0; k < N * C; ++k) others += out.as<std::uint16_t>()[k] != 0;
    for (std::int64_t i = 0; i < N; ++i) {
      const std::int64_t y = target.Get<std::int64_t>(i);
      if (y == -100) continue;
      --others;
      ASSERT_EQ(out.as<std::uint16_t>()[pixels ? y * N + i : i * C + y], Narrow<BF16>(-grad.Get<float>(i)).bits);
    }
    EXPECT_EQ(others, 0);
  }
}

// More positions than 31 bits count, all of them one target: no memory at all.
TEST(NllBig, PositionsAbove31Bits) {
  if (!BigTestsWanted()) GTEST_SKIP() << "a minute; set ONEHOT_BIG_TESTS=1";
  const std::int64_t N = (std::int64_t{1} << 31) + 1000;
  const float x = -1;
  const std::uint8_t y = 1;
  Tensor loss(DType::kF64, {}), total(DType::kF64, {});
  NllLoss op;
  op.input = ConstTensorView(&x, LayoutOf(DType::kF32, {N, 2}, {0, 0}));
  op.target = ConstTensorView(&y, LayoutOf(DType::kU8, {N}, {0}));
  op.loss = loss.view(), op.total_weight = total.view(), op.reduction = Reduction::kSum;
  EXPECT_OK(RunOn(Targets<NllLoss>().front(), op));
  EXPECT_EQ(loss.Value(0), static_cast<double>(N));
  EXPECT_EQ(total.Value(0), static_cast<double>(N));
}

TEST(NllBig, BadPositionAbove31Bits) {
  if (!BigTestsWanted()) GTEST_SKIP() << "a minute and 2 GiB; set ONEHOT_BIG_TESTS=1";
  const std::int64_t N = (std::int64_t{1} << 31) + 1000;
  Reserved target(static_cast<std::size_t>(N));
  if (!target.ok()) GTEST_SKIP() << "no memory";
  target.as<std::uint8_t>()[N - 500] = 2;
  target.as<std::uint8_t>()[N - 1] = 3;
  const float x = -1;
  Tensor loss(DType::kF64, {});
  NllLoss op;
  op.input = ConstTensorView(&x, LayoutOf(DType::kF32, {N, 2}, {0, 0}));
  op.target = ConstTensorView(target.as<void>(), DType::kU8, {N});
  op.loss = loss.view();
  EXPECT_STATUS(RunOn(Targets<NllLoss>().front(), op), Code::kBadData,
                "target[" + std::to_string(N - 500) + "] = 2 is outside [0, 2)");
}

}  // namespace
}  // namespace onehot::test
