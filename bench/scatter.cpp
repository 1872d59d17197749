// Memset and scatter, the other way to write the gradient of nll_loss: what a kernel has to beat.
#include <omp.h>

#include <chrono>
#include <cstring>
#include <string_view>

#include "onehot_bench.h"

namespace {

// Bits are enough: nothing is computed.
template <class Element, class Target>
void Scatter(const onehot_bench_loss& loss, const Element* values, bool same_value, int threads) {
  const auto* const target = static_cast<const Target*>(loss.target);
  auto* const out = static_cast<Element*>(loss.out);
  const std::int64_t pixels = loss.H == 0 ? 1 : loss.H * loss.W, C = loss.C, positions = loss.N * pixels;
  const std::int64_t elements = positions * C;
#pragma omp parallel num_threads(threads)
  {
    const std::int64_t t = omp_get_thread_num(), n = omp_get_num_threads();
    const std::int64_t begin = elements / n * t, end = t + 1 == n ? elements : elements / n * (t + 1);
    std::memset(out + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(Element));
#pragma omp barrier
    if (pixels == 1) {
#pragma omp for schedule(static)
      for (std::int64_t i = 0; i < positions; ++i)
        out[i * C + static_cast<std::int64_t>(target[i])] = values[same_value ? 0 : i];
    } else {
      for (std::int64_t image = 0; image < loss.N; ++image) {
        Element* const at = out + image * C * pixels;
        const Target* const classes = target + image * pixels;
        const Element* const from = values + (same_value ? 0 : image * pixels);
#pragma omp for schedule(static) nowait
        for (std::int64_t p = 0; p < pixels; ++p)
          at[static_cast<std::int64_t>(classes[p]) * pixels + p] = from[same_value ? 0 : p];
      }
    }
  }
}

}  // namespace

std::int64_t onehot_bench_scatter(const onehot_bench_loss* loss, const void* values, int same_value, int threads) {
  const std::string_view dtype = loss->dtype, target = loss->target_dtype;
  const bool wide = dtype == "f32", bytes = target == "u8";
  if ((!wide && dtype != "f16" && dtype != "bf16") || (!bytes && target != "i64")) return -1;
  const auto start = std::chrono::steady_clock::now();
  if (wide) {
    const auto* const v = static_cast<const std::uint32_t*>(values);
    bytes ? Scatter<std::uint32_t, std::uint8_t>(*loss, v, same_value != 0, threads)
          : Scatter<std::uint32_t, std::int64_t>(*loss, v, same_value != 0, threads);
  } else {
    const auto* const v = static_cast<const std::uint16_t*>(values);
    bytes ? Scatter<std::uint16_t, std::uint8_t>(*loss, v, same_value != 0, threads)
          : Scatter<std::uint16_t, std::int64_t>(*loss, v, same_value != 0, threads);
  }
  const auto stop = std::chrono::steady_clock::now();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(stop - start).count();
}
