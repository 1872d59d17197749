// The life of an executor: made by phase 1, spent by phase 2 or kept, given other addresses, misused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_embedding.h"
#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "tests/aclnn/operator_call.h"
#include "tests/native/env.h"

namespace onehot::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kNone = ~std::uint64_t{0};

// indices [2, 0, 2], three rows of two columns. By hand: row 0 is grad row 1, row 2 the sum of grad rows 0 and 2.
struct Small {
  std::vector<float> grad{1, 2, 10, 20, 100, 200};
  std::vector<std::int64_t> indices{2, 0, 2};
  std::vector<float> out = std::vector<float>(6, NAN);
  LiveTensor grad_tensor{{3, 2}, ACL_FLOAT, grad.data()};
  LiveTensor indices_tensor{{3}, ACL_INT64, indices.data()};
  LiveTensor out_tensor{{3, 2}, ACL_FLOAT, out.data()};
  std::uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  std::vector<std::byte> workspace;

  aclnnStatus Prepare() {
    const aclnnStatus status = aclnnEmbeddingDenseBackwardGetWorkspaceSize(grad_tensor, indices_tensor, 3, kNone, false,
                                                                           out_tensor, &workspace_size, &executor);
    workspace.resize(workspace_size);
    return status;
  }
  aclnnStatus Launch() { return aclnnEmbeddingDenseBackward(workspace.data(), workspace_size, executor, nullptr); }
  void ExpectDone() { EXPECT_THAT(out, ElementsAre(10, 20, 0, 0, 101, 202)); }
  void ExpectUntouched() {
    for (float x : out) EXPECT_TRUE(std::isnan(x));
  }
  void Clear() { out.assign(6, NAN); }
};

TEST(Executor, OutlivesTheTensorsItWasMadeFrom) {
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  call.grad_tensor.Destroy();
  call.indices_tensor.Destroy();
  call.out_tensor.Destroy();
  EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
  call.ExpectDone();
}

TEST(Executor, KeepsTheDescriptionOfPhaseOne) {
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  const std::int64_t dims[] = {6};
  EXPECT_EQ(aclInitTensor(call.grad_tensor, dims, 1, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, dims, 1, nullptr),
            ACLNN_SUCCESS);
  EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
  call.ExpectDone();
}

TEST(Executor, IsSpentByItsLaunch) {
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  ASSERT_EQ(call.Launch(), ACLNN_SUCCESS);
  call.Clear();
  TakeMessage();
  EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(TakeMessage(), HasSubstr("executor"));
  call.ExpectUntouched();
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclSetTensorAddr(call.executor, 0, call.grad_tensor, call.grad.data()), ACLNN_ERR_PARAM_INVALID);
}

// A spent handle must not become the name of the executor that takes its place.
TEST(Executor, HandleStaysSpentThoughOthersAreMade) {
  Small first, second;
  ASSERT_EQ(first.Prepare(), ACLNN_SUCCESS);
  ASSERT_EQ(first.Launch(), ACLNN_SUCCESS);
  ASSERT_EQ(second.Prepare(), ACLNN_SUCCESS);
  EXPECT_EQ(first.Launch(), ACLNN_ERR_PARAM_INVALID);
  second.ExpectUntouched();
  EXPECT_EQ(second.Launch(), ACLNN_SUCCESS);
  second.ExpectDone();
}

TEST(Executor, NullHasACodeOfItsOwn) {
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  EXPECT_EQ(aclnnEmbeddingDenseBackward(nullptr, 0, nullptr, nullptr), ACLNN_ERR_INNER_NULLPTR);
  EXPECT_EQ(aclnnEmbedding(nullptr, 0, nullptr, nullptr), ACLNN_ERR_INNER_NULLPTR);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(nullptr), ACLNN_ERR_INNER_NULLPTR);
  EXPECT_EQ(aclDestroyAclOpExecutor(nullptr), ACLNN_ERR_INNER_NULLPTR);
  EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
}

TEST(Executor, ForeignPointersAreRefused) {
  int foreign = 0;
  Small call;
  for (void* pointer : {static_cast<void*>(&foreign), static_cast<void*>(static_cast<aclTensor*>(call.grad_tensor)),
                        reinterpret_cast<void*>(std::uintptr_t{1}), reinterpret_cast<void*>(~std::uintptr_t{0})}) {
    auto* executor = static_cast<aclOpExecutor*>(pointer);
    EXPECT_EQ(aclnnEmbeddingDenseBackward(nullptr, 0, executor, nullptr), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(executor), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), ACLNN_ERR_PARAM_INVALID);
  }
}

TEST(Executor, OfAnotherOperatorIsRefused) {
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  TakeMessage();
  EXPECT_EQ(aclnnEmbedding(call.workspace.data(), call.workspace_size, call.executor, nullptr),
            ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(TakeMessage(), HasSubstr("aclnnEmbeddingDenseBackward"));
  EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
  call.ExpectDone();
}

TEST(Executor, ThatWasNeverLaunchedMayBeDestroyed) {
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
  call.ExpectUntouched();
}

TEST(Executor, FailedPhaseOneLeavesNoneAndItsLaunchIsHarmless) {
  Small call;
  call.workspace_size = 77;
  call.executor = reinterpret_cast<aclOpExecutor*>(&call);
  call.grad_tensor.Destroy();
  TakeMessage();
  EXPECT_EQ(call.Prepare(), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(TakeMessage(), "grad: must not be null");
  EXPECT_EQ(call.workspace_size, 0u);
  EXPECT_EQ(call.executor, nullptr);
  EXPECT_EQ(call.Launch(), ACLNN_ERR_INNER_NULLPTR);  // Paddle ignores the status of phase 1
  call.ExpectUntouched();
}

// The reference implementation always has a workspace.
TEST(Workspace, NullOrTooSmallIsRefusedAndSpendsNothing) {
  const ScopedEnv force("ONEHOT_FORCE", "ref");
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  ASSERT_GT(call.workspace_size, 0u);
  TakeMessage();
  EXPECT_EQ(aclnnEmbeddingDenseBackward(nullptr, call.workspace_size, call.executor, nullptr), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(TakeMessage(), HasSubstr("workspace: must be"));
  EXPECT_EQ(aclnnEmbeddingDenseBackward(call.workspace.data(), call.workspace_size - 1, call.executor, nullptr),
            ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(TakeMessage(), HasSubstr("workspaceSize: must be at least"));
  EXPECT_EQ(aclnnEmbeddingDenseBackward(nullptr, 0, call.executor, nullptr), ACLNN_ERR_PARAM_INVALID);
  call.ExpectUntouched();
  EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
  call.ExpectDone();
}

TEST(Workspace, ThatItsBlockDoesNotHoldIsRefused) {
  const ScopedEnv force("ONEHOT_FORCE", "ref");
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  void* block = nullptr;
  ASSERT_EQ(aclrtMalloc(&block, call.workspace_size, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
  EXPECT_EQ(aclnnEmbeddingDenseBackward(static_cast<char*>(block) + 1, call.workspace_size, call.executor, nullptr),
            ACLNN_ERR_PARAM_INVALID);
  call.ExpectUntouched();
  EXPECT_EQ(aclnnEmbeddingDenseBackward(block, call.workspace_size, call.executor, nullptr), ACLNN_SUCCESS);
  call.ExpectDone();
  EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
}

TEST(Workspace, MayHaveAnyAlignmentAndContent) {
  for (const char* force : {"ref", static_cast<const char*>(nullptr)}) {
    const ScopedEnv forced("ONEHOT_FORCE", force);
    for (std::size_t shift = 0; shift < 64; shift += 3) {
      Small call;
      ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
      call.workspace.assign(call.workspace_size + shift, std::byte{0xFF});
      EXPECT_EQ(aclnnEmbeddingDenseBackward(call.workspace.data() + shift, call.workspace_size, call.executor, nullptr),
                ACLNN_SUCCESS);
      call.ExpectDone();
    }
  }
}

TEST(Launch, OnADeadStreamIsRefusedAndSpendsNothing) {
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  ASSERT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
  TakeMessage();
  EXPECT_EQ(aclnnEmbeddingDenseBackward(call.workspace.data(), call.workspace_size, call.executor, stream),
            ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(TakeMessage(), HasSubstr("stream"));
  call.ExpectUntouched();
  EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
  call.ExpectDone();
}

TEST(Launch, WithBadDataSpendsTheExecutorAndTheStreamSaysItOnce) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  aclrtGetLastError(ACL_RT_THREAD_LEVEL);
  Small call;
  call.indices[1] = 3;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  TakeMessage();
  EXPECT_EQ(aclnnEmbeddingDenseBackward(call.workspace.data(), call.workspace_size, call.executor, stream),
            ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(TakeMessage(), "indices[1] = 3 is outside [0, 3)");
  call.ExpectUntouched();
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), ACL_SUCCESS);  // not a runtime error
  EXPECT_EQ(aclrtSynchronizeStream(stream), 507015);
  EXPECT_THAT(TakeMessage(), HasSubstr("indices[1] = 3 is outside [0, 3)"));
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 507015);
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  call.indices[1] = 0;
  EXPECT_EQ(aclnnEmbeddingDenseBackward(call.workspace.data(), call.workspace_size, call.executor, stream),
            ACLNN_ERR_PARAM_INVALID);
  call.ExpectUntouched();
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
}

TEST(Launch, WithNullDataIsRefusedAndSpendsNothing) {
  Small call;
  LiveTensor empty({3, 2}, ACL_FLOAT, nullptr);
  ASSERT_EQ(aclnnEmbeddingDenseBackwardGetWorkspaceSize(empty, call.indices_tensor, 3, kNone, false, call.out_tensor,
                                                        &call.workspace_size, &call.executor),
            ACLNN_SUCCESS);
  call.workspace.resize(call.workspace_size);
  TakeMessage();
  EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(TakeMessage(), "grad: data must not be null");
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
  call.ExpectUntouched();
  EXPECT_EQ(aclSetTensorAddr(call.executor, 0, empty, call.grad.data()), ACLNN_SUCCESS);
  EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
  call.ExpectDone();
}

TEST(Repeatable, IsLaunchedUntilItsOwnerDestroysIt) {
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
  for (int i = 0; i < 3; ++i) {
    call.Clear();
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    call.ExpectDone();
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
  EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_ERR_PARAM_INVALID);
}

TEST(Repeatable, SurvivesBadData) {
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
  call.indices[0] = -1;
  EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), 507015);
  call.ExpectUntouched();
  call.indices[0] = 2;
  EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
  call.ExpectDone();
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
}

TEST(Addresses, OfEveryTensorCanBeChangedInEverySpelling) {
  using Setter = aclnnStatus (*)(aclOpExecutor*, std::size_t, aclTensor*, void*);
  struct Spelling {
    Setter any, input, output;
  };
  for (const Spelling& set : {Spelling{aclSetTensorAddr, aclSetInputTensorAddr, aclSetOutputTensorAddr},
                              Spelling{AclSetTensorAddr, AclSetInputTensorAddr, AclSetOutputTensorAddr}}) {
    Small call;
    ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
    std::vector<float> grad{5, 6, 7, 8, 9, 10}, out(6, NAN);
    std::vector<std::int64_t> indices{0, 1, 2};

    EXPECT_EQ(set.any(call.executor, 0, call.grad_tensor, grad.data()), ACLNN_SUCCESS);
    EXPECT_EQ(set.any(call.executor, 1, call.indices_tensor, indices.data()), ACLNN_SUCCESS);
    EXPECT_EQ(set.any(call.executor, 2, call.out_tensor, out.data()), ACLNN_SUCCESS);
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    EXPECT_EQ(out, grad);
    call.ExpectUntouched();

    EXPECT_EQ(set.input(call.executor, 0, call.grad_tensor, call.grad.data()), ACLNN_SUCCESS);
    EXPECT_EQ(set.input(call.executor, 1, call.indices_tensor, call.indices.data()), ACLNN_SUCCESS);
    EXPECT_EQ(set.output(call.executor, 0, call.out_tensor, call.out.data()), ACLNN_SUCCESS);
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    call.ExpectDone();
    EXPECT_EQ(out, grad);

    TakeMessage();
    EXPECT_EQ(set.any(call.executor, 3, call.grad_tensor, grad.data()), ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(TakeMessage(), HasSubstr("index: must be in [0, 3)"));
    EXPECT_EQ(set.input(call.executor, 2, call.grad_tensor, grad.data()), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(set.output(call.executor, 1, call.grad_tensor, grad.data()), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(set.any(call.executor, ~std::size_t{0}, call.grad_tensor, grad.data()), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(set.any(nullptr, 0, call.grad_tensor, grad.data()), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(set.any(call.executor, 0, nullptr, grad.data()), ACLNN_ERR_PARAM_NULLPTR);
    aclTensor* dead = TensorSpec{{2}}.Create();
    aclDestroyTensor(dead);
    EXPECT_EQ(set.any(call.executor, 0, dead, grad.data()), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
  }
}

TEST(Addresses, KeepTheOffsetOfTheView) {
  Small call;
  std::vector<float> padded{-1, -1, 1, 2, 10, 20, 100, 200}, other{-1, -1, 5, 6, 7, 8, 9, 10};
  LiveTensor grad({{3, 2}, ACL_FLOAT, padded.data(), {}, 2});
  ASSERT_EQ(aclnnEmbeddingDenseBackwardGetWorkspaceSize(grad, call.indices_tensor, 3, kNone, false, call.out_tensor,
                                                        &call.workspace_size, &call.executor),
            ACLNN_SUCCESS);
  call.workspace.resize(call.workspace_size);
  EXPECT_EQ(aclSetInputTensorAddr(call.executor, 0, grad, other.data()), ACLNN_SUCCESS);
  EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
  EXPECT_THAT(call.out, ElementsAre(7, 8, 0, 0, 14, 16));
}

TEST(Addresses, AreCheckedWhenTheyAreLaunched) {
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  void* block = nullptr;
  ASSERT_EQ(aclrtMalloc(&block, 23, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);  // one byte less than grad
  EXPECT_EQ(aclSetTensorAddr(call.executor, 0, call.grad_tensor, block), ACLNN_SUCCESS);
  TakeMessage();
  EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(TakeMessage(), HasSubstr("grad: must stay inside its block"));
  call.ExpectUntouched();
  EXPECT_EQ(aclSetTensorAddr(call.executor, 0, call.grad_tensor, nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(TakeMessage(), HasSubstr("grad: data must not be null"));
  EXPECT_EQ(aclSetTensorAddr(call.executor, 0, call.grad_tensor, call.grad.data()), ACLNN_SUCCESS);
  EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
  call.ExpectDone();
  aclrtFree(block);
}

// Another implementation, which needs a larger workspace, may be what takes the new address.
TEST(Addresses, NeverNeedMoreWorkspaceThanPhaseOneSaid) {
  constexpr std::int64_t kRows = 1000,
                         kWidth = 256;  // wide rows need little, the reference an f64 for each element of out
  std::vector<float> grad(kWidth, 2), out(kRows * kWidth, NAN);
  std::int32_t index = 999;
  const LiveTensor g({1, kWidth}, ACL_FLOAT, grad.data()), i({1}, ACL_INT32, &index);
  const LiveTensor o({kRows, kWidth}, ACL_FLOAT, out.data());
  std::uint64_t size = 0, larger = 0;
  aclOpExecutor *executor = nullptr, *other = nullptr;
  ASSERT_EQ(aclnnEmbeddingDenseBackwardGetWorkspaceSize(g, i, kRows, kNone, false, o, &size, &executor), ACLNN_SUCCESS);
  const ScopedEnv force("ONEHOT_FORCE", "ref");
  ASSERT_EQ(aclnnEmbeddingDenseBackwardGetWorkspaceSize(g, i, kRows, kNone, false, o, &larger, &other), ACLNN_SUCCESS);
  ASSERT_GT(larger, size);
  EXPECT_EQ(aclDestroyAclOpExecutor(other), ACLNN_SUCCESS);
  EXPECT_EQ(aclSetTensorAddr(executor, 0, g, grad.data()), ACLNN_SUCCESS);
  std::vector<std::byte> workspace(size);
  EXPECT_EQ(aclnnEmbeddingDenseBackward(workspace.data(), size, executor, nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(out.front(), 0);
  EXPECT_EQ(out.back(), 2);
}

TEST(Addresses, OfListsAreRefusedSinceNoOperatorTakesOne) {
  using Setter = aclnnStatus (*)(aclOpExecutor*, std::size_t, std::size_t, aclTensorList*, void*);
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  aclTensorList* list = aclCreateTensorList(nullptr, 0);
  aclTensorList* dead = aclCreateTensorList(nullptr, 0);
  aclDestroyTensorList(dead);
  for (Setter set : {aclSetDynamicTensorAddr, aclSetDynamicInputTensorAddr, aclSetDynamicOutputTensorAddr,
                     AclSetDynamicTensorAddr, AclSetDynamicInputTensorAddr, AclSetDynamicOutputTensorAddr}) {
    EXPECT_EQ(set(call.executor, 0, 0, list, call.grad.data()), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(set(call.executor, 0, 0, dead, call.grad.data()), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(set(call.executor, 0, 0, nullptr, call.grad.data()), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(set(nullptr, 0, 0, list, call.grad.data()), ACLNN_ERR_PARAM_NULLPTR);
  }
  EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
  aclDestroyTensorList(list);
}

TEST(Threads, PhasesMayRunOnDifferentOnes) {
  Small call;
  aclnnStatus prepared = -1, launched = -1;
  std::thread([&] { prepared = call.Prepare(); }).join();
  std::thread([&] { launched = call.Launch(); }).join();
  EXPECT_EQ(prepared, ACLNN_SUCCESS);
  EXPECT_EQ(launched, ACLNN_SUCCESS);
  call.ExpectDone();
}

// Holds launches on a stream back, as long as this thread does not process its reports: they have found their executor
// and wait.
class HeldStream {
 public:
  HeldStream() {
    EXPECT_EQ(aclrtCreateStream(&stream_), ACL_SUCCESS);
    EXPECT_EQ(aclrtSubscribeReport(pthread_self(), stream_), ACL_SUCCESS);
    EXPECT_EQ(aclrtLaunchCallback([](void*) {}, nullptr, ACL_CALLBACK_BLOCK, stream_), ACL_SUCCESS);
  }
  ~HeldStream() {
    EXPECT_EQ(aclrtUnSubscribeReport(pthread_self(), stream_), ACL_SUCCESS);
    EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
  }
  void Release() {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for the others to get there
    EXPECT_EQ(aclrtProcessReport(1000), ACL_SUCCESS);
  }
  aclrtStream get() const { return stream_; }

 private:
  aclrtStream stream_ = nullptr;
};

TEST(Threads, OneOfThemSpendsAnExecutor) {
  HeldStream stream;
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  std::atomic<int> ran{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const aclnnStatus status =
          aclnnEmbeddingDenseBackward(call.workspace.data(), call.workspace_size, call.executor, stream.get());
      ran += status == ACLNN_SUCCESS;
      refused += status == ACLNN_ERR_PARAM_INVALID;
    });
  }
  stream.Release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(refused, 2);
  call.ExpectDone();
}

TEST(Threads, ALaunchOutlivesTheHandleOfItsExecutor) {
  HeldStream stream;
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
  aclnnStatus launched = -1;
  std::thread thread([&] {
    launched = aclnnEmbeddingDenseBackward(call.workspace.data(), call.workspace_size, call.executor, stream.get());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
  stream.Release();
  thread.join();
  EXPECT_EQ(launched, ACLNN_SUCCESS);
  call.ExpectDone();
}

TEST(Threads, ShareARepeatableExecutor) {
  Small call;
  ASSERT_EQ(call.Prepare(), ACLNN_SUCCESS);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        if (t == 0) {
          EXPECT_EQ(aclSetTensorAddr(call.executor, 0, call.grad_tensor, call.grad.data()), ACLNN_SUCCESS);
        }
        EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
      }
    });
  for (std::thread& thread : threads) thread.join();
  call.ExpectDone();
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
}

TEST(Threads, RunTheirOwnCallsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) {
        Small call;
        EXPECT_EQ(call.Prepare(), ACLNN_SUCCESS);
        EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
        call.ExpectDone();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// Handles are reachable from their tables, so a leak checker does not see one that is forgotten there.
TEST(Memory, IsGivenBack) {
  const auto round = [] {
    Small call;
    EXPECT_EQ(call.Prepare(), ACLNN_SUCCESS);
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    EXPECT_EQ(call.Prepare(), ACLNN_SUCCESS);
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(call.executor), ACLNN_SUCCESS);
    EXPECT_EQ(call.Launch(), ACLNN_SUCCESS);
    EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), ACLNN_SUCCESS);
    call.indices[0] = 5;
    EXPECT_EQ(call.Prepare(), ACLNN_SUCCESS);
    EXPECT_EQ(call.Launch(), ACLNN_ERR_PARAM_INVALID);
    aclrtSynchronizeStream(nullptr);
    TakeMessage();
  };
  for (int i = 0; i < 10; ++i) round();
  const std::size_t before = mallinfo2().uordblks;  // 0 under sanitizers
  for (int i = 0; i < 1000; ++i) round();
  EXPECT_LT(mallinfo2().uordblks, before + 1000);  // less than a byte for each round
}

}  // namespace
}  // namespace onehot::test
