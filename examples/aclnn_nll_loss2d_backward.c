/* aclnnNLLLoss2d and aclnnNLLLoss2dBackward as an aclnn program calls them for a picture of labels: the loss and its total
 * weight, then the gradient of the log-probabilities. C99; nothing here is particular to onehot.
 *
 *   target = 0   2     255 is no label      weight = 1 2 5      totalWeight = 1 + 5 + 2
 *            255 1
 *   loss = (1 * 1 + 5 * 2 + 2 * 4) / 8      out[c, p] = -weight[c] / 8 where target[p] == c, else 0
 */
#include <stdint.h>
#include <stdio.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_nll_loss2d.h"
#include "aclnnop/aclnn_nll_loss2d_backward.h"

enum { kClasses = 3, kHeight = 2, kWidth = 2, kPixels = kHeight * kWidth, kMean = 1, kNoLabel = 255 };

/* Says which call failed, with what status and why. Returns true where it did not. */
static int Succeeded(int status, const char* call) {
  if (status == ACL_SUCCESS) return 1;
  const char* reason = aclGetRecentErrMsg();
  fprintf(stderr, "%s: status %d, %s\n", call, status, reason != NULL ? reason : "no message");
  return 0;
}
#define TRY(call)                            \
  do {                                       \
    if (!Succeeded((call), #call)) goto end; \
  } while (0)

typedef struct {
  void* device;
  aclTensor* tensor;
} Operand;

/* A dense tensor in device memory that holds what `host` does, or nothing in particular where that is null. */
static int Upload(Operand* operand, const int64_t* dims, uint64_t rank, aclDataType dtype, const void* host,
                  size_t bytes) {
  if (!Succeeded(aclrtMalloc(&operand->device, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc")) return 0;
  if (host != NULL &&
      !Succeeded(aclrtMemcpy(operand->device, bytes, host, bytes, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy"))
    return 0;
  operand->tensor = aclCreateTensor(dims, rank, dtype, NULL, 0, ACL_FORMAT_ND, dims, rank, operand->device);
  return operand->tensor != NULL || Succeeded(-1, "aclCreateTensor");
}

static void Release(Operand* operand) {
  if (operand->tensor != NULL) aclDestroyTensor(operand->tensor);
  if (operand->device != NULL) aclrtFree(operand->device);
}

int main(void) {
  const float self_host[kClasses * kPixels] = {-1, -9, -9, -9, -9, -9, -9, -4, -9, -2, -9, -9};
  const uint8_t target_host[kPixels] = {0, 2, kNoLabel, 1};
  const float weight_host[kClasses] = {1, 2, 5}, grad_host[1] = {1};
  float out_host[kClasses * kPixels], loss_host[1], total_host[1];

  const int64_t self_dims[4] = {1, kClasses, kHeight, kWidth}, target_dims[3] = {1, kHeight, kWidth};
  const int64_t weight_dims[1] = {kClasses}, one[1] = {1};

  int exit_code = 1;
  aclrtStream stream = NULL;
  const Operand none = {NULL, NULL};
  Operand self = none, target = none, weight = none, loss = none, total_weight = none, grad = none, out = none;
  void *forward_workspace = NULL, *backward_workspace = NULL;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = NULL;

  TRY(aclInit(NULL));
  TRY(aclrtSetDevice(0));
  TRY(aclrtCreateStream(&stream));

  if (!Upload(&self, self_dims, 4, ACL_FLOAT, self_host, sizeof self_host) ||
      !Upload(&target, target_dims, 3, ACL_UINT8, target_host, sizeof target_host) ||
      !Upload(&weight, weight_dims, 1, ACL_FLOAT, weight_host, sizeof weight_host) ||
      !Upload(&loss, one, 1, ACL_FLOAT, NULL, sizeof loss_host) ||
      !Upload(&total_weight, one, 1, ACL_FLOAT, NULL, sizeof total_host) ||
      !Upload(&grad, one, 1, ACL_FLOAT, grad_host, sizeof grad_host) ||
      !Upload(&out, self_dims, 4, ACL_FLOAT, NULL, sizeof out_host))
    goto end;

  /* Phase 1 checks the arguments and says how much workspace phase 2 needs; phase 2 puts the work on the stream. */
  TRY(aclnnNLLLoss2dGetWorkspaceSize(self.tensor, target.tensor, weight.tensor, kMean, kNoLabel, loss.tensor,
                                     total_weight.tensor, &workspace_size, &executor));
  if (workspace_size > 0) TRY(aclrtMalloc(&forward_workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
  TRY(aclnnNLLLoss2d(forward_workspace, workspace_size, executor, stream));

  TRY(aclnnNLLLoss2dBackwardGetWorkspaceSize(grad.tensor, self.tensor, target.tensor, weight.tensor, kMean, kNoLabel,
                                             total_weight.tensor, out.tensor, &workspace_size, &executor));
  if (workspace_size > 0) TRY(aclrtMalloc(&backward_workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
  TRY(aclnnNLLLoss2dBackward(backward_workspace, workspace_size, executor, stream));
  TRY(aclrtSynchronizeStream(stream));

  TRY(aclrtMemcpy(loss_host, sizeof loss_host, loss.device, sizeof loss_host, ACL_MEMCPY_DEVICE_TO_HOST));
  TRY(aclrtMemcpy(total_host, sizeof total_host, total_weight.device, sizeof total_host, ACL_MEMCPY_DEVICE_TO_HOST));
  TRY(aclrtMemcpy(out_host, sizeof out_host, out.device, sizeof out_host, ACL_MEMCPY_DEVICE_TO_HOST));
  printf("loss = %g, totalWeight = %g\n", loss_host[0], total_host[0]);
  for (int c = 0; c < kClasses; ++c) {
    printf("out[0, %d] =", c);
    for (int p = 0; p < kPixels; ++p) printf(" %g", out_host[c * kPixels + p]);
    printf("\n");
  }
  exit_code = 0;

end:
  Release(&self);
  Release(&target);
  Release(&weight);
  Release(&loss);
  Release(&total_weight);
  Release(&grad);
  Release(&out);
  if (forward_workspace != NULL) aclrtFree(forward_workspace);
  if (backward_workspace != NULL) aclrtFree(backward_workspace);
  if (stream != NULL) aclrtDestroyStream(stream);
  aclrtResetDevice(0);
  aclFinalize();
  return exit_code;
}
