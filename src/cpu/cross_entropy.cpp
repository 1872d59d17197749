// Cross entropy over logits: batches of positions, their logits read from memory once; then sums over positions, in
// order.
#include "cpu/cross_entropy.h"

#include <algorithm>

#include "cpu/cross_entropy_parts.h"
#include "cpu/rows_simd.h"

namespace onehot::cpu {
namespace {

class Batches final : public PlanBody {
 public:
  Batches(const CrossEntropy& op, Isa isa)
      : op_(op),
        instruction_set_(RowKernelsFor(isa).target),
        problem_(op.input, op.target, op.options, op.ClassAxis(), isa, layout_),
        lse_(op.lse),
        log_probability_(op.log_probability),
        entropy_(op.entropy),
        loss_(op.loss) {
    reduced_ = op.loss && op.options.reduction != Reduction::kNone;
    // Few classes: a task is a block of the sum, whose terms stay on its stack.
    blockwise_ = problem_.position_bytes() * kSumBlock <= LossProblem::kTaskBytes;
    task_ = blockwise_ ? kSumBlock : problem_.TaskPositions(problem_.batch());
    // Statistics of planes go through a tile bit by bit: a longer batch only saves calls (C = 4: 0.1 ns a position).
    batch_ = problem_.planes() ? kBatch : problem_.batch();
    if (reduced_) {
      block_loss_ = layout_.Book<double>(problem_.sum_blocks());
      block_z_loss_ = layout_.Book<double>(problem_.sum_blocks());
      if (!blockwise_) terms_ = layout_.Book<float>(problem_.N);
      if (!blockwise_ && op.options.z_loss > 0) z_terms_ = layout_.Book<float>(problem_.N);
    }
  }

  std::string_view instruction_set() const override { return instruction_set_; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t N = problem_.N, bytes = N * (problem_.C * problem_.size + SizeOf(op_.target.dtype));
    const int threads = problem_.Threads(ThreadsFor(bytes, options.threads));
    TouchScratch(scratch, scratch_bytes(), threads);
    if (Status bad = problem_.targets.Read(scratch, threads); !bad.ok()) return bad;
    Progress progress(options, bytes);
    const float* const weight = problem_.LoadWeights(scratch);
    const LossFactors factors = problem_.Factors(weight);
    double* const block_loss = scratch.Get(block_loss_).data();
    double* const block_z_loss = scratch.Get(block_z_loss_).data();
    const bool z_loss = op_.options.z_loss > 0;

    ParallelFor(threads, (N + task_ - 1) / task_, [&](std::int64_t t, int thread) {
      if (progress.stopped()) return;
      const std::int64_t begin = t * task_, end = std::min(N, begin + task_);
      float terms[kSumBlock], z_terms[kSumBlock];
      float* const to = blockwise_ ? terms : scratch.Get(terms_).data() + begin;
      float* const z_to = blockwise_ ? z_terms : scratch.Get(z_terms_).data() + begin;
      problem_.ForBatches(begin, end, batch_, N, [&](const Batch& batch) {
        Work(scratch, thread, batch, weight, factors, to + (batch.begin - begin), z_to + (batch.begin - begin));
      });
      if (reduced_ && blockwise_) {
        block_loss[t] = problem_.kernels.block_sum(terms, end - begin);
        if (z_loss) block_z_loss[t] = problem_.kernels.block_sum(z_terms, end - begin);
      }
      progress.Advance(bytes / std::max<std::int64_t>(N, 1) * (end - begin), thread);
    });
    progress.Advance(0, 0);
    if (progress.stopped()) return Cancelled();

    if (reduced_ && !blockwise_) {
      ParallelFor(threads, problem_.sum_blocks(), [&](std::int64_t b, int) {
        const std::int64_t begin = b * kSumBlock, count = std::min(kSumBlock, N - begin);
        block_loss[b] = problem_.kernels.block_sum(scratch.Get(terms_).data() + begin, count);
        if (z_loss) block_z_loss[b] = problem_.kernels.block_sum(scratch.Get(z_terms_).data() + begin, count);
      });
    }
    Finish(scratch, weight, threads);
    return Status::Ok();
  }

 private:
  // `to` and `z_to` get the terms of a sum.
  void Work(Scratch scratch, int thread, const Batch& batch, const float* weight, const LossFactors& factors, float* to,
            float* z_to) const {
    BatchArrays a;
    alignas(64) float target[kBatch], lse[kBatch], log_probability[kBatch];
    alignas(64) float entropy[kBatch], loss[kBatch], z_loss[kBatch];
    const bool smooth = op_.loss && op_.options.label_smoothing > 0;
    alignas(64) std::uint32_t argmax[kBatch];
    problem_.ClassesOf(scratch, batch, a.classes);
    problem_.softmax.statistics({.logits = problem_.LogitsOf(batch),
                                 .tile = problem_.Tile(scratch, thread),
                                 .weight = weight,
                                 .max = a.max,
                                 .sum = a.sum,
                                 .reference = smooth ? a.reference : nullptr,
                                 .linear = smooth ? a.linear : nullptr,
                                 .moment = op_.entropy ? a.moment : nullptr,
                                 .argmax = op_.argmax ? argmax : nullptr,
                                 .classes = a.classes,
                                 .target = target});
    problem_.softmax.log(a.sum, batch.count, a.log_sum);
    const bool z = op_.loss && op_.options.z_loss > 0;
    float* const losses = reduced_ ? to : loss;
    float* const z_losses = reduced_ ? z_to : z_loss;
    problem_.kernels.losses({.count = batch.count,
                             .classes = a.classes,
                             .max = a.max,
                             .log_sum = a.log_sum,
                             .target = target,
                             .reference = smooth ? a.reference : nullptr,
                             .linear = smooth ? a.linear : nullptr,
                             .moment = a.moment,
                             .sum = a.sum,
                             .weight = weight,
                             .token_weight = problem_.token_weight.Load(batch.begin, batch.count, a.token_weight),
                             .factors = factors,
                             .lse = op_.lse ? lse : nullptr,
                             .log_probability = op_.log_probability ? log_probability : nullptr,
                             .entropy = op_.entropy ? entropy : nullptr,
                             .loss = op_.loss ? losses : nullptr,
                             .z_loss = z ? z_losses : nullptr});
    lse_.Store(batch.begin, batch.count, lse);
    log_probability_.Store(batch.begin, batch.count, log_probability);
    entropy_.Store(batch.begin, batch.count, entropy);
    if (op_.loss && !reduced_) {
      if (z)
        for (std::int64_t i = 0; i < batch.count; ++i) loss[i] += z_loss[i];
      loss_.Store(batch.begin, batch.count, loss);
    }
    if (op_.argmax) {
      const Positions at = Flatten(*op_.argmax, op_.argmax->rank);
      auto* const out = static_cast<std::int64_t*>(op_.argmax->data);
      for (std::int64_t i = 0; i < batch.count; ++i)
        out[at.Offset(batch.begin + i)] =
            a.classes[i] == kIgnored<std::uint32_t> ? -1 : static_cast<std::int64_t>(argmax[i]);
    }
  }

  void Finish(Scratch scratch, const float* weight, int threads) const {
    problem_.StoreReduced(scratch, weight, threads, op_.loss, op_.total_weight, [&](std::int64_t b) {
      return BlockLoss{scratch.Get(block_loss_)[b], op_.options.z_loss > 0 ? scratch.Get(block_z_loss_)[b] : 0};
    });
  }

  const CrossEntropy op_;
  const std::string_view instruction_set_;
  const LossProblem problem_;
  const OutputPerPosition lse_, log_probability_, entropy_, loss_;
  bool reduced_ = false, blockwise_ = false;
  std::int64_t batch_ = 1, task_ = 1;
  Piece<double> block_loss_, block_z_loss_;
  Piece<float> terms_, z_terms_;
};

}  // namespace

std::string_view RefuseBatches(const CrossEntropy& op, Isa) {
  return RefuseLogits(op);
}

std::unique_ptr<PlanBody> PlanBatches(const CrossEntropy& op, Isa isa) {
  return std::make_unique<Batches>(op, isa);
}

}  // namespace onehot::cpu
