#include "aclnn/tensor.h"

#include <fmt/format.h>

#include <algorithm>

#include "aclnn/error.h"
#include "aclnn/guard.h"

namespace onehot::aclnn {

std::optional<DType> NativeDType(aclDataType dtype) {
  switch (static_cast<int>(dtype)) {
    case ACL_FLOAT:
      return DType::kF32;
    case ACL_DOUBLE:
      return DType::kF64;
    case ACL_FLOAT16:
      return DType::kF16;
    case ACL_BF16:
      return DType::kBF16;
    case ACL_INT64:
      return DType::kI64;
    case ACL_INT32:
      return DType::kI32;
    case ACL_INT16:
      return DType::kI16;
    case ACL_INT8:
      return DType::kI8;
    case ACL_UINT8:
      return DType::kU8;
    case ACL_BOOL:
      return DType::kBool;
    case ACL_COMPLEX64:
      return DType::kC64;
    case ACL_COMPLEX128:
      return DType::kC128;
    default:
      return std::nullopt;
  }
}

std::string Spell(aclDataType dtype) {
  switch (static_cast<int>(dtype)) {
    case ACL_DT_UNDEFINED:
      return "ACL_DT_UNDEFINED";
    case ACL_FLOAT:
      return "ACL_FLOAT";
    case ACL_FLOAT16:
      return "ACL_FLOAT16";
    case ACL_INT8:
      return "ACL_INT8";
    case ACL_INT32:
      return "ACL_INT32";
    case ACL_UINT8:
      return "ACL_UINT8";
    case ACL_INT16:
      return "ACL_INT16";
    case ACL_UINT16:
      return "ACL_UINT16";
    case ACL_UINT32:
      return "ACL_UINT32";
    case ACL_INT64:
      return "ACL_INT64";
    case ACL_UINT64:
      return "ACL_UINT64";
    case ACL_DOUBLE:
      return "ACL_DOUBLE";
    case ACL_BOOL:
      return "ACL_BOOL";
    case ACL_STRING:
      return "ACL_STRING";
    case ACL_COMPLEX64:
      return "ACL_COMPLEX64";
    case ACL_COMPLEX128:
      return "ACL_COMPLEX128";
    case ACL_BF16:
      return "ACL_BF16";
    default:
      return fmt::format("{}", static_cast<int>(dtype));
  }
}

std::string Spell(aclFormat format) {
  switch (static_cast<int>(format)) {
    case ACL_FORMAT_UNDEFINED:
      return "ACL_FORMAT_UNDEFINED";
    case ACL_FORMAT_NC1HWC0:
      return "ACL_FORMAT_NC1HWC0";
    case ACL_FORMAT_FRACTAL_Z:
      return "ACL_FORMAT_FRACTAL_Z";
    case ACL_FORMAT_NC1HWC0_C04:
      return "ACL_FORMAT_NC1HWC0_C04";
    case ACL_FORMAT_FRACTAL_NZ:
      return "ACL_FORMAT_FRACTAL_NZ";
    case ACL_FORMAT_NDC1HWC0:
      return "ACL_FORMAT_NDC1HWC0";
    case ACL_FRACTAL_Z_3D:
      return "ACL_FRACTAL_Z_3D";
    default:
      return fmt::format("{}", static_cast<int>(format));
  }
}

bool IsPlain(aclFormat format) {
  switch (static_cast<int>(format)) {
    case ACL_FORMAT_ND:
    case ACL_FORMAT_NC:
    case ACL_FORMAT_NCL:
    case ACL_FORMAT_NCHW:
    case ACL_FORMAT_NHWC:
    case ACL_FORMAT_HWCN:
    case ACL_FORMAT_NCDHW:
    case ACL_FORMAT_NDHWC:
      return true;
    default:
      return false;
  }
}

namespace {

aclnnStatus FailTensor() {
  return FailNotLive("tensor", "aclTensor");
}

// Appends row-major strides for the extents at the front. Wraps for absurd extents, which operators refuse by their
// size.
void AppendDenseStrides(std::vector<std::int64_t>& numbers, std::size_t rank) {
  numbers.resize(2 * rank);
  std::uint64_t stride = 1;
  for (std::size_t axis = rank; axis-- > 0;) {
    numbers[rank + axis] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(std::max(numbers[axis], std::int64_t{1}));
  }
}

// Copies the description into `tensor`, or says why it describes nothing.
aclnnStatus Describe(Tensor& tensor, const std::int64_t* view_dims, std::uint64_t rank, aclDataType dtype,
                     const std::int64_t* stride, std::int64_t offset, aclFormat format,
                     const std::int64_t* storage_dims, std::uint64_t storage_rank, void* data) {
  if (rank > 0 && view_dims == nullptr) return FailNull("viewDims");
  for (std::uint64_t axis = 0; axis < rank; ++axis)
    if (view_dims[axis] < 0)
      return FailPhase(ACLNN_ERR_PARAM_INVALID,
                       fmt::format("viewDims[{}]: must not be negative, is {}", axis, view_dims[axis]));
  for (std::uint64_t axis = 0; stride != nullptr && axis < rank; ++axis)
    if (stride[axis] < 0)
      return FailPhase(ACLNN_ERR_PARAM_INVALID,
                       fmt::format("stride[{}]: must not be negative, is {}", axis, stride[axis]));
  if (offset < 0) return FailPhase(ACLNN_ERR_PARAM_INVALID, fmt::format("offset: must not be negative, is {}", offset));

  const std::uint64_t kept = storage_dims == nullptr ? 0 : storage_rank;
  std::vector<std::int64_t> numbers;
  numbers.reserve(2 * rank + kept);
  numbers.assign(view_dims, view_dims + rank);
  if (stride != nullptr) {
    numbers.insert(numbers.end(), stride, stride + rank);
  } else {
    AppendDenseStrides(numbers, rank);
  }
  numbers.insert(numbers.end(), storage_dims, storage_dims + kept);
  tensor = {dtype, format, rank, offset, data, std::move(numbers)};
  return ACLNN_SUCCESS;
}

// Gives the client a copy of a part of the description, to be freed with delete[].
aclnnStatus CopyNumbers(const aclTensor* handle, std::int64_t** numbers, std::uint64_t* count, const char* numbers_name,
                        const char* count_name, std::span<const std::int64_t> (Tensor::*part)() const) noexcept {
  return Guard([&]() -> aclnnStatus {
    if (handle == nullptr) return FailNull("tensor");
    if (numbers == nullptr) return FailNull(numbers_name);
    if (count == nullptr) return FailNull(count_name);
    const bool live = TensorTable::Instance().With(handle, [&](const Tensor& tensor) {
      const auto source = (tensor.*part)();
      auto* const copy = new std::int64_t[source.size()];
      std::ranges::copy(source, copy);
      *numbers = copy;
      *count = source.size();
    });
    return live ? ACLNN_SUCCESS : FailTensor();
  });
}

template <class T>
aclnnStatus CopyField(const aclTensor* handle, T* result, const char* result_name, T Tensor::*field) noexcept {
  return Guard([&]() -> aclnnStatus {
    if (handle == nullptr) return FailNull("tensor");
    if (result == nullptr) return FailNull(result_name);
    return TensorTable::Instance().With(handle, [&](const Tensor& tensor) { *result = tensor.*field; }) ? ACLNN_SUCCESS
                                                                                                        : FailTensor();
  });
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

extern "C" {

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* tensorData) {
  return GuardHandle([&]() -> aclTensor* {
    Tensor tensor;
    if (Describe(tensor, viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum,
                 tensorData) != ACLNN_SUCCESS)
      return nullptr;
    return static_cast<aclTensor*>(TensorTable::Instance().Add(std::move(tensor)));
  });
}

aclnnStatus aclInitTensor(aclTensor* tensor, const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                          const int64_t* stride, int64_t offset, aclFormat format, const int64_t* storageDims,
                          uint64_t storageDimsNum, void* tensorData) {
  return Guard([&]() -> aclnnStatus {
    if (tensor == nullptr) return FailNull("tensor");
    Tensor description;
    if (const aclnnStatus bad = Describe(description, viewDims, viewDimsNum, dataType, stride, offset, format,
                                         storageDims, storageDimsNum, tensorData);
        bad != ACLNN_SUCCESS)
      return bad;
    const bool live = TensorTable::Instance().With(tensor, [&](Tensor& old) { old = std::move(description); });
    return live ? ACLNN_SUCCESS : FailTensor();
  });
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  return Guard([&]() -> aclnnStatus {
    if (tensor == nullptr) return FailNull("tensor");
    return TensorTable::Instance().Take(tensor) ? ACLNN_SUCCESS : FailTensor();
  });
}

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
  return CopyNumbers(tensor, viewDims, viewDimsNum, "viewDims", "viewDimsNum", &Tensor::dims);
}

aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue, uint64_t* stridesNum) {
  return CopyNumbers(tensor, stridesValue, stridesNum, "stridesValue", "stridesNum", &Tensor::strides);
}

aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims, uint64_t* storageDimsNum) {
  return CopyNumbers(tensor, storageDims, storageDimsNum, "storageDims", "storageDimsNum", &Tensor::storage_dims);
}

aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
  return CopyField(tensor, offset, "offset", &Tensor::offset);
}

aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
  return CopyField(tensor, format, "format", &Tensor::format);
}

aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
  return CopyField(tensor, dataType, "dataType", &Tensor::dtype);
}

}  // extern "C"
