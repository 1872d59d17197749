// What tests of losses over a class axis share: targets, layouts, and the walk over everything that can run a problem.
#ifndef TESTS_NATIVE_LOSSES_H_
#define TESTS_NATIVE_LOSSES_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onehot/reduction.h"
#include "tests/native/data.h"
#include "tests/native/targets.h"
#include "tests/native/tensor.h"

namespace onehot::test {

inline constexpr DType kTargetDTypes[] = {DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU8};
inline constexpr Reduction kReductions[] = {Reduction::kNone, Reduction::kMean, Reduction::kSum};

std::string_view Name(Reduction reduction);  // "none", "mean", "sum"

// ---- targets

// Whether an integer dtype has that value.
bool Holds(DType dtype, std::int64_t value);

// C, or as many of them as that dtype can name: 128 for i8.
std::int64_t ClassesNamed(DType dtype, std::int64_t C);

// Runs of one class, as in a segmented picture: 1 to 60 positions long, a few classes far more often than the others.
std::vector<std::int64_t> BlockyTargets(std::int64_t N, std::int64_t C, std::uint64_t seed);

// Puts ignore_index at about that share of the positions, in ones and in runs of up to 40.
void Ignore(std::vector<std::int64_t>& targets, std::int64_t ignore_index, double share, std::uint64_t seed);

// How a target tensor is filled. Classes that its dtype cannot name are left out, and so is an ignore_index that it does
// not hold.
struct TargetsLike {
  bool blocky = false;
  Spread spread = Spread::kZipf;
  std::int64_t ignore_index = kDefaultIgnoreIndex;
  double ignored = 0.15;  // share of the positions
};
void FillTargets(Tensor& target, std::int64_t C, const TargetsLike& like, std::uint64_t seed);

// ---- layouts

// The axes of target: those of a tensor with a class axis, without it. From the end if negative.
Dims WithoutClasses(const Dims& dims, int class_axis);

// Every order of the axes in memory, row-major first: 24 for four axes. `gap` as in PermutedStrides.
std::vector<Dims> AllPermutedStrides(const Dims& dims, std::int64_t gap = 0);

// The strides, those of axes with a bit in `axes` negated.
Dims Reversed(Dims strides, unsigned axes);

// ---- results

// The elements of `got`, row-major, against those bits. Any quiet NaN is as good as any other; a signalling one, which no
// arithmetic gives, was there before and must be that one. Says where the first difference is, by its coordinates, and
// how many there are.
::testing::AssertionResult SameBits(const Tensor& got, const std::vector<std::byte>& want);

// A signalling NaN in every element, each with a payload of its own: no arithmetic leaves one as it was.
void FillSignalling(Tensor& tensor);

inline RunOptions WithThreads(int threads) {
  RunOptions options;
  options.threads = threads;
  return options;
}

// Whether that target takes the problem. The reference implementation has to.
template <class Op>
bool Takes(const Target& target, const Op& op) {
  const Result<Plan> plan = PrepareOn(target, op);
  EXPECT_TRUE(plan.ok() || (plan.status().code() == Code::kUnsupported && !target.is_ref())) << plan.status().message();
  return plan.ok();
}

// Runs the problem on every target that takes it and with every number of threads, each time from the same old
// `outputs`, whose memory op writes; calls check() after each run. Nothing but their elements may have been written.
// They hold their old elements again at the end.
template <class Op, class F>
void OnEveryTarget(const Op& op, const std::vector<Tensor*>& outputs, const std::vector<int>& threads, F&& check) {
  std::vector<Tensor> old;
  for (const Tensor* output : outputs) old.push_back(*output);
  const auto restore = [&] {
    // Copies into the memory that is there: sizes are equal.
    for (std::size_t k = 0; k < outputs.size(); ++k) *outputs[k] = old[k];
  };
  for (const Target& target : Targets<Op>()) {
    if (!Takes(target, op)) continue;
    for (const int count : threads) {
      SCOPED_TRACE(target.name() + " threads " + std::to_string(count));
      restore();
      EXPECT_OK(RunOn(target, op, WithThreads(count)));
      check();
      for (const Tensor* output : outputs) EXPECT_TRUE(output->GapsUntouched());
      if (target.is_ref()) break;  // one thread, whatever is asked for
    }
    if (::testing::Test::HasFatalFailure()) break;
  }
  restore();
}

// The problem must fail on every target with that sentence and write nothing at all.
template <class Op>
void ExpectBadData(const Op& op, const std::vector<Tensor*>& outputs, const std::string& message,
                   const std::vector<int>& threads = {1, 3}) {
  std::vector<Buffer> before;
  for (const Tensor* output : outputs) before.push_back(output->buffer());
  for (const Target& target : Targets<Op>()) {
    if (!Takes(target, op)) continue;
    for (const int count : threads) {
      SCOPED_TRACE(target.name() + " threads " + std::to_string(count));
      EXPECT_STATUS(RunOn(target, op, WithThreads(count)), Code::kBadData, message);
      for (std::size_t k = 0; k < outputs.size(); ++k)
        EXPECT_TRUE(outputs[k]->buffer() == before[k]) << "output " << k << " was written";
    }
  }
}

}  // namespace onehot::test

#endif  // TESTS_NATIVE_LOSSES_H_
