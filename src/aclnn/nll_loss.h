// What the four NLL loss operators have in common: they differ in the ranks of self, and backward has gradOutput where
// forward has out.
#ifndef ONEHOT_ACLNN_NLL_LOSS_H_
#define ONEHOT_ACLNN_NLL_LOSS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "aclnn/operator.h"
#include "onehot/status.h"
#include "onehot/tensor.h"

namespace onehot::aclnn {

// Their documents name no Ascend950 (contract 7.24).
inline constexpr std::uint32_t kNllLossProducts = kAllProducts & ~On(Product::kAscend950);

// Of self: one axis of classes alone or with one of positions, and pictures.
struct RankRange {
  std::size_t least, most;
};
inline constexpr RankRange kNllLossRanks{1, 2}, kNllLoss2dRanks{4, 4};

struct NllLossAttributes {
  RankRange ranks;
  std::int64_t reduction, ignore_index;
};

struct NllLossTensors {
  const Argument &self, &target, &weight, &total_weight;
  const Argument& per_loss;             // gradOutput or, forward, out
  const Argument* per_logit = nullptr;  // out of backward
};

// All that the documents say about the arguments, in the order of contract 7.5. `arguments` are those of the prototype.
Status CheckNllLoss(std::span<const Argument> arguments, const NllLossTensors& tensors,
                    const NllLossAttributes& attributes, Product product);

// For the native operator, which wants the shape of target also where there is one loss only, and the documents any
// tensor of one element (contract 1.9, 7.9, 7.19).
TensorView PerLossView(const NllLossTensors& tensors, const NllLossAttributes& attributes);

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_NLL_LOSS_H_
