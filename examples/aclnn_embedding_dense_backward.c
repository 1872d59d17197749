/* aclnnEmbeddingDenseBackward as an aclnn program calls it: device, stream, device memory, tensors, phase 1 for the
 * workspace, phase 2 on the stream, synchronise, copy back. C99; nothing here is particular to onehot.
 *
 *   grad = 1 2      indices = 2      out = 10 20      out[k, :] = sum of grad[i, :] over i with indices[i] == k
 *          10 20              0             0 0
 *          100 200            2             101 202
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_embedding_dense_backward.h"

enum { kPositions = 3, kRows = 3, kWidth = 2 };

/* Says which call failed, with what status and why. Returns true where it did not. */
static bool Succeeded(int status, const char* call) {
  if (status == ACL_SUCCESS) return true;
  const char* reason = aclGetRecentErrMsg();
  fprintf(stderr, "%s: status %d, %s\n", call, status, reason != NULL ? reason : "no message");
  return false;
}
#define TRY(call)                            \
  do {                                       \
    if (!Succeeded((call), #call)) goto end; \
  } while (0)

int main(void) {
  const float grad_host[kPositions * kWidth] = {1, 2, 10, 20, 100, 200};
  const int64_t indices_host[kPositions] = {2, 0, 2};
  float out_host[kRows * kWidth];

  const int64_t grad_dims[2] = {kPositions, kWidth}, indices_dims[1] = {kPositions}, out_dims[2] = {kRows, kWidth};
  const int64_t row_strides[2] = {kWidth, 1}, indices_strides[1] = {1};
  const uint64_t no_padding = UINT64_MAX;

  int exit_code = 1;
  aclrtStream stream = NULL;
  void *grad_device = NULL, *indices_device = NULL, *out_device = NULL, *workspace = NULL;
  aclTensor *grad = NULL, *indices = NULL, *out = NULL;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = NULL;

  TRY(aclInit(NULL));
  TRY(aclrtSetDevice(0));
  TRY(aclrtCreateStream(&stream));

  TRY(aclrtMalloc(&grad_device, sizeof grad_host, ACL_MEM_MALLOC_HUGE_FIRST));
  TRY(aclrtMalloc(&indices_device, sizeof indices_host, ACL_MEM_MALLOC_HUGE_FIRST));
  TRY(aclrtMalloc(&out_device, sizeof out_host, ACL_MEM_MALLOC_HUGE_FIRST));
  TRY(aclrtMemcpy(grad_device, sizeof grad_host, grad_host, sizeof grad_host, ACL_MEMCPY_HOST_TO_DEVICE));
  TRY(aclrtMemcpy(indices_device, sizeof indices_host, indices_host, sizeof indices_host, ACL_MEMCPY_HOST_TO_DEVICE));

  grad = aclCreateTensor(grad_dims, 2, ACL_FLOAT, row_strides, 0, ACL_FORMAT_ND, grad_dims, 2, grad_device);
  indices =
      aclCreateTensor(indices_dims, 1, ACL_INT64, indices_strides, 0, ACL_FORMAT_ND, indices_dims, 1, indices_device);
  out = aclCreateTensor(out_dims, 2, ACL_FLOAT, row_strides, 0, ACL_FORMAT_ND, out_dims, 2, out_device);
  if (grad == NULL || indices == NULL || out == NULL) {
    Succeeded(-1, "aclCreateTensor");
    goto end;
  }

  /* Phase 1 checks the arguments and says how much workspace phase 2 needs. */
  TRY(aclnnEmbeddingDenseBackwardGetWorkspaceSize(grad, indices, kRows, no_padding, false, out, &workspace_size,
                                                  &executor));
  if (workspace_size > 0) TRY(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
  /* Phase 2 puts the work on the stream and releases the executor. */
  TRY(aclnnEmbeddingDenseBackward(workspace, workspace_size, executor, stream));
  TRY(aclrtSynchronizeStream(stream));

  TRY(aclrtMemcpy(out_host, sizeof out_host, out_device, sizeof out_host, ACL_MEMCPY_DEVICE_TO_HOST));
  for (int k = 0; k < kRows; ++k) printf("out[%d] = %g %g\n", k, out_host[k * kWidth], out_host[k * kWidth + 1]);
  exit_code = 0;

end:
  if (grad != NULL) aclDestroyTensor(grad);
  if (indices != NULL) aclDestroyTensor(indices);
  if (out != NULL) aclDestroyTensor(out);
  if (workspace != NULL) aclrtFree(workspace);
  if (out_device != NULL) aclrtFree(out_device);
  if (indices_device != NULL) aclrtFree(indices_device);
  if (grad_device != NULL) aclrtFree(grad_device);
  if (stream != NULL) aclrtDestroyStream(stream);
  aclrtResetDevice(0);
  aclFinalize();
  return exit_code;
}
