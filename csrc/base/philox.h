// SPDX-License-Identifier: MIT
// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011).
//
// Element i of an op that started at `offset` draws from counter offset + i, whatever thread or
// device computes it: so the CPU and the GPU draw the same numbers from the same seed.
#ifndef CNN_BASE_PHILOX_H
#define CNN_BASE_PHILOX_H

#include <stdint.h>

#include "base/inline.h"

typedef struct cnn_rng {
  uint64_t seed;
  uint64_t offset; // the next unused counter
} cnn_rng;

typedef struct cnn_philox {
  uint32_t v[4];
} cnn_philox;

CNN_INLINE cnn_philox cnn_philox_at(uint64_t seed, uint64_t counter) {
  uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = n0, c2 = n2;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  cnn_philox r = {{c0, c1, c2, c3}};
  return r;
}

// Uniform in [0, 1): 24 bits for float, 53 for double, so that 1 is never reached.
CNN_INLINE float cnn_uniform_f32(cnn_philox r) {
  return (float)(r.v[0] >> 8) * 0x1p-24f;
}

CNN_INLINE double cnn_uniform_f64(cnn_philox r) {
  return (double)((((uint64_t)r.v[0] << 32) | r.v[1]) >> 11) * 0x1p-53;
}

// floor(64 random bits * range / 2^64): the bias is below range / 2^64. Range 0 is none that it
// takes.
CNN_INLINE uint64_t cnn_below_range(uint32_t high, uint32_t low, uint64_t range) {
  if (range >> 32 == 0) return ((uint64_t)high * range + ((uint64_t)low * range >> 32)) >> 32;
  __extension__ typedef unsigned __int128 wide;
  return (uint64_t)(((wide)((uint64_t)high << 32 | low) * range) >> 64);
}

#endif
