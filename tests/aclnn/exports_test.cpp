// Every function that a header declares can be found through every name that programs load.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

// Written by tests.cmake from the headers.
const std::vector<std::string> kDeclared = {
#include "aclnn_declared.inc"
};

class Exports : public ::testing::TestWithParam<const char*> {};

TEST_P(Exports, HasEveryDeclaredFunction) {
  const std::string path = std::string(ONEHOT_COMPAT_DIR) + "/" + GetParam();
  // Not unloaded again: libgomp, which comes along, leaks 8 bytes then, and LeakSanitizer sees it.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_GT(kDeclared.size(), 60u);
  for (const std::string& name : kDeclared) EXPECT_NE(dlsym(library, name.c_str()), nullptr) << name;
  // Looked up by name alone, with one client refusing a library without them.
  for (const char* name : {"InitHugeMemThreadLocal", "UnInitHugeMemThreadLocal", "ReleaseHugeMem"}) {
    auto* const hook = reinterpret_cast<void (*)(void*, bool)>(dlsym(library, name));
    ASSERT_NE(hook, nullptr) << name;
    hook(nullptr, false);
  }
  dlclose(library);
}

INSTANTIATE_TEST_SUITE_P(Names, Exports,
                         ::testing::Values("libascendcl.so", "libnnopbase.so", "libopapi.so", "libacl_op_compiler.so"));

}  // namespace
