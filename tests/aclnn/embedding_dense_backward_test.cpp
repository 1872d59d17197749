// aclnnEmbeddingDenseBackward: what it computes, and the bad data it finds at launch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/aclnn/embedding_dense_backward_call.h"
#include "tests/native/env.h"

namespace onehot::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

using Call = BackwardCall;
using Good = GoodBackwardCall;

TEST(EmbeddingDenseBackward, HandWorked) {
  Good good;
  good.ExpectDone();
  good.ExpectRight();
}

TEST(EmbeddingDenseBackward, PaddingRowIsZero) {
  Good good;
  good.call.padding_idx = 4;
  good.ExpectDone();
  EXPECT_THAT(std::vector(good.out.end() - 3, good.out.end()), Each(0.0f));
  EXPECT_EQ(good.out[0], 1000);
}

// What PyTorch, MindSpore and DIOPI pass for none, and any other row there is not.
TEST(EmbeddingDenseBackward, PaddingBeyondTheRowsIsNone) {
  for (const std::uint64_t none :
       {kNone, std::uint64_t{0xFFFFFFFF}, static_cast<std::uint64_t>(-20), std::uint64_t{5}, std::uint64_t{1} << 63}) {
    Good good;
    good.call.padding_idx = none;
    good.ExpectDone();
    good.ExpectRight();
  }
}

TEST(EmbeddingDenseBackward, ScaledByFrequencyIsDividedByTheCount) {
  Good good;
  good.call.scale = true;
  good.ExpectDone();
  EXPECT_THAT(good.out, ElementsAre(1000, 2000, 3000, 10, 20, 30, 0, 0, 0, 0, 0, 0, 50.5, 101, 151.5));
}

TEST(EmbeddingDenseBackward, CountsAreOfTheRowThatIsNamed) {
  std::vector<float> grad(3, 1), out(4, NAN);
  std::vector<std::int64_t> indices{1, 1, 3};
  const Call call{{{3, 1}, ACL_FLOAT, grad.data()},
                  {{3}, ACL_INT64, indices.data()},
                  {{4, 1}, ACL_FLOAT, out.data()},
                  4,
                  kNone,
                  true};
  EXPECT_EQ(call.Run().phase2, ACLNN_SUCCESS);
  EXPECT_THAT(out, ElementsAre(0, 1, 0, 1));
}

TEST(EmbeddingDenseBackward, RowNamedOnceIsABitCopy) {
  Good good;
  std::uint32_t nan = 0x7FA12345u;
  std::memcpy(&good.grad[3], &nan, sizeof nan);
  good.grad[4] = -0.0f;
  good.call.scale = true;
  good.ExpectDone();
  EXPECT_EQ(std::memcmp(&good.out[3], &good.grad[3], 3 * sizeof(float)), 0);
}

TEST(EmbeddingDenseBackward, EveryGradientTypeSumsInFloat) {
  // 4096 ones on one row: a sum in 16 bits stalls at 2048 in f16 and 256 in bf16.
  for (const aclDataType dtype : {ACL_FLOAT16, ACL_BF16}) {
    const std::uint16_t one = dtype == ACL_BF16 ? ToBF16(1) : aclFloatToFloat16(1);
    std::vector<std::uint16_t> grad(4096, one), out(2, 0xFFFF);
    std::vector<std::int32_t> indices(4096, 1);
    const Call call{
        {{4096, 1}, dtype, grad.data()}, {{4096}, ACL_INT32, indices.data()}, {{2, 1}, dtype, out.data()}, 2};
    EXPECT_EQ(call.Run().phase2, ACLNN_SUCCESS);
    EXPECT_EQ(dtype == ACL_BF16 ? FromBF16(out[1]) : aclFloat16ToFloat(out[1]), 4096) << dtype;
    EXPECT_EQ(out[0], 0);
  }
  // bf16(.01) is .01000977, and 1000 of it 10.00977, which bf16 rounds to 10.
  std::vector<std::uint16_t> grad(1000, ToBF16(.01000977f)), out(1, 0xFFFF);
  std::vector<std::int64_t> indices(1000, 0);
  const Call call{
      {{1000, 1}, ACL_BF16, grad.data()}, {{1000}, ACL_INT64, indices.data()}, {{1, 1}, ACL_BF16, out.data()}, 1};
  EXPECT_EQ(call.Run().phase2, ACLNN_SUCCESS);
  EXPECT_EQ(FromBF16(out[0]), 10);
}

TEST(EmbeddingDenseBackward, FloatSumDoesNotSaturate) {
  // 2^25 ones on one row, all in one gradient and one index that stand for all. A plain f32 sum stops at 2^24.
  float one = 1, out = NAN;
  std::int64_t index = 0;
  const std::int64_t n = std::int64_t{1} << 25;
  Call call{{{n, 1}, ACL_FLOAT, &one, {{0, 1}}}, {{n}, ACL_INT64, &index, {{0}}}, {{1, 1}, ACL_FLOAT, &out}, 1};
  EXPECT_EQ(call.Run().phase2, ACLNN_SUCCESS);
  EXPECT_EQ(out, 33554432);
}

TEST(EmbeddingDenseBackward, EveryIndexType) {
  Good good;
  const auto run = [&](aclDataType dtype, auto indices) {
    good.out.assign(15, NAN);
    good.call.indices = {{4}, dtype, indices.data()};
    good.ExpectDone();
    good.ExpectRight();
  };
  run(ACL_INT64, std::vector<std::int64_t>{4, 1, 4, 0});
  run(ACL_INT32, std::vector<std::int32_t>{4, 1, 4, 0});
  run(ACL_INT16, std::vector<std::int16_t>{4, 1, 4, 0});
  run(ACL_INT8, std::vector<std::int8_t>{4, 1, 4, 0});
  run(ACL_UINT8, std::vector<std::uint8_t>{4, 1, 4, 0});
  // Truncated toward zero.
  run(ACL_DOUBLE, std::vector<double>{4.9, 1, 4.5, -.99});
  run(ACL_FLOAT, std::vector<float>{4.9f, 1, 4.5f, -.99f});
  run(ACL_FLOAT16, std::vector<aclFloat16>{aclFloatToFloat16(4.5f), aclFloatToFloat16(1), aclFloatToFloat16(4),
                                           aclFloatToFloat16(-.5f)});
}

TEST(EmbeddingDenseBackward, BoolIndexIsOneForAnyNonZeroByte) {
  Good good;
  std::vector<std::uint8_t> indices{0, 1, 2, 255};
  good.call.indices = {{4}, ACL_BOOL, indices.data()};
  good.ExpectDone();
  EXPECT_THAT(std::vector(good.out.begin(), good.out.begin() + 6), ElementsAre(1, 2, 3, 1110, 2220, 3330));
}

TEST(EmbeddingDenseBackward, ViewsAreReadAsTheyLie) {
  Good good;
  // Transposed gradient, every second index from offset 1, output with rows of four elements from offset 2.
  const std::vector<float> transposed{1, 10, 100, 1000, 2, 20, 200, 2000, 3, 30, 300, 3000};
  std::vector<std::int64_t> spread{9, 4, 9, 1, 9, 4, 9, 0};
  std::vector<float> wide(2 + 5 * 4, -7);
  good.grad = transposed;
  good.call.grad = {{4, 3}, ACL_FLOAT, good.grad.data(), {{1, 4}}};
  good.call.indices = {{4}, ACL_INT64, spread.data(), {{2}}, 1};
  good.call.out = {{5, 3}, ACL_FLOAT, wide.data(), {{4, 1}}, 2};
  good.ExpectDone();
  for (std::size_t row = 0; row < 5; ++row)
    for (std::size_t column = 0; column < 3; ++column) good.out[row * 3 + column] = wide[2 + row * 4 + column];
  good.ExpectRight();
  EXPECT_EQ(wide[0], -7);
  EXPECT_EQ(wide[2 + 3], -7);
}

TEST(EmbeddingDenseBackward, ExpandedGradientIsReadAgain) {
  Good good;
  good.call.grad.strides = {0, 1};
  good.ExpectDone();
  EXPECT_THAT(good.out, ElementsAre(1, 2, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 2, 4, 6));
}

TEST(EmbeddingDenseBackward, EveryRankUpToEight) {
  Good good;
  for (std::size_t rank = 2; rank <= 8; ++rank) {
    good.out.assign(15, NAN);
    good.call.grad.dims.assign(rank, 1);
    good.call.grad.dims[rank - 1] = 3;
    good.call.grad.dims[rank > 2 ? 1 : 0] = rank > 2 ? 2 : 4;
    if (rank > 2) good.call.grad.dims[0] = 2;
    if (rank == 2) good.call.grad.dims = {4, 3};
    if (rank == 3) good.call.grad.dims = {2, 2, 3};
    good.ExpectDone();
    good.ExpectRight();
  }
  for (std::size_t rank = 1; rank <= 8; ++rank) {
    good.out.assign(15, NAN);
    good.call.indices.dims.assign(rank, 1);
    good.call.indices.dims[rank / 2] = 4;
    good.ExpectDone();
    good.ExpectRight();
  }
}

TEST(EmbeddingDenseBackward, IndexOfNoDimensionsIsOnePosition) {
  for (const std::vector<std::int64_t>& dims : {std::vector<std::int64_t>{3}, {1, 3}}) {
    Good good;
    good.call.indices.dims = {};
    good.call.grad.dims = dims;
    good.ExpectDone();
    EXPECT_THAT(good.out, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3));
  }
}

// Storage shapes as clients make them: all elements as one number, fewer than the view needs, none behind a count.
TEST(EmbeddingDenseBackward, StorageShapesAreNotLookedAt) {
  const std::int64_t all = 15, few = 1, dims[][2] = {{4, 3}, {5, 3}}, positions = 4;
  for (const std::int64_t* storage : {&all, &few, static_cast<const std::int64_t*>(nullptr)}) {
    Good good;
    aclTensor* grad = aclCreateTensor(dims[0], 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, storage, 1, good.grad.data());
    aclTensor* indices =
        aclCreateTensor(&positions, 1, ACL_INT64, nullptr, 0, ACL_FORMAT_ND, storage, 1, good.indices.data());
    aclTensor* out = aclCreateTensor(dims[1], 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, storage, 1, good.out.data());
    const Outcome outcome = RunBothPhases(
        [&](std::uint64_t* size, aclOpExecutor** executor) {
          return aclnnEmbeddingDenseBackwardGetWorkspaceSize(grad, indices, 5, kNone, false, out, size, executor);
        },
        aclnnEmbeddingDenseBackward);
    EXPECT_EQ(outcome.phase2, ACLNN_SUCCESS) << outcome.message;
    good.ExpectRight();
    for (aclTensor* tensor : {grad, indices, out}) EXPECT_EQ(aclDestroyTensor(tensor), ACLNN_SUCCESS);
  }
}

TEST(EmbeddingDenseBackward, EveryPlainFormat) {
  for (const aclFormat format : {ACL_FORMAT_ND, ACL_FORMAT_NC, ACL_FORMAT_NCL, ACL_FORMAT_NCHW, ACL_FORMAT_NHWC,
                                 ACL_FORMAT_HWCN, ACL_FORMAT_NCDHW, ACL_FORMAT_NDHWC}) {
    Good good;
    good.call.grad.format = good.call.indices.format = good.call.out.format = format;
    good.ExpectDone();
    good.ExpectRight();
  }
}

TEST(EmbeddingDenseBackward, NothingToAddIsAllZero) {
  Good good;
  good.call.grad = {{0, 3}, ACL_FLOAT, nullptr};
  good.call.indices = {{0}, ACL_INT64, nullptr};
  good.ExpectDone();
  EXPECT_THAT(good.out, Each(0.0f));
}

TEST(EmbeddingDenseBackward, NoRowsOrNoColumns) {
  std::vector<std::int64_t> indices{0, 4};
  const Call no_columns{
      {{2, 0}, ACL_FLOAT, nullptr}, {{2}, ACL_INT64, indices.data()}, {{5, 0}, ACL_FLOAT, nullptr}, 5};
  EXPECT_EQ(no_columns.Run().phase2, ACLNN_SUCCESS);
  const Call no_rows{{{0, 3}, ACL_FLOAT, nullptr}, {{0}, ACL_INT64, nullptr}, {{0, 3}, ACL_FLOAT, nullptr}, 0};
  EXPECT_EQ(no_rows.Run().phase2, ACLNN_SUCCESS);
}

TEST(EmbeddingDenseBackward, ManyShortRows) {
  std::vector<float> grad{1, 2, 3, 4}, out(70000, NAN);
  std::vector<std::int64_t> indices{69999, 65536, 0, 69999};
  const Call call{
      {{4, 1}, ACL_FLOAT, grad.data()}, {{4}, ACL_INT64, indices.data()}, {{70000, 1}, ACL_FLOAT, out.data()}, 70000};
  EXPECT_EQ(call.Run().phase2, ACLNN_SUCCESS);
  EXPECT_EQ(out[69999], 5);
  EXPECT_EQ(out[65536], 2);
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(std::accumulate(out.begin(), out.end(), 0.0), 10);
}

// Rows beyond 2^31 elements, in 4 GiB.
TEST(EmbeddingDenseBackward, OffsetsBeyondThirtyTwoBits) {
  if (!BigTestsWanted()) GTEST_SKIP() << "set ONEHOT_BIG_TESTS=1";
  constexpr std::int64_t kRows = 32769, kWidth = 65536;
  std::vector<std::uint16_t> grad(2 * kWidth), out(static_cast<std::size_t>(kRows * kWidth), 0xFFFF);
  for (std::size_t i = 0; i < grad.size(); ++i) grad[i] = static_cast<std::uint16_t>(i % 30000 + 1);
  std::vector<std::int32_t> indices{0, 32768};
  const Call call{{{2, kWidth}, ACL_BF16, grad.data()},
                  {{2}, ACL_INT32, indices.data()},
                  {{kRows, kWidth}, ACL_BF16, out.data()},
                  kRows};
  EXPECT_EQ(call.Run().phase2, ACLNN_SUCCESS);
  EXPECT_TRUE(std::equal(grad.begin(), grad.begin() + kWidth, out.begin()));
  EXPECT_TRUE(std::equal(grad.begin() + kWidth, grad.end(), out.end() - kWidth));
  EXPECT_EQ(out[kWidth], 0);
}

TEST(EmbeddingDenseBackward, SameBitsOnAnyNumberOfThreads) {
  constexpr std::int64_t kPositions = 200000, kRows = 5000, kWidth = 33;
  std::vector<float> grad(kPositions * kWidth);
  std::vector<std::int64_t> indices(kPositions);
  std::uint32_t state = 1;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  for (float& x : grad) x = static_cast<float>(static_cast<std::int32_t>(next())) * 0x1p-31f;
  for (std::int64_t& index : indices) index = next() % 7 == 0 ? 17 : next() % kRows;
  std::vector<float> first;
  const int before = omp_get_max_threads();
  for (const int threads : {1, 2, 3, 7}) {
    omp_set_num_threads(threads);
    std::vector<float> out(kRows * kWidth, NAN);
    const Call call{{{kPositions, kWidth}, ACL_FLOAT, grad.data()},
                    {{kPositions}, ACL_INT64, indices.data()},
                    {{kRows, kWidth}, ACL_FLOAT, out.data()},
                    kRows};
    EXPECT_EQ(call.Run().phase2, ACLNN_SUCCESS);
    if (first.empty()) first = out;
    EXPECT_EQ(std::memcmp(first.data(), out.data(), out.size() * sizeof(float)), 0) << threads;
  }
  omp_set_num_threads(before);
}

// ---- Bad data, found at launch.

TEST(EmbeddingDenseBackward, BadIndexIsNamedAndNothingIsWritten) {
  Good good;
  good.indices = {1, 10, 2, 5};
  ExpectBadData(good.call, "indices[1] = 10 is outside [0, 5)", good.out);
  good.indices = {1, 2, -1, -1};
  good.call.scale = true;
  ExpectBadData(good.call, "indices[2] = -1 is outside [0, 5)", good.out);
  good.indices = {1, 2, 3, (std::int64_t{1} << 32) + 1};  // 1 if cut to 32 bits
  ExpectBadData(good.call, "indices[3] = 4294967297 is outside [0, 5)", good.out);
  good.indices = {1, 2, 3, std::numeric_limits<std::int64_t>::min()};
  ExpectBadData(good.call, "indices[3] = -9223372036854775808 is outside [0, 5)", good.out);
  good.call.indices.dims = {2, 2};
  good.indices = {1, 2, 3, 7};
  ExpectBadData(good.call, "indices[1, 1] (position 3) = 7 is outside [0, 5)", good.out);
}

TEST(EmbeddingDenseBackward, BadIndexWithNoRowsAtAll) {
  std::vector<float> grad{1};
  std::vector<std::int64_t> indices{100000000000000000};
  for (const bool scale : {false, true}) {
    const Call call{{{1, 1}, ACL_FLOAT, grad.data()},
                    {{1}, ACL_INT64, indices.data()},
                    {{0, 1}, ACL_FLOAT, nullptr},
                    0,
                    kNone,
                    scale};
    ExpectBadData(call, "indices[0] = 100000000000000000 is outside [0, 0)", {});
  }
}

TEST(EmbeddingDenseBackward, FloatingIndexMustBeFiniteAndInside) {
  for (const double bad : {double{NAN}, double{INFINITY}, -double{INFINITY}, 5.0, -1.0, 1e300}) {
    Good good;
    std::vector<double> indices{4, 1, bad, 0};
    good.call.indices = {{4}, ACL_DOUBLE, indices.data()};
    ExpectBadData(good.call, "indices[2]", good.out);
  }
}

}  // namespace
}  // namespace onehot::test
