#include "run.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace onehot::python {
namespace {

std::atomic<int> threads{0};

// Calls at work, and whether they are to end because the interpreter does.
std::atomic<int> running{0};
std::atomic<bool> exiting{false};

// Asks for signals now and then: a person who presses Ctrl-C does not notice a twentieth of a second.
class Signals {
 public:
  explicit Signals(PyThreadState* thread) : thread_(thread) {}

  bool operator()(std::int64_t, std::int64_t) {
    if (exiting.load(std::memory_order_relaxed)) return false;
    const std::int64_t now = Now();
    if (now - last_ < 50) return true;
    last_ = now;
    PyEval_RestoreThread(thread_);
    const bool go_on = PyErr_CheckSignals() == 0;  // sets Python's error, which Raise leaves as it is
    PyEval_SaveThread();
    return go_on;
  }

 private:
  // Milliseconds. The coarse clock ticks every few of them, and takes a fifth of the time to read.
  static std::int64_t Now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
  }

  PyThreadState* thread_;
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
  running.fetch_add(1);
  PyThreadState* const thread = PyEval_SaveThread();
  Status status = Status::Error(Code::kCancelled, "the interpreter exits");
  if (!exiting.load()) status = plan.Run(RunOptions{Threads(), Signals(thread)});
  PyEval_RestoreThread(thread);
  running.fetch_sub(1);
  if (exiting.load()) {
    PyErr_SetNone(PyExc_SystemExit);  // what ends a thread without a word
    throw nb::python_error();
  }
  if (!status.ok()) Raise(status);
}

void Finish() {
  exiting.store(true);
  const nb::gil_scoped_release released;
  while (running.load() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Reduction ReductionOf(std::string_view name) {
  if (name == "mean") return Reduction::kMean;
  if (name == "sum") return Reduction::kSum;
  if (name == "none") return Reduction::kNone;
  Refuse(PyExc_ValueError, fmt::format("reduction: must be \"none\", \"mean\" or \"sum\", is \"{}\"", name));
}

int AxisOf(std::int64_t axis) {
  constexpr std::int64_t kNoAxis = 1 << 30;
  return static_cast<int>(std::clamp(axis, -kNoAxis, kNoAxis));
}

}  // namespace onehot::python
