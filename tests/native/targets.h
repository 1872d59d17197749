// Everything that can run an operator here: the rows of its list times the instruction sets.
#ifndef TESTS_NATIVE_TARGETS_H_
#define TESTS_NATIVE_TARGETS_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cpu/cache.h"
#include "onehot/onehot.h"
#include "select/select.h"
#include "tests/native/env.h"
#include "tests/native/tensor.h"

namespace onehot::test {

struct Target {
  std::string implementation;
  std::string instruction_set;

  bool is_ref() const { return implementation == "ref"; }
  std::string name() const { return implementation + " " + instruction_set; }
};

// A row that chooses no instruction set is there once.
template <class Op>
std::vector<Target> Targets() {
  std::vector<Target> targets;
  for (const auto& row : select::Implementations<Op>()) {
    for (const std::string_view isa : InstructionSets()) {
      targets.push_back({std::string(row.name), std::string(isa)});
      if (row.name == "ref") break;
    }
  }
  return targets;
}

// What Prepare gives when the environment asks for that target.
template <class Op>
Result<Plan> PrepareOn(const Target& target, const Op& op) {
  const ScopedEnv force("ONEHOT_FORCE", target.implementation.c_str());
  const ScopedEnv isa("ONEHOT_MAX_ISA", target.instruction_set.c_str());
  return Prepare(op);
}

// Working memory as the least kind caller gives it: full of NaN, oddly aligned, not a byte longer than asked for.
class HostileScratch {
 public:
  explicit HostileScratch(std::size_t bytes, std::size_t shift = 3) : bytes_(bytes), shift_(shift) {
    memory_.assign(shift + bytes + kGuard, std::byte{0xFF});
    std::memset(memory_.data() + shift + bytes, kGuardByte, kGuard);
  }
  void* data() { return memory_.data() + shift_; }
  std::size_t bytes() const { return bytes_; }
  bool GuardIntact() const {
    for (std::size_t i = 0; i < shift_; ++i)
      if (memory_[i] != std::byte{0xFF}) return false;
    for (std::size_t i = shift_ + bytes_; i < memory_.size(); ++i)
      if (memory_[i] != std::byte{kGuardByte}) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr unsigned char kGuardByte = 0xA5;
  std::size_t bytes_, shift_;
  std::vector<std::byte> memory_;
};

inline Status RunHostile(const Plan& plan, const RunOptions& options = {}, std::size_t shift = 3) {
  HostileScratch scratch(plan.scratch_bytes(), shift);
  Status status = plan.Run(scratch.data(), scratch.bytes(), options);
  EXPECT_TRUE(scratch.GuardIntact()) << "wrote outside its scratch of " << scratch.bytes() << " bytes";
  return status;
}

template <class Op>
Status RunOn(const Target& target, const Op& op, const RunOptions& options = {}) {
  Result<Plan> plan = PrepareOn(target, op);
  if (!plan.ok()) return plan.status();
  EXPECT_EQ(plan->implementation(), target.implementation);
  if (!target.is_ref()) {
    EXPECT_EQ(plan->instruction_set(), target.instruction_set);
  }
  return RunHostile(*plan, options);
}

#define EXPECT_OK(EXPRESSION)                                         \
  do {                                                                \
    const ::onehot::Status expect_ok_status = (EXPRESSION);           \
    EXPECT_TRUE(expect_ok_status.ok()) << expect_ok_status.message(); \
  } while (false)

#define EXPECT_STATUS(EXPRESSION, CODE, MESSAGE)             \
  do {                                                       \
    const ::onehot::Status expect_status_got = (EXPRESSION); \
    EXPECT_EQ(expect_status_got.code(), CODE);               \
    EXPECT_EQ(expect_status_got.message(), MESSAGE);         \
  } while (false)

// Both Check and Prepare must say it.
#define EXPECT_REFUSED(OP, CODE, MESSAGE)               \
  do {                                                  \
    EXPECT_STATUS(Check(OP), CODE, MESSAGE);            \
    EXPECT_STATUS(Prepare(OP).status(), CODE, MESSAGE); \
  } while (false)

// Runs the plans at once, each five times on a thread of its own with one or two threads; their last statuses.
inline std::vector<Status> RunAtOnce(const std::vector<Result<Plan>>& plans) {
  std::vector<Status> statuses(plans.size());
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < plans.size(); ++t)
    threads.emplace_back([&plans, &statuses, t] {
      RunOptions options;
      options.threads = 1 + static_cast<int>(t) % 2;
      for (int round = 0; round < 5; ++round) statuses[t] = RunHostile(*plans[t], options);
    });
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

// Outputs above 4 MiB are stored past the caches while it lives, however large those are.
class OutputsPastCaches {
 public:
  OutputsPastCaches() { cpu::ForgetCachesForTest(true); }
  ~OutputsPastCaches() { cpu::ForgetCachesForTest(false); }
  OutputsPastCaches(const OutputsPastCaches&) = delete;
  OutputsPastCaches& operator=(const OutputsPastCaches&) = delete;
};

}  // namespace onehot::test

#endif  // TESTS_NATIVE_TARGETS_H_
