// skip_below: what is left out stays within the promised bound, only that is left out, and how a run is done does not matter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "onehot/linear_cross_entropy.h"
#include "tests/native/targets.h"
#include "tests/native/tensor.h"

namespace onehot::test {
namespace {

constexpr double kUnit = 0x1p-24;

// Probabilities rise with the class, so that most tiles of early classes are tiny, where no target is among them. More than
// one group of tokens.
struct Peaked {
  static constexpr std::int64_t N = 700, H = 21, V = 1300;
  Tensor x, w;
  std::vector<float> bias, grad;
  std::vector<std::int64_t> target;

  explicit Peaked(DType input = DType::kF32) : x(input, {N, H}), w(input, {V, H}), bias(V), grad(N), target(N) {
    for (std::int64_t i = 0; i < N; ++i) {
      for (std::int64_t h = 0; h < H; ++h) x.SetValue(i * H + h, std::sin(0.7 * static_cast<double>(i * H + h)));
      grad[static_cast<std::size_t>(i)] = static_cast<float>(0.2 + 0.8 * std::cos(static_cast<double>(i)));
      target[static_cast<std::size_t>(i)] = i % 13 == 5 ? -100 : i * i % 97;
    }
    for (std::int64_t v = 0; v < V; ++v) {
      bias[static_cast<std::size_t>(v)] = -0.02F * static_cast<float>(v);
      for (std::int64_t h = 0; h < H; ++h) w.SetValue(v * H + h, std::cos(0.3 * static_cast<double>(v + 5 * h)));
    }
  }

  struct Gradients {
    std::vector<float> input, weight, bias;
    bool operator==(const Gradients& other) const {
      const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
        return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
      };
      return same(input, other.input) && same(weight, other.weight) && same(bias, other.bias);
    }
  };
  Gradients Run(double skip_below, int threads = 0, std::optional<std::int64_t> max_workspace = std::nullopt) const {
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    Gradients out{std::vector<float>(N * H, kNaN), std::vector<float>(V * H, kNaN), std::vector<float>(V, kNaN)};
    LinearCrossEntropy problem{.input = x.view(), .weight = w.view(), .target = {target.data(), DType::kI64, {N}}};
    problem.options.bias = ConstTensorView(bias.data(), DType::kF32, {V});
    problem.options.logit_scale = -1.5;
    problem.options.loss.reduction = Reduction::kNone;
    problem.options.skip_below = skip_below;
    problem.options.max_workspace = max_workspace;
    problem.upstream.loss = ConstTensorView(grad.data(), DType::kF32, {N});
    problem.grad.input = TensorView(out.input.data(), DType::kF32, {N, H});
    problem.grad.weight = TensorView(out.weight.data(), DType::kF32, {V, H});
    problem.grad.bias = TensorView(out.bias.data(), DType::kF32, {V});
    const Result<Plan> plan = Prepare(problem);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    if (!plan.ok()) return out;
    std::vector<std::byte> scratch(plan->scratch_bytes(), std::byte{0xFF});
    RunOptions options;
    options.threads = threads;
    const Status status = plan->Run(scratch.data(), scratch.size(), options);
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }
};

double LargestApart(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

// Everything that skips, by the kind of its products.
struct Kind {
  const char* implementation;
  DType input;
};

class LinearCrossEntropySkip : public testing::TestWithParam<Kind> {
 protected:
  LinearCrossEntropySkip() : force_("ONEHOT_FORCE", GetParam().implementation) {}
  void SetUp() override {
    const Peaked problem(GetParam().input);
    LinearCrossEntropy any{.input = problem.x.view(),
                           .weight = problem.w.view(),
                           .target = {problem.target.data(), DType::kI64, {Peaked::N}}};
    if (Prepare(any).status().code() == Code::kUnsupported) GTEST_SKIP() << "not on this CPU";
  }
  // What rounding alpha du to 8 bits makes of it, at most.
  double Rounded(double du) const { return ProductsAreBf16() ? du * (1 + 0x1p-8) : du; }
  bool ProductsAreBf16() const { return std::string(GetParam().implementation) == "cpu:bf16"; }

 private:
  const ScopedEnv force_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, LinearCrossEntropySkip,
                         testing::Values(Kind{"cpu:fused", DType::kF32}, Kind{"cpu:fused", DType::kBF16},
                                         Kind{"cpu:bf16", DType::kBF16}),
                         [](const auto& info) {
                           return std::string(info.param.implementation).substr(4) + "_" +
                                  std::string(Name(info.param.input));
                         });

TEST_P(LinearCrossEntropySkip, StaysWithinTheBound) {
  const Peaked problem(GetParam().input);
  const Peaked::Gradients exact = problem.Run(0);
  for (const double bound : {1e-30, 1e-6, 1e-3, 10.0}) {
    SCOPED_TRACE(bound);
    const Peaked::Gradients got = problem.Run(bound);
    // |x|, |w| <= 1. Chains with other terms round otherwise, each by at most its length in units of the sum of its terms:
    // alpha du of a token adds up to at most 2 |alpha g| <= 3 over classes, and is at most 1.5 for each of N tokens.
    const double V = Peaked::V, N = Peaked::N;
    EXPECT_LE(LargestApart(got.input, exact.input), Rounded(bound) * V + 2 * V * kUnit * Rounded(3));
    EXPECT_LE(LargestApart(got.weight, exact.weight), Rounded(bound) * N + 2 * N * kUnit * Rounded(1.5) * N);
    EXPECT_LE(LargestApart(got.bias, exact.bias), bound * N + 2 * N * kUnit * 1.5 * N);
  }
}

// A bound above all leaves nothing, one below all everything, one between part.
TEST_P(LinearCrossEntropySkip, LeavesOutWhatIsBelow) {
  const Peaked problem(GetParam().input);
  const Peaked::Gradients exact = problem.Run(0), none = problem.Run(10), some = problem.Run(1e-3);
  EXPECT_TRUE(problem.Run(1e-38) == exact);
  for (const auto* gradient : {&none.input, &none.weight, &none.bias})
    for (const float value : *gradient) ASSERT_EQ(value, 0);
  EXPECT_FALSE(some == exact);
  EXPECT_GT(LargestApart(some.input, none.input), 0.1);
}

TEST_P(LinearCrossEntropySkip, ThreadsAndWorkspaceDoNotMatter) {
  const Peaked problem(GetParam().input);
  const Peaked::Gradients want = problem.Run(1e-4, 1);
  for (const int threads : {1, 2, 3, 7})
    for (const std::int64_t workspace : {0, 2 << 20, 4 << 20, 6 << 20, 64 << 20}) {
      SCOPED_TRACE(std::to_string(threads) + " threads, " + std::to_string(workspace) + " bytes");
      EXPECT_TRUE(problem.Run(1e-4, threads, workspace) == want);
    }
}

TEST_P(LinearCrossEntropySkip, KeepsNaN) {
  Peaked problem(GetParam().input);
  problem.x.SetValue(3 * Peaked::H, std::numeric_limits<double>::quiet_NaN());
  const Peaked::Gradients got = problem.Run(10);
  EXPECT_TRUE(std::isnan(got.input[3 * Peaked::H]));
  EXPECT_EQ(got.input[12 * Peaked::H], 0);
  EXPECT_TRUE(std::isnan(got.weight[0]));
}

TEST(LinearCrossEntropySkipOptions, RefDoesNot) {
  const ScopedEnv force("ONEHOT_FORCE", "ref");
  const Peaked problem;
  EXPECT_TRUE(problem.Run(10) == problem.Run(0));
}

TEST(LinearCrossEntropySkipOptions, Refusals) {
  const float x = 0;
  const std::int64_t target = 0;
  LinearCrossEntropy problem{
      .input = {&x, DType::kF32, {1, 1}}, .weight = {&x, DType::kF32, {1, 1}}, .target = {&target, DType::kI64, {1}}};
  problem.options.skip_below = -1;
  EXPECT_EQ(Check(problem).code(), Code::kBadArgument);
  EXPECT_EQ(Check(problem).message(), "skip_below: must be finite and not negative, is -1");
  problem.options.skip_below = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Check(problem).message(), "skip_below: must be finite and not negative, is inf");
  problem.options.skip_below = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Check(problem).code(), Code::kBadArgument);
  problem.options.skip_below = 0, problem.options.max_workspace = -1;
  EXPECT_EQ(Check(problem).message(), "max_workspace: must not be negative, is -1");
}

}  // namespace
}  // namespace onehot::test
