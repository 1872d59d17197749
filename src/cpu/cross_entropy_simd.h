// What cross entropy does for each position once its softmax is known, as loops over a batch of them; once per
// instruction set.
#ifndef ONEHOT_CPU_CROSS_ENTROPY_SIMD_H_
#define ONEHOT_CPU_CROSS_ENTROPY_SIMD_H_

#include <cstddef>
#include <cstdint>

#include "core/isa.h"
#include "cpu/targets_simd.h"

namespace onehot::cpu {

// The options of a loss as its loops need them. onehot/cross_entropy.h has the formulas.
struct LossFactors {
  float label_smoothing;  // eps
  float share;            // eps / C
  float all_weights;      // S
  float z_loss;           // zeta
};

// Results from the statistics of cpu/softmax_simd.h. Null results are not asked for; everything is 0 where the class is
// kIgnored.
struct LossOfTask {
  std::int64_t count;
  const std::uint32_t* classes;
  const float *max, *log_sum, *target;  // target: z_y
  const float *reference, *linear;      // for smoothing; else null
  const float *moment, *sum;            // for the entropy; moment may be null
  const float* weight;                  // for each class; null: all 1
  const float* token_weight;            // for each position; null: all 1
  LossFactors factors;
  float *lse, *log_probability, *entropy;
  float *loss, *z_loss;  // t l and t q
};

// The factors of SoftmaxGradientTask.
struct FactorTask {
  std::int64_t count;
  const std::uint32_t* classes;
  const float* grad_loss;  // null: none
  bool grad_loss_per_position;
  const float* token_weight;
  const float* weight;
  float D, D_z;
  LossFactors factors;
  const float* grad_log_probability;  // null: none
  const float *max, *log_sum;         // lse is their sum
  float *alpha, *beta, *gamma;        // beta, gamma may be null
};

struct WeightSums {
  double D, D_z;
  std::int64_t counted;
};

struct CrossEntropyKernels {
  void (*losses)(const LossOfTask& task);
  void (*factors)(const FactorTask& task);
  // A block of at most kSumBlock terms, summed up in kSumLanes lanes.
  double (*block_sum)(const float* terms, std::int64_t count);
  // The same for w_y t and t; positions that are ignored have neither.
  WeightSums (*block_weights)(const std::uint32_t* classes, std::int64_t count, const float* weight,
                              const float* token_weight);
  // All classes in four bytes.
  void (*classes)(const ClassRun& classes, std::uint32_t* to);
};

const CrossEntropyKernels& CrossEntropyKernelsFor(Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_CROSS_ENTROPY_SIMD_H_
