// Whether two views have memory in common.
#ifndef ONEHOT_PYTHON_OVERLAP_H_
#define ONEHOT_PYTHON_OVERLAP_H_

#include <cstdint>

#include "onehot/tensor.h"

namespace onehot::python {

// The bytes from the first of a view to its last, those between its elements too; end is past the last.
struct Bytes {
  std::uintptr_t begin = 0, end = 0;
  bool Meet(const Bytes& other) const { return begin < other.end && other.begin < end; }
};
Bytes BytesOf(const ConstTensorView& view);

// Exact, down to interleaved views of one block of memory, but for strides so intricate that the search is cut off; those
// count as overlapping. For views whose bytes meet and span less than 2^63, as Prepare makes sure.
bool Overlap(const ConstTensorView& a, const ConstTensorView& b);

// The same elements in the same order.
bool Same(const ConstTensorView& a, const ConstTensorView& b);

}  // namespace onehot::python

#endif  // ONEHOT_PYTHON_OVERLAP_H_
