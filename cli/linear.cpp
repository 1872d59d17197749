#include "cli/linear.h"

#include "cli/failure.h"

namespace onehot::cli {

void AddLinearOptions(CLI::App& command, LinearOptions& options) {
  AddFile(command, "--input", options.input, "What goes into the layer, [H], [N, H] ...: f32, f64, f16 or bf16")
      ->required();
  AddFile(command, "--weight", options.weight, "Weight of the layer, [V, H]: dtype of input")->required();
  AddFile(command, "--bias", options.bias,
          "Bias of the layer, [V]: dtype of input, or f32. -infinity takes a class out");
  command.add_option("--logit-scale", options.logit_scale, "Multiply logits and bias by this (default: 1)")
      ->type_name("ALPHA");
  AddLossOptions(command, options.loss, ClassesIn::kLayer);
  AddLogitOptions(command, options.logits);
}

void AddGradientOptions(CLI::App& command, LinearOptions& options) {
  const auto add = [&command](const std::string& name, std::string& path, std::string& dtype, const char* what) {
    AddFile(command, name, path, what);
    command.add_option(name + "-dtype", dtype, "f32: do not round it to 16 bits, where input has 16")
        ->type_name("f32")
        ->check(OneOf({"f32"}));
  };
  AddUpstreamOptions(command, options.upstream);
  command
      .add_option("--max-workspace", options.max_workspace,
                  "Working memory not to exceed if possible: more of it saves products")
      ->type_name("BYTES")
      ->transform(CLI::AsSizeValue(false));
  command
      .add_option("--skip-below", options.skip_below,
                  "Leave out products of tiles of logits whose gradient is smaller than this (default: 0)")
      ->type_name("BOUND");
  command.add_flag("--reproducible", options.reproducible,
                   "The same bits on every CPU: no products of bf16, which some CPUs have");
  add("--grad-input", options.grad_input, options.grad_input_dtype,
      "Write the gradient of input: its shape, dtype and order; may be --input");
  add("--grad-weight", options.grad_weight, options.grad_weight_dtype,
      "Write the gradient of the layer's weight: its shape, dtype and order; may be --weight");
  add("--grad-bias", options.grad_bias, options.grad_bias_dtype,
      "Write the gradient of a bias, with --bias or without: [V], dtype of input; may be --bias");
}

void LinearInputs::ReadAhead() const {
  target.ReadAhead();
  input.ReadAhead();
  weight.ReadAhead();
}

LinearCrossEntropyUpstream ReadLinearUpstream(const LinearOptions& options, InputArrays& inputs) {
  if (!options.grad_input.empty() || !options.grad_weight.empty() || !options.grad_bias.empty())
    return ReadUpstream(options.upstream, options.loss.Reduced(), inputs);
  if (!options.upstream.none())
    throw Failure(Exit::kUsage,
                  "upstream gradients are given, and none of --grad-input, --grad-weight and --grad-bias");
  return {};
}

void SetGradients(LinearCrossEntropyGradients& gradients, const LinearOptions& options, const LinearInputs& arrays,
                  OptionalOutputs& outputs) {
  const ConstTensorView input = arrays.input.view(), weight = arrays.weight.view();
  const auto add = [&outputs, &input](std::string_view option, const std::string& path, const std::string& dtype,
                                      std::optional<TensorView>& gradient, TensorLayout layout, bool fortran_order) {
    layout.dtype = OutDType(dtype).value_or(input.dtype);
    outputs.Add(option, path, gradient, TensorView(nullptr, layout), fortran_order);
  };
  add("--grad-input", options.grad_input, options.grad_input_dtype, gradients.input, input,
      arrays.input.header().fortran_order);
  add("--grad-weight", options.grad_weight, options.grad_weight_dtype, gradients.weight, weight,
      arrays.weight.header().fortran_order);
  // A weight without axes is for Check to refuse.
  add("--grad-bias", options.grad_bias, options.grad_bias_dtype, gradients.bias,
      TensorView(nullptr, input.dtype, {weight.rank > 0 ? weight.dim(0) : 0}), false);
}

}  // namespace onehot::cli
