// How fast this machine multiplies and adds: in registers, which no product exceeds, and from the L2 cache.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "onehot_bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "arithmetic.cpp"
#include "hwy/foreach_target.h"  // compiles the part below once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onehot_bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;

// Twelve chains: two units with a latency of four or five cycles need eight to ten, and AVX2 has 16 registers for these
// and the factors. Returns the flops.
double Registers(std::int64_t rounds, float* sink) {
  const Tag d;
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 1e-3f);  // the chains converge to 1
  // Starts that differ: equal chains are one chain to a compiler.
  auto c0 = hn::Set(d, 0.0f), c1 = hn::Set(d, 1.0f), c2 = hn::Set(d, 2.0f), c3 = hn::Set(d, 3.0f),
       c4 = hn::Set(d, 4.0f), c5 = hn::Set(d, 5.0f), c6 = hn::Set(d, 6.0f), c7 = hn::Set(d, 7.0f),
       c8 = hn::Set(d, 8.0f), c9 = hn::Set(d, 9.0f), c10 = hn::Set(d, 10.0f), c11 = hn::Set(d, 11.0f);
  for (std::int64_t i = 0; i < rounds; ++i) {
    c0 = hn::MulAdd(c0, a, b), c1 = hn::MulAdd(c1, a, b), c2 = hn::MulAdd(c2, a, b), c3 = hn::MulAdd(c3, a, b);
    c4 = hn::MulAdd(c4, a, b), c5 = hn::MulAdd(c5, a, b), c6 = hn::MulAdd(c6, a, b), c7 = hn::MulAdd(c7, a, b);
    c8 = hn::MulAdd(c8, a, b), c9 = hn::MulAdd(c9, a, b), c10 = hn::MulAdd(c10, a, b), c11 = hn::MulAdd(c11, a, b);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)), hn::Add(hn::Add(c4, c5), hn::Add(c6, c7)));
  *sink = hn::GetLane(hn::Add(sum, hn::Add(hn::Add(c8, c9), hn::Add(c10, c11))));
  return 2.0 * 12 * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

// One multiply-add for each element of w, in eight chains: loads bound it, not latency. `count`: a multiple of 256.
float Stream(const float* w, std::int64_t count) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto x = hn::Set(d, 0.5f);
  auto c0 = hn::Zero(d), c1 = c0, c2 = c0, c3 = c0, c4 = c0, c5 = c0, c6 = c0, c7 = c0;
  for (std::int64_t i = 0; i < count; i += 8 * lanes) {
    c0 = hn::MulAdd(hn::LoadU(d, w + i), x, c0), c1 = hn::MulAdd(hn::LoadU(d, w + i + lanes), x, c1);
    c2 = hn::MulAdd(hn::LoadU(d, w + i + 2 * lanes), x, c2), c3 = hn::MulAdd(hn::LoadU(d, w + i + 3 * lanes), x, c3);
    c4 = hn::MulAdd(hn::LoadU(d, w + i + 4 * lanes), x, c4), c5 = hn::MulAdd(hn::LoadU(d, w + i + 5 * lanes), x, c5);
    c6 = hn::MulAdd(hn::LoadU(d, w + i + 6 * lanes), x, c6), c7 = hn::MulAdd(hn::LoadU(d, w + i + 7 * lanes), x, c7);
  }
  return hn::GetLane(hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)), hn::Add(hn::Add(c4, c5), hn::Add(c6, c7))));
}

}  // namespace onehot_bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onehot_bench {
namespace {

HWY_EXPORT(Registers);
HWY_EXPORT(Stream);

std::atomic<float> arithmetic_sink{0};  // results go here, so that they have to be computed

std::int64_t Nanoseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - since).count();
}

double F32(std::int64_t rounds) {
  float sink = 0;
  const double flops = HWY_DYNAMIC_DISPATCH(Registers)(rounds, &sink);
  arithmetic_sink = sink;
  return flops;
}

#if defined(__x86_64__)
// As Registers, in dot products of pairs of bf16 with sums in f32. By hand: not every Highway has them.
__attribute__((target("avx512f,avx512bf16"))) double PairsInRegisters(std::int64_t rounds) {
  const __m512i bits = _mm512_set1_epi32(0x3c003c00);  // pairs of 2^-7
  const auto a = reinterpret_cast<__m512bh>(bits);
  __m512 c[12];
  for (int j = 0; j < 12; ++j) c[j] = _mm512_set1_ps(static_cast<float>(j));
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) c[j] = _mm512_dpbf16_ps(c[j], a, a);
  }
  for (int j = 1; j < 12; ++j) c[0] = _mm512_add_ps(c[0], c[j]);
  arithmetic_sink = _mm512_cvtss_f32(c[0]);
  return 2.0 * 12 * 32 * static_cast<double>(rounds);
}
#endif

double BF16(std::int64_t rounds) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16")) return PairsInRegisters(rounds);
#endif
  (void)rounds;
  return 0;
}

}  // namespace
}  // namespace onehot_bench

using namespace onehot_bench;

double onehot_bench_arithmetic(int bf16, int threads) {
  // Some milliseconds: long enough for the clock and the start of the threads, short beside what is measured.
  constexpr std::int64_t kRounds = 1 << 20;
  double flops = 0;
  const auto run = [&](std::int64_t rounds) {
    flops = 0;
#pragma omp parallel num_threads(threads) reduction(+ : flops)
    flops += bf16 != 0 ? BF16(rounds) : F32(rounds);
  };
  run(kRounds / 16);  // the threads exist and are awake
  const auto start = std::chrono::steady_clock::now();
  run(kRounds);
  return flops / static_cast<double>(std::max<std::int64_t>(Nanoseconds(start), 1));
}

std::int64_t onehot_bench_multiply_add(const float* w, std::int64_t count, std::int64_t times) {
  const auto start = std::chrono::steady_clock::now();
  float sum = 0;
  for (std::int64_t i = 0; i < times; ++i) sum += HWY_DYNAMIC_DISPATCH(Stream)(w, count);
  arithmetic_sink = sum;
  return Nanoseconds(start);
}
#endif  // HWY_ONCE
