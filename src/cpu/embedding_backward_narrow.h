// Narrow rows: a bucket's positions are added up in position order, into sums that stay in cache; nothing is sorted.
#ifndef ONEHOT_CPU_EMBEDDING_BACKWARD_NARROW_H_
#define ONEHOT_CPU_EMBEDDING_BACKWARD_NARROW_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "cpu/embedding_backward_parts.h"
#include "cpu/narrow_rows_simd.h"

namespace onehot::cpu {

class NarrowRows {
 public:
  static bool Takes(const BackwardShape& shape) {
    return shape.dense_grad && shape.grad_positions.uniform() && shape.out.dense_columns() && shape.sum_bytes > 0 &&
           shape.sum_bytes <= kNarrowBytes;
  }

  NarrowRows(const BackwardShape& shape, const NarrowRowKernels& kernels, const HotRows<std::uint32_t>& hot,
             ScratchLayout& layout)
      : shape_(shape),
        hot_(hot),
        sum_(kernels.sum(shape.op.grad.dtype)),
        finish_(kernels.finish(shape.op.grad.dtype, shape.op.out.dtype)),
        fold_sums_(shape.kernels.fold(shape.sum_dtype, shape.op.out.dtype)),
        add_sums_(shape.kernels.fold(shape.sum_dtype, shape.sum_dtype)) {
    if (!Takes(shape)) return;
    // Counters come in words of 64; no bucket need be larger than the table.
    while (std::int64_t{2} << max_shift_ <= kBucketSumBytes / row_bytes() && std::int64_t{1} << max_shift_ < shape.V)
      ++max_shift_;
    const std::int64_t rows = std::int64_t{1} << max_shift_;
    const std::int64_t buckets = (shape.V + rows - 1) / rows;
    slots_ = std::clamp<std::int64_t>(buckets, 1, std::max(8, Processors()));
    whole_table_ = buckets <= slots_ && shape.V * row_bytes() <= kTableSumBytes;
    if (whole_table_) slots_ = 2 * std::max<std::int64_t>(buckets, 1);  // two halves, each with counts of its own
    sums_ = layout.Book<std::byte>(slots_ * rows * shape.sum_bytes);
    counts_ = layout.Book<std::uint32_t>(slots_ * rows);
    lasts_ = layout.Book<std::uint32_t>(slots_ * rows);
    chunks_ = layout.Book<std::uint32_t>(slots_ * rows);
  }

  // How many of so many threads have a place for the sums of a bucket of 2^shift rows.
  int Threads(int threads, int shift) const {
    return static_cast<int>(std::min<std::int64_t>(threads, slots_ << max_shift_ >> shift));
  }

  int max_shift() const { return max_shift_; }

  // A table whose sums stay in cache needs no buckets, so positions need not be moved, which takes as long as adding a
  // short row. Two threads then take half of the columns each or, where half a row is too short for that, one does it
  // all.
  bool WholeTable(int threads) const { return whole_table_ && threads <= 2; }
  void Table(BackwardJob& job, const std::uint32_t* rows) const {
    const std::int64_t half = job.threads == 2 ? half_columns() : shape_.D;
    ParallelFor(job.threads, half < shape_.D ? 2 : 1, [&](std::int64_t part, int) {
      const Columns columns = part == 0 ? Columns{0, half} : Columns{half, shape_.D - half};
      Run(job, 0, shape_.V, nullptr, rows, shape_.N, 0, part * (slots_ << max_shift_) / 2, columns);
      hwy::FlushStream();
    });
  }

  // The bucket size otherwise: as large as fits, but several buckets for each thread. Or -1, if that would be more
  // buckets than `most`.
  int Shift(int threads, std::int64_t most) const {
    int shift = max_shift_;
    while (threads > 1 && shift > 6 && shape_.V >> shift < 4 * threads) --shift;
    return (shape_.V - 1) >> shift < most ? shift : -1;
  }

  // Writes rows [first, end) from the positions that name them. `ahead` as in SumTask.
  void Bucket(BackwardJob& job, std::int64_t first, std::int64_t end, const RowEntry* entries, std::int64_t count,
              std::int64_t ahead, int thread) const {
    Run(job, first, end, entries, nullptr, count, ahead, std::int64_t{thread} << job.shift, {0, shape_.D});
  }

 private:
  // Sums of one bucket: a quarter of the 1 MiB L2 of current server cores; the gradient streams through the rest.
  static constexpr std::int64_t kBucketSumBytes = 256 << 10;
  // A table up to this size is summed whole: its sums may spill into L3, but 2.5 ns a position are saved.
  static constexpr std::int64_t kTableSumBytes = 2 << 20;
  // Positions added between two looks at the progress callback: some 0.1 ms.
  static constexpr std::int64_t kPiece = 1 << 16;

  struct Columns {
    std::int64_t begin, count;
  };

  struct Context {
    const NarrowRows& self;
    BackwardJob& job;
    std::int64_t first;
    std::uint32_t* chunks;  // per row of the bucket, where the sum of its chunks is kept
    Columns columns;
  };

  std::int64_t row_bytes() const { return shape_.sum_bytes + 8; }  // a sum, its count, and its last occurrence

  // Half of a row, in pairs of lines, which is what prefetchers fetch; all columns if there is one pair only.
  std::int64_t half_columns() const {
    const std::int64_t pair = 2 * kStreamAlign / shape_.grad_size;
    return std::min(shape_.D, ((shape_.D + 1) / 2 + pair - 1) / pair * pair);
  }

  // Sums and writes those columns of rows [first, end), with the places for sums from `offset` on. The positions are
  // `entries` or, if that is null, all in order with their `rows`.
  void Run(BackwardJob& job, std::int64_t first, std::int64_t end, const RowEntry* entries, const std::uint32_t* rows,
           std::int64_t count, std::int64_t ahead, std::int64_t offset, Columns columns) const {
    std::uint32_t* const counts = job.scratch.Get(counts_).data() + offset;
    std::uint32_t* const lasts = job.scratch.Get(lasts_).data() + offset;
    std::byte* const sums = job.scratch.Get(sums_).data() + offset * shape_.sum_bytes;
    const std::byte* const grad = job.grad.base + columns.begin * shape_.grad_size;
    std::fill_n(counts, (end - first + 63) / 64 * 64, 0u);
    Context context{*this, job, first, job.scratch.Get(chunks_).data() + offset, columns};
    SumTask task{.entries = entries,
                 .rows = rows,
                 .first_position = 0,
                 .count = count,
                 .ahead = ahead,
                 .first_row = static_cast<std::uint32_t>(first),
                 .grad = grad,
                 .grad_stride = job.grad.stride,
                 .columns = columns.count,
                 .counts = counts,
                 .lasts = lasts,
                 .sums = sums,
                 .chunk_done = ChunkDone,
                 .context = &context};
    if (entries != nullptr) {
      sum_(task);
    } else {
      for (std::int64_t done = 0; done < count && !job.progress.stopped(); done += kPiece) {
        task.rows = rows + done;
        task.first_position = static_cast<std::uint32_t>(done);
        task.count = std::min(kPiece, count - done);
        task.ahead = count - done - task.count;
        sum_(task);
        if (columns.begin == 0) job.progress.Advance(task.count * shape_.position_cost(), 0);
      }
    }
    if (shape_.op.counts && columns.begin == 0)
      for (std::int64_t r = 0; r < end - first; ++r) shape_.out.Count(first + r, first + r + 1, counts[r]);
    if (shape_.padding >= first && shape_.padding < end) counts[shape_.padding - first] = 0;
    finish_({.rows = end - first,
             .columns = columns.count,
             .counts = counts,
             .lasts = lasts,
             .sums = sums,
             .grad = grad,
             .grad_stride = job.grad.stride,
             .out = shape_.out.Row(first) + columns.begin * shape_.out_size,
             .out_stride = shape_.out.row_stride(),
             .scale = shape_.op.scale_grad_by_freq,
             .accumulate = shape_.op.accumulate,
             .stream = shape_.out.stream_zeros(),
             .stream_rows = shape_.out.stream_rows(),
             .hot = FinishHot,
             .context = &context});
  }

  // The sum of a row's chunks so far is kept aside.
  static void ChunkDone(void* opaque, std::uint32_t row, std::uint32_t occurrences, const std::byte* sum) {
    const auto& [self, job, first, chunks, columns] = *static_cast<const Context*>(opaque);
    if (occurrences == kChunk) {
      chunks[row] = static_cast<std::uint32_t>(self.hot_.KeepChunk(job));
      std::memcpy(self.hot_.Sum(job, chunks[row]), sum,
                  static_cast<std::size_t>(columns.count * SizeOf(self.shape_.sum_dtype)));
    } else {
      std::byte* const total = self.hot_.Sum(job, chunks[row]);
      const std::array<const std::byte*, 2> terms = {total, sum};
      self.add_sums_({.rows = terms.data(), .count = 2, .columns = columns.count, .out = total});
    }
  }

  static void FinishHot(void* opaque, std::int64_t row, std::uint32_t occurrences, const std::byte* sum) {
    const auto& [self, job, first, chunks, columns] = *static_cast<const Context*>(opaque);
    const std::array<const std::byte*, 2> terms = {self.hot_.Sum(job, chunks[row]), sum};
    self.shape_.out.FoldColumns(first + row, columns.begin, columns.count, self.fold_sums_, terms.data(), occurrences);
  }

  const BackwardShape& shape_;
  const HotRows<std::uint32_t>& hot_;
  const SumFunction sum_;
  const FinishFunction finish_;
  const FoldFunction fold_sums_, add_sums_;
  int max_shift_ = 6;
  std::int64_t slots_ = 1;
  bool whole_table_ = false;
  Piece<std::byte> sums_;
  Piece<std::uint32_t> counts_, lasts_, chunks_;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_EMBEDDING_BACKWARD_NARROW_H_
