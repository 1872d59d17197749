#include "cli/loss.h"

namespace onehot::cli {

Reduction LossOptions::Reduced() const {
  return reduction == "none" ? Reduction::kNone : reduction == "sum" ? Reduction::kSum : Reduction::kMean;
}

CLI::Option* AddFile(CLI::App& command, const std::string& name, std::string& path, const std::string& description) {
  return command.add_option(name, path, description)->type_name("FILE");
}

CLI::Option* AddLossOptions(CLI::App& command, LossOptions& options, ClassesIn classes) {
  const bool layer = classes == ClassesIn::kLayer;
  AddFile(command, "--target", options.target,
          layer ? "Class of each position, integers in [0, V) or the ignored one: shape of input without its last axis"
                : "Class of each position, integers in [0, C) or the ignored one; the other axes of the classes, in "
                  "their order")
      ->required();
  AddFile(command, layer ? "--class-weight" : "--weight", options.weight,
          layer ? "Class weights, [V]: dtype of input, or f32" : "Class weights, [C]: dtype of the classes, or f32");
  AddFile(command, "--token-weight", options.token_weight,
          layer ? "A weight for each position besides, shape of target: dtype of input, or f32"
                : "A weight for each position besides, shape of target: dtype of the classes, or f32");
  command.add_option("--reduction", options.reduction, "none, mean or sum over positions (default: mean)")
      ->type_name("none|mean|sum")
      ->check(OneOf({"none", "mean", "sum"}));
  command
      .add_option("--ignore-index", options.ignore_index,
                  "Target that counts for nothing, any 64-bit integer (default: -100)")
      ->type_name("K");
  if (!layer)
    command
        .add_option("--class-axis", options.class_axis,
                    "Axis that has the classes, from the end if negative (default: 1; with one axis, that one)")
        ->type_name("A");
  command.add_flag("--zero-if-empty", options.zero_if_empty,
                   "mean: a loss of 0 instead of NaN where no position counts (gradients are 0 either way)");
  return command
      .add_option("--denominator", options.denominator,
                  "mean: divide by this number instead of the total weight, for sums that go on elsewhere")
      ->type_name("X");
}

void AddLossRunFlags(CLI::App& command, LossOptions& options) {
  AddVoidDType(command, options.dtype);
  AddRunFlags(command, options.flags);
}

TensorView PerPosition(DType dtype, const TensorLayout& target) {
  return {nullptr, TensorLayout::Contiguous(dtype, {target.dims.data(), static_cast<std::size_t>(target.rank)})};
}

TensorView Reduced(DType dtype, Reduction reduction, const TensorLayout& target) {
  return reduction == Reduction::kNone ? PerPosition(dtype, target) : TensorView(nullptr, dtype, {});
}

ConstTensorView One() {
  static constexpr float kOne = 1;
  return {&kOne, DType::kF32, {}};
}

}  // namespace onehot::cli
