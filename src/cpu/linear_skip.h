// Products of a linear layer that leave out what skip_below has made 0.
#ifndef ONEHOT_CPU_LINEAR_SKIP_H_
#define ONEHOT_CPU_LINEAR_SKIP_H_

#include <algorithm>
#include <cstdint>

#include "cpu/linear_products.h"

namespace onehot::cpu {

// kTileRows rows of a product, from `row`, along those parts of its reduction that stayed: part k is `step` long.
template <class Stayed, class Multiply>
void MultiplyLeft(const ProductPart& whole, std::int64_t row, std::int64_t step, Stayed&& stayed, Multiply&& multiply) {
  ProductPart part = whole;
  part.row += row, part.c += row * whole.c_row, part.rows = kTileRows;
  part.next_column = whole.column, part.next_first = whole.first;  // the same columns of b come again
  bool any = false;
  for (std::int64_t k = 0; k < whole.depth;) {
    if (!stayed(k / step)) {
      k += step;
      continue;
    }
    const std::int64_t begin = k;
    while (k < whole.depth && stayed(k / step)) k += step;
    part.first = begin, part.depth = std::min(k, whole.depth) - begin;
    multiply(part);
    part.accumulate = any = true;
  }
  part.first = part.depth = 0;
  if (!any) multiply(part);  // zeros, or what was there
}

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_SKIP_H_
