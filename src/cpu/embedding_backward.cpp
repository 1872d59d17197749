// Embedding backward by grouping positions: find the occurrences of each row, then write each row of the output once.
//
//   1. read       indices are read once, checked, and kept as plain row numbers; each block of positions counts how
//   many
//                 of them fall into each bucket, a run of 2^shift rows
//   2. partition  every block moves its positions to their buckets, in position order
//   3. write      a bucket is sorted by row in cache, then its rows are folded or zeroed, in ascending order
//   4. hot rows   rows with more than 512 occurrences are folded in chunks of 512 by all threads, then the chunk sums
//
// A bucket has one owner and a row one writer, so there are no atomics on data, and nothing about the result depends on
// which thread does what.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "core/dtype.h"
#include "core/layout.h"
#include "cpu/embedding.h"
#include "cpu/indices.h"
#include "cpu/rows_simd.h"
#include "cpu/threads.h"
#include "hwy/cache_control.h"
#include "ops/embedding_backward.h"
#include "ops/indices.h"

namespace onehot::cpu {
namespace {

// Occurrences folded into one sum before sums are folded: the order promised in onehot/embedding.h.
constexpr std::int64_t kChunk = 512;

// Buckets: enough that a bucket of a common large table (2^18 rows) has 256 rows, whose counters are 1 KiB; few enough
// that the lines a partition writes to (64 KiB) stay in L2.
constexpr std::int64_t kMaxBuckets = 1024;

// Rows of a bucket whose counters a thread keeps on its stack, 4 KiB. Only tables above 2^20 rows have larger buckets.
constexpr std::int64_t kStackRows = 1024;

// Blocks of positions are the unit of the first two phases, so at most as many threads share those. A block of 8192
// takes some 10 us, ten times the cost of a parallel region.
constexpr std::int64_t kMaxBlocks = 64;
constexpr std::int64_t kMinBlock = 8192;

// Tasks of the third phase: several for each of many threads, so that unequal ones even out; each at least a few
// microseconds of work, so that handing them out costs nothing.
constexpr std::int64_t kMaxTasks = 512;
constexpr std::int64_t kMinTaskBytes = 128 << 10;

// Bytes of gradient to have on the way: the latency of memory (100 ns) times what one core draws (some 30 GB/s) is 3
// KB.
constexpr std::int64_t kPrefetchBytes = 8 << 10;

// Outputs above this go past the caches: they would not stay there, and an ordinary store reads the line first.
constexpr std::int64_t kStreamBytes = 4 << 20;

// Columns of a row that are folded on the stack before they are spread to an output with strided columns.
constexpr std::int64_t kSpreadColumns = 512;

// Index is uint32_t where N and V allow it, else uint64_t.
template <class Index>
class Grouped final : public PlanBody {
 public:
  Grouped(const EmbeddingBackward& op, Isa isa)
      : op_(op),
        kernels_(RowKernelsFor(isa)),
        N_(op.N()),
        V_(op.V()),
        D_(op.D()),
        padding_(PaddingRow(op).value_or(-1)),
        index_positions_(Flatten(op.indices, op.indices.rank)),
        grad_positions_(Flatten(op.grad, op.grad.rank - 1)),
        grad_size_(SizeOf(op.grad.dtype)),
        out_size_(SizeOf(op.out.dtype)),
        sum_dtype_(op.grad.dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        fold_(kernels_.fold(op.grad.dtype, op.out.dtype)) {
    const std::int64_t target = std::clamp<std::int64_t>(N_ / 8, 16, kMaxBuckets);
    while ((V_ - 1) >> shift_ >= target) ++shift_;
    buckets_ = V_ == 0 ? 0 : ((V_ - 1) >> shift_) + 1;
    blocks_ = std::clamp<std::int64_t>(N_ / kMinBlock, 1, kMaxBlocks);
    block_ = (N_ + blocks_ - 1) / blocks_;

    rows_ = layout_.Book<Index>(N_);
    if (shift_ > 0) {
      entries_ = layout_.Book<Entry>(N_);
      if (bucket_rows() > kStackRows) counters_ = layout_.Book<Index>(buckets_ * CounterCount());
    } else {
      sorted_ = layout_.Book<Index>(N_);
    }
    histogram_ = layout_.Book<Index>(blocks_ * buckets_);
    bucket_begin_ = layout_.Book<Index>(buckets_ + 1);
    bad_ = layout_.Book<std::int64_t>(blocks_);
    tasks_ = layout_.Book<std::int64_t>(kMaxTasks + 1);
    if (N_ > kChunk) {
      // A row with n > 512 occurrences has fewer than n / 512 + 1 chunks, and at most N / 513 rows are so hot.
      const std::int64_t hot = N_ / (kChunk + 1), slots = N_ / kChunk + hot;
      hot_ = layout_.Book<HotRow>(hot);
      slot_owner_ = layout_.Book<Index>(slots);
      slot_rows_ = layout_.Book<const std::byte*>(slots);
      sums_ = layout_.Book<std::byte>(slots * sum_bytes());
    }
    if (op.grad.stride(-1) != 1 && D_ > 1) packed_ = layout_.Book<std::byte>(N_ * D_ * grad_size_);

    dense_columns_ = op.out.stride(1) == 1 || D_ <= 1;
    dense_ = dense_columns_ && (op.out.stride(0) == D_ || V_ <= 1);
    const bool aligned = reinterpret_cast<std::uintptr_t>(op.out.data) % kStreamAlign == 0 &&
                         D_ * out_size_ % kStreamAlign == 0 && op.out.stride(0) * out_size_ % kStreamAlign == 0;
    stream_zeros_ = V_ * D_ * out_size_ > kStreamBytes;
    stream_rows_ = stream_zeros_ && dense_columns_ && aligned && !op.accumulate;
    prefetch_rows_ = std::clamp<std::int64_t>(kPrefetchBytes / std::max<std::int64_t>(D_ * grad_size_, 1), 1, 64);
  }

  std::string_view instruction_set() const override { return kernels_.target; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t bytes = N_ * (D_ * grad_size_ + SizeOf(op_.indices.dtype)) + V_ * D_ * out_size_;
    const int threads = ThreadsFor(bytes, options.threads);
    Progress progress(options, N_ * position_cost() + V_ * row_cost());
    if (Status bad = ReadRows(scratch, threads); !bad.ok()) return bad;
    if (V_ == 0) return Status::Ok();
    Partition(scratch, threads);
    const Rows grad = PackGrad(scratch, threads);
    HotCount hot;
    WriteRows(scratch, grad, threads, hot, progress);
    FoldHotRows(scratch, grad, threads, hot, progress);
    if (progress.stopped()) return Status::Error(Code::kCancelled, "cancelled: out is undefined");
    return Status::Ok();
  }

 private:
  struct Entry {
    Index row, position;
  };
  // Occurrences are order[begin .. begin + count); chunk sums start at `slot`.
  struct HotRow {
    Index row, begin, count, slot;
  };
  struct HotCount {
    std::atomic<std::int64_t> rows{0}, slots{0};
  };
  // The gradient with its columns side by side: position i lies at base + At(i).
  struct Rows {
    const std::byte* base;
    const Positions* positions;  // null if `stride` says it all
    std::int64_t stride, size;   // bytes from a position to the next; of an element

    const std::byte* operator[](std::int64_t i) const {
      return base + (positions == nullptr ? i * stride : positions->Offset(i) * size);
    }
  };

  std::int64_t bucket_rows() const { return std::int64_t{1} << shift_; }
  std::int64_t CounterCount() const { return (bucket_rows() + 63) / 64 * 64; }
  std::int64_t sum_bytes() const { return D_ * SizeOf(sum_dtype_); }
  std::int64_t position_cost() const { return D_ * grad_size_ + 1; }
  std::int64_t row_cost() const { return D_ * out_size_ + 1; }

  // Positions sorted by row, those of a row ascending. Once partitioned, the row numbers are of no use any more.
  std::span<Index> Order(Scratch scratch) const { return scratch.Get(shift_ > 0 ? rows_ : sorted_); }

  Status ReadRows(Scratch scratch, int threads) const {
    Index* const rows = scratch.Get(rows_).data();
    Index* const histogram = scratch.Get(histogram_).data();
    const auto bad = scratch.Get(bad_);
    ParallelFor(threads, blocks_, [&](std::int64_t b) {
      const std::int64_t begin = std::min(b * block_, N_), end = std::min(begin + block_, N_);
      bad[b] = LoadRows(op_.indices, index_positions_, V_, begin, end, rows + begin);
      if (bad[b] >= 0) return;
      Index* const count = histogram + b * buckets_;
      std::fill_n(count, buckets_, Index{0});
      for (std::int64_t i = begin; i < end; ++i) ++count[rows[i] >> shift_];
    });
    for (const std::int64_t position : bad)  // blocks ascend, so the first one found is the smallest
      if (position >= 0) return BadIndex("indices", op_.indices, position, V_);
    return Status::Ok();
  }

  void Partition(Scratch scratch, int threads) const {
    const Index* const rows = scratch.Get(rows_).data();
    Index* const histogram = scratch.Get(histogram_).data();
    const auto bucket_begin = scratch.Get(bucket_begin_);
    Index sum = 0;
    for (std::int64_t k = 0; k < buckets_; ++k) {
      bucket_begin[k] = sum;
      for (std::int64_t b = 0; b < blocks_; ++b) {
        Index& count = histogram[b * buckets_ + k];
        sum += std::exchange(count, sum);
      }
    }
    bucket_begin[buckets_] = sum;
    ParallelFor(threads, blocks_, [&](std::int64_t b) {
      const std::int64_t begin = std::min(b * block_, N_), end = std::min(begin + block_, N_);
      Index* const at = histogram + b * buckets_;
      if (shift_ > 0) {
        Entry* const entries = scratch.Get(entries_).data();
        for (std::int64_t i = begin; i < end; ++i) entries[at[rows[i] >> shift_]++] = {rows[i], static_cast<Index>(i)};
      } else {
        Index* const sorted = scratch.Get(sorted_).data();
        for (std::int64_t i = begin; i < end; ++i) sorted[at[rows[i]]++] = static_cast<Index>(i);
      }
    });
  }

  // Columns that do not lie side by side are copied so that they do; everything else is read in place.
  Rows PackGrad(Scratch scratch, int threads) const {
    const auto* const source = static_cast<const std::byte*>(op_.grad.data);
    if (packed_.count == 0)
      return {source, grad_positions_.uniform() ? nullptr : &grad_positions_, grad_positions_.stride() * grad_size_,
              grad_size_};
    std::byte* const packed = scratch.Get(packed_).data();
    const std::int64_t row_bytes = D_ * grad_size_;
    ForDType(GradientTypes{}, op_.grad.dtype, [&]<class G>() {
      // Tiles of 64 positions x 64 columns: 16 KiB of f32 on each side, so whichever of the two axes is the dense one,
      // its lines are used whole while they are in L1.
      constexpr std::int64_t kTile = 64;
      const std::int64_t step = op_.grad.stride(-1);
      ParallelFor(threads, (N_ + kTile - 1) / kTile, [&](std::int64_t tile) {
        const std::int64_t begin = tile * kTile, end = std::min(begin + kTile, N_);
        std::array<const G*, kTile> from;
        for (std::int64_t i = begin; i < end; ++i)
          from[static_cast<std::size_t>(i - begin)] = reinterpret_cast<const G*>(source) + grad_positions_.Offset(i);
        for (std::int64_t left = 0; left < D_; left += kTile) {
          const std::int64_t right = std::min(left + kTile, D_);
          for (std::int64_t i = begin; i < end; ++i) {
            G* const to = reinterpret_cast<G*>(packed + i * row_bytes);
            const G* const row = from[static_cast<std::size_t>(i - begin)];
            for (std::int64_t c = left; c < right; ++c) to[c] = row[c * step];
          }
        }
      });
    });
    return {packed, nullptr, row_bytes, grad_size_};
  }

  // Cuts the buckets into tasks of about equal cost, the bytes they read and write.
  std::int64_t CutTasks(Scratch scratch) const {
    const auto bucket_begin = scratch.Get(bucket_begin_);
    const auto tasks = scratch.Get(tasks_);
    const std::int64_t total = N_ * position_cost() + V_ * row_cost();
    const std::int64_t share = std::max(total / (kMaxTasks - 1), kMinTaskBytes);
    std::int64_t count = 0, cost = 0;
    tasks[0] = 0;
    for (std::int64_t k = 0; k < buckets_; ++k) {
      const auto positions = static_cast<std::int64_t>(bucket_begin[k + 1] - bucket_begin[k]);
      const std::int64_t rows = std::min(V_, (k + 1) << shift_) - (k << shift_);
      cost += positions * position_cost() + rows * row_cost();
      if (cost >= share || k + 1 == buckets_) {
        tasks[++count] = k + 1;
        cost = 0;
      }
    }
    return count;
  }

  void WriteRows(Scratch scratch, const Rows& grad, int threads, HotCount& hot, Progress& progress) const {
    const auto bucket_begin = scratch.Get(bucket_begin_);
    const auto tasks = scratch.Get(tasks_);
    ParallelFor(threads, CutTasks(scratch), [&](std::int64_t t) {
      if (progress.stopped()) return;
      Writer writer{*this, scratch, grad, hot, tasks[t] << shift_};
      for (std::int64_t k = tasks[t]; k < tasks[t + 1]; ++k) {
        if (shift_ == 0) {
          writer.Row(k, bucket_begin[k], bucket_begin[k + 1], bucket_begin[tasks[t + 1]]);
        } else if (bucket_begin[k] != bucket_begin[k + 1]) {
          SortBucket(scratch, k, writer);
        }
      }
      const std::int64_t last = std::min(V_, tasks[t + 1] << shift_);
      writer.Finish(last);
      hwy::FlushStream();
      progress.Advance(static_cast<std::int64_t>(bucket_begin[tasks[t + 1]] - bucket_begin[tasks[t]]) *
                           position_cost() +
                       (last - (tasks[t] << shift_)) * row_cost());
    });
  }

  // Writes rows in ascending order; what lies between them is zeroed.
  struct Writer {
    const Grouped& plan;
    Scratch scratch;
    const Rows& grad;
    HotCount& hot;
    std::int64_t next;  // the first row not written yet
    std::int64_t fetched = 0;

    // Occurrences order[begin .. end) of row v; the bucket's end at `limit`, for looking ahead.
    void Row(std::int64_t v, std::int64_t begin, std::int64_t end, std::int64_t limit) {
      const Index* const order = plan.Order(scratch).data();
      if (begin == end) return;
      for (fetched = std::max(fetched, begin); fetched < std::min(end + plan.prefetch_rows_, limit); ++fetched)
        plan.Prefetch(grad[order[fetched]]);
      const std::int64_t count = end - begin;
      Finish(v);
      next = v + 1;
      plan.WriteCounts(v, v + 1, count);
      if (v == plan.padding_) {
        if (!plan.op_.accumulate) plan.ZeroRows(v, v + 1);
      } else if (count > kChunk) {
        plan.NoteHotRow(scratch, v, begin, count, hot);
      } else {
        std::array<const std::byte*, kChunk> rows;
        for (std::int64_t i = 0; i < count; ++i) rows[static_cast<std::size_t>(i)] = grad[order[begin + i]];
        plan.FoldInto(v, plan.fold_, rows.data(), count, count);
      }
    }

    // Rows up to `end` are not named.
    void Finish(std::int64_t end) {
      if (next == end) return;
      plan.WriteCounts(next, end, 0);
      if (!plan.op_.accumulate) plan.ZeroRows(next, end);
      next = end;
    }
  };

  void SortBucket(Scratch scratch, std::int64_t k, Writer& writer) const {
    const auto bucket_begin = scratch.Get(bucket_begin_);
    const auto begin = static_cast<std::int64_t>(bucket_begin[k]), end = static_cast<std::int64_t>(bucket_begin[k + 1]);
    const std::int64_t first_row = k << shift_;
    const Entry* const entries = scratch.Get(entries_).data();
    Index* const order = Order(scratch).data() + begin;
    alignas(kStreamAlign) std::array<Index, kStackRows> stack;
    Index* const counters = counters_.count == 0 ? stack.data() : scratch.Get(counters_).data() + k * CounterCount();

    std::fill_n(counters, CounterCount(), Index{0});
    for (std::int64_t i = begin; i < end; ++i) ++counters[entries[i].row - first_row];
    Index place = 0;  // from counts to where each row starts
    ForEachNamed(counters, [&](std::int64_t r) { place += std::exchange(counters[r], place); });
    for (std::int64_t i = begin; i < end; ++i) order[counters[entries[i].row - first_row]++] = entries[i].position;
    std::int64_t from = begin;  // each counter has moved on to where its row ends
    ForEachNamed(counters, [&](std::int64_t r) {
      const std::int64_t to = begin + static_cast<std::int64_t>(counters[r]);
      writer.Row(first_row + r, from, to, end);
      from = to;
    });
  }

  // Calls visit(r) for the rows of a bucket whose counter is not zero, in ascending order. `visit` may change counter
  // r.
  template <class F>
  void ForEachNamed(const Index* counters, F&& visit) const {
    for (std::int64_t r = 0; r < CounterCount(); r += 64) {
      std::uint64_t named = 0;
      if constexpr (sizeof(Index) == 4) {
        named = kernels_.nonzero64(counters + r);
      } else {
        for (int j = 0; j < 64; ++j) named |= std::uint64_t{counters[r + j] != 0} << j;
      }
      for (; named != 0; named &= named - 1) visit(r + std::countr_zero(named));
    }
  }

  void NoteHotRow(Scratch scratch, std::int64_t v, std::int64_t begin, std::int64_t count, HotCount& hot) const {
    const std::int64_t chunks = (count + kChunk - 1) / kChunk;
    const std::int64_t place = hot.rows.fetch_add(1), slot = hot.slots.fetch_add(chunks);
    scratch.Get(hot_)[place] = {static_cast<Index>(v), static_cast<Index>(begin), static_cast<Index>(count),
                                static_cast<Index>(slot)};
    std::fill_n(scratch.Get(slot_owner_).data() + slot, chunks, static_cast<Index>(place));
  }

  void FoldHotRows(Scratch scratch, const Rows& grad, int threads, HotCount& found, Progress& progress) const {
    if (found.rows == 0) return;
    const Index* const order = Order(scratch).data();
    const auto hot = scratch.Get(hot_);
    const auto owner = scratch.Get(slot_owner_);
    const auto slot_rows = scratch.Get(slot_rows_);
    std::byte* const sums = scratch.Get(sums_).data();
    const FoldFunction fold_chunk = kernels_.fold(op_.grad.dtype, sum_dtype_);
    const FoldFunction fold_sums = kernels_.fold(sum_dtype_, op_.out.dtype);
    ParallelFor(threads, found.slots, [&](std::int64_t slot) {
      if (progress.stopped()) return;
      const HotRow& row = hot[owner[slot]];
      const std::int64_t offset = (slot - static_cast<std::int64_t>(row.slot)) * kChunk;
      const std::int64_t count = std::min(kChunk, static_cast<std::int64_t>(row.count) - offset);
      std::array<const std::byte*, kChunk> rows;
      for (std::int64_t i = 0; i < count; ++i)
        rows[static_cast<std::size_t>(i)] = grad[order[static_cast<std::int64_t>(row.begin) + offset + i]];
      std::byte* const sum = sums + slot * sum_bytes();
      slot_rows[slot] = sum;
      fold_chunk({.rows = rows.data(), .count = count, .columns = D_, .out = sum});
    });
    if (progress.stopped()) return;
    ParallelFor(threads, found.rows, [&](std::int64_t place) {
      const HotRow& row = hot[place];
      const auto count = static_cast<std::int64_t>(row.count);
      FoldInto(static_cast<std::int64_t>(row.row), fold_sums, &slot_rows[row.slot], (count + kChunk - 1) / kChunk,
               count);
    });
    hwy::FlushStream();
  }

  // Row v of out from `terms` rows; `count` is how often v is named.
  void FoldInto(std::int64_t v, FoldFunction fold, const std::byte* const* rows, std::int64_t terms,
                std::int64_t count) const {
    std::byte* const out = static_cast<std::byte*>(op_.out.data) + v * op_.out.stride(0) * out_size_;
    FoldTask task{.rows = rows,
                  .count = terms,
                  .columns = D_,
                  .out = out,
                  .divisor = op_.scale_grad_by_freq ? static_cast<double>(count) : 1.0,
                  .accumulate = op_.accumulate,
                  .stream = stream_rows_};
    if (dense_columns_) return fold(task);
    alignas(kStreamAlign) std::array<std::byte, kSpreadColumns * sizeof(double)> dense;
    const std::int64_t step = op_.out.stride(1) * out_size_;
    task.out = dense.data();
    for (task.first = 0; task.first < D_; task.first += kSpreadColumns) {
      task.columns = std::min(kSpreadColumns, D_ - task.first);
      std::byte* const spread = out + task.first * step;
      if (op_.accumulate)
        for (std::int64_t c = 0; c < task.columns; ++c) CopyElement(spread + c * step, dense.data() + c * out_size_);
      fold(task);
      for (std::int64_t c = 0; c < task.columns; ++c) CopyElement(dense.data() + c * out_size_, spread + c * step);
    }
  }

  void CopyElement(const std::byte* from, std::byte* to) const {
    std::memcpy(to, from, static_cast<std::size_t>(out_size_));
  }

  void ZeroRows(std::int64_t begin, std::int64_t end) const {
    std::byte* const out = static_cast<std::byte*>(op_.out.data);
    const std::int64_t row_stride = op_.out.stride(0) * out_size_, row_bytes = D_ * out_size_;
    const auto zero = stream_zeros_ ? kernels_.zero_stream : kernels_.zero;
    if (dense_) return zero(out + begin * row_bytes, (end - begin) * row_bytes);
    for (std::int64_t v = begin; v < end; ++v) {
      if (dense_columns_) {
        zero(out + v * row_stride, row_bytes);
      } else {
        for (std::int64_t c = 0; c < D_; ++c)
          std::memset(out + v * row_stride + c * op_.out.stride(1) * out_size_, 0, static_cast<std::size_t>(out_size_));
      }
    }
  }

  void WriteCounts(std::int64_t begin, std::int64_t end, std::int64_t count) const {
    if (!op_.counts) return;
    auto* const counts = static_cast<std::int64_t*>(op_.counts->data);
    for (std::int64_t v = begin; v < end; ++v) counts[v * op_.counts->stride(0)] = count;
  }

  void Prefetch(const std::byte* row) const {
    for (std::int64_t at = 0; at < D_ * grad_size_; at += kStreamAlign) hwy::Prefetch(row + at);
  }

  const EmbeddingBackward op_;
  const RowKernels kernels_;
  const std::int64_t N_, V_, D_, padding_;
  const Positions index_positions_, grad_positions_;
  const std::int64_t grad_size_, out_size_;
  const DType sum_dtype_;
  FoldFunction fold_;

  int shift_ = 0;
  std::int64_t buckets_, blocks_, block_;
  bool dense_columns_, dense_, stream_zeros_, stream_rows_;
  std::int64_t prefetch_rows_;

  Piece<Index> rows_, sorted_, histogram_, bucket_begin_, counters_, slot_owner_;
  Piece<Entry> entries_;
  Piece<std::int64_t> bad_, tasks_;
  Piece<HotRow> hot_;
  Piece<const std::byte*> slot_rows_;
  Piece<std::byte> sums_, packed_;
};

}  // namespace

std::string_view RefuseGrouped(const EmbeddingBackward&) {
  return "";
}

std::unique_ptr<PlanBody> PlanGrouped(const EmbeddingBackward& op, Isa isa) {
  constexpr std::int64_t kNarrow = std::int64_t{1} << 32;
  if (op.N() < kNarrow && op.V() < kNarrow) return std::make_unique<Grouped<std::uint32_t>>(op, isa);
  return std::make_unique<Grouped<std::uint64_t>>(op, isa);
}

}  // namespace onehot::cpu
