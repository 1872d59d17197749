// Loops for narrow rows, once per instruction set: sums that are taken in position order, next to each other in a
// cache.
#ifndef ONEHOT_CPU_NARROW_ROWS_SIMD_H_
#define ONEHOT_CPU_NARROW_ROWS_SIMD_H_

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/isa.h"

namespace onehot::cpu {

// Widest row of sums, in bytes. Wider ones are read at the speed of memory either way, and sorting their positions,
// some 5 ns each, is a small part of it.
inline constexpr std::int64_t kNarrowBytes = 512;

// A position and the row it names, as cpu/partition.h leaves them.
struct RowEntry {
  std::uint32_t row, position;
};

// Adds positions to the sums of their rows.
struct SumTask {
  // The positions to add, in order: those of entries[0 .. count); or, if `entries` is null, first_position + i for the
  // row rows[i].
  const RowEntry* entries;
  const std::uint32_t* rows;
  std::uint32_t first_position;
  std::int64_t count;
  std::int64_t ahead;       // positions that follow and will be wanted next, for prefetching
  std::uint32_t first_row;  // of the sums; every row named is in [first_row, first_row + number of sums)

  const std::byte* grad;
  std::int64_t grad_stride;  // bytes from a position to the next
  std::int64_t columns;

  std::uint32_t* counts;  // per row, occurrences so far; zeroed by the caller
  std::uint32_t* lasts;   // per row, the position of the last one
  std::byte* sums;        // of the accumulator type, `columns` per row; what they hold before is of no interest

  // Called when a row is named again after a multiple of 512 occurrences, with its sum of the last 512.
  void (*chunk_done)(void* context, std::uint32_t row, std::uint32_t occurrences, const std::byte* sum);
  void* context;
};

// What becomes of the sums: rows [0, rows) of `out`, those with a count of 0 zeroed unless `accumulate`.
struct FinishTask {
  std::int64_t rows, columns;
  const std::uint32_t* counts;  // readable up to the next multiple of 64
  const std::uint32_t* lasts;
  const std::byte* sums;
  const std::byte* grad;
  std::int64_t grad_stride;
  std::byte* out;
  std::int64_t out_stride;  // bytes
  bool scale, accumulate;
  bool stream;       // past the caches
  bool stream_rows;  // a row by itself too: each is whole aligned lines, as in FoldTask
  // Called for rows with more than 512 occurrences, last, instead of writing them.
  void (*hot)(void* context, std::int64_t row, std::uint32_t count, const std::byte* sum);
  void* context;
};

using SumFunction = void (*)(const SumTask& task);
using FinishFunction = void (*)(const FinishTask& task);

struct NarrowRowKernels {
  SumFunction (*sum)(DType grad);
  FinishFunction (*finish)(DType grad, DType out);  // null for pairs outside onehot/embedding.h
};

const NarrowRowKernels& NarrowRowKernelsFor(Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_NARROW_ROWS_SIMD_H_
