#include "aclnnop/aclnn_fused_linear_online_max_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "aclnn/fused_linear.h"
#include "onehot/linear_cross_entropy_shards.h"

namespace onehot::aclnn {
namespace {

constexpr Operator kOperator{"aclnnFusedLinearOnlineMaxSum", kFusedProducts};

constexpr aclDataType kMaskType[] = {ACL_UINT8};
constexpr std::int64_t kMaxColumns = 65534;  // contract 1.2

struct Attributes {
  std::int64_t start, end;
};

struct Tensors {
  const Argument &input, &weight, &target, &max, &sum_exp, &predicted, &mask, &masked_target, &logits;

  explicit Tensors(Arguments<9> a)
      : input(a[0]),
        weight(a[1]),
        target(a[2]),
        max(a[3]),
        sum_exp(a[4]),
        predicted(a[5]),
        mask(a[6]),
        masked_target(a[7]),
        logits(a[8]) {}
};

// For outputs with one axis that the native operator does not see.
Status CheckNoOverlap(const Argument& argument) {
  if (argument.layout.dim(0) < 2 || argument.layout.stride(0) != 0) return Status::Ok();
  return Status::Error(Code::kBadShape,
                       fmt::format("{}: must not map two elements to one address, {} elements with stride 0 do",
                                   argument.name, argument.layout.dim(0)));
}

// All that the document says about the arguments, in the order of contract 7.5.
Status CheckArguments(Arguments<9> arguments, const Attributes& attributes, Product product) {
  const Tensors t(arguments);
  if (Status bad = CheckDType(t.input, kHalfTypes, product); !bad.ok()) return bad;
  if (Status bad = CheckSameDType(t.weight, t.input); !bad.ok()) return bad;
  if (Status bad = CheckDType(t.target, kFusedTargetTypes, product); !bad.ok()) return bad;
  for (const Argument* statistic : {&t.max, &t.sum_exp, &t.predicted})
    if (Status bad = CheckDType(*statistic, kFloatType, product); !bad.ok()) return bad;
  if (Status bad = CheckDType(t.mask, kMaskType, product); !bad.ok()) return bad;
  if (Status bad = CheckSameDType(t.masked_target, t.target); !bad.ok()) return bad;
  if (Status bad = CheckSameDType(t.logits, t.input); !bad.ok()) return bad;
  if (Status bad = CheckFormats(arguments); !bad.ok()) return bad;

  const auto [start, end] = attributes;
  if (start < 0)
    return Status::Error(Code::kBadArgument, fmt::format("vocabStartIndex: must not be negative, is {}", start));
  if (end < start)
    return Status::Error(Code::kBadArgument,
                         fmt::format("vocabEndIndex: must be at least vocabStartIndex, {}, is {}", start, end));

  for (const Argument& argument : arguments) {
    const bool matrix = &argument == &t.input || &argument == &t.weight || &argument == &t.logits;
    if (Status bad = CheckRank(argument, matrix ? 2 : 1, matrix ? 2 : 1); !bad.ok()) return bad;
  }
  const std::int64_t tokens = t.input.layout.dim(0), columns = t.input.layout.dim(1);
  if (columns > kMaxColumns)
    return Status::Error(Code::kBadShape,
                         fmt::format("input: must have at most {} columns, has {}", kMaxColumns, columns));
  if (Status bad = CheckWeightShape(t.weight, t.input); !bad.ok()) return bad;
  for (const Argument* per_token : {&t.target, &t.max, &t.sum_exp, &t.predicted})
    if (Status bad = CheckPerToken(*per_token, tokens); !bad.ok()) return bad;
  const std::int64_t mask_bytes = tokens / 8 + (tokens % 8 != 0);
  if (Status bad = CheckShape(t.mask, TensorLayout::Contiguous(DType::kU8, std::array{mask_bytes}),
                              "a bit for each token of input");
      !bad.ok())
    return bad;
  if (Status bad = CheckPerToken(t.masked_target, tokens); !bad.ok()) return bad;
  if (Status bad = CheckPerLogit(t.logits, tokens, t.weight.layout.dim(0)); !bad.ok()) return bad;
  if (Status bad = CheckNoOverlap(t.mask); !bad.ok()) return bad;
  return CheckNoOverlap(t.masked_target);
}

Result<Plan> MakeNative(Arguments<9> arguments, const ConstTensorView& local_targets) {
  const Tensors t(arguments);
  LinearCrossEntropyStatistics problem{.input = t.input.view(),
                                       .weight = t.weight.view(),
                                       .target = local_targets,
                                       .shard = LocalShard(t.weight.layout.dim(0)),
                                       .max = t.max.view(),
                                       .sum_exp = t.sum_exp.view(),
                                       .target_logit = t.predicted.view()};
  if (t.logits.given) problem.logits = t.logits.view();
  Result<Plan> plan = Prepare(problem);
  if (plan.ok()) return plan;
  return WithPrototypeNames(plan.status(), {{"max", "logitsMaxLocalOut"},
                                            {"sum_exp", "sumExpLogitsLocalOut"},
                                            {"target_logit", "predictedLogitsLocalOut"},
                                            {"logits", "vocabParallelLogitsOutOptional"}});
}

// Also writes the two outputs that say the same to the client.
Status Fill(Arguments<9> arguments, const Attributes& attributes, std::span<std::int64_t> local_targets) {
  const Tensors t(arguments);
  return ForTargetType(t.target, [&]<class T>() {
    const Elements<T> target(t.target.view()), masked_target(t.masked_target.view());
    const Elements<std::uint8_t> mask(t.mask.view());
    const std::int64_t tokens = std::ssize(local_targets), classes = t.weight.layout.dim(0);
    for (std::int64_t first = 0; first < tokens; first += 8) {
      unsigned bits = 0xFF;  // those beyond the last token stay 1 (contract 7.2)
      for (std::int64_t i = first; i < std::min(first + 8, tokens); ++i) {
        const std::int64_t class_index = target[i];
        // start is not negative, and the difference is taken only from what is not below it: it is a number.
        const bool here = class_index >= attributes.start && class_index <= attributes.end &&
                          class_index - attributes.start < classes;
        const std::int64_t row = here ? class_index - attributes.start : 0;
        local_targets[static_cast<std::size_t>(i)] = here ? row : classes;
        masked_target[i] = static_cast<T>(row);
        bits &= ~(static_cast<unsigned>(here) << (i - first));
      }
      mask[first / 8] = static_cast<std::uint8_t>(bits);
    }
    return Status::Ok();
  });
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclnnStatus aclnnFusedLinearOnlineMaxSumGetWorkspaceSize(
    const aclTensor* input, const aclTensor* weight, const aclTensor* target, int64_t vocabStartIndex,
    int64_t vocabEndIndex, aclTensor* logitsMaxLocalOut, aclTensor* sumExpLogitsLocalOut,
    aclTensor* predictedLogitsLocalOut, aclTensor* targetMaskOut, aclTensor* maskedTargetOut,
    aclTensor* vocabParallelLogitsOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Attributes attributes{vocabStartIndex, vocabEndIndex};
  return GetWorkspaceSize(
      kOperator,
      {Input("input", input), Input("weight", weight), Input("target", target),
       Output("logitsMaxLocalOut", logitsMaxLocalOut), Output("sumExpLogitsLocalOut", sumExpLogitsLocalOut),
       Output("predictedLogitsLocalOut", predictedLogitsLocalOut), Output("targetMaskOut", targetMaskOut),
       Output("maskedTargetOut", maskedTargetOut),
       OptionalOutput("vocabParallelLogitsOutOptional", vocabParallelLogitsOutOptional)},
      workspaceSize, executor, [=](Arguments<9> arguments, Product product) -> onehot::Result<LaunchPlan> {
        if (onehot::Status bad = CheckArguments(arguments, attributes, product); !bad.ok()) return bad;
        return PlanWithLocalTargets(
            arguments[0].layout.dim(0),
            [=](const onehot::ConstTensorView& local_targets) { return MakeNative(arguments, local_targets); },
            [=](std::span<std::int64_t> local_targets) { return Fill(arguments, attributes, local_targets); });
      });
}

aclnnStatus aclnnFusedLinearOnlineMaxSum(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                         aclrtStream stream) {
  return Launch(kOperator, workspace, workspaceSize, executor, stream);
}
