// What the oracles of linear cross entropy share: plain numbers, the logits, and how far arithmetic may be from them.
#ifndef TESTS_NATIVE_LINEAR_CROSS_ENTROPY_ORACLE_PARTS_H_
#define TESTS_NATIVE_LINEAR_CROSS_ENTROPY_ORACLE_PARTS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "onehot/linear_cross_entropy.h"
#include "tests/native/linear_cross_entropy_oracle.h"

namespace onehot::test::linear {

using Real = long double;
using Reals = std::vector<Real>;

inline constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
inline constexpr Real kNaN = std::numeric_limits<Real>::quiet_NaN();

// In units of u. exp, log and tanh: 4 units in the last place.
inline constexpr Real kFunction = 8;
// u / c, the product with c, and c itself are rounded; to spare as in cross_entropy_oracle.cpp.
inline constexpr Real kCapped = kFunction + 6;
// A block of 1024 classes: 64 additions in a lane, 4 when lanes are folded.
inline constexpr Real kBlock = 64 + 4;
// Rescaling a block: a function, a product, a sum.
inline constexpr Real kFold = kFunction + 2;
// Factors of a term: a product each, and the rounding of eps, zeta, 1 - eps, C and D to f32.
inline constexpr Real kFactors = 12;
// Beside the chain of a product: alpha is rounded, alpha times something is, and so is one more sum or the result.
inline constexpr Real kProduct = 3;
// What is lost below the smallest normal numbers of f32, for each term; a probability there may count as 0.
inline constexpr Real kVanishing = 0x1p-126L;
// alpha du rounded to bf16, 8 significant bits: half a unit in the last place is 2^-8 in [1, 2), of numbers from 1 on.
inline constexpr Real kToBF16 = 0x1p-8L;

Reals Elements(const ConstTensorView& tensor);
Reals ElementsOr(const std::optional<ConstTensorView>& tensor, std::int64_t count, Real otherwise);
std::vector<std::int64_t> TargetsOf(const ConstTensorView& target);

// Of sums in f64 over N positions, as a share of the sum of magnitudes: 4096 / 16 additions in a lane, 4 when lanes are
// folded, one for each block and the term's own.
Real SumError(std::size_t N);

// z of one position, and errors in units of u.
struct Logits {
  Reals z, e_z;
};
Logits DefineLogits(const Real* x, const Reals& W, const Reals& bias, double logit_scale, double softcap,
                    Products products);

// Of a position with classes; NaN is the largest of all.
Argmax DefineArgmax(const Logits& logits);

// Gradients before the first term: what is there already, or zeros. It goes through the whole chain of `terms`.
Bounded Old(const std::optional<TensorView>& gradient, bool accumulate, std::size_t count, Real terms);

// Adds d * other, a term of a chain of `terms`, to element k. d is off by e_d units of u.
//
// With products of bf16 d is rounded on the way, off by kToBF16 of |d| and of its error; and d or `other` below
// kVanishing may count as 0. Sums that vanish are in the floor of any chain. Pairs round as often as single terms do.
inline void AddProduct(Bounded& to, std::size_t k, Real d, Real e_d, Real other, Real terms, Products products) {
  const Real size = std::abs(d), of_other = std::abs(other);
  to.value[k] += d * other;
  const Real error = (e_d + terms * size) * of_other;
  if (products == Products::kF32) {
    to.error[k] += error;
    return;
  }
  to.error[k] += (1 + kToBF16) * error;
  to.floor[k] += kToBF16 * size * of_other + kVanishing * (size + of_other);
}

}  // namespace onehot::test::linear

#endif  // TESTS_NATIVE_LINEAR_CROSS_ENTROPY_ORACLE_PARTS_H_
