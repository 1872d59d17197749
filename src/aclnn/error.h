// Error text and codes of the C face. Text is kept per thread, newest first, until aclGetRecentErrMsg takes it
// (contract 7.26).
#ifndef ONEHOT_ACLNN_ERROR_H_
#define ONEHOT_ACLNN_ERROR_H_

#include <string>

#include "acl/acl_base.h"
#include "aclnn/aclnn_base.h"

namespace onehot::aclnn {

// Adds the sentence of a failed call to this thread's recent messages.
void NoteError(std::string message);

// A failed runtime call (aclrt..., acl...): notes the sentence, remembers the code for aclrtGetLastError, returns it.
aclError FailRuntime(aclError code, std::string message);

// A failed operator or metadata call: notes the sentence and returns the code. Not a runtime error (contract 7.26).
aclnnStatus FailPhase(aclnnStatus code, std::string message);

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_ERROR_H_
