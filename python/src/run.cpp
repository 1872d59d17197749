#include "run.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>

namespace onehot::python {
namespace {

std::atomic<int> threads{0};

// Asks for signals now and then: a person who presses Ctrl-C does not notice a twentieth of a second.
class Signals {
 public:
  bool operator()(std::int64_t, std::int64_t) {
    const auto now = Clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return true;
    last_ = now;
    const nb::gil_scoped_acquire gil;
    return PyErr_CheckSignals() == 0;  // sets Python's error, which Raise leaves as it is
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

PyObject* TypeOf(Code code) {
  switch (code) {
    case Code::kBadData:
      return PyExc_IndexError;
    case Code::kBadDType:
      return PyExc_TypeError;
    case Code::kOutOfMemory:
      return PyExc_MemoryError;
    default:
      return PyExc_ValueError;
  }
}

}  // namespace

void SetThreads(int count) {
  threads.store(count, std::memory_order_relaxed);
}
int Threads() {
  return threads.load(std::memory_order_relaxed);
}

void Raise(const Status& status) {
  if (status.code() != Code::kCancelled || PyErr_Occurred() == nullptr)
    PyErr_SetString(TypeOf(status.code()), status.message().c_str());
  throw nb::python_error();
}

void Run(const Result<Plan>& plan) {
  if (!plan.ok()) Raise(plan.status());
  Status status;
  {
    const nb::gil_scoped_release released;
    status = plan.value().Run(RunOptions{Threads(), Signals()});
  }
  if (!status.ok()) Raise(status);
}

Reduction ReductionOf(std::string_view name) {
  if (name == "mean") return Reduction::kMean;
  if (name == "sum") return Reduction::kSum;
  if (name == "none") return Reduction::kNone;
  throw nb::value_error(fmt::format("reduction: must be \"none\", \"mean\" or \"sum\", is \"{}\"", name).c_str());
}

}  // namespace onehot::python
