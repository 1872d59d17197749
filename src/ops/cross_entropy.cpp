#include "onehot/cross_entropy.h"

#include <fmt/format.h>

#include "core/layout.h"
#include "ops/losses.h"

namespace onehot {
Status Check(const CrossEntropy& op) {
  const DType input = op.input.dtype, accumulator = AccumulatorDType(input);
  if (Status bad = CheckLossDType("input", input); !bad.ok()) return bad;
  if (Status bad = CheckTargetDType(op.target.dtype); !bad.ok()) return bad;
  const Named reduced[] = {{"loss", op.loss}, {"total_weight", op.total_weight}};
  for (const auto& [name, tensor] : reduced)
    if (tensor)
      if (Status bad = CheckResultDType(name, tensor->dtype, "input", input); !bad.ok()) return bad;
  const Named per_position[] = {
      {"lse", op.lse}, {"log_probability", op.log_probability}, {"entropy", op.entropy}, {"argmax", op.argmax}};
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckDTypeIs(name, tensor->dtype, name == "argmax" ? DType::kI64 : accumulator); !bad.ok())
        return bad;
  if (Status bad = CheckLossOptions(op.options, input); !bad.ok()) return bad;

  if (Status bad = CheckClassAxis("input", op.input, op.options.class_axis, op.target); !bad.ok()) return bad;
  if (op.loss)
    if (Status bad = CheckReduced("loss", *op.loss, op.target, op.options.reduction); !bad.ok()) return bad;
  if (op.total_weight)
    if (Status bad = CheckOneElement("total_weight", *op.total_weight); !bad.ok()) return bad;
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckPerPosition(name, *tensor, op.target); !bad.ok()) return bad;
  if (Status bad = CheckLossOptionShapes(op.options, op.target, op.C()); !bad.ok()) return bad;
  if (op.loss)
    if (Status bad = CheckNoOverlap("loss", *op.loss); !bad.ok()) return bad;
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckNoOverlap(name, *tensor); !bad.ok()) return bad;
  return Status::Ok();
}

Status Check(const CrossEntropyBackward& op) {
  const DType input = op.input.dtype, accumulator = AccumulatorDType(input);
  if (Status bad = CheckLossDType("input", input); !bad.ok()) return bad;
  if (Status bad = CheckTargetDType(op.target.dtype); !bad.ok()) return bad;
  if (op.out.dtype != input && !(op.out.dtype == DType::kF32 && input != DType::kF64))
    return Status::Error(Code::kBadDType, fmt::format("out: dtype must be that of input, {}{}, is {}", Name(input),
                                                      SizeOf(input) == 2 ? ", or f32" : "", Name(op.out.dtype)));
  const NamedInput per_position[] = {
      {"lse", op.lse}, {"grad_log_probability", op.grad_log_probability}, {"grad_entropy", op.grad_entropy}};
  if (op.grad_loss)
    if (Status bad = CheckUpstreamDType("grad_loss", op.grad_loss->dtype, input); !bad.ok()) return bad;
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckDTypeIs(name, tensor->dtype, accumulator); !bad.ok()) return bad;
  if (Status bad = CheckLossOptions(op.options, input); !bad.ok()) return bad;

  if (Status bad = CheckClassAxis("input", op.input, op.options.class_axis, op.target); !bad.ok()) return bad;
  if (Status bad = CheckLayout("out", op.out); !bad.ok()) return bad;
  if (!SameShape(op.out, op.input))
    return Status::Error(Code::kBadShape, fmt::format("out: shape must be that of input, {}, is {}", Describe(op.input),
                                                      Describe(op.out)));
  if (op.grad_loss)
    if (Status bad = CheckReduced("grad_loss", *op.grad_loss, op.target, op.options.reduction); !bad.ok()) return bad;
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckPerPosition(name, *tensor, op.target); !bad.ok()) return bad;
  if (Status bad = CheckLossOptionShapes(op.options, op.target, op.C()); !bad.ok()) return bad;
  return CheckNoOverlap("out", op.out);
}

}  // namespace onehot
