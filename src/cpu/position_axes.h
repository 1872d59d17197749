// The axes of positions as several tensors see them, in an order that suits one of them.
#ifndef ONEHOT_CPU_POSITION_AXES_H_
#define ONEHOT_CPU_POSITION_AXES_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "core/layout.h"
#include "onehot/tensor.h"

namespace onehot::cpu {

// kTensors layouts over the same extents. Axes are sorted by the strides of the first tensor, largest first, and merged
// where all tensors allow it; so its memory is walked in order, whatever the order of its axes.
template <std::size_t kTensors>
class PositionAxes {
 public:
  using Offsets = std::array<std::int64_t, kTensors>;  // elements

  explicit PositionAxes(const std::array<TensorLayout, kTensors>& layouts) {
    for (int axis = 0; axis < layouts[0].rank; ++axis) {
      if (layouts[0].dim(axis) == 1) continue;
      Axis a{layouts[0].dim(axis), {}};
      for (std::size_t t = 0; t < kTensors; ++t) a.strides[t] = layouts[t].stride(axis);
      axes_[rank_++] = a;
    }
    std::stable_sort(axes_.begin(), axes_.begin() + static_cast<std::ptrdiff_t>(rank_),
                     [](const Axis& a, const Axis& b) { return std::abs(a.strides[0]) > std::abs(b.strides[0]); });
    std::size_t merged = 0;
    for (std::size_t i = 1; i < rank_; ++i) {
      bool continues = true;
      for (std::size_t t = 0; t < kTensors; ++t)
        continues = continues && axes_[merged].strides[t] == axes_[i].strides[t] * axes_[i].extent;
      if (continues) {
        axes_[merged] = {axes_[merged].extent * axes_[i].extent, axes_[i].strides};
      } else {
        axes_[++merged] = axes_[i];
      }
    }
    if (rank_ > 0) rank_ = merged + 1;
    // Always an innermost axis, so that callers have no case without one.
    if (rank_ == 0) axes_[rank_++] = {1, {}};
    for (std::size_t i = 0; i + 1 < rank_; ++i) outer_ *= axes_[i].extent;
  }

  // Positions are outer() runs of inner() each.
  std::int64_t outer() const { return outer_; }
  std::int64_t inner() const { return axes_[rank_ - 1].extent; }
  std::int64_t inner_stride(std::size_t tensor) const { return axes_[rank_ - 1].strides[tensor]; }

  // Where run `r` begins.
  Offsets Begin(std::int64_t r) const {
    Offsets offsets{};
    for (std::size_t i = rank_ - 1; i-- > 0;) {
      const std::int64_t at = r % axes_[i].extent;
      r /= axes_[i].extent;
      for (std::size_t t = 0; t < kTensors; ++t) offsets[t] += at * axes_[i].strides[t];
    }
    return offsets;
  }

  // Whether runs follow each other at one distance in that tensor, and which.
  bool uniform_outer() const { return rank_ <= 2; }
  std::int64_t outer_stride(std::size_t tensor) const { return rank_ < 2 ? 0 : axes_[rank_ - 2].strides[tensor]; }

 private:
  struct Axis {
    std::int64_t extent;
    Offsets strides;
  };

  std::array<Axis, kMaxRank + 1> axes_{};
  std::size_t rank_ = 0;
  std::int64_t outer_ = 1;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_POSITION_AXES_H_
