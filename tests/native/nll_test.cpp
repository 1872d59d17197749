// The NLL loss and its gradient: every combination of dtypes and options, and every size a loop may take differently.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/native/nll_cases.h"

namespace onehot::test {
namespace {

class Nll : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Nll, ::testing::ValuesIn(kGradientDTypes),
                         [](const auto& info) { return std::string(onehot::Name(info.param)); });

// Not given, or each dtype that goes with `base`.
std::vector<std::optional<DType>> Operands(DType base) {
  std::vector<std::optional<DType>> all{std::nullopt, base};
  if (base != DType::kF32) all.push_back(DType::kF32);
  return all;
}

std::vector<DType> Wider(DType base) {
  if (base == DType::kF64) return {DType::kF64};
  if (base == DType::kF32) return {DType::kF32, DType::kF64};
  return {base, DType::kF32, DType::kF64};
}

TEST_P(Nll, EveryCombinationForward) {
  for (const DType target : kTargetDTypes)
    for (const Reduction reduction : kReductions)
      for (const auto weight : Operands(GetParam()))
        for (const auto token_weight : Operands(GetParam()))
          for (const DType result : Wider(GetParam()))
            ExpectRightForward({.dims = {2, 5, 3, 7},
                                .dtype = GetParam(),
                                .target = target,
                                .reduction = reduction,
                                .result = result,
                                .weight = weight,
                                .token_weight = token_weight});
}

TEST_P(Nll, EveryCombinationBackward) {
  for (const DType target : kTargetDTypes)
    for (const Reduction reduction : kReductions)
      for (const auto weight : Operands(GetParam()))
        for (const auto token_weight : Operands(GetParam()))
          for (const DType grad_output : {GetParam(), DType::kF32})
            for (const bool accumulate : {false, true})
              ExpectRightBackward({.dims = {2, 5, 3, 7},
                                   .dtype = GetParam(),
                                   .target = target,
                                   .reduction = reduction,
                                   .result = grad_output,
                                   .weight = weight,
                                   .token_weight = token_weight,
                                   .accumulate = accumulate,
                                   .compact = weight.has_value() == token_weight.has_value() && target == DType::kI32});
}

TEST_P(Nll, CompactIsOneValueForEachPosition) {
  for (const DType target : kTargetDTypes)
    for (const Reduction reduction : kReductions)
      for (const bool accumulate : {false, true})
        for (const Dims& dims : std::vector<Dims>{{19}, {33, 19}, {2, 3, 5, 7}, {3, 21, 1337}})
          ExpectRightBackward({.dims = dims,
                               .dtype = GetParam(),
                               .target = target,
                               .reduction = reduction,
                               .weight = GetParam(),
                               .token_weight = DType::kF32,
                               .accumulate = accumulate,
                               .compact = true},
                              {1, 3});
}

TEST_P(Nll, DenominatorAndTotalWeight) {
  for (const Reduction reduction : kReductions)
    for (const auto weight : Operands(GetParam())) {
      for (const DType denominator : {DType::kF32, DType::kF64})
        for (const bool zero_if_empty : {false, true})
          ExpectRightForward({.dims = {3, 4, 50},
                              .dtype = GetParam(),
                              .reduction = reduction,
                              .weight = weight,
                              .denominator = denominator,
                              .zero_if_empty = zero_if_empty});
      for (const DType total_weight : {GetParam(), DType::kF32, DType::kF64})
        ExpectRightBackward({.dims = {3, 4, 50},
                             .dtype = GetParam(),
                             .reduction = reduction,
                             .weight = weight,
                             .total_weight = total_weight});
    }
}

TEST_P(Nll, EveryRankAndClassAxis) {
  const Dims all{3, 2, 4, 3, 2, 5, 2, 3};
  for (std::size_t rank = 1; rank <= 8; ++rank)
    for (int axis = -static_cast<int>(rank); axis < static_cast<int>(rank); ++axis)
      for (const Reduction reduction : kReductions)
        ExpectRightBoth({.dims = Dims(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(rank)),
                         .class_axis = axis,
                         .dtype = GetParam(),
                         .target = kTargetDTypes[rank % 5],
                         .reduction = reduction,
                         .weight = DType::kF32});
  // A rank of 1 has one axis, whatever class_axis says.
  for (const int axis : {-100, -1, 0, 1, 7})
    ExpectRightBoth({.dims = {5}, .class_axis = axis, .dtype = GetParam(), .reduction = Reduction::kNone});
}

TEST_P(Nll, IgnoreIndexInsideAndOutsideTheClasses) {
  for (const std::int64_t ignore_index : std::vector<std::int64_t>{-100, -1, 0, 3, 6, 7, 127, 128, 255, 256, 70000})
    for (const DType target : kTargetDTypes)
      for (const Reduction reduction : kReductions)
        ExpectRightBoth({.dims = {2, 7, 60},
                         .dtype = GetParam(),
                         .target = target,
                         .reduction = reduction,
                         .weight = GetParam(),
                         .ignore_index = ignore_index,
                         .like = {.spread = Spread::kUniform}});
}

TEST_P(Nll, NothingIsIgnoredOrEverythingIs) {
  for (const double ignored : {0.0, 0.5, 0.99, 2.0})
    for (const Reduction reduction : kReductions)
      for (const bool zero_if_empty : {false, true})
        for (const bool blocky : {false, true})
          ExpectRightBoth({.dims = {2, 6, 1111},
                           .dtype = GetParam(),
                           .target = DType::kI16,
                           .reduction = reduction,
                           .like = {.blocky = blocky, .ignored = ignored},
                           .zero_if_empty = zero_if_empty},
                          {1, 3});
}

// No positions, no classes, no extent somewhere: PyTorch's values, and every element there is.
TEST_P(Nll, Empty) {
  for (const Dims& dims : std::vector<Dims>{{0, 3},
                                            {0, 3, 5, 7},
                                            {2, 3, 0, 7},
                                            {2, 3, 5, 0},
                                            {0, 0},
                                            {0, 0, 4},
                                            {2, 0, 3},  // every target is ignored
                                            {0},
                                            {4, 0}})
    for (const Reduction reduction : kReductions)
      for (const bool option : {false, true})
        for (const bool compact : {false, true})
          ExpectRightBoth({.dims = dims,
                           .dtype = GetParam(),
                           .reduction = reduction,
                           .weight = GetParam(),
                           .token_weight = GetParam(),
                           .zero_if_empty = option,
                           .accumulate = option,
                           .compact = compact},
                          {1, 3});
}

// What else may vary goes round while sizes do.
NllCase Rotated(DType dtype, Dims dims, int class_axis, std::size_t round) {
  NllCase c{.dims = std::move(dims),
            .class_axis = class_axis,
            .dtype = dtype,
            .target = kTargetDTypes[round % 5],
            .reduction = kReductions[round % 3]};
  c.like.blocky = round % 7 < 3;
  c.like.ignored = round % 11 < 3 ? 0 : 0.15;
  if (round % 2 == 0) c.weight = round % 4 == 0 ? dtype : DType::kF32;
  if (round % 13 < 6) c.token_weight = round % 13 < 3 ? dtype : DType::kF32;
  if (round % 17 < 4) c.accumulate = true;
  if (round % 8 < 3) c.placed = Placed::kAtLine;
  return c;
}

constexpr std::int64_t kPixels[] = {1,    2,    3,    7,    8,    15,   16,   17,   31,   32,  33,
                                    47,   63,   64,   65,   100,  127,  129,  255,  257,  511, 1000,
                                    1023, 1025, 2047, 2048, 2049, 3000, 4095, 4096, 4097, 5000};
constexpr std::int64_t kClasses[] = {1, 2, 3, 4, 5, 8, 16, 19, 21, 64, 150, 1000, 70000};
constexpr std::int64_t kMost = 300000;  // elements of one case, so that all of them take seconds

TEST_P(Nll, PixelsAndClasses) {
  std::size_t round = 0;
  for (const std::int64_t C : kClasses)
    for (const std::int64_t P : kPixels)
      if (C * P <= kMost)
        ExpectRightBackward(Rotated(GetParam(), {P < 100 ? 3 : 1, C, P}, 1, ++round), {1 + static_cast<int>(P % 3)});
}

TEST_P(Nll, RowsAndClasses) {
  std::size_t round = 0;
  for (const std::int64_t C : kClasses)
    for (const std::int64_t N : kPixels)
      if (C * N <= kMost) ExpectRightBackward(Rotated(GetParam(), {N, C}, 1, ++round), {1 + static_cast<int>(N % 3)});
}

// Forward reads one element for each position: few sizes matter but those of sums.
TEST_P(Nll, SizesOfSums) {
  std::size_t round = 0;
  for (const std::int64_t C : {1, 3, 21})
    for (const std::int64_t P : kPixels)
      for (const std::int64_t N : {1, 3}) {
        NllCase c = Rotated(GetParam(), {N, C, P}, 1, ++round);
        c.result = DType::kF64;  // where the order of a sum shows
        ExpectRightForward(c, {1 + static_cast<int>(round % 3)});
      }
  for (const std::int64_t N : {40959, 40960, 40961, 123457})
    for (const Reduction reduction : kReductions) {
      NllCase c = Rotated(GetParam(), {N, 3}, 1, ++round);
      c.reduction = reduction, c.result = DType::kF64, c.weight = GetParam(), c.token_weight = GetParam();
      ExpectRightForward(c, {1, 2, 7});
    }
}

// Runs of one class, up to whole images of it.
TEST_P(Nll, OneClassTakesEverything) {
  for (const std::int64_t C : {1, 2, 21, 150})
    for (const Reduction reduction : kReductions)
      ExpectRightBoth({.dims = {2, C, 700},
                       .dtype = GetParam(),
                       .target = DType::kU8,
                       .reduction = reduction,
                       .like = {.spread = Spread::kAllEqual, .ignored = 0}},
                      {1, 3});
}

// ---- outputs that are stored past the caches

struct LargeCase {
  Dims dims;
  int class_axis;
  bool blocky;
};
const LargeCase kLarge[] = {
    {{2, 21, 34001}, 1, true}, {{1, 4, 600011}, 1, false}, {{1, 150, 9001}, 1, true}, {{3, 1000, 499}, 1, false},
    {{1301, 1003}, 1, false},  {{31, 70000}, 1, false},    {{70001, 19}, 1, true},    {{3, 128, 161, 21}, -1, true},
    {{19, 70003}, 0, false},   {{2, 1, 800001}, 1, true},
};

TEST_P(Nll, OutputsPastCaches) {
  const OutputsPastCaches past_caches;
  std::size_t round = 0;
  for (const LargeCase& large : kLarge) {
    NllCase c = Rotated(GetParam(), large.dims, large.class_axis, ++round);
    // 16-bit outputs of 4 MiB need more elements.
    if (SizeOf(GetParam()) == 2) c.dims[large.class_axis == 0 ? 1 : 0] *= 2;
    c.target = large.dims[large.class_axis == -1 ? 3 : static_cast<std::size_t>(large.class_axis)] > 255 ? DType::kI64
                                                                                                         : c.target;
    c.like.blocky = large.blocky, c.accumulate = false;
    ExpectRightBackward(c, {1, 3});
  }
}

// The same without asking for it: 27 MiB, more than the 24 MiB that any cache is taken for.
TEST(NllLarge, OutputsAboveTheCaches) {
  ExpectRightBackward({.dims = {1, 150, 47001}, .target = DType::kU8, .reduction = Reduction::kMean}, {2});
  ExpectRightBackward({.dims = {7001, 1003}, .reduction = Reduction::kNone, .like = {.blocky = true}}, {2});
}

}  // namespace
}  // namespace onehot::test
