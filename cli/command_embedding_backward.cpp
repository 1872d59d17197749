#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/array.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "onehot/embedding.h"

namespace onehot::cli {
namespace {

struct Options {
  std::string grad, indices, out, accumulate, counts, dtype, out_dtype;
  std::int64_t num_weights = 0;
  std::optional<std::int64_t> padding_idx;
  bool scale_grad_by_freq = false;
  RunFlags flags;
};

// The table to add to: its shape has to be that of the result, and its dtype becomes that of the result.
void CheckBase(const InputArray& base, const Options& options, std::int64_t D) {
  const std::vector<std::int64_t> shape{options.num_weights, D};
  if (base.header().shape != shape)
    throw Failure(Exit::kData, fmt::format("accumulate: shape must be that of the result, {}, is {}",
                                           DescribeShape(shape), DescribeShape(base.header().shape)));
  ThrowIfOutDTypeDiffers(options.out_dtype, base);
}

void Run(const Options& options) {
  const Stopwatch total;
  ThrowIfSameFile({{"--counts", options.counts}, {"--out", options.out}});

  InputArrays inputs(!options.dtype.empty());
  const InputArray& grad = inputs.Read("grad", options.grad);
  const InputArray& indices = inputs.Read("indices", options.indices, Use::kIndices);
  const InputArray* base = inputs.ReadIfGiven("accumulate", options.accumulate);
  inputs.ThrowIfNoneIsVoid();

  EmbeddingBackward problem;
  problem.grad = grad.view();
  problem.indices = indices.view();
  problem.padding_idx = options.padding_idx;
  problem.scale_grad_by_freq = options.scale_grad_by_freq;
  problem.accumulate = base != nullptr;

  const std::int64_t V = options.num_weights, D = problem.grad.rank > 0 ? problem.grad.dim(-1) : 0;
  if (base) CheckBase(*base, options, D);
  const DType dtype = base ? base->view().dtype : OutDType(options.out_dtype).value_or(problem.grad.dtype);
  // A base in Fortran order is added to as it lies, and so the result is in that order as well.
  const bool fortran_order = base && base->header().fortran_order;
  problem.out = TensorView(nullptr, LayoutOf("out", dtype, fortran_order, {V, D}));
  if (!options.counts.empty()) problem.counts = TensorView(nullptr, DType::kI64, {V});
  // Before the files are made: they may be large.
  ThrowIfBad(Check(problem));
  indices.ThrowIfTooLarge(V);

  OutputArrays outputs;
  outputs.Create("out", options.out, problem.out, fortran_order);
  if (problem.counts) outputs.Create("counts", options.counts, *problem.counts);
  const Result<Plan> plan = Prepare(problem);
  ThrowIfBad(plan.status());
  indices.ReadAhead();
  grad.ReadAhead();
  if (base) CopyAccumulated(*base, problem.out);
  const double seconds = RunPlan("embedding-backward", *plan, options.flags);
  outputs.Publish();
  if (options.flags.explain)
    Explain("embedding_backward", *plan, options.flags, seconds, total, {inputs.Describe(), outputs.Describe()});
}

}  // namespace

Command AddEmbeddingBackward(CLI::App& onehot) {
  CLI::App* app = onehot.add_subcommand(
      "embedding-backward", "Add gradients up by row: dW[v, :] = sum of grad[i, :] over the i with indices[i] == v");
  const auto options = std::make_shared<Options>();
  app->add_option("--grad", options->grad, "Gradient of the looked-up rows, [..., D], f32, f64, f16 or bf16")
      ->required()
      ->type_name("FILE");
  app->add_option("--indices", options->indices, "Row of each, integers (or bool, or floats truncated) in [0, V)")
      ->required()
      ->type_name("FILE");
  app->add_option("--num-weights", options->num_weights, "Rows of the table")
      ->required()
      ->type_name("V")
      ->check(CheckCount);
  app->add_option("--padding-idx", options->padding_idx, "Row whose gradient is zero; from the end if negative")
      ->type_name("K");
  app->add_flag("--scale-grad-by-freq", options->scale_grad_by_freq, "Divide each row by how often it is named");
  app->add_option("--accumulate", options->accumulate,
                  "Table [V, D] to add the gradient to; the result has its dtype and order")
      ->type_name("FILE");
  app->add_option("--counts", options->counts, "Also write how often each row is named, i64 [V]")->type_name("FILE");
  app->add_option("--out", options->out, "The result, [V, D], dtype of grad")->required()->type_name("FILE");
  AddOutDType(*app, options->out_dtype, {DType::kF32}, "f32: do not round the sums of a 16-bit gradient to 16 bits");
  AddVoidDType(*app, options->dtype);
  AddRunFlags(*app, options->flags);
  app->footer(
      "Examples:\n"
      "  onehot embedding-backward --grad g.npy --indices i.npy --num-weights 50257 --out dW.npy\n"
      "  onehot embedding-backward --grad g.npy --indices i.npy --num-weights 50257 --padding-idx 0 \\\n"
      "      --accumulate dW.npy --out dW.npy --explain");
  return {app, [options] { Run(*options); }};
}

}  // namespace onehot::cli
