#include "arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "overlap.h"

namespace onehot::python {
namespace {

[[noreturn]] void RefuseValue(const char* name, const char* rule, nb::handle value) {
  Refuse(PyExc_TypeError, fmt::format("{}: must be {}, is {}", name, rule, nb::cast<std::string>(nb::repr(value))));
}

}  // namespace

Arguments::Arguments(const char* function, PyObject* const* values, Py_ssize_t count, PyObject* names)
    : function_(function), values_(values), count_(count) {
  if (names == nullptr) return;
  keywords_ = Named(names, values + count);
  if (PyObject* const outputs = keywords_.Find(Interned<"outputs">())) {
    if (!PyDict_Check(outputs)) RefuseValue("outputs", "a dict of arrays by name", outputs);
    outputs_ = outputs;
    outputs_left_ = PyDict_GET_SIZE(outputs);
  }
  if (PyObject* const options = keywords_.Find(Interned<"options">())) {
    PyObject *option_names = nullptr, *option_values = nullptr;
    if (PyTuple_Check(options) && PyTuple_GET_SIZE(options) == 2) {
      option_names = PyTuple_GET_ITEM(options, 0);
      option_values = PyTuple_GET_ITEM(options, 1);
    }
    if (option_names == nullptr || !PyTuple_Check(option_names) || !PyTuple_Check(option_values) ||
        PyTuple_GET_SIZE(option_names) != PyTuple_GET_SIZE(option_values))
      RefuseValue("options", "a tuple of names and one of as many values", options);
    options_ = Named(option_names, &PyTuple_GET_ITEM(option_values, 0));
  }
}

Arguments::Named::Named(PyObject* tuple, PyObject* const* first)
    : names(tuple), values(first), count(PyTuple_GET_SIZE(tuple)), left(count) {
  if (count > kMostNames)
    Refuse(PyExc_TypeError, fmt::format("at most {} arguments by name, not {}", kMostNames, count));
  // Names in the source of a call are interned, so that addresses tell them apart; keys of a dict need not be.
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const name = PyTuple_GET_ITEM(tuple, i);
    if (!PyUnicode_Check(name)) RefuseValue("options", "named by strings", name);
    interned = interned && PyUnicode_CHECK_INTERNED(name) != 0;
  }
}

PyObject* Arguments::Named::Find(PyObject* name) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Py_ssize_t at = next + i < count ? next + i : next + i - count;
    PyObject* const given = PyTuple_GET_ITEM(names, at);
    if (given != name && (interned || PyUnicode_Compare(given, name) != 0)) continue;
    next = at + 1;
    --left;
    asked |= std::uint64_t{1} << at;
    return values[at];
  }
  return nullptr;
}

nb::handle Arguments::FindOutput(PyObject* name) {
  PyObject* const value = PyDict_GetItemWithError(outputs_, name);
  if (value == nullptr) return {};
  --outputs_left_;
  return value == Py_None ? nb::handle() : nb::handle(value);
}

nb::object Arguments::Listed(nb::handle value) const {
  if (PyObject_CheckBuffer(value.ptr())) return nb::borrow(value);
  const bool list = PyList_Check(value.ptr()) || PyTuple_Check(value.ptr());
  if (!list && (nb::hasattr(value, "__dlpack__") || !nb::hasattr(value, "__array__"))) return nb::borrow(value);
  const bool f64 = used_ > 0 && arrays_[0]->view().dtype == DType::kF64;
  const nb::object asarray = nb::module_::import_("numpy").attr("asarray");
  return list ? asarray(value, f64 ? "float64" : "float32") : asarray(value);
}

const TensorView& Arguments::AddNumber(const char* name, nb::handle value) {
  const TensorView& view = Add(name, value, false);
  if (view.rank > 0 || view.dtype == DType::kF64 || view.dtype == DType::kF32) return view;
  const nb::object number = nb::steal(PyNumber_Float(value.ptr()));  // an integer of NumPy, a number of 16 bits
  if (!number.is_valid()) throw nb::python_error();
  return arrays_[used_ - 1].emplace(number, name, false).view();
}

void Arguments::RefuseMissing(const char* name) const {
  Refuse(PyExc_TypeError, fmt::format("{}() missing the argument '{}'", function_, name));
}

void Arguments::CheckNames() const {
  if (next_ < count_)
    Refuse(PyExc_TypeError,
           fmt::format("{}() takes {} positional arguments but {} were given", function_, next_, count_));
  if (outputs_left_ > 0) {
    const std::span known(output_names_.data(), asked_outputs_);
    for (const auto& [key, value] : nb::borrow<nb::dict>(outputs_))
      if (const auto name = nb::cast<std::string>(nb::str(key));
          std::find(known.begin(), known.end(), name) == known.end())
        Refuse(PyExc_ValueError, fmt::format("outputs: must be of {}, has '{}'", fmt::join(known, ", "), name));
  }
  for (const Named* named : {&keywords_, &options_})
    for (Py_ssize_t i = 0; named->left > 0 && i < named->count; ++i)
      if ((named->asked >> i & 1) == 0)
        Refuse(PyExc_TypeError, fmt::format("{}() got an unexpected keyword argument {}", function_,
                                            nb::cast<std::string>(nb::repr(PyTuple_GET_ITEM(named->names, i)))));
}

void Arguments::CheckApart() const {
  std::array<Bytes, kMostArrays> bytes;
  for (std::size_t i = 0; i < used_; ++i) bytes[i] = BytesOf(arrays_[i]->view());
  for (std::size_t i = 0; i < used_; ++i) {
    const Array& output = *arrays_[i];
    for (std::size_t j = 0; j < used_; ++j) {
      const Array& other = *arrays_[j];
      if (!output.writable() || j == i || !bytes[i].Meet(bytes[j])) continue;
      const bool in_place = output.name() == in_place_output_ && other.name() == in_place_input_;
      if ((in_place && Same(output.view(), other.view())) || !Overlap(output.view(), other.view())) continue;
      Refuse(PyExc_ValueError, fmt::format("{}: must not overlap {}, does", output.name(), other.name()));
    }
  }
}

std::int64_t Arguments::ToInteger(nb::handle value, const char* name) {
  // What Python takes for an index: NumPy's integers too, no floating numbers.
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    RefuseValue(name, "an integer", value);
  }
  const long long number = PyLong_AsLongLong(index.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    Refuse(PyExc_ValueError, fmt::format("{}: must fit 64 bits, is {}", name, nb::cast<std::string>(nb::str(value))));
  }
  return number;
}

double Arguments::ToNumber(nb::handle value, const char* name) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    RefuseValue(name, "a number", value);
  }
  return number;
}

bool Arguments::ToFlag(nb::handle value, const char* name) {
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) {
    PyErr_Clear();
    RefuseValue(name, "true or false", value);
  }
  return truth != 0;
}

std::string_view Arguments::ToWord(nb::handle value, const char* name) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_Check(value.ptr()) ? PyUnicode_AsUTF8AndSize(value.ptr(), &size) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    RefuseValue(name, "a string", value);
  }
  return {text, static_cast<std::size_t>(size)};
}

}  // namespace onehot::python
