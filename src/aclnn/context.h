// Contexts, the streams in them, and which context a thread works in.
#ifndef ONEHOT_ACLNN_CONTEXT_H_
#define ONEHOT_ACLNN_CONTEXT_H_

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "acl/acl_rt.h"
#include "aclnn/live_table.h"
#include "aclnn/order.h"

namespace onehot::aclnn {

// Values of aclSysParamOpt, by number.
struct Options {
  std::mutex mutex;
  std::array<std::optional<std::int64_t>, ACL_OPT_STRONG_CONSISTENCY + 1> values;
};

struct Context {
  // The stream that null stands for.
  const std::shared_ptr<Stream> default_stream = std::make_shared<Stream>(this);
  Options options;
  void* handle = nullptr;
};

LiveTable<Context>& LiveContexts();
LiveTable<Stream>& LiveStreams();  // from aclrtCreateStream...; the default ones have no handle

// The only device.
inline constexpr std::int32_t kDevice = 0;

// FailRuntime if the number is not the device's.
aclError CheckDevice(const char* call, const char* argument, std::int32_t device);

// The context that the thread set, or null.
std::shared_ptr<Context> SetContext();

// The context that the thread works in: what it set, else the device's default context.
std::shared_ptr<Context> CurrentContext();

// The live stream behind a handle, or the default stream for null; null, after RefuseArgument, for anything else.
std::shared_ptr<Stream> FindStream(const char* call, aclrtStream stream);

// FailRuntime with the error that operators noted on the stream, or ACL_SUCCESS.
aclError ReportStreamError(Stream& stream);

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_CONTEXT_H_
