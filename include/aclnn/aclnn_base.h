// Codes that operator and metadata functions return. aclGetRecentErrMsg (acl/acl.h) gives the sentence that goes with
// one.
#ifndef ONEHOT_ACLNN_ACLNN_BASE_H_
#define ONEHOT_ACLNN_ACLNN_BASE_H_

#include "aclnn/acl_meta.h"

#define ACLNN_SUCCESS 0

// An argument that must not be null is null.
#define ACLNN_ERR_PARAM_NULLPTR 161001
// Any other argument that is refused: dtype, format, attribute, shape, view, handle, value of an index.
#define ACLNN_ERR_PARAM_INVALID 161002
// The product (ONEHOT_SOC) does not offer the operator or is unknown, or memory is out.
#define ACLNN_ERR_RUNTIME_ERROR 361001

#define ACLNN_ERR_INNER 561000
#define ACLNN_ERR_INNER_INFERSHAPE_ERROR 561001
#define ACLNN_ERR_INNER_TILING_ERROR 561002
#define ACLNN_ERR_INNER_FIND_KERNEL_ERROR 561003
#define ACLNN_ERR_INNER_CREATE_EXECUTOR 561101
#define ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR 561102
// A null executor.
#define ACLNN_ERR_INNER_NULLPTR 561103
#define ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE 561104
#define ACLNN_ERR_INNER_KEY_CONFLICT 561105
#define ACLNN_ERR_INNER_KEY_CONFILICT 561105  // the old spelling
#define ACLNN_ERR_INNER_INVALID_IMPL_MODE 561106
#define ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND 561107
#define ACLNN_ERR_INNER_LOAD_JSON_FAILED 561108

#ifdef __cplusplus
extern "C" {
#endif

// Nothing needs either; they may be called any number of times and always succeed. configPath is not read.
ACL_FUNC_VISIBILITY aclnnStatus aclnnInit(const char* configPath);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFinalize(void);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACLNN_ACLNN_BASE_H_
