// What every implementation of an operator has in common and a plan tells its user: the bytes that must move, and which
// tensors still lack memory.
#ifndef ONEHOT_OPS_ANNOTATE_H_
#define ONEHOT_OPS_ANNOTATE_H_

#include "core/plan_body.h"
#include "onehot/embedding.h"

namespace onehot {

void Annotate(const EmbeddingBackward& op, PlanBody& plan);
void Annotate(const Embedding& op, PlanBody& plan);

}  // namespace onehot

#endif  // ONEHOT_OPS_ANNOTATE_H_
