#include <memory>

#include "cli/array.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/logits.h"
#include "cli/loss.h"
#include "onehot/cross_entropy.h"

namespace onehot::cli {
namespace {

struct Options {
  std::string input;
  LossOptions loss;
  LogitOptions logits;
  LogitOutputs outputs;
};

void Run(const Options& options) {
  const Stopwatch total;
  InputArrays inputs(!options.loss.dtype.empty());
  const InputArray& input = inputs.Read("input", options.input);
  const InputArray& target = inputs.Read("target", options.loss.target, Use::kIndices);
  CrossEntropy problem;
  problem.input = input.view();
  problem.target = target.view();
  SetLossFields(problem.options, options.loss, inputs);
  SetLogitFields(problem.options, options.logits);
  inputs.ThrowIfNoneIsVoid();

  OptionalOutputs given;
  SetLogitOutputs(problem, problem.options.reduction, options.outputs, given);
  given.ThrowIfNone();
  ThrowIfBad(Check(problem));
  target.ThrowIfTooLarge(problem.C(), problem.options.ignore_index);

  OutputArrays outputs;
  given.Create(outputs);
  const Result<Plan> plan = Prepare(problem);
  ThrowIfBad(plan.status());
  target.ReadAhead();
  input.ReadAhead();
  const double seconds = RunPlan("cross-entropy", *plan, options.loss.flags);
  outputs.Publish();
  if (options.loss.flags.explain)
    Explain("cross_entropy", *plan, options.loss.flags, seconds, total, {inputs.Describe(), outputs.Describe()});
}

}  // namespace

Command AddCrossEntropy(CLI::App& onehot) {
  CLI::App* app = onehot.add_subcommand(
      "cross-entropy", "Cross entropy of logits: loss[i] = weight[y] (log(sum of exp(z_v)) - z_y), y = target[i]");
  const auto options = std::make_shared<Options>();
  AddFile(*app, "--input", options->input, "Logits, [C], [N, C], [N, C, H, W] ...: f32, f64, f16 or bf16")->required();
  AddLossOptions(*app, options->loss);
  AddLogitOptions(*app, options->logits);
  AddLogitOutputs(*app, options->outputs);
  AddLossRunFlags(*app, options->loss);
  app->footer(
      "Examples:\n"
      "  onehot cross-entropy --input logits.npy --target labels.npy --loss loss.npy --lse lse.npy\n"
      "  onehot cross-entropy --input logits.npy --target labels.npy --class-axis -1 --label-smoothing 0.1 \\\n"
      "      --z-loss 1e-4 --reduction sum --loss loss.npy --argmax predicted.npy");
  return {app, [options] { Run(*options); }};
}

}  // namespace onehot::cli
