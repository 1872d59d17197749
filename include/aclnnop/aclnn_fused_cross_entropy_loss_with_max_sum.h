// The loss, and on request the softmax, from what aclnnFusedLinearOnlineMaxSum said, folded over all shards of the
// vocabulary:
//
//   lossOut[b]                = log(sumExpLogits[b]) - predictedLogits[b]
//   softMaxOutOptional[b, v]  = exp(vocabParallelLogitsOptional[b, v] - logitsMax[b]) / sumExpLogits[b]
//
//   logitsMax, sumExpLogits, predictedLogits
//                                [BT]     FLOAT; predictedLogits relative to logitsMax
//   labelSmoothing               0
//   inputOptional, weightOptional         neither read nor checked, whatever they are
//   vocabParallelLogitsOptional  [BT, V]  FLOAT, FLOAT16, BFLOAT16; null only without softMaxOutOptional, and without it
//                                         neither read nor checked
//   lossOut                      [BT]     FLOAT
//   softMaxOutOptional           [BT, V]  FLOAT, or null
//
// BT and V may be 0. Any strides and offsets; two elements of an output may not share an address. The result has the same
// bits on every run (include/onehot/linear_cross_entropy_shards.h says more).
//
// Products (ONEHOT_SOC): Ascend910B, Ascend910_93.
#ifndef ONEHOT_ACLNNOP_ACLNN_FUSED_CROSS_ENTROPY_LOSS_WITH_MAX_SUM_H_
#define ONEHOT_ACLNNOP_ACLNN_FUSED_CROSS_ENTROPY_LOSS_WITH_MAX_SUM_H_

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
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedCrossEntropyLossWithMaxSumGetWorkspaceSize(
    const aclTensor* logitsMax, const aclTensor* sumExpLogits, const aclTensor* predictedLogits, float labelSmoothing,
    const aclTensor* inputOptional, const aclTensor* weightOptional, const aclTensor* vocabParallelLogitsOptional,
    aclTensor* lossOut, aclTensor* softMaxOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor);

// Runs it; done when it returns. workspace has at least the bytes GetWorkspaceSize said, of any alignment and content.
//   161002  workspace null or too small, a tensor with elements but null data, an executor that is spent, destroyed or
//           another operator's, a stream that is not live. Nothing is written.
//   561103  a null executor
ACL_FUNC_VISIBILITY aclnnStatus aclnnFusedCrossEntropyLossWithMaxSum(void* workspace, uint64_t workspaceSize,
                                                                     aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACLNNOP_ACLNN_FUSED_CROSS_ENTROPY_LOSS_WITH_MAX_SUM_H_
