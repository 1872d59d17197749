// aclnnEmbedding: the row gather.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/level2/aclnn_embedding.h"
#include "tests/aclnn/operator_call.h"
#include "tests/native/env.h"

namespace onehot::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Call {
  TensorSpec weight, indices, out;

  Outcome Run() const {
    const LiveTensor w(weight), i(indices), o(out);
    return RunBothPhases(
        [&](std::uint64_t* size, aclOpExecutor** executor) {
          return aclnnEmbeddingGetWorkspaceSize(w, i, o, size, executor);
        },
        aclnnEmbedding);
  }
};

// Three rows of two columns, four positions.
struct Good {
  std::vector<float> weight{1, 2, 3, 4, 5, 6};
  std::vector<std::int64_t> indices{2, 0, 2, 1};
  std::vector<float> out = std::vector<float>(8, -7);
  Call call{{{3, 2}, ACL_FLOAT, weight.data()}, {{4}, ACL_INT64, indices.data()}, {{4, 2}, ACL_FLOAT, out.data()}};

  void ExpectDone() {
    const Outcome outcome = call.Run();
    EXPECT_EQ(outcome.phase1, ACLNN_SUCCESS) << outcome.message;
    EXPECT_EQ(outcome.phase2, ACLNN_SUCCESS) << outcome.message;
  }
  void ExpectRight() { EXPECT_THAT(out, ElementsAre(5, 6, 1, 2, 5, 6, 3, 4)); }
  void ExpectInvalid(const char* sentence) {
    const Outcome outcome = call.Run();
    EXPECT_EQ(outcome.phase1, ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(outcome.message, StartsWith(sentence));
    EXPECT_THAT(out, ::testing::Each(-7.0f));
  }
};

TEST(Embedding, HandWorked) {
  Good good;
  good.ExpectDone();
  good.ExpectRight();
}

TEST(Embedding, Int32Indices) {
  Good good;
  std::vector<std::int32_t> indices{2, 0, 2, 1};
  good.call.indices = {{4}, ACL_INT32, indices.data()};
  good.ExpectDone();
  good.ExpectRight();
}

TEST(Embedding, EveryTypeIsCopiedBitForBit) {
  struct Type {
    aclDataType dtype;
    std::size_t size;
  };
  for (const Type& type : {Type{ACL_FLOAT, 4}, Type{ACL_FLOAT16, 2}, Type{ACL_BF16, 2}, Type{ACL_DOUBLE, 8},
                           Type{ACL_INT64, 8}, Type{ACL_INT32, 4}, Type{ACL_INT16, 2}, Type{ACL_INT8, 1},
                           Type{ACL_UINT8, 1}, Type{ACL_BOOL, 1}, Type{ACL_COMPLEX64, 8}, Type{ACL_COMPLEX128, 16}}) {
    SCOPED_TRACE(type.dtype);
    Good good;
    std::vector<unsigned char> weight(3 * 2 * type.size), out(4 * 2 * type.size, 0xAA);
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<unsigned char>(255 - i);  // NaNs among them
    good.call.weight = {{3, 2}, type.dtype, weight.data()};
    good.call.out = {{4, 2}, type.dtype, out.data()};
    good.ExpectDone();
    const std::size_t row = 2 * type.size;
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(std::memcmp(&out[i * row], &weight[static_cast<std::size_t>(good.indices[i]) * row], row), 0) << i;
  }
}

TEST(Embedding, ShapesFollowTheIndices) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{4}, {2, 2}, {4, 1}, {1, 1, 4}, {1, 2, 1, 2, 1, 1, 1}}) {
    Good good;
    good.call.indices.dims = good.call.out.dims = shape;
    good.call.out.dims.push_back(2);
    good.ExpectDone();
    good.ExpectRight();
  }
  Good one;  // an index of no dimensions gives one row
  one.call.indices.dims = {};
  one.call.out.dims = {2};
  one.ExpectDone();
  EXPECT_THAT(one.out, ElementsAre(5, 6, -7, -7, -7, -7, -7, -7));
}

TEST(Embedding, ViewsAreReadAsTheyLie) {
  Good good;
  std::vector<float> transposed{-1, 1, 3, 5, 2, 4, 6};
  std::vector<std::int64_t> spread{2, 9, 0, 9, 2, 9, 1};
  std::vector<float> columns(9, -7);
  good.call.weight = {{3, 2}, ACL_FLOAT, transposed.data(), {{1, 3}}, 1};
  good.call.indices.data = spread.data();
  good.call.indices.strides = {2};
  good.call.out = {{4, 2}, ACL_FLOAT, columns.data(), {{1, 4}}, 1};
  good.ExpectDone();
  EXPECT_THAT(columns, ElementsAre(-7, 5, 1, 5, 3, 6, 2, 6, 4));
}

TEST(Embedding, NothingToDo) {
  Good good;
  good.call.indices = {{0}, ACL_INT64, nullptr};
  good.call.out = {{0, 2}, ACL_FLOAT, nullptr};
  good.ExpectDone();
  good.call.weight = {{0, 2}, ACL_FLOAT, nullptr};
  good.ExpectDone();
  const Call no_columns{
      {{3, 0}, ACL_FLOAT, nullptr}, {{4}, ACL_INT64, good.indices.data()}, {{4, 0}, ACL_FLOAT, nullptr}};
  EXPECT_EQ(no_columns.Run().phase2, ACLNN_SUCCESS);
}

TEST(Embedding, BadIndexIsNamedAndNothingIsWritten) {
  Good good;
  for (const std::int64_t bad : {std::int64_t{3}, std::int64_t{-1}, (std::int64_t{1} << 32) + 1}) {
    good.indices[2] = bad;
    good.call.indices.dims = {2, 2};
    good.call.out.dims = {2, 2, 2};
    const Outcome outcome = good.call.Run();
    EXPECT_EQ(outcome.phase1, ACLNN_SUCCESS);
    EXPECT_EQ(outcome.phase2, ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(outcome.message, "indices[1, 0] (position 2) = " + std::to_string(bad) + " is outside [0, 3)");
    EXPECT_THAT(good.out, ::testing::Each(-7.0f));
  }
}

TEST(EmbeddingRefuses, NullPointers) {
  Good good;
  const LiveTensor weight(good.call.weight), indices(good.call.indices), out(good.call.out);
  std::uint64_t size = 9;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(aclnnEmbeddingGetWorkspaceSize(nullptr, indices, out, &size, &executor), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(aclnnEmbeddingGetWorkspaceSize(weight, nullptr, out, &size, &executor), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclnnEmbeddingGetWorkspaceSize(weight, indices, nullptr, &size, &executor), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclnnEmbeddingGetWorkspaceSize(weight, indices, out, nullptr, &executor), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclnnEmbeddingGetWorkspaceSize(weight, indices, out, &size, nullptr), ACLNN_ERR_PARAM_NULLPTR);
}

TEST(EmbeddingRefuses, DTypesOutsideTheList) {
  for (const aclDataType dtype : {ACL_UINT16, ACL_UINT32, ACL_UINT64, ACL_STRING, ACL_COMPLEX32, ACL_DT_UNDEFINED}) {
    Good good;
    good.call.weight.dtype = good.call.out.dtype = dtype;
    good.ExpectInvalid("weight: dtype must be one of");
  }
  for (const aclDataType dtype : {ACL_INT16, ACL_INT8, ACL_UINT8, ACL_BOOL, ACL_FLOAT, ACL_DOUBLE, ACL_FLOAT16}) {
    Good good;
    good.call.indices.dtype = dtype;
    good.ExpectInvalid("indices: dtype must be one of ACL_INT64, ACL_INT32");
  }
  Good good;
  good.call.out.dtype = ACL_INT32;
  good.ExpectInvalid("out: dtype must be that of weight, ACL_FLOAT, is ACL_INT32");
}

TEST(EmbeddingRefuses, FormatsRanksAndShapes) {
  Good format;
  format.call.weight.format = ACL_FORMAT_FRACTAL_NZ;
  format.ExpectInvalid("weight: format");
  Good good;
  good.call.weight.dims = {6};
  good.ExpectInvalid("weight: rank must be 2, is 1");
  good.call.weight.dims = {3, 2, 1};
  good.ExpectInvalid("weight: rank must be 2, is 3");
  good.call.weight.dims = {3, 2};
  good.call.indices.dims = {1, 1, 1, 1, 1, 1, 1, 4};
  good.ExpectInvalid("indices: rank must be in [0, 7], is 8");
  good.call.indices.dims = {4};
  good.call.out.dims = {2, 2, 2};
  good.ExpectInvalid("out: rank must be 2, is 3");
  good.call.out.dims = {4, 3};
  good.ExpectInvalid("out: width must be that of weight, 2, is 3");
  good.call.out.dims = {3, 2};
  good.ExpectInvalid("out: axis 0 must be as long as that of indices, 4, is 3");
  good.call.indices.dims = {2, 2};
  good.call.out.dims = {4, 1, 2};  // as many rows, of another shape
  good.ExpectInvalid("out: axis 0 must be as long as that of indices, 2, is 4");
}

TEST(EmbeddingRefuses, ViewsThatOverlapOrLeaveTheirBlock) {
  Good good;
  good.call.out.strides = {0, 1};
  good.ExpectInvalid("out: must not map two elements to one address");
  good.call.out.strides.reset();
  void* block = nullptr;
  ASSERT_EQ(aclrtMalloc(&block, 23, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
  good.call.weight.data = block;
  good.ExpectInvalid("weight: must stay inside its block");
  ASSERT_EQ(aclrtFree(block), ACL_SUCCESS);
}

TEST(EmbeddingRefuses, BFloat16OnTrainingProducts) {
  for (const char* soc : {"Ascend910A", "Ascend910B", "Ascend910_93", "Ascend950"}) {
    const ScopedEnv env("ONEHOT_SOC", soc);
    Good good;
    good.ExpectDone();
    good.ExpectRight();
    std::vector<std::uint16_t> weight(6, ToBF16(1)), out(8);
    good.call.weight = {{3, 2}, ACL_BF16, weight.data()};
    good.call.out = {{4, 2}, ACL_BF16, out.data()};
    EXPECT_EQ(good.call.Run().phase1, std::strcmp(soc, "Ascend910A") == 0 ? ACLNN_ERR_PARAM_INVALID : ACLNN_SUCCESS);
  }
  const ScopedEnv env("ONEHOT_SOC", "Ascend");
  Good good;
  const Outcome outcome = good.call.Run();
  EXPECT_EQ(outcome.phase1, ACLNN_ERR_RUNTIME_ERROR);
  EXPECT_THAT(outcome.message, HasSubstr("ONEHOT_SOC"));
}

}  // namespace
}  // namespace onehot::test
