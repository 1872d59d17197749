#include "onehot/linear_cross_entropy_shards.h"

#include <fmt/format.h>

#include <string_view>

#include "core/layout.h"
#include "ops/linear_cross_entropy.h"

namespace onehot {
namespace {

Status Refuse(std::string sentence) {
  return Status::Error(Code::kBadArgument, std::move(sentence));
}

// An argument that others need.
struct Need {
  std::string_view name;
  bool given;
  bool needed;
  std::string_view by;
};

}  // namespace

Status Check(const LinearCrossEntropyStatistics& op) {
  if (Status bad = CheckLayerDTypes(ArgumentsOf(op)); !bad.ok()) return bad;
  const DType real = AccumulatorDType(op.input.dtype);
  const Named per_position[] = {
      {"max", op.max},       {"sum_exp", op.sum_exp}, {"target_logit", op.target_logit}, {"smoothing", op.smoothing},
      {"moment", op.moment}, {"argmax", op.argmax}};
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckDTypeIs(name, tensor->dtype, name == "argmax" ? DType::kI64 : real); !bad.ok()) return bad;
  if (op.logits)
    if (Status bad = CheckOperandDType("logits", op.logits->dtype, "input", op.input.dtype); !bad.ok()) return bad;
  if (Status bad = CheckLayerShapes(ArgumentsOf(op), op.shard); !bad.ok()) return bad;
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckPerPosition(name, *tensor, op.target); !bad.ok()) return bad;
  if (op.logits)
    if (Status bad = CheckPerClassOfPositions("logits", *op.logits, op.target, op.V()); !bad.ok()) return bad;
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckNoOverlap(name, *tensor); !bad.ok()) return bad;
  return op.logits ? CheckNoOverlap("logits", *op.logits) : Status::Ok();
}

Status Check(const LinearCrossEntropyLoss& op) {
  constexpr std::string_view kLike = "max";
  const DType real = op.max.dtype;
  if (real != DType::kF32 && real != DType::kF64)
    return Status::Error(Code::kBadDType, fmt::format("max: dtype must be f32 or f64, is {}", Name(real)));
  const std::optional<ConstTensorView> sum_exp = op.sum_exp;
  const NamedInput statistics[] = {
      {"sum_exp", sum_exp}, {"target_logit", op.target_logit}, {"smoothing", op.smoothing}, {"moment", op.moment}};
  for (const auto& [name, tensor] : statistics)
    if (tensor)
      if (Status bad = CheckDTypeIs(name, tensor->dtype, real); !bad.ok()) return bad;
  if (op.target)
    if (Status bad = CheckTargetDType(op.target->dtype); !bad.ok()) return bad;
  if (op.logits) {
    if (Status bad = CheckLossDType("logits", op.logits->dtype); !bad.ok()) return bad;
    if ((op.logits->dtype == DType::kF64) != (real == DType::kF64))
      return Status::Error(Code::kBadDType, fmt::format("logits: dtype must be {} as max is {}, is {}",
                                                        real == DType::kF64 ? "f64" : "f32, f16 or bf16", Name(real),
                                                        Name(op.logits->dtype)));
  }
  // Statistics of 16-bit logits are f32, their loss may be of 16 bits.
  if (op.loss)
    if (Status bad = real == DType::kF32 ? CheckLossDType("loss", op.loss->dtype)
                                         : CheckResultDType("loss", op.loss->dtype, kLike, real);
        !bad.ok())
      return bad;
  if (op.total_weight)
    if (Status bad = CheckResultDType("total_weight", op.total_weight->dtype, kLike, real); !bad.ok()) return bad;
  const Named per_position[] = {{"lse", op.lse}, {"log_probability", op.log_probability}, {"entropy", op.entropy}};
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckDTypeIs(name, tensor->dtype, real); !bad.ok()) return bad;
  if (op.probability)
    if (Status bad = CheckDTypeIs("probability", op.probability->dtype, real); !bad.ok()) return bad;

  const CrossEntropyOptions& options = op.options;
  if (Status bad = CheckLossOptions(options, real, kClassWeight, kLike); !bad.ok()) return bad;
  const bool smooth = op.loss && options.label_smoothing > 0;
  const Need needs[] = {
      {"target_logit", op.target_logit.has_value(), op.loss.has_value(), "loss"},
      {"target_logit", op.target_logit.has_value(), op.log_probability.has_value(), "log_probability"},
      {"smoothing", op.smoothing.has_value(), smooth, "loss with label_smoothing"},
      {"moment", op.moment.has_value(), op.entropy.has_value(), "entropy"},
      {"logits", op.logits.has_value(), op.probability.has_value(), "probability"},
      {"target", op.target.has_value(), options.weight.has_value(), kClassWeight}};
  for (const Need& need : needs)
    if (need.needed && !need.given)
      return Refuse(fmt::format("{}: must be given for {}, is not given", need.name, need.by));
  if (op.num_classes < 0 || (smooth && op.num_classes == 0 && op.N() > 0))
    return Refuse(fmt::format("num_classes: must be {}, is {}", smooth ? "positive" : "0 or more", op.num_classes));

  if (Status bad = CheckLayout(kLike, op.max); !bad.ok()) return bad;
  for (const auto& [name, tensor] : statistics)
    if (tensor)
      if (Status bad = CheckPerPosition(name, *tensor, op.max, kLike); !bad.ok()) return bad;
  if (op.target)
    if (Status bad = CheckPerPosition("target", *op.target, op.max, kLike); !bad.ok()) return bad;
  if (Status bad = CheckLossOptionShapes(options, op.max, op.num_classes, kClassWeight); !bad.ok()) return bad;
  if (op.logits)
    if (Status bad = CheckPerClassOfPositions("logits", *op.logits, op.max, -1, kLike); !bad.ok()) return bad;
  if (op.loss)
    if (Status bad = CheckReduced("loss", *op.loss, op.max, options.reduction, kLike); !bad.ok()) return bad;
  if (op.total_weight)
    if (Status bad = CheckOneElement("total_weight", *op.total_weight); !bad.ok()) return bad;
  for (const auto& [name, tensor] : per_position)
    if (tensor)
      if (Status bad = CheckPerPosition(name, *tensor, op.max, kLike); !bad.ok()) return bad;
  if (op.probability)
    if (Status bad = CheckPerClassOfPositions("probability", *op.probability, op.max, op.logits->dim(-1), kLike);
        !bad.ok())
      return bad;
  const Named outputs[] = {{"loss", op.loss},
                           {"lse", op.lse},
                           {"log_probability", op.log_probability},
                           {"entropy", op.entropy},
                           {"probability", op.probability}};
  for (const auto& [name, tensor] : outputs)
    if (tensor)
      if (Status bad = CheckNoOverlap(name, *tensor); !bad.ok()) return bad;
  return Status::Ok();
}

}  // namespace onehot
