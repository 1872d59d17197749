// Linear cross entropy of a vocabulary that is split: what each shard knows of its logits, the loss from what all know.
//
//   1. each shard: LinearCrossEntropyStatistics
//   2. the caller folds them over shards s, for each position:
//
//        max          = largest of max_s = M
//        sum_exp      = sum of exp(max_s - M) sum_exp_s
//        target_logit = target_logit_s + (max_s - M) of the shard that has the target
//        smoothing    = sum of smoothing_s + (M - max_s) W_s,  W_s = sum of the class weights of s, or its classes
//        moment       = sum of exp(max_s - M) (moment_s + (max_s - M) sum_exp_s)
//        argmax       = that of the first shard with max_s = M
//
//      where shards whose max_s is -infinity add 0 to sum_exp and moment, and those whose W_s is 0 add 0 to smoothing
//   3. LinearCrossEntropyLoss, from the folded numbers
//   4. each shard: LinearCrossEntropyBackward (onehot/linear_cross_entropy.h) with max, sum_exp and shard; the caller adds
//      up grad.input
//
// With one shard steps 1, 3 and 4 give the bits of LinearCrossEntropy, unless that is computed in f64; with several its
// values but for rounding. `reproducible` has to be the same in all steps.
// Symbols are those of onehot/linear_cross_entropy.h.
#ifndef ONEHOT_LINEAR_CROSS_ENTROPY_SHARDS_H_
#define ONEHOT_LINEAR_CROSS_ENTROPY_SHARDS_H_

#include <cstdint>
#include <optional>

#include "onehot/export.h"
#include "onehot/linear_cross_entropy.h"
#include "onehot/plan.h"
#include "onehot/status.h"
#include "onehot/tensor.h"

namespace onehot {

//   input, weight, target  as in LinearCrossEntropy; targets are classes of the whole vocabulary, in
//                          [0, shard.num_classes), or ignore_index
//   shard                  which classes the rows of weight are; not given: all of them
//   max           f32 (f64 for f64 input)  shape of target: the largest z, -infinity without classes
//   sum_exp       as max   sum over the shard of exp(z_v - max)
//   target_logit  as max   z_y - max, -infinity where z_y is; 0 where the target is not in the shard
//   smoothing     as max   sum over the shard of w_v (max - z_v), w_v = 1 without class weights; what label_smoothing needs
//   moment        as max   sum over the shard of exp(z_v - max) (z_v - max); what entropy needs
//   argmax        i64      the lowest class of the vocabulary among those with the largest z, the first NaN if there is
//                          one, -1 without classes
//   logits        dtype of input or f32, [..., V]: z, rounded once
//   options       loss.weight has num_classes elements. Of loss, softcap, weight and ignore_index are used, and bias,
//                 logit_scale and reproducible; the others are checked all the same
//
// Every output is optional. Where a position is ignored, all of them are 0, argmax -1, rows of logits 0. -infinity among
// the logits: exp gives 0, 0 is added to moment, and +infinity to smoothing unless w_v is 0.
//
// Numerics, strides and errors as in LinearCrossEntropy, which computes the same numbers.
struct LinearCrossEntropyStatistics {
  ConstTensorView input;
  ConstTensorView weight;
  ConstTensorView target;
  std::optional<VocabularyShard> shard = std::nullopt;
  std::optional<TensorView> max = std::nullopt;
  std::optional<TensorView> sum_exp = std::nullopt;
  std::optional<TensorView> target_logit = std::nullopt;
  std::optional<TensorView> smoothing = std::nullopt;
  std::optional<TensorView> moment = std::nullopt;
  std::optional<TensorView> argmax = std::nullopt;
  std::optional<TensorView> logits = std::nullopt;
  LinearCrossEntropyOptions options = {};

  std::int64_t N() const { return target.numel(); }
  std::int64_t H() const { return weight.dim(1); }
  std::int64_t V() const { return weight.dim(0); }
};

ONEHOT_API Status Check(const LinearCrossEntropyStatistics& problem);
ONEHOT_API Result<Plan> Prepare(const LinearCrossEntropyStatistics& problem);

// The loss, from statistics of the whole vocabulary:
//
//   lse                  = max + log(sum_exp)
//   lse - z_y            = log(sum_exp) - target_logit
//   sum of w_v (lse - z_v) = smoothing + log(sum_exp) S
//   entropy              = log(sum_exp) - moment / sum_exp
//   probability[i, v]    = exp(logits[i, v] - max[i]) / sum_exp[i]
//
//   max, sum_exp, target_logit  f32 or f64, shape of target; target_logit is read only for loss and log_probability
//   smoothing     as max  needed for the loss with label_smoothing > 0
//   moment        as max  needed for entropy
//   target        as in LinearCrossEntropy; needed with class weights. Without it no position is ignored
//   num_classes   V of the whole vocabulary; read with target, class weights or label_smoothing
//   loss, total_weight              as in LinearCrossEntropy, dtype of max or wider; a loss beside f32 also f16 or bf16
//   lse, log_probability, entropy   as in LinearCrossEntropy, dtype of max
//   logits        f32 f16 bf16 (f64 for f64 statistics), shape of max + [any]: needed for probability
//   probability   as max, shape of logits; rows of ignored positions 0
struct LinearCrossEntropyLoss {
  ConstTensorView max;
  ConstTensorView sum_exp;
  std::optional<ConstTensorView> target_logit = std::nullopt;
  std::optional<ConstTensorView> smoothing = std::nullopt;
  std::optional<ConstTensorView> moment = std::nullopt;
  std::optional<ConstTensorView> target = std::nullopt;
  std::int64_t num_classes = 0;
  std::optional<ConstTensorView> logits = std::nullopt;
  std::optional<TensorView> loss = std::nullopt;
  std::optional<TensorView> lse = std::nullopt;
  std::optional<TensorView> log_probability = std::nullopt;
  std::optional<TensorView> entropy = std::nullopt;
  std::optional<TensorView> total_weight = std::nullopt;
  std::optional<TensorView> probability = std::nullopt;
  CrossEntropyOptions options = {};  // weights in f32 or the dtype of max; class_axis and softcap are not used

  std::int64_t N() const { return max.numel(); }
};

ONEHOT_API Status Check(const LinearCrossEntropyLoss& problem);
ONEHOT_API Result<Plan> Prepare(const LinearCrossEntropyLoss& problem);

}  // namespace onehot

#endif  // ONEHOT_LINEAR_CROSS_ENTROPY_SHARDS_H_
