// Products of bf16 matrices for the linear cross entropy, where the CPU multiplies bf16 (AVX512_BF16): what
// cpu/linear_simd.h does in f32, at twice its speed, with the same tile.
//
// The instruction takes two steps of the reduction at once. So matrices are packed in pairs along the reduction, and a
// reduction of odd length ends with a zero:
//
//   sum over n of a(i, n) b(n, j)     a[i * a_row + k * a_k] holds a(i, 2k), a(i, 2k + 1)
//                                     b[k * b_k + j]         holds b(2k, j), b(2k + 1, j)
//
// Sums are f32. An element of a product is one chain along the reduction, ascending, continued through memory where the
// work is cut: its bits do not depend on how the work is cut, as long as no pair is. They do differ from those of the f32
// kernel: the instruction takes numbers below 2^-126 for zeros, operands and results alike, and adds the product of a
// pair's second elements before that of its first ones.
//
// What is packed is rounded once, to nearest even; NaN stays NaN. Below 2^-126 f32 rounds to zero, which the product would
// take it for anyway.
#ifndef ONEHOT_CPU_LINEAR_BF16_H_
#define ONEHOT_CPU_LINEAR_BF16_H_

#include <cstdint>

#include "core/isa.h"
#include "cpu/linear_simd.h"

namespace onehot::cpu {

// Two bf16, the first one in the low half.
using Bf16Pair = std::uint32_t;

// Pairs of n numbers.
constexpr std::int64_t Pairs(std::int64_t n) {
  return (n + 1) / 2;
}

// Pairs of the reduction between two visits to memory of the sums: as many bytes of b as the f32 kernel's kDepth, 128 KiB,
// which stay in L2 while rows of a go past. Measured (Zen 5): 128 pairs, with b in L1, are 3 to 5 % slower.
inline constexpr std::int64_t kPairDepth = 512;

// c[i][j] (+)= sum over k of the two products of a[i * a_row + k * a_k] and b[k * b_k + j], i < rows, j < kTileColumns.
// rows is a multiple of kTileRows.
struct Bf16ProductTask {
  const Bf16Pair* a;
  std::int64_t a_row, a_k;
  const Bf16Pair* b;  // aligned to 64 bytes, and b_k a multiple of 16
  std::int64_t b_k;
  float* c;  // likewise
  std::int64_t c_row;
  std::int64_t rows, depth;  // depth in pairs
  bool accumulate;
  const Bf16Pair* next;  // as in ProductTask
};

// What Bf16Kernels::round writes is whole vectors: this many columns at a time. Panels of what it writes across have so many.
inline constexpr std::int64_t kRoundColumns = 32, kRoundPanel = 96;

// Rounds from[i * from_row + j], i < rows, j < columns, once, and writes the same numbers in two layouts, either of which
// may be null. Both are zero where the matrix ends: for i up to padded_rows, an even number, and j up to columns rounded up
// to kRoundColumns.
struct Bf16RoundTask {
  const float* from;
  std::int64_t from_row;
  std::int64_t rows, padded_rows, columns;
  Bf16Pair* along;  // along[i * along_row + k]: columns 2k and 2k + 1 of row i
  std::int64_t along_row;
  // Column j of rows 2k and 2k + 1: across[k * across_row + j], or, panel after panel of kRoundPanel columns,
  // across[j / kRoundPanel * across_panel + k * across_row + j % kRoundPanel]. Aligned to 64 bytes, across_row and
  // across_panel multiples of 16; likewise `along` and along_row.
  Bf16Pair* across;
  std::int64_t across_row;
  std::int64_t across_panel = kRoundPanel;
};

struct Bf16Kernels {
  void (*multiply)(const Bf16ProductTask& task);
  // to[i * to_row + k] = from(i, 2k), from(i, 2k + 1) for k < width, those beyond the matrix 0.
  void (*pack)(const InputPart& from, Bf16Pair* to, std::int64_t to_row, std::int64_t width);
  // to[k * to_row + j] = from(2k, j), from(2k + 1, j) for k < Pairs(from.rows), j < width, those beyond the matrix 0. What
  // has been packed is a matrix of bf16, too.
  void (*interleave)(const InputPart& from, Bf16Pair* to, std::int64_t to_row, std::int64_t width);
  void (*round)(const Bf16RoundTask& task);
};

inline InputPart Transposed(const InputPart& m) {
  return {m.data, m.dtype, m.column, m.row, m.columns, m.rows};
}

// Null where the CPU, or the instruction set a plan is to use, has no such products.
const Bf16Kernels* Bf16KernelsFor(Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_BF16_H_
