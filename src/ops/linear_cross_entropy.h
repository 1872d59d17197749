// What the linear cross entropy operators are to one another, and the rules that all of them keep.
#ifndef ONEHOT_OPS_LINEAR_CROSS_ENTROPY_H_
#define ONEHOT_OPS_LINEAR_CROSS_ENTROPY_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "onehot/linear_cross_entropy.h"
#include "onehot/linear_cross_entropy_shards.h"
#include "ops/losses.h"

namespace onehot {

inline constexpr std::string_view kClassWeight = "class weight";  // beside the weight of the layer

// The gradients later are those of a call that has no other output.
inline LinearCrossEntropy WithoutOutputs(const LinearCrossEntropyBackward& op) {
  LinearCrossEntropy same{.input = op.input, .weight = op.weight, .target = op.target};
  same.upstream = op.upstream, same.grad = op.grad, same.options = op.options;
  return same;
}

// The classes that rows of weight are.
inline VocabularyShard ShardOf(const std::optional<VocabularyShard>& shard, std::int64_t V) {
  return shard ? *shard : VocabularyShard{0, V};
}

struct LinearLayerArguments {
  const ConstTensorView &input, &weight, &target;
  const LinearCrossEntropyOptions& options;
};
template <class Op>
LinearLayerArguments ArgumentsOf(const Op& op) {
  return {op.input, op.weight, op.target, op.options};
}

// Dtypes and attributes, then shapes.
Status CheckLayerDTypes(const LinearLayerArguments& op);
Status CheckLayerShapes(const LinearLayerArguments& op, const std::optional<VocabularyShard>& shard);

}  // namespace onehot

#endif  // ONEHOT_OPS_LINEAR_CROSS_ENTROPY_H_
