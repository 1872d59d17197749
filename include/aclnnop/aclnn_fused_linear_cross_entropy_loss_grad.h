// The gradients of a cross entropy over L = input weight^T, of which this shard has V rows of the vocabulary, for BT tokens:
//
//   P             softmaxOptional, or exp(L - logitsMax[:, None]) / sumExpLogits[:, None] where it is null
//   g[b, v]       grad[b] (P[b, v] - [v == maskedTarget[b] and the target is in this shard])
//   inputGradOut  g weight     [BT, H]; where there are several shards, the caller adds up theirs
//   weightGradOut g^T input    [V, H]
//
//   grad                  [BT]     FLOAT
//   input                 [BT, H]  FLOAT16, BFLOAT16
//   weight                [V, H]   dtype of input; V at least 128
//   targetMask            [L]      UINT8 with 8 L >= BT: bit b % 8, counted from the least significant, of byte b / 8 is 1
//                                  where the target of token b is not in this shard; further bits do not matter.
//                                  Or BOOL with L = BT: one byte for each token, any but 0 is true
//   maskedTarget          [BT]     INT64, INT32; in [0, V). Where the mask is 1 it is not read; the token keeps its softmax
//                                  part of both gradients
//   labelSmoothing        0
//   logitsMaxOptional, sumExpLogitsOptional
//                         [BT]     FLOAT, of the whole vocabulary. With softmaxOptional neither read nor checked, else they
//                                  must be given
//   softmaxOptional       [BT, V]  FLOAT, this shard's columns; never modified. Null: P is computed again, and never in
//                                  memory as a whole
//   inputGradOut          [BT, H]  dtype of input
//   weightGradOut         [V, H]   dtype of input
//
// BT and H may be 0; without tokens weightGradOut is 0. Any strides and offsets; two elements of an output may not share an
// address. Sums are taken in float and rounded once; the result has the same bits on every run. A CPU that multiplies
// BFLOAT16 gets the gradient of logits rounded to it before the products, so other CPUs have other bits
// (include/onehot/linear_cross_entropy.h says more).
//
// Products (ONEHOT_SOC): Ascend910B, Ascend910_93.
#ifndef ONEHOT_ACLNNOP_ACLNN_FUSED_LINEAR_CROSS_ENTROPY_LOSS_GRAD_H_
#define ONEHOT_ACLNNOP_ACLNN_FUSED_LINEAR_CROSS_ENTROPY_LOSS_GRAD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Checks the arguments, says how much working memory the launch needs, and makes the executor. Reads no data; the tensors
// may be destroyed when it has returned.
//   161001  a null pointer where the above names no null
//   161002  a handle that is not live, a dtype, format, labelSmoothing, rank, shape or view outside the above, a view that
//           leaves its block of aclrtMalloc
//   361001  a product that does not offer it, or an unknown one
// On failure *workspaceSize is 0 and *executor null.
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedLinearCrossEntropyLossGradGetWorkspaceSize(
    const aclTensor* grad, const aclTensor* input, const aclTensor* weight, const aclTensor* targetMask,
    const aclTensor* maskedTarget, float labelSmoothing, const aclTensor* logitsMaxOptional,
    const aclTensor* sumExpLogitsOptional, const aclTensor* softmaxOptional, aclTensor* inputGradOut,
    aclTensor* weightGradOut, uint64_t* workspaceSize, aclOpExecutor** executor);

// Runs it; done when it returns. workspace has at least the bytes GetWorkspaceSize said, of any alignment and content.
//   161002  workspace null or too small, a tensor with elements but null data, an executor that is spent, destroyed or
//           another operator's, a stream that is not live; or a maskedTarget outside [0, V) whose mask is 0, which the next
//           synchronise of the stream reports too. Nothing is written.
//   561103  a null executor
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedLinearCrossEntropyLossGrad(void* workspace, uint64_t workspaceSize,
                                                                     aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACLNNOP_ACLNN_FUSED_LINEAR_CROSS_ENTROPY_LOSS_GRAD_H_
