// What a tiny problem of each operator costs natively, with working memory of its own: what bench/python_overhead.py compares
// the same problem from Python with.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>

#include "onehot/onehot.h"

namespace {

using onehot::ConstTensorView;
using onehot::DType;
using onehot::TensorView;

// N positions, V classes or rows of a table, H columns.
constexpr std::int64_t kN = 4, kV = 5, kH = 3;

struct Tiny {
  std::array<float, kN * kH> rows{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::array<float, kV * kH> table{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  std::array<float, kN * kV> logits{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  std::array<std::int64_t, kN> target{2, 1, 2, 0};
  std::array<float, kN> max{1, 2, 3, 4}, sum_exp{1, 2, 3, 4}, target_logit{};
  float one = 1, loss = 0;
  std::array<float, kN * kH> rows_out{};
  std::array<float, kV * kH> table_out{};
  std::array<float, kN * kV> logits_out{};

  ConstTensorView Rows() { return {rows.data(), DType::kF32, {kN, kH}}; }
  ConstTensorView Table() { return {table.data(), DType::kF32, {kV, kH}}; }
  ConstTensorView Logits() { return {logits.data(), DType::kF32, {kN, kV}}; }
  ConstTensorView Target() { return {target.data(), DType::kI64, {kN}}; }
  ConstTensorView One() { return {&one, DType::kF32, {}}; }
  TensorView Loss() { return {&loss, DType::kF32, {}}; }
  TensorView RowsOut() { return {rows_out.data(), DType::kF32, {kN, kH}}; }
  TensorView TableOut() { return {table_out.data(), DType::kF32, {kV, kH}}; }
  TensorView LogitsOut() { return {logits_out.data(), DType::kF32, {kN, kV}}; }
  static TensorView PerPosition(std::array<float, kN>& values) { return {values.data(), DType::kF32, {kN}}; }

  onehot::Embedding Embedding() { return {Table(), Target(), RowsOut()}; }
  onehot::EmbeddingBackward EmbeddingBackward() { return {Rows(), Target(), TableOut()}; }
  onehot::NllLoss NllLoss() { return {Logits(), Target(), Loss()}; }
  onehot::NllLossBackward NllLossBackward() { return {One(), Target(), LogitsOut(), One()}; }
  onehot::CrossEntropy CrossEntropy() { return {.input = Logits(), .target = Target(), .loss = Loss()}; }
  onehot::CrossEntropyBackward CrossEntropyBackward() {
    return {.input = Logits(), .target = Target(), .out = LogitsOut(), .grad_loss = One()};
  }
  onehot::LinearCrossEntropy LinearCrossEntropy() {
    return {.input = Rows(), .weight = Table(), .target = Target(), .loss = Loss()};
  }
  onehot::LinearCrossEntropy LinearCrossEntropyWithGradients() {
    onehot::LinearCrossEntropy problem = LinearCrossEntropy();
    problem.upstream.loss = One();
    problem.grad.input = RowsOut();
    problem.grad.weight = TableOut();
    return problem;
  }
  onehot::LinearCrossEntropyBackward LinearCrossEntropyBackward() {
    onehot::LinearCrossEntropyBackward problem{Rows(), Table(), Target()};
    problem.upstream.loss = One();
    problem.grad.input = RowsOut();
    problem.grad.weight = TableOut();
    return problem;
  }
  onehot::LinearCrossEntropyStatistics LinearCrossEntropyStatistics() {
    onehot::LinearCrossEntropyStatistics problem{Rows(), Table(), Target()};
    problem.max = PerPosition(max);
    problem.sum_exp = PerPosition(sum_exp);
    problem.target_logit = PerPosition(target_logit);
    return problem;
  }
  onehot::LinearCrossEntropyLoss LinearCrossEntropyLoss() {
    onehot::LinearCrossEntropyLoss problem{PerPosition(max), PerPosition(sum_exp)};
    problem.target_logit = PerPosition(target_logit);
    problem.loss = Loss();
    return problem;
  }
};

// One "name: problem" a line of a table; the name is that of the Python function.
template <auto kProblem>
void PrepareAndRun(benchmark::State& state) {
  Tiny tiny;
  for (auto _ : state) {
    const onehot::Result<onehot::Plan> plan = onehot::Prepare((tiny.*kProblem)());
    if (!plan.ok() || !plan.value().Run().ok()) return state.SkipWithError("failed");
    benchmark::ClobberMemory();
  }
}

BENCHMARK(PrepareAndRun<&Tiny::Embedding>)->Name("tiny: embedding");
BENCHMARK(PrepareAndRun<&Tiny::EmbeddingBackward>)->Name("tiny: embedding_backward");
BENCHMARK(PrepareAndRun<&Tiny::NllLoss>)->Name("tiny: nll_loss");
BENCHMARK(PrepareAndRun<&Tiny::NllLossBackward>)->Name("tiny: nll_loss_backward");
BENCHMARK(PrepareAndRun<&Tiny::CrossEntropy>)->Name("tiny: cross_entropy");
BENCHMARK(PrepareAndRun<&Tiny::CrossEntropyBackward>)->Name("tiny: cross_entropy_backward");
BENCHMARK(PrepareAndRun<&Tiny::LinearCrossEntropy>)->Name("tiny: linear_cross_entropy");
BENCHMARK(PrepareAndRun<&Tiny::LinearCrossEntropyWithGradients>)->Name("tiny: linear_cross_entropy with gradients");
BENCHMARK(PrepareAndRun<&Tiny::LinearCrossEntropyBackward>)->Name("tiny: linear_cross_entropy_backward");
BENCHMARK(PrepareAndRun<&Tiny::LinearCrossEntropyStatistics>)->Name("tiny: linear_cross_entropy_statistics");
BENCHMARK(PrepareAndRun<&Tiny::LinearCrossEntropyLoss>)->Name("tiny: linear_cross_entropy_loss");

}  // namespace
