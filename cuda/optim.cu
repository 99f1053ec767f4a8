// SPDX-License-Identifier: MIT
// Kernels of ops/optim.c: one launch steps many tensors, whose addresses are packed in the kernel's
// parameters (TENSORS at a time, apart by dtype). The rules are those of csrc/cpu/optim_rules.h,
// the CPU's text.
//
// A block works on CHUNK elements of one tensor, 16 bytes at a time. What bounds it are the bytes
// of the lists: a step of Adam reads four floats an element and writes three. Tensors that don't
// lie as their parameter does, and lists of several dtypes, are walked, each by a launch of its
// own.
//
// Nothing is changed while the device's error slot is set: what a bad index led to stays out of the
// weights.
#include "kernel.cuh"

#include <math.h>

#include "cpu/optim_rules.h"

#define LISTS   CNN_OPTIM_LISTS
#define CHUNK   4096
#define TENSORS 56
#define SETS    6 // of constants: parameters that have made as many steps share one

// ---------------------------------------------------------------------------------------------
// Rules: the lists that are there are bits of `lists`, which lets the compiler keep all in
// registers

#define LOOP for (int i = 0; i < 1; i++)

__device__ static inline float root_of(float x) {
  return sqrtf(x);
}
__device__ static inline double root_of(double x) {
  return sqrt(x);
}

#define RULE(name, BODY, changes)                                                                  \
  struct name {                                                                                    \
    static constexpr unsigned written = changes;                                                   \
    template <class T> __device__ static inline void apply(T *const *x, const T *c) {              \
      T *p = x[0];                                                                                 \
      const T *gs = x[1];                                                                          \
      BODY(T, root_of)                                                                             \
    }                                                                                              \
  };
RULE(sgd, SGD, 1 | 4)
RULE(adam, ADAM, 1 | 4 | 8 | 16)
RULE(rmsprop, RMSPROP, 1 | 4 | 8 | 16)
RULE(adagrad, ADAGRAD, 1 | 4)
RULE(scale, SCALE, 1)

// Element v of each list, stepped.
template <class Rule, unsigned lists, class T> __device__ inline void step(T *v, const T *c) {
  T *x[LISTS];
#pragma unroll
  for (int k = 0; k < LISTS; k++) x[k] = lists >> k & 1 ? &v[k] : nullptr;
  Rule::template apply<T>(x, c);
}

// ---------------------------------------------------------------------------------------------
// Dense tensors of one dtype

typedef struct tensor {
  void *data[LISTS]; // NULL: no such list
  int64_t numel;
  int32_t first; // block
  int32_t set;   // of constants
} tensor;

typedef struct pack {
  tensor t[TENSORS];
  double c[SETS][CNN_OPTIM_CONSTANTS];
  int32_t n, sets, blocks;
} pack;
static_assert(sizeof(pack) <= 4000, "kernel parameters");

// The tensor that the block works on.
__device__ static inline int tensor_of(const pack &p, int block) {
  int low = 0, high = p.n - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (p.t[middle].first <= block)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

template <class S, class Rule, unsigned lists>
__global__ void __launch_bounds__(K_BLOCK) k_step(pack p, const cuda_fault *fault) {
  typedef k_computed<S> T;
  constexpr int N = 16 / sizeof(S);
  const bool skip = k_reported(fault);
  const tensor &t = p.t[tensor_of(p, static_cast<int>(blockIdx.x))];
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) - t.first) * CHUNK;
  const int64_t left = t.numel - begin;
  const int n = skip ? 0 : left < CHUNK ? static_cast<int>(left) : CHUNK;
  S *at[LISTS];
  T c[CNN_OPTIM_CONSTANTS];
  bool aligned = true;
#pragma unroll
  for (int k = 0; k < LISTS; k++) {
    at[k] = lists >> k & 1 ? static_cast<S *>(t.data[k]) + begin : nullptr;
    aligned = aligned && (reinterpret_cast<uintptr_t>(at[k]) & 15) == 0;
  }
#pragma unroll
  for (int i = 0; i < CNN_OPTIM_CONSTANTS; i++) c[i] = static_cast<T>(p.c[t.set][i]);
  const int packs = aligned ? n / N : 0;
  for (int i = threadIdx.x; i < packs; i += K_BLOCK) {
    k_pack<S, N> v[LISTS];
#pragma unroll
    for (int k = 0; k < LISTS; k++)
      if (lists >> k & 1) v[k] = reinterpret_cast<const k_pack<S, N> *>(at[k])[i];
#pragma unroll
    for (int j = 0; j < N; j++) {
      T one[LISTS];
#pragma unroll
      for (int k = 0; k < LISTS; k++) one[k] = lists >> k & 1 ? k_widen(v[k].v[j]) : T(0);
      step<Rule, lists>(one, c);
#pragma unroll
      for (int k = 0; k < LISTS; k++)
        if (lists & Rule::written & 1u << k) v[k].v[j] = k_narrow<S>(one[k]);
    }
#pragma unroll
    for (int k = 0; k < LISTS; k++)
      if (lists & Rule::written & 1u << k) reinterpret_cast<k_pack<S, N> *>(at[k])[i] = v[k];
  }
  for (int i = packs * N + threadIdx.x; i < n; i += K_BLOCK) {
    T one[LISTS];
#pragma unroll
    for (int k = 0; k < LISTS; k++) one[k] = lists >> k & 1 ? k_widen(at[k][i]) : T(0);
    step<Rule, lists>(one, c);
#pragma unroll
    for (int k = 0; k < LISTS; k++)
      if (lists & Rule::written & 1u << k) at[k][i] = k_narrow<S>(one[k]);
  }
}

// ---------------------------------------------------------------------------------------------
// Any tensors of a parameter

typedef struct walked {
  cuda_walk first, last; // of lists 0 to 3; of 0 and 4
  void *data[LISTS];
  cnn_dtype dtype[LISTS];
  double c[CNN_OPTIM_CONSTANTS];
} walked;

template <class T, class Rule, unsigned lists>
__global__ void __launch_bounds__(K_BLOCK) k_step_walked(walked w, const cuda_fault *fault) {
  const bool skip = k_reported(fault);
  T c[CNN_OPTIM_CONSTANTS];
#pragma unroll
  for (int i = 0; i < CNN_OPTIM_CONSTANTS; i++) c[i] = static_cast<T>(w.c[i]);
  for (int64_t i = skip ? w.first.numel : k_index(); i < w.first.numel; i += k_stride()) {
    int64_t at[LISTS + 1];
    T one[LISTS];
    k_offsets<4>(w.first, i, at);
    if constexpr ((lists >> 4 & 1) != 0) {
      int64_t last[2];
      k_offsets<2>(w.last, i, last);
      at[4] = last[1];
    }
#pragma unroll
    for (int k = 0; k < LISTS; k++)
      one[k] = lists >> k & 1 ? k_get<T>(w.dtype[k], w.data[k], at[k]) : T(0);
    step<Rule, lists>(one, c);
#pragma unroll
    for (int k = 0; k < LISTS; k++)
      if (lists & Rule::written & 1u << k) k_put(w.dtype[k], w.data[k], at[k], one[k]);
  }
}

// ---------------------------------------------------------------------------------------------
// The driver

typedef void (*constants_fn)(const cnn_call *call, int param, double *c);

namespace {
typedef struct job {
  const cnn_call *call;
  const cnn_view *list[LISTS]; // NULL: not used
  int steps;                   // the argument that counts each parameter's steps, or 0
  constants_fn constants;
} job;
} // namespace

static void make_walks(const job *j, int param, walked *w) {
  const cnn_view *p = &j->list[0][param], *views[4], *last[2] = {p, p};
  for (int k = 0; k < LISTS; k++) {
    const cnn_view *v = j->list[k] ? &j->list[k][param] : p;
    w->data[k] = v->data;
    w->dtype[k] = v->dtype;
    if (k < 4)
      views[k] = v;
    else
      last[1] = v;
  }
  cuda_walk_make(&w->first, p->ndim, p->shape, views, 4);
  cuda_walk_make(&w->last, p->ndim, p->shape, last, 2);
}

// Whether all tensors of a parameter are dense runs of one dtype in the same order.
static bool is_plain(const job *j, int param) {
  const cnn_view *p = &j->list[0][param];
  int64_t run = 1;
  bool ordered = true;
  for (int d = p->ndim - 1; d >= 0; d--) {
    ordered = ordered && (p->shape[d] == 1 || p->strides[d] == run);
    run *= p->shape[d];
  }
  for (int k = 1; k < LISTS; k++) {
    if (!j->list[k]) continue;
    const cnn_view *v = &j->list[k][param];
    if (v->dtype != p->dtype) return false;
    for (int d = 0; d < p->ndim && ordered; d++)
      ordered = p->shape[d] == 1 || v->strides[d] == p->strides[d];
  }
  if (ordered) return true;
  walked w;
  make_walks(j, param, &w);
  for (int k = 0; k < 4; k++)
    if (!cuda_walk_dense(&w.first, k)) return false;
  return cuda_walk_dense(&w.last, 1);
}

template <class Rule, unsigned lists>
static cnn_status flush(const job *j, cnn_dtype dtype, pack *p) {
  if (p->n == 0) return CNN_OK;
  const unsigned blocks = static_cast<unsigned>(p->blocks);
  const cnn_status status = k_by_float(j->call, dtype, [&](auto tag) {
    typedef typename decltype(tag)::type S;
    return CUDA_LAUNCH(j->call, (k_step<S, Rule, lists>), blocks, K_BLOCK, 0, *p,
                       cuda_fault_seen(j->call));
  });
  p->n = p->sets = p->blocks = 0;
  return status;
}

// The set of constants of a parameter in a pack, or -1 when there is no room for it.
static int find_set(pack *p, const double *c) {
  const size_t bytes = sizeof p->c[0];
  for (int i = p->sets - 1; i >= 0; i--)
    if (memcmp(p->c[i], c, bytes) == 0) return i;
  if (p->sets == SETS) return -1;
  memcpy(p->c[p->sets], c, bytes);
  return p->sets++;
}

// Steps the parameters of one dtype.
template <class Rule, unsigned lists> static cnn_status step_all(const job *j, cnn_dtype dtype) {
  const int n = j->call->args[0].n;
  const int64_t *steps = j->steps ? j->call->args[j->steps].ints : nullptr;
  double c[CNN_OPTIM_CONSTANTS] = {};
  int made = -1; // the parameter whose constants c holds
  pack p;
  p.n = p.sets = p.blocks = 0;
  for (int i = 0; i < n; i++) {
    const cnn_view *v = &j->list[0][i];
    if (v->dtype != dtype) continue;
    const int64_t numel = cnn_view_numel(v);
    if (numel == 0) continue;
    if (made < 0 || (steps && steps[i] != steps[made])) {
      j->constants(j->call, i, c);
      made = i;
    }
    const int64_t blocks = (numel + CHUNK - 1) / CHUNK;
    if (blocks >= INT32_MAX || !is_plain(j, i)) {
      walked w;
      make_walks(j, i, &w);
      memcpy(w.c, c, sizeof w.c);
      const unsigned grid = k_grid(j->call, numel);
      CNN_TRY(dtype == CNN_F64 ? CUDA_LAUNCH(j->call, (k_step_walked<double, Rule, lists>), grid,
                                             K_BLOCK, 0, w, cuda_fault_seen(j->call))
                               : CUDA_LAUNCH(j->call, (k_step_walked<float, Rule, lists>), grid,
                                             K_BLOCK, 0, w, cuda_fault_seen(j->call)));
      continue;
    }
    int set = p.n < TENSORS && p.blocks < INT32_MAX - blocks ? find_set(&p, c) : -1;
    if (set < 0) {
      CNN_TRY((flush<Rule, lists>(j, dtype, &p)));
      set = find_set(&p, c);
    }
    tensor *t = &p.t[p.n++];
    for (int k = 0; k < LISTS; k++) t->data[k] = j->list[k] ? j->list[k][i].data : nullptr;
    t->numel = numel;
    t->first = p.blocks;
    t->set = set;
    p.blocks += static_cast<int32_t>(blocks);
  }
  return flush<Rule, lists>(j, dtype, &p);
}

template <class Rule, unsigned lists> static cnn_status run_lists(const job *j) {
  CNN_TRY((step_all<Rule, lists>(j, CNN_F32)));
  CNN_TRY((step_all<Rule, lists>(j, CNN_BF16)));
  CNN_TRY((step_all<Rule, lists>(j, CNN_F16)));
  return step_all<Rule, lists>(j, CNN_F64);
}

// The lists are the call's first arguments, empty ones unused.
static void start(const cnn_call *call, int lists, int steps, constants_fn constants, job *j) {
  const cnn_view *at = call->in;
  j->call = call;
  j->steps = steps;
  j->constants = constants;
  for (int k = 0; k < LISTS; k++) {
    j->list[k] = k < lists && call->args[k].n > 0 ? at : nullptr;
    if (k < lists) at += call->args[k].n;
  }
}

static cnn_status run_sgd(cnn_call *call) {
  job j;
  start(call, 3, 3, sgd_constants, &j);
  return j.list[2] ? run_lists<sgd, 7>(&j) : run_lists<sgd, 3>(&j);
}
static cnn_status run_adam(cnn_call *call) {
  job j;
  start(call, 5, 5, adam_constants, &j);
  return j.list[4] ? run_lists<adam, 31>(&j) : run_lists<adam, 15>(&j);
}
static cnn_status run_rmsprop(cnn_call *call) {
  job j;
  start(call, 5, 0, rmsprop_constants, &j);
  if (j.list[3]) return j.list[4] ? run_lists<rmsprop, 31>(&j) : run_lists<rmsprop, 15>(&j);
  return j.list[4] ? run_lists<rmsprop, 23>(&j) : run_lists<rmsprop, 7>(&j);
}
static cnn_status run_adagrad(cnn_call *call) {
  job j;
  start(call, 3, 3, adagrad_constants, &j);
  return run_lists<adagrad, 7>(&j);
}
static cnn_status run_scale(cnn_call *call) {
  job j;
  start(call, 1, 0, scale_constants, &j);
  return run_lists<scale, 1>(&j);
}

CUDA_KERNEL(sgd_step_, nullptr, run_sgd)
CUDA_KERNEL(adam_step_, nullptr, run_adam)
CUDA_KERNEL(rmsprop_step_, nullptr, run_rmsprop)
CUDA_KERNEL(adagrad_step_, nullptr, run_adagrad)
CUDA_KERNEL(grad_scale_, nullptr, run_scale)

// ---------------------------------------------------------------------------------------------
// The norm of all gradients: a partial result to each NORM_CHUNK elements, joined in their order,
// in double.

#define NORM_CHUNK   32768
#define NORM_TENSORS 120
enum { SQUARES, GREATEST, POWERS };

typedef struct gradient {
  const void *data;
  int64_t numel;
  int32_t first; // block
  int32_t dtype;
} gradient;

typedef struct norm_pack {
  gradient g[NORM_TENSORS];
  double *partial; // of block 0
  double p;
  int32_t n, blocks, kind;
} norm_pack;
static_assert(sizeof(norm_pack) <= 4000, "kernel parameters");

__device__ static inline double fold(int kind, double p, double sum, double x) {
  const double a = fabs(x);
  return kind == SQUARES ? sum + a * a : kind == POWERS ? sum + pow(a, p) : k_max()(a, sum);
}
__device__ static inline double join(int kind, double a, double b) {
  return kind == GREATEST ? k_max()(a, b) : a + b;
}

template <class S> __device__ inline double fold_dense(const norm_pack &f, const S *x, int n) {
  constexpr int N = 16 / sizeof(S);
  const int packs = (reinterpret_cast<uintptr_t>(x) & 15) == 0 ? n / N : 0;
  double sum = 0;
  for (int i = threadIdx.x; i < packs; i += K_BLOCK) {
    const k_pack<S, N> v = reinterpret_cast<const k_pack<S, N> *>(x)[i];
#pragma unroll
    for (int j = 0; j < N; j++) sum = fold(f.kind, f.p, sum, static_cast<double>(k_widen(v.v[j])));
  }
  for (int i = packs * N + threadIdx.x; i < n; i += K_BLOCK)
    sum = fold(f.kind, f.p, sum, static_cast<double>(k_widen(x[i])));
  return sum;
}

__global__ void __launch_bounds__(K_BLOCK) k_norm(norm_pack f) {
  __shared__ double shared[32];
  int low = 0, high = f.n - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (f.g[middle].first <= static_cast<int>(blockIdx.x))
      low = middle;
    else
      high = middle - 1;
  }
  const gradient &g = f.g[low];
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) - g.first) * NORM_CHUNK;
  const int64_t left = g.numel - begin;
  const int n = left < NORM_CHUNK ? static_cast<int>(left) : NORM_CHUNK;
  double sum = 0;
  switch (g.dtype) {
  case CNN_F32: sum = fold_dense(f, static_cast<const float *>(g.data) + begin, n); break;
  case CNN_F64: sum = fold_dense(f, static_cast<const double *>(g.data) + begin, n); break;
  case CNN_F16: sum = fold_dense(f, static_cast<const k_f16 *>(g.data) + begin, n); break;
  default: sum = fold_dense(f, static_cast<const k_bf16 *>(g.data) + begin, n); break;
  }
  const int kind = f.kind;
  sum = k_block_reduce(sum, shared, 0.0, [kind](double a, double b) { return join(kind, a, b); });
  if (threadIdx.x == 0) f.partial[blockIdx.x] = sum;
}

// Chunks of one gradient that is not dense.
__global__ void __launch_bounds__(K_BLOCK)
    k_norm_walked(cuda_walk w, const void *x, cnn_dtype dtype, int kind, double p,
                  double *partial) {
  __shared__ double shared[32];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * NORM_CHUNK;
  const int64_t end = begin + NORM_CHUNK < w.numel ? begin + NORM_CHUNK : w.numel;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += K_BLOCK)
    sum = fold(kind, p, sum, k_get<double>(dtype, x, k_offset(w, i)));
  sum = k_block_reduce(sum, shared, 0.0, [kind](double a, double b) { return join(kind, a, b); });
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(K_BLOCK)
    k_norm_finish(const double *partial, int64_t n, int kind, double p, double *out) {
  __shared__ double shared[32];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += K_BLOCK) sum = join(kind, sum, partial[i]);
  sum = k_block_reduce(sum, shared, 0.0, [kind](double a, double b) { return join(kind, a, b); });
  if (threadIdx.x == 0) *out = kind == SQUARES ? sqrt(sum) : kind == POWERS ? pow(sum, 1 / p) : sum;
}

static int64_t chunks_of(const cnn_view *v) {
  return (cnn_view_numel(v) + NORM_CHUNK - 1) / NORM_CHUNK;
}

static cnn_status plan_norm(cnn_call *call) {
  int64_t chunks = 0;
  for (int i = 0; i < call->n_in; i++) chunks += chunks_of(&call->in[i]);
  call->scratch_bytes = static_cast<size_t>(chunks) * sizeof(double);
  return CNN_OK;
}

static cnn_status flush_norm(const cnn_call *call, norm_pack *f) {
  const cnn_status status =
      CUDA_LAUNCH(call, k_norm, static_cast<unsigned>(f->blocks), K_BLOCK, 0, *f);
  f->partial += f->blocks;
  f->n = f->blocks = 0;
  return status;
}

static cnn_status run_norm(cnn_call *call) {
  double *all = static_cast<double *>(call->scratch);
  norm_pack f;
  f.p = cnn_arg_number(&call->args[1]);
  f.kind = f.p == 2 ? SQUARES : isinf(f.p) ? GREATEST : POWERS;
  f.n = f.blocks = 0;
  f.partial = all;
  for (int i = 0; i < call->n_in; i++) {
    const cnn_view *v = &call->in[i], *views[] = {v};
    const int64_t numel = cnn_view_numel(v), blocks = chunks_of(v);
    cuda_walk w;
    if (numel == 0) continue;
    cuda_walk_make(&w, v->ndim, v->shape, views, 1);
    const bool dense = cuda_walk_dense(&w, 0);
    if (f.n == NORM_TENSORS || f.blocks >= INT32_MAX - blocks || !dense)
      CNN_TRY(flush_norm(call, &f));
    if (!dense) {
      CNN_TRY(CUDA_LAUNCH(call, k_norm_walked, static_cast<unsigned>(blocks), K_BLOCK, 0, w,
                          static_cast<const void *>(v->data), v->dtype, static_cast<int>(f.kind),
                          f.p, f.partial));
      f.partial += blocks;
      continue;
    }
    gradient *g = &f.g[f.n++];
    g->data = v->data;
    g->numel = numel;
    g->first = f.blocks;
    g->dtype = v->dtype;
    f.blocks += static_cast<int32_t>(blocks);
  }
  CNN_TRY(flush_norm(call, &f));
  return CUDA_LAUNCH(call, k_norm_finish, 1, K_BLOCK, 0, static_cast<const double *>(all),
                     static_cast<int64_t>(f.partial - all), static_cast<int>(f.kind), f.p,
                     static_cast<double *>(call->out[0].data));
}
CUDA_KERNEL(grad_norm, plan_norm, run_norm)
