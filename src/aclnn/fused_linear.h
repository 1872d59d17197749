// What the three fused operators have in common, and how the two that have targets hand them to the native operators: as
// rows of this shard's weight, with V, the class after its last one, for tokens whose target is in another shard. To the
// native operator this shard is [0, V) of V + 1 classes, and no token is ignored, since no target is negative.
#ifndef ONEHOT_ACLNN_FUSED_LINEAR_H_
#define ONEHOT_ACLNN_FUSED_LINEAR_H_

#include <cstdint>
#include <functional>
#include <span>

#include "aclnn/launch_plan.h"
#include "aclnn/operator.h"
#include "onehot/linear_cross_entropy.h"
#include "onehot/status.h"
#include "onehot/tensor.h"

namespace onehot::aclnn {

// The two that their documents name (contract 7.24).
inline constexpr std::uint32_t kFusedProducts = On(Product::kAscend910B) | On(Product::kAscend910_93);

inline constexpr aclDataType kFloatType[] = {ACL_FLOAT}, kHalfTypes[] = {ACL_FLOAT16, ACL_BF16};
inline constexpr aclDataType kFusedTargetTypes[] = {ACL_INT64, ACL_INT32};

// After CheckRank, as CheckShape.
Status CheckPerToken(const Argument& argument, std::int64_t tokens);
Status CheckPerLogit(const Argument& argument, std::int64_t tokens, std::int64_t classes);
// [V, H] with input's H, and V + 1 a number.
Status CheckWeightShape(const Argument& weight, const Argument& input);
Status CheckNoSmoothing(float label_smoothing);

// Local targets lie in the workspace, so the native plan that reads them can be made only there. `native` makes it, and is
// asked in phase 1 too, with no memory, for what else the call needs. `fill` writes the local targets; nothing was written
// before, and a failure is that of the launch.
using MakeNativePlan = std::function<Result<Plan>(const ConstTensorView& local_targets)>;
using FillLocalTargets = std::function<Status(std::span<std::int64_t> local_targets)>;
Result<LaunchPlan> PlanWithLocalTargets(std::int64_t tokens, MakeNativePlan native, FillLocalTargets fill);

inline VocabularyShard LocalShard(std::int64_t classes) {
  return {.first = 0, .num_classes = classes + 1};
}

// Elements of a tensor with one axis.
template <class T>
class Elements {
 public:
  explicit Elements(const TensorView& view) : data_(static_cast<T*>(view.data)), stride_(view.stride(0)) {}
  T& operator[](std::int64_t i) const { return data_[i * stride_]; }

 private:
  T* data_;
  std::int64_t stride_;
};

// Calls f.operator()<T>() with the type of a tensor of kFusedTargetTypes.
template <class F>
Status ForTargetType(const Argument& targets, F&& f) {
  return targets.dtype == ACL_INT64 ? f.template operator()<std::int64_t>() : f.template operator()<std::int32_t>();
}

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_FUSED_LINEAR_H_
