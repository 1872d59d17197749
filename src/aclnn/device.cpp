// The device as a thing: how many, what kind, how much memory. Which one a thread uses is context.cpp's.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "acl/acl_rt.h"
#include "aclnn/context.h"
#include "aclnn/error.h"

namespace onehot::aclnn {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

struct MemInfo {
  std::size_t available = 0;
  std::size_t total = 0;
};

// From /proc/meminfo, which counts in KiB. Zeros if it cannot be read.
MemInfo ReadMemInfo() {
  MemInfo info;
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen("/proc/meminfo", "re"));
  if (file == nullptr) return info;
  char line[256];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    std::size_t kib = 0;
    if (std::sscanf(line, "MemTotal: %zu kB", &kib) == 1) info.total = kib * 1024;
    if (std::sscanf(line, "MemAvailable: %zu kB", &kib) == 1) info.available = kib * 1024;
  }
  return info;
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclError aclrtGetDeviceCount(uint32_t* count) {
  return Call(__func__, [&](const char* call) {
    if (count == nullptr) return RefuseNull(call, "count");
    *count = 1;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
  return Call(__func__, [&](const char* call) {
    if (runMode == nullptr) return RefuseNull(call, "runMode");
    *runMode = ACL_HOST;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  return Call(__func__, [&](const char* call) {
    if (free == nullptr) return RefuseNull(call, "free");
    if (total == nullptr) return RefuseNull(call, "total");
    const auto number = static_cast<std::int64_t>(attr);
    if (number < 0 || number > ACL_HBM_MEM_P2P_NORMAL)
      return RefuseArgument(
          call, fmt::format("attr must be in [0, {}], is {}", static_cast<int>(ACL_HBM_MEM_P2P_NORMAL), number));
    const MemInfo info = ReadMemInfo();
    if (info.total == 0)
      return FailRuntime(ACL_ERROR_RT_INTERNAL_ERROR, fmt::format("{}: /proc/meminfo cannot be read", call));
    *free = info.available;
    *total = info.total;
    return ACL_SUCCESS;
  });
}

aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId) {
  return Call(__func__, [&](const char* call) {
    if (canAccessPeer == nullptr) return RefuseNull(call, "canAccessPeer");
    if (const aclError error = CheckDevice(call, "deviceId", deviceId)) return error;
    if (const aclError error = CheckDevice(call, "peerDeviceId", peerDeviceId)) return error;
    *canAccessPeer = 0;
    return ACL_SUCCESS;
  });
}

aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags) {
  return Call(__func__, [&](const char* call) {
    if (const aclError error = CheckDevice(call, "peerDeviceId", peerDeviceId)) return error;
    if (flags != 0) return RefuseArgument(call, fmt::format("flags must be 0, is {}", flags));
    return RefuseArgument(call, fmt::format("peerDeviceId must not be the device itself, is {}", peerDeviceId));
  });
}
