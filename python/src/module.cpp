// onehot._onehot: the operators on arrays that the caller made. Defaults, allocation and the habits of each ecosystem are in
// the Python files.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <fmt/format.h>

#include "onehot/onehot.h"
#include "run.h"

namespace nb = nanobind;

NB_MODULE(_onehot, module) {
  using namespace onehot::python;  // NOLINT: a module is one function
  module.doc() =
      "The operators of onehot on arrays in the memory of the CPU; see onehot.numpy, onehot.torch and onehot.jax.";

  module.def("version", [] { return onehot::Version(); });
  module.def("instruction_sets", &onehot::InstructionSets);
  module.def(
      "operators",
      [] {
        nb::dict operators;
        for (const onehot::OperatorInfo& info : onehot::Operators())
          operators[nb::str(info.name.data(), info.name.size())] = nb::cast(info.implementations);
        return operators;
      },
      nb::sig("def operators() -> dict[str, list[str]]"));
  module.def(
      "set_num_threads",
      [](int threads) {
        if (threads < 0)
          throw nb::value_error(fmt::format("set_num_threads: must not be negative, is {}", threads).c_str());
        SetThreads(threads);
      },
      nb::arg("threads"));
  module.def("finish", &Finish);
  module.def("get_num_threads", [] { return Threads() > 0 ? Threads() : onehot::DefaultThreads(); });

  BindEmbedding(module);
  BindLosses(module);
  BindLinearCrossEntropy(module);
#ifdef ONEHOT_PYTHON_JAX
  BindFfi(module);
#endif
}
