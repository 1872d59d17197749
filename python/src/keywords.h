// Keyword arguments of functions that have many. A function asks for each by name, then for the end of them.
#ifndef ONEHOT_PYTHON_KEYWORDS_H_
#define ONEHOT_PYTHON_KEYWORDS_H_

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "array.h"

namespace onehot::python {

// A name as a template argument, so that its Python string is made once.
template <std::size_t kSize>
struct Name {
  constexpr Name(const char (&text)[kSize]) { std::copy_n(text, kSize, chars); }  // NOLINT: literals are names
  char chars[kSize];
};

class Keywords {
 public:
  // `function` begins the sentence about a name that is not known.
  Keywords(const nb::kwargs& arguments, const char* function) : arguments_(arguments), function_(function) {}

  // What was given, or no object. None counts as not given.
  template <Name kName>
  nb::handle Get() {
    static PyObject* const name = PyUnicode_InternFromString(kName.chars);
    PyObject* const value = PyDict_GetItemWithError(arguments_.ptr(), name);
    if (value != nullptr) ++taken_;
    return value == Py_None ? nb::handle() : nb::handle(value);
  }

  template <Name kName>
  std::optional<ConstTensorView> In() {
    return Take(Get<kName>(), kName.chars, false);
  }
  template <Name kName>
  std::optional<TensorView> Out() {
    return Take(Get<kName>(), kName.chars, true);
  }
  template <Name kName>
  std::int64_t Integer(std::int64_t otherwise) {
    const nb::handle value = Get<kName>();
    return value.is_valid() ? ToInteger(value, kName.chars) : otherwise;
  }
  template <Name kName>
  std::optional<std::int64_t> MaybeInteger() {
    const nb::handle value = Get<kName>();
    return value.is_valid() ? std::optional(ToInteger(value, kName.chars)) : std::nullopt;
  }
  // An axis is an int; what does not fit one is past every rank, and no sentence of the library would show it as given.
  template <Name kName>
  int Axis(int otherwise) {
    return static_cast<int>(std::clamp<std::int64_t>(Integer<kName>(otherwise), -kNoAxis, kNoAxis));
  }
  template <Name kName>
  double Number(double otherwise) {
    const nb::handle value = Get<kName>();
    return value.is_valid() ? ToNumber(value, kName.chars) : otherwise;
  }
  template <Name kName>
  bool Flag(bool otherwise) {
    const nb::handle value = Get<kName>();
    return value.is_valid() ? ToFlag(value, kName.chars) : otherwise;
  }
  template <Name kName>
  std::string_view Word(std::string_view otherwise) {
    const nb::handle value = Get<kName>();
    return value.is_valid() ? ToWord(value, kName.chars) : otherwise;
  }

  // TypeError for arguments that nobody asked for.
  void End() const;

 private:
  // Every optional array of the operator that has most of them.
  static constexpr std::size_t kMostArrays = 16;
  static constexpr std::int64_t kNoAxis = 1 << 30;

  std::optional<TensorView> Take(nb::handle value, const char* name, bool writable);
  static std::int64_t ToInteger(nb::handle value, const char* name);
  static double ToNumber(nb::handle value, const char* name);
  static bool ToFlag(nb::handle value, const char* name);
  static std::string_view ToWord(nb::handle value, const char* name);

  nb::handle arguments_;
  const char* function_;
  Py_ssize_t taken_ = 0;
  std::size_t used_ = 0;
  std::array<std::optional<Array>, kMostArrays> arrays_;
};

}  // namespace onehot::python

#endif  // ONEHOT_PYTHON_KEYWORDS_H_
