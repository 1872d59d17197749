// Cross entropy over logits on the CPU: the implementations that select lists.
#ifndef ONEHOT_CPU_CROSS_ENTROPY_H_
#define ONEHOT_CPU_CROSS_ENTROPY_H_

#include <memory>
#include <string_view>

#include "core/isa.h"
#include "core/plan_body.h"
#include "onehot/cross_entropy.h"

namespace onehot::cpu {

std::string_view RefuseBatches(const CrossEntropy& op, Isa);
std::unique_ptr<PlanBody> PlanBatches(const CrossEntropy& op, Isa isa);

std::string_view RefuseBatchesBackward(const CrossEntropyBackward& op, Isa);
std::unique_ptr<PlanBody> PlanBatchesBackward(const CrossEntropyBackward& op, Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_CROSS_ENTROPY_H_
