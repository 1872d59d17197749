// The NLL losses of the C face: targets that name no class, found at launch.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/aclnn/nll_loss_call.h"

namespace onehot::test::nll {
namespace {

TEST(NllLosses, BadTargetIsNamedAndNothingIsWritten) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    for (const std::int64_t bad :
         {std::int64_t{3}, std::int64_t{-1}, (std::int64_t{1} << 32) + 1, std::numeric_limits<std::int64_t>::min(),
          std::numeric_limits<std::int64_t>::max()}) {
      GoodNll good(op, reduction);
      good.target[1] = bad;
      good.target[3] = 44;  // the first one is named
      good.ExpectBadData((op.pictures ? "target[0, 0, 1] (position 1) = " : "target[1] = ") + std::to_string(bad) +
                         " is outside [0, 3)");
    }
  });
}

TEST(NllLosses, BadTargetInAPermutedView) {
  GoodNll good(kNllLoss2d, kSum);
  std::vector<std::int64_t> target{2, -100, 0, 3};  // [n, 0, w] at n + 2 w
  good.call["target"].data = target.data();
  good.call["target"].strides = {1, 1, 2};
  good.ExpectBadData("target[1, 0, 1] (position 3) = 3 is outside [0, 3)");
}

TEST(NllLosses, BadTargetWithoutAnAxis) {
  float self[3] = {}, weight[3] = {}, loss = NAN, total = NAN;
  std::int32_t target = 3;
  const NllCall call{&kNllLoss,
                     {{{3}, ACL_FLOAT, self},
                      {{}, ACL_INT32, &target},
                      {{3}, ACL_FLOAT, weight},
                      {{}, ACL_FLOAT, &loss},
                      {{}, ACL_FLOAT, &total}}};
  const Outcome outcome = call.Run();
  EXPECT_EQ(outcome.phase2, ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(outcome.message, ::testing::HasSubstr("= 3 is outside [0, 3)"));
  EXPECT_TRUE(std::isnan(loss));
  EXPECT_TRUE(std::isnan(total));
}

// 255 is no -1, and nothing is taken modulo 256.
TEST(NllLosses, BytesAreComparedAsWholeNumbers) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    for (const std::int64_t ignored : {-1, 511, -257}) {
      GoodNll good(op, reduction);
      std::vector<std::uint8_t> target{2, 0, 255, 1};
      good.call["target"].dtype = ACL_UINT8;
      good.call["target"].data = target.data();
      good.call.ignore_index = ignored;
      good.ExpectBadData(std::string(op.pictures ? "target[1, 0, 0] (position 2)" : "target[2]") +
                         " = 255 is outside [0, 3)");
    }
  });
}

TEST(NllLosses, BadTargetIsReportedOnceByTheNextSynchronise) {
  for (const NllOperator* op : kNllOperators) {
    GoodNll good(*op);
    good.target[0] = 3;
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    {
      const NllCall::Tensors tensors(good.call);  // gone before the launch
      ASSERT_EQ(op->phase1(tensors.handles, kMean, -100, &size, &executor), ACLNN_SUCCESS);
    }
    std::vector<std::byte> workspace(size, std::byte{0xFF});
    EXPECT_EQ(op->phase2(workspace.data(), size, executor, stream), ACLNN_ERR_PARAM_INVALID);
    TakeMessage();
    EXPECT_EQ(aclrtSynchronizeStream(stream), 507015);
    EXPECT_THAT(TakeMessage(), ::testing::HasSubstr(" = 3 is outside [0, 3)"));
    EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    good.ExpectUntouched();
    EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
  }
}

}  // namespace
}  // namespace onehot::test::nll
