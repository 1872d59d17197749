// What an aclTensor stands for.
#ifndef ONEHOT_ACLNN_TENSOR_H_
#define ONEHOT_ACLNN_TENSOR_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aclnn/acl_meta.h"
#include "aclnn/handle_table.h"
#include "onehot/tensor.h"

namespace onehot::aclnn {

struct Tensor {
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  std::size_t rank = 0;
  std::int64_t offset = 0;  // elements from `data` to element (0, ..., 0)
  void* data = nullptr;
  std::vector<std::int64_t> numbers;  // extents, strides, storage extents: one allocation

  std::span<const std::int64_t> dims() const { return std::span(numbers).first(rank); }
  std::span<const std::int64_t> strides() const { return std::span(numbers).subspan(rank, rank); }
  std::span<const std::int64_t> storage_dims() const { return std::span(numbers).subspan(2 * rank); }
};

using TensorTable = HandleTable<Tensor, HandleKind::kTensor>;

// The native dtype, or nothing for types that no operator computes with.
std::optional<DType> NativeDType(aclDataType dtype);

// "ACL_FLOAT", "ACL_FORMAT_ND"; the number for values without a name.
std::string Spell(aclDataType dtype);
std::string Spell(aclFormat format);

// Whether the format says nothing about how elements lie in memory.
bool IsPlain(aclFormat format);

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_TENSOR_H_
