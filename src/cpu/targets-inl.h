// Class numbers as loops want them. Compiled once per instruction set, hence the guard that toggles.
#if defined(ONEHOT_CPU_TARGETS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEHOT_CPU_TARGETS_INL_H_
#undef ONEHOT_CPU_TARGETS_INL_H_
#else
#define ONEHOT_CPU_TARGETS_INL_H_
#endif

#include <cstdint>

#include "cpu/targets_simd.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {

// In another width, ignored ones as kIgnored of that width. Classes fit U: the caller saw to it.
template <class U>
HWY_INLINE void WidenClasses(const ClassRun& classes, U* HWY_RESTRICT to) {
  ForClassType(classes.bytes, [&]<class K>() HWY_ATTR {
    const K* HWY_RESTRICT const from = reinterpret_cast<const K*>(classes.data);
    if (classes.step == 1) {
      for (std::int64_t i = 0; i < classes.count; ++i)
        to[i] = from[i] == kIgnored<K> ? kIgnored<U> : static_cast<U>(from[i]);
    } else {
      for (std::int64_t i = 0; i < classes.count; ++i) {
        const K y = from[i * classes.step];
        to[i] = y == kIgnored<K> ? kIgnored<U> : static_cast<U>(y);
      }
    }
  });
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONEHOT_CPU_TARGETS_INL_H_
