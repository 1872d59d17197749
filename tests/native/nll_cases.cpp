#include "tests/native/nll_cases.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/native/nll_oracle.h"

namespace onehot::test {
namespace {

std::string Show(const std::optional<DType>& dtype) {
  return dtype ? std::string(Name(*dtype)) : std::string("-");
}

std::string Show(const Dims& dims) {
  std::string text = "[";
  for (const std::int64_t extent : dims) text += std::to_string(extent) + ' ';
  return text + "]";
}

Tensor Strided(DType dtype, const Dims& dims, const Dims& strides, Placed placed) {
  return Tensor(dtype, dims, strides.empty() ? DenseStrides(dims) : strides, placed);
}

Tensor Filled(DType dtype, const Dims& dims, std::uint64_t seed) {
  Tensor tensor(dtype, dims);
  FillGradient(tensor, seed);
  return tensor;
}

// What both directions have: weights and options.
template <class Problem>
void FillShared(Problem& problem, const NllCase& c, const Dims& positions, std::int64_t C, std::uint64_t seed) {
  TargetsLike like = c.like;
  like.ignore_index = c.ignore_index;
  FillTargets(problem.target, C, like, seed);
  if (c.weight) problem.weight = Filled(*c.weight, {C}, seed + 11);
  if (c.token_weight) problem.token_weight = Filled(*c.token_weight, positions, seed + 12);
  problem.options.reduction = c.reduction;
  problem.options.ignore_index = c.ignore_index;
  problem.options.class_axis = c.class_axis;
}

std::int64_t ClassesOf(const NllCase& c) {
  const int axis = c.dims.size() == 1 ? 0 : c.class_axis;
  return c.dims[axis < 0 ? c.dims.size() - static_cast<std::size_t>(-axis) : static_cast<std::size_t>(axis)];
}

}  // namespace

std::string NllCase::Describe() const {
  std::ostringstream text;
  text << Show(dims) << " class_axis " << class_axis << ' ' << Name(dtype) << " target " << Name(target) << ' '
       << Name(reduction) << " result " << Show(result) << " weight " << Show(weight) << " token_weight "
       << Show(token_weight) << " denominator " << Show(denominator) << " total_weight " << Show(total_weight)
       << " ignore_index " << ignore_index << " zero_if_empty " << zero_if_empty << " accumulate " << accumulate
       << " compact " << compact << " strides " << Show(strides) << " of target " << Show(target_strides);
  return text.str();
}

NllLoss NllProblem::op() {
  NllLoss op = options;
  op.input = input.view(), op.target = target.view(), op.loss = loss.view();
  if (total_weight) op.total_weight = total_weight->view();
  if (weight) op.weight = weight->view();
  if (token_weight) op.token_weight = token_weight->view();
  if (denominator) op.denominator = denominator->view();
  return op;
}

NllLossBackward NllBackwardProblem::op() {
  NllLossBackward op = options;
  op.grad_output = grad_output.view(), op.target = target.view(), op.out = out.view();
  if (total_weight) op.total_weight = total_weight->view();
  if (weight) op.weight = weight->view();
  if (token_weight) op.token_weight = token_weight->view();
  return op;
}

NllProblem MakeForward(const NllCase& c, std::uint64_t seed) {
  const Dims positions = WithoutClasses(c.dims, c.class_axis);
  const DType result = c.result.value_or(c.dtype);
  const bool none = c.reduction == Reduction::kNone;
  NllProblem problem(Strided(c.dtype, c.dims, c.strides, c.placed),
                     Strided(c.target, positions, c.target_strides, Placed::kAnywhere),
                     Tensor(result, none ? positions : Dims{}));
  FillGradient(problem.input, seed);
  FillShared(problem, c, positions, ClassesOf(c), seed);
  problem.total_weight.emplace(result, Dims{});
  if (c.denominator) {
    problem.denominator.emplace(*c.denominator, Dims{});
    problem.denominator->SetValue(0, 12.34);
  }
  problem.options.zero_if_empty = c.zero_if_empty;
  return problem;
}

NllBackwardProblem MakeBackward(const NllCase& c, std::uint64_t seed) {
  const Dims positions = WithoutClasses(c.dims, c.class_axis);
  const bool none = c.reduction == Reduction::kNone;
  NllBackwardProblem problem(Filled(c.result.value_or(c.dtype), none ? positions : Dims{}, seed),
                             Strided(c.target, positions, c.target_strides, Placed::kAnywhere),
                             Strided(c.dtype, c.compact ? positions : c.dims, c.strides, c.placed));
  // A reduced gradient that no case shares with another.
  if (!none) problem.grad_output.SetValue(0, -0.7265625 - static_cast<double>(seed % 16) / 64);
  FillShared(problem, c, positions, ClassesOf(c), seed);
  if (c.reduction == Reduction::kMean) {
    problem.total_weight.emplace(c.total_weight.value_or(c.dtype), Dims{});
    problem.total_weight->SetValue(0, 37.3);
  }
  problem.options.accumulate = c.accumulate;
  problem.options.compact = c.compact;
  if (c.compact) problem.options.num_classes = ClassesOf(c);
  if (!c.accumulate) return problem;

  // What a run from zeros leaves at 0 bits must be left alone: a signalling NaN. The rest gets old values.
  problem.options.accumulate = false;
  const Bits fresh = Promise(problem.op());
  problem.options.accumulate = true;
  FillSignalling(problem.out);
  const Tensor old = Filled(c.dtype, {problem.out.numel()}, seed + 13);
  const auto size = static_cast<std::size_t>(SizeOf(c.dtype));
  const Bits old_bits = old.Bytes();
  for (std::size_t k = 0; k < fresh.size() / size; ++k) {
    bool zero = true;
    for (std::size_t b = 0; b < size; ++b) zero = zero && fresh[k * size + b] == std::byte{0};
    if (!zero) problem.out.SetBytes(static_cast<std::int64_t>(k), old_bits.data() + k * size);
  }
  return problem;
}

void ExpectRight(NllProblem problem, const std::vector<int>& threads) {
  const NllLoss op = problem.op();
  const NllPromise promise = Promise(op);
  EXPECT_TRUE(WithinBounds(promise.loss, op.loss.dtype, DefineLoss(op))) << "the promise itself is far off";
  if (op.total_weight) {
    EXPECT_TRUE(WithinBounds(promise.total_weight, op.total_weight->dtype, DefineTotalWeight(op)))
        << "the promise itself is far off";
  }
  const Buffer input = problem.input.buffer(), target = problem.target.buffer();
  std::vector<Tensor*> outputs{&problem.loss};
  if (problem.total_weight) outputs.push_back(&*problem.total_weight);
  OnEveryTarget(op, outputs, threads, [&] {
    EXPECT_TRUE(SameBits(problem.loss, promise.loss)) << "loss";
    if (problem.total_weight) {
      EXPECT_TRUE(SameBits(*problem.total_weight, promise.total_weight)) << "total_weight";
    }
  });
  EXPECT_TRUE(problem.input.buffer() == input);
  EXPECT_TRUE(problem.target.buffer() == target);
}

void ExpectRight(NllBackwardProblem problem, const std::vector<int>& threads) {
  const NllLossBackward op = problem.op();
  const Bits promise = Promise(op);
  // Large problems differ from small ones in nothing that the promise does.
  if (op.out.numel() <= std::int64_t{1} << 19) {
    EXPECT_TRUE(WithinBounds(promise, op.out.dtype, Define(op))) << "the promise itself is far off";
  }
  const Buffer grad_output = problem.grad_output.buffer(), target = problem.target.buffer();
  OnEveryTarget(op, {&problem.out}, threads, [&] { EXPECT_TRUE(SameBits(problem.out, promise)); });
  EXPECT_TRUE(problem.grad_output.buffer() == grad_output);
  EXPECT_TRUE(problem.target.buffer() == target);
}

void ExpectRightForward(const NllCase& c, const std::vector<int>& threads) {
  SCOPED_TRACE("forward " + c.Describe());
  ExpectRight(MakeForward(c), threads);
}

void ExpectRightBackward(const NllCase& c, const std::vector<int>& threads) {
  SCOPED_TRACE("backward " + c.Describe());
  ExpectRight(MakeBackward(c), threads);
}

void ExpectRightBoth(const NllCase& c, const std::vector<int>& threads) {
  ExpectRightForward(c, threads);
  ExpectRightBackward(c, threads);
}

}  // namespace onehot::test
