#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

#include "cli/failure.h"

namespace onehot::cli {
namespace {

std::atomic<int> pending{0};
// A command writes at most its result and one optional output; more slots cost nothing.
std::array<std::atomic<const char*>, 4> temporaries{};
static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "signal handlers may touch nothing that locks");

void RemoveTemporaries() {
  for (const auto& slot : temporaries)
    if (const char* path = slot.load()) ::unlink(path);
}

void OnStop(int signal) {
  if (pending.exchange(signal) == 0) return;
  RemoveTemporaries();
  ::_exit(128 + signal);
}

// A page of a mapped file that cannot be had: the file was cut, or the disk failed. There is no way back into the run.
void OnBusError(int) {
  RemoveTemporaries();
  constexpr char kSentence[] =
      "onehot: a file could not be accessed any more: it was cut short during the run, or its disk failed\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kSentence, sizeof kSentence - 1);
  ::_exit(static_cast<int>(Exit::kFile));
}

void Install(int signal, void (*handler)(int)) {
  struct sigaction action;
  if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  // No SA_RESTART: a read from a pipe that nobody fills has to come back.
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void InstallSignalHandlers() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) Install(signal, OnStop);
  Install(SIGBUS, OnBusError);
  // Past the limit on the size of a file, an error code is wanted, which says the name of the file.
  ::signal(SIGXFSZ, SIG_IGN);
}

int PendingSignal() {
  return pending.load(std::memory_order_relaxed);
}

void ThrowIfInterrupted() {
  if (const int signal = PendingSignal(); signal != 0)
    throw Failure(static_cast<Exit>(128 + signal), "interrupted; nothing was written");
}

void RememberTemporary(const char* path) {
  for (auto& slot : temporaries) {
    const char* none = nullptr;
    if (slot.compare_exchange_strong(none, path)) return;
  }
}

void ForgetTemporary(const char* path) {
  for (auto& slot : temporaries) {
    const char* mine = path;
    if (slot.compare_exchange_strong(mine, nullptr)) return;
  }
}

}  // namespace onehot::cli
