// The four NLL loss operators of the C face, and a call of each that is right, to be spoiled in one place.
#ifndef TESTS_ACLNN_NLL_LOSS_CALL_H_
#define TESTS_ACLNN_NLL_LOSS_CALL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/level2/aclnn_nll_loss.h"
#include "aclnnop/level2/aclnn_nll_loss2d.h"
#include "aclnnop/level2/aclnn_nll_loss2d_backward.h"
#include "aclnnop/level2/aclnn_nll_loss_backward.h"
#include "tests/aclnn/operator_call.h"

namespace onehot::test::nll {

inline constexpr std::int64_t kNone = 0, kMean = 1, kSum = 2;

// One of the four, its tensors in the order of the prototype.
struct NllOperator {
  using Handles = std::vector<aclTensor*>;

  const char* name;
  bool pictures;  // of 2d
  bool backward;
  std::vector<std::string_view> tensors;
  aclnnStatus (*phase1)(const Handles&, std::int64_t reduction, std::int64_t ignore_index, std::uint64_t*,
                        aclOpExecutor**);
  aclnnStatus (*phase2)(void*, std::uint64_t, aclOpExecutor*, aclrtStream);

  std::size_t IndexOf(std::string_view tensor) const {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i] == tensor) return i;
    ADD_FAILURE() << name << " has no " << tensor;
    return 0;
  }
  // gradOutput or, forward, out.
  std::string_view per_loss() const { return backward ? "gradOutput" : "out"; }
  std::string_view total_weight() const { return backward ? "totalWeight" : "totalWeightOut"; }
};

inline const std::vector<std::string_view> kForwardTensors{"self", "target", "weight", "out", "totalWeightOut"};
inline const std::vector<std::string_view> kBackwardTensors{"gradOutput", "self",        "target",
                                                            "weight",     "totalWeight", "out"};

// Through the types that clients declare.
inline const NllOperator kNllLoss{"aclnnNLLLoss",
                                  false,
                                  false,
                                  kForwardTensors,
                                  [](const NllOperator::Handles& t, std::int64_t reduction, std::int64_t ignore_index,
                                     std::uint64_t* size, aclOpExecutor** executor) {
                                    return aclnnNLLLossGetWorkspaceSize(t[0], t[1], t[2], reduction, ignore_index, t[3],
                                                                        t[4], size, executor);
                                  },
                                  aclnnNLLLoss};
inline const NllOperator kNllLoss2d{"aclnnNLLLoss2d",
                                    true,
                                    false,
                                    kForwardTensors,
                                    [](const NllOperator::Handles& t, std::int64_t reduction, std::int64_t ignore_index,
                                       std::uint64_t* size, aclOpExecutor** executor) {
                                      return aclnnNLLLoss2dGetWorkspaceSize(t[0], t[1], t[2], reduction, ignore_index,
                                                                            t[3], t[4], size, executor);
                                    },
                                    aclnnNLLLoss2d};
inline const NllOperator kNllLossBackward{"aclnnNLLLossBackward",
                                          false,
                                          true,
                                          kBackwardTensors,
                                          [](const NllOperator::Handles& t, std::int64_t reduction,
                                             std::int64_t ignore_index, std::uint64_t* size, aclOpExecutor** executor) {
                                            return aclnnNLLLossBackwardGetWorkspaceSize(t[0], t[1], t[2], t[3],
                                                                                        reduction, ignore_index, t[4],
                                                                                        t[5], size, executor);
                                          },
                                          aclnnNLLLossBackward};
inline const NllOperator kNllLoss2dBackward{
    "aclnnNLLLoss2dBackward",
    true,
    true,
    kBackwardTensors,
    [](const NllOperator::Handles& t, std::int64_t reduction, std::int64_t ignore_index, std::uint64_t* size,
       aclOpExecutor** executor) {
      return aclnnNLLLoss2dBackwardGetWorkspaceSize(t[0], t[1], t[2], t[3], reduction, ignore_index, t[4], t[5], size,
                                                    executor);
    },
    aclnnNLLLoss2dBackward};

inline const NllOperator* const kNllOperators[] = {&kNllLoss, &kNllLoss2d, &kNllLossBackward, &kNllLoss2dBackward};

struct NllCall {
  const NllOperator* op;
  std::vector<TensorSpec> specs;
  std::int64_t reduction = kMean, ignore_index = -100;
  // How a client makes its tensors.
  aclTensor* (*create)(const TensorSpec&) = [](const TensorSpec& spec) { return spec.Create(); };

  TensorSpec& operator[](std::string_view tensor) { return specs[op->IndexOf(tensor)]; }

  // Live tensors for one call.
  struct Tensors {
    NllOperator::Handles handles;
    explicit Tensors(const NllCall& call) {
      for (const TensorSpec& spec : call.specs) handles.push_back(call.create(spec));
    }
    ~Tensors() {
      for (aclTensor* handle : handles)
        if (handle != nullptr) aclDestroyTensor(handle);
    }
    Tensors(const Tensors&) = delete;
    Tensors& operator=(const Tensors&) = delete;
  };

  Outcome Run() const {
    const Tensors tensors(*this);
    return RunBothPhases(
        [&](std::uint64_t* size, aclOpExecutor** executor) {
          return op->phase1(tensors.handles, reduction, ignore_index, size, executor);
        },
        op->phase2);
  }
  void ExpectDone() const {
    const Outcome outcome = Run();
    EXPECT_EQ(outcome.phase1, ACLNN_SUCCESS) << op->name << ": " << outcome.message;
    EXPECT_EQ(outcome.phase2, ACLNN_SUCCESS) << op->name << ": " << outcome.message;
  }
};

// Four positions, three classes, weights 1, 2, 5; the third position is ignored, and NaN stands in all that belongs to it.
//
//   target                 2     0    ignored   1
//   self at the target    -2    -1              -4     -9 elsewhere
//   loss                  10     1      0        8     weight * -self; sum 19, mean 19 / 8 = 2.375
//   gradOutput             2     3     NaN      .5     for none; 4 else
//   gradient at the target, none: -weight * gradOutput = -10, -3, -1; sum: * 4 = -20, -4, -8; mean: / 8 = -2.5, -.5, -1
//
// The pictures are 2 of 1 x 2 pixels.
struct GoodNll {
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  static constexpr std::size_t kPositions = 4, kClasses = 3;

  std::vector<float> self, grad_output, weight{1, 2, 5}, total_weight{8}, out;
  std::vector<std::int64_t> target{2, 0, -100, 1};
  NllCall call;

  explicit GoodNll(const NllOperator& op, std::int64_t reduction = kMean) : call{&op, {}, reduction} {
    self = Laid({{-9, -9, -2}, {-1, -9, -9}, {kNaN, kNaN, kNaN}, {-9, -4, -9}});
    grad_output = reduction == kNone ? std::vector<float>{2, 3, kNaN, .5f} : std::vector<float>{4};
    const std::vector<std::int64_t> logits =
        op.pictures ? std::vector<std::int64_t>{2, 3, 1, 2} : std::vector<std::int64_t>{4, 3};
    const std::vector<std::int64_t> positions =
        op.pictures ? std::vector<std::int64_t>{2, 1, 2} : std::vector<std::int64_t>{4};
    const std::vector<std::int64_t> losses = reduction == kNone ? positions : std::vector<std::int64_t>{1};
    if (op.backward) {
      out.assign(kPositions * kClasses, kNaN);
      call.specs = {{losses, ACL_FLOAT, grad_output.data()}, {logits, ACL_FLOAT, self.data()},
                    {positions, ACL_INT64, target.data()},   {{3}, ACL_FLOAT, weight.data()},
                    {{1}, ACL_FLOAT, total_weight.data()},   {logits, ACL_FLOAT, out.data()}};
    } else {
      total_weight = {kNaN};
      out.assign(reduction == kNone ? kPositions : 1, kNaN);
      call.specs = {{logits, ACL_FLOAT, self.data()},
                    {positions, ACL_INT64, target.data()},
                    {{3}, ACL_FLOAT, weight.data()},
                    {losses, ACL_FLOAT, out.data()},
                    {{1}, ACL_FLOAT, total_weight.data()}};
    }
  }
  GoodNll(const GoodNll&) = delete;
  GoodNll& operator=(const GoodNll&) = delete;

  // Rows of classes, one for each position, as they lie in memory.
  std::vector<float> Laid(const std::vector<std::vector<float>>& rows) const {
    std::vector<float> laid(kPositions * kClasses);
    for (std::size_t i = 0; i < kPositions; ++i)
      for (std::size_t c = 0; c < kClasses; ++c)
        laid[call.op->pictures ? i / 2 * 6 + c * 2 + i % 2 : i * kClasses + c] = rows[i][c];
    return laid;
  }
  std::vector<float> WantedOut() const {
    if (!call.op->backward)
      return call.reduction == kNone ? std::vector<float>{10, 1, 0, 8}
                                     : std::vector<float>{call.reduction == kMean ? 2.375f : 19};
    const std::vector<float> at = call.reduction == kNone   ? std::vector<float>{-10, -3, -1}
                                  : call.reduction == kMean ? std::vector<float>{-2.5f, -.5f, -1}
                                                            : std::vector<float>{-20, -4, -8};
    return Laid({{0, 0, at[0]}, {at[1], 0, 0}, {0, 0, 0}, {0, at[2], 0}});
  }
  void ExpectRight() const { ExpectRight(out, total_weight); }
  void ExpectRight(const std::vector<float>& got, const std::vector<float>& total) const {
    EXPECT_EQ(got, WantedOut()) << call.op->name << ", reduction " << call.reduction;
    for (const float x : got) EXPECT_FALSE(x == 0 && std::signbit(x)) << call.op->name;
    const bool sums = call.op->backward || call.reduction != kNone;
    EXPECT_EQ(total[0], sums ? 8 : 0) << call.op->name;
  }
  void ExpectUntouched() const {
    for (const float x : out) EXPECT_TRUE(std::isnan(x)) << call.op->name;
    EXPECT_TRUE(call.op->backward || std::isnan(total_weight[0])) << call.op->name;
  }
  void Clear() {
    for (float& x : out) x = kNaN;
    if (!call.op->backward) total_weight[0] = kNaN;
  }

  // Refused by phase 1 with a sentence that starts so, and nothing written.
  void ExpectRefused(aclnnStatus code, const std::string& sentence) const {
    const Outcome outcome = call.Run();
    EXPECT_EQ(outcome.phase1, code) << call.op->name << " wants " << sentence;
    EXPECT_THAT(outcome.message, ::testing::StartsWith(sentence)) << call.op->name;
    EXPECT_EQ(outcome.workspace_size, 0u);
    ExpectUntouched();
  }
  void ExpectInvalid(const std::string& sentence) const { ExpectRefused(ACLNN_ERR_PARAM_INVALID, sentence); }

  // Refused by phase 2 for its data with exactly this sentence, and nothing written.
  void ExpectBadData(const std::string& sentence) const {
    const Outcome outcome = call.Run();
    EXPECT_EQ(outcome.phase1, ACLNN_SUCCESS) << outcome.message;
    EXPECT_EQ(outcome.phase2, ACLNN_ERR_PARAM_INVALID) << call.op->name << " wants " << sentence;
    EXPECT_EQ(outcome.message, sentence) << call.op->name;
    ExpectUntouched();
  }
};

// For every operator and reduction.
template <class Body>
void ForEachNll(Body&& body) {
  for (const NllOperator* op : kNllOperators)
    for (const std::int64_t reduction : {kNone, kMean, kSum}) {
      SCOPED_TRACE(std::string(op->name) + ", reduction " + std::to_string(reduction));
      body(*op, reduction);
    }
}

}  // namespace onehot::test::nll

#endif  // TESTS_ACLNN_NLL_LOSS_CALL_H_
