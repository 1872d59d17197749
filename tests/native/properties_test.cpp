// What must hold whatever the numbers are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/native/cases.h"
#include "tests/native/oracle.h"

namespace onehot::test {
namespace {

long double Dot(const Tensor& a, const Tensor& b, long double* magnitude) {
  long double sum = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const long double product = static_cast<long double>(a.Value(i)) * static_cast<long double>(b.Value(i));
    sum += product;
    *magnitude += std::abs(product);
  }
  return sum;
}

// <Embedding(W, ix), G> = <W, EmbeddingBackward(G, ix)>: the backward is the transpose of the forward.
TEST(Properties, BackwardIsTheAdjointOfForward) {
  for (const Spread spread : {Spread::kUniform, Spread::kZipf, Spread::kAllEqual}) {
    const std::int64_t N = 3001, V = 213, D = 21;
    BackwardProblem problem = MakeProblem({.N = N, .V = V, .D = D, .spread = spread, .grad = DType::kF64});
    Tensor weight(DType::kF64, {V, D}), gathered(DType::kF64, {N, D});
    FillGradient(weight, 9);
    for (const Target& forward : Targets<Embedding>())
      EXPECT_OK(RunOn(forward,
                      Embedding{.weight = weight.view(), .indices = problem.indices.view(), .out = gathered.view()}));
    for (const Target& target : Targets<EmbeddingBackward>()) {
      SCOPED_TRACE(target.name());
      EXPECT_OK(RunOn(target, problem.op()));
      long double magnitude = 0, unused = 0;
      const long double left = Dot(gathered, problem.grad, &magnitude), right = Dot(weight, problem.out, &unused);
      // A row of out sums up to N terms in f64, each addition off by half an eps of at most the sum of magnitudes; the
      // dot products in long double add N * D and V * D roundings of 2^-64.
      const long double bound =
          magnitude * (static_cast<long double>(N) * 0x1p-53L + static_cast<long double>(N * D + V * D) * 0x1p-64L);
      EXPECT_LE(std::abs(left - right), bound);
    }
  }
}

// Scaling by a power of two is exact, so it commutes with every rounding (away from overflow and denormals).
TEST(Properties, PowersOfTwoScaleExactly) {
  for (const DType dtype : kGradientDTypes) {
    BackwardProblem one =
        MakeProblem({.N = 2000, .V = 50, .D = 13, .spread = Spread::kZipf, .grad = dtype, .scale = true});
    BackwardProblem four =
        MakeProblem({.N = 2000, .V = 50, .D = 13, .spread = Spread::kZipf, .grad = dtype, .scale = true});
    // Sums of f16 near its denormals would round differently.
    for (std::int64_t i = 0; i < one.grad.numel(); ++i) {
      const double x = one.grad.Value(i);
      one.grad.SetValue(i, std::abs(x) < 0x1p-6 ? 1 : x);
      four.grad.SetValue(i, 4 * one.grad.Value(i));
    }
    for (const Target& target : Targets<EmbeddingBackward>()) {
      SCOPED_TRACE(target.name());
      EXPECT_OK(RunOn(target, one.op()));
      EXPECT_OK(RunOn(target, four.op()));
      for (std::int64_t i = 0; i < one.out.numel(); ++i) {
        if (dtype == DType::kF16 && std::abs(one.out.Value(i)) < 0x1p-14) continue;
        ASSERT_EQ(4 * one.out.Value(i), four.out.Value(i)) << Name(dtype) << " element " << i;
      }
    }
  }
}

// The name of a row has no part in its sum.
TEST(Properties, RenamingRowsMovesThem) {
  constexpr std::int64_t V = 997;
  for (const DType dtype : kGradientDTypes) {
    BackwardProblem plain =
        MakeProblem({.N = 5000, .V = V, .D = 9, .spread = Spread::kZipf, .grad = dtype, .scale = true});
    BackwardProblem renamed =
        MakeProblem({.N = 5000, .V = V, .D = 9, .spread = Spread::kZipf, .grad = dtype, .scale = true});
    const auto rename = [](std::int64_t v) { return (v * 331 + 5) % V; };  // V is prime
    std::vector<std::int64_t> rows = RowsNamed(plain.indices.view());
    for (std::int64_t& row : rows) row = rename(row);
    SetIndices(renamed.indices, rows);
    for (const Target& target : Targets<EmbeddingBackward>()) {
      SCOPED_TRACE(target.name());
      EXPECT_OK(RunOn(target, plain.op()));
      EXPECT_OK(RunOn(target, renamed.op()));
      const std::vector<std::byte> a = plain.out.Bytes(), b = renamed.out.Bytes();
      const std::int64_t row_bytes = 9 * SizeOf(dtype);
      for (std::int64_t v = 0; v < V; ++v)
        ASSERT_TRUE(
            std::equal(a.begin() + v * row_bytes, a.begin() + (v + 1) * row_bytes, b.begin() + rename(v) * row_bytes))
            << Name(dtype) << " row " << v;
    }
  }
}

// Columns do not know each other: any subset of them alone gives the same bits.
TEST(Properties, ColumnsAreIndependent) {
  const BackwardCase c{.N = 1700, .V = 60, .D = 75, .spread = Spread::kZipf};
  BackwardProblem wide = MakeProblem(c);
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    EXPECT_OK(RunOn(target, wide.op()));
    for (const std::int64_t width : {1, 7, 30})
      for (const std::int64_t first : {0, 13, 45}) {
        EmbeddingBackward op = wide.op();
        op.grad.data = static_cast<const float*>(op.grad.data) + first;
        op.grad.dims[1] = width;
        Tensor out(DType::kF32, {60, width});
        op.out = out.view();
        EXPECT_OK(RunOn(target, op));
        for (std::int64_t v = 0; v < 60; ++v)
          for (std::int64_t col = 0; col < width; ++col)
            ASSERT_EQ(out.Get<std::uint32_t>(v * width + col), wide.out.Get<std::uint32_t>(v * 75 + first + col));
      }
  }
}

// accumulate onto zeros is the plain result, but that -0 + 0 is +0; twice onto zeros doubles it exactly.
TEST(Properties, AccumulateAddsOnce) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    BackwardProblem plain =
        MakeProblem({.N = 2500, .V = 40, .D = 19, .spread = Spread::kZipf, .grad = dtype, .scale = true});
    for (const Target& target : Targets<EmbeddingBackward>()) {
      SCOPED_TRACE(target.name());
      EXPECT_OK(RunOn(target, plain.op()));
      Tensor twice(dtype, {40, 19});
      twice.SetAll(std::vector<double>(40 * 19, 0.0));
      EmbeddingBackward op = plain.op();
      op.accumulate = true;
      op.out = twice.view();
      EXPECT_OK(RunOn(target, op));
      EXPECT_EQ(twice.Values(), plain.out.Values());
      EXPECT_OK(RunOn(target, op));
      for (std::int64_t i = 0; i < twice.numel(); ++i) {
        if (target.is_ref()) {
          // "ref" adds its unrounded f64 sum.
          ASSERT_NEAR(twice.Value(i), 2 * plain.out.Value(i), 0x1p-22 * std::abs(plain.out.Value(i)));
        } else {
          ASSERT_EQ(twice.Value(i), 2 * plain.out.Value(i));
        }
      }
    }
  }
}

// Positions of the padding row may hold anything.
TEST(Properties, PaddingPositionsDoNotMatter) {
  BackwardProblem problem = MakeProblem({.N = 2000, .V = 30, .D = 11, .padding_idx = 4});
  const std::vector<std::int64_t> rows = RowsNamed(problem.indices.view());
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    EXPECT_OK(RunOn(target, problem.op()));
    const std::vector<std::byte> before = problem.out.Bytes();
    BackwardProblem poisoned = problem;
    for (std::int64_t i = 0; i < 2000; ++i)
      for (std::int64_t c = 0; c < 11; ++c)
        if (rows[static_cast<std::size_t>(i)] == 4) poisoned.grad.SetValue(i * 11 + c, NAN);
    EXPECT_OK(RunOn(target, poisoned.op()));
    EXPECT_TRUE(poisoned.out.Bytes() == before);
  }
}

}  // namespace
}  // namespace onehot::test
