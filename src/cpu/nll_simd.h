// Loops of the NLL loss gradient, once per instruction set.
#ifndef ONEHOT_CPU_NLL_SIMD_H_
#define ONEHOT_CPU_NLL_SIMD_H_

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/isa.h"
#include "cpu/targets_simd.h"

namespace onehot::cpu {

// Positions worked on at a time: classes and values of a block, 4 bytes each, are 16 KiB and stay in L1 while its planes
// or rows are written.
inline constexpr std::int64_t kPositionBlock = 2048;

// With more classes than this, most lines of a plane are zeros even where labels are random. Finding out costs 0.5 ns a
// position, as much as comparing it with some 30 classes.
inline constexpr std::int64_t kFewClasses = 64;

// Bytes of a plane that one PlaneTask has at most. Where most of a plane is zeros, runs of 64 KiB go to memory at twice the
// rate of runs of 8 KiB, each on pages of its own (measured: 90 against 50 GB/s).
inline constexpr std::int64_t kPlaneRun = 64 << 10;

// Classes of one PlaneTask at most: 16 words of bits for each, one for each line of a run, take 70 KB of the stack. Reading
// the positions again for more classes costs 1 ns for each, 2 % of writing so many lines.
inline constexpr std::int64_t kPlaneClasses = 512;

// Some numbers of a tensor, `step` elements apart.
struct Operand {
  const std::byte* data = nullptr;  // null: not given
  DType dtype = DType::kF32;
  std::int64_t step = 0;
};

// values[i] = -(((weight[class] * token_weight[i]) * grad[i]) / denominator), rounded to the dtype of out; anything where
// ignored. Factors that are not given are left out. Arithmetic is in Real: f64 for f64 out, else f32.
struct ValueTask {
  ClassRun classes;    // at most kPositionBlock
  const void* weight;  // Real, one for each class; or null
  std::int64_t C;      // classes
  Operand token_weight;
  Operand grad;
  const void* denominator;  // one Real; or null
  void* values;
};
using ValueFunction = void (*)(const ValueTask& task);

// Positions that lie side by side in out: row c of it becomes the value where the class is c and +0 elsewhere. Values are
// moved as bits.
struct PlaneTask {
  ClassRun classes;                     // at most kPlaneRun bytes of out
  std::int64_t first_class, end_class;  // at most kPlaneClasses
  std::byte* out;                       // of class 0 and the first position
  std::int64_t class_stride;            // bytes
  const std::byte* values;              // for each position; or null
  const std::byte* table;               // else: for each class, or one for all
  bool table_per_class;
  bool sparse;  // most planes have none of the positions
  bool stream;  // past the caches; any alignment
};
using PlaneFunction = void (*)(const PlaneTask& task);

// Short rows without gaps, one for each position: `count` of them, a multiple of kShortRows, C at most kShortRowClasses.
struct RowTask {
  ClassRun classes;  // at most kPositionBlock
  std::int64_t C;
  std::byte* out;
  const std::byte* values;  // as in PlaneTask
  const std::byte* table;
  bool table_per_class;
  bool stream;  // past the caches; `out` is aligned to kStreamAlign
};
using RowFunction = void (*)(const RowTask& task);

// As many as the widest vectors have lanes of 32 bits; a multiple of what narrower ones have.
inline constexpr std::int64_t kShortRows = 16;

// The patterns of so many classes, 12 bytes for each element of kShortRows rows, take 12 KiB of L1. Longer rows have few
// enough values to be put in one by one.
inline constexpr std::int64_t kShortRowClasses = 64;

struct NllKernels {
  ValueFunction (*values)(DType out);
  PlaneFunction (*planes)(std::int64_t element_bytes);
  RowFunction (*rows)(std::int64_t element_bytes);  // null for 8
};

const NllKernels& NllKernelsFor(Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_NLL_SIMD_H_
