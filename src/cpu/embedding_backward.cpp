// Embedding backward: bring together the positions that name nearby rows, then write each row of the output once.
//
//   1. read     indices are read once and checked (cpu/partition.h)
//   2. move     positions go to buckets, runs of 2^shift rows, in position order
//   3. buckets  each bucket's rows are summed and written in ascending order, and what lies between them is zeroed:
//                 narrow rows  are added up in position order, in sums that stay in L2: nothing is sorted
//                 wide rows    the bucket is sorted by row in cache, then each row is folded from registers
//   4. hot rows  of sorted buckets, those with more than 512 occurrences, are folded in chunks of 512 by all threads
//
// A bucket has one owner and a row one writer, so there are no atomics on data, and nothing about the result depends on
// which thread does what, or on which of the two ways a bucket takes.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <memory>
#include <utility>

#include "core/dtype.h"
#include "core/layout.h"
#include "cpu/embedding.h"
#include "cpu/output_rows.h"
#include "cpu/partition.h"
#include "cpu/rows_simd.h"
#include "cpu/threads.h"
#include "hwy/cache_control.h"
#include "ops/embedding_backward.h"

namespace onehot::cpu {
namespace {

// Occurrences folded into one sum before sums are folded: the order promised in onehot/embedding.h.
constexpr std::int64_t kChunk = 512;

// Buckets: enough that a bucket of a common large table (2^18 rows) has 256 rows, whose counters are 1 KiB; few enough
// that the lines a move writes to (64 KiB) stay in L2.
constexpr std::int64_t kMaxBuckets = 1024;

// Rows of a bucket whose counters a thread keeps on its stack while it sorts: 4 KiB.
constexpr std::int64_t kStackRows = 1024;

// A row is narrow up to this many bytes of sums. Wider ones are read at the speed of memory either way, and sorting,
// some 5 ns a position, is a small part of it.
constexpr std::int64_t kNarrowBytes = 512;

// Sums of one bucket: a quarter of the 1 MiB L2 of current server cores; the gradient streams through the rest. A table
// that fits into twice that needs no buckets at all on one thread.
constexpr std::int64_t kBucketSumBytes = 256 << 10;
constexpr std::int64_t kTableSumBytes = 512 << 10;

// Tasks of the third phase: several for each of many threads, so that unequal ones even out; each at least a few
// microseconds of work, so that handing them out costs nothing.
constexpr std::int64_t kMaxTasks = 512;
constexpr std::int64_t kMinTaskBytes = 128 << 10;

// Positions added between two looks at the progress callback, some 0.1 ms.
constexpr std::int64_t kPiece = 1 << 16;

int CeilLog2(std::int64_t n) {
  int log = 0;
  while (std::int64_t{1} << log < n) ++log;
  return log;
}

// The gradient with its columns side by side.
struct GradRows {
  const std::byte* base;
  const Positions* positions;  // null if `stride` says it all
  std::int64_t stride, size;   // bytes from a position to the next; of an element

  const std::byte* operator[](std::int64_t i) const {
    return base + (positions == nullptr ? i * stride : positions->Offset(i) * size);
  }
};

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
        grad_positions_(Flatten(op.grad, op.grad.rank - 1)),
        grad_size_(SizeOf(op.grad.dtype)),
        out_size_(SizeOf(op.out.dtype)),
        sum_dtype_(op.grad.dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        sum_bytes_(D_ * SizeOf(sum_dtype_)),
        out_(op_, kernels_),
        partition_(op.indices, V_, std::min(V_, kMaxBuckets), layout_),
        fold_(kernels_.fold(op.grad.dtype, op.out.dtype)),
        fold_sums_(kernels_.fold(sum_dtype_, op.out.dtype)),
        fold_chunk_(kernels_.fold(op.grad.dtype, sum_dtype_)) {
    const bool dense_grad = op.grad.stride(-1) == 1 || D_ <= 1;
    narrow_ = sizeof(Index) == sizeof(std::uint32_t) && dense_grad && grad_positions_.uniform() &&
              out_.dense_columns() && sum_bytes_ > 0 && sum_bytes_ <= kNarrowBytes;
    tasks_ = layout_.Book<std::int64_t>(kMaxTasks + 1);
    if (narrow_) {
      // Whole words of 64 counters; no more rows than there are.
      const std::int64_t fit = kBucketSumBytes / (sum_bytes_ + 8);
      max_sum_shift_ = 6;
      while (std::int64_t{2} << max_sum_shift_ <= fit) ++max_sum_shift_;
      while (max_sum_shift_ > 6 && V_ <= std::int64_t{1} << (max_sum_shift_ - 1)) --max_sum_shift_;
      const std::int64_t rows = std::int64_t{1} << max_sum_shift_;
      slots_ = std::clamp<std::int64_t>((V_ + rows - 1) / rows, 1, std::max(8, Processors()));
      bucket_sums_ = layout_.Book<std::byte>(slots_ * rows * sum_bytes_);
      bucket_counts_ = layout_.Book<std::uint32_t>(slots_ * rows);
      bucket_firsts_ = layout_.Book<std::uint32_t>(slots_ * rows);
    }
    if (V_ > kStackRows) {
      // Sorted buckets larger than a stack's worth: of tables above 2^20 rows, and crowded ones among the narrow.
      const int shift = std::max(SortShift(), narrow_ ? max_sum_shift_ : 0);
      if (std::int64_t{1} << shift > kStackRows)
        counters_ = layout_.Book<Index>(std::min(kMaxBuckets, partition_.Buckets(shift)) << shift);
    }
    if (N_ > kChunk) {
      // A row with n > 512 occurrences has fewer than n / 512 + 1 chunks, and at most N / 513 rows are so hot.
      const std::int64_t hot = N_ / (kChunk + 1), chunks = N_ / kChunk + hot;
      hot_ = layout_.Book<HotRow>(hot);
      chunk_owner_ = layout_.Book<Index>(chunks);
      chunk_rows_ = layout_.Book<const std::byte*>(chunks);
      chunk_sums_ = layout_.Book<std::byte>(chunks * sum_bytes_);
    }
    if (!dense_grad) packed_ = layout_.Book<std::byte>(N_ * D_ * grad_size_);
  }

  std::string_view instruction_set() const override { return kernels_.target; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t bytes = N_ * (D_ * grad_size_ + SizeOf(op_.indices.dtype)) + V_ * D_ * out_size_;
    const int threads = ThreadsFor(bytes, options.threads);
    Progress progress(options, N_ * position_cost() + V_ * row_cost());
    const int sum_threads = static_cast<int>(std::min<std::int64_t>(threads, slots_));
    const int sum_shift = narrow_ ? SumShift(sum_threads) : -1;
    const int shift = sum_shift >= 0 ? sum_shift : SortShift();
    if (Status bad = partition_.Read(scratch, shift, threads); !bad.ok()) return bad;
    if (V_ == 0) return Status::Ok();
    Job job{scratch, {}, {}, {}, progress, shift, threads};
    if (sum_shift >= 0 && partition_.Buckets(shift) == 1) {
      job.grad = {static_cast<const std::byte*>(op_.grad.data), nullptr, grad_positions_.stride() * grad_size_,
                  grad_size_};
      if constexpr (sizeof(Index) == sizeof(std::uint32_t))
        SumBucket(job, 0, V_, nullptr, partition_.Rows(scratch), N_, 0);
    } else {
      partition_.Move(scratch, shift, threads);
      job.grad = PackGrad(scratch, threads);
      if (sum_shift >= 0) {
        job.threads = sum_threads;
        SumBuckets(job);
      } else {
        SortBuckets(job);
      }
      FoldHotRows(job);
    }
    hwy::FlushStream();
    if (progress.stopped()) return Status::Error(Code::kCancelled, "cancelled: out is undefined");
    return Status::Ok();
  }

 private:
  using Entry = typename Partition<Index>::Entry;

  // Occurrences are order[begin .. begin + count), its chunks chunk, chunk + 1, ...
  struct HotRow {
    Index row, begin, count, chunk;
  };

  static constexpr Index kNoOwner = ~Index{0};  // a chunk sum that a narrow bucket keeps for itself

  // What one Run shares between its phases.
  struct Job {
    Scratch scratch;
    GradRows grad;
    std::atomic<std::int64_t> hot_rows, chunks;
    Progress& progress;
    int shift, threads;
  };

  std::int64_t position_cost() const { return D_ * grad_size_ + 1; }
  std::int64_t row_cost() const { return D_ * out_size_ + 1; }

  // Bucket sizes. Sorted buckets: as many as are useful for the positions there are.
  int SortShift() const {
    const std::int64_t target = std::clamp<std::int64_t>(N_ / 8, 16, kMaxBuckets);
    int shift = 0;
    while ((V_ - 1) >> shift >= target) ++shift;
    return shift;
  }

  // Summed buckets: as large as fits, but several for each thread. -1 if there would be too many.
  int SumShift(int threads) const {
    if (threads == 1 && V_ <= slots_ << max_sum_shift_ && V_ * (sum_bytes_ + 8) <= kTableSumBytes) return CeilLog2(V_);
    int shift = max_sum_shift_;
    while (threads > 1 && shift > 6 && V_ >> shift < 4 * threads) --shift;
    return partition_.Buckets(shift) <= kMaxBuckets ? shift : -1;
  }

  // Positions sorted by row, those of a row ascending. Once moved, the row numbers are of no use any more.
  Index* Order(Scratch scratch) const { return partition_.Rows(scratch); }

  // Columns that do not lie side by side are copied so that they do; everything else is read in place.
  GradRows PackGrad(Scratch scratch, int threads) const {
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
      ParallelFor(threads, (N_ + kTile - 1) / kTile, [&](std::int64_t tile, int) {
        const std::int64_t begin = tile * kTile, end = std::min(begin + kTile, N_);
        for (std::int64_t left = 0; left < D_; left += kTile) {
          const std::int64_t right = std::min(left + kTile, D_);
          for (std::int64_t i = begin; i < end; ++i) {
            G* const to = reinterpret_cast<G*>(packed + i * row_bytes);
            const G* const row = reinterpret_cast<const G*>(source) + grad_positions_.Offset(i);
            for (std::int64_t c = left; c < right; ++c) to[c] = row[c * step];
          }
        }
      });
    });
    return {packed, nullptr, row_bytes, grad_size_};
  }

  // Calls work(first bucket, last bucket, thread) for runs of buckets of about equal cost, the bytes they read and
  // write.
  template <class F>
  void ForBucketRuns(Job& job, F&& work) const {
    const Index* const begin = partition_.Begin(job.scratch);
    std::int64_t* const runs = job.scratch.Get(tasks_).data();
    const std::int64_t buckets = partition_.Buckets(job.shift);
    const std::int64_t total = N_ * position_cost() + V_ * row_cost();
    const std::int64_t share = std::max(total / (kMaxTasks - 1), kMinTaskBytes);
    const auto cost_of = [&](std::int64_t first, std::int64_t last) {
      return static_cast<std::int64_t>(begin[last] - begin[first]) * position_cost() +
             (std::min(V_, last << job.shift) - (first << job.shift)) * row_cost();
    };
    std::int64_t count = 0;
    runs[0] = 0;
    for (std::int64_t k = 1; k <= buckets; ++k)
      if (k == buckets || cost_of(runs[count], k) >= share) runs[++count] = k;
    ParallelFor(job.threads, count, [&](std::int64_t t, int thread) {
      if (job.progress.stopped()) return;
      work(runs[t], runs[t + 1], thread);
      hwy::FlushStream();
      job.progress.Advance(cost_of(runs[t], runs[t + 1]), thread);
    });
  }

  // ---- narrow rows

  void SumBuckets(Job& job) const {
    if constexpr (sizeof(Index) == sizeof(std::uint32_t)) {
      const Index* const begin = partition_.Begin(job.scratch);
      // A bucket this crowded would keep one thread busy while the others have run out; sorted, all can share it.
      const std::int64_t crowded = job.threads == 1 ? N_ : std::max<std::int64_t>(N_ / (8 * job.threads), 8192);
      ForBucketRuns(job, [&](std::int64_t first, std::int64_t last, int thread) {
        for (std::int64_t k = first; k < last; ++k) {
          const std::int64_t count = static_cast<std::int64_t>(begin[k + 1] - begin[k]);
          const std::int64_t row = k << job.shift, end = std::min(V_, (k + 1) << job.shift);
          if (count > crowded) {
            RowWriter writer(*this, job, row);
            SortBucket(job, k, writer);
            writer.SkipTo(end);
          } else if (count == 0) {
            out_.Count(row, end, 0);
            out_.Skip(row, end);
          } else {
            SumBucket(job, row, end, partition_.Entries(job.scratch) + begin[k], nullptr, count, thread);
          }
        }
      });
    }
  }

  // Rows [first, end) of the output from the positions that name them.
  void SumBucket(Job& job, std::int64_t first, std::int64_t end, const RowEntry* entries, const std::uint32_t* rows,
                 std::int64_t count, int thread) const {
    struct Context {
      const Grouped& plan;
      Job& job;
      std::int64_t first;
      std::uint32_t* firsts;
    };
    const std::int64_t offset = std::int64_t{thread} << max_sum_shift_;
    std::uint32_t* const counts = job.scratch.Get(bucket_counts_).data() + offset;
    std::uint32_t* const firsts = job.scratch.Get(bucket_firsts_).data() + offset;
    std::byte* const sums = job.scratch.Get(bucket_sums_).data() + offset * sum_bytes_;
    std::fill_n(counts, (end - first + 63) / 64 * 64, 0u);
    Context context{*this, job, first, firsts};
    SumTask task{.entries = entries,
                 .rows = rows,
                 .first_position = 0,
                 .count = count,
                 .first_row = static_cast<std::uint32_t>(first),
                 .grad = job.grad.base,
                 .grad_stride = job.grad.stride,
                 .columns = D_,
                 .counts = counts,
                 .firsts = firsts,
                 .sums = sums,
                 // The sum of a row's chunks so far is kept aside, and its place instead of the first occurrence, which
                 // only rows named once need.
                 .chunk_done =
                     [](void* opaque, std::uint32_t row, std::uint32_t occurrences, const std::byte* sum) {
                       const Context& c = *static_cast<Context*>(opaque);
                       if (occurrences == kChunk) {
                         c.firsts[row] = static_cast<std::uint32_t>(c.job.chunks.fetch_add(1));
                         c.job.scratch.Get(c.plan.chunk_owner_)[c.firsts[row]] = kNoOwner;
                         std::memcpy(c.plan.ChunkSum(c.job, c.firsts[row]), sum,
                                     static_cast<std::size_t>(c.plan.sum_bytes_));
                       } else {
                         std::byte* const total = c.plan.ChunkSum(c.job, c.firsts[row]);
                         const std::array<const std::byte*, 2> terms = {total, sum};
                         c.plan.kernels_.fold(c.plan.sum_dtype_, c.plan.sum_dtype_)(
                             {.rows = terms.data(), .count = 2, .columns = c.plan.D_, .out = total});
                       }
                     },
                 .context = &context};
    const auto add = kernels_.sum(op_.grad.dtype);
    if (entries == nullptr) {
      for (std::int64_t done = 0; done < count && !job.progress.stopped(); done += kPiece) {
        task.rows = rows + done;
        task.first_position = static_cast<std::uint32_t>(done);
        task.count = std::min(kPiece, count - done);
        add(task);
        job.progress.Advance(task.count * position_cost(), thread);
      }
    } else {
      add(task);
    }
    if (op_.counts)
      for (std::int64_t r = 0; r < end - first; ++r) out_.Count(first + r, first + r + 1, counts[r]);
    kernels_.finish(op_.grad.dtype, op_.out.dtype)(
        {.rows = end - first,
         .columns = D_,
         .counts = counts,
         .firsts = firsts,
         .sums = sums,
         .grad = job.grad.base,
         .grad_stride = job.grad.stride,
         .out = out_.Row(first),
         .out_stride = out_.row_stride(),
         .padding = padding_ >= first && padding_ < end ? padding_ - first : -1,
         .scale = op_.scale_grad_by_freq,
         .accumulate = op_.accumulate,
         .stream = out_.stream_rows(),
         .zero_stream = out_.stream_zeros(),
         .hot =
             [](void* opaque, std::int64_t row, std::uint32_t occurrences, const std::byte* sum) {
               const Context& c = *static_cast<Context*>(opaque);
               const std::array<const std::byte*, 2> terms = {c.plan.ChunkSum(c.job, c.firsts[row]), sum};
               c.plan.out_.Fold(c.first + row, c.plan.fold_sums_, terms.data(), 2, occurrences);
             },
         .context = &context});
  }

  std::byte* ChunkSum(Job& job, std::int64_t chunk) const {
    return job.scratch.Get(chunk_sums_).data() + chunk * sum_bytes_;
  }

  // ---- wide rows

  // Takes rows in ascending order; those between them get nothing.
  class RowWriter {
   public:
    RowWriter(const Grouped& plan, Job& job, std::int64_t first) : plan_(plan), job_(job), next_(first) {}

    // Occurrences order[begin .. end) of row v; order goes on to `limit`.
    void Write(std::int64_t v, std::int64_t begin, std::int64_t end, std::int64_t limit) {
      const Index* const order = plan_.Order(job_.scratch);
      const std::int64_t count = end - begin;
      SkipTo(v);
      next_ = v + 1;
      plan_.out_.Count(v, v + 1, count);
      if (v == plan_.padding_) return plan_.out_.Skip(v, v + 1);
      if (count > kChunk) return plan_.NoteHotRow(job_, v, begin, count);
      const std::int64_t ahead = std::min(kFoldAhead, limit - end);
      std::array<const std::byte*, kChunk + kFoldAhead> rows;
      for (std::int64_t i = 0; i < count + ahead; ++i) rows[static_cast<std::size_t>(i)] = job_.grad[order[begin + i]];
      plan_.out_.Fold(v, plan_.fold_, rows.data(), count, count, ahead);
    }

    void SkipTo(std::int64_t v) {
      plan_.out_.Count(next_, v, 0);
      plan_.out_.Skip(next_, v);
      next_ = v;
    }

   private:
    const Grouped& plan_;
    Job& job_;
    std::int64_t next_;  // the first row not dealt with
  };

  void SortBuckets(Job& job) const {
    ForBucketRuns(job, [&](std::int64_t first, std::int64_t last, int) {
      RowWriter writer(*this, job, first << job.shift);
      for (std::int64_t k = first; k < last; ++k) SortBucket(job, k, writer);
      writer.SkipTo(std::min(V_, last << job.shift));
    });
  }

  void SortBucket(Job& job, std::int64_t k, RowWriter& writer) const {
    const Index* const bucket_begin = partition_.Begin(job.scratch);
    const auto begin = static_cast<std::int64_t>(bucket_begin[k]), end = static_cast<std::int64_t>(bucket_begin[k + 1]);
    if (begin == end) return;
    const std::int64_t first_row = k << job.shift, bucket_rows = std::int64_t{1} << job.shift;
    const Entry* const entries = partition_.Entries(job.scratch);
    Index* const order = Order(job.scratch) + begin;

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

  // Calls visit(r) for the rows of a bucket whose counter is not zero, in ascending order. `visit` may change counter
  // r.
  template <class F>
  void ForEachNamed(const Index* counters, std::int64_t rows, F&& visit) const {
    for (std::int64_t r = 0; r < rows; r += 64) {
      std::uint64_t named = 0;
      if constexpr (sizeof(Index) == sizeof(std::uint32_t)) {
        named = kernels_.nonzero64(counters + r);
      } else {
        for (int j = 0; j < 64; ++j) named |= std::uint64_t{counters[r + j] != 0} << j;
      }
      for (; named != 0; named &= named - 1) visit(r + std::countr_zero(named));
    }
  }

  void NoteHotRow(Job& job, std::int64_t v, std::int64_t begin, std::int64_t count) const {
    const std::int64_t chunks = (count + kChunk - 1) / kChunk;
    const std::int64_t place = job.hot_rows.fetch_add(1), chunk = job.chunks.fetch_add(chunks);
    job.scratch.Get(hot_)[static_cast<std::size_t>(place)] = {static_cast<Index>(v), static_cast<Index>(begin),
                                                              static_cast<Index>(count), static_cast<Index>(chunk)};
    for (std::int64_t c = chunk; c < chunk + chunks; ++c)
      job.scratch.Get(chunk_owner_)[static_cast<std::size_t>(c)] = static_cast<Index>(place);
  }

  void FoldHotRows(Job& job) const {
    if (job.hot_rows == 0 || job.progress.stopped()) return;
    const Index* const order = Order(job.scratch);
    const HotRow* const hot = job.scratch.Get(hot_).data();
    const Index* const owner = job.scratch.Get(chunk_owner_).data();
    const std::byte** const chunk_rows = job.scratch.Get(chunk_rows_).data();
    const std::int64_t hot_rows = job.hot_rows;
    ParallelFor(job.threads, job.chunks, [&](std::int64_t chunk, int) {
      if (owner[chunk] == kNoOwner) return;
      const HotRow& row = hot[owner[chunk]];
      const std::int64_t offset = (chunk - static_cast<std::int64_t>(row.chunk)) * kChunk;
      const std::int64_t count = std::min(kChunk, static_cast<std::int64_t>(row.count) - offset);
      std::array<const std::byte*, kChunk> rows;
      for (std::int64_t i = 0; i < count; ++i)
        rows[static_cast<std::size_t>(i)] = job.grad[order[static_cast<std::int64_t>(row.begin) + offset + i]];
      chunk_rows[chunk] = ChunkSum(job, chunk);
      fold_chunk_({.rows = rows.data(), .count = count, .columns = D_, .out = ChunkSum(job, chunk)});
    });
    ParallelFor(job.threads, hot_rows, [&](std::int64_t place, int) {
      const HotRow& row = hot[place];
      const auto count = static_cast<std::int64_t>(row.count);
      out_.Fold(static_cast<std::int64_t>(row.row), fold_sums_, &chunk_rows[row.chunk], (count + kChunk - 1) / kChunk,
                count);
      hwy::FlushStream();
    });
  }

  const EmbeddingBackward op_;
  const RowKernels& kernels_;
  const std::int64_t N_, V_, D_, padding_;
  const Positions grad_positions_;
  const std::int64_t grad_size_, out_size_;
  const DType sum_dtype_;
  const std::int64_t sum_bytes_;
  const OutputRows out_;
  const Partition<Index> partition_;
  const FoldFunction fold_, fold_sums_, fold_chunk_;
  bool narrow_;
  int max_sum_shift_ = 0;
  std::int64_t slots_ = 1;

  Piece<std::int64_t> tasks_;
  Piece<std::byte> bucket_sums_, chunk_sums_, packed_;
  Piece<std::uint32_t> bucket_counts_, bucket_firsts_;
  Piece<Index> counters_, chunk_owner_;
  Piece<HotRow> hot_;
  Piece<const std::byte*> chunk_rows_;
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
