#include "onehot/tensor.h"

#include <algorithm>

namespace onehot {

std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kI64:
      return "i64";
    case DType::kI32:
      return "i32";
    case DType::kI16:
      return "i16";
    case DType::kI8:
      return "i8";
    case DType::kU8:
      return "u8";
    case DType::kBool:
      return "bool";
    case DType::kC64:
      return "c64";
    case DType::kC128:
      return "c128";
  }
  return "unknown";
}

TensorLayout TensorLayout::Contiguous(DType dtype, std::span<const std::int64_t> dims) {
  TensorLayout layout;
  layout.dtype = dtype;
  layout.rank = static_cast<int>(std::min(dims.size(), std::size_t{kMaxRank}));
  std::int64_t stride = 1;
  for (auto axis = static_cast<std::size_t>(layout.rank); axis-- > 0;) {
    layout.dims[axis] = dims[axis];
    layout.strides[axis] = stride;
    // Wraps for absurd extents, which Check refuses before a stride is used.
    stride = static_cast<std::int64_t>(static_cast<std::uint64_t>(stride) *
                                       static_cast<std::uint64_t>(std::max(dims[axis], std::int64_t{1})));
  }
  return layout;
}

}  // namespace onehot
