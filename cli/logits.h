// What the commands of the losses over logits have in common.
#ifndef ONEHOT_CLI_LOGITS_H_
#define ONEHOT_CLI_LOGITS_H_

#include <CLI/CLI.hpp>
#include <string>

#include "cli/array.h"
#include "cli/command.h"
#include "cli/loss.h"
#include "onehot/cross_entropy.h"
#include "onehot/linear_cross_entropy.h"
#include "onehot/reduction.h"
#include "onehot/tensor.h"

namespace onehot::cli {

struct LogitOptions {
  double label_smoothing = 0, z_loss = 0, softcap = 0;
};
void AddLogitOptions(CLI::App& command, LogitOptions& options);
void SetLogitFields(CrossEntropyOptions& fields, const LogitOptions& options);

// Files of what the forward operators give.
struct LogitOutputs {
  std::string loss, loss_dtype, lse, target_logit, log_probability, entropy, argmax, total_weight;
};
// All but --target-logit, which one operator gives.
void AddLogitOutputs(CLI::App& command, LogitOutputs& outputs);

// The outputs that were asked for, in the problem and in `outputs`. Problem is a forward operator, with its input and
// target, and `reduction` how its loss is reduced.
template <class Problem>
void SetLogitOutputs(Problem& problem, Reduction reduction, const LogitOutputs& files, OptionalOutputs& outputs) {
  const DType dtype = problem.input.dtype;
  const TensorView per_position = PerPosition(dtype == DType::kF64 ? DType::kF64 : DType::kF32, problem.target);
  outputs.Add("--loss", files.loss, problem.loss,
              Reduced(OutDType(files.loss_dtype).value_or(dtype), reduction, problem.target));
  outputs.Add("--lse", files.lse, problem.lse, per_position);
  if constexpr (requires { problem.target_logit; })
    outputs.Add("--target-logit", files.target_logit, problem.target_logit, per_position);
  outputs.Add("--log-probability", files.log_probability, problem.log_probability, per_position);
  outputs.Add("--entropy", files.entropy, problem.entropy, per_position);
  outputs.Add("--argmax", files.argmax, problem.argmax, PerPosition(DType::kI64, problem.target));
  // f64, so that the weight of many positions fits it whatever the dtype of input.
  outputs.Add("--total-weight", files.total_weight, problem.total_weight, TensorView(nullptr, DType::kF64, {}));
}

// Files of upstream gradients.
struct UpstreamOptions {
  std::string loss, log_probability, entropy;

  bool none() const { return loss.empty() && log_probability.empty() && entropy.empty(); }
};
void AddUpstreamOptions(CLI::App& command, UpstreamOptions& options);
// Without a file, that of the loss is 1. Throws a Failure where there is more than one loss.
LinearCrossEntropyUpstream ReadUpstream(const UpstreamOptions& options, Reduction reduction, InputArrays& inputs);

}  // namespace onehot::cli

#endif  // ONEHOT_CLI_LOGITS_H_
