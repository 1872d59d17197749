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
// at most in each.
struct Tokens {
  std::int64_t first, count, block;
  int threads;

  Tokens(std::int64_t begin, std::int64_t tokens, int thread_count)
      : first(begin), count(tokens), threads(thread_count) {
    const std::int64_t blocks = RoundUp((tokens + kTokens - 1) / kTokens, thread_count);
    block = std::max(kTileRows, RoundUp((tokens + blocks - 1) / std::max<std::int64_t>(blocks, 1), kTileRows));
  }

  // Calls work(block, thread) for all of them.
  template <class F>
  void ForBlocks(F&& work) const {
    ParallelFor(threads, (count + block - 1) / block, [&](std::int64_t b, int thread) {
      const std::int64_t begin = b * block, size = std::min(block, count - begin);
      work(TokenBlock{first + begin, size, RoundUp(size, kTileRows), begin}, thread);
    });
  }
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_TOKEN_BLOCKS_H_
