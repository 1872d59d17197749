#include "aclnnop/aclnn_embedding_dense_backward.h"

#include <fmt/format.h>

#include "aclnn/operator.h"
#include "onehot/embedding.h"

namespace onehot::aclnn {
namespace {

constexpr Operator kOperator{"aclnnEmbeddingDenseBackward", kAllProducts};

constexpr aclDataType kGradTypes[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
constexpr aclDataType kIndexTypes[] = {ACL_INT64, ACL_INT32,  ACL_INT16, ACL_INT8,   ACL_UINT8,
                                       ACL_BOOL,  ACL_DOUBLE, ACL_FLOAT, ACL_FLOAT16};

// The widest row that Atlas training products scale by frequency (contract 1.4 and 7.32): their scratch memory of
// 180192 bytes holds the counts of a core's share of the rows, and 20 (INT64 indices) or 36 bytes for each column.
std::int64_t WidestScaledRow(std::int64_t num_weights, aclDataType index_type) {
  constexpr std::int64_t kBytes = 180192, kCores = 32;
  const bool wide = index_type == ACL_INT64;
  const std::int64_t counts = num_weights / kCores + num_weights % kCores;
  const std::int64_t limit = kBytes - (wide ? 8 : 4) * counts;  // columns * bytes must be below this
  return limit > 0 ? (limit - 1) / (wide ? 20 : 36) : -1;
}

struct Attributes {
  std::uint64_t num_weights, padding_idx;
  bool scale_grad_by_freq;
};

Result<Plan> MakePlan(Arguments<3> arguments, const Attributes& attributes, Product product) {
  const Argument &grad = arguments[0], &indices = arguments[1], &out = arguments[2];
  if (Status bad = CheckDType(grad, kGradTypes, product); !bad.ok()) return bad;
  if (Status bad = CheckDType(indices, kIndexTypes, product); !bad.ok()) return bad;
  if (Status bad = CheckSameDType(out, grad); !bad.ok()) return bad;
  if (Status bad = CheckFormats(arguments); !bad.ok()) return bad;
  // One position without an axis of its own has a gradient without one (contract 7.19).
  if (Status bad = CheckRank(grad, indices.rank == 0 ? 1 : 2, 8); !bad.ok()) return bad;
  if (Status bad = CheckRank(indices, 0, 8); !bad.ok()) return bad;
  if (Status bad = CheckRank(out, 2, 2); !bad.ok()) return bad;

  const std::int64_t rows = out.layout.dim(0), width = grad.layout.dim(-1);
  if (static_cast<std::uint64_t>(rows) != attributes.num_weights)
    return Status::Error(Code::kBadShape,
                         fmt::format("out: must have numWeights = {} rows, has {}", attributes.num_weights, rows));
  if (attributes.scale_grad_by_freq && product == Product::kAscend910A) {
    if (const std::int64_t widest = WidestScaledRow(rows, indices.dtype); width > widest)
      return Status::Error(
          Code::kBadShape,
          fmt::format("grad: last axis must be at most {} with scaleGradByFreq, numWeights {} and these "
                      "indices on {}, is {}",
                      widest, rows, Name(product), width));
  }

  EmbeddingBackward problem{.grad = grad.view(), .indices = indices.view(), .out = out.view()};
  if (attributes.padding_idx < attributes.num_weights)  // else none: clients say so in several ways (contract 7.10)
    problem.padding_idx = static_cast<std::int64_t>(attributes.padding_idx);
  problem.scale_grad_by_freq = attributes.scale_grad_by_freq;
  return Prepare(problem);
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclnnStatus aclnnEmbeddingDenseBackwardGetWorkspaceSize(const aclTensor* grad, const aclTensor* indices,
                                                        uint64_t numWeights, uint64_t paddingIdx, bool scaleGradByFreq,
                                                        const aclTensor* out, uint64_t* workspaceSize,
                                                        aclOpExecutor** executor) {
  const Attributes attributes{numWeights, paddingIdx, scaleGradByFreq};
  return GetWorkspaceSize(
      kOperator, {Input("grad", grad), Input("indices", indices), Output("out", out)}, workspaceSize, executor,
      [=](Arguments<3> arguments, Product product) { return MakePlan(arguments, attributes, product); });
}

aclnnStatus aclnnEmbeddingDenseBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                        aclrtStream stream) {
  return Launch(kOperator, workspace, workspaceSize, executor, stream);
}
