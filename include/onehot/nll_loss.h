// Negative log likelihood: minus the log-probability of the target class, and its gradient, minus a weighted one-hot.
//
// With y the target of a position, k = 1 where y != ignore_index and 0 where it is, w the class weights and t the token
// weights (1 where they are not given):
//
//   none   loss[i] = k t w_y (-x_y)
//   sum    loss    = sum over positions of k t w_y (-x_y)
//   mean   loss    = sum / D, D = total_weight = sum over positions of k t w_y
//
// and out = d(grad_output . loss) / dx is 0 but for out_y = -k t w_y g / D, D = 1 for none and sum.
#ifndef ONEHOT_NLL_LOSS_H_
#define ONEHOT_NLL_LOSS_H_

#include <cstdint>
#include <optional>

#include "onehot/export.h"
#include "onehot/plan.h"
#include "onehot/reduction.h"
#include "onehot/status.h"
#include "onehot/tensor.h"

namespace onehot {

//   input         f32 f64 f16 bf16      rank 1 to 8, log-probabilities; onehot/reduction.h says how target lies in it
//   target        i64 i32 i16 i8 u8     each value in [0, C), or ignore_index
//   loss          dtype of input, or a wider one of f32 and f64
//                                       none: shape of target; mean and sum: one element, any rank
//   total_weight  as loss               one element, optional: D, whether or not denominator is given; 0 for none, as in
//                                       PyTorch
//   weight        dtype of input or f32 [C], optional: class weights
//   token_weight  dtype of input or f32 shape of target, optional: a weight for each position, beside the class weight
//   denominator   f32 f64               one element, optional: replaces D in mean, for sums that go on elsewhere; not
//                                       read otherwise
//
// Any strides for all of them; two elements of an output may not share an address. Tensors may not overlap outputs.
//
// class_axis: the axis of input that has the classes, from the end if negative; an input of rank 1 has only that one,
// whatever class_axis says.
// ignore_index: any value, also one in [0, C). What input holds at an ignored position, NaN too, is not looked at.
// zero_if_empty: mean is 0 instead of 0 / 0 = NaN where no position counts. Where positions count and D is 0, it is IEEE
// arithmetic either way.
//
// Numerics. Every term is -((w_y * t) * x_y) in f64, and so are the sums: positions in blocks of 4096; in a block,
// position i belongs to lane i % 16, lanes are added up in ascending order of positions and then folded in pairs, lane j
// with j + 8, then 4, 2, 1; blocks are folded left to right. Each result is rounded once. So the bits are the same for
// any number of threads, any instruction set and any strides.
//
// Errors. Prepare: dtypes, ranks, extents, strides, attributes. Run: kNullArgument for null data where there are
// elements; kBadData if a target is neither in [0, C) nor ignore_index, with the smallest such position, its value and
// the range. All targets are checked before the first byte of any output is written.
struct NllLoss {
  ConstTensorView input;
  ConstTensorView target;
  TensorView loss;
  std::optional<TensorView> total_weight = std::nullopt;
  std::optional<ConstTensorView> weight = std::nullopt;
  std::optional<ConstTensorView> token_weight = std::nullopt;
  std::optional<ConstTensorView> denominator = std::nullopt;
  Reduction reduction = Reduction::kMean;
  std::int64_t ignore_index = kDefaultIgnoreIndex;
  bool zero_if_empty = false;
  int class_axis = 1;

  std::int64_t N() const { return target.numel(); }
  int ClassAxis() const { return ClassAxisOf(input, class_axis); }
  std::int64_t C() const { return input.dim(ClassAxis()); }
};

ONEHOT_API Status Check(const NllLoss& problem);
ONEHOT_API Result<Plan> Prepare(const NllLoss& problem);

//   grad_output   dtype of out or f32   none: shape of target; mean and sum: one element, any rank
//   target        i64 i32 i16 i8 u8     each value in [0, C), or ignore_index
//   out           f32 f64 f16 bf16      rank 1 to 8, the gradient of the log-probabilities; onehot/reduction.h says how
//                                       target lies in it. compact: shape of target
//   total_weight  dtype of out, f32, f64
//                                       one element: D, used as it is given. Required by mean, not read otherwise
//   weight, token_weight                as in NllLoss, with the dtype of out or f32
//
// Every element of out is written, +0 where nothing contributes; so is everything at an ignored position, whatever stands
// elsewhere. Outputs whose positions or classes lie side by side are written exactly once. accumulate: out += instead, one addition and one rounding for the element that contributes;
// all others keep their bits and are not touched.
// compact: out[i] is the one value that may differ from 0 at position i, for callers that go on from there; the class it
// belongs to is target[i]. num_classes is C then, and is not read otherwise.
//
// Numerics. The value is -(((w_y * t) * g) / D), operations in f32 (f64 for f64 out) on operands rounded to it, factors
// that are not given left out, and rounded once more to the dtype of out. D = 0 follows IEEE arithmetic. The bits are the
// same for any number of threads, any instruction set and any strides.
//
// class_axis, ignore_index, strides and errors as in NllLoss.
struct NllLossBackward {
  ConstTensorView grad_output;
  ConstTensorView target;
  TensorView out;
  std::optional<ConstTensorView> total_weight = std::nullopt;
  std::optional<ConstTensorView> weight = std::nullopt;
  std::optional<ConstTensorView> token_weight = std::nullopt;
  Reduction reduction = Reduction::kMean;
  std::int64_t ignore_index = kDefaultIgnoreIndex;
  bool accumulate = false;
  bool compact = false;
  std::int64_t num_classes = 0;
  int class_axis = 1;

  std::int64_t N() const { return target.numel(); }
  int ClassAxis() const { return ClassAxisOf(out, class_axis); }
  std::int64_t C() const { return compact ? num_classes : out.dim(ClassAxis()); }
};

ONEHOT_API Status Check(const NllLossBackward& problem);
ONEHOT_API Result<Plan> Prepare(const NllLossBackward& problem);

}  // namespace onehot

#endif  // ONEHOT_NLL_LOSS_H_
