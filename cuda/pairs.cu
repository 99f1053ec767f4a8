// SPDX-License-Identifier: MIT
// Few pairs are sorted by rank: each counts those before it. Many by radix, from the lowest digit
// of 8 bits up: what limits it is memory, 4 times the bytes of the list for each digit.
#include "pairs.cuh"

#define DIGIT  256  // values of a digit: also the threads of a block
#define FEW    1024 // pairs that are sorted by rank
#define BLOCKS 1024 // most blocks of a radix sort

static __global__ void __launch_bounds__(K_BLOCK) k_rank(cuda_pairs from, cuda_pairs to) {
  const int n = static_cast<int>(from.n);
  for (int i = static_cast<int>(k_index()); i < n; i += static_cast<int>(k_stride())) {
    const uint64_t key = k_word(from.wide, from.keys, i);
    int rank = 0;
#pragma unroll 4
    for (int j = 0; j < n; j++) {
      const uint64_t other = k_word(from.wide, from.keys, j);
      rank += other < key || (other == key && j < i);
    }
    k_set_word(to.wide, to.keys, rank, key);
    k_set_word(to.wide, to.values, rank, k_word(from.wide, from.values, i));
  }
}

// A pass of the radix sort: each block counts the digits of its tile, a warp finds where each
// tile's keys of a digit begin, and each block puts its keys there in their order.

static __global__ void __launch_bounds__(DIGIT)
    k_digits(cuda_pairs list, int64_t tile, int shift, int64_t *counts) {
  __shared__ unsigned bins[DIGIT];
  const int me = threadIdx.x;
  const int64_t begin = blockIdx.x * tile, end = begin + tile < list.n ? begin + tile : list.n;
  bins[me] = 0;
  __syncthreads();
  for (int64_t i = begin + me; i < end; i += DIGIT)
    atomicAdd(&bins[k_word(list.wide, list.keys, i) >> shift & (DIGIT - 1)], 1u);
  __syncthreads();
  counts[static_cast<int64_t>(blockIdx.x) * DIGIT + me] = bins[me];
}

// A warp to a digit: counts[blocks][DIGIT] become what comes before within the digit; how many
// there are of each digit follow them.
static __global__ void __launch_bounds__(DIGIT) k_starts(int64_t blocks, int64_t *counts) {
  const int lane = threadIdx.x & 31;
  const int digit = static_cast<int>(blockIdx.x) * (DIGIT / 32) + (threadIdx.x >> 5);
  int64_t before = 0;
  for (int64_t first = 0; first < blocks; first += 32) {
    int64_t *count = &counts[(first + lane) * DIGIT + digit];
    const int64_t own = first + lane < blocks ? *count : 0;
    int64_t sum = own;
#pragma unroll
    for (int by = 1; by < 32; by <<= 1) {
      const int64_t other = k_shuffle_up(sum, by);
      if (lane >= by) sum += other;
    }
    if (first + lane < blocks) *count = before + sum - own;
    before += k_shuffle_from(sum, 31);
  }
  if (lane == 0) counts[blocks * DIGIT + digit] = before;
}

static __global__ void __launch_bounds__(DIGIT)
    k_distribute(cuda_pairs from, cuda_pairs to, int64_t tile, int shift, const int64_t *counts) {
  __shared__ int64_t start[DIGIT], sums[DIGIT / 32];
  __shared__ unsigned found[DIGIT / 32][DIGIT]; // by warp
  const int me = threadIdx.x, lane = me & 31, warp = me >> 5;
  const int64_t begin = blockIdx.x * tile, end = begin + tile < from.n ? begin + tile : from.n;
  int64_t all;
  start[me] = counts[static_cast<int64_t>(blockIdx.x) * DIGIT + me] +
              k_block_scan(counts[static_cast<int64_t>(gridDim.x) * DIGIT + me], sums, &all);
#pragma unroll
  for (int w = 0; w < DIGIT / 32; w++) found[w][me] = 0;
  __syncthreads();
  for (int64_t at = begin; at < end; at += DIGIT) {
    const int64_t i = at + me;
    const bool there = i < end;
    const uint64_t key = there ? k_word(from.wide, from.keys, i) : 0;
    const unsigned digit = static_cast<unsigned>(key >> shift) & (DIGIT - 1);
    // Lanes with this digit.
    unsigned peers = __ballot_sync(K_FULL_WARP, there);
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
      const unsigned set = __ballot_sync(K_FULL_WARP, digit >> bit & 1);
      peers &= digit >> bit & 1 ? set : ~set;
    }
    const int rank = __popc(peers & ((1u << lane) - 1));
    if (there && rank == 0) found[warp][digit] = __popc(peers);
    __syncthreads();
    if (there) {
      int64_t place = start[digit] + rank;
      for (int w = 0; w < warp; w++) place += found[w][digit];
      k_set_word(to.wide, to.keys, place, key);
      k_set_word(to.wide, to.values, place, k_word(from.wide, from.values, i));
    }
    __syncthreads();
    unsigned sum = 0;
#pragma unroll
    for (int w = 0; w < DIGIT / 32; w++) {
      sum += found[w][me];
      found[w][me] = 0;
    }
    start[me] += sum;
    __syncthreads();
  }
}

// ---------------------------------------------------------------------------------------------

static int64_t tile_of(int64_t n) {
  const int64_t tile = (n / BLOCKS / DIGIT + 1) * DIGIT;
  return tile < 8 * DIGIT ? 8 * DIGIT : tile;
}
static int64_t blocks_of(int64_t n) {
  return (n + tile_of(n) - 1) / tile_of(n);
}
static size_t word_bytes(int64_t n, bool wide) {
  return (static_cast<size_t>(n) * (wide ? 8 : 4) + 63) / 64 * 64;
}

size_t cuda_pairs_scratch(int64_t n, bool wide) {
  const size_t counts = static_cast<size_t>((blocks_of(n) + 1) * DIGIT) * sizeof(int64_t);
  return 4 * word_bytes(n, wide) + (n > FEW ? counts : 0);
}

cuda_pairs cuda_pairs_at(void *scratch, int64_t n, bool wide) {
  char *keys = static_cast<char *>(scratch);
  return cuda_pairs{keys, keys + word_bytes(n, wide), n, wide};
}

cnn_status cuda_pairs_sort(const cnn_call *call, cuda_pairs *pairs, int64_t most, void *scratch) {
  const int64_t n = pairs->n;
  const size_t bytes = word_bytes(n, pairs->wide);
  cuda_pairs other = cuda_pairs_at(static_cast<char *>(scratch) + 2 * bytes, n, pairs->wide);
  if (n <= 1) return CNN_OK;
  if (n <= FEW) {
    CNN_TRY(CUDA_LAUNCH(call, k_rank, k_grid(call, n), K_BLOCK, 0, *pairs, other));
    *pairs = other;
    return CNN_OK;
  }
  int64_t *counts = reinterpret_cast<int64_t *>(static_cast<char *>(scratch) + 4 * bytes);
  const int64_t tile = tile_of(n), blocks = blocks_of(n);
  const unsigned grid = static_cast<unsigned>(blocks);
  for (int shift = 0; shift < 64 && most >> shift != 0; shift += 8) {
    CNN_TRY(CUDA_LAUNCH(call, k_digits, grid, DIGIT, 0, *pairs, tile, shift, counts));
    CNN_TRY(CUDA_LAUNCH(call, k_starts, 32, DIGIT, 0, blocks, counts));
    CNN_TRY(CUDA_LAUNCH(call, k_distribute, grid, DIGIT, 0, *pairs, other, tile, shift, counts));
    const cuda_pairs swap = *pairs;
    *pairs = other;
    other = swap;
  }
  return CNN_OK;
}
