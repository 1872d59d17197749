// The fused operators of the C face: what phase 1 refuses, with which code and sentence, and the rules of products.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/aclnn/fused_call.h"
#include "tests/native/env.h"

namespace onehot::test::fused {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

// Spoils the call in both ways in which the tensor is there.
void ExpectInvalidWith(const FusedOperator& op, std::string_view tensor, const std::function<void(TensorSpec&)>& spoil,
                       const std::string& sentence) {
  for (const Way& way : kWays) {
    if (way.op != &op) continue;
    Good good(way);
    if (!good.Has(tensor)) continue;
    spoil(good.call[tensor]);
    good.ExpectInvalid(std::string(tensor) + ": " + sentence);
  }
}

std::string Text(const Dims& dims) {
  std::string list;
  for (const std::int64_t extent : dims) list += (list.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + list + "]";
}

// Phase 1 with these handles says `code` and `sentence`, and gives nothing out.
void ExpectPhaseOne(const FusedOperator& op, const FusedOperator::Handles& handles, const Attributes& attributes,
                    aclnnStatus code, const std::string& sentence) {
  std::uint64_t size = 9;
  aclOpExecutor* executor = reinterpret_cast<aclOpExecutor*>(&size);
  TakeMessage();
  EXPECT_EQ(op.phase1(handles, attributes, &size, &executor), code);
  EXPECT_THAT(TakeMessage(), ::testing::StartsWith(sentence)) << op.name;
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(executor, nullptr);
}

TEST(FusedRefuse, NullPointers) {
  for (const Way& way : kWays) {
    Good good(way);
    const FusedCall::Tensors tensors(good.call);
    const FusedOperator& op = *way.op;
    for (std::size_t i = 0; i < op.tensors.size(); ++i) {
      // Without softmax, maximum and sum are required; with it they were not given in the first place.
      if (tensors.handles[i] == nullptr || op.tensors[i] == "softmaxOptional" ||
          op.tensors[i] == "vocabParallelLogitsOutOptional" || op.tensors[i] == "softMaxOutOptional")
        continue;
      FusedOperator::Handles handles = tensors.handles;
      handles[i] = nullptr;
      ExpectPhaseOne(op, handles, good.call.attributes, ACLNN_ERR_PARAM_NULLPTR,
                     std::string(op.tensors[i]) + ": must not be null");
    }
    ExpectPhaseOne(op, FusedOperator::Handles(op.tensors.size()), good.call.attributes, ACLNN_ERR_PARAM_NULLPTR,
                   std::string(op.tensors[0]) + ": must not be null");
    std::uint64_t size = 9;
    aclOpExecutor* executor = reinterpret_cast<aclOpExecutor*>(&size);
    EXPECT_EQ(op.phase1(tensors.handles, good.call.attributes, nullptr, &executor), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(executor, nullptr);
    EXPECT_EQ(op.phase1(tensors.handles, good.call.attributes, &size, nullptr), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(size, 0u);
    EXPECT_EQ(TakeMessage(), "executor: must not be null\nworkspaceSize: must not be null");
    good.ExpectUntouched();
  }
}

// Softmax is wanted or missing: what it stands for, or is made from, has to be there.
TEST(FusedRefuse, NullWhereAnotherTensorAsksForMore) {
  Good softmax({&kGrad, true});
  softmax.call.specs[7].reset();
  softmax.ExpectRefused(ACLNN_ERR_PARAM_NULLPTR, "logitsMaxOptional: must not be null");
  Good loss({&kLoss, true});
  loss.call.specs[5].reset();
  loss.ExpectRefused(ACLNN_ERR_PARAM_NULLPTR, "vocabParallelLogitsOptional: must not be null");
}

TEST(FusedRefuse, DeadAndForeignTensors) {
  for (const Way& way : kWays) {
    Good good(way);
    const FusedCall::Tensors tensors(good.call);
    float memory = 0;
    LiveTensor dying({1}, ACL_FLOAT, &memory);
    aclTensor* const dead = dying;
    dying.Destroy();
    for (std::size_t i = 0; i < way.op->tensors.size(); ++i)
      for (aclTensor* bad : {dead, reinterpret_cast<aclTensor*>(&memory)}) {
        if (tensors.handles[i] == nullptr) continue;
        FusedOperator::Handles handles = tensors.handles;
        handles[i] = bad;
        ExpectPhaseOne(*way.op, handles, good.call.attributes, ACLNN_ERR_PARAM_INVALID,
                       std::string(way.op->tensors[i]) + ": must be a live aclTensor");
      }
    good.ExpectUntouched();
  }
}

constexpr aclDataType kAllTypes[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16,      ACL_DOUBLE,     ACL_INT64,       ACL_INT32,
                                     ACL_INT16, ACL_INT8,    ACL_UINT8,     ACL_UINT16,     ACL_UINT32,      ACL_UINT64,
                                     ACL_BOOL,  ACL_STRING,  ACL_COMPLEX64, ACL_COMPLEX128, ACL_DT_UNDEFINED};

void ExpectOnlyTypes(const FusedOperator& op, std::string_view tensor, const std::vector<aclDataType>& right,
                     const std::string& sentence) {
  for (const aclDataType dtype : kAllTypes)
    if (std::find(right.begin(), right.end(), dtype) == right.end())
      ExpectInvalidWith(
          op, tensor, [&](TensorSpec& spec) { spec.dtype = dtype; }, sentence);
}

TEST(FusedRefuse, DTypes) {
  const std::string floats = "dtype must be one of ACL_FLOAT on Ascend910B, is ";
  const std::string halves = "dtype must be one of ACL_FLOAT16, ACL_BF16 on Ascend910B, is ";
  const std::string targets = "dtype must be one of ACL_INT64, ACL_INT32 on Ascend910B, is ";
  const std::string of_input = "dtype must be that of input, ACL_BF16, is ";
  for (const FusedOperator* op : {&kMaxSum, &kGrad}) {
    ExpectOnlyTypes(*op, "input", {ACL_FLOAT16, ACL_BF16}, halves);
    ExpectOnlyTypes(*op, "weight", {ACL_BF16}, of_input);
  }
  ExpectOnlyTypes(kMaxSum, "target", {ACL_INT64, ACL_INT32}, targets);
  for (const char* tensor : {"logitsMaxLocalOut", "sumExpLogitsLocalOut", "predictedLogitsLocalOut"})
    ExpectOnlyTypes(kMaxSum, tensor, {ACL_FLOAT}, floats);
  ExpectOnlyTypes(kMaxSum, "targetMaskOut", {ACL_UINT8}, "dtype must be one of ACL_UINT8 on Ascend910B, is ");
  ExpectOnlyTypes(kMaxSum, "maskedTargetOut", {ACL_INT64}, "dtype must be that of target, ACL_INT64, is ");
  ExpectOnlyTypes(kMaxSum, "vocabParallelLogitsOutOptional", {ACL_BF16}, of_input);

  for (const char* tensor : {"logitsMax", "sumExpLogits", "predictedLogits", "lossOut", "softMaxOutOptional"})
    ExpectOnlyTypes(kLoss, tensor, {ACL_FLOAT}, floats);
  ExpectOnlyTypes(kLoss, "vocabParallelLogitsOptional", {ACL_FLOAT, ACL_FLOAT16, ACL_BF16},
                  "dtype must be one of ACL_FLOAT, ACL_FLOAT16, ACL_BF16 on Ascend910B, is ");

  for (const char* tensor : {"grad", "logitsMaxOptional", "sumExpLogitsOptional", "softmaxOptional"})
    ExpectOnlyTypes(kGrad, tensor, {ACL_FLOAT}, floats);
  ExpectOnlyTypes(kGrad, "targetMask", {ACL_UINT8, ACL_BOOL},
                  "dtype must be one of ACL_UINT8, ACL_BOOL on Ascend910B, is ");
  ExpectOnlyTypes(kGrad, "maskedTarget", {ACL_INT64, ACL_INT32}, targets);
  for (const char* tensor : {"inputGradOut", "weightGradOut"}) ExpectOnlyTypes(kGrad, tensor, {ACL_BF16}, of_input);
}

TEST(FusedRefuse, PrivateFormats) {
  for (const aclFormat format : {ACL_FORMAT_UNDEFINED, ACL_FORMAT_NC1HWC0, ACL_FORMAT_FRACTAL_Z, ACL_FORMAT_NC1HWC0_C04,
                                 ACL_FORMAT_FRACTAL_NZ, ACL_FORMAT_NDC1HWC0, ACL_FRACTAL_Z_3D})
    for (const FusedOperator* op : {&kMaxSum, &kLoss, &kGrad})
      for (const std::string_view tensor : op->tensors)
        ExpectInvalidWith(
            *op, tensor, [&](TensorSpec& spec) { spec.format = format; }, "format must be");
}

TEST(FusedRefuse, VocabularyRanges) {
  for (const bool logits : {false, true}) {
    const auto refused = [&](std::int64_t start, std::int64_t end, const std::string& sentence) {
      Good good({&kMaxSum, logits});
      good.call.attributes = {.start = start, .end = end};
      good.ExpectInvalid(sentence);
    };
    for (const std::int64_t start : {std::int64_t{-1}, std::int64_t{-131}, -kMax, -kMax - 1})
      refused(start, 10, "vocabStartIndex: must not be negative, is " + std::to_string(start));
    for (const std::int64_t end : {std::int64_t{6}, std::int64_t{0}, std::int64_t{-1}, -kMax - 1})
      refused(7, end, "vocabEndIndex: must be at least vocabStartIndex, 7, is " + std::to_string(end));
    refused(kMax, kMax - 1, "vocabEndIndex: must be at least vocabStartIndex");
  }
}

TEST(FusedRefuse, LabelSmoothing) {
  for (const Way& way : kWays) {
    if (way.op == &kMaxSum) continue;
    for (const float smoothing :
         {.1f, -.1f, 1.f, NAN, -NAN, INFINITY, -INFINITY, std::numeric_limits<float>::denorm_min()}) {
      Good good(way);
      good.call.attributes.smoothing = smoothing;
      good.ExpectInvalid("labelSmoothing: must be 0, is ");
    }
    Good good(way);
    good.call.attributes.smoothing = -0.f;
    good.ExpectDoneAndRight();
  }
}

TEST(FusedRefuse, Ranks) {
  for (const FusedOperator* op : {&kMaxSum, &kLoss, &kGrad})
    for (const std::string_view tensor : op->tensors)
      for (const Dims& dims : {Dims{}, {11}, {11, 131}, {11, 131, 1}, Dims(9, 1)})
        ExpectInvalidWith(
            *op, tensor,
            [&](TensorSpec& spec) {
              // One with the right rank is made wrong by the other way.
              const std::size_t right = spec.dims.size();
              spec.dims = dims.size() == right ? Dims(3 - right, 11) : dims;
              spec.strides.reset();
            },
            "rank must be ");
}

TEST(FusedRefuse, ShapesOfMaxSum) {
  const auto refused = [](std::string_view tensor, const Dims& dims, const std::string& sentence) {
    ExpectInvalidWith(
        kMaxSum, tensor, [&](TensorSpec& spec) { spec.dims = dims, spec.strides.reset(); }, sentence);
  };
  refused("weight", {131, 4}, "must have as many columns as input, 5, has 4");
  refused("weight", {5, 131}, "must have as many columns as input, 5, has 131");
  for (const char* tensor :
       {"target", "logitsMaxLocalOut", "sumExpLogitsLocalOut", "predictedLogitsLocalOut", "maskedTargetOut"})
    for (const std::int64_t tokens : {10, 12, 1, 0})
      refused(tensor, {tokens}, "shape must be one element for each token of input, [11], is " + Text({tokens}));
  for (const std::int64_t bytes : {1, 3, 11, 0})
    refused("targetMaskOut", {bytes}, "shape must be a bit for each token of input, [2], is " + Text({bytes}));
  for (const Dims& dims : {Dims{11, 130}, {10, 131}, {131, 11}})
    refused("vocabParallelLogitsOutOptional", dims, "shape must be that of the logits, [11, 131], is " + Text(dims));
}

TEST(FusedRefuse, RowsOfMoreThan65534) {
  for (const bool logits : {false, true}) {
    Good good({&kMaxSum, logits}, {.tokens = 1, .columns = 65535, .classes = 1});
    good.ExpectInvalid("input: must have at most 65534 columns, has 65535");
    Good right({&kMaxSum, logits}, {.tokens = 1, .columns = 65534, .classes = 1});
    right.call.ExpectDone();
  }
  Good grad({&kGrad, false}, {.tokens = 1, .columns = 65535, .classes = 128});  // it has no such limit
  grad.call.ExpectDone();
}

TEST(FusedRefuse, ShapesOfLoss) {
  const auto refused = [](std::string_view tensor, const Dims& dims, const std::string& sentence) {
    ExpectInvalidWith(
        kLoss, tensor, [&](TensorSpec& spec) { spec.dims = dims, spec.strides.reset(); }, sentence);
  };
  for (const char* tensor : {"sumExpLogits", "predictedLogits", "lossOut"})
    for (const std::int64_t tokens : {10, 12, 1, 0})
      refused(tensor, {tokens}, "shape must be that of logitsMax, [11], is " + Text({tokens}));
  for (const std::int64_t tokens : {10, 131})
    refused("vocabParallelLogitsOptional", {tokens, 131},
            "must have one row for each of the 11 elements of logitsMax, has " + std::to_string(tokens));
  for (const Dims& dims : {Dims{11, 130}, {10, 131}, {131, 11}})
    refused("softMaxOutOptional", dims, "shape must be that of the logits, [11, 131], is " + Text(dims));
}

TEST(FusedRefuse, ShapesOfGrad) {
  const auto refused = [](std::string_view tensor, const Dims& dims, const std::string& sentence) {
    ExpectInvalidWith(
        kGrad, tensor, [&](TensorSpec& spec) { spec.dims = dims, spec.strides.reset(); }, sentence);
  };
  refused("weight", {131, 4}, "must have as many columns as input, 5, has 4");
  for (const char* tensor : {"grad", "maskedTarget", "logitsMaxOptional", "sumExpLogitsOptional"})
    for (const std::int64_t tokens : {10, 12, 1, 0})
      refused(tensor, {tokens}, "shape must be one element for each token of input, [11], is " + Text({tokens}));
  for (const std::int64_t bytes : {1, 0})
    refused("targetMask", {bytes},
            "must have a bit for each token of input, 2 bytes or more, has " + std::to_string(bytes));
  for (const Dims& dims : {Dims{11, 130}, {10, 131}, {131, 11}})
    refused("softmaxOptional", dims, "shape must be that of the logits, [11, 131], is " + Text(dims));
  for (const Dims& dims : {Dims{11, 4}, {10, 5}, {5, 11}})
    refused("inputGradOut", dims, "shape must be that of input, [11, 5], is " + Text(dims));
  for (const Dims& dims : {Dims{131, 4}, {130, 5}, {5, 131}})
    refused("weightGradOut", dims, "shape must be that of weight, [131, 5], is " + Text(dims));
  for (const std::int64_t tokens : {10, 12, 2}) {
    Good good({&kGrad, true}, {.bool_mask = true});
    good.call["targetMask"].dims = {tokens};
    good.ExpectInvalid("targetMask: shape must be one element for each token of input, [11], is " + Text({tokens}));
  }
}

TEST(FusedRefuse, LessThan128Classes) {
  for (const bool softmax : {false, true}) {
    for (const std::int64_t classes : {127, 1})
      Good({&kGrad, softmax}, {.classes = classes})
          .ExpectInvalid("weight: must have at least 128 rows, has " + std::to_string(classes));
    Good({&kGrad, softmax}, {.classes = 128}).ExpectDoneAndRight();
  }
  Good({&kMaxSum, true}, {.classes = 127}).ExpectDoneAndRight();  // these two have no such limit
  Good({&kLoss, true}, {.classes = 127}).ExpectDoneAndRight();
}

// One more class than there are has to be a number.
TEST(FusedRefuse, MostClasses) {
  for (const Way& way : {Way{&kMaxSum, false}, Way{&kGrad, false}}) {
    Good good(way, {.columns = 0});
    for (const char* tensor : {"weight", "weightGradOut"})
      if (way.op == &kGrad || tensor == std::string("weight")) good.call[tensor].dims = {kMax, 0};
    good.ExpectInvalid("weight: must have less than 2^63 - 1 rows");
  }
}

TEST(FusedRefuse, OutputsThatOverlapThemselves) {
  for (const Way& way : kWays)
    for (std::size_t i = 0; i < way.op->tensors.size(); ++i) {
      Good good(way);
      if (!way.op->IsOutput(i) || !good.call.specs[i]) continue;
      std::vector<Dims> bad{Dims(good.call.specs[i]->dims.size(), 0)};
      if (bad[0].size() == 2) bad.insert(bad.end(), {{0, 1}, {5, 0}, {2, 1}, {1, 1}});
      for (const Dims& strides : bad) {
        good.call.specs[i]->strides = strides;
        good.ExpectInvalid(std::string(way.op->tensors[i]) + ": must not map two elements to one address");
      }
    }
  Good one({&kMaxSum, false}, {.tokens = 1});  // one element overlaps with nothing
  for (const char* tensor : {"targetMaskOut", "maskedTargetOut", "logitsMaxLocalOut"}) one.call[tensor].strides = {0};
  one.ExpectDoneAndRight();
}

// A view that ends where its block does, and one element beyond it; and views that leave the address space.
TEST(FusedRefuse, ViewsThatLeaveTheirBlock) {
  for (const Way& way : kWays)
    for (std::size_t i = 0; i < way.op->tensors.size(); ++i) {
      Good good(way);
      if (!good.call.specs[i]) continue;
      TensorSpec& spec = *good.call.specs[i];
      const std::string name(way.op->tensors[i]);
      const std::size_t element = aclDataTypeSize(spec.dtype);
      std::size_t bytes = element;
      for (const std::int64_t extent : spec.dims) bytes *= static_cast<std::size_t>(extent);
      void* block = nullptr;
      ASSERT_EQ(aclrtMalloc(&block, bytes, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
      ASSERT_EQ(aclrtMemcpy(block, bytes, spec.data, bytes, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
      spec.data = block;
      good.call.ExpectDone();
      good.Clear();
      spec.offset = 1;
      good.ExpectInvalid(name + ": must stay inside its block of aclrtMalloc, ends at byte " +
                         std::to_string(bytes + element) + " of its data, the block at byte " + std::to_string(bytes));
      spec.offset = kMax;
      good.ExpectInvalid(name + ": must end within 2^63 bytes");
      spec.offset = 0;
      spec.strides->front() = std::int64_t{1} << 61;
      good.ExpectInvalid(name + ": must ");
      ASSERT_EQ(aclrtFree(block), ACL_SUCCESS);
    }
}

// What earlier checks say hides what later ones would: product, null, dtypes, formats, attributes, ranks, shapes, views.
TEST(FusedRefuse, InTheOrderOfTheContract) {
  for (const Way& way : kWays) {
    const FusedOperator& op = *way.op;
    Good good(way);
    // The last output is wrong in all ways, undone from the first check to the last; so is an attribute.
    std::size_t last = op.tensors.size() - 1;
    if (!good.call.specs[last]) --last;
    TensorSpec& spec = *good.call.specs[last];
    const std::string name(op.tensors[last]);
    const TensorSpec right = spec;
    const Attributes right_attributes = good.call.attributes;
    spec.dtype = ACL_DOUBLE;
    spec.format = ACL_FORMAT_FRACTAL_NZ;
    good.call.attributes = {.start = 5, .end = 4, .smoothing = 1};
    spec.dims.assign(9, 0);
    spec.strides.reset();
    const FusedOperator::Handles none(op.tensors.size());
    for (const char* soc : {"Ascend31", "Ascend950", "Ascend910A"}) {
      const ScopedEnv env("ONEHOT_SOC", soc);
      ExpectPhaseOne(op, none, good.call.attributes, ACLNN_ERR_RUNTIME_ERROR, "");
    }
    {
      const FusedCall::Tensors tensors(good.call);
      FusedOperator::Handles handles = tensors.handles;
      handles[op.IndexOf(op.tensors[1])] = nullptr;
      ExpectPhaseOne(op, handles, good.call.attributes, ACLNN_ERR_PARAM_NULLPTR, std::string(op.tensors[1]));
    }
    good.ExpectInvalid(name + ": dtype");
    spec.dtype = right.dtype;
    good.ExpectInvalid(name + ": format");
    spec.format = right.format;
    good.ExpectInvalid(&op == &kMaxSum ? "vocabEndIndex" : "labelSmoothing");
    good.call.attributes = right_attributes;
    good.ExpectInvalid(name + ": rank");
    spec.dims = right.dims, ++spec.dims.back();
    spec.strides = Dims(spec.dims.size(), 0);
    good.ExpectInvalid(name + ": shape");
    spec.dims = right.dims;
    good.ExpectInvalid(name + ": must not map two elements");
    spec.strides = right.strides;
    good.ExpectDoneAndRight();
  }
}

// ---- Products.

TEST(FusedOperators, AreOfferedOnTheirProducts) {
  ForEachWay([](const Way& way, DType dtype) {
    for (const char* soc : {"Ascend910B", "Ascend910_93", "", static_cast<const char*>(nullptr)}) {
      const ScopedEnv env("ONEHOT_SOC", soc);
      Good(way, {.dtype = dtype}).ExpectDoneAndRight();
    }
    for (const char* soc : {"Ascend910A", "Ascend950"}) {
      const ScopedEnv env("ONEHOT_SOC", soc);
      Good(way, {.dtype = dtype})
          .ExpectRefused(ACLNN_ERR_RUNTIME_ERROR, std::string(way.op->name) + ": is not offered on " + soc);
    }
    const ScopedEnv env("ONEHOT_SOC", "Ascend910C");
    Good(way, {.dtype = dtype})
        .ExpectRefused(ACLNN_ERR_RUNTIME_ERROR,
                       "ONEHOT_SOC: must be one of Ascend910A, Ascend910B, Ascend910_93, Ascend950");
  });
}

}  // namespace
}  // namespace onehot::test::fused
