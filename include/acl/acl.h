// Start, end, version and error texts. Includes the rest of the runtime.
#ifndef ONEHOT_ACL_ACL_H_
#define ONEHOT_ACL_ACL_H_

#include "acl_base.h"
#include "acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

// Version of this interface, as aclrtGetVersion returns it.
#define ACL_MAJOR_VERSION 1
#define ACL_MINOR_VERSION 10
#define ACL_PATCH_VERSION 0

// Once per process; again is ACL_ERROR_REPEAT_INITIALIZE, which a caller may take as done. No other call needs it
// first. `configPath`: null, "" or a readable file (ACL_ERROR_INVALID_FILE otherwise), whose content has no effect. An
// unknown ONEHOT_SOC is ACL_ERROR_INVALID_PARAM.
ACL_FUNC_VISIBILITY aclError aclInit(const char* configPath);

// Once, after aclInit: ACL_ERROR_UNINITIALIZE without it, ACL_ERROR_REPEAT_FINALIZE again. Handles stay valid.
ACL_FUNC_VISIBILITY aclError aclFinalize(void);

// ACL_ERROR_INVALID_PARAM if a pointer is null.
ACL_FUNC_VISIBILITY aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion);

// The sentences of this thread's failed calls since it last asked, one a line, newest first; null if there are none.
// Takes them. The text stays valid until the thread calls this again.
ACL_FUNC_VISIBILITY const char* aclGetRecentErrMsg(void);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACL_ACL_H_
