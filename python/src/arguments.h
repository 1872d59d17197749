// The arguments of one call. A function asks for each by name; then what is left over, and what overlaps, is an error.
#ifndef ONEHOT_PYTHON_ARGUMENTS_H_
#define ONEHOT_PYTHON_ARGUMENTS_H_

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "array.h"
#include "names.h"
#include "run.h"

namespace onehot::python {

// A name as a template argument, so that its Python string is made once.
template <std::size_t kSize>
struct Name {
  constexpr Name(const char (&text)[kSize]) { std::copy_n(text, kSize, chars); }  // NOLINT: literals are names
  char chars[kSize];
};

class Arguments {
 public:
  // As Python's vectorcall hands them over: `count` values by position, then one for each of `names`, which may be null.
  // `function` begins the sentences about a number or a name of arguments.
  Arguments(const char* function, PyObject* const* values, Py_ssize_t count, PyObject* names);
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // Arrays that every call has, in the order of their positions. NumberIn: or one number, of whatever kind.
  template <Name kName>
  ConstTensorView In() {
    return Add(kName.chars, Required<kName>(), false);
  }
  template <Name kName>
  ConstTensorView NumberIn() {
    return AddNumber(kName.chars, Required<kName>());
  }
  template <Name kName>
  TensorView Out() {
    if (next_ < count_) return Add(kName.chars, values_[next_++], true);
    const nb::handle value = Output<kName>();
    if (!value.is_valid()) RefuseMissing(kName.chars);
    return Add(kName.chars, value, true);
  }

  // Keywords. None counts as not given. An array that is read may be a list, whose numbers are taken in the precision of the
  // first array, or what else NumPy makes an array of. "outputs" is a dict of all outputs by name, "options" a tuple of names and one of
  // their values: keywords like others. Python makes a dict of more than some ten keywords, which takes longer than all else here.
  template <Name kName>
  std::optional<ConstTensorView> MaybeIn() {
    const nb::handle value = Get<kName>();
    return value.is_valid() ? std::optional(Add(kName.chars, Listed(value), false)) : std::nullopt;
  }
  template <Name kName>
  std::optional<TensorView> MaybeOut() {
    const nb::handle value = Output<kName>();
    return value.is_valid() ? std::optional(Add(kName.chars, value, true)) : std::nullopt;
  }
  template <Name kName>
  std::optional<ConstTensorView> MaybeNumberIn() {
    const nb::handle value = Get<kName>();
    return value.is_valid() ? std::optional(AddNumber(kName.chars, Listed(value))) : std::nullopt;
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
  template <Name kName>
  int Axis(int otherwise) {
    return AxisOf(Integer<kName>(otherwise));
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

  // Sentences of PlanFor have these names.
  void Rename(std::span<const NameHere> names) { names_here_ = names; }

  // The output of one name may be the input of the other, element by element.
  void AllowInPlace(std::string_view output, std::string_view input) {
    in_place_output_ = output;
    in_place_input_ = input;
  }

  // A plan for the problem that these arguments make. TypeError for an argument that nobody asked for, what Raise makes of
  // a problem that is none, ValueError for an output that has memory in common with another array.
  template <class Problem>
  Plan PlanFor(const Problem& problem) const {
    CheckNames();
    Result<Plan> plan = Prepare(problem);
    if (!plan.ok()) Raise(Renamed(plan.status(), names_here_));
    CheckApart();
    return std::move(plan).value();
  }

 private:
  // Every array of the operator that has most of them; bits of Named::asked.
  static constexpr std::size_t kMostArrays = 20;
  static constexpr Py_ssize_t kMostNames = 64;

  // Names, and as many values.
  struct Named {
    Named() = default;
    Named(PyObject* tuple, PyObject* const* first);
    PyObject* Find(PyObject* name);  // its value, or null

    PyObject* names = nullptr;
    PyObject* const* values = nullptr;
    Py_ssize_t count = 0, left = 0;  // in all, and not asked for yet
    Py_ssize_t next = 0;             // callers mostly give names in the order in which functions ask for them
    std::uint64_t asked = 0;         // a bit for each
    bool interned = true;
  };

  template <Name kName>
  static PyObject* Interned() {
    static PyObject* const name = PyUnicode_InternFromString(kName.chars);
    return name;
  }
  template <Name kName>
  nb::handle Get() {
    PyObject* value = keywords_.left > 0 ? keywords_.Find(Interned<kName>()) : nullptr;
    if (value == nullptr && options_.left > 0) value = options_.Find(Interned<kName>());
    return value == Py_None ? nb::handle() : nb::handle(value);
  }
  template <Name kName>
  nb::handle Output() {
    output_names_.at(asked_outputs_++) = kName.chars;
    return outputs_ != nullptr ? FindOutput(Interned<kName>()) : Get<kName>();
  }
  template <Name kName>
  nb::handle Required() {
    if (next_ < count_) return values_[next_++];
    const nb::handle value = Get<kName>();
    if (!value.is_valid()) RefuseMissing(kName.chars);
    return value;
  }

  nb::handle FindOutput(PyObject* name);
  const TensorView& Add(const char* name, nb::handle object, bool writable) {
    return arrays_.at(used_++).emplace(object, name, writable).view();
  }
  nb::object Listed(nb::handle value) const;  // an array of a list, what it is of everything else
  const TensorView& AddNumber(const char* name, nb::handle value);
  void CheckNames() const;
  void CheckApart() const;
  [[noreturn]] void RefuseMissing(const char* name) const;
  static std::int64_t ToInteger(nb::handle value, const char* name);
  static double ToNumber(nb::handle value, const char* name);
  static bool ToFlag(nb::handle value, const char* name);
  static std::string_view ToWord(nb::handle value, const char* name);

  const char* function_;
  PyObject* const* values_;
  Py_ssize_t count_, next_ = 0;
  Named keywords_, options_;
  PyObject* outputs_ = nullptr;
  Py_ssize_t outputs_left_ = 0;
  std::array<std::string_view, kMostArrays> output_names_;
  std::size_t asked_outputs_ = 0;
  std::size_t used_ = 0;
  std::array<std::optional<Array>, kMostArrays> arrays_;
  std::string_view in_place_output_, in_place_input_;
  std::span<const NameHere> names_here_;
};

// A function of the module, of METH_FASTCALL and METH_KEYWORDS: a call with twenty keywords costs no dict of them.
template <Name kFunction, auto kBody>
PyObject* Call(PyObject*, PyObject* const* values, Py_ssize_t count, PyObject* names) noexcept {
  try {
    Arguments arguments(kFunction.chars, values, count, names);
    kBody(arguments);
    Py_RETURN_NONE;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// Its line in a table of functions. `signature` is in the form that Python reads: "name($module, a, b, **options)\n--\n\n".
template <Name kFunction, auto kBody>
PyMethodDef Method(const char* signature) {
  return {kFunction.chars, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&Call<kFunction, kBody>)),
          METH_FASTCALL | METH_KEYWORDS, signature};
}

// Adds a table of them, which ends with an empty line, to the module.
inline void Add(nb::module_& module, PyMethodDef* methods) {
  if (PyModule_AddFunctions(module.ptr(), methods) != 0) throw nb::python_error();
}

}  // namespace onehot::python

#endif  // ONEHOT_PYTHON_ARGUMENTS_H_
