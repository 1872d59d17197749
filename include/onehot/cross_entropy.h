// Cross entropy over a class axis of logits that exist, and its gradient.
//
// Per position, with y its target, k = 1 where y != ignore_index and 0 where it is, w the class weights, t the token
// weight (1 where they are not given), C classes, eps = label_smoothing, zeta = z_loss, c = softcap:
//
//   z   = c tanh(input / c) with a softcap, else input; a class at -infinity stays there
//   lse = log(sum over classes of exp(z_v)),  p_v = exp(z_v - lse)
//   l   = k [ (1 - eps) w_y (lse - z_y) + (eps / C) sum over classes of w_v (lse - z_v) ]
//   q   = k zeta lse^2
//
//   none   loss[i] = t (l + q)
//   sum    loss    = sum of t (l + q)
//   mean   loss    = sum of t l / D + sum of t q / D_z,  D = sum of k t w_y,  D_z = sum of k t
//
// With upstream gradients g of the loss, r of log_probability and h of entropy, S = sum of w_v, a = g k t / D and
// a' = g k t / D_z (D = D_z = 1 for none and sum), H the entropy, the gradient of the logits is
//
//   dz_v = a [ (1 - eps) w_y (p_v - [v = y]) + (eps / C) (S p_v - w_v) ] + 2 a' zeta lse p_v
//          + r k ([v = y] - p_v) - h k p_v (z_v - lse + H)
//   out  = dz_v (1 - (z_v / c)^2) with a softcap, else dz_v
#ifndef ONEHOT_CROSS_ENTROPY_H_
#define ONEHOT_CROSS_ENTROPY_H_

#include <cstdint>
#include <optional>

#include "onehot/export.h"
#include "onehot/plan.h"
#include "onehot/reduction.h"
#include "onehot/status.h"
#include "onehot/tensor.h"

namespace onehot {

// What the loss is, apart from its tensors: for cross entropy and its gradient alike, which must be given the same.
struct CrossEntropyOptions {
  std::optional<ConstTensorView> weight = std::nullopt;        // [C], dtype of input or f32: class weights
  std::optional<ConstTensorView> token_weight = std::nullopt;  // shape of target, dtype of input or f32
  std::optional<ConstTensorView> denominator = std::nullopt;   // one element, f32 or f64: replaces D and D_z in mean,
                                                               // not read otherwise
  Reduction reduction = Reduction::kMean;
  std::int64_t ignore_index = kDefaultIgnoreIndex;
  double label_smoothing = 0;  // eps, in [0, 1]
  double z_loss = 0;           // zeta, finite and not negative
  double softcap = 0;          // c, finite; 0 means none, else positive
  bool zero_if_empty = false;  // mean is 0 instead of NaN where no position counts
  int class_axis = 1;          // of input, from the end if negative; an input of rank 1 has only that one
};

//   input            f32 f64 f16 bf16   rank 1 to 8, logits; onehot/reduction.h says how target lies in it
//   target           i64 i32 i16 i8 u8  each value in [0, C), or ignore_index
//   loss             dtype of input, or a wider one of f32 and f64
//                                       none: shape of target; mean and sum: one element, any rank
//   lse              f32 (f64 for f64 input)  shape of target: the log-sum-exp, 0 where ignored
//   log_probability  as lse             z_y - lse, 0 where ignored
//   entropy          as lse             lse - sum of p_v z_v, 0 where ignored
//   argmax           i64                shape of target: the lowest class among those with the largest z, the first NaN
//                                       if there is one, -1 where ignored
//   total_weight     dtype of input, or a wider one of f32 and f64; one element: D, whether or not a denominator is given;
//                                       0 for none
//
// Every output is optional; what is not asked for costs nothing. Any strides for all tensors; two elements of an output
// may not share an address. Tensors may not overlap outputs.
//
// Numerics. Arithmetic per position is in f32 (f64 for f64 input), whatever the dtype of the logits, on shifted logits
// z - max, so that large common logits cancel exactly. The sum of exponentials is taken over blocks of 1024 classes, in
// each class v belongs to lane v % 16, lanes are added up in ascending order and folded in pairs (j with j + 8, then 4,
// 2, 1); blocks are folded ascending, rescaled to the larger maximum. Sums over positions are in f64 and in the order of
// NllLoss. Each result is rounded once to its dtype. The bits are the same for any number of threads, any instruction
// set and any strides. Errors against the formula: lse within 4 + C / 1024 units in the last place of f32 of
// max(1, |lse|, log C), a loss within as many of max(1, |loss|, |lse|, log C); a softcap adds 4 units of the largest |z|. The
// implementation ref, which f64 logits take, computes in f64.
//
// A class at -infinity has probability 0, and its entropy term is 0; with eps > 0 the loss is then +infinity, as in
// PyTorch, unless its class weight is 0. The gradient follows the formula with p = 0, and is 0 there under a softcap.
// With all classes there, lse is -infinity, the loss NaN and argmax 0. NaN, and +infinity without a softcap, make their
// own position NaN and nothing else but reduced sums.
//
// Without zero_if_empty, where no position counts, a denominator decides: 0 / denominator.
//
// Errors as in NllLoss.
struct CrossEntropy {
  ConstTensorView input;
  ConstTensorView target;
  std::optional<TensorView> loss = std::nullopt;
  std::optional<TensorView> lse = std::nullopt;
  std::optional<TensorView> log_probability = std::nullopt;
  std::optional<TensorView> entropy = std::nullopt;
  std::optional<TensorView> argmax = std::nullopt;
  std::optional<TensorView> total_weight = std::nullopt;
  CrossEntropyOptions options = {};

  std::int64_t N() const { return target.numel(); }
  int ClassAxis() const { return ClassAxisOf(input, options.class_axis); }
  std::int64_t C() const { return input.dim(ClassAxis()); }
};

ONEHOT_API Status Check(const CrossEntropy& problem);
ONEHOT_API Result<Plan> Prepare(const CrossEntropy& problem);

//   input, target         as in CrossEntropy
//   out                   dtype of input or f32; shape of input. It may be input itself, the same address and strides:
//                         then the gradient replaces the logits
//   lse                   what CrossEntropy gave for the same input and options. Without it, it is computed once more, and
//                         not rounded to one number: with it the gradient has the rounding of lse, |lse| 2^-24, on top
//   grad_loss             g: dtype of input, f32 or f64; none: shape of target; mean and sum: one element, any rank
//   grad_log_probability  r: f32 (f64 for f64 input), shape of target
//   grad_entropy          h: as r
//
// Upstream gradients that are not given are 0. Every element of out is written exactly once, +0 at ignored positions,
// whatever stands there.
//
// Numerics. As in CrossEntropy; p_y - 1 is formed in f32 before any rounding, and the result is rounded once to the dtype
// of out. D and D_z are recomputed from the targets, in f64, unless the options give a denominator.
struct CrossEntropyBackward {
  ConstTensorView input;
  ConstTensorView target;
  TensorView out;
  std::optional<ConstTensorView> lse = std::nullopt;
  std::optional<ConstTensorView> grad_loss = std::nullopt;
  std::optional<ConstTensorView> grad_log_probability = std::nullopt;
  std::optional<ConstTensorView> grad_entropy = std::nullopt;
  CrossEntropyOptions options = {};

  std::int64_t N() const { return target.numel(); }
  int ClassAxis() const { return ClassAxisOf(input, options.class_axis); }
  std::int64_t C() const { return input.dim(ClassAxis()); }
};

ONEHOT_API Status Check(const CrossEntropyBackward& problem);
ONEHOT_API Result<Plan> Prepare(const CrossEntropyBackward& problem);

}  // namespace onehot

#endif  // ONEHOT_CROSS_ENTROPY_H_
