// How the linear cross entropy is cut: what is in memory at a time (the two orders of onehot/linear_cross_entropy.h), what its
// products are made of, and the sizes of tasks.
#ifndef ONEHOT_CPU_LINEAR_MEMORY_H_
#define ONEHOT_CPU_LINEAR_MEMORY_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

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

// Tokens for whose products in f32 the weight is not packed (linear_few.h). Measured (Zen 5, H = 1024, V = 4096): of 16 tokens
// the loss takes 0.8 of the time that it takes with packing, with gradients 0.46; of 32 0.92 and 0.68; of 40 1.03 and 0.75.
inline constexpr std::int64_t kFewTokens = 32;

// Classes and columns of a task of grad_weight: 96 KB of sums, which stay in L2 with a slice of the tokens' gradients. As many
// columns of grad_input: 512 KB of the weight, which stay there while tokens go past.
inline constexpr std::int64_t kClassRows = 16 * kTileRows, kSumColumns = 4 * kTileColumns;

// Tokens beyond which grad_weight in f32 copies its columns of a chunk's gradients first, whose rows are pages apart and no
// longer in a cache. Panels, as those of bf16, would take as much memory as the gradients once more. Measured (Zen 5): of 4096
// tokens 4 % less time, of 2048 1.5; of 1024 as much, of 512 with H = 4096 1 % more.
inline constexpr std::int64_t kGatherTokens = 1024;

// What products are made of.
enum class Arithmetic : std::uint8_t { kF32, kBf16 };

// Rows of logits that are used at once, for as many threads as there may be: all tokens have one, or kTokens each.
class PassingRows {
 public:
  explicit PassingRows(std::int64_t N)
      : all_(RoundUp(N, kTileRows)), rows_(std::min(all_, std::max<std::int64_t>(8, Processors()) * kTokens)) {}

  std::int64_t rows() const { return rows_; }
  int Threads(int wanted) const {
    return rows_ == all_ ? wanted : static_cast<int>(std::min<std::int64_t>(wanted, rows_ / kTokens));
  }
  // Where those of a block of tokens begin.
  std::int64_t RowOf(std::int64_t token, int thread) const { return rows_ == all_ ? token : thread * kTokens; }

 private:
  const std::int64_t all_, rows_;
};

struct LinearMemory {
  std::int64_t group = 0;    // tokens whose logits are kept for all classes; 0: all tokens, a chunk of classes
  std::int64_t chunk = 0;    // classes whose gradients are made at a time
  bool grad_weight = false;  // sums of it in f32
  Arithmetic arithmetic = Arithmetic::kF32;
  bool few = false;  // tokens: the weight is not packed

  // Of an operator without gradients.
  static LinearMemory ForStatistics(const LinearCrossEntropy& op, Arithmetic arithmetic) {
    return {.group = 0, .chunk = 0, .grad_weight = false, .arithmetic = arithmetic, .few = Few(op, arithmetic)};
  }

  // `keep`: logits are needed twice. others: bytes that the rest of the operator takes.
  static LinearMemory For(const LinearCrossEntropy& op, Arithmetic arithmetic, bool keep, double others) {
    const auto N = static_cast<double>(op.N()), V = static_cast<double>(op.V());
    constexpr double kDefault = 64 << 20;
    const double most = op.options.max_workspace
                            ? static_cast<double>(*op.options.max_workspace)
                            : std::max(kDefault, N * V * static_cast<double>(SizeOf(op.input.dtype)) / 4);
    LinearMemory memory = ForStatistics(op, arithmetic);
    memory.chunk = BlockOf(op.V());
    if (keep) {
      LinearMemory three = memory;
      three.group = RoundUp(std::max<std::int64_t>(op.N(), 1), kTileRows);
      if (three.Bytes(op, static_cast<double>(three.group)) + others <= most) return three;
      three.grad_weight = op.grad.weight && op.grad.weight->dtype != DType::kF32;
      const double fixed = three.Bytes(op, 0) + others, row = three.Bytes(op, 1) + others - fixed;
      const double most_rows = std::floor((most - fixed) / row / kTileRows) * kTileRows;
      if (most_rows >= static_cast<double>(LeastGroup(arithmetic))) {
        // Groups of one size.
        three.group = RoundUp(static_cast<std::int64_t>(std::ceil(N / std::ceil(N / most_rows))), kTileRows);
        return three;
      }
    }
    if (op.options.max_workspace)
      while (memory.chunk > kTileColumns && memory.Bytes(op) + others > most) memory.chunk -= kTileColumns;
    return memory;
  }

 private:
  static bool Few(const LinearCrossEntropy& op, Arithmetic arithmetic) {
    return arithmetic == Arithmetic::kF32 && op.N() <= kFewTokens && StrideOf(op.weight, 1) == 1 &&
           op.options.skip_below == 0;
  }

  // Each group of tokens goes over the weight twice and over grad_weight once: measured 1.6 ns an element on one core of Zen
  // 5, 0.86 on two, where the product that is saved takes 2 / 216 and 2 / 424 ns a token. 172 and 182 tokens break even; a
  // quarter more, for machines with less memory bandwidth. A multiple of kTileRows. Products of bf16 take half the time.
  static constexpr std::int64_t LeastGroup(Arithmetic arithmetic) { return arithmetic == Arithmetic::kF32 ? 222 : 444; }

  // What the layer (linear_layer.h, linear_products.cpp) takes, with groups of so many tokens or without.
  double Bytes(const LinearCrossEntropy& op, std::optional<double> tokens = std::nullopt) const {
    // In f64: no product of sizes overflows, and bytes need no exactness.
    const auto N = static_cast<double>(op.N()), V = static_cast<double>(op.V()), H = static_cast<double>(op.H());
    const double rows = N + kTileRows, block = static_cast<double>(BlockOf(op.V()));
    const double x_row = static_cast<double>(PaddedStride(op.H())), g_row = static_cast<double>(PaddedStride(chunk));
    const double passing = static_cast<double>(PassingRows(op.N()).rows());
    const double columns = static_cast<double>(RoundUp(op.H(), kTileColumns));
    const bool bf16 = arithmetic == Arithmetic::kBf16;
    const double operand = few ? 0 : bf16 ? 2 : 4;
    // x and grad_input; the weight, twice; tiles that skip_below left, bias and sums of its gradient.
    double bytes = 8 * rows * x_row + operand * (block * (H + 1) + static_cast<double>(chunk) * columns) + 8 * V +
                   (op.options.skip_below > 0 ? 16 * (N / kTileRows + 1) : 0) + (grad_weight ? 4 * V * H : 0);
    if (bf16) bytes += 2 * (g_row + static_cast<double>(RoundUp(chunk, kClassRows))) * tokens.value_or(rows);
    if (tokens) return bytes + 4 * *tokens * static_cast<double>(PaddedStride(op.V()));
    // Logits are passing in statistics, and in gradients where no later product reads them.
    const bool stay = !bf16 || op.grad.bias;
    return bytes + 4 * std::max(passing * (block + kTileColumns), (stay ? rows : passing) * g_row);
  }
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_MEMORY_H_
