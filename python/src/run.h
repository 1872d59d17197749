// From a problem to its result: exceptions for statuses, the GIL released, Ctrl-C heard.
#ifndef ONEHOT_PYTHON_RUN_H_
#define ONEHOT_PYTHON_RUN_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "onehot/plan.h"
#include "onehot/reduction.h"
#include "onehot/status.h"

namespace onehot::python {

namespace nb = nanobind;

// Threads of each call; 0 means what OpenMP would use.
void SetThreads(int threads);
int Threads();

// Raises an exception of Python.
[[noreturn]] void Refuse(PyObject* type, const std::string& sentence);

// Raises what a status means, with its sentence: IndexError for an index or target out of range, TypeError for a dtype,
// MemoryError, KeyboardInterrupt (or what else a signal handler raised), ValueError for the rest.
[[noreturn]] void Raise(const Status& status);

// Runs the plan without the GIL. Work that lasts is stopped by signals whose Python handler raises.
void Run(const Plan& plan);

// For the end of the interpreter, in its main thread: stops calls that run in others, and waits for them. Before 3.14, Python
// would end such a thread when it asks for the GIL, by unwinding the stack over functions that nothing may leave that way.
void Finish();

// "none", "mean", "sum".
Reduction ReductionOf(std::string_view name);

// An axis is an int; what does not fit one is past every rank, and no sentence of the library would show it as given.
int AxisOf(std::int64_t axis);

// What the files of operators add to the module.
void BindEmbedding(nb::module_& module);
void BindLosses(nb::module_& module);
void BindLinearCrossEntropy(nb::module_& module);
void BindFfi(nb::module_& module);

}  // namespace onehot::python

#endif  // ONEHOT_PYTHON_RUN_H_
