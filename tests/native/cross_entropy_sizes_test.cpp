// Cross entropy and its gradient within their bounds, and of one set of bits, for sizes around every block, all dtypes,
// and the class axis in the last place, the first and between.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tests/native/cross_entropy_cases.h"
#include "tests/native/cross_entropy_oracle.h"

namespace onehot::test {
namespace {

struct Size {
  std::int64_t N, C;
};
// Few positions with many classes and the other way round; about 1024, where blocks of classes end.
constexpr Size kSizes[] = {{1, 50257}, {3, 3000}, {5, 1025}, {7, 1024}, {9, 1023}, {11, 1000}, {45, 64},
                           {77, 17},   {81, 16},  {511, 3},  {999, 2},  {4999, 2}, {35, 1},    {1, 1}};

// N positions as the axes of a picture, where N has divisors.
std::vector<Dims> PositionsOf(std::int64_t N) {
  std::vector<Dims> all = {{N}};
  for (const std::int64_t d : {3, 5, 7})
    if (N % d == 0 && N > d) {
      all.push_back({d, N / d});
      break;
    }
  return all;
}

// Every place of the class axis: one set of bits for all of them, and the definition for the first.
void ExpectRightWhereverClassesAre(CrossEntropyCase c, const Size& size, const std::vector<int>& threads) {
  CrossEntropyBits bits;
  bool first = true;
  for (const Dims& positions : PositionsOf(size.N))
    for (int axis = static_cast<int>(positions.size()); axis >= 0; --axis) {
      c.dims = positions;
      c.dims.insert(c.dims.begin() + axis, size.C);
      c.class_axis = axis;
      CrossEntropyProblem problem(c);
      if (first) {
        ExpectRightEverywhere(problem, threads, &bits);
        first = false;
        continue;
      }
      SCOPED_TRACE(c.Describe());
      const std::vector<Tensor*> outputs = problem.outputs();
      OnTargets(problem.forward(), outputs, threads, [&](const Target& target) {
        for (std::size_t k = 0; k < outputs.size(); ++k) bits.outputs[k].ExpectSame(target, *outputs[k], "output");
      });
      OnTargets(problem.backward(), {&problem.out}, threads,
                [&](const Target& target) { bits.out.ExpectSame(target, Rows(problem.out, axis), "out"); });
    }
}

class CrossEntropySizes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CrossEntropySizes, ::testing::ValuesIn(kGradientDTypes),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(CrossEntropySizes, Plain) {
  for (const Size& size : kSizes) ExpectRightWhereverClassesAre({.input = GetParam()}, size, {2});
}

TEST_P(CrossEntropySizes, EveryOption) {
  for (const Size& size : kSizes)
    ExpectRightWhereverClassesAre(WithEverything({.input = GetParam(), .reduction = Reduction::kNone}), size, {3});
}

TEST_P(CrossEntropySizes, SomeOptions) {
  for (const Size& size : kSizes) {
    ExpectRightWhereverClassesAre({.input = GetParam(), .weight = true, .reduction = Reduction::kSum}, size, {1});
    ExpectRightWhereverClassesAre({.input = GetParam(), .label_smoothing = 0.1, .z_loss = 1e-4}, size, {1});
    if (size.C <= 1025)
      ExpectRightWhereverClassesAre({.input = GetParam(), .denominator = true, .softcap = 15, .r = true}, size, {1});
  }
}

// Many positions, so that there are several blocks of 4096 for the sums.
TEST_P(CrossEntropySizes, ManyPositions) {
  CrossEntropyProblem few_classes({.dims = {20001, 3}, .input = GetParam(), .weight = true, .token_weight = true});
  ExpectRightEverywhere(few_classes);
  CrossEntropyProblem picture({.dims = {2, 5, 63, 67}, .input = GetParam(), .z_loss = 1e-3});
  ExpectRightEverywhere(picture);
}

TEST_P(CrossEntropySizes, WiderResults) {
  const bool half = SizeOf(GetParam()) == 2;
  for (const DType result : {GetParam(), DType::kF32, DType::kF64}) {
    if (result == DType::kF32 && !half) continue;
    for (const DType operand : {GetParam(), DType::kF32})
      for (const DType out : {GetParam(), half ? DType::kF32 : GetParam()})
        for (const Reduction reduction : kReductions) {
          CrossEntropyProblem problem(WithEverything({.dims = {37, 70},
                                                      .input = GetParam(),
                                                      .result = result,
                                                      .operand = operand,
                                                      .out = out,
                                                      .reduction = reduction}));
          ExpectRightEverywhere(problem);
        }
  }
}

TEST_P(CrossEntropySizes, TargetDTypes) {
  for (const DType target : kTargetDTypes)
    for (const std::int64_t ignore_index : {-100, 3, 0}) {
      CrossEntropyProblem problem({.dims = {3, 130, 21},
                                   .input = GetParam(),
                                   .target = target,
                                   .weight = true,
                                   .label_smoothing = 0.2,
                                   .ignore_index = ignore_index,
                                   .ignored = 0.3});
      ExpectRightEverywhere(problem);
      CrossEntropyProblem rows(
          {.dims = {63, 130}, .input = GetParam(), .target = target, .ignore_index = ignore_index});
      ExpectRightEverywhere(rows);
    }
}

TEST(CrossEntropyBits, AnyThreads) {
  const std::vector<int> threads = {1, 2, 3, 7};
  for (const DType input : {DType::kF32, DType::kBF16})
    for (const Reduction reduction : {Reduction::kMean, Reduction::kNone}) {
      for (const Dims& dims : {Dims{5001, 5}, Dims{101, 257}, Dims{3, 20011}, Dims{2, 19, 23, 41}}) {
        CrossEntropyCase c{.dims = dims, .input = input, .reduction = reduction};
        c.z_loss = 1e-4, c.weight = c.r = true;
        CrossEntropyProblem problem(c);
        ExpectRightEverywhere(problem, threads);
      }
    }
}

// Several rows of an implementation's list, instruction sets and threads over outputs of more than 4 MiB.
TEST(CrossEntropyBits, OutputsPastTheCaches) {
  for (const DType input : {DType::kF32, DType::kBF16}) {
    const std::int64_t N = 21 * 4 / SizeOf(input), C = 50257;
    for (const Dims& dims : {Dims{N, C}, Dims{1, 19, N * C / 19 / 4 * 4 + 1}, Dims{N * C / 3, 3}}) {
      CrossEntropyProblem problem({.dims = dims, .input = input, .weight = true});
      const std::vector<Tensor*> outputs = problem.outputs();
      std::vector<std::byte> out;
      for (const bool past : {false, true}) {
        std::optional<OutputsPastCaches> forget;
        if (past) forget.emplace();
        for (const Target& target : Targets<CrossEntropyBackward>()) {
          if (target.is_ref() || !Takes(target, problem.backward())) continue;
          SCOPED_TRACE(problem.c.Describe() + " " + target.name());
          problem.out = Tensor(input, dims);
          EXPECT_OK(RunOn(target, problem.backward(), WithThreads(past ? 3 : 2)));
          EXPECT_TRUE(problem.out.GapsUntouched());
          if (out.empty())
            out = problem.out.Bytes();
          else
            EXPECT_TRUE(problem.out.Bytes() == out) << "past the caches: " << past;
        }
      }
    }
  }
}

// lse within 4 + C / 1024 units in the last place of f32 of max(1, |lse|), as the header has it, where the largest logit
// is not negative: below, lse may be a small difference of two large numbers.
TEST(CrossEntropyBits, LogSumExpWithinTheUnitsPromised) {
  for (const Size& size :
       {Size{3, 50257}, Size{30, 3000}, Size{50, 1025}, Size{50, 1024}, Size{500, 64}, Size{2000, 3}})
    for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
      CrossEntropyProblem problem({.dims = {size.N, size.C}, .input = input, .ignored = 0});
      // Equal classes round alike: nothing evens out.
      for (std::int64_t i = 0; i < size.N; i += 2) {
        problem.input.SetValue(i * size.C, std::abs(problem.input.Value(i * size.C)));
        for (std::int64_t v = 1; v < size.C; ++v)
          problem.input.SetValue(i * size.C + v, problem.input.Value(i * size.C) - 0.03 * static_cast<double>(i));
      }
      const CrossEntropyDefinition want = Define(problem.forward());
      OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
        for (std::int64_t i = 0; i < size.N; ++i) {
          const long double lse = want.lse.value[static_cast<std::size_t>(i)];
          const long double unit = std::ldexp(1.0L, std::ilogb(std::max(1.0L, std::abs(lse))) - 23);
          const long double bound = (4 + static_cast<long double>(size.C) / 1024) * unit;
          ASSERT_LE(std::abs(problem.lse.Value(i) - lse), bound) << "position " << i << ", lse " << lse;
        }
      });
    }
}

// lse as a small difference of a large log and a large maximum: its error is that of the two, not of the difference.
TEST(CrossEntropyBits, LogSumExpNearZero) {
  for (const Size& size : {Size{40, 1000}, Size{40, 1024}, Size{15, 3000}, Size{300, 64}})
    for (const bool z_loss : {false, true}) {
      CrossEntropyCase c{.dims = {size.N, size.C}, .label_smoothing = 0.1, .reduction = Reduction::kNone, .h = true};
      c.z_loss = z_loss ? 0.1 : 0;
      CrossEntropyProblem problem(c);
      Random random(5);
      for (std::int64_t i = 0; i < size.N; ++i) {
        // Every second position has equal classes but one, whose roundings do not even out.
        const double base = random.Unit() - std::log(static_cast<double>(size.C)), spread = 2 * random.Unit();
        for (std::int64_t v = 0; v < size.C; ++v)
          problem.input.SetValue(i * size.C + v, base + spread * (i % 2 == 0 ? random.Unit() : v == 3 ? 1 : 0));
      }
      ExpectRightEverywhere(problem);
    }
}

// Sums over positions in f64, in the order of NllLoss. Logits 0 and -x with x above 104 make every term x itself, so the
// sum has the promised bits whatever exp and log are like.
TEST(CrossEntropyBits, SumsOverPositionsHaveThePromisedBits) {
  const std::int64_t N = 100003;
  for (const DType input : {DType::kF32, DType::kBF16}) {
    CrossEntropyProblem problem({.dims = {N, 2}, .input = input, .result = DType::kF64, .reduction = Reduction::kSum});
    Random random(3);
    double total = 0, lanes[16] = {};
    for (std::int64_t i = 0; i < N; ++i) {
      problem.input.SetValue(2 * i, 0);
      problem.input.SetValue(2 * i + 1, -(110 + 1000 * random.Unit()));
      problem.target.Set<std::int64_t>(i, i % 7 == 0 ? 0 : i % 11 == 0 ? kDefaultIgnoreIndex : 1);
      if (i % 7 != 0 && i % 11 != 0) lanes[i % 16] += -problem.input.Value(2 * i + 1);
      if (i % 4096 != 4095 && i != N - 1) continue;
      for (int width = 8; width > 0; width /= 2)
        for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
      total += lanes[0];
      for (double& lane : lanes) lane = 0;
    }
    OnTargets(problem.forward(), problem.outputs(), {1, 3},
              [&](const Target&) { EXPECT_EQ(problem.loss.Value(0), total); });
  }
}

// f32 additions would stall at 2^24.
TEST(CrossEntropyBits, TotalWeightIsExact) {
  const std::int64_t N = 4099;
  CrossEntropyProblem problem(
      {.dims = {N, 3}, .result = DType::kF64, .token_weight = true, .ignored = 0, .g = false, .h = true});
  for (std::int64_t i = 0; i < N; ++i) problem.token_weight->SetValue(i, i % 2 == 0 ? 0x1p24 : 1);
  const double want = 0x1p24 * static_cast<double>(N / 2 + 1) + static_cast<double>(N / 2);
  for (const Reduction reduction : kReductions) {
    problem.c.reduction = reduction;
    problem.loss = Tensor(DType::kF64, reduction == Reduction::kNone ? Dims{N} : Dims{});
    OnTargets(problem.forward(), problem.outputs(), {2}, [&](const Target&) {
      EXPECT_EQ(problem.total_weight.Value(0), reduction == Reduction::kNone ? 0 : want);
    });
  }
}

}  // namespace
}  // namespace onehot::test
