// SPDX-License-Identifier: MIT
// What kernels over images share.
#ifndef CNN_CUDA_SPATIAL_CUH
#define CNN_CUDA_SPATIAL_CUH

#include "kernel.cuh"
#include "spatial.h"

// i / size, and the rest in i; both at least 0. Division of 64-bit numbers is slow, and seldom
// needed.
__device__ inline int64_t k_split(int64_t &i, int64_t size) {
  const int64_t all = i;
  if (((all | size) >> 32) == 0) {
    const uint32_t a = static_cast<uint32_t>(all), b = static_cast<uint32_t>(size);
    const uint32_t q = a / b;
    i = a - q * b;
    return q;
  }
  const int64_t q = all / size;
  i = all - q * size;
  return q;
}

// An element of an image: its channel, and its place in the three spatial dims.
struct k_spot {
  int64_t n, c;
  int p[3];
};

// Element i, in row-major order or, with `last`, channels-last.
__device__ inline k_spot k_spot_at(int64_t i, int64_t channels, const int32_t *size, bool last) {
  k_spot s;
  const int64_t places = static_cast<int64_t>(size[0]) * size[1] * size[2];
  int64_t place;
  if (last) {
    place = k_split(i, channels);
    s.c = i;
    s.n = k_split(place, places);
  } else {
    s.c = k_split(i, places);
    place = i;
    s.n = k_split(s.c, channels);
  }
  s.p[0] = static_cast<int>(k_split(place, static_cast<int64_t>(size[1]) * size[2]));
  s.p[1] = static_cast<int>(k_split(place, size[2]));
  s.p[2] = static_cast<int>(place);
  return s;
}

__device__ inline int64_t k_offset_of(const cuda_image &o, int64_t n, int64_t c, int64_t p0,
                                      int64_t p1, int64_t p2) {
  return n * o.n + c * o.c + p0 * o.s[0] + p1 * o.s[1] + p2 * o.s[2];
}
__device__ inline int64_t k_offset_of(const cuda_image &o, const k_spot &s) {
  return k_offset_of(o, s.n, s.c, s.p[0], s.p[1], s.p[2]);
}

#endif
