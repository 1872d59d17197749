// The loss from statistics of logits: one number after the other, and probabilities where they are asked for.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "cpu/cross_entropy_parts.h"
#include "cpu/linear_cross_entropy.h"
#include "cpu/linear_tokens.h"
#include "cpu/rows_simd.h"
#include "onehot/linear_cross_entropy_shards.h"

namespace onehot::cpu {
namespace {

constexpr std::int64_t kNoTarget = 0;

// Without targets, every position is of class 0, and none is ignored.
ConstTensorView TargetOf(const LinearCrossEntropyLoss& op) {
  if (op.target) return *op.target;
  ConstTensorView target(&kNoTarget, DType::kI64, {});
  target.rank = op.max.rank, target.dims = op.max.dims;
  std::fill_n(target.strides.begin(), target.rank, std::int64_t{0});
  return target;
}
CrossEntropyOptions OptionsOf(const LinearCrossEntropyLoss& op) {
  CrossEntropyOptions options = op.options;
  if (!op.target) options.ignore_index = -1;
  return options;
}
// One at least for the class that stands for all of them.
std::int64_t ClassesOf(const LinearCrossEntropyLoss& op) {
  return op.target ? op.num_classes : std::max<std::int64_t>(op.num_classes, 1);
}

class StatisticsLoss final : public PlanBody {
 public:
  StatisticsLoss(const LinearCrossEntropyLoss& op, Isa isa)
      : op_(op),
        instruction_set_(RowKernelsFor(isa).target),
        gradient_(SoftmaxGradientFor(isa)),
        loss_(LogitsLike(op.N(), ClassesOf(op)), TargetOf(op), OptionsOf(op), 1, isa, layout_) {
    for (Piece<float>* const piece :
         {&max_, &sum_, &log_sum_, &target_, &linear_, &moment_, &token_weight_, &zeros_, &value_, &terms_, &z_terms_})
      *piece = layout_.Book<float>(op.N());
    classes_ = layout_.Book<std::uint32_t>(op.N());
    if (!op.probability) return;
    logits_at_ = Flatten(WithoutAxis(*op.logits, op.logits->rank - 1), op.logits->rank - 1);
    probability_at_ = Flatten(WithoutAxis(*op.probability, op.probability->rank - 1), op.probability->rank - 1);
  }

  std::string_view instruction_set() const override { return instruction_set_; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t N = op_.N(), columns = op_.logits ? op_.logits->dim(-1) : 0;
    const std::int64_t row = columns * (op_.logits ? SizeOf(op_.logits->dtype) + 4 : 0);
    const int threads = ThreadsFor(N * (40 + row), options.threads);
    TouchScratch(scratch, scratch_bytes(), threads);
    if (Status bad = loss_.targets.Read(scratch, threads); !bad.ok()) return bad;
    Progress progress(options, N);
    const auto all = [&](Piece<float> piece) { return scratch.Get(piece).data(); };
    std::uint32_t* const classes = scratch.Get(classes_).data();
    loss_.ClassesOf(scratch, {0, N}, classes);
    const float* const weight = loss_.LoadWeights(scratch);
    const auto load = [&](const std::optional<ConstTensorView>& from, Piece<float> to) {
      InputPerPosition(from).Load(0, N, all(to));
    };
    load(op_.max, max_), load(op_.sum_exp, sum_), load(op_.target_logit, target_);
    load(op_.smoothing, linear_), load(op_.moment, moment_), load(op_.options.token_weight, token_weight_);
    loss_.softmax.log(all(sum_), N, all(log_sum_));
    std::fill_n(all(zeros_), N, 0.0f);
    // Statistics are relative to the maximum; the loops take sums of w (z - reference).
    for (std::int64_t i = 0; op_.smoothing && i < N; ++i) all(linear_)[i] = -all(linear_)[i];
    Results(scratch, weight);
    const float* const z_terms = op_.options.z_loss > 0 ? all(z_terms_) : nullptr;
    loss_.StoreReduced(scratch, weight, threads, op_.loss, op_.total_weight, all(terms_), z_terms);
    if (op_.probability) Probabilities(scratch, classes, columns, threads, progress);
    progress.Advance(0, 0);
    return progress.stopped() ? Cancelled() : Status::Ok();
  }

 private:
  void Results(Scratch scratch, const float* weight) const {
    const auto all = [&](Piece<float> piece) { return scratch.Get(piece).data(); };
    const std::int64_t N = op_.N();
    const bool smooth = op_.options.label_smoothing > 0 && op_.smoothing, z_loss = op_.options.z_loss > 0;
    // Distances to the target do not know the maximum; lse and z-loss do.
    LossOfTask task{.count = N,
                    .classes = scratch.Get(classes_).data(),
                    .max = all(zeros_),
                    .log_sum = all(log_sum_),
                    .target = all(target_),
                    .reference = smooth ? all(zeros_) : nullptr,
                    .linear = smooth ? all(linear_) : nullptr,
                    .moment = op_.moment ? all(moment_) : nullptr,
                    .sum = all(sum_),
                    .weight = weight,
                    .token_weight = loss_.token_weight ? all(token_weight_) : nullptr,
                    .factors = loss_.Factors(weight),
                    .lse = nullptr,
                    .log_probability = nullptr,
                    .entropy = nullptr,
                    .loss = nullptr,
                    .z_loss = nullptr};
    if (!op_.target_logit) task.target = all(zeros_);
    const auto output = [&](const std::optional<TensorView>& tensor, float* LossOfTask::*result, const float* max) {
      if (!tensor) return;
      LossOfTask one = task;
      one.max = max, one.*result = all(value_);
      loss_.kernels.losses(one);
      OutputPerPosition(tensor).Store(0, N, all(value_));
    };
    output(op_.lse, &LossOfTask::lse, all(max_));
    output(op_.log_probability, &LossOfTask::log_probability, all(zeros_));
    output(op_.entropy, &LossOfTask::entropy, all(zeros_));
    if (!op_.loss) return;
    LossOfTask one = task;
    one.loss = all(terms_);
    loss_.kernels.losses(one);
    if (z_loss) {
      one = task;
      one.max = all(max_), one.loss = all(value_), one.z_loss = all(z_terms_);
      loss_.kernels.losses(one);
    }
    if (op_.options.reduction != Reduction::kNone) return;
    for (std::int64_t i = 0; z_loss && i < N; ++i) all(terms_)[i] += all(z_terms_)[i];
    OutputPerPosition(op_.loss).Store(0, N, all(terms_));
  }

  // p = e^(z - m) / sum is the gradient of a softmax with that factor and no target.
  void Probabilities(Scratch scratch, const std::uint32_t* classes, std::int64_t columns, int threads,
                     Progress& progress) const {
    const auto all = [&](Piece<float> piece) { return scratch.Get(piece).data(); };
    const std::int64_t N = op_.N(), size = SizeOf(op_.logits->dtype);
    for (std::int64_t i = 0; i < N; ++i) all(value_)[i] = 1 / all(sum_)[i];
    // Some 512 KB each: 50 us.
    const std::int64_t rows =
        std::clamp<std::int64_t>((512 << 10) / std::max<std::int64_t>(columns * size, 1), 1, kBatch);
    ParallelFor(threads, (N + rows - 1) / rows, [&](std::int64_t t, int thread) {
      if (progress.stopped()) return;
      const std::int64_t end = std::min((t + 1) * rows, N);
      for (std::int64_t i = t * rows; i < end; ++i) {
        const std::uint32_t none =
            classes[i] == kIgnored<std::uint32_t> ? classes[i] : static_cast<std::uint32_t>(columns);
        gradient_({.logits = {.data = static_cast<const std::byte*>(op_.logits->data) + logits_at_.Offset(i) * size,
                              .dtype = op_.logits->dtype,
                              .position_step = 0,
                              .class_step = op_.logits->stride(-1),
                              .count = 1,
                              .C = columns,
                              .softcap = 0},
                   .out = static_cast<std::byte*>(op_.probability->data) + probability_at_.Offset(i) * 4,
                   .out_dtype = DType::kF32,
                   .out_position_step = 0,
                   .out_class_step = op_.probability->stride(-1),
                   .stream = false,
                   .classes = &none,
                   .max = all(max_) + i,
                   .alpha = all(value_) + i,
                   .log_sum = nullptr,
                   .beta = nullptr,
                   .h = nullptr,
                   .entropy = nullptr,
                   .gamma = nullptr,
                   .weight = nullptr});
      }
      progress.Advance(end - t * rows, thread);
    });
  }

  const LinearCrossEntropyLoss op_;
  const std::string_view instruction_set_;
  const SoftmaxGradientFunction gradient_;
  const LossProblem loss_;
  Positions logits_at_, probability_at_;
  Piece<float> max_, sum_, log_sum_, target_, linear_, moment_, token_weight_, zeros_, value_, terms_, z_terms_;
  Piece<std::uint32_t> classes_;
};

}  // namespace

std::string_view RefuseStatisticsLoss(const LinearCrossEntropyLoss& op, Isa) {
  if (op.max.dtype == DType::kF64 || (op.logits && op.logits->dtype == DType::kF64))
    return "f64 is left to the definition";
  // Columns are classes to the loop, and one more stands for none of them.
  if (op.probability && op.logits->dim(-1) >= std::int64_t{kIgnored<std::uint32_t>})
    return "more than 2^32 - 2 columns of logits";
  CrossEntropy same{.input = LogitsLike(op.N(), ClassesOf(op)), .target = op.max};
  same.options = op.options, same.options.class_axis = 1, same.options.softcap = 0;
  return RefuseLogits(same);
}

std::unique_ptr<PlanBody> PlanStatisticsLoss(const LinearCrossEntropyLoss& op, Isa isa) {
  return std::make_unique<StatisticsLoss>(op, isa);
}

}  // namespace onehot::cpu
