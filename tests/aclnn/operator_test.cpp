// What GetWorkspaceSize and Launch do for every operator, on an operator of the test's own: optional tensors, and
// tensors that a call does not read.
#include "aclnn/operator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "onehot/embedding.h"
#include "tests/aclnn/operator_call.h"
#include "tests/native/env.h"

namespace onehot::aclnn {
namespace {

using ::onehot::test::LiveTensor;
using ::onehot::test::ScopedEnv;
using ::onehot::test::TakeMessage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Operator kEverywhere{"aclnnEverywhere", kAllProducts};
constexpr Operator kTwoProducts{"aclnnTwoProducts", On(Product::kAscend910B) | On(Product::kAscend910_93)};

// A gather through the glue: parameters not read, weight, bias, indices, out, more.
struct Gather {
  std::vector<float> weight{1, 2, 3, 4};
  std::vector<std::int64_t> indices{1, 0, 1};
  std::vector<float> out = std::vector<float>(6, -7);
  LiveTensor weight_tensor{{2, 2}, ACL_FLOAT, weight.data()};
  LiveTensor indices_tensor{{3}, ACL_INT64, indices.data()};
  LiveTensor out_tensor{{3, 2}, ACL_FLOAT, out.data()};
  const aclTensor* bias = nullptr;
  const aclTensor* more = nullptr;
  std::uint64_t size = 9;
  aclOpExecutor* executor = nullptr;
  std::vector<bool> given;

  aclnnStatus Prepare(const Operator& op = kEverywhere) {
    return GetWorkspaceSize(
        op,
        {InputNotRead("ignored"), Input("weight", weight_tensor), OptionalInput("bias", bias),
         Input("indices", indices_tensor), Output("out", out_tensor), OptionalOutput("more", more)},
        &size, &executor, [this](Arguments<6> arguments, Product product) -> Result<Plan> {
          constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_BF16};
          given.clear();
          for (const Argument& argument : arguments) given.push_back(argument.given);
          if (Status bad = CheckDType(arguments[2], kFloats, product); !bad.ok()) return bad;
          if (Status bad = CheckSameDType(arguments[5], arguments[4]); !bad.ok()) return bad;
          if (Status bad = CheckFormats(arguments); !bad.ok()) return bad;
          if (Status bad = CheckRank(arguments[2], 1, 1); !bad.ok()) return bad;
          return onehot::Prepare(
              Embedding{.weight = arguments[1].view(), .indices = arguments[3].view(), .out = arguments[4].view()});
        });
  }
  aclnnStatus Run(const Operator& op = kEverywhere) {
    std::vector<std::byte> workspace(size);
    return Launch(op, workspace.data(), size, executor, nullptr);
  }
  void ExpectDone() { EXPECT_THAT(out, ElementsAre(3, 4, 1, 2, 3, 4)); }
};

TEST(Operator, OptionalTensorsMayBeAbsent) {
  Gather call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  EXPECT_THAT(call.given, ElementsAre(false, true, false, true, true, false));
  EXPECT_EQ(call.Run(), ACLNN_SUCCESS);
  call.ExpectDone();
}

TEST(Operator, OptionalTensorsAreCheckedWhereTheyAreGiven) {
  Gather call;
  float data[2] = {};
  const LiveTensor bias({2}, ACL_FLOAT, data), two_axes({2, 1}, ACL_FLOAT, data), ints({2}, ACL_INT32, data);
  const LiveTensor without_data({2}, ACL_FLOAT, nullptr);
  LiveTensor dead({2}, ACL_FLOAT, nullptr);
  call.bias = bias;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  EXPECT_TRUE(call.given[2]);
  EXPECT_EQ(call.Run(), ACLNN_SUCCESS);
  TakeMessage();
  call.bias = without_data;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  EXPECT_EQ(call.Run(), ACLNN_ERR_PARAM_INVALID);  // though this one does not read it
  EXPECT_EQ(TakeMessage(), "bias: data must not be null");
  call.bias = two_axes;
  EXPECT_EQ(call.Prepare(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(TakeMessage(), "bias: rank must be 1, is 2");
  call.bias = ints;
  EXPECT_EQ(call.Prepare(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(TakeMessage(), HasSubstr("bias: dtype must be one of ACL_FLOAT, ACL_BF16 on Ascend910B, is ACL_INT32"));
  call.bias = nullptr;
  call.more = ints;
  EXPECT_EQ(call.Prepare(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(TakeMessage(), "more: dtype must be that of out, ACL_FLOAT, is ACL_INT32");
  call.more = nullptr;
  call.bias = dead;
  dead.Destroy();
  EXPECT_EQ(call.Prepare(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(TakeMessage(), HasSubstr("bias: must be a live aclTensor"));
}

// MindSpore counts over all tensors of the prototype, absent ones included.
TEST(Operator, AddressesCountAbsentTensors) {
  Gather call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  std::vector<float> other{5, 6, 7, 8}, out(6);
  aclTensor* any = call.out_tensor;
  TakeMessage();
  EXPECT_EQ(aclSetTensorAddr(call.executor, 0, any, other.data()), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(TakeMessage(), HasSubstr("index: 0 is ignored, which this call was not given"));
  EXPECT_EQ(aclSetTensorAddr(call.executor, 2, any, other.data()), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclSetTensorAddr(call.executor, 5, any, other.data()), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclSetInputTensorAddr(call.executor, 4, any, other.data()), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(TakeMessage(), HasSubstr("in [0, 4), the input tensors of aclnnEverywhere, is 4"));
  EXPECT_EQ(aclSetInputTensorAddr(call.executor, 1, any, other.data()), ACLNN_SUCCESS);
  EXPECT_EQ(aclSetOutputTensorAddr(call.executor, 0, any, out.data()), ACLNN_SUCCESS);
  EXPECT_EQ(call.Run(), ACLNN_SUCCESS);
  EXPECT_THAT(out, ElementsAre(7, 8, 5, 6, 7, 8));
}

// They are compared with null and with nothing else, and clients that set the addresses of all tensors may go on.
TEST(Operator, RequiredTensorsThatAreNotReadOnlyHaveToBeThere) {
  Gather gather;
  const auto prepare = [&](const aclTensor* unread) {
    return GetWorkspaceSize(
        kEverywhere,
        {Input("weight", gather.weight_tensor), RequiredInputNotRead("unread", unread),
         Input("indices", gather.indices_tensor), Output("out", gather.out_tensor)},
        &gather.size, &gather.executor, [](Arguments<4> arguments, Product) -> Result<Plan> {
          EXPECT_FALSE(arguments[1].given);
          return onehot::Prepare(
              Embedding{.weight = arguments[0].view(), .indices = arguments[2].view(), .out = arguments[3].view()});
        });
  };
  TakeMessage();
  EXPECT_EQ(prepare(nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(TakeMessage(), "unread: must not be null");
  ASSERT_EQ(prepare(reinterpret_cast<aclTensor*>(&gather)), ACLNN_SUCCESS);
  EXPECT_EQ(aclSetTensorAddr(gather.executor, 1, gather.out_tensor, nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclSetInputTensorAddr(gather.executor, 1, gather.out_tensor, &gather), ACLNN_SUCCESS);
  EXPECT_EQ(aclSetInputTensorAddr(gather.executor, 3, gather.out_tensor, &gather), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(gather.Run(), ACLNN_SUCCESS);
  gather.ExpectDone();
}

TEST(Operator, IsOfferedOnItsProductsOnly) {
  for (const char* soc : {"Ascend910B", "Ascend910_93"}) {
    const ScopedEnv env("ONEHOT_SOC", soc);
    Gather call;
    EXPECT_EQ(call.Prepare(kTwoProducts), ACLNN_SUCCESS);
    EXPECT_EQ(call.Run(kTwoProducts), ACLNN_SUCCESS);
  }
  for (const char* soc : {"Ascend910A", "Ascend950"}) {
    const ScopedEnv env("ONEHOT_SOC", soc);
    Gather call;
    call.executor = reinterpret_cast<aclOpExecutor*>(&call);
    TakeMessage();
    EXPECT_EQ(call.Prepare(kTwoProducts), ACLNN_ERR_RUNTIME_ERROR);
    EXPECT_EQ(TakeMessage(), std::string("aclnnTwoProducts: is not offered on ") + soc);
    EXPECT_EQ(call.size, 0u);
    EXPECT_EQ(call.executor, nullptr);
  }
}

TEST(Operator, CodesOfTheNativeErrors) {
  const auto code = [](Code native) {
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    return GetWorkspaceSize(kEverywhere, {InputNotRead("ignored")}, &size, &executor,
                            [=](Arguments<1>, Product) -> Result<Plan> { return Status::Error(native, "no"); });
  };
  EXPECT_EQ(code(Code::kNullArgument), ACLNN_ERR_PARAM_NULLPTR);
  for (const Code native : {Code::kBadDType, Code::kBadShape, Code::kBadArgument, Code::kBadData})
    EXPECT_EQ(code(native), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(code(Code::kOutOfMemory), ACLNN_ERR_RUNTIME_ERROR);
  EXPECT_EQ(code(Code::kUnsupported), ACLNN_ERR_RUNTIME_ERROR);
}

TEST(Operator, NothingThrownCrossesTheBorder) {
  const auto code = [](auto exception) {
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    return GetWorkspaceSize(kEverywhere, {InputNotRead("ignored")}, &size, &executor,
                            [=](Arguments<1>, Product) -> Result<Plan> { throw exception; });
  };
  EXPECT_EQ(code(std::bad_alloc()), ACLNN_ERR_RUNTIME_ERROR);
  TakeMessage();
  EXPECT_EQ(code(std::runtime_error("lost")), ACLNN_ERR_INNER);
  EXPECT_EQ(TakeMessage(), "lost");
  EXPECT_NE(code(7), ACLNN_SUCCESS);
}

}  // namespace
}  // namespace onehot::aclnn
