#include "keywords.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <string>

#include "run.h"

namespace onehot::python {
namespace {

[[noreturn]] void Refuse(const char* name, const char* rule, nb::handle value) {
  throw nb::type_error(
      fmt::format("{}: must be {}, is {}", name, rule, nb::cast<std::string>(nb::repr(value))).c_str());
}

}  // namespace

std::optional<TensorView> Keywords::Take(nb::handle value, const char* name, bool writable) {
  if (!value.is_valid()) return std::nullopt;
  return arrays_.at(used_++).emplace(value, name, writable).view();
}

void Keywords::End() const {
  if (PyDict_GET_SIZE(arguments_.ptr()) == taken_) return;
  // The one that is none of ours is not remembered: this is the way to an exception.
  std::string names;
  for (const auto& [name, value] : nb::borrow<nb::dict>(arguments_))
    names += (names.empty() ? "" : ", ") + nb::cast<std::string>(name);
  throw nb::type_error(fmt::format("{}: got an argument that it does not have, among {}", function_, names).c_str());
}

std::int64_t Keywords::ToInteger(nb::handle value, const char* name) {
  // What Python takes for an index: NumPy's integers too, no floating numbers.
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    Refuse(name, "an integer", value);
  }
  const long long number = PyLong_AsLongLong(index.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw nb::value_error(
        fmt::format("{}: must fit 64 bits, is {}", name, nb::cast<std::string>(nb::str(value))).c_str());
  }
  return number;
}

double Keywords::ToNumber(nb::handle value, const char* name) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    Refuse(name, "a number", value);
  }
  return number;
}

bool Keywords::ToFlag(nb::handle value, const char* name) {
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) {
    PyErr_Clear();
    Refuse(name, "true or false", value);
  }
  return truth != 0;
}

std::string_view Keywords::ToWord(nb::handle value, const char* name) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_Check(value.ptr()) ? PyUnicode_AsUTF8AndSize(value.ptr(), &size) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    Refuse(name, "a string", value);
  }
  return {text, static_cast<std::size_t>(size)};
}

}  // namespace onehot::python
