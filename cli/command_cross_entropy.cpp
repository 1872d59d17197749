#include <memory>

#include "cli/array.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/loss.h"
#include "onehot/cross_entropy.h"

namespace onehot::cli {
namespace {

struct Options {
  std::string input, loss_out, loss_dtype, lse, log_probability, entropy, argmax, total_weight;
  LossOptions loss;
  LogitOptions logits;
};

void Run(const Options& options) {
  const Stopwatch total;
  ThrowIfSameFile({{"--loss", options.loss_out},
                   {"--lse", options.lse},
                   {"--log-probability", options.log_probability},
                   {"--entropy", options.entropy},
                   {"--argmax", options.argmax},
                   {"--total-weight", options.total_weight}});

  InputArrays inputs(!options.loss.dtype.empty());
  const InputArray& input = inputs.Read("input", options.input);
  const InputArray& target = inputs.Read("target", options.loss.target, Use::kIndices);
  CrossEntropy problem;
  problem.input = input.view();
  problem.target = target.view();
  SetLossFields(problem.options, options.loss, inputs);
  SetLogitFields(problem.options, options.logits);
  inputs.ThrowIfNoneIsVoid();

  const DType dtype = problem.input.dtype, accumulator = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  if (!options.loss_out.empty())
    problem.loss = Reduced(OutDType(options.loss_dtype).value_or(dtype), problem.options.reduction, problem.target);
  // f64, so that the weight of many positions fits it whatever the dtype of input.
  if (!options.total_weight.empty()) problem.total_weight = TensorView(nullptr, DType::kF64, {});
  const auto per_position = [&problem](const std::string& path, DType element, std::optional<TensorView>& view) {
    if (!path.empty()) view = PerPosition(element, problem.target);
  };
  per_position(options.lse, accumulator, problem.lse);
  per_position(options.log_probability, accumulator, problem.log_probability);
  per_position(options.entropy, accumulator, problem.entropy);
  per_position(options.argmax, DType::kI64, problem.argmax);
  if (!problem.loss && !problem.lse && !problem.log_probability && !problem.entropy && !problem.argmax &&
      !problem.total_weight)
    throw Failure(Exit::kUsage,
                  "an output is required: --loss, --lse, --log-probability, --entropy, --argmax or --total-weight");
  ThrowIfBad(Check(problem));
  target.ThrowIfTooLarge(problem.C(), problem.options.ignore_index);

  OutputArrays outputs;
  const auto create = [&outputs](std::string_view name, const std::string& path, std::optional<TensorView>& view) {
    if (view) outputs.Create(name, path, *view);
  };
  create("loss", options.loss_out, problem.loss);
  create("lse", options.lse, problem.lse);
  create("log_probability", options.log_probability, problem.log_probability);
  create("entropy", options.entropy, problem.entropy);
  create("argmax", options.argmax, problem.argmax);
  create("total_weight", options.total_weight, problem.total_weight);
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
  AddFile(*app, "--loss", options->loss_out,
          "Write the loss, dtype of input: shape of target for none, else no axes. At least one output is required");
  app->add_option("--loss-dtype", options->loss_dtype, "A wider dtype for the loss than that of input")
      ->type_name("f32|f64")
      ->check(OneOf({"f32", "f64"}));
  AddFile(*app, "--lse", options->lse,
          "Write log(sum of exp(z_v)) of each position, 0 where ignored: f32 (f64 for f64 input), shape of target");
  AddFile(*app, "--log-probability", options->log_probability,
          "Write the log-probability of the target, 0 where ignored: dtype and shape as --lse");
  AddFile(*app, "--entropy", options->entropy,
          "Write the entropy of the class probabilities, 0 where ignored: dtype and shape as --lse");
  AddFile(*app, "--argmax", options->argmax,
          "Write the class with the largest logit, the lowest of equals, -1 where ignored: i64, shape of target");
  AddFile(*app, "--total-weight", options->total_weight,
          "Write the total weight, what mean divides by: f64, no axes; 0 for none");
  AddLossRunFlags(*app, options->loss);
  app->footer(
      "Examples:\n"
      "  onehot cross-entropy --input logits.npy --target labels.npy --loss loss.npy --lse lse.npy\n"
      "  onehot cross-entropy --input logits.npy --target labels.npy --class-axis -1 --label-smoothing 0.1 \\\n"
      "      --z-loss 1e-4 --reduction sum --loss loss.npy --argmax predicted.npy");
  return {app, [options] { Run(*options); }};
}

}  // namespace onehot::cli
