// What the two ways of embedding backward, narrow and wide rows, share: the plan's constants, one run's state, and rows
// so hot that their sum is cut into chunks.
#ifndef ONEHOT_CPU_EMBEDDING_BACKWARD_PARTS_H_
#define ONEHOT_CPU_EMBEDDING_BACKWARD_PARTS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "core/layout.h"
#include "core/scratch.h"
#include "cpu/output_rows.h"
#include "cpu/rows_simd.h"
#include "cpu/threads.h"
#include "hwy/cache_control.h"
#include "ops/embedding_backward.h"

namespace onehot::cpu {

// Occurrences folded into one sum before sums are folded: the order promised in onehot/embedding.h.
inline constexpr std::int64_t kChunk = 512;

// Fixed by the problem.
struct BackwardShape {
  const EmbeddingBackward op;
  const RowKernels& kernels;
  const std::int64_t N = op.N(), V = op.V(), D = op.D();
  const std::int64_t padding = PaddingRow(op).value_or(-1);
  const Positions grad_positions = Flatten(op.grad, op.grad.rank - 1);
  const bool dense_grad = op.grad.stride(-1) == 1 || op.D() <= 1;  // columns lie side by side
  const std::int64_t grad_size = SizeOf(op.grad.dtype), out_size = SizeOf(op.out.dtype);
  const DType sum_dtype = op.grad.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const std::int64_t sum_bytes = op.D() * SizeOf(sum_dtype);  // of one row
  const OutputRows out = OutputRows(op, kernels);

  // Bytes read for a position and written for a row; at least 1, so that empty rows count as work too.
  std::int64_t position_cost() const { return D * grad_size + 1; }
  std::int64_t row_cost() const { return D * out_size + 1; }
};

// The gradient with its columns side by side.
struct GradRows {
  const std::byte* base;
  const Positions* positions;  // null if `stride` says it all
  std::int64_t stride, size;   // bytes from a position to the next; of an element

  const std::byte* operator[](std::int64_t i) const {
    return base + (positions == nullptr ? i * stride : positions->Offset(i) * size);
  }
};

// What one Run shares between its phases.
struct BackwardJob {
  const Scratch scratch;
  Progress& progress;
  const int shift;  // buckets are runs of 2^shift rows
  int threads;
  GradRows grad{};
  std::atomic<std::int64_t> hot_rows{0}, chunks{0};
};

// Rows with more than kChunk occurrences. A sorted bucket leaves them here, and all threads fold their chunks
// afterwards.
template <class Index>
class HotRows {
 public:
  HotRows(const BackwardShape& shape, ScratchLayout& layout) : shape_(shape) {
    if (shape.N <= kChunk) return;
    // A row with n > 512 occurrences has fewer than n / 512 + 1 chunks, and at most N / 513 rows are so hot.
    const std::int64_t rows = shape.N / (kChunk + 1), chunks = shape.N / kChunk + rows;
    rows_ = layout.Book<Row>(rows);
    owners_ = layout.Book<Index>(chunks);
    sum_rows_ = layout.Book<const std::byte*>(chunks);
    sums_ = layout.Book<std::byte>(chunks * shape.sum_bytes);
  }

  // A place for the sum of one row's chunks, for a caller who folds them himself.
  std::int64_t KeepChunk(BackwardJob& job) const {
    const std::int64_t chunk = job.chunks.fetch_add(1);
    job.scratch.Get(owners_)[static_cast<std::size_t>(chunk)] = kNoOwner;
    return chunk;
  }
  std::byte* Sum(const BackwardJob& job, std::int64_t chunk) const {
    return job.scratch.Get(sums_).data() + chunk * shape_.sum_bytes;
  }

  // Row v, with occurrences order[begin .. begin + count), is left to Fold.
  void Note(BackwardJob& job, std::int64_t v, std::int64_t begin, std::int64_t count) const {
    const std::int64_t chunks = (count + kChunk - 1) / kChunk;
    const std::int64_t place = job.hot_rows.fetch_add(1), chunk = job.chunks.fetch_add(chunks);
    job.progress.Postpone(count * shape_.position_cost());
    job.scratch.Get(rows_)[static_cast<std::size_t>(place)] = {static_cast<Index>(v), static_cast<Index>(begin),
                                                               static_cast<Index>(count), static_cast<Index>(chunk)};
    for (std::int64_t c = chunk; c < chunk + chunks; ++c)
      job.scratch.Get(owners_)[static_cast<std::size_t>(c)] = static_cast<Index>(place);
  }

  void Fold(BackwardJob& job, const Index* order) const {
    if (job.hot_rows == 0 || job.progress.stopped()) return;
    const Row* const rows = job.scratch.Get(rows_).data();
    const Index* const owners = job.scratch.Get(owners_).data();
    const std::byte** const sum_rows = job.scratch.Get(sum_rows_).data();
    const FoldFunction fold_chunk = shape_.kernels.fold(shape_.op.grad.dtype, shape_.sum_dtype);
    const FoldFunction fold_sums = shape_.kernels.fold(shape_.sum_dtype, shape_.op.out.dtype);
    ParallelFor(job.threads, job.chunks, [&](std::int64_t chunk, int thread) {
      if (owners[chunk] == kNoOwner || job.progress.stopped()) return;
      const Row& row = rows[owners[chunk]];
      const std::int64_t offset = (chunk - static_cast<std::int64_t>(row.chunk)) * kChunk;
      const std::int64_t count = std::min(kChunk, static_cast<std::int64_t>(row.count) - offset);
      std::array<const std::byte*, kChunk> terms;
      for (std::int64_t i = 0; i < count; ++i)
        terms[static_cast<std::size_t>(i)] = job.grad[order[static_cast<std::int64_t>(row.begin) + offset + i]];
      sum_rows[chunk] = Sum(job, chunk);
      fold_chunk({.rows = terms.data(), .count = count, .columns = shape_.D, .out = Sum(job, chunk)});
      job.progress.Advance(count * shape_.position_cost(), thread);
    });
    if (job.progress.stopped()) return;
    ParallelFor(job.threads, job.hot_rows, [&](std::int64_t place, int) {
      const Row& row = rows[place];
      const auto count = static_cast<std::int64_t>(row.count);
      shape_.out.Fold(static_cast<std::int64_t>(row.row), fold_sums, &sum_rows[row.chunk],
                      (count + kChunk - 1) / kChunk, count);
      hwy::FlushStream();
    });
  }

 private:
  struct Row {
    Index row, begin, count, chunk;  // its chunks are chunk, chunk + 1, ...
  };
  static constexpr Index kNoOwner = ~Index{0};

  const BackwardShape& shape_;
  Piece<Row> rows_;
  Piece<Index> owners_;
  Piece<const std::byte*> sum_rows_;
  Piece<std::byte> sums_;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_EMBEDDING_BACKWARD_PARTS_H_
