// Sizes above 2^31. What needs no memory of that size runs always; the rest where ONEHOT_BIG_TESTS=1 is set.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/native/cases.h"
#include "tests/native/reserved.h"

namespace onehot::test {
namespace {

// Rows 2^29 elements apart: the offsets of row 7 pass 2^31 elements and 2^33 bytes.
constexpr std::int64_t kFar = std::int64_t{1} << 29;

TEST(Big, OffsetsAbove32Bits) {
  Reserved grad(8 * kFar * 4 + 4096), out(8 * kFar * 4 + 4096), indices(8 * kFar * 8 + 4096);
  if (!grad.ok() || !out.ok() || !indices.ok()) GTEST_SKIP() << "no address space";
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t c = 0; c < 5; ++c) grad.as<float>()[i * kFar + c] = static_cast<float>(10 * i + c);
    indices.as<std::int64_t>()[i * kFar] = 7 - i;
  }
  EmbeddingBackward op;
  op.grad = ConstTensorView(grad.as<float>(), LayoutOf(DType::kF32, {8, 5}, {kFar, 1}));
  op.indices = ConstTensorView(indices.as<std::int64_t>(), LayoutOf(DType::kI64, {8}, {kFar}));
  op.out = TensorView(out.as<float>(), LayoutOf(DType::kF32, {8, 5}, {kFar, 1}));
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    for (std::int64_t v = 0; v < 8; ++v) out.as<float>()[v * kFar] = -1;
    EXPECT_OK(RunOn(target, op));
    for (std::int64_t v = 0; v < 8; ++v)
      for (std::int64_t c = 0; c < 5; ++c)
        EXPECT_EQ(out.as<float>()[v * kFar + c], static_cast<float>(10 * (7 - v) + c));
  }
  Embedding forward;
  forward.weight = op.grad, forward.indices = op.indices, forward.out = op.out;
  for (const Target& target : Targets<Embedding>()) {
    SCOPED_TRACE(target.name());
    for (std::int64_t v = 0; v < 8; ++v) out.as<float>()[v * kFar] = -1;
    EXPECT_OK(RunOn(target, forward));
    for (std::int64_t v = 0; v < 8; ++v)
      for (std::int64_t c = 0; c < 5; ++c)
        EXPECT_EQ(out.as<float>()[v * kFar + c], static_cast<float>(10 * (7 - v) + c));
  }
}

// Columns that far apart.
TEST(Big, ColumnOffsetsAbove32Bits) {
  Reserved grad(8 * kFar * 4 + 4096), out(8 * kFar * 4 + 4096);
  if (!grad.ok() || !out.ok()) GTEST_SKIP() << "no address space";
  Tensor indices(DType::kI32, {4});
  SetIndices(indices, {2, 0, 2, 1});
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t c = 0; c < 8; ++c) grad.as<float>()[i + c * kFar] = static_cast<float>(10 * i + c);
  EmbeddingBackward op;
  op.grad = ConstTensorView(grad.as<float>(), LayoutOf(DType::kF32, {4, 8}, {1, kFar}));
  op.indices = indices.view();
  op.out = TensorView(out.as<float>(), LayoutOf(DType::kF32, {3, 8}, {1, kFar}));
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    for (std::int64_t c = 0; c < 8; ++c) out.as<float>()[c * kFar] = -1;
    EXPECT_OK(RunOn(target, op));
    for (std::int64_t c = 0; c < 8; ++c) {
      EXPECT_EQ(out.as<float>()[0 + c * kFar], static_cast<float>(10 + c));
      EXPECT_EQ(out.as<float>()[1 + c * kFar], static_cast<float>(30 + c));
      EXPECT_EQ(out.as<float>()[2 + c * kFar], static_cast<float>(20 + 2 * c));
    }
  }
}

// Plans for anything that 63 bits of bytes can describe, without touching memory.
TEST(Big, PlansOfHugeProblems) {
  EmbeddingBackward op;
  op.grad = ConstTensorView(nullptr, DType::kBF16, {std::int64_t{1} << 33, 4096});
  op.indices = ConstTensorView(nullptr, DType::kI64, {std::int64_t{1} << 33});
  op.out = TensorView(nullptr, DType::kBF16, {std::int64_t{1} << 32, 4096});
  Result<Plan> plan = Prepare(op);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->bytes_read(), (std::int64_t{1} << 46) + (std::int64_t{1} << 36));
  EXPECT_EQ(plan->bytes_written(), std::int64_t{1} << 45);
  EXPECT_STATUS(plan->Run(), Code::kNullArgument, "grad: data must not be null");
}

// V 32769 x D 65536: 2^31 + 65536 elements, so that the last row starts at 2^31.
TEST(Big, LastRowAbove31Bits) {
  if (!BigTestsWanted()) GTEST_SKIP() << "4 GiB; set ONEHOT_BIG_TESTS=1";
  const std::int64_t V = 32769, D = 65536;
  Reserved out(static_cast<std::size_t>(V * D) * 2);
  if (!out.ok()) GTEST_SKIP() << "no memory";
  Tensor grad(DType::kBF16, {2, D}), indices(DType::kI64, {2});
  FillGradient(grad, 1);
  SetIndices(indices, {0, 32768});
  EmbeddingBackward op;
  op.grad = grad.view(), op.indices = indices.view(), op.out = TensorView(out.as<void>(), DType::kBF16, {V, D});
  out.as<std::uint16_t>()[V * D / 2] = 0xFFFF;
  EXPECT_OK(RunOn(Targets<EmbeddingBackward>().front(), op));
  for (std::int64_t c = 0; c < D; ++c) {
    ASSERT_EQ(out.as<std::uint16_t>()[c], grad.Get<std::uint16_t>(c));
    ASSERT_EQ(out.as<std::uint16_t>()[32768 * D + c], grad.Get<std::uint16_t>(D + c));
  }
  EXPECT_EQ(out.as<std::uint16_t>()[V * D / 2], 0);
}

// Scratch that takes only the memory that is touched.
Status RunReserved(const Plan& plan) {
  Reserved scratch(plan.scratch_bytes());
  if (!scratch.ok()) return Status::Error(Code::kOutOfMemory, "no address space");
  return plan.Run(scratch.as<void>(), plan.scratch_bytes());
}

// 2^31 + 1000 positions, all of them one index and one gradient: no memory but the scratch.
TEST(Big, PositionsAbove31Bits) {
  if (!BigTestsWanted()) GTEST_SKIP() << "a minute, and some 8 GiB of scratch; set ONEHOT_BIG_TESTS=1";
  const std::int64_t N = (std::int64_t{1} << 31) + 1000;
  const float one = 1;
  const std::uint8_t row = 1;
  Tensor out(DType::kF32, {2, 1}), counts(DType::kI64, {2});
  EmbeddingBackward op;
  op.grad = ConstTensorView(&one, LayoutOf(DType::kF32, {N, 1}, {0, 0}));
  op.indices = ConstTensorView(&row, LayoutOf(DType::kU8, {N}, {0}));
  op.out = out.view();
  op.counts = counts.view();
  Result<Plan> plan = PrepareOn(Targets<EmbeddingBackward>().front(), op);
  ASSERT_TRUE(plan.ok());
  EXPECT_OK(RunReserved(*plan));
  EXPECT_EQ(counts.Get<std::int64_t>(0), 0);
  EXPECT_EQ(counts.Get<std::int64_t>(1), N);
  // Sums of whole chunks are multiples of 512 below 2^33 and so exact in f32; the last chunk is rounded once.
  EXPECT_EQ(out.Value(1), static_cast<double>(static_cast<float>(N)));
}

// The same for the smallest bad position.
TEST(Big, BadPositionAbove31Bits) {
  if (!BigTestsWanted()) GTEST_SKIP() << "a minute and some 10 GiB; set ONEHOT_BIG_TESTS=1";
  const std::int64_t N = (std::int64_t{1} << 31) + 1000;
  Reserved indices(static_cast<std::size_t>(N));
  if (!indices.ok()) GTEST_SKIP() << "no memory";
  indices.as<std::uint8_t>()[N - 500] = 2;
  indices.as<std::uint8_t>()[N - 1] = 3;
  const float one = 1;
  Tensor out(DType::kF32, {2, 1});
  EmbeddingBackward op;
  op.grad = ConstTensorView(&one, LayoutOf(DType::kF32, {N, 1}, {0, 0}));
  op.indices = ConstTensorView(indices.as<void>(), DType::kU8, {N});
  op.out = out.view();
  Result<Plan> plan = PrepareOn(Targets<EmbeddingBackward>().front(), op);
  ASSERT_TRUE(plan.ok());
  EXPECT_STATUS(RunReserved(*plan), Code::kBadData, "indices[" + std::to_string(N - 500) + "] = 2 is outside [0, 2)");
}

// More rows than 32 bits count. accumulate touches the named ones alone, so the rest takes no memory.
TEST(Big, RowsAbove32Bits) {
  if (!BigTestsWanted()) GTEST_SKIP() << "8 GiB of address space; set ONEHOT_BIG_TESTS=1";
  const std::int64_t V = (std::int64_t{1} << 32) + 5;
  Reserved out(static_cast<std::size_t>(V) * 2);
  if (!out.ok()) GTEST_SKIP() << "no address space";
  Tensor grad(DType::kBF16, {6, 1}), indices(DType::kI64, {6});
  grad.SetAll({1, 2, 4, 8, 16, 32});
  SetIndices(indices, {V - 1, 1, std::int64_t{1} << 32, V - 1, std::int64_t{1} << 31, 0});
  EmbeddingBackward op;
  op.grad = grad.view(), op.indices = indices.view(), op.accumulate = true;
  op.out = TensorView(out.as<void>(), DType::kBF16, {V, 1});
  Result<Plan> plan = PrepareOn(Targets<EmbeddingBackward>().front(), op);
  ASSERT_TRUE(plan.ok());
  EXPECT_OK(RunReserved(*plan));
  const auto at = [&](std::int64_t v) { return Widen(out.as<BF16>()[v]); };
  EXPECT_EQ(at(V - 1), 9);
  EXPECT_EQ(at(1), 2);
  EXPECT_EQ(at(std::int64_t{1} << 32), 4);
  EXPECT_EQ(at(std::int64_t{1} << 31), 16);
  EXPECT_EQ(at(0), 32);
  EXPECT_EQ(at(2), 0);
  EXPECT_EQ(at(4), 0);
  // A row that is outside, though not in its low 32 bits.
  indices.Set(2, V);
  EXPECT_STATUS(RunReserved(*plan), Code::kBadData, "indices[2] = 4294967301 is outside [0, 4294967301)");
}

}  // namespace
}  // namespace onehot::test
