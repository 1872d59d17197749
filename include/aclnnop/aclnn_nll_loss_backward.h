// aclnnNLLLoss2dBackward without the axes of a picture:
//
//   gradOutput   [N] or one element    dtype of self. The first for none where self has two axes, else the second, of rank
//                                      0 to 8
//   self         [N, C] or [C]         FLOAT, FLOAT16, BFLOAT16; its data are not read
//   target       [N], or [] for [C]    INT64, INT32, UINT8; values in [0, C), or ignoreIndex
//   weight       [C]                   dtype of self; must be given, ones for no weights
//   totalWeight  one element           dtype of self, rank 0 to 8. Must be given, but is neither read nor checked for none
//                                      and sum
//   out          shape of self         dtype of self
//
// Formulas, reductions, ignoreIndex, views, rounding, products and codes are those of aclnnNLLLoss2dBackward.
#ifndef ONEHOT_ACLNNOP_ACLNN_NLL_LOSS_BACKWARD_H_
#define ONEHOT_ACLNNOP_ACLNN_NLL_LOSS_BACKWARD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnNLLLossBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* self,
                                                                     const aclTensor* target, const aclTensor* weight,
                                                                     int64_t reduction, int64_t ignoreIndex,
                                                                     const aclTensor* totalWeight, aclTensor* out,
                                                                     uint64_t* workspaceSize, aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnNLLLossBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                     aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACLNNOP_ACLNN_NLL_LOSS_BACKWARD_H_
