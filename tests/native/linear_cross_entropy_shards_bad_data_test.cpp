// Targets that name no class of a split vocabulary, and data that is not there, found when a plan runs.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/native/linear_cross_entropy_shards_cases.h"

namespace onehot::test {
namespace {

// ---- targets

// Outside of the vocabulary they are refused by every shard, with position, value and range; outside of the shard they
// are as good as any.
TEST(LinearCrossEntropyShardsBadData, OutsideTheVocabulary) {
  for (const DType input : kGradientDTypes)
    for (const bool accumulate : {false, true}) {
      LinearCrossEntropyCase c{.positions = {2, 3}, .H = 5, .V = 9, .input = input, .ignored = 0};
      c.accumulate = accumulate;
      ShardedProblem problem(c, {4, 0, 5});
      const std::pair<std::int64_t, std::string> values[] = {
          {9, "9"},
          {-1, "-1"},
          {(std::int64_t{1} << 32) + 1, "4294967297"},
          {std::numeric_limits<std::int64_t>::min(), "-9223372036854775808"}};
      for (const auto& [value, shown] : values) {
        problem.whole.target.Set<std::int64_t>(4, value);
        const std::string message = "target[1, 1] (position 4) = " + shown + " is outside [0, 9)";
        for (std::size_t s = 0; s < 3; ++s) {
          ExpectBadData(problem.statistics(s), problem.shards[s].statistics(), message);
          for (const Given given : kGivens) {
            std::vector<Tensor*> gradients = problem.whole.gradient_tensors();
            gradients.push_back(&problem.shards[s].grad_input);
            ExpectBadData(problem.backward(s, given), gradients, message);
          }
          ExpectBadData(problem.probabilities(s), {&problem.shards[s].probability}, message);
        }
        ExpectBadData(problem.loss(), problem.losses(), message);
      }
      problem.whole.target.Set<std::int64_t>(4, kDefaultIgnoreIndex);
      for (const Target& target : Targets<LinearCrossEntropyStatistics>())
        for (std::size_t s = 0; s < 3; ++s)
          if (Takes(target, problem.statistics(s))) EXPECT_OK(RunOn(target, problem.statistics(s)));
    }
}

// Nothing is asked for, and still they are read.
TEST(LinearCrossEntropyShardsBadData, WithoutOutputs) {
  ShardedProblem problem({.positions = {3}, .H = 5, .V = 9, .ignored = 0}, {4, 5});
  problem.whole.target.Set<std::int64_t>(2, 9);
  const LinearCrossEntropyStatistics all = problem.statistics(1);
  ExpectBadData(
      LinearCrossEntropyStatistics{.input = all.input, .weight = all.weight, .target = all.target, .shard = all.shard},
      {}, "target[2] = 9 is outside [0, 9)");
}

// ---- data that is not there

template <class Op, class F>
void ExpectMissing(const Op& good, const std::string& argument, F&& drop) {
  Op op = good;
  drop(op);
  for (const Target& target : Targets<Op>())
    if (Takes(target, op)) EXPECT_STATUS(RunOn(target, op), Code::kNullArgument, argument + ": data must not be null");
}

TEST(LinearCrossEntropyShardsErrors, DataThatIsNotThere) {
  LinearCrossEntropyCase c = WithEverything({.positions = {3}, .H = 2, .V = 5, .denominator = true});
  ShardedProblem problem(c, {2, 3});
  const LinearCrossEntropyStatistics statistics = problem.statistics(1);
  ExpectMissing(statistics, "input", [](auto& op) { op.input.data = nullptr; });
  ExpectMissing(statistics, "weight", [](auto& op) { op.weight.data = nullptr; });
  ExpectMissing(statistics, "target", [](auto& op) { op.target.data = nullptr; });
  ExpectMissing(statistics, "bias", [](auto& op) { op.options.bias->data = nullptr; });
  ExpectMissing(statistics, "class weight", [](auto& op) { op.options.loss.weight->data = nullptr; });
  ExpectMissing(statistics, "max", [](auto& op) { op.max->data = nullptr; });
  ExpectMissing(statistics, "sum_exp", [](auto& op) { op.sum_exp->data = nullptr; });
  ExpectMissing(statistics, "target_logit", [](auto& op) { op.target_logit->data = nullptr; });
  ExpectMissing(statistics, "smoothing", [](auto& op) { op.smoothing->data = nullptr; });
  ExpectMissing(statistics, "moment", [](auto& op) { op.moment->data = nullptr; });
  ExpectMissing(statistics, "argmax", [](auto& op) { op.argmax->data = nullptr; });
  ExpectMissing(statistics, "logits", [](auto& op) { op.logits->data = nullptr; });
  const LinearCrossEntropyBackward backward = problem.backward(1, Given::kMaxAndSum);
  ExpectMissing(backward, "max", [](auto& op) { op.max->data = nullptr; });
  ExpectMissing(backward, "sum_exp", [](auto& op) { op.sum_exp->data = nullptr; });
  ExpectMissing(backward, "entropy", [](auto& op) { op.entropy->data = nullptr; });
  LinearCrossEntropyBackward probability = problem.backward(1, Given::kProbability);
  probability.options.loss.z_loss = probability.options.loss.softcap = 0;
  probability.upstream.entropy = probability.entropy = std::nullopt;
  ExpectMissing(probability, "probability", [](auto& op) { op.probability->data = nullptr; });
  LinearCrossEntropyLoss loss = problem.loss();
  ExpectMissing(loss, "max", [](auto& op) { op.max.data = nullptr; });
  ExpectMissing(loss, "sum_exp", [](auto& op) { op.sum_exp.data = nullptr; });
  ExpectMissing(loss, "target_logit", [](auto& op) { op.target_logit->data = nullptr; });
  ExpectMissing(loss, "smoothing", [](auto& op) { op.smoothing->data = nullptr; });
  ExpectMissing(loss, "moment", [](auto& op) { op.moment->data = nullptr; });
  ExpectMissing(loss, "target", [](auto& op) { op.target->data = nullptr; });
  ExpectMissing(loss, "class weight", [](auto& op) { op.options.weight->data = nullptr; });
  ExpectMissing(loss, "token_weight", [](auto& op) { op.options.token_weight->data = nullptr; });
  ExpectMissing(loss, "denominator", [](auto& op) { op.options.denominator->data = nullptr; });
  ExpectMissing(loss, "loss", [](auto& op) { op.loss->data = nullptr; });
  ExpectMissing(loss, "lse", [](auto& op) { op.lse->data = nullptr; });
  ExpectMissing(loss, "log_probability", [](auto& op) { op.log_probability->data = nullptr; });
  ExpectMissing(loss, "entropy", [](auto& op) { op.entropy->data = nullptr; });
  ExpectMissing(loss, "total_weight", [](auto& op) { op.total_weight->data = nullptr; });
  ExpectMissing(problem.probabilities(1), "logits", [](auto& op) { op.logits->data = nullptr; });
  ExpectMissing(problem.probabilities(1), "probability", [](auto& op) { op.probability->data = nullptr; });
}

}  // namespace
}  // namespace onehot::test
