#include <memory>

#include "cli/array.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/linear.h"
#include "cli/loss.h"
#include "onehot/linear_cross_entropy.h"

namespace onehot::cli {
namespace {

struct Options {
  LinearOptions linear;
  std::string lse;
};

void Run(const Options& options) {
  const Stopwatch total;
  const LossOptions& loss = options.linear.loss;
  InputArrays inputs(!loss.dtype.empty());
  LinearCrossEntropyBackward problem;
  const LinearInputs arrays = SetLinearFields(problem, options.linear, inputs);
  problem.lse = inputs.ViewIfGiven("lse", options.lse);
  inputs.ThrowIfNoneIsVoid();

  OptionalOutputs given;
  SetGradients(problem.grad, options.linear, arrays, given);
  given.ThrowIfNone();
  ThrowIfBad(Check(problem));
  arrays.target.ThrowIfTooLarge(problem.V(), loss.ignore_index);

  OutputArrays outputs;
  given.Create(outputs);
  const Result<Plan> plan = Prepare(problem);
  ThrowIfBad(plan.status());
  arrays.ReadAhead();
  const double seconds = RunPlan("linear-cross-entropy-backward", *plan, loss.flags);
  outputs.Publish();
  if (loss.flags.explain)
    Explain("linear_cross_entropy_backward", *plan, loss.flags, seconds, total,
            {inputs.Describe(), outputs.Describe()});
}

}  // namespace

Command AddLinearCrossEntropyBackward(CLI::App& onehot) {
  CLI::App* app =
      onehot.add_subcommand("linear-cross-entropy-backward",
                            "Gradients of linear-cross-entropy: of input, of the layer's weight and of its bias");
  const auto options = std::make_shared<Options>();
  AddLinearOptions(*app, options->linear);
  AddFile(*app, "--lse", options->lse,
          "What linear-cross-entropy wrote as --lse for the same files and options; computed once more if not given");
  AddGradientOptions(*app, options->linear);
  AddLossRunFlags(*app, options->linear.loss);
  app->footer(
      "The files and options that linear-cross-entropy has as well must be given the same values. At least one of\n"
      "--grad-input, --grad-weight and --grad-bias is required.\n"
      "\n"
      "Examples:\n"
      "  onehot linear-cross-entropy-backward --input x.npy --weight W.npy --target labels.npy --lse lse.npy \\\n"
      "      --grad-input dx.npy --grad-weight dW.npy\n"
      "  onehot linear-cross-entropy-backward --input x.npy --weight W.npy --target labels.npy --reduction none \\\n"
      "      --grad-loss g.npy --grad-weight dW.npy --grad-weight-dtype f32");
  return {app, [options] { Run(*options); }};
}

}  // namespace onehot::cli
