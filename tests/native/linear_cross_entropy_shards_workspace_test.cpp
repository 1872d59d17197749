// max_workspace: which order is taken and how much scratch it needs, never what comes out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/native/linear_cross_entropy_shards_cases.h"

namespace onehot::test {
namespace {

using Workspace = std::optional<std::int64_t>;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::string Describe(const Workspace& workspace) {
  return workspace ? "max_workspace " + std::to_string(*workspace) : "no max_workspace";
}

template <class Op>
std::int64_t ScratchOf(const Target& target, Op op, const Workspace& workspace) {
  op.options.max_workspace = workspace;
  const Result<Plan> plan = PrepareOn(target, op);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? static_cast<std::int64_t>(plan->scratch_bytes()) : -1;
}

// How many products there are, which the order starts with.
template <class Op>
std::string OrderOf(const Target& target, Op op, const Workspace& workspace) {
  op.options.max_workspace = workspace;
  const Result<Plan> plan = PrepareOn(target, op);
  return plan.ok() ? std::string(plan->order().substr(0, 1)) : "";
}

// 520 positions are more than twice those that three products of f32 need; 1100 classes end in the second block of 1024.
// Logits of all are 2.18 MiB, of 220 positions 0.92 MiB.
constexpr std::int64_t kN = 520, kH = 9, kV = 1100;

LinearCrossEntropyCase LargeCase(DType input, bool f32_gradients, bool accumulate) {
  LinearCrossEntropyCase c = WithEverything({.positions = {kN}, .H = kH, .V = kV, .input = input});
  if (f32_gradients && SizeOf(input) == 2) c.gradient = DType::kF32;
  c.accumulate = accumulate;
  return c;
}

// None; least; less than anything needs; between what the orders need, with chunks of several sizes; more than all.
// Few of them for ref and for the instruction sets below the best, which may be slow without FMA.
std::vector<Workspace> WorkspacesFor(const Target& target, DType input) {
  if (target.is_ref()) return {std::nullopt, 0};
  if (target.instruction_set != InstructionSets().front())
    return SizeOf(input) == 2 ? std::vector<Workspace>{} : std::vector<Workspace>{0, kMiB * 3 / 2};
  return {
      std::nullopt,         0, 1, 4096, kMiB / 2, kMiB, kMiB * 5 / 4, kMiB * 3 / 2, kMiB * 7 / 4, 2 * kMiB, 3 * kMiB,
      std::int64_t{1} << 40};
}

// The same bits for every max_workspace and number of threads, and no more scratch than that where 0 does not take more.
template <class Op>
void ExpectSameForEveryWorkspace(const Op& op, const std::vector<Tensor*>& outputs, const char* const* names) {
  std::vector<Tensor> old;
  for (const Tensor* output : outputs) old.push_back(*output);
  BitsByGroup bits;
  for (const Target& target : Targets<Op>()) {
    if (!Takes(target, op)) continue;
    for (const Workspace& workspace : WorkspacesFor(target, op.input.dtype)) {
      Op limited = op;
      limited.options.max_workspace = workspace;
      if (workspace) {
        EXPECT_LE(ScratchOf(target, op, workspace), std::max(*workspace, ScratchOf(target, op, 0))) << target.name();
      }
      for (const int threads : workspace == kMiB ? std::vector<int>{1, 2, 3} : std::vector<int>{1}) {
        SCOPED_TRACE(target.name() + " " + Describe(workspace) + " threads " + std::to_string(threads));
        for (std::size_t k = 0; k < outputs.size(); ++k) *outputs[k] = old[k];
        EXPECT_OK(RunOn(target, limited, WithThreads(threads)));
        bits.ExpectSame(target, outputs, names);
        for (const Tensor* output : outputs) EXPECT_TRUE(output->GapsUntouched());
      }
    }
  }
  for (std::size_t k = 0; k < outputs.size(); ++k) *outputs[k] = old[k];
}

TEST(LinearCrossEntropyWorkspace, NeverChangesBits) {
  for (const auto& [input, f32_gradients] : {std::pair{DType::kF32, true},
                                             {DType::kBF16, true},
                                             {DType::kBF16, false},
                                             {DType::kF16, true},
                                             {DType::kF16, false}})
    for (const bool accumulate : {false, true}) {
      if (input == DType::kF16 && f32_gradients == accumulate) continue;  // as bf16
      LinearCrossEntropyProblem problem(LargeCase(input, f32_gradients, accumulate));
      SCOPED_TRACE(problem.c.Describe());
      ExpectSameForEveryWorkspace(problem.forward(), problem.outputs(), kLinearOutputs);
      ExpectSameForEveryWorkspace(problem.backward(), problem.gradient_tensors(), kLinearOutputs + kLinearResults);
    }
}

// Products of bf16 take 440 positions at least: more than twice that, with their last group and its last pair ragged.
TEST(LinearCrossEntropyWorkspace, NeverChangesBitsOfGroupsOfBf16) {
  for (const bool f32_gradients : {false, true}) {
    LinearCrossEntropyCase c = LargeCase(DType::kBF16, f32_gradients, f32_gradients);
    const std::int64_t N = 1021, position = 4 * 2203;
    c.positions = {N}, c.V = 2203;
    LinearCrossEntropyProblem problem(c);
    for (const Target& target : Targets<LinearCrossEntropy>()) {
      if (target.implementation != "cpu:bf16" || !Takes(target, problem.forward())) continue;
      SCOPED_TRACE(target.name());
      BitsByGroup bits;
      const std::vector<Tensor*> outputs = problem.outputs();
      const LinearCrossEntropyProblem old = problem;
      // Room for the logits of some positions, not of all; beside them 8 CPUs have 400 KB each.
      const std::int64_t room = 460 * position + (f32_gradients ? 0 : 4 * c.V * c.H) + 4 * kMiB;
      ASSERT_LT(room, N * position);
      EXPECT_EQ(OrderOf(target, problem.forward(), room), "3");
      EXPECT_EQ(OrderOf(target, problem.forward(), 0), "4");
      for (const Workspace& workspace : {Workspace(), {0}, {3 * kMiB}, {room}, {std::int64_t{1} << 40}}) {
        SCOPED_TRACE(Describe(workspace));
        LinearCrossEntropy op = problem.forward();
        op.options.max_workspace = workspace;
        for (const int threads : {1, 3}) {
          LinearCrossEntropyProblem clean = old;
          for (std::size_t k = 0; k < outputs.size(); ++k) *outputs[k] = *clean.outputs()[k];
          EXPECT_OK(RunOn(target, op, WithThreads(threads)));
          bits.ExpectSame(target, outputs, kLinearOutputs);
        }
      }
    }
  }
}

// Beyond kGatherTokens grad_weight copies its columns of the gradients, unless logits of all classes are kept. More tokens
// than that are not ignored, in three slices; all classes end in the second part of rows, columns in the second panel.
TEST(LinearCrossEntropyWorkspace, NeverChangesBitsOfManyTokens) {
  for (const DType input : {DType::kF32, DType::kF16}) {
    LinearCrossEntropyCase c = LargeCase(input, true, input == DType::kF16);
    c.positions = {1500}, c.H = 70, c.V = 130;
    c.h = false;
    LinearCrossEntropyProblem problem(c);
    const std::vector<Tensor*> outputs = problem.gradient_tensors();
    const auto expect_same = [&](auto op, const std::vector<Workspace>& workspaces) {
      BitsByGroup bits;
      for (const Workspace& workspace : workspaces) {
        SCOPED_TRACE(Describe(workspace));
        op.options.max_workspace = workspace;
        OnTargets(op, outputs, {1, 3},
                  [&](const Target& target) { bits.ExpectSame(target, outputs, kLinearOutputs + kLinearResults); });
      }
    };
    expect_same(problem.forward(), {std::int64_t{1} << 40, 0});  // all logits are kept, and not
    // With statistics to make it would keep logits. Any log-sum-exp will do.
    Tensor lse(DType::kF32, c.positions);
    lse.SetAll(std::vector<double>(1500, 5));
    LinearCrossEntropyBackward backward = problem.backward();
    backward.lse = std::as_const(lse).view();
    expect_same(backward, {std::nullopt, 0});  // one chunk of classes, and three
  }
}

// f64, which ref alone takes.
TEST(LinearCrossEntropyWorkspace, NeverChangesBitsOfF64) {
  LinearCrossEntropyCase c = LargeCase(DType::kF64, false, true);
  c.positions = {40};
  LinearCrossEntropyProblem problem(c);
  ExpectSameForEveryWorkspace(problem.forward(), problem.outputs(), kLinearOutputs);
  ExpectSameForEveryWorkspace(problem.backward(), problem.gradient_tensors(), kLinearOutputs + kLinearResults);
}

TEST(LinearCrossEntropyWorkspace, NeverChangesBitsOfSubsets) {
  for (const DType input : {DType::kF32, DType::kBF16}) {
    LinearCrossEntropyProblem problem(LargeCase(input, false, false));
    for (unsigned subset = 1; subset < 8; ++subset) {
      LinearCrossEntropy op = problem.forward();
      if ((subset & 1) == 0) op.grad.input = std::nullopt;
      if ((subset & 2) == 0) op.grad.weight = std::nullopt;
      if ((subset & 4) == 0) op.grad.bias = std::nullopt;
      SCOPED_TRACE("gradients " + std::to_string(subset));
      ExpectSameForEveryWorkspace(op, problem.outputs(), kLinearOutputs);
    }
  }
}

// And of shards.
TEST(LinearCrossEntropyWorkspace, NeverChangesBitsOfShards) {
  for (const DType input : {DType::kF32, DType::kBF16}) {
    ShardedProblem problem(LargeCase(input, false, false), {100, kV - 101, 1});
    ExpectSameForEveryWorkspace(problem.statistics(1), problem.shards[1].statistics(), kStatistics);
    for (std::size_t s = 0; s < 3; ++s) EXPECT_OK(RunLike({}, problem.statistics(s)));
    problem.Fold();
    EXPECT_OK(RunLike({}, problem.loss()));
    problem.lse = problem.whole.lse, problem.entropy = problem.whole.entropy;
    const std::vector<Tensor*> gradients = {&problem.shards[1].grad_input, &problem.whole.grad_weight,
                                            &problem.whole.grad_bias};
    for (const Given given : {Given::kMaxAndSum, Given::kLse})
      ExpectSameForEveryWorkspace(problem.backward(1, given), gradients, kLinearOutputs + kLinearResults);
  }
}

// ---- how much there is

LinearCrossEntropyCase OfScratch(DType input, std::int64_t N, std::int64_t V, bool f32_gradients) {
  LinearCrossEntropyCase c{.positions = {N}, .H = 16, .V = V, .input = input};
  if (f32_gradients && SizeOf(input) == 2) c.gradient = DType::kF32;
  return c;
}

// Both orders are there: the logits of some 220 positions with all classes, 440 for products of bf16, and with 16-bit
// gradients a copy in f32 of that of the weight, are in scratch where they fit, and not where they do not.
TEST(LinearCrossEntropyWorkspace, BothOrdersAreTaken) {
  const std::int64_t N = 900, V = 60000, H = 16;  // which are 4 times 225 or 2 times 450
  for (const DType input : {DType::kF32, DType::kBF16, DType::kF16})
    for (const bool f32_gradients : {false, true}) {
      LinearCrossEntropyProblem problem(OfScratch(input, N, V, f32_gradients));
      SCOPED_TRACE(problem.c.Describe());
      const bool copies = SizeOf(input) == 2 && !f32_gradients;
      const std::int64_t position = 4 * V, copy = copies ? 4 * V * H : 0, rows = 2 * 4 * N * H;
      for (const Target& target : Targets<LinearCrossEntropy>()) {
        if (target.is_ref() || !Takes(target, problem.forward())) continue;
        SCOPED_TRACE(target.name());
        const std::int64_t four = ScratchOf(target, problem.forward(), 0);
        EXPECT_LT(four, 128 * position);
        EXPECT_EQ(ScratchOf(target, problem.forward(), four), four) << "enough for four products";
        // "Some 220" is nearer to 220 than 200 and 240 are, and the same for 440.
        const std::int64_t some = ProductsOf(target) == Products::kBF16 ? 440 : 220;
        // What is packed at this H, for half the positions. For products of bf16 alpha du is, too: 1024 classes of 2
        // bytes are 1 MiB for them.
        const std::int64_t packed = some == 440 ? 3 * kMiB : kMiB;
        const std::int64_t little = (some - 20) * position + copy, room = (some + 20) * position + copy + rows + packed;
        EXPECT_LT(ScratchOf(target, problem.forward(), little), 128 * position) << "too little for three products";
        const std::int64_t three = ScratchOf(target, problem.forward(), room);
        EXPECT_GE(three, (some - 20) * position + copy) << "room for three products";
        EXPECT_LE(three, room);
        for (const std::int64_t limit : {std::int64_t{0}, four, little})
          EXPECT_EQ(OrderOf(target, problem.forward(), limit), "4") << limit;
        for (const std::int64_t limit : {room, std::int64_t{1} << 40})
          EXPECT_EQ(OrderOf(target, problem.forward(), limit), "3") << limit;
        // All positions at one time need no copy.
        const std::int64_t most = ScratchOf(target, problem.forward(), std::int64_t{1} << 40);
        EXPECT_GE(most, N * position);
        EXPECT_LE(most, N * position + rows + 2 * packed);
        // The loss alone has no use for three.
        LinearCrossEntropy loss = problem.forward();
        loss.grad = {};
        EXPECT_LT(ScratchOf(target, loss, std::int64_t{1} << 40), 128 * position);
      }
    }
}

// Fewer positions are enough where there are no more.
TEST(LinearCrossEntropyWorkspace, FewPositions) {
  const std::int64_t N = 40, V = 60000;
  LinearCrossEntropyProblem problem(OfScratch(DType::kF32, N, V, false));
  for (const Target& target : Targets<LinearCrossEntropy>()) {
    if (target.is_ref() || !Takes(target, problem.forward())) continue;
    EXPECT_LT(ScratchOf(target, problem.forward(), 0), N * 4 * V) << target.name();
    EXPECT_GE(ScratchOf(target, problem.forward(), std::int64_t{1} << 40), N * 4 * V) << target.name();
    EXPECT_EQ(OrderOf(target, problem.forward(), 0), "4") << target.name();
    EXPECT_EQ(OrderOf(target, problem.forward(), std::int64_t{1} << 40), "3") << target.name();
  }
}

// Not given, three products are taken where they fit in the larger of 64 MiB and an eighth of logits and gradient.
TEST(LinearCrossEntropyWorkspace, NotGiven) {
  for (const DType input : {DType::kF32, DType::kBF16})
    for (const auto& [N, V] :
         {std::pair<std::int64_t, std::int64_t>{2000, 200000}, {2000, 20000}, {100, 200000}, {7, 5}}) {
      LinearCrossEntropyProblem problem(OfScratch(input, 1, V, false));
      LinearCrossEntropy op = problem.forward();
      // Plans read shapes, not data.
      op.input = ConstTensorView(op.input.data, input, {N, 16});
      op.target = ConstTensorView(op.target.data, DType::kI64, {N});
      op.grad.input = TensorView(op.grad.input->data, input, {N, 16});
      op.lse = op.target_logit = op.log_probability = op.entropy = op.argmax = std::nullopt;
      const std::int64_t most = std::max(64 * kMiB, 2 * N * V * SizeOf(input) / 8);
      for (const Target& target : Targets<LinearCrossEntropy>()) {
        if (!Takes(target, op)) continue;
        EXPECT_LE(ScratchOf(target, op, std::nullopt), most) << target.name() << " N " << N << " V " << V;
        EXPECT_EQ(OrderOf(target, op, std::nullopt), OrderOf(target, op, most)) << target.name();
      }
    }
}

// More room never means less scratch used badly: what fits in a limit fits in a larger one.
TEST(LinearCrossEntropyWorkspace, IsALimit) {
  for (const DType input : {DType::kF32, DType::kBF16})
    for (const std::int64_t N : {20, 700})
      for (const double skip_below : {0.0, 1e-6}) {
        LinearCrossEntropyProblem problem(OfScratch(input, N, 30000, false));
        LinearCrossEntropy forward = problem.forward();
        LinearCrossEntropyBackward backward = problem.backward();
        forward.options.skip_below = backward.options.skip_below = skip_below;
        for (const Target& target : Targets<LinearCrossEntropy>()) {
          if (!Takes(target, forward)) continue;
          SCOPED_TRACE(target.name() + ", " + problem.c.Describe());
          const std::int64_t least = ScratchOf(target, forward, 0), least_backward = ScratchOf(target, backward, 0);
          for (std::int64_t limit = 1; limit < std::int64_t{1} << 28; limit += limit / 7 + 1) {
            EXPECT_LE(ScratchOf(target, forward, limit), std::max(limit, least)) << limit;
            EXPECT_LE(ScratchOf(target, backward, limit), std::max(limit, least_backward)) << limit;
          }
        }
      }
}

// What is not asked for takes no scratch: the header's parts are the input, grad.input and logits.
TEST(LinearCrossEntropyWorkspace, GradientsThatAreNotAskedFor) {
  const std::int64_t N = 3000, H = 256, V = 1000;
  LinearCrossEntropyCase c{.positions = {N}, .H = H, .V = V};
  LinearCrossEntropyProblem problem(c);
  for (const Target& target : Targets<LinearCrossEntropy>()) {
    if (target.is_ref() || !Takes(target, problem.forward())) continue;
    LinearCrossEntropy op = problem.forward();
    const std::int64_t all = ScratchOf(target, op, 0);
    op.grad.input = std::nullopt;
    EXPECT_LE(ScratchOf(target, op, 0), all) << target.name();
    op.grad = {};
    EXPECT_LE(ScratchOf(target, op, 0), all) << target.name();
  }
}

}  // namespace
}  // namespace onehot::test
