// SPDX-License-Identifier: MIT
//
// See kernels.h. MUT(n) is true where the bug n of mutations.txt is asked for; NO_MUTATIONS leaves
// them out, for nvcc.
#include "kernels.h"
#include "../../ptx.h"

extern "C" int mutation;
int mutation = 0;
#ifdef NO_MUTATIONS
#define MUT(n) 0
#else
#define MUT(n) (mutation == (n))
#endif

// ---- One thread an element --------------------------------------------------------------------

__global__ void vector_add(const float *a, const float *b, float *c, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (MUT(1) ? i <= n : i < n) c[i] = a[MUT(1) ? 0 : i] + b[MUT(1) ? 0 : i];
  if (MUT(2) && i == n) c[0] = a[i];               // reads past the end
  if (MUT(3) && i == 0) c[-1] = 1;                 // writes before the start
  if (MUT(4) && i < n - 1) c[i] = a[i] + c[i + 1]; // reads what a neighbour writes
  if (MUT(5)) c[0] = static_cast<float>(i);        // all write one place
  if (MUT(6) && i < n) {                           // int overflow in an index
    const int far = (i + 1) * 1500000000;
    c[i] += static_cast<float>(far) * 0.0f;
  }
  if (MUT(7) && i == 5) __trap();
}
cudaError_t k_vector_add(const float *a, const float *b, float *c, int n, cudaStream_t s) {
  return LAUNCH(vector_add, (n + 127) / 128 + MUT(2), 128, 0, s, a, b, c, n);
}

__global__ void scale(float *x, float by, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] *= by;
}
cudaError_t k_scale(float *x, float by, int n, cudaStream_t s) {
  return LAUNCH(scale, (n + 127) / 128, 128, 0, s, x, by, n);
}

__global__ void axpby(axpby_args a) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < a.n) a.y[i] = a.a * a.x[i] + a.b * a.y[i];
}
cudaError_t k_axpby(axpby_args a, cudaStream_t s) {
  return LAUNCH(axpby, (a.n + 127) / 128, 128, 0, s, a);
}

__global__ void copy4(const float *x, float *y, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const float *from = x + (MUT(10) ? 1 : 0);
  if (i < n / 4 - MUT(10))
    reinterpret_cast<float4 *>(y)[i] = reinterpret_cast<const float4 *>(from)[i];
}
cudaError_t k_copy4(const float *x, float *y, int n, cudaStream_t s) {
  return LAUNCH(copy4, (n / 4 + 127) / 128, 128, 0, s, x, y, n);
}

__global__ void half_gelu(const __half2 *x, __half2 *y, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  const float2 v = __half22float2(x[i]);
  const float a = 0.5f * v.x * (1 + erff(v.x * 0.70710678f));
  const float b = 0.5f * v.y * (1 + erff(v.y * 0.70710678f));
  y[i] = __floats2half2_rn(a, b);
}
cudaError_t k_half_gelu(const void *x, void *y, int n, cudaStream_t s) {
  return LAUNCH(half_gelu, (n + 63) / 64, 64, 0, s, static_cast<const __half2 *>(x),
                static_cast<__half2 *>(y), n);
}

// ---- Blocks -----------------------------------------------------------------------------------

__global__ void block_sum(const float *x, float *sums, int n) {
  __shared__ float part[256];
  const int t = static_cast<int>(threadIdx.x), i = static_cast<int>(blockIdx.x) * 256 + t;
  if (MUT(11) && t >= 128) return; // leaves before the barrier; half of the values are missing
  if (!(MUT(12) && t == 7)) part[MUT(13) ? t + 1 : t] = i < n ? x[i] : 0.0f;
  if (!MUT(14)) __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    if (MUT(15) ? half > 32 : !MUT(16)) __syncthreads();
    if (MUT(16)) { // a barrier in divergent code
      if (t < half)
        __syncthreads();
      else
        __syncthreads();
    }
    if (MUT(17) && t < half) __syncthreads(); // not all threads come
  }
  if (t == 0) sums[blockIdx.x] = part[0];
}
cudaError_t k_block_sum(const float *x, float *sums, int n, cudaStream_t s) {
  return LAUNCH(block_sum, (n + 255) / 256, 256, 0, s, x, sums, n);
}

// The last block to finish adds what all wrote.
__global__ void last_block_sum(const float *x, float *partial, unsigned *ticket, float *out,
                               int n) {
  __shared__ float part[128];
  __shared__ bool last;
  const unsigned t = threadIdx.x, i = blockIdx.x * 128 + t;
  part[t] = i < static_cast<unsigned>(n) ? x[i] : 0.0f;
  __syncthreads();
  for (unsigned half = 64; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  if (t == 0) {
    partial[blockIdx.x] = part[0];
    if (!MUT(18)) __threadfence();
    if (MUT(19))
      last = (*ticket)++ == gridDim.x - 1; // not atomic
    else
      last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  }
  if (!MUT(20)) __syncthreads();
  if (last && t == 0) {
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; b++) sum += partial[b];
    *out = sum;
    *ticket = 0;
  }
}
cudaError_t k_last_block_sum(const float *x, float *partial, unsigned *ticket, float *out, int n,
                             cudaStream_t s) {
  return LAUNCH(last_block_sum, (n + 127) / 128, 128, 0, s, x, partial, ticket, out, n);
}

__global__ void layer_norm(const float *x, float *y, int cols) {
  DYN_SHARED(float, row);
  __shared__ float sums[2][8];
  const int t = static_cast<int>(threadIdx.x), warps = static_cast<int>(blockDim.x) / 32;
  const float *from = x + static_cast<size_t>(blockIdx.x) * cols;
  float sum = 0, square = 0;
  for (int c = t; c < cols; c += static_cast<int>(blockDim.x)) {
    const float v = from[c];
    row[c] = v;
    sum += v;
    square += v * v;
  }
  for (int o = 16; o > 0; o /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, o);
    square += __shfl_xor_sync(0xffffffffu, square, o);
  }
  if (t % 32 == 0) sums[0][t / 32] = sum, sums[1][t / 32] = square;
  if (!MUT(21)) __syncthreads();
  sum = square = 0;
  for (int w = 0; w < warps; w++) sum += sums[0][w], square += sums[1][w];
  const float mean = sum / static_cast<float>(cols);
  const float rstd = rsqrtf(square / static_cast<float>(cols) - mean * mean + 1e-5f);
  if (MUT(22) && t == 0) row[cols] = 0;                   // past dynamic shared memory
  if (MUT(23) && t == 0) sums[0][0] = row[cols + 100000]; // far past it
  for (int c = t; c < cols; c += static_cast<int>(blockDim.x))
    y[static_cast<size_t>(blockIdx.x) * cols + c] = (row[c] - mean) * rstd;
}
cudaError_t k_layer_norm(const float *x, float *y, int rows, int cols, cudaStream_t s) {
  return LAUNCH(layer_norm, rows, 64, cols * sizeof(float), s, x, y, cols);
}

template <int TILE>
__global__ void matmul_tiled(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float ta[TILE][TILE], tb[TILE][TILE];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int row = static_cast<int>(blockIdx.y) * TILE + y;
  const int col = static_cast<int>(blockIdx.x) * TILE + x;
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += TILE) {
    ta[y][x] = row < m && k0 + x < k ? a[row * k + k0 + x] : 0.0f;
    tb[y][x] = col < n && k0 + y < k ? b[(k0 + y) * n + col] : 0.0f;
    if (!MUT(24)) __syncthreads();
    for (int i = 0; i < TILE; i++) sum += ta[y][i] * tb[i][x];
    if (!MUT(25)) __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}
__global__ void matmul_naive(const float *a, const float *b, float *c, int m, int n, int k) {
  const int row = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  const int col = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= m || col >= n) return;
  float sum = 0;
  for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum;
}
cudaError_t k_matmul(const float *a, const float *b, float *c, int m, int n, int k, int tiled,
                     cudaStream_t s) {
  const dim3 grid((n + 7) / 8, (m + 7) / 8), block(8, 8);
  if (tiled) return LAUNCH((matmul_tiled<8>), grid, block, 0, s, a, b, c, m, n, k);
  return LAUNCH(matmul_naive, grid, block, 0, s, a, b, c, m, n, k);
}

__global__ void transpose(const float *x, float *y, int rows, int cols) {
  __shared__ float tile[16][17];
  const int i = static_cast<int>(threadIdx.x), j = static_cast<int>(threadIdx.y);
  const int c = static_cast<int>(blockIdx.x) * 16 + i, r = static_cast<int>(blockIdx.y) * 16 + j;
  if (r < rows && c < cols) tile[j][i] = x[r * cols + c];
  __syncthreads();
  const int c2 = static_cast<int>(blockIdx.y) * 16 + i, r2 = static_cast<int>(blockIdx.x) * 16 + j;
  const bool inside = r2 < cols && c2 < rows;
  if (MUT(26) ? true : inside) { // reads parts of the tile that were not filled
    const float v = tile[i][j];
    if (inside)
      y[r2 * rows + c2] = v;
    else if (MUT(26) && isnan(v))
      y[0] = v;
  }
}
cudaError_t k_transpose(const float *x, float *y, int rows, int cols, cudaStream_t s) {
  const dim3 grid((cols + 15) / 16, (rows + 15) / 16);
  return LAUNCH(transpose, grid, dim3(16, 16), 0, s, x, y, rows, cols);
}

// ---- Warps ------------------------------------------------------------------------------------

__global__ void softmax(const float *x, float *y, int rows, int cols) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(blockIdx.x) * 4 + static_cast<int>(threadIdx.x) / 32;
  if (row >= rows) return;           // whole warps
  if (MUT(30) && lane >= 24) return; // lanes that others then read
  x += row * cols, y += row * cols;
  const unsigned mask = MUT(31) ? 0xffffu : 0xffffffffu; // a mask without the caller
  float top = -INFINITY;
  for (int c = lane; c < cols; c += 32) top = fmaxf(top, x[c]);
  for (int o = 16; o > 0; o /= 2) top = fmaxf(top, __shfl_xor_sync(mask, top, o));
  float sum = 0;
  for (int c = lane; c < cols; c += 32) sum += expf(x[c] - top);
  if (MUT(32) && lane == 3) sum = __shfl_sync(0xffffffffu, sum, 0); // another operation
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (MUT(33) && lane < 16) sum = __shfl_sync(0xffffu, sum, 20); // a lane outside the mask
  for (int c = lane; c < cols; c += 32) y[c] = expf(x[c] - top) / sum;
}
cudaError_t k_softmax(const float *x, float *y, int rows, int cols, cudaStream_t s) {
  return LAUNCH(softmax, (rows + 3) / 4, 128, 0, s, x, y, rows, cols);
}

// A query a warp. Scores go through shared memory, guarded by __syncwarp.
__global__ void attention(const float *q, const float *k, const float *v, float *y, int t, int d) {
  __shared__ float scores[4][64];
  const int w = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(blockIdx.x) * 4 + w;
  if (row >= t) return;
  float top = -INFINITY;
  for (int j = lane; j < t; j += 32) {
    float dot = 0;
    for (int i = 0; i < d; i++) dot += q[row * d + i] * k[j * d + i];
    scores[w][j] = dot;
    top = fmaxf(top, dot);
  }
  for (int o = 16; o > 0; o /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
  float sum = 0;
  for (int j = lane; j < t; j += 32) {
    const float e = expf(scores[w][j] - top);
    scores[w][j] = e;
    sum += e;
  }
  if (MUT(34)) { // no operation of the warp between writing and reading
    for (int i = lane; i < d; i += 32) y[row * d + i] = scores[w][(i + 1) % t];
    return;
  }
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  __syncwarp();
  for (int i = lane; i < d; i += 32) {
    float o = 0;
    for (int j = 0; j < t; j++) o += scores[w][j] * v[j * d + i];
    y[row * d + i] = o / sum;
  }
}
cudaError_t k_attention(const float *q, const float *k, const float *v, float *y, int t, int d,
                        cudaStream_t s) {
  return LAUNCH(attention, (t + 3) / 4, 128, 0, s, q, k, v, y, t, d);
}

__global__ void compact(const float *x, float *y, int *count, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const unsigned lane = threadIdx.x % 32;
  const float v = i < n ? x[i] : -1.0f;
  const unsigned ballot = __ballot_sync(0xffffffffu, v > 0);
  int at = 0;
  if (lane == 0) {
    if (MUT(35))
      at = *count, *count += __popc(ballot); // not atomic
    else
      at = atomicAdd(count, __popc(ballot));
  }
  at = __shfl_sync(0xffffffffu, at, 0);
  if (v > 0) y[at + __popc(ballot & ((1u << lane) - 1))] = v;
}
cudaError_t k_compact(const float *x, float *y, int *count, int n, cudaStream_t s) {
  return LAUNCH(compact, (n + 127) / 128, 128, 0, s, x, y, count, n);
}

__global__ void embedding_backward(const int *index, const float *dy, float *dw, int n, int d) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n * d) return;
  float *to = dw + index[i / d] * d + i % d;
  if (MUT(36))
    *to += dy[i]; // not atomic
  else
    atomicAdd(to, dy[i]);
}
cudaError_t k_embedding_backward(const int *index, const float *dy, float *dw, int n, int d,
                                 cudaStream_t s) {
  return LAUNCH(embedding_backward, (n * d + 127) / 128, 128, 0, s, index, dy, dw, n, d);
}

// ---- Tensor cores -----------------------------------------------------------------------------

// C = A B with m, n multiples of 16 and k of 16: one warp computes 16 x 16, with two buffers filled
// by asynchronous copies. A is row-major m x k, B row-major k x n, of T.
template <class T> __global__ void mma_gemm(const T *a, const T *b, float *c, int n, int k) {
  __shared__ __align__(16) T sa[2][16][24], sb[2][16][24]; // rows of 48 bytes: no bank conflicts
  const int lane = static_cast<int>(threadIdx.x);
  const int row0 = static_cast<int>(blockIdx.y) * 16, col0 = static_cast<int>(blockIdx.x) * 16;
  const int r = lane / 2, h = lane % 2 * 8; // 16 rows of two 16-byte pieces
  float d[2][4] = {};
  const int steps = k / 16;
  cp_async16(&sa[0][r][h], a + static_cast<size_t>(row0 + r) * k + h);
  cp_async16(&sb[0][r][h], b + static_cast<size_t>(r) * n + col0 + h);
  cp_async_commit();
  for (int s = 0; s < steps; s++) {
    const int now = s % 2, next = (s + 1) % 2;
    if (s + 1 < steps) {
      cp_async16(&sa[next][r][h], a + static_cast<size_t>(row0 + r) * k + (s + 1) * 16 + h);
      cp_async16(&sb[next][r][h], b + static_cast<size_t>((s + 1) * 16 + r) * n + col0 + h);
    }
    cp_async_commit();
    if (!MUT(40)) cp_async_wait<1>();
    if (!MUT(41)) __syncthreads();
    unsigned fa[4], fb[4];
    ldmatrix_x4(fa, &sa[now][lane % 16][lane / 16 * 8]);
    ldmatrix_x4_trans(fb, &sb[now][lane % 16][lane / 16 * 8]);
    for (int j = 0; j < 2; j++) {
      if constexpr (sizeof(T) == 2 && std::is_same_v<T, __half>)
        mma_m16n8k16_f16(d[j], fa, fb + 2 * j);
      else
        mma_m16n8k16_bf16(d[j], fa, fb + 2 * j);
    }
    if (!MUT(42)) __syncthreads();
  }
  for (int j = 0; j < 2; j++)
    for (int i = 0; i < 4; i++)
      c[static_cast<size_t>(row0 + lane / 4 + i / 2 * 8) * n + col0 + 8 * j + lane % 4 * 2 +
        i % 2] = d[j][i];
}
cudaError_t k_mma_gemm(const void *a, const void *b, float *c, int m, int n, int k, int bf16,
                       cudaStream_t s) {
  const dim3 grid(n / 16, m / 16);
  if (bf16)
    return LAUNCH((mma_gemm<__nv_bfloat16>), grid, 32, 0, s, static_cast<const __nv_bfloat16 *>(a),
                  static_cast<const __nv_bfloat16 *>(b), c, n, k);
  return LAUNCH((mma_gemm<__half>), grid, 32, 0, s, static_cast<const __half *>(a),
                static_cast<const __half *>(b), c, n, k);
}
