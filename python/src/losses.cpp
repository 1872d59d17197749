// NLL loss and cross entropy over logits that exist.
#include "losses.h"

#include <fmt/format.h>

#include "arguments.h"
#include "onehot/nll_loss.h"
#include "run.h"

namespace onehot::python {
namespace {

Reduction ReductionFrom(Arguments& arguments) {
  return ReductionOf(arguments.Word<"reduction">("mean"));
}

void ForwardNll(Arguments& arguments) {
  NllLoss problem;
  problem.input = arguments.In<"input">();
  problem.target = arguments.In<"target">();
  problem.loss = arguments.Out<"loss">();
  problem.total_weight = arguments.MaybeOut<"total_weight">();
  problem.weight = arguments.MaybeIn<"weight">();
  problem.token_weight = arguments.MaybeIn<"token_weight">();
  problem.denominator = arguments.MaybeNumberIn<"denominator">();
  problem.reduction = ReductionFrom(arguments);
  problem.ignore_index = arguments.Integer<"ignore_index">(kDefaultIgnoreIndex);
  problem.zero_if_empty = arguments.Flag<"zero_if_empty">(false);
  problem.class_axis = arguments.Axis<"class_axis">(1);
  Run(arguments.PlanFor(problem));
}

// D, which mean divides by, from the targets alone: the loss of an input that is 0 everywhere has it too.
double TotalWeight(const NllLossBackward& problem) {
  if (problem.target.rank == kMaxRank)
    Refuse(PyExc_ValueError,
           fmt::format("target: must have at most {} axes without total_weight, has {}", kMaxRank - 1, kMaxRank));
  const double zero = 0;  // in every dtype
  double loss = 0, total_weight = 0;
  TensorLayout input = problem.target;
  input.dtype = problem.out.dtype;
  input.strides = {};
  input.dims[static_cast<std::size_t>(input.rank++)] = problem.C();

  NllLoss forward;
  forward.input = {&zero, input};
  forward.target = problem.target;
  forward.loss = {&loss, DType::kF64, {}};
  forward.total_weight = TensorView(&total_weight, DType::kF64, {});
  forward.weight = problem.weight;
  forward.token_weight = problem.token_weight;
  forward.ignore_index = problem.ignore_index;
  forward.class_axis = -1;
  const Result<Plan> plan = onehot::Prepare(forward);
  if (!plan.ok()) Raise(plan.status());
  Run(plan.value());
  return total_weight;
}

void BackwardNll(Arguments& arguments) {
  NllLossBackward problem;
  problem.grad_output = arguments.NumberIn<"grad_output">();
  problem.target = arguments.In<"target">();
  problem.out = arguments.Out<"out">();
  problem.total_weight = arguments.MaybeNumberIn<"total_weight">();
  problem.weight = arguments.MaybeIn<"weight">();
  problem.token_weight = arguments.MaybeIn<"token_weight">();
  problem.reduction = ReductionFrom(arguments);
  problem.ignore_index = arguments.Integer<"ignore_index">(kDefaultIgnoreIndex);
  problem.accumulate = arguments.Flag<"accumulate">(false);
  problem.compact = arguments.Flag<"compact">(false);
  problem.num_classes = arguments.Integer<"num_classes">(0);
  problem.class_axis = arguments.Axis<"class_axis">(1);

  // The operator has no f64 beside other dtypes; a number of Python is nothing else.
  float narrow = 0;
  const ConstTensorView& grad = problem.grad_output;
  if (grad.dtype == DType::kF64 && grad.rank == 0 && problem.out.dtype != DType::kF64) {
    narrow = static_cast<float>(*static_cast<const double*>(grad.data));
    problem.grad_output = {&narrow, DType::kF32, {}};
  }

  const bool computed = problem.reduction == Reduction::kMean && !problem.total_weight;
  double total_weight = 0;
  if (computed) problem.total_weight = ConstTensorView(&total_weight, DType::kF64, {});
  const Plan plan = arguments.PlanFor(problem);
  if (computed) total_weight = TotalWeight(problem);
  Run(plan);
}

void Forward(Arguments& arguments) {
  CrossEntropy problem;
  problem.input = arguments.In<"input">();
  problem.target = arguments.In<"target">();
  problem.loss = arguments.MaybeOut<"loss">();
  problem.lse = arguments.MaybeOut<"lse">();
  problem.log_probability = arguments.MaybeOut<"log_probability">();
  problem.entropy = arguments.MaybeOut<"entropy">();
  problem.argmax = arguments.MaybeOut<"argmax">();
  problem.total_weight = arguments.MaybeOut<"total_weight">();
  problem.options = LossOptions(arguments);
  problem.options.class_axis = arguments.Axis<"class_axis">(1);
  Run(arguments.PlanFor(problem));
}

void Backward(Arguments& arguments) {
  arguments.AllowInPlace("out", "input");
  CrossEntropyBackward problem;
  problem.input = arguments.In<"input">();
  problem.target = arguments.In<"target">();
  problem.out = arguments.Out<"out">();
  problem.lse = arguments.MaybeIn<"lse">();
  problem.grad_loss = arguments.MaybeNumberIn<"grad_loss">();
  problem.grad_log_probability = arguments.MaybeIn<"grad_log_probability">();
  problem.grad_entropy = arguments.MaybeIn<"grad_entropy">();
  problem.options = LossOptions(arguments);
  problem.options.class_axis = arguments.Axis<"class_axis">(1);
  Run(arguments.PlanFor(problem));
}

}  // namespace

CrossEntropyOptions LossOptions(Arguments& arguments) {
  CrossEntropyOptions options;
  options.weight = arguments.MaybeIn<"weight">();
  options.token_weight = arguments.MaybeIn<"token_weight">();
  options.denominator = arguments.MaybeNumberIn<"denominator">();
  options.reduction = ReductionFrom(arguments);
  options.ignore_index = arguments.Integer<"ignore_index">(kDefaultIgnoreIndex);
  options.label_smoothing = arguments.Number<"label_smoothing">(0);
  options.z_loss = arguments.Number<"z_loss">(0);
  options.softcap = arguments.Number<"softcap">(0);
  options.zero_if_empty = arguments.Flag<"zero_if_empty">(false);
  return options;
}

void BindLosses(nb::module_& module) {
  static PyMethodDef methods[] = {
      Method<"nll_loss", &ForwardNll>("nll_loss($module, input, target, loss=None, **options)\n--\n\n"),
      Method<"nll_loss_backward", &BackwardNll>(
          "nll_loss_backward($module, grad_output, target, out, **options)\n--\n\n"),
      Method<"cross_entropy", &Forward>("cross_entropy($module, input, target, **options)\n--\n\n"),
      Method<"cross_entropy_backward", &Backward>(
          "cross_entropy_backward($module, input, target, out, **options)\n--\n\n"),
      {}};
  Add(module, methods);
}

}  // namespace onehot::python
