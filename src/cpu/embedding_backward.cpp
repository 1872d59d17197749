// Embedding backward: bring together the positions that name nearby rows, then write each row of the output once.
//
//   1. read     indices are read once and checked (cpu/partition.h)
//   2. move     positions go to buckets, runs of 2^shift rows, in position order
//   3. buckets  each bucket's rows are summed and written in ascending order, and what lies between them is zeroed;
//   narrow
//               rows and wide rows each in their own way
//   4. hot rows of sorted buckets are folded in chunks of 512 occurrences by all threads
//
// A bucket has one owner and a row one writer, so there are no atomics on data, and nothing about the result depends on
// which thread does what, or on which of the two ways a bucket takes.
#include <algorithm>
#include <memory>
#include <type_traits>

#include "core/dtype.h"
#include "cpu/embedding.h"
#include "cpu/embedding_backward_narrow.h"
#include "cpu/embedding_backward_parts.h"
#include "cpu/embedding_backward_wide.h"
#include "cpu/partition.h"

namespace onehot::cpu {
namespace {

// Buckets: enough that a bucket of a common large table (2^18 rows) has 256 rows, whose counters are 1 KiB; few enough
// that the lines a move writes to (64 KiB) stay in L2.
constexpr std::int64_t kMaxBuckets = 1024;

// Tasks of the third phase: several for each of many threads, so that unequal ones even out; each at least a few
// microseconds of work, so that handing them out costs nothing.
constexpr std::int64_t kMaxTasks = 512;
constexpr std::int64_t kMinTaskBytes = 128 << 10;

int CeilLog2(std::int64_t n) {
  int log = 0;
  while (std::int64_t{1} << log < n) ++log;
  return log;
}

// Bucket size where buckets are sorted: some 512 positions in each, since looking ahead for prefetching ends with the
// bucket; rows whose counters fit a stack; and, for many threads, at least 16 buckets.
int SortShift(const BackwardShape& shape) {
  const std::int64_t wanted = std::max(shape.N / 512, shape.V / kStackRows);
  const std::int64_t most = std::clamp<std::int64_t>(wanted, 16, kMaxBuckets);
  int shift = 0;
  while ((shape.V - 1) >> shift >= most) ++shift;
  return shift;
}

// Index is uint32_t where N and V allow it, else uint64_t. Only the former has the loops for narrow rows.
template <class Index>
class Grouped final : public PlanBody {
  static constexpr bool kHasNarrow = std::is_same_v<Index, std::uint32_t>;
  struct NoNarrowRows {
    NoNarrowRows(const BackwardShape&, const NarrowRowKernels&, const HotRows<Index>&, ScratchLayout&) {}
  };
  using Narrow = std::conditional_t<kHasNarrow, NarrowRows, NoNarrowRows>;

 public:
  Grouped(const EmbeddingBackward& op, Isa isa)
      : shape_{op, RowKernelsFor(isa)},
        narrow_rows_(kHasNarrow && NarrowRows::Takes(shape_)),
        sort_shift_(SortShift(shape_)),
        partition_(shape_.op.indices, shape_.V, std::min(shape_.V, kMaxBuckets), layout_),
        hot_(shape_, layout_),
        narrow_(shape_, NarrowRowKernelsFor(isa), hot_, layout_),
        wide_(shape_, partition_, hot_, MaxShift(), layout_) {
    tasks_ = layout_.Book<std::int64_t>(kMaxTasks + 1);
    if (!shape_.dense_grad) packed_ = layout_.Book<std::byte>(shape_.N * shape_.D * shape_.grad_size);
  }

  std::string_view instruction_set() const override { return shape_.kernels.target; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t work = shape_.N * shape_.position_cost() + shape_.V * shape_.row_cost();
    int threads = ThreadsFor(work, options.threads);
    int shift = -1;
    bool whole_table = false;
    if constexpr (kHasNarrow) {
      if (narrow_rows_) {
        whole_table = narrow_.WholeTable(threads);
        shift = whole_table ? CeilLog2(shape_.V) : narrow_.Shift(threads, kMaxBuckets);
        if (shift >= 0 && !whole_table) threads = narrow_.Threads(threads, shift);
      }
    }
    const bool narrow = shift >= 0;
    if (!narrow) shift = sort_shift_;

    TouchScratch(scratch, scratch_bytes(), threads);
    if (Status bad = partition_.Read(scratch, shift, threads); !bad.ok()) return bad;
    if (shape_.V == 0) return Status::Ok();
    Progress progress(options, work);
    BackwardJob job{scratch, progress, shift, threads};
    job.grad = PackGrad(scratch, threads);
    if (whole_table) {
      if constexpr (kHasNarrow) narrow_.Table(job, partition_.Rows(scratch));
    } else if (narrow) {
      if constexpr (kHasNarrow) WriteNarrow(job);
    } else {
      partition_.Move(scratch, shift, threads);
      ForBucketRuns(job, [&](std::int64_t first, std::int64_t last, int) {
        typename WideRows<Index>::Writer writer(wide_, job, first << shift);
        for (std::int64_t k = first; k < last; ++k) wide_.Bucket(job, k, writer);
        writer.SkipTo(std::min(shape_.V, last << shift));
      });
    }
    hot_.Fold(job, wide_.Order(job));
    hwy::FlushStream();
    progress.Advance(0, 0);  // this thread may have had no task of its own
    if (progress.stopped()) return Status::Error(Code::kCancelled, "cancelled: out is undefined");
    return Status::Ok();
  }

 private:
  int MaxShift() const {
    if constexpr (kHasNarrow) {
      if (narrow_rows_) return std::max(sort_shift_, narrow_.max_shift());
    }
    return sort_shift_;
  }

  void WriteNarrow(BackwardJob& job) const {
    partition_.Move(job.scratch, job.shift, job.threads);
    const Index* const begin = partition_.Begin(job.scratch);
    // A bucket this crowded would keep one thread busy while the others have run out; sorted, all can share it.
    const std::int64_t crowded =
        job.threads == 1 ? shape_.N : std::max<std::int64_t>(shape_.N / (8 * job.threads), 8192);
    ForBucketRuns(job, [&](std::int64_t first_bucket, std::int64_t last_bucket, int thread) {
      for (std::int64_t k = first_bucket; k < last_bucket; ++k) {
        const auto count = static_cast<std::int64_t>(begin[k + 1] - begin[k]);
        const std::int64_t first = k << job.shift, end = std::min(shape_.V, (k + 1) << job.shift);
        if (count > 0 && count <= crowded) {
          narrow_.Bucket(job, first, end, partition_.Entries(job.scratch) + begin[k], count,
                         static_cast<std::int64_t>(begin[last_bucket] - begin[k + 1]), thread);
        } else {
          typename WideRows<Index>::Writer writer(wide_, job, first);
          wide_.Bucket(job, k, writer);
          writer.SkipTo(end);
        }
      }
    });
  }

  // Calls work(first bucket, last bucket, thread) for runs of buckets of about equal cost, the bytes they read and
  // write.
  template <class F>
  void ForBucketRuns(BackwardJob& job, F&& work) const {
    const Index* const begin = partition_.Begin(job.scratch);
    std::int64_t* const runs = job.scratch.Get(tasks_).data();
    const std::int64_t buckets = partition_.Buckets(job.shift);
    const auto cost_of = [&](std::int64_t first, std::int64_t last) {
      return static_cast<std::int64_t>(begin[last] - begin[first]) * shape_.position_cost() +
             (std::min(shape_.V, last << job.shift) - (first << job.shift)) * shape_.row_cost();
    };
    const std::int64_t share = std::max(cost_of(0, buckets) / (kMaxTasks - 1), kMinTaskBytes);
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

  // Columns that do not lie side by side are copied so that they do; everything else is read in place.
  GradRows PackGrad(Scratch scratch, int threads) const {
    const Positions& at = shape_.grad_positions;
    const auto* const source = static_cast<const std::byte*>(shape_.op.grad.data);
    const std::int64_t size = shape_.grad_size, row_bytes = shape_.D * size;
    if (shape_.dense_grad) return {source, at.uniform() ? nullptr : &at, at.stride() * size, size};
    std::byte* const packed = scratch.Get(packed_).data();
    ForDType(GradientTypes{}, shape_.op.grad.dtype, [&]<class G>() {
      // Tiles of 64 positions x 64 columns: 16 KiB of f32 on each side, so whichever of the two axes is the dense one,
      // its lines are used whole while they are in L1.
      constexpr std::int64_t kTile = 64;
      const std::int64_t step = shape_.op.grad.stride(-1);
      ParallelFor(threads, (shape_.N + kTile - 1) / kTile, [&](std::int64_t tile, int) {
        const std::int64_t begin = tile * kTile, end = std::min(begin + kTile, shape_.N);
        for (std::int64_t left = 0; left < shape_.D; left += kTile) {
          const std::int64_t right = std::min(left + kTile, shape_.D);
          for (std::int64_t i = begin; i < end; ++i) {
            G* const to = reinterpret_cast<G*>(packed + i * row_bytes);
            const G* const row = reinterpret_cast<const G*>(source) + at.Offset(i);
            for (std::int64_t c = left; c < right; ++c) to[c] = row[c * step];
          }
        }
      });
    });
    return {packed, nullptr, row_bytes, size};
  }

  const BackwardShape shape_;
  const bool narrow_rows_;
  const int sort_shift_;
  const Partition<Index> partition_;
  const HotRows<Index> hot_;
  const Narrow narrow_;
  const WideRows<Index> wide_;
  Piece<std::int64_t> tasks_;
  Piece<std::byte> packed_;
};

}  // namespace

std::string_view RefuseGrouped(const EmbeddingBackward&, Isa) {
  return "";
}

std::unique_ptr<PlanBody> PlanGrouped(const EmbeddingBackward& op, Isa isa) {
  constexpr std::int64_t kShort = std::int64_t{1} << 32;
  if (op.N() < kShort && op.V() < kShort) return std::make_unique<Grouped<std::uint32_t>>(op, isa);
  return std::make_unique<Grouped<std::uint64_t>>(op, isa);
}

}  // namespace onehot::cpu
