// Linear cross entropy, whole and of a vocabulary that is split.
#include "onehot/linear_cross_entropy.h"

#include "array.h"
#include "losses.h"
#include "onehot/linear_cross_entropy_shards.h"
#include "run.h"

namespace onehot::python {
namespace {

LinearCrossEntropyOptions LinearOptions(Keywords& keywords) {
  LinearCrossEntropyOptions options;
  options.loss = LossOptions(keywords);
  options.bias = keywords.In<"linear_bias">();
  options.logit_scale = keywords.Number<"logit_scale">(1);
  options.max_workspace = keywords.MaybeInteger<"max_workspace">();
  options.skip_below = keywords.Number<"skip_below">(0);
  options.reproducible = keywords.Flag<"reproducible">(false);
  return options;
}

LinearCrossEntropyUpstream Upstream(Keywords& keywords) {
  LinearCrossEntropyUpstream upstream;
  upstream.loss = keywords.In<"grad_loss">();
  upstream.log_probability = keywords.In<"grad_log_probability">();
  upstream.entropy = keywords.In<"grad_entropy">();
  return upstream;
}

LinearCrossEntropyGradients Gradients(Keywords& keywords) {
  LinearCrossEntropyGradients gradients;
  gradients.input = keywords.Out<"grad_input">();
  gradients.weight = keywords.Out<"grad_weight">();
  gradients.bias = keywords.Out<"grad_bias">();
  gradients.accumulate = keywords.Flag<"accumulate">(false);
  return gradients;
}

std::optional<VocabularyShard> Shard(Keywords& keywords) {
  const std::optional<std::int64_t> first = keywords.MaybeInteger<"shard_first">();
  const std::int64_t num_classes = keywords.Integer<"shard_num_classes">(0);
  if (!first) return std::nullopt;
  return VocabularyShard{*first, num_classes};
}

void Forward(nb::handle input, nb::handle weight, nb::handle target, const nb::kwargs& options) {
  Keywords keywords(options, "linear_cross_entropy");
  const In input_array(input, "input"), weight_array(weight, "linear_weight"), target_array(target, "target");
  LinearCrossEntropy problem{input_array, weight_array, target_array};
  problem.loss = keywords.Out<"loss">();
  problem.lse = keywords.Out<"lse">();
  problem.target_logit = keywords.Out<"target_logit">();
  problem.log_probability = keywords.Out<"log_probability">();
  problem.entropy = keywords.Out<"entropy">();
  problem.argmax = keywords.Out<"argmax">();
  problem.total_weight = keywords.Out<"total_weight">();
  problem.upstream = Upstream(keywords);
  problem.grad = Gradients(keywords);
  problem.options = LinearOptions(keywords);
  keywords.End();
  Run(Prepare(problem));
}

void Backward(nb::handle input, nb::handle weight, nb::handle target, const nb::kwargs& options) {
  Keywords keywords(options, "linear_cross_entropy_backward");
  const In input_array(input, "input"), weight_array(weight, "linear_weight"), target_array(target, "target");
  LinearCrossEntropyBackward problem{input_array, weight_array, target_array};
  problem.lse = keywords.In<"lse">();
  problem.max = keywords.In<"max">();
  problem.sum_exp = keywords.In<"sum_exp">();
  problem.entropy = keywords.In<"entropy">();
  problem.probability = keywords.In<"probability">();
  problem.shard = Shard(keywords);
  problem.upstream = Upstream(keywords);
  problem.grad = Gradients(keywords);
  problem.options = LinearOptions(keywords);
  keywords.End();
  Run(Prepare(problem));
}

void Statistics(nb::handle input, nb::handle weight, nb::handle target, const nb::kwargs& options) {
  Keywords keywords(options, "linear_cross_entropy_statistics");
  const In input_array(input, "input"), weight_array(weight, "linear_weight"), target_array(target, "target");
  LinearCrossEntropyStatistics problem{input_array, weight_array, target_array};
  problem.shard = Shard(keywords);
  problem.max = keywords.Out<"max">();
  problem.sum_exp = keywords.Out<"sum_exp">();
  problem.target_logit = keywords.Out<"target_logit">();
  problem.smoothing = keywords.Out<"smoothing">();
  problem.moment = keywords.Out<"moment">();
  problem.argmax = keywords.Out<"argmax">();
  problem.logits = keywords.Out<"logits">();
  problem.options = LinearOptions(keywords);
  keywords.End();
  Run(Prepare(problem));
}

void Loss(nb::handle max, nb::handle sum_exp, const nb::kwargs& options) {
  Keywords keywords(options, "linear_cross_entropy_loss");
  const In max_array(max, "max"), sum_exp_array(sum_exp, "sum_exp");
  LinearCrossEntropyLoss problem{max_array, sum_exp_array};
  problem.target_logit = keywords.In<"target_logit">();
  problem.smoothing = keywords.In<"smoothing">();
  problem.moment = keywords.In<"moment">();
  problem.target = keywords.In<"target">();
  problem.num_classes = keywords.Integer<"num_classes">(0);
  problem.logits = keywords.In<"logits">();
  problem.loss = keywords.Out<"loss">();
  problem.lse = keywords.Out<"lse">();
  problem.log_probability = keywords.Out<"log_probability">();
  problem.entropy = keywords.Out<"entropy">();
  problem.total_weight = keywords.Out<"total_weight">();
  problem.probability = keywords.Out<"probability">();
  problem.options = LossOptions(keywords);
  keywords.End();
  Run(Prepare(problem));
}

}  // namespace

void BindLinearCrossEntropy(nb::module_& module) {
  const nb::arg input("input"), weight("linear_weight"), target("target"), options("options");
  module.def("linear_cross_entropy", &Forward, input, weight, target, options);
  module.def("linear_cross_entropy_backward", &Backward, input, weight, target, options);
  module.def("linear_cross_entropy_statistics", &Statistics, input, weight, target, options);
  module.def("linear_cross_entropy_loss", &Loss, nb::arg("max"), nb::arg("sum_exp"), options);
}

}  // namespace onehot::python
