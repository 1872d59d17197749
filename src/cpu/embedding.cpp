// Embedding forward: a gather of rows, at the speed of a copy.
#include "cpu/embedding.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "core/layout.h"
#include "cpu/cache.h"
#include "cpu/indices.h"
#include "cpu/rows_simd.h"
#include "cpu/threads.h"
#include "hwy/cache_control.h"
#include "ops/indices.h"

namespace onehot::cpu {
namespace {

// A task is some 256 KiB of output, which takes ten microseconds, ten times a parallel region; its row numbers stay in
// L1 between reading and gathering (4096 are 32 KiB).
constexpr std::int64_t kTaskBytes = 256 << 10;
constexpr std::int64_t kMaxBlock = 4096;

// Bytes of the table to have on the way: the latency of memory (100 ns) times what one core draws (some 30 GB/s) is 3
// KB; with slack for bursts.
constexpr std::int64_t kPrefetchBytes = 8 << 10;

class Gather final : public PlanBody {
 public:
  Gather(const Embedding& op, Isa isa)
      : op_(op),
        kernels_(RowKernelsFor(isa)),
        N_(op.N()),
        V_(op.V()),
        D_(op.D()),
        size_(SizeOf(op.weight.dtype)),
        index_positions_(Flatten(op.indices, op.indices.rank)),
        out_positions_(Flatten(op.out, op.out.rank - 1)),
        block_(std::clamp<std::int64_t>(kTaskBytes / std::max<std::int64_t>(D_ * size_, 1), 1, kMaxBlock)),
        blocks_((N_ + block_ - 1) / block_),
        dense_columns_(D_ <= 1 || (op.weight.stride(1) == 1 && op.out.stride(-1) == 1)) {
    rows_ = layout_.Book<std::uint64_t>(N_);
    bad_ = layout_.Book<std::int64_t>(blocks_);
    const std::int64_t row_bytes = D_ * size_;
    stream_ = PastCaches(std::min(N_, V_) * row_bytes, N_ * row_bytes) && row_bytes % kStreamAlign == 0 &&
              dense_columns_ && reinterpret_cast<std::uintptr_t>(op.out.data) % kStreamAlign == 0;
    for (int axis = 0; axis < out_positions_.rank; ++axis)
      stream_ = stream_ && out_positions_.strides[static_cast<std::size_t>(axis)] * size_ % kStreamAlign == 0;
    ahead_ = std::clamp<std::int64_t>(kPrefetchBytes / std::max<std::int64_t>(row_bytes, 1), 1, 64);
  }

  std::string_view instruction_set() const override { return kernels_.target; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t bytes = N_ * (2 * D_ * size_ + SizeOf(op_.indices.dtype));
    const int threads = ThreadsFor(bytes, options.threads);
    Progress progress(options, bytes);
    TouchScratch(scratch, scratch_bytes(), threads);
    std::uint64_t* const rows = scratch.Get(rows_).data();
    const auto bad = scratch.Get(bad_);
    ParallelFor(threads, blocks_, [&](std::int64_t b, int) {
      bad[b] =
          LoadRows(op_.indices, index_positions_, V_, b * block_, std::min((b + 1) * block_, N_), rows + b * block_);
    });
    for (const std::int64_t position : bad)
      if (position >= 0) return BadIndex("indices", op_.indices, position, V_);
    if (D_ == 0) return Status::Ok();  // there may be no memory behind the rows
    ParallelFor(threads, blocks_, [&](std::int64_t b, int thread) {
      if (progress.stopped()) return;
      const std::int64_t begin = b * block_, end = std::min(begin + block_, N_);
      GatherRows(rows, begin, end);
      hwy::FlushStream();
      progress.Advance((end - begin) * (2 * D_ * size_ + SizeOf(op_.indices.dtype)), thread);
    });
    if (progress.stopped()) return Status::Error(Code::kCancelled, "cancelled: out is undefined");
    return Status::Ok();
  }

 private:
  void GatherRows(const std::uint64_t* rows, std::int64_t begin, std::int64_t end) const {
    const std::int64_t row_bytes = D_ * size_;
    const std::int64_t weight_step = op_.weight.stride(1) * size_, out_step = op_.out.stride(-1) * size_;
    std::int64_t fetched = begin;
    for (std::int64_t i = begin; i < end; ++i) {
      for (; dense_columns_ && fetched < std::min(i + ahead_, end); ++fetched) {
        const std::byte* const row = Weight(rows[fetched]);
        for (std::int64_t at = 0; at < row_bytes; at += kStreamAlign) hwy::Prefetch(row + at);
        hwy::Prefetch(row + row_bytes - 1);  // the line more that a row off line boundaries has
      }
      const std::byte* const from = Weight(rows[i]);
      std::byte* const to = static_cast<std::byte*>(op_.out.data) + out_positions_.Offset(i) * size_;
      if (stream_) {
        kernels_.copy_stream(from, to, row_bytes);
      } else if (dense_columns_) {
        std::memcpy(to, from, static_cast<std::size_t>(row_bytes));
      } else {
        for (std::int64_t c = 0; c < D_; ++c)
          std::memcpy(to + c * out_step, from + c * weight_step, static_cast<std::size_t>(size_));
      }
    }
  }

  const std::byte* Weight(std::uint64_t row) const {
    return static_cast<const std::byte*>(op_.weight.data) +
           static_cast<std::int64_t>(row) * op_.weight.stride(0) * size_;
  }

  const Embedding op_;
  const RowKernels& kernels_;
  const std::int64_t N_, V_, D_, size_;
  const Positions index_positions_, out_positions_;
  const std::int64_t block_, blocks_;
  const bool dense_columns_;
  bool stream_;
  std::int64_t ahead_;
  Piece<std::uint64_t> rows_;
  Piece<std::int64_t> bad_;
};

}  // namespace

std::string_view RefuseGather(const Embedding&, Isa) {
  return "";
}

std::unique_ptr<PlanBody> PlanGather(const Embedding& op, Isa isa) {
  return std::make_unique<Gather>(op, isa);
}

}  // namespace onehot::cpu
