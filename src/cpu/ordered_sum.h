// The order of sums over positions that onehot/nll_loss.h promises: blocks, and in each of them lanes.
#ifndef ONEHOT_CPU_ORDERED_SUM_H_
#define ONEHOT_CPU_ORDERED_SUM_H_

#include <cstdint>

namespace onehot::cpu {

// Positions summed up together, and the lanes they are dealt to. Classes of a softmax are dealt to as many.
inline constexpr std::int64_t kSumBlock = 4096;
inline constexpr std::int64_t kSumLanes = 16;

constexpr std::int64_t SumBlocks(std::int64_t positions) {
  return (positions + kSumBlock - 1) / kSumBlock;
}

// Lane j with j + 8, then 4, 2, 1.
template <class Real>
Real FoldLanes(Real* lanes) {
  for (std::int64_t width = kSumLanes / 2; width > 0; width /= 2)
    for (std::int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
}

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_ORDERED_SUM_H_
