#include <fmt/format.h>

#include "core/layout.h"
#include "onehot/embedding.h"
#include "ops/indices.h"

namespace onehot {

Status Check(const Embedding& op) {
  if (Status bad = CheckIndexDType("indices", op.indices.dtype); !bad.ok()) return bad;
  if (op.out.dtype != op.weight.dtype)
    return Status::Error(Code::kBadDType, fmt::format("out: dtype must be that of weight, {}, is {}",
                                                      Name(op.weight.dtype), Name(op.out.dtype)));
  if (op.weight.rank != 2)
    return Status::Error(Code::kBadShape, fmt::format("weight: rank must be 2, is {}", op.weight.rank));
  if (op.out.rank < 1)
    return Status::Error(Code::kBadShape, fmt::format("out: rank must be in [1, 8], is {}", op.out.rank));
  if (Status bad = CheckLayout("weight", op.weight); !bad.ok()) return bad;
  if (Status bad = CheckLayout("indices", op.indices); !bad.ok()) return bad;
  if (Status bad = CheckLayout("out", op.out); !bad.ok()) return bad;
  if (op.out.dim(-1) != op.D())
    return Status::Error(Code::kBadShape,
                         fmt::format("out: width must be that of weight, {}, is {}", op.D(), op.out.dim(-1)));
  if (const std::int64_t positions = Flatten(op.out, op.out.rank - 1).count; positions != op.N())
    return Status::Error(Code::kBadShape,
                         fmt::format("out: must have one row for each of the {} indices, {} has {} rows", op.N(),
                                     Describe(op.out), positions));
  return CheckNoOverlap("out", op.out);
}

}  // namespace onehot
