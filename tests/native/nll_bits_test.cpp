// What happens to single bits: zeros, NaN in places that must not be looked at, denormals, what accumulate leaves alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/native/nll_cases.h"
#include "tests/native/nll_oracle.h"
#include "tests/native/strides.h"

namespace onehot::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class NllBits : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, NllBits, ::testing::ValuesIn(kGradientDTypes),
                         [](const auto& info) { return std::string(onehot::Name(info.param)); });

// Values in f64 and in dtype that a position holds if it is ignored, or not.
template <class F>
void AtPositions(Tensor& tensor, const Tensor& target, std::int64_t ignore_index, F&& value) {
  for (std::int64_t i = 0; i < target.numel(); ++i)
    tensor.SetValue(i, value(i, target.Value(i) == static_cast<double>(ignore_index)));
}

// NaN stands everywhere but at the targets that count: in their rows, in ignored rows, in token weights and in the class
// weight of an ignored class.
TEST_P(NllBits, ForwardLooksAtTargetsAlone) {
  for (const std::int64_t ignore_index : {-100, 2})
    for (const Reduction reduction : kReductions) {
      NllProblem problem = MakeForward({.dims = {300, 5},
                                        .dtype = GetParam(),
                                        .reduction = reduction,
                                        .weight = GetParam(),
                                        .token_weight = GetParam(),
                                        .ignore_index = ignore_index});
      for (std::int64_t i = 0; i < 300; ++i)
        for (std::int64_t c = 0; c < 5; ++c)
          if (problem.target.Value(i) != static_cast<double>(c) || c == ignore_index)
            problem.input.SetValue(5 * i + c, kNaN);
      AtPositions(*problem.token_weight, problem.target, ignore_index,
                  [](std::int64_t i, bool ignored) { return ignored ? kNaN : 1 + static_cast<double>(i % 7); });
      if (ignore_index == 2) problem.weight->SetValue(2, kNaN);
      for (const double loss : Tensor(problem.loss).Values()) EXPECT_TRUE(std::isnan(loss));  // as made
      OnEveryTarget(problem.op(), {&problem.loss, &*problem.total_weight}, {1, 3}, [&] {
        for (std::int64_t i = 0; i < problem.loss.numel(); ++i) ASSERT_FALSE(std::isnan(problem.loss.Value(i))) << i;
        EXPECT_FALSE(std::isnan(problem.total_weight->Value(0)));
      });
      ExpectRight(std::move(problem));
    }
}

// Ignored positions are +0 with reduction none.
TEST_P(NllBits, IgnoredLossesArePlusZero) {
  NllProblem problem = MakeForward({.dims = {5000, 3}, .dtype = GetParam(), .reduction = Reduction::kNone});
  problem.input.SetAll(std::vector<double>(15000, kNaN));
  SetIndices(problem.target, std::vector<std::int64_t>(5000, -100));
  OnEveryTarget(problem.op(), {&problem.loss}, {1, 3}, [&] { EXPECT_THAT(problem.loss.Bytes(), Each(std::byte{0})); });
}

// Whatever stands at an ignored position, its gradient is +0: NaN, infinities, and a total weight of 0 or NaN.
TEST_P(NllBits, GradientsOfIgnoredPositionsArePlusZero) {
  for (const double odd : {kNaN, kInf, -kInf, -0.0})
    for (const Reduction reduction : kReductions)
      for (const Dims& dims : std::vector<Dims>{{300, 5}, {2, 5, 331}}) {
        NllBackwardProblem problem =
            MakeBackward({.dims = dims, .dtype = GetParam(), .reduction = reduction, .token_weight = GetParam()});
        const auto zero_at_ignored = [&](std::int64_t i, bool ignored) {
          return ignored ? odd : 1 + static_cast<double>(i % 7);
        };
        AtPositions(*problem.token_weight, problem.target, -100, zero_at_ignored);
        if (reduction == Reduction::kNone) AtPositions(problem.grad_output, problem.target, -100, zero_at_ignored);
        ExpectRight(problem);
        // Nothing counts at all.
        SetIndices(problem.target, std::vector<std::int64_t>(static_cast<std::size_t>(problem.target.numel()), -100));
        problem.grad_output.SetAll(std::vector<double>(static_cast<std::size_t>(problem.grad_output.numel()), odd));
        problem.token_weight->SetAll(std::vector<double>(static_cast<std::size_t>(problem.target.numel()), odd));
        if (problem.total_weight) problem.total_weight->SetValue(0, odd == kInf ? 0 : odd);
        OnEveryTarget(problem.op(), {&problem.out}, {1, 3},
                      [&] { EXPECT_THAT(problem.out.Bytes(), Each(std::byte{0})); });
      }
}

// A weight of NaN, infinity or 0 stays where its class is; zeros of both signs come out as the formula says.
TEST_P(NllBits, OddValuesStayWhereTheyAre) {
  for (const double odd : {kNaN, kInf, -kInf, 0.0, -0.0})
    for (const Reduction reduction : kReductions)
      for (const Dims& dims : std::vector<Dims>{{300, 5}, {2, 5, 331}}) {
        NllBackwardProblem problem =
            MakeBackward({.dims = dims, .dtype = GetParam(), .reduction = reduction, .weight = GetParam()});
        problem.weight->SetAll({1, 2, odd, -3, 0.5});
        const Tensor target = problem.target;
        OnEveryTarget(problem.op(), {&problem.out}, {2}, [&] {
          for (std::int64_t k = 0; k < problem.out.numel() && !std::isfinite(odd); ++k) {
            const std::int64_t P = dims.size() == 2 ? 1 : 331, c = k / P % 5, i = k / P / 5 * P + k % P;
            if (c == 2 && target.Value(i) == 2) continue;
            ASSERT_TRUE(std::isfinite(problem.out.Value(k))) << k;
          }
        });
        ExpectRight(problem);
        NllProblem forward =
            MakeForward({.dims = dims, .dtype = GetParam(), .reduction = reduction, .weight = GetParam()});
        forward.weight->SetAll({1, 2, odd, -3, 0.5});
        if (reduction == Reduction::kNone) ExpectRight(std::move(forward));
      }
}

// D is used as it is given: 0 gives infinities and NaN where positions count, and nothing anywhere else.
TEST_P(NllBits, TotalWeightAsGiven) {
  for (const double D : {0.0, -0.0, kNaN, kInf, -2.5, 1e-4}) {
    NllBackwardProblem problem = MakeBackward({.dims = {3, 4, 130}, .dtype = GetParam(), .weight = GetParam()});
    problem.weight->SetAll({1, 0, -2, 0.25});
    problem.total_weight->SetValue(0, D);
    ExpectRight(std::move(problem));
  }
  for (const double D : {0.0, -0.0, kInf, -2.5}) {
    NllProblem problem = MakeForward({.dims = {3, 4, 130}, .dtype = GetParam(), .denominator = DType::kF64});
    problem.denominator->SetValue(0, D);
    ExpectRight(std::move(problem));
  }
}

// D is 0 though positions count: IEEE arithmetic, zero_if_empty or not.
TEST_P(NllBits, WeightsThatAddUpToZero) {
  for (const bool zero_if_empty : {false, true}) {
    NllProblem problem =
        MakeForward({.dims = {2, 2}, .dtype = GetParam(), .weight = GetParam(), .zero_if_empty = zero_if_empty});
    problem.input.SetAll({-1, -2, -4, -8});
    SetIndices(problem.target, {0, 1});
    problem.weight->SetAll({1, -1});  // 1 * 1 + -1 * 8 = -7, over 0
    OnEveryTarget(problem.op(), {&problem.loss, &*problem.total_weight}, {1}, [&] {
      EXPECT_EQ(problem.loss.Value(0), -kInf);
      EXPECT_EQ(problem.total_weight->Value(0), 0);
    });
    problem.weight->SetAll({0, 0});
    OnEveryTarget(problem.op(), {&problem.loss, &*problem.total_weight}, {1},
                  [&] { EXPECT_TRUE(std::isnan(problem.loss.Value(0))); });
  }
}

// What a reduction does not need is not read: neither its value nor, as the header says nothing of its dtype, that.
TEST_P(NllBits, WhatIsNotNeededIsNotRead) {
  for (const Reduction reduction : {Reduction::kNone, Reduction::kSum}) {
    NllProblem forward =
        MakeForward({.dims = {40, 5}, .dtype = GetParam(), .reduction = reduction, .denominator = DType::kF32});
    forward.denominator->SetValue(0, kNaN);
    ExpectRight(forward);
    NllLoss op = forward.op();
    op.denominator->data = nullptr;
    OnEveryTarget(op, {&forward.loss, &*forward.total_weight}, {1}, [] {});
    NllBackwardProblem backward = MakeBackward({.dims = {40, 5}, .dtype = GetParam(), .reduction = reduction});
    backward.total_weight.emplace(GetParam(), Dims{});
    backward.total_weight->SetValue(0, kNaN);
    ExpectRight(backward);
    NllLossBackward back = backward.op();
    back.total_weight->data = nullptr;
    OnEveryTarget(back, {&backward.out}, {1}, [] {});
  }
  // The total weight of reduction none is 0, whatever there is.
  NllProblem none =
      MakeForward({.dims = {40, 5}, .dtype = GetParam(), .reduction = Reduction::kNone, .weight = GetParam()});
  OnEveryTarget(none.op(), {&none.loss, &*none.total_weight}, {1},
                [&] { EXPECT_THAT(none.total_weight->Bytes(), Each(std::byte{0})); });
}

// Elements that get nothing keep every bit of a signalling NaN; all 16 lanes of a line are such elements somewhere.
TEST_P(NllBits, AccumulateTouchesNothingElse) {
  for (const Dims& dims : std::vector<Dims>{{500, 21}, {2, 3, 1000}, {1, 150, 97}, {3, 70, 5}, {3, 5000}})
    for (const bool blocky : {false, true})
      for (const Reduction reduction : kReductions)
        for (const bool compact : {false, true})
          ExpectRightBackward({.dims = dims,
                               .dtype = GetParam(),
                               .target = DType::kI16,
                               .reduction = reduction,
                               .like = {.blocky = blocky},
                               .accumulate = true,
                               .compact = compact},
                              {1, 3});
}

// One addition and one rounding: not the rounded gradient added to the old value. In f16 and bf16, 1 + u/2 is a tie that
// goes down; with the 2^-20 that a rounded gradient keeps and a rounded sum sees, it goes up.
TEST(NllRounding, AccumulateRoundsOnce) {
  for (const auto& [dtype, half] : {std::pair{DType::kF16, 0x1p-11}, {DType::kBF16, 0x1p-8}}) {
    Tensor grad(DType::kF32, {}), target(DType::kI64, {2}), out(dtype, {2, 2});
    SetIndices(target, {0, 1});
    out.SetAll({1, 5, 6, 7});
    // To 8 and 11 bits, half * (1 + 2^-13) is half.
    grad.SetValue(0, -half * (1 + 0x1p-11 - 0x1p-13));
    const NllLossBackward op{.grad_output = grad.view(),
                             .target = target.view(),
                             .out = out.view(),
                             .reduction = Reduction::kSum,
                             .accumulate = true};
    const double up = 1 + 2 * half;
    OnEveryTarget(op, {&out}, {1}, [&, up] { EXPECT_EQ(out.Value(0), up); });
  }
}

// Products are rounded in the order the header gives: ((w * t) * g) / D in f32, nothing fused or exchanged.
TEST(NllRounding, OrderOfTheProduct) {
  Random random(5);
  int differ = 0;
  for (int round = 0; round < 200; ++round) {
    const auto number = [&] { return static_cast<float>(1 + random.Unit()); };
    const float w = number(), t = number(), g = number(), D = number();
    const float want = -(((w * t) * g) / D);
    differ += want != -((w * (t * g)) / D) || want != -((w * t) * (g / D));
    Tensor grad(DType::kF32, {}), target(DType::kI64, {1}), out(DType::kF32, {1, 1}), weight(DType::kF32, {1}),
        token_weight(DType::kF32, {1}), total(DType::kF32, {});
    grad.Set(0, g), weight.Set(0, w), token_weight.Set(0, t), total.Set(0, D);
    SetIndices(target, {0});
    const NllLossBackward op{.grad_output = grad.view(),
                             .target = target.view(),
                             .out = out.view(),
                             .total_weight = total.view(),
                             .weight = weight.view(),
                             .token_weight = token_weight.view()};
    for (const Target& on : Targets<NllLossBackward>()) {
      if (!Takes(on, op)) continue;
      EXPECT_OK(RunOn(on, op));
      ASSERT_EQ(out.Get<float>(0), want) << on.name();
    }
  }
  EXPECT_GT(differ, 50);
}

// A total weight in f64 is rounded to f32 before it divides.
TEST(NllRounding, OperandsAreRoundedToF32) {
  Tensor grad(DType::kF32, {}), target(DType::kI64, {1}), out(DType::kF32, {1, 1}), total(DType::kF64, {});
  grad.SetValue(0, 1), SetIndices(target, {0});
  const NllLossBackward op{
      .grad_output = grad.view(), .target = target.view(), .out = out.view(), .total_weight = total.view()};
  int differ = 0;
  Random random(6);
  for (int round = 0; round < 100; ++round) {
    const double D = 1 + random.Unit();
    total.SetValue(0, D);
    const float want = -(1 / static_cast<float>(D));
    differ += static_cast<double>(want) != static_cast<double>(static_cast<float>(-1 / D));
    for (const Target& on : Targets<NllLossBackward>()) {
      if (!Takes(on, op)) continue;
      EXPECT_OK(RunOn(on, op));
      ASSERT_EQ(out.Get<float>(0), want) << on.name();
    }
  }
  EXPECT_GT(differ, 10);
}

// Nothing flushes denormals, in or out.
TEST_P(NllBits, DenormalsSurvive) {
  const double least = GetParam() == DType::kF64   ? 0x1p-1074
                       : GetParam() == DType::kF32 ? 0x1p-149
                       : GetParam() == DType::kF16 ? 0x1p-24
                                                   : 0x1p-133;
  for (const bool accumulate : {false, true})
    for (const Dims& dims : std::vector<Dims>{{90, 3}, {2, 3, 90}}) {
      NllBackwardProblem problem = MakeBackward({.dims = dims,
                                                 .dtype = GetParam(),
                                                 .reduction = Reduction::kNone,
                                                 .token_weight = GetParam(),
                                                 .accumulate = accumulate});
      for (std::int64_t i = 0; i < problem.target.numel(); ++i) {
        problem.grad_output.SetValue(i, least * static_cast<double>(1 + i % 5));
        problem.token_weight->SetValue(i, i % 3 == 0 ? -1 : 1);
      }
      if (accumulate) problem.out.SetAll(std::vector<double>(static_cast<std::size_t>(problem.out.numel()), 7 * least));
      bool some = false;
      OnEveryTarget(problem.op(), {&problem.out}, {1}, [&] {
        for (std::int64_t k = 0; k < problem.out.numel(); ++k)
          some = some || (problem.out.Value(k) != 0 && problem.out.Value(k) != 7 * least);
        EXPECT_TRUE(some);
      });
      ExpectRight(std::move(problem));
      NllProblem forward = MakeForward({.dims = dims, .dtype = GetParam(), .reduction = Reduction::kNone});
      for (std::int64_t k = 0; k < forward.input.numel(); ++k)
        forward.input.SetValue(k, -least * static_cast<double>(1 + k % 5));
      ExpectRight(std::move(forward));
    }
}

// 65504 is the largest f16. 65520, halfway to what would be the next, and above rounds to infinity.
TEST(NllRounding, OverflowOfTheOutputIsInfinity) {
  Tensor grad(DType::kF32, {4}), target(DType::kI64, {4}), out(DType::kF16, {4, 1});
  SetIndices(target, {0, 0, 0, 0});
  grad.SetAll({65504, 65519, 65520, -1e6});
  const NllLossBackward op{
      .grad_output = grad.view(), .target = target.view(), .out = out.view(), .reduction = Reduction::kNone};
  OnEveryTarget(op, {&out}, {1}, [&] { EXPECT_THAT(out.Values(), ElementsAre(-65504, -65504, -kInf, kInf)); });
}

// A sum starts from +0, so no sum of zeros is -0.
TEST_P(NllBits, SumsOfZeros) {
  for (const std::int64_t N : {1, 5, 4097}) {
    NllProblem problem = MakeForward({.dims = {N, 2}, .dtype = GetParam(), .reduction = Reduction::kSum});
    problem.input.SetAll(std::vector<double>(static_cast<std::size_t>(2 * N), 0.0));  // every term is -0
    OnEveryTarget(problem.op(), {&problem.loss, &*problem.total_weight}, {1, 3},
                  [&] { EXPECT_THAT(problem.loss.Bytes(), Each(std::byte{0})); });
  }
}

}  // namespace
}  // namespace onehot::test
