// What the fused operators of the C face must give, from the formulas in their headers, computed in double without the
// library, and how far arithmetic in float may be from that.
#ifndef TESTS_ACLNN_FUSED_ORACLE_H_
#define TESTS_ACLNN_FUSED_ORACLE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/native/tensor.h"

namespace onehot::test::fused {

// Row-major. A result may be off by `bound` and half a unit in the last place of its dtype.
struct Bounded {
  std::vector<double> value, bound;

  void Add(double v, double b) { value.push_back(v), bound.push_back(b); }
};
// Prints the worst element.
::testing::AssertionResult Within(const Tensor& got, const Bounded& want);
// The same for numbers that were rounded before, and whose bound is in `want`.
::testing::AssertionResult Within(const std::vector<double>& got, const Bounded& want);

// As it is, without error.
Bounded Exactly(const Tensor& tensor);

// One shard: L = input weight^T and what aclnnFusedLinearOnlineMaxSum says about it. Row -1: the target is elsewhere.
struct Statistics {
  Bounded logits, max, sum_exp, predicted;
  std::vector<std::int64_t> row;
};
Statistics DefineStatistics(const Tensor& input, const Tensor& weight, const Tensor& target, std::int64_t start,
                            std::int64_t end);

Bounded DefineLoss(const Tensor& sum_exp, const Tensor& predicted);
// exp(logits - max) / sum_exp.
Bounded DefineSoftmax(const Bounded& logits, const Tensor& max, const Tensor& sum_exp);
// `sum_exp_error`: how far the given sums may be from the truth, relative, for each token; none is 0.
Bounded DefineProbability(const Tensor& input, const Tensor& weight, const Tensor& max, const Tensor& sum_exp,
                          const std::vector<double>& sum_exp_error = {});

struct Gradients {
  Bounded input, weight;
};
Gradients DefineGradients(const Tensor& grad, const Tensor& input, const Tensor& weight,
                          const std::vector<std::int64_t>& row, const Bounded& probability);

// An element of an i64 or i32 tensor.
std::int64_t Integer(const Tensor& tensor, std::int64_t position);

}  // namespace onehot::test::fused

#endif  // TESTS_ACLNN_FUSED_ORACLE_H_
