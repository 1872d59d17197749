#include <fmt/format.h>

#include "acl/acl_rt.h"
#include "aclnn/context.h"
#include "aclnn/error.h"
#include "aclnn/order.h"

namespace onehot::aclnn {
namespace {

aclError Fail(const char* call, aclError code) {
  if (code == ACL_SUCCESS) return ACL_SUCCESS;
  const char* rule = code == ACL_ERROR_REPEAT_SUBSCRIBE        ? "the stream has a subscriber"
                     : code == ACL_ERROR_STREAM_NOT_SUBSCRIBE  ? "the stream has no subscriber"
                     : code == ACL_ERROR_THREAD_NOT_SUBSCRIBE  ? "the thread has not subscribed to the stream"
                     : code == ACL_ERROR_WAIT_CALLBACK_TIMEOUT ? "no callback came within the timeout"
                                                               : "refused";
  return FailRuntime(code, fmt::format("{}: {}", call, rule));
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return Call(__func__, [&](const char* call) {
    if (threadId == 0) return RefuseArgument(call, "threadId must not be 0");
    const std::shared_ptr<Stream> found = FindStream(call, stream);
    return found == nullptr ? ACL_ERROR_INVALID_PARAM : Fail(call, Subscribe(threadId, *found));
  });
}

aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return Call(__func__, [&](const char* call) {
    const std::shared_ptr<Stream> found = FindStream(call, stream);
    return found == nullptr ? ACL_ERROR_INVALID_PARAM : Fail(call, Unsubscribe(threadId, *found));
  });
}

aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType, aclrtStream stream) {
  return Call(__func__, [&](const char* call) {
    if (fn == nullptr) return RefuseNull(call, "fn");
    if (blockType != ACL_CALLBACK_NO_BLOCK && blockType != ACL_CALLBACK_BLOCK)
      return RefuseArgument(call, fmt::format("blockType must be 0 or 1, is {}", static_cast<int>(blockType)));
    const std::shared_ptr<Stream> found = FindStream(call, stream);
    if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
    return Fail(call, Launch(fn, userData, blockType == ACL_CALLBACK_BLOCK, found));
  });
}

aclError aclrtProcessReport(int32_t timeout) {
  return Call(__func__, [&](const char* call) {
    if (timeout < -1) return RefuseArgument(call, fmt::format("timeout must be at least -1, is {}", timeout));
    return Fail(call, Process(DeadlineIn(timeout)));
  });
}
