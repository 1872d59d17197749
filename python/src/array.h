// Python's arrays as the library's tensor views, without copies: the buffer protocol (NumPy, memoryview, array.array),
// PyTorch's tensors, and whatever speaks DLPack. The only place that knows any of the three.
#ifndef ONEHOT_PYTHON_ARRAY_H_
#define ONEHOT_PYTHON_ARRAY_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "onehot/tensor.h"

namespace onehot::python {

namespace nb = nanobind;

// Memory borrowed from a Python object for as long as this lives. Made and destroyed with the GIL held.
//
// Throws, with a sentence that begins with `name`: TypeError for an object that is no array on the CPU or has a dtype that
// the library does not have; ValueError for more than 8 axes, for addresses or strides that are not whole elements (the
// fields of a packed structure), and for memory that must not be written, where `writable`.
class Array {
 public:
  Array(nb::handle object, const char* name, bool writable);
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  const TensorView& view() const { return view_; }

 private:
  bool TakeBuffer(nb::handle object, const char* name, bool writable);
  void TakeTensor(nb::handle object, const char* name);
  void TakeDlpack(nb::handle object, const char* name, bool writable);
  void RequireWholeElements(const char* name) const;

  struct Buffer : Py_buffer {
    Buffer() : Py_buffer{} {}
    ~Buffer() {
      if (obj != nullptr) PyBuffer_Release(this);
    }
  };

  TensorView view_;
  Buffer buffer_;
  nb::object owner_;
  nb::ndarray<nb::ro> array_;
};

// An argument the library reads, and one it writes.
class In : public Array {
 public:
  In(nb::handle object, const char* name) : Array(object, name, false) {}
  operator ConstTensorView() const { return view(); }  // NOLINT: that is what it stands for
};
class Out : public Array {
 public:
  Out(nb::handle object, const char* name) : Array(object, name, true) {}
  operator TensorView() const { return view(); }  // NOLINT: the same
};

}  // namespace onehot::python

#endif  // ONEHOT_PYTHON_ARRAY_H_
