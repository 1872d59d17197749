// Options of the operator compiler. onehot compiles nothing at run time: options are accepted and have no effect.
#ifndef ONEHOT_ACL_ACL_OP_COMPILER_H_
#define ONEHOT_ACL_ACL_OP_COMPILER_H_

#include "acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum aclCompileOpt ACL_ENUM_TYPE {
  ACL_OP_JIT_COMPILE = 10,
  ACL_OP_DETERMINISTIC = 11  // results are always deterministic here
} aclCompileOpt;

// A null value is ACL_ERROR_INVALID_PARAM; everything else is accepted, other options included.
ACL_FUNC_VISIBILITY aclError aclSetCompileopt(aclCompileOpt opt, const char* value);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACL_ACL_OP_COMPILER_H_
