// Indices that name no row: found before anything is written, the smallest position wins, the sentence says it all.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/native/cases.h"
#include "tests/native/strides.h"

namespace onehot::test {
namespace {

constexpr std::int64_t kI64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kI64Min = std::numeric_limits<std::int64_t>::min();

// Both operators, on every target, with these indices and V rows, must fail with this sentence and write nothing.
void ExpectBad(const Tensor& indices, std::int64_t V, const std::string& message, std::int64_t D = 3) {
  SCOPED_TRACE("V " + std::to_string(V) + ", " + std::string(Name(indices.layout().dtype)));
  const std::int64_t N = indices.numel();
  BackwardProblem problem(Tensor(DType::kF32, {N, D}), indices, Tensor(DType::kF32, {V, D}));
  problem.counts.emplace(DType::kI64, Dims{V});
  for (const bool all_options : {false, true}) {
    problem.options.scale_grad_by_freq = problem.options.accumulate = all_options;
    if (all_options && V > 0) problem.options.padding_idx = 0;
    const Buffer out = problem.out.buffer(), counts = problem.counts->buffer();
    for (const Target& target : Targets<EmbeddingBackward>()) {
      SCOPED_TRACE(target.name());
      RunOptions options;
      options.threads = 3;
      EXPECT_STATUS(RunOn(target, problem.op(), options), Code::kBadData, message);
      EXPECT_TRUE(problem.out.buffer() == out) << "out was written";
      EXPECT_TRUE(problem.counts->buffer() == counts) << "counts was written";
    }
  }
  Tensor weight(DType::kF32, {V, D}), copied(DType::kF32, {N, D});
  const Buffer before = copied.buffer();
  for (const Target& target : Targets<Embedding>()) {
    SCOPED_TRACE(target.name());
    const Embedding op{.weight = weight.view(), .indices = indices.view(), .out = copied.view()};
    RunOptions options;
    options.threads = 3;
    EXPECT_STATUS(RunOn(target, op, options), Code::kBadData, message);
    EXPECT_TRUE(copied.buffer() == before) << "out was written";
  }
}

Tensor I64(const std::vector<std::int64_t>& values) {
  Tensor indices(DType::kI64, {static_cast<std::int64_t>(values.size())});
  SetIndices(indices, values);
  return indices;
}

TEST(BadData, JustOutside) {
  ExpectBad(I64({1, 10, 2}), 10, "indices[1] = 10 is outside [0, 10)");
  ExpectBad(I64({-1}), 10, "indices[0] = -1 is outside [0, 10)");
  ExpectBad(I64({0, 0, 1}), 1, "indices[2] = 1 is outside [0, 1)");
}

TEST(BadData, NoRowsAtAll) {
  ExpectBad(I64({0}), 0, "indices[0] = 0 is outside [0, 0)");
}

TEST(BadData, NoColumns) {
  ExpectBad(I64({0, 3}), 3, "indices[1] = 3 is outside [0, 3)", 0);
}

// Values that look right in their low 32 bits.
TEST(BadData, ValuesThatNarrow) {
  for (const std::int64_t value : {std::int64_t{1} << 31, (std::int64_t{1} << 32), (std::int64_t{1} << 32) + 1, kI64Min,
                                   kI64Max, kI64Min + 1, std::int64_t{100000000000000000}, -(std::int64_t{1} << 32),
                                   -(std::int64_t{1} << 32) + 1, std::int64_t{1} << 62, (std::int64_t{1} << 40) + 2}) {
    ExpectBad(I64({0, 1, value, 2}), 5, "indices[2] = " + std::to_string(value) + " is outside [0, 5)");
    ExpectBad(I64({value}), 0, "indices[0] = " + std::to_string(value) + " is outside [0, 0)");
  }
}

// At every place of a vector and of a thread's share.
TEST(BadData, EveryPosition) {
  for (const std::int64_t N : {1, 7, 16, 33, 70})
    for (std::int64_t bad = 0; bad < N; ++bad) {
      std::vector<std::int64_t> rows(static_cast<std::size_t>(N), 2);
      rows[static_cast<std::size_t>(bad)] = 3;
      ExpectBad(I64(rows), 3, "indices[" + std::to_string(bad) + "] = 3 is outside [0, 3)", 1);
    }
}

TEST(BadData, TheSmallestPositionWins) {
  ExpectBad(I64({0, 1, 9, -5, 9}), 3, "indices[2] = 9 is outside [0, 3)");
  ExpectBad(I64({0, 1, -5, 9, 9}), 3, "indices[2] = -5 is outside [0, 3)");
  // Far apart: each lies in another thread's share.
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kF32}) {
    Tensor indices(dtype, {100000});
    SetIndices(indices, Indices(Spread::kUniform, 100000, 1000, 2));
    indices.SetValue(99999, -1);
    indices.SetValue(60000, 1000);
    indices.SetValue(49999, 1002);
    indices.SetValue(50001, 1001);
    ExpectBad(indices, 1000, "indices[49999] = 1002 is outside [0, 1000)", 2);
    indices.SetValue(3, 2000);
    ExpectBad(indices, 1000, "indices[3] = 2000 is outside [0, 1000)", 2);
  }
}

TEST(BadData, EveryIntegerDType) {
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kI16, DType::kI8}) {
    Tensor indices(dtype, {20});
    SetIndices(indices, std::vector<std::int64_t>(20, 3));
    indices.SetValue(13, -1);
    ExpectBad(indices, 10, "indices[13] = -1 is outside [0, 10)");
    indices.SetValue(13, 10);
    ExpectBad(indices, 10, "indices[13] = 10 is outside [0, 10)");
    const double least = -std::ldexp(1.0, static_cast<int>(SizeOf(dtype)) * 8 - 1);
    if (dtype == DType::kI64) continue;
    indices.SetValue(13, least);
    ExpectBad(indices, 10, "indices[13] = " + std::to_string(static_cast<std::int64_t>(least)) + " is outside [0, 10)");
    indices.SetValue(13, -least - 1);
    ExpectBad(indices, 10,
              "indices[13] = " + std::to_string(static_cast<std::int64_t>(-least) - 1) + " is outside [0, 10)");
  }
  Tensor bytes(DType::kU8, {20});
  SetIndices(bytes, std::vector<std::int64_t>(20, 3));
  bytes.SetValue(19, 255);
  ExpectBad(bytes, 255, "indices[19] = 255 is outside [0, 255)");
  bytes.SetValue(0, 128);
  ExpectBad(bytes, 10, "indices[0] = 128 is outside [0, 10)");
}

TEST(BadData, Bool) {
  Tensor indices(DType::kBool, {4});
  SetIndices(indices, {0, 0, 1, 1});
  indices.Set(2, std::uint8_t{0x80});
  ExpectBad(indices, 1, "indices[2] = 1 is outside [0, 1)");
  ExpectBad(indices, 0, "indices[0] = 0 is outside [0, 0)");
}

TEST(BadData, Floats) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16}) {
    const auto expect = [&](double value, const std::string& text) {
      Tensor indices(dtype, {21});
      SetIndices(indices, std::vector<std::int64_t>(21, 3));
      indices.SetValue(17, value);
      ExpectBad(indices, 10, "indices[17] = " + text + " is outside [0, 10)");
    };
    expect(NAN, "nan");
    expect(HUGE_VAL, "inf");
    expect(-HUGE_VAL, "-inf");
    expect(-1, "-1");
    expect(-1.5, "-1.5");
    expect(10, "10");
    expect(10.5, "10.5");
    expect(30000, "30000");
    expect(-30000, "-30000");
  }
  // Beyond what an int64 holds. The sentence has the fewest digits that name the value in its dtype.
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const auto expect = [&](double value, const std::string& text) {
      Tensor indices(dtype, {3});
      SetIndices(indices, {0, 1, 2});
      indices.SetValue(1, value);
      ExpectBad(indices, 10, "indices[1] = " + text + " is outside [0, 10)");
    };
    const bool wide = dtype == DType::kF64;
    expect(0x1p63, wide ? "9.223372036854776e+18" : "9.223372e+18");
    expect(-0x1p63, wide ? "-9.223372036854776e+18" : "-9.223372e+18");
    expect(0x1p64, wide ? "1.8446744073709552e+19" : "1.8446744e+19");
    expect(0x1p24, "16777216");
  }
  Tensor huge(DType::kF64, {2});
  huge.SetAll({1e308, -1e308});
  ExpectBad(huge, 10, "indices[0] = 1e+308 is outside [0, 10)");
}

// V - 0.5 truncates to the last row, and -0.5 to row 0: fine. -1 and V are not.
TEST(BadData, FractionsInsideTheRangeAreGood) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16}) {
    BackwardProblem problem = MakeProblem({.N = 4, .V = 10, .D = 3, .index = dtype, .counts = true});
    problem.indices.SetAll({9.5, -0.5, 0, 3.25});
    ExpectRightEverywhere(std::move(problem));
  }
}

TEST(BadData, CoordinatesOfHigherRanks) {
  Tensor matrix(DType::kI64, {2, 3});
  SetIndices(matrix, {0, 1, 2, 3, 4, 10});
  ExpectBad(matrix, 10, "indices[1, 2] (position 5) = 10 is outside [0, 10)");
  Tensor cube(DType::kI32, {3, 4, 5});
  SetIndices(cube, std::vector<std::int64_t>(60, 1));
  cube.SetValue(2 * 20 + 1 * 5 + 3, -7);
  ExpectBad(cube, 4, "indices[2, 1, 3] (position 48) = -7 is outside [0, 4)");
  Tensor scalar(DType::kI64, {});
  SetIndices(scalar, {5});
  ExpectBad(scalar, 5, "indices[0] = 5 is outside [0, 5)");
}

// Position and coordinates count elements of the view, in its order, wherever they lie.
TEST(BadData, CoordinatesOfStridedIndices) {
  for (const Form form : kForms) {
    Tensor indices(DType::kI64, {4, 6}, StridesOf(form, 4, 6));
    SetIndices(indices, std::vector<std::int64_t>(24, 0));
    indices.Set(15, std::int64_t{77});
    indices.Set(20, std::int64_t{78});
    ExpectBad(indices, 7, "indices[2, 3] (position 15) = 77 is outside [0, 7)");
  }
  Tensor repeated(DType::kI64, {3, 4}, {0, 1});
  SetIndices(repeated, {0, 1, 9, 2, 0, 1, 9, 2, 0, 1, 9, 2});
  ExpectBad(repeated, 7, "indices[0, 2] (position 2) = 9 is outside [0, 7)");
}

// Bad gradients are no errors, and a bad index is one whatever its gradient.
TEST(BadData, OnlyIndicesAreChecked) {
  BackwardProblem problem = MakeProblem({.N = 3, .V = 4, .D = 2});
  problem.grad.SetAll({NAN, NAN, NAN, NAN, NAN, NAN});
  for (const Target& target : Targets<EmbeddingBackward>()) EXPECT_OK(RunOn(target, problem.op()));
}

}  // namespace
}  // namespace onehot::test
