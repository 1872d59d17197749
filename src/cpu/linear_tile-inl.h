// The micro-kernel of all products: a tile of sums in registers, for whole tiles and for those with fewer rows.
// Compiled once per instruction set, hence the guard that toggles.
#if defined(ONEHOT_CPU_LINEAR_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEHOT_CPU_LINEAR_TILE_INL_H_
#undef ONEHOT_CPU_LINEAR_TILE_INL_H_
#else
#define ONEHOT_CPU_LINEAR_TILE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/linear_simd.h"
#include "cpu/math-inl.h"
#include "cpu/rows-inl.h"
#include "cpu/unroll.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using LinearTag = hn::CappedTag<float, 16>;
using LinearVector = hn::Vec<LinearTag>;
constexpr auto kLinearLanes = static_cast<std::int64_t>(hn::MaxLanes(LinearTag()));

// Of a tile's columns, those whose sums are in registers at once: all with 32 registers; with 16 a half, or of one or
// two rows 4 vectors, since one unit alone needs 4 sums to work on.
template <int kRows>
#if HWY_TARGET <= HWY_AVX3
constexpr std::int64_t kTileVectors = 4;
#else
constexpr std::int64_t kTileVectors = kRows <= 2 ? 4 : 2;
#endif

// c[r][j] (+)= sum over k of a[r * a_row + k * a_k] b[k * b_k + j], r < kRows, j < kTileColumns. With kStream c goes
// past the caches; it is aligned to vectors then. Asks for a line of next[k * b_k] in each step.
template <int kRows, bool kStream>
HWY_NOINLINE void MultiplyTile(const float* HWY_RESTRICT a, std::int64_t a_row, std::int64_t a_k,
                               const float* HWY_RESTRICT b, std::int64_t b_k, std::int64_t depth, float* HWY_RESTRICT c,
                               std::int64_t c_row, bool accumulate, const float* next) {
  constexpr LinearTag d;
  constexpr std::int64_t kVectors = kTileVectors<kRows>;
  for (std::int64_t column = 0; column < kTileColumns; column += kVectors * kLinearLanes) {
    LinearVector sum[kRows][kVectors];
    ONEHOT_UNROLL
    for (std::int64_t r = 0; r < kRows; ++r) {
      const float* const old = c + r * c_row + column;
      ONEHOT_UNROLL
      for (std::int64_t v = 0; v < kVectors; ++v)
        sum[r][v] = accumulate ? hn::LoadU(d, old + v * kLinearLanes) : hn::Zero(d);
    }
    const float* from = b + column;
    for (std::int64_t k = 0; k < depth; ++k, from += b_k) {
      LinearVector row[kVectors];
      ONEHOT_UNROLL
      for (std::int64_t v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, from + v * kLinearLanes);
      hwy::Prefetch(next + k * b_k);
      ONEHOT_UNROLL
      for (std::int64_t r = 0; r < kRows; ++r) {
        const LinearVector x = hn::Set(d, a[r * a_row + k * a_k]);
        ONEHOT_UNROLL
        for (std::int64_t v = 0; v < kVectors; ++v) sum[r][v] = Fma(d, x, row[v], sum[r][v]);
      }
    }
    ONEHOT_UNROLL
    for (std::int64_t r = 0; r < kRows; ++r) {
      float* const to = c + r * c_row + column;
      ONEHOT_UNROLL
      for (std::int64_t v = 0; v < kVectors; ++v) StoreVector(sum[r][v], d, to + v * kLinearLanes, kStream);
    }
  }
}

using TileFunction = void (*)(const float*, std::int64_t, std::int64_t, const float*, std::int64_t, std::int64_t,
                              float*, std::int64_t, bool, const float*);

// For so many rows, 1 to kTileRows.
template <bool kStream>
HWY_INLINE TileFunction TileOf(std::int64_t rows) {
  static_assert(kTileRows == 6);
  constexpr TileFunction kTiles[] = {MultiplyTile<1, kStream>, MultiplyTile<2, kStream>, MultiplyTile<3, kStream>,
                                     MultiplyTile<4, kStream>, MultiplyTile<5, kStream>, MultiplyTile<6, kStream>};
  return kTiles[std::min(rows, kTileRows) - 1];
}

// c[i][j] as in ProductTask, for one piece of the reduction and any number of rows.
//
// What comes next of b is asked for here, since each piece begins where the CPU does not see it coming. Measured (Zen 5, 512
// tokens, H = 4096): 3 to 5 % of the time of all products in f32, 1 to 3 % in bf16; nothing where H = 1024.
HWY_INLINE void MultiplyRows(const float* a, std::int64_t a_row, std::int64_t a_k, const float* b, std::int64_t b_k,
                             std::int64_t depth, float* c, std::int64_t c_row, std::int64_t rows, bool accumulate,
                             const float* next) {
  // The first tiles ask for the lines of its rows, one each.
  for (std::int64_t i = 0, line = 0; i < rows; i += kTileRows, line += kLineFloats)
    TileOf<false>(rows - i)(a + i * a_row, a_row, a_k, b, b_k, depth, c + i * c_row, c_row, accumulate,
                            line < kTileColumns ? next + line : b);
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONEHOT_CPU_LINEAR_TILE_INL_H_
