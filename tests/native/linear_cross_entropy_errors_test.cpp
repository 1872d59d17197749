// Every sentence of Check for linear cross entropy and its gradients, word for word, targets that name no class, data that
// is not there, and runs that are stopped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/native/linear_cross_entropy_cases.h"
#include "tests/native/targets.h"

namespace onehot::test {
namespace {

double memory[8192];
std::int64_t numbers[64];

ConstTensorView In(DType dtype, std::initializer_list<std::int64_t> dims) {
  return {memory, dtype, dims};
}
TensorView Out(DType dtype, std::initializer_list<std::int64_t> dims) {
  return {memory + 1000, dtype, dims};
}

DType Wide(DType input) {
  return input == DType::kF64 ? DType::kF64 : DType::kF32;
}
bool IsHalf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}
bool IsTarget(DType dtype) {
  for (const DType good : kTargetDTypes)
    if (dtype == good) return true;
  return false;
}

// What both operators have, for input [2, 3, 4] and weight [5, 4].
template <class Op>
Op Common(DType input) {
  Op op;
  op.input = In(input, {2, 3, 4});
  op.weight = In(input, {5, 4});
  op.target = ConstTensorView(numbers, DType::kI64, {2, 3});
  op.upstream = {.loss = In(input, {}), .log_probability = In(Wide(input), {2, 3}), .entropy = In(Wide(input), {2, 3})};
  op.grad = {.input = Out(input, {2, 3, 4}), .weight = Out(input, {5, 4}), .bias = Out(input, {5})};
  op.options.bias = In(input, {5});
  op.options.loss.weight = In(input, {5});
  op.options.loss.token_weight = In(input, {2, 3});
  op.options.loss.denominator = In(DType::kF64, {});
  return op;
}

LinearCrossEntropy Good(DType input = DType::kF32) {
  auto op = Common<LinearCrossEntropy>(input);
  op.loss = Out(input, {});
  for (auto* output : {&op.lse, &op.target_logit, &op.log_probability, &op.entropy}) *output = Out(Wide(input), {2, 3});
  op.argmax = Out(DType::kI64, {2, 3});
  op.total_weight = Out(input, {1});
  return op;
}

LinearCrossEntropyBackward GoodBackward(DType input = DType::kF32) {
  auto op = Common<LinearCrossEntropyBackward>(input);
  op.lse = In(Wide(input), {2, 3});
  return op;
}

// The same mistake in both operators; no sentence: it is none.
template <class F>
void ExpectBoth(DType input, Code code, const std::string& message, F&& mistake) {
  LinearCrossEntropy forward = Good(input);
  LinearCrossEntropyBackward backward = GoodBackward(input);
  mistake(forward), mistake(backward);
  if (message.empty()) {
    EXPECT_OK(Check(forward));
    EXPECT_OK(Check(backward));
  } else {
    EXPECT_REFUSED(forward, code, message);
    EXPECT_REFUSED(backward, code, message);
  }
}
template <class F>
void ExpectBoth(Code code, const std::string& message, F&& mistake) {
  ExpectBoth(DType::kF32, code, message, mistake);
}

template <class F>
void ExpectForward(DType input, Code code, const std::string& message, F&& mistake) {
  LinearCrossEntropy op = Good(input);
  mistake(op);
  if (message.empty()) {
    EXPECT_OK(Check(op));
  } else {
    EXPECT_REFUSED(op, code, message);
  }
}

TEST(LinearCrossEntropyErrors, GoodIsGood) {
  for (const DType input : kGradientDTypes) {
    EXPECT_OK(Check(Good(input)));
    EXPECT_OK(Check(GoodBackward(input)));
    EXPECT_TRUE(Prepare(Good(input)).ok());
    EXPECT_TRUE(Prepare(GoodBackward(input)).ok());
  }
  EXPECT_EQ(Good().N(), 6);
  EXPECT_EQ(Good().H(), 4);
  EXPECT_EQ(Good().V(), 5);
  EXPECT_EQ(GoodBackward().N(), 6);
  EXPECT_EQ(GoodBackward().H(), 4);
  EXPECT_EQ(GoodBackward().V(), 5);
  // Nothing but what is required.
  EXPECT_OK(Check(LinearCrossEntropy{.input = Good().input, .weight = Good().weight, .target = Good().target}));
  EXPECT_OK(Check(LinearCrossEntropyBackward{.input = Good().input, .weight = Good().weight, .target = Good().target}));
  // class_axis is not read.
  for (const int axis : {-100, 0, 7}) ExpectBoth(Code::kOk, "", [&](auto& op) { op.options.loss.class_axis = axis; });
  // One position, and rank 8.
  ExpectBoth(Code::kOk, "", [](auto& op) {
    op = {.input = In(DType::kF32, {4}),
          .weight = In(DType::kF32, {5, 4}),
          .target = ConstTensorView(numbers, DType::kI64, {})};
  });
  ExpectBoth(Code::kOk, "", [](auto& op) {
    op = {.input = In(DType::kF32, {1, 1, 1, 1, 1, 1, 2, 4}),
          .weight = In(DType::kF32, {5, 4}),
          .target = ConstTensorView(numbers, DType::kI64, {1, 1, 1, 1, 1, 1, 2})};
  });
}

TEST(LinearCrossEntropyErrors, DTypesOfArguments) {
  for (const DType input : kGradientDTypes)
    for (const DType dtype : kAllDTypes) {
      const std::string name(Name(dtype)), base(Name(input));
      const bool is_input = dtype == input, f32 = dtype == DType::kF32;
      const std::string of_input = ": dtype must be that of input, " + base;
      const auto unless = [](bool good, const std::string& message) { return good ? std::string() : message; };
      ExpectBoth(input, Code::kBadDType, unless(is_input, "weight" + of_input + ", is " + name),
                 [&](auto& op) { op.weight.dtype = dtype; });
      ExpectBoth(input, Code::kBadDType,
                 unless(IsTarget(dtype), "target: dtype must be one of i64, i32, i16, i8, u8, is " + name),
                 [&](auto& op) { op.target.dtype = dtype; });
      const std::string operand = of_input + (input == DType::kF32 ? "" : ", or f32") + ", is " + name;
      ExpectBoth(input, Code::kBadDType, unless(is_input || f32, "bias" + operand),
                 [&](auto& op) { op.options.bias->dtype = dtype; });
      ExpectBoth(input, Code::kBadDType, unless(is_input || f32, "class weight" + operand),
                 [&](auto& op) { op.options.loss.weight->dtype = dtype; });
      ExpectBoth(input, Code::kBadDType, unless(is_input || f32, "token_weight" + operand),
                 [&](auto& op) { op.options.loss.token_weight->dtype = dtype; });
      ExpectBoth(input, Code::kBadDType,
                 unless(f32 || dtype == DType::kF64, "denominator: dtype must be f32 or f64, is " + name),
                 [&](auto& op) { op.options.loss.denominator->dtype = dtype; });
      ExpectBoth(
          input, Code::kBadDType,
          unless(is_input || f32 || dtype == DType::kF64, "upstream.loss" + of_input + ", or f32 or f64, is " + name),
          [&](auto& op) { op.upstream.loss->dtype = dtype; });
      const std::string wide = ": dtype must be " + std::string(Name(Wide(input))) + ", is " + name;
      const bool is_wide = dtype == Wide(input);
      ExpectBoth(input, Code::kBadDType, unless(is_wide, "upstream.log_probability" + wide),
                 [&](auto& op) { op.upstream.log_probability->dtype = dtype; });
      ExpectBoth(input, Code::kBadDType, unless(is_wide, "upstream.entropy" + wide),
                 [&](auto& op) { op.upstream.entropy->dtype = dtype; });
      ExpectBoth(input, Code::kBadDType, unless(is_wide, "lse" + wide), [&](auto& op) { op.lse->dtype = dtype; });
      const std::string gradient = of_input + (IsHalf(input) ? ", or f32" : "") + ", is " + name;
      const bool is_gradient = is_input || (f32 && IsHalf(input));
      ExpectBoth(input, Code::kBadDType, unless(is_gradient, "grad.input" + gradient),
                 [&](auto& op) { op.grad.input->dtype = dtype; });
      ExpectBoth(input, Code::kBadDType, unless(is_gradient, "grad.weight" + gradient),
                 [&](auto& op) { op.grad.weight->dtype = dtype; });
      ExpectBoth(input, Code::kBadDType, unless(is_gradient, "grad.bias" + gradient),
                 [&](auto& op) { op.grad.bias->dtype = dtype; });

      ExpectForward(input, Code::kBadDType, unless(is_wide, "target_logit" + wide),
                    [&](auto& op) { op.target_logit->dtype = dtype; });
      ExpectForward(input, Code::kBadDType, unless(is_wide, "log_probability" + wide),
                    [&](auto& op) { op.log_probability->dtype = dtype; });
      ExpectForward(input, Code::kBadDType, unless(is_wide, "entropy" + wide),
                    [&](auto& op) { op.entropy->dtype = dtype; });
      ExpectForward(input, Code::kBadDType, unless(dtype == DType::kI64, "argmax: dtype must be i64, is " + name),
                    [&](auto& op) { op.argmax->dtype = dtype; });
      const std::string wider = IsHalf(input) ? ", or f32 or f64" : input == DType::kF32 ? ", or f64" : "";
      const bool is_result = is_gradient || dtype == DType::kF64;
      ExpectForward(input, Code::kBadDType, unless(is_result, "loss" + of_input + wider + ", is " + name),
                    [&](auto& op) { op.loss->dtype = dtype; });
      ExpectForward(input, Code::kBadDType, unless(is_result, "total_weight" + of_input + wider + ", is " + name),
                    [&](auto& op) { op.total_weight->dtype = dtype; });
    }
}

TEST(LinearCrossEntropyErrors, DTypeOfInput) {
  for (const DType dtype : kAllDTypes) {
    if (dtype == DType::kF32 || dtype == DType::kF64 || IsHalf(dtype)) continue;
    ExpectBoth(Code::kBadDType, "input: dtype must be one of f32, f64, f16, bf16, is " + std::string(Name(dtype)),
               [&](auto& op) { op.input.dtype = op.weight.dtype = dtype; });
  }
}

TEST(LinearCrossEntropyErrors, Attributes) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const std::pair<double, std::string> values[] = {
      {nan, "nan"}, {inf, "inf"}, {-inf, "-inf"}, {-0.1, "-0.1"}, {1.5, "1.5"}};
  for (const auto& [value, shown] : values) {
    ExpectBoth(Code::kBadArgument, "label_smoothing: must be in [0, 1], is " + shown,
               [value = value](auto& op) { op.options.loss.label_smoothing = value; });
    ExpectBoth(Code::kBadArgument, value > 0 && value < 2 ? "" : "z_loss: must be finite and not negative, is " + shown,
               [value = value](auto& op) { op.options.loss.z_loss = value; });
    ExpectBoth(Code::kBadArgument,
               value > 0 && value < 2 ? "" : "softcap: must be finite and positive, or 0 for none, is " + shown,
               [value = value](auto& op) { op.options.loss.softcap = value; });
    ExpectBoth(Code::kBadArgument, std::isfinite(value) ? "" : "logit_scale: must be finite, is " + shown,
               [value = value](auto& op) { op.options.logit_scale = value; });
  }
  ExpectBoth(Code::kBadArgument, "reduction: must be none (0), mean (1) or sum (2), is 3",
             [](auto& op) { op.options.loss.reduction = static_cast<Reduction>(3); });
}

TEST(LinearCrossEntropyErrors, Ranks) {
  for (const int rank : {0, 9, -1})
    ExpectBoth(Code::kBadShape, "input: rank must be in [1, 8], is " + std::to_string(rank),
               [&](auto& op) { op.input.rank = rank; });
  for (const int rank : {0, 1, 3})
    ExpectBoth(Code::kBadShape, "weight: rank must be 2, is " + std::to_string(rank),
               [&](auto& op) { op.weight.rank = rank; });
  ExpectBoth(Code::kBadShape, "weight: rank must be in [0, 8], is 9", [](auto& op) { op.weight.rank = 9; });
  ExpectBoth(Code::kBadShape, "target: rank must be in [0, 8], is 9", [](auto& op) { op.target.rank = 9; });
  ExpectBoth(Code::kBadShape, "weight: extents must not be negative, axis 0 has -5",
             [](auto& op) { op.weight.dims[0] = -5; });
  ExpectBoth(Code::kBadShape, "grad.weight: rank must be in [0, 8], is 9", [](auto& op) { op.grad.weight->rank = 9; });
}

TEST(LinearCrossEntropyErrors, Shapes) {
  const DType f32 = DType::kF32;
  ExpectBoth(Code::kBadShape, "target: shape must be that of input, f32 [2, 3, 4], without axis 2, is i64 [6]",
             [](auto& op) { op.target = ConstTensorView(numbers, DType::kI64, {6}); });
  ExpectBoth(Code::kBadShape, "weight: must have as many columns as input, 4, has 5: f32 [4, 5]", [&](auto& op) {
    op.weight = In(f32, {4, 5});
  });
  const std::string per_class = ": shape must be [5], one element for each class, is f32 ";
  ExpectBoth(Code::kBadShape, "bias" + per_class + "[4]", [&](auto& op) { op.options.bias = In(f32, {4}); });
  ExpectBoth(Code::kBadShape, "bias" + per_class + "[5, 1]", [&](auto& op) { op.options.bias = In(f32, {5, 1}); });
  ExpectBoth(Code::kBadShape, "grad.bias" + per_class + "[]", [&](auto& op) { op.grad.bias = Out(f32, {}); });
  ExpectBoth(Code::kBadShape, "class weight" + per_class + "[6]",
             [&](auto& op) { op.options.loss.weight = In(f32, {6}); });
  ExpectBoth(Code::kBadShape, "grad.input: shape must be that of input, f32 [2, 3, 4], is f32 [6, 4]", [&](auto& op) {
    op.grad.input = Out(f32, {6, 4});
  });
  ExpectBoth(Code::kBadShape, "grad.weight: shape must be that of weight, f32 [5, 4], is f32 [4, 5]", [&](auto& op) {
    op.grad.weight = Out(f32, {4, 5});
  });
  const std::string per_position = ": shape must be that of target, i64 [2, 3], is f32 ";
  ExpectBoth(Code::kBadShape, "upstream.log_probability" + per_position + "[6]",
             [&](auto& op) { op.upstream.log_probability = In(f32, {6}); });
  ExpectBoth(Code::kBadShape, "upstream.entropy" + per_position + "[]",
             [&](auto& op) { op.upstream.entropy = In(f32, {}); });
  ExpectBoth(Code::kBadShape, "token_weight" + per_position + "[2]",
             [&](auto& op) { op.options.loss.token_weight = In(f32, {2}); });
  ExpectBoth(Code::kBadShape, "lse" + per_position + "[3, 2]", [&](auto& op) {
    op.lse.emplace();
    op.lse->dims = {3, 2}, op.lse->strides = {2, 1}, op.lse->rank = 2;
  });
  ExpectBoth(Code::kBadShape, "upstream.loss: must have one element, is f32 [2, 3]", [&](auto& op) {
    op.upstream.loss = In(f32, {2, 3});
  });
  ExpectBoth(Code::kBadShape, "denominator: must have one element, is f64 [2]",
             [](auto& op) { op.options.loss.denominator = In(DType::kF64, {2}); });
  ExpectBoth(Code::kBadShape, "upstream.loss" + per_position + "[]", [&](auto& op) {
    op.options.loss.reduction = Reduction::kNone;
    if constexpr (std::is_same_v<std::decay_t<decltype(op)>, LinearCrossEntropy>) op.loss = Out(f32, {2, 3});
  });

  ExpectForward(f32, Code::kBadShape, "target_logit" + per_position + "[6]",
                [&](auto& op) { op.target_logit = Out(f32, {6}); });
  ExpectForward(f32, Code::kBadShape, "log_probability" + per_position + "[3, 2]", [&](auto& op) {
    op.log_probability = Out(f32, {3, 2});
  });
  ExpectForward(f32, Code::kBadShape, "entropy" + per_position + "[2, 3, 1]", [&](auto& op) {
    op.entropy = Out(f32, {2, 3, 1});
  });
  ExpectForward(f32, Code::kBadShape, "argmax: shape must be that of target, i64 [2, 3], is i64 [3]",
                [](auto& op) { op.argmax = Out(DType::kI64, {3}); });
  ExpectForward(f32, Code::kBadShape, "loss: must have one element, is f32 [2, 3]", [&](auto& op) {
    op.loss = Out(f32, {2, 3});
  });
  ExpectForward(f32, Code::kBadShape, "loss" + per_position + "[]", [&](auto& op) {
    op.options.loss.reduction = Reduction::kNone, op.upstream.loss = In(f32, {2, 3});
  });
  ExpectForward(f32, Code::kBadShape, "total_weight: must have one element, is f32 [0]",
                [&](auto& op) { op.total_weight = Out(f32, {0}); });
}

// Inputs may be expanded, outputs not.
TEST(LinearCrossEntropyErrors, OutputsThatOverlapThemselves) {
  const auto expand = [](TensorLayout& layout) { layout.strides[0] = 0; };
  ExpectBoth(Code::kOk, "", [&](auto& op) {
    for (TensorLayout* layout : std::initializer_list<TensorLayout*>{
             &op.input, &op.weight, &op.target, &*op.options.bias, &*op.options.loss.weight,
             &*op.options.loss.token_weight, &*op.upstream.log_probability, &*op.upstream.entropy})
      expand(*layout);
  });
  const std::string rule = ": must not map two elements to one address, shape f32 ";
  ExpectBoth(Code::kBadShape, "grad.input" + rule + "[2, 3, 4] with strides [0, 4, 1] does",
             [&](auto& op) { expand(*op.grad.input); });
  ExpectBoth(Code::kBadShape, "grad.weight" + rule + "[5, 4] with strides [0, 1] does",
             [&](auto& op) { expand(*op.grad.weight); });
  ExpectBoth(Code::kBadShape, "grad.bias" + rule + "[5] with strides [0] does",
             [&](auto& op) { expand(*op.grad.bias); });
  const std::pair<std::string, std::optional<TensorView> LinearCrossEntropy::*> outputs[] = {
      {"lse", &LinearCrossEntropy::lse},
      {"target_logit", &LinearCrossEntropy::target_logit},
      {"log_probability", &LinearCrossEntropy::log_probability},
      {"entropy", &LinearCrossEntropy::entropy}};
  for (const auto& [name, field] : outputs)
    ExpectForward(DType::kF32, Code::kBadShape, name + rule + "[2, 3] with strides [0, 1] does",
                  [&, field = field](auto& op) { expand(*(op.*field)); });
  ExpectForward(DType::kF32, Code::kBadShape,
                "argmax: must not map two elements to one address, shape i64 [2, 3] with strides [0, 1] does",
                [&](auto& op) { expand(*op.argmax); });
  ExpectForward(DType::kF32, Code::kBadShape, "loss" + rule + "[2, 3] with strides [0, 1] does", [&](auto& op) {
    op.options.loss.reduction = Reduction::kNone, op.upstream.loss = In(DType::kF32, {2, 3});
    op.loss = Out(DType::kF32, {2, 3});
    expand(*op.loss);
  });
}

}  // namespace
}  // namespace onehot::test
