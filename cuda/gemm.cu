// SPDX-License-Identifier: MIT
// Products of any dtype and any strides: for what cuBLASLt doesn't take (integers above all).
// 64 x 64 elements of C to a block, 4 x 4 to a thread, 16 of the inner dim at a time.
#include "kernel.cuh"

#include "gemm.h"

#define TILE  64
#define DEPTH 16
#define EACH  4
#define BLOCK 256

typedef struct dims {
  int64_t m, n, k, a_rs, a_cs, b_rs, b_cs, c_rs, sums, batch;
  int n_outer, n_sum;
  cnn_product_dim outer[CNN_MAX_DIMS], sum[CNN_MAX_DIMS];
} dims;

__device__ static inline void offsets(const cnn_product_dim *d, int n, int64_t at, int64_t *a,
                                      int64_t *b, int64_t *c) {
  *a = *b = *c = 0;
  for (int i = 0; i < n; i++) {
    const int64_t r = at % d[i].size;
    at /= d[i].size;
    *a += r * d[i].a, *b += r * d[i].b, *c += r * d[i].c;
  }
}

// Integers wrap around: their products are made without a sign.
template <class S> struct product_type { typedef uint64_t type; };
template <> struct product_type<float> { typedef float type; };
template <> struct product_type<double> { typedef double type; };
template <> struct product_type<k_f16> { typedef float type; };
template <> struct product_type<k_bf16> { typedef float type; };

template <class S>
__global__ void __launch_bounds__(BLOCK)
    k_gemm(const S *A, const S *B, S *C, dims d, typename product_type<S>::type alpha,
           typename product_type<S>::type beta) {
  typedef typename product_type<S>::type T;
  __shared__ T as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
  const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
  const int64_t row_tiles = (d.m + TILE - 1) / TILE;
  const int64_t col0 = static_cast<int64_t>(blockIdx.x) * TILE;
  for (int64_t job = blockIdx.y; job < d.batch * row_tiles; job += gridDim.y) {
    const int64_t batch = job / row_tiles, row0 = job % row_tiles * TILE;
    int64_t a0, b0, c0;
    offsets(d.outer, d.n_outer, batch, &a0, &b0, &c0);
    T sum[EACH][EACH] = {};
    for (int64_t s = 0; s < d.sums; s++) {
      int64_t a1, b1, unused;
      offsets(d.sum, d.n_sum, s, &a1, &b1, &unused);
      const S *a = A + a0 + a1, *b = B + b0 + b1;
      for (int64_t k0 = 0; k0 < d.k; k0 += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += BLOCK) {
          // Neighbouring threads read along the dim that lies densely.
          const int ar = d.a_cs == 1 ? i / DEPTH : i % TILE,
                    ak = d.a_cs == 1 ? i % DEPTH : i / TILE;
          const int bc = d.b_rs == 1 ? i / DEPTH : i % TILE,
                    bk = d.b_rs == 1 ? i % DEPTH : i / TILE;
          as[ak][ar] = row0 + ar < d.m && k0 + ak < d.k
                           ? static_cast<T>(k_widen(a[(row0 + ar) * d.a_rs + (k0 + ak) * d.a_cs]))
                           : T(0);
          bs[bk][bc] = col0 + bc < d.n && k0 + bk < d.k
                           ? static_cast<T>(k_widen(b[(k0 + bk) * d.b_rs + (col0 + bc) * d.b_cs]))
                           : T(0);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
          T x[EACH], y[EACH];
#pragma unroll
          for (int i = 0; i < EACH; i++) x[i] = as[k][ty + 16 * i], y[i] = bs[k][tx + 16 * i];
#pragma unroll
          for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) sum[i][j] += x[i] * y[j];
        }
        __syncthreads();
      }
    }
    S *c = C + c0;
    for (int i = 0; i < EACH; i++)
      for (int j = 0; j < EACH; j++) {
        const int64_t row = row0 + ty + 16 * i, col = col0 + tx + 16 * j;
        if (row >= d.m || col >= d.n) continue;
        S *to = &c[row * d.c_rs + col];
        T v = alpha * sum[i][j];
        if (beta != T(0)) v += beta * static_cast<T>(k_widen(*to));
        *to = k_narrow<S>(v);
      }
  }
}

template <class T> static T number(double v) {
  return static_cast<T>(v);
}
template <> uint64_t number<uint64_t>(double v) {
  return static_cast<uint64_t>(static_cast<int64_t>(v));
}

extern "C" cnn_status cuda_gemm_own(const cnn_call *call, const cnn_product *p) {
  dims d = {};
  d.m = p->m, d.n = p->n, d.k = p->k;
  d.a_rs = p->a_rs, d.a_cs = p->a_cs, d.b_rs = p->b_rs, d.b_cs = p->b_cs, d.c_rs = p->c_rs;
  d.n_outer = p->n_outer, d.n_sum = p->n_sum;
  d.batch = p->outer_count;
  d.sums = p->sum_count;
  memcpy(d.outer, p->outer, sizeof d.outer);
  memcpy(d.sum, p->sum, sizeof d.sum);
  const int64_t jobs = (p->m + TILE - 1) / TILE * d.batch;
  const dim3 grid(static_cast<unsigned>((p->n + TILE - 1) / TILE),
                  static_cast<unsigned>(jobs < 65535 ? jobs : 65535));
  return k_by_real(call, p->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    typedef typename product_type<S>::type T;
    return CUDA_LAUNCH(call, k_gemm<S>, grid, BLOCK, 0, reinterpret_cast<const S *>(p->a),
                       reinterpret_cast<const S *>(p->b), reinterpret_cast<S *>(p->c), d,
                       number<T>(p->alpha), number<T>(p->beta));
  });
}
