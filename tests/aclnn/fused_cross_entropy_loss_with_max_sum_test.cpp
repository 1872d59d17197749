// aclnnFusedCrossEntropyLossWithMaxSum: values against the definition.
#include <omp.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/aclnn/fused_call.h"

namespace onehot::test::fused {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(FusedCrossEntropyLossWithMaxSum, ManySizes) {
  struct {
    std::int64_t tokens, classes;
  } constexpr kSizes[] = {{1, 1}, {1, 1000}, {7, 2}, {128, 256}, {32, 128}, {13, 1029}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const bool softmax : {false, true})
      for (const auto& [tokens, classes] : kSizes) {
        SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(classes) + " " + std::string(Name(dtype)));
        Good({&kLoss, softmax}, {.tokens = tokens, .classes = classes, .dtype = dtype}).ExpectDoneAndRight();
      }
}

TEST(FusedCrossEntropyLossWithMaxSum, HandWorked) {
  Good good({&kLoss, true}, {.tokens = 2, .classes = 3, .dtype = DType::kF32});
  good["logitsMax"].SetAll({1, 2});
  good["sumExpLogits"].SetAll({2.367879, 4});
  good["predictedLogits"].SetAll({0, -1.5});
  good["vocabParallelLogitsOptional"].SetAll({1, 0, 1, 2, 1, -kInfinity});
  good.ExpectDone();
  EXPECT_NEAR(good["lossOut"].Value(0), .861995, 1e-6);
  EXPECT_NEAR(good["lossOut"].Value(1), 1.386294 + 1.5, 1e-6);
  const double softmax[] = {.422319, .155362, .422319, .25, .0919699, 0};
  for (std::int64_t k = 0; k < 6; ++k) EXPECT_NEAR(good["softMaxOutOptional"].Value(k), softmax[k], 1e-6) << k;
}

// A loss of 11.15625, which f16 logits quantise; and one of ln 8 beside a maximum of 2^24.
TEST(FusedCrossEntropyLossWithMaxSum, LossIsThatOfFloats) {
  Good good({&kLoss, false}, {.tokens = 2});
  good["logitsMax"].SetAll({0, 0x1p24});
  good["sumExpLogits"].SetAll({70000, 8});
  good["predictedLogits"].SetAll({0, 0});
  good.ExpectDoneAndRight();
  EXPECT_NEAR(good["lossOut"].Value(0), 11.156251, 2e-6);
  EXPECT_NEAR(good["lossOut"].Value(1), 2.079442, 1e-6);
}

// A certain target has no loss: not even a rounding of it.
TEST(FusedCrossEntropyLossWithMaxSum, CertainTarget) {
  Good good({&kLoss, false}, {.tokens = 1});
  good["sumExpLogits"].SetAll({1});
  good["predictedLogits"].SetAll({0});
  good.ExpectDone();
  EXPECT_EQ(good["lossOut"].Value(0), 0);
}

TEST(FusedCrossEntropyLossWithMaxSum, EmptyTensors) {
  for (const bool softmax : {false, true})
    for (const std::int64_t tokens : {0, 11})
      for (const std::int64_t classes : {0, 131})
        Good({&kLoss, softmax}, {.tokens = tokens, .classes = classes}).ExpectDoneAndRight();
}

// Tensors of any kind, dead ones too: none is looked at (contract 7.11).
TEST(FusedCrossEntropyLossWithMaxSum, InputAndWeightAreIgnored) {
  for (const bool softmax : {false, true}) {
    Good good({&kLoss, softmax});
    float memory[4] = {};
    LiveTensor odd({2, 1, 2}, ACL_DOUBLE, memory), without_memory({3}, ACL_INT8, nullptr),
        dying({4}, ACL_FLOAT, memory);
    aclTensor* const dead = dying;
    dying.Destroy();
    for (aclTensor* any : {static_cast<aclTensor*>(odd), static_cast<aclTensor*>(without_memory), dead}) {
      good.Clear();
      const FusedCall::Tensors tensors(good.call);
      FusedOperator::Handles handles = tensors.handles;
      handles[kLoss.IndexOf("inputOptional")] = any;
      handles[kLoss.IndexOf("weightOptional")] = any;
      const Outcome outcome = RunBothPhases(
          [&](std::uint64_t* size, aclOpExecutor** executor) { return kLoss.phase1(handles, {}, size, executor); },
          kLoss.phase2);
      EXPECT_EQ(outcome.phase2, ACLNN_SUCCESS) << outcome.message;
      good.ExpectRight();
    }
  }
}

// Logits are for the softmax. Without it they are not looked at either (contract 7.30).
TEST(FusedCrossEntropyLossWithMaxSum, LogitsWithoutSoftmaxAreNotRead) {
  Good good({&kLoss, false});
  const std::size_t logits = kLoss.IndexOf("vocabParallelLogitsOptional");
  for (const TensorSpec& spec : {TensorSpec{{11, 131}, ACL_BF16, nullptr}, TensorSpec{{3}, ACL_INT64, nullptr}}) {
    good.Clear();
    good.call.specs[logits] = spec;
    good.ExpectDoneAndRight();
  }
}

TEST(FusedCrossEntropyLossWithMaxSum, SameBitsAlways) {
  const int before = omp_get_max_threads();
  std::vector<std::vector<std::byte>> first;
  for (const int threads : {1, 2, 3, 7})
    for (const bool softmax : {true, false, true}) {
      omp_set_num_threads(threads);
      Good good({&kLoss, softmax}, {.tokens = 301, .classes = 2051, .dtype = DType::kF32});
      good.ExpectDone();
      std::vector<std::vector<std::byte>> results = good.Results();
      if (first.empty()) first = results;
      if (!softmax) results.push_back(first.back());
      EXPECT_EQ(results, first) << threads << " threads";
    }
  omp_set_num_threads(before);
}

// One token's NaN, or infinite logit, leaves the others alone.
TEST(FusedCrossEntropyLossWithMaxSum, NaNStaysInItsToken) {
  Good good({&kLoss, true}), plain({&kLoss, true});
  good["logitsMax"].SetValue(3, NAN);
  good["predictedLogits"].SetValue(4, NAN);
  good.ExpectDone();
  plain.ExpectDone();
  for (std::int64_t b = 0; b < 11; ++b) {
    const double loss = good["lossOut"].Value(b);
    EXPECT_TRUE(b == 4 ? std::isnan(loss) : loss == plain["lossOut"].Value(b)) << b;
    for (std::int64_t v = 0; v < 131; ++v) {
      const double p = good["softMaxOutOptional"].Value(b * 131 + v);
      EXPECT_TRUE(b == 3 ? std::isnan(p) : p == plain["softMaxOutOptional"].Value(b * 131 + v)) << b << ", " << v;
    }
  }
}

}  // namespace
}  // namespace onehot::test::fused
