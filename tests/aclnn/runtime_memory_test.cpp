#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/aclnn/runtime.h"

namespace onehot::test {
namespace {

constexpr size_t kMax = std::numeric_limits<size_t>::max();

struct DeviceBlock {
  explicit DeviceBlock(size_t bytes) {
    EXPECT_DONE(aclrtMalloc(&data, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    std::memset(data, 0xEE, bytes);
  }
  ~DeviceBlock() { EXPECT_DONE(aclrtFree(data)); }
  std::uint8_t* bytes() const { return static_cast<std::uint8_t*>(data); }
  void* data = nullptr;
};

TEST(Memory, MallocGivesAlignedWritableBlocks) {
  for (auto* allocate : {aclrtMalloc, aclrtMallocAlign32, aclrtMallocCached})
    for (const int policy : {0, 1, 2, 3, 4, 5, 6, 7, 0x0100, 0x1002})
      for (const size_t size : {size_t{1}, size_t{31}, size_t{33}, size_t{100000}, size_t{3} << 20}) {
        void* block = nullptr;
        ASSERT_DONE(allocate(&block, size, static_cast<aclrtMemMallocPolicy>(policy)));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
        std::memset(block, 1, size);
        EXPECT_DONE(aclrtFree(block));
      }
}

TEST(Memory, MallocRefuses) {
  void* block = &block;
  size_t free = 0, total = 0;
  ASSERT_DONE(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
  EXPECT_REFUSED(100000, aclrtMalloc(&block, 0, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc: size must not be 0");
  EXPECT_REFUSED(100000, aclrtMallocAlign32(&block, 0, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMallocAlign32: size");
  EXPECT_REFUSED(100000, aclrtMallocCached(&block, 0, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMallocCached: size");
  EXPECT_REFUSED(100000, aclrtMallocHost(&block, 0), "aclrtMallocHost: size must not be 0");
  EXPECT_REFUSED(100000, aclrtMalloc(nullptr, 8, ACL_MEM_MALLOC_HUGE_FIRST), "devPtr must not be null");
  EXPECT_REFUSED(100000, aclrtMallocHost(nullptr, 8), "hostPtr must not be null");
  EXPECT_REFUSED(100000, aclrtMalloc(&block, 8, static_cast<aclrtMemMallocPolicy>(8)), "policy must be");
  EXPECT_REFUSED(100000, aclrtMalloc(&block, 8, static_cast<aclrtMemMallocPolicy>(-1)), "policy must be");
  for (const size_t size : {kMax, kMax - 63, kMax / 2, size_t{1} << 46, total + 1}) {
    EXPECT_REFUSED(207001, aclrtMalloc(&block, size, ACL_MEM_MALLOC_HUGE_FIRST), std::to_string(size));
    EXPECT_REFUSED(207001, aclrtMallocHost(&block, size), std::to_string(size));
  }
  EXPECT_EQ(block, &block) << "a refused call wrote its output";
}

TEST(Memory, FreeKnowsItsBlocks) {
  void* device = nullptr;
  void* host = nullptr;
  int local = 0;
  ASSERT_DONE(aclrtMalloc(&device, 64, ACL_MEM_MALLOC_HUGE_FIRST));
  ASSERT_DONE(aclrtMallocHost(&host, 64));
  EXPECT_REFUSED(100000, aclrtFree(nullptr), "aclrtFree: devPtr must not be null");
  EXPECT_REFUSED(100000, aclrtFreeHost(nullptr), "aclrtFreeHost: hostPtr must not be null");
  EXPECT_REFUSED(100000, aclrtFree(&local), "is not the start of a live block from aclrtMalloc");
  EXPECT_REFUSED(100000, aclrtFree(static_cast<char*>(device) + 1), "is not the start of a live block");
  EXPECT_REFUSED(100000, aclrtFree(host), "is not the start of a live block from aclrtMalloc");
  EXPECT_REFUSED(100000, aclrtFreeHost(device), "is not the start of a live block from aclrtMallocHost");
  EXPECT_DONE(aclrtFree(device));
  EXPECT_DONE(aclrtFreeHost(host));
  EXPECT_REFUSED(100000, aclrtFree(device), "is not the start of a live block");
  EXPECT_REFUSED(100000, aclrtFreeHost(host), "is not the start of a live block");
}

TEST(Memory, CopiesInEveryDirection) {
  std::vector<std::uint8_t> source(1000), result(1000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::uint8_t>(i * 7 + 1);
  const DeviceBlock block(1000);
  for (int kind = 0; kind <= 4; ++kind) {
    std::memset(block.data, 0, 1000);
    std::fill(result.begin(), result.end(), std::uint8_t{0});
    const auto as_kind = static_cast<aclrtMemcpyKind>(kind);
    EXPECT_DONE(aclrtMemcpy(block.data, 1000, source.data(), 1000, as_kind));
    EXPECT_DONE(aclrtMemcpyAsync(result.data(), 1000, block.data, 1000, as_kind, nullptr));
    EXPECT_EQ(result, source);
  }
  // Only count bytes are written; overlap is allowed.
  EXPECT_DONE(aclrtMemcpy(block.data, 1000, source.data() + 10, 3, ACL_MEMCPY_HOST_TO_DEVICE));
  EXPECT_EQ(block.bytes()[2], source[12]);
  EXPECT_EQ(block.bytes()[3], source[3]);
  EXPECT_DONE(aclrtMemcpy(block.bytes() + 1, 999, block.data, 999, ACL_MEMCPY_DEVICE_TO_DEVICE));
  EXPECT_EQ(block.bytes()[999], source[998]);
  EXPECT_DONE(aclrtMemcpy(block.data, 0, source.data(), 0, ACL_MEMCPY_HOST_TO_DEVICE));
}

TEST(Memory, CopyRefusesOverruns) {
  std::uint8_t local[300] = {};
  const DeviceBlock block(100);
  void* host = nullptr;
  ASSERT_DONE(aclrtMallocHost(&host, 50));
  const auto h2d = ACL_MEMCPY_HOST_TO_DEVICE, d2h = ACL_MEMCPY_DEVICE_TO_HOST;
  EXPECT_REFUSED(100000, aclrtMemcpy(block.data, 10, local, 11, h2d), "count must be at most destMax = 10, is 11");
  EXPECT_REFUSED(100000, aclrtMemcpyAsync(block.data, 10, local, 11, h2d, nullptr), "destMax = 10, is 11");
  // One past the block that was asked for, though the allocation behind it is rounded up.
  EXPECT_REFUSED(100000, aclrtMemcpy(block.data, 101, local, 101, h2d), "101 bytes from dst");
  EXPECT_REFUSED(100000, aclrtMemcpy(block.bytes() + 60, 300, local, 41, h2d), "its block of 100 bytes ends 40 after");
  EXPECT_REFUSED(100000, aclrtMemcpy(local, 300, block.data, 101, d2h), "101 bytes from src");
  EXPECT_REFUSED(100000, aclrtMemcpy(local, 300, host, 51, d2h), "51 bytes from src");
  EXPECT_REFUSED(100000, aclrtMemcpy(local, kMax, block.data, kMax, d2h), "bytes from src");
  EXPECT_REFUSED(100000, aclrtMemcpy(nullptr, 10, local, 10, h2d), "dst must not be null");
  EXPECT_REFUSED(100000, aclrtMemcpy(block.data, 10, nullptr, 10, h2d), "src must not be null");
  EXPECT_REFUSED(100000, aclrtMemcpy(block.data, 10, local, 10, static_cast<aclrtMemcpyKind>(5)), "kind must be in");
  EXPECT_REFUSED(100000, aclrtMemcpy(block.data, 10, local, 10, static_cast<aclrtMemcpyKind>(-1)), "kind must be in");
  EXPECT_REFUSED(100000, aclrtMemcpyAsync(block.data, 10, local, 10, h2d, local), "is not a live stream");
  EXPECT_EQ(block.bytes()[0], 0xEE) << "a refused copy wrote";
  EXPECT_DONE(aclrtMemcpy(block.data, 300, local, 100, h2d));  // destMax may promise more than is copied
  EXPECT_DONE(aclrtFreeHost(host));
}

TEST(Memory, Memset) {
  const DeviceBlock block(100);
  EXPECT_DONE(aclrtMemset(block.data, 100, 0x1A5, 40));
  EXPECT_EQ(block.bytes()[0], 0xA5);
  EXPECT_EQ(block.bytes()[39], 0xA5);
  EXPECT_EQ(block.bytes()[40], 0xEE);
  EXPECT_DONE(aclrtMemsetAsync(block.data, 100, 3, 100, nullptr));
  EXPECT_EQ(block.bytes()[99], 3);
  EXPECT_REFUSED(100000, aclrtMemset(block.data, 10, 0, 11), "count must be at most maxCount = 10, is 11");
  EXPECT_REFUSED(100000, aclrtMemset(block.data, 200, 0, 101), "101 bytes from devPtr");
  EXPECT_REFUSED(100000, aclrtMemset(nullptr, 10, 0, 10), "devPtr must not be null");
  EXPECT_REFUSED(100000, aclrtMemsetAsync(block.data, 10, 0, 11, nullptr), "maxCount = 10, is 11");
  EXPECT_REFUSED(100000, aclrtMemsetAsync(block.data, 10, 0, 10, block.data), "is not a live stream");
  EXPECT_EQ(block.bytes()[0], 3);
}

TEST(Memory, Copy2d) {
  std::uint8_t source[60];
  for (int i = 0; i < 60; ++i) source[i] = static_cast<std::uint8_t>(i);
  const DeviceBlock block(5 * 7 - 4);  // 5 rows 7 apart, the last one 3 wide
  for (const bool async : {false, true}) {
    std::memset(block.data, 0xEE, 31);
    EXPECT_DONE(async ? aclrtMemcpy2dAsync(block.data, 7, source, 12, 3, 5, ACL_MEMCPY_HOST_TO_DEVICE, nullptr)
                      : aclrtMemcpy2d(block.data, 7, source, 12, 3, 5, ACL_MEMCPY_HOST_TO_DEVICE));
    for (int i = 0; i < 31; ++i) EXPECT_EQ(block.bytes()[i], i % 7 < 3 ? i / 7 * 12 + i % 7 : 0xEE) << i;
  }
  const auto h2d = ACL_MEMCPY_HOST_TO_DEVICE;
  EXPECT_REFUSED(100000, aclrtMemcpy2d(block.data, 7, source, 12, 4, 5, h2d), "32 bytes from dst");
  EXPECT_REFUSED(100000, aclrtMemcpy2d(block.data, 7, source, 12, 3, 6, h2d), "38 bytes from dst");
  EXPECT_REFUSED(100000, aclrtMemcpy2d(source, 12, block.data, 7, 3, 6, h2d), "38 bytes from src");
  EXPECT_REFUSED(100000, aclrtMemcpy2d(block.data, 2, source, 12, 3, 1, h2d), "width must be at most dpitch = 2, is 3");
  EXPECT_REFUSED(100000, aclrtMemcpy2d(block.data, 7, source, 2, 3, 1, h2d), "width must be at most spitch = 2, is 3");
  EXPECT_REFUSED(100000, aclrtMemcpy2d(nullptr, 7, source, 12, 3, 5, h2d), "dst must not be null");
  EXPECT_REFUSED(100000, aclrtMemcpy2d(block.data, 7, nullptr, 12, 3, 5, h2d), "src must not be null");
  EXPECT_REFUSED(100000, aclrtMemcpy2d(block.data, kMax, source, kMax, 3, kMax, h2d), "more than memory can hold");
  EXPECT_REFUSED(100000, aclrtMemcpy2d(block.data, 7, source, 12, 3, 5, static_cast<aclrtMemcpyKind>(9)), "kind");
  EXPECT_REFUSED(100000, aclrtMemcpy2dAsync(block.data, 7, source, 12, 3, 5, h2d, source), "is not a live stream");
  EXPECT_DONE(aclrtMemcpy2d(block.data, 7, source, 12, 0, kMax, h2d));
  EXPECT_DONE(aclrtMemcpy2d(block.data, 7, source, 12, 7, 0, h2d));
}

TEST(Memory, ManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (size_t i = 1; i <= 200; ++i) {
        void* block = nullptr;
        aclrtStream stream = nullptr;
        aclrtEvent event = nullptr;
        EXPECT_DONE(aclrtMalloc(&block, i, ACL_MEM_MALLOC_HUGE_FIRST));
        EXPECT_DONE(aclrtCreateStream(&stream));
        EXPECT_DONE(aclrtCreateEvent(&event));
        EXPECT_DONE(aclrtMemsetAsync(block, i, t, i, stream));
        EXPECT_DONE(aclrtRecordEvent(event, stream));
        EXPECT_DONE(aclrtStreamWaitEvent(nullptr, event));
        EXPECT_EQ(static_cast<const char*>(block)[i - 1], t);
        EXPECT_EQ(aclrtMemset(block, i + 1, t, i + 1), 100000);
        EXPECT_DONE(aclrtDestroyEvent(event));
        EXPECT_DONE(aclrtDestroyStream(stream));
        EXPECT_DONE(aclrtFree(block));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Memory, InfoIsTheMachines) {
  size_t kib = 0;
  std::string word;
  std::ifstream file("/proc/meminfo");
  while (file >> word && word != "MemTotal:") {
  }
  ASSERT_TRUE(file >> kib);
  for (int attr = 0; attr <= 9; ++attr) {
    size_t free = 0, total = 0;
    EXPECT_DONE(aclrtGetMemInfo(static_cast<aclrtMemAttr>(attr), &free, &total));
    EXPECT_EQ(total, kib * 1024);
    EXPECT_GT(free, 0u);
    EXPECT_LT(free, total);
  }
  size_t free = 0, total = 0;
  EXPECT_REFUSED(100000, aclrtGetMemInfo(static_cast<aclrtMemAttr>(10), &free, &total),
                 "attr must be in [0, 9], is 10");
  EXPECT_REFUSED(100000, aclrtGetMemInfo(ACL_HBM_MEM, nullptr, &total), "free must not be null");
  EXPECT_REFUSED(100000, aclrtGetMemInfo(ACL_HBM_MEM, &free, nullptr), "total must not be null");
}

}  // namespace
}  // namespace onehot::test
