#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/aclnn/runtime.h"

namespace onehot::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Value;

TEST(Init, OncePerProcess) {
  EXPECT_TRUE(HoldsInChild([] {
    return aclInit(nullptr) == 0 && aclInit(nullptr) == 100002 && Value(TakeText(), HasSubstr("aclInit: was called"));
  }));
}

TEST(Init, FinalizeOnceAfterInit) {
  EXPECT_TRUE(HoldsInChild([] {
    return aclFinalize() == 100001 && aclInit("") == 0 && aclFinalize() == 0 && aclFinalize() == 100037 &&
           aclInit(nullptr) == 100002;
  }));
}

TEST(Init, ConfigMustBeReadable) {
  EXPECT_TRUE(HoldsInChild([] {
    return aclInit("/nonexistent/acl.json") == 100003 && Value(TakeText(), HasSubstr("/nonexistent/acl.json")) &&
           aclInit("/proc/self/status") == 0;  // the failure before did not count
  }));
}

TEST(Init, UnknownProductFailsWithTheKnownOnes) {
  EXPECT_TRUE(HoldsInChild([] {
    setenv("ONEHOT_SOC", "Ascend9000", 1);
    if (aclInit(nullptr) != 100000) return false;
    const std::string text = TakeText();
    for (const char* known : {"Ascend910A", "Ascend910B", "Ascend910_93", "Ascend950", "ONEHOT_SOC", "Ascend9000"})
      if (text.find(known) == std::string::npos) return false;
    if (aclrtGetSocName() != nullptr || TakeText() != text.substr(0, 0) + "aclrtGetSocName" + text.substr(7))
      return false;
    setenv("ONEHOT_SOC", "Ascend950", 1);
    return aclInit(nullptr) == 0;
  }));
}

TEST(Init, NothingNeedsIt) {
  EXPECT_TRUE(HoldsInChild([] {
    aclrtContext context = nullptr;
    aclrtStream stream = nullptr;
    void* memory = nullptr;
    return aclrtSetDevice(0) == 0 && aclrtCreateContext(&context, 0) == 0 && aclrtCreateStream(&stream) == 0 &&
           aclrtMalloc(&memory, 8, ACL_MEM_MALLOC_HUGE_FIRST) == 0 && aclInit(nullptr) == 0;
  }));
}

TEST(Init, Version) {
  int32_t major = -1, minor = -1, patch = -1;
  EXPECT_DONE(aclrtGetVersion(&major, &minor, &patch));
  EXPECT_EQ(major, 1);
  EXPECT_EQ(minor, 10);
  EXPECT_EQ(patch, 0);
  EXPECT_REFUSED(100000, aclrtGetVersion(nullptr, &minor, &patch), "majorVersion must not be null");
  EXPECT_REFUSED(100000, aclrtGetVersion(&major, nullptr, &patch), "minorVersion must not be null");
  EXPECT_REFUSED(100000, aclrtGetVersion(&major, &minor, nullptr), "patchVersion must not be null");
}

// The product is kept as long as the environment is the same, and no longer, however its memory is used again.
TEST(Soc, FollowsTheEnvironment) {
  constexpr const char* kNames[] = {"Ascend910A", "Ascend910B", "Ascend910_93", "Ascend950"};
  std::vector<std::string> between(16);  // moves what the environment is kept in
  for (std::size_t i = 0; i < 200000; ++i) {
    unsetenv("ONEHOT_SOC");
    between[i * i % 16] = std::string(i * 7919 % 700, 'x');
    const char* const name = kNames[i % 4];
    setenv("ONEHOT_SOC", name, 1);
    ASSERT_STREQ(aclrtGetSocName(), name) << i;
  }
  unsetenv("ONEHOT_SOC");
  EXPECT_STREQ(aclrtGetSocName(), "Ascend910B");
}

TEST(Soc, NameIsTheProduct) {
  unsetenv("ONEHOT_SOC");
  EXPECT_STREQ(aclrtGetSocName(), "Ascend910B");
  setenv("ONEHOT_SOC", "", 1);
  EXPECT_STREQ(aclrtGetSocName(), "Ascend910B");
  for (const char* name : {"Ascend910A", "Ascend910B", "Ascend910_93", "Ascend950"}) {
    setenv("ONEHOT_SOC", name, 1);
    EXPECT_STREQ(aclrtGetSocName(), name);
  }
  for (const char* name : {"ascend910b", "Ascend910", "Ascend910B1", "Ascend910B "}) {
    setenv("ONEHOT_SOC", name, 1);
    EXPECT_EQ(aclrtGetSocName(), nullptr) << name;
    EXPECT_EQ(TakeText(),
              "aclrtGetSocName: ONEHOT_SOC: must be one of Ascend910A, Ascend910B, Ascend910_93, "
              "Ascend950, is " +
                  std::string(name));
  }
  unsetenv("ONEHOT_SOC");
}

}  // namespace
}  // namespace onehot::test
