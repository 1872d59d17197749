// What happens to single bits: copies, signs of zero, NaN payloads, denormals, rows that nobody names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/native/cases.h"
#include "tests/native/oracle.h"

namespace onehot::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Zeros, infinities, denormals, quiet and signalling NaN of both signs with odd payloads; the largest number comes
// last.
std::vector<std::uint64_t> SpecialBits(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x00000001, 0x807FFFFF, 0x00800000,
              0x7FC00000, 0xFFC12345, 0x7F800001, 0xFFA5A5A5, 0x7FFFFFFF, 0x3F800000, 0x7F7FFFFF};
    case DType::kF64:
      return {0x0000000000000000, 0x8000000000000000, 0x7FF0000000000000, 0xFFF0000000000000,
              0x0000000000000001, 0x800FFFFFFFFFFFFF, 0x7FF8000000000000, 0xFFF8123456789ABC,
              0x7FF0000000000001, 0xFFF5A5A5A5A5A5A5, 0x7FFFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF};
    case DType::kF16:
      return {0x0000, 0x8000, 0x7C00, 0xFC00, 0x0001, 0x83FF, 0x0400, 0x7E00, 0xFE5A, 0x7C01, 0xFDA5, 0x7FFF, 0x7BFF};
    default:  // bf16
      return {0x0000, 0x8000, 0x7F80, 0xFF80, 0x0001, 0x807F, 0x0080, 0x7FC0, 0xFFDA, 0x7F81, 0xFFA5, 0x7FFF, 0x7F7F};
  }
}

class BackwardBits : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Gradient, BackwardBits, ::testing::ValuesIn(kGradientDTypes),
                         [](const auto& info) { return std::string(Name(info.param)); });

void SetSpecials(Tensor& grad, bool largest = true) {
  std::vector<std::uint64_t> bits = SpecialBits(grad.layout().dtype);
  if (!largest) bits.pop_back();
  for (std::int64_t i = 0; i < grad.numel(); ++i) {
    const std::uint64_t element = bits[static_cast<std::size_t>(i) % bits.size()];
    grad.SetBytes(i, &element);  // little-endian: the low bytes
  }
}

// A row named once is its gradient, whatever its bits: also when scaled, which divides by 1.
TEST_P(BackwardBits, RowsNamedOnceAreCopies) {
  for (const std::int64_t D : {1, 3, 8, 17, 64, 131})
    for (const bool scale : {false, true}) {
      BackwardProblem problem(Tensor(GetParam(), {40, D}), Tensor(DType::kI64, {40}), Tensor(GetParam(), {50, D}));
      SetSpecials(problem.grad);
      for (std::int64_t i = 0; i < 40; ++i) problem.indices.SetValue(i, static_cast<double>((i * 7 + 3) % 50));
      problem.options.scale_grad_by_freq = scale;
      for (const Target& target : Targets<EmbeddingBackward>()) {
        SCOPED_TRACE(target.name() + " D " + std::to_string(D));
        EXPECT_OK(RunOn(target, problem.op()));
        const auto size = static_cast<std::size_t>(D * SizeOf(GetParam()));
        const std::vector<std::byte> grad = problem.grad.Bytes(), out = problem.out.Bytes();
        for (std::size_t i = 0; i < 40; ++i)
          ASSERT_TRUE(std::equal(grad.begin() + static_cast<std::ptrdiff_t>(i * size),
                                 grad.begin() + static_cast<std::ptrdiff_t>((i + 1) * size),
                                 out.begin() + static_cast<std::ptrdiff_t>((i * 7 + 3) % 50 * size)))
              << "position " << i;
      }
    }
}

// The same between hot rows, and strided.
TEST_P(BackwardBits, SpecialsAmongOthers) {
  for (const bool scale : {false, true})
    for (const std::int64_t D : {5, 48}) {
      BackwardProblem problem =
          MakeProblem({.N = 2000, .V = 900, .D = D, .spread = Spread::kFewHot, .grad = GetParam(), .scale = scale});
      // Infinities of both signs meet in the hot rows, so what is promised there is NaN; "ref" agrees on that too. Not
      // the largest number: twice that is an infinity that the definition does not know.
      SetSpecials(problem.grad, false);
      ExpectRightEverywhere(std::move(problem), 3);
    }
}

TEST_P(BackwardBits, UnnamedRowsAndPaddingArePlusZero) {
  BackwardProblem problem(Tensor(GetParam(), {6, 33}), Tensor(DType::kI64, {6}), Tensor(GetParam(), {100, 33}));
  SetSpecials(problem.grad);
  problem.indices.SetAll({50, 3, 50, 99, 3, 50});
  problem.options.padding_idx = 3;
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    EXPECT_OK(RunOn(target, problem.op()));
    const std::vector<std::byte> out = problem.out.Bytes();
    const auto row_bytes = static_cast<std::size_t>(33 * SizeOf(GetParam()));
    for (std::size_t b = 0; b < out.size(); ++b)
      ASSERT_TRUE(out[b] == std::byte{0} || b / row_bytes == 50 || b / row_bytes == 99) << "row " << b / row_bytes;
  }
}

// accumulate leaves them as they are, whatever they hold.
TEST_P(BackwardBits, AccumulateKeepsUnnamedRowsAndPadding) {
  BackwardProblem problem(Tensor(GetParam(), {6, 33}), Tensor(DType::kI64, {6}), Tensor(GetParam(), {100, 33}));
  FillGradient(problem.grad, 1);
  SetSpecials(problem.out);
  problem.indices.SetAll({50, 3, 50, 99, 3, 50});
  problem.options.padding_idx = 3;
  problem.options.accumulate = true;
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    Tensor out = problem.out;
    EmbeddingBackward op = problem.op();
    op.out = out.view();
    EXPECT_OK(RunOn(target, op));
    const std::vector<std::byte> before = problem.out.Bytes(), after = out.Bytes();
    const auto row_bytes = static_cast<std::size_t>(33 * SizeOf(GetParam()));
    for (std::size_t b = 0; b < after.size(); ++b)
      ASSERT_TRUE(after[b] == before[b] || b / row_bytes == 50 || b / row_bytes == 99) << "row " << b / row_bytes;
  }
}

TEST_P(BackwardBits, NaNAndInfinityStayInTheirRows) {
  for (const std::int64_t D : {1, 16, 37}) {
    BackwardProblem problem = MakeProblem({.N = 3000, .V = 20, .D = D, .spread = Spread::kUniform, .grad = GetParam()});
    const std::vector<std::int64_t> rows = RowsNamed(problem.indices.view());
    for (std::int64_t i = 0; i < 3000; ++i)
      for (std::int64_t c = 0; c < D; ++c) {
        if (rows[static_cast<std::size_t>(i)] == 4) problem.grad.SetValue(i * D + c, kNaN);
        if (rows[static_cast<std::size_t>(i)] == 7) problem.grad.SetValue(i * D + c, kInf);
        if (rows[static_cast<std::size_t>(i)] == 9) problem.grad.SetValue(i * D + c, i % 2 == 0 ? kInf : -kInf);
      }
    for (const Target& target : Targets<EmbeddingBackward>()) {
      SCOPED_TRACE(target.name());
      EXPECT_OK(RunOn(target, problem.op()));
      for (std::int64_t e = 0; e < 20 * D; ++e) {
        const std::int64_t v = e / D;
        const double got = problem.out.Value(e);
        if (v == 4 || v == 9) {
          ASSERT_TRUE(std::isnan(got)) << v;
        } else if (v == 7) {
          ASSERT_EQ(got, kInf);
        } else {
          ASSERT_TRUE(std::isfinite(got)) << v;
        }
      }
    }
    ExpectRightEverywhere(std::move(problem));
  }
}

// One NaN in one column of one position.
TEST_P(BackwardBits, NaNStaysInItsColumn) {
  BackwardProblem problem = MakeProblem({.N = 1500, .V = 2, .D = 40, .grad = GetParam()});
  problem.grad.SetValue(700 * 40 + 21, kNaN);
  const std::int64_t v = RowsNamed(problem.indices.view())[700];
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    EXPECT_OK(RunOn(target, problem.op()));
    for (std::int64_t e = 0; e < 80; ++e) ASSERT_EQ(std::isnan(problem.out.Value(e)), e == v * 40 + 21) << e;
  }
}

// Nothing flushes denormals to zero, in or out.
TEST_P(BackwardBits, DenormalsSurvive) {
  const double least = GetParam() == DType::kF64   ? 0x1p-1074
                       : GetParam() == DType::kF32 ? 0x1p-149
                       : GetParam() == DType::kF16 ? 0x1p-24
                                                   : 0x1p-133;
  for (const bool accumulate : {false, true}) {
    BackwardProblem problem(Tensor(GetParam(), {600, 19}), Tensor(DType::kI64, {600}), Tensor(GetParam(), {3, 19}));
    for (std::int64_t e = 0; e < problem.grad.numel(); ++e) problem.grad.SetValue(e, least * (e % 5 == 0 ? -1 : 1));
    for (std::int64_t i = 0; i < 600; ++i) problem.indices.SetValue(i, static_cast<double>(i < 2 ? i : 2));
    if (accumulate) problem.out.SetAll(std::vector<double>(57, 3 * least));
    problem.options.accumulate = accumulate;
    for (const Target& target : Targets<EmbeddingBackward>()) {
      SCOPED_TRACE(target.name());
      Tensor out = problem.out;
      EmbeddingBackward op = problem.op();
      op.out = out.view();
      EXPECT_OK(RunOn(target, op));
      EXPECT_EQ(out.Value(1), accumulate ? 4 * least : least);
      EXPECT_NE(out.Value(2 * 19 + 1), 0);
    }
    ExpectRightEverywhere(std::move(problem));
  }
}

// Each fold starts from its first element, so that a sum of -0 is -0. (0 + -0 would be +0.)
TEST_P(BackwardBits, SumsOfNegativeZeroAreNegativeZero) {
  for (const std::int64_t n : {1, 2, 5, 512, 513, 1030})
    for (const std::int64_t D : {1, 16, 21}) {
      BackwardProblem problem(Tensor(GetParam(), {n, D}), Tensor(DType::kI64, {n}), Tensor(GetParam(), {2, D}));
      problem.grad.SetAll(std::vector<double>(static_cast<std::size_t>(n * D), -0.0));
      SetIndices(problem.indices, std::vector<std::int64_t>(static_cast<std::size_t>(n), 1));
      problem.options.scale_grad_by_freq = n == 5;
      ExpectRightEverywhere(std::move(problem));
    }
}

// 65504 is the largest f16; 65520 is half way to what would be the next and rounds to infinity.
TEST(BackwardRounding, OverflowOfTheOutputIsInfinity) {
  for (const auto& [dtype, largest, half_step] :
       {std::tuple{DType::kF16, 65504.0, 16.0}, {DType::kBF16, 0x1.FEp127, 0x1p119}}) {
    Tensor grad(dtype, {6, 1}), indices(DType::kI64, {6}), out(dtype, {3, 1});
    const double below = dtype == DType::kF16 ? 8.0 : 0x1p118;
    grad.SetAll({largest, half_step, largest, below, -largest, -half_step});
    indices.SetAll({0, 0, 1, 1, 2, 2});
    const EmbeddingBackward op{.grad = grad.view(), .indices = indices.view(), .out = out.view()};
    for (const Target& target : Targets<EmbeddingBackward>()) {
      SCOPED_TRACE(target.name());
      EXPECT_OK(RunOn(target, op));
      EXPECT_THAT(out.Values(), ::testing::ElementsAre(kInf, largest, -kInf));
    }
  }
}

// Ties to even, and the bits below the tie count: 1 + 2^-8 is a tie in bf16.
TEST(BackwardRounding, TiesGoToEven) {
  Tensor grad(DType::kBF16, {7, 1}), indices(DType::kI64, {7}), out(DType::kBF16, {3, 1});
  grad.SetAll({1, 0x1p-8, 1 + 0x1p-7, 0x1p-8, 1, 0x1p-8, 0x1p-20});
  indices.SetAll({0, 0, 1, 1, 2, 2, 2});
  const EmbeddingBackward op{.grad = grad.view(), .indices = indices.view(), .out = out.view()};
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    EXPECT_OK(RunOn(target, op));
    EXPECT_THAT(out.Values(), ::testing::ElementsAre(1, 1 + 0x1p-6, 1 + 0x1p-7));
  }
}

// Every f16 and bf16 value, through a sum with -0, which changes no bit of a number, in every lane.
TEST(BackwardRounding, EverySixteenBitValueSurvivesASum) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const DType out_dtype : {dtype, DType::kF32}) {
      BackwardProblem problem(Tensor(dtype, {2, 65536}), Tensor(DType::kI64, {2}), Tensor(out_dtype, {1, 65536}));
      for (std::int64_t c = 0; c < 65536; ++c) {
        problem.grad.Set(c, static_cast<std::uint16_t>(c));
        problem.grad.Set(65536 + c, std::uint16_t{0x8000});
      }
      problem.indices.SetAll({0, 0});
      ExpectRightEverywhere(std::move(problem));
    }
}

// A row named once that is widened: exact, and NaN keeps what Widen keeps.
TEST(BackwardRounding, WidenedCopies) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    BackwardProblem problem(Tensor(dtype, {1, 65536}), Tensor(DType::kI64, {1}), Tensor(DType::kF32, {2, 65536}));
    for (std::int64_t c = 0; c < 65536; ++c) problem.grad.Set(c, static_cast<std::uint16_t>(c));
    problem.indices.SetAll({1});
    ExpectRightEverywhere(std::move(problem));
  }
}

}  // namespace
}  // namespace onehot::test
