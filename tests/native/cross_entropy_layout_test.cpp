// Wherever elements lie in memory, and whatever is asked for beside: the same bits.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/native/cross_entropy_cases.h"
#include "tests/native/cross_entropy_oracle.h"
#include "tests/native/strides.h"

namespace onehot::test {
namespace {

constexpr const char* kOutputs[] = {"loss", "lse", "log_probability", "entropy", "argmax", "total_weight"};

// The bits that every target gives for the problem as it is, ref apart from the others: what the same problem has to
// give in other layouts.
struct Results {
  std::vector<std::byte> outputs[6], out, out_with_lse;
};
class PerTarget {
 public:
  explicit PerTarget(CrossEntropyProblem& problem) {
    OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target& target) {
      for (std::size_t k = 0; k < 6; ++k) Of(target).outputs[k] = problem.outputs()[k]->Bytes();
    });
    OnTargets(problem.backward(), {&problem.out}, {1},
              [&](const Target& target) { Of(target).out = problem.out.Bytes(); });
    Tensor lse = problem.lse;
    CrossEntropyBackward op = problem.backward();
    op.lse = ConstTensorView(lse.view());
    OnTargets(op, {&problem.out}, {1}, [&](const Target& target) {
      const std::vector<std::byte>& given = Of(target).outputs[1];
      for (std::int64_t i = 0; i < lse.numel(); ++i) lse.SetBytes(i, given.data() + i * SizeOf(lse.layout().dtype));
      EXPECT_OK(RunOn(target, op));
      Of(target).out_with_lse = problem.out.Bytes();
    });
  }
  Results& Of(const Target& target) { return target.is_ref() ? ref_ : others_; }

  void ExpectSame(CrossEntropyProblem& problem, const std::vector<int>& threads = {2}) {
    OnTargets(problem.forward(), problem.outputs(), threads, [&](const Target& target) {
      for (std::size_t k = 0; k < 6; ++k)
        EXPECT_TRUE(SameBits(*problem.outputs()[k], Of(target).outputs[k])) << kOutputs[k];
    });
    ExpectSameGradient(problem, problem.backward(), threads);
  }
  void ExpectSameGradient(CrossEntropyProblem& problem, const CrossEntropyBackward& op,
                          const std::vector<int>& threads = {2}) {
    OnTargets(op, {&problem.out}, threads,
              [&](const Target& target) { EXPECT_TRUE(SameBits(problem.out, Of(target).out)) << "out"; });
  }

 private:
  Results ref_, others_;
};

TEST(CrossEntropyLayout, AllPermutationsOfAPicture) {
  for (const DType input : {DType::kF32, DType::kBF16})
    for (int axis = 0; axis < 4; ++axis) {
      CrossEntropyCase c = WithEverything({.dims = {2, 5, 3, 7}, .class_axis = axis - 4, .input = input});
      CrossEntropyProblem problem(c);
      PerTarget want(problem);
      for (const std::int64_t gap : {0, 3}) {
        const std::vector<Dims> all = AllPermutedStrides(c.dims, gap);
        for (std::size_t k = 0; k < all.size(); ++k) {
          SCOPED_TRACE(c.Describe() + " gap " + std::to_string(gap) + " permutation " + std::to_string(k));
          problem.RelayInput(all[k]);
          problem.RelayOut(all[(k * 7 + 5) % all.size()]);  // 7 and 24 have no factor in common: another one each time
          want.ExpectSame(problem);
          problem.RelayOut(all[k]);
          want.ExpectSameGradient(problem, problem.backward());
        }
      }
    }
}

// Enough classes and positions for whole vectors and blocks.
TEST(CrossEntropyLayout, LargerPermutations) {
  for (const DType input : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    for (const Dims& dims : {Dims{3, 33, 5, 35}, Dims{2, 1030, 3, 5}}) {
      CrossEntropyProblem problem({.dims = dims, .input = input, .z_loss = 1e-3});
      PerTarget want(problem);
      // channels_last, classes outermost, and the last two axes exchanged
      for (const std::vector<std::size_t>& order :
           {std::vector<std::size_t>{0, 2, 3, 1}, {1, 0, 2, 3}, {0, 1, 3, 2}, {3, 1, 2, 0}}) {
        SCOPED_TRACE(problem.c.Describe() + " order " + std::to_string(order[0]) + std::to_string(order[1]) +
                     std::to_string(order[2]) + std::to_string(order[3]));
        problem.RelayInput(PermutedStrides(dims, order));
        problem.RelayOut(PermutedStrides(dims, order));
        want.ExpectSame(problem, {1, 3});
        problem.RelayOut(DenseStrides(dims));
        want.ExpectSameGradient(problem, problem.backward());
      }
    }
}

TEST(CrossEntropyLayout, Rows) {
  for (const DType input : {DType::kF32, DType::kBF16})
    for (const Dims& dims : {Dims{13, 67}, Dims{67, 3}}) {
      CrossEntropyProblem problem(WithEverything({.dims = dims, .input = input, .reduction = Reduction::kNone}));
      PerTarget want(problem);
      for (const Form form : kForms)
        for (const Form out : {Form::kDense, form, Form::kAllBackwards}) {
          SCOPED_TRACE(problem.c.Describe() + " form " + std::to_string(static_cast<int>(form)) + ", out " +
                       std::to_string(static_cast<int>(out)));
          problem.RelayInput(StridesOf(form, dims[0], dims[1]));
          problem.RelayOut(StridesOf(out, dims[0], dims[1]));
          want.ExpectSame(problem);
        }
    }
}

// Inputs may be expanded: one row of logits for all positions.
TEST(CrossEntropyLayout, ExpandedLogits) {
  CrossEntropyProblem problem({.dims = {9, 40}, .weight = true});
  for (std::int64_t k = 40; k < 360; ++k) problem.input.SetValue(k, problem.input.Value(k - 40));
  PerTarget want(problem);
  Tensor row(DType::kF32, {40});
  for (std::int64_t v = 0; v < 40; ++v) row.SetValue(v, problem.input.Value(v));
  for (const Target& target : Targets<CrossEntropyBackward>()) {
    CrossEntropyBackward op = problem.backward();
    op.input.data = row.view().data;
    op.input.strides = {0, 1};
    if (!Takes(target, op)) continue;
    SCOPED_TRACE(target.name());
    EXPECT_OK(RunOn(target, op));
    EXPECT_TRUE(SameBits(problem.out, want.Of(target).out));
  }
}

// Everything that has one element per position or per class, at strides of its own.
TEST(CrossEntropyLayout, StridesOfEverythingElse) {
  const Dims dims = {3, 34, 5, 7}, positions = {3, 5, 7};
  for (const Reduction reduction : kReductions) {
    CrossEntropyProblem problem(WithEverything({.dims = dims, .target = DType::kI32, .reduction = reduction}));
    PerTarget want(problem);
    const auto relay = [](Tensor& tensor, const Dims& strides) {
      tensor = CrossEntropyProblem::Relaid(tensor, strides);
    };
    const std::vector<Dims> layouts = {PermutedStrides(positions, {2, 0, 1}, 1), Reversed(DenseStrides(positions), 5),
                                       PermutedStrides(positions, {1, 2, 0}, 0), Dims{70, 14, 2}};
    for (std::size_t k = 0; k < layouts.size(); ++k) {
      SCOPED_TRACE(k);
      relay(problem.target, layouts[k]);
      relay(*problem.token_weight, layouts[(k + 1) % layouts.size()]);
      relay(problem.lse, layouts[(k + 2) % layouts.size()]);
      relay(problem.log_probability, layouts[(k + 3) % layouts.size()]);
      relay(problem.entropy, layouts[k]);
      relay(problem.argmax, layouts[(k + 2) % layouts.size()]);
      relay(*problem.grad_log_probability, layouts[(k + 1) % layouts.size()]);
      relay(*problem.grad_entropy, layouts[k]);
      relay(*problem.weight, {k % 2 == 0 ? std::int64_t{3} : std::int64_t{-1}});
      if (reduction == Reduction::kNone) {
        relay(problem.loss, layouts[(k + 1) % layouts.size()]);
        relay(*problem.grad_loss, layouts[(k + 2) % layouts.size()]);
      }
      want.ExpectSame(problem);
      // lse as an input, also strided.
      CrossEntropyBackward op = problem.backward();
      op.lse = std::as_const(problem.lse).view();
      const CrossEntropy forward = problem.forward();
      OnTargets(op, {&problem.out}, {1}, [&](const Target& target) {
        if (target.is_ref()) return;
        EXPECT_OK(RunOn(target, forward));
        EXPECT_OK(RunOn(target, op));
        EXPECT_TRUE(SameBits(problem.out, want.Of(target).out_with_lse));
      });
    }
  }
}

// One element: any rank will do.
TEST(CrossEntropyLayout, RanksOfOneElement) {
  CrossEntropyProblem problem({.dims = {5, 9}, .denominator = true});
  PerTarget want(problem);
  problem.loss = Tensor(DType::kF32, {1});
  problem.total_weight = Tensor(DType::kF32, {1, 1, 1});
  problem.denominator = CrossEntropyProblem::Relaid(*problem.denominator, {});
  Tensor denominator(DType::kF64, {1, 1}), grad(DType::kF32, {1});
  denominator.SetValue(0, problem.denominator->Value(0));
  grad.SetValue(0, problem.grad_loss->Value(0));
  problem.denominator = denominator, problem.grad_loss = grad;
  want.ExpectSame(problem);
}

// [C] and [].
TEST(CrossEntropyLayout, OnePosition) {
  for (const int axis : {1, 0, -1, 5})
    for (const std::int64_t C : {1, 2, 37, 3000})
      for (const Reduction reduction : kReductions) {
        CrossEntropyProblem problem(
            WithEverything({.dims = {C}, .class_axis = axis, .reduction = reduction, .ignored = 0}));
        ExpectRightEverywhere(problem);
        PerTarget want(problem);
        problem.RelayInput({2});
        problem.RelayOut({-3});
        want.ExpectSame(problem);
      }
}

// The same address and strides: the gradient replaces the logits.
TEST(CrossEntropyLayout, InPlace) {
  for (const DType input : kGradientDTypes)
    for (const bool everything : {false, true})
      for (const Dims& dims : {Dims{7, 1030}, Dims{300, 5}, Dims{2, 67, 3, 11}, Dims{3, 1025, 21}}) {
        CrossEntropyCase c{.dims = dims, .input = input, .label_smoothing = 0.1, .h = true};
        if (everything) c = WithEverything(c);
        CrossEntropyProblem problem(c);
        PerTarget want(problem);
        const std::vector<std::size_t> last = dims.size() == 4   ? std::vector<std::size_t>{0, 2, 3, 1}
                                              : dims.size() == 3 ? std::vector<std::size_t>{0, 2, 1}
                                                                 : std::vector<std::size_t>{1, 0};
        for (const bool permuted : {false, true}) {
          if (permuted) problem.RelayInput(PermutedStrides(dims, last, 1));
          for (const bool with_lse : {false, true}) {
            SCOPED_TRACE(c.Describe() + (permuted ? " permuted" : "") + (with_lse ? " with lse" : ""));
            Tensor logits = problem.input;
            CrossEntropyBackward op = problem.backward();
            op.out = logits.view();
            op.input = ConstTensorView(logits.view());
            for (const Target& target : Targets<CrossEntropyBackward>()) {
              if (!Takes(target, op)) continue;
              SCOPED_TRACE(target.name());
              for (const int threads : {1, 3}) {
                logits = problem.input;
                if (with_lse) {
                  if (target.is_ref()) continue;
                  EXPECT_OK(RunOn(target, problem.forward()));
                  op.lse = std::as_const(problem.lse).view();
                }
                EXPECT_OK(RunOn(target, op, WithThreads(threads)));
                EXPECT_TRUE(SameBits(logits, with_lse ? want.Of(target).out_with_lse : want.Of(target).out));
                EXPECT_TRUE(logits.GapsUntouched());
              }
            }
          }
        }
      }
}

// Every subset of the outputs: those asked for have the bits of the full run, and inputs are left alone.
TEST(CrossEntropyLayout, EveryOutputAloneAndTogether) {
  for (const Dims& dims : {Dims{11, 1030}, Dims{3, 21, 17}, Dims{150, 3}})
    for (const bool everything : {false, true})
      for (const Reduction reduction : {Reduction::kMean, Reduction::kNone}) {
        CrossEntropyCase c{.dims = dims, .reduction = reduction};
        if (everything) c = WithEverything(c);
        CrossEntropyProblem problem(c);
        PerTarget want(problem);
        const Buffer input = problem.input.buffer(), targets = problem.target.buffer();
        for (unsigned subset = 0; subset < 64; ++subset) {
          SCOPED_TRACE(c.Describe() + " outputs " + std::to_string(subset));
          CrossEntropy op = problem.forward();
          if ((subset & 1) == 0) op.loss.reset();
          if ((subset & 2) == 0) op.lse.reset();
          if ((subset & 4) == 0) op.log_probability.reset();
          if ((subset & 8) == 0) op.entropy.reset();
          if ((subset & 16) == 0) op.argmax.reset();
          if ((subset & 32) == 0) op.total_weight.reset();
          std::vector<Buffer> before;
          for (const Tensor* output : problem.outputs()) before.push_back(output->buffer());
          OnTargets(op, problem.outputs(), {2}, [&](const Target& target) {
            for (std::size_t k = 0; k < 6; ++k) {
              const Tensor& output = *problem.outputs()[k];
              if ((subset >> k & 1u) != 0) {
                EXPECT_TRUE(SameBits(output, want.Of(target).outputs[k])) << kOutputs[k];
              } else {
                EXPECT_TRUE(output.buffer() == before[k]) << kOutputs[k] << " was written";
              }
            }
          });
        }
        EXPECT_TRUE(problem.input.buffer() == input);
        EXPECT_TRUE(problem.target.buffer() == targets);
      }
}

// Scratch at any alignment, a plan run again, and outputs left over from another run.
TEST(CrossEntropyLayout, ScratchAndRepeats) {
  CrossEntropyProblem problem(WithEverything({.dims = {41, 70}, .input = DType::kBF16}));
  PerTarget want(problem);
  for (const Target& target : Targets<CrossEntropyBackward>()) {
    if (!Takes(target, problem.backward())) continue;
    SCOPED_TRACE(target.name());
    Result<Plan> plan = PrepareOn(target, problem.backward());
    ASSERT_TRUE(plan.ok());
    for (const std::size_t shift : {0, 1, 2, 3, 4, 8, 33, 64}) {
      EXPECT_OK(RunHostile(*plan, WithThreads(2), shift));
      EXPECT_TRUE(SameBits(problem.out, want.Of(target).out));
    }
    EXPECT_OK(plan->Run());
    EXPECT_TRUE(SameBits(problem.out, want.Of(target).out));
  }
  for (const Target& target : Targets<CrossEntropy>()) {
    if (!Takes(target, problem.forward())) continue;
    SCOPED_TRACE(target.name());
    Result<Plan> plan = PrepareOn(target, problem.forward());
    ASSERT_TRUE(plan.ok());
    for (const std::size_t shift : {0, 1, 2, 3, 4, 8, 33, 64}) {
      EXPECT_OK(RunHostile(*plan, WithThreads(2), shift));
      for (std::size_t k = 0; k < 6; ++k)
        EXPECT_TRUE(SameBits(*problem.outputs()[k], want.Of(target).outputs[k])) << kOutputs[k];
    }
  }
}

}  // namespace
}  // namespace onehot::test
