#include "aclnn/meta.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "aclnn/error.h"
#include "aclnn/guard.h"
#include "aclnn/handle_table.h"
#include "aclnn/tensor.h"

namespace onehot::aclnn {
namespace {

struct Scalar {
  aclDataType dtype = ACL_DT_UNDEFINED;
  std::array<std::byte, 16> value{};  // COMPLEX128 is the widest
};
using ScalarTable = HandleTable<Scalar, HandleKind::kScalar>;
using IntArrayTable = HandleTable<std::vector<std::int64_t>, HandleKind::kIntArray>;
using FloatArrayTable = HandleTable<std::vector<float>, HandleKind::kFloatArray>;
// Not vector<bool>, which is not a vector of bool.
using BoolArrayTable = HandleTable<std::vector<char>, HandleKind::kBoolArray>;
using TensorListTable = HandleTable<std::vector<const void*>, HandleKind::kTensorList>;
using ScalarListTable = HandleTable<std::vector<const void*>, HandleKind::kScalarList>;

template <class Handle, class Table, class T>
Handle* CreateArray(Table& table, const T* value, std::uint64_t size) noexcept {
  return GuardHandle([&]() -> Handle* {
    if (value == nullptr && size > 0) {
      FailNull("value");
      return nullptr;
    }
    return static_cast<Handle*>(table.Add({value, value + size}));
  });
}

// Members must be live or null.
template <class Handle, class Members, class Table, class Member>
Handle* CreateList(Table& table, const Member* const* value, std::uint64_t size, const char* member_type) noexcept {
  return GuardHandle([&]() -> Handle* {
    if (value == nullptr && size > 0) {
      FailNull("value");
      return nullptr;
    }
    for (std::uint64_t i = 0; i < size; ++i) {
      if (value[i] != nullptr && !Members::Instance().IsLive(value[i])) {
        FailNotLive(fmt::format("value[{}]", i).c_str(), member_type);
        return nullptr;
      }
    }
    return static_cast<Handle*>(table.Add(std::vector<const void*>(value, value + size)));
  });
}

template <class Table>
aclnnStatus Destroy(Table& table, const void* handle, const char* argument, const char* type) noexcept {
  return Guard([&]() -> aclnnStatus {
    if (handle == nullptr) return FailNull(argument);
    return table.Take(handle) ? ACLNN_SUCCESS : FailNotLive(argument, type);
  });
}

// Destroys the members that are still live as well.
template <class Members, class Table>
aclnnStatus DestroyList(Table& table, const void* handle, const char* type) noexcept {
  return Guard([&]() -> aclnnStatus {
    if (handle == nullptr) return FailNull("array");
    const auto members = table.Take(handle);
    if (!members) return FailNotLive("array", type);
    for (const void* member : *members) Members::Instance().Take(member);
    return ACLNN_SUCCESS;
  });
}

template <class Table>
aclnnStatus GetSize(Table& table, const void* handle, std::uint64_t* size, const char* argument,
                    const char* type) noexcept {
  return Guard([&]() -> aclnnStatus {
    if (handle == nullptr) return FailNull(argument);
    if (size == nullptr) return FailNull("size");
    return table.With(handle, [&](const auto& array) { *size = array.size(); }) ? ACLNN_SUCCESS
                                                                                : FailNotLive(argument, type);
  });
}

}  // namespace

bool IsLive(const aclTensorList* list) {
  return TensorListTable::Instance().IsLive(list);
}

}  // namespace onehot::aclnn

using namespace onehot::aclnn;

extern "C" {

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  return GuardHandle([&]() -> aclScalar* {
    const std::size_t size = aclDataTypeSize(dataType);
    Scalar scalar{dataType};
    if (value == nullptr) {
      FailNull("value");
      return nullptr;
    }
    if (size == 0 || size > scalar.value.size()) {
      NoteError(fmt::format("dataType: must be a type of whole bytes, is {}", Spell(dataType)));
      return nullptr;
    }
    std::memcpy(scalar.value.data(), value, size);
    return static_cast<aclScalar*>(ScalarTable::Instance().Add(scalar));
  });
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  return CreateArray<aclIntArray>(IntArrayTable::Instance(), value, size);
}

aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  return CreateArray<aclFloatArray>(FloatArrayTable::Instance(), value, size);
}

aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  return CreateArray<aclBoolArray>(BoolArrayTable::Instance(), value, size);
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  return CreateList<aclTensorList, TensorTable>(TensorListTable::Instance(), value, size, "aclTensor");
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  return CreateList<aclScalarList, ScalarTable>(ScalarListTable::Instance(), value, size, "aclScalar");
}

aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
  return Destroy(ScalarTable::Instance(), scalar, "scalar", "aclScalar");
}

aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
  return Destroy(IntArrayTable::Instance(), array, "array", "aclIntArray");
}

aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) {
  return Destroy(FloatArrayTable::Instance(), array, "array", "aclFloatArray");
}

aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) {
  return Destroy(BoolArrayTable::Instance(), array, "array", "aclBoolArray");
}

aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
  return DestroyList<TensorTable>(TensorListTable::Instance(), array, "aclTensorList");
}

aclnnStatus aclDestroyScalarList(const aclScalarList* array) {
  return DestroyList<ScalarTable>(ScalarListTable::Instance(), array, "aclScalarList");
}

aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
  return GetSize(IntArrayTable::Instance(), array, size, "array", "aclIntArray");
}

aclnnStatus aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size) {
  return GetSize(FloatArrayTable::Instance(), array, size, "array", "aclFloatArray");
}

aclnnStatus aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size) {
  return GetSize(BoolArrayTable::Instance(), array, size, "array", "aclBoolArray");
}

aclnnStatus aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size) {
  return GetSize(TensorListTable::Instance(), tensorList, size, "tensorList", "aclTensorList");
}

aclnnStatus aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size) {
  return GetSize(ScalarListTable::Instance(), scalarList, size, "scalarList", "aclScalarList");
}

aclnnStatus aclnnInit(const char*) {
  return ACLNN_SUCCESS;
}

aclnnStatus aclnnFinalize(void) {
  return ACLNN_SUCCESS;
}

// Clients of this interface refuse to work without these three, in no public header: a device's pool of host memory per
// thread. There is none here.
ACL_FUNC_VISIBILITY int InitHugeMemThreadLocal(void*, bool) {
  return 0;
}
ACL_FUNC_VISIBILITY void UnInitHugeMemThreadLocal(void*, bool) {}
ACL_FUNC_VISIBILITY void ReleaseHugeMem(void*, bool) {}

}  // extern "C"
