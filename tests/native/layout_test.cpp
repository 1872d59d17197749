// Arithmetic on extents and strides, against brute force.
#include "core/layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/scratch.h"
#include "onehot/tensor.h"
#include "tests/native/data.h"
#include "tests/native/strides.h"
#include "tests/native/targets.h"
#include "tests/native/tensor.h"

namespace onehot::test {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

TensorLayout Layout(const Dims& dims, const Dims& strides, DType dtype = DType::kF32) {
  return LayoutOf(dtype, dims, strides);
}

bool OverlapsByBruteForce(const TensorLayout& layout) {
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < layout.numel(); ++i)
    if (!seen.insert(OffsetOf(layout, i)).second) return true;
  return false;
}

std::string Show(const TensorLayout& layout) {
  std::string text;
  for (int axis = 0; axis < layout.rank; ++axis)
    text += std::to_string(layout.dim(axis)) + " step " + std::to_string(layout.stride(axis)) + ", ";
  return text;
}

TEST(Layout, Contiguous) {
  const std::int64_t dims[] = {2, 3, 4};
  const TensorLayout layout = TensorLayout::Contiguous(DType::kBF16, dims);
  EXPECT_EQ(layout.dtype, DType::kBF16);
  EXPECT_EQ(layout.rank, 3);
  EXPECT_EQ(layout.numel(), 24);
  EXPECT_EQ(layout.stride(0), 12);
  EXPECT_EQ(layout.stride(1), 4);
  EXPECT_EQ(layout.stride(-1), 1);
  EXPECT_EQ(layout.dim(-3), 2);
  EXPECT_EQ(TensorLayout::Contiguous(DType::kF32, {}).numel(), 1);
  const Dims ten(10, 2);
  EXPECT_EQ(TensorLayout::Contiguous(DType::kF32, ten).rank, kMaxRank);
  float data[6];
  const TensorView view(data, DType::kF32, {2, 3});
  EXPECT_EQ(view.data, data);
  EXPECT_EQ(view.stride(0), 3);
  EXPECT_EQ(ConstTensorView(view).data, data);
}

TEST(Layout, OverlapByHand) {
  EXPECT_FALSE(OverlapsItself(Layout({}, {})));
  EXPECT_FALSE(OverlapsItself(Layout({3, 2}, {2, 1})));
  EXPECT_FALSE(OverlapsItself(Layout({3, 2}, {3, 2})));  // 0 2, 3 5, 6 8
  EXPECT_FALSE(OverlapsItself(Layout({3, 2}, {2, 3})));  // 0 3, 2 5, 4 7
  EXPECT_TRUE(OverlapsItself(Layout({4, 2}, {2, 6})));   // 0 and 6 are both there twice
  EXPECT_TRUE(OverlapsItself(Layout({2, 2}, {1, 1})));
  EXPECT_TRUE(OverlapsItself(Layout({2, 2}, {1, -1})));
  EXPECT_TRUE(OverlapsItself(Layout({2}, {0})));
  EXPECT_FALSE(OverlapsItself(Layout({1, 5}, {0, 1})));
  EXPECT_FALSE(OverlapsItself(Layout({5, 1}, {1, 0})));
  EXPECT_FALSE(OverlapsItself(Layout({5, 0}, {0, 0})));
  EXPECT_FALSE(OverlapsItself(Layout({0, 5}, {0, 0})));
}

TEST(Layout, OverlapAgreesWithBruteForce) {
  Random random(1);
  int overlapping = 0;
  for (int i = 0; i < 60000; ++i) {
    Dims dims, strides;
    const std::int64_t rank = random.Below(5);
    for (std::int64_t axis = 0; axis < rank; ++axis) {
      dims.push_back(random.Below(20) == 0 ? 0 : 1 + random.Below(4));
      strides.push_back(random.Below(41) - 20);
    }
    const TensorLayout layout = Layout(dims, strides);
    const bool want = OverlapsByBruteForce(layout);
    overlapping += want;
    ASSERT_EQ(OverlapsItself(layout), want) << Show(layout);
  }
  EXPECT_GT(overlapping, 5000);  // both answers are tried
  EXPECT_LT(overlapping, 55000);
}

// Slices, permutations and reversals of dense tensors never overlap, up to rank 8.
TEST(Layout, PlainViewsDoNotOverlap) {
  Random random(2);
  for (int i = 0; i < 20000; ++i) {
    Dims dims(static_cast<std::size_t>(1 + random.Below(8)));
    std::vector<std::size_t> order;
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
      dims[axis] = 1 + random.Below(100);
      order.insert(order.begin() + random.Below(static_cast<std::int64_t>(order.size()) + 1), axis);
    }
    Dims strides = PermutedStrides(dims, order, random.Below(3));
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
      const std::int64_t step = 1 + random.Below(4);  // every step-th index of the axis
      if (random.Below(2) == 0) dims[axis] = (dims[axis] + step - 1) / step, strides[axis] *= step;
      if (random.Below(2) == 0) strides[axis] = -strides[axis];
    }
    ASSERT_TRUE(CheckLayout("view", Layout(dims, strides)).ok());  // eight axes of 100 fit 63 bits
    ASSERT_FALSE(OverlapsItself(Layout(dims, strides))) << Show(Layout(dims, strides));
  }
}

TEST(Layout, LargeOverlapIsFoundFast) {
  EXPECT_TRUE(OverlapsItself(Layout({1000003, 1000003}, {1000002, 1})));
  EXPECT_FALSE(OverlapsItself(Layout({1000003, 1000003}, {1000003, 1})));
  // Coprime steps: equal only where a / b = 1000 / 999, within reach here and not there.
  EXPECT_TRUE(OverlapsItself(Layout({1000, 1001}, {1000, 999})));
  EXPECT_FALSE(OverlapsItself(Layout({999, 1000}, {1000, 999})));
}

TEST(Layout, FlattenAgreesWithBruteForce) {
  Random random(3);
  int merged = 0;
  for (int i = 0; i < 20000; ++i) {
    Dims dims(static_cast<std::size_t>(random.Below(6)));
    std::vector<std::size_t> order;
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
      dims[axis] = 1 + random.Below(4);
      order.insert(order.begin() + (random.Below(3) == 0 ? 0 : static_cast<std::ptrdiff_t>(order.size())), axis);
    }
    Dims strides = PermutedStrides(dims, order, random.Below(4) == 0 ? 1 : 0);
    for (std::int64_t& stride : strides)
      if (random.Below(8) == 0) stride = random.Below(3) - 1;
    const TensorLayout layout = Layout(dims, strides);
    for (int axes = 0; axes <= layout.rank; ++axes) {
      TensorLayout leading = layout;
      leading.rank = axes;
      const Positions positions = Flatten(layout, axes);
      ASSERT_EQ(positions.count, leading.numel());
      ASSERT_LE(positions.rank, axes);
      merged += axes > 1 && positions.uniform();
      for (std::int64_t p = 0; p < positions.count; ++p)
        ASSERT_EQ(positions.Offset(p), OffsetOf(leading, p)) << Show(leading) << " position " << p;
    }
  }
  EXPECT_GT(merged, 1000);
}

TEST(Layout, DenseTensorsFlattenToOneStride) {
  const Positions positions = Flatten(Layout({2, 3, 4, 5}, {60, 20, 5, 1}), 3);
  EXPECT_TRUE(positions.uniform());
  EXPECT_EQ(positions.count, 24);
  EXPECT_EQ(positions.stride(), 5);
  EXPECT_EQ(Flatten(Layout({}, {}), 0).count, 1);
  EXPECT_EQ(Flatten(Layout({0, 3}, {3, 1}), 2).count, 0);
  // Above 2^31 positions.
  EXPECT_EQ(Flatten(Layout({100000, 100000}, {100000, 1}), 2).Offset(9999999999), 9999999999);
  EXPECT_EQ(Flatten(Layout({100000, 100000}, {1, 100000}), 2).Offset(9999999999), 9999999999);
}

TEST(Layout, CheckLayout) {
  EXPECT_OK(CheckLayout("x", Layout({2, 3}, {3, 1})));
  EXPECT_OK(CheckLayout("x", Layout({}, {})));
  EXPECT_OK(CheckLayout("x", Layout({0, 3}, {kMax, kMax})));  // empty: no offset is ever formed
  EXPECT_OK(CheckLayout("x", Layout({kMax / 4}, {1})));
  EXPECT_STATUS(CheckLayout("x", Layout({kMax / 4 + 1}, {1})), Code::kBadShape,
                "x: must span less than 2^63 bytes, shape is f32 [2305843009213693952]");
  EXPECT_STATUS(CheckLayout("x", Layout({3037000500, 3037000500}, {0, 0}, DType::kI8)), Code::kBadShape,
                "x: must span less than 2^63 bytes, shape is i8 [3037000500, 3037000500]");
  EXPECT_STATUS(CheckLayout("x", Layout({3, 2}, {kMax / 8, 1})), Code::kBadShape,
                "x: must span less than 2^63 bytes, shape is f32 [3, 2]");
  EXPECT_STATUS(CheckLayout("x", Layout({3, 2}, {-(kMax / 8) - 1, 1})), Code::kBadShape,
                "x: must span less than 2^63 bytes, shape is f32 [3, 2]");
  EXPECT_STATUS(CheckLayout("x", Layout({3, 2}, {kMin, 1})), Code::kBadShape,
                "x: must span less than 2^63 bytes, shape is f32 [3, 2]");
  EXPECT_STATUS(CheckLayout("x", Layout({2, -1}, {1, 1})), Code::kBadShape,
                "x: extents must not be negative, axis 1 has -1");
  TensorLayout nine = Layout({1}, {1});
  nine.rank = 9;
  EXPECT_STATUS(CheckLayout("x", nine), Code::kBadShape, "x: rank must be in [0, 8], is 9");
  nine.rank = -1;
  EXPECT_STATUS(CheckLayout("x", nine), Code::kBadShape, "x: rank must be in [0, 8], is -1");
}

TEST(Layout, Descriptions) {
  EXPECT_EQ(Describe(Layout({3, 4}, {4, 1})), "f32 [3, 4]");
  EXPECT_EQ(Describe(Layout({}, {}, DType::kBool)), "bool []");
  EXPECT_EQ(DescribePosition("target", Layout({2, 3, 4}, {0, 0, 0}), 23), "target[1, 2, 3] (position 23)");
  EXPECT_EQ(DescribePosition("target", Layout({2, 3, 4}, {0, 0, 0}), 4), "target[0, 1, 0] (position 4)");
  EXPECT_EQ(DescribePosition("target", Layout({9}, {1}), 5), "target[5]");
  EXPECT_EQ(DescribePosition("target", Layout({}, {}), 0), "target[0]");
}

// ---- the ledger of working memory

TEST(Scratch, PiecesAreApartAlignedAndInside) {
  for (const std::size_t shift : {0u, 1u, 3u, 63u, 64u, 65u}) {
    ScratchLayout layout;
    const Piece<double> a = layout.Book<double>(3);
    const Piece<std::uint8_t> b = layout.Book<std::uint8_t>(1);
    const Piece<std::int32_t> none = layout.Book<std::int32_t>(0);
    const Piece<std::uint16_t> c = layout.Book<std::uint16_t>(100);
    HostileScratch memory(layout.bytes(), shift);
    const Scratch scratch(memory.data());
    EXPECT_EQ(scratch.Get(a).size(), 3u);
    EXPECT_EQ(scratch.Get(b).size(), 1u);
    EXPECT_EQ(scratch.Get(none).size(), 0u);
    EXPECT_EQ(scratch.Get(c).size(), 100u);
    for (double& x : scratch.Get(a)) x = 1;
    for (std::uint8_t& x : scratch.Get(b)) x = 2;
    for (std::uint16_t& x : scratch.Get(c)) x = 3;
    for (const double x : scratch.Get(a)) EXPECT_EQ(x, 1);
    for (const std::uint8_t x : scratch.Get(b)) EXPECT_EQ(x, 2);
    for (const std::uint16_t x : scratch.Get(c)) EXPECT_EQ(x, 3);
    EXPECT_TRUE(memory.GuardIntact());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch.Get(a).data()) % ScratchLayout::kAlign, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch.Get(b).data()) % ScratchLayout::kAlign, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch.Get(c).data()) % ScratchLayout::kAlign, 0u);
  }
  EXPECT_EQ(ScratchLayout().bytes(), 0u);
}

// ---- Status and Result

TEST(Status, HoldsACodeAndASentence) {
  const Status ok = Status::Ok();
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.code(), Code::kOk);
  EXPECT_EQ(ok.message(), "");
  EXPECT_STATUS(Status::Error(Code::kBadShape, "x: no"), Code::kBadShape, "x: no");
  EXPECT_FALSE(Status::Error(Code::kBadShape, "x: no").ok());
}

TEST(Result, HoldsAValueOrAStatus) {
  Result<std::string> value = std::string("here");
  EXPECT_TRUE(value.ok());
  EXPECT_TRUE(value.status().ok());
  EXPECT_EQ(*value, "here");
  EXPECT_EQ(value->size(), 4u);
  EXPECT_EQ(value.value(), "here");
  EXPECT_EQ(std::move(value).value(), "here");
  const Result<std::string> error = Status::Error(Code::kUnsupported, "none");
  EXPECT_FALSE(error.ok());
  EXPECT_STATUS(error.status(), Code::kUnsupported, "none");
}

}  // namespace
}  // namespace onehot::test
