// Tensors that own their memory, with any strides, for tests: guarded on both sides, and gaps between elements are
// watched.
#ifndef TESTS_NATIVE_TENSOR_H_
#define TESTS_NATIVE_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "onehot/tensor.h"

namespace onehot::test {

using Dims = std::vector<std::int64_t>;

using AllTypes =
    Types<float, double, F16, BF16, std::int64_t, std::int32_t, std::int16_t, std::int8_t, std::uint8_t, Bool>;

inline constexpr DType kIndexDTypes[] = {DType::kI64,  DType::kI32, DType::kI16, DType::kI8, DType::kU8,
                                         DType::kBool, DType::kF64, DType::kF32, DType::kF16};
inline constexpr DType kGradientDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64, DType::kI32,
                                       DType::kI16, DType::kI8,  DType::kU8,  DType::kBool, DType::kC64, DType::kC128};

// Strides of the dense row-major tensor, in elements.
Dims DenseStrides(const Dims& dims);

// Where element `position`, counted row-major, lies from element 0, in elements. Written for plainness, not speed.
std::int64_t OffsetOf(const TensorLayout& layout, std::int64_t position);

// One element as a number. Integers above 2^53 lose digits: use Get for those.
double ValueAt(const TensorLayout& layout, const void* data, std::int64_t offset);

// 64 bytes: a cache line, and the widest vector.
inline constexpr std::size_t kLine = 64;

template <class T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}  // NOLINT: allocators convert
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{kLine})); }
  void deallocate(T* p, std::size_t) { ::operator delete (p, std::align_val_t{kLine}); }
  bool operator==(const LineAllocator&) const { return true; }
};
using Buffer = std::vector<std::byte, LineAllocator<std::byte>>;

// Copies keep the alignment.
enum class Placed {
  kAnywhere,  // aligned for its elements and for nothing wider
  kAtLine,    // the lowest element starts a cache line
};

class Tensor {
 public:
  // Elements start as 0xFF bytes: NaN in every floating dtype, -1 in the signed integers.
  Tensor(DType dtype, Dims dims, Placed placed = Placed::kAnywhere) : Tensor(dtype, dims, DenseStrides(dims), placed) {}
  Tensor(DType dtype, Dims dims, const Dims& strides, Placed placed = Placed::kAnywhere);

  TensorView view() { return {Data(), layout_}; }
  ConstTensorView view() const { return {Data(), layout_}; }
  const TensorLayout& layout() const { return layout_; }
  std::int64_t numel() const { return layout_.numel(); }

  // Positions count row-major.
  template <class T>
  T Get(std::int64_t position) const {
    T value;
    std::memcpy(&value, Address(position), sizeof(T));
    return value;
  }
  template <class T>
  void Set(std::int64_t position, T value) {
    std::memcpy(Address(position), &value, sizeof(T));
  }

  double Value(std::int64_t position) const { return ValueAt(layout_, Address(position), 0); }
  // Rounds to the dtype.
  void SetValue(std::int64_t position, double value);
  void SetAll(const std::vector<double>& values);
  std::vector<double> Values() const;

  // The elements, row-major and dense.
  std::vector<std::byte> Bytes() const;
  void SetBytes(std::int64_t position, const void* bytes) { std::memcpy(Address(position), bytes, ElementBytes()); }

  // Whether every byte around and between the elements is as it was made.
  bool GapsUntouched() const;
  // The whole buffer, gaps and guards included; equal means not a byte was written.
  const Buffer& buffer() const { return buffer_; }

 private:
  std::size_t ElementBytes() const { return static_cast<std::size_t>(SizeOf(layout_.dtype)); }
  std::byte* Data() { return buffer_.data() + origin_; }
  const std::byte* Data() const { return buffer_.data() + origin_; }
  std::byte* Address(std::int64_t position) {
    return Data() + (dense_ ? position : OffsetOf(layout_, position)) * SizeOf(layout_.dtype);
  }
  const std::byte* Address(std::int64_t position) const {
    return Data() + (dense_ ? position : OffsetOf(layout_, position)) * SizeOf(layout_.dtype);
  }

  TensorLayout layout_;
  Buffer buffer_;
  std::size_t origin_ = 0;  // byte of element 0
  bool dense_ = false;      // position by position, no gaps
};

// A view with those extents and strides.
inline TensorLayout LayoutOf(DType dtype, const Dims& dims, const Dims& strides) {
  TensorLayout layout;
  layout.dtype = dtype;
  layout.rank = static_cast<int>(dims.size());
  for (std::size_t axis = 0; axis < dims.size(); ++axis)
    layout.dims[axis] = dims[axis], layout.strides[axis] = strides[axis];
  return layout;
}

// An element for a person: its value and its bits.
std::string ShowElement(DType dtype, const std::byte* element);

}  // namespace onehot::test

#endif  // TESTS_NATIVE_TENSOR_H_
