#include "aclnn/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "acl/acl_rt.h"
#include "aclnn/context.h"
#include "aclnn/error.h"

namespace onehot::aclnn {
namespace {

// Live blocks by address. Addresses of different blocks are compared with std::less, which orders them all.
class Blocks {
 public:
  void Add(std::byte* base, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    live_.emplace(base, bytes);
  }

  bool Remove(void* base) {
    const std::lock_guard lock(mutex_);
    return live_.erase(static_cast<const std::byte*>(base)) != 0;
  }

  std::optional<Block> Find(const void* address) const {
    const auto* const byte = static_cast<const std::byte*>(address);
    const std::lock_guard lock(mutex_);
    auto after = live_.upper_bound(byte);
    if (after == live_.begin()) return std::nullopt;
    const auto& [base, bytes] = *--after;
    if (static_cast<std::size_t>(byte - base) >= bytes) return std::nullopt;
    return Block{base, bytes};
  }

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t, std::less<>> live_;
};

// Never destroyed: threads may still make calls while the process ends.
Blocks& DeviceBlocks() {
  static Blocks& blocks = *new Blocks;
  return blocks;
}

Blocks& HostBlocks() {
  static Blocks& blocks = *new Blocks;
  return blocks;
}

constexpr std::size_t kAlignment = 64;                   // a cache line, and the widest vector
constexpr std::size_t kHugePage = std::size_t{2} << 20;  // of x86-64 and of AArch64 with 4 KiB pages

// No more than the machine has: the system would promise it and fail when it is written.
std::size_t MostBytes() {
  static const std::size_t bytes =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

aclError Allocate(const char* call, const char* argument, Blocks& blocks, void** address, std::size_t size, bool huge) {
  if (address == nullptr) return RefuseNull(call, argument);
  if (size == 0) return RefuseArgument(call, "size must not be 0");
  huge = huge && size >= kHugePage;
  const std::size_t unit = huge ? kHugePage : kAlignment;
  void* const memory = size > MostBytes() ? nullptr : std::aligned_alloc(unit, (size + unit - 1) / unit * unit);
  if (memory == nullptr)
    return FailRuntime(ACL_ERROR_RT_MEMORY_ALLOCATION, fmt::format("{}: {} bytes could not be had", call, size));
  if (huge) (void)madvise(memory, (size + unit - 1) / unit * unit, MADV_HUGEPAGE);  // a hint; small pages do as well
  try {
    blocks.Add(static_cast<std::byte*>(memory), size);
  } catch (...) {
    std::free(memory);
    throw;
  }
  *address = memory;
  return ACL_SUCCESS;
}

aclError AllocateDevice(const char* call, void** address, std::size_t size, aclrtMemMallocPolicy policy) {
  const auto bits = static_cast<std::uint32_t>(policy);
  const std::uint32_t page = bits & ~std::uint32_t{ACL_MEM_TYPE_LOW_BAND_WIDTH | ACL_MEM_TYPE_HIGH_BAND_WIDTH};
  if (page > ACL_MEM_MALLOC_HUGE1G_ONLY_P2P)
    return RefuseArgument(call, fmt::format("policy must be in [0, {}], 0x100 and 0x1000 or-ed in or not, is {:#x}",
                                            static_cast<int>(ACL_MEM_MALLOC_HUGE1G_ONLY_P2P), bits));
  const bool normal = page == ACL_MEM_MALLOC_NORMAL_ONLY || page == ACL_MEM_MALLOC_NORMAL_ONLY_P2P;
  return Allocate(call, "devPtr", DeviceBlocks(), address, size, !normal);
}

aclError Release(const char* call, const char* argument, Blocks& blocks, const char* from, void* address) {
  if (address == nullptr) return RefuseNull(call, argument);
  if (!blocks.Remove(address))
    return RefuseArgument(call, fmt::format("{} {} is not the start of a live block from {}", argument, address, from));
  std::free(address);
  return ACL_SUCCESS;
}

// That `bytes` from `address` stay inside the block it lies in.
aclError CheckRange(const char* call, const char* argument, const void* address, std::size_t bytes) {
  if (address == nullptr) return RefuseNull(call, argument);
  std::optional<Block> block = DeviceBlocks().Find(address);
  if (!block) block = HostBlocks().Find(address);
  if (!block) return ACL_SUCCESS;
  const std::size_t left =
      block->bytes - static_cast<std::size_t>(static_cast<const std::byte*>(address) - block->base);
  if (bytes <= left) return ACL_SUCCESS;
  return RefuseArgument(call, fmt::format("{} bytes from {} are asked for, but its block of {} bytes ends {} after it",
                                          bytes, argument, block->bytes, left));
}

aclError CheckKind(const char* call, aclrtMemcpyKind kind) {
  const auto number = static_cast<std::int64_t>(kind);
  if (number >= 0 && number <= ACL_MEMCPY_DEFAULT) return ACL_SUCCESS;
  return RefuseArgument(call,
                        fmt::format("kind must be in [0, {}], is {}", static_cast<int>(ACL_MEMCPY_DEFAULT), number));
}

aclError CheckCount(const char* call, std::size_t count, const char* limit, std::size_t most) {
  if (count <= most) return ACL_SUCCESS;
  return RefuseArgument(call, fmt::format("count must be at most {} = {}, is {}", limit, most, count));
}

// Waits for its turn on the stream where there is one. Synchronous forms pass no stream and wait for none: they touch
// memory only, and what they copy is there once the call that wrote it has returned.
aclError TakeTurn(const char* call, const aclrtStream* stream) {
  if (stream == nullptr) return ACL_SUCCESS;
  const std::shared_ptr<Stream> found = FindStream(call, *stream);
  if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
  AwaitStream(found, std::nullopt);
  return ACL_SUCCESS;
}

aclError Copy(const char* call, void* dst, std::size_t dest_max, const void* src, std::size_t count,
              aclrtMemcpyKind kind, const aclrtStream* stream) {
  if (const aclError error = CheckKind(call, kind)) return error;
  if (const aclError error = CheckCount(call, count, "destMax", dest_max)) return error;
  if (const aclError error = CheckRange(call, "dst", dst, count)) return error;
  if (const aclError error = CheckRange(call, "src", src, count)) return error;
  if (const aclError error = TakeTurn(call, stream)) return error;
  std::memmove(dst, src, count);
  return ACL_SUCCESS;
}

aclError Fill(const char* call, void* address, std::size_t max_count, std::int32_t value, std::size_t count,
              const aclrtStream* stream) {
  if (const aclError error = CheckCount(call, count, "maxCount", max_count)) return error;
  if (const aclError error = CheckRange(call, "devPtr", address, count)) return error;
  if (const aclError error = TakeTurn(call, stream)) return error;
  std::memset(address, value, count);
  return ACL_SUCCESS;
}

// Bytes from the first to the last of `height` rows, none of them empty.
aclError CheckRows(const char* call, const char* argument, const void* address, const char* pitch_name,
                   std::size_t pitch, std::size_t width, std::size_t height) {
  if (width > pitch)
    return RefuseArgument(call, fmt::format("width must be at most {} = {}, is {}", pitch_name, pitch, width));
  std::size_t bytes = 0;
  if (height != 0 && width != 0 &&
      (__builtin_mul_overflow(height - 1, pitch, &bytes) || __builtin_add_overflow(bytes, width, &bytes)))
    return RefuseArgument(call, fmt::format("{} rows {} bytes apart are more than memory can hold", height, pitch));
  return CheckRange(call, argument, address, bytes);
}

aclError Copy2d(const char* call, void* dst, std::size_t dpitch, const void* src, std::size_t spitch, std::size_t width,
                std::size_t height, aclrtMemcpyKind kind, const aclrtStream* stream) {
  if (const aclError error = CheckKind(call, kind)) return error;
  if (const aclError error = CheckRows(call, "dst", dst, "dpitch", dpitch, width, height)) return error;
  if (const aclError error = CheckRows(call, "src", src, "spitch", spitch, width, height)) return error;
  if (const aclError error = TakeTurn(call, stream)) return error;
  if (width == 0) return ACL_SUCCESS;
  for (std::size_t row = 0; row < height; ++row)
    std::memmove(static_cast<std::byte*>(dst) + row * dpitch, static_cast<const std::byte*>(src) + row * spitch, width);
  return ACL_SUCCESS;
}

}  // namespace

std::optional<Block> FindBlock(const void* address) {
  return DeviceBlocks().Find(address);
}

}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return Call(__func__, [&](const char* call) { return AllocateDevice(call, devPtr, size, policy); });
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return Call(__func__, [&](const char* call) { return AllocateDevice(call, devPtr, size, policy); });
}

aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return Call(__func__, [&](const char* call) { return AllocateDevice(call, devPtr, size, policy); });
}

aclError aclrtFree(void* devPtr) {
  return Call(__func__,
              [&](const char* call) { return Release(call, "devPtr", DeviceBlocks(), "aclrtMalloc", devPtr); });
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return Call(__func__,
              [&](const char* call) { return Allocate(call, "hostPtr", HostBlocks(), hostPtr, size, false); });
}

aclError aclrtFreeHost(void* hostPtr) {
  return Call(__func__,
              [&](const char* call) { return Release(call, "hostPtr", HostBlocks(), "aclrtMallocHost", hostPtr); });
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  return Call(__func__, [&](const char* call) { return Copy(call, dst, destMax, src, count, kind, nullptr); });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  return Call(__func__, [&](const char* call) { return Copy(call, dst, destMax, src, count, kind, &stream); });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return Call(__func__, [&](const char* call) { return Fill(call, devPtr, maxCount, value, count, nullptr); });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
  return Call(__func__, [&](const char* call) { return Fill(call, devPtr, maxCount, value, count, &stream); });
}

aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                       aclrtMemcpyKind kind) {
  return Call(__func__,
              [&](const char* call) { return Copy2d(call, dst, dpitch, src, spitch, width, height, kind, nullptr); });
}

aclError aclrtMemcpy2dAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                            aclrtMemcpyKind kind, aclrtStream stream) {
  return Call(__func__,
              [&](const char* call) { return Copy2d(call, dst, dpitch, src, spitch, width, height, kind, &stream); });
}
