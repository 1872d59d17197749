// What every implementation of an operator has in common and a plan tells its user: the bytes that must move, and which
// tensors still lack memory.
#ifndef ONEHOT_OPS_ANNOTATE_H_
#define ONEHOT_OPS_ANNOTATE_H_

#include "core/plan_body.h"
#include "onehot/cross_entropy.h"
#include "onehot/embedding.h"
#include "onehot/linear_cross_entropy.h"
#include "onehot/linear_cross_entropy_shards.h"
#include "onehot/nll_loss.h"

namespace onehot {

void Annotate(const EmbeddingBackward& op, PlanBody& plan);
void Annotate(const Embedding& op, PlanBody& plan);
void Annotate(const NllLoss& op, PlanBody& plan);
void Annotate(const NllLossBackward& op, PlanBody& plan);
void Annotate(const CrossEntropy& op, PlanBody& plan);
void Annotate(const CrossEntropyBackward& op, PlanBody& plan);
void Annotate(const LinearCrossEntropy& op, PlanBody& plan);
void Annotate(const LinearCrossEntropyBackward& op, PlanBody& plan);
void Annotate(const LinearCrossEntropyStatistics& op, PlanBody& plan);
void Annotate(const LinearCrossEntropyLoss& op, PlanBody& plan);

}  // namespace onehot

#endif  // ONEHOT_OPS_ANNOTATE_H_
