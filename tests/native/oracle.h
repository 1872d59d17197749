// What the operators must give, computed without the library: the definition, and the promised order of summation.
// Written from include/onehot/embedding.h; itself checked on hand-worked numbers in oracle_test.cpp.
#ifndef TESTS_NATIVE_ORACLE_H_
#define TESTS_NATIVE_ORACLE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "onehot/embedding.h"
#include "tests/native/tensor.h"

namespace onehot::test {

// Rows that the positions name; every index must be good.
std::vector<std::int64_t> RowsNamed(const ConstTensorView& indices);

// The definition. Sums are in long double, so that they are better than f64 where that is wider.
struct Definition {
  std::vector<long double> value;      // V x D: what out should hold
  std::vector<long double> magnitude;  // the sum of |x| over everything that was added, scaled like value
  std::vector<std::int64_t> count;     // V
};
// Reads op.out for accumulate: call it before the run.
Definition Define(const EmbeddingBackward& op);

// The promised bits: occurrences in position order, chunks of 512 folded left to right, chunk sums folded left to
// right, each fold from its first element, then the division, the addition of accumulate, one rounding.
struct PromisedBits {
  std::vector<std::byte> out;       // V x D elements of the dtype of out
  std::vector<bool> summed;         // V: a NaN in the row comes out of an addition, so its payload is open
  std::vector<std::int64_t> count;  // V
};
PromisedBits Promise(const EmbeddingBackward& op);

// Bit for bit; NaN for NaN where the payload is open. Says where the first difference is and how many there are.
::testing::AssertionResult HasBits(const Tensor& out, const PromisedBits& want);

// |got - want| <= (count + 2) eps / 2 * magnitude + half a unit in the last place of out, where eps is that of the
// arithmetic: each addition, the division and the addition of accumulate rounds once, and what it rounds is at most
// `magnitude`. Prints the worst element.
::testing::AssertionResult WithinRounding(const Tensor& out, const Definition& want, double eps);

// The same for promised bits, which lie in no tensor.
::testing::AssertionResult WithinRounding(const std::vector<std::byte>& out, DType dtype, const Definition& want,
                                          double eps);

// Half the distance between neighbours of x in that dtype.
long double HalfUnitInLastPlace(DType dtype, long double x);

}  // namespace onehot::test

#endif  // TESTS_NATIVE_ORACLE_H_
