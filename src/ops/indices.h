// What an index tensor may be, for every operator that reads one.
#ifndef ONEHOT_OPS_INDICES_H_
#define ONEHOT_OPS_INDICES_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "core/dtype.h"
#include "onehot/status.h"
#include "onehot/tensor.h"

namespace onehot {

using IndexTypes = Types<std::int64_t, std::int32_t, std::int16_t, std::int8_t, std::uint8_t, Bool, double, float, F16>;

// The row an index names, or -1 if it names none (a row is never negative, so -1 is out of range for every V).
template <class I>
std::int64_t RowOf(I index) {
  if constexpr (std::is_same_v<I, Bool>) {
    return index.byte != 0;
  } else if constexpr (std::is_integral_v<I>) {
    return static_cast<std::int64_t>(index);
  } else {
    const auto x = static_cast<double>(Widen(index));
    // Also false for NaN. Above -1 truncates to 0; 2^63 is the first f64 that no int64 holds.
    return x > -1.0 && x < 0x1p63 ? static_cast<std::int64_t>(x) : -1;
  }
}

// "indices: dtype must be one of i64, ..., is bf16"
Status CheckIndexDType(std::string_view argument, DType dtype);

// The error for the smallest bad position: "indices[1, 2] (position 5) = 10 is outside [0, 10)".
Status BadIndex(std::string_view argument, const ConstTensorView& indices, std::int64_t position, std::int64_t rows);

}  // namespace onehot

#endif  // ONEHOT_OPS_INDICES_H_
