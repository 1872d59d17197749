// Data that looks like the trade: skewed, ragged, odd. Reproducible: nothing here depends on the standard library's
// distributions.
#ifndef TESTS_NATIVE_DATA_H_
#define TESTS_NATIVE_DATA_H_

#include <cstdint>
#include <vector>

#include "tests/native/tensor.h"

namespace onehot::test {

// SplitMix64 (Steele, Lea and Flood, 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Bits() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::int64_t Below(std::int64_t limit) {
    return static_cast<std::int64_t>(Bits() % static_cast<std::uint64_t>(limit));
  }
  double Unit() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  std::uint64_t state_;
};

enum class Spread {
  kUniform,
  kZipf,      // frequencies like those of words, ids in no order
  kSorted,    // uniform, ascending
  kAllEqual,  // one row takes everything
  kFewHot,    // three rows take nine tenths, the rest is uniform
};

std::vector<std::int64_t> Indices(Spread spread, std::int64_t N, std::int64_t V, std::uint64_t seed);

// Row `hot` at exactly `times` of the N positions, spread over all of them; the others name other rows.
std::vector<std::int64_t> IndicesWithHotRow(std::int64_t N, std::int64_t V, std::int64_t hot, std::int64_t times,
                                            std::uint64_t seed);

void SetIndices(Tensor& tensor, const std::vector<std::int64_t>& rows);

// Signed values with full mantissas over some twenty binades, so that every change of the order of a sum changes its
// bits. All of them, and sums of thousands, are finite in f16.
void FillGradient(Tensor& tensor, std::uint64_t seed);

}  // namespace onehot::test

#endif  // TESTS_NATIVE_DATA_H_
