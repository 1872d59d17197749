// What the tests of the runtime share.
#ifndef ONEHOT_TESTS_ACLNN_RUNTIME_H_
#define ONEHOT_TESTS_ACLNN_RUNTIME_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "acl/acl.h"

namespace onehot::test {

// The thread's error texts, taken; "" if there are none.
inline std::string TakeText() {
  const char* const text = aclGetRecentErrMsg();
  return text == nullptr ? "" : text;
}

// Whether `body`, which returns a bool, returns true in a process of its own: for what happens once per process.
template <class Body>
bool HoldsInChild(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace onehot::test

// The call fails with the code, and its sentence, which is taken, holds the text.
#define EXPECT_REFUSED(code, call, text)                                        \
  do {                                                                          \
    (void)onehot::test::TakeText();                                             \
    EXPECT_EQ((call), (code));                                                  \
    EXPECT_THAT(onehot::test::TakeText(), ::testing::HasSubstr(text)) << #call; \
  } while (false)

#define ASSERT_DONE(call) ASSERT_EQ((call), ACL_SUCCESS) << onehot::test::TakeText()
#define EXPECT_DONE(call) EXPECT_EQ((call), ACL_SUCCESS) << onehot::test::TakeText()

#endif  // ONEHOT_TESTS_ACLNN_RUNTIME_H_
