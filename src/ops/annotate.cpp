#include "ops/annotate.h"

#include <algorithm>

namespace onehot {
namespace {

void NoteIfMissing(PlanBody& plan, std::string_view argument, const ConstTensorView& tensor) {
  if (tensor.data == nullptr && tensor.numel() > 0) plan.NoteMissing(argument);
}

std::int64_t Bytes(const TensorLayout& tensor) {
  return tensor.numel() * SizeOf(tensor.dtype);
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

}  // namespace onehot
