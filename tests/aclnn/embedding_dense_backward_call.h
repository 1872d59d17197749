// A call of aclnnEmbeddingDenseBackward that is right, to be spoiled in one place.
#ifndef TESTS_ACLNN_EMBEDDING_DENSE_BACKWARD_CALL_H_
#define TESTS_ACLNN_EMBEDDING_DENSE_BACKWARD_CALL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/level2/aclnn_embedding_dense_backward.h"
#include "tests/aclnn/operator_call.h"

namespace onehot::test {

inline constexpr std::uint64_t kNone = ~std::uint64_t{0};

struct BackwardCall {
  TensorSpec grad, indices, out;
  std::uint64_t num_weights = 0, padding_idx = kNone;
  bool scale = false;

  Outcome Run() const {
    const LiveTensor g(grad), i(indices), o(out);
    return RunBothPhases(
        [&](std::uint64_t* size, aclOpExecutor** executor) {
          return aclnnEmbeddingDenseBackwardGetWorkspaceSize(g, i, num_weights, padding_idx, scale, o, size, executor);
        },
        aclnnEmbeddingDenseBackward);
  }
};

// A call that is right; tests spoil one thing each. Four positions, five rows, three columns.
struct GoodBackwardCall {
  std::vector<float> grad{1, 2, 3, 10, 20, 30, 100, 200, 300, 1000, 2000, 3000};
  std::vector<std::int64_t> indices{4, 1, 4, 0};
  std::vector<float> out = std::vector<float>(15, NAN);
  BackwardCall call{
      {{4, 3}, ACL_FLOAT, grad.data()}, {{4}, ACL_INT64, indices.data()}, {{5, 3}, ACL_FLOAT, out.data()}, 5};

  void ExpectRight() {
    EXPECT_THAT(out, ::testing::ElementsAre(1000, 2000, 3000, 10, 20, 30, 0, 0, 0, 0, 0, 0, 101, 202, 303));
    for (std::size_t i = 6; i < 12; ++i) EXPECT_FALSE(std::signbit(out[i]));  // unused rows are +0
  }
  void ExpectDone() {
    const Outcome outcome = call.Run();
    EXPECT_EQ(outcome.phase1, ACLNN_SUCCESS) << outcome.message;
    EXPECT_EQ(outcome.phase2, ACLNN_SUCCESS) << outcome.message;
  }
  // Refused by phase 1 with a sentence that starts so.
  void ExpectRefused(aclnnStatus code, const char* sentence) {
    const Outcome outcome = call.Run();
    EXPECT_EQ(outcome.phase1, code);
    EXPECT_THAT(outcome.message, ::testing::StartsWith(sentence));
    EXPECT_EQ(outcome.workspace_size, 0u);
    for (float x : out) EXPECT_TRUE(std::isnan(x));
  }
  void ExpectInvalid(const char* sentence) { ExpectRefused(ACLNN_ERR_PARAM_INVALID, sentence); }
};

// Refused at launch for bad data, with exactly this sentence, output untouched.
inline void ExpectBadData(const BackwardCall& call, const char* sentence, const std::vector<float>& out) {
  const Outcome outcome = call.Run();
  EXPECT_EQ(outcome.phase1, ACLNN_SUCCESS) << outcome.message;
  EXPECT_EQ(outcome.phase2, ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(outcome.message, ::testing::HasSubstr(sentence));
  for (float x : out) EXPECT_TRUE(std::isnan(x));
}

}  // namespace onehot::test

#endif  // TESTS_ACLNN_EMBEDDING_DENSE_BACKWARD_CALL_H_
