// What CrossEntropy and CrossEntropyBackward must give, computed without the library: the formulas of
// include/onehot/cross_entropy.h in long double, and how far arithmetic in f32 or f64 may be from them. Itself checked on
// hand-worked numbers in cross_entropy_oracle_test.cpp.
#ifndef TESTS_NATIVE_CROSS_ENTROPY_ORACLE_H_
#define TESTS_NATIVE_CROSS_ENTROPY_ORACLE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "onehot/cross_entropy.h"
#include "tests/native/targets.h"
#include "tests/native/tensor.h"

namespace onehot::test {

// |result - value| <= error * u + floor + half a unit in the last place of the result's dtype, where u is the unit
// roundoff of the arithmetic. `error` follows every rounding that the header's order of operations has, to first order
// in u; exp, log and tanh are taken to be right to 4 units in the last place, which is 8 u.
struct Bounded {
  std::vector<long double> value, error, floor;

  void Add(long double v, long double e, long double f = 0) {
    value.push_back(v), error.push_back(e), floor.push_back(f);
  }
};

struct CrossEntropyDefinition {
  Bounded loss, lse, log_probability, entropy, total_weight;
  std::vector<std::int64_t> argmax;
};

// Targets must be good. Which outputs op asks for makes no difference.
CrossEntropyDefinition Define(const CrossEntropy& op);

// The gradient of every element of op.out, row-major. op.lse makes no difference.
Bounded Define(const CrossEntropyBackward& op);

// Where class v of position i is, counted row-major in a tensor of that shape.
std::int64_t ClassPosition(const TensorLayout& classes, int axis, std::int64_t i, std::int64_t v);

// u: 2^-24 in f32, 2^-53 in f64. "ref" computes in f64 and adds classes up one after the other, C roundings instead of
// the 64 + 4 of a block.
double UnitRoundoff(const Target& target, DType input, std::int64_t C);

// Prints the bound and the worst element.
::testing::AssertionResult Within(const Tensor& got, const Bounded& want, double u);

}  // namespace onehot::test

#endif  // TESTS_NATIVE_CROSS_ENTROPY_ORACLE_H_
