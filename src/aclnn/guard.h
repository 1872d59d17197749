// The border between C++ and C: no exception crosses it, and the errors that every function there knows.
#ifndef ONEHOT_ACLNN_GUARD_H_
#define ONEHOT_ACLNN_GUARD_H_

#include <exception>
#include <new>
#include <string>

#include "aclnn/error.h"

namespace onehot::aclnn {

// Runs `body`, which returns an aclnnStatus. Nothing of ours throws by itself; the standard library may.
template <class F>
aclnnStatus Guard(F&& body) noexcept {
  try {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return FailPhase(ACLNN_ERR_RUNTIME_ERROR, "out of host memory");
    } catch (const std::exception& error) {
      return FailPhase(ACLNN_ERR_INNER, error.what());
    }
  } catch (...) {  // there is not even memory for the text
    return ACLNN_ERR_RUNTIME_ERROR;
  }
}

// The same for functions that make a handle: null on failure.
template <class F>
auto GuardHandle(F&& body) noexcept -> decltype(body()) {
  decltype(body()) handle = nullptr;
  Guard([&] {
    handle = body();
    return ACLNN_SUCCESS;
  });
  return handle;
}

inline aclnnStatus FailNull(const char* argument) {
  return FailPhase(ACLNN_ERR_PARAM_NULLPTR, std::string(argument) + ": must not be null");
}

inline aclnnStatus FailNotLive(const char* argument, const char* type) {
  return FailPhase(ACLNN_ERR_PARAM_INVALID,
                   std::string(argument) + ": must be a live " + type + ", was destroyed or never made");
}

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_GUARD_H_
