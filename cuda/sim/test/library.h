// SPDX-License-Identifier: MIT
// What the tests of the library engines share: arrays that lie on the device and, as doubles, on
// the host; and comparison against a bound that grows with what was summed.
#ifndef CNN_CUDA_SIM_TEST_LIBRARY_H
#define CNN_CUDA_SIM_TEST_LIBRARY_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "check.h"
#include "sim.h"

// `count` elements from element `offset` of an allocation (what is before is never looked at).
typedef struct array {
  cnn_dtype dtype;
  int64_t count;
  char *base, *p; // device memory
  double *v;      // what it is meant to hold: rounded to dtype
} array;

static uint64_t random_state = 88172645463325252u;
static double random_number(void) { // in [-1, 1)
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (double)(random_state >> 11) * 0x1p-52 - 1;
}

static void array_write(array *a) { // v to the device
  size_t size = cnn_dtype_size(a->dtype);
  char *bytes = malloc((size_t)a->count * size + 1);
  for (int64_t i = 0; i < a->count; i++) {
    cnn_element_set(a->dtype, bytes + (size_t)i * size, a->v[i]);
    a->v[i] = cnn_element_get(a->dtype, bytes + (size_t)i * size);
  }
  if (a->count) cudaMemcpy(a->p, bytes, (size_t)a->count * size, cudaMemcpyHostToDevice);
  free(bytes);
}

static void array_read(array *a) { // the device to v
  size_t size = cnn_dtype_size(a->dtype);
  char *bytes = malloc((size_t)a->count * size + 1);
  if (a->count) cudaMemcpy(bytes, a->p, (size_t)a->count * size, cudaMemcpyDeviceToHost);
  for (int64_t i = 0; i < a->count; i++)
    a->v[i] = cnn_element_get(a->dtype, bytes + (size_t)i * size);
  free(bytes);
}

static array array_new(cnn_dtype dtype, int64_t count, int64_t offset) { // full of NaN
  array a = {dtype, count, NULL, NULL, calloc((size_t)count + 1, sizeof(double))};
  void *p = NULL;
  size_t size = cnn_dtype_size(dtype);
  cudaMalloc(&p, (size_t)(count + offset) * size + 1);
  a.base = p;
  a.p = a.base + (size_t)offset * size;
  for (int64_t i = 0; i < count; i++) a.v[i] = NAN;
  array_write(&a);
  return a;
}

static array array_random(cnn_dtype dtype, int64_t count, int64_t offset) {
  array a = array_new(dtype, count, offset);
  for (int64_t i = 0; i < count; i++) a.v[i] = random_number();
  array_write(&a);
  return a;
}

static void array_free(array *a) {
  cudaFree(a->base);
  free(a->v);
}

// Half a unit in the last place, relative.
static double unit(cnn_dtype t) {
  return t == CNN_F64 ? 0x1p-53 : t == CNN_F32 ? 0x1p-24 : t == CNN_F16 ? 0x1p-11 : 0x1p-8;
}

// Whether `got` is `want` rounded to dtype, `size` being the sum of the absolute values of what was
// added up in the type that `dtype` is summed in.
static bool near(cnn_dtype dtype, double got, double want, double size) {
  double sums = dtype == CNN_F64 ? 0x1p-53 : 0x1p-24;
  double bound = 1.01 * unit(dtype) * fabs(want) + 16 * sums * (size + fabs(want));
  if (dtype == CNN_F16) bound += 0x1p-25; // subnormal results
  return fabs(got - want) <= bound;       // false for NaN
}

#endif
