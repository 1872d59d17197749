// With t = target[n, h, w], everywhere but at positions where t == ignoreIndex:
//
//   out[n, t, h, w] = -weight[t] * gradOutput[n, h, w]           reduction 0, none
//   out[n, t, h, w] = -weight[t] * gradOutput / totalWeight      reduction 1, mean
//   out[n, t, h, w] = -weight[t] * gradOutput                    reduction 2, sum
//
// and every other element of out is 0.
//
//   gradOutput   [N, H, W] or one element  dtype of self. The first for none, the second, of rank 0 to 8, for mean and sum
//   self         [N, C, H, W]              FLOAT, FLOAT16, BFLOAT16; its data are not read
//   target       [N, H, W]                 INT64, INT32, UINT8; values in [0, C), or ignoreIndex
//   weight       [C]                       dtype of self; must be given, ones for no weights
//   totalWeight  one element               dtype of self, rank 0 to 8. The totalWeightOut of aclnnNLLLoss2d, used as it is
//                                          given. Must be given, but is neither read nor checked for none and sum
//   out          shape of self             dtype of self
//
// ignoreIndex is any number, also one in [0, C); targets are compared with it as 64-bit integers. Any strides and
// offsets; two elements of out may not share an address. Values are computed in float and rounded once; the result has
// the same bits on every run (include/onehot/nll_loss.h says more).
//
// Products (ONEHOT_SOC): all but Ascend950. Ascend910A has no BFLOAT16.
#ifndef ONEHOT_ACLNNOP_ACLNN_NLL_LOSS2D_BACKWARD_H_
#define ONEHOT_ACLNNOP_ACLNN_NLL_LOSS2D_BACKWARD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Checks the arguments, says how much working memory the launch needs, and makes the executor. Reads no data; the tensors
// may be destroyed when it has returned.
//   161001  a null pointer
//   161002  a handle that is not live, a dtype, format, reduction, rank, shape or view outside the above, a view that
//           leaves its block of aclrtMalloc
//   361001  a product that does not offer it, or an unknown one
// On failure *workspaceSize is 0 and *executor null.
ACL_FUNC_VISIBILITY aclnnStatus aclnnNLLLoss2dBackwardGetWorkspaceSize(const aclTensor* gradOutput,
                                                                       const aclTensor* self, const aclTensor* target,
                                                                       const aclTensor* weight, int64_t reduction,
                                                                       int64_t ignoreIndex, aclTensor* totalWeight,
                                                                       aclTensor* out, uint64_t* workspaceSize,
                                                                       aclOpExecutor** executor);

// Runs it; done when it returns. workspace has at least the bytes GetWorkspaceSize said, of any alignment and content.
//   161002  workspace null or too small, a tensor with elements but null data, an executor that is spent, destroyed or
//           another operator's, a stream that is not live; or a target that is neither in [0, C) nor ignoreIndex, which
//           the next synchronise of the stream reports too. Nothing is written.
//   561103  a null executor
ACL_FUNC_VISIBILITY aclnnStatus aclnnNLLLoss2dBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                       aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACLNNOP_ACLNN_NLL_LOSS2D_BACKWARD_H_
