#include "aclnnop/aclnn_embedding.h"

#include <fmt/format.h>

#include <algorithm>

#include "aclnn/operator.h"
#include "onehot/embedding.h"

namespace onehot::aclnn {
namespace {

constexpr Operator kOperator{"aclnnEmbedding", kAllProducts};

constexpr aclDataType kWeightTypes[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16,  ACL_DOUBLE, ACL_INT64,     ACL_INT32,
                                        ACL_INT16, ACL_INT8,    ACL_UINT8, ACL_BOOL,   ACL_COMPLEX64, ACL_COMPLEX128};
constexpr aclDataType kIndexTypes[] = {ACL_INT64, ACL_INT32};

Result<Plan> MakePlan(Arguments<3> arguments, Product product) {
  const Argument &weight = arguments[0], &indices = arguments[1], &out = arguments[2];
  if (Status bad = CheckDType(weight, kWeightTypes, product); !bad.ok()) return bad;
  if (Status bad = CheckDType(indices, kIndexTypes, product); !bad.ok()) return bad;
  if (Status bad = CheckSameDType(out, weight); !bad.ok()) return bad;
  if (Status bad = CheckFormats(arguments); !bad.ok()) return bad;
  if (Status bad = CheckRank(weight, 2, 2); !bad.ok()) return bad;
  if (Status bad = CheckRank(indices, 0, 7); !bad.ok()) return bad;
  if (Status bad = CheckRank(out, indices.rank + 1, indices.rank + 1); !bad.ok()) return bad;

  // The native operator takes any shape with as many rows as there are indices.
  for (int axis = 0; axis < indices.layout.rank; ++axis)
    if (out.layout.dim(axis) != indices.layout.dim(axis))
      return Status::Error(Code::kBadShape, fmt::format("out: axis {} must be as long as that of indices, {}, is {}",
                                                        axis, indices.layout.dim(axis), out.layout.dim(axis)));
  return Prepare(Embedding{.weight = weight.view(), .indices = indices.view(), .out = out.view()});
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclnnStatus aclnnEmbeddingGetWorkspaceSize(const aclTensor* weight, const aclTensor* indices, const aclTensor* out,
                                           uint64_t* workspaceSize, aclOpExecutor** executor) {
  return GetWorkspaceSize(kOperator, {Input("weight", weight), Input("indices", indices), Output("out", out)},
                          workspaceSize, executor, MakePlan);
}

aclnnStatus aclnnEmbedding(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) {
  return Launch(kOperator, workspace, workspaceSize, executor, stream);
}
