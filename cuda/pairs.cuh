// SPDX-License-Identifier: MIT
// Lists of pairs (key, value), sorted by key. Stable: equal keys keep their order.
#ifndef CNN_CUDA_PAIRS_CUH
#define CNN_CUDA_PAIRS_CUH

#include "kernel.cuh"

// Words are uint32, or uint64 in a wide list.
typedef struct cuda_pairs {
  void *keys, *values;
  int64_t n;
  bool wide;
} cuda_pairs;

__device__ static inline uint64_t k_word(bool wide, const void *p, int64_t i) {
  return wide ? static_cast<const uint64_t *>(p)[i] : static_cast<const uint32_t *>(p)[i];
}
__device__ static inline void k_set_word(bool wide, void *p, int64_t i, uint64_t v) {
  if (wide)
    static_cast<uint64_t *>(p)[i] = v;
  else
    static_cast<uint32_t *>(p)[i] = static_cast<uint32_t>(v);
}

// Bytes for a list and its sort; a multiple of 64.
size_t cuda_pairs_scratch(int64_t n, bool wide);
// The list in the scratch, to be filled.
cuda_pairs cuda_pairs_at(void *scratch, int64_t n, bool wide);
// Sorts it; no key is larger than `most`. Then the list may lie elsewhere in the scratch.
cnn_status cuda_pairs_sort(const cnn_call *call, cuda_pairs *pairs, int64_t most, void *scratch);

#endif
