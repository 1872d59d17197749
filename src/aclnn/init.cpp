#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "acl/acl.h"
#include "aclnn/error.h"
#include "aclnn/product.h"

namespace onehot::aclnn {
namespace {

std::mutex mutex;
bool initialized = false;  // these never go back: once per process
bool finalized = false;

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclError aclInit(const char* configPath) {
  return Call(__func__, [&](const char* call) {
    const std::lock_guard lock(mutex);
    if (initialized) return FailRuntime(ACL_ERROR_REPEAT_INITIALIZE, fmt::format("{}: was called before", call));
    if (const auto product = CurrentProduct(); !product.ok()) return RefuseArgument(call, product.status().message());
    if (configPath != nullptr && *configPath != '\0') {
      std::FILE* const file = std::fopen(configPath, "rb");
      if (file == nullptr)
        return FailRuntime(ACL_ERROR_INVALID_FILE, fmt::format("{}: configPath must name a readable file, {}: {}", call,
                                                               configPath, std::strerror(errno)));
      std::fclose(file);
    }
    initialized = true;
    return ACL_SUCCESS;
  });
}

aclError aclFinalize(void) {
  return Call(__func__, [&](const char* call) {
    const std::lock_guard lock(mutex);
    if (!initialized) return FailRuntime(ACL_ERROR_UNINITIALIZE, fmt::format("{}: aclInit was not called", call));
    if (finalized) return FailRuntime(ACL_ERROR_REPEAT_FINALIZE, fmt::format("{}: was called before", call));
    finalized = true;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion) {
  return Call(__func__, [&](const char* call) {
    if (majorVersion == nullptr) return RefuseNull(call, "majorVersion");
    if (minorVersion == nullptr) return RefuseNull(call, "minorVersion");
    if (patchVersion == nullptr) return RefuseNull(call, "patchVersion");
    *majorVersion = ACL_MAJOR_VERSION;
    *minorVersion = ACL_MINOR_VERSION;
    *patchVersion = ACL_PATCH_VERSION;
    return ACL_SUCCESS;
  });
}
