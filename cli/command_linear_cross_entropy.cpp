#include <memory>

#include "cli/array.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/linear.h"
#include "cli/logits.h"
#include "cli/loss.h"
#include "onehot/linear_cross_entropy.h"

namespace onehot::cli {
namespace {

struct Options {
  LinearOptions linear;
  LogitOutputs outputs;
};

void Run(const Options& options) {
  const Stopwatch total;
  const LossOptions& loss = options.linear.loss;
  InputArrays inputs(!loss.dtype.empty());
  LinearCrossEntropy problem;
  const LinearInputs arrays = SetLinearFields(problem, options.linear, inputs);
  inputs.ThrowIfNoneIsVoid();

  OptionalOutputs given;
  SetLogitOutputs(problem, loss.Reduced(), options.outputs, given);
  SetGradients(problem.grad, options.linear, arrays, given);
  given.ThrowIfNone();
  ThrowIfBad(Check(problem));
  arrays.target.ThrowIfTooLarge(problem.V(), loss.ignore_index);

  OutputArrays outputs;
  given.Create(outputs);
  const Result<Plan> plan = Prepare(problem);
  ThrowIfBad(plan.status());
  arrays.ReadAhead();
  const double seconds = RunPlan("linear-cross-entropy", *plan, loss.flags);
  outputs.Publish();
  if (loss.flags.explain)
    Explain("linear_cross_entropy", *plan, loss.flags, seconds, total, {inputs.Describe(), outputs.Describe()});
}

}  // namespace

Command AddLinearCrossEntropy(CLI::App& onehot) {
  CLI::App* app = onehot.add_subcommand(
      "linear-cross-entropy",
      "Cross entropy of the logits alpha (input weight^T + bias) of a linear layer, which are never stored, and its "
      "gradients");
  const auto options = std::make_shared<Options>();
  AddLinearOptions(*app, options->linear);
  AddLogitOutputs(*app, options->outputs);
  AddFile(*app, "--target-logit", options->outputs.target_logit,
          "Write the logit of the target, 0 where ignored: dtype and shape as --lse");
  AddGradientOptions(*app, options->linear);
  AddLossRunFlags(*app, options->linear.loss);
  app->footer(
      "Examples:\n"
      "  onehot linear-cross-entropy --input x.npy --weight W.npy --target labels.npy --loss loss.npy --lse lse.npy\n"
      "  onehot linear-cross-entropy --input x.npy --weight W.npy --bias b.npy --target labels.npy --loss loss.npy \\\n"
      "      --softcap 30 --z-loss 1e-4 --grad-input dx.npy --grad-weight dW.npy --grad-bias db.npy");
  return {app, [options] { Run(*options); }};
}

}  // namespace onehot::cli
