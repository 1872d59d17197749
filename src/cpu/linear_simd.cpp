#include "cpu/linear_simd.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear_simd.cpp"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

#include "cpu/linear_few-inl.h"
#include "cpu/linear_pack-inl.h"
#include "cpu/linear_tile-inl.h"
#include "cpu/logits-inl.h"
#include "cpu/math-inl.h"
#include "cpu/rows-inl.h"
#include "cpu/softmax_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Multiply(const ProductTask& t) {
  for (std::int64_t k = 0; k == 0 || k < t.depth; k += kDepth) {
    const std::int64_t depth = std::min(kDepth, t.depth - k);
    MultiplyRows(t.a + k * t.a_k, t.a_row, t.a_k, t.b + k * t.b_k, t.b_k, depth, t.c, t.c_row, t.rows,
                 t.accumulate || k > 0, k + depth < t.depth ? t.b + (k + depth) * t.b_k : t.next);
  }
}

void Pack(const InputPart& from, float* to, std::int64_t to_row, std::int64_t width) {
  ForDType(LinearTypes{}, from.dtype, [&]<class T>() HWY_ATTR {
    for (std::int64_t i = 0; i < from.rows; ++i) {
      float* const row = to + i * to_row;
      WidenRow(reinterpret_cast<const T*>(from.data) + i * from.row, from.column, from.columns, row);
      std::fill(row + from.columns, row + width, 0.0f);
    }
  });
}

void PackTransposed(const InputPart& from, float* to) {
  ForDType(LinearTypes{}, from.dtype, [&]<class T>() HWY_ATTR {
    const T* const data = reinterpret_cast<const T*>(from.data);
    if (from.column == 1 && from.columns >= kLinearLanes) {
      const Panel<T> panel(from);
      const std::int64_t head = panel.Head();
      TransposePanel(panel, 0, head, to);
      TransposePanel(panel, head, from.columns, to + head * kTileColumns);
    } else if (from.row == 1) {  // turned already
      for (std::int64_t j = 0; j < from.columns; ++j) {
        WidenRow(data + j * from.column, 1, from.rows, to + j * kTileColumns);
        std::fill(to + j * kTileColumns + from.rows, to + (j + 1) * kTileColumns, 0.0f);
      }
    } else {
      PackColumns<T>(from, to);
    }
  });
}

void BiasAndScale(float* c, std::int64_t rows, std::int64_t c_row, std::int64_t columns, const float* bias,
                  float scale) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float* const row = c + i * c_row;
    ForColumns<float>(columns, [&](auto d, std::int64_t j) HWY_ATTR {
      auto u = hn::LoadU(d, row + j);
      if (bias != nullptr) u = hn::Add(u, hn::LoadU(d, bias + j));
      if (scale != 1) u = hn::Mul(u, hn::Set(d, scale));
      hn::StoreU(u, d, row + j);
    });
  }
}

void SoftCap(float* c, std::int64_t rows, std::int64_t c_row, std::int64_t columns, float softcap) {
  const Cap cap(softcap);
  for (std::int64_t i = 0; i < rows; ++i)
    ForColumns<float>(columns, [&](auto d, std::int64_t j) HWY_ATTR {
      float* const at = c + i * c_row + j;
      hn::StoreU(Capped(d, hn::LoadU(d, at), cap), d, at);
    });
}

void AddRows(const float* c, std::int64_t rows, std::int64_t c_row, float* sum) {
  constexpr LinearTag d;
  for (std::int64_t j = 0; j < kTileColumns; j += kLinearLanes) {
    auto total = hn::LoadU(d, sum + j);
    for (std::int64_t i = 0; i < rows; ++i) total = hn::Add(total, hn::LoadU(d, c + i * c_row + j));
    hn::StoreU(total, d, sum + j);
  }
}

template <class T>
HWY_INLINE T* RowOf(const OutputPart& to, std::int64_t i) {
  return reinterpret_cast<T*>(to.data) + i * to.row;
}

void Store(const float* from, std::int64_t from_row, const OutputPart& to) {
  ForDType(LinearTypes{}, to.dtype, [&]<class T>() HWY_ATTR {
    for (std::int64_t i = 0; i < to.rows; ++i) NarrowRow(from + i * from_row, to.columns, RowOf<T>(to, i), to.column);
  });
}

void Fold(std::int64_t count, const float* block_max, const float* block_sum, const float* block_moment, float* max,
          float* sum, float* moment) {
  const hn::CappedTag<float, 1> d;
  const auto at = [&](const float* from, std::int64_t i)
                      HWY_ATTR { return from == nullptr ? hn::Zero(d) : hn::Load(d, from + i); };
  for (std::int64_t i = 0; i < count; ++i) {
    Sums<decltype(d)> total{at(max, i), at(sum, i), at(moment, i)};
    total.Fold(d, {at(block_max, i), at(block_sum, i), at(moment == nullptr ? nullptr : block_moment, i)});
    hn::Store(total.max, d, max + i);
    hn::Store(total.sum, d, sum + i);
    if (moment != nullptr) hn::Store(total.moment, d, moment + i);
  }
}

// As in the gradient of a softmax: p - 1 first, which only alpha sees.
void ProbabilityGradient(float* g, std::int64_t rows, std::int64_t g_row, std::int64_t columns,
                         const std::uint32_t* classes, const float* alpha, const float* beta, const float* gamma,
                         const float* weight) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float* const row = g + i * g_row;
    const bool here = static_cast<std::int64_t>(classes[i]) < columns;
    const float p_y = here ? row[classes[i]] : 0, b = beta == nullptr ? 0 : beta[i];
    ForColumns<float>(columns, [&](auto d, std::int64_t v) HWY_ATTR {
      const auto p = hn::LoadU(d, row + v);
      auto du = hn::Mul(hn::Set(d, alpha[i]), p);
      if (beta != nullptr) du = hn::Add(du, hn::Mul(hn::Set(d, b), p));
      if (gamma != nullptr) {
        const auto w = weight == nullptr ? hn::Set(d, 1.0f) : hn::LoadU(d, weight + v);
        du = hn::Sub(du, hn::Mul(hn::Set(d, gamma[i]), w));
      }
      hn::StoreU(du, d, row + v);
    });
    if (!here) continue;
    float du = alpha[i] * (p_y - 1);
    if (beta != nullptr) du += b * p_y;
    if (gamma != nullptr) du -= gamma[i] * (weight == nullptr ? 1 : weight[classes[i]]);
    row[classes[i]] = du;
  }
}

// NaN is not smaller.
bool AllBelow(const float* c, std::int64_t rows, std::int64_t c_row, std::int64_t columns, float bound) {
  bool below = true;
  for (std::int64_t i = 0; below && i < rows; ++i)
    ForColumns<float>(columns, [&](auto d, std::int64_t j) HWY_ATTR {
      below = below && hn::AllTrue(d, hn::Lt(hn::Abs(hn::LoadU(d, c + i * c_row + j)), hn::Set(d, bound)));
    });
  return below;
}

void ZeroBelow(float* c, std::int64_t rows, std::int64_t c_row, std::int64_t columns, float bound, std::uint8_t* left,
               std::int64_t left_row) {
  for (std::int64_t i = 0; i < rows; i += kTileRows, left += left_row)
    for (std::int64_t j = 0; j < columns; j += kTileColumns) {
      float* const tile = c + i * c_row + j;
      const std::int64_t height = std::min(kTileRows, rows - i), width = std::min(kTileColumns, columns - j);
      const bool below = AllBelow(tile, height, c_row, width, bound);
      left[j / kTileColumns] = below ? 0 : 1;
      for (std::int64_t r = 0; below && r < height; ++r) std::fill_n(tile + r * c_row, width, 0.0f);
    }
}

LinearKernels LinearTable() {
  return {Multiply,  Pack, PackTransposed,  BiasAndScale, SoftCap, AddRows, Store, ProbabilityGradient,
          ZeroBelow, Fold, TimesTransposed, Times,        Outer};
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.h"

namespace onehot::cpu {
HWY_EXPORT(LinearTable);

const LinearKernels& LinearKernelsFor(Isa isa) {
  static const auto tables = ForEachInstructionSet([](Isa each) { return ONEHOT_DISPATCH(LinearTable, each)(); });
  return tables[static_cast<std::size_t>(isa)];
}

}  // namespace onehot::cpu
#endif
