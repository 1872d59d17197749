#include "aclnnop/aclnn_nll_loss_backward.h"

#include "aclnn/nll_loss.h"
#include "aclnnop/aclnn_nll_loss2d_backward.h"
#include "onehot/nll_loss.h"

namespace onehot::aclnn {
namespace {

constexpr Operator kNllLossBackward{"aclnnNLLLossBackward", kNllLossProducts};
constexpr Operator kNllLoss2dBackward{"aclnnNLLLoss2dBackward", kNllLossProducts};

Result<Plan> MakePlan(Arguments<6> arguments, const NllLossAttributes& attributes, Product product) {
  const Argument& out = arguments[5];
  const NllLossTensors tensors{.self = arguments[1],
                               .target = arguments[2],
                               .weight = arguments[3],
                               .total_weight = arguments[4],
                               .per_loss = arguments[0],
                               .per_logit = &out};
  if (Status bad = CheckNllLoss(arguments, tensors, attributes, product); !bad.ok()) return bad;
  NllLossBackward problem{.grad_output = PerLossView(tensors, attributes),
                          .target = tensors.target.view(),
                          .out = out.view(),
                          .weight = tensors.weight.view(),
                          .reduction = static_cast<Reduction>(attributes.reduction),
                          .ignore_index = attributes.ignore_index};
  if (tensors.total_weight.given) problem.total_weight = tensors.total_weight.view();
  Result<Plan> plan = Prepare(problem);
  if (plan.ok()) return plan;
  return WithPrototypeNames(plan.status(), {{"grad_output", "gradOutput"}, {"total_weight", "totalWeight"}});
}

aclnnStatus PhaseOne(const Operator& op, RankRange ranks, const aclTensor* grad_output, const aclTensor* self,
                     const aclTensor* target, const aclTensor* weight, std::int64_t reduction,
                     std::int64_t ignore_index, const aclTensor* total_weight, const aclTensor* out,
                     std::uint64_t* workspace_size, aclOpExecutor** executor) {
  const NllLossAttributes attributes{ranks, reduction, ignore_index};
  // The other reductions do not process it (contract 1.6), so it may be anything (7.30), a reduction that is none too.
  const bool mean = reduction == static_cast<std::int64_t>(Reduction::kMean);
  return GetWorkspaceSize(
      op,
      {Input("gradOutput", grad_output), Input("self", self), Input("target", target), Input("weight", weight),
       mean ? Input("totalWeight", total_weight) : RequiredInputNotRead("totalWeight", total_weight),
       Output("out", out)},
      workspace_size, executor,
      [=](Arguments<6> arguments, Product product) { return MakePlan(arguments, attributes, product); });
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclnnStatus aclnnNLLLossBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* self,
                                                 const aclTensor* target, const aclTensor* weight, int64_t reduction,
                                                 int64_t ignoreIndex, const aclTensor* totalWeight, aclTensor* out,
                                                 uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PhaseOne(kNllLossBackward, kNllLossRanks, gradOutput, self, target, weight, reduction, ignoreIndex,
                  totalWeight, out, workspaceSize, executor);
}

aclnnStatus aclnnNLLLossBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) {
  return Launch(kNllLossBackward, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnNLLLoss2dBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* self,
                                                   const aclTensor* target, const aclTensor* weight, int64_t reduction,
                                                   int64_t ignoreIndex, aclTensor* totalWeight, aclTensor* out,
                                                   uint64_t* workspaceSize, aclOpExecutor** executor) {
  return PhaseOne(kNllLoss2dBackward, kNllLoss2dRanks, gradOutput, self, target, weight, reduction, ignoreIndex,
                  totalWeight, out, workspaceSize, executor);
}

aclnnStatus aclnnNLLLoss2dBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   aclrtStream stream) {
  return Launch(kNllLoss2dBackward, workspace, workspaceSize, executor, stream);
}
