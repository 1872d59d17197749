// The fused operators of the C face as clients call them: how they describe tensors, and executors that are kept.
#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "aclnnop/aclnn_fused_cross_entropy_loss_with_max_sum.h"
#include "aclnnop/aclnn_fused_linear_cross_entropy_loss_grad.h"
#include "aclnnop/aclnn_fused_linear_online_max_sum.h"
#include "tests/aclnn/fused_call.h"

namespace onehot::test::fused {
namespace {

// ---- Prototypes, to the letter of the documents.

using In = const aclTensor*;
using Out = aclTensor*;
using Launch = aclnnStatus(void*, uint64_t, aclOpExecutor*, aclrtStream);
static_assert(std::is_same_v<decltype(aclnnFusedLinearOnlineMaxSumGetWorkspaceSize),
                             aclnnStatus(In, In, In, int64_t, int64_t, Out, Out, Out, Out, Out, Out, uint64_t*,
                                         aclOpExecutor**)>);
static_assert(std::is_same_v<decltype(aclnnFusedCrossEntropyLossWithMaxSumGetWorkspaceSize),
                             aclnnStatus(In, In, In, float, In, In, In, Out, Out, uint64_t*, aclOpExecutor**)>);
static_assert(std::is_same_v<decltype(aclnnFusedLinearCrossEntropyLossGradGetWorkspaceSize),
                             aclnnStatus(In, In, In, In, In, float, In, In, In, Out, Out, uint64_t*, aclOpExecutor**)>);
static_assert(std::is_same_v<decltype(aclnnFusedLinearOnlineMaxSum), Launch> &&
              std::is_same_v<decltype(aclnnFusedCrossEntropyLossWithMaxSum), Launch> &&
              std::is_same_v<decltype(aclnnFusedLinearCrossEntropyLossGrad), Launch>);

// ---- Descriptions of tensors.

TEST(FusedOperators, Strides) {
  using Strides = Dims (*)(const Dims&);
  const Strides forms[] = {// Rows of a wider matrix; every third element of a vector.
                           [](const Dims& dims) {
                             return dims.size() == 1 ? Dims{3} : Dims{2 * dims[1] + 1, 1};
                           },
                           // Transposed.
                           [](const Dims& dims) {
                             return dims.size() == 1 ? Dims{1} : Dims{1, dims[0]};
                           },
                           // Transposed, in a wider matrix.
                           [](const Dims& dims) {
                             return dims.size() == 1 ? Dims{2} : Dims{1, dims[0] + 5};
                           },
                           // Every second column, and gaps between rows.
                           [](const Dims& dims) {
                             return dims.size() == 1 ? Dims{7} : Dims{2 * dims[1] + 3, 2};
                           }};
  ForEachWay([&](const Way& way, DType dtype) {
    Good dense(way, {.dtype = dtype});
    dense.ExpectDone();
    for (const Strides strides : forms)
      for (const bool bool_mask : {false, true}) {
        Good good(way, {.dtype = dtype, .bool_mask = bool_mask, .strides = strides});
        good.ExpectDoneAndRight();
        EXPECT_EQ(good.Results(), dense.Results());
      }
  });
}

// One row, one element for all.
TEST(FusedOperators, ExpandedInputs) {
  for (const Way& way : kWays) {
    Good good(way), wanted(way);
    for (std::size_t i = 0; i < way.op->tensors.size(); ++i) {
      if (!good.call.specs[i] || way.op->IsOutput(i)) continue;
      const std::string_view name = way.op->tensors[i];
      if (name == "targetMask" || name == "maskedTarget") continue;
      good.call.specs[i]->strides->front() = 0;
      Tensor& dense = wanted[name];
      const std::int64_t row = dense.numel() / dense.layout().dim(0);
      for (std::int64_t k = 0; k < dense.numel(); ++k) dense.SetValue(k, good[name].Value(k % row));
    }
    wanted.ExpectDoneAndRight();
    good.ExpectDone();
    EXPECT_EQ(good.Results(), wanted.Results());
  }
}

// Views of a larger storage, the same memory behind a base and an offset.
TEST(FusedOperators, Offsets) {
  ForEachWay([](const Way& way, DType dtype) {
    Good good(way, {.dtype = dtype});
    for (auto& spec : good.call.specs) {
      if (!spec) continue;
      spec->offset = 3;
      spec->data = static_cast<std::byte*>(spec->data) - 3 * aclDataTypeSize(spec->dtype);
    }
    good.ExpectDoneAndRight();
  });
}

TEST(FusedOperators, EveryPlainFormat) {
  for (const aclFormat format : {ACL_FORMAT_ND, ACL_FORMAT_NC, ACL_FORMAT_NCL, ACL_FORMAT_NCHW, ACL_FORMAT_NHWC,
                                 ACL_FORMAT_HWCN, ACL_FORMAT_NCDHW, ACL_FORMAT_NDHWC})
    ForEachWay([&](const Way& way, DType dtype) {
      Good good(way, {.dtype = dtype});
      for (auto& spec : good.call.specs)
        if (spec) spec->format = format;
      good.ExpectDoneAndRight();
    });
}

// ---- Executors.

// Tensors are destroyed between the phases.
TEST(FusedOperators, OneLaunchSpendsTheExecutor) {
  ForEachWay([](const Way& way, DType dtype) {
    Good good(way, {.dtype = dtype});
    Prepared call(good.call);
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    good.ExpectRight();
    good.Clear();
    EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(way.op->phase2(nullptr, 0, nullptr, nullptr), ACLNN_ERR_INNER_NULLPTR);
    good.ExpectUntouched();
    TakeMessage();
  });
}

TEST(FusedOperators, ExecutorsOfOtherOperatorsAreRefused) {
  for (const Way& way : kWays)
    for (const FusedOperator* other : {&kMaxSum, &kLoss, &kGrad}) {
      if (way.op == other) continue;
      Good good(way);
      Prepared call(good.call);
      TakeMessage();
      EXPECT_EQ(other->phase2(call.workspace.data(), call.size, call.executor, nullptr), ACLNN_ERR_PARAM_INVALID);
      EXPECT_EQ(TakeMessage(), std::string("executor: must be of ") + other->name + ", is of " + way.op->name);
      good.ExpectUntouched();
      EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
      good.ExpectRight();
    }
}

TEST(FusedOperators, WorkspaceThatIsTooSmallIsRefused) {
  ForEachWay([](const Way& way, DType dtype) {
    Good good(way, {.dtype = dtype});
    Prepared call(good.call);
    if (way.op != &kLoss) {
      EXPECT_GT(call.size, 0u);
    }
    if (call.size > 0) {
      EXPECT_EQ(way.op->phase2(nullptr, call.size, call.executor, nullptr), ACLNN_ERR_PARAM_INVALID);
      EXPECT_EQ(way.op->phase2(call.workspace.data(), call.size - 1, call.executor, nullptr), ACLNN_ERR_PARAM_INVALID);
      good.ExpectUntouched();
      TakeMessage();
    }
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    good.ExpectRight();
  });
}

// Of any alignment, of any content, and not a byte beside it.
TEST(FusedOperators, WorkspaceOfAnyAlignment) {
  for (const std::size_t shift : {0, 1, 2, 7, 31, 63, 64, 65})
    ForEachWay([&](const Way& way, DType dtype) {
      Good good(way, {.dtype = dtype});
      Prepared call(good.call);
      for (const std::byte content : {std::byte{0xFF}, std::byte{0x7F}, std::byte{0}}) {
        std::vector<std::byte> memory(call.size + 256, std::byte{0x5A});
        const auto aligned = (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
        std::byte* const workspace = memory.data() + aligned + shift;
        std::fill(workspace, workspace + call.size, content);
        Prepared again(good.call);
        EXPECT_EQ(way.op->phase2(workspace, call.size, again.executor, nullptr), ACLNN_SUCCESS);
        good.ExpectRight();
        EXPECT_TRUE(std::all_of(memory.data(), workspace, [](std::byte b) { return b == std::byte{0x5A}; }));
        EXPECT_TRUE(std::all_of(workspace + call.size, memory.data() + memory.size(),
                                [](std::byte b) { return b == std::byte{0x5A}; }));
      }
      EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    });
}

TEST(FusedOperators, WithoutMemoryAreRefusedAndSpendNothing) {
  for (const Way& way : kWays) {
    for (std::size_t i = 0; i < way.op->tensors.size(); ++i) {
      Good good(way);
      if (!good.call.specs[i]) continue;
      void* const data = good.call.specs[i]->data;
      good.call.specs[i]->data = nullptr;
      Prepared call(good.call);
      TakeMessage();
      EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
      EXPECT_EQ(TakeMessage(), std::string(way.op->tensors[i]) + ": data must not be null");
      EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
      good.ExpectUntouched();
      const FusedCall::Tensors tensors(good.call);
      EXPECT_EQ(aclSetTensorAddr(call.executor, i, tensors.handles[i], data), ACLNN_SUCCESS);
      EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
      good.ExpectRight();
    }
  }
}

// Every address is set anew before each launch, as MindSpore does; tensors that are null are counted and skipped.
TEST(FusedOperators, RepeatedWithOtherAddresses) {
  ForEachWay([](const Way& way, DType dtype) {
    const FusedOperator& op = *way.op;
    Good good(way, {.dtype = dtype}), other(way, {.dtype = dtype, .seed = 50});
    Prepared call(good.call);
    const FusedCall::Tensors tensors(good.call);
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
    for (int round = 0; round < 2; ++round)
      for (Good* now : {&good, &other}) {
        Good& idle = now == &good ? other : good;
        good.Clear();
        other.Clear();
        for (std::size_t i = 0; i < op.tensors.size(); ++i)
          if (now->call.specs[i]) {
            EXPECT_EQ(aclSetTensorAddr(call.executor, i, tensors.handles[i], now->call.specs[i]->data), ACLNN_SUCCESS)
                << TakeMessage();
          }
        EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
        now->ExpectRight();
        idle.ExpectUntouched();
      }
    // Inputs and outputs are counted for themselves too.
    good.Clear();
    const std::size_t inputs = op.tensors.size() - op.outputs;
    for (std::size_t i = 0; i < op.tensors.size(); ++i) {
      if (!good.call.specs[i]) continue;
      void* const data = good.call.specs[i]->data;
      EXPECT_EQ(i < inputs ? aclSetInputTensorAddr(call.executor, i, tensors.handles[i], data)
                           : aclSetOutputTensorAddr(call.executor, i - inputs, tensors.handles[i], data),
                ACLNN_SUCCESS);
    }
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    good.ExpectRight();
    EXPECT_EQ(aclSetInputTensorAddr(call.executor, inputs, tensors.handles[0], nullptr), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(aclSetOutputTensorAddr(call.executor, op.outputs, tensors.handles[0], nullptr), ACLNN_ERR_PARAM_INVALID);
    TakeMessage();
    EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
  });
}

// Tensors that a call was given and does not read take an address, and nothing comes of it.
TEST(FusedOperators, AddressesOfTensorsThatAreNotRead) {
  float memory[2 * 11] = {};
  for (const Way& way : {Way{&kLoss, true}, Way{&kLoss, false}, Way{&kGrad, true}}) {
    Good good(way);
    std::vector<std::size_t> unread;
    for (std::size_t i = 3; i < 7; ++i)
      if (!good.call.specs[i] && !way.op->IsOutput(i)) {
        unread.push_back(i);
        good.call.specs[i] = TensorSpec{{11}, ACL_FLOAT, memory};
      }
    ASSERT_GE(unread.size(), 2u);
    Prepared call(good.call);
    const FusedCall::Tensors tensors(good.call);
    for (const std::size_t i : unread)
      EXPECT_EQ(aclSetTensorAddr(call.executor, i, tensors.handles[i], nullptr), ACLNN_SUCCESS) << TakeMessage();
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    good.ExpectRight();
  }
}

TEST(FusedOperators, RepeatableExecutorsSurviveBadTargets) {
  for (const bool softmax : {false, true}) {
    Good good({&kGrad, softmax});
    Prepared call(good.call);
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
    const std::int64_t right = good["maskedTarget"].Get<std::int64_t>(3);
    good["maskedTarget"].Set(3, std::int64_t{131});
    EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 507015);
    good.ExpectUntouched();
    good["maskedTarget"].Set(3, right);
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
    good.ExpectRight();
    EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
    TakeMessage();
  }
}

// Neither phase 1 nor anything before the launch reads or writes data.
TEST(FusedOperators, PhaseOneReadsNothing) {
  ForEachWay([](const Way& way, DType dtype) {
    Good good(way, {.dtype = dtype}), other(way, {.dtype = dtype, .seed = 50});
    Prepared call(good.call);
    good.ExpectUntouched();
    for (std::size_t i = 0; i < way.op->tensors.size(); ++i) {
      const std::string_view name = way.op->tensors[i];
      if (!good.call.specs[i] || way.op->IsOutput(i)) continue;
      std::vector<std::byte> bytes = other[name].Bytes();
      for (std::int64_t k = 0; k < good[name].numel(); ++k)
        good[name].SetBytes(k, bytes.data() + k * SizeOf(good[name].layout().dtype));
    }
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    other.ExpectDone();
    EXPECT_EQ(good.Results(), other.Results());
  });
}

// Phase 1 here, phase 2 on other threads, all at once.
TEST(FusedOperators, ExecutorsAreNotBoundToThreads) {
  for (const Way& way : kWays) {
    std::vector<std::unique_ptr<Good>> goods;
    std::vector<std::unique_ptr<Prepared>> calls;
    for (std::uint64_t k = 0; k < 4; ++k) {
      goods.push_back(std::make_unique<Good>(way, Options{.seed = 1 + 20 * k}));
      calls.push_back(std::make_unique<Prepared>(goods.back()->call));
    }
    std::vector<std::thread> threads;
    std::vector<aclnnStatus> statuses(calls.size(), -1);
    for (std::size_t k = 0; k < calls.size(); ++k) threads.emplace_back([&, k] { statuses[k] = calls[k]->Launch(); });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t k = 0; k < calls.size(); ++k) {
      EXPECT_EQ(statuses[k], ACLNN_SUCCESS);
      goods[k]->ExpectRight();
    }
  }
}

}  // namespace
}  // namespace onehot::test::fused
