// Linear cross entropy problems whose vocabulary is split, and the walk over everything that can run them.
#ifndef TESTS_NATIVE_LINEAR_CROSS_ENTROPY_SHARDS_CASES_H_
#define TESTS_NATIVE_LINEAR_CROSS_ENTROPY_SHARDS_CASES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onehot/linear_cross_entropy_shards.h"
#include "tests/native/linear_cross_entropy_cases.h"
#include "tests/native/linear_cross_entropy_shards_oracle.h"

namespace onehot::test {

using Sizes = std::vector<std::int64_t>;  // classes of each shard, ascending

// What describes all logits of a position for the backward operator.
enum class Given { kMaxAndSum, kLse, kProbability };
inline constexpr Given kGivens[] = {Given::kMaxAndSum, Given::kLse, Given::kProbability};
inline constexpr const char* kGivenNames[] = {"max and sum_exp", "lse", "probability"};

// Whether probability is enough for its gradients.
bool Suffices(Given given, const LinearCrossEntropyCase& c);

inline constexpr const char* kStatistics[] = {"max",    "sum_exp", "target_logit", "smoothing",
                                              "moment", "argmax",  "logits"};
struct Shard {
  VocabularyShard range;
  std::int64_t size;  // classes
  Tensor max, sum_exp, target_logit, smoothing, moment, argmax, logits;
  Tensor grad_input, probability;

  std::vector<Tensor*> statistics() { return {&max, &sum_exp, &target_logit, &smoothing, &moment, &argmax, &logits}; }
};

// The problem of all classes, and its shards, whose rows are those of its tensors. Results of LinearCrossEntropyLoss and
// gradients of rows go to the tensors of `whole`. A result is f32 for 16-bit input, since statistics are.
struct ShardedProblem {
  ShardedProblem(const LinearCrossEntropyCase& c, const Sizes& sizes, std::uint64_t seed = 1);
  ShardedProblem(LinearCrossEntropyProblem whole, const Sizes& sizes);

  LinearCrossEntropyProblem whole;
  std::vector<Shard> shards;
  Tensor max, sum_exp, target_logit, smoothing, moment, argmax;  // of all shards
  Tensor lse, entropy;                                           // what the backward operator is given

  LinearCrossEntropyStatistics statistics(std::size_t shard);  // every output
  LinearCrossEntropyLoss loss();                               // every output but probability
  LinearCrossEntropyLoss probabilities(std::size_t shard);     // nothing else
  // With accumulate, grad.input of all shards is the whole one.
  LinearCrossEntropyBackward backward(std::size_t shard, Given given);

  // The statistics of all, from those of the shards, by the formulas of the header; rounded once.
  void Fold();
  std::vector<Tensor*> folded() { return {&max, &sum_exp, &target_logit, &smoothing, &moment, &argmax}; }
  std::vector<Tensor*> losses() {
    return {&whole.loss, &whole.lse, &whole.log_probability, &whole.entropy, &whole.total_weight};
  }
  std::string Describe() const;

 private:
  Tensor Wide(const Tensor& tensor) const;
  // Of a dtype that LinearCrossEntropyLoss takes.
  std::optional<Tensor> wide_class_weight_, wide_token_weight_;
};

// Runs `op` on that target, or, where it has no implementation of that name, on whatever takes it.
template <class Op>
Status RunLike(const Target& target, const Op& op, const RunOptions& options = {}) {
  for (const Target& own : Targets<Op>())
    if (own.implementation == target.implementation && (own.instruction_set == target.instruction_set || own.is_ref()))
      return RunOn(own, op, options);
  const ScopedEnv isa("ONEHOT_MAX_ISA", target.instruction_set.c_str());
  Result<Plan> plan = Prepare(op);
  return plan.ok() ? RunHostile(*plan, options) : plan.status();
}

// All four steps on every target. Statistics, results and gradients are within the bounds of the definition, given what
// each step was given; and in the end within twice the bounds of LinearCrossEntropy for the problem of all classes:
//
//   each statistic is rounded once more in its shard and once when folded, where the sum of exponentials alone has the
//   68 units of a block for every result, and a distance from max or lse one of its own. max, rounded, is off by
//   |max| <= |lse| + log of the sum, of which lse has the first anyway and the logarithm eight times the second
//
// on top of which parts of grad.input are rounded before they are added.
void ExpectShardedRight(ShardedProblem& problem, const std::vector<int>& threads = {2});

// With one shard all steps give the bits of LinearCrossEntropy, but those of ref, whose sums are wider than statistics.
void ExpectOneShardHasTheBits(const LinearCrossEntropyCase& c, std::uint64_t seed = 1);

// The rows [first, first + count) of a tensor with that first axis.
template <class View>
View RowsOf(View view, std::int64_t first, std::int64_t count) {
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, std::byte, const std::byte>;
  view.data = static_cast<Byte*>(view.data) + first * view.strides[0] * SizeOf(view.dtype);
  view.dims[0] = count;
  return view;
}

}  // namespace onehot::test

#endif  // TESTS_NATIVE_LINEAR_CROSS_ENTROPY_SHARDS_CASES_H_
