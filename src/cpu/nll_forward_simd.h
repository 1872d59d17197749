// The loop of the NLL loss, once per instruction set.
#ifndef ONEHOT_CPU_NLL_FORWARD_SIMD_H_
#define ONEHOT_CPU_NLL_FORWARD_SIMD_H_

#include <cstddef>
#include <cstdint>

#include "core/isa.h"
#include "core/layout.h"
#include "onehot/tensor.h"

namespace onehot::cpu {

struct LossTask {
  const ConstTensorView* input;
  const Positions* input_at;  // positions in input
  std::int64_t class_stride;
  std::int64_t C;
  std::int64_t begin, count;  // positions, at most kSumBlock of cpu/ordered_sum.h
  const std::byte* classes;   // of position `begin`
  int class_bytes;
  const double* weight;        // for each class; or null
  const double* token_weight;  // for each of the positions; or null
};

struct LossSums {
  double loss, weight;
  std::int64_t counted;  // positions that are not ignored
};

struct NllForwardKernels {
  // The sums over a block.
  LossSums (*sums)(const LossTask& task);
  // The term of each position.
  void (*terms)(const LossTask& task, double* terms);
};

const NllForwardKernels& NllForwardKernelsFor(Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_NLL_FORWARD_SIMD_H_
