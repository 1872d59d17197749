// How a plan runs: threads, repeats, scratch, two threads at once, progress.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "onehot/onehot.h"
#include "tests/native/cases.h"
#include "tests/native/oracle.h"

namespace onehot::test {
namespace {

RunOptions Threads(int n) {
  RunOptions options;
  options.threads = n;
  return options;
}

// The same bits whatever the number of threads, and run after run. The result of one thread is compared with the
// promise, so equal does not mean equally wrong.
void ExpectSameBitsForAnyThreads(const BackwardCase& c) {
  SCOPED_TRACE(c.Describe());
  BackwardProblem problem = MakeProblem(c);
  const PromisedBits promise = Promise(problem.op());
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    std::vector<std::byte> first;
    for (const int threads : {1, 2, 3, 7, 7, 1, 0}) {
      Tensor out = problem.out;
      EmbeddingBackward op = problem.op();
      op.out = out.view();
      EXPECT_OK(RunOn(target, op, Threads(threads)));
      if (first.empty()) {
        first = out.Bytes();
        if (!target.is_ref()) {
          EXPECT_TRUE(HasBits(out, promise));
        }
      } else {
        EXPECT_TRUE(out.Bytes() == first) << threads << " threads";
      }
    }
  }
}

TEST(Threads, ManyTokens) {
  ExpectSameBitsForAnyThreads({.N = 200000, .V = 5000, .D = 33});
}

TEST(Threads, TextLike) {
  ExpectSameBitsForAnyThreads({.N = 50000,
                               .V = 20011,
                               .D = 17,
                               .spread = Spread::kZipf,
                               .grad = DType::kBF16,
                               .padding_idx = 3,
                               .scale = true,
                               .accumulate = true,
                               .counts = true});
}

TEST(Threads, OneHotRow) {
  ExpectSameBitsForAnyThreads({.N = 60000, .V = 100, .D = 15, .spread = Spread::kAllEqual});
  ExpectSameBitsForAnyThreads({.N = 60001, .V = 100, .D = 1, .spread = Spread::kAllEqual, .grad = DType::kF64});
}

TEST(Threads, FewHotRows) {
  ExpectSameBitsForAnyThreads(
      {.N = 40000, .V = 3000, .D = 24, .spread = Spread::kFewHot, .grad = DType::kF16, .out = DType::kF32});
}

TEST(Threads, Sorted) {
  ExpectSameBitsForAnyThreads({.N = 50000, .V = 7000, .D = 21, .spread = Spread::kSorted});
}

TEST(Threads, WideRows) {
  ExpectSameBitsForAnyThreads({.N = 300, .V = 200, .D = 4099});
}

TEST(Threads, FewerRowsThanThreads) {
  ExpectSameBitsForAnyThreads({.N = 9000, .V = 2, .D = 64, .grad = DType::kBF16});
  ExpectSameBitsForAnyThreads({.N = 3, .V = 2, .D = 100000});
}

TEST(Threads, MoreThreadsThanWork) {
  BackwardProblem problem = MakeProblem({.N = 5, .V = 3, .D = 2, .counts = true});
  ExpectRightEverywhere(problem, 64);
  ExpectRightEverywhere(MakeProblem({.N = 20000, .V = 50, .D = 40}), 64);
}

// Scratch full of NaN at every alignment, and exactly as long as asked for: RunOn and RunHostile look after the guards.
TEST(ScratchUse, AnyAlignmentAndContents) {
  BackwardProblem problem = MakeProblem({.N = 3000, .V = 700, .D = 19, .spread = Spread::kFewHot, .counts = true});
  const PromisedBits promise = Promise(problem.op());
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    Result<Plan> plan = PrepareOn(target, problem.op());
    ASSERT_TRUE(plan.ok());
    for (std::size_t shift = 0; shift < 70; shift += shift < 9 ? 1 : 7) {
      EXPECT_OK(RunHostile(*plan, Threads(2), shift));
      if (!target.is_ref()) {
        EXPECT_TRUE(HasBits(problem.out, promise));
      }
    }
    // With working memory of its own.
    EXPECT_OK(plan->Run());
    if (!target.is_ref()) {
      EXPECT_TRUE(HasBits(problem.out, promise));
    }
  }
}

// One scratch, run again without cleaning it: nothing is left over.
TEST(ScratchUse, UncleanScratchFromAnotherRun) {
  BackwardProblem many = MakeProblem({.N = 3000, .V = 700, .D = 19, .counts = true});
  BackwardProblem few = MakeProblem({.N = 3000, .V = 700, .D = 19, .spread = Spread::kAllEqual, .counts = true}, 5);
  for (const Target& target : Targets<EmbeddingBackward>()) {
    if (target.is_ref()) continue;
    SCOPED_TRACE(target.name());
    Result<Plan> a = PrepareOn(target, many.op()), b = PrepareOn(target, few.op());
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_EQ(a->scratch_bytes(), b->scratch_bytes());  // Prepare reads no data
    HostileScratch scratch(a->scratch_bytes());
    for (int round = 0; round < 3; ++round) {
      EXPECT_OK(a->Run(scratch.data(), scratch.bytes(), Threads(2)));
      EXPECT_OK(b->Run(scratch.data(), scratch.bytes(), Threads(2)));
      EXPECT_TRUE(HasBits(many.out, Promise(many.op())));
      EXPECT_TRUE(HasBits(few.out, Promise(few.op())));
    }
  }
}

// Plans keep addresses, not data: new gradients and indices in the same memory are seen.
TEST(ScratchUse, PlansReadDataWhenTheyRun) {
  BackwardProblem problem = MakeProblem({.N = 900, .V = 70, .D = 9});
  for (const Target& target : Targets<EmbeddingBackward>()) {
    if (target.is_ref()) continue;
    SCOPED_TRACE(target.name());
    Result<Plan> plan = PrepareOn(target, problem.op());
    ASSERT_TRUE(plan.ok());
    for (std::uint64_t seed = 20; seed < 23; ++seed) {
      FillGradient(problem.grad, seed);
      SetIndices(problem.indices, Indices(Spread::kZipf, 900, 70, seed));
      EXPECT_OK(RunHostile(*plan));
      EXPECT_TRUE(HasBits(problem.out, Promise(problem.op())));
    }
  }
}

TEST(ScratchUse, TooShortOrNullIsRefusedAndNothingIsWritten) {
  BackwardProblem problem = MakeProblem({.N = 300, .V = 70, .D = 9, .counts = true});
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    Result<Plan> plan = PrepareOn(target, problem.op());
    ASSERT_TRUE(plan.ok());
    const std::size_t needed = plan->scratch_bytes();
    ASSERT_GT(needed, 0u);
    const Buffer out = problem.out.buffer(), counts = problem.counts->buffer();
    std::vector<std::byte> scratch(needed);
    EXPECT_STATUS(plan->Run(nullptr, needed), Code::kBadArgument,
                  "scratch: must be " + std::to_string(needed) + " bytes, is null");
    EXPECT_STATUS(plan->Run(scratch.data(), needed - 1), Code::kBadArgument,
                  "scratch: must be at least " + std::to_string(needed) + " bytes, is " + std::to_string(needed - 1));
    EXPECT_STATUS(plan->Run(scratch.data(), 0), Code::kBadArgument,
                  "scratch: must be at least " + std::to_string(needed) + " bytes, is 0");
    EXPECT_TRUE(problem.out.buffer() == out);
    EXPECT_TRUE(problem.counts->buffer() == counts);
    EXPECT_OK(plan->Run(scratch.data(), needed));
  }
}

// One plan, two callers' threads, two scratches. Both write the same bits to the same place, so this is the data race
// that matters least and the state inside the plan is what is tested; TSan builds run it with outputs of their own
// below.
TEST(Concurrency, TwoPlansOverSharedInputs) {
  BackwardProblem problem = MakeProblem({.N = 5000, .V = 300, .D = 24, .spread = Spread::kZipf, .counts = true});
  const PromisedBits promise = Promise(problem.op());
  for (const Target& target : Targets<EmbeddingBackward>()) {
    if (target.is_ref()) continue;
    SCOPED_TRACE(target.name());
    std::vector<Tensor> outs(4, problem.out);
    std::vector<Result<Plan>> plans;
    for (Tensor& out : outs) {
      EmbeddingBackward op = problem.op();
      op.out = out.view();
      op.counts.reset();
      plans.push_back(PrepareOn(target, op));
      ASSERT_TRUE(plans.back().ok());
    }
    const std::vector<Status> statuses = RunAtOnce(plans);
    for (std::size_t t = 0; t < outs.size(); ++t) {
      EXPECT_OK(statuses[t]);
      EXPECT_TRUE(HasBits(outs[t], promise));
    }
  }
}

// One plan on two threads with a scratch for each. It fails before it writes, so that the outputs, which are shared,
// are no race.
TEST(Concurrency, OnePlanOnTwoThreads) {
  BackwardProblem problem = MakeProblem({.N = 20000, .V = 300, .D = 4});
  problem.indices.SetValue(19999, 300);
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    Result<Plan> plan = PrepareOn(target, problem.op());
    ASSERT_TRUE(plan.ok());
    Status statuses[2];
    std::vector<std::thread> threads;
    for (Status& status : statuses)
      threads.emplace_back([&plan, &status] {
        for (int round = 0; round < 10; ++round) status = RunHostile(*plan, Threads(2));
      });
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses)
      EXPECT_STATUS(status, Code::kBadData, "indices[19999] = 300 is outside [0, 300)");
  }
}

// clang says __has_feature, GCC defines a macro.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ONEHOT_TEST_UNDER_TSAN
#endif
#elif defined(__SANITIZE_THREAD__)
#define ONEHOT_TEST_UNDER_TSAN
#endif

#if !defined(ONEHOT_TEST_UNDER_TSAN)
// Both runs store the same bits in the same places: a race by the letter, so not for TSan.
TEST(Concurrency, OnePlanOnTwoThreadsWritesTheRightBits) {
  BackwardProblem problem = MakeProblem({.N = 5000, .V = 300, .D = 24, .spread = Spread::kZipf, .counts = true});
  const PromisedBits promise = Promise(problem.op());
  for (const Target& target : Targets<EmbeddingBackward>()) {
    if (target.is_ref()) continue;
    SCOPED_TRACE(target.name());
    Result<Plan> plan = PrepareOn(target, problem.op());
    ASSERT_TRUE(plan.ok());
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&plan] {
        for (int round = 0; round < 20; ++round) EXPECT_OK(RunHostile(*plan, Threads(2)));
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(HasBits(problem.out, promise));
  }
}
#endif

// ---- progress

// Only the calling thread reports, of what all of them did. On a loaded machine the others may leave it nothing to do,
// so how often it reports is certain only where it is alone.
TEST(Progress, RisesAndStaysWithinTheTotal) {
  BackwardProblem problem = MakeProblem({.N = 10000, .V = 4000, .D = 520, .spread = Spread::kZipf});
  const PromisedBits promise = Promise(problem.op());
  for (const Target& target : Targets<EmbeddingBackward>()) {
    if (target.is_ref()) continue;
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(target.name() + " threads " + std::to_string(threads));
      std::int64_t calls = 0, last = 0, last_total = 0;
      RunOptions options = Threads(threads);
      const std::thread::id caller = std::this_thread::get_id();
      options.progress = [&](std::int64_t done, std::int64_t total) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_GE(done, last);
        EXPECT_LE(done, total);
        EXPECT_GT(total, 0);
        EXPECT_TRUE(calls == 0 || total == last_total);
        last = done;
        last_total = total;
        ++calls;
        return true;
      };
      EXPECT_OK(RunOn(target, problem.op(), options));
      EXPECT_TRUE(HasBits(problem.out, promise));
      if (threads > 1) continue;
      EXPECT_GT(calls, 1);
      EXPECT_GT(last, last_total / 2);
    }
  }
}

TEST(Progress, FalseStopsTheRun) {
  BackwardProblem problem = MakeProblem({.N = 60000, .V = 4000, .D = 64});
  for (const Target& target : Targets<EmbeddingBackward>()) {
    if (target.is_ref()) continue;
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(target.name() + " threads " + std::to_string(threads));
      std::int64_t calls = 0, done_at_last = 0, total_at_last = 0;
      RunOptions options = Threads(threads);
      options.progress = [&](std::int64_t done, std::int64_t total) {
        ++calls;
        done_at_last = done;
        total_at_last = total;
        return false;
      };
      const Status status = RunOn(target, problem.op(), options);
      EXPECT_EQ(status.code(), calls > 0 ? Code::kCancelled : Code::kOk);
      EXPECT_EQ(status.message().empty(), calls == 0);
      if (threads == 1) {
        EXPECT_EQ(calls, 1);
        EXPECT_LT(done_at_last, total_at_last);
      }
      // A cancelled plan runs again, and right.
      EXPECT_OK(RunOn(target, problem.op(), Threads(threads)));
      EXPECT_TRUE(HasBits(problem.out, Promise(problem.op())));
    }
  }
}

TEST(Progress, EmbeddingReportsAndStops) {
  Tensor weight(DType::kF32, {2000, 256}), indices(DType::kI64, {20000}), out(DType::kF32, {20000, 256});
  SetIndices(indices, Indices(Spread::kZipf, 20000, 2000, 1));
  const Embedding op{.weight = weight.view(), .indices = indices.view(), .out = out.view()};
  for (const Target& target : Targets<Embedding>()) {
    if (target.is_ref()) continue;
    SCOPED_TRACE(target.name());
    std::int64_t calls = 0, last = 0;
    RunOptions options = Threads(1);
    options.progress = [&](std::int64_t done, std::int64_t total) {
      EXPECT_GE(done, last);
      EXPECT_LE(done, total);
      last = done;
      return ++calls > 0;
    };
    EXPECT_OK(RunOn(target, op, options));
    EXPECT_GT(calls, 1);
    options.progress = [](std::int64_t, std::int64_t) { return false; };
    EXPECT_EQ(RunOn(target, op, options).code(), Code::kCancelled);
  }
}

}  // namespace
}  // namespace onehot::test
