// Cross entropy problems, made from one line each, and the walk over everything that can run them.
#ifndef TESTS_NATIVE_CROSS_ENTROPY_CASES_H_
#define TESTS_NATIVE_CROSS_ENTROPY_CASES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onehot/cross_entropy.h"
#include "tests/native/losses.h"
#include "tests/native/targets.h"
#include "tests/native/tensor.h"

namespace onehot::test {

struct CrossEntropyCase {
  Dims dims = {};  // of input
  int class_axis = 1;
  DType input = DType::kF32, target = DType::kI64;
  std::optional<DType> result = std::nullopt;   // loss and total_weight; none: that of input
  std::optional<DType> operand = std::nullopt;  // weight, token_weight and grad_loss; none: that of input
  std::optional<DType> out = std::nullopt;      // none: that of input
  bool weight = false, token_weight = false, denominator = false;
  double label_smoothing = 0, z_loss = 0, softcap = 0;
  Reduction reduction = Reduction::kMean;
  std::int64_t ignore_index = kDefaultIgnoreIndex;
  double ignored = 0.15;  // share of the positions
  bool g = true, r = false, h = false;

  int axis() const {
    return dims.size() <= 1 ? 0 : class_axis < 0 ? class_axis + static_cast<int>(dims.size()) : class_axis;
  }
  std::int64_t C() const { return dims[static_cast<std::size_t>(axis())]; }
  Dims positions() const { return WithoutClasses(dims, class_axis); }
  std::string Describe() const;
};

// Every option there is.
CrossEntropyCase WithEverything(CrossEntropyCase c);

// The tensors of both operators, filled. Logits, weights and targets of position i are the same wherever the class axis
// is and whatever the strides. All outputs are NaN.
struct CrossEntropyProblem {
  explicit CrossEntropyProblem(const CrossEntropyCase& c, std::uint64_t seed = 1);

  CrossEntropyCase c;
  Tensor input, target;
  std::optional<Tensor> weight, token_weight, denominator;
  Tensor loss, lse, log_probability, entropy, argmax, total_weight;
  std::optional<Tensor> grad_loss, grad_log_probability, grad_entropy;
  Tensor out;
  bool zero_if_empty = false;

  CrossEntropyOptions options() const;
  CrossEntropy forward();           // every output
  CrossEntropyBackward backward();  // without lse
  std::vector<Tensor*> outputs() { return {&loss, &lse, &log_probability, &entropy, &argmax, &total_weight}; }

  // The same values in that layout. Gaps are left alone.
  static Tensor Relaid(const Tensor& tensor, const Dims& strides);
  void RelayInput(const Dims& strides) { input = Relaid(input, strides); }
  void RelayOut(const Dims& strides) { out = Tensor(out.layout().dtype, c.dims, strides); }
};

// Logits of all sizes a model gives: flat, spread and peaked positions, some far from 0; the largest is not negative.
void FillLogits(Tensor& input, int axis, std::uint64_t seed);

// [N, C], whatever the class axis.
Tensor Rows(const Tensor& classes, int axis);

// Runs the problem on every target that takes it and with every number of threads, each time from the same old
// outputs, whose memory op writes; calls check(target) after each run. Nothing but elements may have been written.
template <class Op, class F>
void OnTargets(const Op& op, const std::vector<Tensor*>& outputs, const std::vector<int>& threads, F&& check) {
  std::vector<Tensor> old;
  for (const Tensor* output : outputs) old.push_back(*output);
  for (const Target& target : Targets<Op>()) {
    if (!Takes(target, op)) continue;
    for (const int count : threads) {
      SCOPED_TRACE(target.name() + " threads " + std::to_string(count));
      for (std::size_t k = 0; k < outputs.size(); ++k) *outputs[k] = old[k];  // into the memory that is there
      EXPECT_OK(RunOn(target, op, WithThreads(count)));
      check(target);
      for (const Tensor* output : outputs) EXPECT_TRUE(output->GapsUntouched());
      if (target.is_ref()) break;  // one thread, whatever is asked for
    }
  }
  for (std::size_t k = 0; k < outputs.size(); ++k) *outputs[k] = old[k];
}

// The bits of the first run that is not ref's, which all others must have.
class FirstBits {
 public:
  void ExpectSame(const Target& target, const Tensor& got, const std::string& name);
  bool known() const { return !bits_.empty(); }
  const std::vector<std::byte>& bits() const { return bits_; }

 private:
  std::vector<std::byte> bits_;
};

// Every output within its bound of the definition; the same bits on every target but ref and with any number of
// threads.
struct CrossEntropyBits {
  FirstBits outputs[6], out;
};
void ExpectRightEverywhere(CrossEntropyProblem& problem, const std::vector<int>& threads = {2},
                           CrossEntropyBits* bits = nullptr);

}  // namespace onehot::test

#endif  // TESTS_NATIVE_CROSS_ENTROPY_CASES_H_
