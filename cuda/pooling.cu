// SPDX-License-Identifier: MIT
// Kernels of ops/pooling.c: an element of the result to a thread, in the order in which results
// lie. Gradients gather: an element sums what the windows over it got, in order, so that the same
// bits come every time. Windows that are large and lie along memory are averaged by a warp each.
//
// Half types are computed as float, integers as int64. Limited by bytes: x is read once (windows
// that overlap meet it in the caches), y and places are written once.
#include "spatial.cuh"

#include "engine/window.h"

#define WARP_LEAST 32 // elements of a window that are worth a warp

typedef struct pool {
  cnn_dtype dtype;
  int64_t n, c;
  int32_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
  bool adaptive, last; // last: the result is channels-last
  bool anywhere;       // places are not bound to their windows
  bool include_pad;
  int64_t divisor; // in place of the count; 0: none
  cuda_image x, y, at;
  int64_t count; // of the result
} pool;

// Places of dim d inside the input under window i: first, first + step ...; and how many. Windows
// that cover place i, likewise. 64-bit sums: sizes are of all int32.
struct span {
  int first, count, step;
};

__device__ static inline span span_at(const pool &p, int d, int i) {
  span s;
  if (p.adaptive) {
    const int64_t in = p.in[d], out = p.out[d];
    s.first = static_cast<int>(i * in / out);
    s.count = static_cast<int>(((i + 1) * in + out - 1) / out) - s.first;
    s.step = 1;
    return s;
  }
  const int64_t start = static_cast<int64_t>(i) * p.stride[d] - p.before[d], step = p.dilation[d];
  const int64_t skipped = start < 0 ? (step > 1 ? (step - 1 - start) / step : -start) : 0;
  const int64_t room = p.in[d] - start, most = step > 1 ? (room - 1) / step + 1 : room;
  s.step = static_cast<int>(step);
  s.first = static_cast<int>(start + skipped * step);
  s.count = static_cast<int>((most < p.kernel[d] ? most : p.kernel[d]) - skipped);
  return s;
}

// Windows first ... that may hold place i of dim d.
__device__ static inline span cover_at(const pool &p, int d, int i) {
  span s = {0, p.out[d], 1};
  if (p.anywhere) return s;
  const int64_t in = p.in[d], out = p.out[d];
  int64_t last;
  if (p.adaptive) {
    s.first = static_cast<int>(i * out / in);
    last = ((i + 1) * out + in - 1) / in - 1;
  } else {
    const int64_t end = static_cast<int64_t>(i) + p.before[d];
    const int64_t reach = static_cast<int64_t>(p.dilation[d]) * (p.kernel[d] - 1);
    const int64_t stride = p.stride[d];
    s.first = static_cast<int>(end > reach ? (end - reach + stride - 1) / stride : 0);
    last = end / stride < out ? end / stride : out - 1;
  }
  s.count = static_cast<int>(last - s.first + 1);
  return s;
}

// What dim d of window i counts for in a mean.
__device__ static inline int64_t count_at(const pool &p, int d, int i) {
  if (p.adaptive || !p.include_pad) return span_at(p, d, i).count;
  const int64_t start = static_cast<int64_t>(i) * p.stride[d] - p.before[d];
  const int64_t end = start + p.kernel[d], most = static_cast<int64_t>(p.in[d]) + p.before[d];
  return (end < most ? end : most) - start;
}

// ---------------------------------------------------------------------------------------------
// Maxima

template <class S> struct pool_type { typedef int64_t type; };
template <> struct pool_type<float> { typedef float type; };
template <> struct pool_type<double> { typedef double type; };
template <> struct pool_type<k_f16> { typedef float type; };
template <> struct pool_type<k_bf16> { typedef float type; };

// Of equals the first, of NaNs the last.
template <class S> __global__ void __launch_bounds__(K_BLOCK) k_max_pool(pool p) {
  typedef typename pool_type<S>::type T;
  for (int64_t i = k_index(); i < p.count; i += k_stride()) {
    const k_spot o = k_spot_at(i, p.c, p.out, p.last);
    const span d = span_at(p, 0, o.p[0]), h = span_at(p, 1, o.p[1]), w = span_at(p, 2, o.p[2]);
    const S *x = static_cast<const S *>(p.x.data) + o.n * p.x.n + o.c * p.x.c;
    T best = 0;
    int place = 0;
    for (int a = 0; a < d.count; a++)
      for (int b = 0; b < h.count; b++) {
        const int z = d.first + a * d.step, y = h.first + b * h.step;
        const S *row = x + z * p.x.s[0] + y * p.x.s[1];
        const int row_place = (z * p.in[1] + y) * p.in[2] + 1;
        for (int k = 0; k < w.count; k++) {
          const int q = w.first + k * w.step;
          const T v = static_cast<T>(k_widen(row[q * p.x.s[2]]));
          if (place == 0 || v > best || v != v) best = v, place = row_place + q;
        }
      }
    static_cast<S *>(p.y.data)[k_offset_of(p.y, o)] = k_narrow<S>(best);
    static_cast<int32_t *>(p.at.data)[k_offset_of(p.at, o)] = place;
  }
}

// x is the result.
template <class S> __global__ void __launch_bounds__(K_BLOCK) k_max_pool_backward(pool p) {
  typedef k_computed<S> T;
  for (int64_t i = k_index(); i < p.count; i += k_stride()) {
    const k_spot o = k_spot_at(i, p.c, p.in, p.last);
    const span d = cover_at(p, 0, o.p[0]), h = cover_at(p, 1, o.p[1]), w = cover_at(p, 2, o.p[2]);
    const S *dy = static_cast<const S *>(p.y.data) + o.n * p.y.n + o.c * p.y.c;
    const int32_t *at = static_cast<const int32_t *>(p.at.data) + o.n * p.at.n + o.c * p.at.c;
    const int32_t place = (o.p[0] * p.in[1] + o.p[1]) * p.in[2] + o.p[2] + 1;
    T sum = 0;
    for (int a = d.first; a < d.first + d.count; a++)
      for (int b = h.first; b < h.first + h.count; b++)
        for (int k = w.first; k < w.first + w.count; k++)
          if (at[a * p.at.s[0] + b * p.at.s[1] + k * p.at.s[2]] == place)
            sum += k_widen(dy[a * p.y.s[0] + b * p.y.s[1] + k * p.y.s[2]]);
    static_cast<S *>(p.x.data)[k_offset_of(p.x, o)] = k_narrow<S>(sum);
  }
}

template <class S>
__global__ void __launch_bounds__(K_BLOCK) k_max_pool_gather(pool p, cuda_fault *fault, int op) {
  const int64_t places = static_cast<int64_t>(p.in[0]) * p.in[1] * p.in[2];
  for (int64_t i = k_index(); i < p.count; i += k_stride()) {
    k_spot o = k_spot_at(i, p.c, p.out, p.last);
    const int64_t to = k_offset_of(p.y, o);
    int64_t place =
        k_position(fault, op, static_cast<const int32_t *>(p.at.data)[k_offset_of(p.at, o)], places,
                   0);
    S v = 0;
    if (place >= 0) {
      o.p[0] = static_cast<int>(k_split(place, static_cast<int64_t>(p.in[1]) * p.in[2]));
      o.p[1] = static_cast<int>(k_split(place, p.in[2]));
      o.p[2] = static_cast<int>(place);
      v = static_cast<const S *>(p.x.data)[k_offset_of(p.x, o)];
    }
    static_cast<S *>(p.y.data)[to] = v;
  }
}

// ---------------------------------------------------------------------------------------------
// Means. Rows are summed first, and then the rows, so that the error of a large window grows with
// its sides.

template <class T> __device__ static inline T count_of(const pool &p, const int *window) {
  if (p.divisor != 0) return static_cast<T>(p.divisor);
  T count = 1;
  for (int d = 0; d < 3; d++) count *= static_cast<T>(count_at(p, d, window[d]));
  return count;
}

template <class S> __global__ void __launch_bounds__(K_BLOCK) k_avg_pool(pool p) {
  typedef k_computed<S> T;
  for (int64_t i = k_index(); i < p.count; i += k_stride()) {
    const k_spot o = k_spot_at(i, p.c, p.out, p.last);
    const span d = span_at(p, 0, o.p[0]), h = span_at(p, 1, o.p[1]), w = span_at(p, 2, o.p[2]);
    const S *x = static_cast<const S *>(p.x.data) + o.n * p.x.n + o.c * p.x.c;
    T sum = 0;
    for (int a = d.first; a < d.first + d.count; a++)
      for (int b = h.first; b < h.first + h.count; b++) {
        const S *from = x + a * p.x.s[0] + b * p.x.s[1] + w.first * p.x.s[2];
        T row = 0;
#pragma unroll 1
        for (int k = 0; k < w.count; k++) row += k_widen(from[k * p.x.s[2]]);
        sum += row;
      }
    static_cast<S *>(p.y.data)[k_offset_of(p.y, o)] = k_narrow<S>(sum / count_of<T>(p, o.p));
  }
}

// The same with a warp to an element: neighbouring threads read neighbours.
template <class S> __global__ void __launch_bounds__(K_BLOCK) k_avg_pool_warp(pool p) {
  typedef k_computed<S> T;
  const int lane = threadIdx.x & 31;
  for (int64_t i = k_index() / 32; i < p.count; i += k_stride() / 32) {
    const k_spot o = k_spot_at(i, p.c, p.out, p.last);
    const span d = span_at(p, 0, o.p[0]), h = span_at(p, 1, o.p[1]), w = span_at(p, 2, o.p[2]);
    const S *x =
        static_cast<const S *>(p.x.data) + k_offset_of(p.x, o.n, o.c, d.first, h.first, w.first);
    const int64_t area = static_cast<int64_t>(h.count) * w.count;
    T sum = 0;
    for (int64_t k = lane; k < d.count * area; k += 32) {
      int64_t rest = k;
      const int64_t a = k_split(rest, area), b = k_split(rest, w.count);
      sum += k_widen(x[a * p.x.s[0] + b * p.x.s[1] + rest * p.x.s[2]]);
    }
    sum = k_warp_reduce(sum, k_sum());
    if (lane == 0)
      static_cast<S *>(p.y.data)[k_offset_of(p.y, o)] = k_narrow<S>(sum / count_of<T>(p, o.p));
  }
}

// x is the result.
template <class S> __global__ void __launch_bounds__(K_BLOCK) k_avg_pool_backward(pool p) {
  typedef k_computed<S> T;
  for (int64_t i = k_index(); i < p.count; i += k_stride()) {
    const k_spot o = k_spot_at(i, p.c, p.in, p.last);
    const span d = cover_at(p, 0, o.p[0]), h = cover_at(p, 1, o.p[1]), w = cover_at(p, 2, o.p[2]);
    const S *dy = static_cast<const S *>(p.y.data) + o.n * p.y.n + o.c * p.y.c;
    T sum = 0;
#pragma unroll 1
    for (int a = d.first; a < d.first + d.count; a++) {
      const T depth = p.divisor != 0 ? static_cast<T>(p.divisor) : count_at(p, 0, a);
#pragma unroll 1
      for (int b = h.first; b < h.first + h.count; b++) {
        const T area = p.divisor != 0 ? depth : depth * count_at(p, 1, b);
        const S *from = dy + a * p.y.s[0] + b * p.y.s[1];
#pragma unroll 1
        for (int k = w.first; k < w.first + w.count; k++)
          sum += k_widen(from[k * p.y.s[2]]) / (p.divisor != 0 ? area : area * count_at(p, 2, k));
      }
    }
    static_cast<S *>(p.x.data)[k_offset_of(p.x, o)] = k_narrow<S>(sum);
  }
}

// ---------------------------------------------------------------------------------------------
// Reading calls

// Activations x (the larger side) and y, over n spatial dims; the windows are those of `w`, which
// is NULL for others. `result` is one of them.
static void read_pool(pool *p, int n, const cnn_view *x, const cnn_view *y, const cnn_view *result,
                      const cnn_window *w) {
  memset(p, 0, sizeof *p);
  p->dtype = x->dtype;
  cuda_image_read(&p->x, x, n);
  cuda_image_read(&p->y, y, n);
  p->n = x->ndim == n + 2 ? x->shape[0] : 1;
  p->c = x->shape[x->ndim - n - 1];
  p->last =
      n == 2 && result->ndim == 4 && cnn_strides_channels_last(result->shape, result->strides);
  p->adaptive = !w;
  for (int i = 0; i < 3; i++) {
    const int d = i - (3 - n);
    p->in[i] = p->out[i] = p->kernel[i] = p->stride[i] = p->dilation[i] = 1;
    if (d < 0) continue;
    p->in[i] = static_cast<int32_t>(x->shape[x->ndim - n + d]);
    p->out[i] = static_cast<int32_t>(y->shape[y->ndim - n + d]);
    if (!w) continue;
    p->kernel[i] = static_cast<int32_t>(w->kernel[d]);
    p->stride[i] = static_cast<int32_t>(w->stride[d]);
    p->dilation[i] = static_cast<int32_t>(w->dilation[d]);
    p->before[i] = static_cast<int32_t>(w->before[d]);
  }
  p->count = cnn_view_numel(result);
}

static void read_in(cnn_window *w, int n, const cnn_view *x) {
  memset(w, 0, sizeof *w);
  w->n = n;
  for (int i = 0; i < n; i++) w->in[i] = x->shape[x->ndim - n + i];
}

// infer has checked the windows.
static cnn_status run_max(cnn_call *call, bool adaptive) {
  const cnn_view *x = &call->in[0];
  const cnn_arg *a = call->args;
  const int n = static_cast<int>(a[1].i);
  cnn_window w;
  pool p;
  read_in(&w, n, x);
  if (!adaptive) CNN_TRY(cnn_window_pool(call->ctx, &w, &a[2], &a[3], &a[4], &a[5], a[6].i != 0));
  read_pool(&p, n, x, &call->out[0], &call->out[0], adaptive ? nullptr : &w);
  cuda_image_read(&p.at, &call->out[1], n);
  return k_by_real(call, p.dtype, [&](auto tag) {
    return CUDA_LAUNCH(call, k_max_pool<typename decltype(tag)::type>, k_grid(call, p.count),
                       K_BLOCK, 0, p);
  });
}

static cnn_status run_max_pool(cnn_call *call) {
  return run_max(call, false);
}
static cnn_status run_adaptive_max_pool(cnn_call *call) {
  return run_max(call, true);
}

static cnn_status run_max_pool_backward(cnn_call *call) {
  const cnn_view *dx = &call->out[0];
  const int n = static_cast<int>(call->args[3].i);
  const cnn_arg *window = &call->args[4];
  const bool windows = cnn_has(window, 0) && window->n == 4 * n;
  cnn_window w;
  pool p;
  read_in(&w, n, dx);
  for (int i = 0; windows && i < n; i++) {
    w.kernel[i] = window->ints[i], w.stride[i] = window->ints[n + i];
    w.before[i] = window->ints[2 * n + i], w.dilation[i] = window->ints[3 * n + i];
  }
  read_pool(&p, n, dx, &call->in[0], dx, windows ? &w : nullptr);
  cuda_image_read(&p.at, &call->in[1], n);
  p.anywhere = !cnn_has(window, 0);
  return k_by_float(call, p.dtype, [&](auto tag) {
    return CUDA_LAUNCH(call, k_max_pool_backward<typename decltype(tag)::type>,
                       k_grid(call, p.count), K_BLOCK, 0, p);
  });
}

static cnn_status run_max_pool_gather(cnn_call *call) {
  const int n = static_cast<int>(call->args[2].i);
  pool p;
  read_pool(&p, n, &call->in[0], &call->out[0], &call->out[0], nullptr);
  cuda_image_read(&p.at, &call->in[1], n);
  return k_by_size(call, p.dtype, [&](auto tag) {
    return CUDA_LAUNCH(call, k_max_pool_gather<typename decltype(tag)::type>, k_grid(call, p.count),
                       K_BLOCK, 0, p, cuda_fault_of(call), cuda_fault_op(call));
  });
}

// How many elements the largest window has.
static int64_t window_size(const pool &p) {
  int64_t size = 1;
  for (int i = 0; i < 3; i++)
    size *= !p.adaptive               ? (p.kernel[i] < p.in[i] ? p.kernel[i] : p.in[i])
            : p.in[i] % p.out[i] == 0 ? p.in[i] / p.out[i]
                                      : p.in[i] / p.out[i] + 2;
  return size;
}

static cnn_status run_means(cnn_call *call, int n, bool adaptive) {
  const cnn_view *x = &call->in[0];
  const cnn_arg *a = call->args;
  cnn_window w;
  pool p;
  read_in(&w, n, x);
  if (!adaptive) CNN_TRY(cnn_window_pool(call->ctx, &w, &a[1], &a[2], &a[3], nullptr, a[4].i != 0));
  read_pool(&p, n, x, &call->out[0], &call->out[0], adaptive ? nullptr : &w);
  if (!adaptive) p.include_pad = a[5].i != 0, p.divisor = cnn_has(a, 6) ? a[6].i : 0;
  const bool warps = !p.last && p.x.s[2] <= 1 && window_size(p) >= WARP_LEAST;
  return k_by_float(call, p.dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return warps ? CUDA_LAUNCH(call, k_avg_pool_warp<S>, k_grid(call, p.count * 32), K_BLOCK, 0, p)
                 : CUDA_LAUNCH(call, k_avg_pool<S>, k_grid(call, p.count), K_BLOCK, 0, p);
  });
}

static cnn_status run_means_backward(cnn_call *call, bool adaptive) {
  const cnn_view *dx = &call->out[0];
  const cnn_arg *a = call->args;
  const int n = static_cast<int>(a[adaptive ? 3 : 8].i);
  cnn_window w;
  pool p;
  read_in(&w, n, dx);
  if (!adaptive) CNN_TRY(cnn_window_pool(call->ctx, &w, &a[1], &a[2], &a[3], nullptr, a[4].i != 0));
  read_pool(&p, n, dx, &call->in[0], dx, adaptive ? nullptr : &w);
  if (!adaptive) p.include_pad = a[5].i != 0, p.divisor = cnn_has(a, 6) ? a[6].i : 0;
  return k_by_float(call, p.dtype, [&](auto tag) {
    return CUDA_LAUNCH(call, k_avg_pool_backward<typename decltype(tag)::type>,
                       k_grid(call, p.count), K_BLOCK, 0, p);
  });
}

static cnn_status run_avg1(cnn_call *call) {
  return run_means(call, 1, false);
}
static cnn_status run_avg2(cnn_call *call) {
  return run_means(call, 2, false);
}
static cnn_status run_avg3(cnn_call *call) {
  return run_means(call, 3, false);
}
static cnn_status run_adaptive1(cnn_call *call) {
  return run_means(call, 1, true);
}
static cnn_status run_adaptive2(cnn_call *call) {
  return run_means(call, 2, true);
}
static cnn_status run_adaptive3(cnn_call *call) {
  return run_means(call, 3, true);
}
static cnn_status run_avg_backward(cnn_call *call) {
  return run_means_backward(call, false);
}
static cnn_status run_adaptive_backward(cnn_call *call) {
  return run_means_backward(call, true);
}

CUDA_KERNEL(max_pool, nullptr, run_max_pool)
CUDA_KERNEL(adaptive_max_pool, nullptr, run_adaptive_max_pool)
CUDA_KERNEL(max_pool_backward, nullptr, run_max_pool_backward)
CUDA_KERNEL(max_pool_gather, nullptr, run_max_pool_gather)
CUDA_KERNEL(avg_pool1d, nullptr, run_avg1)
CUDA_KERNEL(avg_pool2d, nullptr, run_avg2)
CUDA_KERNEL(avg_pool3d, nullptr, run_avg3)
CUDA_KERNEL(avg_pool_backward, nullptr, run_avg_backward)
CUDA_KERNEL(adaptive_avg_pool1d, nullptr, run_adaptive1)
CUDA_KERNEL(adaptive_avg_pool2d, nullptr, run_adaptive2)
CUDA_KERNEL(adaptive_avg_pool3d, nullptr, run_adaptive3)
CUDA_KERNEL(adaptive_avg_pool_backward, nullptr, run_adaptive_backward)
