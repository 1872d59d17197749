// Linear cross entropy and its gradients against the definition, over sizes and dtypes, on everything that can run them.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/native/linear_cross_entropy_cases.h"
#include "tests/native/linear_cross_entropy_oracle.h"

namespace onehot::test {
namespace {

class LinearCrossEntropySizes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, LinearCrossEntropySizes, ::testing::ValuesIn(kGradientDTypes),
                         [](const auto& info) { return std::string(Name(info.param)); });

struct Size {
  std::int64_t N, H, V;
};

// Every N with every H; V goes through all of its values with each of them, and such that the largest of all three do not
// meet: the definition in long double would take seconds.
const std::vector<Size>& Sizes() {
  static const std::vector<Size> all = [] {
    constexpr std::int64_t kN[] = {0, 1, 2, 7, 33, 200}, kH[] = {0, 1, 3, 17, 64, 130};
    constexpr std::int64_t kV[] = {1, 2, 63, 64, 65, 130, 1100};
    std::vector<Size> sizes;
    for (std::size_t n = 0; n < 6; ++n)
      for (std::size_t h = 0; h < 6; ++h) {
        sizes.push_back({kN[n], kH[h], kV[(n + 2 * h + 1) % 7]});
        if ((n + h) % 3 == 0) sizes.push_back({kN[n], kH[h], kV[(n + 2 * h + 5) % 7]});
      }
    for (const Size& size : {Size{32, 130, 130}, {31, 17, 1100}, {5, 300, 65}}) sizes.push_back(size);
    return sizes;
  }();
  return all;
}

// Upstream gradients per position and of the whole, in turns; a few options so that every term has a size to get wrong.
TEST_P(LinearCrossEntropySizes, EqualTheDefinition) {
  std::uint64_t seed = 1;
  for (const Size& size : Sizes()) {
    // The larger in one dtype: it is the arithmetic that they are for. The largest would take seconds.
    if (size.N * size.H * size.V > (GetParam() == DType::kF32 ? 2000000 : 400000)) continue;
    LinearCrossEntropyCase c{.positions = {size.N}, .H = size.H, .V = size.V, .input = GetParam()};
    c.reduction = kReductions[seed % 3];
    c.bias = seed % 2 == 0;
    ExpectRightEverywhere(c, ++seed);
  }
}

TEST_P(LinearCrossEntropySizes, EqualTheDefinitionWithEverything) {
  std::uint64_t seed = 100;
  for (const Size& size : Sizes()) {
    if (size.N * size.H * size.V > 70000) continue;
    LinearCrossEntropyCase c = WithEverything({.positions = {size.N}, .H = size.H, .V = size.V, .input = GetParam()});
    c.reduction = kReductions[seed % 3];
    c.accumulate = seed % 2 == 0;
    ExpectRightEverywhere(c, ++seed);
  }
}

// Blocks of 1024 classes: one short of two, two, one more; the chain of grad.input runs through all of them.
TEST_P(LinearCrossEntropySizes, BlocksOfClasses) {
  for (const std::int64_t V : {1023, 1024, 1025, 2048, 2049, 4000})
    ExpectRightEverywhere({.positions = {5},
                           .H = 5,
                           .V = V,
                           .input = GetParam(),
                           .bias = true,
                           .label_smoothing = 0.1,
                           .reduction = Reduction::kNone,
                           .h = true});
}

// Long chains along H, and along the positions.
TEST_P(LinearCrossEntropySizes, LongChains) {
  ExpectRightEverywhere({.positions = {3}, .H = 5000, .V = 33, .input = GetParam()});
  ExpectRightEverywhere({.positions = {3001}, .H = 5, .V = 17, .input = GetParam(), .reduction = Reduction::kSum});
}

// Every size around the width of a vector.
TEST_P(LinearCrossEntropySizes, AroundVectors) {
  for (std::int64_t k = 1; k <= 34; ++k) {
    ExpectRightEverywhere({.positions = {3}, .H = k, .V = 5, .input = GetParam()}, 1);
    ExpectRightEverywhere({.positions = {3}, .H = 4, .V = k, .input = GetParam(), .bias = true}, 2);
    ExpectRightEverywhere({.positions = {k}, .H = 5, .V = 4, .input = GetParam(), .reduction = Reduction::kNone}, 3);
  }
}

// All positions have one target, and none has any.
TEST_P(LinearCrossEntropySizes, TargetsOfOneClass) {
  for (const std::int64_t y : {0, 36}) {
    LinearCrossEntropyProblem problem({.positions = {50}, .H = 11, .V = 37, .input = GetParam(), .ignored = 0});
    SetIndices(problem.target, std::vector<std::int64_t>(50, y));
    ExpectRightEverywhere(problem);
  }
  ExpectRightEverywhere({.positions = {50}, .H = 11, .V = 37, .input = GetParam(), .ignored = 1});
}

// Shapes of target: none at all, and many axes.
TEST_P(LinearCrossEntropySizes, Ranks) {
  for (const Dims& positions : {Dims{}, Dims{1}, Dims{2, 3}, Dims{2, 1, 3}, Dims{1, 2, 1, 2, 1, 2, 1}})
    for (const Reduction reduction : kReductions) {
      LinearCrossEntropyCase c =
          WithEverything({.positions = positions, .H = 6, .V = 10, .input = GetParam(), .reduction = reduction});
      c.ignored = positions.empty() ? 0 : 0.2;
      ExpectRightEverywhere(c);
    }
}

TEST_P(LinearCrossEntropySizes, TargetDTypes) {
  for (const DType target : kTargetDTypes)
    for (const std::int64_t ignore_index : {-100, 0, 5, 130})
      ExpectRightEverywhere({.positions = {30},
                             .H = 4,
                             .V = 110,
                             .input = GetParam(),
                             .target = target,
                             .ignore_index = ignore_index,
                             .ignored = 0.3});
}

// Nothing is asked for: no error. One output is asked for: it has the bits it has among the others.
TEST_P(LinearCrossEntropySizes, AnyOutputAlone) {
  LinearCrossEntropyProblem problem(
      WithEverything({.positions = {20}, .H = 19, .V = 70, .input = GetParam(), .result = DType::kF64}));
  BitsByGroup all;
  ExpectBitsEverywhere(problem, all);
  std::optional<TensorView> LinearCrossEntropy::*const fields[] = {
      &LinearCrossEntropy::loss,         &LinearCrossEntropy::lse,
      &LinearCrossEntropy::target_logit, &LinearCrossEntropy::log_probability,
      &LinearCrossEntropy::entropy,      &LinearCrossEntropy::argmax,
      &LinearCrossEntropy::total_weight};
  for (std::size_t only = 0; only <= kLinearResults; ++only) {
    LinearCrossEntropy op = problem.forward();
    op.grad = {}, op.upstream = {};
    for (std::size_t k = 0; k < kLinearResults; ++k)
      if (k != only) op.*fields[k] = std::nullopt;
    const std::vector<Tensor*> results = problem.results();
    OnTargets(op, problem.outputs(), {2}, [&](const Target& target) {
      for (std::size_t k = 0; k < kLinearResults; ++k) {
        if (k == only) {
          EXPECT_TRUE(SameBits(*results[k], all.Of(target)[k])) << kLinearOutputs[k];
        } else {
          for (const std::byte byte : results[k]->Bytes()) ASSERT_EQ(byte, std::byte{0xFF}) << kLinearOutputs[k];
        }
      }
    });
  }
}

}  // namespace
}  // namespace onehot::test
