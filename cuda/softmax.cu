// SPDX-License-Identifier: MIT
// Kernels of ops/softmax.c. A line is worked on by a warp, a long one by a block, and neighbouring
// lines along another dim by a thread each. One pass finds the largest element and the sum together
// (Milakov, Gimelshein: "Online normalizer calculation for softmax", 2018), a second one writes.
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

// dx = y (dy - sum(dy y)), of the logarithm dy - e^y sum(dy).
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
static unsigned blocks_of(const cnn_call *call, int64_t n) {
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 32;
  return static_cast<unsigned>(n < most ? n : most);
}
static unsigned grid_of(const cnn_call *call, const cuda_lines *l) {
  const int64_t each = l->columns ? K_BLOCK : l->length > 1024 ? 1 : K_BLOCK / 32;
  return blocks_of(call, (l->outer.numel + each - 1) / each);
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
  const unsigned grid = grid_of(call, &j.lines);
  const int by = by_of(&j.lines);
  return k_by_float(call, call->out[0].dtype, [&](auto out) {
    typedef typename decltype(out)::type Out;
    if (call->in[0].dtype == call->out[0].dtype) switch (by) {
      case BY_THREAD:
        return CUDA_LAUNCH(call, (k_softmax<Out, true, logs, BY_THREAD>), grid, K_BLOCK, 0, j);
      case BY_WARP:
        return CUDA_LAUNCH(call, (k_softmax<Out, true, logs, BY_WARP>), grid, K_BLOCK, 0, j);
      default:
        return CUDA_LAUNCH(call, (k_softmax<Out, true, logs, BY_BLOCK>), grid, K_BLOCK, 0, j);
      }
    return CUDA_LAUNCH(call, (k_softmax<Out, false, logs, BY_BLOCK>),
                       blocks_of(call, j.lines.outer.numel), K_BLOCK, 0, j);
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
  const unsigned grid = grid_of(call, &j.lines);
  return k_by_float(call, call->out[0].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    switch (by_of(&j.lines)) {
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
