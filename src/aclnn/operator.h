// Phase 1 of every operator. An operator's file names its tensors, checks what its document says about them, and makes
// the native plan; everything else is here:
//
//   return GetWorkspaceSize(kEmbedding, {Input("weight", weight), Input("indices", indices), Output("out", out)},
//                           workspaceSize, executor, [=](Arguments<3> arguments, Product product) -> Result<Plan>
//                           {...});  // or Result<LaunchPlan>
//
// The function gets the tensors in that order, and again after the client gave one another address; it captures the
// attributes by value. It returns an error for the first check that fails, in the order of contract 7.5: dtypes,
// formats, attributes, ranks, shapes. The product and null pointers were checked before it, the memory behind the views
// is after.
#ifndef ONEHOT_ACLNN_OPERATOR_H_
#define ONEHOT_ACLNN_OPERATOR_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "aclnn/aclnn_base.h"
#include "aclnn/executor.h"
#include "aclnn/guard.h"
#include "aclnn/product.h"
#include "onehot/plan.h"
#include "onehot/status.h"

namespace onehot::aclnn {

template <std::size_t kCount>
using Arguments = std::span<const Argument, kCount>;

struct Parameter {
  enum class Need : std::uint8_t { kRequired, kOptional, kNotRead, kRequiredNotRead };

  const char* name;
  const aclTensor* handle;
  Role role;
  Need need;
};

inline Parameter Input(const char* name, const aclTensor* handle) {
  return {name, handle, Role::kInput, Parameter::Need::kRequired};
}
inline Parameter OptionalInput(const char* name, const aclTensor* handle) {
  return {name, handle, Role::kInput, Parameter::Need::kOptional};
}
// Part of the prototype that this call does not read, whatever it is: not even its handle is looked at. Where there is
// one, its address may be changed, to no effect.
inline Parameter InputNotRead(const char* name, const aclTensor* handle = nullptr) {
  return {name, handle, Role::kInput, Parameter::Need::kNotRead};
}
// The same for a tensor that must be there: it is only compared with null.
inline Parameter RequiredInputNotRead(const char* name, const aclTensor* handle) {
  return {name, handle, Role::kInput, Parameter::Need::kRequiredNotRead};
}
inline Parameter Output(const char* name, const aclTensor* handle) {
  return {name, handle, Role::kOutput, Parameter::Need::kRequired};
}
inline Parameter OptionalOutput(const char* name, const aclTensor* handle) {
  return {name, handle, Role::kOutput, Parameter::Need::kOptional};
}

// ---- Checks. Each passes tensors that are not given.

// BFLOAT16 in the list is dropped where the product has none.
Status CheckDType(const Argument& argument, std::span<const aclDataType> allowed, Product product);
Status CheckSameDType(const Argument& argument, const Argument& other);
Status CheckFormats(std::span<const Argument> arguments);
Status CheckRank(const Argument& argument, std::size_t least, std::size_t most);
// After CheckRank. `whose` says where the extents come from, "that of self".
Status CheckShape(const Argument& argument, const TensorLayout& shape, std::string_view whose);
Status CheckOneElement(const Argument& argument);

// The native operator's sentence about a tensor, with the tensor's name in the prototype.
struct OtherName {
  std::string_view native, prototype;
};
Status WithPrototypeNames(const Status& status, std::initializer_list<OtherName> names);

// ---- Phase 1.

// The product of this call, if it offers the operator; else the code and text of the refusal are already noted.
aclnnStatus FindProduct(const Operator& op, Product* product);

// Null pointers and dead handles; fills the arguments of the executor; binds it; gives its handle out.
aclnnStatus Finish(std::span<const Parameter> parameters, std::shared_ptr<Executor> made, std::uint64_t* workspace_size,
                   aclOpExecutor** executor);

template <std::size_t kCount, class MakePlanFunction>
aclnnStatus GetWorkspaceSize(const Operator& op, const Parameter (&parameters)[kCount], std::uint64_t* workspace_size,
                             aclOpExecutor** executor, MakePlanFunction make_plan) noexcept {
  if (workspace_size != nullptr) *workspace_size = 0;
  if (executor != nullptr) *executor = nullptr;
  return Guard([&]() -> aclnnStatus {
    Product product{};
    if (const aclnnStatus bad = FindProduct(op, &product); bad != ACLNN_SUCCESS) return bad;
    return Finish(parameters, std::make_shared<ExecutorOf<MakePlanFunction, kCount>>(op, product, make_plan),
                  workspace_size, executor);
  });
}

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_OPERATOR_H_
