#ifndef TESTS_NATIVE_ENV_H_
#define TESTS_NATIVE_ENV_H_

#include <cstdlib>
#include <optional>
#include <string>

namespace onehot::test {

// Sets an environment variable, and puts the old value back when it goes. nullptr unsets it.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    Set(value);
  }
  ~ScopedEnv() { Set(old_ ? old_->c_str() : nullptr); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  void Set(const char* value) {
    if (value == nullptr)
      unsetenv(name_);
    else
      setenv(name_, value, 1);
  }

  const char* name_;
  std::optional<std::string> old_;
};

// Tests whose tensors take gigabytes, or minutes, run where this is set.
inline bool BigTestsWanted() {
  const char* wanted = std::getenv("ONEHOT_BIG_TESTS");
  return wanted != nullptr && std::string(wanted) == "1";
}

}  // namespace onehot::test

#endif  // TESTS_NATIVE_ENV_H_
