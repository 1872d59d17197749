// What the arguments of losses over a class axis may be: the rules of onehot/reduction.h, for every operator that has
// them.
#ifndef ONEHOT_OPS_LOSSES_H_
#define ONEHOT_OPS_LOSSES_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/dtype.h"
#include "onehot/cross_entropy.h"
#include "onehot/reduction.h"
#include "onehot/status.h"
#include "onehot/tensor.h"

namespace onehot {

using LossTypes = Types<float, double, F16, BF16>;
using TargetTypes = Types<std::int64_t, std::int32_t, std::int16_t, std::int8_t, std::uint8_t>;

// Optional tensors under the names that errors give them, for rules that several have to keep.
struct Named {
  std::string_view name;
  const std::optional<TensorView>& tensor;
};
struct NamedInput {
  std::string_view name;
  const std::optional<ConstTensorView>& tensor;
};

// "input: dtype must be one of f32, f64, f16, bf16, is i64"
Status CheckLossDType(std::string_view argument, DType dtype);
Status CheckTargetDType(DType dtype);

// Inputs: that of `base`, or f32. Results: that of `base`, or a wider one of f32 and f64.
Status CheckOperandDType(std::string_view argument, DType dtype, std::string_view base_name, DType base);
Status CheckResultDType(std::string_view argument, DType dtype, std::string_view base_name, DType base);

// `classes` has rank 1 to 8 and the class axis, and `target` its other axes. class_axis as the caller gave it.
Status CheckClassAxis(std::string_view argument, const TensorLayout& classes, int class_axis,
                      const TensorLayout& target);

// Layout and shape, [C], that of target, or one element of any rank.
Status CheckPerClass(std::string_view argument, const TensorLayout& tensor, std::int64_t C);
Status CheckPerPosition(std::string_view argument, const TensorLayout& tensor, const TensorLayout& target,
                        std::string_view target_name = "target");
Status CheckOneElement(std::string_view argument, const TensorLayout& tensor);
// The shape of target and an axis of classes, C of them unless it is negative.
Status CheckPerClassOfPositions(std::string_view argument, const TensorLayout& tensor, const TensorLayout& target,
                                std::int64_t C, std::string_view target_name = "target");

// The optional weights of classes and of positions that losses take. Those of classes have a name of their own where
// there is another weight.
Status CheckWeightDTypes(const std::optional<ConstTensorView>& weight,
                         const std::optional<ConstTensorView>& token_weight, std::string_view base_name, DType base,
                         std::string_view weight_name = "weight");
Status CheckWeightShapes(const std::optional<ConstTensorView>& weight,
                         const std::optional<ConstTensorView>& token_weight, const TensorLayout& target, std::int64_t C,
                         std::string_view weight_name = "weight");

// What cross entropy takes besides tensors of its own: dtypes and attributes first, shapes when those of input are known.
Status CheckLossOptions(const CrossEntropyOptions& options, DType input, std::string_view weight_name = "weight",
                        std::string_view input_name = "input");
Status CheckLossOptionShapes(const CrossEntropyOptions& options, const TensorLayout& target, std::int64_t C,
                             std::string_view weight_name = "weight");

// f64 for f64, else f32: the dtype of results per position.
DType AccumulatorDType(DType dtype);
Status CheckDTypeIs(std::string_view argument, DType dtype, DType wanted);

// Upstream gradients of a loss: dtype of input, f32 or f64.
Status CheckUpstreamDType(std::string_view argument, DType dtype, DType input);

// What depends on the reduction: one for each position, or one element.
Status CheckReduced(std::string_view argument, const TensorLayout& tensor, const TensorLayout& target,
                    Reduction reduction, std::string_view target_name = "target");

Status CheckReduction(Reduction reduction);

// f32 or f64.
Status CheckDenominatorDType(DType dtype);

}  // namespace onehot

#endif  // ONEHOT_OPS_LOSSES_H_
