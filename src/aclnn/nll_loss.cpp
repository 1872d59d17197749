#include "aclnn/nll_loss.h"

#include <fmt/format.h>

#include "aclnnop/aclnn_nll_loss.h"
#include "aclnnop/aclnn_nll_loss2d.h"
#include "onehot/nll_loss.h"

namespace onehot::aclnn {
namespace {

constexpr Operator kNllLoss{"aclnnNLLLoss", kNllLossProducts}, kNllLoss2d{"aclnnNLLLoss2d", kNllLossProducts};

constexpr aclDataType kFloatTypes[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
constexpr aclDataType kTargetTypes[] = {ACL_INT64, ACL_INT32, ACL_UINT8};

constexpr std::int64_t kNone = static_cast<std::int64_t>(Reduction::kNone);
constexpr std::int64_t kSum = static_cast<std::int64_t>(Reduction::kSum);

bool HasOneLoss(const NllLossTensors& tensors, const NllLossAttributes& attributes) {
  return attributes.reduction != kNone || tensors.target.rank == 0;
}

Result<Plan> MakePlan(Arguments<5> arguments, const NllLossAttributes& attributes, Product product) {
  const NllLossTensors tensors{.self = arguments[0],
                               .target = arguments[1],
                               .weight = arguments[2],
                               .total_weight = arguments[4],
                               .per_loss = arguments[3]};
  if (Status bad = CheckNllLoss(arguments, tensors, attributes, product); !bad.ok()) return bad;
  const NllLoss problem{.input = tensors.self.view(),
                        .target = tensors.target.view(),
                        .loss = PerLossView(tensors, attributes),
                        .total_weight = tensors.total_weight.view(),
                        .weight = tensors.weight.view(),
                        .reduction = static_cast<Reduction>(attributes.reduction),
                        .ignore_index = attributes.ignore_index};
  Result<Plan> plan = Prepare(problem);
  if (plan.ok()) return plan;
  return WithPrototypeNames(plan.status(), {{"input", "self"}, {"loss", "out"}, {"total_weight", "totalWeightOut"}});
}

aclnnStatus PhaseOne(const Operator& op, RankRange ranks, const aclTensor* self, const aclTensor* target,
                     const aclTensor* weight, std::int64_t reduction, std::int64_t ignore_index, const aclTensor* out,
                     const aclTensor* total_weight_out, std::uint64_t* workspace_size, aclOpExecutor** executor) {
  const NllLossAttributes attributes{ranks, reduction, ignore_index};
  return GetWorkspaceSize(op,
                          {Input("self", self), Input("target", target), Input("weight", weight), Output("out", out),
                           Output("totalWeightOut", total_weight_out)},
                          workspace_size, executor, [=](Arguments<5> arguments, Product product) {
                            return MakePlan(arguments, attributes, product);
                          });
}

}  // namespace

Status CheckNllLoss(std::span<const Argument> arguments, const NllLossTensors& tensors,
                    const NllLossAttributes& attributes, Product product) {
  const auto& [self, target, weight, total_weight, per_loss, per_logit] = tensors;
  if (Status bad = CheckDType(self, kFloatTypes, product); !bad.ok()) return bad;
  if (Status bad = CheckDType(target, kTargetTypes, product); !bad.ok()) return bad;
  for (const Argument& argument : arguments)
    if (&argument != &target)
      if (Status bad = CheckSameDType(argument, self); !bad.ok()) return bad;
  if (Status bad = CheckFormats(arguments); !bad.ok()) return bad;
  if (attributes.reduction < kNone || attributes.reduction > kSum)
    return Status::Error(Code::kBadArgument,
                         fmt::format("reduction: must be 0 (none), 1 (mean) or 2 (sum), is {}", attributes.reduction));

  if (Status bad = CheckRank(self, attributes.ranks.least, attributes.ranks.most); !bad.ok()) return bad;
  if (Status bad = CheckRank(target, self.rank - 1, self.rank - 1); !bad.ok()) return bad;
  if (Status bad = CheckRank(weight, 1, 1); !bad.ok()) return bad;
  const bool one_loss = HasOneLoss(tensors, attributes);
  if (Status bad = CheckRank(per_loss, one_loss ? 0 : target.rank, one_loss ? kMaxRank : target.rank); !bad.ok())
    return bad;
  if (Status bad = CheckRank(total_weight, 0, kMaxRank); !bad.ok()) return bad;
  if (per_logit != nullptr)
    if (Status bad = CheckRank(*per_logit, self.rank, self.rank); !bad.ok()) return bad;

  TensorLayout positions = self.layout;  // without the axis of classes
  const int class_axis = self.rank == 1 ? 0 : 1;
  --positions.rank;
  for (int axis = class_axis; axis < positions.rank; ++axis)
    positions.dims[static_cast<std::size_t>(axis)] = self.layout.dim(axis + 1);
  if (Status bad = CheckShape(target, positions, "that of self without the axis of classes"); !bad.ok()) return bad;
  if (const std::int64_t classes = self.layout.dim(class_axis), weights = weight.layout.dim(0); weights != classes)
    return Status::Error(
        Code::kBadShape,
        fmt::format("weight: must have one element for each of the {} classes of self, has {}", classes, weights));
  if (Status bad = one_loss ? CheckOneElement(per_loss) : CheckShape(per_loss, target.layout, "that of target");
      !bad.ok())
    return bad;
  if (Status bad = CheckOneElement(total_weight); !bad.ok()) return bad;
  return per_logit == nullptr ? Status::Ok() : CheckShape(*per_logit, self.layout, "that of self");
}

TensorView PerLossView(const NllLossTensors& tensors, const NllLossAttributes& attributes) {
  TensorView view = tensors.per_loss.view();
  if (HasOneLoss(tensors, attributes)) view.rank = 0;
  return view;
}

}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclnnStatus aclnnNLLLossGetWorkspaceSize(const aclTensor* self, const aclTensor* target, const aclTensor* weight,
                                         int64_t reduction, int64_t ignoreIndex, aclTensor* out,
                                         aclTensor* totalWeightOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PhaseOne(kNllLoss, kNllLossRanks, self, target, weight, reduction, ignoreIndex, out, totalWeightOut,
                  workspaceSize, executor);
}

aclnnStatus aclnnNLLLoss(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) {
  return Launch(kNllLoss, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnNLLLoss2dGetWorkspaceSize(const aclTensor* self, const aclTensor* target, const aclTensor* weight,
                                           int64_t reduction, int64_t ignoreIndex, aclTensor* out,
                                           aclTensor* totalWeightOut, uint64_t* workspaceSize,
                                           aclOpExecutor** executor) {
  return PhaseOne(kNllLoss2d, kNllLoss2dRanks, self, target, weight, reduction, ignoreIndex, out, totalWeightOut,
                  workspaceSize, executor);
}

aclnnStatus aclnnNLLLoss2d(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) {
  return Launch(kNllLoss2d, workspace, workspaceSize, executor, stream);
}
