#include "ops/losses.h"

#include <fmt/format.h>

#include <cmath>

#include "core/layout.h"

namespace onehot {
Status CheckLossDType(std::string_view argument, DType dtype) {
  if (LossTypes::Contains(dtype)) return Status::Ok();
  return Status::Error(Code::kBadDType,
                       fmt::format("{}: dtype must be one of f32, f64, f16, bf16, is {}", argument, Name(dtype)));
}

Status CheckTargetDType(DType dtype) {
  if (TargetTypes::Contains(dtype)) return Status::Ok();
  return Status::Error(Code::kBadDType,
                       fmt::format("target: dtype must be one of i64, i32, i16, i8, u8, is {}", Name(dtype)));
}

Status CheckOperandDType(std::string_view argument, DType dtype, std::string_view base_name, DType base) {
  if (dtype == base || dtype == DType::kF32) return Status::Ok();
  return Status::Error(Code::kBadDType, fmt::format("{}: dtype must be that of {}, {}{}, is {}", argument, base_name,
                                                    Name(base), base == DType::kF32 ? "" : ", or f32", Name(dtype)));
}

Status CheckResultDType(std::string_view argument, DType dtype, std::string_view base_name, DType base) {
  const bool half = SizeOf(base) == 2;
  if (dtype == base || dtype == DType::kF64 || (half && dtype == DType::kF32)) return Status::Ok();
  return Status::Error(Code::kBadDType,
                       fmt::format("{}: dtype must be that of {}, {}{}, is {}", argument, base_name, Name(base),
                                   half                  ? ", or f32 or f64"
                                   : base == DType::kF32 ? ", or f64"
                                                         : "",
                                   Name(dtype)));
}

Status CheckClassAxis(std::string_view argument, const TensorLayout& classes, int class_axis,
                      const TensorLayout& target) {
  if (classes.rank < 1 || classes.rank > kMaxRank)
    return Status::Error(Code::kBadShape, fmt::format("{}: rank must be in [1, 8], is {}", argument, classes.rank));
  if (Status bad = CheckLayout(argument, classes); !bad.ok()) return bad;
  if (Status bad = CheckLayout("target", target); !bad.ok()) return bad;
  if (classes.rank > 1 && (class_axis < -classes.rank || class_axis >= classes.rank))
    return Status::Error(Code::kBadArgument, fmt::format("class_axis: must be in [{}, {}), the axes of {}, is {}",
                                                         -classes.rank, classes.rank, argument, class_axis));
  const int axis = ClassAxisOf(classes, class_axis);
  if (SameShape(WithoutAxis(classes, axis), target)) return Status::Ok();
  return Status::Error(Code::kBadShape, fmt::format("target: shape must be that of {}, {}, without axis {}, is {}",
                                                    argument, Describe(classes), axis, Describe(target)));
}

Status CheckPerClass(std::string_view argument, const TensorLayout& tensor, std::int64_t C) {
  if (Status bad = CheckLayout(argument, tensor); !bad.ok()) return bad;
  if (tensor.rank == 1 && tensor.dim(0) == C) return Status::Ok();
  return Status::Error(Code::kBadShape, fmt::format("{}: shape must be [{}], one element for each class, is {}",
                                                    argument, C, Describe(tensor)));
}

Status CheckPerPosition(std::string_view argument, const TensorLayout& tensor, const TensorLayout& target,
                        std::string_view target_name) {
  if (Status bad = CheckLayout(argument, tensor); !bad.ok()) return bad;
  if (SameShape(tensor, target)) return Status::Ok();
  return Status::Error(Code::kBadShape, fmt::format("{}: shape must be that of {}, {}, is {}", argument, target_name,
                                                    Describe(target), Describe(tensor)));
}

Status CheckPerClassOfPositions(std::string_view argument, const TensorLayout& tensor, const TensorLayout& target,
                                std::int64_t C, std::string_view target_name) {
  if (Status bad = CheckLayout(argument, tensor); !bad.ok()) return bad;
  if (tensor.rank == target.rank + 1 && SameShape(WithoutAxis(tensor, tensor.rank - 1), target) &&
      (C < 0 || tensor.dim(-1) == C))
    return Status::Ok();
  return Status::Error(Code::kBadShape, fmt::format("{}: shape must be that of {}, {}, and an axis of {}classes, is {}",
                                                    argument, target_name, Describe(target),
                                                    C < 0 ? "" : fmt::format("{} ", C), Describe(tensor)));
}

Status CheckOneElement(std::string_view argument, const TensorLayout& tensor) {
  if (Status bad = CheckLayout(argument, tensor); !bad.ok()) return bad;
  if (tensor.numel() == 1) return Status::Ok();
  return Status::Error(Code::kBadShape, fmt::format("{}: must have one element, is {}", argument, Describe(tensor)));
}

Status CheckWeightDTypes(const std::optional<ConstTensorView>& weight,
                         const std::optional<ConstTensorView>& token_weight, std::string_view base_name, DType base,
                         std::string_view weight_name) {
  if (weight)
    if (Status bad = CheckOperandDType(weight_name, weight->dtype, base_name, base); !bad.ok()) return bad;
  if (token_weight)
    if (Status bad = CheckOperandDType("token_weight", token_weight->dtype, base_name, base); !bad.ok()) return bad;
  return Status::Ok();
}

Status CheckWeightShapes(const std::optional<ConstTensorView>& weight,
                         const std::optional<ConstTensorView>& token_weight, const TensorLayout& target, std::int64_t C,
                         std::string_view weight_name) {
  if (weight)
    if (Status bad = CheckPerClass(weight_name, *weight, C); !bad.ok()) return bad;
  if (token_weight)
    if (Status bad = CheckPerPosition("token_weight", *token_weight, target); !bad.ok()) return bad;
  return Status::Ok();
}

Status CheckLossOptions(const CrossEntropyOptions& options, DType input, std::string_view weight_name,
                        std::string_view input_name) {
  if (Status bad = CheckWeightDTypes(options.weight, options.token_weight, input_name, input, weight_name); !bad.ok())
    return bad;
  if (options.denominator)
    if (Status bad = CheckDenominatorDType(options.denominator->dtype); !bad.ok()) return bad;
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

Status CheckLossOptionShapes(const CrossEntropyOptions& options, const TensorLayout& target, std::int64_t C,
                             std::string_view weight_name) {
  if (Status bad = CheckWeightShapes(options.weight, options.token_weight, target, C, weight_name); !bad.ok())
    return bad;
  if (options.denominator)
    if (Status bad = CheckOneElement("denominator", *options.denominator); !bad.ok()) return bad;
  return Status::Ok();
}

DType AccumulatorDType(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

Status CheckDTypeIs(std::string_view argument, DType dtype, DType wanted) {
  if (dtype == wanted) return Status::Ok();
  return Status::Error(Code::kBadDType,
                       fmt::format("{}: dtype must be {}, is {}", argument, Name(wanted), Name(dtype)));
}

Status CheckUpstreamDType(std::string_view argument, DType dtype, DType input) {
  if (dtype == input || dtype == DType::kF32 || dtype == DType::kF64) return Status::Ok();
  return Status::Error(Code::kBadDType, fmt::format("{}: dtype must be that of input, {}, or f32 or f64, is {}",
                                                    argument, Name(input), Name(dtype)));
}

Status CheckReduced(std::string_view argument, const TensorLayout& tensor, const TensorLayout& target,
                    Reduction reduction, std::string_view target_name) {
  if (reduction == Reduction::kNone) return CheckPerPosition(argument, tensor, target, target_name);
  return CheckOneElement(argument, tensor);
}

Status CheckReduction(Reduction reduction) {
  if (reduction <= Reduction::kSum) return Status::Ok();
  return Status::Error(Code::kBadArgument, fmt::format("reduction: must be none (0), mean (1) or sum (2), is {}",
                                                       static_cast<int>(reduction)));
}

Status CheckDenominatorDType(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kF64) return Status::Ok();
  return Status::Error(Code::kBadDType, fmt::format("denominator: dtype must be f32 or f64, is {}", Name(dtype)));
}

}  // namespace onehot
