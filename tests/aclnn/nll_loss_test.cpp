// The NLL losses of the C face: what they compute.
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/aclnn/nll_loss_call.h"
#include "tests/native/env.h"

namespace onehot::test::nll {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsNan;

TEST(NllLosses, HandWorked) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    GoodNll good(op, reduction);
    good.call.ExpectDone();
    good.ExpectRight();
  });
}

template <class Index>
void ExpectRightWithTargets(aclDataType dtype, Index ignored) {
  ForEachNll([&](const NllOperator& op, std::int64_t reduction) {
    GoodNll good(op, reduction);
    std::vector<Index> target{2, 0, ignored, 1};
    good.call["target"].dtype = dtype;
    good.call["target"].data = target.data();
    good.call.ignore_index = ignored;
    good.call.ExpectDone();
    good.ExpectRight();
  });
}

TEST(NllLosses, EveryTargetType) {
  ExpectRightWithTargets<std::int64_t>(ACL_INT64, std::numeric_limits<std::int64_t>::min());
  ExpectRightWithTargets<std::int64_t>(ACL_INT64, std::numeric_limits<std::int64_t>::max());
  ExpectRightWithTargets<std::int32_t>(ACL_INT32, -100);
  ExpectRightWithTargets<std::uint8_t>(ACL_UINT8, 255);
}

// All numbers of the case are exact in 16 bits.
TEST(NllLosses, EveryFloatingType) {
  for (const aclDataType dtype : {ACL_FLOAT16, ACL_BF16})
    ForEachNll([&](const NllOperator& op, std::int64_t reduction) {
      GoodNll good(op, reduction);
      std::vector<std::vector<std::uint16_t>> memory;
      for (std::size_t i = 0; i < op.tensors.size(); ++i) {
        if (op.tensors[i] == "target") continue;
        TensorSpec& spec = good.call.specs[i];
        std::size_t count = 1;
        for (const std::int64_t extent : spec.dims) count *= static_cast<std::size_t>(extent);
        std::vector<std::uint16_t> halves(count);
        for (std::size_t k = 0; k < count; ++k) {
          const float x = static_cast<const float*>(spec.data)[k];
          halves[k] = dtype == ACL_BF16 ? ToBF16(x) : aclFloatToFloat16(x);
        }
        memory.push_back(halves);
        spec.data = memory.back().data();
        spec.dtype = dtype;
      }
      good.call.ExpectDone();
      const auto floats = [&](std::string_view tensor, std::size_t count) {
        std::vector<float> values;
        for (std::size_t k = 0; k < count; ++k) {
          const std::uint16_t x = static_cast<const std::uint16_t*>(good.call[tensor].data)[k];
          values.push_back(dtype == ACL_BF16 ? FromBF16(x) : aclFloat16ToFloat(x));
        }
        return values;
      };
      good.ExpectRight(floats("out", good.out.size()), floats(op.total_weight(), 1));
    });
}

TEST(NllLosses, ClassThatIsIgnored) {
  // Class 0, of the second position, counts no more: 5 * 2 + 2 * 4 = 18, 5 + 2 = 7.
  for (const NllOperator* op : kNllOperators) {
    GoodNll good(*op, kSum);
    good.target[2] = 0;
    good.call.ignore_index = 0;
    good.call.ExpectDone();
    if (op->backward) {
      EXPECT_EQ(good.out, good.Laid({{0, 0, -20}, {0, 0, 0}, {0, 0, 0}, {0, -8, 0}}));
    } else {
      EXPECT_THAT(good.out, ElementsAre(18));
      EXPECT_THAT(good.total_weight, ElementsAre(7));
    }
  }
}

TEST(NllLosses, AreLinearInTheWeight) {
  for (const NllOperator* op : kNllOperators) {
    GoodNll good(*op, kSum);
    good.weight = {-1, 2, 0};
    good.call.ExpectDone();
    if (op->backward) {
      EXPECT_EQ(good.out, good.Laid({{0, 0, 0}, {4, 0, 0}, {0, 0, 0}, {0, -8, 0}}));
    } else {
      EXPECT_THAT(good.out, ElementsAre(-1 + 8));
      EXPECT_THAT(good.total_weight, ElementsAre(1));
    }
  }
}

// ---- One loss: tensors of one element, and of any rank.

TEST(NllLosses, OneElementOfAnyRank) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    for (const std::size_t rank : {0, 1, 2, 3, 4, 8}) {
      GoodNll good(op, reduction);
      if (reduction != kNone) good.call[op.per_loss()].dims.assign(rank, 1);
      good.call[op.total_weight()].dims.assign(rank, 1);
      good.call.ExpectDone();
      good.ExpectRight();
    }
  });
}

// self [C], target [].
TEST(NllLosses, OnePositionWithoutAnAxis) {
  std::vector<float> self{-9, -4, -9}, weight{1, 2, 5}, grad{.5f};
  std::int64_t target = 1;
  for (const std::int64_t reduction : {kNone, kMean, kSum})
    for (const std::size_t rank : {0, 1, 3}) {
      const std::vector<std::int64_t> one(rank, 1);
      std::vector<float> loss{NAN}, total{NAN}, out(3, NAN);
      const NllCall forward{&kNllLoss,
                            {{{3}, ACL_FLOAT, self.data()},
                             {{}, ACL_INT64, &target},
                             {{3}, ACL_FLOAT, weight.data()},
                             {one, ACL_FLOAT, loss.data()},
                             {one, ACL_FLOAT, total.data()}},
                            reduction};
      forward.ExpectDone();
      EXPECT_EQ(loss[0], reduction == kMean ? 4 : 8);
      EXPECT_EQ(total[0], reduction == kNone ? 0 : 2);
      const NllCall backward{&kNllLossBackward,
                             {{one, ACL_FLOAT, grad.data()},
                              {{3}, ACL_FLOAT, self.data()},
                              {{}, ACL_INT64, &target},
                              {{3}, ACL_FLOAT, weight.data()},
                              {one, ACL_FLOAT, total.data()},
                              {{3}, ACL_FLOAT, out.data()}},
                             reduction};
      backward.ExpectDone();
      EXPECT_THAT(out, ElementsAre(0, reduction == kMean ? -.5f : -1, 0));
    }
}

// ---- totalWeight of backward.

TEST(NllLossBackward, TotalWeightIsTakenAsItIsGiven) {
  for (const NllOperator* op : {&kNllLossBackward, &kNllLoss2dBackward}) {
    GoodNll good(*op, kMean);
    good.total_weight[0] = 16;  // not 8, which it would be
    good.call.ExpectDone();
    EXPECT_EQ(good.out, good.Laid({{0, 0, -1.25f}, {-.25f, 0, 0}, {0, 0, 0}, {0, -.5f, 0}}));
    good.total_weight[0] = 0;
    good.call.ExpectDone();
    const float inf = INFINITY;
    EXPECT_EQ(good.out, good.Laid({{0, 0, -inf}, {-inf, 0, 0}, {0, 0, 0}, {0, -inf, 0}}));
  }
}

// What the other reductions do not process may be anything that is not null.
TEST(NllLossBackward, TotalWeightIsNotLookedAtButForMean) {
  for (const NllOperator* op : {&kNllLossBackward, &kNllLoss2dBackward})
    for (const std::int64_t reduction : {kNone, kSum}) {
      const auto runs = [&](const TensorSpec& spec) {
        GoodNll good(*op, reduction);
        good.call["totalWeight"] = spec;
        good.call.ExpectDone();
        good.ExpectRight();
      };
      float nan = NAN;
      runs({{1}, ACL_FLOAT, &nan});
      runs({{1}, ACL_FLOAT, nullptr});
      runs({{2, 0, 3}, ACL_STRING, nullptr});
      runs({{1}, ACL_DOUBLE, &nan, {}, std::numeric_limits<std::int64_t>::max(), ACL_FORMAT_FRACTAL_NZ});

      GoodNll good(*op, reduction);  // a handle that is none
      const NllCall::Tensors tensors(good.call);
      NllOperator::Handles handles = tensors.handles;
      handles[op->IndexOf("totalWeight")] = reinterpret_cast<aclTensor*>(&nan);
      const Outcome outcome =
          RunBothPhases([&](std::uint64_t* size,
                            aclOpExecutor** executor) { return op->phase1(handles, reduction, -100, size, executor); },
                        op->phase2);
      EXPECT_EQ(outcome.phase2, ACLNN_SUCCESS) << outcome.message;
      good.ExpectRight();
    }
}

// ---- Nothing to do.

// Losses over no positions, and with the extents of empty pictures in every place.
TEST(NllLosses, OverNothing) {
  for (const std::vector<std::int64_t>& logits :
       {std::vector<std::int64_t>{0, 3, 5, 7}, {2, 3, 0, 7}, {2, 3, 5, 0}, {0, 0, 0, 0}, {0, 3}, {0, 0}}) {
    const bool pictures = logits.size() == 4;
    std::vector<std::int64_t> positions = logits;
    positions.erase(positions.begin() + 1);
    std::vector<float> weight{1, 2, 5}, grad{1}, total{NAN};
    for (const std::int64_t reduction : {kNone, kMean, kSum}) {
      std::vector<float> loss{NAN};
      total[0] = NAN;
      const std::vector<std::int64_t> losses = reduction == kNone ? positions : std::vector<std::int64_t>{};
      const NllCall forward{pictures ? &kNllLoss2d : &kNllLoss,
                            {{logits, ACL_FLOAT, nullptr},
                             {positions, ACL_INT64, nullptr},
                             {{logits[1]}, ACL_FLOAT, weight.data()},
                             {losses, ACL_FLOAT, reduction == kNone ? nullptr : loss.data()},
                             {{}, ACL_FLOAT, total.data()}},
                            reduction};
      forward.ExpectDone();
      EXPECT_EQ(loss[0] == 0, reduction == kSum);  // it is NaN for mean, and not there for none
      EXPECT_EQ(total[0], 0);
      const NllCall backward{pictures ? &kNllLoss2dBackward : &kNllLossBackward,
                             {{losses, ACL_FLOAT, reduction == kNone ? nullptr : grad.data()},
                              {logits, ACL_FLOAT, nullptr},
                              {positions, ACL_INT64, nullptr},
                              {{logits[1]}, ACL_FLOAT, weight.data()},
                              {{}, ACL_FLOAT, total.data()},
                              {logits, ACL_FLOAT, nullptr}},
                             reduction};
      backward.ExpectDone();
    }
  }
}

// NaN may be what was there before: every loss is written, so these start as something else.
TEST(NllLosses, EverythingIgnored) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    GoodNll good(op, reduction);
    good.target.assign(4, 9);
    good.call.ignore_index = 9;
    if (op.backward) {
      good.total_weight[0] = 0;
      for (float& x : good.grad_output) x = NAN;
    } else {
      std::ranges::fill(good.out, -7.0f);
    }
    good.call.ExpectDone();
    if (op.backward || reduction != kMean) {
      EXPECT_THAT(good.out, Each(0.0f));
      for (const float x : good.out) EXPECT_FALSE(std::signbit(x));
    } else {
      EXPECT_THAT(good.out, ElementsAre(IsNan()));
    }
    EXPECT_EQ(good.total_weight[0], 0);
  });
}

TEST(NllLosses, NoClasses) {
  std::vector<std::int64_t> target{-100, -100};
  std::vector<float> loss(2, NAN), total{NAN};
  NllCall forward{&kNllLoss,
                  {{{2, 0}, ACL_FLOAT, nullptr},
                   {{2}, ACL_INT64, target.data()},
                   {{0}, ACL_FLOAT, nullptr},
                   {{2}, ACL_FLOAT, loss.data()},
                   {{1}, ACL_FLOAT, total.data()}},
                  kNone};
  forward.ExpectDone();
  EXPECT_THAT(loss, ElementsAre(0, 0));
  target[1] = 0;
  const Outcome outcome = forward.Run();
  EXPECT_EQ(outcome.phase2, ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(outcome.message, "target[1] = 0 is outside [0, 0)");
}

// ---- Sums.

// 90000 pixels of weight 1: the total is beyond f16, the mean is not.
TEST(NllLoss2d, TotalWeightBeyondHalfPrecision) {
  const std::uint16_t one = aclFloatToFloat16(1), loss_of_each = aclFloatToFloat16(-1.5f);
  std::uint16_t self = loss_of_each, weight = one, loss = 0xFFFF, total = 0xFFFF;
  std::uint8_t target = 0;
  const NllCall call{&kNllLoss2d,
                     {{{1, 1, 300, 300}, ACL_FLOAT16, &self, {{0, 0, 0, 0}}},
                      {{1, 300, 300}, ACL_UINT8, &target, {{0, 0, 0}}},
                      {{1}, ACL_FLOAT16, &weight},
                      {{}, ACL_FLOAT16, &loss},
                      {{}, ACL_FLOAT16, &total}}};
  call.ExpectDone();
  EXPECT_EQ(aclFloat16ToFloat(loss), 1.5f);
  EXPECT_EQ(aclFloat16ToFloat(total), INFINITY);
}

// bf16(-1.3) = -1.296875 and bf16(.3) = .30078125: 100000 equal terms have their own value as mean.
TEST(NllLoss, MeanOfHalvesIsRoundedOnce) {
  std::uint16_t self = 0xBFA6, weight = 0x3E9A, loss = 0xFFFF, total = 0xFFFF;
  std::int64_t target = 0;
  const NllCall call{&kNllLoss,
                     {{{100000, 1}, ACL_BF16, &self, {{0, 0}}},
                      {{100000}, ACL_INT64, &target, {{0}}},
                      {{1}, ACL_BF16, &weight},
                      {{}, ACL_BF16, &loss},
                      {{}, ACL_BF16, &total}}};
  call.ExpectDone();
  EXPECT_EQ(FromBF16(self), -1.296875f);
  EXPECT_EQ(FromBF16(loss), 1.296875f);
  EXPECT_EQ(FromBF16(total), 30080);  // 30078.125, in bf16 a multiple of 128
}

TEST(NllLosses, SameBitsOnAnyNumberOfThreads) {
  constexpr std::int64_t kN = 3, kC = 7, kH = 61, kW = 127;
  std::vector<float> self(kN * kC * kH * kW), weight(kC), grad(kN * kH * kW);
  std::vector<std::uint8_t> target(kN * kH * kW);
  std::uint32_t state = 1;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  for (float& x : self) x = -static_cast<float>(next()) * 0x1p-29f;
  for (float& x : weight) x = static_cast<float>(next()) * 0x1p-32f;
  for (float& x : grad) x = static_cast<float>(static_cast<std::int32_t>(next())) * 0x1p-31f;
  for (std::uint8_t& t : target) {
    const bool ignored = next() >> 28 == 0;
    t = static_cast<std::uint8_t>(ignored ? 255U : (next() >> 16) % kC);
  }
  const int before = omp_get_max_threads();
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 7}) {
    omp_set_num_threads(threads);
    std::vector<float> results(2 + self.size(), NAN);
    const NllCall forward{&kNllLoss2d,
                          {{{kN, kC, kH, kW}, ACL_FLOAT, self.data()},
                           {{kN, kH, kW}, ACL_UINT8, target.data()},
                           {{kC}, ACL_FLOAT, weight.data()},
                           {{}, ACL_FLOAT, &results[0]},
                           {{}, ACL_FLOAT, &results[1]}},
                          kMean,
                          255};
    forward.ExpectDone();
    const NllCall backward{&kNllLoss2dBackward,
                           {{{kN, kH, kW}, ACL_FLOAT, grad.data()},
                            {{kN, kC, kH, kW}, ACL_FLOAT, self.data()},
                            {{kN, kH, kW}, ACL_UINT8, target.data()},
                            {{kC}, ACL_FLOAT, weight.data()},
                            {{}, ACL_FLOAT, &results[1]},
                            {{kN, kC, kH, kW}, ACL_FLOAT, &results[2]}},
                           kNone,
                           255};
    backward.ExpectDone();
    if (first.empty()) first = results;
    EXPECT_EQ(std::memcmp(first.data(), results.data(), results.size() * sizeof(float)), 0) << threads;
  }
  omp_set_num_threads(before);
}

// Positions beyond 2^31 elements of the gradient, in 4 GiB.
TEST(NllLoss2dBackward, OffsetsBeyondThirtyTwoBits) {
  if (!BigTestsWanted()) GTEST_SKIP() << "set ONEHOT_BIG_TESTS=1";
  constexpr std::int64_t kC = 32769, kW = 65536;
  std::vector<std::uint16_t> out(static_cast<std::size_t>(kC * kW), 0xFFFF);
  std::vector<std::int32_t> target(kW, kC - 1);
  target[0] = 0;
  std::uint16_t one = ToBF16(1), grad = ToBF16(1);
  const NllCall call{&kNllLoss2dBackward,
                     {{{1}, ACL_BF16, &grad},
                      {{1, kC, 1, kW}, ACL_BF16, &one, {{0, 0, 0, 0}}},
                      {{1, 1, kW}, ACL_INT32, target.data()},
                      {{kC}, ACL_BF16, &one, {{0}}},
                      {{1}, ACL_BF16, &one},
                      {{1, kC, 1, kW}, ACL_BF16, out.data()}},
                     kSum};
  call.ExpectDone();
  EXPECT_EQ(out[0], ToBF16(-1));
  EXPECT_EQ(out[out.size() - kW], 0);
  EXPECT_TRUE(std::all_of(out.end() - kW + 1, out.end(), [](std::uint16_t x) { return x == ToBF16(-1); }));
  EXPECT_TRUE(std::all_of(out.begin() + 1, out.end() - kW, [](std::uint16_t x) { return x == 0; }));
}

}  // namespace
}  // namespace onehot::test::nll
