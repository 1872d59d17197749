// Products of a linear layer with few tokens: the weight is read, and its gradient written, where it lies, since packing
// would take longer than they do. Threads share classes and columns, not tokens.
#ifndef ONEHOT_CPU_LINEAR_FEW_H_
#define ONEHOT_CPU_LINEAR_FEW_H_

#include <algorithm>
#include <cstdint>

#include "core/scratch.h"
#include "cpu/cache.h"
#include "cpu/linear_memory.h"
#include "cpu/linear_simd.h"
#include "cpu/threads.h"
#include "onehot/linear_cross_entropy.h"

namespace onehot::cpu {

class FewTokens {
 public:
  FewTokens(const LinearCrossEntropy& op, Isa isa, ScratchLayout& layout)
      : kernels_(LinearKernelsFor(isa)),
        H_(op.H()),
        x_row_(PaddedStride(H_)),
        stream_(op.grad.weight && !op.grad.accumulate &&
                PastCaches(op.V() * H_ * SizeOf(op.weight.dtype), op.V() * H_ * SizeOf(op.grad.weight->dtype))) {
    x_ = layout.Book<float>(RoundUp(op.N(), kTileRows) * x_row_);
  }

  void PackToken(Scratch scratch, std::int64_t token, const InputPart& row) const {
    kernels_.pack(row, scratch.Get(x_).data() + token * x_row_, x_row_, x_row_);
  }

  // g[i * g_row + v] = x_i times row v of the weight.
  void Logits(Scratch scratch, std::int64_t tokens, int threads, const InputPart& weight, float* g,
              std::int64_t g_row) const {
    ParallelFor(threads, (weight.rows + kTileColumns - 1) / kTileColumns, [&](std::int64_t i, int) {
      const std::int64_t first = i * kTileColumns;
      kernels_.times_transposed(scratch.Get(x_).data(), x_row_, tokens,
                                weight.Part(first, 0, std::min(kTileColumns, weight.rows - first), H_), g + first,
                                g_row);
    });
  }

  // dx[i * dx_row + h] (+)= row i of g times the weight.
  void AddGradInput(std::int64_t tokens, int threads, const float* g, std::int64_t g_row, const InputPart& weight,
                    float* dx, std::int64_t dx_row, bool accumulate) const {
    // A share of the columns for each thread: rows of the weight are read best in long pieces.
    const std::int64_t columns = RoundUp(std::max<std::int64_t>(H_ / threads, 1), kTileColumns);
    ParallelFor(threads, (H_ + columns - 1) / columns, [&](std::int64_t i, int) {
      const std::int64_t first = i * columns;
      kernels_.times(g, g_row, tokens, weight.Part(0, first, weight.rows, std::min(columns, H_ - first)), dx + first,
                     dx_row, accumulate);
    });
  }

  // out = g^T x, or += it; out has a row for each column of g.
  void GradWeight(Scratch scratch, std::int64_t tokens, const float* g, std::int64_t g_row, bool accumulate,
                  const OutputPart& out) const {
    kernels_.outer(g, g_row, scratch.Get(x_).data(), x_row_, tokens, accumulate, out, stream_);
  }

 private:
  const LinearKernels& kernels_;
  const std::int64_t H_, x_row_;
  const bool stream_;
  Piece<float> x_;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_FEW_H_
