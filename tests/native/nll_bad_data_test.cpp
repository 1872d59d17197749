// Targets that name no class: found before anything is written, the smallest position wins, the sentence says it all.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/native/nll_cases.h"
#include "tests/native/strides.h"

namespace onehot::test {
namespace {

constexpr std::int64_t kI64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kI64Min = std::numeric_limits<std::int64_t>::min();

// The class axis comes after the first axis of target, or is all there is.
Dims WithClasses(const TensorLayout& target, std::int64_t C) {
  Dims dims(target.dims.begin(), target.dims.begin() + target.rank);
  dims.insert(dims.begin() + (target.rank == 0 ? 0 : 1), C);
  return dims;
}

// Forward and backward, plain, accumulated and compact, with every reduction.
void ExpectBad(const Tensor& target, std::int64_t C, const std::string& message, std::int64_t ignore_index = -100,
               const std::vector<int>& threads = {1, 3}) {
  SCOPED_TRACE("C " + std::to_string(C) + ", " + std::string(onehot::Name(target.layout().dtype)));
  const Dims dims = WithClasses(target.layout(), C);
  const Dims positions(target.layout().dims.begin(), target.layout().dims.begin() + target.layout().rank);
  for (const Reduction reduction : kReductions) {
    const bool none = reduction == Reduction::kNone;
    Tensor input(DType::kF32, dims), loss(DType::kF32, none ? positions : Dims{}), total(DType::kF32, {});
    const NllLoss forward{.input = input.view(),
                          .target = target.view(),
                          .loss = loss.view(),
                          .total_weight = total.view(),
                          .reduction = reduction,
                          .ignore_index = ignore_index};
    ExpectBadData(forward, {&loss, &total}, message, threads);
    Tensor one(DType::kF32, {});
    one.SetValue(0, 3);
    for (const bool compact : {false, true})
      for (const bool accumulate : {false, true}) {
        if (accumulate && none) continue;
        Tensor grad(DType::kF32, none ? positions : Dims{}), out(DType::kF32, compact ? positions : dims);
        if (accumulate) FillSignalling(out);
        const NllLossBackward backward{.grad_output = grad.view(),
                                       .target = target.view(),
                                       .out = out.view(),
                                       .total_weight = one.view(),
                                       .reduction = reduction,
                                       .ignore_index = ignore_index,
                                       .accumulate = accumulate,
                                       .compact = compact,
                                       .num_classes = C};
        ExpectBadData(backward, {&out}, message, threads);
      }
  }
}

Tensor I64(const std::vector<std::int64_t>& values) {
  Tensor target(DType::kI64, {static_cast<std::int64_t>(values.size())});
  SetIndices(target, values);
  return target;
}

TEST(NllBadData, JustOutside) {
  ExpectBad(I64({1, 4, 2}), 4, "target[1] = 4 is outside [0, 4)");
  ExpectBad(I64({-1}), 4, "target[0] = -1 is outside [0, 4)");
  ExpectBad(I64({0, 0, 1}), 1, "target[2] = 1 is outside [0, 1)");
  ExpectBad(I64({-100, -99}), 4, "target[1] = -99 is outside [0, 4)");
  ExpectBad(I64({-100, -101}), 4, "target[1] = -101 is outside [0, 4)");
}

TEST(NllBadData, NoClassesAtAll) {
  ExpectBad(I64({0}), 0, "target[0] = 0 is outside [0, 0)");
  ExpectBad(I64({-100, -100, 5}), 0, "target[2] = 5 is outside [0, 0)");
}

// Values that look right in their low 8, 16 or 32 bits.
TEST(NllBadData, ValuesThatNarrow) {
  for (const std::int64_t value :
       {std::int64_t{256}, std::int64_t{257}, std::int64_t{65536} + 2, std::int64_t{1} << 31, std::int64_t{1} << 32,
        (std::int64_t{1} << 32) + 1, kI64Min, kI64Max, kI64Min + 1, std::int64_t{100000000000000000},
        -(std::int64_t{1} << 32), -(std::int64_t{1} << 32) + 1, std::int64_t{1} << 62, (std::int64_t{1} << 32) - 100})
    ExpectBad(I64({0, 1, value, 2}), 5, "target[2] = " + std::to_string(value) + " is outside [0, 5)");
}

// At every place of a vector and of a thread's share.
TEST(NllBadData, EveryPosition) {
  for (const DType dtype : kTargetDTypes)
    for (const std::int64_t N : {1, 7, 16, 33, 70})
      for (std::int64_t bad = 0; bad < N; bad += N < 20 ? 1 : 3) {
        Tensor target(dtype, {N});
        SetIndices(target, std::vector<std::int64_t>(static_cast<std::size_t>(N), 2));
        target.SetValue(bad, 3);
        ExpectBad(target, 3, "target[" + std::to_string(bad) + "] = 3 is outside [0, 3)", -100, {1});
      }
}

TEST(NllBadData, TheSmallestPositionWins) {
  ExpectBad(I64({0, 1, 9, -5, 9}), 3, "target[2] = 9 is outside [0, 3)");
  ExpectBad(I64({0, 1, -5, 9, 9}), 3, "target[2] = -5 is outside [0, 3)");
  // Far apart: each lies in another block, and in another thread's share.
  for (const DType dtype : kTargetDTypes) {
    Tensor target(dtype, {50001});
    SetIndices(target, Indices(Spread::kUniform, 50001, 2, 2));
    target.SetValue(50000, 127);
    ExpectBad(target, 2, "target[50000] = 127 is outside [0, 2)", -100, {3});
    target.SetValue(30000, 2);
    target.SetValue(24999, 4);
    target.SetValue(25001, 3);
    ExpectBad(target, 2, "target[24999] = 4 is outside [0, 2)", -100, {2});
    target.SetValue(3, 120);
    ExpectBad(target, 2, "target[3] = 120 is outside [0, 2)", -100, {3});
  }
}

TEST(NllBadData, EveryTargetDType) {
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kI16, DType::kI8}) {
    Tensor target(dtype, {20});
    SetIndices(target, std::vector<std::int64_t>(20, 3));
    const std::int64_t least = dtype == DType::kI64 ? kI64Min : -(std::int64_t{1} << (8 * SizeOf(dtype) - 1));
    for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{10}, least, -(least + 1)}) {
      if (dtype == DType::kI64)
        target.Set(13, value);
      else
        target.SetValue(13, static_cast<double>(value));
      ExpectBad(target, 10, "target[13] = " + std::to_string(value) + " is outside [0, 10)");
    }
  }
  Tensor bytes(DType::kU8, {20});
  SetIndices(bytes, std::vector<std::int64_t>(20, 3));
  bytes.SetValue(19, 255);
  ExpectBad(bytes, 255, "target[19] = 255 is outside [0, 255)");
  bytes.SetValue(0, 128);
  ExpectBad(bytes, 10, "target[0] = 128 is outside [0, 10)");
}

// ignore_index is a 64-bit integer, and so is what it is compared with.
TEST(NllBadData, IgnoreIndexIsComparedInSixtyFourBits) {
  Tensor bytes(DType::kU8, {3}), small(DType::kI8, {3}), ints(DType::kI32, {3});
  SetIndices(bytes, {0, 255, 0});
  ExpectBad(bytes, 10, "target[1] = 255 is outside [0, 10)", -1);
  ExpectBad(bytes, 10, "target[1] = 255 is outside [0, 10)", 511);
  SetIndices(bytes, {1, 0, 11});
  ExpectBad(bytes, 10, "target[2] = 11 is outside [0, 10)", 256);
  SetIndices(small, {1, -1, 0});
  ExpectBad(small, 10, "target[1] = -1 is outside [0, 10)", 255);
  ExpectBad(small, 10, "target[1] = -1 is outside [0, 10)", 0xFFFFFFFF);
  SetIndices(ints, {1, -1, 0});
  ExpectBad(ints, 10, "target[1] = -1 is outside [0, 10)", 0xFFFFFFFF);
  ExpectBad(I64({1, 0xFFFFFFFF, 0}), 10, "target[1] = 4294967295 is outside [0, 10)", -1);
  ExpectBad(I64({1, (std::int64_t{1} << 32) + 1, 0}), 10, "target[1] = 4294967297 is outside [0, 10)", 1);
}

// The same values where they are ignored, or good.
TEST(NllBadData, WhatIsIgnoredIsNotBad) {
  const auto expect = [](const Tensor& target, std::int64_t C, std::int64_t ignore_index) {
    SCOPED_TRACE(ignore_index);
    for (const Reduction reduction : kReductions) {
      const NllCase c{
          .dims = {target.numel(), C}, .reduction = reduction, .weight = DType::kF32, .ignore_index = ignore_index};
      NllProblem forward = MakeForward(c);
      forward.target = target;
      ExpectRight(std::move(forward));
      NllBackwardProblem backward = MakeBackward(c);
      backward.target = target;
      ExpectRight(std::move(backward));
    }
  };
  Tensor bytes(DType::kU8, {4}), small(DType::kI8, {4});
  SetIndices(bytes, {0, 255, 254, 3});
  expect(bytes, 255, 255);
  expect(bytes, 300, 256);  // 255 is a class
  expect(bytes, 300, -1);
  expect(bytes, 300, 255);
  SetIndices(small, {0, -1, 127, -1});
  expect(small, 128, -1);
  for (const std::int64_t far : {kI64Min, kI64Max, std::int64_t{1} << 40, -(std::int64_t{1} << 32)})
    expect(I64({0, far, 1, far}), 3, far);
}

TEST(NllBadData, CoordinatesOfHigherRanks) {
  Tensor image(DType::kI32, {3, 4, 5});
  SetIndices(image, std::vector<std::int64_t>(60, 1));
  image.SetValue(2 * 20 + 1 * 5 + 3, -7);
  ExpectBad(image, 4, "target[2, 1, 3] (position 48) = -7 is outside [0, 4)");
  Tensor line(DType::kU8, {2, 3});
  SetIndices(line, {0, 1, 2, 3, 4, 10});
  ExpectBad(line, 10, "target[1, 2] (position 5) = 10 is outside [0, 10)");
  Tensor scalar(DType::kI64, {});
  SetIndices(scalar, {5});
  ExpectBad(scalar, 5, "target[0] = 5 is outside [0, 5)");
}

// Position and coordinates count elements of the view, in its order, wherever they lie.
TEST(NllBadData, CoordinatesOfStridedTargets) {
  for (const Form form : kForms) {
    Tensor target(DType::kI64, {4, 6}, StridesOf(form, 4, 6));
    SetIndices(target, std::vector<std::int64_t>(24, 0));
    target.Set(15, std::int64_t{77});
    target.Set(20, std::int64_t{78});
    ExpectBad(target, 7, "target[2, 3] (position 15) = 77 is outside [0, 7)");
  }
  for (const Dims& strides : AllPermutedStrides({6, 40, 50}, 1)) {
    Tensor target(DType::kU8, {6, 40, 50}, strides);
    SetIndices(target, std::vector<std::int64_t>(12000, 0));
    target.SetValue(5 * 2000, 9);
    target.SetValue(4 * 2000 + 39 * 50 + 1, 8);
    ExpectBad(target, 1, "target[4, 39, 1] (position 9951) = 8 is outside [0, 1)", -100, {3});
  }
}

// Any class axis: the coordinates are those of target.
TEST(NllBadData, CoordinatesWithClassesLast) {
  Tensor input(DType::kF32, {2, 3, 5}), target(DType::kI64, {2, 3}), loss(DType::kF32, {});
  SetIndices(target, {0, 1, 2, 3, 4, 5});
  const NllLoss op{.input = input.view(), .target = target.view(), .loss = loss.view(), .class_axis = -1};
  ExpectBadData(op, {&loss}, "target[1, 2] (position 5) = 5 is outside [0, 5)");
}

// Large outputs: not a byte of them is written before the last target is checked.
TEST(NllBadData, LargeOutputsAreUntouched) {
  const OutputsPastCaches past_caches;
  for (const bool compact : {false, true}) {
    NllBackwardProblem problem = MakeBackward({.dims = {2, 21, 30000}, .compact = compact});
    problem.target.SetValue(59999, 21);
    ExpectBadData(problem.op(), {&problem.out}, "target[1, 29999] (position 59999) = 21 is outside [0, 21)");
  }
}

}  // namespace
}  // namespace onehot::test
