// What LinearCrossEntropyStatistics, LinearCrossEntropyLoss, and LinearCrossEntropyBackward with numbers it is given must
// give, computed without the library: the formulas of the headers in long double, and how far arithmetic in f32 or f64
// may be from them.
#ifndef TESTS_NATIVE_LINEAR_CROSS_ENTROPY_SHARDS_ORACLE_H_
#define TESTS_NATIVE_LINEAR_CROSS_ENTROPY_SHARDS_ORACLE_H_

#include <vector>

#include "onehot/linear_cross_entropy_shards.h"
#include "tests/native/linear_cross_entropy_oracle.h"

namespace onehot::test {

// Targets must be good everywhere below. All outputs, whichever op asks for.
struct StatisticsDefinition {
  Bounded max, sum_exp, target_logit, smoothing, moment, logits;
  std::vector<Argmax> argmax;
};
StatisticsDefinition Define(const LinearCrossEntropyStatistics& op, Products products = Products::kF32);

// From the statistics as they are, exactly. What needs a statistic that is not there stays empty.
struct ShardLossDefinition {
  Bounded loss, lse, log_probability, entropy, total_weight, probability;
};
ShardLossDefinition Define(const LinearCrossEntropyLoss& op);

// From lse, max and sum_exp, or probability as they are, exactly: one of them must be there. grad.input is the part of
// the shard. With accumulate it reads the old gradients: call it before the run.
struct ShardGradients {
  Bounded input, weight, bias;
};
ShardGradients Define(const LinearCrossEntropyBackward& op, Products products = Products::kF32);

}  // namespace onehot::test

#endif  // TESTS_NATIVE_LINEAR_CROSS_ENTROPY_SHARDS_ORACLE_H_
