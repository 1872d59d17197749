// Python's arrays as the library's tensor views, without copies: the buffer protocol (NumPy, memoryview, array.array),
// PyTorch's tensors, and whatever speaks DLPack; Python's numbers, too, where they are read. The only place that knows any
// of these.
#ifndef ONEHOT_PYTHON_ARRAY_H_
#define ONEHOT_PYTHON_ARRAY_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string_view>

#include "onehot/tensor.h"

namespace onehot::python {

namespace nb = nanobind;

// Memory borrowed from a Python object for as long as this lives. Made and destroyed with the GIL held.
//
// `name` has to outlive this, and begins the sentences of what is thrown: TypeError for an object that is no array on the CPU or has a dtype that
// the library does not have; ValueError for more than 8 axes, for addresses or strides that are not whole elements (the
// fields of a packed structure), and for memory that must not be written, where `writable`.
class Array {
 public:
  Array(nb::handle object, const char* name, bool writable);
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  const TensorView& view() const { return view_; }
  std::string_view name() const { return name_; }
  bool writable() const { return writable_; }

 private:
  bool TakeBuffer(nb::handle object);
  void TakeTensor(nb::handle object);
  void TakeDlpack(nb::handle object);
  void RequireWholeElements() const;

  struct Buffer : Py_buffer {
    Buffer() : Py_buffer{} {}
    ~Buffer() {
      if (obj != nullptr) PyBuffer_Release(this);
    }
  };

  const char* name_;
  bool writable_;
  TensorView view_;
  double number_ = 0;
  Buffer buffer_;
  nb::object owner_;
  nb::ndarray<nb::ro> array_;
};

}  // namespace onehot::python

#endif  // ONEHOT_PYTHON_ARRAY_H_
