#include "aclnn/error.h"

#include <fmt/format.h>

#include <deque>
#include <utility>

#include "acl/acl.h"

namespace onehot::aclnn {
namespace {

// A program that never asks for the texts must not grow with its failures.
constexpr std::size_t kMostMessages = 32;

struct ThreadErrors {
  std::deque<std::string> messages;  // newest first
  std::string taken;                 // what aclGetRecentErrMsg handed out last
  aclError last = ACL_SUCCESS;
};

ThreadErrors& Errors() {
  thread_local ThreadErrors errors;
  return errors;
}

}  // namespace

void NoteError(std::string message) {
  ThreadErrors& errors = Errors();
  errors.messages.push_front(std::move(message));
  if (errors.messages.size() > kMostMessages) errors.messages.pop_back();
}

aclError FailRuntime(aclError code, std::string message) {
  Errors().last = code;
  NoteError(std::move(message));
  return code;
}

aclnnStatus FailPhase(aclnnStatus code, std::string message) {
  NoteError(std::move(message));
  return code;
}

aclError RefuseArgument(const char* function, const std::string& rule) {
  return FailRuntime(ACL_ERROR_INVALID_PARAM, fmt::format("{}: {}", function, rule));
}

aclError RefuseNull(const char* function, const char* argument) {
  return RefuseArgument(function, fmt::format("{} must not be null", argument));
}

aclError FailThrown(const char* function, const char* what) noexcept {
  Errors().last = ACL_ERROR_BAD_ALLOC;
  try {
    NoteError(fmt::format("{}: {}", function, what));
  } catch (...) {  // no memory for the sentence either; the code remains
  }
  return ACL_ERROR_BAD_ALLOC;
}

aclError LastError(bool take) {
  return take ? std::exchange(Errors().last, ACL_SUCCESS) : Errors().last;
}

namespace {

const char* TakeMessages() {
  ThreadErrors& errors = Errors();
  if (errors.messages.empty()) return nullptr;
  std::string text;
  for (const std::string& message : errors.messages) {
    if (!text.empty()) text += '\n';
    text += message;
  }
  errors.messages.clear();
  errors.taken = std::move(text);
  return errors.taken.c_str();
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

const char* aclGetRecentErrMsg(void) {
  try {
    return TakeMessages();
  } catch (...) {  // no memory to join them
    return nullptr;
  }
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
  return level == ACL_RT_THREAD_LEVEL ? LastError(false) : ACL_ERROR_INVALID_PARAM;
}

aclError aclrtGetLastError(aclrtLastErrLevel level) {
  return level == ACL_RT_THREAD_LEVEL ? LastError(true) : ACL_ERROR_INVALID_PARAM;
}
