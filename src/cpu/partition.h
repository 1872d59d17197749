// Positions brought together by the row they name: the index handling of embedding backward.
#ifndef ONEHOT_CPU_PARTITION_H_
#define ONEHOT_CPU_PARTITION_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/layout.h"
#include "core/scratch.h"
#include "cpu/indices.h"
#include "cpu/narrow_rows_simd.h"
#include "cpu/threads.h"
#include "ops/indices.h"

namespace onehot::cpu {

// Reads indices once, checks them, and moves positions into buckets, runs of 2^shift rows; within a bucket positions
// ascend. Index is uint32_t where the number of positions and of rows allows it, else uint64_t.
template <class Index>
class Partition {
 public:
  struct WideEntry {
    Index row, position;
  };
  using Entry = std::conditional_t<sizeof(Index) == sizeof(std::uint32_t), RowEntry, WideEntry>;

  // Books what Read and Move need for up to max_buckets buckets.
  Partition(const ConstTensorView& indices, std::int64_t rows, std::int64_t max_buckets, ScratchLayout& layout)
      : indices_(indices), at_(Flatten(indices, indices.rank)), V_(rows) {
    const std::int64_t blocks = Blocks(kMaxBlocks);
    rows_ = layout.Book<Index>(at_.count);
    entries_ = layout.Book<Entry>(at_.count);
    bad_ = layout.Book<std::int64_t>(blocks);
    counts_ = layout.Book<Index>(blocks * max_buckets);
    begin_ = layout.Book<Index>(max_buckets + 1);
  }

  std::int64_t Buckets(int shift) const { return V_ == 0 ? 0 : ((V_ - 1) >> shift) + 1; }

  // Fills Rows and counts the positions in each bucket, or says which index is bad.
  Status Read(Scratch scratch, int shift, int threads) const {
    Index* const rows = scratch.Get(rows_).data();
    Index* const counts = scratch.Get(counts_).data();
    std::int64_t* const bad = scratch.Get(bad_).data();
    const std::int64_t buckets = Buckets(shift), blocks = Blocks(threads);
    ParallelFor(threads, blocks, [&](std::int64_t b, int) {
      Index* const count = counts + b * buckets;
      std::fill_n(count, buckets, Index{0});
      const std::int64_t end = BlockBegin(b + 1, blocks);
      bad[b] = -1;
      for (std::int64_t begin = BlockBegin(b, blocks); begin < end && bad[b] < 0; begin += kPiece) {
        const std::int64_t piece_end = std::min(begin + kPiece, end);
        bad[b] = LoadRows(indices_, at_, V_, begin, piece_end, rows + begin);
        if (bad[b] >= 0) return;
        if (buckets == 1) {
          *count += static_cast<Index>(piece_end - begin);
        } else {
          for (std::int64_t i = begin; i < piece_end; ++i) ++count[rows[i] >> shift];
        }
      }
    });
    for (std::int64_t b = 0; b < blocks; ++b)  // blocks ascend, so the first one found is the smallest
      if (bad[b] >= 0) return BadIndex("indices", indices_, bad[b], V_);
    return Status::Ok();
  }

  // Fills Entries and Begin, with the shift and the threads that Read had.
  void Move(Scratch scratch, int shift, int threads) const {
    const Index* const rows = scratch.Get(rows_).data();
    Index* const counts = scratch.Get(counts_).data();
    Index* const bucket_begin = scratch.Get(begin_).data();
    Entry* const entries = scratch.Get(entries_).data();
    const std::int64_t buckets = Buckets(shift), blocks = Blocks(threads);
    Index sum = 0;
    for (std::int64_t k = 0; k < buckets; ++k) {
      bucket_begin[k] = sum;
      for (std::int64_t b = 0; b < blocks; ++b) sum += std::exchange(counts[b * buckets + k], sum);
    }
    bucket_begin[buckets] = sum;
    ParallelFor(threads, blocks, [&](std::int64_t b, int) {
      Index* const to = counts + b * buckets;
      const std::int64_t end = BlockBegin(b + 1, blocks);
      for (std::int64_t i = BlockBegin(b, blocks); i < end; ++i)
        entries[to[rows[i] >> shift]++] = {rows[i], static_cast<Index>(i)};
    });
  }

  // The row of each position, after Read. After Move it is N elements of scratch for whoever wants them.
  Index* Rows(Scratch scratch) const { return scratch.Get(rows_).data(); }
  // After Move: bucket k is entries Begin()[k] to Begin()[k + 1].
  const Entry* Entries(Scratch scratch) const { return scratch.Get(entries_).data(); }
  const Index* Begin(Scratch scratch) const { return scratch.Get(begin_).data(); }

 private:
  // Blocks of positions are the unit of work: several for each thread, so that none waits long, but few, since each has
  // a counter for every bucket (64 x 1024 of 4 bytes still fit L2). A block of 8192 takes some 10 us, ten times the
  // cost of a parallel region.
  static constexpr int kMaxBlocks = 64;
  static constexpr std::int64_t kMinBlock = 8192;
  // Row numbers are counted while they are in L1: 16 KiB.
  static constexpr std::int64_t kPiece = 4096;

  std::int64_t Blocks(int threads) const {
    const std::int64_t wanted = threads == 1 ? 1 : std::min(4 * threads, kMaxBlocks);
    return std::clamp<std::int64_t>(at_.count / kMinBlock, 1, wanted);
  }
  std::int64_t BlockBegin(std::int64_t b, std::int64_t blocks) const {
    const std::int64_t size = (at_.count + blocks - 1) / blocks;
    return std::min(b * size, at_.count);
  }

  const ConstTensorView indices_;
  const Positions at_;
  const std::int64_t V_;
  Piece<Index> rows_, counts_, begin_;
  Piece<Entry> entries_;
  Piece<std::int64_t> bad_;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_PARTITION_H_
