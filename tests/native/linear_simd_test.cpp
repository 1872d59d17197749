// Products of the linear cross entropy, one by one, on every instruction set: their bits against chains of std::fma,
// and that nothing else is written.
#include "cpu/linear_simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/dtype.h"
#include "cpu/isa.h"
#include "tests/native/data.h"
#include "tests/native/tensor.h"

namespace onehot::test {
namespace {

using cpu::InputPart;
using cpu::kTileColumns;
using cpu::LinearKernels;
using cpu::OutputPart;
using cpu::RoundUp;
using Floats = std::vector<float, LineAllocator<float>>;

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::int64_t kRowCounts[] = {1, 2, 3, 5, 8, 13, 17};

// Full mantissas over some binades: another order of a sum has other bits.
float Any(Random& random) {
  return static_cast<float>(std::ldexp(random.Unit() - 0.5, static_cast<int>(random.Below(8)) - 4));
}
Floats AnyFloats(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  Floats all(static_cast<std::size_t>(count));
  for (float& x : all) x = Any(random);
  return all;
}
Floats NaNs(std::int64_t count) {
  return Floats(static_cast<std::size_t>(count), std::numeric_limits<float>::quiet_NaN());
}
std::uint32_t Bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

// A matrix of any dtype and strides, `offset` elements behind the start of a line, in memory of its own.
class Matrix {
 public:
  Matrix(DType type, std::int64_t rows, std::int64_t columns, std::int64_t row, std::int64_t column,
         std::int64_t offset)
      : dtype(type), rows_(rows), columns_(columns), row_(row), column_(column), offset_(offset) {
    numbers_ = offset + (rows - 1) * row + (columns - 1) * column + 1 + kTileColumns;
    bytes_.resize(static_cast<std::size_t>(numbers_ * SizeOf(type)));
    Random random(5);
    for (std::int64_t i = 0; i < numbers_; ++i) Set(i, Any(random));
  }

  InputPart in() const { return {bytes_.data() + offset_ * SizeOf(dtype), dtype, row_, column_, rows_, columns_}; }
  OutputPart out() { return {bytes_.data() + offset_ * SizeOf(dtype), dtype, row_, column_, rows_, columns_}; }
  float Get(std::int64_t i, std::int64_t j) const { return GetNumber(offset_ + i * row_ + j * column_); }
  void Put(std::int64_t i, std::int64_t j, float x) { Set(offset_ + i * row_ + j * column_, x); }
  const Buffer& bytes() const { return bytes_; }

  const DType dtype;

 private:
  float GetNumber(std::int64_t at) const {
    float found = 0;
    ForDType(Types<float, F16, BF16>{}, dtype,
             [&]<class T>() { found = Widen(reinterpret_cast<const T*>(bytes_.data())[at]); });
    return found;
  }
  void Set(std::int64_t at, float x) {
    ForDType(Types<float, F16, BF16>{}, dtype,
             [&]<class T>() { reinterpret_cast<T*>(bytes_.data())[at] = Narrow<T>(x); });
  }

  std::int64_t rows_, columns_, row_, column_, offset_, numbers_ = 0;
  Buffer bytes_;
};

template <class F>
void ForKernels(F&& test) {
  for (std::size_t isa = 0; isa < cpu::InstructionSets().size(); ++isa) {
    SCOPED_TRACE(testing::Message() << cpu::InstructionSets()[isa]);
    test(cpu::LinearKernelsFor(static_cast<Isa>(isa)));
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Sizes around those of vectors and tiles, and rows long enough to be read from the start of a line on. Rows lie close
// together, at whole lines, and where no two start alike within one.
template <class F>
void ForMatrices(F&& test) {
  struct Shape {
    std::int64_t rows, columns;
  };
  for (const Shape shape : {Shape{1, 1}, {3, 15}, {17, 16}, {64, 17}, {65, 64}, {70, 131}, {33, 150}, {130, 257}}) {
    for (const DType dtype : kDTypes) {
      for (const std::int64_t row : {shape.columns, RoundUp(shape.columns, 64), RoundUp(shape.columns, 64) + 3}) {
        for (const std::int64_t offset : {0, 1, 4, 8}) {
          SCOPED_TRACE(testing::Message()
                       << "dtype " << static_cast<int>(dtype) << ", " << shape.rows << " x " << shape.columns
                       << ", rows " << row << " apart, " << offset << " into a line");
          test(Matrix(dtype, shape.rows, shape.columns, row, 1, offset), shape.rows, shape.columns);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

std::size_t At(std::int64_t i, std::int64_t row, std::int64_t j) {
  return static_cast<std::size_t>(i * row + j);
}

TEST(LinearSimd, MultipliesAnyNumberOfRowsAndTouchesNoOther) {
  ForKernels([](const LinearKernels& kernels) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13}) {
      for (const std::int64_t depth : {std::int64_t{0}, std::int64_t{1}, std::int64_t{19}, cpu::kDepth + 1}) {
        for (const bool accumulate : {false, true}) {
          const std::int64_t a_row = depth + 3, c_row = kTileColumns + 16;
          const Floats a = AnyFloats(rows * a_row, 1), b = AnyFloats((depth + 1) * kTileColumns, 2);
          const Floats old = accumulate ? AnyFloats((rows + 1) * c_row, 3) : NaNs((rows + 1) * c_row);
          Floats c = old;
          kernels.multiply(
              {a.data(), a_row, 1, b.data(), kTileColumns, c.data(), c_row, rows, depth, accumulate, b.data()});
          for (std::int64_t i = 0; i <= rows; ++i) {
            for (std::int64_t j = 0; j < c_row; ++j) {
              const bool written = i < rows && j < kTileColumns;
              float want = written && !accumulate ? 0 : old[At(i, c_row, j)];
              for (std::int64_t k = 0; written && k < depth; ++k)
                want = std::fma(a[At(i, a_row, k)], b[At(k, kTileColumns, j)], want);
              ASSERT_EQ(Bits(c[At(i, c_row, j)]), Bits(want)) << rows << " rows: " << i << ", " << j;
            }
          }
        }
      }
    }
  });
}

TEST(LinearSimd, PacksColumnsOfAnyDtypeAndStrides) {
  const auto test = [](const LinearKernels& kernels, const Matrix& m, std::int64_t rows, std::int64_t columns) {
    Floats to = NaNs((columns + 1) * kTileColumns);
    kernels.pack_transposed(m.in(), to.data());
    for (std::int64_t j = 0; j <= columns; ++j) {
      for (std::int64_t i = 0; i < kTileColumns; ++i) {
        const float found = to[At(j, kTileColumns, i)];
        if (j == columns) {
          ASSERT_TRUE(std::isnan(found)) << i << ", " << j;
        } else {
          ASSERT_EQ(Bits(found), Bits(i < rows ? m.Get(i, j) : 0.0f)) << i << ", " << j;
        }
      }
    }
  };
  ForKernels([&](const LinearKernels& kernels) {
    ForMatrices([&](const Matrix& m, std::int64_t rows, std::int64_t columns) {
      if (rows <= kTileColumns) test(kernels, m, rows, columns);
    });
    for (const DType dtype : kDTypes) {
      test(kernels, Matrix(dtype, 50, 70, 1, 53, 3), 50, 70);      // columns are rows
      test(kernels, Matrix(dtype, 50, 70, 3 * 71, 3, 3), 50, 70);  // neither lies side by side
      test(kernels, Matrix(dtype, 64, 70, 1, 1, 0), 64, 70);       // both: every row has the next one's numbers
      test(kernels, Matrix(dtype, 1, 70, 1, 64, 0), 1, 70);
    }
  });
}

TEST(LinearSimd, TimesTransposedIsOneChainAlongColumns) {
  ForKernels([](const LinearKernels& kernels) {
    ForMatrices([&](const Matrix& m, std::int64_t classes, std::int64_t columns) {
      // c[i][v] for 17 rows; fewer rows are the same numbers.
      const std::int64_t most = 17, a_row = columns + 3, c_row = RoundUp(classes, kTileColumns) + 16;
      const Floats a = AnyFloats(most * a_row, 1);
      Floats want = NaNs(most * c_row);
      for (std::int64_t i = 0; i < most; ++i)
        for (std::int64_t v = 0; v < classes; ++v) {
          float sum = 0;
          for (std::int64_t h = 0; h < columns; ++h) sum = std::fma(a[At(i, a_row, h)], m.Get(v, h), sum);
          want[At(i, c_row, v)] = sum;
        }
      for (const std::int64_t rows : kRowCounts) {
        Floats c = NaNs((most + 1) * c_row);
        kernels.times_transposed(a.data(), a_row, rows, m.in(), c.data(), c_row);
        for (std::int64_t i = 0; i <= rows; ++i)
          for (std::int64_t v = 0; v < c_row; ++v) {
            if (i == rows || v >= RoundUp(classes, kTileColumns)) {
              ASSERT_TRUE(std::isnan(c[At(i, c_row, v)])) << rows << " rows: " << i << ", " << v;
            } else if (v < classes) {
              ASSERT_EQ(Bits(c[At(i, c_row, v)]), Bits(want[At(i, c_row, v)])) << rows << " rows: " << i << ", " << v;
            }
          }
      }
    });
  });
}

TEST(LinearSimd, TimesIsOneChainAlongRows) {
  ForKernels([](const LinearKernels& kernels) {
    ForMatrices([&](const Matrix& m, std::int64_t classes, std::int64_t columns) {
      const std::int64_t most = 17, a_row = classes + 3, c_row = RoundUp(columns, kTileColumns) + 16;
      const Floats a = AnyFloats(most * a_row, 1);
      for (const bool accumulate : {false, true}) {
        const Floats old = accumulate ? AnyFloats((most + 1) * c_row, 2) : NaNs((most + 1) * c_row);
        Floats want = old;
        for (std::int64_t i = 0; i < most; ++i)
          for (std::int64_t h = 0; h < columns; ++h) {
            float& sum = want[At(i, c_row, h)];
            if (!accumulate) sum = 0;
            for (std::int64_t v = 0; v < classes; ++v) sum = std::fma(a[At(i, a_row, v)], m.Get(v, h), sum);
          }
        for (const std::int64_t rows : kRowCounts) {
          Floats c = old;
          kernels.times(a.data(), a_row, rows, m.in(), c.data(), c_row, accumulate);
          for (std::int64_t i = 0; i <= rows; ++i)
            for (std::int64_t h = 0; h < c_row; ++h) {
              if (i == rows || h >= RoundUp(columns, kTileColumns)) {
                ASSERT_EQ(Bits(c[At(i, c_row, h)]), Bits(old[At(i, c_row, h)])) << rows << " rows: " << i << ", " << h;
              } else if (h < columns) {
                ASSERT_EQ(Bits(c[At(i, c_row, h)]), Bits(want[At(i, c_row, h)])) << rows << " rows: " << i << ", " << h;
              }
            }
        }
      }
    });
  });
}

// The bytes of the whole memory are compared, so that gaps and what lies around are, too.
TEST(LinearSimd, OuterIsOneChainAlongTokensRoundedOnce) {
  const auto test = [](const LinearKernels& kernels, const Matrix& m, std::int64_t classes, std::int64_t columns) {
    for (const std::int64_t depth : {0, 1, 2, 17}) {
      // b ends where it may be read last.
      const std::int64_t a_row = classes + 3, b_row = columns + 5;
      const Floats a = AnyFloats((depth + 1) * a_row, 1), b = AnyFloats((depth + 1) * b_row + 63, 2);
      for (const bool accumulate : {false, true}) {
        Matrix want = m;
        for (std::int64_t v = 0; v < classes; ++v)
          for (std::int64_t h = 0; h < columns; ++h) {
            float sum = accumulate ? m.Get(v, h) : 0;
            for (std::int64_t i = 0; i < depth; ++i) sum = std::fma(a[At(i, a_row, v)], b[At(i, b_row, h)], sum);
            want.Put(v, h, sum);
          }
        for (const bool stream : {false, true}) {
          Matrix got = m;
          kernels.outer(a.data(), a_row, b.data(), b_row, depth, accumulate, got.out(), stream);
          ASSERT_TRUE(got.bytes() == want.bytes())
              << depth << " tokens, accumulate " << accumulate << ", stream " << stream;
        }
      }
    }
  };
  ForKernels([&](const LinearKernels& kernels) {
    ForMatrices([&](const Matrix& m, std::int64_t rows, std::int64_t columns) { test(kernels, m, rows, columns); });
    for (const DType dtype : kDTypes) test(kernels, Matrix(dtype, 50, 70, 1, 53, 3), 50, 70);
  });
}

}  // namespace
}  // namespace onehot::test
