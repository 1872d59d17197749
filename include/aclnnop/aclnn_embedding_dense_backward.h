// out[k, :] = s_k * sum over the positions i with indices[i] == k of grad[i, :]     for k != paddingIdx
// out[k, :] = 0                                                                      for k == paddingIdx
// s_k       = 1 / how often k occurs if scaleGradByFreq, else 1
//
//   grad     [..., D]         FLOAT, FLOAT16, BFLOAT16; rank 2 to 8. Its axes but the last, flattened, are the positions.
//   indices  [...]            INT64, INT32, INT16, INT8, UINT8, BOOL, DOUBLE, FLOAT, FLOAT16; rank 1 to 8; values in
//                             [0, numWeights). Rank 0 is one position, with grad of rank 1 or more.
//   out      [numWeights, D]  dtype of grad
//
// Any strides and offsets; two elements of out may not share an address. paddingIdx >= numWeights, as in (uint64_t)-1
// and 0xFFFFFFFF, means no padding. Floating indices are truncated and must be finite. Sums are taken in float in the
// order of the positions and rounded once; the result has the same bits on every run (include/onehot/embedding.h says
// more).
//
// Products (ONEHOT_SOC): all. Ascend910A has no BFLOAT16 and, with scaleGradByFreq, a limit on D: with
// n = numWeights / 32 + numWeights % 32, D * 20 < 180192 - 8 * n for INT64 indices, else D * 36 < 180192 - 4 * n.
#ifndef ONEHOT_ACLNNOP_ACLNN_EMBEDDING_DENSE_BACKWARD_H_
#define ONEHOT_ACLNNOP_ACLNN_EMBEDDING_DENSE_BACKWARD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Checks the arguments, says how much working memory the launch needs, and makes the executor. Reads no data; grad,
// indices and out may be destroyed when it has returned.
//   161001  a null pointer
//   161002  a handle that is not live, a dtype, format, rank, shape or view outside the above, a view that leaves its
//           block of aclrtMalloc
//   361001  an unknown product
// On failure *workspaceSize is 0 and *executor null.
ACL_FUNC_VISIBILITY aclnnStatus aclnnEmbeddingDenseBackwardGetWorkspaceSize(
    const aclTensor* grad, const aclTensor* indices, uint64_t numWeights, uint64_t paddingIdx, bool scaleGradByFreq,
    const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);

// Runs it; done when it returns. workspace has at least the bytes GetWorkspaceSize said, of any alignment and content.
//   161002  workspace null or too small, a tensor with elements but null data, an executor that is spent, destroyed or
//           another operator's, a stream that is not live; or an index outside [0, numWeights), which the next
//           synchronise of the stream reports too. Nothing is written.
//   561103  a null executor
ACL_FUNC_VISIBILITY aclnnStatus aclnnEmbeddingDenseBackward(void* workspace, uint64_t workspaceSize,
                                                            aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACLNNOP_ACLNN_EMBEDDING_DENSE_BACKWARD_H_
