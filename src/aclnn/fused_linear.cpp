#include "aclnn/fused_linear.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "core/scratch.h"

namespace onehot::aclnn {

Status CheckPerToken(const Argument& argument, std::int64_t tokens) {
  return CheckShape(argument, TensorLayout::Contiguous(DType::kF32, std::array{tokens}),
                    "one element for each token of input");
}

Status CheckPerLogit(const Argument& argument, std::int64_t tokens, std::int64_t classes) {
  return CheckShape(argument, TensorLayout::Contiguous(DType::kF32, std::array{tokens, classes}), "that of the logits");
}

Status CheckWeightShape(const Argument& weight, const Argument& input) {
  const std::int64_t columns = input.layout.dim(1);
  if (weight.layout.dim(1) != columns)
    return Status::Error(Code::kBadShape, fmt::format("weight: must have as many columns as input, {}, has {}", columns,
                                                      weight.layout.dim(1)));
  if (weight.layout.dim(0) == std::numeric_limits<std::int64_t>::max())
    return Status::Error(Code::kBadShape, "weight: must have less than 2^63 - 1 rows");
  return Status::Ok();
}

Status CheckNoSmoothing(float label_smoothing) {
  if (label_smoothing == 0) return Status::Ok();  // NaN is not
  return Status::Error(Code::kBadArgument, fmt::format("labelSmoothing: must be 0, is {}", label_smoothing));
}

Result<LaunchPlan> PlanWithLocalTargets(std::int64_t tokens, MakeNativePlan native, FillLocalTargets fill) {
  const auto view = [tokens](const std::int64_t* targets) { return ConstTensorView(targets, DType::kI64, {tokens}); };
  const Result<Plan> without_memory = native(view(nullptr));
  if (!without_memory.ok()) return without_memory.status();
  ScratchLayout layout;
  const auto local = layout.Book<std::int64_t>(tokens);
  const auto rest = layout.Book<std::byte>(static_cast<std::int64_t>(without_memory->scratch_bytes()));
  return LaunchPlan(
      layout.bytes(),
      [=, native = std::move(native), fill = std::move(fill)](void* workspace, std::size_t bytes) -> Status {
        const Scratch scratch(workspace);
        const std::span<std::int64_t> targets = scratch.Get(local);
        const Result<Plan> plan = native(view(targets.data()));
        if (!plan.ok()) return plan.status();
        if (Status bad = fill(targets); !bad.ok()) return bad;
        std::byte* const begin = scratch.Get(rest).data();
        return RunIn(*plan, begin, static_cast<std::size_t>(static_cast<std::byte*>(workspace) + bytes - begin));
      });
}

}  // namespace onehot::aclnn
