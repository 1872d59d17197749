#ifndef ONEHOT_CORE_SCRATCH_H_
#define ONEHOT_CORE_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace onehot {

// Phase 1 books pieces of the working memory; phase 2 gets the same pieces back by the handle that booking returned.
// One ledger, so size and offsets cannot disagree; the handle carries the element type, so no casts at the use.
template <class T>
struct Piece {
  std::size_t offset = 0;  // bytes from the aligned base
  std::size_t count = 0;   // elements of T
};

class ScratchLayout {
 public:
  static constexpr std::size_t kAlign = 64;  // one cache line: pieces never share one, and vector loads are aligned

  template <class T>
  Piece<T> Book(std::int64_t count) {
    const Piece<T> piece{used_, static_cast<std::size_t>(count)};
    used_ = (used_ + piece.count * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return piece;
  }

  // What to ask the caller for. His memory may have any alignment, hence the spare line.
  std::size_t bytes() const { return used_ == 0 ? 0 : used_ + kAlign - 1; }

 private:
  std::size_t used_ = 0;
};

class Scratch {
 public:
  explicit Scratch(void* memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    base_ = static_cast<std::byte*>(memory) + (-address & (ScratchLayout::kAlign - 1));
  }
  std::byte* base() const { return base_; }
  template <class T>
  std::span<T> Get(Piece<T> piece) const {
    return {reinterpret_cast<T*>(base_ + piece.offset), piece.count};
  }

 private:
  std::byte* base_;
};

}  // namespace onehot

#endif  // ONEHOT_CORE_SCRATCH_H_
