// SPDX-License-Identifier: MIT
// Who works on a line (a row): a thread where neighbouring lines are neighbours in memory, else a
// warp, for a long one a block. `by` is a template argument of the kernel.
//
// And rows in registers: a row that a team's registers have room for is read once, whatever is
// computed of it.
#ifndef CNN_CUDA_TEAM_CUH
#define CNN_CUDA_TEAM_CUH

#include "kernel.cuh"

enum { BY_THREAD, BY_WARP, BY_BLOCK };

// How many threads a team has, and which of them this one is.
template <int by> __host__ __device__ constexpr int k_team_width() {
  return by == BY_THREAD ? 1 : by == BY_WARP ? 32 : K_BLOCK;
}
template <int by> __device__ inline int k_team_me() {
  return by == BY_THREAD ? 0 : by == BY_WARP ? threadIdx.x & 31 : threadIdx.x;
}
// The first line of this team, and how far it is to its next one.
template <int by> __device__ inline int64_t k_team_line() {
  return by == BY_THREAD ? k_index()
         : by == BY_WARP ? static_cast<int64_t>(blockIdx.x) * (K_BLOCK / 32) + (threadIdx.x >> 5)
                         : blockIdx.x;
}
template <int by> __device__ inline int64_t k_team_step() {
  return by == BY_THREAD ? k_stride()
         : by == BY_WARP ? static_cast<int64_t>(gridDim.x) * (K_BLOCK / 32)
                         : gridDim.x;
}
// The values of a team's threads as one, which all of them get. `shared` is used by blocks.
template <int by, class T, class F>
__device__ inline T k_team_reduce(T v, T *shared, T identity, F combine) {
  if constexpr (by == BY_THREAD) return v;
  if constexpr (by == BY_WARP) return k_warp_reduce(v, combine);
  return k_block_reduce(v, shared, identity, combine);
}

// ---------------------------------------------------------------------------------------------

// Who holds a row in its registers: a warp with 8 elements to a thread, which leaves room for more
// warps; with 32 (float64: 16); or a block with as many.
enum { HELD_FEW, HELD_WARP, HELD_BLOCK, HELD_NOT };

// What a team holds of a row of S, of n elements, at most `most`: widened, in v[count] of each
// thread. Rows are dense, aligned to 16 bytes, and whole runs of these: run p of a thread is
// v[p * run] on.
template <class S, int holder> struct k_held {
  typedef k_computed<S> T;
  static constexpr int by = holder == HELD_BLOCK ? BY_BLOCK : BY_WARP;
  static constexpr int run = 16 / sizeof(S);
  static constexpr int count = holder == HELD_FEW ? 8 : 128 / static_cast<int>(sizeof(T));
  static constexpr int runs = count / run, width = k_team_width<by>(), most = count * width;

  // Where run p of this thread begins in the row: not below n, where there is none.
  __device__ static int at(int p) { return (p * width + k_team_me<by>()) * run; }

  // What is not there becomes `absent`.
  __device__ static void load(const S *x, int n, T *v, T absent) {
    k_pack<S, run> got[runs];
#pragma unroll
    for (int p = 0; p < runs; p++)
      if (at(p) < n) got[p] = *reinterpret_cast<const k_pack<S, run> *>(x + at(p));
#pragma unroll
    for (int p = 0; p < runs; p++) {
#pragma unroll
      for (int k = 0; k < run; k++) v[p * run + k] = at(p) < n ? k_widen(got[p].v[k]) : absent;
    }
  }
  __device__ static void store(S *y, int n, const T *v) {
#pragma unroll
    for (int p = 0; p < runs; p++) {
      k_pack<S, run> set;
#pragma unroll
      for (int k = 0; k < run; k++) set.v[k] = k_narrow<S>(v[p * run + k]);
      if (at(p) < n) *reinterpret_cast<k_pack<S, run> *>(y + at(p)) = set;
    }
  }
};

template <class S> static inline int k_holder_of(int64_t n) {
  if (n == 0 || n > k_held<S, HELD_BLOCK>::most || n % k_held<S, HELD_FEW>::run) return HELD_NOT;
  return n > k_held<S, HELD_WARP>::most  ? HELD_BLOCK
         : n > k_held<S, HELD_FEW>::most ? HELD_WARP
                                         : HELD_FEW;
}
// Whether the rows of a view begin at whole runs.
template <class S>
static inline bool k_rows_aligned(const cuda_walk *rows, int view, const void *data) {
  for (int d = 0; d < rows->ndim; d++)
    if (rows->strides[view][d] % k_held<S, HELD_FEW>::run) return false;
  return k_aligned(data, 16);
}
// Blocks for n rows: each of them has a row at a time, or each of its warps.
static inline unsigned k_rows_grid(const cnn_call *call, int64_t n, int by) {
  const int64_t each = by == BY_THREAD ? K_BLOCK : by == BY_WARP ? K_BLOCK / 32 : 1;
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 32;
  const int64_t blocks = (n + each - 1) / each;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

#endif
