// aclnnFusedLinearCrossEntropyLossGrad: values against the definition, masks, bad targets.
#include <omp.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/aclnn/fused_call.h"

namespace onehot::test::fused {
namespace {

using ::testing::Each;

// With the softmax and without.
template <class Body>
void ForBothModes(Body&& body) {
  for (const bool softmax : {false, true}) {
    SCOPED_TRACE(softmax ? "softmax" : "recomputed");
    body(Way{&kGrad, softmax});
  }
}

TEST(FusedLinearCrossEntropyLossGrad, ManySizes) {
  struct {
    std::int64_t tokens, columns, classes;
  } constexpr kSizes[] = {{1, 1, 128},   {1, 64, 1000}, {7, 3, 129},  {8, 33, 128},
                          {9, 16, 1025}, {32, 16, 131}, {129, 7, 300}};
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const DType target_dtype : {DType::kI64, DType::kI32})
      for (const bool bool_mask : {false, true})
        ForBothModes([&](const Way& way) {
          for (const auto& [tokens, columns, classes] : kSizes) {
            SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(columns) + " x " + std::to_string(classes));
            Good(way, {.tokens = tokens,
                       .columns = columns,
                       .classes = classes,
                       .dtype = dtype,
                       .target_dtype = target_dtype,
                       .bool_mask = bool_mask})
                .ExpectDoneAndRight();
          }
        });
}

// Input and weight are {{1, 0}, {0, 1}, {1, 1}}, in both modes and dtypes; the shard's other rows have probability 0. Every
// number below was worked in double from the formulas.
struct ThreeClasses {
  static constexpr std::int64_t kClasses = 128;
  Good good;

  ThreeClasses(const Way& way, DType dtype)
      : good(way, {.tokens = 3, .columns = 2, .classes = kClasses, .dtype = dtype}) {
    good["input"].SetAll({1, 0, 0, 1, 1, 1});
    std::vector<double> weight(2 * kClasses, -30000), softmax(3 * kClasses);
    const double first[] = {1, 0, 0, 1, 1, 1};
    std::copy(first, first + 6, weight.begin());
    good["weight"].SetAll(weight);
    const double max[] = {1, 1, 2}, sum[] = {2 + std::exp(-1), 2 + std::exp(-1), 1 + 2 * std::exp(-1)};
    const double logits[] = {1, 0, 1, 0, 1, 1, 1, 1, 2};
    for (std::size_t b = 0; b < 3; ++b)
      for (std::size_t v = 0; v < 3; ++v) softmax[b * kClasses + v] = std::exp(logits[b * 3 + v] - max[b]) / sum[b];
    if (way.optional) {
      good["softmaxOptional"].SetAll(softmax);
    } else {
      good["logitsMaxOptional"].SetAll({max[0], max[1], max[2]});
      good["sumExpLogitsOptional"].SetAll({sum[0], sum[1], sum[2]});
    }
    SetMask(0);
    for (std::int64_t b = 0; b < 3; ++b) good["maskedTarget"].Set(b, b);
  }
  void SetMask(int bits) { good["targetMask"].Set(0, static_cast<std::uint8_t>(bits)); }
  void Expect(const std::vector<double>& grad, const std::vector<double>& input_grad,
              const std::vector<double>& weight_grad) {
    good.Clear();
    good["grad"].SetAll(grad);
    good.ExpectDoneAndRight();
    // Beside the digits of the numbers, half a unit in the last place of bf16 near 2, twice for dZ rounded to bf16.
    const double unit = good["input"].layout().dtype == DType::kF16 ? 0x1p-10 : 0x1p-7;
    for (std::size_t k = 0; k < 6; ++k) {
      EXPECT_NEAR(good["inputGradOut"].Value(static_cast<std::int64_t>(k)), input_grad[k], unit) << "input " << k;
      EXPECT_NEAR(good["weightGradOut"].Value(static_cast<std::int64_t>(k)), weight_grad[k], unit) << "weight " << k;
    }
    for (std::int64_t k = 6; k < 2 * kClasses; ++k) EXPECT_EQ(good["weightGradOut"].Value(k), 0) << k;
  }
};

TEST(FusedLinearCrossEntropyLossGrad, HandWorked) {
  ForBothModes([](const Way& way) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      ThreeClasses p(way, dtype);
      p.Expect({1, 1, 1}, {-.155362, .577681, .577681, -.155362, -.211942, -.211942},
               {-.365740, .367304, .367304, -.365740, -.001564, -.001564});
      // The upstream gradient differs by token, in sign too; and is 0.
      p.Expect({1, -2, .5}, {-.155362, .577681, -1.155362, .310725, -.105971, -.105971},
               {-.471710, -.204754, .261333, 1.261333, .210377, -1.056579});
      p.Expect({0, -2, .5}, {0, 0, -1.155362, .310725, -.105971, -.105971},
               {.105971, -.204754, .105971, 1.261333, -.211942, -1.056579});
      // Token 0's target elsewhere: no -1, the rest of its gradient stays.
      p.SetMask(1);
      p.good["maskedTarget"].Set(0, std::int64_t{-77});
      p.Expect({1, 1, 1}, {.844638, .577681, .577681, -.155362, -.211942, -.211942},
               {.634260, .367304, .367304, -.365740, -.001564, -.001564});
    }
  });
}

// Sums over tokens are not taken in 16 bits: 4096 of 1/128, and as many of -127/128.
TEST(FusedLinearCrossEntropyLossGrad, ManyTokensOnOneRow) {
  ForBothModes([](const Way& way) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      constexpr std::int64_t kTokens = 4096;
      Good good(way, {.tokens = kTokens, .columns = 1, .classes = 128, .dtype = dtype, .bool_mask = true});
      const auto all = [](std::int64_t count, double value) {
        return std::vector<double>(static_cast<std::size_t>(count), value);
      };
      good["grad"].SetAll(all(kTokens, 1));
      good["input"].SetAll(all(kTokens, 1));
      good["weight"].SetAll(all(128, 0));
      good["targetMask"].SetAll(all(kTokens, 0));
      good["maskedTarget"].SetAll(all(kTokens, 1));
      if (way.optional) {
        good["softmaxOptional"].SetAll(all(kTokens * 128, 1.0 / 128));
      } else {
        good["logitsMaxOptional"].SetAll(all(kTokens, 0));
        good["sumExpLogitsOptional"].SetAll(all(kTokens, 128));
      }
      good.ExpectDone();
      for (std::int64_t v = 0; v < 128; ++v) EXPECT_EQ(good["weightGradOut"].Value(v), v == 1 ? -4064 : 32) << v;
    }
  });
}

// p - 1 with p = .999 is -.001, which p rounded to 16 bits does not give.
TEST(FusedLinearCrossEntropyLossGrad, TargetProbabilityIsNotRoundedFirst) {
  ForBothModes([](const Way& way) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      Good good(way, {.tokens = 1, .columns = 1, .classes = 128, .dtype = dtype});
      good["grad"].SetAll({1});
      good["input"].SetAll({1});
      std::vector<double> weight(128, -30000), softmax(128);
      weight[0] = 0, softmax[0] = .999;
      good["weight"].SetAll(weight);
      good["targetMask"].SetAll({0, 0});
      good["maskedTarget"].SetAll({0});
      if (way.optional) {
        good["softmaxOptional"].SetAll(softmax);
      } else {
        good["logitsMaxOptional"].SetAll({0});
        good["sumExpLogitsOptional"].SetAll({1 / .999});
      }
      good.ExpectDone();
      // p in f32 is off by 2^-24 and exp, sum and quotient by some more; bf16 has a half unit of 2^-18.
      EXPECT_NEAR(good["weightGradOut"].Value(0), -.001, dtype == DType::kF16 ? 0x1p-20 : 0x1p-17);
    }
  });
}

// Each mask of one bit, on 17 tokens, and bits that no token has.
TEST(FusedLinearCrossEntropyLossGrad, MaskBitsCountFromTheLeastSignificant) {
  ForBothModes([](const Way& way) {
    for (std::int64_t masked = 0; masked < 17; ++masked) {
      Good good(way, {.tokens = 17, .columns = 1});
      good["maskedTarget"].SetAll(std::vector<double>(17, 3));
      good["maskedTarget"].Set(masked, std::int64_t{131});  // out of range, were it read
      for (std::int64_t byte = 0; byte < 4; ++byte)
        good["targetMask"].Set(byte, static_cast<std::uint8_t>(byte == masked / 8 ? 1 << masked % 8 : 0));
      good["targetMask"].Set(3, std::uint8_t{0xFF});
      good.ExpectDoneAndRight();
      good["targetMask"].Set(2, static_cast<std::uint8_t>(good["targetMask"].Get<std::uint8_t>(2) | 0xFE));
      const auto results = good.Results();
      good.ExpectDone();
      EXPECT_EQ(good.Results(), results);
    }
  });
}

TEST(FusedLinearCrossEntropyLossGrad, ShortestMask) {
  ForBothModes([](const Way& way) {
    for (const std::int64_t tokens : {1, 7, 8, 9, 16}) {
      Good good(way, {.tokens = tokens});
      good.call["targetMask"].dims = {(tokens + 7) / 8};
      good.ExpectDoneAndRight();
    }
  });
}

TEST(FusedLinearCrossEntropyLossGrad, BadTargetIsNamedAndNothingIsWritten) {
  ForBothModes([](const Way& way) {
    for (const bool bool_mask : {false, true})
      for (const std::int64_t bad :
           {std::int64_t{131}, std::int64_t{-1}, std::int64_t{1} << 31, (std::int64_t{1} << 32) + 1,
            std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
        Good good(way, {.bool_mask = bool_mask});
        good["maskedTarget"].Set(4, bad);
        good["maskedTarget"].Set(9, std::int64_t{444});  // the first one is named
        good.ExpectBadData("maskedTarget[4] = " + std::to_string(bad) + " is outside [0, 131)");
      }
    Good narrow(way, {.target_dtype = DType::kI32});
    narrow["maskedTarget"].Set(10, std::int32_t{-5});
    narrow.ExpectBadData("maskedTarget[10] = -5 is outside [0, 131)");
    Good none(way, {.columns = 0});  // whatever there is to compute
    none["maskedTarget"].Set(0, std::int64_t{131});
    none.ExpectBadData("maskedTarget[0] = 131 is outside [0, 131)");
  });
}

TEST(FusedLinearCrossEntropyLossGrad, BadTargetIsReportedOnceByTheNextSynchronise) {
  ForBothModes([](const Way& way) {
    Good good(way);
    good["maskedTarget"].Set(0, std::int64_t{131});
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
    Prepared call(good.call);
    EXPECT_EQ(call.Launch(stream), ACLNN_ERR_PARAM_INVALID);
    TakeMessage();
    EXPECT_EQ(aclrtSynchronizeStream(stream), 507015);
    EXPECT_EQ(TakeMessage(), "maskedTarget[0] = 131 is outside [0, 131)");
    EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    good.ExpectUntouched();
    EXPECT_EQ(call.Launch(stream), ACLNN_ERR_PARAM_INVALID);  // it was spent
    EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
    TakeMessage();
  });
}

TEST(FusedLinearCrossEntropyLossGrad, NoTokens) {
  ForBothModes([](const Way& way) {
    for (const std::int64_t columns : {0, 5}) {
      Good good(way, {.tokens = 0, .columns = columns});
      good.ExpectDoneAndRight();
      EXPECT_THAT(good["weightGradOut"].Bytes(), Each(std::byte{0}));
      good.Clear();
      good.call["targetMask"].dims = {0};
      good.ExpectDoneAndRight();
    }
  });
}

TEST(FusedLinearCrossEntropyLossGrad, NoColumns) {
  ForBothModes([](const Way& way) { Good(way, {.columns = 0}).ExpectDoneAndRight(); });
}

// Given beside the softmax, maximum and sum are not looked at (contract 7.22, 7.30).
TEST(FusedLinearCrossEntropyLossGrad, StatisticsBesideSoftmaxAreNotRead) {
  Good good({&kGrad, true});
  float nan[11];
  std::fill(nan, nan + 11, NAN);
  good.call.specs[5] = TensorSpec{{11}, ACL_FLOAT, nan};
  good.call.specs[6] = TensorSpec{{11}, ACL_FLOAT, nan};
  good.ExpectDoneAndRight();
  const auto results = good.Results();
  good.Clear();
  good.call.specs[5] = TensorSpec{{3, 1}, ACL_INT8, nullptr};
  good.call.specs[6].reset();
  good.ExpectDoneAndRight();
  EXPECT_EQ(good.Results(), results);
}

TEST(FusedLinearCrossEntropyLossGrad, SameBitsAlways) {
  const int before = omp_get_max_threads();
  ForBothModes([](const Way& way) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      std::vector<std::vector<std::byte>> first;
      for (const int threads : {1, 2, 3, 7, 7}) {
        omp_set_num_threads(threads);
        Good good(way, {.tokens = 131, .columns = 33, .classes = 1300, .dtype = dtype});
        good.ExpectDone();
        if (first.empty()) first = good.Results();
        EXPECT_EQ(good.Results(), first) << threads << " threads";
      }
    }
  });
  omp_set_num_threads(before);
}

}  // namespace
}  // namespace onehot::test::fused
