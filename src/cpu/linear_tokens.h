// Tokens: positions that are not ignored, side by side, so that the others take part in no product.
#ifndef ONEHOT_CPU_LINEAR_TOKENS_H_
#define ONEHOT_CPU_LINEAR_TOKENS_H_

#include <cstdint>
#include <optional>

#include "core/layout.h"
#include "core/scratch.h"
#include "cpu/cross_entropy_parts.h"
#include "cpu/linear_layer.h"
#include "cpu/targets.h"

namespace onehot::cpu {

// Logits that never lie in memory as a whole, for what loss operators share.
inline ConstTensorView LogitsLike(std::int64_t N, std::int64_t V) {
  return {nullptr, DType::kF32, {N, V}};
}

class LiveTokens {
 public:
  LiveTokens(std::int64_t N, ScratchLayout& layout) : N_(N) {
    live_ = layout.Book<std::int64_t>(N);
    classes_ = layout.Book<std::uint32_t>(N);
  }

  // Fills the others from targets that have been read; how many there are.
  std::int64_t Find(Scratch scratch, const Targets& targets) const {
    std::int64_t* const live = scratch.Get(live_).data();
    std::uint32_t* const classes = Classes(scratch);
    std::int64_t count = 0;
    ForClassType(targets.class_bytes(), [&]<class K>() {
      const K* const all = reinterpret_cast<const K*>(targets.Classes(scratch));
      for (std::int64_t i = 0; i < N_; ++i) {
        if (all[i] == kIgnored<K>) continue;
        live[count] = i;
        classes[count++] = all[i];
      }
    });
    return count;
  }
  const std::int64_t* Positions(Scratch scratch) const { return scratch.Get(live_).data(); }
  std::uint32_t* Classes(Scratch scratch) const { return scratch.Get(classes_).data(); }

  // The classes of a block's tokens within a chunk of n from `first`; n where they are elsewhere.
  void ClassesOf(Scratch scratch, const TokenBlock& block, std::int64_t first, std::int64_t n,
                 std::uint32_t* classes) const {
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t v = Classes(scratch)[block.begin + i] - first;
      classes[i] = static_cast<std::uint32_t>(v >= 0 && v < n ? v : n);
    }
  }

  // The elements of so many tokens; false, and nothing, where there is no tensor.
  bool Gather(Scratch scratch, std::int64_t first, std::int64_t count, const InputPerPosition& from, float* to) const {
    if (!from) return false;
    const std::int64_t* const live = Positions(scratch) + first;
    for (std::int64_t i = 0; i < count; ++i) from.Load(live[i], 1, to + i);
    return true;
  }

  // Values of tokens to their positions, 0 to the others.
  void Scatter(Scratch scratch, std::int64_t count, const OutputPerPosition& out, const float* values) const {
    if (!out) return;
    constexpr float kZero = 0;
    const std::int64_t* const live = Positions(scratch);
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < N_; ++i) {
      const bool is_live = next < count && live[next] == i;
      out.Store(i, 1, is_live ? values + next++ : &kZero);
    }
  }
  // The same for classes, -1 to the others.
  void Scatter(Scratch scratch, std::int64_t count, const std::optional<TensorView>& out,
               const std::int64_t* values) const {
    if (!out) return;
    const auto at = Flatten(*out, out->rank);
    auto* const to = static_cast<std::int64_t*>(out->data);
    for (std::int64_t i = 0; i < N_; ++i) to[at.Offset(i)] = -1;
    for (std::int64_t i = 0; i < count; ++i) to[at.Offset(Positions(scratch)[i])] = values[i];
  }

 private:
  const std::int64_t N_;
  Piece<std::int64_t> live_;
  Piece<std::uint32_t> classes_;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_LINEAR_TOKENS_H_
