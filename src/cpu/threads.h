// OpenMP, as the kernels use it: a thread count per region, never a global setting, since the process may share the
// runtime with PyTorch.
#ifndef ONEHOT_CPU_THREADS_H_
#define ONEHOT_CPU_THREADS_H_

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>

#include "core/scratch.h"
#include "onehot/plan.h"

namespace onehot::cpu {

// Threads a region may use when the caller names no number.
int DefaultThreads();

// CPUs this process may use, asked once: the answer costs a system call.
int Processors();

// Threads for work that moves `bytes`. `requested` is RunOptions::threads. One thread inside another parallel region,
// and in a child forked after this process ran a region: libgomp hangs there.
int ThreadsFor(std::int64_t bytes, int requested);

// Writes to each page of working memory that may be fresh, before several threads do: in a virtual machine their page
// faults on one stretch contend for its lock at some 60 us each (2 MB of fresh scratch: 30 ms; touched by one thread
// 0.3). Beyond 16 MB they are far apart, and one thread would keep the others waiting.
void TouchScratch(Scratch scratch, std::size_t bytes, int threads);

// Progress over tasks of known cost, reported by the calling thread, and the stop it may ask for.
class Progress {
 public:
  Progress(const RunOptions& options, std::int64_t total) : callback_(options.progress), total_(total) {}

  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

  // After each task, with the number ParallelFor gave the thread that did it.
  void Advance(std::int64_t cost, int thread) {
    if (!callback_) return;
    const std::int64_t done = done_.fetch_add(cost, std::memory_order_relaxed) + cost;
    if (thread != 0 || stopped()) return;
    reported_ = std::clamp(done, reported_, total_);  // never backwards, whatever was postponed meanwhile
    if (!callback_(reported_, total_)) stopped_.store(true, std::memory_order_relaxed);
  }

  // Before the task that contains it advances: so much of it is left to a later one.
  void Postpone(std::int64_t cost) {
    if (callback_) done_.fetch_sub(cost, std::memory_order_relaxed);
  }

 private:
  const std::function<bool(std::int64_t, std::int64_t)>& callback_;
  const std::int64_t total_;
  std::int64_t reported_ = 0;  // thread 0's
  std::atomic<std::int64_t> done_{0};
  std::atomic<bool> stopped_{false};
};

// Calls task(i, thread) for i in [0, tasks), handed out one at a time in ascending order; thread is in [0, threads), 0
// for the calling thread. On one thread it is a plain loop.
template <class F>
void ParallelFor(int threads, std::int64_t tasks, F&& task) {
  if (threads <= 1 || tasks <= 1) {
    for (std::int64_t i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
#pragma omp parallel for num_threads(static_cast <int>(std::min <std::int64_t>(threads, tasks))) schedule(dynamic, 1)
  for (std::int64_t i = 0; i < tasks; ++i) task(i, omp_get_thread_num());
}

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_THREADS_H_
