// Cross entropy of the outputs of a linear layer, and its gradients, without the N x V logits in memory.
//
// With x = input [N, H], W = weight [V, H], alpha = logit_scale:
//
//   u = alpha (x W^T + bias)
//
// are the logits of onehot/cross_entropy.h, with its options and C = V classes; its formulas give z, lse, the loss and the
// gradient du of the loss with respect to u. From there
//
//   grad_input  = alpha du W                        [N, H]
//   grad_weight = alpha du^T x                      [V, H]
//   grad_bias   = alpha * sum over positions of du  [V]
#ifndef ONEHOT_LINEAR_CROSS_ENTROPY_H_
#define ONEHOT_LINEAR_CROSS_ENTROPY_H_

#include <cstdint>
#include <optional>

#include "onehot/cross_entropy.h"
#include "onehot/export.h"
#include "onehot/plan.h"
#include "onehot/status.h"
#include "onehot/tensor.h"

namespace onehot {

// What the loss is, apart from its tensors: the same for the loss and for its gradients.
struct LinearCrossEntropyOptions {
  CrossEntropyOptions loss = {};  // class_axis is not read: classes are the rows of weight
  std::optional<ConstTensorView> bias =
      std::nullopt;        // [V], dtype of input or f32; -infinity takes a class out if logit_scale > 0
  double logit_scale = 1;  // alpha, finite
  std::optional<std::int64_t> max_workspace = std::nullopt;  // bytes, not negative: see "Memory" below
  double skip_below = 0;                                     // finite, not negative: see "Skipping" below
  bool reproducible = false;                                 // the same bits on every CPU: see "bf16" below
};

// The gradients that are wanted, and where they go; the others cost nothing, and do not change the bits of these.
//
//   grad_input   dtype of input, or f32 for 16-bit input; shape of input
//   grad_weight  the same; shape of weight
//   grad_bias    the same; [V], with a bias or without
//   accumulate   adds to what is there, in one chain of sums that starts with it, rounded once
struct LinearCrossEntropyGradients {
  std::optional<TensorView> input = std::nullopt;
  std::optional<TensorView> weight = std::nullopt;
  std::optional<TensorView> bias = std::nullopt;
  bool accumulate = false;
};

// Upstream gradients: of the loss (g), of log_probability (r) and of entropy (h). Those not given are 0.
//
//   loss             dtype of input, f32 or f64; none: shape of target; mean and sum: one element, any rank
//   log_probability  f32 (f64 for f64 input), shape of target
//   entropy          as log_probability
struct LinearCrossEntropyUpstream {
  std::optional<ConstTensorView> loss = std::nullopt;
  std::optional<ConstTensorView> log_probability = std::nullopt;
  std::optional<ConstTensorView> entropy = std::nullopt;
};

//   input            f32 f64 f16 bf16   [..., H], rank 1 to 8
//   weight           dtype of input     [V, H]
//   target           i64 i32 i16 i8 u8  shape of input without its last axis; each value in [0, V), or ignore_index
//   loss, lse, log_probability, entropy, argmax, total_weight
//                    as in CrossEntropy: per position the shape of target
//   target_logit     as lse             z_y, 0 where ignored
//   grad, upstream   gradients in the same call. The upstream gradient of the loss has to be known by then: 1 in most
//                    training steps, or a scale
//
// Every output is optional, and none at all is no error. Any strides for all tensors: rows of input and weight may be
// apart, weight may be transposed. Two elements of an output may not share an address. Tensors may not overlap outputs.
//
// Numerics. Sums are in f32 (f64 for f64 input). Every element of a product is one chain of fused multiply-adds in
// ascending order: of columns for logits, of positions that are not ignored for grad_weight and grad_bias (whose terms are
// just added), of classes for grad_input. Sums of exponentials and over positions (f64) are those of CrossEntropy. p_y - 1 is
// formed before any rounding; each result is rounded once to its dtype. The bits are the same for any number of threads, any
// instruction set and any strides, and do not depend on what else is asked for. A NaN in a position makes its own results
// NaN, its row of grad_input, and all of grad_weight and grad_bias.
//
// bf16. Where the CPU multiplies bf16 (AVX512_BF16), the products of bf16 input are its, at twice the speed, unless
// `reproducible` asks for the above. Sums are in f32 all the same, but
//
//   alpha du        is rounded once to bf16, to nearest even, before the products of grad_input and grad_weight, by at
//                   most 2^-8 of itself; grad_bias is the sum of what was not rounded
//   a chain         goes by two elements at a time, 2k and 2k + 1, the latter added first
//   below 2^-126    in magnitude operands and sums of products are taken for 0
//
// These bits, too, are the same for any number of threads, strides and workspace, and on all CPUs with these products. Pairs
// of classes are counted from class 0 of the weight, those of positions among those that are not ignored.
// Plan::implementation() is "cpu:bf16" then.
//
// Memory. Scratch is the input in f32 (or twice in bf16), grad_input in f32, packed rows of weight, and logits of the
// classes that are made at a time; for products of bf16 also their alpha du in bf16, for each of grad_input and
// grad_weight. max_workspace is what Plan::scratch_bytes() should not exceed; where the least that is possible takes more,
// that is taken (it has 400 KB for each CPU of the machine, 8 at least, where there are tokens for all of them). With loss
// and gradients in one call there are two orders:
//
//   four products   all positions, 64 to 1024 classes at a time: statistics first, then logits once more for gradients
//   three products  some positions, all classes at a time: their logits stay in scratch, 4 V bytes a position, until
//                   their gradients are done. grad.weight in 16 bits takes 4 V H bytes more, unless one time is enough
//
// Three are taken where they fit with some 220 positions at least (440 for products of bf16), or all. Without
// max_workspace, they have to fit in 64 MiB, or in an eighth of logits and their gradient in the dtype of input where that
// is more, and four take 1024 classes. The bits of results do not depend on it. Plan::order() says which was taken.
//
// Skipping. Where alpha du of 6 tokens (positions that are not ignored, counted from the first) and 64 classes (from class
// 0) is smaller than skip_below in magnitude throughout, it may be taken for 0, and its part of the products is left out.
// That changes
//
//   grad_input[i, h]   by at most skip_below * sum over classes of |W[v, h]|
//   grad_weight[v, h]  by at most skip_below * sum over positions of |x[i, h]|
//   grad_bias[v]       by at most skip_below * positions
//
// and 1 + 2^-8 times that for grad_input and grad_weight with products of bf16. The loss and the other outputs do not
// change. The bits are still the same for what they are the same without it, if input and weight are finite, but for the
// sign of a zero and, with products of bf16, for old values of accumulate below 2^-126. ref skips nothing.
//
// Errors. Of arguments: kBadArgument, kBadDType, kBadShape, before anything is touched. A target that is neither in
// [0, V) nor ignore_index: kBadData, with position, value and range, and no output is written.
struct LinearCrossEntropy {
  ConstTensorView input;
  ConstTensorView weight;
  ConstTensorView target;
  std::optional<TensorView> loss = std::nullopt;
  std::optional<TensorView> lse = std::nullopt;
  std::optional<TensorView> target_logit = std::nullopt;
  std::optional<TensorView> log_probability = std::nullopt;
  std::optional<TensorView> entropy = std::nullopt;
  std::optional<TensorView> argmax = std::nullopt;
  std::optional<TensorView> total_weight = std::nullopt;
  LinearCrossEntropyUpstream upstream = {};
  LinearCrossEntropyGradients grad = {};
  LinearCrossEntropyOptions options = {};

  std::int64_t N() const { return target.numel(); }
  std::int64_t H() const { return weight.dim(1); }
  std::int64_t V() const { return weight.dim(0); }
};

ONEHOT_API Status Check(const LinearCrossEntropy& problem);
ONEHOT_API Result<Plan> Prepare(const LinearCrossEntropy& problem);

// Which classes the rows of weight are where the vocabulary is split: row r is class first + r of num_classes.
struct VocabularyShard {
  std::int64_t first = 0;
  std::int64_t num_classes = 0;
};

// The gradients later than the loss. What is known of all logits of a position is given, or computed once more:
//
//   lse           what LinearCrossEntropy gave for the same tensors and options. Gradients have its rounding,
//                 |lse| 2^-24, on top
//   max, sum_exp  the same as two numbers, without that rounding: the largest z of the position, and the sum of
//                 exp(z - max); onehot/linear_cross_entropy_shards.h makes them
//   entropy       H, as LinearCrossEntropy gave it; read only with upstream.entropy, beside lse or max
//   probability   f32 (f64 for f64 input), [..., V]: p itself, for products of a softmax that is there. Not together
//                 with what needs more than p: softcap, z_loss, upstream.entropy
//
// lse, max with sum_exp, or probability: one of them at most. f32 (f64 for f64 input), shape of target.
//
// With `shard`, weight, bias, grad.weight and grad.bias have the shard's rows, grad.input is its part of the sum over
// classes. Targets and class weight are those of the whole vocabulary: a target outside of the shard gets no -1 here.
// S and eps / V count all classes. The three above describe the whole vocabulary, and one of them has to be given, with
// upstream.entropy also entropy; probability has the shard's columns.
struct LinearCrossEntropyBackward {
  ConstTensorView input;
  ConstTensorView weight;
  ConstTensorView target;
  std::optional<ConstTensorView> lse = std::nullopt;
  std::optional<ConstTensorView> max = std::nullopt;
  std::optional<ConstTensorView> sum_exp = std::nullopt;
  std::optional<ConstTensorView> entropy = std::nullopt;
  std::optional<ConstTensorView> probability = std::nullopt;
  std::optional<VocabularyShard> shard = std::nullopt;
  LinearCrossEntropyUpstream upstream = {};
  LinearCrossEntropyGradients grad = {};
  LinearCrossEntropyOptions options = {};

  std::int64_t N() const { return target.numel(); }
  std::int64_t H() const { return weight.dim(1); }
  std::int64_t V() const { return weight.dim(0); }
};

ONEHOT_API Status Check(const LinearCrossEntropyBackward& problem);
ONEHOT_API Result<Plan> Prepare(const LinearCrossEntropyBackward& problem);

}  // namespace onehot

#endif  // ONEHOT_LINEAR_CROSS_ENTROPY_H_
