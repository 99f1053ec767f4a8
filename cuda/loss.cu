// SPDX-License-Identifier: MIT
// Kernels of ops/loss.c: each row of loss.def, its text compiled for the device.
//
// One pass: the loss of each element is written, or summed in double; a second kernel joins the
// blocks' sums in their order. What bounds it are the bytes of input and target.
#include "kernel.cuh"
#include "scalar.cuh"

#include <math.h>

#include "cpu/expression.h"

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

// Logarithms that are at least -100.
template <class T> __device__ inline T m_log_from_100(T x) {
  const T y = m_log(x);
  return y < -100 ? -100 : y;
}
template <class T> __device__ inline T m_log1p_from_100(T x) {
  const T y = m_log1p(x);
  return y < -100 ? -100 : y;
}

// ---------------------------------------------------------------------------------------------
// Rows

#define HAS_NONE       false
#define HAS_POS_WEIGHT true
#define IS_ANY         false
#define IS_UNIT        true

#define M(f) m_##f
#define X    x
#define Y    y
#define W    w
#define G    g
#define P(i) p

#define LOSS(title, flags, third_tensor, domain, params, forward, of_input, of_target, ...)        \
  struct row_##title {                                                                             \
    static constexpr bool third = HAS_##third_tensor, unit = IS_##domain;                          \
    template <class T> __device__ static inline T value(T x, T y, T w, T p) {                      \
      (void)w, (void)p;                                                                            \
      return forward;                                                                              \
    }                                                                                              \
    template <class T> __device__ static inline T dx(T g, T x, T y, T w, T p) {                    \
      (void)x, (void)y, (void)w, (void)p;                                                          \
      return of_input;                                                                             \
    }                                                                                              \
    template <class T> __device__ static inline T dy(T g, T x, T y, T w, T p) {                    \
      (void)x, (void)y, (void)w, (void)p;                                                          \
      return of_target;                                                                            \
    }                                                                                              \
  };
#include "ops/loss.def"
#undef LOSS

// ---------------------------------------------------------------------------------------------
// Operands

enum { XS, YS, WS, GS, OPERANDS };
enum { NUMBER, ONE, MANY }; // in the CPU's memory; one element everywhere; the rest

typedef struct loss_form {
  cuda_walk walk; // result (or input), input, target, third tensor
  cuda_walk more; // the same again, gradient
  void *out;      // NULL: sums
  const void *in[OPERANDS];
  double number[OPERANDS];
  int how[OPERANDS];
  bool packs;      // all is dense, or one element, and aligned
  double p, share; // the number argument; what the gradient is divided by
  double *partial; // of blocks
  cuda_fault *fault;
  int op;
  bool target; // whose gradient it is
} loss_form;

template <class S> __device__ inline k_computed<S> constant(const loss_form &f, int k) {
  return f.how[k] == NUMBER ? static_cast<k_computed<S>>(f.number[k])
         : f.how[k] == ONE  ? k_widen(*static_cast<const S *>(f.in[k]))
                            : k_computed<S>(1);
}

template <class S, int N>
__device__ inline void load(const loss_form &f, int k, int64_t pack, k_computed<S> c,
                            k_computed<S> *to) {
  if (f.how[k] != MANY) {
#pragma unroll
    for (int j = 0; j < N; j++) to[j] = c;
  } else {
    const k_pack<S, N> v = static_cast<const k_pack<S, N> *>(f.in[k])[pack];
#pragma unroll
    for (int j = 0; j < N; j++) to[j] = k_widen(v.v[j]);
  }
}
template <class S>
__device__ inline k_computed<S> load_one(const loss_form &f, int k, int64_t at, k_computed<S> c) {
  return f.how[k] != MANY ? c : k_widen(static_cast<const S *>(f.in[k])[at]);
}

__device__ static inline void report(const loss_form &f, int kind, double number) {
  k_report(f.fault, f.op, cnn_fault{kind, 0, 0, 0, 0, number});
}
template <class Row, class T> __device__ inline T value_of(const loss_form &f, T x, T y, T w) {
  if (Row::unit) {
    if (!(x >= 0 && x <= 1)) report(f, CNN_FAULT_INPUT, x);
    if (!(y >= 0 && y <= 1)) report(f, CNN_FAULT_TARGET, y);
  }
  return Row::template value<T>(x, y, w, static_cast<T>(f.p));
}

template <class Row, class S> __global__ void __launch_bounds__(K_BLOCK) k_loss(loss_form f) {
  typedef k_computed<S> T;
  constexpr int N = 16 / sizeof(S);
  __shared__ double shared[32];
  const T xc = constant<S>(f, XS), yc = constant<S>(f, YS);
  const T wc = Row::third ? constant<S>(f, WS) : T(1);
  double sum = 0;
  const int64_t packs = f.packs ? f.walk.numel / N : 0;
  for (int64_t i = k_index(); i < packs; i += k_stride()) {
    T x[N], y[N], w[N];
    k_pack<S, N> r;
    load<S, N>(f, XS, i, xc, x);
    load<S, N>(f, YS, i, yc, y);
    if (Row::third) load<S, N>(f, WS, i, wc, w);
#pragma unroll
    for (int j = 0; j < N; j++) {
      const T v = value_of<Row, T>(f, x[j], y[j], Row::third ? w[j] : wc);
      r.v[j] = k_narrow<S>(v);
      sum += static_cast<double>(v);
    }
    if (f.out) static_cast<k_pack<S, N> *>(f.out)[i] = r;
  }
  for (int64_t i = packs * N + k_index(); i < f.walk.numel; i += k_stride()) {
    int64_t at[4];
    k_offsets<4>(f.walk, i, at);
    const T v = value_of<Row, T>(f, load_one<S>(f, XS, at[1], xc), load_one<S>(f, YS, at[2], yc),
                                 Row::third ? load_one<S>(f, WS, at[3], wc) : wc);
    if (f.out) static_cast<S *>(f.out)[at[0]] = k_narrow<S>(v);
    sum += static_cast<double>(v);
  }
  if (f.out) return;
  sum = k_block_reduce(sum, shared, 0.0, k_sum());
  if (threadIdx.x == 0) f.partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(K_BLOCK)
    k_loss_finish(const double *partial, int64_t n, double divisor, cnn_dtype dtype, void *out) {
  __shared__ double shared[32];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += K_BLOCK) sum += partial[i];
  sum = k_block_reduce(sum, shared, 0.0, k_sum());
  if (threadIdx.x == 0) k_put(dtype, out, 0, sum / divisor);
}

template <class Row, class T> __device__ inline T slope_of(const loss_form &f, T g, T x, T y, T w) {
  const T p = static_cast<T>(f.p);
  return f.target ? Row::template dy<T>(g, x, y, w, p) : Row::template dx<T>(g, x, y, w, p);
}

template <class Row, class S>
__global__ void __launch_bounds__(K_BLOCK) k_loss_backward(loss_form f) {
  typedef k_computed<S> T;
  constexpr int N = 16 / sizeof(S);
  const T xc = constant<S>(f, XS), yc = constant<S>(f, YS);
  const T wc = Row::third ? constant<S>(f, WS) : T(1);
  const T gc = static_cast<T>(static_cast<double>(constant<S>(f, GS)) / f.share);
  const int64_t packs = f.packs ? f.walk.numel / N : 0;
  for (int64_t i = k_index(); i < packs; i += k_stride()) {
    T x[N], y[N], w[N], g[N];
    k_pack<S, N> r;
    load<S, N>(f, XS, i, xc, x);
    load<S, N>(f, YS, i, yc, y);
    load<S, N>(f, GS, i, gc, g);
    if (Row::third) load<S, N>(f, WS, i, wc, w);
#pragma unroll
    for (int j = 0; j < N; j++)
      r.v[j] = k_narrow<S>(slope_of<Row, T>(f, g[j], x[j], y[j], Row::third ? w[j] : wc));
    static_cast<k_pack<S, N> *>(f.out)[i] = r;
  }
  for (int64_t i = packs * N + k_index(); i < f.walk.numel; i += k_stride()) {
    int64_t at[4], g_at[2];
    k_offsets<4>(f.walk, i, at);
    k_offsets<2>(f.more, i, g_at);
    const T v = slope_of<Row, T>(f, load_one<S>(f, GS, g_at[1], gc), load_one<S>(f, XS, at[1], xc),
                                 load_one<S>(f, YS, at[2], yc),
                                 Row::third ? load_one<S>(f, WS, at[3], wc) : wc);
    static_cast<S *>(f.out)[at[0]] = k_narrow<S>(v);
  }
}

// ---------------------------------------------------------------------------------------------
// The driver

// views: of the operands; NULL or absent for none.
static void make_form(const cnn_call *call, const cnn_view *out, const cnn_view *const *views,
                      int reduction, bool third, loss_form *f) {
  const cnn_view *x = views[XS], *lead = out ? out : x;
  const cnn_view *walked[4] = {lead, x, views[YS], lead}, *more[2] = {lead, lead};
  memset(static_cast<void *>(f), 0, sizeof *f);
  if (third && views[WS] && cnn_view_present(views[WS])) walked[3] = views[WS];
  if (views[GS]) more[1] = views[GS];
  cuda_walk_make(&f->walk, x->ndim, x->shape, walked, 4);
  cuda_walk_make(&f->more, x->ndim, x->shape, more, 2);
  f->out = out ? out->data : nullptr;
  f->share = 1;
  f->packs = cuda_walk_dense(&f->walk, 0) && k_aligned(lead->data, 16);
  for (int k = 0; k < OPERANDS; k++) {
    const cnn_view *v = views[k];
    f->how[k] = NUMBER;
    f->number[k] = 1;
    if (!v || !cnn_view_present(v)) continue;
    const cuda_walk *w = k == GS ? &f->more : &f->walk;
    const int at = k == GS ? 1 : 1 + k;
    if (cnn_view_is_number(v)) {
      f->number[k] = cnn_element_get(v->dtype, v->data);
      continue;
    }
    f->in[k] = v->data;
    f->how[k] = cuda_walk_constant(w, at) ? ONE : MANY;
    if (f->how[k] == MANY) f->packs = f->packs && cuda_walk_dense(w, at) && k_aligned(v->data, 16);
  }
  const int last = call->n_args - 1;
  f->p = reduction + 1 <= last ? cnn_arg_number(&call->args[reduction + 1]) : 0;
}

// Blocks, for elements that come 16 bytes at a time.
static int64_t blocks_of(const cnn_call *call, cnn_dtype dtype, int64_t n) {
  const int64_t each = 16 / static_cast<int64_t>(cnn_dtype_size(dtype));
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 8;
  const int64_t blocks = (n + each * K_BLOCK - 1) / (each * K_BLOCK);
  return blocks < most ? blocks : most;
}

static cnn_status plan_loss(cnn_call *call) {
  if (call->args[call->n_in].i == REDUCE_NONE) return CNN_OK;
  const cnn_view *x = &call->in[0];
  call->scratch_bytes =
      static_cast<size_t>(blocks_of(call, x->dtype, cnn_view_numel(x))) * sizeof(double);
  return CNN_OK;
}

template <class Row> static cnn_status run_loss(cnn_call *call) {
  const int at = call->n_in;
  const bool reduced = call->args[at].i != REDUCE_NONE;
  const cnn_view *x = &call->in[0];
  const cnn_view *views[OPERANDS] = {x, &call->in[1], Row::third ? &call->in[2] : nullptr, nullptr};
  loss_form f;
  make_form(call, reduced ? nullptr : &call->out[0], views, at, Row::third, &f);
  f.partial = static_cast<double *>(call->scratch);
  if (Row::unit) f.fault = cuda_fault_of(call), f.op = cuda_fault_op(call);
  const int64_t numel = f.walk.numel, blocks = blocks_of(call, x->dtype, numel);
  CNN_TRY(k_by_float(call, x->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return CUDA_LAUNCH(call, (k_loss<Row, S>), static_cast<unsigned>(blocks), K_BLOCK, 0, f);
  }));
  if (!reduced) return CNN_OK;
  const double divisor = call->args[at].i == REDUCE_MEAN ? static_cast<double>(numel) : 1;
  return CUDA_LAUNCH(call, k_loss_finish, 1, K_BLOCK, 0, static_cast<const double *>(f.partial),
                     blocks, divisor, call->out[0].dtype, call->out[0].data);
}

template <class Row> static cnn_status run_loss_backward(cnn_call *call) {
  const int at = call->n_in;
  const cnn_view *x = &call->in[1];
  const cnn_view *views[OPERANDS] = {x, &call->in[2], Row::third ? &call->in[3] : nullptr,
                                     &call->in[0]};
  loss_form f;
  make_form(call, &call->out[0], views, at, Row::third, &f);
  f.target = call->args[call->n_args - 1].i != 0;
  if (call->args[at].i == REDUCE_MEAN) f.share = static_cast<double>(f.walk.numel);
  return k_by_float(call, x->dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return CUDA_LAUNCH(call, (k_loss_backward<Row, S>),
                       static_cast<unsigned>(blocks_of(call, x->dtype, f.walk.numel)), K_BLOCK, 0,
                       f);
  });
}

#define LOSS(title, flags, third_tensor, domain, params, forward, of_input, of_target, ...)        \
  CUDA_KERNEL(title, plan_loss, run_loss<row_##title>)                                             \
  CUDA_KERNEL(title##_backward, nullptr, run_loss_backward<row_##title>)
#include "ops/loss.def"
