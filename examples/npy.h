/* The least of the .npy format that an example needs: little-endian files of known type and rank, in C order.
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#ifndef EXAMPLES_NPY_H_
#define EXAMPLES_NPY_H_

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int64_t dims[2]; /* a vector has dims[1] == 1 */
  void* data;      /* free() it */
  size_t bytes;
} NpyArray;

/* Extents of "(3,)" or "(3, 2)"; false if the rank is another. */
static inline bool NpyShape(const char* text, int rank, int64_t dims[2]) {
  int end = 0;
  dims[1] = 1;
  if (rank == 1) return sscanf(text, "( %" SCNd64 " , %n", &dims[0], &end) == 1 && end > 0 && text[end] == ')';
  return sscanf(text, "( %" SCNd64 " , %" SCNd64 " %n", &dims[0], &dims[1], &end) == 2 && end > 0 && text[end] == ')';
}

/* Reads a file whose type must be `descr` ("<f4", "<i8") with elements of `element` bytes. Says what is wrong on
 * stderr. */
static inline bool NpyRead(const char* path, const char* descr, size_t element, int rank, NpyArray* array) {
  unsigned char head[12];
  char header[4096] = "", type[16];
  const char *problem = "not a .npy file", *key;
  size_t length, length_bytes;
  array->data = NULL;
  FILE* file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    return false;
  }
  if (fread(head, 1, 10, file) != 10 || memcmp(head, "\x93NUMPY", 6) != 0) goto end;
  length_bytes = head[6] == 1 ? 2 : 4; /* version 1 has a two-byte header length, versions 2 and 3 four bytes */
  if (length_bytes == 4 && fread(head + 10, 1, 2, file) != 2) goto end;
  length = head[8] | (size_t)head[9] << 8;
  if (length_bytes == 4) length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
  problem = "its header is too long or cut off";
  if (length >= sizeof header || fread(header, 1, length, file) != length) goto end;

  problem = "not of the type, order and rank that is expected here";
  snprintf(type, sizeof type, "'%s'", descr);
  if (strstr(header, type) == NULL || strstr(header, "'fortran_order': False") == NULL) goto end;
  key = strstr(header, "'shape': ");
  if (key == NULL || !NpyShape(key + strlen("'shape': "), rank, array->dims)) goto end;

  problem = "cannot read as many elements as its header says";
  array->bytes = (size_t)array->dims[0] * (size_t)array->dims[1] * element;
  array->data = malloc(array->bytes > 0 ? array->bytes : 1);
  if (array->data == NULL || fread(array->data, 1, array->bytes, file) != array->bytes) goto end;
  problem = NULL;
end:
  fclose(file);
  if (problem == NULL) return true;
  fprintf(stderr, "%s: %s\n", path, problem);
  free(array->data);
  array->data = NULL;
  return false;
}

/* Writes an array of type `descr` with elements of `element` bytes, header and all as NumPy would. */
static inline bool NpyWriteArray(const char* path, const char* descr, size_t element, int rank, const int64_t* dims,
                                 const void* data) {
  char header[128]; /* magic, version and length (10 bytes), then text that ends on a multiple of 64 */
  size_t count = 1;
  memset(header, ' ', sizeof header);
  memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10); /* 0x76 = 128 - 10 */
  int end = 10 + snprintf(header + 10, sizeof header - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int k = 0; k < rank && end < (int)sizeof header; ++k) {
    count *= (size_t)dims[k];
    end += snprintf(header + end, sizeof header - (size_t)end,
                    rank == 1      ? "%" PRId64 ","
                    : k + 1 < rank ? "%" PRId64 ", "
                                   : "%" PRId64,
                    dims[k]);
  }
  if (end < (int)sizeof header) end += snprintf(header + end, sizeof header - (size_t)end, "), }");
  if (end >= (int)sizeof header) {
    fprintf(stderr, "%s: the header has no room for %d extents\n", path, rank);
    return false;
  }
  header[end] = ' ';
  header[sizeof header - 1] = '\n';
  FILE* file = fopen(path, "wb");
  if (file != NULL) {
    const bool written =
        fwrite(header, 1, sizeof header, file) == sizeof header && fwrite(data, element, count, file) == count;
    if (fclose(file) == 0 && written) return true;
  }
  perror(path);
  return false;
}

/* Writes a matrix of floats. */
static inline bool NpyWrite(const char* path, const float* data, int64_t rows, int64_t columns) {
  const int64_t dims[2] = {rows, columns};
  return NpyWriteArray(path, "<f4", sizeof(float), 2, dims, data);
}

#endif /* EXAMPLES_NPY_H_ */
