// Arithmetic on extents and strides. All of it in 64 bits; CheckLayout makes sure that nothing later overflows.
#ifndef ONEHOT_CORE_LAYOUT_H_
#define ONEHOT_CORE_LAYOUT_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "onehot/status.h"
#include "onehot/tensor.h"

namespace onehot {

// Rank 0 to kMaxRank, no negative extent, and every byte offset the view can form fits 63 bits.
Status CheckLayout(std::string_view argument, const TensorLayout& layout);

// Refuses a view in which two elements share an address: it cannot be an output.
Status CheckNoOverlap(std::string_view argument, const TensorLayout& layout);

// Whether two elements of the view share an address. Exact, but for views whose strides interleave so intricately that
// the search is cut off; those count as overlapping.
bool OverlapsItself(const TensorLayout& layout);

// The same extents.
bool SameShape(const TensorLayout& a, const TensorLayout& b);

// The layout of what is left when every index along `axis` is the same.
TensorLayout WithoutAxis(const TensorLayout& layout, int axis);

// "f32 [3, 4]"
std::string Describe(const TensorLayout& layout);

// "indices[1, 2] (position 5)"; for rank 1 and below "indices[5]".
std::string DescribePosition(std::string_view argument, const TensorLayout& layout, std::int64_t position);

// Some leading axes of a tensor, flattened row-major: position i lies at Offset(i). Axes that continue each other are
// merged, so most tensors have one (uniform) stride.
struct Positions {
  std::int64_t count = 1;
  int rank = 0;  // axes left after merging
  std::array<std::int64_t, kMaxRank> dims{};
  std::array<std::int64_t, kMaxRank> strides{};

  bool uniform() const { return rank <= 1; }
  std::int64_t stride() const { return rank == 0 ? 0 : strides[0]; }  // of a uniform one, in elements
  std::int64_t Offset(std::int64_t position) const {
    if (uniform()) return position * stride();
    std::int64_t offset = 0;
    for (auto axis = static_cast<std::size_t>(rank); axis-- > 1;) {
      offset += position % dims[axis] * strides[axis];
      position /= dims[axis];
    }
    return offset + position * strides[0];
  }

  // Runs of positions that lie at one distance, and that distance. A run begins at each multiple of its length, which is
  // at least 1.
  std::int64_t run() const {
    const std::int64_t length = uniform() ? count : dims[static_cast<std::size_t>(rank - 1)];
    return length > 0 ? length : 1;
  }
  std::int64_t step() const { return rank == 0 ? 0 : strides[static_cast<std::size_t>(rank - 1)]; }
};
Positions Flatten(const TensorLayout& layout, int axes);

}  // namespace onehot

#endif  // ONEHOT_CORE_LAYOUT_H_
