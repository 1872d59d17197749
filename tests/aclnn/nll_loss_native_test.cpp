// The NLL losses of the C face give the bits of the native operators.
#include "onehot/nll_loss.h"

#include <string>
#include <vector>

#include "tests/aclnn/nll_loss_call.h"
#include "tests/native/data.h"
#include "tests/native/tensor.h"

namespace onehot::test::nll {
namespace {

struct Case {
  std::vector<std::int64_t> logits;
  std::int64_t reduction;
  DType dtype;
  aclDataType acl_dtype;
};

TensorSpec Spec(Tensor& tensor, aclDataType dtype) {
  const TensorView view = tensor.view();
  const auto rank = static_cast<std::size_t>(view.rank);
  return {{view.dims.begin(), view.dims.begin() + static_cast<std::ptrdiff_t>(rank)},
          dtype,
          view.data,
          std::vector<std::int64_t>(view.strides.begin(), view.strides.begin() + static_cast<std::ptrdiff_t>(rank))};
}

void ExpectNativeBits(const Case& c) {
  std::vector<std::int64_t> positions = c.logits;
  positions.erase(positions.begin() + (c.logits.size() == 1 ? 0 : 1));
  const std::int64_t classes = c.logits[c.logits.size() == 1 ? 0 : 1];
  const bool none = c.reduction == kNone, pictures = c.logits.size() == 4;
  std::vector<std::int64_t> losses = none ? positions : std::vector<std::int64_t>{};

  Tensor self(c.dtype, c.logits), weight(c.dtype, {classes}), target(DType::kI64, positions), grad(c.dtype, losses);
  FillGradient(self, 1);
  FillGradient(weight, 2);
  FillGradient(grad, 3);
  Random random(4);
  for (std::int64_t i = 0; i < target.numel(); ++i)
    target.Set<std::int64_t>(i, random.Below(8) == 0 ? -100 : random.Below(classes));

  Tensor loss(c.dtype, losses), total(c.dtype, {}), native_loss(c.dtype, losses), native_total(c.dtype, {});
  const NllCall forward{pictures ? &kNllLoss2d : &kNllLoss,
                        {Spec(self, c.acl_dtype), Spec(target, ACL_INT64), Spec(weight, c.acl_dtype),
                         Spec(loss, c.acl_dtype), Spec(total, c.acl_dtype)},
                        c.reduction};
  forward.ExpectDone();
  const Result<Plan> native = onehot::Prepare(NllLoss{.input = self.view(),
                                                      .target = target.view(),
                                                      .loss = native_loss.view(),
                                                      .total_weight = native_total.view(),
                                                      .weight = weight.view(),
                                                      .reduction = static_cast<Reduction>(c.reduction)});
  ASSERT_TRUE(native.ok()) << native.status().message();
  ASSERT_TRUE(native->Run().ok());
  EXPECT_EQ(loss.Bytes(), native_loss.Bytes());
  EXPECT_EQ(total.Bytes(), native_total.Bytes());

  Tensor out(c.dtype, c.logits), native_out(c.dtype, c.logits);
  const NllCall backward{pictures ? &kNllLoss2dBackward : &kNllLossBackward,
                         {Spec(grad, c.acl_dtype), Spec(self, c.acl_dtype), Spec(target, ACL_INT64),
                          Spec(weight, c.acl_dtype), Spec(total, c.acl_dtype), Spec(out, c.acl_dtype)},
                         c.reduction};
  backward.ExpectDone();
  const Result<Plan> native_backward =
      onehot::Prepare(NllLossBackward{.grad_output = grad.view(),
                                      .target = target.view(),
                                      .out = native_out.view(),
                                      .total_weight = total.view(),
                                      .weight = weight.view(),
                                      .reduction = static_cast<Reduction>(c.reduction)});
  ASSERT_TRUE(native_backward.ok()) << native_backward.status().message();
  ASSERT_TRUE(native_backward->Run().ok());
  EXPECT_EQ(out.Bytes(), native_out.Bytes());
  EXPECT_TRUE(out.GapsUntouched() && loss.GapsUntouched() && total.GapsUntouched());
}

TEST(NllLosses, SameBitsAsTheNativeOperators) {
  struct Type {
    DType dtype;
    aclDataType acl_dtype;
  };
  for (const Type& type : {Type{DType::kF32, ACL_FLOAT}, Type{DType::kF16, ACL_FLOAT16}, Type{DType::kBF16, ACL_BF16}})
    for (const std::int64_t reduction : {kNone, kMean, kSum})
      for (const std::vector<std::int64_t>& logits : {std::vector<std::int64_t>{7},
                                                      {1, 1},
                                                      {37, 11},
                                                      {301, 1003},
                                                      {2, 5, 7, 9},
                                                      {1, 21, 33, 65},
                                                      {3, 150, 1, 31}}) {
        SCOPED_TRACE(std::to_string(logits.size()) + " axes, " + std::to_string(logits.back()) + ", dtype " +
                     std::to_string(type.acl_dtype) + ", reduction " + std::to_string(reduction));
        ExpectNativeBits({logits, reduction, type.dtype, type.acl_dtype});
      }
}

}  // namespace
}  // namespace onehot::test::nll
