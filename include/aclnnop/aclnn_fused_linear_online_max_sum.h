// What one shard of a vocabulary knows about the logits L = input weight^T, for each of BT tokens b:
//
//   logitsMaxLocalOut[b]        m = the largest L[b, v]
//   sumExpLogitsLocalOut[b]     sum over v of exp(L[b, v] - m)
//   maskedTargetOut[b]          target[b] - vocabStartIndex    0 where the target is not in this shard
//   predictedLogitsLocalOut[b]  L[b, maskedTargetOut[b]] - m   0 where the target is not in this shard
//   targetMaskOut               bit b % 8, counted from the least significant, of byte b / 8: 1 where the target is not in
//                               this shard. Bits beyond BT in the last byte are 1
//
// A target t is in the shard if vocabStartIndex <= t <= vocabEndIndex and t - vocabStartIndex < V, so that the last index of
// the shard and the one after it both do as vocabEndIndex. Any other t, negative ones too, belongs to no row here and is no
// error.
//
//   input                           [BT, H]         FLOAT16, BFLOAT16; H at most 65534
//   weight                          [V, H]          dtype of input; the rows of this shard
//   target                          [BT]            INT64, INT32; classes of the whole vocabulary
//   vocabStartIndex, vocabEndIndex  0 <= vocabStartIndex <= vocabEndIndex
//   logitsMaxLocalOut, sumExpLogitsLocalOut, predictedLogitsLocalOut
//                                   [BT]            FLOAT
//   targetMaskOut                   [(BT + 7) / 8]  UINT8
//   maskedTargetOut                 [BT]            dtype of target
//   vocabParallelLogitsOutOptional  [BT, V]         dtype of input: L, rounded once. Null: logits are never in memory
//
// BT, V and H may be 0. Without rows (V = 0) the maximum is -infinity, the sum 0, and every token masked. Logits are not
// rounded to the dtype of input before they are used. Any strides and offsets; two elements of an output may not share an
// address. The result has the same bits on every run (include/onehot/linear_cross_entropy_shards.h says more, and how the
// results of several shards become one).
//
// Products (ONEHOT_SOC): Ascend910B, Ascend910_93.
#ifndef ONEHOT_ACLNNOP_ACLNN_FUSED_LINEAR_ONLINE_MAX_SUM_H_
#define ONEHOT_ACLNNOP_ACLNN_FUSED_LINEAR_ONLINE_MAX_SUM_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Checks the arguments, says how much working memory the launch needs, and makes the executor. Reads no data; the tensors
// may be destroyed when it has returned.
//   161001  a null pointer where the above names no null
//   161002  a handle that is not live, a dtype, format, index, rank, shape or view outside the above, a view that leaves
//           its block of aclrtMalloc
//   361001  a product that does not offer it, or an unknown one
// On failure *workspaceSize is 0 and *executor null.
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedLinearOnlineMaxSumGetWorkspaceSize(
    const aclTensor* input, const aclTensor* weight, const aclTensor* target, int64_t vocabStartIndex,
    int64_t vocabEndIndex, aclTensor* logitsMaxLocalOut, aclTensor* sumExpLogitsLocalOut,
    aclTensor* predictedLogitsLocalOut, aclTensor* targetMaskOut, aclTensor* maskedTargetOut,
    aclTensor* vocabParallelLogitsOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor);

// Runs it; done when it returns. workspace has at least the bytes GetWorkspaceSize said, of any alignment and content.
//   161002  workspace null or too small, a tensor with elements but null data, an executor that is spent, destroyed or
//           another operator's, a stream that is not live. Nothing is written.
//   561103  a null executor
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedLinearOnlineMaxSum(void* workspace, uint64_t workspaceSize,
                                                             aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACLNNOP_ACLNN_FUSED_LINEAR_ONLINE_MAX_SUM_H_
