// What the commands of the losses have in common.
#ifndef ONEHOT_CLI_LOSS_H_
#define ONEHOT_CLI_LOSS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cli/array.h"
#include "cli/command.h"
#include "onehot/reduction.h"
#include "onehot/tensor.h"

namespace onehot::cli {

struct LossOptions {
  std::string target, weight, token_weight, reduction = "mean", dtype;
  std::optional<double> denominator;
  std::int64_t ignore_index = kDefaultIgnoreIndex;
  int class_axis = 1;
  bool zero_if_empty = false;
  RunFlags flags;

  Reduction Reduced() const;
};

// Where a loss has its classes. In a layer --weight is that of the layer, and class weights are --class-weight.
enum class ClassesIn { kAxis, kLayer };

// --target, and how positions are weighted and reduced. --denominator is returned.
CLI::Option* AddLossOptions(CLI::App& command, LossOptions& options, ClassesIn classes = ClassesIn::kAxis);
// --dtype, --threads and --explain: the last ones.
void AddLossRunFlags(CLI::App& command, LossOptions& options);

// An option that is the path of a file.
CLI::Option* AddFile(CLI::App& command, const std::string& name, std::string& path, const std::string& description);

// Sets what NllLoss, NllLossBackward and CrossEntropyOptions have in common, which may point into `options`. Class
// weights are called what the library calls them.
template <class Fields>
void SetLossFields(Fields& fields, const LossOptions& options, InputArrays& inputs,
                   std::string_view weight_name = "weight") {
  fields.weight = inputs.ViewIfGiven(weight_name, options.weight);
  fields.token_weight = inputs.ViewIfGiven("token_weight", options.token_weight);
  fields.reduction = options.Reduced();
  fields.ignore_index = options.ignore_index;
  fields.class_axis = options.class_axis;
  if constexpr (requires { fields.denominator; }) {
    if (options.denominator) fields.denominator = ConstTensorView(&*options.denominator, DType::kF64, {});
    fields.zero_if_empty = options.zero_if_empty;
  }
}

// Outputs without an address yet: one element for each position, dense in C order; the same for the reduction none and
// no axes for the others.
TensorView PerPosition(DType dtype, const TensorLayout& target);
TensorView Reduced(DType dtype, Reduction reduction, const TensorLayout& target);

// The upstream gradient of a loss that is one number, where none is given: 1, as backward() of PyTorch takes it.
ConstTensorView One();

}  // namespace onehot::cli

#endif  // ONEHOT_CLI_LOSS_H_
