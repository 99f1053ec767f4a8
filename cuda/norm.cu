// SPDX-License-Identifier: MIT
// Kernels of ops/norm.c. A block normalises a row: two passes for mean and variance (exact also for
// a large mean), a third to write. The gradients of weight and bias are sums over rows: pieces of
// rows first, then the pieces in order.
#include "kernel.cuh"

#include <math.h>

#define BLOCK 256
#define TILE  32 // columns of weight gradients to a block, 8 rows at a time

enum { NEEDS_X = 1, NEEDS_W = 2, NEEDS_B = 4 };

typedef struct layer_job {
  cuda_walk rows, row; // of x (view 0), and of out or dy (view 1): across rows, within one
  const void *x, *dy;
  void *out;
  // Weight and bias: any strides, of their own dtype; NULL where there is none.
  const void *w, *b;
  cuda_walk w_walk, b_walk;
  cnn_dtype w_dtype, b_dtype;
  void *mean, *rstd; // one for each row, in the computed type
  void *dw, *db;
  void *partial; // [pieces][2][width]
  int64_t count, width, pieces, step;
  double eps;
} layer_job;

__device__ static inline float root(float x) {
  return 1 / sqrtf(x);
}
__device__ static inline double root(double x) {
  return 1 / sqrt(x);
}

template <class T>
__device__ inline T parameter(const void *p, cnn_dtype dtype, const cuda_walk &w, int64_t i,
                              T otherwise) {
  return p ? k_get<T>(dtype, p, k_offset(w, i)) : otherwise;
}

template <class S> __global__ void __launch_bounds__(BLOCK) k_layer_norm(layer_job j) {
  typedef k_computed<S> T;
  __shared__ T shared[32];
  for (int64_t r = blockIdx.x; r < j.count; r += gridDim.x) {
    int64_t row[2], at[2];
    k_offsets<2>(j.rows, r, row);
    const S *x = static_cast<const S *>(j.x) + row[0];
    S *y = static_cast<S *>(j.out) + row[1];
    // Relative to the first element: exact for rows that are all alike.
    const T start = j.width > 0 ? k_widen(x[0]) : T(0);
    T sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < j.width; i += BLOCK)
      sum += k_widen(x[k_offset(j.row, i)]) - start;
    const T mean =
        start + k_block_reduce(sum, shared, static_cast<T>(0), k_sum()) / static_cast<T>(j.width);
    for (int64_t i = threadIdx.x; i < j.width; i += BLOCK) {
      const T d = k_widen(x[k_offset(j.row, i)]) - mean;
      squares += d * d;
    }
    squares = k_block_reduce(squares, shared, static_cast<T>(0), k_sum());
    const T rstd = root(squares / static_cast<T>(j.width) + static_cast<T>(j.eps));
    for (int64_t i = threadIdx.x; i < j.width; i += BLOCK) {
      k_offsets<2>(j.row, i, at);
      const T w = parameter<T>(j.w, j.w_dtype, j.w_walk, i, 1);
      const T b = parameter<T>(j.b, j.b_dtype, j.b_walk, i, 0);
      y[at[1]] = k_narrow<S>((k_widen(x[at[0]]) - mean) * rstd * w + b);
    }
    if (threadIdx.x == 0) {
      static_cast<T *>(j.mean)[r] = mean;
      static_cast<T *>(j.rstd)[r] = rstd;
    }
  }
}

// With xh = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - xh mean(g xh)).
template <class S> __global__ void __launch_bounds__(BLOCK) k_layer_norm_dx(layer_job j) {
  typedef k_computed<S> T;
  __shared__ T shared[32];
  for (int64_t r = blockIdx.x; r < j.count; r += gridDim.x) {
    int64_t row[3], at[3];
    k_offsets<3>(j.rows, r, row);
    const S *x = static_cast<const S *>(j.x) + row[0], *dy = static_cast<const S *>(j.dy) + row[1];
    S *dx = static_cast<S *>(j.out) + row[2];
    const T mean = static_cast<const T *>(j.mean)[r], rstd = static_cast<const T *>(j.rstd)[r];
    T a = 0, b = 0;
    for (int64_t i = threadIdx.x; i < j.width; i += BLOCK) {
      k_offsets<3>(j.row, i, at);
      const T g = k_widen(dy[at[1]]) * parameter<T>(j.w, j.w_dtype, j.w_walk, i, 1);
      a += g;
      b += g * ((k_widen(x[at[0]]) - mean) * rstd);
    }
    a = k_block_reduce(a, shared, static_cast<T>(0), k_sum()) / static_cast<T>(j.width);
    b = k_block_reduce(b, shared, static_cast<T>(0), k_sum()) / static_cast<T>(j.width);
    for (int64_t i = threadIdx.x; i < j.width; i += BLOCK) {
      k_offsets<3>(j.row, i, at);
      const T g = k_widen(dy[at[1]]) * parameter<T>(j.w, j.w_dtype, j.w_walk, i, 1);
      const T xh = (k_widen(x[at[0]]) - mean) * rstd;
      dx[at[2]] = k_narrow<S>(rstd * (g - a - xh * b));
    }
  }
}

// Sums over a piece of the rows: dw = dy xh, db = dy.
template <class S> __global__ void __launch_bounds__(BLOCK) k_layer_norm_dw(layer_job j) {
  typedef k_computed<S> T;
  __shared__ T ws[BLOCK], bs[BLOCK];
  const int lane = threadIdx.x & 31, y = threadIdx.x >> 5;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * TILE + lane;
  const int64_t first = blockIdx.y * j.step;
  const int64_t last = first + j.step < j.count ? first + j.step : j.count;
  T dw = 0, db = 0;
  if (i < j.width) {
    int64_t at[2], row[2];
    k_offsets<2>(j.row, i, at);
    for (int64_t r = first + y; r < last; r += BLOCK / 32) {
      k_offsets<2>(j.rows, r, row);
      const T g = k_widen(static_cast<const S *>(j.dy)[row[1] + at[1]]);
      const T x = k_widen(static_cast<const S *>(j.x)[row[0] + at[0]]);
      dw += g * ((x - static_cast<const T *>(j.mean)[r]) * static_cast<const T *>(j.rstd)[r]);
      db += g;
    }
  }
  ws[threadIdx.x] = dw;
  bs[threadIdx.x] = db;
  __syncthreads();
  if (y == 0 && i < j.width) {
    for (int k = 1; k < BLOCK / 32; k++) dw += ws[k * 32 + lane], db += bs[k * 32 + lane];
    T *to = static_cast<T *>(j.partial) + blockIdx.y * 2 * j.width;
    to[i] = dw;
    to[j.width + i] = db;
  }
}

template <class T> __global__ void __launch_bounds__(BLOCK) k_layer_norm_add(layer_job j) {
  const T *from = static_cast<const T *>(j.partial);
  for (int64_t i = k_index(); i < j.width; i += k_stride()) {
    T dw = 0, db = 0;
    for (int64_t p = 0; p < j.pieces; p++) {
      dw += from[p * 2 * j.width + i];
      db += from[(p * 2 + 1) * j.width + i];
    }
    if (j.dw) static_cast<T *>(j.dw)[i] = dw;
    if (j.db) static_cast<T *>(j.db)[i] = db;
  }
}

// ---------------------------------------------------------------------------------------------

// Splits views of x's shape into rows (the leading dims) and what a row has (the last `n`).
static void split(layer_job *j, const cnn_view *const *views, int count, int n) {
  const cnn_view *x = views[0];
  cnn_view outer[3], inner[3];
  const cnn_view *o[3], *i[3];
  const int lead = x->ndim - n;
  for (int k = 0; k < count; k++) {
    outer[k] = inner[k] = *views[k];
    outer[k].ndim = lead;
    inner[k].ndim = n;
    inner[k].shape += lead;
    inner[k].strides += lead;
    o[k] = &outer[k];
    i[k] = &inner[k];
  }
  cuda_walk_ordered(&j->rows, lead, x->shape, o, count);
  cuda_walk_ordered(&j->row, n, x->shape + lead, i, count);
  j->count = j->rows.numel;
  j->width = j->row.numel;
}

static void take_parameter(const cnn_view *v, const void **p, cnn_dtype *dtype, cuda_walk *w) {
  *p = nullptr;
  if (!cnn_view_present(v)) return;
  *p = v->data;
  *dtype = v->dtype;
  cuda_walk_dims(w, v, (1u << v->ndim) - 1);
}

static unsigned rows_grid(const cnn_call *call, int64_t count) {
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 32;
  return static_cast<unsigned>(count < most ? count : most);
}

// layer_norm_native(x, weight?, bias?, normalized_shape, eps) -> out mean rstd
static cnn_status run_layer_norm(cnn_call *call) {
  layer_job j = {};
  const cnn_view *views[] = {&call->in[0], &call->out[0]};
  split(&j, views, 2, call->args[3].n);
  take_parameter(&call->in[1], &j.w, &j.w_dtype, &j.w_walk);
  take_parameter(&call->in[2], &j.b, &j.b_dtype, &j.b_walk);
  j.x = call->in[0].data;
  j.out = call->out[0].data;
  j.mean = call->out[1].data;
  j.rstd = call->out[2].data;
  j.eps = cnn_arg_number(&call->args[4]);
  return k_by_float(call, call->in[0].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return CUDA_LAUNCH(call, k_layer_norm<S>, rows_grid(call, j.count), BLOCK, 0, j);
  });
}

CUDA_KERNEL(layer_norm_native, nullptr, run_layer_norm)

// layer_norm_backward(dy, x, mean, rstd, weight?, normalized_shape, eps, needs) -> dx dw db
static void start_backward(const cnn_call *call, layer_job *j) {
  const int64_t needs = call->args[7].i;
  const cnn_view *views[] = {&call->in[1], &call->in[0], &call->out[0]};
  split(j, views, needs & NEEDS_X ? 3 : 2, call->args[5].n);
  const int64_t across = (j->width + TILE - 1) / TILE;
  const int64_t room = static_cast<int64_t>(cuda_processors(call)) * 4;
  j->pieces = across > 0 && across < room ? room / across : 1;
  if (j->pieces > (j->count + 63) / 64) j->pieces = (j->count + 63) / 64;
  if (j->pieces < 1) j->pieces = 1;
  j->step = (j->count + j->pieces - 1) / j->pieces;
}

static cnn_status plan_layer_norm_backward(cnn_call *call) {
  layer_job j = {};
  start_backward(call, &j);
  if (call->args[7].i & (NEEDS_W | NEEDS_B))
    call->scratch_bytes = static_cast<size_t>(j.pieces * 2 * j.width) *
                          (call->in[1].dtype == CNN_F64 ? sizeof(double) : sizeof(float));
  return CNN_OK;
}

static cnn_status run_layer_norm_backward(cnn_call *call) {
  layer_job j = {};
  const int64_t needs = call->args[7].i;
  start_backward(call, &j);
  take_parameter(&call->in[4], &j.w, &j.w_dtype, &j.w_walk);
  j.dy = call->in[0].data;
  j.x = call->in[1].data;
  j.mean = call->in[2].data; // saved results of the forward: dense
  j.rstd = call->in[3].data;
  j.out = call->out[0].data;
  j.dw = needs & NEEDS_W ? call->out[1].data : nullptr;
  j.db = needs & NEEDS_B ? call->out[2].data : nullptr;
  j.partial = call->scratch;
  return k_by_float(call, call->in[1].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    typedef k_computed<S> T;
    if (needs & NEEDS_X)
      CNN_TRY(CUDA_LAUNCH(call, k_layer_norm_dx<S>, rows_grid(call, j.count), BLOCK, 0, j));
    if (!(needs & (NEEDS_W | NEEDS_B)) || j.width == 0) return CNN_OK;
    const dim3 grid(static_cast<unsigned>((j.width + TILE - 1) / TILE),
                    static_cast<unsigned>(j.pieces));
    CNN_TRY(CUDA_LAUNCH(call, k_layer_norm_dw<S>, grid, BLOCK, 0, j));
    return CUDA_LAUNCH(call, k_layer_norm_add<T>, k_grid(call, j.width), BLOCK, 0, j);
  });
}

CUDA_KERNEL(layer_norm_backward, plan_layer_norm_backward, run_layer_norm_backward)
