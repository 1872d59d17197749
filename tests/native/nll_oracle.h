// What the NLL loss operators must give, computed without the library, from include/onehot/nll_loss.h: the definition,
// and the promised bits. Checked on hand-worked numbers in nll_oracle_test.cpp.
#ifndef TESTS_NATIVE_NLL_ORACLE_H_
#define TESTS_NATIVE_NLL_ORACLE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "onehot/nll_loss.h"
#include "tests/native/tensor.h"

namespace onehot::test {

// The promised bits of an output, row-major.
using Bits = std::vector<std::byte>;

struct NllPromise {
  Bits loss;
  Bits total_weight;  // empty where it is not asked for
};
NllPromise Promise(const NllLoss& op);

// Reads op.out for accumulate: call it before the run.
Bits Promise(const NllLossBackward& op);

// The formulas in long double, whose sums need no order to be better than f64, with bounds on what the promised
// arithmetic may differ by before the last rounding.
//   forward   a term is rounded twice and a sum of n terms n - 1 times at most, each by at most half an eps of the sum
//             of magnitudes; the division once more
//   backward  three operations, and three operands that may have to be rounded to f32 first; the addition of accumulate
struct NllDefinition {
  std::vector<long double> value;
  std::vector<long double> bound;
};
NllDefinition DefineLoss(const NllLoss& op);
NllDefinition DefineTotalWeight(const NllLoss& op);
NllDefinition Define(const NllLossBackward& op);

// Whether each element is within its bound and half a unit in the last place of dtype. Prints the worst.
::testing::AssertionResult WithinBounds(const Bits& got, DType dtype, const NllDefinition& want);

}  // namespace onehot::test

#endif  // TESTS_NATIVE_NLL_ORACLE_H_
