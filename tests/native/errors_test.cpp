// Every sentence of Check, word for word.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "onehot/onehot.h"
#include "tests/native/targets.h"
#include "tests/native/tensor.h"

namespace onehot::test {
namespace {

float memory[4096];
std::int64_t numbers[64];

TensorLayout Strided(TensorLayout layout, std::int64_t rows, std::int64_t columns) {
  layout.strides[0] = rows;
  layout.strides[1] = columns;
  return layout;
}

// N = 6 as 2 x 3, V = 4, D = 5.
EmbeddingBackward Good() {
  EmbeddingBackward op;
  op.grad = ConstTensorView(memory, DType::kF32, {2, 3, 5});
  op.indices = ConstTensorView(numbers, DType::kI64, {2, 3});
  op.out = TensorView(memory + 100, DType::kF32, {4, 5});
  op.counts = TensorView(numbers + 10, DType::kI64, {4});
  return op;
}

TEST(BackwardErrors, GoodIsGood) {
  EXPECT_OK(Check(Good()));
  EXPECT_TRUE(Prepare(Good()).ok());
  EXPECT_EQ(Good().N(), 6);
  EXPECT_EQ(Good().V(), 4);
  EXPECT_EQ(Good().D(), 5);
}

TEST(BackwardErrors, DTypes) {
  for (const DType dtype : kAllDTypes) {
    const std::string name(Name(dtype));
    EmbeddingBackward op = Good();
    op.grad.dtype = op.out.dtype = dtype;
    const bool gradient = dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16;
    if (gradient) {
      EXPECT_OK(Check(op));
    } else {
      EXPECT_REFUSED(op, Code::kBadDType, "grad: dtype must be one of f32, f64, f16, bf16, is " + name);
    }

    op = Good();
    op.indices.dtype = dtype;
    if (dtype == DType::kBF16 || dtype == DType::kC64 || dtype == DType::kC128) {
      EXPECT_REFUSED(op, Code::kBadDType,
                     "indices: dtype must be one of i64, i32, i16, i8, u8, bool, f64, f32, f16, is " + name);
    } else {
      EXPECT_OK(Check(op));
    }

    op = Good();
    op.counts->dtype = dtype;
    if (dtype == DType::kI64) {
      EXPECT_OK(Check(op));
    } else {
      EXPECT_REFUSED(op, Code::kBadDType, "counts: dtype must be i64, is " + name);
    }

    for (const DType grad : kGradientDTypes) {
      op = Good();
      op.grad.dtype = grad;
      op.out.dtype = dtype;
      const bool narrow = grad == DType::kF16 || grad == DType::kBF16;
      if (dtype == grad || (narrow && dtype == DType::kF32)) {
        EXPECT_OK(Check(op));
      } else {
        EXPECT_REFUSED(op, Code::kBadDType,
                       "out: dtype must be that of grad, " + std::string(Name(grad)) + (narrow ? ", or f32" : "") +
                           ", is " + name);
      }
    }
  }
}

TEST(BackwardErrors, Ranks) {
  EmbeddingBackward op = Good();
  op.grad = ConstTensorView(memory, DType::kF32, {});
  EXPECT_REFUSED(op, Code::kBadShape, "grad: rank must be in [1, 8], is 0");
  op = Good();
  op.grad.rank = 9;
  EXPECT_REFUSED(op, Code::kBadShape, "grad: rank must be in [0, 8], is 9");
  op = Good();
  op.indices.rank = 9;
  EXPECT_REFUSED(op, Code::kBadShape, "indices: rank must be in [0, 8], is 9");
  op.indices.rank = -1;
  EXPECT_REFUSED(op, Code::kBadShape, "indices: rank must be in [0, 8], is -1");
  op = Good();
  op.out = TensorView(memory, DType::kF32, {20});
  EXPECT_REFUSED(op, Code::kBadShape, "out: rank must be 2, is 1");
  op.out = TensorView(memory, DType::kF32, {4, 5, 1});
  EXPECT_REFUSED(op, Code::kBadShape, "out: rank must be 2, is 3");
  op = Good();
  op.counts = TensorView(numbers, DType::kI64, {4, 1});
  EXPECT_REFUSED(op, Code::kBadShape, "counts: rank must be 1, is 2");
}

TEST(BackwardErrors, Extents) {
  EmbeddingBackward op = Good();
  op.grad.dims[1] = -3;
  EXPECT_REFUSED(op, Code::kBadShape, "grad: extents must not be negative, axis 1 has -3");
  op = Good();
  op.indices.dims[0] = -2;
  EXPECT_REFUSED(op, Code::kBadShape, "indices: extents must not be negative, axis 0 has -2");
  op = Good();
  op.out.dims[0] = -4;
  EXPECT_REFUSED(op, Code::kBadShape, "out: extents must not be negative, axis 0 has -4");
  op = Good();
  op.counts->dims[0] = -4;
  EXPECT_REFUSED(op, Code::kBadShape, "counts: extents must not be negative, axis 0 has -4");
  op = Good();
  op.grad = ConstTensorView(memory, DType::kF32, {7, 5});
  EXPECT_REFUSED(op, Code::kBadShape, "grad: must have one row for each of the 6 indices, f32 [7, 5] has 7 rows");
  op.grad = ConstTensorView(memory, DType::kF32, {5});
  EXPECT_REFUSED(op, Code::kBadShape, "grad: must have one row for each of the 6 indices, f32 [5] has 1 rows");
  op = Good();
  op.grad = ConstTensorView(memory, DType::kF32, {2, 3, 6});
  EXPECT_REFUSED(op, Code::kBadShape, "out: width must be that of grad, 6, is 5");
  op = Good();
  op.counts = TensorView(numbers, DType::kI64, {3});
  EXPECT_REFUSED(op, Code::kBadShape, "counts: must have one element for each of the 4 rows of out, has 3");
}

TEST(BackwardErrors, SpansBeyond63Bits) {
  constexpr std::int64_t kLong = std::int64_t{1} << 62;
  EmbeddingBackward op = Good();
  op.grad = ConstTensorView(memory, DType::kF32, {kLong, 5});
  EXPECT_REFUSED(op, Code::kBadShape, "grad: must span less than 2^63 bytes, shape is f32 [4611686018427387904, 5]");
  op = Good();
  op.indices = ConstTensorView(numbers, DType::kI64, {kLong});
  EXPECT_REFUSED(op, Code::kBadShape, "indices: must span less than 2^63 bytes, shape is i64 [4611686018427387904]");
  op = Good();
  op.out = TensorView(memory, DType::kF32, {kLong, 5});
  EXPECT_REFUSED(op, Code::kBadShape, "out: must span less than 2^63 bytes, shape is f32 [4611686018427387904, 5]");
  op = Good();
  op.out.strides[0] = std::numeric_limits<std::int64_t>::min();
  EXPECT_REFUSED(op, Code::kBadShape, "out: must span less than 2^63 bytes, shape is f32 [4, 5]");
  op = Good();
  op.out.strides[0] = std::numeric_limits<std::int64_t>::max() / 3;
  EXPECT_REFUSED(op, Code::kBadShape, "out: must span less than 2^63 bytes, shape is f32 [4, 5]");
  op = Good();
  op.counts->strides[0] = std::numeric_limits<std::int64_t>::max();
  EXPECT_REFUSED(op, Code::kBadShape, "counts: must span less than 2^63 bytes, shape is i64 [4]");
}

TEST(BackwardErrors, PaddingIdx) {
  for (const std::int64_t good : {-4, -1, 0, 3}) {
    EmbeddingBackward op = Good();
    op.padding_idx = good;
    EXPECT_OK(Check(op));
  }
  for (const std::int64_t bad : {std::int64_t{4}, std::int64_t{-5}, std::int64_t{1} << 32,
                                 std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    EmbeddingBackward op = Good();
    op.padding_idx = bad;
    EXPECT_REFUSED(op, Code::kBadArgument,
                   "padding_idx: must be in [-4, 4), the rows of out, is " + std::to_string(bad));
  }
  EmbeddingBackward op = Good();
  op.out = TensorView(memory, DType::kF32, {0, 5});
  op.counts.reset();
  op.padding_idx = 0;
  EXPECT_REFUSED(op, Code::kBadArgument, "padding_idx: must be in [0, 0), the rows of out, is 0");
}

TEST(BackwardErrors, OutputsMustNotOverlapThemselves) {
  EmbeddingBackward op = Good();
  const auto expect = [&op](std::int64_t rows, std::int64_t columns) {
    op.out = TensorView(memory + 1000, Strided(op.out, rows, columns));
    EXPECT_REFUSED(op, Code::kBadShape,
                   "out: must not map two elements to one address, shape f32 [4, 5] with strides [" +
                       std::to_string(rows) + ", " + std::to_string(columns) + "] does");
  };
  expect(0, 1);
  expect(5, 0);
  expect(4, 1);
  expect(-4, 1);
  expect(1, 1);
  expect(2, -1);
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{5, 1}, {1, 4}, {-5, -1}, {7, 1}, {5, 4}, {4, 5}, {4, 17}}) {
    op.out = TensorView(memory + 1000, Strided(op.out, rows, columns));
    EXPECT_OK(Check(op));
  }
  op = Good();
  op.counts->strides[0] = 0;
  EXPECT_REFUSED(op, Code::kBadShape,
                 "counts: must not map two elements to one address, shape i64 [4] with strides [0] does");
  // Inputs may.
  op = Good();
  op.grad = ConstTensorView(memory, Strided(ConstTensorView(memory, DType::kF32, {6, 5}), 0, 0));
  op.indices = ConstTensorView(numbers, Strided(op.indices, 0, 0));
  EXPECT_OK(Check(op));
}

// Phase 1 needs no memory; phase 2 does, where there are elements.
TEST(BackwardErrors, NullData) {
  for (const Target& target : Targets<EmbeddingBackward>()) {
    SCOPED_TRACE(target.name());
    EmbeddingBackward op = Good();
    op.grad.data = nullptr;
    EXPECT_STATUS(RunOn(target, op), Code::kNullArgument, "grad: data must not be null");
    op = Good();
    op.indices.data = nullptr;
    EXPECT_STATUS(RunOn(target, op), Code::kNullArgument, "indices: data must not be null");
    op = Good();
    op.out.data = nullptr;
    EXPECT_STATUS(RunOn(target, op), Code::kNullArgument, "out: data must not be null");
    op = Good();
    op.counts->data = nullptr;
    EXPECT_STATUS(RunOn(target, op), Code::kNullArgument, "counts: data must not be null");
    op.grad.data = op.indices.data = op.out.data = nullptr;
    EXPECT_STATUS(RunOn(target, op), Code::kNullArgument, "grad: data must not be null");
    // Nothing there, nothing needed.
    op.grad = ConstTensorView(nullptr, DType::kF32, {0, 5});
    op.indices = ConstTensorView(nullptr, DType::kI64, {0});
    op.out = TensorView(nullptr, DType::kF32, {0, 5});
    op.counts = TensorView(nullptr, DType::kI64, {0});
    EXPECT_OK(RunOn(target, op));
    op.out = TensorView(memory, DType::kF32, {4, 5});
    op.counts.reset();
    EXPECT_OK(RunOn(target, op));
  }
}

// ---- embedding: N = 6 as 2 x 3, V = 4, D = 5

Embedding GoodForward() {
  Embedding op;
  op.weight = ConstTensorView(memory, DType::kF32, {4, 5});
  op.indices = ConstTensorView(numbers, DType::kI64, {2, 3});
  op.out = TensorView(memory + 100, DType::kF32, {2, 3, 5});
  return op;
}

TEST(EmbeddingErrors, DTypes) {
  for (const DType dtype : kAllDTypes) {
    Embedding op = GoodForward();
    op.weight.dtype = op.out.dtype = dtype;
    EXPECT_OK(Check(op));
    op.weight.dtype = DType::kI16;
    if (dtype != DType::kI16)
      EXPECT_REFUSED(op, Code::kBadDType, "out: dtype must be that of weight, i16, is " + std::string(Name(dtype)));
    op = GoodForward();
    op.indices.dtype = dtype;
    if (dtype == DType::kBF16 || dtype == DType::kC64 || dtype == DType::kC128) {
      EXPECT_REFUSED(
          op, Code::kBadDType,
          "indices: dtype must be one of i64, i32, i16, i8, u8, bool, f64, f32, f16, is " + std::string(Name(dtype)));
    } else {
      EXPECT_OK(Check(op));
    }
  }
}

TEST(EmbeddingErrors, RanksAndExtents) {
  Embedding op = GoodForward();
  op.weight = ConstTensorView(memory, DType::kF32, {20});
  EXPECT_REFUSED(op, Code::kBadShape, "weight: rank must be 2, is 1");
  op = GoodForward();
  op.out = TensorView(memory, DType::kF32, {});
  EXPECT_REFUSED(op, Code::kBadShape, "out: rank must be in [1, 8], is 0");
  op = GoodForward();
  op.out.rank = 9;
  EXPECT_REFUSED(op, Code::kBadShape, "out: rank must be in [0, 8], is 9");
  op = GoodForward();
  op.indices.rank = 9;
  EXPECT_REFUSED(op, Code::kBadShape, "indices: rank must be in [0, 8], is 9");
  op = GoodForward();
  op.weight.dims[0] = -4;
  EXPECT_REFUSED(op, Code::kBadShape, "weight: extents must not be negative, axis 0 has -4");
  op = GoodForward();
  op.out = TensorView(memory, DType::kF32, {6, 4});
  EXPECT_REFUSED(op, Code::kBadShape, "out: width must be that of weight, 5, is 4");
  op.out = TensorView(memory, DType::kF32, {7, 5});
  EXPECT_REFUSED(op, Code::kBadShape, "out: must have one row for each of the 6 indices, f32 [7, 5] has 7 rows");
  op.out = TensorView(memory, DType::kF32, {6, 5});
  EXPECT_OK(Check(op));
  op.out = TensorView(memory, Strided(op.out, 4, 1));
  EXPECT_REFUSED(op, Code::kBadShape,
                 "out: must not map two elements to one address, shape f32 [6, 5] with strides [4, 1] does");
  op = GoodForward();
  op.weight = ConstTensorView(memory, DType::kF32, {std::int64_t{1} << 62, 5});
  EXPECT_REFUSED(op, Code::kBadShape, "weight: must span less than 2^63 bytes, shape is f32 [4611686018427387904, 5]");
  op = GoodForward();
  op.weight = ConstTensorView(memory, Strided(op.weight, 0, 0));  // inputs may overlap
  EXPECT_OK(Check(op));
}

TEST(EmbeddingErrors, NullData) {
  for (const Target& target : Targets<Embedding>()) {
    SCOPED_TRACE(target.name());
    Embedding op = GoodForward();
    op.weight.data = nullptr;
    EXPECT_STATUS(RunOn(target, op), Code::kNullArgument, "weight: data must not be null");
    op = GoodForward();
    op.indices.data = nullptr;
    EXPECT_STATUS(RunOn(target, op), Code::kNullArgument, "indices: data must not be null");
    op = GoodForward();
    op.out.data = nullptr;
    EXPECT_STATUS(RunOn(target, op), Code::kNullArgument, "out: data must not be null");
    op.indices = ConstTensorView(nullptr, DType::kI64, {0});
    op.out = TensorView(nullptr, DType::kF32, {0, 5});
    EXPECT_OK(RunOn(target, op));
  }
}

}  // namespace
}  // namespace onehot::test
