// Products of matrices for the linear cross entropy, once per instruction set: packing, one micro-kernel for all of them,
// and what happens to the results on their way out. Everything between packing and the way out is f32.
//
// Every element of a product is one chain of fused multiply-adds along the reduction, ascending, continued through memory
// where the work is cut: its bits depend neither on the width of vectors nor on how the work is cut.
#ifndef ONEHOT_CPU_LINEAR_SIMD_H_
#define ONEHOT_CPU_LINEAR_SIMD_H_

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/isa.h"
#include "onehot/tensor.h"

namespace onehot::cpu {

// The micro-kernel's tile: 6 x 4 of AVX-512's 32 registers are sums, the others hold a row of b and an element of a.
inline constexpr std::int64_t kTileRows = 6, kTileColumns = 64;

inline constexpr std::int64_t kLineFloats = 16;  // of a cache

// Steps of the reduction between two visits to memory of the sums, which take 1 % of the time then; so much of b, 128 KiB,
// stays in L2 while rows of a go past it. Measured (Zen 5): 128 steps, with b in L1, are 5 % slower.
inline constexpr std::int64_t kDepth = 512;

constexpr std::int64_t RoundUp(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Rows of floats so far apart do not fall into the same few sets of a cache, which they would at powers of two.
constexpr std::int64_t PaddedStride(std::int64_t columns) {
  return RoundUp(columns, kTileColumns) + kTileColumns;
}

// c[i][j] (+)= sum over k of a[i * a_row + k * a_k] b[k * b_k + j], i < rows, j < kTileColumns. Any number of rows;
// those of c beyond are not touched.
struct ProductTask {
  const float* a;
  std::int64_t a_row, a_k;
  const float* b;
  std::int64_t b_k;
  float* c;
  std::int64_t c_row;
  std::int64_t rows, depth;
  bool accumulate;
  const float* next;  // b of the product that follows, its rows b_k apart, or b: comes into a cache meanwhile
};

// A part of a matrix in somebody's memory: element (i, j) at data + i * row + j * column elements of dtype.
template <class Byte>
struct MatrixPart {
  Byte* data;
  DType dtype;  // f32, f16 or bf16
  std::int64_t row, column;
  std::int64_t rows, columns;

  MatrixPart Part(std::int64_t i, std::int64_t j, std::int64_t row_count, std::int64_t column_count) const {
    return {data + (i * row + j * column) * SizeOf(dtype), dtype, row, column, row_count, column_count};
  }
};
using InputPart = MatrixPart<const std::byte>;
using OutputPart = MatrixPart<std::byte>;

// Along an axis of one element a stride may be anything, and is not needed: as if there were 1.
inline std::int64_t StrideOf(const TensorLayout& view, int axis) {
  return view.dim(axis) > 1 ? view.stride(axis) : 1;
}

struct LinearKernels {
  void (*multiply)(const ProductTask& task);
  // to[i * to_row + j], rows of `width` numbers, those beyond the matrix 0.
  void (*pack)(const InputPart& from, float* to, std::int64_t to_row, std::int64_t width);
  // to[j * kTileColumns + i]: at most kTileColumns rows become columns, those missing are 0. `to` is aligned to 64 bytes.
  void (*pack_transposed)(const InputPart& from, float* to);
  // c[i * c_row + j] = (c[...] + bias[j]) * scale, j < columns; no bias if null.
  void (*bias_and_scale)(float* c, std::int64_t rows, std::int64_t c_row, std::int64_t columns, const float* bias,
                         float scale);
  // c[i * c_row + j] = softcap tanh(c[...] / softcap), as the loops over logits have it (cpu/softmax_simd.h).
  void (*soft_cap)(float* c, std::int64_t rows, std::int64_t c_row, std::int64_t columns, float softcap);
  // sum[j] += c[0][j] + c[1][j] + ... in that order, j < kTileColumns.
  void (*add_rows)(const float* c, std::int64_t rows, std::int64_t c_row, float* sum);
  // Rounds from[i * from_row + j] into a matrix.
  void (*store)(const float* from, std::int64_t from_row, const OutputPart& to);
  // p = g[i * g_row + v] of `rows` tokens becomes alpha_i (p - [v = class_i]) + beta_i p - gamma_i weight_v, v < columns.
  // beta, gamma and weight may be null: 0, 0 and 1.
  void (*probability_gradient)(float* g, std::int64_t rows, std::int64_t g_row, std::int64_t columns,
                               const std::uint32_t* classes, const float* alpha, const float* beta, const float* gamma,
                               const float* weight);
  // Tiles of kTileRows x kTileColumns of c whose elements are all smaller than `bound` in magnitude become 0. left[i] of
  // tile row r is left + r * left_row: for each tile of the row, whether it stayed.
  void (*zero_below)(float* c, std::int64_t rows, std::int64_t c_row, std::int64_t columns, float bound,
                     std::uint8_t* left, std::int64_t left_row);
  // Statistics of a block of classes (cpu/softmax_simd.h) folded into those of the blocks before it; moments may be null.
  void (*fold)(std::int64_t count, const float* block_max, const float* block_sum, const float* block_moment,
               float* max, float* sum, float* moment);

  // Products of a few rows of f32, so few that copying the matrix would take longer: it is read and written where it
  // lies. An element is the same chain as of `multiply`. Columns of matrices that are read lie side by side.

  // c[i * c_row + v] = sum over h of a[i * a_row + h] m(v, h), i < rows. Rows of c have room for whole tiles.
  void (*times_transposed)(const float* a, std::int64_t a_row, std::int64_t rows, const InputPart& m, float* c,
                           std::int64_t c_row);
  // c[i * c_row + h] (+)= sum over v of a[i * a_row + v] m(v, h), i < rows. c likewise.
  void (*times)(const float* a, std::int64_t a_row, std::int64_t rows, const InputPart& m, float* c, std::int64_t c_row,
                bool accumulate);
  // m(v, h) (+)= sum over i < depth of a[i * a_row + v] b[i * b_row + h], rounded once. Of b, 63 numbers may be read
  // beyond those of a row. `stream`: past the caches where m allows it.
  void (*outer)(const float* a, std::int64_t a_row, const float* b, std::int64_t b_row, std::int64_t depth,
                bool accumulate, const OutputPart& m, bool stream);
};

const LinearKernels& LinearKernelsFor(Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_SIMD_H_
