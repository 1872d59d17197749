#include <memory>

#include "cli/array.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "onehot/embedding.h"

namespace onehot::cli {
namespace {

struct Options {
  std::string weight, indices, out, dtype;
  RunFlags flags;
};

void Run(const Options& options) {
  const Stopwatch total;
  const bool bf16 = !options.dtype.empty();
  const InputArray weight("weight", options.weight, {Use::kBits, bf16});
  const InputArray indices("indices", options.indices, {Use::kIndices, bf16});
  if (bf16 && !weight.is_void())
    throw Failure(Exit::kUsage, "--dtype: " + options.weight + " has no two-byte void elements");

  Embedding problem;
  problem.weight = weight.view();
  problem.indices = indices.view();
  // Positions by width, whatever the shape of indices: that with one axis more may be beyond the library's ranks.
  const std::int64_t D = problem.weight.rank == 2 ? problem.D() : 0;
  problem.out = TensorView(nullptr, weight.view().dtype, {problem.N(), D});
  ThrowIfBad(Check(problem));
  indices.ThrowIfTooLarge(problem.V());

  std::vector<std::int64_t> shape = indices.header().shape;
  shape.push_back(D);
  NpyElement element = weight.header().element;
  element.swapped = false;
  OutputArray out(options.out, element, false, shape);
  problem.out.data = out.data();
  const Result<Plan> plan = Prepare(problem);
  ThrowIfBad(plan.status());
  indices.ReadAhead();
  // Fewer positions than rows need only a part of the table.
  if (problem.N() >= problem.V()) weight.ReadAhead();
  const double seconds = RunPlan("embedding", *plan, options.flags);
  out.file().Sync();
  out.file().Publish();
  if (options.flags.explain)
    Explain("embedding", *plan, options.flags, seconds, total,
            {{{"weight", weight.Describe()}, {"indices", indices.Describe()}}});
}

}  // namespace

Command AddEmbedding(CLI::App& onehot) {
  CLI::App* app = onehot.add_subcommand("embedding", "Look rows up: out[i, :] = weight[indices[i], :]");
  const auto options = std::make_shared<Options>();
  app->add_option("--weight", options->weight, "The table, [V, D], any dtype")->required()->type_name("FILE");
  app->add_option("--indices", options->indices, "Rows to take, any shape, integers (or bool, or floats truncated)")
      ->required()
      ->type_name("FILE");
  app->add_option("--out", options->out, "The result: shape of indices with D appended, dtype of weight")
      ->required()
      ->type_name("FILE");
  AddVoidDType(*app, options->dtype);
  AddRunFlags(*app, options->flags);
  app->footer(
      "Example:\n"
      "  onehot embedding --weight W.npy --indices tokens.npy --out X.npy");
  return {app, [options] { Run(*options); }};
}

}  // namespace onehot::cli
