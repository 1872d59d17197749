// The NLL losses of the C face as known clients call them: how they describe tensors, and executors that are kept.
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/aclnn/nll_loss_call.h"

namespace onehot::test::nll {
namespace {

// ---- Prototypes, to the letter of the documents.

using Forward = aclnnStatus(const aclTensor*, const aclTensor*, const aclTensor*, int64_t, int64_t, aclTensor*,
                            aclTensor*, uint64_t*, aclOpExecutor**);
using Launch = aclnnStatus(void*, uint64_t, aclOpExecutor*, aclrtStream);
static_assert(std::is_same_v<decltype(aclnnNLLLossGetWorkspaceSize), Forward>);
static_assert(std::is_same_v<decltype(aclnnNLLLoss2dGetWorkspaceSize), Forward>);
static_assert(std::is_same_v<decltype(aclnnNLLLossBackwardGetWorkspaceSize),
                             aclnnStatus(const aclTensor*, const aclTensor*, const aclTensor*, const aclTensor*,
                                         int64_t, int64_t, const aclTensor*, aclTensor*, uint64_t*, aclOpExecutor**)>);
static_assert(std::is_same_v<decltype(aclnnNLLLoss2dBackwardGetWorkspaceSize),
                             aclnnStatus(const aclTensor*, const aclTensor*, const aclTensor*, const aclTensor*,
                                         int64_t, int64_t, aclTensor*, aclTensor*, uint64_t*, aclOpExecutor**)>);
static_assert(std::is_same_v<decltype(aclnnNLLLoss), Launch> && std::is_same_v<decltype(aclnnNLLLoss2d), Launch> &&
              std::is_same_v<decltype(aclnnNLLLossBackward), Launch> &&
              std::is_same_v<decltype(aclnnNLLLoss2dBackward), Launch>);

// ---- Descriptions of tensors.

// The format that most clients take from the rank.
aclFormat FormatOf(std::size_t rank) {
  return rank == 3 ? ACL_FORMAT_NCL : rank == 4 ? ACL_FORMAT_NCHW : rank == 5 ? ACL_FORMAT_NCDHW : ACL_FORMAT_ND;
}

TEST(NllLosses, AsClientsDescribeTensors) {
  using Create = aclTensor* (*)(const TensorSpec&);
  const Create clients[] = {// op-plugin, DIOPI: all of the storage as one number.
                            [](const TensorSpec& spec) {
                              std::int64_t all = 1;
                              std::vector<std::int64_t> strides(spec.dims.size());
                              for (std::size_t axis = spec.dims.size(); axis-- > 0; all *= spec.dims[axis])
                                strides[axis] = all;
                              return aclCreateTensor(spec.dims.data(), spec.dims.size(), spec.dtype, strides.data(), 0,
                                                     FormatOf(spec.dims.size()), &all, 1, spec.data);
                            },
                            // MindSpore: a tensor without dimensions has a stride.
                            [](const TensorSpec& spec) {
                              const std::int64_t one = 1;
                              return aclCreateTensor(spec.dims.data(), spec.dims.size(), spec.dtype,
                                                     spec.dims.empty() ? &one : nullptr, 0, FormatOf(spec.dims.size()),
                                                     spec.dims.data(), spec.dims.size(), spec.data);
                            },
                            // Paddle: a tensor without dimensions counts one storage extent, and none is there.
                            [](const TensorSpec& spec) {
                              return aclCreateTensor(spec.dims.data(), spec.dims.size(), spec.dtype, nullptr, 0,
                                                     spec.dims.size() == 3 ? ACL_FORMAT_ND : FormatOf(spec.dims.size()),
                                                     spec.dims.empty() ? nullptr : spec.dims.data(),
                                                     spec.dims.empty() ? 1 : spec.dims.size(), spec.data);
                            }};
  for (const Create create : clients)
    ForEachNll([&](const NllOperator& op, std::int64_t reduction) {
      for (const bool scalars : {true, false}) {
        GoodNll good(op, reduction);
        good.call.create = create;
        if (scalars) {
          if (reduction != kNone) good.call[op.per_loss()].dims = {};
          good.call[op.total_weight()].dims = {};
        }
        good.call.ExpectDone();
        good.ExpectRight();
      }
    });
}

TEST(NllLosses, EveryPlainFormat) {
  for (const aclFormat format : {ACL_FORMAT_ND, ACL_FORMAT_NC, ACL_FORMAT_NCL, ACL_FORMAT_NCHW, ACL_FORMAT_NHWC,
                                 ACL_FORMAT_HWCN, ACL_FORMAT_NCDHW, ACL_FORMAT_NDHWC})
    ForEachNll([&](const NllOperator& op, std::int64_t reduction) {
      GoodNll good(op, reduction);
      for (TensorSpec& spec : good.call.specs) spec.format = format;
      good.call.ExpectDone();
      good.ExpectRight();  // the format says nothing about which axis has the classes
    });
}

// Losses of other ranks arrive folded, as (N, C, 1, L) and (N, C, L, 1): the same memory.
TEST(NllLosses, FoldedToPictures) {
  for (const NllOperator* op : {&kNllLoss2d, &kNllLoss2dBackward})
    for (const std::int64_t reduction : {kNone, kMean, kSum}) {
      GoodNll good(*op, reduction);
      for (const std::string_view tensor : op->tensors) {
        std::vector<std::int64_t>& dims = good.call[tensor].dims;
        if (dims.size() > 1) std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
      }
      good.call.ExpectDone();
      good.ExpectRight();
    }
}

// ---- Executors.

struct Prepared {
  NllCall::Tensors tensors;
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  std::vector<std::byte> workspace;
  const NllOperator& op;

  explicit Prepared(const NllCall& call) : tensors(call), op(*call.op) {
    EXPECT_EQ(op.phase1(tensors.handles, call.reduction, call.ignore_index, &size, &executor), ACLNN_SUCCESS)
        << TakeMessage();
    workspace.assign(size, std::byte{0xFF});
  }
  aclnnStatus Launch() { return op.phase2(workspace.data(), size, executor, nullptr); }
};

TEST(NllLosses, OneLaunchSpendsTheExecutor) {
  for (const NllOperator* op : kNllOperators) {
    GoodNll good(*op);
    Prepared call(good.call);
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    good.ExpectRight();
    good.Clear();
    EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(op->phase2(nullptr, 0, nullptr, nullptr), ACLNN_ERR_INNER_NULLPTR);  // after a phase 1 that failed
    good.ExpectUntouched();
    TakeMessage();
  }
}

TEST(NllLosses, ExecutorsOfOtherOperatorsAreRefused) {
  for (const NllOperator* op : kNllOperators)
    for (const NllOperator* other : kNllOperators) {
      if (op == other) continue;
      GoodNll good(*op);
      Prepared call(good.call);
      TakeMessage();
      EXPECT_EQ(other->phase2(call.workspace.data(), call.size, call.executor, nullptr), ACLNN_ERR_PARAM_INVALID);
      EXPECT_EQ(TakeMessage(), std::string("executor: must be of ") + other->name + ", is of " + op->name);
      good.ExpectUntouched();
      EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
      good.ExpectRight();
    }
}

TEST(NllLosses, WorkspaceThatIsTooSmallIsRefused) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    GoodNll good(op, reduction);
    Prepared call(good.call);
    if (call.size > 0) {
      EXPECT_EQ(op.phase2(nullptr, call.size, call.executor, nullptr), ACLNN_ERR_PARAM_INVALID);
      EXPECT_EQ(op.phase2(call.workspace.data(), call.size - 1, call.executor, nullptr), ACLNN_ERR_PARAM_INVALID);
      good.ExpectUntouched();
      TakeMessage();
    }
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    good.ExpectRight();
  });
}

TEST(NllLosses, WithoutMemoryAreRefusedAndSpendNothing) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    for (std::size_t i = 0; i < op.tensors.size(); ++i) {
      if (op.backward && reduction != kMean && op.tensors[i] == "totalWeight") continue;  // not read
      GoodNll good(op, reduction);
      void* const data = good.call.specs[i].data;
      good.call.specs[i].data = nullptr;
      Prepared call(good.call);
      TakeMessage();
      EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
      EXPECT_EQ(TakeMessage(), std::string(op.tensors[i]) + ": data must not be null");
      EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
      good.ExpectUntouched();
      EXPECT_EQ(aclSetTensorAddr(call.executor, i, call.tensors.handles[i], data), ACLNN_SUCCESS);
      EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
      good.ExpectRight();
    }
  });
}

// Every address is set anew before each launch, as MindSpore does, that of a tensor that is not read too.
TEST(NllLosses, RepeatedWithOtherAddresses) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    GoodNll good(op, reduction), other(op, reduction);
    Prepared call(good.call);
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
    for (int round = 0; round < 2; ++round)
      for (GoodNll* now : {&good, &other}) {
        GoodNll& idle = now == &good ? other : good;
        good.Clear();
        other.Clear();
        for (std::size_t i = 0; i < op.tensors.size(); ++i)
          EXPECT_EQ(aclSetTensorAddr(call.executor, i, call.tensors.handles[i], now->call.specs[i].data), ACLNN_SUCCESS)
              << TakeMessage();
        EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
        now->ExpectRight();
        idle.ExpectUntouched();
      }
    // Inputs and outputs are counted for themselves too.
    const std::size_t outputs = op.backward ? 1 : 2, inputs = op.tensors.size() - outputs;
    good.Clear();
    for (std::size_t i = 0; i < inputs; ++i)
      EXPECT_EQ(aclSetInputTensorAddr(call.executor, i, call.tensors.handles[i], good.call.specs[i].data),
                ACLNN_SUCCESS);
    for (std::size_t i = 0; i < outputs; ++i)
      EXPECT_EQ(
          aclSetOutputTensorAddr(call.executor, i, call.tensors.handles[inputs + i], good.call.specs[inputs + i].data),
          ACLNN_SUCCESS);
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    good.ExpectRight();
    EXPECT_EQ(aclSetInputTensorAddr(call.executor, inputs, call.tensors.handles[0], nullptr), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(aclSetOutputTensorAddr(call.executor, outputs, call.tensors.handles[0], nullptr),
              ACLNN_ERR_PARAM_INVALID);
    TakeMessage();
    EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
  });
}

TEST(NllLosses, RepeatableExecutorsSurviveBadTargets) {
  for (const NllOperator* op : kNllOperators) {
    GoodNll good(*op);
    Prepared call(good.call);
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
    good.target[3] = 3;
    EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 507015);
    good.ExpectUntouched();
    good.target[3] = 1;
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
    good.ExpectRight();
    EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
    TakeMessage();
  }
}

// Neither phase 1 nor anything before the launch reads or writes data.
TEST(NllLosses, PhaseOneReadsNothing) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    GoodNll good(op, reduction);
    std::vector<std::int64_t> target(4, 99);
    target.swap(good.target);  // the call has the memory of `target`
    target.assign(4, 99);
    Prepared call(good.call);
    good.ExpectUntouched();
    target = {2, 0, -100, 1};
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    good.ExpectRight();
  });
}

}  // namespace
}  // namespace onehot::test::nll
