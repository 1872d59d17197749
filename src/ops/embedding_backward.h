// What embedding backward means, apart from its public header onehot/embedding.h: the dtypes it takes.
#ifndef ONEHOT_OPS_EMBEDDING_BACKWARD_H_
#define ONEHOT_OPS_EMBEDDING_BACKWARD_H_

#include <cstdint>
#include <optional>

#include "core/dtype.h"
#include "onehot/embedding.h"

namespace onehot {

using GradientTypes = Types<float, double, F16, BF16>;

// The padding row counted from the front; none, or a value in [0, V) once Check has passed.
inline std::optional<std::int64_t> PaddingRow(const EmbeddingBackward& op) {
  if (!op.padding_idx || *op.padding_idx >= 0) return op.padding_idx;
  return *op.padding_idx + op.V();
}

}  // namespace onehot

#endif  // ONEHOT_OPS_EMBEDDING_BACKWARD_H_
