#include "tests/native/linear_cross_entropy_cases.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "tests/native/data.h"
#include "tests/native/linear_cross_entropy_oracle.h"

namespace onehot::test {
namespace {

DType Accumulator(DType input) {
  return input == DType::kF64 ? DType::kF64 : DType::kF32;
}

Dims Reduced(const LinearCrossEntropyCase& c) {
  return c.reduction == Reduction::kNone ? c.positions : Dims{};
}

// Of that size and either sign, never near 0.
Tensor Factors(DType dtype, const Dims& dims, double low, double high, bool signs, std::uint64_t seed) {
  Tensor tensor(dtype, dims);
  Random random(seed);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const double x = low + (high - low) * random.Unit();
    tensor.SetValue(i, signs && random.Below(3) == 0 ? -x : x);
  }
  return tensor;
}

// Rows of different size, most elements near 0: with factors of a row between them, logits lie flat, spread or peaked.
void FillRows(Tensor& matrix, std::int64_t columns, const std::vector<double>& sizes, std::uint64_t seed) {
  Random random(seed);
  for (std::int64_t k = 0; k < matrix.numel();) {
    const double size = sizes[static_cast<std::size_t>(random.Below(static_cast<std::int64_t>(sizes.size())))];
    for (std::int64_t c = 0; c < columns; ++c, ++k)
      matrix.SetValue(k, size * (2 * (random.Unit() + random.Unit() + random.Unit()) - 3));
  }
}

template <class Op>
void ExpectWithin(const LinearCrossEntropyProblem& problem, const LinearCrossEntropyDefinition& want, double u) {
  if constexpr (std::is_same_v<Op, LinearCrossEntropy>) {
    EXPECT_TRUE(Within(problem.loss, want.loss, u)) << "loss";
    EXPECT_TRUE(Within(problem.lse, want.lse, u)) << "lse";
    EXPECT_TRUE(Within(problem.target_logit, want.target_logit, u)) << "target_logit";
    EXPECT_TRUE(Within(problem.log_probability, want.log_probability, u)) << "log_probability";
    EXPECT_TRUE(Within(problem.entropy, want.entropy, u)) << "entropy";
    EXPECT_TRUE(Within(problem.argmax, want.argmax, u)) << "argmax";
    EXPECT_TRUE(Within(problem.total_weight, want.total_weight, u)) << "total_weight";
  }
  EXPECT_TRUE(Within(problem.grad_input, want.grad_input, u)) << "grad.input";
  EXPECT_TRUE(Within(problem.grad_weight, want.grad_weight, u)) << "grad.weight";
  EXPECT_TRUE(Within(problem.grad_bias, want.grad_bias, u)) << "grad.bias";
}

}  // namespace

Dims LinearCrossEntropyCase::input_dims() const {
  Dims dims = positions;
  dims.push_back(H);
  return dims;
}

std::string LinearCrossEntropyCase::Describe() const {
  std::string text = "[";
  for (const std::int64_t dim : positions) text += std::to_string(dim) + ", ";
  text += std::to_string(H) + "] V " + std::to_string(V) + " " + std::string(Name(input)) + " target " +
          std::string(Name(target)) + " " + std::string(Name(reduction));
  if (result) text += " result " + std::string(Name(*result));
  if (operand) text += " operand " + std::string(Name(*operand));
  if (gradient) text += " gradient " + std::string(Name(*gradient));
  if (bias) text += " bias " + std::string(Name(bias_dtype.value_or(input)));
  if (weight) text += " class weight";
  if (token_weight) text += " token_weight";
  if (denominator) text += " denominator";
  if (zero_if_empty) text += " zero_if_empty";
  if (label_smoothing > 0) text += " label_smoothing " + std::to_string(label_smoothing);
  if (z_loss > 0) text += " z_loss " + std::to_string(z_loss);
  if (softcap > 0) text += " softcap " + std::to_string(softcap);
  if (logit_scale != 1) text += " logit_scale " + std::to_string(logit_scale);
  if (ignored > 0) text += " ignore " + std::to_string(ignore_index);
  return text + (g ? " g" : "") + (r ? " r" : "") + (h ? " h" : "") + (accumulate ? " accumulate" : "");
}

LinearCrossEntropyCase WithEverything(LinearCrossEntropyCase c) {
  c.bias = c.weight = c.token_weight = c.r = c.h = true;
  c.label_smoothing = 0.1, c.z_loss = 1e-3, c.softcap = 8, c.logit_scale = 1.25;
  return c;
}

LinearCrossEntropyProblem::LinearCrossEntropyProblem(const LinearCrossEntropyCase& c_, std::uint64_t seed)
    : c(c_),
      input(c.input, c.input_dims()),
      weight(c.input, {c.V, c.H}),
      target(c.target, c.positions),
      loss(c.result.value_or(c.input), Reduced(c)),
      lse(Accumulator(c.input), c.positions),
      target_logit(lse),
      log_probability(lse),
      entropy(lse),
      argmax(DType::kI64, c.positions),
      total_weight(c.result.value_or(c.input), {}),
      grad_input(c.gradient.value_or(c.input), c.input_dims()),
      grad_weight(c.gradient.value_or(c.input), {c.V, c.H}),
      grad_bias(c.gradient.value_or(c.input), {c.V}) {
  const DType operand = c.operand.value_or(c.input);
  FillRows(input, c.H, {0.3, 1, 3}, seed);
  const double scale = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(c.H, 1)));
  FillRows(weight, c.H, {0.5 * scale, scale, 2 * scale}, seed + 1);
  FillTargets(target, c.V, {.ignore_index = c.ignore_index, .ignored = c.ignored}, seed + 2);
  if (c.bias) bias = Factors(c.bias_dtype.value_or(c.input), {c.V}, 0.1, 2, true, seed + 3);
  if (c.weight) class_weight = Factors(operand, {c.V}, 0.25, 2, false, seed + 4);
  if (c.token_weight) token_weight = Factors(operand, c.positions, 0.5, 3, false, seed + 5);
  if (c.denominator) denominator = Factors(DType::kF64, {}, 3, 9, false, seed + 6);
  if (c.g) upstream_loss = Factors(operand, Reduced(c), 0.5, 2, true, seed + 7);
  if (c.r) upstream_log_probability = Factors(Accumulator(c.input), c.positions, 0.5, 2, true, seed + 8);
  if (c.h) upstream_entropy = Factors(Accumulator(c.input), c.positions, 0.25, 1, true, seed + 9);
  if (!c.accumulate) return;
  for (Tensor* gradient : gradient_tensors()) {
    const TensorLayout& layout = gradient->layout();
    *gradient = Factors(layout.dtype, Dims(layout.dims.begin(), layout.dims.begin() + layout.rank), 0.01, 3, true,
                        seed + 10 + static_cast<std::uint64_t>(layout.rank));
  }
}

LinearCrossEntropyOptions LinearCrossEntropyProblem::options() const {
  LinearCrossEntropyOptions options;
  if (bias) options.bias = bias->view();
  options.logit_scale = c.logit_scale;
  CrossEntropyOptions& of_loss = options.loss;
  if (class_weight) of_loss.weight = class_weight->view();
  if (token_weight) of_loss.token_weight = token_weight->view();
  if (denominator) of_loss.denominator = denominator->view();
  of_loss.reduction = c.reduction;
  of_loss.ignore_index = c.ignore_index;
  of_loss.label_smoothing = c.label_smoothing;
  of_loss.z_loss = c.z_loss;
  of_loss.softcap = c.softcap;
  of_loss.zero_if_empty = c.zero_if_empty;
  of_loss.class_axis = 77;  // is not read
  return options;
}

LinearCrossEntropyUpstream LinearCrossEntropyProblem::upstream() const {
  LinearCrossEntropyUpstream upstream;
  if (upstream_loss) upstream.loss = upstream_loss->view();
  if (upstream_log_probability) upstream.log_probability = upstream_log_probability->view();
  if (upstream_entropy) upstream.entropy = upstream_entropy->view();
  return upstream;
}

LinearCrossEntropyGradients LinearCrossEntropyProblem::gradients() {
  return {
      .input = grad_input.view(), .weight = grad_weight.view(), .bias = grad_bias.view(), .accumulate = c.accumulate};
}

LinearCrossEntropy LinearCrossEntropyProblem::forward() {
  return {.input = std::as_const(input).view(),
          .weight = std::as_const(weight).view(),
          .target = std::as_const(target).view(),
          .loss = loss.view(),
          .lse = lse.view(),
          .target_logit = target_logit.view(),
          .log_probability = log_probability.view(),
          .entropy = entropy.view(),
          .argmax = argmax.view(),
          .total_weight = total_weight.view(),
          .upstream = upstream(),
          .grad = gradients(),
          .options = options()};
}

LinearCrossEntropyBackward LinearCrossEntropyProblem::backward() {
  return {.input = std::as_const(input).view(),
          .weight = std::as_const(weight).view(),
          .target = std::as_const(target).view(),
          .upstream = upstream(),
          .grad = gradients(),
          .options = options()};
}

std::vector<Tensor*> LinearCrossEntropyProblem::results() {
  return {&loss, &lse, &target_logit, &log_probability, &entropy, &argmax, &total_weight};
}

std::vector<Tensor*> LinearCrossEntropyProblem::gradient_tensors() {
  return {&grad_input, &grad_weight, &grad_bias};
}

std::vector<Tensor*> LinearCrossEntropyProblem::outputs() {
  std::vector<Tensor*> all = results();
  for (Tensor* gradient : gradient_tensors()) all.push_back(gradient);
  return all;
}

// Greedily, the best of some random rows that start from a pair that is missing.
std::vector<Levels> AllPairs(const Levels& counts) {
  using Pair = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;  // an option and its level, and another
  const std::size_t options = counts.size();
  std::set<Pair> missing;
  for (std::size_t a = 0; a < options; ++a)
    for (std::size_t b = a + 1; b < options; ++b)
      for (std::size_t j = 0; j < counts[a]; ++j)
        for (std::size_t k = 0; k < counts[b]; ++k) missing.emplace(a, j, b, k);
  const auto gain = [&](const Levels& row) {
    std::vector<Pair> found;
    for (std::size_t a = 0; a < options; ++a)
      for (std::size_t b = a + 1; b < options; ++b)
        if (const Pair pair{a, row[a], b, row[b]}; missing.count(pair) != 0) found.push_back(pair);
    return found;
  };
  Random random(1);
  std::vector<Levels> rows;
  while (!missing.empty()) {
    const auto [a, j, b, k] = *missing.begin();
    Levels best;
    std::vector<Pair> most;
    for (int candidate = 0; candidate < 30; ++candidate) {
      Levels row(options);
      for (std::size_t o = 0; o < options; ++o)
        row[o] = static_cast<std::size_t>(random.Below(static_cast<std::int64_t>(counts[o])));
      row[a] = j, row[b] = k;
      if (std::vector<Pair> found = gain(row); found.size() > most.size()) best = row, most = std::move(found);
    }
    for (const Pair& pair : most) missing.erase(pair);
    rows.push_back(best);
  }
  return rows;
}

Tensor Relaid(const Tensor& tensor, const Dims& strides) {
  return CrossEntropyProblem::Relaid(tensor, strides);
}

std::string BitsByGroup::Group(const Target& target) {
  return target.implementation;
}

void BitsByGroup::ExpectSame(const Target& target, const std::vector<Tensor*>& outputs, const char* const* names) {
  auto [group, is_new] = groups_.try_emplace(Group(target));
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (is_new)
      group->second.push_back(outputs[k]->Bytes());
    else
      EXPECT_TRUE(SameBits(*outputs[k], group->second[k])) << names[k];
  }
}

void ExpectBitsEverywhere(LinearCrossEntropyProblem& problem, BitsByGroup& bits, const std::vector<int>& threads) {
  SCOPED_TRACE(problem.c.Describe());
  OnTargets(problem.forward(), problem.outputs(), threads,
            [&](const Target& target) { bits.ExpectSame(target, problem.outputs(), kLinearOutputs); });
}

void ExpectRightEverywhere(LinearCrossEntropyProblem& problem, const std::vector<int>& threads, BitsByGroup* bits) {
  SCOPED_TRACE(problem.c.Describe());
  const LinearCrossEntropyCase& c = problem.c;
  BitsByGroup own;
  if (bits == nullptr) bits = &own;
  const Wanted want(problem.forward());
  OnTargets(problem.forward(), problem.outputs(), threads, [&](const Target& target) {
    ExpectWithin<LinearCrossEntropy>(problem, want.For(target), UnitRoundoff(target, c.input, c.V));
    bits->ExpectSame(target, problem.outputs(), kLinearOutputs);
  });

  const auto gradients = problem.gradient_tensors();
  Tensor lse(problem.lse.layout().dtype, problem.c.positions);
  OnTargets(problem.backward(), gradients, threads, [&](const Target& target) {
    if (!bits->knows(target)) return;  // an implementation of the backward alone
    for (std::size_t k = 0; k < gradients.size(); ++k)
      EXPECT_TRUE(SameBits(*gradients[k], bits->Of(target)[kLinearResults + k]))
          << kLinearOutputs[kLinearResults + k] << " of the backward operator";
  });
  LinearCrossEntropyBackward with_lse = problem.backward();
  with_lse.lse = std::as_const(lse).view();
  BitsByGroup given;
  for (const Target& target : Targets<LinearCrossEntropyBackward>()) {
    if (!bits->knows(target) || !Takes(target, with_lse)) continue;
    SCOPED_TRACE(target.name() + " lse given");
    for (std::int64_t i = 0; i < lse.numel(); ++i)
      lse.SetBytes(i, bits->Of(target)[1].data() + i * SizeOf(lse.layout().dtype));
    std::vector<Tensor> old;
    for (const Tensor* gradient : gradients) old.push_back(*gradient);
    EXPECT_OK(RunOn(target, with_lse, WithThreads(threads.front())));
    // What is given was rounded to f32, whatever the arithmetic.
    const double u = UnitRoundoff(target, c.input, c.V);
    ExpectWithin<LinearCrossEntropyBackward>(problem, want.For(target),
                                             c.input == DType::kF64 ? u : std::max(u, 0x1p-24));
    given.ExpectSame(target, gradients, kLinearOutputs + kLinearResults);
    for (std::size_t k = 0; k < gradients.size(); ++k) *gradients[k] = old[k];
  }
}

void ExpectRightEverywhere(const LinearCrossEntropyCase& c, std::uint64_t seed) {
  LinearCrossEntropyProblem problem(c, seed);
  ExpectRightEverywhere(problem);
}

}  // namespace onehot::test
