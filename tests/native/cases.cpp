#include "tests/native/cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "tests/native/oracle.h"

namespace onehot::test {

std::string BackwardCase::Describe() const {
  std::ostringstream text;
  text << "N " << N << " V " << V << " D " << D << " spread " << static_cast<int>(spread) << " hot " << hot << " grad "
       << Name(grad) << " out " << Name(out.value_or(grad)) << " index " << Name(index) << " padding_idx "
       << (padding_idx ? std::to_string(*padding_idx) : "none") << " scale " << scale << " accumulate " << accumulate;
  return text.str();
}

EmbeddingBackward BackwardProblem::op() {
  EmbeddingBackward op = options;
  op.grad = grad.view();
  op.indices = indices.view();
  op.out = out.view();
  if (counts) op.counts = counts->view();
  return op;
}

void FillOld(Tensor& out, std::uint64_t seed) {
  FillGradient(out, seed);
  // Rows that are never named must keep their bits, whatever those are.
  constexpr double kOdd[] = {-0.0, std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()};
  Random random(seed);
  for (std::int64_t i = 0; i < out.numel(); ++i)
    if (random.Below(16) == 0) out.SetValue(i, kOdd[random.Below(3)]);
}

BackwardProblem MakeProblem(const BackwardCase& c, std::uint64_t seed) {
  BackwardProblem problem(Tensor(c.grad, {c.N, c.D}, c.placed), Tensor(c.index, {c.N}),
                          Tensor(c.out.value_or(c.grad), {c.V, c.D}, c.placed));
  FillGradient(problem.grad, seed);
  SetIndices(problem.indices,
             c.hot > 0 ? IndicesWithHotRow(c.N, c.V, c.V / 2, c.hot, seed) : Indices(c.spread, c.N, c.V, seed));
  if (c.accumulate) FillOld(problem.out, seed + 1);
  if (c.counts) problem.counts.emplace(DType::kI64, Dims{c.V});
  problem.options.padding_idx = c.padding_idx;
  problem.options.scale_grad_by_freq = c.scale;
  problem.options.accumulate = c.accumulate;
  return problem;
}

namespace {

void Expect(BackwardProblem problem, int threads, bool with_definition) {
  const PromisedBits promise = Promise(problem.op());
  Definition definition;
  if (with_definition) {
    definition = Define(problem.op());
    // Sums are in f32, or in f64 for f64 gradients.
    const double sum_eps = problem.grad.layout().dtype == DType::kF64 ? 0x1p-52 : 0x1p-23;
    EXPECT_TRUE(WithinRounding(promise.out, problem.out.layout().dtype, definition, sum_eps))
        << "the promise itself is far off";
  }
  const Buffer grad_bytes = problem.grad.buffer(), index_bytes = problem.indices.buffer();
  for (const Target& target : Targets<EmbeddingBackward>()) {
    if (target.is_ref() && !with_definition) continue;
    SCOPED_TRACE(target.name());
    Tensor out = problem.out;
    EmbeddingBackward op = problem.op();
    op.out = out.view();
    std::optional<Tensor> counts = problem.counts;
    if (counts) op.counts = counts->view();
    RunOptions options;
    options.threads = threads;
    const Status status = RunOn(target, op, options);
    if (!status.ok()) {
      ADD_FAILURE() << status.message();
      return;
    }
    if (target.is_ref()) {
      EXPECT_TRUE(WithinRounding(out, definition, 0x1p-52));
    } else {
      EXPECT_TRUE(HasBits(out, promise));
    }
    EXPECT_TRUE(out.GapsUntouched());
    if (counts) {
      for (std::int64_t v = 0; v < counts->numel(); ++v)
        ASSERT_EQ(counts->Get<std::int64_t>(v), promise.count[static_cast<std::size_t>(v)]) << "counts[" << v << "]";
      EXPECT_TRUE(counts->GapsUntouched());
    }
  }
  EXPECT_TRUE(problem.grad.buffer() == grad_bytes);
  EXPECT_TRUE(problem.indices.buffer() == index_bytes);
}

}  // namespace

void ExpectRightEverywhere(BackwardProblem problem, int threads) {
  Expect(std::move(problem), threads, true);
}

void ExpectRightEverywhere(const BackwardCase& c, int threads) {
  SCOPED_TRACE(c.Describe());
  Expect(MakeProblem(c), threads, true);
}

void ExpectPromisedEverywhere(const BackwardCase& c, int threads) {
  SCOPED_TRACE(c.Describe());
  Expect(MakeProblem(c), threads, false);
}

}  // namespace onehot::test
