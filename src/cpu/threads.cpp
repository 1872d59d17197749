#include "cpu/threads.h"

#include <pthread.h>

namespace onehot::cpu {
namespace {

// Set in a child process. Its copy of the OpenMP runtime believes in worker threads that the fork did not copy.
std::atomic<bool> forked{false};

[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });

// Entering a region costs about a microsecond; a core moves some 10 KB in that time. At 16 times that the region is
// paid.
constexpr std::int64_t kParallelBytes = 160 << 10;

}  // namespace

int DefaultThreads() {
  return forked.load(std::memory_order_relaxed) ? 1 : omp_get_max_threads();
}

int Processors() {
  static const int processors = omp_get_num_procs();
  return processors;
}

int ThreadsFor(std::int64_t bytes, int requested) {
  if (bytes < kParallelBytes || requested == 1 || forked.load(std::memory_order_relaxed) || omp_in_parallel()) return 1;
  return requested > 0 ? requested : omp_get_max_threads();
}

void TouchScratch(Scratch scratch, std::size_t bytes, int threads) {
  constexpr std::size_t kPage = 4096, kTouchedBytes = 16 << 20;
  if (threads == 1) return;
  for (std::size_t at = 0; at + ScratchLayout::kAlign <= std::min(bytes, kTouchedBytes); at += kPage)
    *static_cast<volatile std::byte*>(scratch.base() + at) = std::byte{};
}

}  // namespace onehot::cpu
