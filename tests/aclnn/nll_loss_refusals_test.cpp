// The NLL losses of the C face: what phase 1 refuses, with which code and sentence, and the rules of products.
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/aclnn/nll_loss_call.h"
#include "tests/native/env.h"

namespace onehot::test::nll {
namespace {

using Dims = std::vector<std::int64_t>;

// Whether this call takes the tensor as no more than there or not there.
bool IsNotRead(const NllOperator& op, std::int64_t reduction, std::string_view tensor) {
  return op.backward && reduction != kMean && tensor == "totalWeight";
}

// Spoils one tensor of every operator.
void ExpectInvalidWith(std::string_view tensor, const std::function<void(TensorSpec&)>& spoil,
                       const std::string& sentence) {
  for (const NllOperator* op : kNllOperators) {
    if (tensor == "gradOutput" && !op->backward) continue;
    GoodNll good(*op);
    spoil(good.call[tensor]);
    good.ExpectInvalid(sentence);
  }
}

TEST(NllLossesRefuse, NullPointers) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    GoodNll good(op, reduction);
    const NllCall::Tensors tensors(good.call);
    std::uint64_t size = 9;
    aclOpExecutor* executor = nullptr;
    const auto refused = [&](const NllOperator::Handles& handles, std::uint64_t* s, aclOpExecutor** e,
                             const std::string& name) {
      size = 9;
      executor = reinterpret_cast<aclOpExecutor*>(&good);
      TakeMessage();
      EXPECT_EQ(op.phase1(handles, reduction, -100, s, e), ACLNN_ERR_PARAM_NULLPTR);
      EXPECT_EQ(TakeMessage(), name + ": must not be null");
      if (s != nullptr) {
        EXPECT_EQ(size, 0u);
      }
      if (e != nullptr) {
        EXPECT_EQ(executor, nullptr);
      }
    };
    for (std::size_t i = 0; i < op.tensors.size(); ++i) {  // totalWeight too, whether it is read or not
      NllOperator::Handles handles = tensors.handles;
      handles[i] = nullptr;
      refused(handles, &size, &executor, std::string(op.tensors[i]));
    }
    refused(tensors.handles, nullptr, &executor, "workspaceSize");
    refused(tensors.handles, &size, nullptr, "executor");
    refused(NllOperator::Handles(op.tensors.size()), nullptr, nullptr, std::string(op.tensors[0]));
    good.ExpectUntouched();
  });
}

TEST(NllLossesRefuse, DeadAndForeignTensors) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    GoodNll good(op, reduction);
    const NllCall::Tensors tensors(good.call);
    LiveTensor dying(good.call["weight"]);
    aclTensor* const dead = dying;
    dying.Destroy();
    int foreign = 0;
    for (std::size_t i = 0; i < op.tensors.size(); ++i)
      for (aclTensor* bad : {dead, reinterpret_cast<aclTensor*>(&foreign)}) {
        if (IsNotRead(op, reduction, op.tensors[i])) continue;
        NllOperator::Handles handles = tensors.handles;
        handles[i] = bad;
        std::uint64_t size = 9;
        aclOpExecutor* executor = nullptr;
        TakeMessage();
        EXPECT_EQ(op.phase1(handles, reduction, -100, &size, &executor), ACLNN_ERR_PARAM_INVALID);
        EXPECT_THAT(TakeMessage(), ::testing::StartsWith(std::string(op.tensors[i]) + ": must be a live aclTensor"));
        EXPECT_EQ(size, 0u);
        EXPECT_EQ(executor, nullptr);
      }
  });
}

TEST(NllLossesRefuse, DTypesOutsideTheList) {
  for (const aclDataType dtype : {ACL_DOUBLE, ACL_INT32, ACL_INT64, ACL_BOOL, ACL_COMPLEX64, ACL_DT_UNDEFINED})
    ForEachNll([&](const NllOperator& op, std::int64_t reduction) {
      GoodNll good(op, reduction);
      for (const std::string_view tensor : op.tensors)
        if (tensor != "target") good.call[tensor].dtype = dtype;
      good.ExpectInvalid("self: dtype must be one of ACL_FLOAT, ACL_FLOAT16, ACL_BF16 on Ascend910B, is ");
    });
  for (const aclDataType dtype :
       {ACL_INT16, ACL_INT8, ACL_BOOL, ACL_FLOAT, ACL_DOUBLE, ACL_UINT16, ACL_UINT32, ACL_UINT64, ACL_DT_UNDEFINED})
    ExpectInvalidWith(
        "target", [&](TensorSpec& spec) { spec.dtype = dtype; },
        "target: dtype must be one of ACL_INT64, ACL_INT32, ACL_UINT8 on Ascend910B, is ");
}

// Narrower, wider, of other kinds: the native operators take some of these.
TEST(NllLossesRefuse, DTypesThatDiffer) {
  for (const aclDataType dtype : {ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT32})
    ForEachNll([&](const NllOperator& op, std::int64_t reduction) {
      for (const std::string_view tensor : op.tensors) {
        if (tensor == "self" || tensor == "target" || IsNotRead(op, reduction, tensor)) continue;
        GoodNll good(op, reduction);
        good.call[tensor].dtype = dtype;
        good.ExpectInvalid(std::string(tensor) + ": dtype must be that of self, ACL_FLOAT, is ");
      }
    });
  for (const NllOperator* op : kNllOperators) {
    GoodNll good(*op);
    good.call["self"].dtype = ACL_BF16;
    good.ExpectInvalid(std::string(op->backward ? "gradOutput" : "weight") + ": dtype must be that of self, ACL_BF16");
  }
}

TEST(NllLossesRefuse, PrivateFormats) {
  for (const aclFormat format : {ACL_FORMAT_UNDEFINED, ACL_FORMAT_NC1HWC0, ACL_FORMAT_FRACTAL_Z, ACL_FORMAT_NC1HWC0_C04,
                                 ACL_FORMAT_FRACTAL_NZ, ACL_FORMAT_NDC1HWC0, ACL_FRACTAL_Z_3D})
    ForEachNll([&](const NllOperator& op, std::int64_t reduction) {
      for (const std::string_view tensor : op.tensors) {
        if (IsNotRead(op, reduction, tensor)) continue;
        GoodNll good(op, reduction);
        good.call[tensor].format = format;
        good.ExpectInvalid(std::string(tensor) + ": format must be");
      }
    });
}

// 256 to 258 are 0 to 2 in a byte, 2^32 is 0 in 32 bits.
TEST(NllLossesRefuse, Reductions) {
  for (const std::int64_t reduction :
       {std::int64_t{-1}, std::int64_t{3}, std::int64_t{256}, std::int64_t{257}, std::int64_t{258},
        std::int64_t{1} << 32, (std::int64_t{1} << 32) + 1, std::numeric_limits<std::int64_t>::min(),
        std::numeric_limits<std::int64_t>::max()})
    for (const NllOperator* op : kNllOperators) {
      GoodNll good(*op);
      good.call.reduction = reduction;
      good.ExpectInvalid("reduction: must be 0 (none), 1 (mean) or 2 (sum), is " + std::to_string(reduction));
    }
}

TEST(NllLossesRefuse, RanksOfPictures) {
  for (const NllOperator* op : {&kNllLoss2d, &kNllLoss2dBackward}) {
    const auto refused = [&](std::string_view tensor, const Dims& dims, const std::string& sentence,
                             std::int64_t reduction = kMean) {
      GoodNll good(*op, reduction);
      good.call[tensor].dims = dims;
      good.ExpectInvalid(std::string(tensor) + ": rank must be " + sentence);
    };
    for (const Dims& dims : {Dims{}, {12}, {4, 3}, {2, 3, 2}, {2, 3, 1, 1, 2}}) {
      refused("self", dims, "4, is " + std::to_string(dims.size()));
      if (op->backward) refused("out", dims, "4, is " + std::to_string(dims.size()));
    }
    for (const Dims& dims : {Dims{}, {4}, {2, 2}, {2, 1, 1, 2}})
      refused("target", dims, "3, is " + std::to_string(dims.size()));
    for (const Dims& dims : {Dims{}, {3, 1}, {1, 3}}) refused("weight", dims, "1, is " + std::to_string(dims.size()));
    for (const Dims& dims : {Dims{}, {4}, {2, 2}, {2, 1, 1, 2}})
      refused(op->per_loss(), dims, "3, is " + std::to_string(dims.size()), kNone);
    refused(op->per_loss(), Dims(9, 1), "in [0, 8], is 9");
    refused(op->total_weight(), Dims(9, 1), "in [0, 8], is 9");
  }
}

TEST(NllLossesRefuse, RanksOfRows) {
  for (const NllOperator* op : {&kNllLoss, &kNllLossBackward}) {
    const auto refused = [&](std::string_view tensor, const Dims& dims, const std::string& sentence,
                             std::int64_t reduction = kMean) {
      GoodNll good(*op, reduction);
      good.call[tensor].dims = dims;
      good.ExpectInvalid(std::string(tensor) + ": rank must be " + sentence);
    };
    refused("self", {}, "in [1, 2], is 0");
    refused("self", {2, 3, 2}, "in [1, 2], is 3");
    refused("self", {2, 3, 1, 2}, "in [1, 2], is 4");
    refused("target", {}, "1, is 0");
    refused("target", {4, 1}, "1, is 2");
    refused("weight", {}, "1, is 0");
    refused("weight", {3, 1}, "1, is 2");
    refused(op->per_loss(), {}, "1, is 0", kNone);
    refused(op->per_loss(), {4, 1}, "1, is 2", kNone);
    refused(op->per_loss(), Dims(9, 1), "in [0, 8], is 9", kSum);
    refused(op->total_weight(), Dims(9, 1), "in [0, 8], is 9");
    if (op->backward) refused("out", {12}, "2, is 1");
    GoodNll good(*op);  // one position, but with an axis
    good.call["self"].dims = {3};
    good.call["target"].dims = {1};
    good.ExpectInvalid("target: rank must be 0, is 1");
  }
}

TEST(NllLossesRefuse, ShapesOfPictures) {
  for (const NllOperator* op : {&kNllLoss2d, &kNllLoss2dBackward}) {
    const auto refused = [&](std::string_view tensor, const Dims& dims, const std::string& sentence,
                             std::int64_t reduction = kMean) {
      GoodNll good(*op, reduction);
      good.call[tensor].dims = dims;
      good.ExpectInvalid(std::string(tensor) + ": " + sentence);
    };
    const auto text = [](const Dims& dims) {
      std::string list;
      for (const std::int64_t extent : dims) list += (list.empty() ? "" : ", ") + std::to_string(extent);
      return "[" + list + "]";
    };
    for (const Dims& dims : {Dims{1, 1, 2}, {2, 2, 1}, {2, 1, 1}, {2, 1, 3}, {1, 1, 1}, {2, 3, 2}}) {
      refused("target", dims, "shape must be that of self without the axis of classes, [2, 1, 2], is " + text(dims));
      refused(op->per_loss(), dims, "shape must be that of target, [2, 1, 2], is " + text(dims), kNone);
    }
    for (const std::int64_t weights : {1, 2, 4, 0})
      refused("weight", {weights},
              "must have one element for each of the 3 classes of self, has " + std::to_string(weights));
    for (const Dims& dims : {Dims{2, 1, 2}, {4}, {0}, {1, 2}, {1, 1, 1, 1, 1, 1, 1, 2}}) {
      refused(op->per_loss(), dims, "must have one element, shape is " + text(dims));
      refused(op->per_loss(), dims, "must have one element, shape is " + text(dims), kSum);
      refused(op->total_weight(), dims, "must have one element, shape is " + text(dims));
    }
    if (op->backward)
      for (const Dims& dims : {Dims{1, 3, 1, 2}, {2, 4, 1, 2}, {2, 3, 2, 1}, {2, 3, 1, 1}})
        refused("out", dims, "shape must be that of self, [2, 3, 1, 2], is " + text(dims));
  }
}

TEST(NllLossesRefuse, ShapesOfRows) {
  for (const NllOperator* op : {&kNllLoss, &kNllLossBackward}) {
    const auto refused = [&](std::string_view tensor, const Dims& dims, const std::string& sentence,
                             std::int64_t reduction = kMean) {
      GoodNll good(*op, reduction);
      good.call[tensor].dims = dims;
      good.ExpectInvalid(std::string(tensor) + ": " + sentence);
    };
    refused("target", {3}, "shape must be that of self without the axis of classes, [4], is [3]");
    refused("target", {1}, "shape must be that of self without the axis of classes, [4], is [1]");
    refused("weight", {4}, "must have one element for each of the 3 classes of self, has 4");
    refused(op->per_loss(), {1}, "shape must be that of target, [4], is [1]", kNone);
    refused(op->per_loss(), {4}, "must have one element, shape is [4]");
    refused(op->total_weight(), {0}, "must have one element, shape is [0]");
    if (op->backward) refused("out", {3, 4}, "shape must be that of self, [4, 3], is [3, 4]");
    GoodNll good(*op, kNone);  // one position without an axis has one loss
    good.call["self"].dims = {3};
    good.call["target"].dims = {};
    if (op->backward) good.call["out"].dims = {3};
    good.ExpectInvalid(std::string(op->per_loss()) + ": must have one element, shape is [4]");
  }
}

TEST(NllLossesRefuse, OutputsThatOverlapThemselves) {
  for (const Dims& strides : {Dims{0, 2, 2, 1}, {6, 0, 2, 1}, {6, 2, 2, 0}, {2, 2, 2, 1}, {4, 2, 2, 1}, {6, 1, 2, 1}}) {
    GoodNll good(kNllLoss2dBackward);
    good.call["out"].strides = strides;
    good.ExpectInvalid("out: must not map two elements to one address");
  }
  for (const Dims& strides : {Dims{0, 1}, {3, 0}, {2, 1}, {1, 1}}) {
    GoodNll good(kNllLossBackward);
    good.call["out"].strides = strides;
    good.ExpectInvalid("out: must not map two elements to one address");
  }
  GoodNll rows(kNllLoss, kNone);
  rows.call["out"].strides = {0};
  rows.ExpectInvalid("out: must not map two elements to one address");
  GoodNll pictures(kNllLoss2d, kNone);
  pictures.call["out"].strides = {1, 1, 1};
  pictures.ExpectInvalid("out: must not map two elements to one address");
}

// A view that ends where its block does, and one element beyond it.
TEST(NllLossesRefuse, ViewsThatLeaveTheirBlock) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    for (const std::string_view tensor : op.tensors) {
      if (IsNotRead(op, reduction, tensor)) continue;
      GoodNll good(op, reduction);
      TensorSpec& spec = good.call[tensor];
      std::size_t bytes = aclDataTypeSize(spec.dtype);
      for (const std::int64_t extent : spec.dims) bytes *= static_cast<std::size_t>(extent);
      void* block = nullptr;
      ASSERT_EQ(aclrtMalloc(&block, bytes, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
      ASSERT_EQ(aclrtMemcpy(block, bytes, spec.data, bytes, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
      spec.data = block;
      good.call.ExpectDone();
      good.Clear();
      spec.offset = 1;
      good.ExpectInvalid(std::string(tensor) + ": must stay inside its block of aclrtMalloc, ends at byte " +
                         std::to_string(bytes + aclDataTypeSize(spec.dtype)) + " of its data, the block at byte " +
                         std::to_string(bytes));
      spec.offset = std::numeric_limits<std::int64_t>::max();
      good.ExpectInvalid(std::string(tensor) + ": must end within 2^63 bytes");
      ASSERT_EQ(aclrtFree(block), ACL_SUCCESS);
    }
  });
}

// The prototype's names also where the native operator finds the fault.
TEST(NllLossesRefuse, ViewsBeyondTheAddressSpace) {
  const std::int64_t far = std::int64_t{1} << 61;
  GoodNll forward(kNllLoss, kNone);
  forward.call["self"].strides = {far, 1};
  forward.ExpectInvalid("self: must span less than 2^63 bytes");
  forward.call["self"].strides.reset();
  forward.call["out"].strides = {far};
  forward.ExpectInvalid("out: must span less than 2^63 bytes");
  forward.call["out"].strides.reset();
  forward.call["target"].strides = {far};
  forward.ExpectInvalid("target: must span less than 2^63 bytes");
  GoodNll backward(kNllLossBackward, kNone);
  backward.call["gradOutput"].strides = {far};
  backward.ExpectInvalid("gradOutput: must span less than 2^63 bytes");
  backward.call["gradOutput"].strides.reset();
  backward.call["self"].strides = {far, 1};  // the native operator has none
  backward.ExpectInvalid("self: must end within 2^63 bytes");
}

// What earlier checks say hides what later ones would: product, null, dtypes, formats, attributes, ranks, shapes, views.
TEST(NllLossesRefuse, InTheOrderOfTheContract) {
  for (const NllOperator* op : kNllOperators) {
    GoodNll good(*op);
    TensorSpec& first = good.call.specs.front();  // gradOutput or self
    good.call["weight"].dtype = ACL_DOUBLE;
    good.call["target"].dtype = ACL_INT16;
    first.format = ACL_FORMAT_FRACTAL_NZ;
    good.call.reduction = 3;
    const Dims right_dims = good.call["weight"].dims;
    good.call["weight"].dims = {3, 1};
    good.call["target"].dims.back() = 7;
    if (op->backward) good.call["out"].strides = Dims(good.call["out"].dims.size(), 0);
    {
      NllCall::Tensors tensors(good.call);
      std::uint64_t size = 0;
      aclOpExecutor* executor = nullptr;
      NllOperator::Handles none(op->tensors.size());
      for (const char* soc : {"Ascend31", "Ascend950"}) {
        const ScopedEnv env("ONEHOT_SOC", soc);
        EXPECT_EQ(op->phase1(none, 3, 0, &size, &executor), ACLNN_ERR_RUNTIME_ERROR);
      }
      NllOperator::Handles one_null = tensors.handles;
      one_null.back() = nullptr;
      EXPECT_EQ(op->phase1(one_null, 3, 0, &size, &executor), ACLNN_ERR_PARAM_NULLPTR);
    }
    good.ExpectInvalid("target: dtype");
    good.call["target"].dtype = ACL_INT64;
    good.ExpectInvalid("weight: dtype");
    good.call["weight"].dtype = ACL_FLOAT;
    good.ExpectInvalid(std::string(op->tensors.front()) + ": format");
    first.format = ACL_FORMAT_ND;
    good.ExpectInvalid("reduction");
    good.call.reduction = kMean;
    good.ExpectInvalid("weight: rank");
    good.call["weight"].dims = right_dims;
    good.ExpectInvalid("target: shape");
    if (!op->backward) continue;
    good.call["target"].dims = GoodNll(*op).call["target"].dims;
    good.ExpectInvalid("out: must not map two elements");
  }
}

// ---- Products.

TEST(NllLosses, AreOfferedOnTheirProducts) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    for (const char* soc : {"Ascend910A", "Ascend910B", "Ascend910_93", ""}) {
      const ScopedEnv env("ONEHOT_SOC", soc);
      GoodNll good(op, reduction);
      good.call.ExpectDone();
      good.ExpectRight();
    }
    GoodNll good(op, reduction);
    {
      const ScopedEnv env("ONEHOT_SOC", "Ascend950");
      good.ExpectRefused(ACLNN_ERR_RUNTIME_ERROR, std::string(op.name) + ": is not offered on Ascend950");
    }
    const ScopedEnv env("ONEHOT_SOC", "Ascend910C");
    good.ExpectRefused(ACLNN_ERR_RUNTIME_ERROR,
                       "ONEHOT_SOC: must be one of Ascend910A, Ascend910B, Ascend910_93, Ascend950");
  });
}

TEST(NllLosses, TrainingProductsHaveNoBFloat16) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    GoodNll good(op, reduction);  // its memory is twice what it takes
    for (const std::string_view tensor : op.tensors)
      if (tensor != "target") good.call[tensor].dtype = ACL_BF16;
    {
      const ScopedEnv env("ONEHOT_SOC", "Ascend910A");
      good.ExpectInvalid("self: dtype must be one of ACL_FLOAT, ACL_FLOAT16 on Ascend910A, is ACL_BF16");
    }
    for (const char* soc : {"Ascend910B", "Ascend910_93"}) {
      const ScopedEnv env("ONEHOT_SOC", soc);
      good.call.ExpectDone();
    }
  });
}

}  // namespace
}  // namespace onehot::test::nll
