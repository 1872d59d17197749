// What the commands of the losses over the logits of a linear layer have in common.
#ifndef ONEHOT_CLI_LINEAR_H_
#define ONEHOT_CLI_LINEAR_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/array.h"
#include "cli/command.h"
#include "cli/logits.h"
#include "cli/loss.h"
#include "onehot/linear_cross_entropy.h"

namespace onehot::cli {

struct LinearOptions {
  std::string input, weight, bias;
  std::string grad_input, grad_input_dtype, grad_weight, grad_weight_dtype, grad_bias, grad_bias_dtype;
  double logit_scale = 1;
  std::optional<std::int64_t> max_workspace;
  double skip_below = 0;
  bool reproducible = false;
  LossOptions loss;
  LogitOptions logits;
  UpstreamOptions upstream;
};
// The layer and the loss.
void AddLinearOptions(CLI::App& command, LinearOptions& options);
// Upstream gradients, and those that go on to input, weight and bias.
void AddGradientOptions(CLI::App& command, LinearOptions& options);

// The input files that are large, or may hold what is out of range.
struct LinearInputs {
  const InputArray& input;
  const InputArray& weight;
  const InputArray& target;

  void ReadAhead() const;
};

// What there is to read for gradients: nothing where none is wanted. Throws a Failure where upstream gradients are
// given for nothing.
LinearCrossEntropyUpstream ReadLinearUpstream(const LinearOptions& options, InputArrays& inputs);
// The gradients that were asked for, in `gradients` and in `outputs`, in the order of what they are gradients of.
void SetGradients(LinearCrossEntropyGradients& gradients, const LinearOptions& options, const LinearInputs& arrays,
                  OptionalOutputs& outputs);

// Sets the inputs that both operators have, which may point into `options`.
template <class Problem>
LinearInputs SetLinearFields(Problem& problem, const LinearOptions& options, InputArrays& inputs) {
  const InputArray& input = inputs.Read("input", options.input);
  const InputArray& weight = inputs.Read("weight", options.weight);
  const InputArray& target = inputs.Read("target", options.loss.target, Use::kIndices);
  problem.input = input.view();
  problem.weight = weight.view();
  problem.target = target.view();
  problem.options.bias = inputs.ViewIfGiven("bias", options.bias);
  problem.options.logit_scale = options.logit_scale;
  problem.options.max_workspace = options.max_workspace;
  problem.options.skip_below = options.skip_below;
  problem.options.reproducible = options.reproducible;
  problem.upstream = ReadLinearUpstream(options, inputs);
  SetLossFields(problem.options.loss, options.loss, inputs, "class weight");
  SetLogitFields(problem.options.loss, options.logits);
  return {input, weight, target};
}

}  // namespace onehot::cli

#endif  // ONEHOT_CLI_LINEAR_H_
