#include "cpu/rows_simd.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rows_simd.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway 1.0.3 converts f16 correctly only where the CPU has the instruction (F16C, which AVX2 targets imply, or
// NEON).
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4
#undef ONEHOT_VECTOR_F16
#define ONEHOT_VECTOR_F16 0
#else
#undef ONEHOT_VECTOR_F16
#define ONEHOT_VECTOR_F16 1
#endif

// Widening loads and narrowing stores for a tag D of the accumulator type.

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const float* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const double* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const BF16* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const F16* p) {
#if ONEHOT_VECTOR_F16
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)];
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) wide[i] = Widen(p[i]);
  return hn::Load(d, wide);
#endif
}

template <class D, class T>
HWY_INLINE void StoreVector(hn::Vec<D> v, [[maybe_unused]] D d, T* p, bool stream) {
  // Highway 1.0.3 streams 16 bytes even where the vector has fewer.
  if (stream && hn::Lanes(d) * sizeof(T) >= 16) {
    hn::Stream(v, d, p);
  } else {
    hn::StoreU(v, d, p);
  }
}

template <class D>
HWY_INLINE void StoreNarrow(hn::Vec<D> v, D d, float* p, bool stream) {
  StoreVector(v, d, p, stream);
}

template <class D>
HWY_INLINE void StoreNarrow(hn::Vec<D> v, D d, double* p, bool stream) {
  StoreVector(v, d, p, stream);
}

// To nearest even by hand: Highway 1.0.3's own conversion truncates.
template <class D>
HWY_INLINE void StoreNarrow(hn::Vec<D> v, D, BF16* p, bool stream) {
  const hn::RebindToSigned<D> d32;
  const hn::RebindToUnsigned<D> du32;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto bits = hn::BitCast(du32, v);
  const auto top = hn::ShiftRight<16>(bits);
  const auto rounded =
      hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(du32, 0x7FFFu), hn::And(top, hn::Set(du32, 1u)))));
  const auto quiet = hn::Or(top, hn::Set(du32, 0x40u));
  const auto result = hn::IfThenElse(hn::RebindMask(du32, hn::IsNaN(v)), quiet, rounded);
  StoreVector(hn::DemoteTo(d16, hn::BitCast(d32, result)), d16, reinterpret_cast<std::uint16_t*>(p), stream);
}

template <class D>
HWY_INLINE void StoreNarrow(hn::Vec<D> v, D d, F16* p, bool stream) {
#if ONEHOT_VECTOR_F16
  // As 16-bit integers, which every Stream can store.
  const hn::Rebind<hwy::float16_t, D> d16;
  const hn::Rebind<std::uint16_t, D> du16;
  StoreVector(hn::BitCast(du16, hn::DemoteTo(d16, v)), du16, reinterpret_cast<std::uint16_t*>(p), stream);
#else
  (void)stream;
  HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, d, wide);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) p[i] = Narrow<F16>(wide[i]);
#endif
}

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

  // A tail of fewer than one vector, in halves: no element past the row is touched.
  template <std::size_t kLanes>
  HWY_INLINE std::int64_t Tail(std::int64_t c, std::int64_t columns) const {
    const hn::CappedTag<Acc, kLanes> d;
    if (hn::Lanes(d) == kLanes && c + static_cast<std::int64_t>(kLanes) <= columns) {
      Block<1>(d, c);
      c += kLanes;
    }
    if constexpr (kLanes > 1) {
      return Tail<kLanes / 2>(c, columns);
    } else {
      return c;
    }
  }

  HWY_INLINE void Run(std::int64_t columns) const {
    const hn::ScalableTag<Acc> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    std::int64_t c = 0;
    for (; c + 4 * lanes <= columns; c += 4 * lanes) Block<4>(d, c);
    for (; c + lanes <= columns; c += lanes) Block<1>(d, c);
    constexpr std::size_t kHalf = HWY_MAX_BYTES / sizeof(Acc) / 2;
    if constexpr (kHalf > 0) {
      if (c < columns) Tail<kHalf>(c, columns);
    }
  }
};

template <class G, class O>
void Fold(const FoldTask& task) {
  using Acc = AccumulatorOf<G>;
  if constexpr (std::is_same_v<G, O>) {
    if (task.count == 1 && !task.accumulate) {
      const auto bytes = static_cast<std::size_t>(task.columns) * sizeof(G);
      const std::byte* const row = task.rows[0] + task.first * static_cast<std::int64_t>(sizeof(G));
      if (task.ahead == kFoldAhead) {
        for (std::size_t i = 0; i < bytes; i += 64) hwy::Prefetch(task.rows[kFoldAhead] + i);
      }
      if (task.stream) {
        const hn::ScalableTag<std::uint8_t> d;
        const auto* in = reinterpret_cast<const std::uint8_t*>(row);
        auto* out = reinterpret_cast<std::uint8_t*>(task.out);
        for (std::size_t i = 0; i < bytes; i += hn::Lanes(d)) hn::Stream(hn::LoadU(d, in + i), d, out + i);
      } else {
        std::memcpy(task.out, row, bytes);
      }
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
      const std::int64_t next = std::clamp<std::int64_t>(task.count + task.ahead - first - kLockstep, 0, count);
      for (std::int64_t r = 0; r < next; ++r)
        rows[kLockstep + r] = reinterpret_cast<const G*>(task.rows[first + kLockstep + r]) + task.first + column;
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

void Zero(std::byte* out, std::int64_t bytes) {
  std::memset(out, 0, static_cast<std::size_t>(bytes));
}

void ZeroStream(std::byte* out, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto head = std::min<std::int64_t>(bytes, -reinterpret_cast<std::uintptr_t>(out) & (kStreamAlign - 1));
  std::memset(out, 0, static_cast<std::size_t>(head));
  auto* p = reinterpret_cast<std::uint8_t*>(out + head);
  std::int64_t left = bytes - head;
  const auto zero = hn::Zero(d);
  for (; left >= kStreamAlign; left -= kStreamAlign)
    for (std::int64_t i = 0; i < kStreamAlign; i += lanes, p += lanes) hn::Stream(zero, d, p);
  std::memset(p, 0, static_cast<std::size_t>(left));
}

void CopyStream(const std::byte* in, std::byte* out, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < bytes; i += lanes)
    hn::Stream(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(in) + i), d,
               reinterpret_cast<std::uint8_t*>(out) + i);
}

std::uint64_t NonZero64(const std::uint32_t* counts) {
  const hn::ScalableTag<std::uint32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  std::uint64_t word = 0;
  for (std::int64_t j = 0; j < 64; j += lanes) {
    std::uint8_t bits[8] = {};  // StoreMaskBits writes at least one byte, whatever the number of lanes
    hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, counts + j), zero), bits);
    std::uint64_t part = 0;
    std::memcpy(&part, bits, sizeof part);
    word |= part << j;
  }
  return word;
}

// Entries looked ahead for prefetching: enough that this many bytes of gradient are on the way.
constexpr std::int64_t kAheadBytes = 6 << 10;

// sums[r, :] = x (kFirst) or += x.
template <bool kFirst, class G>
HWY_INLINE void AddRow(const G* HWY_RESTRICT x, AccumulatorOf<G>* HWY_RESTRICT sum, std::int64_t columns) {
  using Acc = AccumulatorOf<G>;
  const auto step = [&](auto d, std::int64_t c) HWY_ATTR {
    const auto v = LoadWide(d, x + c);
    if constexpr (kFirst) {
      hn::StoreU(v, d, sum + c);
    } else {
      hn::StoreU(hn::Add(hn::LoadU(d, sum + c), v), d, sum + c);
    }
  };
  const hn::ScalableTag<Acc> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) step(d, c);
  if (c == columns) return;
  const hn::CappedTag<Acc, 4> d4;
  for (const auto few = static_cast<std::int64_t>(hn::Lanes(d4)); c + few <= columns; c += few) step(d4, c);
  const hn::CappedTag<Acc, 1> d1;
  for (; c < columns; ++c) step(d1, c);
}

template <class G, bool kEntries, int kColumns>
HWY_INLINE void SumLoop(const SumTask& task) {
  using Acc = AccumulatorOf<G>;
  const std::int64_t columns = kColumns > 0 ? kColumns : task.columns;
  auto* const sums = reinterpret_cast<Acc*>(task.sums);
  const std::int64_t row_bytes = columns * static_cast<std::int64_t>(sizeof(G));
  const std::int64_t ahead = std::clamp<std::int64_t>(kAheadBytes / row_bytes, 1, 64);
  for (std::int64_t i = 0; i < task.count; ++i) {
    const std::uint32_t position =
        kEntries ? task.entries[i].position : task.first_position + static_cast<std::uint32_t>(i);
    const std::uint32_t row = (kEntries ? task.entries[i].row : task.rows[i]) - task.first_row;
    if constexpr (kEntries) {
      const std::byte* const next =
          task.grad + std::int64_t{task.entries[std::min(i + ahead, task.count - 1)].position} * task.grad_stride;
      for (std::int64_t at = 0; at < row_bytes; at += 64) hwy::Prefetch(next + at);
    }
    const auto* const x = reinterpret_cast<const G*>(task.grad + std::int64_t{position} * task.grad_stride);
    Acc* const sum = sums + row * columns;
    const std::uint32_t before = task.counts[row]++;
    if (HWY_UNLIKELY(before % 512 == 0)) {
      if (before == 0) {
        task.firsts[row] = position;
      } else {
        task.chunk_done(task.context, row, before, reinterpret_cast<const std::byte*>(sum));
      }
      AddRow<true>(x, sum, columns);
    } else {
      AddRow<false>(x, sum, columns);
    }
  }
}

template <class G>
void Sum(const SumTask& task) {
  // Widths whose loops the compiler should unroll: a token's worth of scalars, and the common head width.
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

template <class G, class O>
void Finish(const FinishTask& task) {
  using Acc = AccumulatorOf<G>;
  const std::int64_t columns = task.columns, out_row_bytes = columns * static_cast<std::int64_t>(sizeof(O));
  const auto* const sums = reinterpret_cast<const Acc*>(task.sums);
  std::int64_t written = 0;  // rows below are done
  const auto skip_to = [&](std::int64_t row) HWY_ATTR {
    if (task.accumulate || written == row) return;
    const auto zero = task.zero_stream ? ZeroStream : Zero;
    if (task.out_stride == out_row_bytes)
      return zero(task.out + written * out_row_bytes, (row - written) * out_row_bytes);
    for (; written < row; ++written) zero(task.out + written * task.out_stride, out_row_bytes);
  };
  for (std::int64_t base = 0; base < task.rows; base += 64) {
    for (std::uint64_t named = NonZero64(task.counts + base); named != 0; named &= named - 1) {
      const std::int64_t row = base + std::countr_zero(named);
      if (row == task.padding) continue;
      skip_to(row);
      written = row + 1;
      const std::uint32_t count = task.counts[row];
      const Acc* const sum = sums + row * columns;
      std::byte* const out = task.out + row * task.out_stride;
      if (count > 512) {
        task.hot(task.context, row, count, reinterpret_cast<const std::byte*>(sum));
      } else if (count == 1 && !task.accumulate) {
        const std::byte* const only = task.grad + std::int64_t{task.firsts[row]} * task.grad_stride;
        Fold<G, O>({.rows = &only, .count = 1, .columns = columns, .out = out, .stream = task.stream});
      } else {
        const auto* const rows = sum;
        const Pass<Acc, O> pass{&rows,
                                1,
                                nullptr,
                                0,
                                nullptr,
                                nullptr,
                                reinterpret_cast<O*>(out),
                                task.scale && count > 1,
                                task.accumulate,
                                task.stream,
                                static_cast<Acc>(count)};
        pass.Run(columns);
      }
    }
  }
  skip_to(task.rows);
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

auto SumFor(DType grad) -> void (*)(const SumTask&) {
  return grad == DType::kF64    ? Sum<double>
         : grad == DType::kF32  ? Sum<float>
         : grad == DType::kF16  ? Sum<F16>
         : grad == DType::kBF16 ? Sum<BF16>
                                : nullptr;
}

auto FinishFor(DType grad, DType out) -> void (*)(const FinishTask&) {
  if (grad == DType::kF64) return out == DType::kF64 ? Finish<double, double> : nullptr;
  if (grad == DType::kF32) return out == DType::kF32 ? Finish<float, float> : nullptr;
  if (grad == DType::kF16)
    return out == DType::kF16 ? Finish<F16, F16> : out == DType::kF32 ? Finish<F16, float> : nullptr;
  if (grad == DType::kBF16)
    return out == DType::kBF16 ? Finish<BF16, BF16> : out == DType::kF32 ? Finish<BF16, float> : nullptr;
  return nullptr;
}

RowKernels Table() {
  return {hwy::TargetName(HWY_TARGET), FoldFor, SumFor, FinishFor, Zero, ZeroStream, CopyStream, NonZero64};
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.h"

namespace onehot::cpu {
HWY_EXPORT(Table);

const RowKernels& RowKernelsFor(Isa isa) {
  static const std::vector<RowKernels> tables = [] {
    std::vector<RowKernels> all;
    for (std::size_t i = 0; i < InstructionSets().size(); ++i)
      all.push_back(ONEHOT_DISPATCH(Table, static_cast<Isa>(i))());
    return all;
  }();
  return tables[static_cast<std::size_t>(isa)];
}

}  // namespace onehot::cpu
#endif
