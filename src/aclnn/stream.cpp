#include "aclnn/stream.h"

#include <fmt/format.h>

#include <utility>

#include "acl/acl_rt.h"
#include "aclnn/context.h"
#include "aclnn/error.h"

namespace onehot::aclnn {

bool IsLiveStream(aclrtStream stream) {
  return stream == nullptr || LiveStreams().Find(stream) != nullptr;
}

void AwaitTurn(aclrtStream stream) {
  const std::shared_ptr<Stream> found =
      stream == nullptr ? CurrentContext()->default_stream : LiveStreams().Find(stream);
  if (found != nullptr) AwaitStream(found, std::nullopt);
}

void NoteStreamError(aclrtStream stream, std::string message) {
  const std::shared_ptr<Stream> found =
      stream == nullptr ? CurrentContext()->default_stream : LiveStreams().Find(stream);
  if (found != nullptr) SetStreamError(*found, std::move(message));
}

namespace {

aclError Create(const char* call, aclrtStream* stream) {
  if (stream == nullptr) return RefuseNull(call, "stream");
  *stream = LiveStreams().Add(std::make_shared<Stream>(CurrentContext().get()));
  return ACL_SUCCESS;
}

aclError Destroy(const char* call, aclrtStream stream, bool force) {
  if (stream == nullptr) return RefuseNull(call, "stream");
  if (!force) {
    if (const std::shared_ptr<Stream> found = LiveStreams().Find(stream)) AwaitStream(found, std::nullopt);
  }
  const std::shared_ptr<Stream> removed = LiveStreams().Remove(stream);
  if (removed == nullptr) return RefuseArgument(call, fmt::format("stream {} is not a live stream", stream));
  RetireStream(*removed, force);
  return ACL_SUCCESS;
}

aclError Synchronize(const char* call, aclrtStream stream, std::int32_t timeout) {
  if (timeout < -1) return RefuseArgument(call, fmt::format("timeout must be at least -1, is {}", timeout));
  const std::shared_ptr<Stream> found = FindStream(call, stream);
  if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
  if (!AwaitStream(found, DeadlineIn(timeout)))
    return FailRuntime(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
                       fmt::format("{}: the stream's work did not end within {} ms", call, timeout));
  return ReportStreamError(*found);
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclError aclrtCreateStream(aclrtStream* stream) {
  return Call(__func__, [&](const char* call) { return Create(call, stream); });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) {
  return Call(__func__, [&](const char* call) { return Create(call, stream); });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return Call(__func__, [&](const char* call) { return Destroy(call, stream, false); });
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return Call(__func__, [&](const char* call) { return Destroy(call, stream, true); });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return Call(__func__, [&](const char* call) { return Synchronize(call, stream, -1); });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  return Call(__func__, [&](const char* call) { return Synchronize(call, stream, timeout); });
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  return Call(__func__, [&](const char* call) {
    if (status == nullptr) return RefuseNull(call, "status");
    const std::shared_ptr<Stream> found = FindStream(call, stream);
    if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
    *status = AwaitStream(found, Clock::now()) ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return ACL_SUCCESS;
  });
}
