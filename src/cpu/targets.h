// The first phase of every loss: all targets are read and checked before anything is written.
#ifndef ONEHOT_CPU_TARGETS_H_
#define ONEHOT_CPU_TARGETS_H_

#include <algorithm>
#include <cstdint>

#include "core/layout.h"
#include "core/scratch.h"
#include "cpu/targets_simd.h"
#include "cpu/threads.h"
#include "ops/indices.h"

namespace onehot::cpu {

class Targets {
 public:
  Targets(const ConstTensorView& target, std::int64_t C, std::int64_t ignore_index, Isa isa, ScratchLayout& layout)
      : target_(target),
        at_(Flatten(target, target.rank)),
        C_(C),
        ignore_index_(ignore_index),
        read_(ReadTargetsFor(isa)),
        class_bytes_(ClassBytes(C)),
        blocks_((at_.count + kBlock - 1) / kBlock) {
    classes_ = layout.Book<std::byte>(at_.count * class_bytes_);
    bad_ = layout.Book<std::int64_t>(blocks_);
  }

  std::int64_t count() const { return at_.count; }
  int class_bytes() const { return class_bytes_; }

  // Fills Classes, or says which target is bad.
  Status Read(Scratch scratch, int threads) const {
    std::byte* const classes = scratch.Get(classes_).data();
    std::int64_t* const bad = scratch.Get(bad_).data();
    ParallelFor(threads, blocks_, [&](std::int64_t b, int) {
      bad[b] = read_({.target = &target_,
                      .at = &at_,
                      .C = C_,
                      .ignore_index = ignore_index_,
                      .begin = b * kBlock,
                      .end = std::min((b + 1) * kBlock, at_.count),
                      .classes = classes});
    });
    for (std::int64_t b = 0; b < blocks_; ++b)  // blocks ascend, so the first one found is the smallest
      if (bad[b] >= 0) return BadIndex("target", target_, bad[b], C_);
    return Status::Ok();
  }

  // After Read: the class of each position, in the order of positions, class_bytes() each.
  const std::byte* Classes(Scratch scratch) const { return scratch.Get(classes_).data(); }

 private:
  // 32768 targets take some 10 us, ten times the cost of a parallel region.
  static constexpr std::int64_t kBlock = 32768;

  const ConstTensorView target_;
  const Positions at_;
  const std::int64_t C_, ignore_index_;
  const ReadTargetsFunction read_;
  const int class_bytes_;
  const std::int64_t blocks_;
  Piece<std::byte> classes_;
  Piece<std::int64_t> bad_;
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_TARGETS_H_
