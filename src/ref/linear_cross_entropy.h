// The definitions of onehot/linear_cross_entropy.h, read off the header, in f64: last resort and oracle.
#ifndef ONEHOT_REF_LINEAR_CROSS_ENTROPY_H_
#define ONEHOT_REF_LINEAR_CROSS_ENTROPY_H_

#include <memory>

#include "core/isa.h"
#include "core/plan_body.h"
#include "onehot/linear_cross_entropy.h"
#include "onehot/linear_cross_entropy_shards.h"

namespace onehot::ref {

std::unique_ptr<PlanBody> PlanLinearCrossEntropy(const LinearCrossEntropy& op, Isa);
std::unique_ptr<PlanBody> PlanLinearCrossEntropyBackward(const LinearCrossEntropyBackward& op, Isa);
std::unique_ptr<PlanBody> PlanLinearCrossEntropyStatistics(const LinearCrossEntropyStatistics& op, Isa);
std::unique_ptr<PlanBody> PlanLinearCrossEntropyLoss(const LinearCrossEntropyLoss& op, Isa);

}  // namespace onehot::ref

#endif  // ONEHOT_REF_LINEAR_CROSS_ENTROPY_H_
