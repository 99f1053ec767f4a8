// SPDX-License-Identifier: MIT
// Count, mean and sum of squared deviations of some elements, and how two of them are joined (Chan,
// Golub, LeVeque: "Updating formulae and a pairwise algorithm for computing sample variances",
// 1979). Nothing is lost where the mean is large: deviations are never differences of squares.
#ifndef CNN_CUDA_MOMENTS_CUH
#define CNN_CUDA_MOMENTS_CUH

#include "kernel.cuh"

template <class T> struct k_moments { T n, mean, squares; };

template <class T>
__device__ inline k_moments<T> k_moments_join(const k_moments<T> &a, const k_moments<T> &b) {
  if (a.n == 0) return b;
  if (b.n == 0) return a;
  const T n = a.n + b.n, delta = b.mean - a.mean, share = b.n / n;
  return k_moments<T>{n, a.mean + delta * share,
                      a.squares + b.squares + delta * delta * a.n * share};
}

// Of the first n <= N elements at x, which are in registers.
template <int N, class T> __device__ inline k_moments<T> k_moments_of(int n, const T *x) {
  k_moments<T> m = {static_cast<T>(n), 0, 0};
#pragma unroll
  for (int k = 0; k < N; k++)
    if (k < n) m.mean += x[k];
  m.mean /= static_cast<T>(n);
#pragma unroll
  for (int k = 0; k < N; k++)
    if (k < n) m.squares += (x[k] - m.mean) * (x[k] - m.mean);
  return m;
}

#endif
