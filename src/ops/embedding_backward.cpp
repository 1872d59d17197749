#include "ops/embedding_backward.h"

#include <fmt/format.h>

#include "core/layout.h"
#include "ops/indices.h"

namespace onehot {

Status Check(const EmbeddingBackward& op) {
  const ConstTensorView &grad = op.grad, &indices = op.indices;
  const TensorView& out = op.out;

  if (!GradientTypes::Contains(grad.dtype))
    return Status::Error(Code::kBadDType,
                         fmt::format("grad: dtype must be one of f32, f64, f16, bf16, is {}", Name(grad.dtype)));
  if (Status bad = CheckIndexDType("indices", indices.dtype); !bad.ok()) return bad;
  const bool widened = out.dtype == DType::kF32 && (grad.dtype == DType::kF16 || grad.dtype == DType::kBF16);
  if (out.dtype != grad.dtype && !widened)
    return Status::Error(Code::kBadDType, fmt::format("out: dtype must be that of grad, {}{}, is {}", Name(grad.dtype),
                                                      SizeOf(grad.dtype) == 2 ? ", or f32" : "", Name(out.dtype)));
  if (op.counts && op.counts->dtype != DType::kI64)
    return Status::Error(Code::kBadDType, fmt::format("counts: dtype must be i64, is {}", Name(op.counts->dtype)));

  if (grad.rank < 1)
    return Status::Error(Code::kBadShape, fmt::format("grad: rank must be in [1, 8], is {}", grad.rank));
  if (out.rank != 2) return Status::Error(Code::kBadShape, fmt::format("out: rank must be 2, is {}", out.rank));
  if (op.counts && op.counts->rank != 1)
    return Status::Error(Code::kBadShape, fmt::format("counts: rank must be 1, is {}", op.counts->rank));

  if (Status bad = CheckLayout("grad", grad); !bad.ok()) return bad;
  if (Status bad = CheckLayout("indices", indices); !bad.ok()) return bad;
  if (Status bad = CheckLayout("out", out); !bad.ok()) return bad;
  if (op.padding_idx && (*op.padding_idx < -op.V() || *op.padding_idx >= op.V()))
    return Status::Error(Code::kBadArgument, fmt::format("padding_idx: must be in [{}, {}), the rows of out, is {}",
                                                         -op.V(), op.V(), *op.padding_idx));

  if (const std::int64_t positions = Flatten(grad, grad.rank - 1).count; positions != op.N())
    return Status::Error(Code::kBadShape,
                         fmt::format("grad: must have one row for each of the {} indices, {} has {} rows", op.N(),
                                     Describe(grad), positions));
  if (grad.dim(-1) != op.D())
    return Status::Error(Code::kBadShape,
                         fmt::format("out: width must be that of grad, {}, is {}", grad.dim(-1), op.D()));
  if (Status bad = CheckNoOverlap("out", out); !bad.ok()) return bad;
  if (op.counts) {
    if (Status bad = CheckLayout("counts", *op.counts); !bad.ok()) return bad;
    if (op.counts->dim(0) != op.V())
      return Status::Error(Code::kBadShape,
                           fmt::format("counts: must have one element for each of the {} rows of out, has {}", op.V(),
                                       op.counts->dim(0)));
    if (Status bad = CheckNoOverlap("counts", *op.counts); !bad.ok()) return bad;
  }
  return Status::Ok();
}

}  // namespace onehot
