/* Trains an embedding table on a text for a few steps, with aclnnEmbedding and aclnnEmbeddingDenseBackward. C99,
 * written against the aclnn headers alone. scripts/demo.sh runs it and does the same from the shell with .npy files.
 *
 *   aclnn_embedding_demo TOKENS.npy TABLE.npy STEPS RATE GRADIENT.npy TRAINED.npy
 *
 *   tokens [N] i64, table [V, D] f32. Each step, with nb(i) the positions i-2, i-1, i+1, i+2 that exist:
 *
 *     rows  = table[tokens]                                               aclnnEmbedding
 *     e[i]  = sum of rows[j] over j in nb(i), / |nb(i)|, - rows[i]
 *     loss  = sum of e[i]^2 / (2 N)
 *     grad  = d loss / d rows:
 *             grad[i] = (sum of e[j] / |nb(j)| over j in nb(i) - e[i]) / N
 *     dW    = d loss / d table                                            aclnnEmbeddingDenseBackward
 *     table = table - RATE * dW
 *
 *   GRADIENT.npy gets dW of the first step, TRAINED.npy the table after the last.
 */
#define _XOPEN_SOURCE 600 /* clock_gettime, getrusage */
#include <math.h>
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
#include "npy.h"

static double Seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- the loss, on the host. f32 with one rounding per operation, in the order of scripts/demo/cbow.py: same bits. */

static const int kOffsets[] = {-2, -1, 1, 2};
enum { kOffsetCount = 4 };

static float NeighbourCount(int64_t i, int64_t n) {
  int count = 0;
  for (int k = 0; k < kOffsetCount; ++k) count += i + kOffsets[k] >= 0 && i + kOffsets[k] < n;
  return (float)count;
}

/* Fills error and grad [N, D] from rows [N, D]; returns the loss. */
static double Loss(const float* rows, int64_t n, int64_t d, float* error, float* grad) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    float* e = error + i * d;
    const float count = NeighbourCount(i, n);
    memset(e, 0, (size_t)d * sizeof *e);
    for (int k = 0; k < kOffsetCount; ++k) {
      const int64_t j = i + kOffsets[k];
      if (j < 0 || j >= n) continue;
      for (int64_t c = 0; c < d; ++c) e[c] += rows[j * d + c];
    }
    for (int64_t c = 0; c < d; ++c) {
      e[c] = e[c] / count - rows[i * d + c];
      sum += (double)e[c] * (double)e[c];
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    float* g = grad + i * d;
    memset(g, 0, (size_t)d * sizeof *g);
    for (int k = 0; k < kOffsetCount; ++k) {
      const int64_t j = i + kOffsets[k];
      if (j < 0 || j >= n) continue;
      const float count = NeighbourCount(j, n);
      for (int64_t c = 0; c < d; ++c) g[c] += error[j * d + c] / count;
    }
    for (int64_t c = 0; c < d; ++c) g[c] = (g[c] - error[i * d + c]) / (float)n;
  }
  return sum / (2.0 * (double)n);
}

/* ---- the training */

typedef struct {
  int64_t n, v, d;                 /* tokens, rows of the table, width */
  NpyArray tokens, table;          /* on the host: [N] i64, [V, D] f32 */
  float *rows, *error, *grad, *dw; /* on the host: [N, D] three times, [V, D] */
  DeviceTensor tokens_device, table_device, rows_device, dw_device;
  aclrtStream stream;
  double gather_seconds, backward_seconds; /* of the fastest step, both phases and the wait */
} Training;

static bool Prepare(Training* t, const char* tokens_path, const char* table_path) {
  if (!NpyRead(tokens_path, "<i8", sizeof(int64_t), 1, &t->tokens)) return false;
  if (!NpyRead(table_path, "<f4", sizeof(float), 2, &t->table)) return false;
  t->n = t->tokens.dims[0];
  t->v = t->table.dims[0];
  t->d = t->table.dims[1];
  t->gather_seconds = t->backward_seconds = INFINITY;
  if (t->n < 2 || t->v < 1 || t->d < 1) {
    fprintf(stderr, "two tokens and a table with one element are the least that there must be\n");
    return false;
  }
  const size_t row_bytes = (size_t)t->n * (size_t)t->d * sizeof(float);
  t->rows = malloc(row_bytes);
  t->error = malloc(row_bytes);
  t->grad = malloc(row_bytes);
  t->dw = malloc(t->table.bytes);
  if (t->rows == NULL || t->error == NULL || t->grad == NULL || t->dw == NULL) {
    fprintf(stderr, "out of memory\n");
    return false;
  }
  const int64_t tokens[] = {t->n}, table[] = {t->v, t->d}, rows[] = {t->n, t->d};
  return OK(aclInit(NULL)) && OK(aclrtSetDevice(0)) && OK(aclrtCreateStream(&t->stream)) &&
         Create(&t->tokens_device, ACL_INT64, 1, tokens) && Create(&t->table_device, ACL_FLOAT, 2, table) &&
         Create(&t->rows_device, ACL_FLOAT, 2, rows) && Create(&t->dw_device, ACL_FLOAT, 2, table) &&
         ToDevice(&t->tokens_device, t->tokens.data);
}

static void Release(Training* t) {
  Destroy(&t->tokens_device);
  Destroy(&t->table_device);
  Destroy(&t->rows_device);
  Destroy(&t->dw_device);
  if (t->stream != NULL) aclrtDestroyStream(t->stream);
  aclrtResetDevice(0);
  aclFinalize();
  free(t->tokens.data);
  free(t->table.data);
  free(t->rows);
  free(t->error);
  free(t->grad);
  free(t->dw);
}

static void Shortest(double* shortest, double seconds) {
  if (seconds < *shortest) *shortest = seconds;
}

/* rows = table[tokens], phase 1 and 2. */
static bool Forward(Training* t) {
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = NULL;
  if (!ToDevice(&t->table_device, t->table.data)) return false;
  const double start = Seconds();
  if (!OK(aclnnEmbeddingGetWorkspaceSize(t->table_device.tensor, t->tokens_device.tensor, t->rows_device.tensor,
                                         &workspace_size, &executor)))
    return false;
  if (!Launch(aclnnEmbedding, "aclnnEmbedding", workspace_size, executor, t->stream)) return false;
  Shortest(&t->gather_seconds, Seconds() - start);
  return ToHost(t->rows, &t->rows_device);
}

/* dw = d loss / d table from grad = d loss / d rows, which takes the place of the rows on the device. */
static bool Backward(Training* t) {
  const uint64_t no_padding = UINT64_MAX;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = NULL;
  if (!ToDevice(&t->rows_device, t->grad)) return false;
  const double start = Seconds();
  if (!OK(aclnnEmbeddingDenseBackwardGetWorkspaceSize(t->rows_device.tensor, t->tokens_device.tensor, (uint64_t)t->v,
                                                      no_padding, false, t->dw_device.tensor, &workspace_size,
                                                      &executor)))
    return false;
  if (!Launch(aclnnEmbeddingDenseBackward, "aclnnEmbeddingDenseBackward", workspace_size, executor, t->stream))
    return false;
  Shortest(&t->backward_seconds, Seconds() - start);
  return ToHost(t->dw, &t->dw_device);
}

/* Prints the loss before each step and after the last. */
static bool Train(Training* t, int steps, float rate, const char* gradient_path) {
  float* const table = t->table.data;
  for (int step = 0;; ++step) {
    if (!Forward(t)) return false;
    printf(step == 0 ? "%.5f" : " -> %.5f", Loss(t->rows, t->n, t->d, t->error, t->grad));
    if (step == steps) break;
    if (!Backward(t)) return false;
    if (step == 0 && !NpyWrite(gradient_path, t->dw, t->v, t->d)) return false;
    for (int64_t k = 0; k < t->v * t->d; ++k) table[k] -= rate * t->dw[k];
  }
  printf("\n");
  return true;
}

int main(int argc, char** argv) {
  if (argc != 7) {
    fprintf(stderr, "usage: %s TOKENS.npy TABLE.npy STEPS RATE GRADIENT.npy TRAINED.npy\n", argv[0]);
    return 2;
  }
  Training training;
  memset(&training, 0, sizeof training);
  const bool done = Prepare(&training, argv[1], argv[2]) &&
                    Train(&training, atoi(argv[3]), strtof(argv[4], NULL), argv[5]) &&
                    NpyWrite(argv[6], training.table.data, training.v, training.d);
  if (done) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("aclnnEmbedding %.1f ms, aclnnEmbeddingDenseBackward %.1f ms, peak memory %.0f MB\n",
           1e3 * training.gather_seconds, 1e3 * training.backward_seconds, (double)usage.ru_maxrss * 1024e-6);
  }
  Release(&training);
  return done ? 0 : 1;
}
