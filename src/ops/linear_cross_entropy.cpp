#include "onehot/linear_cross_entropy.h"

#include <fmt/format.h>

#include <cmath>

#include "core/layout.h"
#include "ops/losses.h"

namespace onehot {
namespace {

constexpr std::string_view kClassWeight = "class weight";  // beside the weight of the layer

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

// What both operators have, dtypes and attributes.
template <class Op>
Status CheckDTypes(const Op& op) {
  const DType input = op.input.dtype;
  if (Status bad = CheckLossDType("input", input); !bad.ok()) return bad;
  if (op.weight.dtype != input)
    return Status::Error(Code::kBadDType, fmt::format("weight: dtype must be that of input, {}, is {}", Name(input),
                                                      Name(op.weight.dtype)));
  if (Status bad = CheckTargetDType(op.target.dtype); !bad.ok()) return bad;
  if (op.options.bias)
    if (Status bad = CheckOperandDType("bias", op.options.bias->dtype, "input", input); !bad.ok()) return bad;
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
  if (Status bad = CheckLossOptions(op.options.loss, input, kClassWeight); !bad.ok()) return bad;
  if (!std::isfinite(op.options.logit_scale))
    return Status::Error(Code::kBadArgument, fmt::format("logit_scale: must be finite, is {}", op.options.logit_scale));
  return Status::Ok();
}

template <class Op>
Status CheckShapes(const Op& op) {
  if (Status bad = CheckClassAxis("input", op.input, -1, op.target); !bad.ok()) return bad;
  if (Status bad = CheckLayout("weight", op.weight); !bad.ok()) return bad;
  if (op.weight.rank != 2)
    return Status::Error(Code::kBadShape, fmt::format("weight: rank must be 2, is {}", op.weight.rank));
  if (op.weight.dim(1) != op.input.dim(-1))
    return Status::Error(Code::kBadShape, fmt::format("weight: must have as many columns as input, {}, has {}: {}",
                                                      op.input.dim(-1), op.weight.dim(1), Describe(op.weight)));
  if (op.options.bias)
    if (Status bad = CheckPerClass("bias", *op.options.bias, op.V()); !bad.ok()) return bad;
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
  if (Status bad = CheckLossOptionShapes(op.options.loss, op.target, op.V(), kClassWeight); !bad.ok()) return bad;
  const Named gradients[] = {
      {"grad.input", op.grad.input}, {"grad.weight", op.grad.weight}, {"grad.bias", op.grad.bias}};
  for (const auto& [name, tensor] : gradients)
    if (tensor)
      if (Status bad = CheckNoOverlap(name, *tensor); !bad.ok()) return bad;
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
  if (Status bad = CheckShapes(op); !bad.ok()) return bad;
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
  if (op.lse)
    if (Status bad = CheckDTypeIs("lse", op.lse->dtype, AccumulatorDType(op.input.dtype)); !bad.ok()) return bad;
  if (Status bad = CheckShapes(op); !bad.ok()) return bad;
  if (op.lse) return CheckPerPosition("lse", *op.lse, op.target);
  return Status::Ok();
}

}  // namespace onehot
