// What holds for linear cross entropy whatever the numbers are: the same bits however it is run and however tensors lie
// in memory, and nothing from where nothing may come; and the faults of shared/cases.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tests/native/data.h"
#include "tests/native/linear_cross_entropy_cases.h"
#include "tests/native/linear_cross_entropy_oracle.h"
#include "tests/native/strides.h"

namespace onehot::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const std::vector<int> kThreads = {1, 2, 3, 7};

bool AllBytes(const Tensor& tensor, std::byte byte) {
  for (const std::byte b : tensor.Bytes())
    if (b != byte) return false;
  return true;
}

// ---- which gradients are asked for, and by which operator

template <class Op>
void ExpectSubsetsSame(LinearCrossEntropyProblem& problem, const Op& all, BitsByGroup& bits, std::size_t skip) {
  const std::vector<Tensor*> gradients = problem.gradient_tensors();
  for (unsigned subset = 0; subset < 8; ++subset) {
    Op op = all;
    if ((subset & 1) == 0) op.grad.input = std::nullopt;
    if ((subset & 2) == 0) op.grad.weight = std::nullopt;
    if ((subset & 4) == 0) op.grad.bias = std::nullopt;
    OnTargets(op, problem.outputs(), {2}, [&](const Target& target) {
      for (std::size_t k = 0; k < 3; ++k) {
        if ((subset >> k & 1) != 0) {
          EXPECT_TRUE(SameBits(*gradients[k], bits.Of(target)[skip + k])) << kLinearOutputs[kLinearResults + k];
        } else {
          EXPECT_TRUE(problem.c.accumulate || AllBytes(*gradients[k], std::byte{0xFF})) << "not asked for";
        }
      }
    });
  }
}

TEST(LinearCrossEntropyProperties, AnySubsetOfGradients) {
  for (const DType input : kGradientDTypes)
    for (const bool accumulate : {false, true}) {
      LinearCrossEntropyCase c = WithEverything({.positions = {70}, .H = 19, .V = 90, .input = input});
      c.accumulate = accumulate;
      SCOPED_TRACE(c.Describe());
      LinearCrossEntropyProblem problem(c);
      BitsByGroup bits;
      ExpectBitsEverywhere(problem, bits);
      ExpectSubsetsSame(problem, problem.forward(), bits, kLinearResults);
      ExpectSubsetsSame(problem, problem.backward(), bits, kLinearResults);
      // And with lse, of their own.
      Tensor lse = problem.lse;
      EXPECT_OK(RunOn({"ref", ""}, [&] {
        LinearCrossEntropy op = problem.forward();
        op.grad = {}, op.lse = lse.view();
        return op;
      }()));
      LinearCrossEntropyBackward op = problem.backward();
      op.lse = std::as_const(lse).view();
      BitsByGroup given;
      OnTargets(op, problem.gradient_tensors(), {1}, [&](const Target& target) {
        given.ExpectSame(target, problem.gradient_tensors(), kLinearOutputs + kLinearResults);
      });
      ExpectSubsetsSame(problem, op, given, 0);
    }
}

// ---- threads and instruction sets

// Enough for every thread to get a share, along positions and along classes; ragged against any block.
TEST(LinearCrossEntropyProperties, AnyNumberOfThreads) {
  struct Size {
    std::int64_t N, H, V;
  };
  for (const Size& size :
       {Size{67, 33, 1101}, Size{5, 20, 3000}, Size{500, 17, 50}, Size{1, 100, 2500}, Size{70, 1, 70}})
    for (const DType input : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (input == DType::kF16 && size.V != 50) continue;
      LinearCrossEntropyCase c = WithEverything({.positions = {size.N}, .H = size.H, .V = size.V, .input = input});
      c.accumulate = input == DType::kBF16;
      LinearCrossEntropyProblem problem(c);
      BitsByGroup bits;
      ExpectBitsEverywhere(problem, bits, kThreads);
      const std::vector<Tensor*> gradients = problem.gradient_tensors();
      OnTargets(problem.backward(), gradients, {1, 3}, [&](const Target& target) {
        for (std::size_t k = 0; k < 3; ++k)
          EXPECT_TRUE(SameBits(*gradients[k], bits.Of(target)[kLinearResults + k])) << "of the backward operator";
      });
    }
}

TEST(LinearCrossEntropyProperties, PlansOverSharedInputs) {
  LinearCrossEntropyProblem problem(WithEverything({.positions = {60}, .H = 30, .V = 200, .input = DType::kBF16}));
  for (const Target& target : Targets<LinearCrossEntropy>()) {
    if (!Takes(target, problem.forward())) continue;
    SCOPED_TRACE(target.name());
    EXPECT_OK(RunOn(target, problem.forward()));
    std::vector<Tensor> losses(4, problem.loss), weights(4, problem.grad_weight), inputs(4, problem.grad_input);
    std::vector<Result<Plan>> plans;
    for (std::size_t t = 0; t < 4; ++t) {
      LinearCrossEntropy op = problem.forward();
      for (auto* output : {&op.lse, &op.target_logit, &op.log_probability, &op.entropy, &op.argmax, &op.total_weight})
        *output = std::nullopt;
      op.loss = losses[t].view();
      op.grad = {.input = inputs[t].view(), .weight = weights[t].view()};
      plans.push_back(PrepareOn(target, op));
      ASSERT_TRUE(plans.back().ok());
    }
    const std::vector<Status> statuses = RunAtOnce(plans);
    for (std::size_t t = 0; t < 4; ++t) {
      EXPECT_OK(statuses[t]);
      EXPECT_TRUE(SameBits(losses[t], problem.loss.Bytes()));
      EXPECT_TRUE(SameBits(weights[t], problem.grad_weight.Bytes()));
      EXPECT_TRUE(SameBits(inputs[t], problem.grad_input.Bytes()));
    }
  }
}

// ---- layouts

class LinearCrossEntropyLayout : public ::testing::TestWithParam<DType> {
 protected:
  LinearCrossEntropyLayout() : dense_(WithEverything({.positions = {2, 15}, .H = 21, .V = 37, .input = GetParam()})) {
    ExpectBitsEverywhere(dense_, bits_);
  }
  void ExpectSame(LinearCrossEntropyProblem& problem) { ExpectBitsEverywhere(problem, bits_, {2}); }

  LinearCrossEntropyProblem dense_;
  BitsByGroup bits_;
};
INSTANTIATE_TEST_SUITE_P(DTypes, LinearCrossEntropyLayout, ::testing::ValuesIn(kGradientDTypes),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(LinearCrossEntropyLayout, FormsOfTheWeight) {
  for (const Form form : kForms) {
    LinearCrossEntropyProblem problem = dense_;
    problem.weight = Relaid(problem.weight, StridesOf(form, 37, 21));
    ExpectSame(problem);
    problem.grad_weight = Relaid(problem.grad_weight, StridesOf(form, 37, 21));
    ExpectSame(problem);
  }
}

// Rows of a wider buffer, axes in any order in memory, backwards, and leading axes that no one stride joins.
TEST_P(LinearCrossEntropyLayout, StridesOfTheInput) {
  const Dims dims = {2, 15, 21};
  std::vector<Dims> all = AllPermutedStrides(dims);
  for (const Dims& strides : AllPermutedStrides(dims, 5)) all.push_back(strides);
  for (const Dims& strides :
       {Dims{15 * 42, 42, 1}, Dims{1000, 21, 1}, Dims{1000, 42, 2}, Dims{-315, 21, 1}, Dims{315, -21, -1}})
    all.push_back(strides);
  for (const Dims& strides : all) {
    LinearCrossEntropyProblem problem = dense_;
    problem.input = Relaid(problem.input, strides);
    ExpectSame(problem);
    problem.grad_input = Relaid(problem.grad_input, strides);
    ExpectSame(problem);
  }
}

TEST_P(LinearCrossEntropyLayout, EverythingElseStrided) {
  for (const Dims& strides : {Dims{1, 2}, Dims{45, 3}, Dims{-15, -1}, Dims{100, 4}})
    for (const Reduction reduction : {Reduction::kNone, Reduction::kMean}) {
      LinearCrossEntropyCase c = dense_.c;
      c.reduction = reduction;
      LinearCrossEntropyProblem problem(c);
      BitsByGroup bits;
      ExpectBitsEverywhere(problem, bits);
      std::vector<Tensor*> positions = {&problem.target,  &*problem.token_weight, &*problem.upstream_log_probability,
                                        &problem.lse,     &problem.target_logit,  &problem.log_probability,
                                        &problem.entropy, &problem.argmax,        &*problem.upstream_entropy};
      if (reduction == Reduction::kNone)
        positions.push_back(&problem.loss), positions.push_back(&*problem.upstream_loss);
      for (Tensor* tensor : positions) *tensor = Relaid(*tensor, strides);
      for (Tensor* tensor : {&*problem.bias, &*problem.class_weight, &problem.grad_bias})
        *tensor = Relaid(*tensor, {strides[1]});
      ExpectBitsEverywhere(problem, bits);
      problem.grad_weight = Relaid(problem.grad_weight, {1, 40});
      problem.grad_input = Relaid(problem.grad_input, {1, 2, 31});
      ExpectBitsEverywhere(problem, bits);
    }
}

// As grad.weight is written where it is too large for the caches.
TEST_P(LinearCrossEntropyLayout, OutputsPastTheCaches) {
  LinearCrossEntropyCase c = dense_.c;
  c.positions = {5}, c.H = 200, c.V = 70;
  LinearCrossEntropyProblem problem(c);
  BitsByGroup bits;
  ExpectBitsEverywhere(problem, bits);
  const OutputsPastCaches past;
  ExpectBitsEverywhere(problem, bits);
  for (const Dims& strides : {Dims{208, 1}, Dims{213, 1}, Dims{-208, 1}, Dims{1, 72}}) {
    problem.grad_weight = Relaid(problem.grad_weight, strides);
    ExpectBitsEverywhere(problem, bits);
  }
}

// Strides along axes of one element may be anything.
TEST_P(LinearCrossEntropyLayout, ExtentsOfOne) {
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  for (const std::int64_t N : {5, 40})  // few, and more
    for (const bool one_column : {false, true}) {
      LinearCrossEntropyCase c = dense_.c;
      c.positions = {N}, c.H = one_column ? 1 : 3, c.V = one_column ? 7 : 1;
      LinearCrossEntropyProblem problem(c);
      BitsByGroup bits;
      ExpectBitsEverywhere(problem, bits);
      const Dims matrix = one_column ? Dims{1, kFar} : Dims{-kFar, 1};
      for (Tensor* tensor : {&problem.weight, &problem.grad_weight}) *tensor = Relaid(*tensor, matrix);
      for (Tensor* tensor : {&problem.input, &problem.grad_input})
        if (one_column) *tensor = Relaid(*tensor, {1, kFar});
      for (Tensor* tensor : {&*problem.bias, &*problem.class_weight, &problem.grad_bias})
        if (!one_column) *tensor = Relaid(*tensor, {kFar});
      ExpectBitsEverywhere(problem, bits);
    }
}

// The leading axes joined to one.
TEST_P(LinearCrossEntropyLayout, PositionsOfOneAxis) {
  LinearCrossEntropyCase c = dense_.c;
  c.positions = {30};
  LinearCrossEntropyProblem problem(c);
  ExpectSame(problem);
}

// Old values in their places.
TEST_P(LinearCrossEntropyLayout, AccumulateIntoStrides) {
  LinearCrossEntropyCase c = dense_.c;
  c.accumulate = true;
  LinearCrossEntropyProblem problem(c);
  BitsByGroup bits;
  ExpectBitsEverywhere(problem, bits);
  problem.grad_weight = Relaid(problem.grad_weight, {1, 37});
  problem.grad_input = Relaid(problem.grad_input, {1, 2, -33});
  problem.grad_bias = Relaid(problem.grad_bias, {-3});
  ExpectBitsEverywhere(problem, bits);
}

// One row for all positions, one element for a whole weight: inputs may be expanded.
TEST_P(LinearCrossEntropyLayout, ExpandedInputs) {
  LinearCrossEntropyProblem problem = dense_;
  for (std::int64_t i = 1; i < 30; ++i)
    for (std::int64_t h = 0; h < 21; ++h) problem.input.SetValue(i * 21 + h, problem.input.Value(h));
  for (std::int64_t v = 1; v < 37; ++v) problem.class_weight->SetValue(v, problem.class_weight->Value(0));
  BitsByGroup bits;
  ExpectBitsEverywhere(problem, bits);
  LinearCrossEntropy op = problem.forward();
  op.input.strides = {0, 0, 1};
  op.options.loss.weight->strides = {0};
  OnTargets(op, problem.outputs(), {2},
            [&](const Target& target) { bits.ExpectSame(target, problem.outputs(), kLinearOutputs); });
}

// ---- nothing from nothing

bool PlusZero(const Tensor& tensor) {
  return AllBytes(tensor, std::byte{0});
}

TEST(LinearCrossEntropyProperties, EverythingIgnored) {
  for (const DType input : kGradientDTypes)
    for (const Reduction reduction : kReductions)
      for (const bool zero_if_empty : {false, true})
        for (const bool accumulate : {false, true}) {
          LinearCrossEntropyCase c = WithEverything({.positions = {9}, .H = 5, .V = 7, .input = input});
          c.reduction = reduction, c.zero_if_empty = zero_if_empty, c.accumulate = accumulate, c.ignored = 1;
          LinearCrossEntropyProblem problem(c);
          const LinearCrossEntropyProblem old = problem;
          OnTargets(problem.forward(), problem.outputs(), {1, 2}, [&](const Target&) {
            if (reduction == Reduction::kMean && !zero_if_empty) {
              EXPECT_TRUE(std::isnan(problem.loss.Value(0)));
            } else {
              EXPECT_TRUE(PlusZero(problem.loss));
            }
            for (const Tensor* output : {&problem.lse, &problem.target_logit, &problem.log_probability,
                                         &problem.entropy, &problem.total_weight})
              EXPECT_TRUE(PlusZero(*output));
            EXPECT_TRUE(AllBytes(problem.argmax, std::byte{0xFF})) << "-1";
            for (const auto& [now, before] : {std::pair{&problem.grad_input, &old.grad_input},
                                              {&problem.grad_weight, &old.grad_weight},
                                              {&problem.grad_bias, &old.grad_bias}})
              EXPECT_TRUE(accumulate ? SameBits(*now, before->Bytes()) : ::testing::AssertionResult(PlusZero(*now)));
          });
        }
}

// A batch of none, no columns, no classes; as the formulas have it.
TEST(LinearCrossEntropyProperties, EmptyExtents) {
  for (const DType input : kGradientDTypes)
    for (const Reduction reduction : kReductions)
      for (const bool accumulate : {false, true}) {
        const auto expect = [&](Dims positions, std::int64_t H, std::int64_t V) {
          LinearCrossEntropyCase c =
              WithEverything({.positions = std::move(positions), .H = H, .V = V, .input = input});
          c.reduction = reduction, c.accumulate = accumulate;
          ExpectRightEverywhere(c);
        };
        expect({0}, 5, 7), expect({0}, 5, 1), expect({3, 0, 2}, 5, 7), expect({0}, 0, 0), expect({0}, 5, 0);
        expect({6}, 0, 7), expect({6}, 0, 1), expect({6}, 5, 0), expect({6}, 0, 0);
      }
}

// One class: p = 1, p - 1 = 0 exactly.
TEST(LinearCrossEntropyProperties, OneClass) {
  for (const DType input : kGradientDTypes) {
    LinearCrossEntropyProblem problem({.positions = {9}, .H = 5, .V = 1, .input = input, .bias = true, .r = true});
    OnTargets(problem.forward(), problem.outputs(), {2}, [&](const Target&) {
      EXPECT_EQ(problem.loss.Value(0), 0);
      for (const Tensor* gradient : problem.gradient_tensors())
        for (const double x : gradient->Values()) EXPECT_EQ(x, 0);
    });
  }
}

// ---- NaN

TEST(LinearCrossEntropyProperties, NaNInAPosition) {
  for (const DType input : kGradientDTypes)
    for (const double bad : {kNaN, static_cast<double>(HUGE_VALF)}) {
      LinearCrossEntropyProblem problem({.positions = {20},
                                         .H = 18,
                                         .V = 33,
                                         .input = input,
                                         .reduction = Reduction::kNone,
                                         .ignored = 0,
                                         .h = true});
      BitsByGroup without;
      ExpectBitsEverywhere(problem, without);
      problem.input.SetValue(7 * 18 + 4, bad);
      const std::vector<Tensor*> outputs = problem.outputs();
      OnTargets(problem.forward(), outputs, {1, 3}, [&](const Target& target) {
        const auto& clean = without.Of(target);
        for (std::size_t k = 0; k < kLinearResults + 1; ++k) {
          if (outputs[k] == &problem.argmax || outputs[k] == &problem.total_weight) continue;
          // As it should be: the bits of before, NaN in the place of the position.
          const std::int64_t of_each = outputs[k]->numel() / 20, size = SizeOf(outputs[k]->layout().dtype);
          Tensor want = *outputs[k];
          for (std::int64_t e = 0; e < want.numel(); ++e) want.SetBytes(e, clean[k].data() + e * size);
          for (std::int64_t e = 7 * of_each; e < 8 * of_each; ++e) want.SetValue(e, kNaN);
          // The logit of infinity may be infinity.
          if (std::isinf(bad) && outputs[k] == &problem.target_logit) want.SetValue(7, outputs[k]->Value(7));
          EXPECT_TRUE(SameBits(*outputs[k], want.Bytes())) << kLinearOutputs[k];
        }
        for (std::int64_t i = 0; i < 20; ++i)
          if (i != 7 || std::isnan(bad)) {
            std::int64_t before;
            std::memcpy(&before, clean[5].data() + 8 * i, 8);
            EXPECT_EQ(problem.argmax.Get<std::int64_t>(i), i == 7 ? 0 : before) << "the first NaN";
          }
        for (const Tensor* gradient : {&problem.grad_weight, &problem.grad_bias})
          for (const double x : gradient->Values()) ASSERT_TRUE(std::isnan(x));
      });
    }
}

// NaN in a row that does not count, and in what is upstream of it, changes nothing.
TEST(LinearCrossEntropyProperties, NaNInIgnoredPositions) {
  for (const DType input : kGradientDTypes)
    for (const Reduction reduction : kReductions) {
      LinearCrossEntropyCase c = WithEverything({.positions = {40}, .H = 18, .V = 70, .input = input});
      c.reduction = reduction, c.ignored = 0.3;
      LinearCrossEntropyProblem problem(c);
      BitsByGroup bits;
      ExpectBitsEverywhere(problem, bits);
      for (std::int64_t i = 0; i < 40; ++i) {
        if (problem.target.Get<std::int64_t>(i) != c.ignore_index) continue;
        for (std::int64_t h = 0; h < 18; ++h) problem.input.SetValue(i * 18 + h, h % 3 == 0 ? HUGE_VAL : kNaN);
        for (Tensor* tensor : {&*problem.token_weight, &*problem.upstream_log_probability, &*problem.upstream_entropy})
          tensor->SetValue(i, kNaN);
        if (reduction == Reduction::kNone) problem.upstream_loss->SetValue(i, kNaN);
      }
      ExpectBitsEverywhere(problem, bits);
      OnTargets(problem.forward(), problem.outputs(), {2}, [&](const Target&) {
        for (std::int64_t i = 0; i < 40; ++i)
          for (std::int64_t h = 0; h < 18 && problem.target.Get<std::int64_t>(i) == c.ignore_index; ++h)
            ASSERT_EQ(problem.grad_input.Value(i * 18 + h), 0);
      });
    }
}

}  // namespace
}  // namespace onehot::test
