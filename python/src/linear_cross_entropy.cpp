// Linear cross entropy, whole and of a vocabulary that is split.
#include "onehot/linear_cross_entropy.h"

#include "arguments.h"
#include "losses.h"
#include "names.h"
#include "onehot/linear_cross_entropy_shards.h"
#include "run.h"

namespace onehot::python {
namespace {

// A problem over a linear layer, with what every one of them has.
template <class Problem>
Problem ProblemOf(Arguments& arguments) {
  arguments.Rename(kLinearNames);
  Problem problem;
  problem.input = arguments.In<"input">();
  problem.weight = arguments.In<"linear_weight">();
  problem.target = arguments.In<"target">();
  return problem;
}

LinearCrossEntropyOptions LinearOptions(Arguments& arguments) {
  LinearCrossEntropyOptions options;
  options.loss = LossOptions(arguments);
  options.bias = arguments.MaybeIn<"linear_bias">();
  options.logit_scale = arguments.Number<"logit_scale">(1);
  options.max_workspace = arguments.MaybeInteger<"max_workspace">();
  options.skip_below = arguments.Number<"skip_below">(0);
  options.reproducible = arguments.Flag<"reproducible">(false);
  return options;
}

LinearCrossEntropyUpstream Upstream(Arguments& arguments) {
  LinearCrossEntropyUpstream upstream;
  upstream.loss = arguments.MaybeNumberIn<"grad_loss">();
  upstream.log_probability = arguments.MaybeIn<"grad_log_probability">();
  upstream.entropy = arguments.MaybeIn<"grad_entropy">();
  return upstream;
}

LinearCrossEntropyGradients Gradients(Arguments& arguments) {
  LinearCrossEntropyGradients gradients;
  gradients.input = arguments.MaybeOut<"grad_input">();
  gradients.weight = arguments.MaybeOut<"grad_weight">();
  gradients.bias = arguments.MaybeOut<"grad_bias">();
  gradients.accumulate = arguments.Flag<"accumulate">(false);
  return gradients;
}

std::optional<VocabularyShard> Shard(Arguments& arguments) {
  const std::optional<std::int64_t> first = arguments.MaybeInteger<"shard_first">();
  const std::int64_t num_classes = arguments.Integer<"shard_num_classes">(0);
  if (!first) return std::nullopt;
  return VocabularyShard{*first, num_classes};
}

void Forward(Arguments& arguments) {
  auto problem = ProblemOf<LinearCrossEntropy>(arguments);
  problem.loss = arguments.MaybeOut<"loss">();
  problem.lse = arguments.MaybeOut<"lse">();
  problem.target_logit = arguments.MaybeOut<"target_logit">();
  problem.log_probability = arguments.MaybeOut<"log_probability">();
  problem.entropy = arguments.MaybeOut<"entropy">();
  problem.argmax = arguments.MaybeOut<"argmax">();
  problem.total_weight = arguments.MaybeOut<"total_weight">();
  problem.upstream = Upstream(arguments);
  problem.grad = Gradients(arguments);
  problem.options = LinearOptions(arguments);
  Run(arguments.PlanFor(problem));
}

void Backward(Arguments& arguments) {
  auto problem = ProblemOf<LinearCrossEntropyBackward>(arguments);
  problem.lse = arguments.MaybeIn<"lse">();
  problem.max = arguments.MaybeIn<"max">();
  problem.sum_exp = arguments.MaybeIn<"sum_exp">();
  problem.entropy = arguments.MaybeIn<"entropy">();
  problem.probability = arguments.MaybeIn<"probability">();
  problem.shard = Shard(arguments);
  problem.upstream = Upstream(arguments);
  problem.grad = Gradients(arguments);
  problem.options = LinearOptions(arguments);
  Run(arguments.PlanFor(problem));
}

void Statistics(Arguments& arguments) {
  auto problem = ProblemOf<LinearCrossEntropyStatistics>(arguments);
  problem.shard = Shard(arguments);
  problem.max = arguments.MaybeOut<"max">();
  problem.sum_exp = arguments.MaybeOut<"sum_exp">();
  problem.target_logit = arguments.MaybeOut<"target_logit">();
  problem.smoothing = arguments.MaybeOut<"smoothing">();
  problem.moment = arguments.MaybeOut<"moment">();
  problem.argmax = arguments.MaybeOut<"argmax">();
  problem.logits = arguments.MaybeOut<"logits">();
  problem.options = LinearOptions(arguments);
  Run(arguments.PlanFor(problem));
}

void Loss(Arguments& arguments) {
  LinearCrossEntropyLoss problem;
  problem.max = arguments.In<"max">();
  problem.sum_exp = arguments.In<"sum_exp">();
  problem.target_logit = arguments.MaybeIn<"target_logit">();
  problem.smoothing = arguments.MaybeIn<"smoothing">();
  problem.moment = arguments.MaybeIn<"moment">();
  problem.target = arguments.MaybeIn<"target">();
  problem.num_classes = arguments.Integer<"num_classes">(0);
  problem.logits = arguments.MaybeIn<"logits">();
  problem.loss = arguments.MaybeOut<"loss">();
  problem.lse = arguments.MaybeOut<"lse">();
  problem.log_probability = arguments.MaybeOut<"log_probability">();
  problem.entropy = arguments.MaybeOut<"entropy">();
  problem.total_weight = arguments.MaybeOut<"total_weight">();
  problem.probability = arguments.MaybeOut<"probability">();
  problem.options = LossOptions(arguments);
  Run(arguments.PlanFor(problem));
}

}  // namespace

void BindLinearCrossEntropy(nb::module_& module) {
  static PyMethodDef methods[] = {
      Method<"linear_cross_entropy", &Forward>(
          "linear_cross_entropy($module, input, linear_weight, target, **options)\n--\n\n"),
      Method<"linear_cross_entropy_backward", &Backward>(
          "linear_cross_entropy_backward($module, input, linear_weight, target, **options)\n--\n\n"),
      Method<"linear_cross_entropy_statistics", &Statistics>(
          "linear_cross_entropy_statistics($module, input, linear_weight, target, **options)\n--\n\n"),
      Method<"linear_cross_entropy_loss", &Loss>("linear_cross_entropy_loss($module, max, sum_exp, **options)\n--\n\n"),
      {}};
  Add(module, methods);
}

}  // namespace onehot::python
