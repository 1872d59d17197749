#include "cpu/rows_simd.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rows_simd.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

#include "cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows taken in lockstep in one pass over the columns. Eight read streams are within what prefetchers follow, and a
// fold of up to eight rows (nearly all rows of a text-like batch) never stores an intermediate sum.
constexpr std::int64_t kLockstep = 8;

// Columns whose intermediate sums stay on the stack between passes: 4 KiB of f32, well inside L1.
constexpr std::int64_t kPanel = 1024;

template <class G, class O>
struct Pass {
  using Acc = AccumulatorOf<G>;
  const G* const* rows;
  std::int64_t count;
  const G* const* next;  // rows that are wanted soon
  std::int64_t next_count;
  const Acc* before;  // the sum of earlier rows, or null
  Acc* after;         // where the sum goes if rows are left, or null
  O* out;             // where the result goes if not
  bool divide, accumulate, stream;
  Acc divisor;

  // Columns c .. c + kVectors * lanes.
  template <int kVectors, class D>
  HWY_INLINE void Block(D d, std::int64_t c) const {
    using V = hn::Vec<D>;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto at = [&](int k) { return c + k * lanes; };
    V v0, v1, v2, v3;
    std::int64_t r = 0;
    if (before != nullptr) {
      v0 = hn::LoadU(d, before + at(0));
      if constexpr (kVectors == 4) {
        v1 = hn::LoadU(d, before + at(1));
        v2 = hn::LoadU(d, before + at(2));
        v3 = hn::LoadU(d, before + at(3));
      }
    } else {
      v0 = LoadWide(d, rows[0] + at(0));
      if constexpr (kVectors == 4) {
        v1 = LoadWide(d, rows[0] + at(1));
        v2 = LoadWide(d, rows[0] + at(2));
        v3 = LoadWide(d, rows[0] + at(3));
      }
      r = 1;
    }
    for (; r < count; ++r) {
      v0 = hn::Add(v0, LoadWide(d, rows[r] + at(0)));
      if constexpr (kVectors == 4) {
        v1 = hn::Add(v1, LoadWide(d, rows[r] + at(1)));
        v2 = hn::Add(v2, LoadWide(d, rows[r] + at(2)));
        v3 = hn::Add(v3, LoadWide(d, rows[r] + at(3)));
      }
    }
    // The same columns of the rows that come next, while these are waited for: four vectors of the accumulator type.
    if constexpr (kVectors == 4) {
      for (r = 0; r < next_count; ++r)
        for (std::int64_t k = 0; k < 4 * lanes; k += 64 / static_cast<std::int64_t>(sizeof(G)))
          hwy::Prefetch(next[r] + c + k);
    }
    Emit(d, v0, at(0));
    if constexpr (kVectors == 4) {
      Emit(d, v1, at(1));
      Emit(d, v2, at(2));
      Emit(d, v3, at(3));
    }
  }

  template <class D, class V>
  HWY_INLINE void Emit(D d, V v, std::int64_t c) const {
    if (after != nullptr) {
      hn::StoreU(v, d, after + c);
      return;
    }
    if (divide) v = hn::Div(v, hn::Set(d, divisor));
    if (accumulate) v = hn::Add(LoadWide(d, out + c), v);
    StoreNarrow(v, d, out + c, stream);
  }

  HWY_INLINE void Run(std::int64_t columns) const {
    const hn::ScalableTag<Acc> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    std::int64_t c = 0;
    for (; c + 4 * lanes <= columns; c += 4 * lanes) Block<4>(d, c);
    // What is left of the rows to come, up to the line more that a row off line boundaries has.
    for (std::int64_t r = 0; r < next_count; ++r) {
      for (std::int64_t k = c; k < columns; k += 64 / static_cast<std::int64_t>(sizeof(G))) hwy::Prefetch(next[r] + k);
      hwy::Prefetch(next[r] + columns - 1);
    }
    ForColumns<Acc>(columns - c, [&](auto d1, std::int64_t rest) HWY_ATTR { Block<1>(d1, c + rest); });
  }
};

template <class G, class O>
void Fold(const FoldTask& task) {
  using Acc = AccumulatorOf<G>;
  if (task.columns == 0) return;  // there may be no memory behind the rows
  if constexpr (std::is_same_v<G, O>) {
    if (task.count == 1 && !task.accumulate) {
      const auto bytes = static_cast<std::size_t>(task.columns) * sizeof(G);
      const std::byte* const row = task.rows[0] + task.first * static_cast<std::int64_t>(sizeof(G));
      // Line by line, each with the same line of a later row: bursts of prefetches would stall the copy (measured: 16.7
      // against 20 GB/s for rows of 1.5 KB).
      const std::byte* const later = task.ahead == kFoldAhead ? task.rows[kFoldAhead] : row;
      const hn::ScalableTag<std::uint8_t> d;
      const auto* in = reinterpret_cast<const std::uint8_t*>(row);
      auto* out = reinterpret_cast<std::uint8_t*>(task.out);
      if (task.stream) {
        for (std::size_t i = 0; i < bytes; i += hn::Lanes(d)) {
          hwy::Prefetch(later + i);
          hn::Stream(hn::LoadU(d, in + i), d, out + i);
        }
      } else {
        for (std::size_t i = 0; i < bytes; i += 64) hwy::Prefetch(later + i);
        std::memcpy(task.out, row, bytes);
      }
      hwy::Prefetch(later + bytes - 1);  // the line more that a row off line boundaries has
      return;
    }
  }
  if constexpr (!std::is_same_v<G, O> && !std::is_same_v<G, Acc>) {
    // Widening is exact; kept apart from the arithmetic below, which a compiler may extend to sums of one term.
    if (task.count == 1 && !task.accumulate) {
      const G* const row = reinterpret_cast<const G*>(task.rows[0]) + task.first;
      ForColumns<Acc>(task.columns, [&](auto d, std::int64_t c) HWY_ATTR {
        StoreNarrow(LoadWide(d, row + c), d, reinterpret_cast<O*>(task.out) + c, task.stream);
      });
      return;
    }
  }
  HWY_ALIGN Acc sum[kPanel];
  const G* rows[2 * kLockstep];
  for (std::int64_t column = 0; column < task.columns; column += kPanel) {
    const std::int64_t columns = std::min(kPanel, task.columns - column);
    for (std::int64_t first = 0; first < task.count; first += kLockstep) {
      const std::int64_t count = std::min(kLockstep, task.count - first);
      for (std::int64_t r = 0; r < count; ++r)
        rows[r] = reinterpret_cast<const G*>(task.rows[first + r]) + task.first + column;
      const std::int64_t next = std::clamp<std::int64_t>(task.count + task.ahead - first - kFoldAhead, 0, count);
      for (std::int64_t r = 0; r < next; ++r)
        rows[kLockstep + r] = reinterpret_cast<const G*>(task.rows[first + kFoldAhead + r]) + task.first + column;
      const bool last = first + count == task.count;
      const Pass<G, O> pass{rows,
                            count,
                            rows + kLockstep,
                            next,
                            first == 0 ? nullptr : sum,
                            last ? nullptr : sum,
                            reinterpret_cast<O*>(task.out) + column,
                            task.divisor != 1,
                            task.accumulate,
                            task.stream,
                            static_cast<Acc>(task.divisor)};
      pass.Run(columns);
    }
  }
}

FoldFunction FoldFor(DType grad, DType out) {
  if (grad == DType::kF64) return out == DType::kF64 ? Fold<double, double> : nullptr;
  if (grad == DType::kF16) return out == DType::kF16 ? Fold<F16, F16> : out == DType::kF32 ? Fold<F16, float> : nullptr;
  if (grad == DType::kBF16)
    return out == DType::kBF16 ? Fold<BF16, BF16> : out == DType::kF32 ? Fold<BF16, float> : nullptr;
  if (grad != DType::kF32) return nullptr;
  return out == DType::kF32    ? Fold<float, float>
         : out == DType::kF16  ? Fold<float, F16>
         : out == DType::kBF16 ? Fold<float, BF16>
                               : nullptr;
}

RowKernels RowTable() {
  return {hwy::TargetName(HWY_TARGET), FoldFor, Zero, ZeroStream, CopyStream, NonZero64};
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.h"

namespace onehot::cpu {
HWY_EXPORT(RowTable);

const RowKernels& RowKernelsFor(Isa isa) {
  static const auto tables = ForEachInstructionSet([](Isa each) { return ONEHOT_DISPATCH(RowTable, each)(); });
  return tables[static_cast<std::size_t>(isa)];
}

}  // namespace onehot::cpu
#endif
