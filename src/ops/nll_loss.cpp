#include "onehot/nll_loss.h"

#include <fmt/format.h>

#include "core/layout.h"
#include "ops/losses.h"

namespace onehot {
namespace {

// Read, not written: f32 goes with every dtype of out, f64 too.
Status CheckTotalWeightDType(DType dtype, DType out) {
  if (dtype == out || dtype == DType::kF32 || dtype == DType::kF64) return Status::Ok();
  return Status::Error(Code::kBadDType,
                       fmt::format("total_weight: dtype must be that of out, {}, or {}, is {}", Name(out),
                                   out == DType::kF32   ? "f64"
                                   : out == DType::kF64 ? "f32"
                                                        : "f32 or f64",
                                   Name(dtype)));
}

}  // namespace

Status Check(const NllLoss& op) {
  if (Status bad = CheckLossDType("input", op.input.dtype); !bad.ok()) return bad;
  if (Status bad = CheckTargetDType(op.target.dtype); !bad.ok()) return bad;
  if (Status bad = CheckResultDType("loss", op.loss.dtype, "input", op.input.dtype); !bad.ok()) return bad;
  if (op.total_weight)
    if (Status bad = CheckResultDType("total_weight", op.total_weight->dtype, "input", op.input.dtype); !bad.ok())
      return bad;
  if (Status bad = CheckWeightDTypes(op.weight, op.token_weight, "input", op.input.dtype); !bad.ok()) return bad;
  if (op.denominator)
    if (Status bad = CheckDenominatorDType(op.denominator->dtype); !bad.ok()) return bad;
  if (Status bad = CheckReduction(op.reduction); !bad.ok()) return bad;

  if (Status bad = CheckClassAxis("input", op.input, op.class_axis, op.target); !bad.ok()) return bad;
  if (Status bad = CheckReduced("loss", op.loss, op.target, op.reduction); !bad.ok()) return bad;
  if (op.total_weight)
    if (Status bad = CheckOneElement("total_weight", *op.total_weight); !bad.ok()) return bad;
  if (Status bad = CheckWeightShapes(op.weight, op.token_weight, op.target, op.C()); !bad.ok()) return bad;
  if (op.denominator)
    if (Status bad = CheckOneElement("denominator", *op.denominator); !bad.ok()) return bad;
  return CheckNoOverlap("loss", op.loss);
}

Status Check(const NllLossBackward& op) {
  if (Status bad = CheckOperandDType("grad_output", op.grad_output.dtype, "out", op.out.dtype); !bad.ok()) return bad;
  if (Status bad = CheckTargetDType(op.target.dtype); !bad.ok()) return bad;
  if (Status bad = CheckLossDType("out", op.out.dtype); !bad.ok()) return bad;
  const bool mean = op.reduction == Reduction::kMean;
  if (Status bad = CheckWeightDTypes(op.weight, op.token_weight, "out", op.out.dtype); !bad.ok()) return bad;
  if (mean && op.total_weight)
    if (Status bad = CheckTotalWeightDType(op.total_weight->dtype, op.out.dtype); !bad.ok()) return bad;
  if (Status bad = CheckReduction(op.reduction); !bad.ok()) return bad;
  if (mean && !op.total_weight)
    return Status::Error(Code::kNullArgument, "total_weight: is needed for the reduction mean, is not given");

  if (op.compact) {
    if (op.num_classes < 0)
      return Status::Error(Code::kBadArgument, fmt::format("num_classes: must not be negative, is {}", op.num_classes));
    if (Status bad = CheckLayout("target", op.target); !bad.ok()) return bad;
    if (Status bad = CheckPerPosition("out", op.out, op.target); !bad.ok()) return bad;
  } else {
    if (Status bad = CheckClassAxis("out", op.out, op.class_axis, op.target); !bad.ok()) return bad;
  }
  if (Status bad = CheckReduced("grad_output", op.grad_output, op.target, op.reduction); !bad.ok()) return bad;
  if (Status bad = CheckWeightShapes(op.weight, op.token_weight, op.target, op.C()); !bad.ok()) return bad;
  if (mean)
    if (Status bad = CheckOneElement("total_weight", *op.total_weight); !bad.ok()) return bad;
  return CheckNoOverlap("out", op.out);
}

}  // namespace onehot
