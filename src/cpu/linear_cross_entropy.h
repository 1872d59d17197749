// Linear cross entropy on the CPU: the implementations that select lists.
#ifndef ONEHOT_CPU_LINEAR_CROSS_ENTROPY_H_
#define ONEHOT_CPU_LINEAR_CROSS_ENTROPY_H_

#include <memory>
#include <string_view>

#include "core/isa.h"
#include "core/plan_body.h"
#include "onehot/linear_cross_entropy.h"
#include "onehot/linear_cross_entropy_shards.h"
#include "ops/linear_cross_entropy.h"

namespace onehot::cpu {

// f64, and what f32 cannot hold, are left to the definition.
std::string_view RefuseFusedLayer(const LinearLayerArguments& op, std::int64_t num_classes);

// And products of bf16: what else they do not take.
std::string_view RefuseBf16Layer(const LinearLayerArguments& op, std::int64_t num_classes, bool reproducible, Isa isa);

std::string_view RefuseFused(const LinearCrossEntropy& op, Isa);
std::unique_ptr<PlanBody> PlanFused(const LinearCrossEntropy& op, Isa isa);
std::string_view RefuseBf16(const LinearCrossEntropy& op, Isa isa);
std::unique_ptr<PlanBody> PlanBf16(const LinearCrossEntropy& op, Isa isa);

std::string_view RefuseFusedBackward(const LinearCrossEntropyBackward& op, Isa);
std::unique_ptr<PlanBody> PlanFusedBackward(const LinearCrossEntropyBackward& op, Isa isa);
std::string_view RefuseBf16Backward(const LinearCrossEntropyBackward& op, Isa isa);
std::unique_ptr<PlanBody> PlanBf16Backward(const LinearCrossEntropyBackward& op, Isa isa);

std::string_view RefuseFusedStatistics(const LinearCrossEntropyStatistics& op, Isa);
std::unique_ptr<PlanBody> PlanFusedStatistics(const LinearCrossEntropyStatistics& op, Isa isa);
std::string_view RefuseBf16Statistics(const LinearCrossEntropyStatistics& op, Isa isa);
std::unique_ptr<PlanBody> PlanBf16Statistics(const LinearCrossEntropyStatistics& op, Isa isa);

std::string_view RefuseStatisticsLoss(const LinearCrossEntropyLoss& op, Isa);
std::unique_ptr<PlanBody> PlanStatisticsLoss(const LinearCrossEntropyLoss& op, Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_CROSS_ENTROPY_H_
