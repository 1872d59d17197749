/* What a C99 program needs around calls of aclnn operators: tensors with device memory, copies, the second phase. Every
 * function returns false after it has said on stderr what went wrong. */
#ifndef EXAMPLES_ACLNN_CALLS_H_
#define EXAMPLES_ACLNN_CALLS_H_

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"

static inline bool Succeeded(int status, const char* call) {
  if (status == ACL_SUCCESS) return true;
  const char* reason = aclGetRecentErrMsg();
  fprintf(stderr, "%s: status %d, %s\n", call, status, reason != NULL ? reason : "no message");
  return false;
}
#define OK(call) Succeeded((call), #call)

/* A dense tensor with its device memory. */
typedef struct {
  void* data;
  size_t bytes;
  aclTensor* tensor;
} DeviceTensor;

enum { kMaxTensorRank = 4 };

static inline bool Create(DeviceTensor* t, aclDataType type, int rank, const int64_t* dims) {
  int64_t strides[kMaxTensorRank], count = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    strides[axis] = count;
    count *= dims[axis];
  }
  t->bytes = (size_t)count * aclDataTypeSize(type);
  if (!OK(aclrtMalloc(&t->data, t->bytes, ACL_MEM_MALLOC_HUGE_FIRST))) return false;
  t->tensor = aclCreateTensor(dims, (uint64_t)rank, type, strides, 0, ACL_FORMAT_ND, dims, (uint64_t)rank, t->data);
  return t->tensor != NULL || Succeeded(-1, "aclCreateTensor");
}

static inline void Destroy(DeviceTensor* t) {
  if (t->tensor != NULL) aclDestroyTensor(t->tensor);
  if (t->data != NULL) aclrtFree(t->data);
}

static inline bool ToDevice(const DeviceTensor* t, const void* host) {
  return OK(aclrtMemcpy(t->data, t->bytes, host, t->bytes, ACL_MEMCPY_HOST_TO_DEVICE));
}

static inline bool ToHost(void* host, const DeviceTensor* t) {
  return OK(aclrtMemcpy(host, t->bytes, t->data, t->bytes, ACL_MEMCPY_DEVICE_TO_HOST));
}

typedef aclnnStatus (*Phase2)(void*, uint64_t, aclOpExecutor*, aclrtStream);

/* The second phase of any operator: workspace, launch, wait. */
static inline bool Launch(Phase2 phase2, const char* name, uint64_t workspace_size, aclOpExecutor* executor,
                          aclrtStream stream) {
  void* workspace = NULL;
  if (workspace_size > 0 && !OK(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST))) return false;
  const bool ok =
      Succeeded(phase2(workspace, workspace_size, executor, stream), name) && OK(aclrtSynchronizeStream(stream));
  if (workspace != NULL) aclrtFree(workspace);
  return ok;
}

#endif /* EXAMPLES_ACLNN_CALLS_H_ */
