#include "core/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <span>
#include <vector>

namespace onehot {
namespace {

struct Axis {
  std::int64_t extent, stride;
};

// Is there a step d != 0 with |d_k| < extent_k and sum of d_k * stride_k == target? Axes are sorted by stride, largest
// first; `reach[k]` is the largest sum axes k.. can form.
struct StepSearch {
  std::span<const Axis> axes;
  std::span<const std::int64_t> reach;
  int budget = 20000;  // nodes; plain and sliced views need a handful

  bool Find(std::size_t k, std::int64_t target, bool moved) {
    if (--budget < 0) return true;
    if (std::abs(target) > reach[k]) return false;
    if (k == axes.size()) return moved && target == 0;
    const auto [extent, stride] = axes[k];
    // What is left for the axes after this one must be within their reach: |target - d * stride| <= reach[k + 1].
    const std::int64_t nearest = target / stride;
    const std::int64_t slack = reach[k + 1] / stride + 1;
    const std::int64_t low = std::max(nearest - slack, 1 - extent), high = std::min(nearest + slack, extent - 1);
    for (std::int64_t d = low; d <= high; ++d)
      if (Find(k + 1, target - d * stride, moved || d != 0)) return true;
    return false;
  }
};

}  // namespace

Status CheckLayout(std::string_view argument, const TensorLayout& layout) {
  if (layout.rank < 0 || layout.rank > kMaxRank)
    return Status::Error(Code::kBadShape,
                         fmt::format("{}: rank must be in [0, {}], is {}", argument, kMaxRank, layout.rank));
  std::int64_t elements = 1, span = SizeOf(layout.dtype);
  // Extents of an empty view must fit too, the zeros taken as ones, since others multiply them; its strides reach
  // nothing.
  bool fits = true, reaches = true, empty = false;
  for (int axis = 0; axis < layout.rank; ++axis) {
    const std::int64_t extent = layout.dim(axis), stride = layout.stride(axis);
    if (extent < 0)
      return Status::Error(Code::kBadShape,
                           fmt::format("{}: extents must not be negative, axis {} has {}", argument, axis, extent));
    empty = empty || extent == 0;
    fits = fits && !__builtin_mul_overflow(elements, std::max(extent, std::int64_t{1}), &elements);
    std::int64_t reach = 0;
    reaches = reaches && stride != std::numeric_limits<std::int64_t>::min() &&
              !__builtin_mul_overflow(std::max(extent - 1, std::int64_t{0}), std::abs(stride), &reach) &&
              !__builtin_mul_overflow(reach, SizeOf(layout.dtype), &reach) &&
              !__builtin_add_overflow(span, reach, &span);
  }
  std::int64_t bytes = 0;
  fits = fits && !__builtin_mul_overflow(elements, SizeOf(layout.dtype), &bytes);
  if (!fits || (!reaches && !empty))
    return Status::Error(Code::kBadShape,
                         fmt::format("{}: must span less than 2^63 bytes, shape is {}", argument, Describe(layout)));
  return Status::Ok();
}

bool OverlapsItself(const TensorLayout& layout) {
  std::array<Axis, kMaxRank> axes;
  std::size_t count = 0;
  for (int axis = 0; axis < layout.rank; ++axis)
    if (layout.dim(axis) == 0) return false;
  for (int axis = 0; axis < layout.rank; ++axis) {
    if (layout.dim(axis) == 1) continue;
    if (layout.stride(axis) == 0) return true;
    const Axis inserted{layout.dim(axis), std::abs(layout.stride(axis))};
    std::size_t place = count++;
    for (; place > 0 && axes[place - 1].stride < inserted.stride; --place) axes[place] = axes[place - 1];
    axes[place] = inserted;
  }
  std::array<std::int64_t, kMaxRank + 1> reach{};
  bool nested = true;  // each stride steps over everything the smaller ones can reach: the common case, no overlap
  for (std::size_t k = count; k-- > 0;) {
    nested = nested && axes[k].stride > reach[k + 1];
    reach[k] = reach[k + 1] + (axes[k].extent - 1) * axes[k].stride;
  }
  return !nested && StepSearch{std::span(axes).first(count), reach}.Find(0, 0, false);
}

Status CheckNoOverlap(std::string_view argument, const TensorLayout& layout) {
  if (!OverlapsItself(layout)) return Status::Ok();
  const std::span strides(layout.strides.data(), static_cast<std::size_t>(layout.rank));
  return Status::Error(Code::kBadShape,
                       fmt::format("{}: must not map two elements to one address, shape {} with strides [{}] does",
                                   argument, Describe(layout), fmt::join(strides, ", ")));
}

bool SameShape(const TensorLayout& a, const TensorLayout& b) {
  if (a.rank != b.rank) return false;
  for (int axis = 0; axis < a.rank; ++axis)
    if (a.dim(axis) != b.dim(axis)) return false;
  return true;
}

TensorLayout WithoutAxis(const TensorLayout& layout, int axis) {
  TensorLayout rest;
  rest.dtype = layout.dtype;
  for (int a = 0; a < layout.rank; ++a) {
    if (a == axis) continue;
    rest.dims[static_cast<std::size_t>(rest.rank)] = layout.dim(a);
    rest.strides[static_cast<std::size_t>(rest.rank)] = layout.stride(a);
    ++rest.rank;
  }
  return rest;
}

std::string Describe(const TensorLayout& layout) {
  const int rank = std::clamp(layout.rank, 0, kMaxRank);
  return fmt::format("{} [{}]", Name(layout.dtype),
                     fmt::join(std::span(layout.dims.data(), static_cast<std::size_t>(rank)), ", "));
}

std::string DescribePosition(std::string_view argument, const TensorLayout& layout, std::int64_t position) {
  if (layout.rank <= 1) return fmt::format("{}[{}]", argument, position);
  std::vector<std::int64_t> at(static_cast<std::size_t>(layout.rank));
  std::int64_t rest = position;
  for (auto axis = at.size(); axis-- > 0;) {
    at[axis] = rest % layout.dims[axis];
    rest /= layout.dims[axis];
  }
  return fmt::format("{}[{}] (position {})", argument, fmt::join(at, ", "), position);
}

Positions Flatten(const TensorLayout& layout, int axes) {
  Positions positions;
  for (int axis = 0; axis < axes; ++axis) {
    const std::int64_t extent = layout.dim(axis), stride = layout.stride(axis);
    positions.count *= extent;
    if (extent == 1) continue;
    const auto last = static_cast<std::size_t>(positions.rank - 1);
    if (positions.rank > 0 && positions.strides[last] == stride * extent) {
      positions.dims[last] *= extent;
      positions.strides[last] = stride;
    } else {
      positions.dims[last + 1] = extent;
      positions.strides[last + 1] = stride;
      ++positions.rank;
    }
  }
  return positions;
}

}  // namespace onehot
