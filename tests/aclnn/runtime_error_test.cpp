#include <string>
#include <thread>

#include "tests/aclnn/runtime.h"

namespace onehot::test {
namespace {

TEST(Errors, LastErrorIsTakenByGetAndLeftByPeek) {
  (void)aclrtGetLastError(ACL_RT_THREAD_LEVEL);
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 0);
  EXPECT_EQ(aclrtFree(nullptr), 100000);
  EXPECT_EQ(aclrtSetDevice(5), 107001);
  EXPECT_DONE(aclrtSynchronizeStream(nullptr));  // success does not clear it
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 107001);
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 107001);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 107001);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 0);
  EXPECT_EQ(aclrtGetLastError(static_cast<aclrtLastErrLevel>(1)), 100000);
  EXPECT_EQ(aclrtPeekAtLastError(static_cast<aclrtLastErrLevel>(-1)), 100000);
}

TEST(Errors, TextIsNewestFirstAndTaken) {
  (void)TakeText();
  EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
  EXPECT_EQ(aclrtFree(nullptr), 100000);
  EXPECT_EQ(aclrtSetDevice(5), 107001);
  EXPECT_STREQ(aclGetRecentErrMsg(),
               "aclrtSetDevice: deviceId must be 0, the only device, is 5\naclrtFree: devPtr must not be null");
  EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
}

TEST(Errors, TextStaysUntilTheNextCall) {
  (void)TakeText();
  EXPECT_EQ(aclrtFree(nullptr), 100000);
  const char* const text = aclGetRecentErrMsg();
  EXPECT_EQ(aclrtFreeHost(nullptr), 100000);
  EXPECT_STREQ(text, "aclrtFree: devPtr must not be null");
  EXPECT_STREQ(aclGetRecentErrMsg(), "aclrtFreeHost: hostPtr must not be null");
}

TEST(Errors, AProgramThatNeverAsksDoesNotGrow) {
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(aclrtSetDevice(i + 1), 107001);
  const std::string text = TakeText();
  EXPECT_LT(text.size(), 4096u);
  EXPECT_EQ(text.rfind("aclrtSetDevice: deviceId must be 0, the only device, is 1000\n", 0), 0u);
}

TEST(Errors, EachThreadHasItsOwn) {
  (void)TakeText();
  (void)aclrtGetLastError(ACL_RT_THREAD_LEVEL);
  EXPECT_EQ(aclrtFree(nullptr), 100000);
  std::thread([] {
    EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
    EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 0);
    EXPECT_EQ(aclrtSetDevice(3), 107001);
  }).join();
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 100000);
  EXPECT_STREQ(aclGetRecentErrMsg(), "aclrtFree: devPtr must not be null");
}

}  // namespace
}  // namespace onehot::test
