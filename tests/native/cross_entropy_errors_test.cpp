// Every sentence of Check for cross entropy and its gradient, word for word, and data that is not there.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "onehot/cross_entropy.h"
#include "tests/native/cross_entropy_cases.h"
#include "tests/native/targets.h"
#include "tests/native/tensor.h"

namespace onehot::test {
namespace {

double memory[4096];
std::int64_t numbers[64];

ConstTensorView In(DType dtype, std::initializer_list<std::int64_t> dims) {
  return {memory, dtype, dims};
}
TensorView Out(DType dtype, std::initializer_list<std::int64_t> dims) {
  return {memory + 1000, dtype, dims};
}

CrossEntropyOptions GoodOptions(DType input) {
  CrossEntropyOptions options;
  options.weight = In(input, {4});
  options.token_weight = In(input, {2, 3, 5});
  options.denominator = In(DType::kF64, {});
  return options;
}

// [2, 4, 3, 5], classes along axis 1.
CrossEntropy Good(DType input = DType::kF32) {
  const DType wide = input == DType::kF64 ? DType::kF64 : DType::kF32;
  return {.input = In(input, {2, 4, 3, 5}),
          .target = ConstTensorView(numbers, DType::kI64, {2, 3, 5}),
          .loss = Out(input, {}),
          .lse = Out(wide, {2, 3, 5}),
          .log_probability = Out(wide, {2, 3, 5}),
          .entropy = Out(wide, {2, 3, 5}),
          .argmax = Out(DType::kI64, {2, 3, 5}),
          .total_weight = Out(input, {1}),
          .options = GoodOptions(input)};
}

CrossEntropyBackward GoodBackward(DType input = DType::kF32) {
  const DType wide = input == DType::kF64 ? DType::kF64 : DType::kF32;
  return {.input = In(input, {2, 4, 3, 5}),
          .target = ConstTensorView(numbers, DType::kI64, {2, 3, 5}),
          .out = Out(input, {2, 4, 3, 5}),
          .lse = In(wide, {2, 3, 5}),
          .grad_loss = In(input, {}),
          .grad_log_probability = In(wide, {2, 3, 5}),
          .grad_entropy = In(wide, {2, 3, 5}),
          .options = GoodOptions(input)};
}

// The same mistake in both operators.
void ExpectBothRefused(Code code, const std::string& message,
                       const std::function<void(CrossEntropyOptions&)>& mistake) {
  CrossEntropy forward = Good();
  mistake(forward.options);
  EXPECT_REFUSED(forward, code, message);
  CrossEntropyBackward backward = GoodBackward();
  mistake(backward.options);
  EXPECT_REFUSED(backward, code, message);
}

bool IsHalf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

TEST(CrossEntropyErrors, GoodIsGood) {
  for (const DType input : kGradientDTypes) {
    EXPECT_OK(Check(Good(input)));
    EXPECT_OK(Check(GoodBackward(input)));
    EXPECT_TRUE(Prepare(Good(input)).ok());
    EXPECT_TRUE(Prepare(GoodBackward(input)).ok());
  }
  EXPECT_EQ(Good().N(), 30);
  EXPECT_EQ(Good().C(), 4);
  EXPECT_EQ(GoodBackward().N(), 30);
  EXPECT_EQ(GoodBackward().C(), 4);
  EXPECT_EQ(GoodBackward().ClassAxis(), 1);
  // Nothing but what is required.
  EXPECT_OK(Check(CrossEntropy{.input = Good().input, .target = Good().target}));
  const CrossEntropyBackward least{.input = Good().input, .target = Good().target, .out = GoodBackward().out};
  EXPECT_OK(Check(least));
}

TEST(CrossEntropyErrors, DTypeOfInputAndTarget) {
  for (const DType dtype : kAllDTypes) {
    const std::string name(Name(dtype));
    const bool good = dtype == DType::kF32 || dtype == DType::kF64 || IsHalf(dtype);
    if (!good) {
      const std::string message = "input: dtype must be one of f32, f64, f16, bf16, is " + name;
      EXPECT_REFUSED(Good(dtype), Code::kBadDType, message);
      EXPECT_REFUSED(GoodBackward(dtype), Code::kBadDType, message);
    }
    CrossEntropy forward = Good();
    CrossEntropyBackward backward = GoodBackward();
    forward.target.dtype = backward.target.dtype = dtype;
    if (dtype == DType::kI64 || dtype == DType::kI32 || dtype == DType::kI16 || dtype == DType::kI8 ||
        dtype == DType::kU8) {
      EXPECT_OK(Check(forward));
      EXPECT_OK(Check(backward));
    } else {
      const std::string message = "target: dtype must be one of i64, i32, i16, i8, u8, is " + name;
      EXPECT_REFUSED(forward, Code::kBadDType, message);
      EXPECT_REFUSED(backward, Code::kBadDType, message);
    }
  }
}

TEST(CrossEntropyErrors, DTypesOfResults) {
  for (const DType input : kGradientDTypes)
    for (const DType dtype : kAllDTypes) {
      const std::string name(Name(dtype)), base(Name(input));
      const bool result = dtype == input || dtype == DType::kF64 || (IsHalf(input) && dtype == DType::kF32);
      const std::string or_wider = IsHalf(input) ? ", or f32 or f64" : input == DType::kF32 ? ", or f64" : "";
      for (const bool loss : {true, false}) {
        CrossEntropy op = Good(input);
        (loss ? op.loss : op.total_weight)->dtype = dtype;
        const std::string message = std::string(loss ? "loss" : "total_weight") + ": dtype must be that of input, " +
                                    base + or_wider + ", is " + name;
        if (result) {
          EXPECT_OK(Check(op));
        } else {
          EXPECT_REFUSED(op, Code::kBadDType, message);
        }
      }

      const DType wide = input == DType::kF64 ? DType::kF64 : DType::kF32;
      const auto expect_is = [&](const auto& op, const std::string& argument, DType wanted) {
        if (dtype == wanted) {
          EXPECT_OK(Check(op));
        } else {
          EXPECT_REFUSED(op, Code::kBadDType,
                         argument + ": dtype must be " + std::string(Name(wanted)) + ", is " + name);
        }
      };
      CrossEntropy op = Good(input);
      op.lse->dtype = dtype;
      expect_is(op, "lse", wide);
      op = Good(input);
      op.log_probability->dtype = dtype;
      expect_is(op, "log_probability", wide);
      op = Good(input);
      op.entropy->dtype = dtype;
      expect_is(op, "entropy", wide);
      op = Good(input);
      op.argmax->dtype = dtype;
      expect_is(op, "argmax", DType::kI64);
      CrossEntropyBackward backward = GoodBackward(input);
      backward.lse->dtype = dtype;
      expect_is(backward, "lse", wide);
      backward = GoodBackward(input);
      backward.grad_log_probability->dtype = dtype;
      expect_is(backward, "grad_log_probability", wide);
      backward = GoodBackward(input);
      backward.grad_entropy->dtype = dtype;
      expect_is(backward, "grad_entropy", wide);

      backward = GoodBackward(input);
      backward.out.dtype = dtype;
      if (dtype == input || (IsHalf(input) && dtype == DType::kF32)) {
        EXPECT_OK(Check(backward));
      } else {
        EXPECT_REFUSED(
            backward, Code::kBadDType,
            "out: dtype must be that of input, " + base + (IsHalf(input) ? ", or f32" : "") + ", is " + name);
      }
    }
}

TEST(CrossEntropyErrors, DTypesOfOperands) {
  for (const DType input : kGradientDTypes)
    for (const DType dtype : kAllDTypes) {
      const std::string rule = ": dtype must be that of input, " + std::string(Name(input)) +
                               (input == DType::kF32 ? "" : ", or f32") + ", is " + std::string(Name(dtype));
      const bool good = dtype == input || dtype == DType::kF32;
      const auto expect = [&](const auto& op, const std::string& argument, bool is_good) {
        if (is_good) {
          EXPECT_OK(Check(op));
        } else {
          EXPECT_REFUSED(op, Code::kBadDType, argument + rule);
        }
      };
      for (const bool weight : {true, false}) {
        CrossEntropy op = Good(input);
        (weight ? op.options.weight : op.options.token_weight)->dtype = dtype;
        expect(op, weight ? "weight" : "token_weight", good);
        CrossEntropyBackward backward = GoodBackward(input);
        (weight ? backward.options.weight : backward.options.token_weight)->dtype = dtype;
        expect(backward, weight ? "weight" : "token_weight", good);
      }
      // The one that may also be f64.
      CrossEntropyBackward backward = GoodBackward(input);
      backward.grad_loss->dtype = dtype;
      if (good || dtype == DType::kF64) {
        EXPECT_OK(Check(backward));
      } else {
        EXPECT_EQ(Check(backward).code(), Code::kBadDType);
        EXPECT_EQ(Check(backward).message().find("grad_loss: dtype must be that of input"), 0u);
      }
    }
  for (const DType dtype : kAllDTypes)
    if (dtype != DType::kF32 && dtype != DType::kF64)
      ExpectBothRefused(Code::kBadDType, "denominator: dtype must be f32 or f64, is " + std::string(Name(dtype)),
                        [&](CrossEntropyOptions& options) { options.denominator->dtype = dtype; });
}

TEST(CrossEntropyErrors, Attributes) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  struct Mistake {
    double value;
    std::string shown;
  };
  for (const Mistake& mistake :
       {Mistake{-0.1, "-0.1"}, Mistake{1.5, "1.5"}, Mistake{nan, "nan"}, Mistake{inf, "inf"}, Mistake{-1, "-1"}})
    ExpectBothRefused(Code::kBadArgument, "label_smoothing: must be in [0, 1], is " + mistake.shown,
                      [&](CrossEntropyOptions& options) { options.label_smoothing = mistake.value; });
  for (const Mistake& mistake :
       {Mistake{-0.1, "-0.1"}, Mistake{nan, "nan"}, Mistake{inf, "inf"}, Mistake{-inf, "-inf"}}) {
    ExpectBothRefused(Code::kBadArgument, "z_loss: must be finite and not negative, is " + mistake.shown,
                      [&](CrossEntropyOptions& options) { options.z_loss = mistake.value; });
    ExpectBothRefused(Code::kBadArgument, "softcap: must be finite and positive, or 0 for none, is " + mistake.shown,
                      [&](CrossEntropyOptions& options) { options.softcap = mistake.value; });
  }
  ExpectBothRefused(Code::kBadArgument, "reduction: must be none (0), mean (1) or sum (2), is 3",
                    [](CrossEntropyOptions& options) { options.reduction = static_cast<Reduction>(3); });
  for (const double eps : {0., 1., 0.5}) {
    CrossEntropy op = Good();
    op.options.label_smoothing = eps;
    EXPECT_OK(Check(op));
  }
}

TEST(CrossEntropyErrors, ClassAxis) {
  for (const int axis : {-5, 4, 100})
    ExpectBothRefused(Code::kBadArgument,
                      "class_axis: must be in [-4, 4), the axes of input, is " + std::to_string(axis),
                      [&](CrossEntropyOptions& options) { options.class_axis = axis; });
  ExpectBothRefused(Code::kBadShape,
                    "target: shape must be that of input, f32 [2, 4, 3, 5], without axis 3, is i64 [2, 3, 5]",
                    [](CrossEntropyOptions& options) { options.class_axis = -1; });
  // Of one axis, any is the one.
  CrossEntropy op{.input = In(DType::kF32, {4}), .target = ConstTensorView(numbers, DType::kI64, {})};
  for (const int axis : {-7, -1, 0, 1, 2}) {
    op.options.class_axis = axis;
    EXPECT_OK(Check(op));
  }
  op.target = ConstTensorView(numbers, DType::kI64, {1});
  EXPECT_REFUSED(op, Code::kBadShape, "target: shape must be that of input, f32 [4], without axis 0, is i64 [1]");
}

TEST(CrossEntropyErrors, Ranks) {
  CrossEntropy forward = Good();
  CrossEntropyBackward backward = GoodBackward();
  for (const int rank : {0, 9, -1}) {
    forward.input.rank = backward.input.rank = rank;
    const std::string message = "input: rank must be in [1, 8], is " + std::to_string(rank);
    EXPECT_REFUSED(forward, Code::kBadShape, message);
    EXPECT_REFUSED(backward, Code::kBadShape, message);
  }
  forward = Good(), backward = GoodBackward();
  forward.target.rank = backward.target.rank = backward.out.rank = 9;
  EXPECT_REFUSED(forward, Code::kBadShape, "target: rank must be in [0, 8], is 9");
  EXPECT_REFUSED(backward, Code::kBadShape, "target: rank must be in [0, 8], is 9");
  backward = GoodBackward();
  backward.out.rank = 9;
  EXPECT_REFUSED(backward, Code::kBadShape, "out: rank must be in [0, 8], is 9");
  forward = Good();
  forward.input.dims[2] = -3;
  EXPECT_REFUSED(forward, Code::kBadShape, "input: extents must not be negative, axis 2 has -3");
}

TEST(CrossEntropyErrors, ShapesOfPositions) {
  const std::string rule = ": shape must be that of target, i64 [2, 3, 5], is ";
  CrossEntropy op = Good();
  op.lse = Out(DType::kF32, {2, 3});
  EXPECT_REFUSED(op, Code::kBadShape, "lse" + rule + "f32 [2, 3]");
  op = Good();
  op.log_probability = Out(DType::kF32, {30});
  EXPECT_REFUSED(op, Code::kBadShape, "log_probability" + rule + "f32 [30]");
  op = Good();
  op.entropy = Out(DType::kF32, {2, 3, 5, 1});
  EXPECT_REFUSED(op, Code::kBadShape, "entropy" + rule + "f32 [2, 3, 5, 1]");
  op = Good();
  op.argmax = Out(DType::kI64, {2, 5, 3});
  EXPECT_REFUSED(op, Code::kBadShape, "argmax" + rule + "i64 [2, 5, 3]");
  op = Good();
  op.options.reduction = Reduction::kNone;
  EXPECT_REFUSED(op, Code::kBadShape, "loss" + rule + "f32 []");
  op.loss = Out(DType::kF32, {2, 3, 5});
  EXPECT_OK(Check(op));

  CrossEntropyBackward backward = GoodBackward();
  backward.lse = In(DType::kF32, {});
  EXPECT_REFUSED(backward, Code::kBadShape, "lse" + rule + "f32 []");
  backward = GoodBackward();
  backward.grad_log_probability = In(DType::kF32, {1});
  EXPECT_REFUSED(backward, Code::kBadShape, "grad_log_probability" + rule + "f32 [1]");
  backward = GoodBackward();
  backward.grad_entropy = In(DType::kF32, {2, 3, 6});
  EXPECT_REFUSED(backward, Code::kBadShape, "grad_entropy" + rule + "f32 [2, 3, 6]");
  backward = GoodBackward();
  backward.options.reduction = Reduction::kNone;
  EXPECT_REFUSED(backward, Code::kBadShape, "grad_loss" + rule + "f32 []");
  ExpectBothRefused(Code::kBadShape, "token_weight" + rule + "f32 [2, 3]", [](CrossEntropyOptions& options) {
    options.token_weight = In(DType::kF32, {2, 3});
  });
}

TEST(CrossEntropyErrors, OtherShapes) {
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum}) {
    CrossEntropy op = Good();
    op.options.reduction = reduction;
    op.loss = Out(DType::kF32, {2});
    EXPECT_REFUSED(op, Code::kBadShape, "loss: must have one element, is f32 [2]");
    op.loss = Out(DType::kF32, {1, 1, 1});
    EXPECT_OK(Check(op));
    CrossEntropyBackward backward = GoodBackward();
    backward.options.reduction = reduction;
    backward.grad_loss = In(DType::kF32, {2, 3, 5});
    EXPECT_REFUSED(backward, Code::kBadShape, "grad_loss: must have one element, is f32 [2, 3, 5]");
  }
  CrossEntropy op = Good();
  op.total_weight = Out(DType::kF32, {0});
  EXPECT_REFUSED(op, Code::kBadShape, "total_weight: must have one element, is f32 [0]");
  CrossEntropyBackward backward = GoodBackward();
  backward.out = Out(DType::kF32, {2, 4, 15});
  EXPECT_REFUSED(backward, Code::kBadShape, "out: shape must be that of input, f32 [2, 4, 3, 5], is f32 [2, 4, 15]");
  ExpectBothRefused(Code::kBadShape, "weight: shape must be [4], one element for each class, is f32 [5]",
                    [](CrossEntropyOptions& options) { options.weight = In(DType::kF32, {5}); });
  ExpectBothRefused(Code::kBadShape, "weight: shape must be [4], one element for each class, is f32 [4, 1]",
                    [](CrossEntropyOptions& options) {
                      options.weight = In(DType::kF32, {4, 1});
                    });
  ExpectBothRefused(Code::kBadShape, "denominator: must have one element, is f64 [2]",
                    [](CrossEntropyOptions& options) { options.denominator = In(DType::kF64, {2}); });
}

// Inputs may be expanded, outputs not.
TEST(CrossEntropyErrors, OutputsThatOverlapThemselves) {
  const auto expand = [](TensorLayout& layout) { layout.strides[1] = 0; };
  CrossEntropy op = Good();
  expand(op.input), expand(op.target), expand(*op.options.token_weight);
  op.options.weight->strides[0] = 0;
  EXPECT_OK(Check(op));
  const std::string rule = ": must not map two elements to one address, shape ";
  expand(*op.lse);
  EXPECT_REFUSED(op, Code::kBadShape, "lse" + rule + "f32 [2, 3, 5] with strides [15, 0, 1] does");
  op = Good();
  expand(*op.log_probability);
  EXPECT_REFUSED(op, Code::kBadShape, "log_probability" + rule + "f32 [2, 3, 5] with strides [15, 0, 1] does");
  op = Good();
  expand(*op.entropy);
  EXPECT_REFUSED(op, Code::kBadShape, "entropy" + rule + "f32 [2, 3, 5] with strides [15, 0, 1] does");
  op = Good();
  expand(*op.argmax);
  EXPECT_REFUSED(op, Code::kBadShape, "argmax" + rule + "i64 [2, 3, 5] with strides [15, 0, 1] does");
  op = Good();
  op.options.reduction = Reduction::kNone;
  op.loss = Out(DType::kF32, {2, 3, 5});
  expand(*op.loss);
  EXPECT_REFUSED(op, Code::kBadShape, "loss" + rule + "f32 [2, 3, 5] with strides [15, 0, 1] does");
  CrossEntropyBackward backward = GoodBackward();
  expand(*backward.grad_entropy), expand(*backward.lse), expand(*backward.grad_log_probability);
  EXPECT_OK(Check(backward));
  expand(backward.out);
  EXPECT_REFUSED(backward, Code::kBadShape, "out" + rule + "f32 [2, 4, 3, 5] with strides [60, 0, 5, 1] does");
}

// Found when a plan runs, on every target.
TEST(CrossEntropyErrors, DataThatIsNotThere) {
  CrossEntropyProblem problem(WithEverything({.dims = {3, 5}, .denominator = true}));
  const auto expect = [](const auto& op, const std::string& argument) {
    for (const Target& target : Targets<std::decay_t<decltype(op)>>()) {
      if (!Takes(target, op)) continue;
      EXPECT_STATUS(RunOn(target, op), Code::kNullArgument, argument + ": data must not be null");
    }
  };
  const std::vector<std::string> of_both = {"input", "target", "weight", "token_weight", "denominator"};
  const auto drop = [](auto& op, const std::string& argument) {
    if (argument == "input") op.input.data = nullptr;
    if (argument == "target") op.target.data = nullptr;
    if (argument == "weight") op.options.weight->data = nullptr;
    if (argument == "token_weight") op.options.token_weight->data = nullptr;
    if (argument == "denominator") op.options.denominator->data = nullptr;
  };
  for (const std::string& argument : of_both) {
    CrossEntropy forward = problem.forward();
    drop(forward, argument);
    expect(forward, argument);
    CrossEntropyBackward backward = problem.backward();
    drop(backward, argument);
    expect(backward, argument);
  }
  struct Output {
    std::string name;
    std::optional<TensorView> CrossEntropy::*field;
  };
  for (const Output& output :
       {Output{"loss", &CrossEntropy::loss}, Output{"lse", &CrossEntropy::lse},
        Output{"log_probability", &CrossEntropy::log_probability}, Output{"entropy", &CrossEntropy::entropy},
        Output{"argmax", &CrossEntropy::argmax}, Output{"total_weight", &CrossEntropy::total_weight}}) {
    CrossEntropy op = problem.forward();
    (op.*output.field)->data = nullptr;
    expect(op, output.name);
  }
  struct Gradient {
    std::string name;
    std::optional<ConstTensorView> CrossEntropyBackward::*field;
  };
  for (const Gradient& gradient :
       {Gradient{"grad_loss", &CrossEntropyBackward::grad_loss},
        Gradient{"grad_log_probability", &CrossEntropyBackward::grad_log_probability},
        Gradient{"grad_entropy", &CrossEntropyBackward::grad_entropy}, Gradient{"lse", &CrossEntropyBackward::lse}}) {
    CrossEntropyBackward op = problem.backward();
    op.lse = ConstTensorView(problem.lse.view());
    (op.*gradient.field)->data = nullptr;
    expect(op, gradient.name);
  }
  CrossEntropyBackward op = problem.backward();
  op.out.data = nullptr;
  expect(op, "out");
}

}  // namespace
}  // namespace onehot::test
