// Embedding, the row gather: bit copies of every dtype, any strides, on every target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/native/data.h"
#include "tests/native/oracle.h"
#include "tests/native/strides.h"
#include "tests/native/targets.h"

namespace onehot::test {
namespace {

// Every byte random: all NaN payloads, all signs of zero, bools that are neither 0 nor 1.
void FillBytes(Tensor& tensor, std::uint64_t seed) {
  Random random(seed);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const std::uint64_t element[2] = {random.Bits(), random.Bits()};
    tensor.SetBytes(i, element);
  }
}

// out[i, c] = weight[rows[i], c], element by element.
std::vector<std::byte> Gathered(const Tensor& weight, const Tensor& indices) {
  const std::vector<std::byte> table = weight.Bytes();
  const auto row_bytes = static_cast<std::size_t>(weight.layout().dims[1] * SizeOf(weight.layout().dtype));
  std::vector<std::byte> want;
  for (const std::int64_t v : RowsNamed(indices.view())) {
    const auto row = table.begin() + v * static_cast<std::ptrdiff_t>(row_bytes);
    want.insert(want.end(), row, row + static_cast<std::ptrdiff_t>(row_bytes));
  }
  return want;
}

void ExpectGathered(Tensor weight, Tensor indices, const Tensor& fresh, int threads = 2) {
  FillBytes(weight, 3);
  SetIndices(indices, Indices(Spread::kZipf, indices.numel(), weight.layout().dims[0], 4));
  const std::vector<std::byte> want = Gathered(weight, indices);
  const Buffer before = weight.buffer();
  for (const Target& target : Targets<Embedding>()) {
    SCOPED_TRACE(target.name());
    Tensor out = fresh;
    RunOptions options;
    options.threads = threads;
    EXPECT_OK(RunOn(target, Embedding{.weight = weight.view(), .indices = indices.view(), .out = out.view()}, options));
    const std::vector<std::byte> got = out.Bytes();
    ASSERT_EQ(got.size(), want.size());
    const auto different = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin();
    EXPECT_TRUE(got == want) << "byte " << different << " of the dense result";
    EXPECT_TRUE(out.GapsUntouched());
  }
  EXPECT_TRUE(weight.buffer() == before);
}

TEST(EmbeddingOracle, HandWorked) {
  Tensor weight(DType::kF32, {3, 2}), indices(DType::kI64, {4}), out(DType::kF32, {4, 2});
  weight.SetAll({1, 2, 3, 4, 5, 6});
  indices.SetAll({2, 0, 2, 1});
  for (const Target& target : Targets<Embedding>()) {
    EXPECT_OK(RunOn(target, Embedding{.weight = weight.view(), .indices = indices.view(), .out = out.view()}));
    EXPECT_EQ(out.Values(), (std::vector<double>{5, 6, 1, 2, 5, 6, 3, 4}));
    EXPECT_EQ(out.Bytes(), Gathered(weight, indices));
  }
}

class EmbeddingDTypes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Weight, EmbeddingDTypes, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(EmbeddingDTypes, Widths) {
  for (const std::int64_t D : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 257, 300, 768, 1000})
    ExpectGathered(Tensor(GetParam(), {23, D}), Tensor(DType::kI64, {101}), Tensor(GetParam(), {101, D}));
}

TEST_P(EmbeddingDTypes, EmptySizes) {
  for (const auto& [N, V, D] : {std::array<std::int64_t, 3>{0, 3, 5}, {0, 0, 5}, {0, 0, 0}, {7, 3, 0}, {1, 1, 0}})
    ExpectGathered(Tensor(GetParam(), {V, D}), Tensor(DType::kI64, {N}), Tensor(GetParam(), {N, D}));
}

// Gaps between the elements of out belong to somebody else.
TEST_P(EmbeddingDTypes, Forms) {
  for (const std::int64_t D : {1, 6, 37})
    for (const Form weight : kForms)
      for (const Form out : kForms) {
        if (weight != Form::kDense && out != Form::kDense && weight != out) continue;
        SCOPED_TRACE("D " + std::to_string(D) + " forms " + std::to_string(static_cast<int>(weight)) + ", " +
                     std::to_string(static_cast<int>(out)));
        ExpectGathered(Tensor(GetParam(), {19, D}, StridesOf(weight, 19, D)), Tensor(DType::kI32, {50}),
                       Tensor(GetParam(), {50, D}, StridesOf(out, 50, D)));
      }
}

TEST_P(EmbeddingDTypes, ExpandedWeight) {
  for (const Dims& strides : std::vector<Dims>{{0, 1}, {1, 0}, {0, 0}, {-3, 0}, {1, 1}}) {
    // Elements share memory, so what was written last is what all of them hold; Gathered reads it back.
    ExpectGathered(Tensor(GetParam(), {19, 21}, strides), Tensor(DType::kI64, {60}), Tensor(GetParam(), {60, 21}));
  }
}

TEST_P(EmbeddingDTypes, PermutedOutOfRankThree) {
  const Dims dims{6, 5, 9};
  std::vector<std::size_t> order{0, 1, 2};
  do {
    for (const std::int64_t gap : {0, 3})
      ExpectGathered(Tensor(GetParam(), {19, 9}), Tensor(DType::kI64, {6, 5}),
                     Tensor(GetParam(), dims, PermutedStrides(dims, order, gap)));
  } while (std::ranges::next_permutation(order).found);
}

TEST_P(EmbeddingDTypes, RankEight) {
  const Dims dims{2, 3, 2, 1, 2, 2, 2, 5}, positions(dims.begin(), dims.end() - 1);
  for (const auto& order : std::vector<std::vector<std::size_t>>{
           {0, 1, 2, 3, 4, 5, 6, 7}, {7, 6, 5, 4, 3, 2, 1, 0}, {4, 7, 0, 6, 2, 1, 3, 5}})
    ExpectGathered(Tensor(GetParam(), {19, 5}), Tensor(DType::kI64, positions),
                   Tensor(GetParam(), dims, PermutedStrides(dims, order, 1)));
}

class EmbeddingIndexDTypes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Index, EmbeddingIndexDTypes, ::testing::ValuesIn(kIndexDTypes),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(EmbeddingIndexDTypes, FormsAndLengths) {
  const std::int64_t V = GetParam() == DType::kBool ? 2 : 100;
  for (const std::int64_t N : {1, 3, 16, 33, 1000, 20011})
    ExpectGathered(Tensor(DType::kF32, {V, 3}), Tensor(GetParam(), {N}), Tensor(DType::kF32, {N, 3}), 3);
  for (const Form form : kForms)
    ExpectGathered(Tensor(DType::kF32, {V, 3}), Tensor(GetParam(), {7, 9}, StridesOf(form, 7, 9)),
                   Tensor(DType::kF32, {7, 9, 3}));
  ExpectGathered(Tensor(DType::kF32, {V, 3}), Tensor(GetParam(), {7, 9}, {0, 0}), Tensor(DType::kF32, {63, 3}));
  ExpectGathered(Tensor(DType::kF32, {V, 3}), Tensor(GetParam(), {}), Tensor(DType::kF32, {3}));
  ExpectGathered(Tensor(DType::kF32, {V, 3}), Tensor(GetParam(), {}), Tensor(DType::kF32, {1, 3}));
}

TEST(EmbeddingIndices, FractionsAreTruncatedTowardZero) {
  Tensor weight(DType::kI32, {4, 1}), indices(DType::kF32, {5}), out(DType::kI32, {5, 1});
  weight.SetAll({10, 11, 12, 13});
  indices.SetAll({3.75, -0.75, 0.5, 1, 2.5});
  for (const Target& target : Targets<Embedding>()) {
    EXPECT_OK(RunOn(target, Embedding{.weight = weight.view(), .indices = indices.view(), .out = out.view()}));
    EXPECT_EQ(out.Values(), (std::vector<double>{13, 10, 10, 11, 12}));
  }
}

TEST(EmbeddingThreads, SameBitsForAnyNumber) {
  for (const int threads : {1, 2, 3, 7, 64})
    ExpectGathered(Tensor(DType::kF32, {5000, 33}), Tensor(DType::kI64, {30011}), Tensor(DType::kF32, {30011, 33}),
                   threads);
  ExpectGathered(Tensor(DType::kBF16, {50, 70000}), Tensor(DType::kI32, {40}), Tensor(DType::kBF16, {40, 70000}), 3);
  ExpectGathered(Tensor(DType::kU8, {1000, 1}), Tensor(DType::kI64, {200000}), Tensor(DType::kU8, {200000, 1}), 3);
}

// Outputs too large for the caches, on line boundaries and off them.
TEST(EmbeddingLarge, AlignedAndNot) {
  const OutputsPastCaches past_caches;
  for (const Placed placed : {Placed::kAtLine, Placed::kAnywhere}) {
    ExpectGathered(Tensor(DType::kF32, {300, 64}, placed), Tensor(DType::kI64, {20000}),
                   Tensor(DType::kF32, {20000, 64}, placed), 3);
    ExpectGathered(Tensor(DType::kBF16, {300, 992}), Tensor(DType::kI64, {3000}),
                   Tensor(DType::kBF16, {3000, 992}, placed), 2);
    ExpectGathered(Tensor(DType::kC128, {30, 1028}, placed), Tensor(DType::kI64, {300}),
                   Tensor(DType::kC128, {300, 1028}, placed), 2);
    // Rows on lines, with gaps between them.
    ExpectGathered(Tensor(DType::kF32, {300, 64}, placed), Tensor(DType::kI64, {20000}),
                   Tensor(DType::kF32, {20000, 64}, {80, 1}, placed), 3);
    ExpectGathered(Tensor(DType::kF32, {300, 60}, placed), Tensor(DType::kI64, {20000}),
                   Tensor(DType::kF32, {20000, 60}, {64, 1}, placed), 3);
  }
}

TEST(EmbeddingScratch, TooShortOrNullIsRefused) {
  Tensor weight(DType::kF32, {30, 5}), indices(DType::kI64, {100}), out(DType::kF32, {100, 5});
  SetIndices(indices, Indices(Spread::kUniform, 100, 30, 1));
  for (const Target& target : Targets<Embedding>()) {
    SCOPED_TRACE(target.name());
    Result<Plan> plan =
        PrepareOn(target, Embedding{.weight = weight.view(), .indices = indices.view(), .out = out.view()});
    ASSERT_TRUE(plan.ok());
    const Buffer before = out.buffer();
    if (const std::size_t needed = plan->scratch_bytes(); needed > 0) {
      std::vector<std::byte> scratch(needed);
      EXPECT_STATUS(plan->Run(nullptr, needed), Code::kBadArgument,
                    "scratch: must be " + std::to_string(needed) + " bytes, is null");
      EXPECT_STATUS(plan->Run(scratch.data(), needed - 1), Code::kBadArgument,
                    "scratch: must be at least " + std::to_string(needed) + " bytes, is " + std::to_string(needed - 1));
      EXPECT_TRUE(out.buffer() == before);
    } else {
      EXPECT_OK(plan->Run(nullptr, 0));
    }
    EXPECT_OK(plan->Run());
  }
}

}  // namespace
}  // namespace onehot::test
