/* The part of the next-word model that has neither classes nor indices, for word_model.cpp and aclnn_word_step.c, and
 * numbers of 16 bits. C99 and C++: plain loops in f32, sums in the order of positions.
 *
 *   rows e [N, kContext, kWidth]: the vectors of the words before a position, the nearest first
 *   u[i] = sum over k of scale[k] * e[i, k], element by element
 *   x[i] = u[i] + tanh(u[i]) matrix + offset                                          [N, kWidth]
 *
 * The parameters lie in one array: scale [kContext, kWidth], matrix [kWidth, kWidth], offset [kWidth]. */
#ifndef EXAMPLES_WORD_MIX_H_
#define EXAMPLES_WORD_MIX_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

/* One enumeration, since C++ deprecates arithmetic between two. */
enum {
  kContext = 4,
  kWidth = 64,
  kMatrix = kContext * kWidth,         /* where the matrix begins */
  kOffset = kMatrix + kWidth * kWidth, /* where the offset does */
  kMixing = kOffset + kWidth           /* all parameters */
};

/* Fills t = tanh(u) and x, [N, kWidth] each. */
static inline void Mix(const float* parameters, const float* rows, int64_t n, float* t, float* x) {
  for (int64_t i = 0; i < n; ++i) {
    float* const ti = t + i * kWidth;
    float sum[kWidth] = {0}; /* not in x: compilers cannot know that x does not overlap what is read */
    for (int k = 0; k < kContext; ++k) {
      const float *const e = rows + (i * kContext + k) * kWidth, *const scale = parameters + k * kWidth;
      for (int c = 0; c < kWidth; ++c) sum[c] += scale[c] * e[c];
    }
    for (int c = 0; c < kWidth; ++c) {
      ti[c] = tanhf(sum[c]);
      sum[c] += parameters[kOffset + c];
    }
    for (int r = 0; r < kWidth; ++r)
      for (int c = 0; c < kWidth; ++c) sum[c] += ti[r] * parameters[kMatrix + r * kWidth + c];
    memcpy(x + i * kWidth, sum, sizeof sum);
  }
}

/* From dx [N, kWidth], what Mix read and its t: the gradients of parameters and rows. */
static inline void MixBackward(const float* parameters, const float* rows, int64_t n, const float* t, const float* dx,
                               float* dparameters, float* drows) {
  enum { kLanes = 16 }; /* a sum per lane of the widest vectors */
  memset(dparameters, 0, kMixing * sizeof *dparameters);
  for (int64_t i = 0; i < n; ++i) {
    const float* const ti = t + i * kWidth;
    float dxi[kWidth], du[kWidth];
    memcpy(dxi, dx + i * kWidth, sizeof dxi);
    for (int c = 0; c < kWidth; ++c) dparameters[kOffset + c] += dxi[c];
    for (int r = 0; r < kWidth; ++r) {
      const float* const row = parameters + kMatrix + r * kWidth;
      float* const drow = dparameters + kMatrix + r * kWidth;
      float lanes[kLanes] = {0}, dt = 0;
      for (int c = 0; c < kWidth; c += kLanes)
        for (int l = 0; l < kLanes; ++l) lanes[l] += row[c + l] * dxi[c + l];
      for (int l = 0; l < kLanes; ++l) dt += lanes[l];
      for (int c = 0; c < kWidth; ++c) drow[c] += ti[r] * dxi[c];
      du[r] = dxi[r] + dt * (1 - ti[r] * ti[r]);
    }
    for (int k = 0; k < kContext; ++k) {
      const float *const e = rows + (i * kContext + k) * kWidth, *const scale = parameters + k * kWidth;
      float *const de = drows + (i * kContext + k) * kWidth, *const dscale = dparameters + k * kWidth;
      for (int c = 0; c < kWidth; ++c) {
        dscale[c] += e[c] * du[c];
        de[c] = scale[c] * du[c];
      }
    }
  }
}

/* ---- IEEE binary16: 1 bit of sign, 5 of exponent, 10 of fraction */

/* Rounded to nearest, ties to even. */
static inline uint16_t HalfFromFloat(float value) {
  uint32_t bits, half;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00); /* NaN */
  if (size >= 0x38800000) { /* 2^-14, the least normal one; a carry out of the fraction is right in the exponent */
    half = (size + 0xfff + (size >> 13 & 1) - ((uint32_t)(127 - 15) << 23)) >> 13;
    if (half > 0x7c00) half = 0x7c00;
  } else { /* the last bit of a number in [0.5, 1) is 2^-24, the step of what is subnormal here */
    float aligned;
    memcpy(&aligned, &size, sizeof aligned);
    aligned += 0.5F;
    memcpy(&half, &aligned, sizeof half);
    half -= 0x3f000000; /* 0.5 */
  }
  return (uint16_t)(sign | half);
}

static inline float FloatFromHalf(uint16_t half) {
  const uint32_t size = half & 0x7fff;
  const uint32_t bits = (size << 13) + ((uint32_t)((size >= 0x7c00 ? 255 - 31 : 127 - 15)) << 23);
  float value;
  memcpy(&value, &bits, sizeof value);
  if (size < 0x400) value = (float)size / 16777216; /* subnormal: multiples of 2^-24 */
  return half & 0x8000 ? -value : value;
}

#endif /* EXAMPLES_WORD_MIX_H_ */
