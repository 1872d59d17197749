// How much of the linear cross entropy is in memory at a time: the two orders of onehot/linear_cross_entropy.h.
#ifndef ONEHOT_CPU_LINEAR_MEMORY_H_
#define ONEHOT_CPU_LINEAR_MEMORY_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"
#include "cpu/linear_simd.h"
#include "cpu/softmax_simd.h"
#include "cpu/threads.h"
#include "onehot/linear_cross_entropy.h"

namespace onehot::cpu {

// Blocks of classes that sums of exponentials are defined over.
static_assert(kClassBlock % kTileColumns == 0);
constexpr std::int64_t BlockOf(std::int64_t V) {
  return std::min(kClassBlock, RoundUp(V, kTileColumns));
}

// Tokens of a task: with a chunk's columns, 400 KB of logits, which stay in L2 until they are used.
inline constexpr std::int64_t kTokens = 16 * kTileRows;

// Classes of a task of grad_weight, beside kTileColumns columns: 24 KB of sums, which stay in L1.
inline constexpr std::int64_t kClassRows = 16 * kTileRows;

// Each group of tokens goes over the weight twice and over grad_weight once: measured 1.6 ns an element on one core of Zen 5,
// 0.86 on two, where the product that is saved takes 2 / 216 and 2 / 424 ns a token. 172 and 182 tokens break even; a
// quarter more, for machines with less memory bandwidth. A multiple of kTileRows.
inline constexpr std::int64_t kLeastGroup = 222;

// Rows of logits that are used at once, for as many threads as there may be: all tokens have one, or kTokens each.
inline std::int64_t PassingRows(std::int64_t N) {
  return std::min(RoundUp(N, kTileRows), std::max<std::int64_t>(8, Processors()) * kTokens);
}

struct LinearMemory {
  std::int64_t group = 0;    // tokens whose logits are kept for all classes; 0: all tokens, a chunk of classes
  std::int64_t chunk = 0;    // classes whose gradients are made at a time
  bool grad_weight = false;  // sums of it in f32

  // `keep`: logits are needed twice. others: bytes that the rest of the operator takes.
  static LinearMemory For(const LinearCrossEntropy& op, bool keep, double others) {
    // In f64: no product of sizes overflows, and bytes need no exactness.
    const auto N = static_cast<double>(op.N()), V = static_cast<double>(op.V()), H = static_cast<double>(op.H());
    const double x_row = static_cast<double>(PaddedStride(op.H())), g_row = static_cast<double>(PaddedStride(op.V()));
    constexpr double kDefault = 64 << 20;
    const double most =
        op.options.max_workspace ? static_cast<double>(*op.options.max_workspace) : std::max(kDefault, N * V);
    const double block = static_cast<double>(BlockOf(op.V())),
                 columns = static_cast<double>(RoundUp(op.H(), kTileColumns));
    // Of the layer itself: tiles that skip_below left, bias and sums of its gradient.
    const double small = (op.options.skip_below > 0 ? 16 * (N / kTileRows + 1) : 0) + 8 * V;
    const double left = most - others - small - 4 * (N + kTileRows) * x_row * 2 - 4 * block * H;
    const LinearMemory most_of_four{.group = 0, .chunk = BlockOf(op.V()), .grad_weight = false};
    if (keep) {
      const auto rows = [&](double bytes) { return std::floor(bytes / (4 * g_row) / kTileRows) * kTileRows; };
      const double packed = left - 4 * block * columns;
      LinearMemory three = most_of_four;
      three.group = RoundUp(std::max<std::int64_t>(op.N(), 1), kTileRows);
      if (rows(packed) >= N) return three;
      three.grad_weight = op.grad.weight && op.grad.weight->dtype != DType::kF32;
      const double most_rows = rows(packed - (three.grad_weight ? 4 * V * H : 0));
      if (most_rows >= static_cast<double>(kLeastGroup)) {
        // Groups of one size.
        three.group = RoundUp(static_cast<std::int64_t>(std::ceil(N / std::ceil(N / most_rows))), kTileRows);
        return three;
      }
    }
    // Each class takes a column of g and a row of the packed weight. Logits that are only passing need rows as well.
    LinearMemory four = most_of_four;
    const double rows = N + kTileRows, passing = static_cast<double>(PassingRows(op.N())) * (block + kTileColumns);
    const double floats = left / 4;
    const double classes = std::min((floats - rows * kTileColumns) / (rows + columns), (floats - passing) / columns);
    if (op.options.max_workspace && classes < block)
      four.chunk =
          std::max(kTileColumns, static_cast<std::int64_t>(std::max(classes, 0.0)) / kTileColumns * kTileColumns);
    return four;
  }
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_MEMORY_H_
