// The three fused operators of the C face, and a call of each that is right, to be spoiled in one place.
#ifndef TESTS_ACLNN_FUSED_CALL_H_
#define TESTS_ACLNN_FUSED_CALL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "acl/acl.h"
#include "tests/aclnn/fused_oracle.h"
#include "tests/aclnn/operator_call.h"
#include "tests/native/tensor.h"

namespace onehot::test::fused {

struct Attributes {
  std::int64_t start = 0, end = 0;
  float smoothing = 0;
};

// One of the three, its tensors in the order of the prototype.
struct FusedOperator {
  using Handles = std::vector<aclTensor*>;

  const char* name;
  std::vector<std::string_view> tensors;
  std::size_t outputs;  // the last so many tensors
  aclnnStatus (*phase1)(const Handles&, const Attributes&, std::uint64_t*, aclOpExecutor**);
  aclnnStatus (*phase2)(void*, std::uint64_t, aclOpExecutor*, aclrtStream);

  std::size_t IndexOf(std::string_view tensor) const;
  bool IsOutput(std::size_t index) const { return index + outputs >= tensors.size(); }
};

extern const FusedOperator kMaxSum, kLoss, kGrad;

// An operator in one of its two ways: with its optional tensors or without. Those of the gradient are the softmax instead
// of maximum and sum.
struct Way {
  const FusedOperator* op;
  bool optional;
};
inline const Way kWays[] = {{&kMaxSum, false}, {&kMaxSum, true}, {&kLoss, false},
                            {&kLoss, true},    {&kGrad, false},  {&kGrad, true}};

aclDataType AclType(DType dtype);

// As a client describes it.
TensorSpec Spec(Tensor& tensor);

struct FusedCall {
  const FusedOperator* op;
  std::vector<std::optional<TensorSpec>> specs;
  Attributes attributes = {};

  TensorSpec& operator[](std::string_view tensor) { return *specs[op->IndexOf(tensor)]; }

  // Live tensors for one call.
  struct Tensors {
    FusedOperator::Handles handles;
    explicit Tensors(const FusedCall& call) {
      for (const auto& spec : call.specs) handles.push_back(spec ? spec->Create() : nullptr);
    }
    ~Tensors() {
      for (aclTensor* handle : handles)
        if (handle != nullptr) aclDestroyTensor(handle);
    }
    Tensors(const Tensors&) = delete;
    Tensors& operator=(const Tensors&) = delete;
  };

  Outcome Run() const;
  void ExpectDone() const;
};

// Phase 1 done, phase 2 to come. Tensors are destroyed in between.
struct Prepared {
  const FusedOperator& op;
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  std::vector<std::byte> workspace;  // full of NaN

  explicit Prepared(const FusedCall& call);
  aclnnStatus Launch(aclrtStream stream = nullptr) { return op.phase2(workspace.data(), size, executor, stream); }
};

// Sizes that are odd, and more tokens than a byte of the mask has bits, but not a multiple of them.
struct Options {
  std::int64_t tokens = 11, columns = 5, classes = 131;
  DType dtype = DType::kBF16, target_dtype = DType::kI64;
  std::int64_t start = 7;  // the shard is [start, start + classes)
  bool bool_mask = false;
  Dims (*strides)(const Dims& dims) = DenseStrides;  // of all tensors
  std::uint64_t seed = 1;
};

// A call of operator `way` on data of the trade: logits of some units, targets skewed, a part of them elsewhere.
class Good {
 public:
  explicit Good(const Way& way, const Options& options = {});
  Good(const Good&) = delete;
  Good& operator=(const Good&) = delete;

  FusedCall call;

  Tensor& operator[](std::string_view tensor) { return *tensors_[call.op->IndexOf(tensor)]; }
  bool Has(std::string_view tensor) const { return tensors_[call.op->IndexOf(tensor)].has_value(); }

  void Clear();  // outputs as before the call
  void ExpectUntouched() const;
  void ExpectDone() {
    RememberInputs();
    call.ExpectDone();
  }
  // The outputs are what the headers say of the inputs. These are as they were, as is all memory around tensors.
  void ExpectRight();
  void ExpectDoneAndRight() {
    ExpectDone();
    ExpectRight();
  }
  // The bytes of all outputs.
  std::vector<std::vector<std::byte>> Results() const;

  // Refused by phase 1 with a sentence that starts so, and nothing written.
  void ExpectRefused(aclnnStatus code, const std::string& sentence) const;
  void ExpectInvalid(const std::string& sentence) const { ExpectRefused(ACLNN_ERR_PARAM_INVALID, sentence); }
  // Refused by phase 2 for its data with exactly this sentence, and nothing written.
  void ExpectBadData(const std::string& sentence) const;

 private:
  void Add(DType dtype, const Dims& dims, const std::vector<double>& values = {});
  void AddNone() { tensors_.emplace_back(), call.specs.emplace_back(); }
  void MakeMaxSum(bool with_logits);
  void MakeLoss(bool with_softmax);
  void MakeGrad(bool with_softmax);
  std::vector<double> Values(std::int64_t count, double low, double high);
  void RememberInputs();
  void ExpectMaxSumRight();
  void ExpectLossRight();
  void ExpectGradRight();

  const Options options_;
  const bool optional_;
  std::uint64_t random_;
  std::vector<std::optional<Tensor>> tensors_;
  std::vector<std::optional<Buffer>> inputs_;  // as they were
};

// For every operator, both ways, in both dtypes.
template <class Body>
void ForEachWay(Body&& body) {
  for (const Way& way : kWays)
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(std::string(way.op->name) + (way.optional ? " with" : " without") + " optional tensors, " +
                   std::string(Name(dtype)));
      body(way, dtype);
    }
}

// The mask that aclnnFusedLinearOnlineMaxSum writes for tokens with these rows, -1 elsewhere.
std::vector<std::uint8_t> MaskBytes(const std::vector<std::int64_t>& row);

}  // namespace onehot::test::fused

#endif  // TESTS_ACLNN_FUSED_CALL_H_
