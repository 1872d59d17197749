// The rows of a linear layer's input and weight, in f64.
#ifndef ONEHOT_REF_LINEAR_ROWS_H_
#define ONEHOT_REF_LINEAR_ROWS_H_

#include <cstdint>

#include "core/layout.h"
#include "ref/elements.h"

namespace onehot::ref {

class Rows {
 public:
  Rows(const ConstTensorView& input, const ConstTensorView& weight)
      : input_(input), weight_(weight), input_at_(Flatten(WithoutAxis(input, input.rank - 1), input.rank - 1)) {}

  double X(std::int64_t i, std::int64_t h) const { return Load(input_, input_at_.Offset(i) + h * input_.stride(-1)); }
  double W(std::int64_t v, std::int64_t h) const {
    return Load(weight_, v * weight_.stride(0) + h * weight_.stride(1));
  }
  double Dot(std::int64_t i, std::int64_t v) const {
    double sum = 0;
    for (std::int64_t h = 0; h < weight_.dim(1); ++h) sum += X(i, h) * W(v, h);
    return sum;
  }

 private:
  const ConstTensorView& input_;
  const ConstTensorView& weight_;
  const Positions input_at_;
};

}  // namespace onehot::ref

#endif  // ONEHOT_REF_LINEAR_ROWS_H_
