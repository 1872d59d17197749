#include "run.h"

#include <fmt/format.h>
#include <time.h>

#include <atomic>
#include <cstdint>

namespace onehot::python {
namespace {

std::atomic<int> threads{0};

// Asks for signals now and then: a person who presses Ctrl-C does not notice a twentieth of a second.
class Signals {
 public:
  bool operator()(std::int64_t, std::int64_t) {
    const std::int64_t now = Now();
    if (now - last_ < 50) return true;
    last_ = now;
    const nb::gil_scoped_acquire gil;
    return PyErr_CheckSignals() == 0;  // sets Python's error, which Raise leaves as it is
  }

 private:
  // Milliseconds. The coarse clock ticks every few of them, and takes a fifth of the time to read.
  static std::int64_t Now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
  }

  std::int64_t last_ = Now();
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

void Refuse(PyObject* type, const std::string& sentence) {
  PyErr_SetString(type, sentence.c_str());
  throw nb::python_error();
}

void Raise(const Status& status) {
  if (status.code() == Code::kCancelled && PyErr_Occurred() != nullptr) throw nb::python_error();
  Refuse(TypeOf(status.code()), status.message());
}

void Run(const Plan& plan) {
  Status status;
  {
    const nb::gil_scoped_release released;
    status = plan.Run(RunOptions{Threads(), Signals()});
  }
  if (!status.ok()) Raise(status);
}

Reduction ReductionOf(std::string_view name) {
  if (name == "mean") return Reduction::kMean;
  if (name == "sum") return Reduction::kSum;
  if (name == "none") return Reduction::kNone;
  Refuse(PyExc_ValueError, fmt::format("reduction: must be \"none\", \"mean\" or \"sum\", is \"{}\"", name));
}

}  // namespace onehot::python
