// The oracle of cross entropy against numbers worked by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/native/cross_entropy_cases.h"
#include "tests/native/cross_entropy_oracle.h"

namespace onehot::test {
namespace {

constexpr double kDigits = 5e-7;  // the numbers below have six

void ExpectNear(const Bounded& got, const std::vector<double>& want) {
  ASSERT_EQ(got.value.size(), want.size());
  for (std::size_t k = 0; k < want.size(); ++k) EXPECT_NEAR(static_cast<double>(got.value[k]), want[k], kDigits) << k;
}

CrossEntropyProblem Problem(CrossEntropyCase c, const std::vector<double>& logits,
                            const std::vector<std::int64_t>& targets) {
  c.input = DType::kF64;
  CrossEntropyProblem problem(c);
  problem.input.SetAll(logits);
  SetIndices(problem.target, targets);
  return problem;
}

// x W^T of x = W = [[1, 0], [0, 1], [1, 1]].
const std::vector<double> kSmall = {1, 0, 1, 0, 1, 1, 1, 1, 2};

// e / (2 e + 1) = .422319, 1 / (2 e + 1) = .155362, 1 / (2 + e) = .211942, e / (2 + e) = .576117;
// log(2 e + 1) = 1.861995, log(2 e + e^2) = 2.551445.
TEST(CrossEntropyOracle, SmallProblem) {
  CrossEntropyProblem problem = Problem({.dims = {3, 3}, .reduction = Reduction::kNone}, kSmall, {0, 1, 2});
  problem.grad_loss->SetAll({1, -2, .5});
  const CrossEntropyDefinition want = Define(problem.forward());
  ExpectNear(want.loss, {.861995, .861995, .551445});
  ExpectNear(want.lse, {1.861995, 1.861995, 2.551445});
  ExpectNear(want.log_probability, {-.861995, -.861995, -.551445});
  // 2 x .422319 x .861995 + .155362 x 1.861995; 2 x .211942 x 1.551445 + .576117 x .551445
  ExpectNear(want.entropy, {1.017357, 1.017357, .975328});
  EXPECT_EQ(want.argmax, (std::vector<std::int64_t>{0, 1, 2}));
  ExpectNear(want.total_weight, {0});
  ExpectNear(Define(problem.backward()),
             {-.577681, .155362, .422319, -.310725, 1.155362, -.844638, .105971, .105971, -.211942});

  problem = Problem({.dims = {3, 3}}, kSmall, {0, 1, 2});
  problem.grad_loss->SetAll({.5});
  ExpectNear(Define(problem.forward()).loss, {.758478});
  ExpectNear(Define(problem.forward()).total_weight, {3});
  // grad_loss / 3 times p - one-hot
  ExpectNear(Define(problem.backward()),
             {-.096280, .025894, .0703865, .025894, -.096280, .0703865, .0353237, .0353237, -.0706474});
}

TEST(CrossEntropyOracle, Ignored) {
  CrossEntropyProblem problem = Problem({.dims = {3, 3}, .ignore_index = 0}, kSmall, {0, 1, 2});
  const CrossEntropyDefinition want = Define(problem.forward());
  ExpectNear(want.loss, {(.861995 + .551445) / 2});
  ExpectNear(want.lse, {0, 1.861995, 2.551445});
  EXPECT_EQ(want.argmax, (std::vector<std::int64_t>{-1, 1, 2}));
  const Bounded gradient = Define(problem.backward());
  for (std::size_t v = 0; v < 3; ++v) EXPECT_EQ(gradient.value[v], 0);
}

TEST(CrossEntropyOracle, LabelSmoothing) {
  CrossEntropyProblem problem = Problem({.dims = {4}, .label_smoothing = .2}, {2, .5, -1, 1}, {0});
  ExpectNear(Define(problem.forward()).loss, {.770182});
}

// Two classes, z = [0, log 3]: p = [1/4, 3/4], lse = log 4. Weights 2 and 5, token weight 3, eps = .5, zeta = .1,
// target 0.
//   l  = .5 x 2 log 4 + .25 (2 log 4 + 5 log(4/3)) = 2.079442 + .359603 = 2.439044
//   q  = .1 (log 4)^2 = .192181
//   dl = .5 x 2 [p0 - 1, p1] + .25 (7 p - w) = [-.75, .75] + [-.0625, .0625] = [-.8125, .8125]
//   dq = 2 x .1 x log 4 p = [.069315, .207944]
TEST(CrossEntropyOracle, WeightsAndZLoss) {
  CrossEntropyCase c{.dims = {1, 2},
                     .weight = true,
                     .token_weight = true,
                     .label_smoothing = .5,
                     .z_loss = .1,
                     .reduction = Reduction::kSum};
  for (const Reduction reduction : kReductions) {
    c.reduction = reduction;
    CrossEntropyProblem problem = Problem(c, {0, std::log(3.0)}, {0});
    problem.weight->SetAll({2, 5});
    problem.token_weight->SetAll({3});
    problem.grad_loss->SetAll({1});
    const bool mean = reduction == Reduction::kMean;
    const double D = mean ? 6 : 1, D_z = mean ? 3 : 1;
    ExpectNear(Define(problem.forward()).loss, {3 * 2.439044 / D + 3 * .1921812 / D_z});
    ExpectNear(Define(problem.forward()).total_weight, {reduction == Reduction::kNone ? 0. : 6.});
    ExpectNear(Define(problem.backward()), {-3 * .8125 / D + 3 * .0693147 / D_z, 3 * .8125 / D + 3 * .2079442 / D_z});
  }
  c.reduction = Reduction::kMean, c.denominator = true;
  CrossEntropyProblem problem = Problem(c, {0, std::log(3.0)}, {0});
  problem.weight->SetAll({2, 5});
  problem.token_weight->SetAll({3});
  problem.denominator->SetAll({12});
  ExpectNear(Define(problem.forward()).loss, {(2.439044 + .1921812) / 4});
  ExpectNear(Define(problem.forward()).total_weight, {6});
}

// p = [1/4, 3/4], H = .25 log 4 + .75 log(4/3) = .562335.
//   r = 2: [2 x .75, -2 x .75]
//   h = 4: -4 p (log p + H) = [-(-.823959), -3 x .274653] = [.823959, -.823959]
TEST(CrossEntropyOracle, OtherUpstreamGradients) {
  CrossEntropyProblem problem = Problem({.dims = {1, 2}, .g = false, .r = true, .h = true}, {0, std::log(3.0)}, {0});
  problem.grad_log_probability->SetAll({2});
  problem.grad_entropy->SetAll({0});
  ExpectNear(Define(problem.forward()).entropy, {.562335});
  ExpectNear(Define(problem.backward()), {1.5, -1.5});
  problem.grad_log_probability->SetAll({0});
  problem.grad_entropy->SetAll({4});
  ExpectNear(Define(problem.backward()), {.823959, -.823959});
}

// c = 2, input = 2 atanh(1/2) = 1.098612 and 0: z = [1, 0], slope [3/4, 1]; p = [.731059, .268941].
TEST(CrossEntropyOracle, Softcap) {
  CrossEntropyProblem problem =
      Problem({.dims = {2}, .softcap = 2, .reduction = Reduction::kSum}, {2 * std::atanh(.5), 0}, {0});
  problem.grad_loss->SetAll({1});
  ExpectNear(Define(problem.forward()).loss, {.313262});
  ExpectNear(Define(problem.backward()), {-.75 * .268941, .268941});
}

TEST(CrossEntropyOracle, LargeCommonLogits) {
  CrossEntropyProblem problem = Problem({.dims = {8}}, std::vector<double>(8, 0x1p24), {3});
  ExpectNear(Define(problem.forward()).loss, {2.0794415});
}

TEST(CrossEntropyOracle, Infinities) {
  const double inf = HUGE_VAL;
  // The third class of the small problem is out: log(e + 1) - 1, log(1 + e) - 1, log 2
  CrossEntropyProblem problem =
      Problem({.dims = {3, 3}, .reduction = Reduction::kSum}, {1, 0, -inf, 0, 1, -inf, 1, 1, -inf}, {0, 1, 0});
  ExpectNear(Define(problem.forward()).loss, {1.319671});
  const Bounded gradient = Define(problem.backward());
  for (const std::size_t k : {2u, 5u, 8u}) EXPECT_EQ(gradient.value[k], 0);

  problem.c.label_smoothing = .1;
  EXPECT_EQ(Define(problem.forward()).loss.value[0], HUGE_VALL);
  problem.weight = Tensor(DType::kF64, {3});
  problem.weight->SetAll({1, 1, 0});
  // eps / 3 times 2 log(e + 1) - 1 twice and 2 log 2, the rest .9 times the sum above
  ExpectNear(Define(problem.forward()).loss, {.9 * 1.319671 + .1 / 3 * (2 * 1.626523 + 2 * .693147)});
}

// The bound must be what it says: within for half of it, outside for twice.
TEST(CrossEntropyOracle, BoundsBind) {
  Tensor got(DType::kF32, {3});
  Bounded want;
  want.Add(1, 4), want.Add(0, 1), want.Add(HUGE_VALL, 1);
  got.SetAll({1 + 0x1p-20, 0, HUGE_VAL});
  EXPECT_TRUE(Within(got, want, 0x1p-21));
  EXPECT_FALSE(Within(got, want, 0x1p-24));
  got.SetAll({1, 0x1p-21, HUGE_VAL});
  EXPECT_TRUE(Within(got, want, 0x1p-20));
  EXPECT_FALSE(Within(got, want, 0x1p-23));
  got.SetAll({1, 0, 1e30});
  EXPECT_FALSE(Within(got, want, 0x1p-20));
  got.SetAll({1, std::nan(""), HUGE_VAL});
  EXPECT_FALSE(Within(got, want, 0x1p-20));
}

}  // namespace
}  // namespace onehot::test
