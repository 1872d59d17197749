// aclnnNLLLoss2d without the axes of a picture:
//
//   self            [N, C] or [C]         FLOAT, FLOAT16, BFLOAT16; log-probabilities
//   target          [N], or [] for [C]    INT64, INT32, UINT8; values in [0, C), or ignoreIndex
//   weight          [C]                   dtype of self; must be given, ones for no weights
//   out             [N] or one element    dtype of self. The first for none where self has two axes, else the second, of
//                                         rank 0 to 8
//   totalWeightOut  one element           dtype of self, rank 0 to 8
//
// Formulas, reductions, ignoreIndex, views, sums, products and codes are those of aclnnNLLLoss2d.
#ifndef ONEHOT_ACLNNOP_ACLNN_NLL_LOSS_H_
#define ONEHOT_ACLNNOP_ACLNN_NLL_LOSS_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnNLLLossGetWorkspaceSize(const aclTensor* self, const aclTensor* target,
                                                             const aclTensor* weight, int64_t reduction,
                                                             int64_t ignoreIndex, aclTensor* out,
                                                             aclTensor* totalWeightOut, uint64_t* workspaceSize,
                                                             aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnNLLLoss(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                             aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACLNNOP_ACLNN_NLL_LOSS_H_
