// Tensors as the library sees them: borrowed memory, a dtype, extents and strides. Nothing here owns data.
#ifndef ONEHOT_TENSOR_H_
#define ONEHOT_TENSOR_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "onehot/export.h"

namespace onehot {

enum class DType : std::uint8_t {
  kF32,
  kF64,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,  // one byte; zero is false, anything else true
  kC64,
  kC128,  // pairs of f32 and f64; moved, never computed with
};

// "f32", "bf16", "i64", "bool", ...
ONEHOT_API std::string_view Name(DType dtype);

// Bytes of one element.
constexpr std::int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return 1;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF64:
    case DType::kI64:
    case DType::kC64:
      return 8;
    case DType::kC128:
      return 16;
  }
  return 0;
}

inline constexpr int kMaxRank = 8;

// What a view describes apart from where it lies. Extents and strides count elements; a stride may be 0 (expanded),
// negative, or anything else that stays inside the caller's memory.
struct TensorLayout {
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> dims{};
  std::array<std::int64_t, kMaxRank> strides{};

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[static_cast<std::size_t>(i)];
    return n;
  }
  std::int64_t dim(int axis) const { return dims[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)]; }
  std::int64_t stride(int axis) const { return strides[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)]; }

  // Row-major and dense: the last axis is contiguous. At most kMaxRank extents; more are cut off.
  ONEHOT_API static TensorLayout Contiguous(DType dtype, std::span<const std::int64_t> dims);
};

// Memory the library may write. `data` is the address of element (0, ..., 0), offsets already added.
struct TensorView : TensorLayout {
  void* data = nullptr;

  TensorView() = default;
  TensorView(void* address, const TensorLayout& layout) : TensorLayout(layout), data(address) {}
  // Dense and row-major: TensorView(p, DType::kF32, {N, D}).
  TensorView(void* address, DType type, std::initializer_list<std::int64_t> extents)
      : TensorLayout(Contiguous(type, {extents.begin(), extents.size()})), data(address) {}
};

// Memory the library only reads.
struct ConstTensorView : TensorLayout {
  const void* data = nullptr;

  ConstTensorView() = default;
  ConstTensorView(const void* address, const TensorLayout& layout) : TensorLayout(layout), data(address) {}
  ConstTensorView(const void* address, DType type, std::initializer_list<std::int64_t> extents)
      : TensorLayout(Contiguous(type, {extents.begin(), extents.size()})), data(address) {}
  ConstTensorView(const TensorView& view) : TensorLayout(view), data(view.data) {}  // NOLINT: reading is always allowed
};

}  // namespace onehot

#endif  // ONEHOT_TENSOR_H_
