// What LinearCrossEntropy and LinearCrossEntropyBackward must give, computed without the library: the formulas of
// include/onehot/linear_cross_entropy.h in long double, and how far arithmetic in f32 or f64 may be from them. Itself
// checked on hand-worked numbers and on finite differences in linear_cross_entropy_oracle_test.cpp.
#ifndef TESTS_NATIVE_LINEAR_CROSS_ENTROPY_ORACLE_H_
#define TESTS_NATIVE_LINEAR_CROSS_ENTROPY_ORACLE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "onehot/linear_cross_entropy.h"
#include "tests/native/cross_entropy_oracle.h"
#include "tests/native/tensor.h"

namespace onehot::test {

// The argmax of a position, and the classes that rounding of logits may put in its place.
struct Argmax {
  struct Rival {
    std::int64_t index;
    long double gap;  // in units of u: a rival where this is at most 1 u
  };
  std::int64_t index = -1;
  std::vector<Rival> rivals = {};
};

// Per position row-major; gradients row-major.
struct LinearCrossEntropyDefinition {
  Bounded loss, lse, target_logit, log_probability, entropy, total_weight;
  std::vector<Argmax> argmax;
  Bounded grad_input, grad_weight, grad_bias;
};

// Whose errors the bounds of a definition are: products of f32 or wider, or of bf16 (the header, "bf16").
enum class Products { kF32, kBF16 };
Products ProductsOf(const Target& target);

// Targets must be good. All outputs and gradients, whichever op asks for; with accumulate it reads the old gradients of
// those that op has: call it before the run.
LinearCrossEntropyDefinition Define(const LinearCrossEntropy& op, Products products = Products::kF32);

// `got` is an i64 tensor.
::testing::AssertionResult Within(const Tensor& got, const std::vector<Argmax>& want, double u);

}  // namespace onehot::test

#endif  // TESTS_NATIVE_LINEAR_CROSS_ENTROPY_ORACLE_H_
