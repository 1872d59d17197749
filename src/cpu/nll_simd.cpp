#include "cpu/nll_simd.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cpu/rows_simd.h"
#include "cpu/targets_simd.h"
#include "ops/losses.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/nll_simd.cpp"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

#include "cpu/rows-inl.h"
#include "cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// to[i] = from[i * step], whatever their types.
template <class T, class From>
HWY_INLINE void Gather(const From* HWY_RESTRICT from, std::int64_t step, std::int64_t count, T* HWY_RESTRICT to) {
  if (step == 1) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i * step]);
  }
}

template <class Real>
void LoadOperand(const Operand& operand, std::int64_t count, Real* to) {
  ForDType(LossTypes{}, operand.dtype, [&]<class T>() HWY_ATTR {
    const T* const from = reinterpret_cast<const T*>(operand.data);
    if constexpr (std::is_same_v<T, Real> || std::is_same_v<T, float>) {
      Gather(from, operand.step, count, to);
    } else if constexpr (std::is_same_v<AccumulatorOf<T>, Real>) {
      if (operand.step == 1) {
        ForColumns<Real>(count, [&](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(LoadWide(d, from + i), d, to + i); });
      } else {
        for (std::int64_t i = 0; i < count; ++i) to[i] = Widen(from[i * operand.step]);
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Real>(Widen(from[i * operand.step]));
    }
  });
}

template <class O>
void Values(const ValueTask& task) {
  using Real = AccumulatorOf<O>;
  const std::int64_t count = task.classes.count;
  HWY_ALIGN Real value[kPositionBlock];
  HWY_ALIGN Real factor[kPositionBlock];
  O* const values = static_cast<O*>(task.values);
  const auto finish = [&](auto d, auto v, std::int64_t i) HWY_ATTR {
    if (task.denominator != nullptr) v = hn::Div(v, hn::Set(d, *static_cast<const Real*>(task.denominator)));
    StoreNarrow(hn::Neg(v), d, values + i, false);
  };
  bool factors = false;
  if (task.weight != nullptr && task.C > 0) {
    const auto* const weight = static_cast<const Real*>(task.weight);
    const auto last = static_cast<std::uint32_t>(task.C - 1);  // ignored positions take any
    ForClassType(task.classes.bytes, [&]<class K>() HWY_ATTR {
      const K* const from = reinterpret_cast<const K*>(task.classes.data);
      const std::int64_t step = task.classes.step;
      for (std::int64_t i = 0; i < count; ++i) value[i] = weight[std::min(std::uint32_t{from[i * step]}, last)];
    });
    factors = true;
  }
  const auto multiply = [&](const Operand& operand) HWY_ATTR {
    if (!factors) return LoadOperand(operand, count, value);
    if (operand.step == 0) {
      LoadOperand(operand, 1, factor);
      for (std::int64_t i = 0; i < count; ++i) value[i] *= factor[0];
    } else {
      LoadOperand(operand, count, factor);
      for (std::int64_t i = 0; i < count; ++i) value[i] *= factor[i];
    }
  };
  if (task.token_weight.data != nullptr) {
    multiply(task.token_weight);
    factors = true;
  }
  if (!factors && task.grad.step == 1 && task.grad.dtype == kDTypeOf<O>) {  // nothing to gather: one pass
    const O* const grad = reinterpret_cast<const O*>(task.grad.data);
    return ForColumns<Real>(count, [&](auto d, std::int64_t i) HWY_ATTR { finish(d, LoadWide(d, grad + i), i); });
  }
  multiply(task.grad);
  ForColumns<Real>(count, [&](auto d, std::int64_t i) HWY_ATTR { finish(d, hn::LoadU(d, value + i), i); });
}

// What goes to a row of one class: `value` for all positions of that class, or the one in `values` for each.
template <class U>
struct ClassRow {
  U* out;
  const U* lanes;
  U c;
  const U* values;
  U value;
  bool stream;

  template <bool kTable, class D>
  HWY_INLINE hn::Vec<D> At(D d, std::int64_t i) const {
    const auto mask = hn::Eq(hn::LoadU(d, lanes + i), hn::Set(d, c));
    return hn::IfThenElseZero(mask, kTable ? hn::Set(d, value) : hn::LoadU(d, values + i));
  }

  template <bool kTable>
  HWY_INLINE void WriteAs(std::int64_t begin, std::int64_t count) const {
    const hn::ScalableTag<U> d;
    ForVectors(count, out + begin, stream, static_cast<std::int64_t>(hn::Lanes(d)),
               [&](std::int64_t at, std::int64_t n, auto whole, auto to_memory) ONEHOT_LOOP_ATTR {
                 const std::int64_t i = begin + at;
                 if constexpr (decltype(whole)::value) {
                   StoreVector(At<kTable>(d, i), d, out + i, decltype(to_memory)::value);
                 } else {
                   for (std::int64_t k = i; k < i + n; ++k)
                     out[k] = lanes[k] == c ? (kTable ? value : values[k]) : U{0};
                 }
               });
  }
  HWY_INLINE void Write(std::int64_t begin, std::int64_t count) const {
    values == nullptr ? WriteAs<true>(begin, count) : WriteAs<false>(begin, count);
  }

  // A whole line, which begins at one in memory if it is to go past the caches.
  HWY_INLINE void WriteLine(std::int64_t begin) const {
    const hn::ScalableTag<U> d;
    constexpr std::int64_t kLine = kStreamAlign / static_cast<std::int64_t>(sizeof(U));
    for (std::int64_t i = begin; i < begin + kLine; i += static_cast<std::int64_t>(hn::Lanes(d)))
      StoreVector(values == nullptr ? At<true>(d, i) : At<false>(d, i), d, out + i, stream);
  }
};

// Planes most of whose lines are zeros: a bit for each line of a class tells them apart, so that these are written without
// looking at classes and values, which are in L2.
template <class U, class F>
HWY_INLINE void SparsePlanes(const PlaneTask& task, const U* lanes, F&& row_of) {
  constexpr std::int64_t kLine = kStreamAlign / static_cast<std::int64_t>(sizeof(U)), kWordPositions = 64 * kLine,
                         kWords = kPlaneRun / kStreamAlign / 64;
  const hn::ScalableTag<U> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t count = task.classes.count, classes = task.end_class - task.first_class;
  // One row more for ignored positions and for classes of others, one word more to be shifted in.
  std::uint64_t bits[kPlaneClasses + 1][kWords + 1];
  for (std::int64_t c = 0; c <= classes; ++c) std::fill_n(bits[c], kWords + 1, std::uint64_t{0});
  const auto first_class = static_cast<std::uint64_t>(task.first_class);
  for (std::int64_t i = 0; i < count; i += kLine) {
    std::int64_t n = std::min(kLine, count - i);
    // Labels come in patches: marking one of them is enough, and each would wait for the one before.
    bool same = n == kLine;
    for (std::int64_t k = 0; same && k < kLine; k += step)
      same = hn::AllTrue(d, hn::Eq(hn::LoadU(d, lanes + i + k), hn::Set(d, lanes[i])));
    if (same) n = 1;
    const std::int64_t word = i / kWordPositions;
    const std::uint64_t bit = std::uint64_t{1} << (i / kLine % 64);
    for (std::int64_t k = 0; k < n; ++k)
      bits[std::min(lanes[i + k] - first_class, static_cast<std::uint64_t>(classes))][word] |= bit;
  }

  // Lines of 64 to be told apart: beyond, it takes less time to look at the classes of all, or their classes and values.
  const int few = task.values == nullptr ? 2 : 24;
  const auto zero = hn::Zero(d);
  for (std::int64_t c = task.first_class; c < task.end_class; ++c) {
    const ClassRow<U> row = row_of(c);
    const std::uint64_t* const of_class = bits[c - task.first_class];
    const auto misaligned = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(row.out) & (kStreamAlign - 1));
    const std::int64_t head = task.stream ? std::min(count, misaligned / static_cast<std::int64_t>(sizeof(U))) : 0;
    const std::int64_t lines = (count - head) / kLine, end = head + lines * kLine;
    if (head > 0) row.Write(0, head);
    // From `begin` to the word in hand there are only zeros, or many lines that are not.
    std::int64_t begin = head;
    bool dense = false;
    const auto write_run = [&](std::int64_t to) HWY_ATTR {
      const std::int64_t bytes = (to - begin) * static_cast<std::int64_t>(sizeof(U));
      if (bytes == 0) return;
      if (dense) return row.Write(begin, to - begin);
      (task.stream ? ZeroStream : Zero)(reinterpret_cast<std::byte*>(row.out + begin), bytes);
    };
    for (std::int64_t first = 0; first < lines; first += 64) {
      const std::int64_t at = head + first * kLine;
      std::uint64_t word = of_class[first / 64];
      if (head > 0) word |= word >> 1 | of_class[first / 64 + 1] << 63;  // a line has the ends of two
      const std::uint64_t all = ~std::uint64_t{0} >> (64 - std::min<std::int64_t>(64, lines - first));
      word &= all;
      const bool many = std::popcount(word) > few;
      if (many == dense && (many || word == 0)) continue;
      write_run(at);
      begin = at, dense = many;
      if (many || word == 0) continue;
      ForBits(~word & all, 0, [&](std::int64_t line) ONEHOT_LOOP_ATTR {
        U* const to = row.out + at + line * kLine;
        for (std::int64_t k = 0; k < kLine; k += step) StoreVector(zero, d, to + k, task.stream);
      });
      ForBits(word, 0, [&](std::int64_t line) ONEHOT_LOOP_ATTR { row.WriteLine(at + line * kLine); });
      begin = std::min(end, at + kWordPositions);
    }
    write_run(end);
    if (end < count) row.Write(end, count - end);
  }
}

template <class U>
void Planes(const PlaneTask& task) {
  HWY_ALIGN U lanes[kPlaneRun / static_cast<std::int64_t>(sizeof(U))];
  WidenClasses(task.classes, lanes);
  const U* const values = reinterpret_cast<const U*>(task.values);
  const U* const table = reinterpret_cast<const U*>(task.table);
  const auto row = [&](std::int64_t c) HWY_ATTR {
    return ClassRow<U>{.out = reinterpret_cast<U*>(task.out + c * task.class_stride),
                       .lanes = lanes,
                       .c = static_cast<U>(c),
                       .values = values,
                       .value = values == nullptr ? table[task.table_per_class ? c : 0] : U{0},
                       .stream = task.stream};
  };
  if (task.sparse) return SparsePlanes(task, lanes, row);
  for (std::int64_t c = task.first_class; c < task.end_class; ++c) row(c).Write(0, task.classes.count);
}

// The output is one sequence of elements, lanes-wide vectors of which hold parts of rows. Vector j of every `lanes` rows
// has the same pattern: which of the rows each lane belongs to, and which class it is. So a lookup and a comparison make
// a vector, and no branch or store depends on the data.
template <class U>
void Rows(const RowTask& task) {
  const hn::CappedTag<std::uint32_t, kShortRows> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<U, decltype(d)> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  HWY_ALIGN std::int32_t row_of[kShortRowClasses * kShortRows];
  HWY_ALIGN std::uint32_t class_of[kShortRowClasses * kShortRows], value_of[kShortRowClasses * kShortRows];
  const U* const table = reinterpret_cast<const U*>(task.table);
  const U* const values = reinterpret_cast<const U*>(task.values);
  const std::int64_t C = task.C, count = task.classes.count;
  for (std::int64_t e = 0, row = 0, c = 0; e < C * lanes; ++e) {
    row_of[e] = static_cast<std::int32_t>(row);
    class_of[e] = static_cast<std::uint32_t>(c);
    value_of[e] = values != nullptr ? 0 : table[task.table_per_class ? c : 0];
    if (++c == C) c = 0, ++row;
  }
  HWY_ALIGN std::uint32_t wide[kPositionBlock], wide_values[kPositionBlock];
  WidenClasses(task.classes, wide);
  if (values != nullptr)
    for (std::int64_t i = 0; i < count; ++i) wide_values[i] = values[i];
  U* out = reinterpret_cast<U*>(task.out);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto classes = hn::Load(d, wide + i);
    for (std::int64_t e = 0; e < C * lanes; e += lanes, out += lanes) {
      const auto rows = hn::SetTableIndices(d, row_of + e);
      const auto hit = hn::Eq(hn::TableLookupLanes(classes, rows), hn::Load(d, class_of + e));
      const auto value =
          values != nullptr ? hn::TableLookupLanes(hn::Load(d, wide_values + i), rows) : hn::Load(d, value_of + e);
      const auto v = hn::IfThenElseZero(hit, value);
      if constexpr (sizeof(U) == sizeof(std::uint32_t)) {
        StoreVector(v, d, out, task.stream);
      } else {
        StoreVector(hn::DemoteTo(du, hn::BitCast(di, v)), du, out, task.stream);
      }
    }
  }
}

ValueFunction ValuesFor(DType out) {
  return out == DType::kF64   ? Values<double>
         : out == DType::kF32 ? Values<float>
         : out == DType::kF16 ? Values<F16>
                              : Values<BF16>;
}

PlaneFunction PlanesFor(std::int64_t element_bytes) {
  return element_bytes == 8   ? Planes<std::uint64_t>
         : element_bytes == 4 ? Planes<std::uint32_t>
                              : Planes<std::uint16_t>;
}

RowFunction RowsFor(std::int64_t element_bytes) {
  return element_bytes == 8 ? nullptr : element_bytes == 4 ? Rows<std::uint32_t> : Rows<std::uint16_t>;
}

NllKernels NllTable() {
  return {ValuesFor, PlanesFor, RowsFor};
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.h"

namespace onehot::cpu {
HWY_EXPORT(NllTable);

const NllKernels& NllKernelsFor(Isa isa) {
  static const auto tables = ForEachInstructionSet([](Isa each) { return ONEHOT_DISPATCH(NllTable, each)(); });
  return tables[static_cast<std::size_t>(isa)];
}

}  // namespace onehot::cpu
#endif
