// Loops over logits, once per instruction set: the statistics of their softmax, and its gradient. Positions come in
// batches that fit the L2 cache, so that going over them again costs no memory traffic.
#ifndef ONEHOT_CPU_SOFTMAX_SIMD_H_
#define ONEHOT_CPU_SOFTMAX_SIMD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/isa.h"
#include "cpu/ordered_sum.h"

namespace onehot::cpu {

// Positions in a batch at most: rows of planes are then worth fetching (8 KiB).
inline constexpr std::int64_t kBatch = 2048;

// Numbers of a tile, where planes of a block of classes are kept side by side between the two times they are needed:
// half of a 1 MiB L2.
inline constexpr std::int64_t kTile = 128 << 10;

// Classes whose exponentials are summed up before sums are folded, and the lanes they are dealt to: the order that
// onehot/cross_entropy.h promises.
inline constexpr std::int64_t kClassBlock = 1024;
inline constexpr std::int64_t kClassLanes = kSumLanes;

// Positions of planes that go through a tile together.
inline constexpr std::int64_t kStatisticsBatch = 512;
constexpr std::int64_t StatisticsBatch(std::int64_t C) {
  const std::int64_t block = std::clamp<std::int64_t>(C, 1, kClassBlock);
  return std::clamp<std::int64_t>(kTile / block / 64 * 64, 64, kStatisticsBatch);
}

// Logits of some positions: element (i, v) at data + i * position_step + v * class_step elements.
struct Logits {
  const std::byte* data;
  DType dtype;  // f32, f16, bf16
  std::int64_t position_step, class_step;
  std::int64_t count;  // positions, at most kBatch
  std::int64_t C;
  float softcap;  // 0: none

  // Positions that lie side by side, unlike their classes.
  bool planes() const { return position_step == 1 && class_step != 1; }
};

// For each position, z being the capped logits:
//   max     m = the largest z
//   sum     sum of e^(z - m)
//   linear  sum of w (z - reference), classes with w = 0 left out, if asked for; reference is the largest z of the first
//           block of classes that are not all left out, or 0: near enough for large common logits to cancel
//   moment  sum of e^(z - m) (z - m), if asked for
//   argmax  the lowest class with z = m, if asked for; the first NaN if there is one
//   target  z of the class named in `classes`, if asked for; 0 where there is no such class
// Results are aligned to 64 bytes and have room for whole vectors of as much.
struct SoftmaxTask {
  Logits logits;
  float* tile;          // kTile numbers aligned to 64 bytes; for planes only
  const float* weight;  // of `linear`, for each class; null: all 1
  float *max, *sum;
  float *reference, *linear;  // null: not asked for
  float* moment;              // null: not asked for
  std::uint32_t* argmax;      // null: not asked for
  const std::uint32_t* classes;
  float* target;  // null, like classes: not asked for
};

// out = slope * [ alpha (p - [v = y]) + p (beta - h (z - m - s + H)) - gamma w_v ],  p = e^(z - m - s), and +0 for
// positions whose class is kIgnored. The slope is that of the softcap, 1 - (z / c)^2.
struct SoftmaxGradientTask {
  Logits logits;
  std::byte* out;
  DType out_dtype;
  std::int64_t out_position_step, out_class_step;  // elements
  bool stream;                                     // past the caches
  const std::uint32_t* classes;
  const float *max, *alpha;
  const float* log_sum;      // null: all 0
  const float* beta;         // null: no such term
  const float *h, *entropy;  // null: no such term
  const float* gamma;        // null: no such term
  const float* weight;       // of gamma, for each class; null: all 1
};

struct SoftmaxKernels {
  void (*statistics)(const SoftmaxTask& task);
  // to[i] = ln from[i]. to may be from.
  void (*log)(const float* from, std::int64_t count, float* to);
};

const SoftmaxKernels& SoftmaxKernelsFor(Isa isa);

using SoftmaxGradientFunction = void (*)(const SoftmaxGradientTask& task);
SoftmaxGradientFunction SoftmaxGradientFor(Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_SOFTMAX_SIMD_H_
