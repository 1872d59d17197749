// Losses at the edges of their types: class numbers next to the largest of 16 bits, NaN payloads, options and weights that
// f32 arithmetic would lose, positions that are ignored whatever their factors are.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "env.h"
#include "onehot/onehot.h"

namespace onehot::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Most classes that two bytes can tell from an ignored position, and one part of them that is no multiple of 64.
TEST(LossExtremes, ClassesNextToTheLargestOf16Bits) {
  constexpr std::int64_t kP = 600, kGuard = 4096;
  constexpr std::uint16_t kMark = 0x7FC1;
  for (const std::int64_t C : {65472, 65500, 65535}) {
    std::vector<std::int64_t> target(kP);
    for (std::int64_t i = 0; i < kP; ++i)
      target[static_cast<std::size_t>(i)] = i % 7 == 0 ? -100 : (i * 7919 + C - 1) % C;
    std::vector<std::uint16_t> out(static_cast<std::size_t>(C * kP + kGuard), kMark);
    const float grad = 1;
    const NllLossBackward op{.grad_output = {&grad, DType::kF32, {}},
                             .target = {target.data(), DType::kI64, {1, kP}},
                             .out = {out.data(), DType::kBF16, {1, C, kP}},
                             .reduction = Reduction::kSum};
    for (const int threads : {1, 2}) {
      ASSERT_TRUE(Prepare(op)->Run({.threads = threads, .progress = {}}).ok());
      std::int64_t ones = 0, others = 0;
      for (std::int64_t e = 0; e < C * kP; ++e) {
        const std::uint16_t value = out[static_cast<std::size_t>(e)];
        const bool hit = target[static_cast<std::size_t>(e % kP)] == e / kP;
        ones += value == 0xBF80 && hit;
        others += value != (hit ? 0xBF80 : 0);
      }
      EXPECT_EQ(others, 0) << C;
      EXPECT_EQ(ones, kP - (kP + 6) / 7) << C;
      for (std::int64_t e = C * kP; e < C * kP + kGuard; ++e) ASSERT_EQ(out[static_cast<std::size_t>(e)], kMark) << C;
    }
  }
}

// Threads share the classes of one plane: each row is one thread's.
TEST(LossExtremes, ThreadsShareClasses) {
  constexpr std::int64_t kC = 2000, kP = 1000;
  std::vector<std::int64_t> target(kP);
  for (std::int64_t i = 0; i < kP; ++i) target[static_cast<std::size_t>(i)] = 1040 + i % 30;
  std::vector<float> out(kC * kP, kNaN);
  const float grad = -1;
  const NllLossBackward op{.grad_output = {&grad, DType::kF32, {}},
                           .target = {target.data(), DType::kI64, {1, kP}},
                           .out = {out.data(), DType::kF32, {1, kC, kP}},
                           .reduction = Reduction::kSum};
  ASSERT_TRUE(Prepare(op)->Run({.threads = 7, .progress = {}}).ok());
  for (std::int64_t e = 0; e < kC * kP; ++e)
    ASSERT_EQ(out[static_cast<std::size_t>(e)], target[static_cast<std::size_t>(e % kP)] == e / kP ? 1.0f : 0.0f);
}

struct Small {
  std::vector<float> logits;
  std::vector<std::int64_t> target;
  CrossEntropyOptions options = {};
  std::vector<float> loss = {}, gradient = {};
  std::vector<std::int64_t> argmax = {};

  // Rows if `planes` is false; else the classes of a position lie N apart.
  Status Run(bool planes, const char* implementation = nullptr) {
    const ScopedEnv force("ONEHOT_FORCE", implementation);
    const auto N = static_cast<std::int64_t>(target.size()), C = static_cast<std::int64_t>(logits.size()) / N;
    TensorLayout layout = TensorLayout::Contiguous(DType::kF32, std::vector<std::int64_t>{N, C});
    std::vector<float> data = logits;
    if (planes) {
      layout.strides = {1, N};
      for (std::int64_t i = 0; i < N; ++i)
        for (std::int64_t v = 0; v < C; ++v)
          data[static_cast<std::size_t>(v * N + i)] = logits[static_cast<std::size_t>(i * C + v)];
    }
    const bool none = options.reduction == Reduction::kNone;
    loss.assign(none ? target.size() : 1, kNaN);
    gradient.assign(logits.size(), kNaN);
    argmax.assign(target.size(), 99);
    const ConstTensorView input(data.data(), layout), classes(target.data(), DType::kI64, {N});
    const TensorView losses =
        none ? TensorView(loss.data(), DType::kF32, {N}) : TensorView(loss.data(), DType::kF32, {});
    CrossEntropy forward{.input = input, .target = classes, .loss = losses};
    forward.argmax = TensorView(argmax.data(), DType::kI64, {N});
    forward.options = options;
    const Result<Plan> plan = Prepare(forward);
    if (!plan.ok()) return plan.status();
    if (Status bad = plan->Run(); !bad.ok()) return bad;
    const std::vector<float> ones(target.size(), 1.0f);
    CrossEntropyBackward backward{.input = input, .target = classes, .out = {gradient.data(), layout}};
    backward.grad_loss =
        none ? ConstTensorView(ones.data(), DType::kF32, {N}) : ConstTensorView(ones.data(), DType::kF32, {});
    backward.options = options;
    const Result<Plan> back = Prepare(backward);
    return back.ok() ? back->Run() : back.status();
  }
};

TEST(LossExtremes, NaNOfAnyPayloadStaysNaN) {
  for (const std::uint32_t bits : {0x7FC00001u, 0x7F800001u, 0xFFFFFFFFu, 0x7FC00000u, 0x7FBFFE00u}) {
    for (const float softcap : {0.0f, 5.0f}) {
      for (const bool planes : {false, true}) {
        Small op{.logits = {0, 1, std::bit_cast<float>(bits), 3, 1, 2}, .target = {0, 1}};
        op.options.reduction = Reduction::kNone;
        op.options.softcap = softcap;
        ASSERT_TRUE(op.Run(planes).ok());
        EXPECT_TRUE(std::isnan(op.loss[0])) << std::hex << bits;
        EXPECT_EQ(op.argmax[0], 2) << std::hex << bits;
        EXPECT_TRUE(std::isfinite(op.loss[1])) << std::hex << bits;
      }
    }
  }
}

// The first block of classes is masked and left out of the smoothing: its size is not lost from the other's sum.
TEST(LossExtremes, SmoothingDoesNotMeasureFromClassesThatAreLeftOut) {
  constexpr std::int64_t kC = 2048;
  std::vector<float> weight(kC, 1.0f), logits(kC);
  for (std::int64_t v = 0; v < kC; ++v) {
    if (v < 1024) weight[static_cast<std::size_t>(v)] = 0;
    logits[static_cast<std::size_t>(v)] = v < 1024 ? -1e9f : static_cast<float>(v % 10) / 10;
  }
  Small op{.logits = logits, .target = {2000}};
  op.options.weight = ConstTensorView(weight.data(), DType::kF32, {kC});
  op.options.label_smoothing = 0.1;
  for (const bool planes : {false, true}) {
    ASSERT_TRUE(op.Run(planes, "ref").ok());
    const float wanted = op.loss[0];
    ASSERT_TRUE(op.Run(planes).ok());
    // A few hundred roundings of sums of some 600, whose share is eps / C of them.
    EXPECT_NEAR(op.loss[0], wanted, 1e-5 * wanted);
  }
}

TEST(LossExtremes, AnIgnoredPositionIsIgnoredWhateverItsTokenWeight) {
  for (const float token : {kInfinity, kNaN, -1.0f}) {
    const std::vector<float> tokens = {token, 1};
    Small op{.logits = {0, 1, 0, 1}, .target = {-100, 1}};
    op.options.token_weight = ConstTensorView(tokens.data(), DType::kF32, {2});
    op.options.z_loss = 0.5;
    op.options.label_smoothing = 0.1;
    for (const Reduction reduction : {Reduction::kNone, Reduction::kMean, Reduction::kSum}) {
      op.options.reduction = reduction;
      ASSERT_TRUE(op.Run(false).ok());
      EXPECT_TRUE(std::isfinite(op.loss.back()));
      if (reduction == Reduction::kNone) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(op.loss[0]), 0u);
      }
      EXPECT_EQ(op.gradient[0], 0);
      EXPECT_TRUE(std::isfinite(op.gradient[3]));
    }
  }
}

TEST(LossExtremes, OptionsThatF32CannotHoldAreHonoured) {
  Small op{.logits = {1, 0, -1, 2}, .target = {0}};
  for (const double softcap : {5e38, 1e300, 1e-39, 1e-60}) {
    op.options.softcap = softcap;
    ASSERT_TRUE(op.Run(false, "ref").ok());
    const float wanted = op.loss[0];
    ASSERT_TRUE(op.Run(false).ok());
    EXPECT_EQ(op.loss[0], wanted) << softcap;
    EXPECT_TRUE(std::isfinite(op.loss[0])) << softcap;
  }
}

// Token weights that cancel: a divisor that no term uses does no harm.
TEST(LossExtremes, TheDivisorOfAnAbsentTermIsNotUsed) {
  const std::vector<float> tokens = {1, -1}, weight = {1, 3};
  Small op{.logits = {0, 1, 0, 1}, .target = {0, 1}};
  op.options.token_weight = ConstTensorView(tokens.data(), DType::kF32, {2});
  op.options.weight = ConstTensorView(weight.data(), DType::kF32, {2});
  op.options.label_smoothing = 0.1;
  ASSERT_TRUE(op.Run(false).ok());
  for (const float g : op.gradient) EXPECT_TRUE(std::isfinite(g));
}

}  // namespace
}  // namespace onehot::test
