#include <fmt/format.h>

#include "acl/acl_op_compiler.h"
#include "acl/acl_rt.h"
#include "aclnn/context.h"
#include "aclnn/error.h"

namespace onehot::aclnn {
namespace {

Options& ProcessOptions() {
  static Options& options = *new Options;
  return options;
}

aclError CheckOption(const char* call, aclSysParamOpt opt) {
  const auto number = static_cast<std::int64_t>(opt);
  if (number >= 0 && number <= ACL_OPT_STRONG_CONSISTENCY) return ACL_SUCCESS;
  return RefuseArgument(
      call, fmt::format("opt must be in [0, {}], is {}", static_cast<int>(ACL_OPT_STRONG_CONSISTENCY), number));
}

std::optional<std::int64_t> Get(Options& options, aclSysParamOpt opt) {
  const std::lock_guard lock(options.mutex);
  return options.values[opt];
}

aclError Set(const char* call, Options& options, aclSysParamOpt opt, std::int64_t value) {
  if (const aclError error = CheckOption(call, opt)) return error;
  if (value < 0) return RefuseArgument(call, fmt::format("value must not be negative, is {}", value));
  const std::lock_guard lock(options.mutex);
  options.values[opt] = value;
  return ACL_SUCCESS;
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return Call(__func__, [&](const char* call) {
    if (value == nullptr) return RefuseNull(call, "value");
    if (const aclError error = CheckOption(call, opt)) return error;
    std::optional<std::int64_t> set = Get(CurrentContext()->options, opt);
    if (!set) set = Get(ProcessOptions(), opt);
    *value = set.value_or(0);
    return ACL_SUCCESS;
  });
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return Call(__func__, [&](const char* call) { return Set(call, CurrentContext()->options, opt, value); });
}

aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return Call(__func__, [&](const char* call) {
    if (value == nullptr) return RefuseNull(call, "value");
    if (const aclError error = CheckOption(call, opt)) return error;
    *value = Get(ProcessOptions(), opt).value_or(0);
    return ACL_SUCCESS;
  });
}

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return Call(__func__, [&](const char* call) { return Set(call, ProcessOptions(), opt, value); });
}

aclError aclSetCompileopt(aclCompileOpt, const char* value) {
  return Call(__func__, [&](const char* call) { return value == nullptr ? RefuseNull(call, "value") : ACL_SUCCESS; });
}
