#include "aclnn/operator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "aclnn/error.h"
#include "aclnn/tensor.h"

namespace onehot::aclnn {
namespace {

aclnnStatus PhaseOneCode(Code code) {
  switch (code) {
    case Code::kNullArgument:
      return ACLNN_ERR_PARAM_NULLPTR;
    case Code::kOutOfMemory:
    case Code::kUnsupported:
      return ACLNN_ERR_RUNTIME_ERROR;
    default:
      return ACLNN_ERR_PARAM_INVALID;
  }
}

// Copies the description, so that the tensor may be destroyed at once.
void Describe(const Tensor& tensor, Argument& argument) {
  argument.given = true;
  argument.dtype = tensor.dtype;
  argument.format = tensor.format;
  argument.rank = tensor.rank;
  argument.offset = tensor.offset;
  argument.base = tensor.data;
  TensorLayout& layout = argument.layout;
  if (const auto dtype = NativeDType(tensor.dtype)) layout.dtype = *dtype;
  const std::size_t axes = std::min(tensor.rank, std::size_t{kMaxRank});
  layout.rank = static_cast<int>(axes);
  const auto dims = tensor.dims(), strides = tensor.strides();
  for (std::size_t axis = 0; axis < axes; ++axis) {
    layout.dims[axis] = dims[axis];
    layout.strides[axis] = strides[axis];
  }
}

std::span<const std::int64_t> Extents(const TensorLayout& layout) {
  return std::span(layout.dims).first(static_cast<std::size_t>(layout.rank));
}

}  // namespace

Status CheckDType(const Argument& argument, std::span<const aclDataType> allowed, Product product) {
  if (!argument.given) return Status::Ok();
  const bool no_bf16 = product == Product::kAscend910A;
  if (std::ranges::find(allowed, argument.dtype) != allowed.end() && !(no_bf16 && argument.dtype == ACL_BF16))
    return Status::Ok();
  std::string list;
  for (const aclDataType dtype : allowed)
    if (!(no_bf16 && dtype == ACL_BF16)) list += (list.empty() ? "" : ", ") + Spell(dtype);
  return Status::Error(Code::kBadDType, fmt::format("{}: dtype must be one of {} on {}, is {}", argument.name, list,
                                                    Name(product), Spell(argument.dtype)));
}

Status CheckSameDType(const Argument& argument, const Argument& other) {
  if (!argument.given || !other.given || argument.dtype == other.dtype) return Status::Ok();
  return Status::Error(Code::kBadDType, fmt::format("{}: dtype must be that of {}, {}, is {}", argument.name,
                                                    other.name, Spell(other.dtype), Spell(argument.dtype)));
}

Status CheckFormats(std::span<const Argument> arguments) {
  for (const Argument& argument : arguments)
    if (argument.given && !IsPlain(argument.format))
      return Status::Error(Code::kBadArgument,
                           fmt::format("{}: format must be ACL_FORMAT_ND or another plain one, is {}", argument.name,
                                       Spell(argument.format)));
  return Status::Ok();
}

Status CheckRank(const Argument& argument, std::size_t least, std::size_t most) {
  if (!argument.given || (argument.rank >= least && argument.rank <= most)) return Status::Ok();
  const std::string range = least == most ? fmt::format("{}", least) : fmt::format("in [{}, {}]", least, most);
  return Status::Error(Code::kBadShape, fmt::format("{}: rank must be {}, is {}", argument.name, range, argument.rank));
}

Status CheckShape(const Argument& argument, const TensorLayout& shape, std::string_view whose) {
  const auto is = Extents(argument.layout), must_be = Extents(shape);
  if (!argument.given || std::ranges::equal(is, must_be)) return Status::Ok();
  return Status::Error(Code::kBadShape, fmt::format("{}: shape must be {}, [{}], is [{}]", argument.name, whose,
                                                    fmt::join(must_be, ", "), fmt::join(is, ", ")));
}

Status CheckOneElement(const Argument& argument) {
  const auto extents = Extents(argument.layout);
  if (!argument.given || std::ranges::all_of(extents, [](std::int64_t extent) { return extent == 1; }))
    return Status::Ok();
  return Status::Error(Code::kBadShape, fmt::format("{}: must have one element, shape is [{}]", argument.name,
                                                    fmt::join(extents, ", ")));
}

Status WithPrototypeNames(const Status& status, std::initializer_list<OtherName> names) {
  const std::string& message = status.message();
  for (const auto& [native, prototype] : names)
    if (message.starts_with(std::string(native) + ":"))
      return Status::Error(status.code(), std::string(prototype) + message.substr(native.size()));
  return status;
}

aclnnStatus FindProduct(const Operator& op, Product* product) {
  const Result<Product> current = CurrentProduct();
  if (!current.ok()) return FailPhase(ACLNN_ERR_RUNTIME_ERROR, current.status().message());
  *product = *current;
  if ((op.products & On(*product)) == 0)
    return FailPhase(ACLNN_ERR_RUNTIME_ERROR, fmt::format("{}: is not offered on {}", op.name, Name(*product)));
  return ACLNN_SUCCESS;
}

aclnnStatus Finish(std::span<const Parameter> parameters, std::shared_ptr<Executor> made, std::uint64_t* workspace_size,
                   aclOpExecutor** executor) {
  for (const Parameter& parameter : parameters)
    if (parameter.handle == nullptr &&
        (parameter.need == Parameter::Need::kRequired || parameter.need == Parameter::Need::kRequiredNotRead))
      return FailNull(parameter.name);
  if (workspace_size == nullptr) return FailNull("workspaceSize");
  if (executor == nullptr) return FailNull("executor");

  const std::span<Argument> arguments = made->arguments();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    arguments[i].name = parameter.name;
    arguments[i].role = parameter.role;
    Argument& argument = arguments[i];
    if (parameter.handle == nullptr) continue;
    argument.not_read =
        parameter.need == Parameter::Need::kRequiredNotRead || parameter.need == Parameter::Need::kNotRead;
    if (argument.not_read) continue;
    if (!TensorTable::Instance().With(parameter.handle, [&](const Tensor& tensor) { Describe(tensor, argument); }))
      return FailNotLive(parameter.name, "aclTensor");
  }

  if (Status bad = made->Bind(); !bad.ok()) return FailPhase(PhaseOneCode(bad.code()), bad.message());
  const std::size_t bytes = made->workspace_bytes();
  *executor = static_cast<aclOpExecutor*>(ExecutorTable::Instance().Add(std::move(made)));
  *workspace_size = bytes;
  return ACLNN_SUCCESS;
}

}  // namespace onehot::aclnn
