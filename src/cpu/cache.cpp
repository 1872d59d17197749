#include "cpu/cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace onehot::cpu {
namespace {

std::atomic<bool> forget_caches{false};

// Three quarters of the last cache. It may be shared with others, the more of them the larger it is, so no more than
// 24 MiB; and 6 MiB where the system does not say.
std::int64_t CacheBytes() {
  static const std::int64_t bytes = [] {
    long cache = -1;
#ifdef _SC_LEVEL3_CACHE_SIZE
    cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return std::clamp<std::int64_t>(cache / 4 * 3, 6 << 20, 24 << 20);
  }();
  return forget_caches.load(std::memory_order_relaxed) ? 0 : bytes;
}

// Smaller outputs fit what one core has for itself, or nearly.
constexpr std::int64_t kSmallOutput = 4 << 20;

}  // namespace

bool PastCaches(std::int64_t bytes_read, std::int64_t bytes_written) {
  return bytes_written > kSmallOutput && bytes_read + bytes_written > CacheBytes();
}

void ForgetCachesForTest(bool forget) {
  forget_caches.store(forget, std::memory_order_relaxed);
}

}  // namespace onehot::cpu
