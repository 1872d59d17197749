// The oracles against numbers that a person can do.
#include "tests/native/oracle.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/dtype.h"

namespace onehot::test {
namespace {

using ::testing::ElementsAre;

// V = 3, D = 2, rows 2, 0, 2.
struct HandWorked {
  Tensor grad{DType::kF32, {3, 2}};
  Tensor indices{DType::kI64, {3}};
  Tensor out{DType::kF32, {3, 2}};

  HandWorked() {
    grad.SetAll({1, 2, 10, 20, 100, 200});
    indices.SetAll({2, 0, 2});
  }
  EmbeddingBackward op() { return {.grad = grad.view(), .indices = indices.view(), .out = out.view()}; }
};

std::vector<double> Floats(const std::vector<std::byte>& bytes) {
  std::vector<double> values;
  for (std::size_t e = 0; e < bytes.size() / 4; ++e)
    values.push_back(
        ValueAt(TensorLayout{.dtype = DType::kF32, .rank = 0}, bytes.data(), static_cast<std::int64_t>(e)));
  return values;
}

TEST(Oracle, HandWorked) {
  HandWorked p;
  EXPECT_THAT(Define(p.op()).value, ElementsAre(10, 20, 0, 0, 101, 202));
  EXPECT_THAT(Define(p.op()).count, ElementsAre(1, 0, 2));
  EXPECT_THAT(Floats(Promise(p.op()).out), ElementsAre(10, 20, 0, 0, 101, 202));
  EXPECT_THAT(Promise(p.op()).count, ElementsAre(1, 0, 2));
}

TEST(Oracle, HandWorkedPaddingCountsAndScale) {
  HandWorked p;
  EmbeddingBackward op = p.op();
  op.scale_grad_by_freq = true;
  EXPECT_THAT(Define(op).value, ElementsAre(10, 20, 0, 0, 50.5, 101));
  EXPECT_THAT(Floats(Promise(op).out), ElementsAre(10, 20, 0, 0, 50.5, 101));
  for (const std::int64_t padding : {2, -1}) {
    op.padding_idx = padding;
    EXPECT_THAT(Define(op).value, ElementsAre(10, 20, 0, 0, 0, 0));
    EXPECT_THAT(Floats(Promise(op).out), ElementsAre(10, 20, 0, 0, 0, 0));
    EXPECT_THAT(Promise(op).count, ElementsAre(1, 0, 2));
  }
}

TEST(Oracle, HandWorkedAccumulate) {
  HandWorked p;
  p.out.SetAll({1, 1, -0.0, 5, 0.5, 0});
  EmbeddingBackward op = p.op();
  op.accumulate = true;
  EXPECT_THAT(Define(op).value, ElementsAre(11, 21, 0, 5, 101.5, 202));
  EXPECT_THAT(Floats(Promise(op).out), ElementsAre(11, 21, 0, 5, 101.5, 202));
  EXPECT_TRUE(std::signbit(Floats(Promise(op).out)[2]));
  op.padding_idx = 0;
  op.scale_grad_by_freq = true;
  EXPECT_THAT(Floats(Promise(op).out), ElementsAre(1, 1, 0, 5, 51, 101));
}

// 2^24 + 1 is not an f32: left to right every 1 after 2^24 is lost, while ones summed first, or in a chunk of their
// own, count. Position 0 has 2^24, the rest are ones.
TEST(Oracle, OrderOfTheSum) {
  for (const std::int64_t n : {2, 512, 513, 514, 1025}) {
    Tensor grad(DType::kF32, {n, 1}), indices(DType::kI64, {n}), out(DType::kF32, {1, 1});
    for (std::int64_t i = 0; i < n; ++i) {
      grad.SetValue(i, i == 0 ? 0x1p24 : 1);
      indices.SetValue(i, 0);
    }
    const EmbeddingBackward op{.grad = grad.view(), .indices = indices.view(), .out = out.view()};
    // Chunk 0 sums to 2^24. Chunk 1 of n - 512 ones is folded onto it: 1 is lost (ties to even), 2 are not; 1025 has a
    // chunk of 512 and then one of a single 1, lost.
    const double want = n == 514 ? 0x1p24 + 2 : n == 1025 ? 0x1p24 + 512 : 0x1p24;
    EXPECT_THAT(Floats(Promise(op).out), ElementsAre(want)) << n;
    EXPECT_EQ(Define(op).value[0], 0x1p24L + static_cast<long double>(n - 1));
  }
}

TEST(Oracle, FoldsStartFromTheirFirstElement) {
  Tensor grad(DType::kF32, {2, 1}), indices(DType::kI64, {2}), out(DType::kF32, {1, 1});
  grad.SetAll({-0.0, -0.0});
  indices.SetAll({0, 0});
  const EmbeddingBackward op{.grad = grad.view(), .indices = indices.view(), .out = out.view()};
  EXPECT_TRUE(std::signbit(Floats(Promise(op).out)[0]));  // 0 + -0 + -0 would be +0
}

TEST(Oracle, HalfUnitInLastPlace) {
  EXPECT_EQ(HalfUnitInLastPlace(DType::kF32, 1.0L), 0x1p-24L);
  EXPECT_EQ(HalfUnitInLastPlace(DType::kF32, -1.75L), 0x1p-24L);
  EXPECT_EQ(HalfUnitInLastPlace(DType::kF64, 2.0L), 0x1p-52L);
  EXPECT_EQ(HalfUnitInLastPlace(DType::kBF16, 256.0L), 1.0L);
  EXPECT_EQ(HalfUnitInLastPlace(DType::kF16, 0.0L), 0x1p-25L);
}

// The checks themselves must be able to fail.
TEST(Oracle, ChecksFindAnOffByOneBit) {
  HandWorked p;
  const EmbeddingBackward op = p.op();
  p.out.SetAll({10, 20, 0, 0, 101, 202});
  EXPECT_TRUE(HasBits(p.out, Promise(op)));
  EXPECT_TRUE(WithinRounding(p.out, Define(op), 0x1p-52));
  EXPECT_TRUE(p.out.GapsUntouched());
  p.out.SetValue(4, std::nextafter(101.0f, 102.0f));
  EXPECT_FALSE(HasBits(p.out, Promise(op)));
  EXPECT_FALSE(WithinRounding(p.out, Define(op), 0x1p-52));
  p.out.SetAll({10, 20, -0.0, 0, 101, 202});
  EXPECT_FALSE(HasBits(p.out, Promise(op)));
  p.out.SetAll({10, 20, 0, 0, NAN, 202});
  EXPECT_FALSE(HasBits(p.out, Promise(op)));
  EXPECT_FALSE(WithinRounding(p.out, Define(op), 0x1p-52));

  Tensor gaps(DType::kF32, {2, 2}, {3, 1});
  EXPECT_TRUE(gaps.GapsUntouched());
  static_cast<float*>(gaps.view().data)[2] = 0;
  EXPECT_FALSE(gaps.GapsUntouched());
}

}  // namespace
}  // namespace onehot::test
