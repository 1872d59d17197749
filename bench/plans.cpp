#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "onehot/onehot.h"
#include "onehot_bench.h"

namespace {

struct TimedPlan {
  onehot::Plan plan;
  std::unique_ptr<std::byte[]> scratch;
  std::string implementation, instruction_set;
};

std::string error;  // of the last call that failed; everything here is called from one thread

std::optional<onehot::DType> DTypeNamed(std::string_view name) {
  using enum onehot::DType;
  for (const onehot::DType dtype : {kF32, kF64, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool, kC64, kC128})
    if (onehot::Name(dtype) == name) return dtype;
  error = "no dtype is called " + std::string(name);
  return std::nullopt;
}

template <class Problem>
void* Prepared(const Problem& problem) {
  onehot::Result<onehot::Plan> plan = onehot::Prepare(problem);
  if (!plan.ok()) {
    error = plan.status().message();
    return nullptr;
  }
  const std::size_t bytes = plan->scratch_bytes();
  auto timed = std::make_unique<TimedPlan>(
      TimedPlan{std::move(*plan), std::make_unique_for_overwrite<std::byte[]>(bytes), {}, {}});
  std::memset(timed->scratch.get(), 0xFF, bytes);  // its pages exist now
  timed->implementation = timed->plan.implementation();
  timed->instruction_set = timed->plan.instruction_set();
  return timed.release();
}

const TimedPlan& Timed(const void* plan) {
  return *static_cast<const TimedPlan*>(plan);
}

// What the operators of a loss have in common, as the library sees it.
struct LossViews {
  onehot::TensorLayout logits, target, scalar;
  onehot::DType dtype = onehot::DType::kF32;
  onehot::Reduction reduction = onehot::Reduction::kMean;
};

std::optional<LossViews> Views(const onehot_bench_loss& loss) {
  const auto dtype = DTypeNamed(loss.dtype), target = DTypeNamed(loss.target_dtype);
  if (!dtype || !target) return std::nullopt;
  const std::array<std::int64_t, 4> dims{loss.N, loss.C, loss.H, loss.W};
  const std::array<std::int64_t, 3> positions{loss.N, loss.H, loss.W};
  const bool two_d = loss.H != 0;
  LossViews views{.logits = onehot::TensorLayout::Contiguous(*dtype, {dims.data(), two_d ? 4u : 2u}),
                  .target = onehot::TensorLayout::Contiguous(*target, {positions.data(), two_d ? 3u : 1u}),
                  .scalar = onehot::TensorLayout::Contiguous(*dtype, {}),
                  .dtype = *dtype,
                  .reduction = static_cast<onehot::Reduction>(loss.reduction)};
  if (two_d && loss.channels_last != 0) {
    views.logits.strides[0] = loss.H * loss.W * loss.C;
    views.logits.strides[1] = 1;
    views.logits.strides[2] = loss.W * loss.C;
    views.logits.strides[3] = loss.C;
  }
  return views;
}

onehot::TensorLayout As(onehot::TensorLayout layout, onehot::DType dtype) {
  layout.dtype = dtype;
  return layout;
}

// Of the loss and of its gradient.
onehot::TensorLayout Upstream(const LossViews& views) {
  return views.reduction == onehot::Reduction::kNone ? As(views.target, views.dtype) : views.scalar;
}

template <class View, class Pointer>
std::optional<View> Given(Pointer* data, const onehot::TensorLayout& layout) {
  return data == nullptr ? std::nullopt : std::optional<View>(View(data, layout));
}

// The tensors of linear cross entropy, as the library sees them.
struct LinearViews {
  onehot::TensorLayout input, weight, target, per_position, scalar, probability;
  onehot::LinearCrossEntropyOptions options;
};

std::optional<LinearViews> Views(const onehot_bench_linear_loss& loss) {
  using enum onehot::DType;
  const auto dtype = DTypeNamed(loss.dtype);
  if (!dtype) return std::nullopt;
  const auto dense = [](onehot::DType type, std::initializer_list<std::int64_t> dims) {
    return onehot::TensorLayout::Contiguous(type, {dims.begin(), dims.size()});
  };
  LinearViews views{.input = dense(*dtype, {loss.N, loss.H}),
                    .weight = dense(*dtype, {loss.V, loss.H}),
                    .target = dense(kI64, {loss.N}),
                    .per_position = dense(kF32, {loss.N}),
                    .scalar = dense(kF32, {}),
                    .probability = dense(kF32, {loss.N, loss.V}),
                    .options = {.loss = {.reduction = onehot::Reduction::kMean}}};
  if (loss.max_workspace >= 0) views.options.max_workspace = loss.max_workspace;
  return views;
}

onehot::LinearCrossEntropyUpstream Upstream(const onehot_bench_linear_loss& loss, const LinearViews& views) {
  return {.loss = Given<onehot::ConstTensorView>(loss.upstream, views.scalar)};
}

onehot::LinearCrossEntropyGradients Gradients(const onehot_bench_linear_loss& loss, const LinearViews& views) {
  return {.input = Given<onehot::TensorView>(loss.grad_input, views.input),
          .weight = Given<onehot::TensorView>(loss.grad_weight, views.weight)};
}

}  // namespace

void* onehot_bench_embedding_backward(const char* dtype, std::int64_t N, std::int64_t V, std::int64_t D,
                                      const void* grad, const void* indices, void* out) {
  const auto type = DTypeNamed(dtype);
  if (!type) return nullptr;
  return Prepared(onehot::EmbeddingBackward{
      .grad = {grad, *type, {N, D}}, .indices = {indices, onehot::DType::kI64, {N}}, .out = {out, *type, {V, D}}});
}

void* onehot_bench_embedding(const char* dtype, std::int64_t N, std::int64_t V, std::int64_t D, const void* weight,
                             const void* indices, void* out) {
  const auto type = DTypeNamed(dtype);
  if (!type) return nullptr;
  return Prepared(onehot::Embedding{
      .weight = {weight, *type, {V, D}}, .indices = {indices, onehot::DType::kI64, {N}}, .out = {out, *type, {N, D}}});
}

void* onehot_bench_nll_loss(const onehot_bench_loss* loss) {
  const auto views = Views(*loss);
  if (!views) return nullptr;
  return Prepared(onehot::NllLoss{.input = {loss->input, views->logits},
                                  .target = {loss->target, views->target},
                                  .loss = {loss->loss, Upstream(*views)},
                                  .total_weight = Given<onehot::TensorView>(loss->total_weight, views->scalar),
                                  .reduction = views->reduction});
}

void* onehot_bench_nll_loss_backward(const onehot_bench_loss* loss) {
  const auto views = Views(*loss);
  if (!views) return nullptr;
  return Prepared(
      onehot::NllLossBackward{.grad_output = {loss->grad_output, Upstream(*views)},
                              .target = {loss->target, views->target},
                              .out = {loss->out, views->logits},
                              .total_weight = Given<onehot::ConstTensorView>(loss->total_weight, views->scalar),
                              .reduction = views->reduction});
}

void* onehot_bench_cross_entropy(const onehot_bench_loss* loss) {
  const auto views = Views(*loss);
  if (!views) return nullptr;
  return Prepared(
      onehot::CrossEntropy{.input = {loss->input, views->logits},
                           .target = {loss->target, views->target},
                           .loss = Given<onehot::TensorView>(loss->loss, Upstream(*views)),
                           .lse = Given<onehot::TensorView>(loss->lse_out, As(views->target, onehot::DType::kF32)),
                           .options = {.reduction = views->reduction}});
}

void* onehot_bench_cross_entropy_backward(const onehot_bench_loss* loss) {
  const auto views = Views(*loss);
  if (!views) return nullptr;
  return Prepared(onehot::CrossEntropyBackward{
      .input = {loss->input, views->logits},
      .target = {loss->target, views->target},
      .out = {loss->out, views->logits},
      .lse = Given<onehot::ConstTensorView>(loss->lse, As(views->target, onehot::DType::kF32)),
      .grad_loss = Given<onehot::ConstTensorView>(loss->grad_output, Upstream(*views)),
      .options = {.reduction = views->reduction}});
}

void* onehot_bench_linear_cross_entropy(const onehot_bench_linear_loss* loss) {
  const auto views = Views(*loss);
  if (!views) return nullptr;
  return Prepared(onehot::LinearCrossEntropy{.input = {loss->input, views->input},
                                             .weight = {loss->weight, views->weight},
                                             .target = {loss->target, views->target},
                                             .loss = Given<onehot::TensorView>(loss->loss, views->scalar),
                                             .lse = Given<onehot::TensorView>(loss->lse_out, views->per_position),
                                             .upstream = Upstream(*loss, *views),
                                             .grad = Gradients(*loss, *views),
                                             .options = views->options});
}

void* onehot_bench_linear_cross_entropy_backward(const onehot_bench_linear_loss* loss) {
  const auto views = Views(*loss);
  if (!views) return nullptr;
  return Prepared(onehot::LinearCrossEntropyBackward{
      .input = {loss->input, views->input},
      .weight = {loss->weight, views->weight},
      .target = {loss->target, views->target},
      .lse = Given<onehot::ConstTensorView>(loss->lse, views->per_position),
      .probability = Given<onehot::ConstTensorView>(loss->probability, views->probability),
      .upstream = Upstream(*loss, *views),
      .grad = Gradients(*loss, *views),
      .options = views->options});
}

void onehot_bench_free(void* plan) {
  delete static_cast<TimedPlan*>(plan);
}

const char* onehot_bench_implementation(const void* plan) {
  return Timed(plan).implementation.c_str();
}

const char* onehot_bench_instruction_set(const void* plan) {
  return Timed(plan).instruction_set.c_str();
}

std::int64_t onehot_bench_scratch_bytes(const void* plan) {
  return static_cast<std::int64_t>(Timed(plan).plan.scratch_bytes());
}

std::int64_t onehot_bench_run(const void* plan, int threads, std::int64_t times) {
  const TimedPlan& timed = Timed(plan);
  const std::size_t bytes = timed.plan.scratch_bytes();
  const onehot::RunOptions options{.threads = threads, .progress = {}};
  const auto start = std::chrono::steady_clock::now();
  onehot::Status status = onehot::Status::Ok();
  for (std::int64_t i = 0; i < times && status.ok(); ++i) status = timed.plan.Run(timed.scratch.get(), bytes, options);
  const auto stop = std::chrono::steady_clock::now();
  if (!status.ok()) {
    error = status.message();
    return -1;
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(stop - start).count();
}

const char* onehot_bench_error() {
  return error.c_str();
}

const char* onehot_bench_version() {
  static const std::string version(onehot::Version());
  return version.c_str();
}
