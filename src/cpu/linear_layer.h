// A linear layer, a chunk of its weight at a time: logits of tokens, and the two products of its gradients.
//
// Tokens are rows of input that count: positions that are ignored are left out from the start. Operands are packed
// (cpu/linear_products.h), or lie where they are (cpu/linear_few.h); everything else is f32:
//
//   g    [tokens][Gs]   logits of a chunk, then their gradient; those of all chunks with a group of tokens at a time
//                       (linear_memory.h); or only of the blocks that are at work
//   dx   [tokens][Hs]   grad_input, summed up over chunks
//   dw   [V][H]         grad_weight, summed up over groups of tokens, where its own memory does not hold f32
#ifndef ONEHOT_CPU_LINEAR_LAYER_H_
#define ONEHOT_CPU_LINEAR_LAYER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/layout.h"
#include "core/scratch.h"
#include "cpu/linear_few.h"
#include "cpu/linear_memory.h"
#include "cpu/linear_products.h"
#include "cpu/linear_simd.h"
#include "cpu/linear_skip.h"
#include "cpu/softmax_simd.h"
#include "cpu/threads.h"
#include "cpu/token_blocks.h"
#include "onehot/linear_cross_entropy.h"

namespace onehot::cpu {

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
        passing_(N_),
        input_at_(Flatten(WithoutAxis(op.input, op.input.rank - 1), op.input.rank - 1)),
        input_(op.input),
        weight_(op.weight),
        grad_(op.grad),
        bias_(op.options.bias),
        scale_(static_cast<float>(op.options.logit_scale)),
        skip_below_(static_cast<float>(op.options.skip_below)) {
    const std::int64_t rows = RoundUp(N_, kTileRows);
    if (memory.few)
      few_.emplace(op, isa, layout);
    else
      products_ = MakeLinearProducts(op, memory, isa, layout);
    // Sums of bias gradients are taken of g, and so are products of f32.
    gradients_stay_ = memory.arithmetic == Arithmetic::kF32 || grad_.bias;
    const std::int64_t gradient_rows = group_ > 0 ? group_ : gradients_stay_ ? rows : passing_.rows();
    g_ = layout.Book<float>(std::max(group_ > 0 ? 0 : passing_.rows() * g_row(Pass::kStatistics),
                                     wants_gradients() ? gradient_rows * g_row(Pass::kGradients) : 0));
    // Not where logits of all chunks are kept: measured, no gain.
    gathers_ = memory.arithmetic == Arithmetic::kF32 && group_ == 0 && skip_below_ == 0;
    if (memory.grad_weight) dw_ = layout.Book<float>(V_ * H_);
    if (group_ > 0 && grad_.bias) db_ = layout.Book<float>(V_);
    if (grad_.input) {
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
    return passing_.Threads(
        ThreadsFor(bytes > 1e15 ? std::int64_t{1} << 50 : static_cast<std::int64_t>(bytes), requested));
  }

  // Packs rows of input, at positions live[0], live[1], ..., and what grad_input starts from.
  void PackInput(Scratch scratch, const Tokens& tokens, const std::int64_t* live) const {
    if (bias_)
      kernels_.pack({static_cast<const std::byte*>(bias_->data), bias_->dtype, 0, StrideOf(*bias_, 0), 1, V_},
                    scratch.Get(bias_values_).data(), V_, V_);
    tokens.ForBlocks([&](const TokenBlock& block, int) {
      const std::int64_t end = block.begin + block.count;
      for (std::int64_t i = block.begin; i < end; ++i)
        if (few_)
          few_->PackToken(scratch, i, InputRow(live[i]));
        else
          products_->PackToken(scratch, i, InputRow(live[i]));
      if (!few_) products_->EndTokens(scratch, block);
      if (!grad_.input || !grad_.accumulate) return;
      float* const dx = scratch.Get(dx_).data();
      for (std::int64_t i = block.begin; i < end; ++i)
        kernels_.pack(AsInput(GradInputRow(live[i])), dx + i * x_row_, x_row_, x_row_);
      // Products of bf16 go on to whole tiles.
      std::fill_n(dx + end * x_row_, (block.padded - block.count) * x_row_, 0.0f);
    });
  }

  // Packs a chunk of the weight, for logits and for gradients; few tokens have their products with it instead.
  void TakeWeight(Scratch scratch, const Tokens& tokens, Pass pass, const ClassRange& range, bool logits) const {
    const InputPart weight = Matrix().Part(range.first, 0, range.count, H_);
    if (few_) {
      if (logits)
        few_->Logits(scratch, tokens.count, tokens.threads, weight, Block(scratch, pass, range, {}, 0), g_row(pass));
      return;
    }
    ParallelFor(tokens.threads, (range.count + kTileColumns - 1) / kTileColumns, [&](std::int64_t i, int) {
      const std::int64_t first = i * kTileColumns;
      const InputPart rows = weight.Part(first, 0, std::min(kTileColumns, range.count - first), H_);
      // One after the other, so that the second finds the rows in a cache.
      if (logits) products_->PackForLogits(scratch, rows, first);
      if (pass == Pass::kGradients && grad_.input) products_->PackForGradInput(scratch, rows, first);
    });
  }

  // Where u of a block's tokens and some classes lies: in rows of the tokens, or in those of the thread.
  float* Block(Scratch scratch, Pass pass, const ClassRange& range, const TokenBlock& block, int thread) const {
    const bool stays = group_ > 0 || (pass == Pass::kGradients && gradients_stay_);
    const std::int64_t row = stays ? block.within : passing_.RowOf(block.within, thread);
    return scratch.Get(g_).data() + row * g_row(pass) + (group_ > 0 ? range.first : 0);
  }

  // u itself.
  float* Logits(Scratch scratch, Pass pass, const ClassRange& range, const TokenBlock& block, int thread) const {
    const std::int64_t classes = range.count, g_stride = g_row(pass);
    float* const g = Block(scratch, pass, range, block, thread);
    if (!few_) {
      ForPanels(0, classes, H_, products_->slice(), [&](ProductPart part) {
        part.row = block.begin, part.rows = block.count;
        part.c = g + part.column, part.c_row = g_stride;
        part.accumulate = part.first > 0;
        products_->Logits(scratch, part);
      });
    }
    if (bias_ || scale_ != 1)
      kernels_.bias_and_scale(g, block.count, g_stride, classes,
                              bias_ ? scratch.Get(bias_values_).data() + range.first : nullptr, scale_);
    return g;
  }

  // Some tokens and classes of a matrix that has a row for each position, in the place of u for gradients.
  void LoadBlock(Scratch scratch, const ClassRange& range, const TokenBlock& block, int thread,
                 const ConstTensorView& matrix, const std::int64_t* live) const {
    const Positions at = Flatten(WithoutAxis(matrix, matrix.rank - 1), matrix.rank - 1);
    const std::int64_t column = StrideOf(matrix, -1), size = SizeOf(matrix.dtype), g_stride = g_row(Pass::kGradients);
    float* const g = Block(scratch, Pass::kGradients, range, block, thread);
    for (std::int64_t i = 0; i < block.count; ++i)
      kernels_.pack({static_cast<const std::byte*>(matrix.data) +
                         (at.Offset(live[block.begin + i]) + range.first * column) * size,
                     matrix.dtype, 0, column, 1, range.count},
                    g + i * g_stride, g_stride, range.count);
  }

  // The gradient of a block's logits is there.
  void TakeGradient(Scratch scratch, const ClassRange& range, const TokenBlock& block, int thread) const {
    if (few_) return;
    const LogitGradient gradient{Block(scratch, Pass::kGradients, range, block, thread), g_row(Pass::kGradients), block,
                                 range.count};
    if (skip_below_ > 0)
      kernels_.zero_below(gradient.g, block.count, gradient.g_row, range.count, skip_below_,
                          Left(scratch, block.within), kLeftRow);
    products_->Take(scratch, gradient);
  }

  // grad_input += g times the chunk, whose g all of these tokens have.
  void AddGradInput(Scratch scratch, const Tokens& tokens, const ClassRange& range, Progress& progress) const {
    const LogitGradient gradient = GradientOf(scratch, tokens, range);
    if (few_ && grad_.input)
      few_->AddGradInput(tokens.count, tokens.threads, gradient.g, gradient.g_row,
                         Matrix().Part(range.first, 0, range.count, H_), scratch.Get(dx_).data(), x_row_,
                         range.first > 0 || grad_.accumulate);
    if (few_ || !grad_.input) return progress.Advance(tokens.count * range.count, 0);
    const std::int64_t slice = skip_below_ == 0 ? products_->slice() : range.count;
    // Columns after columns, so that their part of the weight stays in L2.
    ForTasks(tokens, range, tokens.blocks * ((H_ + kSumColumns - 1) / kSumColumns), progress, [&](std::int64_t i) {
      const TokenBlock block = tokens.Block(i % tokens.blocks);
      const std::int64_t column = i / tokens.blocks * kSumColumns, last = std::min(column + kSumColumns, H_);
      ForPanels(column, last, range.count, slice, [&](ProductPart part) {
        part.row = block.within, part.rows = block.count;
        part.c = scratch.Get(dx_).data() + block.begin * x_row_ + part.column, part.c_row = x_row_;
        part.accumulate = range.first > 0 || grad_.accumulate || part.first > 0;
        MultiplyGradInput(scratch, gradient, part);
      });
    });
  }

  // grad_weight and grad_bias of a chunk, whose g all of these tokens have: in their own memory, which groups of tokens
  // before the last leave in f32, or have elsewhere.
  void StoreGradWeight(Scratch scratch, const Tokens& tokens, bool last, const ClassRange& range,
                       Progress& progress) const {
    const std::int64_t classes = range.count, blocks = (classes + kClassRows - 1) / kClassRows;
    const std::int64_t groups = !grad_.weight ? 0 : few_ ? 1 : (H_ + kSumColumns - 1) / kSumColumns;
    const std::int64_t sums = grad_.bias ? (classes + kTileColumns - 1) / kTileColumns : 0;
    const bool goes_on = tokens.first > 0;
    const LogitGradient gradient = GradientOf(scratch, tokens, range);
    ForTasks(tokens, range, blocks * groups + sums, progress, [&](std::int64_t i) {
      if (i >= blocks * groups) {
        const std::int64_t first = (i - blocks * groups) * kTileColumns;
        return StoreGradBias(scratch, gradient.g + first, tokens, last, range.first + first,
                             std::min(kTileColumns, classes - first));
      }
      const std::int64_t first = i % blocks * kClassRows, column = i / blocks * kSumColumns;
      const std::int64_t rows = std::min(kClassRows, classes - first), columns = std::min(kSumColumns, H_ - column);
      if (few_)
        return few_->GradWeight(scratch, tokens.count, gradient.g + first, gradient.g_row, grad_.accumulate,
                                MatrixOf<OutputPart>(*grad_.weight).Part(range.first + first, 0, rows, H_));
      alignas(64) float sum[kClassRows * kSumColumns];
      const auto part = [&](const OutputPart& whole) { return whole.Part(range.first + first, column, rows, columns); };
      const OutputPart out = part(MatrixOf<OutputPart>(*grad_.weight));
      const OutputPart sums_so_far = dw_.count > 0 ? part(Dense(scratch.Get(dw_).data(), V_, H_)) : out;
      if (grad_.accumulate || goes_on) {
        kernels_.pack(AsInput(goes_on ? sums_so_far : out), sum, kSumColumns, RoundUp(columns, kTileColumns));
        std::fill(sum + rows * kSumColumns, sum + RoundUp(rows, kTileRows) * kSumColumns, 0.0f);
      }
      const std::int64_t slice = skip_below_ == 0 ? products_->slice() : tokens.count;
      const auto product = [&](ProductPart panel) {
        panel.row = first, panel.rows = rows;
        panel.c = sum + (panel.column - column), panel.c_row = kSumColumns;
        panel.accumulate = grad_.accumulate || goes_on || panel.first > 0;
        return panel;
      };
      if (gathers_ && tokens.count > kGatherTokens)
        MultiplyGathered(scratch, gradient, column, column + columns, product);
      else
        ForPanels(column, column + columns, tokens.count, slice,
                  [&](const ProductPart& panel) { MultiplyGradWeight(scratch, gradient, product(panel)); });
      kernels_.store(sum, kSumColumns, last ? out : sums_so_far);
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
  // Calls task(i) for all of them, which together have tokens x classes of the work.
  template <class F>
  void ForTasks(const Tokens& tokens, const ClassRange& range, std::int64_t tasks, Progress& progress, F&& task) const {
    const std::int64_t work = tokens.count * range.count;
    if (tasks == 0) return progress.Advance(work, 0);
    ParallelFor(tokens.threads, tasks, [&](std::int64_t i, int thread) {
      if (progress.stopped()) return;
      task(i);
      progress.Advance(work / tasks + (i < work % tasks ? 1 : 0), thread);
    });
  }

  // Tiles of a chunk's columns, for each tile of tokens.
  static constexpr std::int64_t kLeftRow = kClassBlock / kTileColumns;
  std::uint8_t* Left(Scratch scratch, std::int64_t row) const {
    return scratch.Get(left_).data() + row / kTileRows * kLeftRow;
  }

  // Of all of them.
  LogitGradient GradientOf(Scratch scratch, const Tokens& tokens, const ClassRange& range) const {
    const TokenBlock all{tokens.first, tokens.count, RoundUp(tokens.count, kTileRows), 0};
    return {Block(scratch, Pass::kGradients, range, all, 0), g_row(Pass::kGradients), all, range.count};
  }

  void MultiplyGradInput(Scratch scratch, const LogitGradient& gradient, const ProductPart& part) const {
    const auto multiply = [&](const ProductPart& some) { products_->GradInput(scratch, gradient, some); };
    if (skip_below_ == 0) return multiply(part);
    for (std::int64_t row = 0; row < part.rows; row += kTileRows) {
      const std::uint8_t* const left = Left(scratch, part.row + row);
      MultiplyLeft(
          part, row, kTileColumns, [&](std::int64_t k) { return left[k] != 0; }, multiply);
    }
  }

  void MultiplyGradWeight(Scratch scratch, const LogitGradient& gradient, const ProductPart& part) const {
    const auto multiply = [&](const ProductPart& some) { products_->GradWeight(scratch, gradient, some); };
    if (skip_below_ == 0) return multiply(part);
    for (std::int64_t row = 0; row < part.rows; row += kTileRows) {
      // These classes lie in one panel of tiles or in two.
      const std::int64_t first = part.row + row, one = first / kTileColumns;
      const std::int64_t two = (std::min(first + kTileRows, gradient.classes) - 1) / kTileColumns;
      const auto stayed = [&](std::int64_t k) {
        const std::uint8_t* const left = Left(scratch, k * kTileRows);
        return (left[one] | left[two]) != 0;
      };
      MultiplyLeft(part, row, kTileRows, stayed, multiply);
    }
  }

  // The same over copies of the columns of g. Never inlined: only this is to take so much of the stack.
  template <class F>
  __attribute__((noinline)) void MultiplyGathered(Scratch scratch, const LogitGradient& of, std::int64_t begin,
                                                  std::int64_t end, F&& product) const {
    alignas(64) float side_by_side[kDepth * kClassRows];
    ForPanels(begin, end, of.block.count, kDepth, [&](const ProductPart& panel) {
      ProductPart part = product(panel);
      if (part.column == begin)
        for (std::int64_t i = 0; i < part.depth; ++i)
          std::copy_n(of.g + (part.first + i) * of.g_row + part.row, part.rows, side_by_side + i * kClassRows);
      const TokenBlock slice{of.block.begin + part.first, part.depth, RoundUp(part.depth, kTileRows),
                             of.block.within + part.first};
      part.next_first -= part.first, part.row = part.first = 0;
      products_->GradWeight(scratch, {side_by_side, kClassRows, slice, part.rows}, part);
    });
  }

  template <class Part, class View>
  static Part MatrixOf(const View& view) {
    return {static_cast<decltype(Part::data)>(view.data),
            view.dtype,
            StrideOf(view, 0),
            StrideOf(view, 1),
            view.dim(0),
            view.dim(1)};
  }
  static InputPart AsInput(const OutputPart& out) {
    return {out.data, out.dtype, out.row, out.column, out.rows, out.columns};
  }
  InputPart Matrix() const { return MatrixOf<InputPart>(weight_); }
  InputPart InputRow(std::int64_t position) const {
    const auto* const data = static_cast<const std::byte*>(input_.data);
    return {data + input_at_.Offset(position) * SizeOf(input_.dtype), input_.dtype, 0, StrideOf(input_, -1), 1, H_};
  }
  OutputPart GradInputRow(std::int64_t position) const {
    auto* const data = static_cast<std::byte*>(grad_.input->data);
    return {data + grad_input_at_.Offset(position) * SizeOf(grad_.input->dtype),
            grad_.input->dtype,
            0,
            StrideOf(*grad_.input, -1),
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
    const OutputPart out{static_cast<std::byte*>(bias.data) + first * StrideOf(bias, 0) * SizeOf(bias.dtype),
                         bias.dtype,
                         0,
                         StrideOf(bias, 0),
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
  const PassingRows passing_;  // for logits that are used at once
  const Positions input_at_;
  const ConstTensorView input_, weight_;
  const LinearCrossEntropyGradients grad_;
  const std::optional<ConstTensorView> bias_;
  const float scale_, skip_below_;
  bool gathers_ = false;         // grad_weight, where tokens are many
  bool gradients_stay_ = false;  // those of all tokens of a group, until their last product
  std::unique_ptr<LinearProducts> products_;
  std::optional<FewTokens> few_;  // instead
  Positions grad_input_at_;
  Piece<float> g_, dx_, dw_, db_, bias_values_;
  Piece<std::uint8_t> left_;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_LAYER_H_
