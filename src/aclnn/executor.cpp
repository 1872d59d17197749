#include "aclnn/executor.h"

#include <fmt/format.h>

#include <string>

#include "aclnn/error.h"
#include "aclnn/guard.h"
#include "aclnn/memory.h"
#include "aclnn/meta.h"
#include "aclnn/stream.h"
#include "aclnn/tensor.h"

namespace onehot::aclnn {
namespace {

// Refuses a view that leaves the block of aclrtMalloc its memory lies in. The layout has passed the operator's checks.
Status CheckExtent(const Argument& argument) {
  const TensorLayout& layout = argument.layout;
  std::int64_t last = argument.offset;  // element with the highest address
  bool fits = true;
  for (int axis = 0; axis < layout.rank; ++axis) {
    if (layout.dim(axis) == 0) return Status::Ok();
    std::int64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(layout.dim(axis) - 1, layout.stride(axis), &reach) &&
           !__builtin_add_overflow(last, reach, &last);
  }
  std::int64_t end = 0;  // bytes from the base
  fits = fits && !__builtin_add_overflow(last, 1, &last) && !__builtin_mul_overflow(last, SizeOf(layout.dtype), &end);
  if (!fits)
    return Status::Error(Code::kBadShape, fmt::format("{}: must end within 2^63 bytes of its data, offset is {}",
                                                      argument.name, argument.offset));
  if (argument.base == nullptr) return Status::Ok();
  const std::optional<Block> block = FindBlock(argument.base);
  if (!block) return Status::Ok();
  const std::size_t room =
      block->bytes - static_cast<std::size_t>(static_cast<std::byte*>(argument.base) - block->base);
  if (static_cast<std::size_t>(end) > room)
    return Status::Error(Code::kBadShape,
                         fmt::format("{}: must stay inside its block of aclrtMalloc, ends at byte {} of its data, the "
                                     "block at byte {}",
                                     argument.name, end, room));
  return Status::Ok();
}

// Plans say so too, but with their own names of the tensors, and not for those that they do not read (contract 7.31).
Status CheckMemory(std::span<const Argument> arguments) {
  for (const Argument& argument : arguments)
    if (argument.given && argument.base == nullptr && argument.layout.numel() > 0)
      return Status::Error(Code::kNullArgument, fmt::format("{}: data must not be null", argument.name));
  return Status::Ok();
}

// A workspace that its own block does not hold would be overrun.
Status CheckWorkspace(const void* workspace, std::uint64_t size, std::size_t needed) {
  if (needed == 0) return Status::Ok();
  if (workspace == nullptr)
    return Status::Error(Code::kBadArgument, fmt::format("workspace: must be {} bytes, is null", needed));
  if (size < needed)
    return Status::Error(Code::kBadArgument, fmt::format("workspaceSize: must be at least {}, is {}", needed, size));
  if (const std::optional<Block> block = FindBlock(workspace)) {
    const std::size_t room =
        block->bytes - static_cast<std::size_t>(static_cast<const std::byte*>(workspace) - block->base);
    if (room < needed)
      return Status::Error(Code::kBadArgument,
                           fmt::format("workspace: must be {} bytes, its block of aclrtMalloc has {}", needed, room));
  }
  return Status::Ok();
}

// At launch every refused argument has one code (contract 7.6, 7.7, 7.31); the rest is the machine's fault.
aclnnStatus LaunchCode(Code code) {
  return code == Code::kOutOfMemory || code == Code::kUnsupported ? ACLNN_ERR_RUNTIME_ERROR : ACLNN_ERR_PARAM_INVALID;
}

aclnnStatus Refuse(const Status& status) {
  return FailPhase(LaunchCode(status.code()), status.message());
}

aclnnStatus FailExecutor() {
  return FailPhase(ACLNN_ERR_PARAM_INVALID,
                   "executor: must be a live aclOpExecutor, was launched, destroyed or never made");
}

std::shared_ptr<Executor> Find(const aclOpExecutor* handle) {
  std::shared_ptr<Executor> found;
  ExecutorTable::Instance().With(handle, [&](const std::shared_ptr<Executor>& executor) { found = executor; });
  return found;
}

}  // namespace

TensorView Argument::view() const {
  if (base == nullptr) return {nullptr, layout};
  // In unsigned arithmetic: an offset that leaves the address space wraps here and is refused by CheckExtent.
  const auto address = reinterpret_cast<std::uintptr_t>(base) +
                       static_cast<std::uintptr_t>(offset) * static_cast<std::uintptr_t>(SizeOf(layout.dtype));
  return {reinterpret_cast<void*>(address), layout};
}

Status Executor::Bind() {
  Result<LaunchPlan> plan = MakePlan(product_);
  if (!plan.ok()) return plan.status();
  for (const Argument& argument : arguments())
    if (argument.given)
      if (Status bad = CheckExtent(argument); !bad.ok()) return bad;
  if (!plan_) workspace_bytes_ = plan->workspace_bytes();
  plan_.emplace(std::move(plan).value());
  bound_ = true;
  return Status::Ok();
}

struct ExecutorAccess {
  static aclnnStatus Launch(Executor& executor, void* workspace, std::uint64_t workspace_size,
                            const aclOpExecutor* handle, aclrtStream stream) {
    const std::lock_guard lock(executor.mutex_);
    if (executor.spent_) return FailExecutor();
    if (Status bad = CheckWorkspace(workspace, workspace_size, executor.workspace_bytes_); !bad.ok())
      return Refuse(bad);
    if (!executor.bound_)
      if (Status bad = executor.Bind(); !bad.ok()) return Refuse(bad);
    if (Status bad = CheckMemory(executor.arguments()); !bad.ok()) return Refuse(bad);
    const Status status = executor.plan_->Run(workspace, executor.workspace_bytes_);
    const bool refused = status.code() == Code::kNullArgument || status.code() == Code::kBadArgument;
    if (!refused && !executor.repeatable_) {
      executor.spent_ = true;
      ExecutorTable::Instance().Take(handle);
    }
    if (status.ok()) return ACLNN_SUCCESS;
    if (status.code() == Code::kBadData) NoteStreamError(stream, status.message());
    return Refuse(status);
  }

  static aclnnStatus SetRepeatable(Executor& executor) {
    const std::lock_guard lock(executor.mutex_);
    if (executor.spent_) return FailExecutor();
    executor.repeatable_ = true;
    return ACLNN_SUCCESS;
  }

  // `role` restricts what `index` counts; nothing means inputs and outputs together.
  static aclnnStatus SetAddress(Executor& executor, std::size_t index, std::optional<Role> role, void* address) {
    const std::lock_guard lock(executor.mutex_);
    if (executor.spent_) return FailExecutor();
    std::size_t counted = 0;
    for (Argument& argument : executor.arguments()) {
      if (role && argument.role != *role) continue;
      if (counted++ != index) continue;
      if (argument.not_read) return ACLNN_SUCCESS;
      if (!argument.given)
        return FailPhase(ACLNN_ERR_PARAM_INVALID,
                         fmt::format("index: {} is {}, which this call was not given", index, argument.name));
      argument.base = address;
      executor.bound_ = false;
      return ACLNN_SUCCESS;
    }
    return FailPhase(ACLNN_ERR_PARAM_INVALID,
                     fmt::format("index: must be in [0, {}), the {}tensors of {}, is {}", counted,
                                 !role                   ? ""
                                 : *role == Role::kInput ? "input "
                                                         : "output ",
                                 executor.op_.name, index));
  }
};

aclnnStatus Launch(const Operator& op, void* workspace, std::uint64_t workspace_size, aclOpExecutor* handle,
                   aclrtStream stream) noexcept {
  return Guard([&]() -> aclnnStatus {
    if (handle == nullptr) return FailPhase(ACLNN_ERR_INNER_NULLPTR, "executor: must not be null");
    const std::shared_ptr<Executor> executor = Find(handle);
    if (executor == nullptr) return FailExecutor();
    if (&executor->op() != &op)
      return FailPhase(ACLNN_ERR_PARAM_INVALID,
                       fmt::format("executor: must be of {}, is of {}", op.name, executor->op().name));
    if (!IsLiveStream(stream))
      return FailPhase(ACLNN_ERR_PARAM_INVALID,
                       "stream: must be null or a live aclrtStream, was destroyed or never made");
    AwaitTurn(stream);
    return ExecutorAccess::Launch(*executor, workspace, workspace_size, handle, stream);
  });
}

namespace {

aclnnStatus SetAddress(aclOpExecutor* handle, std::size_t index, const aclTensor* tensor, void* address,
                       std::optional<Role> role) noexcept {
  return Guard([&]() -> aclnnStatus {
    if (handle == nullptr) return FailNull("executor");
    if (tensor == nullptr) return FailNull("tensor");
    const std::shared_ptr<Executor> executor = Find(handle);
    if (executor == nullptr) return FailExecutor();
    if (!TensorTable::Instance().IsLive(tensor)) return FailNotLive("tensor", "aclTensor");
    return ExecutorAccess::SetAddress(*executor, index, role, address);
  });
}

// No operator has a parameter that is a list of tensors, so no index is right.
aclnnStatus SetDynamicAddress(aclOpExecutor* handle, std::size_t index, const aclTensorList* tensors) noexcept {
  return Guard([&]() -> aclnnStatus {
    if (handle == nullptr) return FailNull("executor");
    if (tensors == nullptr) return FailNull("tensors");
    const std::shared_ptr<Executor> executor = Find(handle);
    if (executor == nullptr) return FailExecutor();
    if (!IsLive(tensors)) return FailNotLive("tensors", "aclTensorList");
    return FailPhase(ACLNN_ERR_PARAM_INVALID,
                     fmt::format("index: {} is no tensor list, {} takes none", index, executor->op().name));
  });
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

extern "C" {

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  return Guard([&]() -> aclnnStatus {
    if (executor == nullptr) return FailPhase(ACLNN_ERR_INNER_NULLPTR, "executor: must not be null");
    const std::shared_ptr<Executor> found = Find(executor);
    return found == nullptr ? FailExecutor() : ExecutorAccess::SetRepeatable(*found);
  });
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  return Guard([&]() -> aclnnStatus {
    if (executor == nullptr) return FailPhase(ACLNN_ERR_INNER_NULLPTR, "executor: must not be null");
    return ExecutorTable::Instance().Take(executor) ? ACLNN_SUCCESS : FailExecutor();
  });
}

aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return SetAddress(executor, index, tensor, addr, std::nullopt);
}
aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return SetAddress(executor, index, tensor, addr, Role::kInput);
}
aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return SetAddress(executor, index, tensor, addr, Role::kOutput);
}
aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor* executor, const size_t index, const size_t, aclTensorList* tensors,
                                    void*) {
  return SetDynamicAddress(executor, index, tensors);
}
aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor* executor, const size_t index, const size_t,
                                         aclTensorList* tensors, void*) {
  return SetDynamicAddress(executor, index, tensors);
}
aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor* executor, const size_t index, const size_t,
                                          aclTensorList* tensors, void*) {
  return SetDynamicAddress(executor, index, tensors);
}

aclnnStatus AclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return aclSetTensorAddr(executor, index, tensor, addr);
}
aclnnStatus AclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return aclSetInputTensorAddr(executor, index, tensor, addr);
}
aclnnStatus AclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return aclSetOutputTensorAddr(executor, index, tensor, addr);
}
aclnnStatus AclSetDynamicTensorAddr(aclOpExecutor* executor, const size_t index, const size_t relativeIndex,
                                    aclTensorList* tensors, void* addr) {
  return aclSetDynamicTensorAddr(executor, index, relativeIndex, tensors, addr);
}
aclnnStatus AclSetDynamicInputTensorAddr(aclOpExecutor* executor, const size_t index, const size_t relativeIndex,
                                         aclTensorList* tensors, void* addr) {
  return aclSetDynamicInputTensorAddr(executor, index, relativeIndex, tensors, addr);
}
aclnnStatus AclSetDynamicOutputTensorAddr(aclOpExecutor* executor, const size_t index, const size_t relativeIndex,
                                          aclTensorList* tensors, void* addr) {
  return aclSetDynamicOutputTensorAddr(executor, index, relativeIndex, tensors, addr);
}

}  // extern "C"
