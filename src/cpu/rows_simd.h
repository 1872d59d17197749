// Loops over rows of a matrix, once per instruction set. All of them take D columns that lie side by side.
#ifndef ONEHOT_CPU_ROWS_SIMD_H_
#define ONEHOT_CPU_ROWS_SIMD_H_

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/isa.h"

namespace onehot::cpu {

// Rows a fold looks ahead, as many as it reads in lockstep.
inline constexpr std::int64_t kFoldAhead = 8;

// Non-temporal stores take whole aligned vectors, the widest of which has 64 bytes; that is a cache line too, and one
// written in part costs a read.
inline constexpr std::int64_t kStreamAlign = 64;

// One output row of a sum of rows.
struct FoldTask {
  const std::byte* const* rows;  // `count` >= 1 addresses, in the order of the sum
  std::int64_t count;
  std::int64_t ahead = 0;  // addresses after those that will be wanted next: at most kFoldAhead, for prefetching
  std::int64_t first = 0;  // the first column of the rows that is wanted
  std::int64_t columns;    // how many are
  std::byte* out;
  double divisor = 1;       // what the finished sum is divided by; 1 divides nothing
  bool accumulate = false;  // out += instead of out =
  bool stream = false;      // past the caches; `out` and the width of a row in bytes are multiples of kStreamAlign
};

// out[c] = round(divide(((rows[0][c] + rows[1][c]) + rows[2][c]) + ...)): left to right from the first row, in the
// accumulator type. A single row that is neither converted nor accumulated is copied bit for bit.
using FoldFunction = void (*)(const FoldTask& task);

struct RowKernels {
  const char* target;

  // The fold for a dtype of grad and one of out; null for pairs outside onehot/embedding.h. Sums of chunks are rows of
  // the accumulator type, so f32 to f16 and to bf16 are there too.
  FoldFunction (*fold)(DType grad, DType out);

  // Writes zeros.
  void (*zero)(std::byte* out, std::int64_t bytes);
  void (*zero_stream)(std::byte* out, std::int64_t bytes);  // past the caches, any alignment

  // Copies past the caches, any alignment.
  void (*copy_stream)(const std::byte* in, std::byte* out, std::int64_t bytes);

  // Bit i is set where counts[i] != 0, for 64 counts.
  std::uint64_t (*nonzero64)(const std::uint32_t* counts);
};

const RowKernels& RowKernelsFor(Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_ROWS_SIMD_H_
