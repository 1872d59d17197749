// Faults that users of such operators have reported somewhere, each with numbers worked by hand, and their siblings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/native/cases.h"
#include "tests/native/strides.h"

namespace onehot::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// A 16-bit running sum of ones stalls at 256 (bf16) or 2048 (f16).
TEST(ReportedFaults, SixteenBitAccumulation) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const DType out_dtype : {dtype, DType::kF32})
      for (const std::int64_t D : {1, 16, 33}) {
        Tensor grad(dtype, {4096, D}), indices(DType::kI64, {4096}), out(out_dtype, {3, D});
        grad.SetAll(std::vector<double>(static_cast<std::size_t>(4096 * D), 1));
        SetIndices(indices, std::vector<std::int64_t>(4096, 1));
        for (const Target& target : Targets<EmbeddingBackward>()) {
          SCOPED_TRACE(target.name() + " " + std::string(Name(dtype)));
          EmbeddingBackward op;
          op.grad = grad.view(), op.indices = indices.view(), op.out = out.view();
          EXPECT_OK(RunOn(target, op));
          EXPECT_EQ(out.Value(D), 4096);
          EXPECT_EQ(out.Value(2 * D - 1), 4096);
          EXPECT_EQ(out.Value(0), 0);
        }
      }
}

// .01 in bf16 is .010009765625; a thousand of them are 10.009765625, and 10 is the bf16 next to that (steps of 1/16).
TEST(ReportedFaults, AThousandHundredthsInBF16) {
  Tensor grad(DType::kBF16, {1000, 1}), indices(DType::kI64, {1000}), out(DType::kBF16, {1, 1});
  grad.SetAll(std::vector<double>(1000, .01));
  SetIndices(indices, std::vector<std::int64_t>(1000, 0));
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    EmbeddingBackward op;
    op.grad = grad.view(), op.indices = indices.view(), op.out = out.view();
    EXPECT_OK(RunOn(target, op));
    EXPECT_EQ(out.Value(0), 10);
  }
}

// An f32 running sum of ones stalls at 2^24. The gradient is one number, expanded: nothing is stored 2^25 times but the
// scratch of the implementation.
TEST(ReportedFaults, SumsOfOnesDoNotSaturate) {
  const float one = 1;
  const std::int64_t row = 0, N = std::int64_t{1} << 25;
  Tensor out(DType::kF32, {1, 1});
  TensorLayout expanded;
  expanded.rank = 2, expanded.dims = {N, 1}, expanded.strides = {0, 0};
  TensorLayout same;
  same.dtype = DType::kI64, same.rank = 1, same.dims = {N}, same.strides = {0};
  EmbeddingBackward op;
  op.grad = ConstTensorView(&one, expanded), op.indices = ConstTensorView(&row, same), op.out = out.view();
  // Once each: what the instruction sets have of their own is covered by smaller hot rows.
  for (const Target& target : {Targets<EmbeddingBackward>().front(), Targets<EmbeddingBackward>().back()}) {
    SCOPED_TRACE(target.name());
    EXPECT_OK(RunOn(target, op));
    EXPECT_EQ(out.Value(0), 33554432);
  }
}

TEST(ReportedFaults, CountsAreNotReadBeforeBoundsAreChecked) {
  for (const auto& [V, value] :
       {std::pair<std::int64_t, std::int64_t>{0, 100000000000000000}, {10, -1}, {10, 100000000000000000}}) {
    Tensor grad(DType::kF32, {1, 2}), indices(DType::kI64, {1}), out(DType::kF32, {V, 2});
    indices.Set(0, value);
    EmbeddingBackward op;
    op.grad = grad.view(), op.indices = indices.view(), op.out = out.view();
    op.scale_grad_by_freq = true;
    for (const Target& target : Targets<EmbeddingBackward>())
      EXPECT_STATUS(RunOn(target, op), Code::kBadData,
                    "indices[0] = " + std::to_string(value) + " is outside [0, " + std::to_string(V) + ")");
  }
}

TEST(ReportedFaults, OutOfRangeIsNotDroppedSilently) {
  Tensor grad(DType::kF32, {3, 1}), indices(DType::kI64, {3}), out(DType::kF32, {10, 1});
  SetIndices(indices, {1, 10, 2});
  EmbeddingBackward op;
  op.grad = grad.view(), op.indices = indices.view(), op.out = out.view();
  for (const Target& target : Targets<EmbeddingBackward>())
    EXPECT_STATUS(RunOn(target, op), Code::kBadData, "indices[1] = 10 is outside [0, 10)");
}

TEST(ReportedFaults, EachRowIsScaledByItsOwnCount) {
  Tensor grad(DType::kF32, {3, 2}), indices(DType::kI64, {3}), out(DType::kF32, {5, 2});
  grad.SetAll({1, 1, 1, 1, 1, 1});
  SetIndices(indices, {1, 1, 3});
  EmbeddingBackward op;
  op.grad = grad.view(), op.indices = indices.view(), op.out = out.view();
  op.scale_grad_by_freq = true;
  for (const Target& target : Targets<EmbeddingBackward>()) {
    EXPECT_OK(RunOn(target, op));
    EXPECT_THAT(out.Values(), ElementsAre(0, 0, 1, 1, 0, 0, 1, 1, 0, 0));
  }
}

// The count is of all positions: scaled rows 3 times the same number give that number, for counts that have no exact
// reciprocal too. (x * (1 / 3) would not.)
TEST(ReportedFaults, TheSumIsDividedNotMultipliedByAReciprocal) {
  for (const std::int64_t n : {3, 5, 7, 41, 49, 107, 511}) {
    Tensor grad(DType::kF32, {n, 17}), indices(DType::kI64, {n}), out(DType::kF32, {1, 17});
    grad.SetAll(std::vector<double>(static_cast<std::size_t>(n * 17), 1));
    SetIndices(indices, std::vector<std::int64_t>(static_cast<std::size_t>(n), 0));
    EmbeddingBackward op;
    op.grad = grad.view(), op.indices = indices.view(), op.out = out.view();
    op.scale_grad_by_freq = true;
    for (const Target& target : Targets<EmbeddingBackward>()) {
      EXPECT_OK(RunOn(target, op));
      EXPECT_THAT(out.Values(), Each(1.0)) << n;
    }
  }
}

TEST(ReportedFaults, TransposedAndSlicedAreAsTheContiguousCopy) {
  // 3 x 4 positions of a 4 x 3 matrix, and every other column of a wider gradient.
  Tensor grad(DType::kF32, {3, 4, 5}, {10, 30, 2}), indices(DType::kI64, {3, 4}, {1, 3}), out(DType::kF32, {6, 5});
  Tensor dense_grad(DType::kF32, {3, 4, 5}), dense_indices(DType::kI64, {3, 4}), dense_out(DType::kF32, {6, 5});
  FillGradient(grad, 1);
  dense_grad.SetAll(grad.Values());
  SetIndices(indices, Indices(Spread::kUniform, 12, 6, 2));
  dense_indices.SetAll(indices.Values());
  for (const Target& target : Targets<EmbeddingBackward>()) {
    EmbeddingBackward op;
    op.grad = grad.view(), op.indices = indices.view(), op.out = out.view();
    EXPECT_OK(RunOn(target, op));
    op.grad = dense_grad.view(), op.indices = dense_indices.view(), op.out = dense_out.view();
    EXPECT_OK(RunOn(target, op));
    EXPECT_EQ(out.Bytes(), dense_out.Bytes());
  }
}

TEST(ReportedFaults, ManyShortRows) {
  Tensor grad(DType::kF32, {4, 1}), indices(DType::kI64, {4}), out(DType::kF32, {70000, 1});
  grad.SetAll({1, 2, 4, 8});
  SetIndices(indices, {69999, 0, 69999, 65536});
  EmbeddingBackward op;
  op.grad = grad.view(), op.indices = indices.view(), op.out = out.view();
  for (const Target& target : Targets<EmbeddingBackward>()) {
    EXPECT_OK(RunOn(target, op));
    EXPECT_EQ(out.Value(0), 2);
    EXPECT_EQ(out.Value(65536), 8);
    EXPECT_EQ(out.Value(69999), 5);
    EXPECT_EQ(out.Value(1), 0);
  }
}

}  // namespace
}  // namespace onehot::test
