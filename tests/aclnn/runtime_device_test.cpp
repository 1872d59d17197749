// Device, contexts and options.
#include <cstdint>
#include <thread>

#include "acl/acl_op_compiler.h"
#include "tests/aclnn/runtime.h"

namespace onehot::test {
namespace {

// Runs `body` in a thread that has set neither device nor context.
template <class Body>
void InFreshThread(Body&& body) {
  std::thread(body).join();
}

TEST(Device, ThereIsOne) {
  uint32_t count = 0;
  EXPECT_DONE(aclrtGetDeviceCount(&count));
  EXPECT_EQ(count, 1u);
  EXPECT_REFUSED(100000, aclrtGetDeviceCount(nullptr), "count must not be null");
  for (const int32_t device : {1, -1, 7}) {
    EXPECT_REFUSED(107001, aclrtSetDevice(device), "deviceId must be 0, the only device, is " + std::to_string(device));
    EXPECT_REFUSED(107001, aclrtResetDevice(device), "deviceId must be 0");
    aclrtContext context = nullptr;
    EXPECT_REFUSED(107001, aclrtCreateContext(&context, device), "deviceId must be 0");
    EXPECT_EQ(context, nullptr);
  }
}

TEST(Device, RunModeIsHost) {
  aclrtRunMode mode = ACL_DEVICE;
  EXPECT_DONE(aclrtGetRunMode(&mode));
  EXPECT_EQ(mode, ACL_HOST);
  EXPECT_REFUSED(100000, aclrtGetRunMode(nullptr), "runMode must not be null");
}

TEST(Device, SetAndReset) {
  InFreshThread([] {
    int32_t device = -1;
    aclrtContext context = nullptr, again = nullptr;
    EXPECT_REFUSED(107002, aclrtGetDevice(&device), "must have called aclrtSetDevice");
    EXPECT_REFUSED(107002, aclrtGetCurrentContext(&context), "must have called aclrtSetDevice");
    EXPECT_DONE(aclrtSetDevice(0));
    EXPECT_DONE(aclrtSetDevice(0));
    EXPECT_DONE(aclrtGetDevice(&device));
    EXPECT_EQ(device, 0);
    EXPECT_DONE(aclrtGetCurrentContext(&context));
    EXPECT_NE(context, nullptr);
    std::thread([&] {
      EXPECT_DONE(aclrtSetDevice(0));
      EXPECT_DONE(aclrtGetCurrentContext(&again));
    }).join();
    EXPECT_EQ(again, context) << "a device has one default context";
    EXPECT_REFUSED(100000, aclrtDestroyContext(context), "must not be the default context");

    aclrtStream stream = nullptr;
    EXPECT_DONE(aclrtCreateStream(&stream));
    EXPECT_DONE(aclrtResetDevice(0));
    EXPECT_REFUSED(107002, aclrtGetDevice(&device), "must have called aclrtSetDevice");
    EXPECT_REFUSED(100000, aclrtSetCurrentContext(context), "is not a live context");
    EXPECT_REFUSED(100000, aclrtSynchronizeStream(stream), "is not a live stream");
    EXPECT_DONE(aclrtResetDevice(0));
    EXPECT_REFUSED(100000, aclrtGetDevice(nullptr), "deviceId must not be null");
  });
}

TEST(Device, WorkNeedsNoDevice) {
  InFreshThread([] {
    aclrtStream stream = nullptr;
    aclrtEvent event = nullptr;
    int64_t value = -1;
    EXPECT_DONE(aclrtSynchronizeStream(nullptr));
    EXPECT_DONE(aclrtSynchronizeDevice());
    EXPECT_DONE(aclrtCreateStream(&stream));
    EXPECT_DONE(aclrtCreateEvent(&event));
    EXPECT_DONE(aclrtRecordEvent(event, nullptr));
    EXPECT_DONE(aclrtStreamWaitEvent(stream, event));
    EXPECT_DONE(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value));
    EXPECT_DONE(aclrtDestroyEvent(event));
    EXPECT_DONE(aclrtDestroyStream(stream));
  });
}

TEST(Device, HasNoPeers) {
  int32_t can = -1;
  EXPECT_DONE(aclrtDeviceCanAccessPeer(&can, 0, 0));
  EXPECT_EQ(can, 0);
  EXPECT_REFUSED(107001, aclrtDeviceCanAccessPeer(&can, 0, 1), "peerDeviceId must be 0");
  EXPECT_REFUSED(107001, aclrtDeviceCanAccessPeer(&can, 2, 0), "deviceId must be 0, the only device, is 2");
  EXPECT_REFUSED(100000, aclrtDeviceCanAccessPeer(nullptr, 0, 0), "canAccessPeer must not be null");
  EXPECT_REFUSED(107001, aclrtDeviceEnablePeerAccess(1, 0), "peerDeviceId must be 0");
  EXPECT_REFUSED(100000, aclrtDeviceEnablePeerAccess(0, 1), "flags must be 0, is 1");
  EXPECT_REFUSED(100000, aclrtDeviceEnablePeerAccess(0, 0), "must not be the device itself");
}

TEST(Context, TheLastOneSetIsCurrent) {
  InFreshThread([] {
    aclrtContext first = nullptr, second = nullptr, current = nullptr;
    ASSERT_DONE(aclrtCreateContext(&first, 0));
    EXPECT_DONE(aclrtGetCurrentContext(&current));
    EXPECT_EQ(current, first);
    ASSERT_DONE(aclrtCreateContext(&second, 0));
    EXPECT_DONE(aclrtGetCurrentContext(&current));
    EXPECT_EQ(current, second);
    EXPECT_DONE(aclrtSetCurrentContext(first));
    EXPECT_DONE(aclrtGetCurrentContext(&current));
    EXPECT_EQ(current, first);
    int32_t device = -1;
    EXPECT_DONE(aclrtGetDevice(&device));
    EXPECT_EQ(device, 0);
    EXPECT_DONE(aclrtSetDevice(0));
    EXPECT_DONE(aclrtGetCurrentContext(&current));
    EXPECT_NE(current, first);
    std::thread([&] {
      EXPECT_DONE(aclrtSetCurrentContext(second));  // contexts are not bound to the thread that made them
      EXPECT_DONE(aclrtGetCurrentContext(&current));
      EXPECT_EQ(current, second);
    }).join();
    EXPECT_DONE(aclrtDestroyContext(first));
    EXPECT_DONE(aclrtDestroyContext(second));
  });
}

TEST(Context, DestroyTakesItsStreams) {
  InFreshThread([] {
    aclrtContext context = nullptr, current = nullptr;
    aclrtStream inside = nullptr, outside = nullptr;
    ASSERT_DONE(aclrtCreateStream(&outside));
    ASSERT_DONE(aclrtCreateContext(&context, 0));
    ASSERT_DONE(aclrtCreateStream(&inside));
    EXPECT_DONE(aclrtDestroyContext(context));
    EXPECT_REFUSED(100000, aclrtSynchronizeStream(inside), "is not a live stream");
    EXPECT_REFUSED(107002, aclrtGetCurrentContext(&current), "must have called aclrtSetDevice");
    EXPECT_DONE(aclrtSynchronizeStream(outside));
    EXPECT_DONE(aclrtSynchronizeStream(nullptr));
    EXPECT_DONE(aclrtDestroyStream(outside));
  });
}

TEST(Context, MisusedHandles) {
  aclrtContext context = nullptr, next = nullptr;
  aclrtStream stream = nullptr;
  int local = 0;
  ASSERT_DONE(aclrtCreateStream(&stream));
  ASSERT_DONE(aclrtCreateContext(&context, 0));
  for (const aclrtContext bad : {static_cast<aclrtContext>(&local), static_cast<aclrtContext>(stream)}) {
    EXPECT_REFUSED(100000, aclrtDestroyContext(bad), "is not a live context");
    EXPECT_REFUSED(100000, aclrtSetCurrentContext(bad), "is not a live context");
  }
  EXPECT_REFUSED(100000, aclrtCreateContext(nullptr, 0), "context must not be null");
  EXPECT_REFUSED(100000, aclrtDestroyContext(nullptr), "context must not be null");
  EXPECT_REFUSED(100000, aclrtSetCurrentContext(nullptr), "context must not be null");
  EXPECT_REFUSED(100000, aclrtGetCurrentContext(nullptr), "context must not be null");
  EXPECT_DONE(aclrtDestroyContext(context));
  ASSERT_DONE(aclrtCreateContext(&next, 0));  // takes the memory of the one before, but not its handle
  EXPECT_REFUSED(100000, aclrtDestroyContext(context), "is not a live context");
  EXPECT_REFUSED(100000, aclrtSetCurrentContext(context), "is not a live context");
  EXPECT_DONE(aclrtDestroyContext(next));
  EXPECT_DONE(aclrtDestroyStream(stream));
}

int64_t Value(aclError (*get)(aclSysParamOpt, int64_t*), aclSysParamOpt opt) {
  int64_t value = -1;
  EXPECT_DONE(get(opt, &value));
  return value;
}

TEST(Options, ContextThenProcessThenZero) {
  EXPECT_TRUE(HoldsInChild([] {
    for (const aclSysParamOpt opt : {ACL_OPT_DETERMINISTIC, ACL_OPT_ENABLE_DEBUG_KERNEL, ACL_OPT_STRONG_CONSISTENCY}) {
      aclrtContext context = nullptr;
      EXPECT_EQ(Value(aclrtGetSysParamOpt, opt), 0);
      EXPECT_EQ(Value(aclrtCtxGetSysParamOpt, opt), 0);
      EXPECT_DONE(aclrtSetSysParamOpt(opt, 1));
      EXPECT_EQ(Value(aclrtGetSysParamOpt, opt), 1);
      EXPECT_EQ(Value(aclrtCtxGetSysParamOpt, opt), 1);
      EXPECT_DONE(aclrtCtxSetSysParamOpt(opt, 3));
      EXPECT_EQ(Value(aclrtCtxGetSysParamOpt, opt), 3);
      EXPECT_EQ(Value(aclrtGetSysParamOpt, opt), 1) << "the process form sees no context's value";
      EXPECT_DONE(aclrtSetSysParamOpt(opt, 0));
      EXPECT_EQ(Value(aclrtCtxGetSysParamOpt, opt), 3);
      EXPECT_DONE(aclrtCtxSetSysParamOpt(opt, 0));
      EXPECT_EQ(Value(aclrtCtxGetSysParamOpt, opt), 0);
      EXPECT_DONE(aclrtSetSysParamOpt(opt, 1000));
      EXPECT_EQ(Value(aclrtCtxGetSysParamOpt, opt), 0) << "a context's 0 is a value too";
      EXPECT_DONE(aclrtCreateContext(&context, 0));
      EXPECT_EQ(Value(aclrtCtxGetSysParamOpt, opt), 1000) << "another context has its own";
      EXPECT_DONE(aclrtDestroyContext(context));
    }
    return !::testing::Test::HasFailure();
  }));
}

TEST(Options, Refuse) {
  int64_t value = 77;
  for (const int bad : {-1, 3, 1000}) {
    const auto opt = static_cast<aclSysParamOpt>(bad);
    const std::string text = "opt must be in [0, 2], is " + std::to_string(bad);
    EXPECT_REFUSED(100000, aclrtGetSysParamOpt(opt, &value), text);
    EXPECT_REFUSED(100000, aclrtSetSysParamOpt(opt, 1), text);
    EXPECT_REFUSED(100000, aclrtCtxGetSysParamOpt(opt, &value), text);
    EXPECT_REFUSED(100000, aclrtCtxSetSysParamOpt(opt, 1), text);
  }
  EXPECT_EQ(value, 77);
  EXPECT_REFUSED(100000, aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, -1), "value must not be negative, is -1");
  EXPECT_REFUSED(100000, aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, -1), "value must not be negative, is -1");
  EXPECT_REFUSED(100000, aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, nullptr), "value must not be null");
  EXPECT_REFUSED(100000, aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, nullptr), "value must not be null");
}

TEST(Options, CompilerOptionsAreAccepted) {
  EXPECT_DONE(aclSetCompileopt(ACL_OP_JIT_COMPILE, "disable"));
  EXPECT_DONE(aclSetCompileopt(ACL_OP_DETERMINISTIC, "1"));
  EXPECT_DONE(aclSetCompileopt(static_cast<aclCompileOpt>(0), "allow_fp32_to_fp16"));
  EXPECT_REFUSED(100000, aclSetCompileopt(ACL_OP_JIT_COMPILE, nullptr), "value must not be null");
}

}  // namespace
}  // namespace onehot::test
