// aclnnEmbeddingDenseBackward: what phase 1 refuses, with which code and sentence, and the rules of products.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/aclnn/embedding_dense_backward_call.h"
#include "tests/native/env.h"

namespace onehot::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Call = BackwardCall;
using Good = GoodBackwardCall;

TEST(EmbeddingDenseBackwardRefuses, NullPointers) {
  Good good;
  const LiveTensor grad(good.call.grad), indices(good.call.indices), out(good.call.out);
  std::uint64_t size = 9;
  aclOpExecutor* executor = nullptr;
  const auto run = [&](const aclTensor* g, const aclTensor* i, const aclTensor* o, std::uint64_t* s,
                       aclOpExecutor** e) {
    size = 9;
    executor = reinterpret_cast<aclOpExecutor*>(&good);
    TakeMessage();
    return aclnnEmbeddingDenseBackwardGetWorkspaceSize(g, i, 5, kNone, false, o, s, e);
  };
  EXPECT_EQ(run(nullptr, indices, out, &size, &executor), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(TakeMessage(), "grad: must not be null");
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(executor, nullptr);
  EXPECT_EQ(run(grad, nullptr, out, &size, &executor), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(TakeMessage(), "indices: must not be null");
  EXPECT_EQ(run(grad, indices, nullptr, &size, &executor), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(TakeMessage(), "out: must not be null");
  EXPECT_EQ(run(grad, indices, out, nullptr, &executor), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(TakeMessage(), "workspaceSize: must not be null");
  EXPECT_EQ(executor, nullptr);
  EXPECT_EQ(run(grad, indices, out, &size, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(TakeMessage(), "executor: must not be null");
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(run(nullptr, nullptr, nullptr, nullptr, nullptr), ACLNN_ERR_PARAM_NULLPTR);
}

TEST(EmbeddingDenseBackwardRefuses, DeadAndForeignTensors) {
  Good good;
  const LiveTensor grad(good.call.grad), out(good.call.out);
  LiveTensor indices(good.call.indices);
  aclTensor* dead = indices;
  indices.Destroy();
  int foreign = 0;
  std::uint64_t size = 9;
  aclOpExecutor* executor = nullptr;
  for (aclTensor* bad : {dead, reinterpret_cast<aclTensor*>(&foreign)}) {
    TakeMessage();
    EXPECT_EQ(aclnnEmbeddingDenseBackwardGetWorkspaceSize(grad, bad, 5, kNone, false, out, &size, &executor),
              ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(TakeMessage(), HasSubstr("indices: must be a live aclTensor"));
    EXPECT_EQ(size, 0u);
    EXPECT_EQ(executor, nullptr);
  }
}

TEST(EmbeddingDenseBackwardRefuses, DTypesOutsideTheList) {
  for (const aclDataType dtype : {ACL_DOUBLE, ACL_INT32, ACL_INT64, ACL_BOOL, ACL_COMPLEX64, ACL_DT_UNDEFINED}) {
    Good good;
    good.call.grad.dtype = good.call.out.dtype = dtype;
    good.ExpectInvalid("grad: dtype must be one of ACL_FLOAT, ACL_FLOAT16, ACL_BF16");
  }
  for (const aclDataType dtype : {ACL_BF16, ACL_UINT16, ACL_UINT32, ACL_UINT64, ACL_STRING, ACL_COMPLEX64}) {
    Good good;
    good.call.indices.dtype = dtype;
    good.ExpectInvalid("indices: dtype must be one of");
  }
  for (const aclDataType dtype : {ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT32}) {
    Good good;
    good.call.out.dtype = dtype;
    good.ExpectInvalid("out: dtype must be that of grad, ACL_FLOAT");
  }
  Good good;  // the native operator widens; this one does not
  good.call.grad.dtype = ACL_BF16;
  good.ExpectInvalid("out: dtype must be that of grad, ACL_BF16");
}

TEST(EmbeddingDenseBackwardRefuses, PrivateFormats) {
  for (const aclFormat format : {ACL_FORMAT_UNDEFINED, ACL_FORMAT_NC1HWC0, ACL_FORMAT_FRACTAL_Z, ACL_FORMAT_NC1HWC0_C04,
                                 ACL_FORMAT_FRACTAL_NZ, ACL_FORMAT_NDC1HWC0, ACL_FRACTAL_Z_3D}) {
    Good grad, indices, out;
    grad.call.grad.format = format;
    grad.ExpectInvalid("grad: format must be");
    indices.call.indices.format = format;
    indices.ExpectInvalid("indices: format must be");
    out.call.out.format = format;
    out.ExpectInvalid("out: format must be");
  }
}

TEST(EmbeddingDenseBackwardRefuses, Ranks) {
  const auto refused = [](std::vector<std::int64_t> TensorSpec::*, auto spoil, const char* sentence) {
    Good good;
    spoil(good.call);
    good.ExpectInvalid(sentence);
  };
  const auto spoil = [&](TensorSpec Call::*tensor, std::vector<std::int64_t> dims, const char* sentence) {
    refused(
        &TensorSpec::dims, [&](Call& call) { (call.*tensor).dims = dims; }, sentence);
  };
  spoil(&Call::grad, {3}, "grad: rank must be in [2, 8], is 1");
  spoil(&Call::grad, {}, "grad: rank must be in [2, 8], is 0");
  spoil(&Call::grad, {1, 1, 1, 1, 1, 1, 1, 4, 3}, "grad: rank must be in [2, 8], is 9");
  spoil(&Call::indices, {1, 1, 1, 1, 1, 1, 1, 1, 4}, "indices: rank must be in [0, 8], is 9");
  spoil(&Call::out, {15}, "out: rank must be 2, is 1");
  spoil(&Call::out, {5, 1, 3}, "out: rank must be 2, is 3");
  Good good;
  good.call.indices.dims = {1};  // one position, but with an axis
  good.call.grad.dims = {3};
  good.ExpectInvalid("grad: rank must be in [2, 8], is 1");
  good.call.indices.dims = {};
  good.call.grad.dims = {};
  good.ExpectInvalid("grad: rank must be in [1, 8], is 0");
}

TEST(EmbeddingDenseBackwardRefuses, Shapes) {
  Good good;
  good.call.num_weights = 6;
  good.ExpectInvalid("out: must have numWeights = 6 rows, has 5");
  good.call.num_weights = kNone;
  good.ExpectInvalid("out: must have numWeights = 18446744073709551615 rows, has 5");
  good.call.num_weights = 5;
  good.call.indices.dims = {3};
  good.ExpectInvalid("grad: must have one row for each of the 3 indices");
  good.call.indices.dims = {2, 3};
  good.ExpectInvalid("grad: must have one row for each of the 6 indices");
  good.call.indices.dims = {};
  good.ExpectInvalid("grad: must have one row for each of the 1 indices");
  good.call.indices.dims = {4};
  good.call.out.dims = {5, 4};
  good.ExpectInvalid("out: width must be that of grad, 3, is 4");
  good.call.out.dims = {5, 3};
  good.call.grad.dims = {std::int64_t{1} << 62, 3};
  good.ExpectInvalid("grad: must span less than 2^63 bytes");
}

TEST(EmbeddingDenseBackwardRefuses, OutputsThatOverlapThemselves) {
  for (const std::vector<std::int64_t>& strides : {std::vector<std::int64_t>{0, 1}, {3, 0}, {2, 1}, {1, 1}}) {
    Good good;
    good.call.out.strides = strides;
    good.ExpectInvalid("out: must not map two elements to one address");
  }
}

TEST(EmbeddingDenseBackwardRefuses, ViewsThatLeaveTheirBlock) {
  void* memory = nullptr;
  ASSERT_EQ(aclrtMalloc(&memory, 60, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
  auto* block = static_cast<char*>(memory);
  const auto run = [&](TensorSpec Call::*tensor, TensorSpec spec) {
    Good good;
    good.call.*tensor = spec;
    return good.call.Run();
  };
  const auto inside = [&](TensorSpec Call::*tensor, const TensorSpec& spec) {
    EXPECT_EQ(run(tensor, spec).phase1, ACLNN_SUCCESS);
  };
  const auto outside = [&](TensorSpec Call::*tensor, const TensorSpec& spec, const char* sentence) {
    const Outcome outcome = run(tensor, spec);
    EXPECT_EQ(outcome.phase1, ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(outcome.message, StartsWith(sentence));
  };
  ASSERT_EQ(aclrtMemset(memory, 60, 0, 60), ACL_SUCCESS);
  inside(&Call::out, {{5, 3}, ACL_FLOAT, block});  // 60 bytes
  outside(&Call::out, {{5, 3}, ACL_FLOAT, block, {}, 1},
          "out: must stay inside its block of aclrtMalloc, ends at byte 64 of its data, the block at byte 60");
  outside(&Call::out, {{5, 3}, ACL_FLOAT, block + 4}, "out: must stay inside its block");
  inside(&Call::grad, {{4, 3}, ACL_FLOAT, block, {}, 3});
  outside(&Call::grad, {{4, 3}, ACL_FLOAT, block, {}, 4}, "grad: must stay inside its block");
  inside(&Call::grad, {{4, 3}, ACL_FLOAT, block, {{4, 1}}});  // the last row ends the block
  outside(&Call::grad, {{4, 3}, ACL_FLOAT, block, {{4, 2}}}, "grad: must stay inside its block");
  inside(&Call::grad, {{4, 3}, ACL_FLOAT, block, {{0, 0}}, 14});
  outside(&Call::grad, {{4, 3}, ACL_FLOAT, block, {{0, 0}}, 15}, "grad: must stay inside its block");
  inside(&Call::indices, {{4}, ACL_INT64, block});
  outside(&Call::indices, {{4}, ACL_INT64, block, {{3}}}, "indices: must stay inside its block");
  // Whatever the memory, an end beyond the address space.
  outside(&Call::grad, {{4, 3}, ACL_FLOAT, nullptr, {}, std::numeric_limits<std::int64_t>::max()},
          "grad: must end within 2^63 bytes");
  outside(&Call::grad, {{4, 3}, ACL_FLOAT, block, {}, std::int64_t{1} << 61}, "grad: must end within 2^63 bytes");
  ASSERT_EQ(aclrtFree(memory), ACL_SUCCESS);
}

// What earlier checks say hides what later ones would: product, null, dtypes, formats, ranks, shapes, views.
TEST(EmbeddingDenseBackwardRefuses, InTheOrderOfTheContract) {
  Good good;
  const LiveTensor indices(good.call.indices), out(good.call.out);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  {
    const ScopedEnv soc("ONEHOT_SOC", "Ascend31");
    EXPECT_EQ(aclnnEmbeddingDenseBackwardGetWorkspaceSize(nullptr, indices, 5, kNone, false, out, &size, &executor),
              ACLNN_ERR_RUNTIME_ERROR);
  }
  good.call.grad.dtype = ACL_DOUBLE;
  EXPECT_EQ(aclnnEmbeddingDenseBackwardGetWorkspaceSize(LiveTensor(good.call.grad), nullptr, 5, kNone, false, out,
                                                        &size, &executor),
            ACLNN_ERR_PARAM_NULLPTR);
  good.call.out.format = ACL_FORMAT_FRACTAL_NZ;
  good.ExpectInvalid("grad: dtype");
  good.call.grad.dtype = ACL_FLOAT;
  good.call.indices.dtype = ACL_BF16;
  good.ExpectInvalid("indices: dtype");
  good.call.indices.dtype = ACL_INT64;
  good.call.grad.dims = {12};
  good.ExpectInvalid("out: format");
  good.call.out.format = ACL_FORMAT_ND;
  good.call.num_weights = 7;
  good.ExpectInvalid("grad: rank");
  good.call.grad.dims = {4, 3};
  good.call.out.strides = {{0, 0}};
  good.ExpectInvalid("out: must have numWeights");
}

// ---- Products.

TEST(EmbeddingDenseBackward, IsOfferedOnEveryProduct) {
  for (const char* soc : {"Ascend910A", "Ascend910B", "Ascend910_93", "Ascend950", ""}) {
    const ScopedEnv env("ONEHOT_SOC", soc);
    Good good;
    good.ExpectDone();
    good.ExpectRight();
  }
  const ScopedEnv env("ONEHOT_SOC", "Ascend910C");
  Good good;
  good.ExpectRefused(ACLNN_ERR_RUNTIME_ERROR,
                     "ONEHOT_SOC: must be one of Ascend910A, Ascend910B, Ascend910_93, Ascend950");
}

TEST(EmbeddingDenseBackward, TrainingProductsHaveNoBFloat16) {
  std::vector<std::uint16_t> grad(12, ToBF16(1)), out(15);
  Good good;
  good.call.grad = {{4, 3}, ACL_BF16, grad.data()};
  good.call.out = {{5, 3}, ACL_BF16, out.data()};
  {
    const ScopedEnv env("ONEHOT_SOC", "Ascend910A");
    good.ExpectInvalid("grad: dtype must be one of ACL_FLOAT, ACL_FLOAT16 on Ascend910A, is ACL_BF16");
  }
  for (const char* soc : {"Ascend910B", "Ascend910_93", "Ascend950"}) {
    const ScopedEnv env("ONEHOT_SOC", soc);
    good.ExpectDone();
  }
}

// countsSize = rows / 32 + rows % 32; E * 36 < 180192 - 4 * countsSize, E * 20 < 180192 - 8 * countsSize for INT64.
TEST(EmbeddingDenseBackward, TrainingProductsLimitTheWidthWhenScaling) {
  const auto prepare = [](std::int64_t rows, std::int64_t width, aclDataType index_type, bool scale) {
    const Call call{{{1, width}, ACL_FLOAT, nullptr},
                    {{1}, index_type, nullptr},
                    {{rows, width}, ACL_FLOAT, nullptr},
                    static_cast<std::uint64_t>(rows),
                    kNone,
                    scale};
    return call.Run().phase1;
  };
  struct Limit {
    std::int64_t rows, widest_int32, widest_int64;
  };
  // By hand. 5 rows: countsSize 5, 180172 / 36 = 5004.8, 180152 / 20 = 9007.6. 32 rows: 1, 180188 / 36 = 5005.2,
  // 180184 / 20 = 9009.2. 108 rows: 15, 180132 / 36 = 5003.67, 180072 / 20 = 9003.6. 63 rows: 32, 180064 / 36 = 5001.8,
  // 179936 / 20 = 8996.8. 136 rows: 12, 180144 / 36 = 5004 exactly, which is not below; 180096 / 20 = 9004.8.
  // 1024 rows: as 63. 1440000 rows: 45000, 192 / 36 = 5.3, and 180192 - 360000 < 0: none at all.
  for (const Limit& limit : {Limit{5, 5004, 9007}, Limit{32, 5005, 9009}, Limit{108, 5003, 9003}, Limit{63, 5001, 8996},
                             Limit{136, 5003, 9004}, Limit{1024, 5001, 8996}, Limit{1440000, 5, -1}}) {
    SCOPED_TRACE(limit.rows);
    for (const aclDataType dtype : {ACL_INT64, ACL_INT32, ACL_INT16, ACL_UINT8, ACL_BOOL, ACL_FLOAT, ACL_DOUBLE}) {
      const std::int64_t widest = dtype == ACL_INT64 ? limit.widest_int64 : limit.widest_int32;
      const ScopedEnv env("ONEHOT_SOC", "Ascend910A");
      if (widest >= 0) {
        EXPECT_EQ(prepare(limit.rows, widest, dtype, true), ACLNN_SUCCESS) << dtype;
      }
      EXPECT_EQ(prepare(limit.rows, widest + 1, dtype, true), ACLNN_ERR_PARAM_INVALID) << dtype;
      EXPECT_EQ(prepare(limit.rows, widest + 1, dtype, false), ACLNN_SUCCESS) << dtype;
      const ScopedEnv other("ONEHOT_SOC", "Ascend910B");
      EXPECT_EQ(prepare(limit.rows, widest + 1, dtype, true), ACLNN_SUCCESS) << dtype;
    }
  }
}

TEST(EmbeddingDenseBackward, ReadsNothingInPhaseOne) {
  const Call call{{{4, 3}, ACL_FLOAT, nullptr}, {{4}, ACL_INT64, nullptr}, {{5, 3}, ACL_FLOAT, nullptr}, 5};
  const Outcome outcome = call.Run();
  EXPECT_EQ(outcome.phase1, ACLNN_SUCCESS);
  EXPECT_EQ(outcome.phase2, ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(outcome.message, StartsWith("grad: data must not be null"));
}

}  // namespace
}  // namespace onehot::test
