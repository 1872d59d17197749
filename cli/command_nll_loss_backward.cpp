#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "cli/array.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/loss.h"
#include "onehot/nll_loss.h"

namespace onehot::cli {
namespace {

struct Options {
  std::string grad_output, like, total_weight, accumulate, out, out_dtype;
  std::optional<std::int64_t> num_classes;
  bool compact = false;
  LossOptions loss;
};

// The shape of target with the classes put in. An axis that is none is for Check to refuse.
std::vector<std::int64_t> ShapeWithClasses(const InputArray& target, std::int64_t num_classes, int class_axis) {
  std::vector<std::int64_t> shape = target.header().shape;
  const auto rank = static_cast<std::int64_t>(shape.size()) + 1;
  const std::int64_t axis = class_axis < 0 ? class_axis + rank : class_axis;
  shape.insert(shape.begin() + std::clamp<std::int64_t>(axis, 0, rank - 1), num_classes);
  return shape;
}

// Shape and order of the result; the dtype comes later.
TensorLayout OutLayout(const Options& options, const InputArray& target, const InputArray* like,
                       const InputArray* base) {
  if (base != nullptr && like != nullptr && !options.compact && base->header().shape != like->header().shape)
    throw Failure(Exit::kData, fmt::format("accumulate: shape must be that of like, {}, is {}",
                                           DescribeShape(like->header().shape), DescribeShape(base->header().shape)));
  if (base != nullptr) return base->view();
  if (options.compact) return PerPosition(DType::kF32, target.view());
  if (like != nullptr) return like->view();
  if (options.num_classes)
    return LayoutOf("out", DType::kF32, false, ShapeWithClasses(target, *options.num_classes, options.loss.class_axis));
  throw Failure(Exit::kUsage, "--like, --num-classes or --accumulate is required: classes cannot be counted otherwise");
}

// ONEHOT_FORCE names an implementation of the command's own operator: while this lives, others are not held to it.
class Unforced {
 public:
  Unforced() {
    if (const char* value = std::getenv(kVariable)) forced_ = value;
    ::unsetenv(kVariable);
  }
  Unforced(const Unforced&) = delete;
  Unforced& operator=(const Unforced&) = delete;
  ~Unforced() {
    if (forced_) ::setenv(kVariable, forced_->c_str(), 1);
  }

 private:
  static constexpr const char* kVariable = "ONEHOT_FORCE";
  std::optional<std::string> forced_;
};

// D as NllLoss defines it, from the targets alone: one zero stands for every log-probability.
double TotalWeight(const NllLossBackward& problem, const RunFlags& flags) {
  if (problem.target.rank == kMaxRank)
    throw Failure(Exit::kData, "target: rank must be at most 7 without --total-weight, is 8");
  const double zero = 0;  // of every dtype, then
  double loss = 0, total_weight = 0;
  NllLoss forward;
  TensorLayout classes = problem.target;
  classes.dtype = problem.out.dtype;
  classes.dims[static_cast<std::size_t>(classes.rank++)] = problem.C();
  classes.strides = {};
  forward.input = ConstTensorView(&zero, classes);
  forward.class_axis = -1;
  forward.target = problem.target;
  forward.weight = problem.weight;
  forward.token_weight = problem.token_weight;
  forward.ignore_index = problem.ignore_index;
  forward.loss = TensorView(&loss, DType::kF64, {});
  forward.total_weight = TensorView(&total_weight, DType::kF64, {});
  const Result<Plan> plan = [&forward] {
    const Unforced unforced;
    return Prepare(forward);
  }();
  ThrowIfBad(plan.status());
  RunPlan("total weight", *plan, flags);
  return total_weight;
}

void Run(const Options& options) {
  const Stopwatch total;
  InputArrays inputs(!options.loss.dtype.empty());
  const InputArray* grad_output = inputs.ReadIfGiven("grad_output", options.grad_output);
  const InputArray& target = inputs.Read("target", options.loss.target, Use::kIndices);
  const InputArray* like = inputs.ReadIfGiven("like", options.like, Use::kLayout);
  const InputArray* base = inputs.ReadIfGiven("accumulate", options.accumulate);
  NllLossBackward problem;
  SetLossFields(problem, options.loss, inputs);
  problem.total_weight = inputs.ViewIfGiven("total_weight", options.total_weight);
  inputs.ThrowIfNoneIsVoid();

  if (grad_output == nullptr && problem.reduction == Reduction::kNone)
    throw Failure(Exit::kUsage, "--grad-output is required with --reduction none");
  problem.grad_output = grad_output != nullptr ? grad_output->view() : One();
  problem.target = target.view();
  problem.accumulate = base != nullptr;

  if (base != nullptr) ThrowIfOutDTypeDiffers(options.out_dtype, *base);
  const DType dtype =
      base != nullptr
          ? base->view().dtype
          : OutDType(options.out_dtype).value_or(like != nullptr ? like->view().dtype : problem.grad_output.dtype);
  double D = options.loss.denominator.value_or(0);
  const bool mean = problem.reduction == Reduction::kMean;
  const bool total_weight_is_missing = mean && !problem.total_weight && !options.loss.denominator;
  if (mean && !problem.total_weight) problem.total_weight = ConstTensorView(&D, DType::kF64, {});

  if (options.compact) {
    if (like != nullptr) {
      // Holds like against target.
      problem.out = TensorView(nullptr, like->view());
      problem.out.dtype = dtype;
      ThrowIfBad(Check(problem));
      problem.num_classes = problem.C();
    } else if (options.num_classes) {
      problem.num_classes = *options.num_classes;
    } else {
      throw Failure(Exit::kUsage, "--like or --num-classes is required with --compact");
    }
    problem.compact = true;
  }
  problem.out = TensorView(nullptr, OutLayout(options, target, like, base));
  problem.out.dtype = dtype;
  ThrowIfBad(Check(problem));
  if (options.num_classes && *options.num_classes != problem.C())
    throw Failure(Exit::kUsage, fmt::format("--num-classes: must be that of {}, {}, is {}", options.accumulate,
                                            problem.C(), *options.num_classes));
  target.ThrowIfTooLarge(problem.C(), problem.ignore_index);

  target.ReadAhead();
  Lines computed;
  if (total_weight_is_missing) {
    D = TotalWeight(problem, options.loss.flags);
    computed.emplace_back("total_weight", fmt::format("{}, from target", D));
  }
  // What is added to, or looks like the result, lends it its order.
  const InputArray* model = base != nullptr ? base : options.compact ? nullptr : like;
  OutputArrays outputs;
  outputs.Create("out", options.out, problem.out, model != nullptr && model->header().fortran_order);
  const Result<Plan> plan = Prepare(problem);
  ThrowIfBad(plan.status());
  if (grad_output != nullptr) grad_output->ReadAhead();
  if (base != nullptr) CopyAccumulated(*base, problem.out);
  const double seconds = RunPlan("nll-loss-backward", *plan, options.loss.flags);
  outputs.Publish();
  if (options.loss.flags.explain)
    Explain("nll_loss_backward", *plan, options.loss.flags, seconds, total,
            {inputs.Describe(), computed, outputs.Describe()});
}

}  // namespace

Command AddNllLossBackward(CLI::App& onehot) {
  CLI::App* app = onehot.add_subcommand(
      "nll-loss-backward",
      "Gradient of nll-loss: dx[i, y] = -weight[y] grad_output / total_weight, y = target[i], else 0");
  const auto options = std::make_shared<Options>();
  AddFile(*app, "--grad-output", options->grad_output,
          "Gradient of the loss, dtype of the result or f32: shape of target for none, which requires it; else one "
          "element, 1 if not given");
  AddFile(*app, "--like", options->like,
          "Array with the shape, dtype and order that the result is to have, such as the input; its data are not read");
  CLI::Option* like = app->get_option("--like");
  app->add_option("--num-classes", options->num_classes, "Without such an array: C; the rest of the shape is target's")
      ->type_name("C")
      ->check(CheckCount)
      ->excludes(like);
  CLI::Option* denominator = AddLossOptions(*app, options->loss);
  AddFile(*app, "--total-weight", options->total_weight,
          "mean: what nll-loss wrote as --total-weight, f32, f64 or dtype of the result; computed from target and "
          "weights if not given")
      ->excludes(denominator);
  AddFile(*app, "--accumulate", options->accumulate,
          "Array to add the gradient to; the result has its shape, dtype and order");
  app->add_flag("--compact", options->compact,
                "Write one value for each position, shape of target: that of class target[i]; all others are 0");
  AddFile(*app, "--out", options->out, "The gradient of the log-probabilities")->required();
  AddOutDType(*app, options->out_dtype, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16},
              "Dtype of the result (default: that of --like, else that of --grad-output, else f32)");
  AddLossRunFlags(*app, options->loss);
  app->footer(
      "Examples:\n"
      "  onehot nll-loss-backward --target labels.npy --num-classes 1000 --out dx.npy\n"
      "  onehot nll-loss-backward --grad-output g.npy --target labels.npy --like logp.npy --reduction none \\\n"
      "      --ignore-index 255 --out dx.npy");
  return {app, [options] { Run(*options); }};
}

}  // namespace onehot::cli
