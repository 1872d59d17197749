#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "hwy/cache_control.h"
#include "onehot_bench.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory.cpp"
#include "hwy/foreach_target.h"  // compiles the part below once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onehot_bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<std::uint32_t>;

// All of these: `count` is a multiple of 1024 elements, memory is aligned to a page. Four vectors a turn, so that the
// loop itself is never what bounds them.
template <class F>
HWY_INLINE void ForEachVector(std::size_t count, F&& f) {
  const std::size_t lanes = hn::Lanes(Tag());
  for (std::size_t i = 0; i < count; i += 4 * lanes) {
    f(i);
    f(i + lanes);
    f(i + 2 * lanes);
    f(i + 3 * lanes);
  }
}

std::uint32_t Read(const std::uint32_t* from, std::size_t count) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += 4 * lanes) {
    a = hn::Or(a, hn::Or(hn::Load(d, from + i), hn::Load(d, from + i + lanes)));
    b = hn::Or(b, hn::Or(hn::Load(d, from + i + 2 * lanes), hn::Load(d, from + i + 3 * lanes)));
  }
  return hn::GetLane(hn::Or(a, b));
}

void Store(std::uint32_t* to, std::size_t count, std::uint32_t value) {
  const Tag d;
  const auto v = hn::Set(d, value);
  ForEachVector(count, [&](std::size_t i) HWY_ATTR { hn::Store(v, d, to + i); });
}

void Stream(std::uint32_t* to, std::size_t count, std::uint32_t value) {
  const Tag d;
  const auto v = hn::Set(d, value);
  ForEachVector(count, [&](std::size_t i) HWY_ATTR { hn::Stream(v, d, to + i); });
  hwy::FlushStream();
}

// Every line differs, as lines of data do.
void StreamData(std::uint32_t* to, std::size_t count) {
  const Tag d;
  const auto step = hn::Set(d, 0x01010101u);
  auto v = hn::Iota(d, 1);
  ForEachVector(count, [&](std::size_t i) HWY_ATTR {
    hn::Stream(v, d, to + i);
    v = hn::Add(v, step);
  });
  hwy::FlushStream();
}

}  // namespace onehot_bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onehot_bench {
namespace {

HWY_EXPORT(Read);
HWY_EXPORT(Store);
HWY_EXPORT(Stream);
HWY_EXPORT(StreamData);

constexpr std::size_t kPage = 4096;

// 0xFFC1: a quiet NaN as f16, as bf16, and doubled as f32.
constexpr std::uint32_t kDirt = 0xFFC1FFC1u;

std::atomic<std::uint32_t> sink{0};  // what was read goes here, so that it has to be read

std::int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Calls f(first byte, bytes) on each thread with its run of pages.
template <class F>
void Divide(std::size_t bytes, int threads, F&& f) {
  const std::size_t pages = bytes / kPage;
#pragma omp parallel num_threads(threads)
  {
    const auto t = static_cast<std::size_t>(omp_get_thread_num()), n = static_cast<std::size_t>(omp_get_num_threads());
    const std::size_t begin = pages * t / n * kPage, end = pages * (t + 1) / n * kPage;
    f(begin, end - begin);
  }
}

enum Sweep { kRead, kStore, kStreamData, kStreamZeros, kCopy };

void SweepRun(int what, std::byte* to, const std::byte* from, std::size_t bytes) {
  auto* const words = reinterpret_cast<std::uint32_t*>(to);
  const std::size_t count = bytes / sizeof(std::uint32_t);
  switch (what) {
    case kRead:
      sink.fetch_xor(HWY_DYNAMIC_DISPATCH(Read)(words, count));
      break;
    case kStore:
      HWY_DYNAMIC_DISPATCH(Store)(words, count, 1);
      break;
    case kStreamData:
      HWY_DYNAMIC_DISPATCH(StreamData)(words, count);
      break;
    case kStreamZeros:
      HWY_DYNAMIC_DISPATCH(Stream)(words, count, 0);
      break;
    case kCopy:
      std::memcpy(to, from, bytes);
      break;
    default:
      break;
  }
}

}  // namespace
}  // namespace onehot_bench

using namespace onehot_bench;

void* onehot_bench_map(std::size_t bytes) {
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

void onehot_bench_unmap(void* pages, std::size_t bytes) {
  munmap(pages, bytes);
}

void onehot_bench_tile(void* to, std::size_t bytes, const void* pattern, std::size_t pattern_bytes) {
  for (std::size_t at = 0; at < bytes; at += pattern_bytes)
    std::memcpy(static_cast<std::byte*>(to) + at, pattern, std::min(pattern_bytes, bytes - at));
}

void onehot_bench_dirty(void* to, std::size_t bytes, int stream, int threads) {
  // Whole pages with vectors; what is before and after them is less than a page each.
  auto* const first = static_cast<std::byte*>(to);
  const std::size_t skew = reinterpret_cast<std::uintptr_t>(to) % kPage;
  const std::size_t head = std::min(bytes, skew == 0 ? 0 : kPage - skew);
  const std::size_t body = (bytes - head) / kPage * kPage;
  std::memset(first, 0xFF, head);
  std::memset(first + head + body, 0xFF, bytes - head - body);
  Divide(body, threads, [&](std::size_t begin, std::size_t length) {
    auto* const words = reinterpret_cast<std::uint32_t*>(first + head + begin);
    const std::size_t count = length / sizeof(std::uint32_t);
    stream != 0 ? HWY_DYNAMIC_DISPATCH(Stream)(words, count, kDirt) : HWY_DYNAMIC_DISPATCH(Store)(words, count, kDirt);
  });
}

std::int64_t onehot_bench_sweep(int what, void* to, const void* from, std::size_t bytes, int threads) {
  Divide(0, threads, [](std::size_t, std::size_t) {});  // the threads exist and are awake
  const std::int64_t start = Now();
  Divide(bytes, threads, [&](std::size_t begin, std::size_t length) {
    SweepRun(what, static_cast<std::byte*>(to) + begin,
             from == nullptr ? nullptr : static_cast<const std::byte*>(from) + begin, length);
  });
  return Now() - start;
}
#endif  // HWY_ONCE
