#include "cli/logits.h"

#include "cli/failure.h"

namespace onehot::cli {

void AddLogitOptions(CLI::App& command, LogitOptions& options) {
  command
      .add_option("--label-smoothing", options.label_smoothing,
                  "Share of the target that is spread over all classes, in [0, 1] (default: 0)")
      ->type_name("EPS");
  command.add_option("--z-loss", options.z_loss, "Add this times the square of log(sum of exp(z_v)) (default: 0)")
      ->type_name("ZETA");
  command.add_option("--softcap", options.softcap, "Use c tanh(u / c) instead of each logit u (default: 0, none)")
      ->type_name("C");
}

void SetLogitFields(CrossEntropyOptions& fields, const LogitOptions& options) {
  fields.label_smoothing = options.label_smoothing;
  fields.z_loss = options.z_loss;
  fields.softcap = options.softcap;
}

void AddLogitOutputs(CLI::App& command, LogitOutputs& outputs) {
  AddFile(command, "--loss", outputs.loss,
          "Write the loss, dtype of input: shape of target for none, else no axes. At least one output is required");
  command.add_option("--loss-dtype", outputs.loss_dtype, "A wider dtype for the loss than that of input")
      ->type_name("f32|f64")
      ->check(OneOf({"f32", "f64"}));
  AddFile(command, "--lse", outputs.lse,
          "Write log(sum of exp(z_v)) of each position, 0 where ignored: f32 (f64 for f64 input), shape of target");
  AddFile(command, "--log-probability", outputs.log_probability,
          "Write the log-probability of the target, 0 where ignored: dtype and shape as --lse");
  AddFile(command, "--entropy", outputs.entropy,
          "Write the entropy of the class probabilities, 0 where ignored: dtype and shape as --lse");
  AddFile(command, "--argmax", outputs.argmax,
          "Write the class with the largest logit, the lowest of equals, -1 where ignored: i64, shape of target");
  AddFile(command, "--total-weight", outputs.total_weight,
          "Write the total weight, what mean divides by: f64, no axes; 0 for none");
}

void AddUpstreamOptions(CLI::App& command, UpstreamOptions& options) {
  AddFile(command, "--grad-loss", options.loss,
          "Upstream gradient of the loss, dtype of input, f32 or f64: shape of target for none, else one element. "
          "Without any of the three upstream gradients it is 1 for mean and sum; else what is not given is 0");
  AddFile(command, "--grad-log-probability", options.log_probability,
          "Upstream gradient of --log-probability: f32 (f64 for f64 input), shape of target");
  AddFile(command, "--grad-entropy", options.entropy,
          "Upstream gradient of --entropy: f32 (f64 for f64 input), shape of target");
}

LinearCrossEntropyUpstream ReadUpstream(const UpstreamOptions& options, Reduction reduction, InputArrays& inputs) {
  if (!options.none())
    return {.loss = inputs.ViewIfGiven("grad_loss", options.loss),
            .log_probability = inputs.ViewIfGiven("grad_log_probability", options.log_probability),
            .entropy = inputs.ViewIfGiven("grad_entropy", options.entropy)};
  if (reduction == Reduction::kNone)
    throw Failure(Exit::kUsage,
                  "--grad-loss, --grad-log-probability or --grad-entropy is required with --reduction none");
  return {.loss = One()};
}

}  // namespace onehot::cli
