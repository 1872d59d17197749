// Products of few rows with a matrix that is read, or written, where it lies: copying it would take longer than they
// do. Compiled once per instruction set, hence the guard that toggles.
#if defined(ONEHOT_CPU_LINEAR_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEHOT_CPU_LINEAR_FEW_INL_H_
#undef ONEHOT_CPU_LINEAR_FEW_INL_H_
#else
#define ONEHOT_CPU_LINEAR_FEW_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "cpu/linear_pack-inl.h"
#include "cpu/linear_simd.h"
#include "cpu/linear_tile-inl.h"
#include "cpu/rows-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a whose sums are in registers beside a square of the matrix: 8 + 16 of 32, 4 + 8 of 16.
#if HWY_TARGET <= HWY_AVX3
constexpr std::int64_t kSquareRows = 8;
#else
constexpr std::int64_t kSquareRows = 4;
#endif

// c[r * c_row + j] (+)= sum over k of a[r * a_row + k] v[k][j].
template <int kRows>
HWY_INLINE void MultiplySquare(const float* a, std::int64_t a_row, const LinearVector (&v)[kLinearLanes], float* c,
                               std::int64_t c_row, bool accumulate) {
  constexpr LinearTag d;
  LinearVector sum[kRows];
  ONEHOT_UNROLL
  for (std::int64_t r = 0; r < kRows; ++r) sum[r] = accumulate ? hn::LoadU(d, c + r * c_row) : hn::Zero(d);
  ONEHOT_UNROLL
  for (std::int64_t k = 0; k < kLinearLanes; ++k) {
    ONEHOT_UNROLL
    for (std::int64_t r = 0; r < kRows; ++r) sum[r] = Fma(d, hn::Set(d, a[r * a_row + k]), v[k], sum[r]);
  }
  ONEHOT_UNROLL
  for (std::int64_t r = 0; r < kRows; ++r) hn::StoreU(sum[r], d, c + r * c_row);
}

// The same for any number of rows.
template <int kRows = kSquareRows>
HWY_INLINE void MultiplySquares(const float* a, std::int64_t a_row, std::int64_t rows,
                                const LinearVector (&v)[kLinearLanes], float* c, std::int64_t c_row, bool accumulate) {
  for (; rows >= kRows; rows -= kRows, a += kRows * a_row, c += kRows * c_row)
    MultiplySquare<kRows>(a, a_row, v, c, c_row, accumulate);
  if constexpr (kRows > 1) {
    if (rows > 0) MultiplySquares<kRows - 1>(a, a_row, rows, v, c, c_row, accumulate);
  }
}

// kOne: there is one row only.
template <bool kOne, class T>
void TimesPanel(const float* a, std::int64_t a_row, std::int64_t rows, const InputPart& m, float* c,
                std::int64_t c_row) {
  const Panel<T> panel(m);
  HWY_ALIGN float block[kLinearLanes * kTileColumns];
  const auto part = [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    if (m.columns >= kLinearLanes) {
      TransposePanel(panel, begin, end, block);
    } else {
      PackColumns<T>(m, block);
    }
    MultiplyRows(a + begin, a_row, 1, block, kTileColumns, end - begin, c, c_row, rows, begin > 0, block);
  };
  std::int64_t k = panel.Head();
  if (k > 0) part(0, k);
  for (; k + kLinearLanes <= panel.columns; k += kLinearLanes)
    for (std::int64_t j = 0; j < panel.rows; j += kLinearLanes) {
      LinearVector v[kLinearLanes];
      panel.template Load<kTileColumns>(j, k, v);
      if constexpr (kOne) {
        MultiplySquare<1>(a + k, a_row, v, c + j, c_row, k > 0);
      } else {
        MultiplySquares(a + k, a_row, rows, v, c + j, c_row, k > 0);
      }
    }
  if (k < panel.columns || k == 0) part(k, panel.columns);
}

void TimesTransposed(const float* a, std::int64_t a_row, std::int64_t rows, const InputPart& m, float* c,
                     std::int64_t c_row) {
  ForDType(LinearTypes{}, m.dtype, [&]<class T>() HWY_ATTR {
    const auto times = rows == 1 ? TimesPanel<true, T> : TimesPanel<false, T>;
    for (std::int64_t j = 0; j < m.rows; j += kTileColumns)
      times(a, a_row, rows, m.Part(j, 0, std::min(kTileColumns, m.rows - j), m.columns), c + j, c_row);
  });
}

// Rows of the matrix between two visits of the sums: a load and a store stand beside 16 multiply-adds. Long rows are
// read one piece after the other, which the CPU sees coming.
constexpr std::int64_t kTimesDepth = 16;

template <class T>
void TimesOf(const float* a, std::int64_t a_row, std::int64_t rows, const InputPart& m, float* c, std::int64_t c_row,
             bool accumulate) {
  const T* const from = reinterpret_cast<const T*>(m.data);
  HWY_ALIGN float wide[kTimesDepth * kTileColumns];
  for (std::int64_t k = 0; k == 0 || k < m.rows; k += kTimesDepth) {
    const std::int64_t depth = std::min(kTimesDepth, m.rows - k);
    for (std::int64_t j = 0; j < m.columns; j += kTileColumns) {
      const T* const block = from + k * m.row + j;
      const std::int64_t columns = std::min(kTileColumns, m.columns - j);
      const float* b = wide;
      std::int64_t b_k = kTileColumns;
      if (std::is_same_v<T, float> && columns == kTileColumns) {
        b = reinterpret_cast<const float*>(block), b_k = m.row;
      } else {
        for (std::int64_t i = 0; i < depth; ++i) {
          WidenRow(block + i * m.row, 1, columns, wide + i * kTileColumns);
          std::fill(wide + i * kTileColumns + columns, wide + (i + 1) * kTileColumns, 0.0f);
        }
      }
      MultiplyRows(a + k, a_row, 1, b, b_k, depth, c + j, c_row, rows, accumulate || k > 0, b);
    }
  }
}

void Times(const float* a, std::int64_t a_row, std::int64_t rows, const InputPart& m, float* c, std::int64_t c_row,
           bool accumulate) {
  ForDType(LinearTypes{}, m.dtype, [&]<class T>() HWY_ATTR { TimesOf<T>(a, a_row, rows, m, c, c_row, accumulate); });
}

// At most a tile of the output, by way of f32.
template <class T>
HWY_INLINE void OuterPart(const float* a, std::int64_t a_row, const float* b, std::int64_t b_row, std::int64_t depth,
                          bool accumulate, const OutputPart& m) {
  HWY_ALIGN float tile[kTileRows * kTileColumns];
  T* const to = reinterpret_cast<T*>(m.data);
  if (accumulate) std::fill_n(tile, m.rows * kTileColumns, 0.0f);  // all of it is read
  for (std::int64_t i = 0; accumulate && i < m.rows; ++i)
    WidenRow(to + i * m.row, m.column, m.columns, tile + i * kTileColumns);
  MultiplyRows(a, 1, a_row, b, b_row, depth, tile, kTileColumns, m.rows, accumulate, b);
  for (std::int64_t i = 0; i < m.rows; ++i) NarrowRow(tile + i * kTileColumns, m.columns, to + i * m.row, m.column);
}

template <bool kStream, class T>
void OuterOf(const float* a, std::int64_t a_row, const float* b, std::int64_t b_row, std::int64_t depth,
             bool accumulate, const OutputPart& m) {
  // Tiles of the output itself start where a line does.
  const auto into_line = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(m.data) & (kStreamAlign - 1));
  const std::int64_t head = kStream ? std::min(m.columns, into_line / 4) : 0;
  const bool whole = std::is_same_v<T, float> && m.column == 1;
  for (std::int64_t i = 0; i < m.rows; i += kTileRows) {
    const std::int64_t rows = std::min(kTileRows, m.rows - i);
    for (std::int64_t j = 0; j < m.columns;) {
      const std::int64_t columns = std::min(j < head ? head : kTileColumns, m.columns - j);
      const OutputPart part = m.Part(i, j, rows, columns);
      if (whole && columns == kTileColumns) {
        TileOf<kStream>(rows)(a + i, 1, a_row, b + j, b_row, depth, reinterpret_cast<float*>(part.data), m.row,
                              accumulate, b + j);
      } else {
        OuterPart<T>(a + i, a_row, b + j, b_row, depth, accumulate, part);
      }
      j += columns;
    }
  }
  if (kStream) hwy::FlushStream();
}

void Outer(const float* a, std::int64_t a_row, const float* b, std::int64_t b_row, std::int64_t depth, bool accumulate,
           const OutputPart& m, bool stream) {
  if (stream && m.dtype == DType::kF32 && m.column == 1 && m.row * 4 % kStreamAlign == 0 &&
      reinterpret_cast<std::uintptr_t>(m.data) % 4 == 0)
    return OuterOf<true, float>(a, a_row, b, b_row, depth, accumulate, m);
  ForDType(LinearTypes{}, m.dtype,
           [&]<class T>() HWY_ATTR { OuterOf<false, T>(a, a_row, b, b_row, depth, accumulate, m); });
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONEHOT_CPU_LINEAR_FEW_INL_H_
