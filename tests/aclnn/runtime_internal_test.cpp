// What the operators ask of the runtime: blocks, streams, the product.
#include <pthread.h>

#include <cstdlib>
#include <thread>

#include "aclnn/memory.h"
#include "aclnn/product.h"
#include "aclnn/stream.h"
#include "tests/aclnn/runtime.h"

namespace onehot::aclnn {
namespace {

using onehot::test::TakeText;

TEST(FindBlock, KnowsTheBytesThatWereAskedFor) {
  void *first = nullptr, *second = nullptr, *host = nullptr;
  ASSERT_DONE(aclrtMalloc(&first, 100, ACL_MEM_MALLOC_HUGE_FIRST));
  ASSERT_DONE(aclrtMalloc(&second, 1, ACL_MEM_MALLOC_HUGE_FIRST));
  ASSERT_DONE(aclrtMallocHost(&host, 100));
  auto* const bytes = static_cast<std::byte*>(first);
  for (const int offset : {0, 1, 99}) {
    const auto block = FindBlock(bytes + offset);
    ASSERT_TRUE(block.has_value()) << offset;
    EXPECT_EQ(block->base, bytes);
    EXPECT_EQ(block->bytes, 100u);
  }
  EXPECT_FALSE(FindBlock(bytes + 100));
  EXPECT_FALSE(FindBlock(bytes - 1));
  EXPECT_TRUE(FindBlock(second));
  EXPECT_FALSE(FindBlock(static_cast<std::byte*>(second) + 1));
  EXPECT_FALSE(FindBlock(host)) << "only blocks of aclrtMalloc bound a view";
  EXPECT_FALSE(FindBlock(&host));
  EXPECT_FALSE(FindBlock(nullptr));
  EXPECT_DONE(aclrtFree(first));
  EXPECT_FALSE(FindBlock(first));
  EXPECT_DONE(aclrtFree(second));
  EXPECT_DONE(aclrtFreeHost(host));
}

TEST(Streams, Liveness) {
  aclrtStream stream = nullptr;
  ASSERT_DONE(aclrtCreateStream(&stream));
  EXPECT_TRUE(IsLiveStream(stream));
  EXPECT_TRUE(IsLiveStream(nullptr));
  EXPECT_FALSE(IsLiveStream(&stream));
  ASSERT_DONE(aclrtDestroyStream(stream));
  EXPECT_FALSE(IsLiveStream(stream));
  AwaitTurn(stream);  // neither may follow the handle
  NoteStreamError(stream, "lost");
}

TEST(Streams, BadDataIsReportedOnceByTheNextSynchronise) {
  aclrtStream stream = nullptr, other = nullptr;
  ASSERT_DONE(aclrtCreateStream(&stream));
  ASSERT_DONE(aclrtCreateStream(&other));
  using Synchronize = aclError (*)(aclrtStream);
  const Synchronize ways[] = {
      [](aclrtStream one) { return aclrtSynchronizeStream(one); },
      [](aclrtStream one) { return aclrtSynchronizeStreamWithTimeout(one, 0); },
      [](aclrtStream) { return aclrtSynchronizeDevice(); },
  };
  for (const Synchronize synchronize : ways)
    for (const aclrtStream one : {stream, static_cast<aclrtStream>(nullptr)}) {
      (void)aclrtGetLastError(ACL_RT_THREAD_LEVEL);
      NoteStreamError(one, "indices[0] = 7 is outside [0, 7)");
      NoteStreamError(one, "what came after the first is not reported");
      EXPECT_EQ(TakeText(), "") << "noting is not failing";
      EXPECT_DONE(aclrtSynchronizeStream(other));
      EXPECT_EQ(synchronize(one), 507015);
      EXPECT_EQ(TakeText(), "indices[0] = 7 is outside [0, 7)");
      EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 507015);
      EXPECT_DONE(synchronize(one));
      EXPECT_DONE(aclrtSynchronizeStream(one));
    }
  EXPECT_DONE(aclrtDestroyStream(stream));
  EXPECT_DONE(aclrtDestroyStream(other));
}

TEST(Streams, TurnComesAfterABlockingCallback) {
  aclrtStream stream = nullptr;
  static int ran;
  ran = 0;
  ASSERT_DONE(aclrtCreateStream(&stream));
  ASSERT_DONE(aclrtSubscribeReport(static_cast<uint64_t>(pthread_self()), stream));
  ASSERT_DONE(aclrtLaunchCallback([](void*) { ++ran; }, nullptr, ACL_CALLBACK_BLOCK, stream));
  AwaitTurn(nullptr);
  EXPECT_EQ(ran, 0);
  AwaitTurn(stream);
  EXPECT_EQ(ran, 1);
  EXPECT_DONE(aclrtDestroyStream(stream));
}

// The default stream of another context is another stream.
TEST(Streams, NullIsTheContextsDefault) {
  std::thread([] {
    aclrtContext context = nullptr;
    NoteStreamError(nullptr, "in the default context");
    ASSERT_DONE(aclrtCreateContext(&context, 0));
    EXPECT_DONE(aclrtSynchronizeStream(nullptr));
    NoteStreamError(nullptr, "in the other context");
    ASSERT_DONE(aclrtSetDevice(0));
    EXPECT_REFUSED(507015, aclrtSynchronizeStream(nullptr), "in the default context");
    ASSERT_DONE(aclrtSetCurrentContext(context));
    EXPECT_REFUSED(507015, aclrtSynchronizeStream(nullptr), "in the other context");
    EXPECT_DONE(aclrtDestroyContext(context));
  }).join();
}

TEST(Product, IsReadFromTheEnvironmentEveryTime) {
  const std::pair<const char*, Product> products[] = {{"Ascend910A", Product::kAscend910A},
                                                      {"Ascend910B", Product::kAscend910B},
                                                      {"Ascend910_93", Product::kAscend910_93},
                                                      {"Ascend950", Product::kAscend950}};
  for (const auto& [name, product] : products) {
    setenv("ONEHOT_SOC", name, 1);
    ASSERT_TRUE(CurrentProduct().ok());
    EXPECT_EQ(*CurrentProduct(), product);
    EXPECT_STREQ(Name(product), name);
  }
  setenv("ONEHOT_SOC", "none", 1);
  EXPECT_FALSE(CurrentProduct().ok());
  EXPECT_EQ(CurrentProduct().status().message(),
            "ONEHOT_SOC: must be one of Ascend910A, Ascend910B, Ascend910_93, Ascend950, is none");
  unsetenv("ONEHOT_SOC");
  ASSERT_TRUE(CurrentProduct().ok());
  EXPECT_EQ(*CurrentProduct(), Product::kAscend910B);
}

}  // namespace
}  // namespace onehot::aclnn
