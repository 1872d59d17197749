// Wide rows: a bucket is sorted by row in cache, then each row is folded from registers and written once.
#ifndef ONEHOT_CPU_EMBEDDING_BACKWARD_WIDE_H_
#define ONEHOT_CPU_EMBEDDING_BACKWARD_WIDE_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "cpu/embedding_backward_parts.h"
#include "cpu/partition.h"

namespace onehot::cpu {

// Rows of a bucket whose counters a thread keeps on its stack while it sorts: 4 KiB.
inline constexpr std::int64_t kStackRows = 1024;

template <class Index>
class WideRows {
 public:
  // Buckets may have up to 2^max_shift rows.
  WideRows(const BackwardShape& shape, const Partition<Index>& partition, const HotRows<Index>& hot, int max_shift,
           ScratchLayout& layout)
      : shape_(shape),
        partition_(partition),
        hot_(hot),
        fold_(shape.kernels.fold(shape.op.grad.dtype, shape.op.out.dtype)) {
    if (shape.V > kStackRows && std::int64_t{1} << max_shift > kStackRows)
      counters_ = layout.Book<Index>(partition.Buckets(max_shift) << max_shift);
  }

  // Takes rows in ascending order; those between them get nothing.
  class Writer {
   public:
    Writer(const WideRows& self, BackwardJob& job, std::int64_t first) : self_(self), job_(job), next_(first) {}

    // Occurrences order[begin .. end) of row v; order goes on to `limit`.
    void Write(std::int64_t v, std::int64_t begin, std::int64_t end, std::int64_t limit) {
      const BackwardShape& shape = self_.shape_;
      const Index* const order = self_.Order(job_);
      const std::int64_t count = end - begin;
      SkipTo(v);
      next_ = v + 1;
      shape.out.Count(v, v + 1, count);
      if (v == shape.padding) return shape.out.Skip(v, v + 1);
      if (count > kChunk) return self_.hot_.Note(job_, v, begin, count);
      const std::int64_t ahead = std::min(kFoldAhead, limit - end);
      std::array<const std::byte*, kChunk + kFoldAhead> rows;
      for (std::int64_t i = 0; i < count + ahead; ++i) rows[static_cast<std::size_t>(i)] = job_.grad[order[begin + i]];
      shape.out.Fold(v, self_.fold_, rows.data(), count, count, ahead);
    }

    void SkipTo(std::int64_t v) {
      self_.shape_.out.Count(next_, v, 0);
      self_.shape_.out.Skip(next_, v);
      next_ = v;
    }

   private:
    const WideRows& self_;
    BackwardJob& job_;
    std::int64_t next_;  // the first row not dealt with
  };

  void Bucket(BackwardJob& job, std::int64_t k, Writer& writer) const {
    const Index* const bucket_begin = partition_.Begin(job.scratch);
    const auto begin = static_cast<std::int64_t>(bucket_begin[k]), end = static_cast<std::int64_t>(bucket_begin[k + 1]);
    if (begin == end) return;
    const std::int64_t first_row = k << job.shift, bucket_rows = std::int64_t{1} << job.shift;
    const auto* const entries = partition_.Entries(job.scratch);
    Index* const order = Order(job) + begin;

    // One row, be it the bucket's only one or one that all tokens name: nothing to sort.
    Index differs = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      differs |= entries[i].row ^ entries[begin].row;
      order[i - begin] = entries[i].position;
    }
    if (differs == 0) return writer.Write(static_cast<std::int64_t>(entries[begin].row), begin, end, end);

    alignas(kStreamAlign) std::array<Index, kStackRows> stack;
    Index* const counters = bucket_rows <= kStackRows ? stack.data() : job.scratch.Get(counters_).data() + first_row;
    std::fill_n(counters, (bucket_rows + 63) / 64 * 64, Index{0});
    for (std::int64_t i = begin; i < end; ++i) ++counters[entries[i].row - first_row];
    Index place = 0;  // from counts to where each row starts
    ForEachNamed(counters, bucket_rows, [&](std::int64_t r) { place += std::exchange(counters[r], place); });
    for (std::int64_t i = begin; i < end; ++i) order[counters[entries[i].row - first_row]++] = entries[i].position;
    std::int64_t from = begin;  // each counter has moved on to where its row ends
    ForEachNamed(counters, bucket_rows, [&](std::int64_t r) {
      const std::int64_t to = begin + static_cast<std::int64_t>(counters[r]);
      writer.Write(first_row + r, from, to, end);
      from = to;
    });
  }

  // Positions sorted by row, those of a row ascending. Once moved, the row numbers are of no use any more.
  Index* Order(const BackwardJob& job) const { return partition_.Rows(job.scratch); }

 private:
  // Calls visit(r) for the rows of a bucket whose counter is not zero, in ascending order. `visit` may change counter
  // r.
  template <class F>
  void ForEachNamed(const Index* counters, std::int64_t rows, F&& visit) const {
    for (std::int64_t r = 0; r < rows; r += 64) {
      std::uint64_t named = 0;
      if constexpr (sizeof(Index) == sizeof(std::uint32_t)) {
        named = shape_.kernels.nonzero64(counters + r);
      } else {
        for (int j = 0; j < 64; ++j) named |= std::uint64_t{counters[r + j] != 0} << j;
      }
      for (; named != 0; named &= named - 1) visit(r + std::countr_zero(named));
    }
  }

  const BackwardShape& shape_;
  const Partition<Index>& partition_;
  const HotRows<Index>& hot_;
  const FoldFunction fold_;
  Piece<Index> counters_;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_EMBEDDING_BACKWARD_WIDE_H_
