/* One step of the next-word model of word_model.cpp in f16, with five aclnn operators. C99, written against the aclnn
 * headers alone. scripts/demo.sh runs it and does the same from the shell with .npy files.
 *
 *   aclnn_word_step DIR
 *
 *   DIR has table.npy [V, H], mixing.npy, context.npy [N, kContext] and target.npy [N], see word_model.cpp. The table is
 *   rounded to f16; so are x and drows, which the host computes in f32 (word_mix.h).
 *
 *     rows   = table[context]                                         aclnnEmbedding
 *     x      = mixture of rows                                        host
 *     max, sum of exponentials, target logit, for each position       aclnnFusedLinearOnlineMaxSum
 *     loss   = log(sum of exponentials) - target logit                aclnnFusedCrossEntropyLossWithMaxSum
 *     dx, dtable = d (sum of grad * loss) / d x and table             aclnnFusedLinearCrossEntropyLossGrad
 *     drows  = d (sum of grad * loss) / d rows                        host
 *     dwords = onehot(context)^T drows                                aclnnEmbeddingDenseBackward
 *
 *   grad is 1, N times what the mean would have: the scale that keeps gradients above the least f16. The gradient of the
 *   table is dtable + dwords.
 *
 *   DIR gets grad.npy and *16.npy, all of the above.
 */
#define _XOPEN_SOURCE 600 /* clock_gettime, getrusage */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "aclnn_calls.h"
#include "aclnnop/aclnn_embedding.h"
#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "aclnnop/aclnn_fused_cross_entropy_loss_with_max_sum.h"
#include "aclnnop/aclnn_fused_linear_cross_entropy_loss_grad.h"
#include "aclnnop/aclnn_fused_linear_online_max_sum.h"
#include "npy.h"
#include "word_mix.h"

/* A tensor on the host and on the device. */
typedef struct {
  const char *name, *descr; /* of its file */
  aclDataType type;
  int rank;
  int64_t dims[3], count;
  void* host;
  DeviceTensor device;
} Array;

typedef struct {
  const char* directory;
  int64_t n, v;
  NpyArray table, mixing, context, target;    /* on the host, f32 and i32 */
  float *rows, *t, *x, *dx, *drows, *dmixing; /* on the host: what word_mix.h computes with */
  Array table16, rows16, x16, dx16, dtable16, drows16, dwords16, loss16, grad;
  Array context32, target32, max, sum, predicted, mask, masked;
  aclrtStream stream;
} Step;

/* ---- files and memory */

static bool Read(const Step* s, const char* name, const char* descr, int rank, NpyArray* array) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.npy", s->directory, name);
  return NpyRead(path, descr, 4, rank, array);
}

static bool Write(const Step* s, const Array* a) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.npy", s->directory, a->name);
  return NpyWriteArray(path, a->descr, aclDataTypeSize(a->type), a->rank, a->dims, a->host);
}

static bool Make(Array* a, const char* name, aclDataType type, int rank, int64_t d0, int64_t d1, int64_t d2) {
  const int64_t dims[3] = {d0, d1, d2};
  a->name = name;
  a->descr = type == ACL_FLOAT16 ? "<f2" : type == ACL_FLOAT ? "<f4" : type == ACL_INT32 ? "<i4" : "|u1";
  a->type = type;
  a->rank = rank;
  a->count = 1;
  for (int axis = 0; axis < rank; ++axis) a->count *= a->dims[axis] = dims[axis];
  if (!Create(&a->device, type, rank, dims)) return false;
  a->host = malloc(a->device.bytes);
  if (a->host == NULL) fprintf(stderr, "out of memory\n");
  return a->host != NULL;
}

static void Delete(Array* a) {
  Destroy(&a->device);
  free(a->host);
}

/* Rounds to f16, on its way to the device. */
static bool Put(Array* a, const float* values) {
  uint16_t* const halves = a->host;
  for (int64_t k = 0; k < a->count; ++k) halves[k] = HalfFromFloat(values[k]);
  return ToDevice(&a->device, halves);
}

/* From the device; as f32 too, where `values` is not null. */
static bool Get(Array* a, float* values) {
  if (!ToHost(a->host, &a->device)) return false;
  const uint16_t* const halves = a->host;
  for (int64_t k = 0; values != NULL && k < a->count; ++k) values[k] = FloatFromHalf(halves[k]);
  return true;
}

static float* Floats(int64_t count) {
  float* const values = malloc((size_t)count * sizeof(float));
  if (values == NULL) fprintf(stderr, "out of memory\n");
  return values;
}

static bool Prepare(Step* s) {
  if (!Read(s, "table", "<f4", 2, &s->table) || !Read(s, "mixing", "<f4", 1, &s->mixing) ||
      !Read(s, "context", "<i4", 2, &s->context) || !Read(s, "target", "<i4", 1, &s->target))
    return false;
  const int64_t n = s->n = s->target.dims[0], v = s->v = s->table.dims[0];
  if (s->table.dims[1] != kWidth || s->mixing.dims[0] != kMixing || s->context.dims[0] != n ||
      s->context.dims[1] != kContext) {
    fprintf(stderr, "%s: not the files of one model of word_model.cpp\n", s->directory);
    return false;
  }
  const bool made =
      OK(aclInit(NULL)) && OK(aclrtSetDevice(0)) && OK(aclrtCreateStream(&s->stream)) &&
      Make(&s->table16, "table16", ACL_FLOAT16, 2, v, kWidth, 0) &&
      Make(&s->rows16, "rows16", ACL_FLOAT16, 3, n, kContext, kWidth) &&
      Make(&s->x16, "x16", ACL_FLOAT16, 2, n, kWidth, 0) && Make(&s->dx16, "dx16", ACL_FLOAT16, 2, n, kWidth, 0) &&
      Make(&s->dtable16, "dtable16", ACL_FLOAT16, 2, v, kWidth, 0) &&
      Make(&s->drows16, "drows16", ACL_FLOAT16, 3, n, kContext, kWidth) &&
      Make(&s->dwords16, "dwords16", ACL_FLOAT16, 2, v, kWidth, 0) &&
      Make(&s->loss16, "loss16", ACL_FLOAT, 1, n, 0, 0) && Make(&s->grad, "grad", ACL_FLOAT, 1, n, 0, 0) &&
      Make(&s->context32, "context", ACL_INT32, 2, n, kContext, 0) &&
      Make(&s->target32, "target", ACL_INT32, 1, n, 0, 0) && Make(&s->max, "max", ACL_FLOAT, 1, n, 0, 0) &&
      Make(&s->sum, "sum", ACL_FLOAT, 1, n, 0, 0) && Make(&s->predicted, "predicted", ACL_FLOAT, 1, n, 0, 0) &&
      Make(&s->mask, "mask", ACL_UINT8, 1, (n + 7) / 8, 0, 0) && Make(&s->masked, "masked", ACL_INT32, 1, n, 0, 0);
  if (!made) return false;
  s->rows = Floats(s->rows16.count);
  s->drows = Floats(s->rows16.count);
  s->t = Floats(s->x16.count);
  s->x = Floats(s->x16.count);
  s->dx = Floats(s->x16.count);
  s->dmixing = Floats(kMixing);
  if (!s->rows || !s->drows || !s->t || !s->x || !s->dx || !s->dmixing) return false;
  for (int64_t i = 0; i < n; ++i) ((float*)s->grad.host)[i] = 1;
  return ToDevice(&s->grad.device, s->grad.host) && ToDevice(&s->context32.device, s->context.data) &&
         ToDevice(&s->target32.device, s->target.data) && Put(&s->table16, s->table.data);
}

static void Release(Step* s) {
  Array* const arrays[] = {&s->table16,  &s->rows16,    &s->x16,  &s->dx16,      &s->dtable16, &s->drows16,
                           &s->dwords16, &s->loss16,    &s->grad, &s->context32, &s->target32, &s->max,
                           &s->sum,      &s->predicted, &s->mask, &s->masked};
  for (size_t k = 0; k < sizeof arrays / sizeof arrays[0]; ++k) Delete(arrays[k]);
  if (s->stream != NULL) aclrtDestroyStream(s->stream);
  aclrtResetDevice(0);
  aclFinalize();
  void* const memory[] = {s->table.data, s->mixing.data, s->context.data, s->target.data, s->rows, s->drows,
                          s->t,          s->x,           s->dx,           s->dmixing};
  for (size_t k = 0; k < sizeof memory / sizeof memory[0]; ++k) free(memory[k]);
}

/* ---- the step */

static double Seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Both phases of NAME with the arguments that are given, and the wait; prints how long that took. */
#define CALL(s, name, ...)                                                                                \
  do {                                                                                                    \
    uint64_t workspace_size = 0;                                                                          \
    aclOpExecutor* executor = NULL;                                                                       \
    const double start = Seconds();                                                                       \
    if (!Succeeded(name##GetWorkspaceSize(__VA_ARGS__, &workspace_size, &executor), #name)) return false; \
    if (!Launch(name, #name, workspace_size, executor, (s)->stream)) return false;                        \
    printf("%s %.1f ms\n", #name, 1e3 * (Seconds() - start));                                             \
  } while (false)

static bool Run(Step* s) {
  const uint64_t no_padding = UINT64_MAX;
  aclTensor *const table = s->table16.device.tensor, *const context = s->context32.device.tensor;
  CALL(s, aclnnEmbedding, table, context, s->rows16.device.tensor);
  if (!Get(&s->rows16, s->rows)) return false;
  Mix(s->mixing.data, s->rows, s->n, s->t, s->x);
  if (!Put(&s->x16, s->x)) return false;

  /* One device has the whole vocabulary: its first class is 0, its last V - 1, and nothing is reduced over devices. */
  aclTensor *const x = s->x16.device.tensor, *const max = s->max.device.tensor, *const sum = s->sum.device.tensor;
  aclTensor *const mask = s->mask.device.tensor, *const masked = s->masked.device.tensor;
  CALL(s, aclnnFusedLinearOnlineMaxSum, x, table, s->target32.device.tensor, 0, s->v - 1, max, sum,
       s->predicted.device.tensor, mask, masked, NULL);
  CALL(s, aclnnFusedCrossEntropyLossWithMaxSum, max, sum, s->predicted.device.tensor, 0, NULL, NULL, NULL,
       s->loss16.device.tensor, NULL);
  CALL(s, aclnnFusedLinearCrossEntropyLossGrad, s->grad.device.tensor, x, table, mask, masked, 0, max, sum, NULL,
       s->dx16.device.tensor, s->dtable16.device.tensor);
  if (!Get(&s->dx16, s->dx)) return false;
  MixBackward(s->mixing.data, s->rows, s->n, s->t, s->dx, s->dmixing, s->drows);
  if (!Put(&s->drows16, s->drows)) return false;
  CALL(s, aclnnEmbeddingDenseBackward, s->drows16.device.tensor, context, (uint64_t)s->v, no_padding, false,
       s->dwords16.device.tensor);
  if (!Get(&s->loss16, NULL) || !Get(&s->dtable16, NULL) || !Get(&s->dwords16, NULL)) return false;

  double loss = 0;
  for (int64_t i = 0; i < s->n; ++i) loss += (double)((const float*)s->loss16.host)[i];
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("mean loss %.6f, peak memory %.0f MB\n", loss / (double)s->n, (double)usage.ru_maxrss * 1024e-6);
  return Write(s, &s->table16) && Write(s, &s->rows16) && Write(s, &s->x16) && Write(s, &s->grad) &&
         Write(s, &s->loss16) && Write(s, &s->dx16) && Write(s, &s->dtable16) && Write(s, &s->drows16) &&
         Write(s, &s->dwords16);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s DIR\n", argv[0]);
    return 2;
  }
  Step step;
  memset(&step, 0, sizeof step);
  step.directory = argv[1];
  const bool done = Prepare(&step) && Run(&step);
  Release(&step);
  return done ? 0 : 1;
}
