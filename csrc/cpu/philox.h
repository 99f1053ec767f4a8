// SPDX-License-Identifier: MIT
// base/philox.h for many counters at once.
#ifndef CNN_CPU_PHILOX_H
#define CNN_CPU_PHILOX_H

#include <stdint.h>

#define CNN_PHILOX_PIECE 256

// The four words of each counter, word by word.
typedef struct cnn_philox_words {
  _Alignas(64) uint32_t v[4][CNN_PHILOX_PIECE];
} cnn_philox_words;

// Fills the first n_words (1, 2 or 4) of n <= CNN_PHILOX_PIECE counters. Works on whole vectors:
// the array has CNN_PHILOX_PIECE entries, and what follows the n-th, there and in the result, may
// be anything.
void cnn_philox_fill(uint64_t seed, const uint64_t *counters, int64_t n, int n_words,
                     cnn_philox_words *out);

#endif
