#include "cpu/nll_simd.h"

#include <algorithm>
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

// One row of one class. kTable: the value is the same for all positions.
template <bool kTable, class U>
HWY_INLINE void WritePlane(U* out, std::int64_t count, const U* lanes, U c, const U* values, U value, bool stream) {
  const hn::ScalableTag<U> d;
  const auto wanted = hn::Set(d, c);
  const auto same = hn::Set(d, value);
  ForVectors(count, out, stream, static_cast<std::int64_t>(hn::Lanes(d)),
             [&](std::int64_t i, std::int64_t n, auto whole, auto to_memory) ONEHOT_LOOP_ATTR {
               if constexpr (decltype(whole)::value) {
                 const auto mask = hn::Eq(hn::LoadU(d, lanes + i), wanted);
                 const auto v = hn::IfThenElseZero(mask, kTable ? same : hn::LoadU(d, values + i));
                 StoreVector(v, d, out + i, decltype(to_memory)::value);
               } else {
                 for (std::int64_t k = i; k < i + n; ++k) out[k] = lanes[k] == c ? (kTable ? value : values[k]) : U{0};
               }
             });
}

template <class U>
void Planes(const PlaneTask& task) {
  constexpr std::int64_t kBlocks = kPlanePositions / kPositionBlock;
  const std::int64_t count = task.classes.count, blocks = (count + kPositionBlock - 1) / kPositionBlock;
  HWY_ALIGN U lanes[kPlanePositions];
  WidenClasses(task.classes, lanes);
  const std::int64_t classes = task.end_class - task.first_class;
  const bool sparse = task.sparse;
  std::uint64_t present[kBlocks][kPlaneClasses / 64 + 1];  // the last word: ignored, and others' classes
  for (std::int64_t b = 0; sparse && b < blocks; ++b) {
    std::fill_n(present[b], kPlaneClasses / 64 + 1, std::uint64_t{0});
    for (std::int64_t i = b * kPositionBlock; i < std::min(count, (b + 1) * kPositionBlock); ++i) {
      const auto place = static_cast<std::uint64_t>(lanes[i]) - static_cast<std::uint64_t>(task.first_class);
      const auto bit = place < static_cast<std::uint64_t>(classes) ? place : static_cast<std::uint64_t>(kPlaneClasses);
      present[b][bit / 64] |= std::uint64_t{1} << (bit % 64);
    }
  }
  const U* const values = reinterpret_cast<const U*>(task.values);
  const U* const table = reinterpret_cast<const U*>(task.table);
  const auto row = [&](std::int64_t c) HWY_ATTR { return reinterpret_cast<U*>(task.out + c * task.class_stride); };
  const auto absent = [&](std::int64_t b, std::int64_t c) HWY_ATTR {
    const auto place = static_cast<std::uint64_t>(c - task.first_class);
    return (present[b][place / 64] >> (place % 64) & 1) == 0;
  };
  const auto write = [&](std::int64_t b, std::int64_t c) HWY_ATTR {
    const std::int64_t from = b * kPositionBlock, n = std::min(count - from, kPositionBlock);
    if (values != nullptr) {
      WritePlane<false>(row(c) + from, n, lanes + from, static_cast<U>(c), values + from, U{0}, task.stream);
    } else {
      WritePlane<true>(row(c) + from, n, lanes + from, static_cast<U>(c), values, table[task.table_per_class ? c : 0],
                       task.stream);
    }
  };
  if (!sparse) {
    for (std::int64_t c = task.first_class; c < task.end_class; ++c)
      for (std::int64_t b = 0; b < blocks; ++b) write(b, c);
    return;
  }
  // A plane that is mostly zeros: these first, in runs of blocks as long as they are. What has something in it waits, so
  // that it is written block by block, with the block's classes and values in L1. Any other plane: all of it in order.
  for (std::int64_t c = task.first_class; c < task.end_class; ++c) {
    std::int64_t zeros = 0;
    for (std::int64_t b = 0; b < blocks; ++b) zeros += absent(b, c);
    const bool waits = 2 * zeros > blocks;
    for (std::int64_t b = 0; b < blocks;) {
      const std::int64_t begin = b;
      while (b < blocks && absent(b, c)) ++b;
      const std::int64_t from = begin * kPositionBlock, to = std::min(count, b * kPositionBlock);
      const std::int64_t bytes = (to - from) * static_cast<std::int64_t>(sizeof(U));
      if (b > begin) (task.stream ? ZeroStream : Zero)(reinterpret_cast<std::byte*>(row(c) + from), bytes);
      for (; b < blocks && !absent(b, c); ++b) {
        if (waits) continue;
        write(b, c);
        const auto place = static_cast<std::uint64_t>(c - task.first_class);
        present[b][place / 64] &= ~(std::uint64_t{1} << (place % 64));  // done
      }
    }
  }
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (std::int64_t word = 0; word < (classes + 63) / 64; ++word)
      ForBits(present[b][word], task.first_class + word * 64, [&](std::int64_t c) HWY_ATTR { write(b, c); });
  }
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
