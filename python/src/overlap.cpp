#include "overlap.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

namespace onehot::python {
namespace {

// Are there d_k in [0, extent_k) with sum of d_k * stride_k == target? Strides are positive, the largest first.
class Sums {
 public:
  void Add(std::int64_t extent, std::int64_t stride) {
    if (extent <= 1 || stride == 0) return;
    std::size_t place = count_++;
    for (; place > 0 && axes_[place - 1].stride < stride; --place) axes_[place] = axes_[place - 1];
    axes_[place] = {extent, stride};
  }
  bool Reach(std::int64_t target) {
    reach_[count_] = 0;
    for (std::size_t k = count_; k-- > 0;) reach_[k] = reach_[k + 1] + (axes_[k].extent - 1) * axes_[k].stride;
    return Search(0, target);
  }

 private:
  struct Axis {
    std::int64_t extent, stride;
  };
  static constexpr std::size_t kMost = 2 * kMaxRank + 1;

  bool Search(std::size_t k, std::int64_t target) {
    if (--budget_ < 0) return true;
    if (target < 0 || target > reach_[k]) return false;
    if (k == count_) return target == 0;
    const auto [extent, stride] = axes_[k];
    // What is left must be within the reach of the axes after this one.
    const std::int64_t missing = target - reach_[k + 1];
    const std::int64_t low = missing > 0 ? (missing + stride - 1) / stride : 0;
    const std::int64_t high = std::min(target / stride, extent - 1);
    for (std::int64_t d = low; d <= high; ++d)
      if (Search(k + 1, target - d * stride)) return true;
    return false;
  }

  std::array<Axis, kMost> axes_;
  std::array<std::int64_t, kMost + 1> reach_;
  std::size_t count_ = 0;
  int budget_ = 20000;  // plain and sliced views need a handful
};

}  // namespace

Bytes BytesOf(const ConstTensorView& view) {
  if (view.numel() == 0) return {};
  Bytes bytes{reinterpret_cast<std::uintptr_t>(view.data), reinterpret_cast<std::uintptr_t>(view.data)};
  for (int axis = 0; axis < view.rank; ++axis) {
    const std::int64_t reach = (view.dim(axis) - 1) * view.stride(axis) * SizeOf(view.dtype);
    (reach < 0 ? bytes.begin : bytes.end) += static_cast<std::uintptr_t>(reach);
  }
  bytes.end += static_cast<std::uintptr_t>(SizeOf(view.dtype));
  return bytes;
}

bool Overlap(const ConstTensorView& a, const ConstTensorView& b) {
  // Bytes of a from its first, and of b backward from its last, add up to the distance of the two where they meet.
  Sums sums;
  for (const ConstTensorView* view : {&a, &b})
    for (int axis = 0; axis < view->rank; ++axis)
      sums.Add(view->dim(axis), std::abs(view->stride(axis)) * SizeOf(view->dtype));
  sums.Add(SizeOf(a.dtype) + SizeOf(b.dtype) - 1, 1);
  return sums.Reach(static_cast<std::int64_t>(BytesOf(b).end - 1 - BytesOf(a).begin));
}

bool Same(const ConstTensorView& a, const ConstTensorView& b) {
  bool same = a.data == b.data && a.dtype == b.dtype && a.rank == b.rank;
  for (int axis = 0; same && axis < a.rank; ++axis)
    same = a.dim(axis) == b.dim(axis) && (a.stride(axis) == b.stride(axis) || a.dim(axis) <= 1);
  return same;
}

}  // namespace onehot::python
