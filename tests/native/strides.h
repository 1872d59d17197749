// Ways to lay a tensor out in memory.
#ifndef TESTS_NATIVE_STRIDES_H_
#define TESTS_NATIVE_STRIDES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "tests/native/tensor.h"

namespace onehot::test {

enum class Form {
  kDense,
  kRowGaps,     // rows are part of wider ones
  kOneMore,     // by a single element
  kTransposed,  // column-major
  kTransposedGaps,
  kRowsBackwards,
  kColumnsBackwards,
  kAllBackwards,
  kEverySecondColumn,
  kEveryThirdColumnBackwards,
};
inline constexpr Form kForms[] = {Form::kDense,
                                  Form::kRowGaps,
                                  Form::kOneMore,
                                  Form::kTransposed,
                                  Form::kTransposedGaps,
                                  Form::kRowsBackwards,
                                  Form::kColumnsBackwards,
                                  Form::kAllBackwards,
                                  Form::kEverySecondColumn,
                                  Form::kEveryThirdColumnBackwards};

// Strides of a rows x columns matrix in that form.
inline Dims StridesOf(Form form, std::int64_t rows, std::int64_t columns) {
  switch (form) {
    case Form::kDense:
      return {columns, 1};
    case Form::kRowGaps:
      return {columns + 13, 1};
    case Form::kOneMore:
      return {columns + 1, 1};
    case Form::kTransposed:
      return {1, rows};
    case Form::kTransposedGaps:
      return {2, 2 * rows + 3};
    case Form::kRowsBackwards:
      return {-columns, 1};
    case Form::kColumnsBackwards:
      return {columns, -1};
    case Form::kAllBackwards:
      return {-columns - 2, -1};
    case Form::kEverySecondColumn:
      return {2 * columns, 2};
    case Form::kEveryThirdColumnBackwards:
      return {3 * columns + 1, -3};
  }
  return {};
}

// Axis order[0] is outermost in memory, the last one innermost; `gap` elements are left after each run.
inline Dims PermutedStrides(const Dims& dims, const std::vector<std::size_t>& order, std::int64_t gap = 0) {
  Dims strides(dims.size());
  std::int64_t stride = 1;
  for (std::size_t k = order.size(); k-- > 0;) {
    strides[order[k]] = stride;
    stride = stride * dims[order[k]] + gap;
  }
  return strides;
}

}  // namespace onehot::test

#endif  // TESTS_NATIVE_STRIDES_H_
