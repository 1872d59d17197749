// Tensors, scalars, arrays and lists as clients make, ask and destroy them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"
#include "tests/aclnn/operator_call.h"

extern "C" int InitHugeMemThreadLocal(void*, bool);
extern "C" void UnInitHugeMemThreadLocal(void*, bool);
extern "C" void ReleaseHugeMem(void*, bool);

namespace onehot::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using NumbersGetter = aclnnStatus (*)(const aclTensor*, std::int64_t**, std::uint64_t*);

// Frees the array as MindSpore does.
std::vector<std::int64_t> Numbers(NumbersGetter get, const aclTensor* tensor) {
  std::int64_t* numbers = nullptr;
  std::uint64_t count = 99;
  EXPECT_EQ(get(tensor, &numbers, &count), ACLNN_SUCCESS);
  EXPECT_NE(numbers, nullptr);
  const std::vector<std::int64_t> copy(numbers, numbers + count);
  delete[] numbers;
  return copy;
}

TEST(Codes, AreTheInterfaces) {
  static_assert(ACLNN_SUCCESS == 0 && OK == 0);
  static_assert(ACLNN_ERR_PARAM_NULLPTR == 161001 && ACLNN_ERR_PARAM_INVALID == 161002);
  static_assert(ACLNN_ERR_RUNTIME_ERROR == 361001 && ACLNN_ERR_INNER == 561000);
  static_assert(ACLNN_ERR_INNER_CREATE_EXECUTOR == 561101 && ACLNN_ERR_INNER_NULLPTR == 561103);
  static_assert(ACLNN_ERR_INNER_KEY_CONFLICT == 561105 && ACLNN_ERR_INNER_KEY_CONFILICT == 561105);
  static_assert(ACLNN_ERR_INNER_LOAD_JSON_FAILED == 561108);
  static_assert(sizeof(aclnnStatus) == 4);
}

TEST(Library, InitAndFinalizeMayBeRepeated) {
  for (int i = 0; i < 2; ++i) EXPECT_EQ(aclnnInit(nullptr), ACLNN_SUCCESS);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(aclnnFinalize(), ACLNN_SUCCESS);
}

TEST(Library, HasTheHostMemoryPoolThatClientsAskFor) {
  EXPECT_EQ(InitHugeMemThreadLocal(nullptr, false), 0);
  ReleaseHugeMem(nullptr, false);
  UnInitHugeMemThreadLocal(nullptr, false);
}

TEST(Tensor, TellsWhatItWasMadeFrom) {
  float data[100];
  const std::int64_t dims[] = {2, 3}, strides[] = {10, 2}, storage[] = {100};
  aclTensor* tensor = aclCreateTensor(dims, 2, ACL_BF16, strides, 7, ACL_FORMAT_NCHW, storage, 1, data);
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(Numbers(aclGetViewShape, tensor), ElementsAre(2, 3));
  EXPECT_THAT(Numbers(aclGetViewStrides, tensor), ElementsAre(10, 2));
  EXPECT_THAT(Numbers(aclGetStorageShape, tensor), ElementsAre(100));
  std::int64_t offset = 0;
  aclFormat format{};
  aclDataType dtype{};
  EXPECT_EQ(aclGetViewOffset(tensor, &offset), ACLNN_SUCCESS);
  EXPECT_EQ(aclGetFormat(tensor, &format), ACLNN_SUCCESS);
  EXPECT_EQ(aclGetDataType(tensor, &dtype), ACLNN_SUCCESS);
  EXPECT_EQ(offset, 7);
  EXPECT_EQ(format, ACL_FORMAT_NCHW);
  EXPECT_EQ(dtype, ACL_BF16);
  EXPECT_EQ(aclDestroyTensor(tensor), ACLNN_SUCCESS);
}

TEST(Tensor, WithoutStridesIsDense) {
  const std::int64_t dims[] = {4, 0, 3, 5};
  aclTensor* tensor = aclCreateTensor(dims, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 4, nullptr);
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(Numbers(aclGetViewStrides, tensor), ElementsAre(15, 15, 5, 1));
  aclDestroyTensor(tensor);
}

// MindSpore passes strides {1} with no dimensions, Paddle a storage of one dimension behind a null pointer.
TEST(Tensor, OfNoDimensionsIsOneElement) {
  float data = 0;
  const std::int64_t one[] = {1};
  for (const std::int64_t* strides : {static_cast<const std::int64_t*>(nullptr), one}) {
    aclTensor* tensor = aclCreateTensor(nullptr, 0, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, nullptr, 1, &data);
    ASSERT_NE(tensor, nullptr);
    EXPECT_THAT(Numbers(aclGetViewShape, tensor), IsEmpty());
    EXPECT_THAT(Numbers(aclGetViewStrides, tensor), IsEmpty());
    EXPECT_THAT(Numbers(aclGetStorageShape, tensor), IsEmpty());
    aclDestroyTensor(tensor);
  }
}

TEST(Tensor, KeepsAStorageShapeThatMakesNoSense) {
  const std::int64_t dims[] = {2}, storage[] = {-5, 0};
  aclTensor* tensor = aclCreateTensor(dims, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, storage, 2, nullptr);
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(Numbers(aclGetStorageShape, tensor), ElementsAre(-5, 0));
  aclDestroyTensor(tensor);
}

TEST(Tensor, IsRefusedWhereItDescribesNothing) {
  const std::int64_t good[] = {2, 3}, bad[] = {2, -3};
  const auto create = [&](const std::int64_t* dims, const std::int64_t* strides, std::int64_t offset) {
    return aclCreateTensor(dims, 2, ACL_FLOAT, strides, offset, ACL_FORMAT_ND, nullptr, 0, nullptr);
  };
  TakeMessage();
  EXPECT_EQ(create(nullptr, nullptr, 0), nullptr);
  EXPECT_THAT(TakeMessage(), HasSubstr("viewDims"));
  EXPECT_EQ(create(bad, nullptr, 0), nullptr);
  EXPECT_THAT(TakeMessage(), HasSubstr("viewDims[1]: must not be negative, is -3"));
  EXPECT_EQ(create(good, bad, 0), nullptr);
  EXPECT_THAT(TakeMessage(), HasSubstr("stride[1]: must not be negative, is -3"));
  EXPECT_EQ(create(good, nullptr, -1), nullptr);
  EXPECT_THAT(TakeMessage(), HasSubstr("offset: must not be negative, is -1"));
}

TEST(Tensor, CanBeInitialisedAgain) {
  const std::int64_t dims[] = {2, 3}, other[] = {4}, bad[] = {-4};
  aclTensor* tensor = aclCreateTensor(dims, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 2, nullptr);
  EXPECT_EQ(aclInitTensor(tensor, bad, 1, ACL_INT64, nullptr, 0, ACL_FORMAT_ND, bad, 1, nullptr),
            ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(Numbers(aclGetViewShape, tensor), ElementsAre(2, 3));
  EXPECT_EQ(aclInitTensor(tensor, other, 1, ACL_INT64, nullptr, 0, ACL_FORMAT_ND, other, 1, nullptr), ACLNN_SUCCESS);
  EXPECT_THAT(Numbers(aclGetViewShape, tensor), ElementsAre(4));
  aclDataType dtype{};
  EXPECT_EQ(aclGetDataType(tensor, &dtype), ACLNN_SUCCESS);
  EXPECT_EQ(dtype, ACL_INT64);
  EXPECT_EQ(aclInitTensor(tensor, nullptr, 1, ACL_INT64, nullptr, 0, ACL_FORMAT_ND, other, 1, nullptr),
            ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclInitTensor(nullptr, other, 1, ACL_INT64, nullptr, 0, ACL_FORMAT_ND, other, 1, nullptr),
            ACLNN_ERR_PARAM_NULLPTR);
  aclDestroyTensor(tensor);
  EXPECT_EQ(aclInitTensor(tensor, other, 1, ACL_INT64, nullptr, 0, ACL_FORMAT_ND, other, 1, nullptr),
            ACLNN_ERR_PARAM_INVALID);
}

// A place in the table is taken again by the next tensor; the old handle must not become a name of it.
TEST(Tensor, HandleStaysInvalidAfterItsPlaceIsTakenAgain) {
  std::vector<aclTensor*> old;
  for (int i = 0; i < 100; ++i) {
    aclTensor* tensor = TensorSpec{{i + 1}}.Create();
    for (aclTensor* destroyed : old) EXPECT_NE(destroyed, tensor);
    old.push_back(tensor);
    EXPECT_EQ(aclDestroyTensor(tensor), ACLNN_SUCCESS);
  }
  aclTensor* last = TensorSpec{{7}}.Create();
  for (aclTensor* destroyed : old) EXPECT_EQ(aclDestroyTensor(destroyed), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(Numbers(aclGetViewShape, last), ElementsAre(7));
  aclDestroyTensor(last);
}

TEST(Tensor, GettersRefuseDeadHandlesAndNulls) {
  aclTensor* dead = TensorSpec{{2}}.Create();
  aclDestroyTensor(dead);
  aclTensor* live = TensorSpec{{2}}.Create();
  int foreign = 0;
  std::int64_t* numbers = nullptr;
  std::uint64_t count = 42;
  for (NumbersGetter get : {aclGetViewShape, aclGetViewStrides, aclGetStorageShape}) {
    EXPECT_EQ(get(dead, &numbers, &count), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(get(reinterpret_cast<aclTensor*>(&foreign), &numbers, &count), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(get(nullptr, &numbers, &count), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(get(live, nullptr, &count), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(get(live, &numbers, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  }
  EXPECT_EQ(numbers, nullptr);
  EXPECT_EQ(count, 42u);
  std::int64_t offset = 0;
  aclFormat format{};
  aclDataType dtype{};
  EXPECT_EQ(aclGetViewOffset(dead, &offset), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclGetViewOffset(nullptr, &offset), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetViewOffset(live, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetFormat(dead, &format), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclGetFormat(live, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetDataType(dead, &dtype), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclGetDataType(live, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  aclDestroyTensor(live);
}

// One of each kind: how it is made and destroyed.
struct Kind {
  const char* name;
  std::function<void*()> create;
  std::function<aclnnStatus(const void*)> destroy;
};

std::vector<Kind> Kinds() {
  const auto tensor = [] { return TensorSpec{{2}}.Create(); };
  const auto scalar = [] {
    float value = 1;
    return aclCreateScalar(&value, ACL_FLOAT);
  };
  const auto destroyer = [](auto* destroy) {
    return [destroy](const void* handle) {
      return [&]<class H>(aclnnStatus (*f)(const H*)) { return f(static_cast<const H*>(handle)); }(destroy);
    };
  };
  return {{"aclTensor", tensor, destroyer(&aclDestroyTensor)},
          {"aclScalar", scalar, destroyer(&aclDestroyScalar)},
          {"aclIntArray",
           [] {
             const std::int64_t values[] = {1, 2, 3};
             return aclCreateIntArray(values, 3);
           },
           destroyer(&aclDestroyIntArray)},
          {"aclFloatArray",
           [] {
             const float values[] = {1, 2, 3};
             return aclCreateFloatArray(values, 3);
           },
           destroyer(&aclDestroyFloatArray)},
          {"aclBoolArray",
           [] {
             const bool values[] = {true, false, true};
             return aclCreateBoolArray(values, 3);
           },
           destroyer(&aclDestroyBoolArray)},
          {"aclTensorList",
           [=] {
             const aclTensor* members[] = {tensor(), nullptr, tensor()};
             return aclCreateTensorList(members, 3);
           },
           destroyer(&aclDestroyTensorList)},
          {"aclScalarList",
           [=] {
             const aclScalar* members[] = {scalar(), nullptr, scalar()};
             return aclCreateScalarList(members, 3);
           },
           destroyer(&aclDestroyScalarList)}};
}

TEST(Handles, OfEveryKindAreDestroyedOnce) {
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.name);
    void* handle = kind.create();
    ASSERT_NE(handle, nullptr);
    EXPECT_EQ(kind.destroy(handle), ACLNN_SUCCESS);
    TakeMessage();
    EXPECT_EQ(kind.destroy(handle), ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(TakeMessage(), HasSubstr(kind.name));
    EXPECT_EQ(kind.destroy(nullptr), ACLNN_ERR_PARAM_NULLPTR);
    int foreign = 0;
    EXPECT_EQ(kind.destroy(&foreign), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(kind.destroy(reinterpret_cast<void*>(~std::uintptr_t{0})), ACLNN_ERR_PARAM_INVALID);
  }
}

// In a fresh process the first of each kind has the same place in its table.
TEST(Handles, OfOneKindAreNotOfAnother) {
  const std::vector<Kind> kinds = Kinds();
  std::vector<void*> handles;
  for (const Kind& kind : kinds) handles.push_back(kind.create());
  for (std::size_t made = 0; made < kinds.size(); ++made) {
    for (std::size_t other = 0; other < kinds.size(); ++other) {
      if (other == made) continue;
      EXPECT_EQ(kinds[other].destroy(handles[made]), ACLNN_ERR_PARAM_INVALID) << kinds[made].name << kinds[other].name;
    }
  }
  for (std::size_t made = 0; made < kinds.size(); ++made) EXPECT_EQ(kinds[made].destroy(handles[made]), ACLNN_SUCCESS);
}

TEST(Handles, AreDestroyedOnceThoughManyThreadsTry) {
  for (int round = 0; round < 50; ++round) {
    aclTensor* tensor = TensorSpec{{2}}.Create();
    std::atomic<int> destroyed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) threads.emplace_back([&] { destroyed += aclDestroyTensor(tensor) == ACLNN_SUCCESS; });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(destroyed, 1);
  }
}

TEST(Handles, AreUsedOnManyThreadsAtOnce) {
  aclTensor* shared = TensorSpec{{5}}.Create();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        aclTensor* own = TensorSpec{{t, i}}.Create();
        EXPECT_THAT(Numbers(aclGetViewShape, own), ElementsAre(t, i));
        EXPECT_THAT(Numbers(aclGetViewShape, shared), ElementsAre(5));
        EXPECT_EQ(aclDestroyTensor(own), ACLNN_SUCCESS);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(aclDestroyTensor(shared), ACLNN_SUCCESS);
}

TEST(Scalar, NeedsAValueOfWholeBytes) {
  double value[2] = {1, 2};
  for (aclDataType dtype : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT8, ACL_INT16, ACL_INT32, ACL_INT64,
                            ACL_UINT8, ACL_BOOL, ACL_COMPLEX64, ACL_COMPLEX128}) {
    aclScalar* scalar = aclCreateScalar(value, dtype);
    EXPECT_NE(scalar, nullptr) << dtype;
    EXPECT_EQ(aclDestroyScalar(scalar), ACLNN_SUCCESS);
  }
  EXPECT_EQ(aclCreateScalar(nullptr, ACL_FLOAT), nullptr);
  EXPECT_EQ(aclCreateScalar(value, ACL_STRING), nullptr);
  EXPECT_EQ(aclCreateScalar(value, ACL_DT_UNDEFINED), nullptr);
}

TEST(Arrays, KnowTheirSize) {
  const std::int64_t ints[] = {1, 2, 3};
  const float floats[] = {1, 2};
  const bool bools[] = {true};
  std::uint64_t size = 99;
  aclIntArray* int_array = aclCreateIntArray(ints, 3);
  EXPECT_EQ(aclGetIntArraySize(int_array, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 3u);
  aclFloatArray* float_array = aclCreateFloatArray(floats, 2);
  EXPECT_EQ(aclGetFloatArraySize(float_array, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 2u);
  aclBoolArray* bool_array = aclCreateBoolArray(bools, 1);
  EXPECT_EQ(aclGetBoolArraySize(bool_array, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 1u);

  EXPECT_EQ(aclGetIntArraySize(int_array, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetIntArraySize(nullptr, &size), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclDestroyIntArray(int_array), ACLNN_SUCCESS);
  EXPECT_EQ(aclGetIntArraySize(int_array, &size), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclDestroyFloatArray(float_array), ACLNN_SUCCESS);
  EXPECT_EQ(aclGetFloatArraySize(float_array, &size), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclDestroyBoolArray(bool_array), ACLNN_SUCCESS);
  EXPECT_EQ(aclGetBoolArraySize(bool_array, &size), ACLNN_ERR_PARAM_INVALID);
}

TEST(Arrays, MayBeEmpty) {
  aclIntArray* array = aclCreateIntArray(nullptr, 0);
  ASSERT_NE(array, nullptr);
  std::uint64_t size = 99;
  EXPECT_EQ(aclGetIntArraySize(array, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(aclDestroyIntArray(array), ACLNN_SUCCESS);
  EXPECT_EQ(aclCreateIntArray(nullptr, 1), nullptr);
  EXPECT_EQ(aclCreateFloatArray(nullptr, 1), nullptr);
  EXPECT_EQ(aclCreateBoolArray(nullptr, 1), nullptr);
}

TEST(Lists, OwnTheirMembers) {
  const aclTensor* members[] = {TensorSpec{{2}}.Create(), nullptr, TensorSpec{{3}}.Create()};
  aclTensorList* list = aclCreateTensorList(members, 3);
  ASSERT_NE(list, nullptr);
  std::uint64_t size = 0;
  EXPECT_EQ(aclGetTensorListSize(list, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 3u);
  EXPECT_THAT(Numbers(aclGetViewShape, members[2]), ElementsAre(3));
  EXPECT_EQ(aclDestroyTensor(members[0]), ACLNN_SUCCESS);  // a member may go before
  EXPECT_EQ(aclDestroyTensorList(list), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyTensor(members[2]), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclGetTensorListSize(list, &size), ACLNN_ERR_PARAM_INVALID);

  float value = 1;
  const aclScalar* scalars[] = {aclCreateScalar(&value, ACL_FLOAT)};
  aclScalarList* scalar_list = aclCreateScalarList(scalars, 1);
  EXPECT_EQ(aclGetScalarListSize(scalar_list, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 1u);
  EXPECT_EQ(aclGetScalarListSize(scalar_list, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclDestroyScalarList(scalar_list), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyScalar(scalars[0]), ACLNN_ERR_PARAM_INVALID);
}

TEST(Lists, RefuseDeadMembers) {
  const aclTensor* members[] = {TensorSpec{{2}}.Create(), TensorSpec{{3}}.Create()};
  aclDestroyTensor(members[1]);
  TakeMessage();
  EXPECT_EQ(aclCreateTensorList(members, 2), nullptr);
  EXPECT_THAT(TakeMessage(), HasSubstr("value[1]"));
  EXPECT_EQ(aclDestroyTensor(members[0]), ACLNN_SUCCESS);
  EXPECT_EQ(aclCreateTensorList(nullptr, 1), nullptr);
  EXPECT_EQ(aclCreateScalarList(nullptr, 1), nullptr);
}

}  // namespace
}  // namespace onehot::test
