#include "cpu/linear_products.h"

#include <algorithm>

#include "cpu/linear_bf16.h"

namespace onehot::cpu {
namespace {

//   x    [tokens][Hs]          a operand of logits, b operand of GradWeight
//   wt   [chunk / 64][H][64]   b operand of logits
//   w    [H / 64][chunk][64]   b operand of GradInput
//
// and the gradient itself: a operand of GradInput and, its columns as rows, of GradWeight.
class F32Products final : public LinearProducts {
 public:
  F32Products(const LinearCrossEntropy& op, const LinearMemory& memory, Isa isa, ScratchLayout& layout)
      : kernels_(LinearKernelsFor(isa)), H_(op.H()), chunk_(memory.chunk), x_row_(PaddedStride(H_)) {
    x_ = layout.Book<float>(RoundUp(op.N(), kTileRows) * x_row_);
    wt_ = layout.Book<float>(BlockOf(op.V()) * H_);
    if (op.grad.input) w_ = layout.Book<float>(RoundUp(H_, kTileColumns) * chunk_);
  }

  void PackToken(Scratch scratch, std::int64_t token, const InputPart& row) const override {
    kernels_.pack(row, scratch.Get(x_).data() + token * x_row_, x_row_, x_row_);
  }
  void EndTokens(Scratch, const TokenBlock&) const override {}
  void PackForLogits(Scratch scratch, const InputPart& rows, std::int64_t first) const override {
    kernels_.pack_transposed(rows, scratch.Get(wt_).data() + first * H_);
  }
  void PackForGradInput(Scratch scratch, const InputPart& rows, std::int64_t first) const override {
    for (std::int64_t column = 0; column < H_; column += kTileColumns)
      kernels_.pack(rows.Part(0, column, rows.rows, std::min(kTileColumns, H_ - column)),
                    scratch.Get(w_).data() + column * chunk_ + first * kTileColumns, kTileColumns, kTileColumns);
  }

  void Logits(Scratch scratch, const ProductPart& part) const override {
    Multiply(
        scratch.Get(x_).data() + part.row * x_row_ + part.first, x_row_, 1, kTileColumns, part,
        [&](std::int64_t column, std::int64_t k) { return scratch.Get(wt_).data() + column * H_ + k * kTileColumns; });
  }
  void Take(Scratch, const LogitGradient&) const override {}
  void GradInput(Scratch scratch, const LogitGradient& group, const ProductPart& part) const override {
    Multiply(group.g + part.row * group.g_row + part.first, group.g_row, 1, kTileColumns, part,
             [&](std::int64_t column, std::int64_t k) {
               return scratch.Get(w_).data() + column * chunk_ + k * kTileColumns;
             });
  }
  void GradWeight(Scratch scratch, const LogitGradient& group, const ProductPart& part) const override {
    Multiply(group.g + part.first * group.g_row + part.row, 1, group.g_row, x_row_, part,
             [&](std::int64_t column, std::int64_t k) {
               return scratch.Get(x_).data() + (group.block.begin + k) * x_row_ + column;
             });
  }

  std::int64_t slice() const override { return kDepth; }

 private:
  // b_at(column, k): where columns of b begin.
  template <class F>
  void Multiply(const float* a, std::int64_t a_row, std::int64_t a_k, std::int64_t b_k, const ProductPart& part,
                F&& b_at) const {
    kernels_.multiply({a, a_row, a_k, b_at(part.column, part.first), b_k, part.c, part.c_row, part.rows, part.depth,
                       part.accumulate, b_at(part.next_column, part.next_first)});
  }

  const LinearKernels& kernels_;
  const std::int64_t H_, chunk_, x_row_;
  Piece<float> x_, wt_, w_;
};

// Numbers go in pairs along the reduction (cpu/linear_bf16.h), so that an operand of two products is there twice:
//
//   x along H          [tokens][Hs / 2]             a operand of logits
//   x across tokens    [H / 64][tokens / 2][64]     b operand of GradWeight
//   wt                 [chunk / 64][H / 2][64]      as in f32
//   w                  [H / 64][chunk / 2][64]
//   g along classes    [tokens][Gs / 2]             a operand of GradInput
//   g across tokens    [chunk / 96][tokens / 2][96] a operand of GradWeight
//
// Panels, because rows of several KB take a page each: measured (Zen 5, 1024 columns and classes) 10 % of GradWeight's time
// for 512 tokens, half of it for 4096.
static_assert(kClassRows == kRoundPanel, "rows of a part of GradWeight lie in one panel");
class Bf16Products final : public LinearProducts {
 public:
  Bf16Products(const LinearCrossEntropy& op, const LinearMemory& memory, Isa isa, ScratchLayout& layout)
      : kernels_(*Bf16KernelsFor(isa)),
        H_(op.H()),
        chunk_(memory.chunk),
        x_row_(PaddedStride(H_)),
        rows_(RoundUp(op.N(), kTileRows)),
        g_row_(PaddedStride(chunk_)),
        g_rows_(memory.group > 0 ? memory.group : rows_),
        g_panel_(g_rows_ / 2 * kRoundPanel),
        grad_input_(op.grad.input.has_value()),
        grad_weight_(op.grad.weight.has_value()) {
    x_along_ = layout.Book<Bf16Pair>(rows_ * x_row_ / 2);
    wt_ = layout.Book<Bf16Pair>(BlockOf(op.V()) * Pairs(H_));
    if (grad_input_) {
      w_ = layout.Book<Bf16Pair>(RoundUp(H_, kTileColumns) * chunk_ / 2);
      g_along_ = layout.Book<Bf16Pair>(g_rows_ * g_row_ / 2);
    }
    if (grad_weight_) {
      x_across_ = layout.Book<Bf16Pair>(RoundUp(H_, kTileColumns) * rows_ / 2);
      g_across_ = layout.Book<Bf16Pair>((chunk_ + kRoundPanel - 1) / kRoundPanel * g_panel_);
    }
  }

  void PackToken(Scratch scratch, std::int64_t token, const InputPart& row) const override {
    kernels_.pack(row, XAlong(scratch, token), x_row_ / 2, x_row_ / 2);
  }
  void EndTokens(Scratch scratch, const TokenBlock& block) const override {
    std::fill_n(XAlong(scratch, block.begin + block.count), (block.padded - block.count) * x_row_ / 2, Bf16Pair{0});
    if (!grad_weight_) return;
    const InputPart along{reinterpret_cast<const std::byte*>(XAlong(scratch, block.begin)),
                          DType::kBF16,
                          x_row_,
                          1,
                          block.padded,
                          x_row_};
    for (std::int64_t column = 0; column < H_; column += kTileColumns)
      kernels_.interleave(along.Part(0, column, block.padded, kTileColumns), XAcross(scratch, column, block.begin),
                          kTileColumns, kTileColumns);
  }
  void PackForLogits(Scratch scratch, const InputPart& rows, std::int64_t first) const override {
    kernels_.interleave(Transposed(rows), scratch.Get(wt_).data() + first * Pairs(H_), kTileColumns, kTileColumns);
  }
  void PackForGradInput(Scratch scratch, const InputPart& rows, std::int64_t first) const override {
    for (std::int64_t column = 0; column < H_; column += kTileColumns)
      kernels_.interleave(rows.Part(0, column, rows.rows, std::min(kTileColumns, H_ - column)),
                          scratch.Get(w_).data() + (column * chunk_ + first * kTileColumns) / 2, kTileColumns,
                          kTileColumns);
  }

  void Logits(Scratch scratch, const ProductPart& part) const override {
    Multiply(XAlong(scratch, part.row) + part.first / 2, x_row_ / 2, 1, part, [&](std::int64_t column, std::int64_t k) {
      return scratch.Get(wt_).data() + column * Pairs(H_) + k / 2 * kTileColumns;
    });
  }
  void Take(Scratch scratch, const LogitGradient& of) const override {
    kernels_.round({.from = of.g,
                    .from_row = of.g_row,
                    .rows = of.block.count,
                    .padded_rows = of.block.padded,
                    .columns = of.classes,
                    .along = grad_input_ ? GAlong(scratch, of.block.within) : nullptr,
                    .along_row = g_row_ / 2,
                    .across = grad_weight_ ? GAcross(scratch, 0, of.block.within) : nullptr,
                    .across_row = kRoundPanel,
                    .across_panel = g_panel_});
  }
  void GradInput(Scratch scratch, const LogitGradient&, const ProductPart& part) const override {
    Multiply(GAlong(scratch, part.row) + part.first / 2, g_row_ / 2, 1, part, [&](std::int64_t column, std::int64_t k) {
      return scratch.Get(w_).data() + (column * chunk_ + k * kTileColumns) / 2;
    });
  }
  void GradWeight(Scratch scratch, const LogitGradient& group, const ProductPart& part) const override {
    Multiply(GAcross(scratch, part.row, part.first), 1, kRoundPanel, part,
             [&](std::int64_t column, std::int64_t k) { return XAcross(scratch, column, group.block.begin + k); });
  }

  std::int64_t slice() const override { return 2 * kPairDepth; }

 private:
  Bf16Pair* XAlong(Scratch scratch, std::int64_t token) const {
    return scratch.Get(x_along_).data() + token * x_row_ / 2;
  }
  Bf16Pair* XAcross(Scratch scratch, std::int64_t column, std::int64_t token) const {
    return scratch.Get(x_across_).data() + (column * rows_ + token * kTileColumns) / 2;
  }
  Bf16Pair* GAcross(Scratch scratch, std::int64_t v, std::int64_t token) const {
    return scratch.Get(g_across_).data() + v / kRoundPanel * g_panel_ + token / 2 * kRoundPanel + v % kRoundPanel;
  }
  Bf16Pair* GAlong(Scratch scratch, std::int64_t token) const {
    return scratch.Get(g_along_).data() + token * g_row_ / 2;
  }
  template <class F>
  void Multiply(const Bf16Pair* a, std::int64_t a_row, std::int64_t a_k, const ProductPart& part, F&& b_at) const {
    kernels_.multiply({a, a_row, a_k, b_at(part.column, part.first), kTileColumns, part.c, part.c_row,
                       RoundUp(part.rows, kTileRows), Pairs(part.depth), part.accumulate,
                       b_at(part.next_column, part.next_first)});
  }

  const Bf16Kernels& kernels_;
  const std::int64_t H_, chunk_, x_row_, rows_, g_row_, g_rows_, g_panel_;
  const bool grad_input_, grad_weight_;
  Piece<Bf16Pair> x_along_, x_across_, wt_, w_, g_along_, g_across_;
};

}  // namespace

std::unique_ptr<LinearProducts> MakeLinearProducts(const LinearCrossEntropy& op, const LinearMemory& memory, Isa isa,
                                                   ScratchLayout& layout) {
  if (memory.arithmetic == Arithmetic::kBf16) return std::make_unique<Bf16Products>(op, memory, isa, layout);
  return std::make_unique<F32Products>(op, memory, isa, layout);
}

}  // namespace onehot::cpu
