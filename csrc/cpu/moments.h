// SPDX-License-Identifier: MIT
// What the kernels of normalisations and losses share for sums over runs of elements.
//
// Sums run in the lanes of a few vectors within a block of at most BLOCK elements and in double
// between blocks, so that the error does not grow with the number of elements as that of one long
// sum would.
#ifndef CNN_CPU_MOMENTS_H
#define CNN_CPU_MOMENTS_H

#include <stdint.h>

#include "cpu/clones.h"

#define BLOCK  4096 // the most elements that are summed in one type's lanes
#define INLINE static inline __attribute__((always_inline))
#define SIMD   _Pragma("omp simd")

// Vectors that lie anywhere in memory. Longer than those of most processors: the compiler cuts
// them, and gets independent sums to add at once.
typedef float vec_f32 __attribute__((vector_size(64), aligned(4), may_alias));
typedef double vec_f64 __attribute__((vector_size(64), aligned(8), may_alias));

INLINE float sum_f32(const vec_f32 *v) {
  float s[16];
  for (int l = 0; l < 16; l++) s[l] = (*v)[l];
  for (int h = 8; h > 0; h /= 2)
    for (int l = 0; l < h; l++) s[l] += s[l + h];
  return s[0];
}

INLINE double sum_f64(const vec_f64 *v) {
  double s[8];
  for (int l = 0; l < 8; l++) s[l] = (*v)[l];
  for (int h = 4; h > 0; h /= 2)
    for (int l = 0; l < h; l++) s[l] += s[l + h];
  return s[0];
}

// Count, mean, and sum of squared deviations from it.
typedef struct moments {
  double n, mean, m2;
} moments;

// Chan, Golub and LeVeque, The American Statistician 37 (1983).
static inline void join(moments *m, const moments *part) {
  double n = m->n + part->n, delta = part->mean - m->mean, share = part->n / n;
  m->mean += delta * share;
  m->m2 += part->m2 + delta * delta * m->n * share;
  m->n = n;
}

// Divided by n. A NaN stays one; rounding never makes it negative.
static inline double variance(const moments *m) {
  double v = m->m2 / m->n;
  return v < 0 ? 0 : v;
}

#endif
