// Tokens of a linear layer in blocks, the tasks of its threads.
#ifndef ONEHOT_CPU_TOKEN_BLOCKS_H_
#define ONEHOT_CPU_TOKEN_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "cpu/linear_memory.h"
#include "cpu/linear_simd.h"
#include "cpu/threads.h"

namespace onehot::cpu {

struct TokenBlock {
  std::int64_t begin, count;
  std::int64_t padded;  // count rounded up to kTileRows
  std::int64_t within;  // begin, counted from the first of the tokens that blocks were made of
};

// Tokens of a run from `first`, a multiple of kTileRows, in blocks of whole tiles: as many blocks for each thread, kTokens
// at most in each. Blocks differ by one tile, the larger ones first, so that threads that take turns have about as many.
struct Tokens {
  std::int64_t first, count, blocks;
  int threads;

  Tokens(std::int64_t begin, std::int64_t tokens, int thread_count)
      : first(begin),
        count(tokens),
        blocks(std::min(RoundUp((tokens + kTokens - 1) / kTokens, thread_count), (tokens + kTileRows - 1) / kTileRows)),
        threads(thread_count) {}

  TokenBlock Block(std::int64_t b) const {
    const std::int64_t tiles = (count + kTileRows - 1) / kTileRows;
    const auto from = [&](std::int64_t i) {
      return std::min((i * (tiles / blocks) + std::min(i, tiles % blocks)) * kTileRows, count);
    };
    const std::int64_t begin = from(b), size = from(b + 1) - begin;
    return {first + begin, size, RoundUp(size, kTileRows), begin};
  }

  // Calls work(block, thread) for all of them.
  template <class F>
  void ForBlocks(F&& work) const {
    ParallelFor(threads, blocks, [&](std::int64_t b, int thread) { work(Block(b), thread); });
  }
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_TOKEN_BLOCKS_H_
