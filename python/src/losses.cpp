// NLL loss and cross entropy over logits that exist.
#include "losses.h"

#include "array.h"
#include "onehot/nll_loss.h"
#include "run.h"

namespace onehot::python {
namespace {

Reduction ReductionFrom(Keywords& keywords) {
  return ReductionOf(keywords.Word<"reduction">("mean"));
}

void ForwardNll(nb::handle input, nb::handle target, nb::handle loss, const nb::kwargs& options) {
  Keywords keywords(options, "nll_loss");
  const In input_array(input, "input"), target_array(target, "target");
  const Out loss_array(loss, "loss");
  NllLoss problem{input_array, target_array, loss_array};
  problem.total_weight = keywords.Out<"total_weight">();
  problem.weight = keywords.In<"weight">();
  problem.token_weight = keywords.In<"token_weight">();
  problem.denominator = keywords.In<"denominator">();
  problem.reduction = ReductionFrom(keywords);
  problem.ignore_index = keywords.Integer<"ignore_index">(kDefaultIgnoreIndex);
  problem.zero_if_empty = keywords.Flag<"zero_if_empty">(false);
  problem.class_axis = keywords.Axis<"class_axis">(1);
  keywords.End();
  Run(Prepare(problem));
}

void BackwardNll(nb::handle grad_output, nb::handle target, nb::handle out, const nb::kwargs& options) {
  Keywords keywords(options, "nll_loss_backward");
  const In grad_array(grad_output, "grad_output"), target_array(target, "target");
  const Out out_array(out, "out");
  NllLossBackward problem{grad_array, target_array, out_array};
  problem.total_weight = keywords.In<"total_weight">();
  problem.weight = keywords.In<"weight">();
  problem.token_weight = keywords.In<"token_weight">();
  problem.reduction = ReductionFrom(keywords);
  problem.ignore_index = keywords.Integer<"ignore_index">(kDefaultIgnoreIndex);
  problem.accumulate = keywords.Flag<"accumulate">(false);
  problem.compact = keywords.Flag<"compact">(false);
  problem.num_classes = keywords.Integer<"num_classes">(0);
  problem.class_axis = keywords.Axis<"class_axis">(1);
  keywords.End();
  Run(Prepare(problem));
}

void Forward(nb::handle input, nb::handle target, const nb::kwargs& options) {
  Keywords keywords(options, "cross_entropy");
  const In input_array(input, "input"), target_array(target, "target");
  CrossEntropy problem{input_array, target_array};
  problem.loss = keywords.Out<"loss">();
  problem.lse = keywords.Out<"lse">();
  problem.log_probability = keywords.Out<"log_probability">();
  problem.entropy = keywords.Out<"entropy">();
  problem.argmax = keywords.Out<"argmax">();
  problem.total_weight = keywords.Out<"total_weight">();
  problem.options = LossOptions(keywords);
  problem.options.class_axis = keywords.Axis<"class_axis">(1);
  keywords.End();
  Run(Prepare(problem));
}

void Backward(nb::handle input, nb::handle target, nb::handle out, const nb::kwargs& options) {
  Keywords keywords(options, "cross_entropy_backward");
  const In input_array(input, "input"), target_array(target, "target");
  const Out out_array(out, "out");
  CrossEntropyBackward problem{input_array, target_array, out_array};
  problem.lse = keywords.In<"lse">();
  problem.grad_loss = keywords.In<"grad_loss">();
  problem.grad_log_probability = keywords.In<"grad_log_probability">();
  problem.grad_entropy = keywords.In<"grad_entropy">();
  problem.options = LossOptions(keywords);
  problem.options.class_axis = keywords.Axis<"class_axis">(1);
  keywords.End();
  Run(Prepare(problem));
}

}  // namespace

CrossEntropyOptions LossOptions(Keywords& keywords) {
  CrossEntropyOptions options;
  options.weight = keywords.In<"weight">();
  options.token_weight = keywords.In<"token_weight">();
  options.denominator = keywords.In<"denominator">();
  options.reduction = ReductionFrom(keywords);
  options.ignore_index = keywords.Integer<"ignore_index">(kDefaultIgnoreIndex);
  options.label_smoothing = keywords.Number<"label_smoothing">(0);
  options.z_loss = keywords.Number<"z_loss">(0);
  options.softcap = keywords.Number<"softcap">(0);
  options.zero_if_empty = keywords.Flag<"zero_if_empty">(false);
  return options;
}

void BindLosses(nb::module_& module) {
  module.def("nll_loss", &ForwardNll, nb::arg("input"), nb::arg("target"), nb::arg("loss"), nb::arg("options"));
  module.def("nll_loss_backward", &BackwardNll, nb::arg("grad_output"), nb::arg("target"), nb::arg("out"),
             nb::arg("options"));
  module.def("cross_entropy", &Forward, nb::arg("input"), nb::arg("target"), nb::arg("options"));
  module.def("cross_entropy_backward", &Backward, nb::arg("input"), nb::arg("target"), nb::arg("out"),
             nb::arg("options"));
}

}  // namespace onehot::python
