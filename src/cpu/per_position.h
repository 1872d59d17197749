// Tensors with one element for each position, or one in all, as f32 or f64 whatever their dtype and strides.
#ifndef ONEHOT_CPU_PER_POSITION_H_
#define ONEHOT_CPU_PER_POSITION_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/layout.h"
#include "onehot/tensor.h"
#include "ops/losses.h"

namespace onehot::cpu {

// to[i] = element of position begin + i, i < count. `at` is Flatten(tensor, tensor.rank).
template <class Real>
void LoadPositions(const ConstTensorView& tensor, const Positions& at, std::int64_t begin, std::int64_t count,
                   Real* to) {
  ForDType(LossTypes{}, tensor.dtype, [&]<class T>() {
    const T* const from = static_cast<const T*>(tensor.data);
    if constexpr (std::is_same_v<T, Real>) {
      if (at.uniform() && at.stride() == 1) {
        std::copy_n(from + begin, count, to);
        return;
      }
    }
    if (at.uniform()) {
      const T* const first = from + begin * at.stride();
      for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Real>(Widen(first[i * at.stride()]));
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Real>(Widen(from[at.Offset(begin + i)]));
    }
  });
}

// The other way round; each is rounded once.
template <class Real>
void StorePositions(const TensorView& tensor, const Positions& at, std::int64_t begin, std::int64_t count,
                    const Real* from) {
  ForDType(LossTypes{}, tensor.dtype, [&]<class T>() {
    T* const to = static_cast<T*>(tensor.data);
    if constexpr (std::is_same_v<T, Real>) {
      if (at.uniform() && at.stride() == 1) {
        std::copy_n(from, count, to + begin);
        return;
      }
    }
    if (at.uniform()) {
      T* const first = to + begin * at.stride();
      for (std::int64_t i = 0; i < count; ++i) first[i * at.stride()] = Narrow<T>(from[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[at.Offset(begin + i)] = Narrow<T>(from[i]);
    }
  });
}

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_PER_POSITION_H_
