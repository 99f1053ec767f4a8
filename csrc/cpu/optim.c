// SPDX-License-Identifier: MIT
// Multi-tensor optimizer steps: all parameters of a group are one range of elements, cut into
// pieces for the threads. A piece is contiguous in the computed type (float, or double for
// float64); tensors of half types, and those that don't lie as their parameter does, go through
// buffers.
//
// The formulas are in cpu/optim_rules.h.
#include "base/parallel.h"
#include "cpu/clones.h"
#include "cpu/cpu.h"
#include "cpu/elementwise.h"
#include "cpu/optim_rules.h"

#include <math.h>

#define LISTS CNN_OPTIM_LISTS
#define GRAIN 16384

// Constants of one parameter's step, in the order that each rule documents.
#define CONSTANTS CNN_OPTIM_CONSTANTS
typedef void (*rule_f32)(int64_t n, float *const *x, const float *c);
typedef void (*rule_f64)(int64_t n, double *const *x, const double *c);

typedef struct walk {
  const cnn_call *call;
  int n;                 // parameters
  const int64_t *starts; // n + 1 offsets into the range of all elements
  int lists;
  const cnn_view *list[LISTS]; // NULL: not used
  bool written[LISTS];
  // Fills c for a parameter.
  void (*constants)(const cnn_call *call, int param, double *c);
  rule_f32 f32;
  rule_f64 f64;
} walk;

static void run_piece(const walk *w, int param, const cnn_nest *nest, int64_t at, int64_t n,
                      const double *c, const float *c32) {
  double buffers[LISTS][CNN_PIECE], raw[CNN_PIECE];
  void *x[LISTS] = {NULL};
  cnn_dtype computed = w->list[0][param].dtype == CNN_F64 ? CNN_F64 : CNN_F32;
  size_t size = cnn_dtype_size(computed);
  for (int k = 0, v = 0; k < w->lists; k++) {
    if (!w->list[k]) continue;
    cnn_dtype dtype = w->list[k][param].dtype;
    if (dtype == computed && cnn_nest_dense(nest, v)) {
      x[k] = nest->data[v] + at * (int64_t)size;
    } else {
      x[k] = buffers[k];
      cnn_nest_gather(nest, v, at, n, raw);
      cnn_convert(n, dtype, raw, computed, x[k]);
    }
    v++;
  }
  if (computed == CNN_F64)
    w->f64(n, (double *const *)(void *)x, c);
  else
    w->f32(n, (float *const *)(void *)x, c32);
  for (int k = 0, v = 0; k < w->lists; k++) {
    if (!w->list[k]) continue;
    if (x[k] == buffers[k] && w->written[k]) {
      cnn_convert(n, computed, x[k], w->list[k][param].dtype, raw);
      cnn_nest_scatter(nest, v, at, n, raw);
    }
    v++;
  }
}

static void run_range(void *arg, int64_t begin, int64_t end) {
  const walk *w = arg;
  int param = 0;
  while (w->starts[param + 1] <= begin) param++;
  for (; begin < end; param++) {
    int64_t stop = w->starts[param + 1] < end ? w->starts[param + 1] : end;
    if (stop <= begin) continue;
    const cnn_view *views[LISTS];
    cnn_nest nest;
    double c[CONSTANTS] = {0};
    float c32[CONSTANTS];
    int n_views = 0;
    for (int k = 0; k < w->lists; k++)
      if (w->list[k]) views[n_views++] = &w->list[k][param];
    cnn_nest_make(&nest, views[0]->ndim, views[0]->shape, views, n_views);
    w->constants(w->call, param, c);
    for (int i = 0; i < CONSTANTS; i++) c32[i] = (float)c[i];
    int64_t first = w->starts[param];
    while (begin < stop) {
      int64_t n = stop - begin < CNN_PIECE ? stop - begin : CNN_PIECE;
      run_piece(w, param, &nest, begin - first, n, c, c32);
      begin += n;
    }
  }
}

static cnn_status plan(cnn_call *call) {
  call->scratch_bytes = (size_t)(call->args[0].n + 1) * sizeof(int64_t);
  return CNN_OK;
}

// The lists are the call's first arguments, empty ones unused; bit k of `written`: list k changes.
static cnn_status run_walk(cnn_call *call, int lists, unsigned written, walk *w) {
  int64_t *starts = call->scratch;
  w->call = call;
  w->n = call->args[0].n;
  w->lists = lists;
  w->starts = starts;
  const cnn_view *at = call->in;
  for (int k = 0; k < lists; k++) {
    w->list[k] = call->args[k].n > 0 ? at : NULL;
    w->written[k] = written >> k & 1;
    at += call->args[k].n;
  }
  starts[0] = 0;
  for (int i = 0; i < w->n; i++) starts[i + 1] = starts[i] + cnn_view_numel(&w->list[0][i]);
  cnn_parallel_for(starts[w->n], GRAIN, run_range, w);
  return CNN_OK;
}

// Each rule is one text, expanded for float and double; the macro's name is its body.
#define RULE_OF(T, name, ...)                                                                      \
  CNN_CLONES static void name(int64_t n, T *const *x, const T *c) {                                \
    T *p = x[0];                                                                                   \
    const T *gs = x[1];                                                                            \
    __VA_ARGS__                                                                                    \
  }
#define RULE(name, BODY)                                                                           \
  RULE_OF(float, name##_f32, BODY(float, sqrtf))                                                   \
  RULE_OF(double, name##_f64, BODY(double, sqrt))
#define LOOP _Pragma("omp simd") for (int64_t i = 0; i < n; i++)

RULE(sgd, SGD)

static cnn_status run_sgd(cnn_call *call) {
  walk w = {.constants = sgd_constants, .f32 = sgd_f32, .f64 = sgd_f64};
  return run_walk(call, 3, 5, &w);
}
const cnn_kernel cpu_sgd_step_ = {plan, run_sgd, NULL};

RULE(adam, ADAM)

static cnn_status run_adam(cnn_call *call) {
  walk w = {.constants = adam_constants, .f32 = adam_f32, .f64 = adam_f64};
  return run_walk(call, 5, 1 | 4 | 8 | 16, &w);
}
const cnn_kernel cpu_adam_step_ = {plan, run_adam, NULL};

RULE(rmsprop, RMSPROP)

static cnn_status run_rmsprop(cnn_call *call) {
  walk w = {.constants = rmsprop_constants, .f32 = rmsprop_f32, .f64 = rmsprop_f64};
  return run_walk(call, 5, 1 | 4 | 8 | 16, &w);
}
const cnn_kernel cpu_rmsprop_step_ = {plan, run_rmsprop, NULL};

RULE(adagrad, ADAGRAD)

static cnn_status run_adagrad(cnn_call *call) {
  walk w = {.constants = adagrad_constants, .f32 = adagrad_f32, .f64 = adagrad_f64};
  return run_walk(call, 3, 5, &w);
}
const cnn_kernel cpu_adagrad_step_ = {plan, run_adagrad, NULL};

// ---------------------------------------------------------------------------------------------
// The norm of all gradients: partial results per chunk of fixed size, combined in order, in double.

#define CHUNK 32768

typedef struct norm {
  const cnn_call *call;
  const int64_t *chunks; // n + 1: chunks before gradient i
  double *partial;
  double p;
} norm;

CNN_CLONES static double squares(int64_t n, const double *x) {
  double sum = 0;
  _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sum;
}

// Folds n values into the partial result.
static double fold(double sum, int64_t n, const double *x, double p) {
  if (p == 2) return sum + squares(n, x);
  for (int64_t i = 0; i < n; i++) {
    double a = fabs(x[i]);
    if (isinf(p))
      sum = a > sum || a != a ? a : sum;
    else
      sum += pow(a, p);
  }
  return sum;
}

static void norm_range(void *arg, int64_t begin, int64_t end) {
  const norm *w = arg;
  double raw[CNN_PIECE], piece[CNN_PIECE];
  int g = 0;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    while (w->chunks[g + 1] <= chunk) g++;
    const cnn_view *v = &w->call->in[g], *views[] = {v};
    cnn_nest nest;
    cnn_nest_make(&nest, v->ndim, v->shape, views, 1);
    int64_t at = (chunk - w->chunks[g]) * CHUNK, stop = at + CHUNK;
    double sum = 0;
    if (stop > nest.numel) stop = nest.numel;
    for (; at < stop; at += CNN_PIECE) {
      int64_t n = stop - at < CNN_PIECE ? stop - at : CNN_PIECE;
      cnn_nest_gather(&nest, 0, at, n, raw);
      cnn_convert(n, v->dtype, raw, CNN_F64, piece);
      sum = fold(sum, n, piece, w->p);
    }
    w->partial[chunk] = sum;
  }
}

static int64_t count_chunks(const cnn_view *v) {
  return (cnn_view_numel(v) + CHUNK - 1) / CHUNK;
}

static cnn_status plan_norm(cnn_call *call) {
  int64_t chunks = 0;
  for (int i = 0; i < call->n_in; i++) chunks += count_chunks(&call->in[i]);
  call->scratch_bytes = (size_t)(chunks + call->n_in + 1) * sizeof(int64_t);
  return CNN_OK;
}

static cnn_status run_norm(cnn_call *call) {
  int64_t *chunks = call->scratch;
  chunks[0] = 0;
  for (int i = 0; i < call->n_in; i++) chunks[i + 1] = chunks[i] + count_chunks(&call->in[i]);
  norm w = {call, chunks, (double *)(chunks + call->n_in + 1), cnn_arg_number(&call->args[1])};
  int64_t n = chunks[call->n_in];
  cnn_parallel_for(n, 1, norm_range, &w);
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    double x = w.partial[i];
    if (isinf(w.p))
      sum = x > sum || x != x ? x : sum;
    else
      sum += x;
  }
  *(double *)call->out[0].data = isinf(w.p) ? sum : w.p == 2 ? sqrt(sum) : pow(sum, 1 / w.p);
  return CNN_OK;
}
const cnn_kernel cpu_grad_norm = {plan_norm, run_norm, NULL};

RULE(scale, SCALE)

static cnn_status run_scale(cnn_call *call) {
  walk w = {.constants = scale_constants, .f32 = scale_f32, .f64 = scale_f64};
  return run_walk(call, 1, 1, &w);
}
const cnn_kernel cpu_grad_scale_ = {plan, run_scale, NULL};
