// With t = target[n, h, w], k = 1 where t != ignoreIndex and 0 where it is:
//
//   out[n, h, w] = -k * weight[t] * self[n, t, h, w]                               reduction 0, none
//   out          = sum over all positions of that / sum of k * weight[t]           reduction 1, mean
//   out          = sum over all positions of that                                  reduction 2, sum
//
//   self            [N, C, H, W]              FLOAT, FLOAT16, BFLOAT16; log-probabilities
//   target          [N, H, W]                 INT64, INT32, UINT8; values in [0, C), or ignoreIndex
//   weight          [C]                       dtype of self; must be given, ones for no weights
//   out             [N, H, W] or one element  dtype of self. The first for none, the second, of rank 0 to 8, for mean and sum
//   totalWeightOut  one element               dtype of self, rank 0 to 8: sum of k * weight[t]; 0 for none
//
// Where no position counts, as in empty tensors, mean is NaN, sum and totalWeightOut are 0. What self holds at ignored
// positions, NaN too, is not looked at. ignoreIndex is any number, also one in [0, C); targets are compared with it as
// 64-bit integers. Any strides and offsets; two elements of out may not share an address. Sums are taken in double and
// rounded once; the result has the same bits on every run (include/onehot/nll_loss.h says more).
//
// Products (ONEHOT_SOC): all but Ascend950. Ascend910A has no BFLOAT16.
#ifndef ONEHOT_ACLNNOP_ACLNN_NLL_LOSS2D_H_
#define ONEHOT_ACLNNOP_ACLNN_NLL_LOSS2D_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// The two phases and their codes are those of aclnnNLLLoss2dBackward.
ACL_FUNC_VISIBILITY aclnnStatus aclnnNLLLoss2dGetWorkspaceSize(const aclTensor* self, const aclTensor* target,
                                                               const aclTensor* weight, int64_t reduction,
                                                               int64_t ignoreIndex, aclTensor* out,
                                                               aclTensor* totalWeightOut, uint64_t* workspaceSize,
                                                               aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnNLLLoss2d(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                               aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACLNNOP_ACLNN_NLL_LOSS2D_H_
