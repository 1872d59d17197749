// The three products of a linear layer, over operands that are packed to what the products are made of: f32, or bf16 where
// the CPU multiplies it.
//
//              rows       columns    along
//   logits     tokens     classes    H
//   GradInput  tokens     H          classes
//   GradWeight classes    H          tokens
//
// Classes are those of a chunk, counted from its first. Tokens are counted from the first of the run in logits, from the
// first of a group in the others.
#ifndef ONEHOT_CPU_LINEAR_PRODUCTS_H_
#define ONEHOT_CPU_LINEAR_PRODUCTS_H_

#include <algorithm>
#include <cstdint>
#include <memory>

#include "core/isa.h"
#include "core/scratch.h"
#include "cpu/linear_memory.h"
#include "cpu/linear_simd.h"
#include "cpu/token_blocks.h"
#include "onehot/linear_cross_entropy.h"

namespace onehot::cpu {

// kTileColumns columns of a product, and some of its rows.
struct ProductPart {
  std::int64_t row, rows;     // row is a multiple of kTileRows; c has room for rows up to the next one
  std::int64_t column;        // a multiple of kTileColumns
  std::int64_t first, depth;  // along the reduction; first is even
  float* c;                   // element (row, column); aligned to 64 bytes
  std::int64_t c_row;
  bool accumulate;
  std::int64_t next_column, next_first;  // of the product that follows, or again of this one
};

// Parts of a product's columns and of its reduction, in the order in which they are taken: slices, so that the rows' part
// of one stays in L2 while columns go past. A reduction without steps has a part, too, which makes the sums 0.
template <class F>
void ForPanels(std::int64_t begin, std::int64_t end, std::int64_t depth, std::int64_t slice, F&& multiply) {
  slice = std::max<std::int64_t>(slice, 1);
  for (std::int64_t first = 0; first == 0 || first < depth; first += slice)
    for (std::int64_t column = begin; column < end; column += kTileColumns) {
      ProductPart part{};
      part.column = part.next_column = column, part.first = part.next_first = first;
      part.depth = std::min(slice, depth - first);
      if (column + kTileColumns < end)
        part.next_column = column + kTileColumns;
      else if (first + slice < depth)
        part.next_column = begin, part.next_first = first + slice;
      multiply(part);
    }
}

// The gradient of logits of some tokens and a chunk, in f32: g[i * g_row + v].
struct LogitGradient {
  float* g;
  std::int64_t g_row;
  TokenBlock block;
  std::int64_t classes;
};

class LinearProducts {
 public:
  virtual ~LinearProducts() = default;

  // A row of input, one token; and what follows when all tokens of a block have theirs.
  virtual void PackToken(Scratch scratch, std::int64_t token, const InputPart& row) const = 0;
  virtual void EndTokens(Scratch scratch, const TokenBlock& block) const = 0;
  // Rows of the weight from class `first` of the chunk, a multiple of kTileColumns, as many at most: for logits, and for
  // GradInput.
  virtual void PackForLogits(Scratch scratch, const InputPart& rows, std::int64_t first) const = 0;
  virtual void PackForGradInput(Scratch scratch, const InputPart& rows, std::int64_t first) const = 0;

  virtual void Logits(Scratch scratch, const ProductPart& part) const = 0;
  // Makes operands of a block's gradient: for all blocks of a group before what follows.
  virtual void Take(Scratch scratch, const LogitGradient& gradient) const = 0;
  virtual void GradInput(Scratch scratch, const LogitGradient& group, const ProductPart& part) const = 0;
  virtual void GradWeight(Scratch scratch, const LogitGradient& group, const ProductPart& part) const = 0;

  // Steps of a reduction to take at a time, for all columns, so that the rows' part stays in L2.
  virtual std::int64_t slice() const = 0;
};

// `op` as the layer runs it: gradients that are not wanted are not there.
std::unique_ptr<LinearProducts> MakeLinearProducts(const LinearCrossEntropy& op, const LinearMemory& memory, Isa isa,
                                                   ScratchLayout& layout);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_PRODUCTS_H_
