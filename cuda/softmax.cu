// SPDX-License-Identifier: MIT
// Kernels of ops/softmax.c. What limits them are bytes. Dense, aligned lines of up to 8192 elements
// (float64: 4096) are held in registers (team.cuh): x, or dy and y, are read once, the result is
// written once.
//
// Of others, a line is worked on by a warp, a long one by a block, and neighbouring lines along
// another dim by a thread each. One pass finds the largest element and the sum together (Milakov,
// Gimelshein: "Online normalizer calculation for softmax", 2018), a second one reads again and
// writes; the gradient likewise.
//
// A NaN or +inf in a line makes all of it NaN, and so do elements that are all -inf.
#include "scalar.cuh"
#include "team.cuh"

#include <math.h>

namespace {
template <class T> struct state { T top, sum; };
} // namespace

template <class T> __device__ inline state<T> take(state<T> a, T x) {
  const T least = -static_cast<T>(INFINITY);
  if (x == least) return a;
  if (x <= a.top) return state<T>{a.top, a.sum + m_exp(x - a.top)};
  // e^(x - x) is 1, but NaN for what is not finite.
  return state<T>{x, (a.top == least ? 0 : a.sum * m_exp(a.top - x)) + m_exp(x - x)};
}
template <class T> __device__ inline state<T> join(state<T> a, state<T> b) {
  if (a.sum == 0) return b;
  if (b.sum == 0) return a;
  const T top = a.top > b.top ? a.top : b.top;
  return state<T>{top, a.sum * m_exp(a.top - top) + b.sum * m_exp(b.top - top)};
}

namespace {
typedef struct job {
  cuda_lines lines; // of out, x; in backward out, dy, y
  void *out;
  const void *x, *saved;
  cnn_dtype dtype; // of x
} job;
} // namespace

// An element of x, whose dtype a dtype argument may make another than the result's.
template <class Out, bool same> __device__ inline k_computed<Out> input(const job &j, int64_t i) {
  if constexpr (same)
    return k_widen(static_cast<const Out *>(j.x)[i]);
  else
    return k_get<k_computed<Out>>(j.dtype, j.x, i);
}

template <class Out, bool same, bool logs, int by>
__global__ void __launch_bounds__(K_BLOCK) k_softmax(job j) {
  typedef k_computed<Out> T;
  __shared__ __align__(16) unsigned char raw[32 * sizeof(state<T>)];
  const state<T> none = {-static_cast<T>(INFINITY), 0};
  for (int64_t line = k_team_line<by>(); line < j.lines.outer.numel; line += k_team_step<by>()) {
    int64_t at[2];
    k_offsets<2>(j.lines.outer, line, at);
    Out *y = static_cast<Out *>(j.out) + at[0];
    state<T> s = none;
#pragma unroll(same ? 4 : 1)
    for (int64_t i = k_team_me<by>(); i < j.lines.length; i += k_team_width<by>())
      s = take(s, input<Out, same>(j, at[1] + i * j.lines.stride[1]));
    s = k_team_reduce<by>(s, reinterpret_cast<state<T> *>(raw), none,
                          [](state<T> a, state<T> b) { return join(a, b); });
    const T scale = logs ? m_log(s.sum) : 1 / s.sum;
#pragma unroll(same ? 4 : 1)
    for (int64_t i = k_team_me<by>(); i < j.lines.length; i += k_team_width<by>()) {
      const T v = input<Out, same>(j, at[1] + i * j.lines.stride[1]) - s.top;
      y[i * j.lines.stride[0]] = k_narrow<Out>(logs ? v - scale : m_exp(v) * scale);
    }
  }
}

template <class S, bool logs, int holder>
__global__ void __launch_bounds__(K_BLOCK) k_softmax_held(job j) {
  typedef k_held<S, holder> held;
  typedef typename held::T T;
  constexpr int by = held::by;
  __shared__ T shared[32];
  const int n = static_cast<int>(j.lines.length);
  const T least = -static_cast<T>(INFINITY);
  for (int64_t line = k_team_line<by>(); line < j.lines.outer.numel; line += k_team_step<by>()) {
    int64_t at[2];
    k_offsets<2>(j.lines.outer, line, at);
    T v[held::count], top = least, sum = 0;
    held::load(static_cast<const S *>(j.x) + at[1], n, v, least); // e^(least) adds nothing
#pragma unroll
    for (int k = 0; k < held::count; k++) top = k_max()(v[k], top);
    top = k_team_reduce<by>(top, shared, least, k_max());
#pragma unroll
    for (int k = 0; k < held::count; k++) {
      const T below = v[k] - top, power = m_exp(below);
      v[k] = logs ? below : power;
      sum += power;
    }
    sum = k_team_reduce<by>(sum, shared, T(0), k_sum());
    const T scale = logs ? m_log(sum) : 1 / sum;
#pragma unroll
    for (int k = 0; k < held::count; k++) v[k] = logs ? v[k] - scale : v[k] * scale;
    held::store(static_cast<S *>(j.out) + at[0], n, v);
  }
}

// dx = y (dy - sum(dy y)), of the logarithm dy - e^y sum(dy).
template <class S, bool logs, int holder>
__global__ void __launch_bounds__(K_BLOCK) k_softmax_backward_held(job j) {
  typedef k_held<S, holder> held;
  typedef typename held::T T;
  constexpr int by = held::by;
  __shared__ T shared[32];
  const int n = static_cast<int>(j.lines.length);
  for (int64_t line = k_team_line<by>(); line < j.lines.outer.numel; line += k_team_step<by>()) {
    int64_t at[3];
    k_offsets<3>(j.lines.outer, line, at);
    T g[held::count], y[held::count], sum = 0;
    held::load(static_cast<const S *>(j.x) + at[1], n, g, 0); // adds nothing
    held::load(static_cast<const S *>(j.saved) + at[2], n, y, 0);
#pragma unroll
    for (int k = 0; k < held::count; k++) sum += logs ? g[k] : g[k] * y[k];
    sum = k_team_reduce<by>(sum, shared, T(0), k_sum());
#pragma unroll
    for (int k = 0; k < held::count; k++)
      g[k] = logs ? g[k] - m_exp(y[k]) * sum : y[k] * (g[k] - sum);
    held::store(static_cast<S *>(j.out) + at[0], n, g);
  }
}

template <class S, bool logs, int by>
__global__ void __launch_bounds__(K_BLOCK) k_softmax_backward(job j) {
  typedef k_computed<S> T;
  __shared__ T shared[32];
  for (int64_t line = k_team_line<by>(); line < j.lines.outer.numel; line += k_team_step<by>()) {
    int64_t at[3];
    k_offsets<3>(j.lines.outer, line, at);
    const S *dy = static_cast<const S *>(j.x) + at[1];
    const S *y = static_cast<const S *>(j.saved) + at[2];
    S *dx = static_cast<S *>(j.out) + at[0];
    T sum = 0;
    for (int64_t i = k_team_me<by>(); i < j.lines.length; i += k_team_width<by>()) {
      const T g = k_widen(dy[i * j.lines.stride[1]]);
      sum += logs ? g : g * k_widen(y[i * j.lines.stride[2]]);
    }
    sum = k_team_reduce<by>(sum, shared, static_cast<T>(0), k_sum());
    for (int64_t i = k_team_me<by>(); i < j.lines.length; i += k_team_width<by>()) {
      const T g = k_widen(dy[i * j.lines.stride[1]]), v = k_widen(y[i * j.lines.stride[2]]);
      dx[i * j.lines.stride[0]] = k_narrow<S>(logs ? g - m_exp(v) * sum : v * (g - sum));
    }
  }
}

static int by_of(const cuda_lines *l) {
  return l->columns ? BY_THREAD : l->length > 1024 ? BY_BLOCK : BY_WARP;
}

template <class S> static int holder_of(const cuda_lines *l, const cnn_view *const *views, int n) {
  for (int k = 0; k < n; k++)
    if (l->stride[k] != 1 || !k_rows_aligned<S>(&l->outer, k, views[k]->data)) return HELD_NOT;
  return k_holder_of<S>(l->length);
}
static unsigned held_grid(const cnn_call *call, const cuda_lines *l, int holder) {
  return k_rows_grid(call, l->outer.numel, holder < HELD_BLOCK ? BY_WARP : BY_BLOCK);
}

static int dim_of(const cnn_call *call, int arg) {
  const int64_t dim = call->args[arg].i;
  return static_cast<int>(dim < 0 ? dim + call->out[0].ndim : dim);
}

template <bool logs> static cnn_status run_forward(cnn_call *call) {
  const cnn_view *views[] = {&call->out[0], &call->in[0]};
  job j = {};
  if (cnn_view_numel(views[0]) == 0) return CNN_OK;
  cuda_lines_make(&j.lines, dim_of(call, 1), views, 2);
  j.out = call->out[0].data;
  j.x = call->in[0].data;
  j.dtype = call->in[0].dtype;
  const int by = by_of(&j.lines);
  const unsigned grid = k_rows_grid(call, j.lines.outer.numel, by);
  return k_by_float(call, call->out[0].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type Out;
    if (call->in[0].dtype != call->out[0].dtype)
      return CUDA_LAUNCH(call, (k_softmax<Out, false, logs, BY_BLOCK>),
                         k_rows_grid(call, j.lines.outer.numel, BY_BLOCK), K_BLOCK, 0, j);
    const int holder = holder_of<Out>(&j.lines, views, 2);
    const unsigned held = held_grid(call, &j.lines, holder);
    switch (holder) {
    case HELD_FEW:
      return CUDA_LAUNCH(call, (k_softmax_held<Out, logs, HELD_FEW>), held, K_BLOCK, 0, j);
    case HELD_WARP:
      return CUDA_LAUNCH(call, (k_softmax_held<Out, logs, HELD_WARP>), held, K_BLOCK, 0, j);
    case HELD_BLOCK:
      return CUDA_LAUNCH(call, (k_softmax_held<Out, logs, HELD_BLOCK>), held, K_BLOCK, 0, j);
    default: break;
    }
    switch (by) {
    case BY_THREAD:
      return CUDA_LAUNCH(call, (k_softmax<Out, true, logs, BY_THREAD>), grid, K_BLOCK, 0, j);
    case BY_WARP:
      return CUDA_LAUNCH(call, (k_softmax<Out, true, logs, BY_WARP>), grid, K_BLOCK, 0, j);
    default: return CUDA_LAUNCH(call, (k_softmax<Out, true, logs, BY_BLOCK>), grid, K_BLOCK, 0, j);
    }
  });
}

template <bool logs> static cnn_status run_backward(cnn_call *call) {
  const cnn_view *views[] = {&call->out[0], &call->in[0], &call->in[1]};
  job j = {};
  if (cnn_view_numel(views[0]) == 0) return CNN_OK;
  cuda_lines_make(&j.lines, dim_of(call, 2), views, 3);
  j.out = call->out[0].data;
  j.x = call->in[0].data;
  j.dtype = call->in[0].dtype;
  j.saved = call->in[1].data;
  const int by = by_of(&j.lines);
  const unsigned grid = k_rows_grid(call, j.lines.outer.numel, by);
  return k_by_float(call, call->out[0].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    const int holder = holder_of<S>(&j.lines, views, 3);
    const unsigned held = held_grid(call, &j.lines, holder);
    switch (holder) {
    case HELD_FEW:
      return CUDA_LAUNCH(call, (k_softmax_backward_held<S, logs, HELD_FEW>), held, K_BLOCK, 0, j);
    case HELD_WARP:
      return CUDA_LAUNCH(call, (k_softmax_backward_held<S, logs, HELD_WARP>), held, K_BLOCK, 0, j);
    case HELD_BLOCK:
      return CUDA_LAUNCH(call, (k_softmax_backward_held<S, logs, HELD_BLOCK>), held, K_BLOCK, 0, j);
    default: break;
    }
    switch (by) {
    case BY_THREAD:
      return CUDA_LAUNCH(call, (k_softmax_backward<S, logs, BY_THREAD>), grid, K_BLOCK, 0, j);
    case BY_WARP:
      return CUDA_LAUNCH(call, (k_softmax_backward<S, logs, BY_WARP>), grid, K_BLOCK, 0, j);
    default: return CUDA_LAUNCH(call, (k_softmax_backward<S, logs, BY_BLOCK>), grid, K_BLOCK, 0, j);
    }
  });
}

CUDA_KERNEL(softmax, nullptr, run_forward<false>)
CUDA_KERNEL(log_softmax, nullptr, run_forward<true>)
CUDA_KERNEL(softmax_backward, nullptr, run_backward<false>)
CUDA_KERNEL(log_softmax_backward, nullptr, run_backward<true>)
