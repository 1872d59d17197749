#include "ops/annotate.h"

#include <algorithm>

#include "ops/linear_cross_entropy.h"
#include "ops/losses.h"

namespace onehot {
namespace {

void NoteIfMissing(PlanBody& plan, std::string_view argument, const ConstTensorView& tensor) {
  if (tensor.data == nullptr && tensor.numel() > 0) plan.NoteMissing(argument);
}

template <class View>
void NoteIfMissing(PlanBody& plan, std::string_view argument, const std::optional<View>& tensor) {
  if (tensor) NoteIfMissing(plan, argument, ConstTensorView(*tensor));
}

std::int64_t Bytes(const TensorLayout& tensor) {
  return tensor.numel() * SizeOf(tensor.dtype);
}

template <class View>
std::int64_t Bytes(const std::optional<View>& tensor) {
  return tensor ? Bytes(*tensor) : 0;
}

void NoteIfMissing(PlanBody& plan, const CrossEntropyOptions& options, std::string_view weight_name = "weight") {
  NoteIfMissing(plan, weight_name, options.weight);
  NoteIfMissing(plan, "token_weight", options.token_weight);
  if (options.reduction == Reduction::kMean) NoteIfMissing(plan, "denominator", options.denominator);
}

// What the losses that give it have in common.
template <class Op>
void NoteIfOutputMissing(PlanBody& plan, const Op& op) {
  NoteIfMissing(plan, "loss", op.loss);
  NoteIfMissing(plan, "lse", op.lse);
  NoteIfMissing(plan, "log_probability", op.log_probability);
  NoteIfMissing(plan, "entropy", op.entropy);
  NoteIfMissing(plan, "argmax", op.argmax);
  NoteIfMissing(plan, "total_weight", op.total_weight);
}

template <class Op>
std::int64_t BytesOut(const Op& op) {
  return Bytes(op.loss) + Bytes(op.lse) + Bytes(op.log_probability) + Bytes(op.entropy) + Bytes(op.argmax) +
         Bytes(op.total_weight);
}

// What a linear layer's operators have in common.
void NoteIfMissing(PlanBody& plan, const LinearLayerArguments& op) {
  NoteIfMissing(plan, "input", op.input);
  NoteIfMissing(plan, "weight", op.weight);
  NoteIfMissing(plan, "target", op.target);
  NoteIfMissing(plan, "bias", op.options.bias);
  NoteIfMissing(plan, op.options.loss, kClassWeight);
}

std::int64_t BytesOfLayer(const LinearLayerArguments& op) {
  return Bytes(op.input) + Bytes(op.weight) + Bytes(op.target) + Bytes(op.options.bias) +
         Bytes(op.options.loss.weight) + Bytes(op.options.loss.token_weight);
}

// And those of them that have gradients.
template <class Op>
void NoteIfMissingAny(PlanBody& plan, const Op& op) {
  NoteIfMissing(plan, ArgumentsOf(op));
  NoteIfMissing(plan, "upstream.loss", op.upstream.loss);
  NoteIfMissing(plan, "upstream.log_probability", op.upstream.log_probability);
  NoteIfMissing(plan, "upstream.entropy", op.upstream.entropy);
  NoteIfMissing(plan, "grad.input", op.grad.input);
  NoteIfMissing(plan, "grad.weight", op.grad.weight);
  NoteIfMissing(plan, "grad.bias", op.grad.bias);
}

template <class Op>
std::int64_t BytesOfGradients(const Op& op) {
  return Bytes(op.grad.input) + Bytes(op.grad.weight) + Bytes(op.grad.bias);
}

template <class Op>
std::int64_t BytesIn(const Op& op) {
  const std::int64_t old = op.grad.accumulate ? BytesOfGradients(op) : 0;
  return BytesOfLayer(ArgumentsOf(op)) + Bytes(op.upstream.loss) + Bytes(op.upstream.log_probability) +
         Bytes(op.upstream.entropy) + old;
}

}  // namespace

// Grad and indices once, out once; with accumulate the named rows, which data decide, are read and written: at most N.
void Annotate(const EmbeddingBackward& op, PlanBody& plan) {
  NoteIfMissing(plan, "grad", op.grad);
  NoteIfMissing(plan, "indices", op.indices);
  NoteIfMissing(plan, "out", op.out);
  if (op.counts) NoteIfMissing(plan, "counts", *op.counts);
  const std::int64_t counts = op.counts ? Bytes(*op.counts) : 0;
  const std::int64_t touched = std::min(op.N(), op.V()) * op.D() * SizeOf(op.out.dtype);
  plan.SetTraffic(Bytes(op.grad) + Bytes(op.indices) + (op.accumulate ? touched : 0),
                  (op.accumulate ? touched : Bytes(op.out)) + counts);
}

// A row named twice is read twice only from cache, but how often is data: the rows of out stand for it.
void Annotate(const Embedding& op, PlanBody& plan) {
  NoteIfMissing(plan, "weight", op.weight);
  NoteIfMissing(plan, "indices", op.indices);
  NoteIfMissing(plan, "out", op.out);
  plan.SetTraffic(std::min(Bytes(op.out), Bytes(op.weight)) + Bytes(op.indices), Bytes(op.out));
}

// One element of input for each position, whatever lines it lies in.
void Annotate(const NllLoss& op, PlanBody& plan) {
  NoteIfMissing(plan, "input", op.input);
  NoteIfMissing(plan, "target", op.target);
  NoteIfMissing(plan, "loss", op.loss);
  NoteIfMissing(plan, "total_weight", op.total_weight);
  NoteIfMissing(plan, "weight", op.weight);
  NoteIfMissing(plan, "token_weight", op.token_weight);
  if (op.reduction == Reduction::kMean) NoteIfMissing(plan, "denominator", op.denominator);
  plan.SetTraffic(Bytes(op.target) + op.N() * SizeOf(op.input.dtype) + Bytes(op.weight) + Bytes(op.token_weight),
                  Bytes(op.loss) + Bytes(op.total_weight));
}

// Out once; with accumulate the one element of each position, read and written.
void Annotate(const NllLossBackward& op, PlanBody& plan) {
  NoteIfMissing(plan, "grad_output", op.grad_output);
  NoteIfMissing(plan, "target", op.target);
  NoteIfMissing(plan, "out", op.out);
  NoteIfMissing(plan, "weight", op.weight);
  NoteIfMissing(plan, "token_weight", op.token_weight);
  if (op.reduction == Reduction::kMean) NoteIfMissing(plan, "total_weight", op.total_weight);
  const std::int64_t touched = op.accumulate ? op.N() * SizeOf(op.out.dtype) : 0;
  plan.SetTraffic(Bytes(op.grad_output) + Bytes(op.target) + Bytes(op.weight) + Bytes(op.token_weight) + touched,
                  op.accumulate ? touched : Bytes(op.out));
}

void Annotate(const CrossEntropy& op, PlanBody& plan) {
  NoteIfMissing(plan, "input", op.input);
  NoteIfMissing(plan, "target", op.target);
  NoteIfOutputMissing(plan, op);
  NoteIfMissing(plan, op.options);
  plan.SetTraffic(Bytes(op.input) + Bytes(op.target) + Bytes(op.options.weight) + Bytes(op.options.token_weight),
                  BytesOut(op));
}

void Annotate(const CrossEntropyBackward& op, PlanBody& plan) {
  NoteIfMissing(plan, "input", op.input);
  NoteIfMissing(plan, "target", op.target);
  NoteIfMissing(plan, "out", op.out);
  NoteIfMissing(plan, "lse", op.lse);
  NoteIfMissing(plan, "grad_loss", op.grad_loss);
  NoteIfMissing(plan, "grad_log_probability", op.grad_log_probability);
  NoteIfMissing(plan, "grad_entropy", op.grad_entropy);
  NoteIfMissing(plan, op.options);
  plan.SetTraffic(Bytes(op.input) + Bytes(op.target) + Bytes(op.lse) + Bytes(op.grad_loss) +
                      Bytes(op.grad_log_probability) + Bytes(op.grad_entropy) + Bytes(op.options.weight) +
                      Bytes(op.options.token_weight),
                  Bytes(op.out));
}

// The least that has to move; products of matrices move more, and are bound by arithmetic.
void Annotate(const LinearCrossEntropy& op, PlanBody& plan) {
  NoteIfMissingAny(plan, op);
  NoteIfOutputMissing(plan, op);
  NoteIfMissing(plan, "target_logit", op.target_logit);
  plan.SetTraffic(BytesIn(op), BytesOut(op) + Bytes(op.target_logit) + BytesOfGradients(op));
}

void Annotate(const LinearCrossEntropyBackward& op, PlanBody& plan) {
  NoteIfMissingAny(plan, op);
  NoteIfMissing(plan, "lse", op.lse);
  NoteIfMissing(plan, "max", op.max);
  NoteIfMissing(plan, "sum_exp", op.sum_exp);
  NoteIfMissing(plan, "entropy", op.entropy);
  NoteIfMissing(plan, "probability", op.probability);
  plan.SetTraffic(
      BytesIn(op) + Bytes(op.lse) + Bytes(op.max) + Bytes(op.sum_exp) + Bytes(op.entropy) + Bytes(op.probability),
      BytesOfGradients(op));
}

void Annotate(const LinearCrossEntropyStatistics& op, PlanBody& plan) {
  NoteIfMissing(plan, ArgumentsOf(op));
  std::int64_t written = 0;
  const Named outputs[] = {{"max", op.max},
                           {"sum_exp", op.sum_exp},
                           {"target_logit", op.target_logit},
                           {"smoothing", op.smoothing},
                           {"moment", op.moment},
                           {"argmax", op.argmax},
                           {"logits", op.logits}};
  for (const auto& [name, tensor] : outputs) NoteIfMissing(plan, name, tensor), written += Bytes(tensor);
  plan.SetTraffic(BytesOfLayer(ArgumentsOf(op)), written);
}

void Annotate(const LinearCrossEntropyLoss& op, PlanBody& plan) {
  NoteIfMissing(plan, "max", op.max);
  NoteIfMissing(plan, "sum_exp", op.sum_exp);
  std::int64_t read = Bytes(op.max) + Bytes(op.sum_exp) + Bytes(op.options.weight) + Bytes(op.options.token_weight),
               written = 0;
  const NamedInput inputs[] = {{"target_logit", op.target_logit},
                               {"smoothing", op.smoothing},
                               {"moment", op.moment},
                               {"target", op.target},
                               {"logits", op.logits}};
  for (const auto& [name, tensor] : inputs) NoteIfMissing(plan, name, tensor), read += Bytes(tensor);
  const Named outputs[] = {{"loss", op.loss},
                           {"lse", op.lse},
                           {"log_probability", op.log_probability},
                           {"entropy", op.entropy},
                           {"total_weight", op.total_weight},
                           {"probability", op.probability}};
  for (const auto& [name, tensor] : outputs) NoteIfMissing(plan, name, tensor), written += Bytes(tensor);
  NoteIfMissing(plan, op.options, kClassWeight);
  plan.SetTraffic(read, written);
}

}  // namespace onehot
