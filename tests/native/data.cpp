#include "tests/native/data.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace onehot::test {

std::vector<std::int64_t> Indices(Spread spread, std::int64_t N, std::int64_t V, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(N));
  if (V == 0) return rows;
  std::vector<std::int64_t> id(static_cast<std::size_t>(V));
  for (std::size_t v = 0; v < id.size(); ++v) id[v] = static_cast<std::int64_t>(v);
  for (std::size_t v = id.size(); v > 1; --v)
    std::swap(id[v - 1], id[static_cast<std::size_t>(random.Below(static_cast<std::int64_t>(v)))]);
  for (std::int64_t& row : rows) {
    switch (spread) {
      case Spread::kUniform:
      case Spread::kSorted:
        row = random.Below(V);
        break;
      case Spread::kAllEqual:
        row = V / 2;
        break;
      case Spread::kZipf: {
        // P(rank <= r) = log(r + 1) / log(V + 1): a density of 1 / rank.
        const double rank = std::exp(random.Unit() * std::log(static_cast<double>(V + 1))) - 1;
        row = id[static_cast<std::size_t>(std::min(static_cast<std::int64_t>(rank), V - 1))];
        break;
      }
      case Spread::kFewHot:
        row = random.Below(10) == 0 ? random.Below(V)
                                    : id[static_cast<std::size_t>(random.Below(std::min<std::int64_t>(V, 3)))];
        break;
    }
  }
  if (spread == Spread::kSorted) std::ranges::sort(rows);
  return rows;
}

std::vector<std::int64_t> IndicesWithHotRow(std::int64_t N, std::int64_t V, std::int64_t hot, std::int64_t times,
                                            std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(N));
  for (std::int64_t i = 0; i < N; ++i) {
    // Bresenham's line: `times` of N, evenly.
    const bool named = (i + 1) * times / N != i * times / N;
    std::int64_t other = random.Below(V - 1);
    if (other >= hot) ++other;
    rows[static_cast<std::size_t>(i)] = named ? hot : other;
  }
  return rows;
}

void SetIndices(Tensor& tensor, const std::vector<std::int64_t>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i);
    if (tensor.layout().dtype == DType::kBool) {
      // Any byte but 0 is true.
      tensor.Set(position, static_cast<std::uint8_t>(rows[i] == 0 ? 0 : 1 + position % 255));
    } else if (tensor.layout().dtype == DType::kI64) {
      tensor.Set(position, rows[i]);
    } else {
      tensor.SetValue(position, static_cast<double>(rows[i]));
    }
  }
}

void FillGradient(Tensor& tensor, std::uint64_t seed) {
  Random random(seed);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const std::uint64_t bits = random.Bits();
    const double mantissa = 1 + static_cast<double>(bits >> 12) * 0x1p-52;
    const int exponent = -16 + static_cast<int>(bits & 0xFFF) % 20;
    tensor.SetValue(i, std::ldexp((bits >> 11 & 1) != 0 ? -mantissa : mantissa, exponent));
  }
}

}  // namespace onehot::test
