#include "ops/linear_cross_entropy.h"

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "core/layout.h"

namespace onehot {
namespace {

Status CheckGradientDType(std::string_view argument, DType dtype, DType input) {
  if (dtype == input || (dtype == DType::kF32 && SizeOf(input) == 2)) return Status::Ok();
  return Status::Error(Code::kBadDType, fmt::format("{}: dtype must be that of input, {}{}, is {}", argument,
                                                    Name(input), SizeOf(input) == 2 ? ", or f32" : "", Name(dtype)));
}

Status CheckShapeIs(std::string_view argument, const TensorLayout& tensor, std::string_view like_name,
                    const TensorLayout& like) {
  if (Status bad = CheckLayout(argument, tensor); !bad.ok()) return bad;
  if (SameShape(tensor, like)) return Status::Ok();
  return Status::Error(Code::kBadShape, fmt::format("{}: shape must be that of {}, {}, is {}", argument, like_name,
                                                    Describe(like), Describe(tensor)));
}

}  // namespace

Status CheckLayerDTypes(const LinearLayerArguments& op) {
  const DType input = op.input.dtype;
  if (Status bad = CheckLossDType("input", input); !bad.ok()) return bad;
  if (op.weight.dtype != input)
    return Status::Error(Code::kBadDType, fmt::format("weight: dtype must be that of input, {}, is {}", Name(input),
                                                      Name(op.weight.dtype)));
  if (Status bad = CheckTargetDType(op.target.dtype); !bad.ok()) return bad;
  if (op.options.bias)
    if (Status bad = CheckOperandDType("bias", op.options.bias->dtype, "input", input); !bad.ok()) return bad;
  if (Status bad = CheckLossOptions(op.options.loss, input, kClassWeight); !bad.ok()) return bad;
  if (!std::isfinite(op.options.logit_scale))
    return Status::Error(Code::kBadArgument, fmt::format("logit_scale: must be finite, is {}", op.options.logit_scale));
  if (!(std::isfinite(op.options.skip_below) && op.options.skip_below >= 0))
    return Status::Error(Code::kBadArgument,
                         fmt::format("skip_below: must be finite and not negative, is {}", op.options.skip_below));
  if (op.options.max_workspace && *op.options.max_workspace < 0)
    return Status::Error(Code::kBadArgument,
                         fmt::format("max_workspace: must not be negative, is {}", *op.options.max_workspace));
  return Status::Ok();
}

Status CheckLayerShapes(const LinearLayerArguments& op, const std::optional<VocabularyShard>& shard) {
  if (Status bad = CheckClassAxis("input", op.input, -1, op.target); !bad.ok()) return bad;
  if (Status bad = CheckLayout("weight", op.weight); !bad.ok()) return bad;
  if (op.weight.rank != 2)
    return Status::Error(Code::kBadShape, fmt::format("weight: rank must be 2, is {}", op.weight.rank));
  if (op.weight.dim(1) != op.input.dim(-1))
    return Status::Error(Code::kBadShape, fmt::format("weight: must have as many columns as input, {}, has {}: {}",
                                                      op.input.dim(-1), op.weight.dim(1), Describe(op.weight)));
  const std::int64_t V = op.weight.dim(0);
  if (shard && (shard->first < 0 || shard->num_classes < V || shard->first > shard->num_classes - V))
    return Status::Error(Code::kBadArgument,
                         fmt::format("shard: the {} classes of weight from first = {} on must lie in [0, num_classes), "
                                     "which is [0, {})",
                                     V, shard->first, shard->num_classes));
  if (op.options.bias)
    if (Status bad = CheckPerClass("bias", *op.options.bias, V); !bad.ok()) return bad;
  return CheckLossOptionShapes(op.options.loss, op.target, shard ? shard->num_classes : V, kClassWeight);
}

namespace {

// What both operators with gradients have, dtypes and attributes.
template <class Op>
Status CheckDTypes(const Op& op) {
  const DType input = op.input.dtype;
  if (Status bad = CheckLayerDTypes(ArgumentsOf(op)); !bad.ok()) return bad;
  if (op.upstream.loss)
    if (Status bad = CheckUpstreamDType("upstream.loss", op.upstream.loss->dtype, input); !bad.ok()) return bad;
  const NamedInput upstream[] = {{"upstream.log_probability", op.upstream.log_probability},
                                 {"upstream.entropy", op.upstream.entropy}};
  for (const auto& [name, tensor] : upstream)
    if (tensor)
      if (Status bad = CheckDTypeIs(name, tensor->dtype, AccumulatorDType(input)); !bad.ok()) return bad;
  const Named gradients[] = {
      {"grad.input", op.grad.input}, {"grad.weight", op.grad.weight}, {"grad.bias", op.grad.bias}};
  for (const auto& [name, tensor] : gradients)
    if (tensor)
      if (Status bad = CheckGradientDType(name, tensor->dtype, input); !bad.ok()) return bad;
  return Status::Ok();
}

template <class Op>
Status CheckShapes(const Op& op, const std::optional<VocabularyShard>& shard) {
  if (Status bad = CheckLayerShapes(ArgumentsOf(op), shard); !bad.ok()) return bad;
  if (op.upstream.loss)
    if (Status bad = CheckReduced("upstream.loss", *op.upstream.loss, op.target, op.options.loss.reduction); !bad.ok())
      return bad;
  const NamedInput upstream[] = {{"upstream.log_probability", op.upstream.log_probability},
                                 {"upstream.entropy", op.upstream.entropy}};
  for (const auto& [name, tensor] : upstream)
    if (tensor)
      if (Status bad = CheckPerPosition(name, *tensor, op.target); !bad.ok()) return bad;
  if (op.grad.input)
    if (Status bad = CheckShapeIs("grad.input", *op.grad.input, "input", op.input); !bad.ok()) return bad;
  if (op.grad.weight)
    if (Status bad = CheckShapeIs("grad.weight", *op.grad.weight, "weight", op.weight); !bad.ok()) return bad;
  if (op.grad.bias)
    if (Status bad = CheckPerClass("grad.bias", *op.grad.bias, op.V()); !bad.ok()) return bad;
  const Named gradients[] = {
      {"grad.input", op.grad.input}, {"grad.weight", op.grad.weight}, {"grad.bias", op.grad.bias}};
  for (const auto& [name, tensor] : gradients)
    if (tensor)
      if (Status bad = CheckNoOverlap(name, *tensor); !bad.ok()) return bad;
  return Status::Ok();
}

// Which of the things that describe all logits of a position are given.
Status CheckGiven(const LinearCrossEntropyBackward& op) {
  const auto refuse = [](std::string sentence) { return Status::Error(Code::kBadArgument, std::move(sentence)); };
  if (op.max.has_value() != op.sum_exp.has_value())
    return refuse(fmt::format("{0}: must be given with {1}, {1} is not given", op.max ? "max" : "sum_exp",
                              op.max ? "sum_exp" : "max"));
  const NamedInput ways[] = {{"lse", op.lse}, {"max", op.max}, {"probability", op.probability}};
  std::string_view given;
  for (const auto& [name, tensor] : ways) {
    if (!tensor) continue;
    if (!given.empty()) return refuse(fmt::format("{}: must not be given together with {}", name, given));
    given = name;
  }
  if (op.shard && given.empty())
    return refuse("shard: max and sum_exp, lse or probability of the whole vocabulary must be given, none of them is");
  if (op.shard && op.upstream.entropy && !op.entropy)
    return refuse("entropy: must be given with shard and upstream.entropy, is not given");
  if (!op.probability) return Status::Ok();
  const CrossEntropyOptions& loss = op.options.loss;
  constexpr std::string_view kInstead = "give max and sum_exp instead";
  if (loss.softcap > 0) return refuse(fmt::format("probability: softcap must be 0, is {}: {}", loss.softcap, kInstead));
  if (loss.z_loss > 0) return refuse(fmt::format("probability: z_loss must be 0, is {}: {}", loss.z_loss, kInstead));
  if (op.upstream.entropy)
    return refuse(fmt::format("probability: upstream.entropy must not be given, is given: {}", kInstead));
  return Status::Ok();
}

}  // namespace

Status Check(const LinearCrossEntropy& op) {
  if (Status bad = CheckDTypes(op); !bad.ok()) return bad;
  const Named reduced[] = {{"loss", op.loss}, {"total_weight", op.total_weight}};
  for (const auto& [name, tensor] : reduced)
    if (tensor)
      if (Status bad = CheckResultDType(name, tensor->dtype, "input", op.input.dtype); !bad.ok()) return bad;
  const Named per_position[] = {{"lse", op.lse},
                                {"target_logit", op.target_logit},
                                {"log_probability", op.log_probability},
                                {"entropy", op.entropy},
                                {"argmax", op.argmax}};
  for (const auto& [name, tensor] : per_position) {
    const DType wanted = name == "argmax" ? DType::kI64 : AccumulatorDType(op.input.dtype);
    if (tensor)
      if (Status bad = CheckDTypeIs(name, tensor->dtype, wanted); !bad.ok()) return bad;
  }
  if (Status bad = CheckShapes(op, std::nullopt); !bad.ok()) return bad;
  if (op.loss)
    if (Status bad = CheckReduced("loss", *op.loss, op.target, op.options.loss.reduction); !bad.ok()) return bad;
  if (op.total_weight)
    if (Status bad = CheckOneElement("total_weight", *op.total_weight); !bad.ok()) return bad;
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckPerPosition(name, *tensor, op.target); !bad.ok()) return bad;
  if (op.loss)
    if (Status bad = CheckNoOverlap("loss", *op.loss); !bad.ok()) return bad;
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckNoOverlap(name, *tensor); !bad.ok()) return bad;
  return Status::Ok();
}

Status Check(const LinearCrossEntropyBackward& op) {
  if (Status bad = CheckDTypes(op); !bad.ok()) return bad;
  const NamedInput statistics[] = {{"lse", op.lse},
                                   {"max", op.max},
                                   {"sum_exp", op.sum_exp},
                                   {"entropy", op.entropy},
                                   {"probability", op.probability}};
  for (const auto& [name, tensor] : statistics)
    if (tensor)
      if (Status bad = CheckDTypeIs(name, tensor->dtype, AccumulatorDType(op.input.dtype)); !bad.ok()) return bad;
  if (Status bad = CheckGiven(op); !bad.ok()) return bad;
  if (Status bad = CheckShapes(op, op.shard); !bad.ok()) return bad;
  for (const auto& [name, tensor] : std::span(statistics).first<4>())
    if (tensor)
      if (Status bad = CheckPerPosition(name, *tensor, op.target); !bad.ok()) return bad;
  return op.probability ? CheckPerClassOfPositions("probability", *op.probability, op.target, op.V()) : Status::Ok();
}

}  // namespace onehot
