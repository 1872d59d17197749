#include "aclnnop/aclnn_fused_linear_cross_entropy_loss_grad.h"

#include <fmt/format.h>

#include <iterator>

#include "aclnn/fused_linear.h"

namespace onehot::aclnn {
namespace {

constexpr Operator kOperator{"aclnnFusedLinearCrossEntropyLossGrad", kFusedProducts};

constexpr aclDataType kMaskTypes[] = {ACL_UINT8, ACL_BOOL};
constexpr std::int64_t kMinClasses = 128;  // contract 1.1

struct Tensors {
  const Argument &grad, &input, &weight, &mask, &masked_target, &max, &sum_exp, &softmax, &input_grad, &weight_grad;

  explicit Tensors(Arguments<10> a)
      : grad(a[0]),
        input(a[1]),
        weight(a[2]),
        mask(a[3]),
        masked_target(a[4]),
        max(a[5]),
        sum_exp(a[6]),
        softmax(a[7]),
        input_grad(a[8]),
        weight_grad(a[9]) {}
};

Status CheckMaskShape(const Argument& mask, std::int64_t tokens) {
  if (mask.dtype == ACL_BOOL) return CheckPerToken(mask, tokens);
  const std::int64_t bytes = mask.layout.dim(0), least = tokens / 8 + (tokens % 8 != 0);
  if (bytes >= least) return Status::Ok();
  return Status::Error(
      Code::kBadShape,
      fmt::format("targetMask: must have a bit for each token of input, {} bytes or more, has {}", least, bytes));
}

// All that the document says about the arguments, in the order of contract 7.5.
Status CheckArguments(Arguments<10> arguments, float label_smoothing, Product product) {
  const Tensors t(arguments);
  if (Status bad = CheckDType(t.grad, kFloatType, product); !bad.ok()) return bad;
  if (Status bad = CheckDType(t.input, kHalfTypes, product); !bad.ok()) return bad;
  if (Status bad = CheckSameDType(t.weight, t.input); !bad.ok()) return bad;
  if (Status bad = CheckDType(t.mask, kMaskTypes, product); !bad.ok()) return bad;
  if (Status bad = CheckDType(t.masked_target, kFusedTargetTypes, product); !bad.ok()) return bad;
  for (const Argument* known : {&t.max, &t.sum_exp, &t.softmax})
    if (Status bad = CheckDType(*known, kFloatType, product); !bad.ok()) return bad;
  for (const Argument* gradient : {&t.input_grad, &t.weight_grad})
    if (Status bad = CheckSameDType(*gradient, t.input); !bad.ok()) return bad;
  if (Status bad = CheckFormats(arguments); !bad.ok()) return bad;
  if (Status bad = CheckNoSmoothing(label_smoothing); !bad.ok()) return bad;

  for (const Argument& argument : arguments) {
    const bool vector = &argument == &t.grad || &argument == &t.mask || &argument == &t.masked_target ||
                        &argument == &t.max || &argument == &t.sum_exp;
    if (Status bad = CheckRank(argument, vector ? 1 : 2, vector ? 1 : 2); !bad.ok()) return bad;
  }
  const std::int64_t tokens = t.input.layout.dim(0), classes = t.weight.layout.dim(0);
  if (Status bad = CheckPerToken(t.grad, tokens); !bad.ok()) return bad;
  if (Status bad = CheckWeightShape(t.weight, t.input); !bad.ok()) return bad;
  if (classes < kMinClasses)
    return Status::Error(Code::kBadShape,
                         fmt::format("weight: must have at least {} rows, has {}", kMinClasses, classes));
  if (Status bad = CheckMaskShape(t.mask, tokens); !bad.ok()) return bad;
  for (const Argument* per_token : {&t.masked_target, &t.max, &t.sum_exp})
    if (Status bad = CheckPerToken(*per_token, tokens); !bad.ok()) return bad;
  if (Status bad = CheckPerLogit(t.softmax, tokens, classes); !bad.ok()) return bad;
  if (Status bad = CheckShape(t.input_grad, t.input.layout, "that of input"); !bad.ok()) return bad;
  return CheckShape(t.weight_grad, t.weight.layout, "that of weight");
}

Result<Plan> MakeNative(Arguments<10> arguments, const ConstTensorView& local_targets) {
  const Tensors t(arguments);
  LinearCrossEntropyBackward problem{.input = t.input.view(),
                                     .weight = t.weight.view(),
                                     .target = local_targets,
                                     .shard = LocalShard(t.weight.layout.dim(0)),
                                     .upstream = {.loss = t.grad.view()},
                                     .grad = {.input = t.input_grad.view(), .weight = t.weight_grad.view()}};
  if (t.softmax.given) {
    problem.probability = t.softmax.view();
  } else {
    problem.max = t.max.view();
    problem.sum_exp = t.sum_exp.view();
  }
  problem.options.loss.reduction = Reduction::kNone;
  Result<Plan> plan = Prepare(problem);
  if (plan.ok()) return plan;
  return WithPrototypeNames(plan.status(), {{"upstream.loss", "grad"},
                                            {"target", "maskedTarget"},
                                            {"max", "logitsMaxOptional"},
                                            {"sum_exp", "sumExpLogitsOptional"},
                                            {"probability", "softmaxOptional"},
                                            {"grad.input", "inputGradOut"},
                                            {"grad.weight", "weightGradOut"}});
}

Status Fill(Arguments<10> arguments, std::span<std::int64_t> local_targets) {
  const Tensors t(arguments);
  return ForTargetType(t.masked_target, [&]<class T>() {
    const Elements<T> masked_target(t.masked_target.view());
    const Elements<std::uint8_t> mask(t.mask.view());
    const bool bits = t.mask.dtype == ACL_UINT8;
    const std::int64_t tokens = std::ssize(local_targets), classes = t.weight.layout.dim(0);
    for (std::int64_t i = 0; i < tokens; ++i) {
      std::int64_t row = classes;
      if (const bool elsewhere = bits ? (mask[i / 8] >> (i % 8) & 1) != 0 : mask[i] != 0; !elsewhere) {
        row = masked_target[i];
        if (row < 0 || row >= classes)
          return Status::Error(Code::kBadData,
                               fmt::format("maskedTarget[{}] = {} is outside [0, {})", i, row, classes));
      }
      local_targets[static_cast<std::size_t>(i)] = row;
    }
    return Status::Ok();
  });
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclnnStatus aclnnFusedLinearCrossEntropyLossGradGetWorkspaceSize(
    const aclTensor* grad, const aclTensor* input, const aclTensor* weight, const aclTensor* targetMask,
    const aclTensor* maskedTarget, float labelSmoothing, const aclTensor* logitsMaxOptional,
    const aclTensor* sumExpLogitsOptional, const aclTensor* softmaxOptional, aclTensor* inputGradOut,
    aclTensor* weightGradOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  // The softmax says all that the other two do: with it they are not read, without it they must be there (contract 7.4).
  const auto statistic = [=](const char* name, const aclTensor* handle) {
    return softmaxOptional != nullptr ? InputNotRead(name, handle) : Input(name, handle);
  };
  return GetWorkspaceSize(
      kOperator,
      {Input("grad", grad), Input("input", input), Input("weight", weight), Input("targetMask", targetMask),
       Input("maskedTarget", maskedTarget), statistic("logitsMaxOptional", logitsMaxOptional),
       statistic("sumExpLogitsOptional", sumExpLogitsOptional), OptionalInput("softmaxOptional", softmaxOptional),
       Output("inputGradOut", inputGradOut), Output("weightGradOut", weightGradOut)},
      workspaceSize, executor, [=](Arguments<10> arguments, Product product) -> onehot::Result<LaunchPlan> {
        if (onehot::Status bad = CheckArguments(arguments, labelSmoothing, product); !bad.ok()) return bad;
        return PlanWithLocalTargets(
            arguments[1].layout.dim(0),
            [=](const onehot::ConstTensorView& local_targets) { return MakeNative(arguments, local_targets); },
            [=](std::span<std::int64_t> local_targets) { return Fill(arguments, local_targets); });
      });
}

aclnnStatus aclnnFusedLinearCrossEntropyLossGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                                 aclrtStream stream) {
  return Launch(kOperator, workspace, workspaceSize, executor, stream);
}
