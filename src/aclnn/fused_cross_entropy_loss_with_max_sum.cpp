#include "aclnnop/aclnn_fused_cross_entropy_loss_with_max_sum.h"

#include <fmt/format.h>

#include "aclnn/fused_linear.h"
#include "onehot/linear_cross_entropy_shards.h"

namespace onehot::aclnn {
namespace {

constexpr Operator kOperator{"aclnnFusedCrossEntropyLossWithMaxSum", kFusedProducts};

constexpr aclDataType kLogitTypes[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

Result<Plan> MakePlan(Arguments<8> arguments, float label_smoothing, Product product) {
  const Argument &max = arguments[0], &sum_exp = arguments[1], &predicted = arguments[2], &logits = arguments[5],
                 &loss = arguments[6], &softmax = arguments[7];
  for (const Argument* argument : {&max, &sum_exp, &predicted})
    if (Status bad = CheckDType(*argument, kFloatType, product); !bad.ok()) return bad;
  if (Status bad = CheckDType(logits, kLogitTypes, product); !bad.ok()) return bad;
  for (const Argument* argument : {&loss, &softmax})
    if (Status bad = CheckDType(*argument, kFloatType, product); !bad.ok()) return bad;
  if (Status bad = CheckFormats(arguments); !bad.ok()) return bad;
  if (Status bad = CheckNoSmoothing(label_smoothing); !bad.ok()) return bad;
  for (const Argument* argument : {&max, &sum_exp, &predicted, &loss})
    if (Status bad = CheckRank(*argument, 1, 1); !bad.ok()) return bad;
  for (const Argument* argument : {&logits, &softmax})
    if (Status bad = CheckRank(*argument, 2, 2); !bad.ok()) return bad;
  for (const Argument* argument : {&sum_exp, &predicted, &loss})
    if (Status bad = CheckShape(*argument, max.layout, "that of logitsMax"); !bad.ok()) return bad;
  const std::int64_t tokens = max.layout.dim(0), classes = logits.layout.dim(1);
  if (logits.given && logits.layout.dim(0) != tokens)
    return Status::Error(Code::kBadShape,
                         fmt::format("vocabParallelLogitsOptional: must have one row for each of the {} elements of "
                                     "logitsMax, has {}",
                                     tokens, logits.layout.dim(0)));
  if (Status bad = CheckPerLogit(softmax, tokens, classes); !bad.ok()) return bad;

  LinearCrossEntropyLoss problem{
      .max = max.view(), .sum_exp = sum_exp.view(), .target_logit = predicted.view(), .loss = loss.view()};
  problem.options.reduction = Reduction::kNone;
  if (softmax.given) {
    problem.logits = logits.view();
    problem.probability = softmax.view();
  }
  Result<Plan> plan = Prepare(problem);
  if (plan.ok()) return plan;
  return WithPrototypeNames(plan.status(), {{"max", "logitsMax"},
                                            {"sum_exp", "sumExpLogits"},
                                            {"target_logit", "predictedLogits"},
                                            {"logits", "vocabParallelLogitsOptional"},
                                            {"loss", "lossOut"},
                                            {"probability", "softMaxOutOptional"}});
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclnnStatus aclnnFusedCrossEntropyLossWithMaxSumGetWorkspaceSize(
    const aclTensor* logitsMax, const aclTensor* sumExpLogits, const aclTensor* predictedLogits, float labelSmoothing,
    const aclTensor* inputOptional, const aclTensor* weightOptional, const aclTensor* vocabParallelLogitsOptional,
    aclTensor* lossOut, aclTensor* softMaxOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return GetWorkspaceSize(
      kOperator,
      {Input("logitsMax", logitsMax), Input("sumExpLogits", sumExpLogits), Input("predictedLogits", predictedLogits),
       InputNotRead("inputOptional", inputOptional), InputNotRead("weightOptional", weightOptional),
       // Only softmax needs logits, and it needs them (contract 7.22).
       softMaxOutOptional != nullptr ? Input("vocabParallelLogitsOptional", vocabParallelLogitsOptional)
                                     : InputNotRead("vocabParallelLogitsOptional", vocabParallelLogitsOptional),
       Output("lossOut", lossOut), OptionalOutput("softMaxOutOptional", softMaxOutOptional)},
      workspaceSize, executor,
      [=](Arguments<8> arguments, Product product) { return MakePlan(arguments, labelSmoothing, product); });
}

aclnnStatus aclnnFusedCrossEntropyLossWithMaxSum(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                 aclrtStream stream) {
  return Launch(kOperator, workspace, workspaceSize, executor, stream);
}
