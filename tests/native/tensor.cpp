#include "tests/native/tensor.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace onehot::test {
namespace {

// Wide enough that a vector store beside an element shows; whole lines.
constexpr std::size_t kGuard = 2 * kLine;

std::byte Pattern(std::size_t i) {
  return static_cast<std::byte>((i * 37 + 11) & 0xFF);
}

}  // namespace

Dims DenseStrides(const Dims& dims) {
  Dims strides(dims.size());
  std::int64_t stride = 1;
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= dims[axis];
  }
  return strides;
}

std::int64_t OffsetOf(const TensorLayout& layout, std::int64_t position) {
  std::int64_t offset = 0;
  for (int axis = layout.rank; axis-- > 0;) {
    offset += position % layout.dim(axis) * layout.stride(axis);
    position /= layout.dim(axis);
  }
  return offset;
}

double ValueAt(const TensorLayout& layout, const void* data, std::int64_t offset) {
  return ForDType(AllTypes{}, layout.dtype, [&]<class T>() -> double {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(data) + offset * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    if constexpr (std::is_same_v<T, Bool>) {
      return value.byte != 0 ? 1.0 : 0.0;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<double>(value);
    } else {
      return Widen(value);
    }
  });
}

Tensor::Tensor(DType dtype, Dims dims, const Dims& strides, Placed placed) {
  layout_.dtype = dtype;
  layout_.rank = static_cast<int>(dims.size());
  std::int64_t low = 0, high = 0;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    layout_.dims[axis] = dims[axis];
    layout_.strides[axis] = strides[axis];
    const std::int64_t reach = std::max<std::int64_t>(dims[axis] - 1, 0) * strides[axis];
    (reach < 0 ? low : high) += reach;
  }
  const std::int64_t elements = numel() == 0 ? 0 : high - low + 1;
  const std::size_t front = kGuard + (placed == Placed::kAtLine ? 0 : ElementBytes());
  origin_ = front + (numel() == 0 ? 0 : static_cast<std::size_t>(-low) * ElementBytes());
  buffer_.resize(front + static_cast<std::size_t>(elements) * ElementBytes() + kGuard);
  dense_ = strides == DenseStrides(dims);
  for (std::size_t i = 0; i < buffer_.size(); ++i) buffer_[i] = Pattern(i);
  if (dense_) {
    std::memset(Data(), 0xFF, static_cast<std::size_t>(elements) * ElementBytes());
    return;
  }
  for (std::int64_t i = 0; i < numel(); ++i) std::memset(Address(i), 0xFF, ElementBytes());
}

void Tensor::SetValue(std::int64_t position, double value) {
  ForDType(AllTypes{}, layout_.dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, Bool>) {
      Set(position, Bool{static_cast<std::uint8_t>(value != 0)});
    } else if constexpr (std::is_integral_v<T>) {
      Set(position, static_cast<T>(value));
    } else {
      Set(position, Narrow<T>(value));
    }
  });
}

void Tensor::SetAll(const std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) SetValue(static_cast<std::int64_t>(i), values[i]);
}

std::vector<double> Tensor::Values() const {
  std::vector<double> values(static_cast<std::size_t>(numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = Value(static_cast<std::int64_t>(i));
  return values;
}

std::vector<std::byte> Tensor::Bytes() const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(numel()) * ElementBytes());
  if (dense_ && !bytes.empty()) {
    std::memcpy(bytes.data(), Data(), bytes.size());
    return bytes;
  }
  for (std::int64_t i = 0; i < numel(); ++i)
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * ElementBytes(), Address(i), ElementBytes());
  return bytes;
}

bool Tensor::GapsUntouched() const {
  std::vector<char> element(buffer_.size());
  if (dense_) {
    std::memset(element.data() + origin_, 1, static_cast<std::size_t>(numel()) * ElementBytes());
  } else {
    for (std::int64_t i = 0; i < numel(); ++i)
      std::memset(element.data() + (Address(i) - buffer_.data()), 1, ElementBytes());
  }
  for (std::size_t i = 0; i < buffer_.size(); ++i)
    if (element[i] == 0 && buffer_[i] != Pattern(i)) return false;
  return true;
}

std::string ShowElement(DType dtype, const std::byte* element) {
  std::ostringstream text;
  text << std::setprecision(17) << ValueAt(TensorLayout{.dtype = dtype, .rank = 0}, element, 0) << " (0x" << std::hex;
  for (std::int64_t b = SizeOf(dtype); b-- > 0;)
    text << std::setw(2) << std::setfill('0') << static_cast<int>(element[b]);
  text << ")";
  return text.str();
}

}  // namespace onehot::test
