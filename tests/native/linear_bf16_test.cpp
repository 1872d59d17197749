// Products of bf16 pairs against their definition in f64. On CPUs without such products all but one test is skipped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cpu/isa.h"
#include "cpu/linear_bf16.h"
#include "tests/native/data.h"
#include "tests/native/linear_bf16.h"

namespace onehot::test {
namespace {

using cpu::Bf16Pair;
using cpu::Bf16ProductTask;
using cpu::kTileColumns;
using cpu::Pairs;
using cpu::RoundUp;

// A matrix of bf16 in pairs along its columns (first) or, `across`, along its rows.
struct Packed {
  std::int64_t rows, columns;
  bool across;
  std::int64_t stride;
  Line<Bf16Pair> pairs;

  Packed(std::int64_t rows, std::int64_t columns, bool across)
      : rows(rows),
        columns(columns),
        across(across),
        stride(RoundUp(across ? columns : Pairs(columns), 16) + 16),
        pairs(static_cast<std::size_t>((across ? Pairs(rows) : rows) * stride)) {}

  std::size_t At(std::int64_t i, std::int64_t j) const {
    return static_cast<std::size_t>(across ? i / 2 * stride + j : i * stride + j / 2);
  }
  double operator()(std::int64_t i, std::int64_t j) const { return Widen(Number(pairs[At(i, j)], across ? i : j)); }
  void Set(std::int64_t i, std::int64_t j, double x) {
    Bf16Pair& pair = pairs[At(i, j)];
    const BF16 narrow = Narrow<BF16>(x);
    pair = (across ? i : j) % 2 == 0 ? PairOf(narrow, Number(pair, 1)) : PairOf(Number(pair, 0), narrow);
  }
  // Signed, over some ten binades.
  void Fill(Random& random) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        Set(i, j, std::ldexp(2 * random.Unit() - 1, static_cast<int>(random.Below(10)) - 5));
  }
};

// c (+)= a b, with a either in pairs along its rows or, turned, in pairs across the rows of its transpose.
struct Product {
  std::int64_t rows, terms;
  bool turned;
  Packed a, b;
  std::int64_t c_row = kTileColumns + 16;
  Line<float> c;

  Product(std::int64_t rows, std::int64_t terms, bool turned, std::uint64_t seed)
      : rows(rows),
        terms(terms),
        turned(turned),
        a(turned ? terms : rows, turned ? rows : terms, turned),
        b(terms, kTileColumns, true),
        c(static_cast<std::size_t>(rows * c_row), kNaN) {
    Random random(seed);
    a.Fill(random);
    b.Fill(random);
  }
  double A(std::int64_t i, std::int64_t n) const { return turned ? a(n, i) : a(i, n); }
  void SetA(std::int64_t i, std::int64_t n, double x) { turned ? a.Set(n, i, x) : a.Set(i, n, x); }
  float C(std::int64_t i, std::int64_t j) const { return c[static_cast<std::size_t>(i * c_row + j)]; }

  Bf16ProductTask Task(bool accumulate) {
    return {.a = a.pairs.data(),
            .a_row = turned ? 1 : a.stride,
            .a_k = turned ? a.stride : 1,
            .b = b.pairs.data(),
            .b_k = b.stride,
            .c = c.data(),
            .c_row = c_row,
            .rows = rows,
            .depth = Pairs(terms),
            .accumulate = accumulate,
            .next = b.pairs.data()};
  }
};

struct Shape {
  std::int64_t rows, terms;
};
// Odd and even, below and above the depth that a visit to memory ends; one row of tiles and several.
constexpr Shape kShapes[] = {{6, 1},
                             {6, 2},
                             {12, 3},
                             {6, 7},
                             {18, 2 * cpu::kPairDepth},
                             {12, 2 * cpu::kPairDepth + 1},
                             {6, 4 * cpu::kPairDepth + 5}};

TEST(LinearBf16Kernels, AreThereOnlyWithAvx512) {
  const auto sets = cpu::InstructionSets();
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].starts_with("AVX3")) continue;
    EXPECT_EQ(cpu::Bf16KernelsFor(static_cast<Isa>(i)), nullptr) << sets[i];
  }
}

TEST_F(LinearBf16, ProductsAreWithinTheBoundOfTheirChain) {
  for (const Shape shape : kShapes) {
    for (const bool turned : {false, true}) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(testing::Message() << shape.rows << " rows, " << shape.terms << " terms, turned " << turned
                                        << ", accumulate " << accumulate);
        Product p(shape.rows, shape.terms, turned, 1);
        Line<float> before(p.c.size(), 0.0f);
        if (accumulate) {
          Random random(2);
          for (float& x : before) x = static_cast<float>(random.Unit() - 0.5);
          p.c = before;
        }
        kernels_->multiply(p.Task(accumulate));
        for (std::int64_t i = 0; i < p.rows; ++i) {
          for (std::int64_t j = 0; j < kTileColumns; ++j) {
            double want = before[static_cast<std::size_t>(i * p.c_row + j)], size = std::fabs(want);
            for (std::int64_t n = 0; n < p.terms; ++n) {
              want += p.A(i, n) * p.b(n, j);  // exact products; the sum's error is 2^-29 of the bound
              size += std::fabs(p.A(i, n) * p.b(n, j));
            }
            // One rounding a term, relative 2^-24, of partial sums that are at most `size` (1 + what is rounded).
            const double unit = static_cast<double>(p.terms + 1) * 0x1p-24;
            ASSERT_NEAR(p.C(i, j), want, size * unit / (1 - unit)) << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST_F(LinearBf16, ASumIsAChainThatTakesThePairsSecondProductFirst) {
  for (const Shape shape : kShapes) {
    Product p(shape.rows, shape.terms, shape.terms % 2 == 0, 3);
    kernels_->multiply(p.Task(false));
    for (std::int64_t i = 0; i < p.rows; ++i) {
      for (std::int64_t j = 0; j < kTileColumns; ++j) {
        float sum = 0;
        const auto add = [&](std::int64_t n) {
          if (n < p.terms) sum = std::fma(static_cast<float>(p.A(i, n)), static_cast<float>(p.b(n, j)), sum);
        };
        for (std::int64_t n = 0; n < p.terms; n += 2) add(n + 1), add(n);
        ASSERT_EQ(p.C(i, j), sum) << shape.terms << " terms: " << i << ", " << j;
      }
    }
  }
}

TEST_F(LinearBf16, CutsBetweenPairsDoNotChangeABit) {
  for (const bool turned : {false, true}) {
    Product whole(12, 2 * cpu::kPairDepth + 37, turned, 4);
    kernels_->multiply(whole.Task(false));
    for (const std::int64_t cut : {std::int64_t{1}, std::int64_t{200}, cpu::kPairDepth, cpu::kPairDepth + 18}) {
      Product parts(12, 2 * cpu::kPairDepth + 37, turned, 4);
      Bf16ProductTask task = parts.Task(false);
      const std::int64_t depth = task.depth;
      task.depth = cut;
      kernels_->multiply(task);
      task.a += cut * task.a_k;
      task.b += cut * task.b_k;
      task.depth = depth - cut;
      task.accumulate = true;
      kernels_->multiply(task);
      for (std::int64_t i = 0; i < whole.rows; ++i)
        for (std::int64_t j = 0; j < kTileColumns; ++j) ASSERT_EQ(parts.C(i, j), whole.C(i, j)) << cut;
    }
  }
}

TEST_F(LinearBf16, AProductOfNothingIsZeroOrWhatWasThere) {
  Product p(6, 4, false, 5);
  Bf16ProductTask task = p.Task(false);
  task.depth = 0;
  kernels_->multiply(task);
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::int64_t j = 0; j < kTileColumns; ++j) ASSERT_EQ(p.C(i, j), 0);
  p.c.assign(p.c.size(), 2.5f);
  task.accumulate = true;
  kernels_->multiply(task);
  for (const float x : p.c) ASSERT_EQ(x, 2.5f);
}

TEST_F(LinearBf16, NothingIsWrittenBesideTheTile) {
  Product p(12, 9, false, 6);
  kernels_->multiply(p.Task(false));
  for (std::int64_t i = 0; i < p.rows; ++i)
    for (std::int64_t j = kTileColumns; j < p.c_row; ++j) ASSERT_TRUE(std::isnan(p.C(i, j)));
}

TEST_F(LinearBf16, InfinityAndNaNReachTheirRowAndNoOther) {
  for (const bool turned : {false, true}) {
    Product p(12, 11, turned, 7);
    for (std::int64_t n = 0; n < p.terms; ++n)
      for (std::int64_t j = 0; j < kTileColumns; ++j) p.b.Set(n, j, 1 + static_cast<double>(j % 3));
    p.SetA(1, 10, kInfinity);
    p.SetA(2, 3, -kInfinity);
    p.SetA(7, 0, kNaN);
    p.SetA(8, 4, kInfinity), p.SetA(8, 5, -kInfinity);
    kernels_->multiply(p.Task(false));
    for (std::int64_t i = 0; i < p.rows; ++i) {
      for (std::int64_t j = 0; j < kTileColumns; ++j) {
        const float x = p.C(i, j);
        if (i == 1) {
          ASSERT_EQ(x, kInfinity);
        } else if (i == 2) {
          ASSERT_EQ(x, -kInfinity);
        } else if (i == 7 || i == 8) {
          ASSERT_TRUE(std::isnan(x));
        } else {
          ASSERT_TRUE(std::isfinite(x)) << i;
        }
      }
    }
  }
}

TEST_F(LinearBf16, NumbersBelowTheSmallestNormalAreZeros) {
  Product p(6, 2, false, 8);
  for (std::int64_t i = 0; i < 6; ++i) p.SetA(i, 0, 0), p.SetA(i, 1, 0);
  for (std::int64_t j = 0; j < kTileColumns; ++j) p.b.Set(0, j, 0x1p100), p.b.Set(1, j, 0x1p-20);
  p.SetA(0, 0, 0x1p-127);  // an operand
  p.SetA(1, 0, 0x1p-126);  // not quite
  p.SetA(2, 1, 0x1p-110);  // the product
  p.SetA(3, 1, 0x1p-106);  // not quite
  kernels_->multiply(p.Task(false));
  EXPECT_EQ(p.C(0, 5), 0);
  EXPECT_EQ(p.C(1, 5), 0x1p-26f);
  EXPECT_EQ(p.C(2, 5), 0);
  EXPECT_EQ(p.C(3, 5), 0x1p-126f);
}

}  // namespace
}  // namespace onehot::test
