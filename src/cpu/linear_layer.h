// A linear layer, a chunk of its weight at a time: logits of tokens, and the two products of its gradients.
//
// Tokens are rows of input that count: positions that are ignored are left out from the start. Everything is packed to f32:
//
//   x    [tokens][Hs]          a operand of logits, b operand of grad_weight
//   wt   [chunk / 64][H][64]   b operand of logits
//   w    [H / 64][chunk][64]   b operand of grad_input
//   g    [tokens][Gs]          logits of a chunk, then their gradient: a operand of grad_input and, its columns as rows,
//                              of grad_weight. With a group of tokens at a time (linear_memory.h): of all chunks
//   dx   [tokens][Hs]          grad_input, summed up over chunks
//   dw   [V][H]                grad_weight, summed up over groups of tokens, where its own memory does not hold f32
//
// so that three products of one micro-kernel (cpu/linear_simd.h) read rows of 64 floats that lie side by side.
#ifndef ONEHOT_CPU_LINEAR_LAYER_H_
#define ONEHOT_CPU_LINEAR_LAYER_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/layout.h"
#include "core/scratch.h"
#include "cpu/linear_memory.h"
#include "cpu/linear_simd.h"
#include "cpu/softmax_simd.h"
#include "cpu/threads.h"
#include "onehot/linear_cross_entropy.h"

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

// Some classes: a block of statistics, or a chunk of gradients.
struct ClassRange {
  std::int64_t first, count;
};

// What g holds: rows of logits that are used at once, or what gradients are made of.
enum class Pass { kStatistics, kGradients };

class LinearLayer {
 public:
  LinearLayer(const LinearCrossEntropy& op, const LinearMemory& memory, Isa isa, ScratchLayout& layout)
      : kernels_(LinearKernelsFor(isa)),
        N_(op.N()),
        H_(op.H()),
        V_(op.V()),
        group_(memory.group),
        chunk_(memory.chunk),
        x_row_(PaddedStride(H_)),
        input_at_(Flatten(WithoutAxis(op.input, op.input.rank - 1), op.input.rank - 1)),
        input_(op.input),
        weight_(op.weight),
        grad_(op.grad),
        bias_(op.options.bias),
        scale_(static_cast<float>(op.options.logit_scale)),
        skip_below_(static_cast<float>(op.options.skip_below)) {
    const std::int64_t rows = RoundUp(N_, kTileRows), panels = RoundUp(H_, kTileColumns) / kTileColumns;
    x_ = layout.Book<float>(rows * x_row_);
    wt_ = layout.Book<float>(BlockOf(V_) * H_);
    passing_rows_ = PassingRows(N_);
    g_ = layout.Book<float>(std::max(group_ > 0 ? 0 : passing_rows_ * g_row(Pass::kStatistics),
                                     wants_gradients() ? (group_ > 0 ? group_ : rows) * g_row(Pass::kGradients) : 0));
    if (memory.grad_weight) dw_ = layout.Book<float>(V_ * H_);
    if (group_ > 0 && grad_.bias) db_ = layout.Book<float>(V_);
    if (grad_.input) {
      w_ = layout.Book<float>(panels * chunk_ * kTileColumns);
      dx_ = layout.Book<float>(rows * x_row_);
      grad_input_at_ = Flatten(WithoutAxis(*grad_.input, grad_.input->rank - 1), grad_.input->rank - 1);
    }
    if (bias_) bias_values_ = layout.Book<float>(V_);
    if (skip_below_ > 0) left_ = layout.Book<std::uint8_t>(rows / kTileRows * kLeftRow);
  }

  bool wants_gradients() const { return grad_.input || grad_.weight || grad_.bias; }
  std::int64_t V() const { return V_; }
  std::int64_t g_row(Pass pass) const {
    return PaddedStride(group_ > 0 ? V_ : pass == Pass::kStatistics ? BlockOf(V_) : chunk_);
  }
  // Calls work(range) for all classes, in ascending order, as long as it returns true.
  template <class F>
  void ForClasses(Pass pass, F&& work) const {
    const std::int64_t most = pass == Pass::kStatistics ? kClassBlock : chunk_;
    for (std::int64_t first = 0; first < V_; first += most)
      if (!work(ClassRange{first, std::min(most, V_ - first)})) return;
  }
  std::int64_t chunk() const { return chunk_; }
  // Tokens whose logits lie in g at a time; 0: all of them, those of one chunk.
  std::int64_t group() const { return group_; }

  // Threads to use: those that pay, and have rows of g of their own.
  int Threads(int requested) const {
    // As many bytes as take about the time of the products.
    const double bytes = static_cast<double>(N_) * static_cast<double>(V_) * static_cast<double>(H_ + 1);
    const int threads = ThreadsFor(bytes > 1e15 ? std::int64_t{1} << 50 : static_cast<std::int64_t>(bytes), requested);
    return own_rows() ? threads : static_cast<int>(std::min<std::int64_t>(threads, passing_rows_ / kTokens));
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

  // Packs a chunk of the weight, for logits and for grad_input.
  void PackWeight(Scratch scratch, const Tokens& tokens, const ClassRange& range, bool logits, bool gradients) const {
    const std::int64_t classes = range.count, panels = logits ? (classes + kTileColumns - 1) / kTileColumns : 0;
    const std::int64_t columns = gradients && grad_.input ? (H_ + kTileColumns - 1) / kTileColumns : 0;
    const InputPart weight = Matrix().Part(range.first, 0, classes, H_);
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

  // Where u of a block's tokens and some classes lies: in rows of the tokens, or in those of the thread.
  float* Block(Scratch scratch, Pass pass, const ClassRange& range, const TokenBlock& block, int thread) const {
    const bool by_token = pass == Pass::kGradients || group_ > 0 || own_rows();
    const std::int64_t row = by_token ? block.within : thread * kTokens;
    return scratch.Get(g_).data() + row * g_row(pass) + (group_ > 0 ? range.first : 0);
  }

  // u itself.
  float* Logits(Scratch scratch, Pass pass, const ClassRange& range, const TokenBlock& block, int thread) const {
    const std::int64_t classes = range.count, g_stride = g_row(pass);
    float* const g = Block(scratch, pass, range, block, thread);
    for (std::int64_t column = 0; column < classes; column += kTileColumns)
      kernels_.multiply({.a = scratch.Get(x_).data() + block.begin * x_row_,
                         .a_row = x_row_,
                         .a_k = 1,
                         .b = scratch.Get(wt_).data() + column * H_,
                         .b_k = kTileColumns,
                         .c = g + column,
                         .c_row = g_stride,
                         .rows = block.padded,
                         .depth = H_,
                         .accumulate = false});
    if (bias_ || scale_ != 1)
      kernels_.bias_and_scale(g, block.count, g_stride, classes,
                              bias_ ? scratch.Get(bias_values_).data() + range.first : nullptr, scale_);
    return g;
  }

  // Some tokens and classes of a matrix that has a row for each position, in the place of u for gradients.
  void LoadBlock(Scratch scratch, const ClassRange& range, const TokenBlock& block, const ConstTensorView& matrix,
                 const std::int64_t* live) const {
    const Positions at = Flatten(WithoutAxis(matrix, matrix.rank - 1), matrix.rank - 1);
    const std::int64_t column = matrix.stride(-1), size = SizeOf(matrix.dtype), g_stride = g_row(Pass::kGradients);
    float* const g = Block(scratch, Pass::kGradients, range, block, 0);
    for (std::int64_t i = 0; i < block.count; ++i)
      kernels_.pack({static_cast<const std::byte*>(matrix.data) +
                         (at.Offset(live[block.begin + i]) + range.first * column) * size,
                     matrix.dtype, 0, column, 1, range.count},
                    g + i * g_stride, g_stride, range.count);
  }

  // grad_input of a block += its rows of g times the chunk.
  void AddGradInput(Scratch scratch, const ClassRange& range, const TokenBlock& block) const {
    float* const g = Block(scratch, Pass::kGradients, range, block, 0);
    if (skip_below_ > 0)
      kernels_.zero_below(g, block.count, g_row(Pass::kGradients), range.count, skip_below_,
                          Left(scratch, block.within), kLeftRow);
    if (!grad_.input) return;
    for (std::int64_t column = 0; column < H_; column += kTileColumns) {
      const ProductTask task{.a = g,
                             .a_row = g_row(Pass::kGradients),
                             .a_k = 1,
                             .b = scratch.Get(w_).data() + column * chunk_,
                             .b_k = kTileColumns,
                             .c = scratch.Get(dx_).data() + block.begin * x_row_ + column,
                             .c_row = x_row_,
                             .rows = block.padded,
                             .depth = range.count,
                             .accumulate = range.first > 0 || grad_.accumulate};
      if (skip_below_ == 0) {
        kernels_.multiply(task);
        continue;
      }
      for (std::int64_t row = 0; row < block.padded; row += kTileRows) {
        const std::uint8_t* const left = Left(scratch, block.within + row);
        MultiplyLeft(task, row, kTileColumns, [&](std::int64_t k) { return left[k] != 0; });
      }
    }
  }

  // grad_weight and grad_bias of a chunk, whose g all of these tokens have: in their own memory, which groups of tokens
  // before the last leave in f32, or have elsewhere.
  void StoreGradWeight(Scratch scratch, const Tokens& tokens, bool last, const ClassRange& range) const {
    const std::int64_t classes = range.count, blocks = (classes + kClassRows - 1) / kClassRows;
    const std::int64_t panels = grad_.weight ? (H_ + kTileColumns - 1) / kTileColumns : 0;
    const std::int64_t sums = grad_.bias ? (classes + kTileColumns - 1) / kTileColumns : 0;
    const bool goes_on = tokens.first > 0;
    ParallelFor(tokens.threads, blocks * panels + sums, [&](std::int64_t i, int) {
      const float* const g = Block(scratch, Pass::kGradients, range, {}, 0);
      if (i >= blocks * panels) {
        const std::int64_t first = (i - blocks * panels) * kTileColumns;
        return StoreGradBias(scratch, g + first, tokens, last, range.first + first,
                             std::min(kTileColumns, classes - first));
      }
      // Panel by panel, so that the panel's part of x stays in L2.
      const std::int64_t first = i % blocks * kClassRows, column = i / blocks * kTileColumns;
      const std::int64_t rows = std::min(kClassRows, classes - first);
      alignas(64) float sum[kClassRows * kTileColumns];
      const auto part = [&](const OutputPart& whole) {
        return whole.Part(range.first + first, column, rows, std::min(kTileColumns, H_ - column));
      };
      const OutputPart out = part(MatrixOf<OutputPart>(*grad_.weight));
      const OutputPart sums_so_far = dw_.count > 0 ? part(Dense(scratch.Get(dw_).data(), V_, H_)) : out;
      if (grad_.accumulate || goes_on) {
        kernels_.pack(AsInput(goes_on ? sums_so_far : out), sum, kTileColumns, kTileColumns);
        std::fill(sum + rows * kTileColumns, sum + RoundUp(rows, kTileRows) * kTileColumns, 0.0f);
      }
      const ProductTask task{.a = g + first,
                             .a_row = 1,
                             .a_k = g_row(Pass::kGradients),
                             .b = scratch.Get(x_).data() + tokens.first * x_row_ + column,
                             .b_k = x_row_,
                             .c = sum,
                             .c_row = kTileColumns,
                             .rows = RoundUp(rows, kTileRows),
                             .depth = tokens.count,
                             .accumulate = grad_.accumulate || goes_on};
      if (skip_below_ == 0) {
        kernels_.multiply(task);
      } else {
        for (std::int64_t row = 0; row < task.rows; row += kTileRows) {
          // These classes lie in one panel of tiles or in two.
          const std::int64_t one = (first + row) / kTileColumns, two = std::min(first + row + kTileRows, classes) - 1;
          MultiplyLeft(task, row, kTileRows, [&](std::int64_t k) {
            const std::uint8_t* const left = Left(scratch, k * kTileRows);
            return (left[one] | left[two / kTileColumns]) != 0;
          });
        }
      }
      kernels_.store(sum, kTileColumns, last ? out : sums_so_far);
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
  // Tiles of a chunk's columns, for each tile of tokens.
  static constexpr std::int64_t kLeftRow = kClassBlock / kTileColumns;
  std::uint8_t* Left(Scratch scratch, std::int64_t row) const {
    return scratch.Get(left_).data() + row / kTileRows * kLeftRow;
  }

  // kTileRows rows of a product, from `row`, along those parts of its reduction that stayed: part k is `step` long.
  template <class F>
  void MultiplyLeft(const ProductTask& whole, std::int64_t row, std::int64_t step, F&& stayed) const {
    ProductTask part = whole;
    part.a += row * whole.a_row, part.c += row * whole.c_row, part.rows = kTileRows;
    bool any = false;
    for (std::int64_t k = 0; k < whole.depth;) {
      if (!stayed(k / step)) {
        k += step;
        continue;
      }
      const std::int64_t begin = k;
      while (k < whole.depth && stayed(k / step)) k += step;
      part.depth = std::min(k, whole.depth) - begin;
      part.a = whole.a + row * whole.a_row + begin * whole.a_k, part.b = whole.b + begin * whole.b_k;
      kernels_.multiply(part);
      part.accumulate = any = true;
    }
    part.depth = 0;
    if (!any) kernels_.multiply(part);  // zeros, or what was there
  }

  bool own_rows() const { return passing_rows_ >= N_; }
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
  static OutputPart Dense(float* data, std::int64_t rows, std::int64_t columns) {
    return {reinterpret_cast<std::byte*>(data), DType::kF32, columns, 1, rows, columns};
  }
  void StoreGradBias(Scratch scratch, const float* g, const Tokens& tokens, bool last, std::int64_t first,
                     std::int64_t rows) const {
    alignas(64) float sum[kTileColumns] = {};
    const bool goes_on = tokens.first > 0;
    const TensorView& bias = *grad_.bias;
    const OutputPart out{static_cast<std::byte*>(bias.data) + first * bias.stride(0) * SizeOf(bias.dtype),
                         bias.dtype,
                         0,
                         bias.stride(0),
                         1,
                         rows};
    const OutputPart sums_so_far = db_.count > 0 ? Dense(scratch.Get(db_).data() + first, 1, rows) : out;
    if (grad_.accumulate || goes_on)
      kernels_.pack(AsInput(goes_on ? sums_so_far : out), sum, kTileColumns, kTileColumns);
    kernels_.add_rows(g, tokens.count, g_row(Pass::kGradients), sum);
    kernels_.store(sum, kTileColumns, last ? out : sums_so_far);
  }

  const LinearKernels& kernels_;
  const std::int64_t N_, H_, V_, group_, chunk_, x_row_;
  const Positions input_at_;
  const ConstTensorView input_, weight_;
  const LinearCrossEntropyGradients grad_;
  const std::optional<ConstTensorView> bias_;
  const float scale_, skip_below_;
  std::int64_t passing_rows_ = 0;  // for logits that are used at once
  Positions grad_input_at_;
  Piece<float> x_, wt_, w_, g_, dx_, dw_, db_, bias_values_;
  Piece<std::uint8_t> left_;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_LAYER_H_
