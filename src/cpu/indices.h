// Index tensors read once: any dtype, any strides, checked, as plain row numbers.
#ifndef ONEHOT_CPU_INDICES_H_
#define ONEHOT_CPU_INDICES_H_

#include <cstdint>

#include "core/layout.h"
#include "onehot/tensor.h"

namespace onehot::cpu {

// Writes the rows that positions [begin, end) name to rows[0 .. end - begin) and returns the first position whose row
// is outside [0, limit), or -1. `at` is Flatten(indices, indices.rank). What rows holds from a bad position on is
// undefined. Row is uint32_t (limit <= 2^32) or uint64_t.
template <class Row>
std::int64_t LoadRows(const ConstTensorView& indices, const Positions& at, std::int64_t limit, std::int64_t begin,
                      std::int64_t end, Row* rows);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_INDICES_H_
