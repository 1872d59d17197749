#include <memory>

#include "cli/array.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/loss.h"
#include "onehot/nll_loss.h"

namespace onehot::cli {
namespace {

struct Options {
  std::string input, out, out_dtype, total_weight;
  LossOptions loss;
};

// One element of input is read for each position. Where that leaves pages out, faults serve it better than a pass over
// the whole file.
bool NeedsEveryPage(const NllLoss& problem) {
  constexpr std::int64_t kPage = 4096;
  return problem.N() >= problem.input.numel() * SizeOf(problem.input.dtype) / kPage;
}

void Run(const Options& options) {
  const Stopwatch total;
  ThrowIfSameFile({{"--out", options.out}, {"--total-weight", options.total_weight}});

  InputArrays inputs(!options.loss.dtype.empty());
  const InputArray& input = inputs.Read("input", options.input);
  const InputArray& target = inputs.Read("target", options.loss.target, Use::kIndices);
  NllLoss problem;
  problem.input = input.view();
  problem.target = target.view();
  SetLossFields(problem, options.loss, inputs);
  inputs.ThrowIfNoneIsVoid();
  problem.loss = Reduced(OutDType(options.out_dtype).value_or(problem.input.dtype), problem.reduction, problem.target);
  // f64, so that the weight of many positions fits it whatever the dtype of input.
  if (!options.total_weight.empty()) problem.total_weight = TensorView(nullptr, DType::kF64, {});
  ThrowIfBad(Check(problem));
  target.ThrowIfTooLarge(problem.C(), problem.ignore_index);

  OutputArrays outputs;
  outputs.Create("out", options.out, problem.loss);
  if (problem.total_weight) outputs.Create("total_weight", options.total_weight, *problem.total_weight);
  const Result<Plan> plan = Prepare(problem);
  ThrowIfBad(plan.status());
  target.ReadAhead();
  if (NeedsEveryPage(problem)) input.ReadAhead();
  const double seconds = RunPlan("nll-loss", *plan, options.loss.flags);
  outputs.Publish();
  if (options.loss.flags.explain)
    Explain("nll_loss", *plan, options.loss.flags, seconds, total, {inputs.Describe(), outputs.Describe()});
}

}  // namespace

Command AddNllLoss(CLI::App& onehot) {
  CLI::App* app = onehot.add_subcommand(
      "nll-loss", "Negative log likelihood of log-probabilities: loss[i] = -weight[y] input[i, y], y = target[i]");
  const auto options = std::make_shared<Options>();
  AddFile(*app, "--input", options->input, "Log-probabilities, [C], [N, C], [N, C, H, W] ...: f32, f64, f16 or bf16")
      ->required();
  AddLossOptions(*app, options->loss);
  AddFile(*app, "--out", options->out, "The loss, dtype of input: shape of target for none, else no axes")->required();
  AddFile(*app, "--total-weight", options->total_weight,
          "Also write the total weight, what mean divides by: f64, no axes; 0 for none");
  AddOutDType(*app, options->out_dtype, {DType::kF32, DType::kF64}, "A wider dtype for the loss than that of input");
  AddLossRunFlags(*app, options->loss);
  app->footer(
      "Examples:\n"
      "  onehot nll-loss --input logp.npy --target labels.npy --out loss.npy\n"
      "  onehot nll-loss --input logp.npy --target labels.npy --weight w.npy --ignore-index 255 \\\n"
      "      --out loss.npy --total-weight total.npy");
  return {app, [options] { Run(*options); }};
}

}  // namespace onehot::cli
