// SPDX-License-Identifier: MIT
// Kernels of ops/norm.c. What limits them are bytes:
//
//   forward                    x is read once, out written once
//   gradient of x              x and dy are read once, dx written once
//   of weight and bias         x and dy are read once
//
// A row of up to 1024 elements (float64: 512) is held in a warp's registers, one of up to 8192
// (4096) in a block's (team.cuh), 16 bytes at a time. Rows that are longer, or not dense, aligned
// and of whole runs of 16 bytes, are read by a block, and once more for the results.
//
// Elements are taken relative to the row's first one, so that rows that are all alike have a
// variance of exactly 0, and a large mean costs no digits.
//
// The gradients of weight and bias are sums over rows: of pieces of the rows first, 32 columns to a
// block, then of the pieces, in their order.
#include "moments.cuh"
#include "team.cuh"

#include <math.h>

#define TILE  32 // columns of weight gradients to a block, 8 rows at a time
#define GROUP 4  // elements of a thread whose moments are joined with those before

enum { NEEDS_X = 1, NEEDS_W = 2, NEEDS_B = 4 };

// Any strides, of its own dtype; NULL where there is none.
namespace {
typedef struct parameter {
  const void *data;
  cuda_walk walk;
  cnn_dtype dtype;
  bool wide; // of the computed type (else, where rows are held, of x's)
} parameter;
} // namespace

typedef struct layer_job {
  cuda_walk rows, row; // of x (view 0), and of out or dy (view 1): across rows, within one
  const void *x, *dy;
  void *out;
  parameter w, b;
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

template <class T> __device__ inline T parameter_at(const parameter &p, int64_t i, T otherwise) {
  return p.data ? k_get<T>(p.dtype, p.data, k_offset(p.walk, i)) : otherwise;
}

// The parameters of run p that this thread holds of a row.
template <class H, class S>
__device__ inline void held_parameters(const parameter &w, int p, int n, typename H::T otherwise,
                                       typename H::T *to) {
  typedef typename H::T T;
  constexpr int each = 16 / sizeof(T);
#pragma unroll
  for (int k = 0; k < H::run; k++) to[k] = otherwise;
  if (!w.data || H::at(p) >= n) return;
  if (w.wide) {
#pragma unroll
    for (int part = 0; part < H::run; part += each) {
      const k_pack<T, each> v = *reinterpret_cast<const k_pack<T, each> *>(
          static_cast<const T *>(w.data) + H::at(p) + part);
#pragma unroll
      for (int k = 0; k < each; k++) to[part + k] = v.v[k];
    }
  } else {
    const k_pack<S, H::run> v =
        *reinterpret_cast<const k_pack<S, H::run> *>(static_cast<const S *>(w.data) + H::at(p));
#pragma unroll
    for (int k = 0; k < H::run; k++) to[k] = k_widen(v.v[k]);
  }
}

template <class S, int holder>
__global__ void __launch_bounds__(K_BLOCK) k_layer_norm_held(layer_job j) {
  typedef k_held<S, holder> held;
  typedef typename held::T T;
  constexpr int by = held::by;
  __shared__ T shared[32];
  const int n = static_cast<int>(j.width);
  for (int64_t r = k_team_line<by>(); r < j.count; r += k_team_step<by>()) {
    int64_t row[2];
    k_offsets<2>(j.rows, r, row);
    const S *x = static_cast<const S *>(j.x) + row[0];
    const T start = k_widen(x[0]);
    T v[held::count], sum = 0, squares = 0;
    held::load(x, n, v, start);
#pragma unroll
    for (int k = 0; k < held::count; k++) sum += v[k] -= start;
    const T mean = k_team_reduce<by>(sum, shared, T(0), k_sum()) / static_cast<T>(n);
#pragma unroll
    for (int p = 0; p < held::runs; p++)
      if (held::at(p) < n) {
#pragma unroll
        for (int k = p * held::run; k < (p + 1) * held::run; k++)
          squares += (v[k] - mean) * (v[k] - mean);
      }
    squares = k_team_reduce<by>(squares, shared, T(0), k_sum());
    const T rstd = root(squares / static_cast<T>(n) + static_cast<T>(j.eps));
#pragma unroll
    for (int p = 0; p < held::runs; p++) {
      T w[held::run], b[held::run];
      held_parameters<held, S>(j.w, p, n, 1, w);
      held_parameters<held, S>(j.b, p, n, 0, b);
#pragma unroll
      for (int k = 0; k < held::run; k++)
        v[p * held::run + k] = (v[p * held::run + k] - mean) * rstd * w[k] + b[k];
    }
    held::store(static_cast<S *>(j.out) + row[1], n, v);
    if (k_team_me<by>() == 0) {
      static_cast<T *>(j.mean)[r] = start + mean;
      static_cast<T *>(j.rstd)[r] = rstd;
    }
  }
}

template <class S> __global__ void __launch_bounds__(K_BLOCK) k_layer_norm(layer_job j) {
  typedef k_computed<S> T;
  __shared__ __align__(16) unsigned char raw[32 * sizeof(k_moments<T>)];
  for (int64_t r = blockIdx.x; r < j.count; r += gridDim.x) {
    int64_t row[2], at[2];
    k_offsets<2>(j.rows, r, row);
    const S *x = static_cast<const S *>(j.x) + row[0];
    S *y = static_cast<S *>(j.out) + row[1];
    const T start = j.width > 0 ? k_widen(x[0]) : static_cast<T>(NAN);
    k_moments<T> m = {0, 0, 0};
    for (int64_t i = threadIdx.x; i < j.width; i += GROUP * K_BLOCK) {
      T v[GROUP];
      int got = 0;
#pragma unroll
      for (int k = 0; k < GROUP; k++)
        if (i + k * K_BLOCK < j.width) {
          v[k] = k_widen(x[k_offset(j.row, i + k * K_BLOCK)]) - start;
          got = k + 1;
        }
      m = k_moments_join(m, k_moments_of<GROUP>(got, v));
    }
    m = k_block_reduce(m, reinterpret_cast<k_moments<T> *>(raw), k_moments<T>{0, 0, 0},
                       [](const k_moments<T> &a, const k_moments<T> &b) {
                         return k_moments_join(a, b);
                       });
    const T mean = start + m.mean;
    const T rstd = root(m.squares / static_cast<T>(j.width) + static_cast<T>(j.eps));
    for (int64_t i = threadIdx.x; i < j.width; i += K_BLOCK) {
      k_offsets<2>(j.row, i, at);
      const T d = (k_widen(x[at[0]]) - start) - m.mean;
      y[at[1]] = k_narrow<S>(d * rstd * parameter_at<T>(j.w, i, 1) + parameter_at<T>(j.b, i, 0));
    }
    if (threadIdx.x == 0) {
      static_cast<T *>(j.mean)[r] = mean;
      static_cast<T *>(j.rstd)[r] = rstd;
    }
  }
}

// With xh = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - xh mean(g xh)).
template <class S, int holder>
__global__ void __launch_bounds__(K_BLOCK) k_layer_norm_dx_held(layer_job j) {
  typedef k_held<S, holder> held;
  typedef typename held::T T;
  constexpr int by = held::by;
  __shared__ T shared[32];
  const int n = static_cast<int>(j.width);
  for (int64_t r = k_team_line<by>(); r < j.count; r += k_team_step<by>()) {
    int64_t row[3];
    k_offsets<3>(j.rows, r, row);
    const T mean = static_cast<const T *>(j.mean)[r], rstd = static_cast<const T *>(j.rstd)[r];
    T g[held::count], xh[held::count], a = 0, b = 0;
    held::load(static_cast<const S *>(j.dy) + row[1], n, g, 0); // adds nothing
    held::load(static_cast<const S *>(j.x) + row[0], n, xh, 0);
#pragma unroll
    for (int p = 0; p < held::runs; p++) {
      T w[held::run];
      held_parameters<held, S>(j.w, p, n, 1, w);
#pragma unroll
      for (int k = 0; k < held::run; k++) {
        const int at = p * held::run + k;
        g[at] *= w[k];
        xh[at] = (xh[at] - mean) * rstd;
        a += g[at];
        b += g[at] * xh[at];
      }
    }
    a = k_team_reduce<by>(a, shared, T(0), k_sum()) / static_cast<T>(n);
    b = k_team_reduce<by>(b, shared, T(0), k_sum()) / static_cast<T>(n);
#pragma unroll
    for (int k = 0; k < held::count; k++) g[k] = rstd * (g[k] - a - xh[k] * b);
    held::store(static_cast<S *>(j.out) + row[2], n, g);
  }
}

template <class S> __global__ void __launch_bounds__(K_BLOCK) k_layer_norm_dx(layer_job j) {
  typedef k_computed<S> T;
  __shared__ T shared[32];
  for (int64_t r = blockIdx.x; r < j.count; r += gridDim.x) {
    int64_t row[3], at[3];
    k_offsets<3>(j.rows, r, row);
    const S *x = static_cast<const S *>(j.x) + row[0], *dy = static_cast<const S *>(j.dy) + row[1];
    S *dx = static_cast<S *>(j.out) + row[2];
    const T mean = static_cast<const T *>(j.mean)[r], rstd = static_cast<const T *>(j.rstd)[r];
    T a = 0, b = 0;
    for (int64_t i = threadIdx.x; i < j.width; i += K_BLOCK) {
      k_offsets<3>(j.row, i, at);
      const T g = k_widen(dy[at[1]]) * parameter_at<T>(j.w, i, 1);
      a += g;
      b += g * ((k_widen(x[at[0]]) - mean) * rstd);
    }
    a = k_block_reduce(a, shared, static_cast<T>(0), k_sum()) / static_cast<T>(j.width);
    b = k_block_reduce(b, shared, static_cast<T>(0), k_sum()) / static_cast<T>(j.width);
    for (int64_t i = threadIdx.x; i < j.width; i += K_BLOCK) {
      k_offsets<3>(j.row, i, at);
      const T g = k_widen(dy[at[1]]) * parameter_at<T>(j.w, i, 1);
      const T xh = (k_widen(x[at[0]]) - mean) * rstd;
      dx[at[2]] = k_narrow<S>(rstd * (g - a - xh * b));
    }
  }
}

// Sums over a piece of the rows: dw = dy xh, db = dy.
template <class S> __global__ void __launch_bounds__(K_BLOCK) k_layer_norm_dw(layer_job j) {
  typedef k_computed<S> T;
  __shared__ T ws[K_BLOCK], bs[K_BLOCK];
  const int lane = threadIdx.x & 31, y = threadIdx.x >> 5;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * TILE + lane;
  const int64_t first = blockIdx.y * j.step;
  const int64_t last = first + j.step < j.count ? first + j.step : j.count;
  T dw = 0, db = 0;
  if (i < j.width) {
    int64_t at[2], row[2];
    k_offsets<2>(j.row, i, at);
#pragma unroll 4
    for (int64_t r = first + y; r < last; r += K_BLOCK / 32) {
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
    for (int k = 1; k < K_BLOCK / 32; k++) dw += ws[k * 32 + lane], db += bs[k * 32 + lane];
    T *to = static_cast<T *>(j.partial) + blockIdx.y * 2 * j.width;
    to[i] = dw;
    to[j.width + i] = db;
  }
}

template <class T> __global__ void __launch_bounds__(K_BLOCK) k_layer_norm_add(layer_job j) {
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

static void take_parameter(const cnn_view *v, parameter *p) {
  p->data = nullptr;
  if (!cnn_view_present(v)) return;
  p->data = v->data;
  p->dtype = v->dtype;
  cuda_walk_dims(&p->walk, v, (1u << v->ndim) - 1);
}

// Who holds rows: in all of x's views they are dense and aligned, and parameters fit to them.
template <class S> static int holder_of(layer_job *j, const cnn_view *const *views, int count) {
  const cnn_dtype stored = views[0]->dtype, computed = cnn_dtype_computed(stored);
  for (int k = 0; k < count; k++)
    if (!cuda_walk_dense(&j->row, k) || !k_rows_aligned<S>(&j->rows, k, views[k]->data))
      return HELD_NOT;
  for (parameter *p : {&j->w, &j->b}) {
    if (!p->data) continue;
    p->wide = p->dtype == computed;
    if (!cuda_walk_dense(&p->walk, 0) || !k_aligned(p->data, 16) ||
        (!p->wide && p->dtype != stored))
      return HELD_NOT;
  }
  return k_holder_of<S>(j->width);
}
static unsigned grid_of(const cnn_call *call, const layer_job *j, int holder) {
  return k_rows_grid(call, j->count, holder < HELD_BLOCK ? BY_WARP : BY_BLOCK);
}

// layer_norm_native(x, weight?, bias?, normalized_shape, eps) -> out mean rstd
static cnn_status run_layer_norm(cnn_call *call) {
  layer_job j = {};
  const cnn_view *views[] = {&call->in[0], &call->out[0]};
  split(&j, views, 2, call->args[3].n);
  take_parameter(&call->in[1], &j.w);
  take_parameter(&call->in[2], &j.b);
  j.x = call->in[0].data;
  j.out = call->out[0].data;
  j.mean = call->out[1].data;
  j.rstd = call->out[2].data;
  j.eps = cnn_arg_number(&call->args[4]);
  return k_by_float(call, call->in[0].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    const int holder = holder_of<S>(&j, views, 2);
    const unsigned grid = grid_of(call, &j, holder);
    switch (holder) {
    case HELD_FEW: return CUDA_LAUNCH(call, (k_layer_norm_held<S, HELD_FEW>), grid, K_BLOCK, 0, j);
    case HELD_WARP:
      return CUDA_LAUNCH(call, (k_layer_norm_held<S, HELD_WARP>), grid, K_BLOCK, 0, j);
    case HELD_BLOCK:
      return CUDA_LAUNCH(call, (k_layer_norm_held<S, HELD_BLOCK>), grid, K_BLOCK, 0, j);
    default: return CUDA_LAUNCH(call, k_layer_norm<S>, grid, K_BLOCK, 0, j);
    }
  });
}

CUDA_KERNEL(layer_norm_native, nullptr, run_layer_norm)

// layer_norm_backward(dy, x, mean, rstd, weight?, normalized_shape, eps, needs) -> dx dw db
static void start_backward(const cnn_call *call, layer_job *j) {
  const int64_t needs = call->args[7].i;
  const cnn_view *views[] = {&call->in[1], &call->in[0], &call->out[0]};
  split(j, views, needs & NEEDS_X ? 3 : 2, call->args[5].n);
  const int64_t across = (j->width + TILE - 1) / TILE;
  const int64_t room = static_cast<int64_t>(cuda_processors(call)) * 8;
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

template <class S> static cnn_status gradient_of_x(const cnn_call *call, layer_job *j) {
  const cnn_view *views[] = {&call->in[1], &call->in[0], &call->out[0]};
  const int holder = holder_of<S>(j, views, 3);
  const unsigned grid = grid_of(call, j, holder);
  switch (holder) {
  case HELD_FEW:
    return CUDA_LAUNCH(call, (k_layer_norm_dx_held<S, HELD_FEW>), grid, K_BLOCK, 0, *j);
  case HELD_WARP:
    return CUDA_LAUNCH(call, (k_layer_norm_dx_held<S, HELD_WARP>), grid, K_BLOCK, 0, *j);
  case HELD_BLOCK:
    return CUDA_LAUNCH(call, (k_layer_norm_dx_held<S, HELD_BLOCK>), grid, K_BLOCK, 0, *j);
  default: return CUDA_LAUNCH(call, k_layer_norm_dx<S>, grid, K_BLOCK, 0, *j);
  }
}

static cnn_status run_layer_norm_backward(cnn_call *call) {
  layer_job j = {};
  const int64_t needs = call->args[7].i;
  start_backward(call, &j);
  take_parameter(&call->in[4], &j.w);
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
    if (needs & NEEDS_X) CNN_TRY(gradient_of_x<S>(call, &j));
    if (!(needs & (NEEDS_W | NEEDS_B)) || j.width == 0) return CNN_OK;
    const dim3 grid(static_cast<unsigned>((j.width + TILE - 1) / TILE),
                    static_cast<unsigned>(j.pieces));
    CNN_TRY(CUDA_LAUNCH(call, k_layer_norm_dw<S>, grid, K_BLOCK, 0, j));
    return CUDA_LAUNCH(call, k_layer_norm_add<T>, k_grid(call, j.width), K_BLOCK, 0, j);
  });
}

CUDA_KERNEL(layer_norm_backward, plan_layer_norm_backward, run_layer_norm_backward)
