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
  std::string input, lse, out, out_dtype;
  LossOptions loss;
  LogitOptions logits;
  UpstreamOptions upstream;
};

void Run(const Options& options) {
  const Stopwatch total;
  InputArrays inputs(!options.loss.dtype.empty());
  const InputArray& input = inputs.Read("input", options.input);
  const InputArray& target = inputs.Read("target", options.loss.target, Use::kIndices);
  CrossEntropyBackward problem;
  problem.input = input.view();
  problem.target = target.view();
  problem.lse = inputs.ViewIfGiven("lse", options.lse);
  const LinearCrossEntropyUpstream upstream = ReadUpstream(options.upstream, options.loss.Reduced(), inputs);
  problem.grad_loss = upstream.loss;
  problem.grad_log_probability = upstream.log_probability;
  problem.grad_entropy = upstream.entropy;
  SetLossFields(problem.options, options.loss, inputs);
  SetLogitFields(problem.options, options.logits);
  inputs.ThrowIfNoneIsVoid();

  const bool fortran_order = input.header().fortran_order;
  problem.out = TensorView(nullptr, problem.input);
  problem.out.dtype = OutDType(options.out_dtype).value_or(problem.input.dtype);
  ThrowIfBad(Check(problem));
  target.ThrowIfTooLarge(problem.C(), problem.options.ignore_index);

  OutputArrays outputs;
  outputs.Create("out", options.out, problem.out, fortran_order);
  const Result<Plan> plan = Prepare(problem);
  ThrowIfBad(plan.status());
  target.ReadAhead();
  input.ReadAhead();
  const double seconds = RunPlan("cross-entropy-backward", *plan, options.loss.flags);
  outputs.Publish();
  if (options.loss.flags.explain)
    Explain("cross_entropy_backward", *plan, options.loss.flags, seconds, total,
            {inputs.Describe(), outputs.Describe()});
}

}  // namespace

Command AddCrossEntropyBackward(CLI::App& onehot) {
  CLI::App* app = onehot.add_subcommand(
      "cross-entropy-backward",
      "Gradient of cross-entropy: dz[i, v] = weight[y] (softmax(z[i])_v - [v == y]) grad_loss / total_weight");
  const auto options = std::make_shared<Options>();
  AddFile(*app, "--input", options->input, "Logits, as given to cross-entropy: f32, f64, f16 or bf16")->required();
  AddFile(*app, "--lse", options->lse,
          "What cross-entropy wrote as --lse for the same input and options; computed once more if not given");
  AddUpstreamOptions(*app, options->upstream);
  AddLossOptions(*app, options->loss);
  AddLogitOptions(*app, options->logits);
  AddFile(*app, "--out", options->out, "The gradient of the logits: shape, dtype and order of input; may be --input")
      ->required();
  AddOutDType(*app, options->out_dtype, {DType::kF32}, "f32: do not round the gradient of 16-bit logits to 16 bits");
  AddLossRunFlags(*app, options->loss);
  app->footer(
      "The options that cross-entropy has as well must be given the same values.\n"
      "\n"
      "Examples:\n"
      "  onehot cross-entropy-backward --input logits.npy --target labels.npy --lse lse.npy --out dz.npy\n"
      "  onehot cross-entropy-backward --input logits.npy --target labels.npy --grad-loss g.npy --reduction none \\\n"
      "      --label-smoothing 0.1 --out dz.npy");
  return {app, [options] { Run(*options); }};
}

}  // namespace onehot::cli
