#include "tests/aclnn/fused_call.h"

#include <algorithm>
#include <cmath>

#include "aclnnop/level2/aclnn_fused_cross_entropy_loss_with_max_sum.h"
#include "aclnnop/level2/aclnn_fused_linear_cross_entropy_loss_grad.h"
#include "aclnnop/level2/aclnn_fused_linear_online_max_sum.h"
#include "tests/native/data.h"

namespace onehot::test::fused {

const FusedOperator kMaxSum{
    "aclnnFusedLinearOnlineMaxSum",
    {"input", "weight", "target", "logitsMaxLocalOut", "sumExpLogitsLocalOut", "predictedLogitsLocalOut",
     "targetMaskOut", "maskedTargetOut", "vocabParallelLogitsOutOptional"},
    6,
    [](const FusedOperator::Handles& t, const Attributes& a, std::uint64_t* size, aclOpExecutor** executor) {
      return aclnnFusedLinearOnlineMaxSumGetWorkspaceSize(t[0], t[1], t[2], a.start, a.end, t[3], t[4], t[5], t[6],
                                                          t[7], t[8], size, executor);
    },
    aclnnFusedLinearOnlineMaxSum};
const FusedOperator kLoss{
    "aclnnFusedCrossEntropyLossWithMaxSum",
    {"logitsMax", "sumExpLogits", "predictedLogits", "inputOptional", "weightOptional", "vocabParallelLogitsOptional",
     "lossOut", "softMaxOutOptional"},
    2,
    [](const FusedOperator::Handles& t, const Attributes& a, std::uint64_t* size, aclOpExecutor** executor) {
      return aclnnFusedCrossEntropyLossWithMaxSumGetWorkspaceSize(t[0], t[1], t[2], a.smoothing, t[3], t[4], t[5], t[6],
                                                                  t[7], size, executor);
    },
    aclnnFusedCrossEntropyLossWithMaxSum};
const FusedOperator kGrad{
    "aclnnFusedLinearCrossEntropyLossGrad",
    {"grad", "input", "weight", "targetMask", "maskedTarget", "logitsMaxOptional", "sumExpLogitsOptional",
     "softmaxOptional", "inputGradOut", "weightGradOut"},
    2,
    [](const FusedOperator::Handles& t, const Attributes& a, std::uint64_t* size, aclOpExecutor** executor) {
      return aclnnFusedLinearCrossEntropyLossGradGetWorkspaceSize(t[0], t[1], t[2], t[3], t[4], a.smoothing, t[5], t[6],
                                                                  t[7], t[8], t[9], size, executor);
    },
    aclnnFusedLinearCrossEntropyLossGrad};

std::size_t FusedOperator::IndexOf(std::string_view tensor) const {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i] == tensor) return i;
  ADD_FAILURE() << name << " has no " << tensor;
  return 0;
}

aclDataType AclType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ACL_FLOAT;
    case DType::kF16:
      return ACL_FLOAT16;
    case DType::kBF16:
      return ACL_BF16;
    case DType::kI64:
      return ACL_INT64;
    case DType::kI32:
      return ACL_INT32;
    case DType::kU8:
      return ACL_UINT8;
    case DType::kBool:
      return ACL_BOOL;
    default:
      ADD_FAILURE() << "no tensor here is " << Name(dtype);
      return ACL_DT_UNDEFINED;
  }
}

TensorSpec Spec(Tensor& tensor) {
  const TensorView view = tensor.view();
  const auto rank = static_cast<std::ptrdiff_t>(view.rank);
  return {{view.dims.begin(), view.dims.begin() + rank},
          AclType(view.dtype),
          view.data,
          Dims(view.strides.begin(), view.strides.begin() + rank)};
}

Outcome FusedCall::Run() const {
  const Tensors tensors(*this);
  return RunBothPhases(
      [&](std::uint64_t* size, aclOpExecutor** executor) {
        return op->phase1(tensors.handles, attributes, size, executor);
      },
      op->phase2);
}

void FusedCall::ExpectDone() const {
  const Outcome outcome = Run();
  EXPECT_EQ(outcome.phase1, ACLNN_SUCCESS) << op->name << ": " << outcome.message;
  EXPECT_EQ(outcome.phase2, ACLNN_SUCCESS) << op->name << ": " << outcome.message;
}

Prepared::Prepared(const FusedCall& call) : op(*call.op) {
  const FusedCall::Tensors tensors(call);
  EXPECT_EQ(op.phase1(tensors.handles, call.attributes, &size, &executor), ACLNN_SUCCESS) << TakeMessage();
  workspace.assign(size, std::byte{0xFF});
}

std::vector<std::uint8_t> MaskBytes(const std::vector<std::int64_t>& row) {
  std::vector<std::uint8_t> bytes((row.size() + 7) / 8, 0xFF);
  for (std::size_t b = 0; b < row.size(); ++b)
    if (row[b] >= 0) bytes[b / 8] = static_cast<std::uint8_t>(bytes[b / 8] - (1 << b % 8));
  return bytes;
}

Good::Good(const Way& way, const Options& options) : options_(options), optional_(way.optional), random_(options.seed) {
  call.op = way.op;
  tensors_.reserve(way.op->tensors.size());  // specs hold addresses of their memory
  if (way.op == &kMaxSum) MakeMaxSum(way.optional);
  if (way.op == &kLoss) MakeLoss(way.optional);
  if (way.op == &kGrad) MakeGrad(way.optional);
  RememberInputs();
}

void Good::RememberInputs() {
  inputs_.assign(tensors_.size(), std::nullopt);
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i] && !call.op->IsOutput(i)) inputs_[i] = tensors_[i]->buffer();
}

void Good::Add(DType dtype, const Dims& dims, const std::vector<double>& values) {
  tensors_.emplace_back(Tensor(dtype, dims, options_.strides(dims)));
  for (std::size_t k = 0; k < values.size(); ++k) tensors_.back()->SetValue(static_cast<std::int64_t>(k), values[k]);
  call.specs.emplace_back(Spec(*tensors_.back()));
}

std::vector<double> Good::Values(std::int64_t count, double low, double high) {
  Random random(random_++);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& x : values) x = low + (high - low) * random.Unit();
  return values;
}

void Good::MakeMaxSum(bool with_logits) {
  const auto& [N, H, V, dtype, target_dtype, start, bool_mask, strides, seed] = options_;
  Add(dtype, {N, H}, Values(N * H, -1.5, 1.5));
  Add(dtype, {V, H}, Values(V * H, -2, 2));
  // Every second token has the last class of the shard or its first one, the others any up to four beyond either end.
  std::vector<double> target = Values(N, static_cast<double>(start - 4), static_cast<double>(start + V + 4));
  for (std::size_t b = 0; b < target.size(); ++b)
    target[b] = b % 4 == 1   ? static_cast<double>(start + V - 1)
                : b % 4 == 3 ? static_cast<double>(start)
                             : std::floor(target[b]);
  Add(target_dtype, {N}, target);
  for (int k = 0; k < 3; ++k) Add(DType::kF32, {N});
  Add(DType::kU8, {(N + 7) / 8});
  Add(target_dtype, {N});
  if (with_logits)
    Add(dtype, {N, V});
  else
    AddNone();
  call.attributes = {.start = start, .end = start + V};
}

void Good::MakeLoss(bool with_softmax) {
  const std::int64_t N = options_.tokens, V = options_.classes;
  Add(DType::kF32, {N}, Values(N, 1, 3));
  Add(DType::kF32, {N}, Values(N, 1, 90));
  Add(DType::kF32, {N}, Values(N, -6, 0));
  AddNone(), AddNone();
  if (with_softmax) {
    Add(options_.dtype, {N, V}, Values(N * V, -5, 3));
  } else {
    AddNone();
  }
  Add(DType::kF32, {N});
  if (with_softmax)
    Add(DType::kF32, {N, V});
  else
    AddNone();
}

void Good::MakeGrad(bool with_softmax) {
  const auto& [N, H, V, dtype, target_dtype, start, bool_mask, strides, seed] = options_;
  Add(DType::kF32, {N}, Values(N, -2, 2));
  Add(dtype, {N, H}, Values(N * H, -1.5, 1.5));
  Add(dtype, {V, H}, Values(V * H, -2, 2));
  // Every third token is elsewhere, and its maskedTarget is one that nobody may read.
  std::vector<std::int64_t> row(static_cast<std::size_t>(N));
  std::vector<double> masked_target, flags;
  const std::vector<double> any = Values(N, 0, static_cast<double>(V));
  for (std::size_t b = 0; b < row.size(); ++b) {
    row[b] = b % 3 == 2 ? -1 : b % 3 == 0 ? V - 1 : static_cast<std::int64_t>(any[b]);
    masked_target.push_back(row[b] < 0 ? 1e6 : static_cast<double>(row[b]));
    flags.push_back(row[b] < 0 ? 7 : 0);
  }
  if (bool_mask) {
    Add(DType::kU8, {N}, flags);
    call.specs.back()->dtype = ACL_BOOL;
  } else {
    // Longer than it has to be, with one bit beyond the tokens 0.
    std::vector<std::uint8_t> bytes = MaskBytes(row);
    if (N % 8 != 0) bytes.back() = static_cast<std::uint8_t>(bytes.back() & 0x7F);
    bytes.push_back(0x5A);
    Add(DType::kU8, {static_cast<std::int64_t>(bytes.size())}, {bytes.begin(), bytes.end()});
  }
  Add(target_dtype, {N}, masked_target);
  if (with_softmax) {
    AddNone(), AddNone();
    Add(DType::kF32, {N, V}, Values(N * V, 0, 1.5 / static_cast<double>(V)));
  } else {
    // Of more classes than this shard has, one of them with a larger logit: the rest of the sum is from 1 to 3.
    const Statistics shard = DefineStatistics(*tensors_[1], *tensors_[2], *tensors_[4], 0, V);
    std::vector<double> max = shard.max.value, sum = Values(N, 1, 3);
    for (std::size_t b = 0; b < max.size(); ++b) {
      max[b] += .5;
      sum[b] += std::exp(-.5) * shard.sum_exp.value[b];
    }
    Add(DType::kF32, {N}, max);
    Add(DType::kF32, {N}, sum);
    AddNone();
  }
  Add(dtype, {N, H});
  Add(dtype, {V, H});
}

void Good::Clear() {
  const std::vector<std::byte> nan(8, std::byte{0xFF});
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i] && call.op->IsOutput(i))
      for (std::int64_t k = 0; k < tensors_[i]->numel(); ++k) tensors_[i]->SetBytes(k, nan.data());
}

std::vector<std::vector<std::byte>> Good::Results() const {
  std::vector<std::vector<std::byte>> results;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i] && call.op->IsOutput(i)) results.push_back(tensors_[i]->Bytes());
  return results;
}

void Good::ExpectUntouched() const {
  for (const auto& bytes : Results()) EXPECT_THAT(bytes, ::testing::Each(std::byte{0xFF})) << call.op->name;
}

void Good::ExpectRight() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i]) continue;
    EXPECT_TRUE(tensors_[i]->GapsUntouched()) << call.op->tensors[i];
    if (inputs_[i]) {
      EXPECT_TRUE(*inputs_[i] == tensors_[i]->buffer()) << call.op->tensors[i] << " was written";
    }
  }
  if (call.op == &kMaxSum) ExpectMaxSumRight();
  if (call.op == &kLoss) ExpectLossRight();
  if (call.op == &kGrad) ExpectGradRight();
}

void Good::ExpectMaxSumRight() {
  Good& t = *this;
  const Statistics want =
      DefineStatistics(t["input"], t["weight"], t["target"], call.attributes.start, call.attributes.end);
  EXPECT_TRUE(Within(t["logitsMaxLocalOut"], want.max));
  EXPECT_TRUE(Within(t["sumExpLogitsLocalOut"], want.sum_exp));
  EXPECT_TRUE(Within(t["predictedLogitsLocalOut"], want.predicted));
  for (std::int64_t b = 0; b < options_.tokens; ++b) {
    const std::int64_t row = want.row[static_cast<std::size_t>(b)];
    EXPECT_EQ(Integer(t["maskedTargetOut"], b), std::max(row, std::int64_t{0})) << b;
    if (row < 0) {
      EXPECT_EQ(t["predictedLogitsLocalOut"].Value(b), 0) << b;
    }
  }
  const std::vector<std::uint8_t> mask = MaskBytes(want.row);
  for (std::size_t k = 0; k < mask.size(); ++k)
    EXPECT_EQ(t["targetMaskOut"].Get<std::uint8_t>(static_cast<std::int64_t>(k)), mask[k]) << k;
  if (optional_) {
    EXPECT_TRUE(Within(t["vocabParallelLogitsOutOptional"], want.logits));
  }
}

void Good::ExpectLossRight() {
  Good& t = *this;
  EXPECT_TRUE(Within(t["lossOut"], DefineLoss(t["sumExpLogits"], t["predictedLogits"])));
  if (!optional_) return;
  const Bounded logits = Exactly(t["vocabParallelLogitsOptional"]);
  EXPECT_TRUE(Within(t["softMaxOutOptional"], DefineSoftmax(logits, t["logitsMax"], t["sumExpLogits"])));
}

void Good::ExpectGradRight() {
  Good& t = *this;
  std::vector<std::int64_t> row;
  for (std::int64_t b = 0; b < options_.tokens; ++b) {
    const bool elsewhere = options_.bool_mask ? t["targetMask"].Get<std::uint8_t>(b) != 0
                                              : (t["targetMask"].Get<std::uint8_t>(b / 8) >> b % 8 & 1) != 0;
    row.push_back(elsewhere ? -1 : Integer(t["maskedTarget"], b));
  }
  const Bounded p = optional_
                        ? Exactly(t["softmaxOptional"])
                        : DefineProbability(t["input"], t["weight"], t["logitsMaxOptional"], t["sumExpLogitsOptional"]);
  const Gradients want = DefineGradients(t["grad"], t["input"], t["weight"], row, p);
  EXPECT_TRUE(Within(t["inputGradOut"], want.input));
  EXPECT_TRUE(Within(t["weightGradOut"], want.weight));
}

void Good::ExpectRefused(aclnnStatus code, const std::string& sentence) const {
  const Outcome outcome = call.Run();
  EXPECT_EQ(outcome.phase1, code) << call.op->name << " wants " << sentence;
  EXPECT_THAT(outcome.message, ::testing::StartsWith(sentence)) << call.op->name;
  EXPECT_EQ(outcome.workspace_size, 0u);
  ExpectUntouched();
}

void Good::ExpectBadData(const std::string& sentence) const {
  const Outcome outcome = call.Run();
  EXPECT_EQ(outcome.phase1, ACLNN_SUCCESS) << outcome.message;
  EXPECT_EQ(outcome.phase2, ACLNN_ERR_PARAM_INVALID) << call.op->name << " wants " << sentence;
  EXPECT_EQ(outcome.message, sentence) << call.op->name;
  ExpectUntouched();
}

}  // namespace onehot::test::fused
