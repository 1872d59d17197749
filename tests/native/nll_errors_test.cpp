// Every sentence of Check for the NLL loss and its gradient, word for word.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "onehot/nll_loss.h"
#include "tests/native/losses.h"

namespace onehot::test {
namespace {

float memory[4096];
std::int64_t numbers[64];

constexpr Code kDType = Code::kBadDType, kShape = Code::kBadShape, kArgument = Code::kBadArgument;

ConstTensorView In(DType dtype, std::initializer_list<std::int64_t> dims) {
  return {memory, dtype, dims};
}
TensorView Out(DType dtype, std::initializer_list<std::int64_t> dims) {
  return {memory + 1000, dtype, dims};
}

// Positions 2 x 3, five classes; everything that is optional is there.
NllLoss Good(DType dtype = DType::kF32, Reduction reduction = Reduction::kMean) {
  NllLoss op;
  op.input = In(dtype, {2, 5, 3});
  op.target = ConstTensorView(numbers, DType::kI64, {2, 3});
  op.loss = reduction == Reduction::kNone ? Out(dtype, {2, 3}) : Out(dtype, {});
  op.total_weight = Out(dtype, {1});
  op.weight = In(DType::kF32, {5}), op.token_weight = In(DType::kF32, {2, 3}), op.denominator = In(DType::kF32, {});
  op.reduction = reduction;
  return op;
}

NllLossBackward GoodBackward(DType dtype = DType::kF32, Reduction reduction = Reduction::kMean) {
  NllLossBackward op;
  op.grad_output = reduction == Reduction::kNone ? In(dtype, {2, 3}) : In(dtype, {});
  op.target = ConstTensorView(numbers, DType::kI64, {2, 3});
  op.out = Out(dtype, {2, 5, 3});
  op.total_weight = In(dtype, {1});
  op.weight = In(DType::kF32, {5}), op.token_weight = In(DType::kF32, {2, 3});
  op.reduction = reduction;
  return op;
}

NllLossBackward GoodCompact() {
  NllLossBackward op = GoodBackward();
  op.compact = true, op.num_classes = 5, op.out = Out(DType::kF32, {2, 3});
  return op;
}

bool IsLossDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16;
}

bool IsTargetDType(DType dtype) {
  for (const DType one : kTargetDTypes)
    if (one == dtype) return true;
  return false;
}

std::string Text(DType dtype) {
  return std::string(onehot::Name(dtype));
}

TEST(NllErrors, GoodIsGood) {
  for (const DType dtype : kGradientDTypes)
    for (const Reduction reduction : kReductions) {
      EXPECT_OK(Check(Good(dtype, reduction)));
      EXPECT_TRUE(Prepare(Good(dtype, reduction)).ok());
      EXPECT_OK(Check(GoodBackward(dtype, reduction)));
      EXPECT_TRUE(Prepare(GoodBackward(dtype, reduction)).ok());
    }
  EXPECT_OK(Check(GoodCompact()));
  EXPECT_EQ(Good().N(), 6);
  EXPECT_EQ(Good().C(), 5);
  EXPECT_EQ(Good().ClassAxis(), 1);
  EXPECT_EQ(GoodBackward().C(), 5);
  EXPECT_EQ(GoodCompact().C(), 5);
  NllLoss op = Good();
  op.class_axis = -1;
  EXPECT_EQ(op.ClassAxis(), 2);
}

TEST(NllErrors, InputAndOutDTypes) {
  for (const DType dtype : kAllDTypes) {
    if (IsLossDType(dtype)) continue;
    EXPECT_REFUSED(Good(dtype), kDType, "input: dtype must be one of f32, f64, f16, bf16, is " + Text(dtype));
    NllLossBackward op = GoodBackward(dtype);
    op.grad_output.dtype = DType::kF32;
    EXPECT_REFUSED(op, kDType, "out: dtype must be one of f32, f64, f16, bf16, is " + Text(dtype));
  }
}

TEST(NllErrors, TargetDTypes) {
  for (const DType dtype : kAllDTypes) {
    NllLoss op = Good();
    op.target.dtype = dtype;
    NllLossBackward backward = GoodBackward(), compact = GoodCompact();
    backward.target.dtype = compact.target.dtype = dtype;
    if (IsTargetDType(dtype)) {
      EXPECT_OK(Check(op));
      EXPECT_OK(Check(backward));
      EXPECT_OK(Check(compact));
      continue;
    }
    const std::string message = "target: dtype must be one of i64, i32, i16, i8, u8, is " + Text(dtype);
    EXPECT_REFUSED(op, kDType, message);
    EXPECT_REFUSED(backward, kDType, message);
    EXPECT_REFUSED(compact, kDType, message);
  }
}

// Results: the dtype of input, or a wider one of f32 and f64.
TEST(NllErrors, ResultDTypes) {
  for (const DType base : kGradientDTypes)
    for (const DType dtype : kAllDTypes) {
      const bool half = SizeOf(base) == 2;
      const std::string rule = "dtype must be that of input, " + Text(base) +
                               (half                  ? ", or f32 or f64"
                                : base == DType::kF32 ? ", or f64"
                                                      : "") +
                               ", is " + Text(dtype);
      NllLoss loss = Good(base), total_weight = Good(base);
      loss.loss.dtype = total_weight.total_weight->dtype = dtype;
      if (dtype == base || dtype == DType::kF64 || (half && dtype == DType::kF32)) {
        EXPECT_OK(Check(loss));
        EXPECT_OK(Check(total_weight));
      } else {
        EXPECT_REFUSED(loss, kDType, "loss: " + rule);
        EXPECT_REFUSED(total_weight, kDType, "total_weight: " + rule);
      }
    }
}

// Operands: the dtype of input or out, or f32.
TEST(NllErrors, OperandDTypes) {
  for (const DType base : kGradientDTypes)
    for (const DType dtype : kAllDTypes) {
      const auto rule = [&](const std::string& argument, const std::string& of) {
        return argument + ": dtype must be that of " + of + ", " + Text(base) +
               (base == DType::kF32 ? "" : ", or f32") + ", is " + Text(dtype);
      };
      NllLoss weight = Good(base), token_weight = Good(base);
      weight.weight->dtype = token_weight.token_weight->dtype = dtype;
      NllLossBackward back_weight = GoodBackward(base), back_token_weight = GoodBackward(base),
                      grad_output = GoodBackward(base);
      back_weight.weight->dtype = back_token_weight.token_weight->dtype = grad_output.grad_output.dtype = dtype;
      if (dtype == base || dtype == DType::kF32) {
        EXPECT_OK(Check(weight));
        EXPECT_OK(Check(token_weight));
        EXPECT_OK(Check(back_weight));
        EXPECT_OK(Check(back_token_weight));
        EXPECT_OK(Check(grad_output));
      } else {
        EXPECT_REFUSED(weight, kDType, rule("weight", "input"));
        EXPECT_REFUSED(token_weight, kDType, rule("token_weight", "input"));
        EXPECT_REFUSED(back_weight, kDType, rule("weight", "out"));
        EXPECT_REFUSED(back_token_weight, kDType, rule("token_weight", "out"));
        EXPECT_REFUSED(grad_output, kDType, rule("grad_output", "out"));
      }
    }
}

TEST(NllErrors, DenominatorAndTotalWeightDTypes) {
  for (const DType dtype : kAllDTypes) {
    NllLoss op = Good();
    op.denominator->dtype = dtype;
    if (dtype == DType::kF32 || dtype == DType::kF64) {
      EXPECT_OK(Check(op));
    } else {
      EXPECT_REFUSED(op, kDType, "denominator: dtype must be f32 or f64, is " + Text(dtype));
    }
    for (const DType base : kGradientDTypes) {
      NllLossBackward backward = GoodBackward(base);
      backward.total_weight->dtype = dtype;
      if (dtype == base || dtype == DType::kF32 || dtype == DType::kF64) {
        EXPECT_OK(Check(backward));
      } else {
        EXPECT_REFUSED(backward, kDType,
                       "total_weight: dtype must be that of out, " + Text(base) + ", or " +
                           (base == DType::kF32   ? "f64"
                            : base == DType::kF64 ? "f32"
                                                  : "f32 or f64") +
                           ", is " + Text(dtype));
      }
      // Not read, not checked.
      backward.reduction = Reduction::kSum;
      EXPECT_OK(Check(backward));
    }
  }
}

TEST(NllErrors, Reduction) {
  NllLoss op = Good();
  op.reduction = static_cast<Reduction>(3);
  EXPECT_REFUSED(op, kArgument, "reduction: must be none (0), mean (1) or sum (2), is 3");
  NllLossBackward backward = GoodBackward();
  backward.reduction = static_cast<Reduction>(255);
  EXPECT_REFUSED(backward, kArgument, "reduction: must be none (0), mean (1) or sum (2), is 255");
}

TEST(NllErrors, MeanNeedsTheTotalWeight) {
  NllLossBackward op = GoodBackward();
  op.total_weight.reset();
  EXPECT_REFUSED(op, Code::kNullArgument, "total_weight: is needed for the reduction mean, is not given");
  op.reduction = Reduction::kSum;
  EXPECT_OK(Check(op));
}

TEST(NllErrors, Ranks) {
  NllLoss op = Good();
  op.input = In(DType::kF32, {});
  EXPECT_REFUSED(op, kShape, "input: rank must be in [1, 8], is 0");
  op.input.rank = 9;
  EXPECT_REFUSED(op, kShape, "input: rank must be in [1, 8], is 9");
  op = Good();
  op.target.rank = -1;
  EXPECT_REFUSED(op, kShape, "target: rank must be in [0, 8], is -1");
  NllLossBackward backward = GoodBackward();
  backward.out = Out(DType::kF32, {});
  EXPECT_REFUSED(backward, kShape, "out: rank must be in [1, 8], is 0");
  backward.out.rank = 9;
  EXPECT_REFUSED(backward, kShape, "out: rank must be in [1, 8], is 9");
  backward = GoodCompact();
  backward.target.rank = 9;
  EXPECT_REFUSED(backward, kShape, "target: rank must be in [0, 8], is 9");
  op = Good();
  op.weight->rank = 9;
  EXPECT_REFUSED(op, kShape, "weight: rank must be in [0, 8], is 9");
}

TEST(NllErrors, Extents) {
  NllLoss op = Good();
  op.input.dims[2] = -3;
  EXPECT_REFUSED(op, kShape, "input: extents must not be negative, axis 2 has -3");
  op = Good();
  op.target.dims[0] = -2;
  EXPECT_REFUSED(op, kShape, "target: extents must not be negative, axis 0 has -2");
  op = Good();
  op.input.dims[0] = std::int64_t{1} << 62;
  EXPECT_REFUSED(op, kShape, "input: must span less than 2^63 bytes, shape is f32 [4611686018427387904, 5, 3]");
}

TEST(NllErrors, ShapeOfTarget) {
  NllLoss op = Good();
  op.target = ConstTensorView(numbers, DType::kI64, {2, 4});
  EXPECT_REFUSED(op, kShape, "target: shape must be that of input, f32 [2, 5, 3], without axis 1, is i64 [2, 4]");
  op.target = ConstTensorView(numbers, DType::kI64, {6});
  EXPECT_REFUSED(op, kShape, "target: shape must be that of input, f32 [2, 5, 3], without axis 1, is i64 [6]");
  op = Good();
  op.class_axis = -1;
  EXPECT_REFUSED(op, kShape, "target: shape must be that of input, f32 [2, 5, 3], without axis 2, is i64 [2, 3]");
  op = Good();
  op.input = In(DType::kF32, {5});
  EXPECT_REFUSED(op, kShape, "target: shape must be that of input, f32 [5], without axis 0, is i64 [2, 3]");
  NllLossBackward backward = GoodBackward();
  backward.target = ConstTensorView(numbers, DType::kU8, {3, 2});
  EXPECT_REFUSED(backward, kShape, "target: shape must be that of out, f32 [2, 5, 3], without axis 1, is u8 [3, 2]");
}

TEST(NllErrors, ClassAxis) {
  for (const int axis : {-4, 3, 1000}) {
    NllLoss op = Good();
    op.class_axis = axis;
    EXPECT_REFUSED(op, kArgument, "class_axis: must be in [-3, 3), the axes of input, is " + std::to_string(axis));
    NllLossBackward backward = GoodBackward();
    backward.class_axis = axis;
    EXPECT_REFUSED(backward, kArgument, "class_axis: must be in [-3, 3), the axes of out, is " + std::to_string(axis));
    backward = GoodCompact();  // there is none
    backward.class_axis = axis;
    EXPECT_OK(Check(backward));
  }
}

TEST(NllErrors, ShapesOfResultsAndGradients) {
  NllLoss op = Good(DType::kF32, Reduction::kNone);
  op.loss = Out(DType::kF32, {});
  EXPECT_REFUSED(op, kShape, "loss: shape must be that of target, i64 [2, 3], is f32 []");
  op = Good();
  op.loss = Out(DType::kF32, {2, 3});
  EXPECT_REFUSED(op, kShape, "loss: must have one element, is f32 [2, 3]");
  op = Good();
  op.total_weight = Out(DType::kF32, {0});
  EXPECT_REFUSED(op, kShape, "total_weight: must have one element, is f32 [0]");
  op = Good();
  op.denominator = In(DType::kF64, {2});
  EXPECT_REFUSED(op, kShape, "denominator: must have one element, is f64 [2]");
  NllLossBackward backward = GoodBackward(DType::kF32, Reduction::kNone);
  backward.grad_output = In(DType::kF32, {6});
  EXPECT_REFUSED(backward, kShape, "grad_output: shape must be that of target, i64 [2, 3], is f32 [6]");
  backward = GoodBackward();
  backward.grad_output = In(DType::kF32, {2, 3});
  EXPECT_REFUSED(backward, kShape, "grad_output: must have one element, is f32 [2, 3]");
  backward = GoodBackward();
  backward.total_weight = In(DType::kF32, {3});
  EXPECT_REFUSED(backward, kShape, "total_weight: must have one element, is f32 [3]");
}

TEST(NllErrors, ShapesOfWeights) {
  NllLoss op = Good();
  op.weight = In(DType::kF32, {4});
  EXPECT_REFUSED(op, kShape, "weight: shape must be [5], one element for each class, is f32 [4]");
  op.weight = In(DType::kF32, {5, 1});
  EXPECT_REFUSED(op, kShape, "weight: shape must be [5], one element for each class, is f32 [5, 1]");
  op = Good();
  op.token_weight = In(DType::kF32, {6});
  EXPECT_REFUSED(op, kShape, "token_weight: shape must be that of target, i64 [2, 3], is f32 [6]");
  NllLossBackward backward = GoodBackward();
  backward.weight = In(DType::kF32, {6});
  EXPECT_REFUSED(backward, kShape, "weight: shape must be [5], one element for each class, is f32 [6]");
  backward = GoodBackward();
  backward.token_weight = In(DType::kF32, {2});
  EXPECT_REFUSED(backward, kShape, "token_weight: shape must be that of target, i64 [2, 3], is f32 [2]");
}

TEST(NllErrors, Compact) {
  NllLossBackward op = GoodCompact();
  op.out = Out(DType::kF32, {2, 5, 3});
  EXPECT_REFUSED(op, kShape, "out: shape must be that of target, i64 [2, 3], is f32 [2, 5, 3]");
  op = GoodCompact();
  op.num_classes = -1;
  EXPECT_REFUSED(op, kArgument, "num_classes: must not be negative, is -1");
  op = GoodCompact();
  op.num_classes = 4;
  EXPECT_REFUSED(op, kShape, "weight: shape must be [4], one element for each class, is f32 [5]");
}

TEST(NllErrors, OutputsMayNotOverlapThemselves) {
  NllLoss op = Good(DType::kF32, Reduction::kNone);
  op.loss.strides[0] = 0;
  EXPECT_REFUSED(op, kShape,
                 "loss: must not map two elements to one address, shape f32 [2, 3] with strides [0, 1] does");
  NllLossBackward backward = GoodBackward();
  backward.out.strides[0] = 14;
  EXPECT_REFUSED(backward, kShape,
                 "out: must not map two elements to one address, shape f32 [2, 5, 3] with strides [14, 3, 1] does");
  backward = GoodCompact();
  backward.out.strides[1] = 0;
  EXPECT_REFUSED(backward, kShape,
                 "out: must not map two elements to one address, shape f32 [2, 3] with strides [3, 0] does");
  // Inputs may.
  op = Good();
  op.input.strides = {}, op.target.strides = {}, op.weight->strides = {}, op.token_weight->strides = {};
  EXPECT_OK(Check(op));
  backward = GoodBackward(DType::kF32, Reduction::kNone);
  backward.grad_output.strides = {}, backward.target.strides = {};
  EXPECT_OK(Check(backward));
}

}  // namespace
}  // namespace onehot::test
