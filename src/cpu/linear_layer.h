// A linear layer, a chunk of its weight at a time: logits of tokens, and the two products of its gradients.
//
// Tokens are rows of input that count: positions that are ignored are left out from the start. Everything is packed to f32:
//
//   x    [tokens][Hs]          a operand of logits, b operand of grad_weight
//   wt   [chunk / 64][H][64]   b operand of logits
//   w    [H / 64][chunk][64]   b operand of grad_input
//   g    [tokens][Gs]          logits of a chunk, then their gradient: a operand of grad_input and, its columns as rows,
//                              of grad_weight
//   dx   [tokens][Hs]          grad_input, summed up over chunks
//
// so that three products of one micro-kernel (cpu/linear_simd.h) read rows of 64 floats that lie side by side.
#ifndef ONEHOT_CPU_LINEAR_LAYER_H_
#define ONEHOT_CPU_LINEAR_LAYER_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/layout.h"
#include "core/scratch.h"
#include "cpu/linear_simd.h"
#include "cpu/softmax_simd.h"
#include "cpu/threads.h"
#include "onehot/linear_cross_entropy.h"

namespace onehot::cpu {

// Chunks are the blocks of classes that sums of exponentials are defined over.
static_assert(kClassBlock % kTileColumns == 0);

// Tokens of a task: with a chunk's columns, 400 KB of logits, which stay in L2 until they are used.
inline constexpr std::int64_t kTokens = 16 * kTileRows;

// Classes of a task of grad_weight, beside kTileColumns columns: 24 KB of sums, which stay in L1.
inline constexpr std::int64_t kClassRows = 16 * kTileRows;

struct TokenBlock {
  std::int64_t begin, count;
  std::int64_t padded;  // count rounded up to kTileRows
};

// The tokens of a run, in blocks of whole tiles: as many blocks for each thread, kTokens at most in each.
struct Tokens {
  std::int64_t count, block;
  int threads;

  Tokens(std::int64_t tokens, int thread_count) : count(tokens), threads(thread_count) {
    const std::int64_t blocks = RoundUp((tokens + kTokens - 1) / kTokens, thread_count);
    block = std::max(kTileRows, RoundUp((tokens + blocks - 1) / std::max<std::int64_t>(blocks, 1), kTileRows));
  }

  // Calls work(block, thread) for all of them.
  template <class F>
  void ForBlocks(F&& work) const {
    ParallelFor(threads, (count + block - 1) / block, [&](std::int64_t b, int thread) {
      const std::int64_t begin = b * block, size = std::min(block, count - begin);
      work(TokenBlock{begin, size, RoundUp(size, kTileRows)}, thread);
    });
  }
};

class LinearLayer {
 public:
  LinearLayer(const LinearCrossEntropy& op, Isa isa, ScratchLayout& layout)
      : kernels_(LinearKernelsFor(isa)),
        N_(op.N()),
        H_(op.H()),
        V_(op.V()),
        chunk_(std::min(kClassBlock, RoundUp(V_, kTileColumns))),
        x_row_(PaddedStride(H_)),
        g_row_(PaddedStride(chunk_)),
        input_at_(Flatten(WithoutAxis(op.input, op.input.rank - 1), op.input.rank - 1)),
        input_(op.input),
        weight_(op.weight),
        grad_(op.grad),
        bias_(op.options.bias),
        scale_(static_cast<float>(op.options.logit_scale)) {
    const std::int64_t rows = RoundUp(N_, kTileRows), panels = RoundUp(H_, kTileColumns) / kTileColumns;
    x_ = layout.Book<float>(rows * x_row_);
    wt_ = layout.Book<float>(chunk_ * H_);
    g_rows_ = wants_gradients() ? rows : std::min(rows, std::max<std::int64_t>(8, Processors()) * kTokens);
    g_ = layout.Book<float>(g_rows_ * g_row_);
    if (grad_.input) {
      w_ = layout.Book<float>(panels * chunk_ * kTileColumns);
      dx_ = layout.Book<float>(rows * x_row_);
      grad_input_at_ = Flatten(WithoutAxis(*grad_.input, grad_.input->rank - 1), grad_.input->rank - 1);
    }
    if (bias_) bias_values_ = layout.Book<float>(V_);
  }

  bool wants_gradients() const { return grad_.input || grad_.weight || grad_.bias; }
  std::int64_t chunks() const { return (V_ + kClassBlock - 1) / kClassBlock; }
  std::int64_t Classes(std::int64_t chunk) const { return std::min(kClassBlock, V_ - chunk * kClassBlock); }
  std::int64_t g_row() const { return g_row_; }

  // Threads that have rows of g of their own where there are no gradients.
  int Threads(int threads) const {
    if (wants_gradients()) return threads;
    return static_cast<int>(std::clamp<std::int64_t>(g_rows_ / kTokens, 1, threads));
  }

  // Packs rows of input, at positions live[0], live[1], ..., and what grad_input starts from.
  void PackInput(Scratch scratch, const Tokens& tokens, const std::int64_t* live) const {
    if (bias_)
      kernels_.pack({static_cast<const std::byte*>(bias_->data), bias_->dtype, 0, bias_->stride(0), 1, V_},
                    scratch.Get(bias_values_).data(), V_, V_);
    tokens.ForBlocks([&](const TokenBlock& block, int) {
      const std::int64_t end = block.begin + block.count;
      float* const x = scratch.Get(x_).data();
      for (std::int64_t i = block.begin; i < end; ++i) kernels_.pack(InputRow(live[i]), x + i * x_row_, x_row_, x_row_);
      std::fill_n(x + end * x_row_, (block.padded - block.count) * x_row_, 0.0f);
      if (!grad_.input || !grad_.accumulate) return;
      float* const dx = scratch.Get(dx_).data();
      for (std::int64_t i = block.begin; i < end; ++i)
        kernels_.pack(AsInput(GradInputRow(live[i])), dx + i * x_row_, x_row_, x_row_);
      std::fill_n(dx + end * x_row_, (block.padded - block.count) * x_row_, 0.0f);
    });
  }

  // Packs a chunk of the weight, for logits and, if asked for, for grad_input.
  void PackWeight(Scratch scratch, const Tokens& tokens, std::int64_t chunk, bool gradients) const {
    const std::int64_t classes = Classes(chunk), panels = (classes + kTileColumns - 1) / kTileColumns;
    const std::int64_t columns = gradients && grad_.input ? (H_ + kTileColumns - 1) / kTileColumns : 0;
    const InputPart weight = Matrix().Part(chunk * kClassBlock, 0, classes, H_);
    ParallelFor(tokens.threads, panels + columns, [&](std::int64_t i, int) {
      if (i < panels) {
        const std::int64_t begin = i * kTileColumns;
        kernels_.pack_transposed(weight.Part(begin, 0, std::min(kTileColumns, classes - begin), H_),
                                 scratch.Get(wt_).data() + begin * H_);
      } else {
        const std::int64_t begin = (i - panels) * kTileColumns;
        kernels_.pack(weight.Part(0, begin, classes, std::min(kTileColumns, H_ - begin)),
                      scratch.Get(w_).data() + begin * chunk_, kTileColumns, kTileColumns);
      }
    });
  }

  // u of a block's tokens and a chunk's classes, in rows of g: those of the tokens, or those of the thread.
  float* Logits(Scratch scratch, std::int64_t chunk, const TokenBlock& block, int thread) const {
    const std::int64_t classes = Classes(chunk);
    float* const g = scratch.Get(g_).data() + (wants_gradients() ? block.begin : thread * kTokens) * g_row_;
    for (std::int64_t column = 0; column < classes; column += kTileColumns)
      kernels_.multiply({.a = scratch.Get(x_).data() + block.begin * x_row_,
                         .a_row = x_row_,
                         .a_k = 1,
                         .b = scratch.Get(wt_).data() + column * H_,
                         .b_k = kTileColumns,
                         .c = g + column,
                         .c_row = g_row_,
                         .rows = block.padded,
                         .depth = H_,
                         .accumulate = false});
    if (bias_ || scale_ != 1)
      kernels_.bias_and_scale(g, block.count, g_row_, classes,
                              bias_ ? scratch.Get(bias_values_).data() + chunk * kClassBlock : nullptr, scale_);
    return g;
  }

  // grad_input of a block += its rows of g times the chunk.
  void AddGradInput(Scratch scratch, std::int64_t chunk, const TokenBlock& block) const {
    if (!grad_.input) return;
    for (std::int64_t column = 0; column < H_; column += kTileColumns)
      kernels_.multiply({.a = scratch.Get(g_).data() + block.begin * g_row_,
                         .a_row = g_row_,
                         .a_k = 1,
                         .b = scratch.Get(w_).data() + column * chunk_,
                         .b_k = kTileColumns,
                         .c = scratch.Get(dx_).data() + block.begin * x_row_ + column,
                         .c_row = x_row_,
                         .rows = block.padded,
                         .depth = Classes(chunk),
                         .accumulate = chunk > 0 || grad_.accumulate});
  }

  // grad_weight and grad_bias of a chunk, whose g all tokens have.
  void StoreGradWeight(Scratch scratch, const Tokens& tokens, std::int64_t chunk) const {
    const std::int64_t classes = Classes(chunk), blocks = (classes + kClassRows - 1) / kClassRows;
    const std::int64_t panels = grad_.weight ? (H_ + kTileColumns - 1) / kTileColumns : 0;
    const std::int64_t sums = grad_.bias ? (classes + kTileColumns - 1) / kTileColumns : 0;
    ParallelFor(tokens.threads, blocks * panels + sums, [&](std::int64_t i, int) {
      const float* const g = scratch.Get(g_).data();
      if (i >= blocks * panels) {
        const std::int64_t first = (i - blocks * panels) * kTileColumns;
        return StoreGradBias(g + first, tokens.count, chunk * kClassBlock + first,
                             std::min(kTileColumns, classes - first));
      }
      // Panel by panel, so that the panel's part of x stays in L2.
      const std::int64_t first = i % blocks * kClassRows, column = i / blocks * kTileColumns;
      const std::int64_t rows = std::min(kClassRows, classes - first);
      alignas(64) float sum[kClassRows * kTileColumns];
      const OutputPart out = MatrixOf<OutputPart>(*grad_.weight)
                                 .Part(chunk * kClassBlock + first, column, rows, std::min(kTileColumns, H_ - column));
      if (grad_.accumulate) {
        kernels_.pack(AsInput(out), sum, kTileColumns, kTileColumns);
        std::fill(sum + rows * kTileColumns, sum + RoundUp(rows, kTileRows) * kTileColumns, 0.0f);
      }
      kernels_.multiply({.a = g + first,
                         .a_row = 1,
                         .a_k = g_row_,
                         .b = scratch.Get(x_).data() + column,
                         .b_k = x_row_,
                         .c = sum,
                         .c_row = kTileColumns,
                         .rows = RoundUp(rows, kTileRows),
                         .depth = tokens.count,
                         .accumulate = grad_.accumulate});
      kernels_.store(sum, kTileColumns, out);
    });
  }

  // Rows of grad_input, when all chunks have been added; and zeros for positions that are ignored, unless it accumulates.
  void StoreGradInput(Scratch scratch, const Tokens& tokens, const std::int64_t* live) const {
    if (!grad_.input) return;
    tokens.ForBlocks([&](const TokenBlock& block, int) {
      for (std::int64_t i = block.begin; i < block.begin + block.count; ++i)
        kernels_.store(scratch.Get(dx_).data() + i * x_row_, x_row_, GradInputRow(live[i]));
    });
    if (grad_.accumulate) return;
    std::int64_t next = 0;
    constexpr float kZeros[kTileColumns] = {};
    for (std::int64_t position = 0; position < N_; ++position) {
      if (next < tokens.count && live[next] == position) {
        ++next;
        continue;
      }
      const OutputPart row = GradInputRow(position);
      for (std::int64_t h = 0; h < H_; h += kTileColumns)
        kernels_.store(kZeros, 0, row.Part(0, h, 1, std::min(kTileColumns, H_ - h)));
    }
  }

 private:
  template <class Part, class View>
  static Part MatrixOf(const View& view) {
    return {static_cast<decltype(Part::data)>(view.data),
            view.dtype,
            view.stride(0),
            view.stride(1),
            view.dim(0),
            view.dim(1)};
  }
  static InputPart AsInput(const OutputPart& out) {
    return {out.data, out.dtype, out.row, out.column, out.rows, out.columns};
  }
  InputPart Matrix() const { return MatrixOf<InputPart>(weight_); }
  InputPart InputRow(std::int64_t position) const {
    const auto* const data = static_cast<const std::byte*>(input_.data);
    return {data + input_at_.Offset(position) * SizeOf(input_.dtype), input_.dtype, 0, input_.stride(-1), 1, H_};
  }
  OutputPart GradInputRow(std::int64_t position) const {
    auto* const data = static_cast<std::byte*>(grad_.input->data);
    return {data + grad_input_at_.Offset(position) * SizeOf(grad_.input->dtype),
            grad_.input->dtype,
            0,
            grad_.input->stride(-1),
            1,
            H_};
  }
  void StoreGradBias(const float* g, std::int64_t tokens, std::int64_t first, std::int64_t rows) const {
    alignas(64) float sum[kTileColumns] = {};
    const OutputPart out{
        static_cast<std::byte*>(grad_.bias->data) + first * grad_.bias->stride(0) * SizeOf(grad_.bias->dtype),
        grad_.bias->dtype,
        0,
        grad_.bias->stride(0),
        1,
        rows};
    if (grad_.accumulate) kernels_.pack(AsInput(out), sum, kTileColumns, kTileColumns);
    kernels_.add_rows(g, tokens, g_row_, sum);
    kernels_.store(sum, kTileColumns, out);
  }

  const LinearKernels& kernels_;
  const std::int64_t N_, H_, V_, chunk_, x_row_, g_row_;
  const Positions input_at_;
  const ConstTensorView input_, weight_;
  const LinearCrossEntropyGradients grad_;
  const std::optional<ConstTensorView> bias_;
  const float scale_;
  std::int64_t g_rows_ = 0;
  Positions grad_input_at_;
  Piece<float> x_, wt_, w_, g_, dx_, bias_values_;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_LAYER_H_
