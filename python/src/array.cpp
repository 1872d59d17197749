#include "array.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "run.h"

namespace onehot::python {
namespace {

constexpr std::string_view kDTypes =
    "float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8, bool, complex64 or complex128";

[[noreturn]] void RefuseDType(const char* name, std::string_view dtype) {
  Refuse(PyExc_TypeError, fmt::format("{}: its dtype must be {}, is {}", name, kDTypes, dtype));
}

std::string Text(nb::handle object) {
  return nb::cast<std::string>(nb::str(object));
}

std::string TypeName(nb::handle object) {
  return Text(object.type().attr("__name__"));
}

// The format of a buffer, in the letters of the struct module. Native byte order only: '@', '=' and no letter say so, and
// '<' does on the machines we know.
std::optional<DType> FromFormat(const char* format, Py_ssize_t itemsize) {
  if (format == nullptr) return DType::kU8;  // PEP 3118: plain bytes
  std::string_view code = format;
  if (!code.empty() && (code[0] == '@' || code[0] == '=' || code[0] == '<')) code.remove_prefix(1);
  if (code == "Zf") return DType::kC64;
  if (code == "Zd") return DType::kC128;
  if (code.size() != 1) return std::nullopt;
  switch (code[0]) {
    case 'f':
      return DType::kF32;
    case 'd':
      return DType::kF64;
    case 'e':
      return DType::kF16;
    case '?':
      return DType::kBool;
    case 'B':
      return DType::kU8;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':  // 'l' has 8 bytes or, after '=', 4
      switch (itemsize) {
        case 1:
          return DType::kI8;
        case 2:
          return DType::kI16;
        case 4:
          return DType::kI32;
        case 8:
          return DType::kI64;
      }
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<DType> FromTorch(nb::handle dtype) {
  // torch.float32 and the others live as long as PyTorch. The last ones seen, since their names take longer than all else.
  thread_local std::array<std::pair<PyObject*, DType>, 4> seen{};
  thread_local std::size_t oldest = 0;
  for (const auto& [object, known] : seen)
    if (object == dtype.ptr()) return known;
  const std::string name = Text(dtype);

  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"torch.float32", DType::kF32},   {"torch.float64", DType::kF64},   {"torch.float16", DType::kF16},
      {"torch.bfloat16", DType::kBF16}, {"torch.int64", DType::kI64},     {"torch.int32", DType::kI32},
      {"torch.int16", DType::kI16},     {"torch.int8", DType::kI8},       {"torch.uint8", DType::kU8},
      {"torch.bool", DType::kBool},     {"torch.complex64", DType::kC64}, {"torch.complex128", DType::kC128}};
  for (const auto& [text, known] : kNames) {
    if (text != name) continue;
    seen[oldest++ % seen.size()] = {dtype.ptr(), known};
    return known;
  }
  return std::nullopt;
}

std::optional<DType> FromDlpack(nb::dlpack::dtype dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
  using Code = nb::dlpack::dtype_code;
  switch (dtype.bits) {
    case 8:
      if (code == Code::Int) return DType::kI8;
      if (code == Code::UInt) return DType::kU8;
      if (code == Code::Bool) return DType::kBool;
      break;
    case 16:
      if (code == Code::Int) return DType::kI16;
      if (code == Code::Float) return DType::kF16;
      if (code == Code::Bfloat) return DType::kBF16;
      break;
    case 32:
      if (code == Code::Int) return DType::kI32;
      if (code == Code::Float) return DType::kF32;
      break;
    case 64:
      if (code == Code::Int) return DType::kI64;
      if (code == Code::Float) return DType::kF64;
      if (code == Code::Complex) return DType::kC64;
      break;
    case 128:
      if (code == Code::Complex) return DType::kC128;
      break;
  }
  return std::nullopt;
}

int Rank(std::int64_t rank, const char* name) {
  if (rank > kMaxRank)
    Refuse(PyExc_ValueError, fmt::format("{}: must have at most {} axes, has {}", name, kMaxRank, rank));
  return static_cast<int>(rank);
}

// NumPy's arrays, also those of dtypes that the buffer protocol does not have.
bool IsNumpy(nb::handle object) {
  return nb::hasattr(object, "__array_interface__");
}

// That of the package ml_dtypes, which registers it with NumPy.
bool IsBfloat16(nb::handle dtype) {
  // The last one seen, kept alive, since its name takes longer than all else.
  thread_local PyObject* seen = nullptr;
  if (dtype.ptr() == seen) return true;
  const nb::object name = nb::getattr(dtype, "name", nb::none());
  if (!nb::isinstance<nb::str>(name) || Text(name) != "bfloat16" || !nb::cast<bool>(dtype.attr("isnative")))
    return false;
  Py_XSETREF(seen, Py_NewRef(dtype.ptr()));
  return true;
}

}  // namespace

Array::Array(nb::handle object, const char* name, bool writable) : name_(name), writable_(writable) {
  if (!writable && (PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr()))) {
    number_ = PyFloat_AsDouble(object.ptr());
    if (number_ == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    view_ = TensorView(&number_, DType::kF64, {});
    return;
  }
  // A tensor of PyTorch has no buffers; it would be asked for one in vain, and speaks DLPack only without requires_grad.
  const bool buffers = PyObject_CheckBuffer(object.ptr()) != 0;
  if (!buffers || !TakeBuffer(object)) {
    if (nb::hasattr(object, "data_ptr") && nb::hasattr(object, "stride")) {
      TakeTensor(object);
    } else if (nb::hasattr(object, "__dlpack__") && !IsNumpy(object)) {
      TakeDlpack(object);
    } else if (buffers) {
      const nb::object dtype = nb::getattr(object, "dtype", nb::none());
      RefuseDType(name, !dtype.is_none() ? Text(dtype) : buffer_.format != nullptr ? buffer_.format : TypeName(object));
    } else {
      Refuse(PyExc_TypeError,
             fmt::format("{}: must be an array (of NumPy, PyTorch, JAX, or one with the buffer protocol or "
                         "__dlpack__), is {}",
                         name, TypeName(object)));
    }
  }
  RequireWholeElements();
}

// False for objects that give no buffer, or one of a dtype that is not ours.
bool Array::TakeBuffer(nb::handle object) {
  std::optional<DType> dtype;
  // Asked for as readable, so that what cannot be written gets our sentence.
  if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_RECORDS_RO) == 0) {
    dtype = FromFormat(buffer_.format, buffer_.itemsize);
  } else {
    PyErr_Clear();
    // There is no letter for bfloat16, but a buffer without one.
    if (!IsNumpy(object) || !IsBfloat16(object.attr("dtype"))) return false;
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_STRIDED_RO) != 0) throw nb::python_error();
    dtype = DType::kBF16;
  }
  if (!dtype || SizeOf(*dtype) != buffer_.itemsize) return false;
  if (writable_ && buffer_.readonly) Refuse(PyExc_ValueError, fmt::format("{}: must be writable, is read-only", name_));
  view_.dtype = *dtype;
  view_.data = buffer_.buf;
  view_.rank = Rank(buffer_.ndim, name_);
  for (int axis = 0; axis < view_.rank; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    view_.dims[i] = buffer_.shape[axis];
    if (buffer_.strides[axis] % buffer_.itemsize != 0 && buffer_.shape[axis] > 1)
      Refuse(PyExc_ValueError,
             fmt::format("{}: strides must be whole elements of {} bytes, that of axis {} is {} bytes", name_,
                         buffer_.itemsize, axis, static_cast<std::int64_t>(buffer_.strides[axis])));
    view_.strides[i] = buffer_.strides[axis] / buffer_.itemsize;
  }
  return true;
}

void Array::TakeTensor(nb::handle object) {
  if (!nb::cast<bool>(object.attr("is_cpu")))
    Refuse(PyExc_TypeError,
           fmt::format("{}: must be in the memory of the CPU, is on {}", name_, Text(object.attr("device"))));
  const nb::object dtype = object.attr("dtype");
  const std::optional<DType> known = FromTorch(dtype);
  if (!known) RefuseDType(name_, Text(dtype));
  const auto shape = nb::cast<nb::tuple>(object.attr("shape"));
  const auto stride = nb::cast<nb::tuple>(object.attr("stride")());
  view_.dtype = *known;
  view_.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(object.attr("data_ptr")()));
  view_.rank = Rank(static_cast<std::int64_t>(shape.size()), name_);
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view_.rank); ++axis) {
    view_.dims[axis] = nb::cast<std::int64_t>(shape[axis]);
    view_.strides[axis] = nb::cast<std::int64_t>(stride[axis]);
  }
}

void Array::TakeDlpack(nb::handle object) {
  // nanobind takes a read-only array (JAX's are) for one that promises not to write.
  nb::ndarray<nb::ro> array;
  try {
    array = nb::cast<nb::ndarray<nb::ro>>(object);
  } catch (const nb::cast_error&) {
    Refuse(PyExc_TypeError,
           fmt::format("{}: __dlpack__ of {} gives no array that can be read here", name_, TypeName(object)));
  }
  if (array.device_type() != nb::device::cpu::value)
    Refuse(PyExc_TypeError, fmt::format("{}: must be in the memory of the CPU, is on a device of DLPack's type {}",
                                        name_, array.device_type()));
  const std::optional<DType> dtype = FromDlpack(array.dtype());
  if (!dtype) RefuseDType(name_, Text(nb::getattr(object, "dtype", nb::str("another"))));
  if (writable_) {
    nb::ndarray<> writable_array;
    if (!nb::try_cast<nb::ndarray<>>(object, writable_array))
      Refuse(PyExc_ValueError, fmt::format("{}: must be writable, is read-only", name_));
  }
  view_.dtype = *dtype;
  view_.data = const_cast<void*>(array.data());
  view_.rank = Rank(static_cast<std::int64_t>(array.ndim()), name_);
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view_.rank); ++axis) {
    view_.dims[axis] = static_cast<std::int64_t>(array.shape(axis));
    view_.strides[axis] = array.stride(axis);
  }
  owner_ = nb::borrow(object);
  array_ = std::move(array);
}

void Array::RequireWholeElements() const {
  // Complex numbers are aligned as their parts are.
  const std::int64_t size = SizeOf(view_.dtype);
  const bool complex = view_.dtype == DType::kC64 || view_.dtype == DType::kC128;
  const auto align = static_cast<std::uintptr_t>(complex ? size / 2 : size);
  if (reinterpret_cast<std::uintptr_t>(view_.data) % align != 0 && view_.numel() > 0)
    Refuse(PyExc_ValueError, fmt::format("{}: must be aligned to its elements of {} bytes, is not", name_, size));
}

}  // namespace onehot::python
