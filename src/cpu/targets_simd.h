// Target tensors read once: any dtype, any strides, checked, as class numbers in the narrowest type that holds them.
#ifndef ONEHOT_CPU_TARGETS_SIMD_H_
#define ONEHOT_CPU_TARGETS_SIMD_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/isa.h"
#include "core/layout.h"
#include "onehot/tensor.h"

namespace onehot::cpu {

// The class number of an ignored position, whatever ignore_index is: one that no class has.
template <class K>
inline constexpr K kIgnored = std::numeric_limits<K>::max();

// Bytes of a class number: 1, 2 or 4; 0 if there are too many classes for all of them.
constexpr int ClassBytes(std::int64_t C) {
  return C <= kIgnored<std::uint8_t> ? 1 : C <= kIgnored<std::uint16_t> ? 2 : C <= kIgnored<std::uint32_t> ? 4 : 0;
}

// Calls f.operator()<K>() for the type of that many bytes.
template <class F>
auto ForClassType(int bytes, F&& f) {
  if (bytes == 1) return f.template operator()<std::uint8_t>();
  if (bytes == 2) return f.template operator()<std::uint16_t>();
  return f.template operator()<std::uint32_t>();
}

// The classes of some positions, `bytes` each and `step` apart.
struct ClassRun {
  const std::byte* data;
  int bytes;
  std::int64_t step;
  std::int64_t count;
};

struct TargetTask {
  const ConstTensorView* target;
  const Positions* at;  // Flatten(target, target.rank)
  std::int64_t C, ignore_index;
  std::int64_t begin, end;  // positions
  void* classes;            // of all positions, ClassBytes(C) each
};

// Writes the classes of those positions, and returns the first position whose target is neither in [0, C) nor
// ignore_index, or -1. What is written from a bad position on is undefined.
using ReadTargetsFunction = std::int64_t (*)(const TargetTask& task);

ReadTargetsFunction ReadTargetsFor(Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_TARGETS_SIMD_H_
