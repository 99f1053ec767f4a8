// SPDX-License-Identifier: MIT
// What comes before each of n integers, in three kernels: sums of tiles, what comes before each
// tile, and again each tile with what comes before its elements. Tiles depend on n alone.
//
// A source is a struct with
//   int64_t value(int64_t i) const
//   void emit(int64_t i, int64_t before, int64_t value) const
// passed by value. It is read twice.
#ifndef CNN_CUDA_SCAN_CUH
#define CNN_CUDA_SCAN_CUH

#include "kernel.cuh"

#define K_TILES 1024 // at most

typedef struct k_tiles {
  int64_t n, size, count;
} k_tiles;

static inline k_tiles k_tiles_of(int64_t n) {
  k_tiles t;
  t.n = n;
  t.size = (n / K_TILES / K_BLOCK + 1) * K_BLOCK;
  if (t.size < 4 * K_BLOCK) t.size = 4 * K_BLOCK;
  t.count = (n + t.size - 1) / t.size;
  return t;
}
// For the sums of tiles.
static inline size_t k_tiles_scratch(int64_t n) {
  return static_cast<size_t>(k_tiles_of(n).count) * sizeof(int64_t);
}

template <class Source>
__global__ void __launch_bounds__(K_BLOCK) k_tile_sums(Source source, k_tiles t, int64_t *sums) {
  __shared__ int64_t shared[32];
  const int64_t begin = blockIdx.x * t.size, end = begin + t.size < t.n ? begin + t.size : t.n;
  int64_t sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += K_BLOCK) sum += source.value(i);
  sum = k_block_reduce(sum, shared, static_cast<int64_t>(0), k_sum());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One block. The sum of all in *total, unless that is NULL.
static __global__ void __launch_bounds__(K_BLOCK)
    k_tile_starts(int64_t count, int64_t *sums, int64_t *total) {
  __shared__ int64_t shared[32];
  int64_t before = 0;
  for (int64_t first = 0; first < count; first += K_BLOCK) {
    const int64_t i = first + threadIdx.x;
    int64_t all;
    const int64_t own = k_block_scan(i < count ? sums[i] : 0, shared, &all);
    if (i < count) sums[i] = before + own;
    before += all;
  }
  if (total && threadIdx.x == 0) *total = before;
}

template <class Source>
__global__ void __launch_bounds__(K_BLOCK)
    k_tile_emit(Source source, k_tiles t, const int64_t *starts) {
  __shared__ int64_t shared[32];
  const int64_t begin = blockIdx.x * t.size, end = begin + t.size < t.n ? begin + t.size : t.n;
  int64_t before = starts[blockIdx.x];
  for (int64_t first = begin; first < end; first += K_BLOCK) {
    const int64_t i = first + threadIdx.x;
    const int64_t value = i < end ? source.value(i) : 0;
    int64_t all;
    const int64_t own = k_block_scan(value, shared, &all);
    if (i < end) source.emit(i, before + own, value);
    before += all;
  }
}

// The sum of n values into *total on the device.
template <class Source>
cnn_status k_total(const cnn_call *call, const Source &source, int64_t n, int64_t *sums,
                   int64_t *total) {
  const k_tiles t = k_tiles_of(n);
  CNN_TRY(CUDA_LAUNCH(call, k_tile_sums<Source>, static_cast<unsigned>(t.count), K_BLOCK, 0, source,
                      t, sums));
  return CUDA_LAUNCH(call, k_tile_starts, 1, K_BLOCK, 0, t.count, sums, total);
}
// emit for each.
template <class Source>
cnn_status k_scan(const cnn_call *call, const Source &source, int64_t n, int64_t *sums) {
  const k_tiles t = k_tiles_of(n);
  CNN_TRY(k_total(call, source, n, sums, static_cast<int64_t *>(nullptr)));
  return CUDA_LAUNCH(call, k_tile_emit<Source>, static_cast<unsigned>(t.count), K_BLOCK, 0, source,
                     t, sums);
}

#endif
