// The oracle of the NLL loss on numbers that can be worked by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/native/nll_cases.h"
#include "tests/native/nll_oracle.h"

namespace onehot::test {
namespace {

using ::testing::ElementsAre;

std::vector<double> Numbers(const Bits& bits, DType dtype) {
  std::vector<double> values;
  const TensorLayout flat{.dtype = dtype, .rank = 0};
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(bits.size()) / SizeOf(dtype); ++k)
    values.push_back(ValueAt(flat, bits.data(), k));
  return values;
}

// Three positions, three classes: targets 2, ignored, 0; w = (2, 10, 4), t = (3, 7, 5).
//   terms   -(4 * 3) * -0.5 = 6,  0,  -(2 * 5) * -1.5 = 15
//   D       12 + 10 = 22
struct ByHand {
  Tensor input{DType::kF32, {3, 3}}, target{DType::kI64, {3}}, weight{DType::kF32, {3}}, token_weight{DType::kF32, {3}};
  Tensor scalar{DType::kF64, {}}, each{DType::kF32, {3}}, out{DType::kF32, {3, 3}}, total{DType::kF64, {}};
  NllLoss forward;
  NllLossBackward backward;

  explicit ByHand(bool token_weights = true) {
    input.SetAll({-1, -2, -0.5, -4, -8, -16, -1.5, -3, -6});
    target.SetAll({2, -100, 0});
    weight.SetAll({2, 10, 4});
    token_weight.SetAll({3, 7, 5});
    total.SetAll({22});
    forward.input = input.view(), forward.target = target.view(), forward.loss = scalar.view();
    forward.total_weight = total.view(), forward.weight = weight.view();
    backward.grad_output = each.view(), backward.target = target.view(), backward.out = out.view();
    backward.total_weight = total.view(), backward.weight = weight.view();
    if (token_weights) forward.token_weight = backward.token_weight = token_weight.view();
  }
};

TEST(NllOracle, ForwardByHand) {
  ByHand by_hand;
  NllLoss& op = by_hand.forward;
  op.reduction = Reduction::kSum;
  EXPECT_THAT(Numbers(Promise(op).loss, DType::kF64), ElementsAre(21));
  EXPECT_THAT(Numbers(Promise(op).total_weight, DType::kF64), ElementsAre(22));
  EXPECT_THAT(DefineLoss(op).value, ElementsAre(21));
  EXPECT_THAT(DefineTotalWeight(op).value, ElementsAre(22));
  op.reduction = Reduction::kMean;
  EXPECT_THAT(Numbers(Promise(op).loss, DType::kF64), ElementsAre(21.0 / 22.0));
  EXPECT_TRUE(WithinBounds(Promise(op).loss, DType::kF64, DefineLoss(op)));
  const float ten = 10;
  op.denominator = ConstTensorView(&ten, DType::kF32, {1});
  EXPECT_THAT(Numbers(Promise(op).loss, DType::kF64), ElementsAre(2.1));
  EXPECT_THAT(Numbers(Promise(op).total_weight, DType::kF64), ElementsAre(22));
  op.reduction = Reduction::kNone;
  op.loss = by_hand.each.view();
  EXPECT_THAT(Numbers(Promise(op).loss, DType::kF32), ElementsAre(6, 0, 15));
  EXPECT_THAT(Numbers(Promise(op).total_weight, DType::kF64), ElementsAre(0));
  EXPECT_THAT(DefineLoss(op).value, ElementsAre(6, 0, 15));
}

TEST(NllOracle, EverythingIgnored) {
  ByHand by_hand;
  by_hand.target.SetAll({-100, -100, -100});
  NllLoss& op = by_hand.forward;
  EXPECT_TRUE(std::isnan(Numbers(Promise(op).loss, DType::kF64)[0]));
  op.zero_if_empty = true;
  EXPECT_THAT(Numbers(Promise(op).loss, DType::kF64), ElementsAre(0));
  EXPECT_THAT(Numbers(Promise(op).total_weight, DType::kF64), ElementsAre(0));
}

// g = 11: -4 * 3 * 11 / 22 = -6 and -2 * 5 * 11 / 22 = -5.
TEST(NllOracle, BackwardByHand) {
  ByHand by_hand;
  NllLossBackward& op = by_hand.backward;
  by_hand.each.SetAll({11, 1000, -2});
  const float eleven = 11;
  op.grad_output = ConstTensorView(&eleven, DType::kF32, {});
  EXPECT_THAT(Numbers(Promise(op), DType::kF32), ElementsAre(0, 0, -6, 0, 0, 0, -5, 0, 0));
  op.reduction = Reduction::kSum;
  EXPECT_THAT(Numbers(Promise(op), DType::kF32), ElementsAre(0, 0, -132, 0, 0, 0, -110, 0, 0));
  op.reduction = Reduction::kNone;
  op.grad_output = by_hand.each.view();
  EXPECT_THAT(Numbers(Promise(op), DType::kF32), ElementsAre(0, 0, -132, 0, 0, 0, 20, 0, 0));
  EXPECT_TRUE(WithinBounds(Promise(op), DType::kF32, Define(op)));
  op.accumulate = true;
  by_hand.out.SetAll({1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_THAT(Numbers(Promise(op), DType::kF32), ElementsAre(1, 2, -129, 4, 5, 6, 27, 8, 9));
  op.accumulate = false, op.compact = true, op.num_classes = 3;
  op.out = by_hand.each.view();
  EXPECT_THAT(Numbers(Promise(op), DType::kF32), ElementsAre(-132, 0, 20));
}

// Class axis first and last: the same numbers, transposed.
TEST(NllOracle, ClassAxes) {
  for (const int axis : {0, 2, -1, -3}) {
    const bool first = axis == 0 || axis == -3;
    Tensor input(DType::kF32, first ? Dims{3, 2, 2} : Dims{2, 2, 3}), target(DType::kI32, {2, 2}),
        loss(DType::kF32, {2, 2}), out = input;
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t c = 0; c < 3; ++c)
        input.SetValue(first ? c * 4 + i : i * 3 + c, static_cast<double>(10 * i + c));
    target.SetAll({2, 0, 1, 2});
    NllLoss op{.input = input.view(), .target = target.view(), .loss = loss.view(), .reduction = Reduction::kNone};
    op.class_axis = axis;
    EXPECT_THAT(Numbers(Promise(op).loss, DType::kF32), ElementsAre(-2, -10, -21, -32));
    loss.SetAll({1, 2, 3, 4});
    NllLossBackward back{.grad_output = loss.view(), .target = target.view(), .out = out.view()};
    back.reduction = Reduction::kNone, back.class_axis = axis;
    if (first) {
      EXPECT_THAT(Numbers(Promise(back), DType::kF32), ElementsAre(0, -2, 0, 0, 0, 0, -3, 0, -1, 0, 0, -4));
    } else {
      EXPECT_THAT(Numbers(Promise(back), DType::kF32), ElementsAre(0, 0, -1, -2, 0, 0, 0, -3, 0, 0, 0, -4));
    }
  }
}

// 2^53 swallows a one that is added to it, so where ones end up says in which order they were added. Lane j takes
// positions j, j + 16, ...; lanes 0 and 8 meet first, then 4, 2 and 1; the block after 4096 comes last.
TEST(NllOracle, SumsInThePromisedOrder) {
  const std::int64_t N = 4096 + 16;
  Tensor input(DType::kF64, {N, 1}), target(DType::kI64, {N}), loss(DType::kF64, {});
  const NllLoss op{.input = input.view(), .target = target.view(), .loss = loss.view(), .reduction = Reduction::kSum};
  const auto sum = [&](const std::vector<std::pair<std::int64_t, double>>& terms) {
    input.SetAll(std::vector<double>(static_cast<std::size_t>(N), 0));
    target.SetAll(std::vector<double>(static_cast<std::size_t>(N), 0));
    for (const auto& term : terms) input.SetValue(term.first, -term.second);
    return Numbers(Promise(op).loss, DType::kF64)[0];
  };
  const double big = 0x1p53;
  EXPECT_EQ(sum({{0, big}, {16, 1}, {32, 1}}), big);             // one lane: each one is lost
  EXPECT_EQ(sum({{0, 1}, {16, 1}, {32, big}}), big + 2);         // not if they come first
  EXPECT_EQ(sum({{0, big}, {1, 1}, {17, 1}}), big + 2);          // lanes are added up first
  EXPECT_EQ(sum({{0, big}, {8, 1}, {4, 1}, {12, 1}}), big + 2);  // (0 + 8) + (4 + 12)
  EXPECT_EQ(sum({{0, big}, {8, 1}, {4, 1}}), big);               // (0 + 8) + 4
  EXPECT_EQ(sum({{0, big}, {1, 1}, {2, 1}}), big);               // ((0) + 2) + 1
  EXPECT_EQ(sum({{0, big}, {1, 1}, {3, 1}}), big + 2);           // 0 + (1 + 3)
  EXPECT_EQ(sum({{0, big}, {4096, 1}, {4097, 1}}), big + 2);     // the next block by itself
  EXPECT_EQ(sum({{4096, big}, {0, 1}, {1, 1}}), big + 2);
}

// One rounding: 2049 halfway between 2048 and 2050 in f16, and a bit above that.
TEST(NllOracle, ResultsAreRoundedOnce) {
  Tensor input(DType::kF16, {2, 1}), target(DType::kU8, {2}), loss(DType::kF16, {});
  target.SetAll({0, 0});
  const NllLoss op{.input = input.view(), .target = target.view(), .loss = loss.view(), .reduction = Reduction::kSum};
  input.SetAll({-2048, -1});
  EXPECT_THAT(Numbers(Promise(op).loss, DType::kF16), ElementsAre(2048));
  input.SetAll({-2048, -1 - 0x1p-10});
  EXPECT_THAT(Numbers(Promise(op).loss, DType::kF16), ElementsAre(2050));
}

TEST(NllOracle, BoundsCatchWhatIsOutside) {
  Bits bits(8);
  const float values[] = {1, 0x1.000004p0F};
  std::memcpy(bits.data(), values, 8);
  EXPECT_TRUE(WithinBounds(bits, DType::kF32, {{1, 1}, {0, 0x1p-22L}}));
  EXPECT_FALSE(WithinBounds(bits, DType::kF32, {{1, 1}, {0, 0x1p-24L}}));
  EXPECT_FALSE(WithinBounds(bits, DType::kF32, {{1, NAN}, {0, 1}}));
  EXPECT_FALSE(WithinBounds(bits, DType::kF32, {{1}, {0}}));
}

TEST(NllOracle, SameBitsKnowsSignallingFromQuiet) {
  for (const DType dtype : kGradientDTypes) {
    Tensor a(dtype, {5}), b(dtype, {5});  // quiet NaN at first
    EXPECT_TRUE(SameBits(a, b.Bytes()));
    FillSignalling(b);
    for (std::int64_t i = 0; i < 5; ++i) EXPECT_TRUE(std::isnan(b.Value(i)));
    EXPECT_FALSE(SameBits(a, b.Bytes()));
    EXPECT_FALSE(SameBits(b, a.Bytes()));
    EXPECT_TRUE(SameBits(b, b.Bytes()));
    a.SetAll({0, 1, 2, 3, 4}), b.SetAll({0, 1, 2, 3, 4});
    b.SetValue(0, -0.0);
    EXPECT_FALSE(SameBits(a, b.Bytes()));
  }
}

}  // namespace
}  // namespace onehot::test
