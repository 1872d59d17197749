// Preloaded by bench/bench.py: large blocks that PyTorch allocates and frees stay with the process and are given out
// again, their pages in place, as those of a buffer that a caller owns are.
//
// The allocator's own settings (never unmap, never trim) do most of this, but posix_memalign asks it for a little more
// than the size, so that a freed block is too small for the next request of its size, and the heap creeps into fresh
// pages.
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

extern "C" {
void* __libc_memalign(std::size_t alignment, std::size_t size);  // NOLINT: glibc's names for what is replaced here
void __libc_free(void* block);                                   // NOLINT
}

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLeast = 64 << 10;  // smaller blocks never leave the heap

// A block serves requests down to an eighth of its size; else a small temporary would take the block that the result is
// to lie in.
constexpr std::size_t kLoose = 8;

struct Block {
  void* pages = nullptr;
  std::size_t size = 0;
  bool used = false;
};

std::array<Block, 256> blocks;
std::atomic<bool> warm{true};
std::atomic_flag busy = ATOMIC_FLAG_INIT;

struct Lock {
  Lock() {
    while (busy.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~Lock() { busy.clear(std::memory_order_release); }
};

// Null if there are too many blocks or no memory.
void* Take(std::size_t size) {
  const Lock lock;
  Block* best = nullptr;
  if (warm) {
    for (Block& block : blocks)
      if (block.pages != nullptr && !block.used && block.size >= size && block.size / kLoose <= size &&
          (best == nullptr || block.size < best->size))
        best = &block;
  }
  if (best != nullptr) {
    best->used = true;
    return best->pages;
  }
  for (Block& block : blocks) {
    if (block.pages != nullptr) continue;
    const std::size_t length = (size + kPage - 1) / kPage * kPage;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (warm ? MAP_POPULATE : 0);
    void* const pages = mmap(nullptr, length, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
    block = {pages, length, true};
    return pages;
  }
  return nullptr;
}

bool GiveBack(void* pages) {
  const Lock lock;
  for (Block& block : blocks) {
    if (block.pages != pages) continue;
    block.used = false;
    if (!warm) {
      munmap(block.pages, block.size);
      block = {};
    }
    return true;
  }
  return false;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int posix_memalign(void** block, std::size_t alignment,
                                                          std::size_t size) noexcept {
  *block = size >= kLeast && alignment <= kPage ? Take(size) : nullptr;
  if (*block == nullptr) *block = __libc_memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}

__attribute__((visibility("default"))) void free(void* block) noexcept {
  const bool page = reinterpret_cast<std::uintptr_t>(block) % kPage == 0;  // as all of ours are, and few others
  if (block == nullptr || (page && GiveBack(block))) return;
  __libc_free(block);
}

// Blocks that nobody has go back to the kernel.
__attribute__((visibility("default"))) void onehot_bench_release_memory() {
  const Lock lock;
  for (Block& block : blocks) {
    if (block.pages == nullptr || block.used) continue;
    munmap(block.pages, block.size);
    block = {};
  }
}

// 0: from now on blocks are fresh from the kernel, and go back to it.
__attribute__((visibility("default"))) void onehot_bench_keep_memory(int keep) {
  warm = keep != 0;
}
}
