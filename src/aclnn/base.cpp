#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "acl/acl_base.h"
#include "aclnn/error.h"
#include "aclnn/product.h"
#include "core/dtype.h"

namespace onehot::aclnn {
namespace {

bool Logs() {
  const char* const value = std::getenv("ONEHOT_LOG");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

float aclFloat16ToFloat(aclFloat16 value) {
  return onehot::Widen(onehot::F16{value});
}

aclFloat16 aclFloatToFloat16(float value) {
  return onehot::Narrow<onehot::F16>(value).bits;
}

size_t aclDataTypeSize(aclDataType dataType) {
  switch (dataType) {
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
    case ACL_HIFLOAT8:
    case ACL_FLOAT8_E5M2:
    case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0:
      return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16:
      return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_COMPLEX32:
      return 4;
    case ACL_DOUBLE:
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_COMPLEX64:
      return 8;
    case ACL_COMPLEX128:
      return 16;
    case ACL_DT_UNDEFINED:
    case ACL_STRING:
    case ACL_INT4:
    case ACL_UINT1:
    case ACL_FLOAT6_E3M2:
    case ACL_FLOAT6_E2M3:
    case ACL_FLOAT4_E2M1:
    case ACL_FLOAT4_E1M2:
      break;
  }
  return 0;
}

const char* aclrtGetSocName(void) {
  const char* name = nullptr;
  Call(__func__, [&](const char* call) {
    const auto product = CurrentProduct();
    if (!product.ok()) return RefuseArgument(call, product.status().message());
    name = Name(*product);
    return ACL_SUCCESS;
  });
  return name;
}

void aclAppLog(aclLogLevel logLevel, const char* func, const char* file, uint32_t line, const char* fmt, ...) {
  if (fmt == nullptr || !Logs()) return;
  constexpr const char* kLevels[] = {"debug", "info", "warning", "error"};
  const auto level = static_cast<unsigned>(logLevel);
  char text[1024];  // one write, so that lines of several threads do not mix
  std::va_list arguments;
  va_start(arguments, fmt);
  std::vsnprintf(text, sizeof text, fmt, arguments);
  va_end(arguments);
  std::fprintf(stderr, "%s: %s:%u: %s: %s\n", level < 4 ? kLevels[level] : "log", file != nullptr ? file : "", line,
               func != nullptr ? func : "", text);
}
