// Error text and codes of the C face. Text is kept per thread, newest first, until aclGetRecentErrMsg takes it
// (contract 7.26).
#ifndef ONEHOT_ACLNN_ERROR_H_
#define ONEHOT_ACLNN_ERROR_H_

#include <exception>
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

// FailRuntime(ACL_ERROR_INVALID_PARAM, ...) with a sentence in the one form: "aclrtMalloc: size must not be 0".
aclError RefuseArgument(const char* function, const std::string& rule);

// Null where it must not be: "aclrtMalloc: devPtr must not be null".
aclError RefuseNull(const char* function, const char* argument);

// What a call returns when it throws; nothing may cross the C boundary. Only memory that cannot be had throws here.
aclError FailThrown(const char* function, const char* what) noexcept;

// Runs the body of a runtime call, which gets the call's name for its sentences:
//   return Call(__func__, [&](const char* call) { return ...; });
template <class Body>
aclError Call(const char* function, Body&& body) noexcept {
  try {
    return body(function);
  } catch (const std::exception& error) {
    return FailThrown(function, error.what());
  } catch (...) {
    return FailThrown(function, "unknown exception");
  }
}

// The thread's last runtime error, and 0 afterwards if `take`.
aclError LastError(bool take);

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_ERROR_H_
