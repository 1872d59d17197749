#include "cpu/narrow_rows_simd.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cpu/rows_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/narrow_rows_simd.cpp"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

#include "cpu/rows-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Entries are looked ahead so far that this many bytes of gradient are on the way: the latency of memory (100 ns) times
// what one core draws (some 30 GB/s) is 3 KB, and bursts want slack.
constexpr std::int64_t kAheadBytes = 6 << 10;

// All lanes `on` or none.
template <class D>
HWY_INLINE hn::Mask<D> MaskOf(D d, bool on) {
  const hn::RebindToUnsigned<D> du;
  return hn::RebindMask(d, hn::Ne(hn::Set(du, hn::TFromD<decltype(du)>{on}), hn::Zero(du)));
}

template <class G, bool kEntries, int kColumns>
HWY_INLINE void SumLoop(const SumTask& task) {
  using Acc = AccumulatorOf<G>;
  // Copies, since the counters written in the loop might alias the task as far as the compiler knows.
  const std::int64_t columns = kColumns > 0 ? kColumns : task.columns, count = task.count, stride = task.grad_stride;
  const std::int64_t last = count + task.ahead - 1;
  const RowEntry* const entries = task.entries;
  const std::uint32_t* const rows = task.rows;
  const std::uint32_t first_row = task.first_row, first_position = task.first_position;
  const std::byte* const grad = task.grad;
  std::uint32_t *const counts = task.counts, *const lasts = task.lasts;
  auto* const sums = reinterpret_cast<Acc*>(task.sums);
  const std::int64_t row_bytes = columns * static_cast<std::int64_t>(sizeof(G));
  const std::int64_t ahead = std::clamp<std::int64_t>(kAheadBytes / row_bytes, 1, 64);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t position = kEntries ? entries[i].position : first_position + static_cast<std::uint32_t>(i);
    const std::uint32_t row = (kEntries ? entries[i].row : rows[i]) - first_row;
    const std::int64_t later = std::min(i + ahead, last);
    const std::byte* const next =
        grad + (kEntries ? std::int64_t{entries[later].position} : first_position + later) * stride;
    for (std::int64_t at = 0; at < row_bytes; at += 64) hwy::Prefetch(next + at);
    hwy::Prefetch(next + row_bytes - 1);  // the line more that a row off line boundaries has
    const auto* const x = reinterpret_cast<const G*>(grad + std::int64_t{position} * stride);
    Acc* const sum = sums + row * columns;
    const std::uint32_t before = counts[row]++;
    lasts[row] = position;
    // A fold starts from its first element. Whether this is one is chance in a near-unique batch, so both results are
    // formed and one is taken: no branch to mispredict.
    const bool starts = before % 512 == 0;
    if (HWY_UNLIKELY(starts && before != 0))
      task.chunk_done(task.context, row, before, reinterpret_cast<const std::byte*>(sum));
    ForColumns<Acc>(columns, [&](auto d, std::int64_t c) HWY_ATTR {
      const auto v = LoadWide(d, x + c);
      hn::StoreU(hn::IfThenElse(MaskOf(d, starts), v, hn::Add(hn::LoadU(d, sum + c), v)), d, sum + c);
    });
  }
}

template <class G>
void Sum(const SumTask& task) {
  // Widths whose inner loop the compiler is to unroll: single numbers, and common widths of small heads.
  const auto loop = [&](auto entries) HWY_ATTR {
    constexpr bool kEntries = decltype(entries)::value;
    switch (task.columns) {
      case 1:
        return SumLoop<G, kEntries, 1>(task);
      case 16:
        return SumLoop<G, kEntries, 16>(task);
      case 64:
        return SumLoop<G, kEntries, 64>(task);
      default:
        return SumLoop<G, kEntries, 0>(task);
    }
  };
  if (task.entries != nullptr) {
    loop(std::true_type());
  } else {
    loop(std::false_type());
  }
}

// Row `row` of the sums, one that has occurrences, to `out`.
template <class G, class O>
HWY_INLINE void WriteRow(const FinishTask& task, std::int64_t row, O* out, bool stream) {
  using Acc = AccumulatorOf<G>;
  const std::uint32_t count = task.counts[row];
  const Acc* const sum = reinterpret_cast<const Acc*>(task.sums) + row * task.columns;
  const bool divide = task.scale && count > 1, copied = count == 1 && !task.accumulate;
  bool nan = false;
  ForColumns<Acc>(task.columns, [&](auto d, std::int64_t c) HWY_ATTR {
    auto v = hn::LoadU(d, sum + c);
    if (divide) v = hn::Div(v, hn::Set(d, static_cast<Acc>(count)));
    if (task.accumulate) v = hn::Add(LoadWide(d, out + c), v);
    nan = nan || (copied && !hn::AllFalse(d, hn::IsNaN(v)));
    StoreNarrow(v, d, out + c, stream);
  });
  // A row named once is a bit copy, but on its way a signalling NaN may have become quiet: by widening, or because the
  // compiler turned "v or sum + v" into "v plus sum or -0".
  if (HWY_UNLIKELY(nan)) {
    const auto* const only = reinterpret_cast<const G*>(task.grad + std::int64_t{task.lasts[row]} * task.grad_stride);
    for (std::int64_t c = 0; c < task.columns; ++c) {
      if constexpr (std::is_same_v<G, O>) {
        out[c] = only[c];
      } else {
        out[c] = Narrow<O>(Widen(only[c]));
      }
    }
  }
}

// Rows that are single numbers, a vector of rows at a time; false if there is a NaN, which WriteRow looks at.
template <class G, class O>
HWY_INLINE bool WriteNumbers(const FinishTask& task, std::int64_t begin, std::int64_t rows, O* out) {
  if constexpr (std::is_same_v<G, float> && std::is_same_v<O, float>) {
    if (task.columns != 1 || task.scale) return false;
    const hn::ScalableTag<float> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto* const sums = reinterpret_cast<const float*>(task.sums) + begin;
    if (rows % lanes != 0) return false;
    for (std::int64_t row = 0; row < rows; row += lanes) {
      const auto named = hn::RebindMask(d, hn::Ne(hn::LoadU(du, task.counts + begin + row), hn::Zero(du)));
      const auto v = hn::IfThenElseZero(named, hn::LoadU(d, sums + row));
      if (!hn::AllFalse(d, hn::IsNaN(v))) return false;
      hn::StoreU(v, d, out + row);
    }
    return true;
  }
  return false;
}

// Rows that lie side by side are put together in L1, zeros among them, and leave it as one run of whole lines. Written
// one by one, every row that is named or not where the last one was the other way round is a mispredicted branch, and
// stores past the caches wait for it (measured: 35 ns a row).
template <class G, class O>
void WriteStaged(const FinishTask& task) {
  const std::int64_t row_bytes = task.columns * static_cast<std::int64_t>(sizeof(O));
  constexpr std::int64_t kRows = 64;
  alignas(kStreamAlign) std::byte lines[kRows * kNarrowBytes];
  const auto line = [&](std::int64_t row) HWY_ATTR { return reinterpret_cast<O*>(lines + row % kRows * row_bytes); };
  Zero(lines, kRows * row_bytes);
  std::uint64_t filled = 0;
  for (std::int64_t begin = 0; begin < task.rows; begin += kRows) {
    const std::int64_t rows = std::min(kRows, task.rows - begin);
    const std::uint64_t named = NonZero64(task.counts + begin);
    ForBits(filled & ~named, begin,
            [&](std::int64_t row) HWY_ATTR { Zero(reinterpret_cast<std::byte*>(line(row)), row_bytes); });
    filled = named;
    if (!WriteNumbers<G>(task, begin, rows, line(0)))
      ForBits(named, begin, [&](std::int64_t row) HWY_ATTR { WriteRow<G>(task, row, line(row), false); });
    std::byte* const out = task.out + begin * row_bytes;
    if (task.stream) {
      CopyStream(lines, out, rows * row_bytes);
    } else {
      std::memcpy(out, lines, static_cast<std::size_t>(rows * row_bytes));
    }
  }
}

// Only rows with occurrences, and zeros between them.
template <class G, class O>
void WriteNamed(const FinishTask& task) {
  const std::int64_t row_bytes = task.columns * static_cast<std::int64_t>(sizeof(O));
  const auto zero = task.stream ? ZeroStream : Zero;
  std::int64_t written = 0;  // rows below are done
  const auto skip_to = [&](std::int64_t row) HWY_ATTR {
    if (task.accumulate) return;
    for (; written < row; ++written) zero(task.out + written * task.out_stride, row_bytes);
  };
  for (std::int64_t base = 0; base < task.rows; base += 64) {
    ForBits(NonZero64(task.counts + base), base, [&](std::int64_t row) HWY_ATTR {
      skip_to(row);
      written = row + 1;
      if (task.counts[row] <= 512)
        WriteRow<G>(task, row, reinterpret_cast<O*>(task.out + row * task.out_stride), task.stream_rows);
    });
  }
  skip_to(task.rows);
}

template <class G, class O>
void Finish(const FinishTask& task) {
  if (!task.accumulate && task.out_stride == task.columns * static_cast<std::int64_t>(sizeof(O))) {
    WriteStaged<G, O>(task);
  } else {
    WriteNamed<G, O>(task);
  }
  std::uint32_t most = 0;
  for (std::int64_t row = 0; row < task.rows; ++row) most = std::max(most, task.counts[row]);
  if (most <= 512) return;
  hwy::FlushStream();  // so that the rows written now are not overtaken by what was streamed to them above
  const auto row_bytes = task.columns * static_cast<std::int64_t>(sizeof(AccumulatorOf<G>));
  for (std::int64_t row = 0; row < task.rows; ++row)
    if (task.counts[row] > 512) task.hot(task.context, row, task.counts[row], task.sums + row * row_bytes);
}

SumFunction SumFor(DType grad) {
  return grad == DType::kF64    ? Sum<double>
         : grad == DType::kF32  ? Sum<float>
         : grad == DType::kF16  ? Sum<F16>
         : grad == DType::kBF16 ? Sum<BF16>
                                : nullptr;
}

FinishFunction FinishFor(DType grad, DType out) {
  if (grad == DType::kF64) return out == DType::kF64 ? Finish<double, double> : nullptr;
  if (grad == DType::kF32) return out == DType::kF32 ? Finish<float, float> : nullptr;
  if (grad == DType::kF16)
    return out == DType::kF16 ? Finish<F16, F16> : out == DType::kF32 ? Finish<F16, float> : nullptr;
  if (grad == DType::kBF16)
    return out == DType::kBF16 ? Finish<BF16, BF16> : out == DType::kF32 ? Finish<BF16, float> : nullptr;
  return nullptr;
}

NarrowRowKernels NarrowRowTable() {
  return {SumFor, FinishFor};
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.h"

namespace onehot::cpu {

HWY_EXPORT(NarrowRowTable);

const NarrowRowKernels& NarrowRowKernelsFor(Isa isa) {
  static const auto tables = ForEachInstructionSet([](Isa each) { return ONEHOT_DISPATCH(NarrowRowTable, each)(); });
  return tables[static_cast<std::size_t>(isa)];
}

}  // namespace onehot::cpu
#endif
