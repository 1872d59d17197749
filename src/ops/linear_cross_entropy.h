// What the linear cross entropy operators are to one another.
#ifndef ONEHOT_OPS_LINEAR_CROSS_ENTROPY_H_
#define ONEHOT_OPS_LINEAR_CROSS_ENTROPY_H_

#include "onehot/linear_cross_entropy.h"

namespace onehot {

// The gradients later are those of a call that has no other output.
inline LinearCrossEntropy WithoutOutputs(const LinearCrossEntropyBackward& op) {
  LinearCrossEntropy same{.input = op.input, .weight = op.weight, .target = op.target};
  same.upstream = op.upstream, same.grad = op.grad, same.options = op.options;
  return same;
}

}  // namespace onehot

#endif  // ONEHOT_OPS_LINEAR_CROSS_ENTROPY_H_
