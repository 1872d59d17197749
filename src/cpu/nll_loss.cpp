// NLL loss: blocks of positions in parallel, their sums folded in order.
#include "cpu/nll_loss.h"

#include <algorithm>

#include "cpu/nll_forward_simd.h"
#include "cpu/ordered_sum.h"
#include "cpu/per_position.h"
#include "cpu/rows_simd.h"
#include "cpu/targets.h"
#include "ops/losses.h"

namespace onehot::cpu {
namespace {

class Blocks final : public PlanBody {
 public:
  Blocks(const NllLoss& op, Isa isa)
      : op_(op),
        kernels_(NllForwardKernelsFor(isa)),
        target_name_(RowKernelsFor(isa).target),
        N_(op.N()),
        C_(op.C()),
        blocks_(SumBlocks(N_)),
        input_at_(Flatten(WithoutAxis(op.input, op.ClassAxis()), op.input.rank - 1)),
        loss_at_(Flatten(op.loss, op.loss.rank)),
        token_weight_at_(op.token_weight ? Flatten(*op.token_weight, op.token_weight->rank) : Positions{}),
        targets_(op.target, C_, op.ignore_index, isa, layout_) {
    if (op.weight) weight_ = layout_.Book<double>(C_);
    if (op.reduction != Reduction::kNone) sums_ = layout_.Book<LossSums>(blocks_);
  }

  std::string_view instruction_set() const override { return target_name_; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t per_position = SizeOf(op_.target.dtype) + SizeOf(op_.input.dtype), bytes = N_ * per_position;
    const int threads = ThreadsFor(bytes, options.threads);
    TouchScratch(scratch, scratch_bytes(), threads);
    if (Status bad = targets_.Read(scratch, threads); !bad.ok()) return bad;

    const bool none = op_.reduction == Reduction::kNone;
    double* const weight = scratch.Get(weight_).data();
    if (op_.weight) LoadPositions(*op_.weight, Flatten(*op_.weight, 1), 0, C_, weight);
    LossSums* const sums = scratch.Get(sums_).data();
    Progress progress(options, bytes);
    ParallelFor(threads, blocks_, [&](std::int64_t b, int thread) {
      if (progress.stopped()) return;
      const std::int64_t begin = b * kSumBlock, count = std::min(kSumBlock, N_ - begin);
      double token_weight[kSumBlock];
      if (op_.token_weight) LoadPositions(*op_.token_weight, token_weight_at_, begin, count, token_weight);
      const LossTask task{.input = &op_.input,
                          .input_at = &input_at_,
                          .class_stride = op_.input.stride(op_.ClassAxis()),
                          .C = C_,
                          .begin = begin,
                          .count = count,
                          .classes = targets_.Classes(scratch) + begin * targets_.class_bytes(),
                          .class_bytes = targets_.class_bytes(),
                          .weight = op_.weight ? weight : nullptr,
                          .token_weight = op_.token_weight ? token_weight : nullptr};
      if (none) {
        double terms[kSumBlock];
        kernels_.terms(task, terms);
        StorePositions(op_.loss, loss_at_, begin, count, terms);
      } else {
        sums[b] = kernels_.sums(task);
      }
      progress.Advance(count * per_position, thread);
    });
    progress.Advance(0, 0);
    if (progress.stopped()) return Cancelled();

    LossSums total{0, 0, 0};
    for (std::int64_t b = 0; !none && b < blocks_; ++b) {
      total.loss += sums[b].loss;
      total.weight += sums[b].weight;
      total.counted += sums[b].counted;
    }
    if (op_.total_weight) StorePositions(*op_.total_weight, Positions{}, 0, 1, &total.weight);
    if (none) return Status::Ok();
    double loss = total.loss;
    if (op_.reduction == Reduction::kMean) {
      double denominator = total.weight;
      if (op_.denominator) LoadPositions(*op_.denominator, Positions{}, 0, 1, &denominator);
      loss = total.counted == 0 && op_.zero_if_empty ? 0.0 : loss / denominator;
    }
    StorePositions(op_.loss, Positions{}, 0, 1, &loss);
    return Status::Ok();
  }

 private:
  const NllLoss op_;
  const NllForwardKernels& kernels_;
  const std::string_view target_name_;
  const std::int64_t N_, C_, blocks_;
  const Positions input_at_, loss_at_, token_weight_at_;
  const Targets targets_;
  Piece<double> weight_;
  Piece<LossSums> sums_;
};

}  // namespace

std::string_view RefuseBlocks(const NllLoss& op, Isa) {
  return ClassBytes(op.C()) == 0 ? "more than 2^32 - 1 classes" : "";
}

std::unique_ptr<PlanBody> PlanBlocks(const NllLoss& op, Isa isa) {
  return std::make_unique<Blocks>(op, isa);
}

}  // namespace onehot::cpu
