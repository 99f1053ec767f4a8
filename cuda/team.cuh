// SPDX-License-Identifier: MIT
// Who works on a line (a row): a thread where neighbouring lines are neighbours in memory, else a
// warp, for a long one a block. `by` is a template argument of the kernel.
#ifndef CNN_CUDA_TEAM_CUH
#define CNN_CUDA_TEAM_CUH

#include "kernel.cuh"

enum { BY_THREAD, BY_WARP, BY_BLOCK };

// How many threads a team has, and which of them this one is.
template <int by> __device__ inline int k_team_width() {
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

#endif
