#include "onehot/cross_entropy.h"

#include <fmt/format.h>

#include <cmath>

#include "core/layout.h"
#include "ops/losses.h"

namespace onehot {
namespace {

struct Named {
  std::string_view name;
  const std::optional<TensorView>& tensor;
};
struct NamedInput {
  std::string_view name;
  const std::optional<ConstTensorView>& tensor;
};

DType AccumulatorDType(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

Status CheckDTypeIs(std::string_view argument, DType dtype, DType wanted) {
  if (dtype == wanted) return Status::Ok();
  return Status::Error(Code::kBadDType,
                       fmt::format("{}: dtype must be {}, is {}", argument, Name(wanted), Name(dtype)));
}

Status CheckOptionDTypes(const CrossEntropyOptions& options, DType input) {
  if (Status bad = CheckWeightDTypes(options.weight, options.token_weight, "input", input); !bad.ok()) return bad;
  if (options.denominator)
    if (Status bad = CheckDenominatorDType(options.denominator->dtype); !bad.ok()) return bad;
  return Status::Ok();
}

Status CheckAttributes(const CrossEntropyOptions& options) {
  if (Status bad = CheckReduction(options.reduction); !bad.ok()) return bad;
  const double eps = options.label_smoothing, zeta = options.z_loss, cap = options.softcap;
  if (!(eps >= 0 && eps <= 1))
    return Status::Error(Code::kBadArgument, fmt::format("label_smoothing: must be in [0, 1], is {}", eps));
  if (!(zeta >= 0 && std::isfinite(zeta)))
    return Status::Error(Code::kBadArgument, fmt::format("z_loss: must be finite and not negative, is {}", zeta));
  if (!(cap >= 0 && std::isfinite(cap)))
    return Status::Error(Code::kBadArgument,
                         fmt::format("softcap: must be finite and positive, or 0 for none, is {}", cap));
  return Status::Ok();
}

Status CheckOptionShapes(const CrossEntropyOptions& options, const TensorLayout& target, std::int64_t C) {
  if (Status bad = CheckWeightShapes(options.weight, options.token_weight, target, C); !bad.ok()) return bad;
  if (options.denominator)
    if (Status bad = CheckOneElement("denominator", *options.denominator); !bad.ok()) return bad;
  return Status::Ok();
}

}  // namespace

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
  if (Status bad = CheckOptionDTypes(op.options, input); !bad.ok()) return bad;
  if (Status bad = CheckAttributes(op.options); !bad.ok()) return bad;

  if (Status bad = CheckClassAxis("input", op.input, op.options.class_axis, op.target); !bad.ok()) return bad;
  if (op.loss)
    if (Status bad = CheckReduced("loss", *op.loss, op.target, op.options.reduction); !bad.ok()) return bad;
  if (op.total_weight)
    if (Status bad = CheckOneElement("total_weight", *op.total_weight); !bad.ok()) return bad;
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckPerPosition(name, *tensor, op.target); !bad.ok()) return bad;
  if (Status bad = CheckOptionShapes(op.options, op.target, op.C()); !bad.ok()) return bad;
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
    if (const DType dtype = op.grad_loss->dtype; dtype != input && dtype != DType::kF32 && dtype != DType::kF64)
      return Status::Error(
          Code::kBadDType,
          fmt::format("grad_loss: dtype must be that of input, {}, or f32 or f64, is {}", Name(input), Name(dtype)));
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckDTypeIs(name, tensor->dtype, accumulator); !bad.ok()) return bad;
  if (Status bad = CheckOptionDTypes(op.options, input); !bad.ok()) return bad;
  if (Status bad = CheckAttributes(op.options); !bad.ok()) return bad;

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
  if (Status bad = CheckOptionShapes(op.options, op.target, op.C()); !bad.ok()) return bad;
  return CheckNoOverlap("out", op.out);
}

}  // namespace onehot
