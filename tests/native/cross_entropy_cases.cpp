#include "tests/native/cross_entropy_cases.h"

#include <cmath>
#include <utility>

#include "tests/native/cross_entropy_oracle.h"
#include "tests/native/data.h"

namespace onehot::test {
namespace {

constexpr const char* kOutputs[] = {"loss", "lse", "log_probability", "entropy", "argmax", "total_weight"};

DType Accumulator(DType input) {
  return input == DType::kF64 ? DType::kF64 : DType::kF32;
}

Dims Reduced(const CrossEntropyCase& c) {
  return c.reduction == Reduction::kNone ? c.positions() : Dims{};
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

}  // namespace

std::string CrossEntropyCase::Describe() const {
  std::string text = "[";
  for (std::size_t k = 0; k < dims.size(); ++k) text += (k > 0 ? ", " : "") + std::to_string(dims[k]);
  text += "] axis " + std::to_string(class_axis) + " " + std::string(Name(input)) + " target " +
          std::string(Name(target)) + " " + std::string(Name(reduction));
  if (result) text += " result " + std::string(Name(*result));
  if (operand) text += " operand " + std::string(Name(*operand));
  if (out) text += " out " + std::string(Name(*out));
  if (weight) text += " weight";
  if (token_weight) text += " token_weight";
  if (denominator) text += " denominator";
  if (label_smoothing > 0) text += " label_smoothing " + std::to_string(label_smoothing);
  if (z_loss > 0) text += " z_loss " + std::to_string(z_loss);
  if (softcap > 0) text += " softcap " + std::to_string(softcap);
  if (ignored > 0) text += " ignore " + std::to_string(ignore_index);
  return text + (g ? " g" : "") + (r ? " r" : "") + (h ? " h" : "");
}

CrossEntropyCase WithEverything(CrossEntropyCase c) {
  c.weight = c.token_weight = c.r = c.h = true;
  c.label_smoothing = 0.1, c.z_loss = 1e-3, c.softcap = 30;
  return c;
}

void FillLogits(Tensor& input, int axis, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t C = input.layout().dim(axis), N = C == 0 ? 0 : input.numel() / C;
  for (std::int64_t i = 0; i < N; ++i) {
    const double scales[] = {0.5, 2, 9}, offsets[] = {0, 0, 40};
    const double scale = scales[random.Below(3)], offset = offsets[random.Below(3)];
    const std::int64_t peak = random.Below(C);
    for (std::int64_t v = 0; v < C; ++v) {
      // Between -3 and 3 scales, most near the middle; one class at the upper end.
      double x = 2 * (random.Unit() + random.Unit() + random.Unit()) - 3;
      if (v == peak) x = std::abs(x) + 1;
      input.SetValue(ClassPosition(input.layout(), axis, i, v), offset + scale * x);
    }
  }
}

CrossEntropyProblem::CrossEntropyProblem(const CrossEntropyCase& c_, std::uint64_t seed)
    : c(c_),
      input(c.input, c.dims),
      target(c.target, c.positions()),
      loss(c.result.value_or(c.input), Reduced(c)),
      lse(Accumulator(c.input), c.positions()),
      log_probability(lse),
      entropy(lse),
      argmax(DType::kI64, c.positions()),
      total_weight(c.result.value_or(c.input), {}),
      out(c.out.value_or(c.input), c.dims) {
  const DType operand = c.operand.value_or(c.input);
  FillLogits(input, c.axis(), seed);
  FillTargets(target, c.C(), {.ignore_index = c.ignore_index, .ignored = c.ignored}, seed + 1);
  if (c.weight) weight = Factors(operand, {c.C()}, 0.25, 2, false, seed + 2);
  if (c.token_weight) token_weight = Factors(operand, c.positions(), 0.5, 3, false, seed + 3);
  if (c.denominator) denominator = Factors(DType::kF64, {}, 3, 9, false, seed + 4);
  if (c.g) grad_loss = Factors(operand, Reduced(c), 0.5, 2, true, seed + 5);
  if (c.r) grad_log_probability = Factors(Accumulator(c.input), c.positions(), 0.5, 2, true, seed + 6);
  if (c.h) grad_entropy = Factors(Accumulator(c.input), c.positions(), 0.25, 1, true, seed + 7);
}

CrossEntropyOptions CrossEntropyProblem::options() const {
  CrossEntropyOptions options;
  if (weight) options.weight = weight->view();
  if (token_weight) options.token_weight = token_weight->view();
  if (denominator) options.denominator = denominator->view();
  options.reduction = c.reduction;
  options.ignore_index = c.ignore_index;
  options.label_smoothing = c.label_smoothing;
  options.z_loss = c.z_loss;
  options.softcap = c.softcap;
  options.zero_if_empty = zero_if_empty;
  options.class_axis = c.class_axis;
  return options;
}

CrossEntropy CrossEntropyProblem::forward() {
  return {.input = std::as_const(input).view(),
          .target = std::as_const(target).view(),
          .loss = loss.view(),
          .lse = lse.view(),
          .log_probability = log_probability.view(),
          .entropy = entropy.view(),
          .argmax = argmax.view(),
          .total_weight = total_weight.view(),
          .options = options()};
}

CrossEntropyBackward CrossEntropyProblem::backward() {
  CrossEntropyBackward op{
      .input = std::as_const(input).view(), .target = std::as_const(target).view(), .out = out.view()};
  if (grad_loss) op.grad_loss = std::as_const(*grad_loss).view();
  if (grad_log_probability) op.grad_log_probability = std::as_const(*grad_log_probability).view();
  if (grad_entropy) op.grad_entropy = std::as_const(*grad_entropy).view();
  op.options = options();
  return op;
}

Tensor CrossEntropyProblem::Relaid(const Tensor& tensor, const Dims& strides) {
  const TensorLayout& layout = tensor.layout();
  Tensor copy(layout.dtype, Dims(layout.dims.begin(), layout.dims.begin() + layout.rank), strides);
  const std::vector<std::byte> bytes = tensor.Bytes();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) copy.SetBytes(i, bytes.data() + i * SizeOf(layout.dtype));
  return copy;
}

Tensor Rows(const Tensor& classes, int axis) {
  const TensorLayout& layout = classes.layout();
  const std::int64_t C = layout.dim(axis), N = C == 0 ? 0 : classes.numel() / C;
  Tensor rows(layout.dtype, {N, C});
  const std::vector<std::byte> bytes = classes.Bytes();
  for (std::int64_t i = 0; i < N; ++i)
    for (std::int64_t v = 0; v < C; ++v)
      rows.SetBytes(i * C + v, bytes.data() + ClassPosition(layout, axis, i, v) * SizeOf(layout.dtype));
  return rows;
}

void FirstBits::ExpectSame(const Target& target, const Tensor& got, const std::string& name) {
  if (target.is_ref()) return;
  if (bits_.empty())
    bits_ = got.Bytes();
  else
    EXPECT_TRUE(SameBits(got, bits_)) << name;
}

void ExpectRightEverywhere(CrossEntropyProblem& problem, const std::vector<int>& threads, CrossEntropyBits* bits) {
  const CrossEntropyCase& c = problem.c;
  SCOPED_TRACE(c.Describe());
  CrossEntropyBits own;
  if (bits == nullptr) bits = &own;
  const CrossEntropyDefinition want = Define(problem.forward());
  const std::vector<Tensor*> outputs = problem.outputs();
  OnTargets(problem.forward(), outputs, threads, [&](const Target& target) {
    const double u = UnitRoundoff(target, c.input, c.C());
    EXPECT_TRUE(Within(problem.loss, want.loss, u)) << "loss";
    EXPECT_TRUE(Within(problem.lse, want.lse, u)) << "lse";
    EXPECT_TRUE(Within(problem.log_probability, want.log_probability, u)) << "log_probability";
    EXPECT_TRUE(Within(problem.entropy, want.entropy, u)) << "entropy";
    EXPECT_TRUE(Within(problem.total_weight, want.total_weight, u)) << "total_weight";
    for (std::size_t i = 0; i < want.argmax.size(); ++i) {
      const auto got = problem.argmax.Get<std::int64_t>(static_cast<std::int64_t>(i));
      if (c.softcap == 0) {
        ASSERT_EQ(got, want.argmax[i]) << "argmax " << i;
      }
    }
    for (std::size_t k = 0; k < outputs.size(); ++k) bits->outputs[k].ExpectSame(target, *outputs[k], kOutputs[k]);
  });

  const Bounded gradient = Define(problem.backward());
  const auto check = [&](const Target& target) {
    EXPECT_TRUE(Within(problem.out, gradient, UnitRoundoff(target, c.input, c.C()))) << "out";
    bits->out.ExpectSame(target, problem.out, "out");
  };
  OnTargets(problem.backward(), {&problem.out}, threads, check);

  // With the lse that those targets gave. The bits may differ from those without it, where what lse was rounded from is
  // still at hand.
  if (!bits->outputs[1].known()) return;
  Tensor lse(problem.lse.layout().dtype, c.positions());
  for (std::int64_t i = 0; i < lse.numel(); ++i)
    lse.SetBytes(i, bits->outputs[1].bits().data() + i * SizeOf(lse.layout().dtype));
  CrossEntropyBackward op = problem.backward();
  op.lse = std::as_const(lse).view();
  FirstBits with_lse;
  OnTargets(op, {&problem.out}, {threads.front()}, [&](const Target& target) {
    EXPECT_TRUE(Within(problem.out, gradient, UnitRoundoff(target, c.input, c.C()))) << "out, lse given";
    with_lse.ExpectSame(target, problem.out, "out, lse given");
  });
}

}  // namespace onehot::test
