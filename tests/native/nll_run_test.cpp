// How plans of the NLL loss run: threads, scratch, repeats, callers' threads, progress, missing memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/native/nll_cases.h"
#include "tests/native/nll_oracle.h"
#include "tests/native/strides.h"

namespace onehot::test {
namespace {

const std::vector<int> kThreads{1, 2, 3, 7, 7, 0};

TEST(NllThreads, SameBitsForAnyNumber) {
  std::size_t round = 0;
  for (const DType dtype : kGradientDTypes) {
    NllCase c{.dims = {2, 5, 20011}, .dtype = dtype, .target = DType::kI32, .reduction = kReductions[++round % 3]};
    c.result = DType::kF64, c.weight = dtype, c.token_weight = DType::kF32;
    ExpectRightForward(c, kThreads);
    c.result = DType::kF32;
    ExpectRightBackward(c, kThreads);
    c.dims = {3001, 33}, c.reduction = kReductions[++round % 3];
    ExpectRightBackward(c, kThreads);
    c.strides = StridesOf(Form::kTransposed, 3001, 33);
    ExpectRightBackward(c, kThreads);
  }
}

TEST(NllThreads, MoreThanWork) {
  ExpectRightBoth({.dims = {1, 3, 2}}, {64});
  ExpectRightBoth({.dims = {1, 1, 1}}, {64});
  ExpectRightBoth({.dims = {2, 150, 300}}, {64});
  ExpectRightBoth({.dims = {3, 70000}}, {64});
}

template <class Problem>
void ExpectAnyScratch(Problem& problem, const std::function<void()>& check) {
  using Op = decltype(problem.op());
  for (const Target& target : Targets<Op>()) {
    if (!Takes(target, problem.op())) continue;
    SCOPED_TRACE(target.name());
    Result<Plan> plan = PrepareOn(target, problem.op());
    ASSERT_TRUE(plan.ok());
    for (std::size_t shift = 0; shift < 70; shift += shift < 9 ? 1 : 7) {
      EXPECT_OK(RunHostile(*plan, WithThreads(2), shift));
      check();
    }
    EXPECT_OK(plan->Run());  // with working memory of its own
    check();
    // The same plan and other data.
    FillTargets(problem.target, 7, {.blocky = true}, 99);
    EXPECT_OK(RunHostile(*plan, WithThreads(3)));
    check();
    if (plan->scratch_bytes() == 0) continue;
    const std::size_t needed = plan->scratch_bytes();
    std::vector<std::byte> scratch(needed);
    EXPECT_STATUS(plan->Run(nullptr, needed), Code::kBadArgument,
                  "scratch: must be " + std::to_string(needed) + " bytes, is null");
    EXPECT_STATUS(plan->Run(scratch.data(), needed - 1), Code::kBadArgument,
                  "scratch: must be at least " + std::to_string(needed) + " bytes, is " + std::to_string(needed - 1));
    check();
  }
}

TEST(NllScratch, AnyAlignmentAndContentsAndData) {
  NllProblem forward = MakeForward({.dims = {2, 7, 9001}, .result = DType::kF64, .weight = DType::kF32});
  ExpectAnyScratch(forward, [&] { EXPECT_TRUE(SameBits(forward.loss, Promise(forward.op()).loss)); });
  for (const Dims& dims : std::vector<Dims>{{2, 7, 9001}, {5001, 7}}) {
    NllBackwardProblem backward = MakeBackward({.dims = dims, .weight = DType::kF32});
    ExpectAnyScratch(backward, [&] { EXPECT_TRUE(SameBits(backward.out, Promise(backward.op()))); });
  }
}

TEST(NllConcurrency, PlansOverSharedInputs) {
  NllBackwardProblem problem = MakeBackward({.dims = {2, 7, 9001}, .weight = DType::kF32});
  const Bits promise = Promise(problem.op());
  for (const Target& target : Targets<NllLossBackward>()) {
    if (target.is_ref() || !Takes(target, problem.op())) continue;
    SCOPED_TRACE(target.name());
    std::vector<Tensor> outs(4, problem.out);
    std::vector<Result<Plan>> plans;
    for (Tensor& out : outs) {
      NllLossBackward op = problem.op();
      op.out = out.view();
      plans.push_back(PrepareOn(target, op));
      ASSERT_TRUE(plans.back().ok());
    }
    const std::vector<Status> statuses = RunAtOnce(plans);
    for (std::size_t t = 0; t < outs.size(); ++t) {
      EXPECT_OK(statuses[t]);
      EXPECT_TRUE(SameBits(outs[t], promise));
    }
  }
}

// One plan on two threads, with a scratch for each. It fails before it writes, so that the output is no race.
TEST(NllConcurrency, OnePlanOnTwoThreads) {
  NllProblem problem = MakeForward({.dims = {20000, 3}});
  problem.target.SetValue(19999, 3);
  for (const Target& target : Targets<NllLoss>()) {
    if (!Takes(target, problem.op())) continue;
    SCOPED_TRACE(target.name());
    Result<Plan> plan = PrepareOn(target, problem.op());
    ASSERT_TRUE(plan.ok());
    Status statuses[2];
    std::vector<std::thread> threads;
    for (Status& status : statuses)
      threads.emplace_back([&plan, &status] {
        for (int round = 0; round < 10; ++round) status = RunHostile(*plan, WithThreads(2));
      });
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) EXPECT_STATUS(status, Code::kBadData, "target[19999] = 3 is outside [0, 3)");
  }
}

// ---- progress

// Only the calling thread reports, so that how often is certain only where it is alone.
template <class Op, class F>
void ExpectProgress(const Op& op, F&& right) {
  for (const Target& target : Targets<Op>()) {
    if (!Takes(target, op)) continue;
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(target.name() + " threads " + std::to_string(threads));
      std::int64_t calls = 0, last = 0, last_total = 0;
      RunOptions options = WithThreads(threads);
      const std::thread::id caller = std::this_thread::get_id();
      options.progress = [&](std::int64_t done, std::int64_t total) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_GE(done, last);
        EXPECT_LE(done, total);
        EXPECT_GT(total, 0);
        EXPECT_TRUE(calls == 0 || total == last_total);
        last = done, last_total = total;
        ++calls;
        return true;
      };
      EXPECT_OK(RunOn(target, op, options));
      right();
      if (threads == 1 || target.is_ref()) {
        EXPECT_GT(calls, 1);
        EXPECT_GT(last, last_total / 2);
      }

      calls = 0;
      options.progress = [&](std::int64_t, std::int64_t) {
        ++calls;
        return false;
      };
      const Status status = RunOn(target, op, options);
      EXPECT_EQ(status.code(), calls > 0 ? Code::kCancelled : Code::kOk);
      EXPECT_EQ(status.message().empty(), calls == 0);
      EXPECT_TRUE(threads > 1 || calls == 1) << calls << " calls";
      // A cancelled problem runs again, and right.
      EXPECT_OK(RunOn(target, op, WithThreads(threads)));
      right();
    }
  }
}

TEST(NllProgress, ForwardReportsAndStops) {
  for (const Reduction reduction : kReductions) {
    NllProblem problem = MakeForward({.dims = {1, 1, 1 << 20}, .reduction = reduction, .like = {.blocky = true}});
    const NllPromise promise = Promise(problem.op());
    ExpectProgress(problem.op(), [&] { EXPECT_TRUE(SameBits(problem.loss, promise.loss)); });
  }
}

TEST(NllProgress, BackwardReportsAndStops) {
  for (const Dims& dims : std::vector<Dims>{{2, 21, 100003}, {4003, 1000}}) {
    NllBackwardProblem problem = MakeBackward({.dims = dims});
    const Bits promise = Promise(problem.op());
    ExpectProgress(problem.op(), [&] { EXPECT_TRUE(SameBits(problem.out, promise)); });
  }
}

// ---- memory that is not there

template <class Op>
void ExpectMissing(const Op& op, const std::string& argument) {
  const Result<Plan> plan = Prepare(op);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_STATUS(plan->Run(), Code::kNullArgument, argument + ": data must not be null");
}

TEST(NllMissing, EveryTensor) {
  const NllCase c{.dims = {4, 3}, .weight = DType::kF32, .token_weight = DType::kF32, .denominator = DType::kF32};
  NllProblem forward = MakeForward(c);
  NllLoss op = forward.op();
  op.input.data = nullptr, ExpectMissing(op, "input"), op = forward.op();
  op.target.data = nullptr, ExpectMissing(op, "target"), op = forward.op();
  op.loss.data = nullptr, ExpectMissing(op, "loss"), op = forward.op();
  op.total_weight->data = nullptr, ExpectMissing(op, "total_weight"), op = forward.op();
  op.weight->data = nullptr, ExpectMissing(op, "weight"), op = forward.op();
  op.token_weight->data = nullptr, ExpectMissing(op, "token_weight"), op = forward.op();
  op.denominator->data = nullptr, ExpectMissing(op, "denominator");
  NllBackwardProblem backward = MakeBackward(c);
  NllLossBackward back = backward.op();
  back.grad_output.data = nullptr, ExpectMissing(back, "grad_output"), back = backward.op();
  back.target.data = nullptr, ExpectMissing(back, "target"), back = backward.op();
  back.out.data = nullptr, ExpectMissing(back, "out"), back = backward.op();
  back.total_weight->data = nullptr, ExpectMissing(back, "total_weight"), back = backward.op();
  back.weight->data = nullptr, ExpectMissing(back, "weight"), back = backward.op();
  back.token_weight->data = nullptr, ExpectMissing(back, "token_weight");
}

// Tensors without elements need no memory.
TEST(NllMissing, EmptyTensorsHaveNone) {
  Tensor loss(DType::kF32, {}), one(DType::kF32, {});
  one.SetValue(0, 1);
  NllLoss op;
  op.input = ConstTensorView(nullptr, DType::kF32, {0, 3}), op.target = ConstTensorView(nullptr, DType::kI64, {0});
  op.loss = loss.view(), op.zero_if_empty = true;
  OnEveryTarget(op, {&loss}, {1}, [&] { EXPECT_EQ(loss.Value(0), 0); });
  NllLossBackward back;
  back.grad_output = one.view(), back.total_weight = one.view();
  back.target = op.target, back.out = TensorView(nullptr, DType::kF32, {0, 3});
  OnEveryTarget(back, {}, {1}, [] {});
}

// Plans for anything that 63 bits of bytes can describe, without touching memory.
TEST(NllMissing, PlansOfHugeProblems) {
  NllLossBackward op;
  const std::int64_t N = std::int64_t{1} << 40, C = 4096;
  Tensor one(DType::kF32, {});
  op.grad_output = one.view(), op.total_weight = one.view();
  op.target = ConstTensorView(nullptr, DType::kU8, {N}), op.out = TensorView(nullptr, DType::kBF16, {N, C});
  const Result<Plan> plan = Prepare(op);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->bytes_written(), std::int64_t{1} << 53);
  EXPECT_STATUS(plan->Run(), Code::kNullArgument, "target: data must not be null");
}

}  // namespace
}  // namespace onehot::test
