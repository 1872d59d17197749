// Linear cross entropy on the CPU: the implementations that select lists.
#ifndef ONEHOT_CPU_LINEAR_CROSS_ENTROPY_H_
#define ONEHOT_CPU_LINEAR_CROSS_ENTROPY_H_

#include <memory>
#include <string_view>

#include "core/isa.h"
#include "core/plan_body.h"
#include "onehot/linear_cross_entropy.h"

namespace onehot::cpu {

std::string_view RefuseFused(const LinearCrossEntropy& op);
std::unique_ptr<PlanBody> PlanFused(const LinearCrossEntropy& op, Isa isa);

std::string_view RefuseFusedBackward(const LinearCrossEntropyBackward& op);
std::unique_ptr<PlanBody> PlanFusedBackward(const LinearCrossEntropyBackward& op, Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_CROSS_ENTROPY_H_
