// Rows of matrices widened, rounded, and turned over in registers. Compiled once per instruction set, hence the guard
// that toggles.
#if defined(ONEHOT_CPU_LINEAR_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEHOT_CPU_LINEAR_PACK_INL_H_
#undef ONEHOT_CPU_LINEAR_PACK_INL_H_
#else
#define ONEHOT_CPU_LINEAR_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "cpu/linear_simd.h"
#include "cpu/linear_tile-inl.h"
#include "cpu/rows-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using LinearTypes = Types<float, F16, BF16>;

template <class T>
HWY_INLINE void WidenRow(const T* from, std::int64_t step, std::int64_t count, float* to) {
  if (step == 1) {
    ForColumns<float>(count, [&](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(LoadWide(d, from + i), d, to + i); });
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = Widen(from[i * step]);
  }
}

template <class T>
HWY_INLINE void NarrowRow(const float* from, std::int64_t count, T* to, std::int64_t step) {
  if (step == 1) {
    ForColumns<float>(count,
                      [&](auto d, std::int64_t i) HWY_ATTR { StoreNarrow(hn::LoadU(d, from + i), d, to + i, false); });
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i * step] = Narrow<T>(from[i]);
  }
}

// Lane i of v[j] and lane j of v[i] change places.
template <std::size_t kLanes>
HWY_INLINE void Transpose([[maybe_unused]] LinearVector (&v)[kLanes]) {
#if HWY_TARGET != HWY_SCALAR  // one lane
  constexpr LinearTag d;
  constexpr hn::RepartitionToWide<hn::RebindToUnsigned<LinearTag>> pairs;
  const auto lower = [&](LinearVector a, LinearVector b) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveLower(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b)));
  };
  const auto upper = [&](LinearVector a, LinearVector b) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveUpper(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b)));
  };
  // Blocks of 4 x 4 first: v[i + j] then holds columns j, j + 4, ... of rows i to i + 3.
  ONEHOT_UNROLL
  for (std::size_t i = 0; i < kLanes; i += 4) {
    const auto a = hn::InterleaveLower(d, v[i], v[i + 1]), b = hn::InterleaveUpper(d, v[i], v[i + 1]);
    const auto e = hn::InterleaveLower(d, v[i + 2], v[i + 3]), f = hn::InterleaveUpper(d, v[i + 2], v[i + 3]);
    v[i] = lower(a, e), v[i + 1] = upper(a, e), v[i + 2] = lower(b, f), v[i + 3] = upper(b, f);
  }
  // Then the blocks change places.
  if constexpr (kLanes == 8) {
    ONEHOT_UNROLL
    for (std::size_t j = 0; j < 4; ++j) {
      const auto a = v[j], b = v[j + 4];
      v[j] = hn::ConcatLowerLower(d, b, a), v[j + 4] = hn::ConcatUpperUpper(d, b, a);
    }
  }
  if constexpr (kLanes == 16) {
    const auto store = [&](std::size_t j, LinearVector even, LinearVector odd) HWY_ATTR {
      v[j] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even);
      v[j + 4] = hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even));
    };
    ONEHOT_UNROLL
    for (std::size_t j = 0; j < 4; ++j) {
      const auto a = v[j], b = v[j + 4], e = v[j + 8], f = v[j + 12];
      store(j, hn::ConcatLowerLower(d, e, a), hn::ConcatLowerLower(d, f, b));
      store(j + 8, hn::ConcatUpperUpper(d, e, a), hn::ConcatUpperUpper(d, f, b));
    }
  }
#endif
}

// At most kTileColumns rows of a matrix, whose columns lie side by side.
template <class T>
struct Panel {
  const T* data;
  std::int64_t row, rows, columns;

  explicit Panel(const InputPart& m)
      : data(reinterpret_cast<const T*>(m.data)), row(m.row), rows(m.rows), columns(m.columns) {}

  // Columns before the first from which on squares are read as whole vectors of one line each, if that pays: lines that
  // are read twice take half as much time again, and one square more is one of eight at most.
  std::int64_t Head() const {
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(T)), kBytes = kLinearLanes * kSize;
    const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) % kBytes);
    if (past == 0 || past % kSize != 0 || row * kSize % kBytes != 0 || columns < 8 * kLinearLanes) return 0;
    return (kBytes - past) / kSize;
  }

  // Columns k, k + 1, ... of rows i, i + 1, ..., turned. Those from `rows` on are 0.
  //
  // Reading a little of each row at a time, the CPU does not see what comes next. So what is read kAhead columns later
  // is asked for, beyond the end of a row the start of the one kNext further down. Measured (Zen 5, rows of 4 KB from
  // memory): a fifth of the time of times_transposed; 512 and 1024 bytes ahead are no faster.
  template <std::int64_t kNext>
  HWY_INLINE void Load(std::int64_t i, std::int64_t k, LinearVector (&v)[kLinearLanes]) const {
    constexpr LinearTag d;
    constexpr std::int64_t kAhead = 256 / static_cast<std::int64_t>(sizeof(T));
    const T* from = data + i * row + k;
    const std::int64_t ahead = k + kAhead < columns ? kAhead : kNext * row - columns + kAhead;
    if (rows - i >= kLinearLanes) {
      ONEHOT_UNROLL
      for (std::int64_t r = 0; r < kLinearLanes; ++r, from += row) {
        v[r] = LoadWide(d, from);
        hwy::Prefetch(from + ahead);
      }
    } else {
      ONEHOT_UNROLL
      for (std::int64_t r = 0; r < kLinearLanes; ++r, from += row)
        v[r] = i + r < rows ? LoadWide(d, from) : hn::Zero(d);
    }
    Transpose(v);
  }
};

// Likewise for any strides, one number after the other.
template <class T>
HWY_INLINE void PackColumns(const InputPart& m, float* to) {
  const T* const from = reinterpret_cast<const T*>(m.data);
  for (std::int64_t j = 0; j < m.columns; ++j, to += kTileColumns) {
    for (std::int64_t i = 0; i < m.rows; ++i) to[i] = Widen(from[i * m.row + j * m.column]);
    std::fill(to + m.rows, to + kTileColumns, 0.0f);
  }
}

// Columns of a panel that has kLinearLanes of them at least become rows of kTileColumns numbers, zeros where rows are
// missing. Rows that make a line along all columns, then the next: lines of rows that are a multiple of 4 KB apart fall into
// one set of the L1 cache, of which 64 would throw out each other. Measured (Zen 5, from memory, ns an element of f32 and
// bf16): rows of 4096 columns 0.34 and 0.27 with all 64 rows at a time, 0.20 and 0.13 so; of 768 0.17 and 0.10, 0.18 and
// 0.09.
template <class T>
HWY_INLINE void TransposePanel(const Panel<T>& panel, std::int64_t begin, std::int64_t end, float* to) {
  constexpr LinearTag d;
  for (std::int64_t line = 0; line < kTileColumns; line += kLineFloats) {
    for (std::int64_t k = begin; k < end;) {
      // The last square may have been there in part.
      const std::int64_t first = std::min(k, panel.columns - kLinearLanes);
      const std::int64_t from = std::max(begin - first, std::int64_t{0}), last = std::min(kLinearLanes, end - first);
      for (std::int64_t i = line; i < line + kLineFloats; i += kLinearLanes) {
        float* const rows = to + (first - begin) * kTileColumns + i;
        LinearVector v[kLinearLanes];
        panel.template Load<kLineFloats>(i, first, v);
        if (from == 0 && last == kLinearLanes) {
          ONEHOT_UNROLL
          for (std::int64_t l = 0; l < kLinearLanes; ++l) hn::Store(v[l], d, rows + l * kTileColumns);
        } else {
          for (std::int64_t l = from; l < last; ++l) hn::Store(v[l], d, rows + l * kTileColumns);
        }
      }
      k = first + last;
    }
  }
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONEHOT_CPU_LINEAR_PACK_INL_H_
