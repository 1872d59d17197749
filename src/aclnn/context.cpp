#include "aclnn/context.h"

#include <fmt/format.h>

#include <utility>

#include "aclnn/error.h"

namespace onehot::aclnn {
namespace {

thread_local std::weak_ptr<Context> set_context;  // expires when the context is destroyed

// The device's default context, from the first need of it to aclrtResetDevice.
struct DefaultContext {
  std::mutex mutex;
  std::shared_ptr<Context> context;
};

DefaultContext& TheDefault() {
  static DefaultContext& held = *new DefaultContext;
  return held;
}

std::shared_ptr<Context> NeedDefaultContext() {
  DefaultContext& held = TheDefault();
  const std::lock_guard lock(held.mutex);
  if (held.context == nullptr) {
    held.context = std::make_shared<Context>();
    LiveContexts().Add(held.context);
  }
  return held.context;
}

// Waits for the work of the context's streams and takes their handles away.
void Close(const std::shared_ptr<Context>& context) {
  for (const auto& stream : LiveStreams().All())
    if (stream->owner == context.get()) {
      AwaitStream(stream, std::nullopt);
      if (LiveStreams().Remove(stream->handle) != nullptr) RetireStream(*stream, false);
    }
  AwaitStream(context->default_stream, std::nullopt);
  RetireStream(*context->default_stream, false);
}

}  // namespace

// The tables are never destroyed: threads may still make calls while the process ends.
LiveTable<Context>& LiveContexts() {
  static LiveTable<Context>& table = *new LiveTable<Context>(2);
  return table;
}

LiveTable<Stream>& LiveStreams() {
  static LiveTable<Stream>& table = *new LiveTable<Stream>(4);
  return table;
}

aclError CheckDevice(const char* call, const char* argument, std::int32_t device) {
  if (device == kDevice) return ACL_SUCCESS;
  return FailRuntime(ACL_ERROR_RT_INVALID_DEVICEID,
                     fmt::format("{}: {} must be {}, the only device, is {}", call, argument, kDevice, device));
}

std::shared_ptr<Context> SetContext() {
  return set_context.lock();
}

std::shared_ptr<Context> CurrentContext() {
  if (std::shared_ptr<Context> context = set_context.lock()) return context;
  return NeedDefaultContext();
}

std::shared_ptr<Stream> FindStream(const char* call, aclrtStream stream) {
  if (stream == nullptr) return CurrentContext()->default_stream;
  std::shared_ptr<Stream> found = LiveStreams().Find(stream);
  if (found == nullptr) RefuseArgument(call, fmt::format("stream {} is not a live stream", stream));
  return found;
}

aclError ReportStreamError(Stream& stream) {
  std::optional<std::string> error = TakeStreamError(stream);
  return error ? FailRuntime(ACL_ERROR_RT_AICORE_EXCEPTION, *std::move(error)) : ACL_SUCCESS;
}

}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclError aclrtSetDevice(int32_t deviceId) {
  return Call(__func__, [&](const char* call) {
    if (const aclError error = CheckDevice(call, "deviceId", deviceId)) return error;
    set_context = NeedDefaultContext();
    return ACL_SUCCESS;
  });
}

aclError aclrtResetDevice(int32_t deviceId) {
  return Call(__func__, [&](const char* call) {
    if (const aclError error = CheckDevice(call, "deviceId", deviceId)) return error;
    std::shared_ptr<Context> context;
    {
      const std::lock_guard lock(TheDefault().mutex);
      context = std::exchange(TheDefault().context, nullptr);
    }
    if (context == nullptr) return ACL_SUCCESS;
    Close(context);
    LiveContexts().Remove(context->handle);
    return ACL_SUCCESS;
  });
}

aclError aclrtGetDevice(int32_t* deviceId) {
  return Call(__func__, [&](const char* call) {
    if (deviceId == nullptr) return RefuseNull(call, "deviceId");
    if (SetContext() == nullptr)
      return FailRuntime(ACL_ERROR_RT_CONTEXT_NULL,
                         fmt::format("{}: the thread must have called aclrtSetDevice or set a context", call));
    *deviceId = kDevice;
    return ACL_SUCCESS;
  });
}

aclError aclrtSynchronizeDevice(void) {
  return Call(__func__, [&](const char*) {
    aclError result = ACL_SUCCESS;
    const auto synchronize = [&](const std::shared_ptr<Stream>& stream) {
      AwaitStream(stream, std::nullopt);
      if (const aclError error = ReportStreamError(*stream)) result = error;
    };
    for (const auto& context : LiveContexts().All()) synchronize(context->default_stream);
    for (const auto& stream : LiveStreams().All()) synchronize(stream);
    return result;
  });
}

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  return Call(__func__, [&](const char* call) {
    if (context == nullptr) return RefuseNull(call, "context");
    if (const aclError error = CheckDevice(call, "deviceId", deviceId)) return error;
    auto made = std::make_shared<Context>();
    set_context = made;
    *context = LiveContexts().Add(std::move(made));
    return ACL_SUCCESS;
  });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return Call(__func__, [&](const char* call) {
    if (context == nullptr) return RefuseNull(call, "context");
    const std::shared_ptr<Context> found = LiveContexts().Find(context);
    if (found == nullptr) return RefuseArgument(call, fmt::format("context {} is not a live context", context));
    {
      const std::lock_guard lock(TheDefault().mutex);
      if (found == TheDefault().context)
        return RefuseArgument(call, "context must not be the default context, which aclrtResetDevice destroys");
    }
    if (LiveContexts().Remove(context) == nullptr)  // another thread was faster
      return RefuseArgument(call, fmt::format("context {} is not a live context", context));
    Close(found);
    return ACL_SUCCESS;
  });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return Call(__func__, [&](const char* call) {
    if (context == nullptr) return RefuseNull(call, "context");
    const std::shared_ptr<Context> found = LiveContexts().Find(context);
    if (found == nullptr) return RefuseArgument(call, fmt::format("context {} is not a live context", context));
    set_context = found;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  return Call(__func__, [&](const char* call) {
    if (context == nullptr) return RefuseNull(call, "context");
    const std::shared_ptr<Context> found = SetContext();
    if (found == nullptr)
      return FailRuntime(ACL_ERROR_RT_CONTEXT_NULL,
                         fmt::format("{}: the thread must have called aclrtSetDevice or set a context", call));
    *context = found->handle;
    return ACL_SUCCESS;
  });
}
