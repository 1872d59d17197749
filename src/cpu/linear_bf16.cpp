#include "cpu/linear_bf16.h"

#if defined(__x86_64__)

// GCC 12's header passes undefined vectors on where nothing is masked, and warns of itself.
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "cpu/isa.h"
#include "cpu/unroll.h"
#include "hwy/highway.h"

// Not Highway: its version 1.0.3 has no target with these products. Functions carry the instruction set, since flags of a
// file would reach the inline functions of its headers.
#define ONEHOT_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define ONEHOT_BF16_INLINE ONEHOT_BF16 __attribute__((always_inline)) inline

namespace onehot::cpu {
namespace {

constexpr std::int64_t kLanes = 16;  // pairs, and sums, of a vector
constexpr std::int64_t kVectors = kTileColumns / kLanes;

ONEHOT_BF16_INLINE __m512bh AsBf16(__m512i v) {
  return reinterpret_cast<__m512bh>(v);
}
ONEHOT_BF16_INLINE __m512i AsPairs(__m512bh v) {
  return reinterpret_cast<__m512i>(v);
}

ONEHOT_BF16 __attribute__((noinline)) void MultiplyTile(const Bf16Pair* __restrict a, std::int64_t a_row,
                                                        std::int64_t a_k, const Bf16Pair* __restrict b,
                                                        std::int64_t b_k, std::int64_t depth, float* __restrict c,
                                                        std::int64_t c_row, bool accumulate, const Bf16Pair* next) {
  __m512 sum[kTileRows][kVectors];
  ONEHOT_UNROLL
  for (std::int64_t r = 0; r < kTileRows; ++r) {
    ONEHOT_UNROLL
    for (std::int64_t v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate ? _mm512_load_ps(c + r * c_row + v * kLanes) : _mm512_setzero_ps();
  }
  for (std::int64_t k = 0; k < depth; ++k, a += a_k, b += b_k, next += b_k) {
    _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T0);
    __m512bh row[kVectors];
    ONEHOT_UNROLL
    for (std::int64_t v = 0; v < kVectors; ++v) row[v] = AsBf16(_mm512_load_si512(b + v * kLanes));
    ONEHOT_UNROLL
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      const __m512bh x = AsBf16(_mm512_set1_epi32(static_cast<int>(a[r * a_row])));
      ONEHOT_UNROLL
      for (std::int64_t v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, row[v]);
    }
  }
  ONEHOT_UNROLL
  for (std::int64_t r = 0; r < kTileRows; ++r) {
    ONEHOT_UNROLL
    for (std::int64_t v = 0; v < kVectors; ++v) _mm512_store_ps(c + r * c_row + v * kLanes, sum[r][v]);
  }
}

void Multiply(const Bf16ProductTask& t) {
  for (std::int64_t k = 0; k == 0 || k < t.depth; k += kPairDepth) {
    const std::int64_t depth = std::min(kPairDepth, t.depth - k);
    const Bf16Pair *const b = t.b + k * t.b_k, *const next = k + depth < t.depth ? b + depth * t.b_k : t.next;
    // The first tiles ask for the lines of rows of `next`, one each.
    for (std::int64_t i = 0, line = 0; i < t.rows; i += kTileRows, line += kLanes)
      MultiplyTile(t.a + i * t.a_row + k * t.a_k, t.a_row, t.a_k, b, t.b_k, depth, t.c + i * t.c_row, t.c_row,
                   t.accumulate || k > 0, line < kTileColumns ? next + line : b);
  }
}

// ---- packing: 32 numbers are a vector of 16 pairs.

constexpr std::int64_t kNumbers = 2 * kLanes;
using PackedTypes = Types<float, F16, BF16>;

ONEHOT_BF16_INLINE __mmask32 FirstNumbers(std::int64_t count) {
  return count >= kNumbers ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}
ONEHOT_BF16_INLINE __mmask16 FirstLanes(std::int64_t count) {
  return count >= kLanes ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1u << count) - 1);
}

// At most kNumbers numbers, side by side, rounded; then zeros.
ONEHOT_BF16_INLINE __m512i Load(const BF16* p, std::int64_t count) {
  return _mm512_maskz_loadu_epi16(FirstNumbers(count), p);
}
ONEHOT_BF16_INLINE __m512i Load(const float* p, std::int64_t count) {
  const __mmask32 mask = FirstNumbers(count);
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), p);
  const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> kLanes), p + kLanes);
  return AsPairs(_mm512_cvtne2ps_pbh(high, low));
}
ONEHOT_BF16_INLINE __m512i Load(const F16* p, std::int64_t count) {
  const __m512i bits = _mm512_maskz_loadu_epi16(FirstNumbers(count), p);
  const __m512 low = _mm512_cvtph_ps(_mm512_castsi512_si256(bits));
  const __m512 high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1));
  return AsPairs(_mm512_cvtne2ps_pbh(high, low));
}

// The same of numbers `step` apart. None if count is not positive.
template <class T>
ONEHOT_BF16_INLINE __m512i Load(const std::byte* p, std::int64_t step, std::int64_t count) {
  if (count <= 0) return _mm512_setzero_si512();
  if (step == 1) return Load(reinterpret_cast<const T*>(p), count);
  alignas(64) T side_by_side[kNumbers];
  count = std::min(count, kNumbers);
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(side_by_side + i, p + i * step * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return Load(side_by_side, count);
}

template <class T>
ONEHOT_BF16 void PackAs(const InputPart& from, Bf16Pair* to, std::int64_t to_row, std::int64_t width) {
  for (std::int64_t i = 0; i < from.rows; ++i) {
    for (std::int64_t k = 0; k < width; k += kLanes) {
      const std::int64_t j = 2 * k;
      _mm512_mask_storeu_epi32(to + i * to_row + k, FirstLanes(width - k),
                               Load<T>(from.Part(i, j, 1, 1).data, from.column, from.columns - j));
    }
  }
}

void Pack(const InputPart& from, Bf16Pair* to, std::int64_t to_row, std::int64_t width) {
  ForDType(PackedTypes{}, from.dtype, [&]<class T>() { PackAs<T>(from, to, to_row, width); });
}

// Panels are made one after the other, each from a little of many rows, which the CPU does not see coming: what is read
// kTileColumns later is asked for. Measured (Zen 5, 1024 x 1024 in bf16): three times as fast.
template <class T>
ONEHOT_BF16_INLINE void Prefetch(const std::byte* p) {
  constexpr std::int64_t kSize = sizeof(T);
  for (std::int64_t byte = 0; byte < kNumbers * kSize; byte += 64)
    _mm_prefetch(reinterpret_cast<const char*>(p + kTileColumns * kSize + byte), _MM_HINT_T0);
}

// Numbers of two rows, 32 each, become 32 pairs: those that come from the lower and from the upper halves.
struct TwoRows {
  __m512i low, high;
};
ONEHOT_BF16_INLINE TwoRows Interleave(__m512i first, __m512i second) {
  // Lane i of the lower half: number i of the first row, and of the second one, which counts from 32 on.
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i low = _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(kNumbers)), 16));
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(kLanes));
  return {_mm512_permutex2var_epi16(first, low, second), _mm512_permutex2var_epi16(first, high, second)};
}

template <class T>
ONEHOT_BF16 void InterleaveRows(const InputPart& from, Bf16Pair* to, std::int64_t to_row, std::int64_t width) {
  for (std::int64_t i = 0; i < from.rows; i += 2, to += to_row) {
    for (std::int64_t j = 0; j < width; j += kNumbers) {
      const std::byte* const first = from.Part(i, j, 1, 1).data;
      const std::byte* const second = from.Part(i + 1, j, 1, 1).data;
      const std::int64_t count = from.columns - j;
      Prefetch<T>(first);
      Prefetch<T>(second);
      const TwoRows pairs =
          Interleave(Load<T>(first, from.column, count), Load<T>(second, from.column, i + 1 < from.rows ? count : 0));
      _mm512_mask_storeu_epi32(to + j, FirstLanes(width - j), pairs.low);
      if (width - j > kLanes) _mm512_mask_storeu_epi32(to + j + kLanes, FirstLanes(width - j - kLanes), pairs.high);
    }
  }
}

// Lane i of v[j] and lane j of v[i] change places.
ONEHOT_BF16_INLINE void Transpose(__m512i (&v)[kLanes]) {
  __m512i t[kLanes];
  ONEHOT_UNROLL
  for (std::int64_t i = 0; i < kLanes; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  // Then v[i + j] holds columns j, j + 4, j + 8 and j + 12 of rows i to i + 3.
  ONEHOT_UNROLL
  for (std::int64_t i = 0; i < kLanes; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Quarters 0 and 2 are picked by 0x88, 1 and 3 by 0xDD.
  ONEHOT_UNROLL
  for (std::int64_t j = 0; j < 4; ++j) {
    const __m512i even0 = _mm512_shuffle_i32x4(v[j], v[j + 4], 0x88), odd0 = _mm512_shuffle_i32x4(v[j], v[j + 4], 0xDD);
    const __m512i even8 = _mm512_shuffle_i32x4(v[j + 8], v[j + 12], 0x88);
    const __m512i odd8 = _mm512_shuffle_i32x4(v[j + 8], v[j + 12], 0xDD);
    v[j] = _mm512_shuffle_i32x4(even0, even8, 0x88);
    v[j + 4] = _mm512_shuffle_i32x4(odd0, odd8, 0x88);
    v[j + 8] = _mm512_shuffle_i32x4(even0, even8, 0xDD);
    v[j + 12] = _mm512_shuffle_i32x4(odd0, odd8, 0xDD);
  }
}

// For columns whose numbers lie side by side: pairs are loaded as they are, 16 columns of 16, and turned. A few columns
// from end to end, then the next few, as in the f32 packing (linear_pack-inl.h).
template <class T>
ONEHOT_BF16 void InterleaveColumns(const InputPart& from, Bf16Pair* to, std::int64_t to_row, std::int64_t width) {
  for (std::int64_t j = 0; j < width; j += kLanes) {
    for (std::int64_t i = 0; i < from.rows; i += kNumbers) {
      const std::int64_t pairs = std::min(kLanes, Pairs(from.rows - i));
      __m512i block[kLanes];
      for (std::int64_t c = 0; c < kLanes; ++c) {
        const std::byte* const column = from.Part(i, j + c, 1, 1).data;
        Prefetch<T>(column);
        block[c] = Load<T>(column, 1, j + c < from.columns ? from.rows - i : 0);
      }
      Transpose(block);
      for (std::int64_t k = 0; k < pairs; ++k)
        _mm512_mask_storeu_epi32(to + (i / 2 + k) * to_row + j, FirstLanes(width - j), block[k]);
    }
  }
}

void InterleaveAny(const InputPart& from, Bf16Pair* to, std::int64_t to_row, std::int64_t width) {
  ForDType(PackedTypes{}, from.dtype, [&]<class T>() {
    if (from.row == 1 && from.column != 1) {
      InterleaveColumns<T>(from, to, to_row, width);
    } else {
      InterleaveRows<T>(from, to, to_row, width);
    }
  });
}

ONEHOT_BF16 void Round(const Bf16RoundTask& t) {
  for (std::int64_t i = 0; i < t.padded_rows; i += 2) {
    const float* const row = t.from + i * t.from_row;
    Bf16Pair* const along = t.along == nullptr ? nullptr : t.along + i * t.along_row;
    Bf16Pair* const across = t.across == nullptr ? nullptr : t.across + i / 2 * t.across_row;
    for (std::int64_t j = 0; j < t.columns; j += kNumbers) {
      const std::int64_t count = t.columns - j;
      const __m512i zero = _mm512_setzero_si512();
      const __m512i first = i < t.rows ? Load(row + j, count) : zero;
      const __m512i second = i + 1 < t.rows ? Load(row + t.from_row + j, count) : zero;
      if (along != nullptr) {
        _mm512_store_si512(along + j / 2, first);
        _mm512_store_si512(along + t.along_row + j / 2, second);
      }
      if (across != nullptr) {
        const TwoRows pairs = Interleave(first, second);
        Bf16Pair* const to = across + j / kRoundPanel * t.across_panel + j % kRoundPanel;
        _mm512_store_si512(to, pairs.low);
        _mm512_store_si512(to + kLanes, pairs.high);
      }
    }
  }
}
static_assert(kRoundColumns == kNumbers && kRoundPanel % kRoundColumns == 0);

constexpr Bf16Kernels kKernels = {Multiply, Pack, InterleaveAny, Round};

}  // namespace

const Bf16Kernels* Bf16KernelsFor(Isa isa) {
  // Highway has checked that the operating system saves the registers. A maximum below AVX-512 rules this out, too.
  static const bool present = __builtin_cpu_supports("avx512bf16") != 0;
  return present && (TargetMask(isa) & (HWY_AVX3 | HWY_AVX3_DL)) != 0 ? &kKernels : nullptr;
}

}  // namespace onehot::cpu

#else

namespace onehot::cpu {

const Bf16Kernels* Bf16KernelsFor(Isa) {
  return nullptr;
}

}  // namespace onehot::cpu

#endif
