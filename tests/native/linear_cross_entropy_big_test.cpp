// More logits than a 32-bit integer counts: the last rows are right, in both orders, with either kind of products.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "onehot/linear_cross_entropy.h"
#include "tests/native/tensor.h"

namespace onehot::test {
namespace {

constexpr std::int64_t kN = 43200, kV = 50000, kH = 8;  // 2.16e9 logits
static_assert(kN * kV > std::numeric_limits<std::int32_t>::max());

class LinearCrossEntropyLarge : public ::testing::TestWithParam<DType> {
 protected:
  LinearCrossEntropyLarge() : x_(GetParam(), {kN, kH}), w_(GetParam(), {kV, kH}), target_(kN) {
    for (std::int64_t k = 0; k < x_.numel(); ++k) x_.SetValue(k, std::sin(0.37 * static_cast<double>(k)));
    for (std::int64_t k = 0; k < w_.numel(); ++k) w_.SetValue(k, std::cos(0.11 * static_cast<double>(k)));
    x_values_ = x_.Values(), w_values_ = w_.Values();
    for (std::int64_t i = 0; i < kN; ++i) target_[static_cast<std::size_t>(i)] = i % 7 == 0 ? kV - 1 : i * i % kV;
  }

  // 2^-24 n for a chain of n products of numbers of at most 1, and as much again for exponentials: |z| <= 8.
  double Logit(std::int64_t i, std::int64_t v) const {
    double z = 0;
    for (std::int64_t h = 0; h < kH; ++h) z += X(i, h) * W(v, h);
    return z;
  }
  double X(std::int64_t i, std::int64_t h) const { return x_values_[static_cast<std::size_t>(i * kH + h)]; }
  double W(std::int64_t v, std::int64_t h) const { return w_values_[static_cast<std::size_t>(v * kH + h)]; }
  double Lse(std::int64_t i) const {
    double sum = 0;
    for (std::int64_t v = 0; v < kV; ++v) sum += std::exp(Logit(i, v));
    return std::log(sum);
  }

  void ExpectRight(std::int64_t max_workspace) {
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> lse(kN, kNaN), dx(kN * kH, kNaN), dw(kV * kH, kNaN);
    const float one = 1;
    LinearCrossEntropy problem{.input = std::as_const(x_).view(),
                               .weight = std::as_const(w_).view(),
                               .target = {target_.data(), DType::kI64, {kN}}};
    problem.lse = TensorView(lse.data(), DType::kF32, {kN});
    problem.upstream.loss = ConstTensorView(&one, DType::kF32, {});
    problem.grad.input = TensorView(dx.data(), DType::kF32, {kN, kH});
    problem.grad.weight = TensorView(dw.data(), DType::kF32, {kV, kH});
    problem.options.loss.reduction = Reduction::kSum;
    problem.options.max_workspace = max_workspace;
    const Result<Plan> plan = Prepare(problem);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Status status = plan->Run();
    ASSERT_TRUE(status.ok()) << status.message();

    // A logit is off by at most 2 H units, |z| <= H; the sum of exponentials by V / 1024 folds and 16 lanes of 64 more.
    // Where alpha du is rounded to bf16, 2^-8 of each term.
    const double rounding = GetParam() == DType::kBF16 ? 0x1p-8 : 0;
    constexpr double kUnit = 0x1p-24, kLogit = 2 * kH * kH * kUnit, kSum = (kV / 1024 + 64 + 16) * kUnit;
    for (const std::int64_t i : {std::int64_t{0}, kN - 2, kN - 1}) {
      const double want = Lse(i);
      EXPECT_NEAR(lse[static_cast<std::size_t>(i)], want, kLogit + kSum + 16 * kUnit) << i;
      for (std::int64_t h = 0; h < kH; ++h) {
        double sum = -W(target_[static_cast<std::size_t>(i)], h);
        for (std::int64_t v = 0; v < kV; ++v) sum += std::exp(Logit(i, v) - want) * W(v, h);
        // Probabilities add up to 1, |w| <= 1: their relative error, and that of a chain of V sums below 2.
        EXPECT_NEAR(dx[static_cast<std::size_t>(i * kH + h)], sum, 2 * (kLogit + kSum) + 2 * kV * kUnit + 2 * rounding)
            << i << " " << h;
      }
    }
    // Columns of probabilities, from the lse that has just been checked, with its error.
    for (const std::int64_t v : {std::int64_t{0}, kV - 2, kV - 1}) {
      for (std::int64_t h = 0; h < kH; ++h) {
        double sum = 0, size = 0;
        for (std::int64_t i = 0; i < kN; ++i) {
          const auto k = static_cast<std::size_t>(i);
          const double p = std::exp(Logit(i, v) - static_cast<double>(lse[k])), g = p - (target_[k] == v ? 1 : 0);
          sum += g * X(i, h), size += std::abs(g * X(i, h));
        }
        EXPECT_NEAR(dw[static_cast<std::size_t>(v * kH + h)], sum, (2 * (kLogit + kSum) + kN * kUnit + rounding) * size)
            << v << " " << h;
      }
    }
  }

  Tensor x_, w_;
  std::vector<double> x_values_, w_values_;  // the same numbers
  std::vector<std::int64_t> target_;
};

INSTANTIATE_TEST_SUITE_P(DTypes, LinearCrossEntropyLarge, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(LinearCrossEntropyLarge, FourProducts) {
  ExpectRight(0);
}

// 4.3 GB of logits at once would be too much to ask: groups of positions, the last of which ends at the last one.
TEST_P(LinearCrossEntropyLarge, ThreeProducts) {
  ExpectRight(std::int64_t{256} << 20);
}

}  // namespace
}  // namespace onehot::test
