// Embedding backward problems, made from one line each.
#ifndef TESTS_NATIVE_CASES_H_
#define TESTS_NATIVE_CASES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "onehot/embedding.h"
#include "tests/native/data.h"
#include "tests/native/targets.h"
#include "tests/native/tensor.h"

namespace onehot::test {

struct BackwardCase {
  std::int64_t N = 0, V = 0, D = 0;
  Spread spread = Spread::kUniform;
  std::int64_t hot = 0;  // above 0: row V / 2 is named exactly so often, whatever `spread` says
  DType grad = DType::kF32;
  std::optional<DType> out = std::nullopt;  // none: that of grad
  DType index = DType::kI64;
  std::optional<std::int64_t> padding_idx = std::nullopt;
  bool scale = false, accumulate = false, counts = false;
  Placed placed = Placed::kAnywhere;  // grad and out

  std::string Describe() const;
};

// The tensors of a problem, filled. out is NaN, or old values with NaN, -0 and infinities among them for accumulate.
struct BackwardProblem {
  Tensor grad, indices, out;
  std::optional<Tensor> counts;
  EmbeddingBackward options;

  BackwardProblem(Tensor grad_, Tensor indices_, Tensor out_)
      : grad(std::move(grad_)), indices(std::move(indices_)), out(std::move(out_)) {}
  EmbeddingBackward op();
};

BackwardProblem MakeProblem(const BackwardCase& c, std::uint64_t seed = 1);

// Old values for accumulate.
void FillOld(Tensor& out, std::uint64_t seed);

// Runs the problem on every target, each time from the same old outputs, with hostile scratch. Demands the promised
// bits of every implementation but "ref", one rounding of "ref", the counts, and that nothing outside the outputs'
// elements is written. The promised bits themselves must lie within their bound of the definition.
void ExpectRightEverywhere(BackwardProblem problem, int threads = 2);
void ExpectRightEverywhere(const BackwardCase& c, int threads = 2);

// The promised bits alone, without "ref" and the definition: for problems so large that these take seconds.
void ExpectPromisedEverywhere(const BackwardCase& c, int threads = 2);

}  // namespace onehot::test

#endif  // TESTS_NATIVE_CASES_H_
