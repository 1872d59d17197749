// Cross entropy backward: batches of positions, their logits read from memory once and the gradient written once.
#include <algorithm>

#include "cpu/cache.h"
#include "cpu/cross_entropy.h"
#include "cpu/cross_entropy_parts.h"
#include "cpu/rows_simd.h"
#include "hwy/cache_control.h"

namespace onehot::cpu {
namespace {

class BatchesBackward final : public PlanBody {
 public:
  BatchesBackward(const CrossEntropyBackward& op, Isa isa)
      : op_(op),
        instruction_set_(RowKernelsFor(isa).target),
        problem_(op.input, op.target, op.options, op.ClassAxis(), isa, layout_),
        gradient_(SoftmaxGradientFor(isa)),
        out_at_(Flatten(WithoutAxis(op.out, op.ClassAxis()), op.out.rank - 1)),
        lse_(op.lse),
        grad_loss_(op.grad_loss),
        grad_log_probability_(op.grad_log_probability),
        grad_entropy_(op.grad_entropy) {
    // Without statistics nothing is read twice, and long rows of planes are better.
    statistics_ = !op.lse || op.grad_entropy;
    batch_ = statistics_ || !problem_.planes() ? problem_.batch() : kBatch;
    task_ = problem_.TaskPositions(batch_);
    const std::int64_t elements = problem_.N * problem_.C;
    // In place, the lines are in cache when they are written.
    stream_ = op.out.data != op.input.data && PastCaches(elements * problem_.size, elements * SizeOf(op.out.dtype));
  }

  std::string_view instruction_set() const override { return instruction_set_; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t N = problem_.N;
    const std::int64_t per_position = problem_.C * (problem_.size + SizeOf(op_.out.dtype)) + SizeOf(op_.target.dtype);
    const int threads = problem_.Threads(ThreadsFor(N * per_position, options.threads));
    TouchScratch(scratch, scratch_bytes(), threads);
    if (Status bad = problem_.targets.Read(scratch, threads); !bad.ok()) return bad;
    Progress progress(options, N * per_position);
    const float* const weight = problem_.LoadWeights(scratch);
    const LossFactors factors = problem_.Factors(weight);
    WeightSums divisors{1, 1, 1};
    if (op_.options.reduction == Reduction::kMean && op_.grad_loss)
      divisors =
          problem_.Divisors(op_.options.denominator ? divisors : problem_.Denominators(scratch, weight, threads));
    ParallelFor(threads, (N + task_ - 1) / task_, [&](std::int64_t t, int thread) {
      if (progress.stopped()) return;
      const std::int64_t begin = t * task_, end = std::min(N, begin + task_);
      problem_.ForBatches(begin, end, batch_, out_at_.run(),
                          [&](const Batch& batch) { Work(scratch, thread, batch, weight, factors, divisors); });
      if (stream_) hwy::FlushStream();
      progress.Advance(per_position * (end - begin), thread);
    });
    progress.Advance(0, 0);
    if (progress.stopped()) return Status::Error(Code::kCancelled, "cancelled: out is undefined");
    return Status::Ok();
  }

 private:
  void Work(Scratch scratch, int thread, const Batch& batch, const float* weight, const LossFactors& factors,
            const WeightSums& divisors) const {
    BatchArrays a;
    alignas(64) float alpha[kBatch], betas[kBatch], gammas[kBatch], entropy[kBatch];
    alignas(64) float grad_loss[kBatch], grad_log_probability[kBatch], grad_entropy[kBatch];
    const Logits logits = problem_.LogitsOf(batch);
    problem_.ClassesOf(scratch, batch, a.classes);
    const bool smooth = op_.grad_loss && op_.options.label_smoothing > 0;
    const bool z_loss = op_.grad_loss && op_.options.z_loss > 0;
    const float* const h = grad_entropy_.Load(batch.begin, batch.count, grad_entropy);
    float* const beta = smooth || z_loss || h != nullptr ? betas : nullptr;
    float* const gamma = smooth ? gammas : nullptr;
    if (!statistics_) {
      lse_.Load(batch.begin, batch.count, a.max);
      std::fill_n(a.log_sum, batch.count, 0.0f);
    } else {
      problem_.softmax.statistics({.logits = logits,
                                   .tile = problem_.Tile(scratch, thread),
                                   .weight = nullptr,
                                   .max = a.max,
                                   .sum = a.sum,
                                   .reference = nullptr,
                                   .linear = nullptr,
                                   .moment = h != nullptr ? a.moment : nullptr,
                                   .argmax = nullptr,
                                   .classes = nullptr,
                                   .target = nullptr});
      problem_.softmax.log(a.sum, batch.count, a.log_sum);
      for (std::int64_t i = 0; h != nullptr && i < batch.count; ++i) entropy[i] = a.log_sum[i] - a.moment[i] / a.sum[i];
    }
    const bool none = op_.options.reduction == Reduction::kNone;
    if (op_.grad_loss && !none) LoadPositions(*op_.grad_loss, Positions{}, 0, 1, grad_loss);
    if (op_.grad_loss && none) grad_loss_.Load(batch.begin, batch.count, grad_loss);
    problem_.kernels.factors(
        {.count = batch.count,
         .classes = a.classes,
         .grad_loss = op_.grad_loss ? grad_loss : nullptr,
         .grad_loss_per_position = none,
         .token_weight = problem_.token_weight.Load(batch.begin, batch.count, a.token_weight),
         .weight = weight,
         .D = static_cast<float>(divisors.D),
         .D_z = static_cast<float>(divisors.D_z),
         .factors = factors,
         .grad_log_probability = grad_log_probability_.Load(batch.begin, batch.count, grad_log_probability),
         .max = a.max,
         .log_sum = a.log_sum,
         .alpha = alpha,
         .beta = beta,
         .gamma = gamma});
    const int axis = op_.ClassAxis();
    gradient_({.logits = logits,
               .out = static_cast<std::byte*>(op_.out.data) + out_at_.Offset(batch.begin) * SizeOf(op_.out.dtype),
               .out_dtype = op_.out.dtype,
               .out_position_step = out_at_.step(),
               .out_class_step = op_.out.stride(axis),
               .stream = stream_,
               .classes = a.classes,
               .max = a.max,
               .alpha = alpha,
               .log_sum = statistics_ ? a.log_sum : nullptr,
               .beta = beta,
               .h = h,
               .entropy = h != nullptr ? entropy : nullptr,
               .gamma = gamma,
               .weight = weight});
  }

  const CrossEntropyBackward op_;
  const std::string_view instruction_set_;
  const LossProblem problem_;
  const SoftmaxGradientFunction gradient_;
  const Positions out_at_;
  const InputPerPosition lse_, grad_loss_, grad_log_probability_, grad_entropy_;
  std::int64_t batch_ = 1, task_ = 1;
  bool statistics_ = false, stream_ = false;
};

}  // namespace

std::string_view RefuseBatchesBackward(const CrossEntropyBackward& op, Isa) {
  return RefuseLogits(op);
}

std::unique_ptr<PlanBody> PlanBatchesBackward(const CrossEntropyBackward& op, Isa isa) {
  return std::make_unique<BatchesBackward>(op, isa);
}

}  // namespace onehot::cpu
