// What a small problem costs: a 2 x 3 gradient, three nanoseconds of arithmetic. scripts/bench.sh runs this.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>

#include "onehot/onehot.h"

namespace {

constexpr std::int64_t kN = 2, kD = 3, kV = 4;

struct Small {
  std::array<float, kN * kD> grad{1, 2, 3, 4, 5, 6};
  std::array<std::int64_t, kN> indices{2, 1};
  std::array<float, kV * kD> out{};
  alignas(64) std::array<std::byte, 1 << 16> scratch{};

  onehot::EmbeddingBackward Problem() {
    return {.grad = {grad.data(), onehot::DType::kF32, {kN, kD}},
            .indices = {indices.data(), onehot::DType::kI64, {kN}},
            .out = {out.data(), onehot::DType::kF32, {kV, kD}}};
  }
};

void PrepareAndRun(benchmark::State& state) {
  Small small;
  for (auto _ : state) {
    const onehot::Result<onehot::Plan> plan = onehot::Prepare(small.Problem());
    if (!plan.ok() || !plan.value().Run(small.scratch.data(), small.scratch.size()).ok())
      return state.SkipWithError("failed");
    benchmark::DoNotOptimize(small.out);
  }
}
BENCHMARK(PrepareAndRun)->Name("native: Prepare + Run, 2 x 3 gradient");

void RunOnly(benchmark::State& state) {
  Small small;
  const onehot::Result<onehot::Plan> plan = onehot::Prepare(small.Problem());
  if (!plan.ok()) return state.SkipWithError("failed");
  for (auto _ : state) {
    if (!plan.value().Run(small.scratch.data(), small.scratch.size()).ok()) return state.SkipWithError("failed");
    benchmark::DoNotOptimize(small.out);
  }
}
BENCHMARK(RunOnly)->Name("native: Run, 2 x 3 gradient");

}  // namespace
