// out[..., :] = weight[indices[...], :]
//
//   weight   [V, D]                    FLOAT, FLOAT16, BFLOAT16, DOUBLE, INT64, INT32, INT16, INT8, UINT8, BOOL,
//                                      COMPLEX64, COMPLEX128
//   indices  [...]                     INT64, INT32; rank 0 to 7; values in [0, V)
//   out      shape of indices, then D  dtype of weight
//
// Elements are copied bit for bit. Any strides and offsets; two elements of out may not share an address.
// Products (ONEHOT_SOC): all; Ascend910A has no BFLOAT16.
#ifndef ONEHOT_ACLNNOP_ACLNN_EMBEDDING_H_
#define ONEHOT_ACLNNOP_ACLNN_EMBEDDING_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// The two phases and their codes are those of aclnnEmbeddingDenseBackward.
ACL_FUNC_VISIBILITY aclnnStatus aclnnEmbeddingGetWorkspaceSize(const aclTensor* weight, const aclTensor* indices,
                                                               const aclTensor* out, uint64_t* workspaceSize,
                                                               aclOpExecutor** executor);
ACL_FUNC_VISIBILITY aclnnStatus aclnnEmbedding(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                               aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACLNNOP_ACLNN_EMBEDDING_H_
