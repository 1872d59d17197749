// The output of embedding backward, row by row: any strides, scaled or accumulated, past the caches where that pays.
#ifndef ONEHOT_CPU_OUTPUT_ROWS_H_
#define ONEHOT_CPU_OUTPUT_ROWS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "cpu/cache.h"
#include "cpu/rows_simd.h"
#include "onehot/embedding.h"

namespace onehot::cpu {

class OutputRows {
 public:
  OutputRows(const EmbeddingBackward& op, const RowKernels& kernels)
      : op_(op),
        size_(SizeOf(op.out.dtype)),
        row_bytes_(op.D() * size_),
        row_stride_(op.out.stride(0) * size_),
        dense_columns_(op.out.stride(1) == 1 || op.D() <= 1),
        dense_(dense_columns_ && (row_stride_ == row_bytes_ || op.V() <= 1)),
        stream_zeros_(PastCaches(op.N() * op.D() * SizeOf(op.grad.dtype), op.V() * row_bytes_)),
        stream_rows_(stream_zeros_ && dense_columns_ && !op.accumulate && row_bytes_ % kStreamAlign == 0 &&
                     row_stride_ % kStreamAlign == 0 &&
                     reinterpret_cast<std::uintptr_t>(op.out.data) % kStreamAlign == 0),
        zero_(stream_zeros_ ? kernels.zero_stream : kernels.zero) {}

  bool dense_columns() const { return dense_columns_; }
  bool stream_rows() const { return stream_rows_; }
  bool stream_zeros() const { return stream_zeros_; }
  std::int64_t row_stride() const { return row_stride_; }
  std::byte* Row(std::int64_t v) const { return static_cast<std::byte*>(op_.out.data) + v * row_stride_; }

  // Row v becomes the fold of `terms` rows; `count` is how often v is named. `ahead` as in FoldTask.
  void Fold(std::int64_t v, FoldFunction fold, const std::byte* const* rows, std::int64_t terms, std::int64_t count,
            std::int64_t ahead = 0) const {
    FoldTask task{.rows = rows,
                  .count = terms,
                  .ahead = ahead,
                  .columns = op_.D(),
                  .out = Row(v),
                  .divisor = op_.scale_grad_by_freq ? static_cast<double>(count) : 1.0,
                  .accumulate = op_.accumulate,
                  .stream = stream_rows_};
    if (dense_columns_) return fold(task);
    alignas(kStreamAlign) std::array<std::byte, kSpreadColumns * sizeof(double)> dense;
    const std::int64_t step = op_.out.stride(1) * size_;
    task.out = dense.data();
    for (task.first = 0; task.first < op_.D(); task.first += kSpreadColumns) {
      task.columns = std::min(kSpreadColumns, op_.D() - task.first);
      std::byte* const spread = Row(v) + task.first * step;
      if (op_.accumulate)
        for (std::int64_t c = 0; c < task.columns; ++c) CopyElement(spread + c * step, dense.data() + c * size_);
      fold(task);
      for (std::int64_t c = 0; c < task.columns; ++c) CopyElement(dense.data() + c * size_, spread + c * step);
    }
  }

  // Columns [begin, begin + count) of row v, which lie side by side, become the sum of two terms.
  void FoldColumns(std::int64_t v, std::int64_t begin, std::int64_t count, FoldFunction fold,
                   const std::byte* const* two_rows, std::int64_t occurrences) const {
    fold({.rows = two_rows,
          .count = 2,
          .columns = count,
          .out = Row(v) + begin * size_,
          .divisor = op_.scale_grad_by_freq ? static_cast<double>(occurrences) : 1.0,
          .accumulate = op_.accumulate});
  }

  // Rows [begin, end) get nothing: they are zeroed, or left as they are where the problem accumulates.
  void Skip(std::int64_t begin, std::int64_t end) const {
    if (op_.accumulate || begin == end || row_bytes_ == 0) return;
    if (dense_) return zero_(Row(begin), (end - begin) * row_bytes_);
    for (std::int64_t v = begin; v < end; ++v) {
      if (dense_columns_) {
        zero_(Row(v), row_bytes_);
      } else {
        for (std::int64_t c = 0; c < op_.D(); ++c)
          std::memset(Row(v) + c * op_.out.stride(1) * size_, 0, static_cast<std::size_t>(size_));
      }
    }
  }

  void Count(std::int64_t begin, std::int64_t end, std::int64_t count) const {
    if (!op_.counts) return;
    auto* const counts = static_cast<std::int64_t*>(op_.counts->data);
    for (std::int64_t v = begin; v < end; ++v) counts[v * op_.counts->stride(0)] = count;
  }

 private:
  // Columns folded on the stack before they are spread to an output with strided columns: 4 KiB of f64.
  static constexpr std::int64_t kSpreadColumns = 512;

  void CopyElement(const std::byte* from, std::byte* to) const {
    std::memcpy(to, from, static_cast<std::size_t>(size_));
  }

  const EmbeddingBackward& op_;
  const std::int64_t size_, row_bytes_, row_stride_;
  const bool dense_columns_, dense_, stream_zeros_, stream_rows_;
  void (*const zero_)(std::byte* out, std::int64_t bytes);
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_OUTPUT_ROWS_H_
