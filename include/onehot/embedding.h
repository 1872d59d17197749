// Embedding: the row gather and its gradient. With onehot(indices) the N x V matrix that is 1 where indices[i] == v,
//
//   forward    out = onehot(indices)   @ weight
//   backward   dW  = onehot(indices)^T @ grad
//
// N = positions (elements of indices), V = rows of the table, D = width of a row.
#ifndef ONEHOT_EMBEDDING_H_
#define ONEHOT_EMBEDDING_H_

#include <cstdint>
#include <optional>

#include "onehot/export.h"
#include "onehot/plan.h"
#include "onehot/status.h"
#include "onehot/tensor.h"

namespace onehot {

// out[v, :] = s_v * sum over i with indices[i] == v of grad[i, :]     for v != padding_idx
// out[v, :] = 0                                                        for v == padding_idx and rows never named
// s_v       = 1 / count(v) if scale_grad_by_freq, else 1
//
//   grad     [..., D]  f32 f64 f16 bf16   rank 1 to 8; its axes but the last, flattened, are the N positions
//   indices  [...]     i64 i32 i16 i8 u8 bool, f64 f32 f16   rank 0 to 8, N elements, every value in [0, V)
//   out      [V, D]    dtype of grad, or f32 for f16 and bf16 grad
//   counts   [V]       i64, optional: how often each row is named, the padding row included
//
// Any strides, for all four. Two elements of out, or of counts, may not share an address. The tensors may not overlap
// each other. Floating indices are truncated toward zero; they must be finite, and in [0, V) after it. A bool index is
// 0 where the byte is 0, else 1.
//
// padding_idx: a row whose gradient is zero; from the end if negative (-1 is the last row). Must be in [-V, V).
// scale_grad_by_freq: the finished sum is divided by count(v), which counts all positions.
// accumulate: out[v, :] += the finished (scaled) sum, one addition in the accumulation type and one rounding. The padding
// row and rows never named keep their bits. Without it every element of out is written, +0 where nothing contributes.
//
// Numerics. Sums are in f32 (f64 for f64 grad) and rounded once, to nearest even, to the dtype of out. Order: the
// occurrences of a row in position order, cut into chunks of 512; each chunk is folded left to right, and so are the
// sums of the chunks; each fold starts from its first element. So up to 512 occurrences it is the plain left-to-right
// sum, and a row named once is a bit copy of its gradient, the sign of zero and the NaN payload included (where out has
// the dtype of grad and without accumulate). The bits are the same for any number of threads and any instruction set;
// only the payload of a NaN that comes out of a sum is left open. The implementation "ref" instead sums in f64 and
// rounds once.
//
// Errors. Prepare: dtypes, ranks, extents, strides, padding_idx. Run: kNullArgument for null data where there are
// elements; kBadData if an index is outside [0, V), with the smallest such position, its value and the range. All
// indices are checked before the first byte of any output is written.
struct EmbeddingBackward {
  ConstTensorView grad;
  ConstTensorView indices;
  TensorView out;
  std::optional<TensorView> counts = std::nullopt;
  std::optional<std::int64_t> padding_idx = std::nullopt;
  bool scale_grad_by_freq = false;
  bool accumulate = false;

  std::int64_t N() const { return indices.numel(); }
  std::int64_t V() const { return out.dim(0); }
  std::int64_t D() const { return out.dim(1); }
};

ONEHOT_API Status Check(const EmbeddingBackward& problem);
ONEHOT_API Result<Plan> Prepare(const EmbeddingBackward& problem);

// out[i, :] = weight[indices[i], :]
//
//   weight   [V, D]    any dtype
//   indices  [...]     i64 i32 i16 i8 u8 bool, f64 f32 f16   rank 0 to 7, N elements, every value in [0, V)
//   out      [..., D]  dtype of weight; shape of indices with D appended, or any shape whose axes but the last,
//                      flattened, are the N positions
//
// Elements are copied bit for bit. Strides, overlap, conversion of indices and errors as in EmbeddingBackward.
struct Embedding {
  ConstTensorView weight;
  ConstTensorView indices;
  TensorView out;

  std::int64_t N() const { return indices.numel(); }
  std::int64_t V() const { return weight.dim(0); }
  std::int64_t D() const { return weight.dim(1); }
};

ONEHOT_API Status Check(const Embedding& problem);
ONEHOT_API Result<Plan> Prepare(const Embedding& problem);

}  // namespace onehot

#endif  // ONEHOT_EMBEDDING_H_
