// NLL loss problems, made from one line each.
#ifndef TESTS_NATIVE_NLL_CASES_H_
#define TESTS_NATIVE_NLL_CASES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onehot/nll_loss.h"
#include "tests/native/losses.h"
#include "tests/native/tensor.h"

namespace onehot::test {

struct NllCase {
  Dims dims;  // of input or out, classes included
  int class_axis = 1;
  DType dtype = DType::kF32;  // of input or out
  DType target = DType::kI64;
  Reduction reduction = Reduction::kMean;
  std::optional<DType> result = std::nullopt;        // of loss and total_weight, or of grad_output; none: dtype
  std::optional<DType> weight = std::nullopt;        // none: not given
  std::optional<DType> token_weight = std::nullopt;  // none: not given
  std::optional<DType> denominator = std::nullopt;   // forward; none: not given
  std::optional<DType> total_weight = std::nullopt;  // backward, mean; none: dtype
  std::int64_t ignore_index = kDefaultIgnoreIndex;
  TargetsLike like = {};  // ignore_index is that of the case
  bool zero_if_empty = false;
  bool accumulate = false, compact = false;
  Dims strides = {}, target_strides = {};  // of input or out, and of target; empty: dense
  Placed placed = Placed::kAnywhere;

  std::string Describe() const;
};

// The tensors of a problem, filled. Outputs hold 0xFF bytes.
struct NllProblem {
  Tensor input, target, loss;
  std::optional<Tensor> total_weight, weight, token_weight, denominator;
  NllLoss options;

  NllProblem(Tensor input_, Tensor target_, Tensor loss_)
      : input(std::move(input_)), target(std::move(target_)), loss(std::move(loss_)) {}
  NllLoss op();
};
NllProblem MakeForward(const NllCase& c, std::uint64_t seed = 1);

// out holds 0xFF bytes, or for accumulate old values, with signalling NaN where nothing contributes.
struct NllBackwardProblem {
  Tensor grad_output, target, out;
  std::optional<Tensor> total_weight, weight, token_weight;
  NllLossBackward options;

  NllBackwardProblem(Tensor grad_output_, Tensor target_, Tensor out_)
      : grad_output(std::move(grad_output_)), target(std::move(target_)), out(std::move(out_)) {}
  NllLossBackward op();
};
NllBackwardProblem MakeBackward(const NllCase& c, std::uint64_t seed = 1);

// Runs the problem on every target and number of threads; demands the promised bits of all of them, and that nothing but
// the elements of the outputs is written. The promise itself must be within its bound of the definition.
void ExpectRight(NllProblem problem, const std::vector<int>& threads = {2});
void ExpectRight(NllBackwardProblem problem, const std::vector<int>& threads = {2});

// The same for the problems of one line. Both: forward and backward.
void ExpectRightForward(const NllCase& c, const std::vector<int>& threads = {2});
void ExpectRightBackward(const NllCase& c, const std::vector<int>& threads = {2});
void ExpectRightBoth(const NllCase& c, const std::vector<int>& threads = {2});

}  // namespace onehot::test

#endif  // TESTS_NATIVE_NLL_CASES_H_
