// Packing of bf16 pairs against conversions of single numbers, and a linear layer put together from packing and products.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "cpu/linear_bf16.h"
#include "tests/native/data.h"
#include "tests/native/linear_bf16.h"
#include "tests/native/tensor.h"

namespace onehot::test {
namespace {

using cpu::Bf16Pair;
using cpu::InputPart;
using cpu::kTileColumns;
using cpu::Pairs;
using cpu::RoundUp;

constexpr Bf16Pair kUntouched = 0xABCD1234u;

InputPart PartOf(const Tensor& tensor) {
  const ConstTensorView view = tensor.view();
  return {
      static_cast<const std::byte*>(view.data), view.dtype, view.stride(0), view.stride(1), view.dim(0), view.dim(1)};
}

// What the packed number has to be: the bits of a bf16, else the nearest one.
BF16 Expected(const Tensor& tensor, std::int64_t i, std::int64_t j) {
  const std::int64_t rows = tensor.layout().dims[0], columns = tensor.layout().dims[1];
  if (i >= rows || j >= columns) return {0};
  const std::int64_t position = i * columns + j;
  if (tensor.layout().dtype == DType::kBF16) return tensor.Get<BF16>(position);
  return Rounded(static_cast<float>(tensor.Value(position)));
}

// Numbers of all sizes, ties between two bf16, and what is no number.
void FillSpecial(Tensor& tensor, std::uint64_t seed) {
  constexpr double kSpecial[] = {kInfinity,      -kInfinity, 0.0,         -0.0,     0x1.01p0, 0x1.03p0, -0x1.010002p0,
                                 0x1.fffffep127, 0x1p-127,   -0x1.8p-126, 0x1p-130, 65504,    0x1p-24,  kNaN};
  FillGradient(tensor, seed);
  Random random(seed + 1);
  for (std::int64_t position = 0; position < tensor.numel(); ++position)
    if (random.Below(3) == 0)
      tensor.SetValue(position, kSpecial[random.Below(static_cast<std::int64_t>(std::size(kSpecial)))]);
}

void ExpectBits(BF16 got, BF16 want, std::int64_t i, std::int64_t j) {
  if (std::isnan(Widen(want))) {
    ASSERT_TRUE(std::isnan(Widen(got))) << i << ", " << j;
  } else {
    ASSERT_EQ(got.bits, want.bits) << i << ", " << j;
  }
}

// Row-major and column-major, dense and with gaps, then neither.
std::vector<Dims> StridesFor(std::int64_t rows, std::int64_t columns) {
  return {{columns, 1}, {columns + 3, 1}, {1, rows}, {1, rows + 5}, {3 * columns, 3}, {2, 2 * rows + 1}};
}

struct MatrixShape {
  std::int64_t rows, columns;
};
constexpr MatrixShape kMatrices[] = {{1, 1}, {2, 2}, {3, 5}, {5, 31}, {7, 33}, {33, 64}, {64, 64}, {63, 50}, {40, 130}};
constexpr DType kPackedDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

template <class F>
void ForMatrices(F&& test) {
  for (const DType dtype : kPackedDTypes) {
    for (const MatrixShape shape : kMatrices) {
      for (const Dims& strides : StridesFor(shape.rows, shape.columns)) {
        SCOPED_TRACE(testing::Message() << "dtype " << static_cast<int>(dtype) << ", " << shape.rows << " x "
                                        << shape.columns << ", strides " << strides[0] << ", " << strides[1]);
        Tensor tensor(dtype, {shape.rows, shape.columns}, strides);
        FillSpecial(tensor, 9);
        test(tensor);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(LinearBf16, PacksRowsOfAnyDtypeAndStrides) {
  ForMatrices([&](const Tensor& tensor) {
    const InputPart m = PartOf(tensor);
    for (const std::int64_t width : {Pairs(m.columns), Pairs(m.columns) + 21}) {
      const std::int64_t to_row = width + 3;
      std::vector<Bf16Pair> to(static_cast<std::size_t>(m.rows * to_row), kUntouched);
      kernels_->pack(m, to.data(), to_row, width);
      for (std::int64_t i = 0; i < m.rows; ++i) {
        for (std::int64_t k = 0; k < to_row; ++k) {
          const Bf16Pair pair = to[static_cast<std::size_t>(i * to_row + k)];
          if (k >= width) {
            ASSERT_EQ(pair, kUntouched);
          } else {
            for (const std::int64_t n : {0, 1})
              ASSERT_NO_FATAL_FAILURE(ExpectBits(Number(pair, n), Expected(tensor, i, 2 * k + n), i, 2 * k + n));
          }
        }
      }
    }
  });
}

TEST_F(LinearBf16, InterleavesRowsOfAnyDtypeAndStrides) {
  ForMatrices([&](const Tensor& tensor) {
    const InputPart m = PartOf(tensor);
    for (const std::int64_t width : {m.columns, m.columns + 21}) {
      const std::int64_t to_row = width + 3, rows = Pairs(m.rows);
      std::vector<Bf16Pair> to(static_cast<std::size_t>((rows + 1) * to_row), kUntouched);
      kernels_->interleave(m, to.data(), to_row, width);
      for (std::int64_t k = 0; k <= rows; ++k) {
        for (std::int64_t j = 0; j < to_row; ++j) {
          const Bf16Pair pair = to[static_cast<std::size_t>(k * to_row + j)];
          if (k == rows || j >= width) {
            ASSERT_EQ(pair, kUntouched);
          } else {
            for (const std::int64_t n : {0, 1})
              ASSERT_NO_FATAL_FAILURE(ExpectBits(Number(pair, n), Expected(tensor, 2 * k + n, j), 2 * k + n, j));
          }
        }
      }
    }
  });
}

TEST_F(LinearBf16, InterleavesWhatHasBeenPacked) {
  Tensor x(DType::kF32, {7, 45});
  FillGradient(x, 10);
  constexpr std::int64_t kRow = 32, kPanel = 64;
  Line<Bf16Pair> packed(7 * kRow), panel(4 * kPanel);
  kernels_->pack(PartOf(x), packed.data(), kRow, kRow);
  kernels_->interleave({reinterpret_cast<const std::byte*>(packed.data()), DType::kBF16, 2 * kRow, 1, 7, 45},
                       panel.data(), kPanel, kPanel);
  for (std::int64_t i = 0; i < 8; ++i)
    for (std::int64_t j = 0; j < kPanel; ++j)
      ASSERT_NO_FATAL_FAILURE(
          ExpectBits(Number(panel[static_cast<std::size_t>(i / 2 * kPanel + j)], i), Expected(x, i, j), i, j));
}

TEST_F(LinearBf16, RoundsOnceForBothLayouts) {
  for (const MatrixShape shape : kMatrices) {
    for (const bool one_only : {false, true}) {
      SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns << ", one only " << one_only);
      const std::int64_t from_row = shape.columns + 3;
      Tensor g(DType::kF32, {shape.rows, shape.columns}, {from_row, 1});
      FillSpecial(g, 11);
      const std::int64_t padded = RoundUp(shape.rows, 6), width = RoundUp(shape.columns, cpu::kRoundColumns);
      const std::int64_t along_row = width / 2 + 16, across_row = width + 16;
      Line<Bf16Pair> along(static_cast<std::size_t>(padded * along_row), kUntouched);
      Line<Bf16Pair> across(static_cast<std::size_t>(padded / 2 * across_row), kUntouched);
      const auto check = [&](bool want_along, bool want_across) {
        for (std::int64_t i = 0; i < padded; ++i) {
          for (std::int64_t j = 0; j < width + 16; ++j) {
            const Bf16Pair row_pair = along[static_cast<std::size_t>(i * along_row + j / 2)];
            const Bf16Pair column_pair = across[static_cast<std::size_t>(i / 2 * across_row + j)];
            if (j >= width || !want_along) {
              ASSERT_EQ(row_pair, kUntouched);
            } else {
              ASSERT_NO_FATAL_FAILURE(ExpectBits(Number(row_pair, j), Expected(g, i, j), i, j));
            }
            if (j >= width || !want_across) {
              ASSERT_EQ(column_pair, kUntouched);
            } else {
              ASSERT_NO_FATAL_FAILURE(ExpectBits(Number(column_pair, i), Expected(g, i, j), i, j));
            }
            if (j < width && want_along && want_across) {
              ASSERT_EQ(Number(row_pair, j).bits, Number(column_pair, i).bits);
            }
          }
        }
      };
      const cpu::Bf16RoundTask task{static_cast<const float*>(g.view().data),
                                    from_row,
                                    shape.rows,
                                    padded,
                                    shape.columns,
                                    along.data(),
                                    along_row,
                                    across.data(),
                                    across_row};
      if (one_only) {
        cpu::Bf16RoundTask half = task;
        half.across = nullptr;
        kernels_->round(half);
        ASSERT_NO_FATAL_FAILURE(check(true, false));
        along.assign(along.size(), kUntouched);
        half = task, half.along = nullptr;
        kernels_->round(half);
        ASSERT_NO_FATAL_FAILURE(check(false, true));
      } else {
        kernels_->round(task);
        ASSERT_NO_FATAL_FAILURE(check(true, true));
      }
    }
  }
}

// The three products of a linear layer and its gradients, as they are put together from these parts, odd in every extent.
TEST_F(LinearBf16, MakesTheProductsOfALinearLayer) {
  constexpr std::int64_t N = 9, H = 51, C = 37, kRows = 12, kRow = 64;
  Tensor x(DType::kBF16, {N, H}), w(DType::kF16, {C, H}, {1, C});
  FillGradient(x, 12);
  FillGradient(w, 13);
  Line<Bf16Pair> x_rows(kRows * kRow), x_panel(Pairs(N) * kTileColumns), wt(Pairs(H) * kTileColumns);
  Line<Bf16Pair> w_panel(Pairs(C) * kTileColumns), g_rows(kRows * kRow), g_columns(kRows / 2 * kRow);
  Line<float> g(kRows * kTileColumns, kNaN), dx(kRows * kTileColumns, kNaN), dw(42 * kTileColumns, kNaN);
  kernels_->pack(PartOf(x), x_rows.data(), kRow, kRow);
  kernels_->interleave(PartOf(x), x_panel.data(), kTileColumns, kTileColumns);
  kernels_->interleave(cpu::Transposed(PartOf(w)), wt.data(), kTileColumns, kTileColumns);
  kernels_->interleave(PartOf(w), w_panel.data(), kTileColumns, kTileColumns);
  const auto multiply = [&](const Line<Bf16Pair>& a, std::int64_t a_row, std::int64_t a_k, const Line<Bf16Pair>& b,
                            Line<float>& c, std::int64_t rows, std::int64_t depth) {
    kernels_->multiply(
        {a.data(), a_row, a_k, b.data(), kTileColumns, c.data(), kTileColumns, rows, Pairs(depth), false, b.data()});
  };
  multiply(x_rows, kRow, 1, wt, g, kRows, H);
  kernels_->round({g.data(), kTileColumns, N, kRows, C, g_rows.data(), kRow, g_columns.data(), kRow});
  multiply(g_rows, kRow, 1, w_panel, dx, kRows, C);
  multiply(g_columns, 1, kRow, x_panel, dw, 42, N);
  const auto X = [&](std::int64_t i, std::int64_t h) { return x.Value(i * H + h); };
  const auto W = [&](std::int64_t c, std::int64_t h) { return double{Widen(Expected(w, c, h))}; };
  const auto G = [&](std::int64_t i, std::int64_t c) {
    return double{Widen(Rounded(g[static_cast<std::size_t>(i * kTileColumns + c)]))};
  };
  // One rounding a term, relative 2^-24, as in the test of the products.
  const auto check = [](float got, std::int64_t terms, auto&& term) {
    double want = 0, size = 0;
    for (std::int64_t n = 0; n < terms; ++n) want += term(n), size += std::fabs(term(n));
    const double unit = static_cast<double>(terms) * 0x1p-24;
    ASSERT_NEAR(got, want, size * unit / (1 - unit));
  };
  const auto at = [](const Line<float>& m, std::int64_t i, std::int64_t j) {
    return m[static_cast<std::size_t>(i * kTileColumns + j)];
  };
  for (std::int64_t i = 0; i < N; ++i)
    for (std::int64_t c = 0; c < C; ++c)
      ASSERT_NO_FATAL_FAILURE(check(at(g, i, c), H, [&](std::int64_t h) { return X(i, h) * W(c, h); }));
  for (std::int64_t i = 0; i < N; ++i)
    for (std::int64_t h = 0; h < H; ++h)
      ASSERT_NO_FATAL_FAILURE(check(at(dx, i, h), C, [&](std::int64_t c) { return G(i, c) * W(c, h); }));
  for (std::int64_t c = 0; c < C; ++c)
    for (std::int64_t h = 0; h < H; ++h)
      ASSERT_NO_FATAL_FAILURE(check(at(dw, c, h), N, [&](std::int64_t i) { return G(i, c) * X(i, h); }));
}

}  // namespace
}  // namespace onehot::test
