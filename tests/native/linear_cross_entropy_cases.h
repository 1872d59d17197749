// Linear cross entropy problems, made from one line each, and the walk over everything that can run them.
#ifndef TESTS_NATIVE_LINEAR_CROSS_ENTROPY_CASES_H_
#define TESTS_NATIVE_LINEAR_CROSS_ENTROPY_CASES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onehot/linear_cross_entropy.h"
#include "tests/native/cross_entropy_cases.h"
#include "tests/native/linear_cross_entropy_oracle.h"
#include "tests/native/losses.h"
#include "tests/native/targets.h"
#include "tests/native/tensor.h"

namespace onehot::test {

struct LinearCrossEntropyCase {
  Dims positions = {};  // the shape of target
  std::int64_t H = 1, V = 1;
  DType input = DType::kF32, target = DType::kI64;
  std::optional<DType> result = std::nullopt;      // loss and total_weight; none: that of input
  std::optional<DType> operand = std::nullopt;     // class weight, token_weight and upstream.loss; none: that of input
  std::optional<DType> bias_dtype = std::nullopt;  // none: that of input
  std::optional<DType> gradient = std::nullopt;    // none: that of input
  bool bias = false, weight = false, token_weight = false, denominator = false;  // weight: of classes
  double label_smoothing = 0, z_loss = 0, softcap = 0, logit_scale = 1;
  Reduction reduction = Reduction::kMean;
  bool zero_if_empty = false;
  std::int64_t ignore_index = kDefaultIgnoreIndex;
  double ignored = 0.15;  // share of the positions
  bool g = true, r = false, h = false, accumulate = false;

  Dims input_dims() const;
  std::string Describe() const;
};

// Every option there is, but for accumulate.
LinearCrossEntropyCase WithEverything(LinearCrossEntropyCase c);

// The tensors of both operators, filled. All outputs are NaN, but for the old values of accumulate.
struct LinearCrossEntropyProblem {
  explicit LinearCrossEntropyProblem(const LinearCrossEntropyCase& c, std::uint64_t seed = 1);

  LinearCrossEntropyCase c;
  Tensor input, weight, target;
  std::optional<Tensor> bias, class_weight, token_weight, denominator;
  Tensor loss, lse, target_logit, log_probability, entropy, argmax, total_weight;
  std::optional<Tensor> upstream_loss, upstream_log_probability, upstream_entropy;
  Tensor grad_input, grad_weight, grad_bias;

  LinearCrossEntropyOptions options() const;
  LinearCrossEntropyUpstream upstream() const;
  LinearCrossEntropyGradients gradients();
  LinearCrossEntropy forward();             // every output, gradients included
  LinearCrossEntropyBackward backward();    // every gradient, without lse
  std::vector<Tensor*> results();           // those of the forward
  std::vector<Tensor*> gradient_tensors();  // input, weight, bias
  std::vector<Tensor*> outputs();           // both, in that order
};
inline constexpr const char* kLinearOutputs[] = {"loss",        "lse",      "target_logit", "log_probability",
                                                 "entropy",     "argmax",   "total_weight", "grad.input",
                                                 "grad.weight", "grad.bias"};
inline constexpr std::size_t kLinearResults = 7;  // of them, before the gradients

// Levels of some options. AllPairs gives rows of them that have every pair of levels of every two options, where option o
// has counts[o] levels.
using Levels = std::vector<std::size_t>;
std::vector<Levels> AllPairs(const Levels& counts);

// The same values in that layout.
Tensor Relaid(const Tensor& tensor, const Dims& strides);

// Results of the first run in each group of targets that must agree to the bit: the instruction sets of an implementation.
class BitsByGroup {
 public:
  // The outputs against those of the group; the first of a group is remembered. `names` has as many.
  void ExpectSame(const Target& target, const std::vector<Tensor*>& outputs, const char* const* names);
  const std::vector<std::vector<std::byte>>& Of(const Target& target) const { return groups_.at(Group(target)); }
  bool knows(const Target& target) const { return groups_.count(Group(target)) != 0; }

 private:
  static std::string Group(const Target& target);
  std::map<std::string, std::vector<std::vector<std::byte>>> groups_;
};

// What each target is held to: the definition, with the bounds of its products. With accumulate make it before the run.
template <class Op>
class Wanted {
 public:
  explicit Wanted(const Op& op) : wide_(Define(op, Products::kF32)) {
    if (op.input.dtype == DType::kBF16) bf16_ = Define(op, Products::kBF16);
  }
  const auto& For(const Target& target) const { return ProductsOf(target) == Products::kBF16 ? bf16_.value() : wide_; }

 private:
  using Definition = decltype(Define(std::declval<const Op&>(), Products::kF32));
  Definition wide_;
  std::optional<Definition> bf16_;
};

// Every output and gradient within its bound of the definition on every target, and the same bits in each group for any
// number of threads. Gradients of the backward operator have those bits too, and with the lse of the forward their
// bound.
void ExpectRightEverywhere(LinearCrossEntropyProblem& problem, const std::vector<int>& threads = {2},
                           BitsByGroup* bits = nullptr);
void ExpectRightEverywhere(const LinearCrossEntropyCase& c, std::uint64_t seed = 1);

// The problem, however it lies in memory, has the bits that `bits` knows.
void ExpectBitsEverywhere(LinearCrossEntropyProblem& problem, BitsByGroup& bits, const std::vector<int>& threads = {2});

}  // namespace onehot::test

#endif  // TESTS_NATIVE_LINEAR_CROSS_ENTROPY_CASES_H_
