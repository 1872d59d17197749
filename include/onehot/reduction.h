// What losses over a class axis have in common.
//
// A problem is N positions with C classes each. One tensor has a class axis; its other axes, in their order, are those of
// `target`: [C] and [], [N, C] and [N], [N, C, H, W] and [N, H, W], or, with class_axis = -1, [N, H, W, C] and
// [N, H, W]. Positions are numbered in row-major order of `target`, however the tensors lie in memory.
#ifndef ONEHOT_REDUCTION_H_
#define ONEHOT_REDUCTION_H_

#include <cstdint>

#include "onehot/tensor.h"

namespace onehot {

// The numbers are PyTorch's and aclnn's.
enum class Reduction : std::uint8_t { kNone = 0, kMean = 1, kSum = 2 };

// PyTorch's default.
inline constexpr std::int64_t kDefaultIgnoreIndex = -100;

// The axis that has the classes, from the front: `class_axis` counts from the end if negative, and a tensor of rank 1 has
// one axis only.
constexpr int ClassAxisOf(const TensorLayout& classes, int class_axis) {
  return classes.rank <= 1 ? 0 : class_axis < 0 ? class_axis + classes.rank : class_axis;
}

}  // namespace onehot

#endif  // ONEHOT_REDUCTION_H_
