// SPDX-License-Identifier: MIT
// Kernels of ops/cross_entropy.c.
//
// A row (the classes of one label) is worked on by a warp, a long one by a block; where
// neighbouring rows are neighbours in memory (N, C, H, W), by a thread each. The forward reads the
// logits once (twice with label smoothing), by online normalization as in softmax.cu; the backward
// reads them once more and writes the gradient: two and three times their bytes are what bounds
// them.
//
// A label that is none is reported, and its row counts as ignored. Sums are in double, blocks
// joined in their order.
#include "scalar.cuh"
#include "team.cuh"

#include <math.h>

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

// What comes of a block of rows.
typedef struct partial {
  double loss, weight; // sums over the rows that count
  int64_t rows;        // how many
} partial;

namespace {
typedef struct job {
  cuda_walk rows; // input (gradient, input), labels, the row's number
  cuda_walk dys;  // gradient, dy
  int64_t classes, stride, x_stride;
  bool packs; // rows are dense, and begin at 16 bytes
  void *out;  // losses of rows, or the gradient; NULL: reduced
  const void *x, *target, *w;
  cnn_dtype target_dtype, w_dtype;
  int64_t w_stride;
  int64_t ignored;         // label, or 0
  double smoothing, share; // label smoothing, and what of it is a class's
  void *largest, *log_sum; // of rows
  partial *partials;
  const double *w_sum; // NULL: the number of classes
  // The gradient of a row without its weight: one of dys, or the number at dy, or g; over total.
  const void *dy, *total;
  cnn_dtype dy_dtype, total_dtype;
  double g;
  bool each;
  cuda_fault *fault;
  int op;
} job;
} // namespace

// The label at an offset, from 0; -1 for a row that does not count. `lead` reports a wrong one.
__device__ static inline int64_t read_label(const job &j, int64_t at, bool lead) {
  const int64_t v = k_get<int64_t>(j.target_dtype, j.target, at);
  if (v == j.ignored && v > 0) return -1;
  if (v >= 1 && v <= j.classes) return v - 1;
  if (lead) k_report(j.fault, j.op, cnn_fault{CNN_FAULT_LABEL, v, j.classes, 0, 0, 0});
  return -1;
}
__device__ static inline double weight_of(const job &j, int64_t c) {
  return j.w ? k_get<double>(j.w_dtype, j.w, c * j.w_stride) : 1;
}

// f(logit) for this thread's share of a row that begins at x.
template <class S, int by, class F> __device__ inline void for_row(const job &j, const S *x, F f) {
  constexpr int N = 16 / sizeof(S);
  int64_t done = 0;
  if (by != BY_THREAD && sizeof(S) < 8 && j.packs) {
    const int64_t packs = j.classes / N;
    for (int64_t i = k_team_me<by>(); i < packs; i += k_team_width<by>()) {
      const k_pack<S, N> v = reinterpret_cast<const k_pack<S, N> *>(x)[i];
#pragma unroll
      for (int k = 0; k < N; k++) f(k_widen(v.v[k]));
    }
    done = packs * N;
  }
  for (int64_t c = done + k_team_me<by>(); c < j.classes; c += k_team_width<by>())
    f(k_widen(x[c * j.x_stride]));
}

// ---------------------------------------------------------------------------------------------
// Forward

namespace {
template <class T> struct state {
  T top, sum; // the largest, NaN apart; sum of e^(x - top)
};
} // namespace

template <class T> __device__ inline state<T> take(state<T> a, T x) {
  const T least = -static_cast<T>(INFINITY);
  if (x == least) return a;
  if (x <= a.top) return state<T>{a.top, a.sum + m_exp(x - a.top)};
  if (x != x) return state<T>{a.top, x};
  // e^(x - x) is 1, but NaN for what is not finite.
  return state<T>{x, (a.top == least ? a.sum : a.sum * m_exp(a.top - x)) + m_exp(x - x)};
}
// The block's sums, from those of its threads.
__device__ static inline void finish_block(const job &j, partial own) {
  __shared__ double numbers[32];
  __shared__ int64_t counts[32];
  own.loss = k_block_reduce(own.loss, numbers, 0.0, k_sum());
  own.weight = k_block_reduce(own.weight, numbers, 0.0, k_sum());
  own.rows = k_block_reduce(own.rows, counts, static_cast<int64_t>(0), k_sum());
  if (threadIdx.x == 0) j.partials[blockIdx.x] = own;
}

template <class S, int by> __global__ void __launch_bounds__(K_BLOCK) k_cross_entropy(job j) {
  typedef k_computed<S> T;
  __shared__ T shared[32];
  __shared__ double numbers[32];
  // Kept in shared memory where one lane of a warp adds to them: registers are dear here.
  __shared__ partial slots[K_BLOCK / 32];
  const state<T> none = {-static_cast<T>(INFINITY), 0};
  partial own = {0, 0, 0};
  partial *sum = by == BY_THREAD ? &own : &slots[threadIdx.x >> 5];
  if (by != BY_THREAD && (threadIdx.x & 31) == 0) *sum = own;
  for (int64_t i = k_team_line<by>(); i < j.rows.numel; i += k_team_step<by>()) {
    int64_t at[3];
    k_offsets<3>(j.rows, i, at);
    const S *x = static_cast<const S *>(j.x) + at[0];
    const bool lead = k_team_me<by>() == 0;
    const int64_t label = read_label(j, at[1], lead);
    state<T> s = none;
    for_row<S, by>(j, x, [&](T v) { s = take(s, v); });
    const T top = k_team_reduce<by>(s.top, shared, none.top, k_max());
    if (by != BY_THREAD) {
      // (Where nothing was added top may be -inf, as may the largest.)
      const T part = s.sum == 0 ? 0 : s.sum * m_exp(s.top - top);
      s = state<T>{top, k_team_reduce<by>(part, shared, static_cast<T>(0), k_sum())};
    }
    const T log_sum = m_log(s.sum);
    double smooth = 0;
    if (j.smoothing > 0) {
      for (int64_t c = k_team_me<by>(); c < j.classes; c += k_team_width<by>()) {
        const T below = s.top - k_widen(x[c * j.x_stride]);
        smooth += static_cast<double>(static_cast<T>(weight_of(j, c)) * (below + log_sum));
      }
      smooth = k_team_reduce<by>(smooth, numbers, 0.0, k_sum());
    }
    if (!lead) continue;
    static_cast<T *>(j.largest)[at[2]] = s.top;
    static_cast<T *>(j.log_sum)[at[2]] = log_sum;
    double loss = 0;
    if (label >= 0) {
      const double here =
          (static_cast<double>(s.top) - static_cast<double>(k_widen(x[label * j.x_stride]))) +
          static_cast<double>(log_sum);
      const double w = weight_of(j, label), e = j.smoothing;
      loss = (1 - e) * w * here + j.share * smooth;
      sum->loss += loss;
      sum->weight += w;
      sum->rows++;
    }
    if (j.out) static_cast<S *>(j.out)[at[2]] = k_narrow<S>(static_cast<T>(loss));
  }
  if (by != BY_THREAD && (threadIdx.x & 31) == 0) own = *sum;
  finish_block(j, own);
}

template <class S> __global__ void __launch_bounds__(K_BLOCK) k_nll(job j) {
  typedef k_computed<S> T;
  partial sum = {0, 0, 0};
  for (int64_t i = k_index(); i < j.rows.numel; i += k_stride()) {
    int64_t at[3];
    k_offsets<3>(j.rows, i, at);
    const int64_t label = read_label(j, at[1], true);
    double loss = 0;
    if (label >= 0) {
      const double w = weight_of(j, label);
      loss = -w *
             static_cast<double>(k_widen(static_cast<const S *>(j.x)[at[0] + label * j.x_stride]));
      sum.loss += loss;
      sum.weight += w;
      sum.rows++;
    }
    if (j.out) static_cast<S *>(j.out)[at[2]] = k_narrow<S>(static_cast<T>(loss));
  }
  finish_block(j, sum);
}

// The loss (where it is reduced: not NULL) and the total weight. Rows that are all ignored have the
// loss 0.
__global__ void __launch_bounds__(K_BLOCK)
    k_finish(const partial *partials, int64_t n, int64_t rows, bool mean, cnn_dtype loss_dtype,
             void *loss, cnn_dtype total_dtype, void *total) {
  __shared__ double numbers[32];
  __shared__ int64_t counts[32];
  partial sum = {0, 0, 0};
  for (int64_t i = threadIdx.x; i < n; i += K_BLOCK) {
    sum.loss += partials[i].loss;
    sum.weight += partials[i].weight;
    sum.rows += partials[i].rows;
  }
  sum.loss = k_block_reduce(sum.loss, numbers, 0.0, k_sum());
  sum.weight = k_block_reduce(sum.weight, numbers, 0.0, k_sum());
  sum.rows = k_block_reduce(sum.rows, counts, static_cast<int64_t>(0), k_sum());
  if (threadIdx.x != 0) return;
  const double weight = sum.rows == 0 && rows > 0 ? 1 : sum.weight;
  if (loss) k_put(loss_dtype, loss, 0, mean ? sum.loss / weight : sum.loss);
  k_put(total_dtype, total, 0, weight);
}

// ---------------------------------------------------------------------------------------------
// What is written for every class: gradients and weights

__global__ void __launch_bounds__(K_BLOCK) k_weight_sum(job j, double *out) {
  __shared__ double numbers[32];
  double sum = 0;
  for (int64_t c = threadIdx.x; c < j.classes; c += K_BLOCK) sum += weight_of(j, c);
  sum = k_block_reduce(sum, numbers, 0.0, k_sum());
  if (threadIdx.x == 0) *out = sum;
}

enum { CROSS_ENTROPY, CLASS_WEIGHTS, NLL };

template <class S, int by, int kind> __global__ void __launch_bounds__(K_BLOCK) k_classes(job j) {
  typedef k_computed<S> T;
  constexpr int N = 16 / sizeof(S);
  const double e = j.smoothing;
  double g = j.g;
  if (kind != CLASS_WEIGHTS) {
    if (j.dy && !j.each) g = k_get<double>(j.dy_dtype, j.dy, 0);
    if (j.total) g /= k_get<double>(j.total_dtype, j.total, 0);
  }
  for (int64_t i = k_team_line<by>(); i < j.rows.numel; i += k_team_step<by>()) {
    int64_t at[4], dy_at[2];
    k_offsets<4>(j.rows, i, at);
    const int64_t label = read_label(j, at[2], k_team_me<by>() == 0);
    if (kind != CLASS_WEIGHTS && j.each) {
      k_offsets<2>(j.dys, i, dy_at);
      g = k_get<double>(j.dy_dtype, j.dy, dy_at[1]);
    }
    S *out = static_cast<S *>(j.out) + at[0];
    const S *x = static_cast<const S *>(j.x) + at[1];
    // a p - b w, and c more at the label.
    T a = 0, b = 0, c = 0, top = 0, log_sum = 0;
    if (label >= 0) {
      const double w = weight_of(j, label);
      if (kind == CROSS_ENTROPY) {
        const double w_sum = j.w_sum ? *j.w_sum : static_cast<double>(j.classes);
        a = static_cast<T>(g * ((1 - e) * w + j.share * w_sum));
        b = static_cast<T>(g * j.share);
        c = static_cast<T>(-(g * (1 - e) * w));
        top = static_cast<const T *>(j.largest)[at[3]];
        log_sum = static_cast<const T *>(j.log_sum)[at[3]];
      } else if (kind == CLASS_WEIGHTS) {
        c = static_cast<T>((1 - e) * w);
      } else {
        c = static_cast<T>(-w * g);
      }
    }
    const auto value = [&](int64_t k, S logit) {
      if (label < 0) return T(0);
      T v = 0;
      if (kind == CROSS_ENTROPY) {
        v = a * m_exp((k_widen(logit) - top) - log_sum);
        if (b != 0) v -= b * static_cast<T>(weight_of(j, k));
      } else if (kind == CLASS_WEIGHTS) {
        v = static_cast<T>(j.share * weight_of(j, k));
      }
      return k == label ? v + c : v;
    };
    int64_t done = 0;
    if (by != BY_THREAD && j.packs) {
      const int64_t packs = j.classes / N;
      for (int64_t k = k_team_me<by>(); k < packs; k += k_team_width<by>()) {
        k_pack<S, N> v, r;
        if constexpr (kind == CROSS_ENTROPY) v = reinterpret_cast<const k_pack<S, N> *>(x)[k];
#pragma unroll
        for (int m = 0; m < N; m++)
          r.v[m] = k_narrow<S>(value(k * N + m, kind == CROSS_ENTROPY ? v.v[m] : S()));
        reinterpret_cast<k_pack<S, N> *>(out)[k] = r;
      }
      done = packs * N;
    }
    for (int64_t k = done + k_team_me<by>(); k < j.classes; k += k_team_width<by>())
      out[k * j.stride] = k_narrow<S>(value(k, kind == CROSS_ENTROPY ? x[k * j.x_stride] : S()));
  }
}

// ---------------------------------------------------------------------------------------------
// Setting up

static int class_dim(const cnn_view *x) {
  return x->ndim > 1 ? 1 : 0;
}

// A view without a dim.
typedef struct rest {
  cnn_view v;
  int64_t shape[CNN_MAX_DIMS], strides[CNN_MAX_DIMS];
} rest;

static void drop_dim(const cnn_view *v, int dim, rest *r) {
  int n = 0;
  for (int d = 0; d < v->ndim; d++) {
    if (d == dim) continue;
    r->shape[n] = v->shape[d];
    r->strides[n++] = v->strides[d];
  }
  r->v = *v;
  r->v.shape = r->shape;
  r->v.strides = r->strides;
  r->v.ndim = n;
}

static bool rows_begin_aligned(const cuda_walk *w, int view, const void *data, cnn_dtype dtype) {
  const int64_t each = 16 / static_cast<int64_t>(cnn_dtype_size(dtype));
  for (int d = 0; d < w->ndim; d++)
    if (w->strides[view][d] % each != 0) return false;
  return k_aligned(data, 16);
}

static void set_smoothing(const cnn_arg *a, job *j) {
  j->smoothing = cnn_arg_number(a);
  j->share = j->classes > 0 ? j->smoothing / static_cast<double>(j->classes) : 0;
}

// x: the input; out: what has its shape and is written, or NULL.
static void start(const cnn_call *call, const cnn_view *x, const cnn_view *out,
                  const cnn_view *target, const cnn_view *weight, const cnn_arg *ignored, job *j) {
  const int dim = class_dim(x);
  const cnn_view *lead = out ? out : x;
  rest rx, rl, number;
  memset(static_cast<void *>(j), 0, sizeof *j);
  drop_dim(x, dim, &rx);
  drop_dim(lead, dim, &rl);
  number = rx;
  cnn_shape_strides(number.v.ndim, number.shape, number.strides);
  number.v.strides = number.strides;
  number.v.shape = number.shape;
  const cnn_view *views[] = {&rl.v, &rx.v, target, &number.v};
  if (out)
    cuda_walk_make(&j->rows, rx.v.ndim, rx.shape, views, 4);
  else
    cuda_walk_make(&j->rows, rx.v.ndim, rx.shape, views + 1, 3);
  j->classes = x->shape[dim];
  j->stride = lead->strides[dim];
  j->x_stride = x->strides[dim];
  j->packs = (j->x_stride == 1 || j->classes == 1) && (j->stride == 1 || j->classes == 1);
  j->packs = j->packs && rows_begin_aligned(&j->rows, 0, lead->data, lead->dtype) &&
             (!out || rows_begin_aligned(&j->rows, 1, x->data, x->dtype));
  j->x = x->data;
  j->target = target->data;
  j->target_dtype = target->dtype;
  if (cnn_view_present(weight)) {
    j->w = weight->data;
    j->w_dtype = weight->dtype;
    j->w_stride = weight->strides[0];
  }
  j->ignored = ignored->kind == CNN_INT ? ignored->i + 1 : 0;
  if (call->planning) return;
  j->op = cuda_fault_op(call);
  j->fault = cuda_fault_of(call);
}

static int by_of(const job *j) {
  const cuda_walk *w = &j->rows;
  if (j->classes == 1 || (w->ndim > 0 && w->strides[0][w->ndim - 1] == 1 && j->stride != 1 &&
                          w->shape[w->ndim - 1] >= 16))
    return BY_THREAD;
  return j->classes > 1024 ? BY_BLOCK : BY_WARP;
}
static int64_t blocks_of(const cnn_call *call, const job *j, int by) {
  const int64_t each = by == BY_THREAD ? K_BLOCK : by == BY_WARP ? K_BLOCK / 32 : 1;
  const int64_t most = static_cast<int64_t>(cuda_processors(call)) * 16;
  const int64_t blocks = (j->rows.numel + each - 1) / each;
  return blocks < most ? blocks : most;
}

// Sums of blocks to the loss and the total weight.
static cnn_status finish(const cnn_call *call, const job *j, int64_t blocks, int64_t reduction,
                         const cnn_view *total) {
  const cnn_view *loss = &call->out[0];
  return CUDA_LAUNCH(call, k_finish, 1, K_BLOCK, 0, static_cast<const partial *>(j->partials),
                     blocks, j->rows.numel, reduction == REDUCE_MEAN, loss->dtype,
                     reduction == REDUCE_NONE ? nullptr : loss->data, total->dtype, total->data);
}

// ---------------------------------------------------------------------------------------------
// cross_entropy_native(input, target, weight?, ignore_index?, reduction, label_smoothing)
//   -> loss largest log_sum total

static void start_loss(const cnn_call *call, job *j) {
  start(call, &call->in[0], nullptr, &call->in[1], &call->in[2], &call->args[3], j);
  j->partials = static_cast<partial *>(call->scratch);
  if (call->args[4].i == REDUCE_NONE) j->out = call->out[0].data;
}

static cnn_status plan_cross_entropy(cnn_call *call) {
  job j;
  start_loss(call, &j);
  call->scratch_bytes = static_cast<size_t>(blocks_of(call, &j, by_of(&j))) * sizeof(partial);
  return CNN_OK;
}

static cnn_status run_cross_entropy(cnn_call *call) {
  job j;
  start_loss(call, &j);
  set_smoothing(&call->args[5], &j);
  j.largest = call->out[1].data;
  j.log_sum = call->out[2].data;
  const int by = by_of(&j);
  const int64_t blocks = blocks_of(call, &j, by);
  const unsigned grid = static_cast<unsigned>(blocks);
  CNN_TRY(k_by_float(call, call->in[0].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    switch (by) {
    case BY_THREAD: return CUDA_LAUNCH(call, (k_cross_entropy<S, BY_THREAD>), grid, K_BLOCK, 0, j);
    case BY_WARP: return CUDA_LAUNCH(call, (k_cross_entropy<S, BY_WARP>), grid, K_BLOCK, 0, j);
    default: return CUDA_LAUNCH(call, (k_cross_entropy<S, BY_BLOCK>), grid, K_BLOCK, 0, j);
    }
  }));
  return finish(call, &j, blocks, call->args[4].i, &call->out[3]);
}
CUDA_KERNEL(cross_entropy_native, plan_cross_entropy, run_cross_entropy)

// nll_loss_native(input, target, weight?, ignore_index?, reduction) -> loss total
static cnn_status plan_nll(cnn_call *call) {
  job j;
  start_loss(call, &j);
  call->scratch_bytes = static_cast<size_t>(blocks_of(call, &j, BY_THREAD)) * sizeof(partial);
  return CNN_OK;
}

static cnn_status run_nll(cnn_call *call) {
  job j;
  start_loss(call, &j);
  const int64_t blocks = blocks_of(call, &j, BY_THREAD);
  CNN_TRY(k_by_float(call, call->in[0].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return CUDA_LAUNCH(call, k_nll<S>, static_cast<unsigned>(blocks), K_BLOCK, 0, j);
  }));
  return finish(call, &j, blocks, call->args[4].i, &call->out[1]);
}
CUDA_KERNEL(nll_loss_native, plan_nll, run_nll)

// ---------------------------------------------------------------------------------------------
// Gradients and weights

template <int kind> static cnn_status write_classes(const cnn_call *call, const job *j) {
  const int by = by_of(j);
  const unsigned grid = static_cast<unsigned>(blocks_of(call, j, by));
  return k_by_float(call, call->out[0].dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    switch (by) {
    case BY_THREAD: return CUDA_LAUNCH(call, (k_classes<S, BY_THREAD, kind>), grid, K_BLOCK, 0, *j);
    case BY_WARP: return CUDA_LAUNCH(call, (k_classes<S, BY_WARP, kind>), grid, K_BLOCK, 0, *j);
    default: return CUDA_LAUNCH(call, (k_classes<S, BY_BLOCK, kind>), grid, K_BLOCK, 0, *j);
    }
  });
}

// The gradient of a row, without its weight.
static void start_gradient(const cnn_view *dy, const cnn_view *total, int64_t reduction,
                           const cnn_view *dx, job *j) {
  j->dy_dtype = dy->dtype;
  if (cnn_view_is_number(dy))
    j->g = cnn_element_get(dy->dtype, dy->data);
  else
    j->dy = dy->data;
  if (reduction == REDUCE_MEAN) j->total = total->data, j->total_dtype = total->dtype;
  if (reduction != REDUCE_NONE || !j->dy) return;
  rest lead;
  drop_dim(dx, class_dim(dx), &lead);
  const cnn_view *views[] = {&lead.v, dy};
  cuda_walk_make(&j->dys, lead.v.ndim, lead.shape, views, 2);
  j->each = true;
}

// cross_entropy_backward(dy, input, target, weight?, largest, log_sum, total, ignore_index?,
//                        reduction, label_smoothing) -> dx
static cnn_status plan_backward(cnn_call *call) {
  if (cnn_view_present(&call->in[3]) && cnn_arg_number(&call->args[9]) > 0)
    call->scratch_bytes = sizeof(double);
  return CNN_OK;
}

static cnn_status run_backward(cnn_call *call) {
  job j;
  start(call, &call->in[1], &call->out[0], &call->in[2], &call->in[3], &call->args[7], &j);
  j.out = call->out[0].data;
  set_smoothing(&call->args[9], &j);
  j.largest = call->in[4].data; // saved results of the forward: dense
  j.log_sum = call->in[5].data;
  start_gradient(&call->in[0], &call->in[6], call->args[8].i, &call->out[0], &j);
  if (j.w && j.smoothing > 0) {
    double *sum = static_cast<double *>(call->scratch);
    CNN_TRY(CUDA_LAUNCH(call, k_weight_sum, 1, K_BLOCK, 0, j, sum));
    j.w_sum = sum;
  }
  return write_classes<CROSS_ENTROPY>(call, &j);
}
CUDA_KERNEL(cross_entropy_backward, plan_backward, run_backward)

// class_weights(target, weight?, ignore_index?, label_smoothing, shape, dtype)
static cnn_status run_weights(cnn_call *call) {
  job j;
  const cnn_view *out = &call->out[0];
  start(call, out, out, &call->in[0], &call->in[1], &call->args[2], &j);
  j.out = out->data;
  set_smoothing(&call->args[3], &j);
  return write_classes<CLASS_WEIGHTS>(call, &j);
}
CUDA_KERNEL(class_weights, nullptr, run_weights)

// nll_loss_backward(dy, target, weight?, total, shape, ignore_index?, reduction) -> dx
static cnn_status run_nll_backward(cnn_call *call) {
  job j;
  const cnn_view *dx = &call->out[0];
  start(call, dx, dx, &call->in[1], &call->in[2], &call->args[5], &j);
  j.out = dx->data;
  start_gradient(&call->in[0], &call->in[3], call->args[6].i, dx, &j);
  return write_classes<NLL>(call, &j);
}
CUDA_KERNEL(nll_loss_backward, nullptr, run_nll_backward)
