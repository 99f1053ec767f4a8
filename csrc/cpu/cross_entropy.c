// SPDX-License-Identifier: MIT
// Kernels of ops/cross_entropy.c.
//
// Where a row's classes are contiguous, or nothing is, rows are worked on one by one. Where the
// rows' elements of one class are contiguous (N, C, H, W), many rows are worked on at once, class
// by class. Half types are computed in float. Chunks are joined in their order.
//
// Labels are checked as they are read: a wrong one makes its row ignored and the call fail at its
// end, before anybody has seen the results.
#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "cpu/cpu.h"
#include "cpu/moments.h"
#include "cpu/rows.h"
#include "cpu/vmath.h"
#include "engine/fault.h"

#define GRAIN   16384
#define COLUMNS 256 // rows that are worked on at once
#define FEW     64  // classes whose sum is kept in one float
#define LABELS  256

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

// A tensor (N, C, ...) by columns: the dims behind C are one run of `inner` elements.
typedef struct columns {
  char *data;
  size_t size;
  int64_t inner, image_step, class_step;
} columns;

// What comes of a chunk.
typedef struct partial {
  double loss, weight; // sums over the rows that count
  int64_t rows;        // how many
  bool bad;            // there is a wrong label, and the first is
  int64_t label;
} partial;

typedef struct job {
  cnn_rows x, dx;
  bool by_columns;
  columns x_columns, dx_columns;
  int64_t classes;
  cnn_rows target; // one row of all labels
  int64_t ignored; // label, or 0
  double smoothing;
  const void *w; // of classes, in the computed type, or NULL
  double w_sum;
  void *largest, *log_sum; // of rows
  cnn_view losses;         // of rows; data NULL when they are reduced
  cnn_rows dy;             // of rows; data NULL: all rows have g
  double g;
  cnn_chunks chunks;
  char *buffers; // `each` bytes for each chunk
  size_t each;
  partial *partials;
  void (*run)(const struct job *j, int64_t begin, int64_t end, partial *p, void *buffer);
} job;

// Labels [begin, end) of a walk.
typedef struct labels {
  int64_t begin, end;
  int64_t v[LABELS];
} labels;

static void read_labels(const job *j, int64_t begin, int64_t end, labels *y) {
  int64_t n = end - begin < LABELS ? end - begin : LABELS;
  _Alignas(64) char raw[LABELS * 8];
  y->begin = begin;
  y->end = begin + n;
  cnn_nest_gather(&j->target.row, 1, begin, n, raw);
  cnn_convert(n, j->target.stored, raw, CNN_I64, y->v);
}

// The label of row i, 0-based; -1 for a row that is ignored. Labels up to `end` may be read.
static int64_t read_label(const job *j, int64_t i, int64_t end, labels *y, partial *p) {
  if (i >= y->end) read_labels(j, i, end, y);
  int64_t v = y->v[i - y->begin];
  if (v == j->ignored && v > 0) return -1;
  if (v >= 1 && v <= j->classes) return v - 1;
  if (!p->bad) p->bad = true, p->label = v;
  return -1;
}

static void set_loss(const job *j, int64_t i, double loss) {
  cnn_dtype dtype = j->losses.dtype;
  cnn_element_set(dtype, (char *)j->losses.data + i * (int64_t)cnn_dtype_size(dtype), loss);
}

static double row_dy(const job *j, int64_t i) {
  return cnn_element_get(j->dy.stored, j->dy.data + cnn_rows_offset(&j->dy, i) *
                                                        (int64_t)cnn_dtype_size(j->dy.stored));
}

static char *column_at(const columns *v, int64_t i, int64_t c) {
  int64_t at = i / v->inner * v->image_step + i % v->inner + c * v->class_step;
  return v->data + at * (int64_t)v->size;
}

// How many rows from i on lie in one run.
static int64_t columns_here(const columns *v, int64_t i, int64_t end) {
  int64_t n = v->inner - i % v->inner;
  if (n > end - i) n = end - i;
  return n < COLUMNS ? n : COLUMNS;
}

// e^x for x <= 0; what would be subnormal is 0.
V_FN float exp_down_f32(float x) {
  float e = v_exp_normal(x < -87.0f ? -87.0f : x);
  return x < -87.0f ? 0.0f : e;
}

#define NO_LABELS                                                                                  \
  { .end = 0 }

#define T       float
#define N(name) name##_f32
#define EXP(x)  exp_down_f32(x)
#define LOG(x)  v_log(x)
#define HUGE_   HUGE_VALF
#define LANES   32
#include "cpu/cross_entropy_body.h"
#undef T
#undef N
#undef EXP
#undef LOG
#undef HUGE_
#undef LANES

#define T       double
#define N(name) name##_f64
#define EXP(x)  v_exp_f64(x)
#define LOG(x)  log(x)
#define HUGE_   HUGE_VAL
#define LANES   16
#include "cpu/cross_entropy_body.h"
#undef T
#undef N

// ---------------------------------------------------------------------------------------------
// Setting up

static int class_dim(const cnn_view *x) {
  return x->ndim > 1 ? 1 : 0;
}

// Whether v can be seen by columns, which pays when its classes are apart.
static bool see_columns(const cnn_view *v, columns *c) {
  if (v->ndim < 3 || v->strides[1] == 1) return false;
  int64_t run = 1;
  for (int d = v->ndim - 1; d > 1; d--) {
    if (v->shape[d] != 1 && v->strides[d] != run) return false;
    run *= v->shape[d];
  }
  *c = (columns){v->data, cnn_dtype_size(v->dtype), run, v->strides[0], v->strides[1]};
  return run > 7;
}

// The rows of x (the input) and, in backward, of dx; labels, weights, chunks and scratch.
static void start(cnn_call *call, job *j, bool columns_allowed, const cnn_view *x,
                  const cnn_view *dx, const cnn_view *target, const cnn_view *weight,
                  const cnn_arg *ignored) {
  uint32_t dims = 1u << class_dim(x);
  cnn_dtype computed = cnn_dtype_computed(x->dtype);
  size_t row, w_bytes;
  cnn_rows_make(&j->x, x, dims, computed);
  cnn_rows_make(&j->dx, dx, dims, computed);
  cnn_rows_make(&j->target, target, UINT32_MAX, target->dtype);
  j->by_columns =
      columns_allowed && see_columns(x, &j->x_columns) && see_columns(dx, &j->dx_columns);
  j->classes = j->x.width;
  j->ignored = ignored->kind == CNN_INT ? ignored->i + 1 : 0;
  j->chunks = cnn_chunk(j->x.count, j->classes, GRAIN);
  row = ((size_t)j->classes * cnn_dtype_size(computed) + 63) & ~(size_t)63;
  w_bytes = cnn_rows_flat_bytes(weight, computed);
  j->each = j->by_columns || (j->x.direct && j->dx.direct) ? 0 : row;
  call->scratch_bytes = w_bytes + j->each * (size_t)j->chunks.n;
  if (call->planning) return;
  j->buffers = call->scratch ? (char *)call->scratch + w_bytes : NULL;
  j->w = cnn_rows_flat(weight, computed, call->scratch);
  j->w_sum = 0;
  for (int64_t c = 0; j->w && c < j->classes; c++)
    j->w_sum += computed == CNN_F64 ? ((const double *)j->w)[c] : (double)((const float *)j->w)[c];
  if (!j->w) j->w_sum = (double)j->classes;
}

static void run_chunks(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    int64_t first, last;
    cnn_chunk_bounds(&j->chunks, i, j->target.width, &first, &last);
    j->partials[i] = (partial){0, 0, 0, false, 0};
    j->run(j, first, last, &j->partials[i], j->each > 0 ? j->buffers + (size_t)i * j->each : NULL);
  }
}

// Runs all chunks; `sum` becomes what they come to.
static cnn_status run_job(cnn_context *ctx, job *j, partial *sum) {
  partial partials[CNN_CHUNKS];
  j->partials = partials;
  cnn_parallel_for(j->chunks.n, 1, run_chunks, j);
  *sum = (partial){0, 0, 0, false, 0};
  for (int64_t i = 0; i < j->chunks.n; i++) {
    if (partials[i].bad)
      return cnn_fault_raise(ctx, &(cnn_fault){.kind = CNN_FAULT_LABEL,
                                               .value = partials[i].label,
                                               .bound = j->classes});
    sum->loss += partials[i].loss;
    sum->weight += partials[i].weight;
    sum->rows += partials[i].rows;
  }
  return CNN_OK;
}

// The loss (where it is reduced) and the total weight. Rows that are all ignored have the loss 0.
static void finish_loss(const cnn_call *call, const job *j, int64_t reduction, const partial *sum,
                        const cnn_view *total) {
  double weight = sum->rows == 0 && j->target.width > 0 ? 1 : sum->weight;
  double loss = reduction == REDUCE_MEAN ? sum->loss / weight : sum->loss;
  if (reduction != REDUCE_NONE) cnn_element_set(call->out[0].dtype, call->out[0].data, loss);
  cnn_element_set(total->dtype, total->data, weight);
}

// The gradient of a row, without its weight: a number for all, or j->dy.
static void start_gradient(const cnn_view *dy, const cnn_view *total, int64_t reduction, job *j) {
  j->dy.data = NULL;
  j->g = 0;
  if (reduction == REDUCE_NONE) {
    cnn_rows_make(&j->dy, dy, 0, dy->dtype);
    return;
  }
  j->g = cnn_element_get(dy->dtype, dy->data);
  if (reduction == REDUCE_MEAN) j->g /= cnn_element_get(total->dtype, total->data);
}

// ---------------------------------------------------------------------------------------------
// cross_entropy_native(input, target, weight?, ignore_index?, reduction, label_smoothing)
//   -> loss largest log_sum total

static void forward_f32(const job *j, int64_t begin, int64_t end, partial *p, void *buffer) {
  if (j->by_columns)
    columns_f32(j, begin, end, p);
  else
    rows_f32(j, begin, end, p, buffer);
}
static void forward_f64(const job *j, int64_t begin, int64_t end, partial *p, void *buffer) {
  if (j->by_columns)
    columns_f64(j, begin, end, p);
  else
    rows_f64(j, begin, end, p, buffer);
}

static void start_forward(cnn_call *call, job *j) {
  const cnn_view *x = &call->in[0];
  start(call, j, true, x, x, &call->in[1], &call->in[2], &call->args[3]);
  j->smoothing = cnn_arg_number(&call->args[5]);
  j->run = j->x.computed == CNN_F64 ? forward_f64 : forward_f32;
}

static cnn_status plan_cross_entropy(cnn_call *call) {
  job j;
  start_forward(call, &j);
  return CNN_OK;
}

static cnn_status run_cross_entropy(cnn_call *call) {
  job j;
  partial sum;
  int64_t reduction = call->args[4].i;
  start_forward(call, &j);
  j.largest = call->out[1].data;
  j.log_sum = call->out[2].data;
  j.losses = call->out[0];
  if (reduction != REDUCE_NONE) j.losses.data = NULL;
  CNN_TRY(run_job(call->ctx, &j, &sum));
  finish_loss(call, &j, reduction, &sum, &call->out[3]);
  return CNN_OK;
}

const cnn_kernel cpu_cross_entropy_native = {plan_cross_entropy, run_cross_entropy, NULL};

// ---------------------------------------------------------------------------------------------
// cross_entropy_backward(dy, input, target, weight?, largest, log_sum, total, ignore_index?,
//                        reduction, label_smoothing) -> dx

static void backward_f32(const job *j, int64_t begin, int64_t end, partial *p, void *buffer) {
  if (j->by_columns)
    columns_back_f32(j, begin, end, p);
  else
    rows_back_f32(j, begin, end, p, buffer);
}
static void backward_f64(const job *j, int64_t begin, int64_t end, partial *p, void *buffer) {
  if (j->by_columns)
    columns_back_f64(j, begin, end, p);
  else
    rows_back_f64(j, begin, end, p, buffer);
}

static void start_backward(cnn_call *call, job *j) {
  start(call, j, true, &call->in[1], &call->out[0], &call->in[2], &call->in[3], &call->args[7]);
  j->smoothing = cnn_arg_number(&call->args[9]);
  j->run = j->x.computed == CNN_F64 ? backward_f64 : backward_f32;
}

static cnn_status plan_backward(cnn_call *call) {
  job j;
  start_backward(call, &j);
  return CNN_OK;
}

static cnn_status run_backward(cnn_call *call) {
  job j;
  partial sum;
  start_backward(call, &j);
  j.largest = call->in[4].data;
  j.log_sum = call->in[5].data;
  start_gradient(&call->in[0], &call->in[6], call->args[8].i, &j);
  return run_job(call->ctx, &j, &sum);
}

const cnn_kernel cpu_cross_entropy_backward = {plan_backward, run_backward, NULL};

// ---------------------------------------------------------------------------------------------
// class_weights(target, weight?, ignore_index?, label_smoothing, shape, dtype)

static void weights_f32(const job *j, int64_t begin, int64_t end, partial *p, void *buffer) {
  rows_weights_f32(j, begin, end, p, buffer);
}
static void weights_f64(const job *j, int64_t begin, int64_t end, partial *p, void *buffer) {
  rows_weights_f64(j, begin, end, p, buffer);
}

static void start_weights(cnn_call *call, job *j) {
  const cnn_view *out = &call->out[0];
  start(call, j, false, out, out, &call->in[0], &call->in[1], &call->args[2]);
  j->smoothing = cnn_arg_number(&call->args[3]);
  j->run = j->x.computed == CNN_F64 ? weights_f64 : weights_f32;
}

static cnn_status plan_weights(cnn_call *call) {
  job j;
  start_weights(call, &j);
  return CNN_OK;
}

static cnn_status run_weights(cnn_call *call) {
  job j;
  partial sum;
  start_weights(call, &j);
  return run_job(call->ctx, &j, &sum);
}

const cnn_kernel cpu_class_weights = {plan_weights, run_weights, NULL};

// ---------------------------------------------------------------------------------------------
// nll_loss_native(input, target, weight?, ignore_index?, reduction) -> loss total
// nll_loss_backward(dy, target, weight?, total, shape, ignore_index?, reduction) -> dx

static double weight_at(const job *j, int64_t label) {
  if (!j->w) return 1;
  return j->x.computed == CNN_F64 ? ((const double *)j->w)[label]
                                  : (double)((const float *)j->w)[label];
}

// Rows [i, i + n) that lie one step apart, where it begins, and the step from class to class.
typedef struct row_run {
  int64_t n, step, class_step;
  char *at;
} row_run;

static row_run run_of(const cnn_rows *r, int64_t i, int64_t end) {
  int64_t size = (int64_t)cnn_dtype_size(r->stored), inner = r->count;
  row_run run = {end - i, 0, 0, r->data + cnn_rows_offset(r, i) * size};
  int last = r->lead.ndim - 1;
  if (last >= 0) inner = r->lead.shape[last], run.step = r->lead.strides[1][last] * size;
  if (run.n > inner - i % inner) run.n = inner - i % inner;
  if (r->row.ndim > 0) run.class_step = r->row.strides[1][0] * size;
  return run;
}

static void nll_rows(const job *j, int64_t begin, int64_t end, partial *p, void *buffer) {
  (void)buffer;
  labels y = NO_LABELS;
  row_run run;
  for (int64_t i = begin; i < end; i += run.n) {
    run = run_of(&j->x, i, end);
    for (int64_t k = 0; k < run.n; k++) {
      int64_t label = read_label(j, i + k, end, &y, p);
      double loss = 0;
      if (label >= 0) {
        double w = weight_at(j, label);
        loss = -w * cnn_element_get(j->x.stored, run.at + k * run.step + label * run.class_step);
        p->loss += loss;
        p->weight += w;
        p->rows++;
      }
      if (j->losses.data) set_loss(j, i + k, loss);
    }
  }
}

static void nll_rows_back(const job *j, int64_t begin, int64_t end, partial *p, void *buffer) {
  (void)buffer;
  labels y = NO_LABELS;
  row_run run;
  for (int64_t i = begin; i < end; i += run.n) {
    run = run_of(&j->dx, i, end);
    for (int64_t k = 0; k < run.n; k++) {
      int64_t label = read_label(j, i + k, end, &y, p);
      if (label < 0) continue;
      double g = j->dy.data ? row_dy(j, i + k) : j->g;
      cnn_element_set(j->dx.stored, run.at + k * run.step + label * run.class_step,
                      -weight_at(j, label) * g);
    }
  }
}

static void clear(void *arg, int64_t begin, int64_t end) {
  const cnn_view *dx = arg;
  size_t size = cnn_dtype_size(dx->dtype);
  memset((char *)dx->data + (size_t)begin * size, 0, (size_t)(end - begin) * size);
}

static void start_nll(cnn_call *call, job *j) {
  const cnn_view *x = &call->in[0];
  start(call, j, false, x, x, &call->in[1], &call->in[2], &call->args[3]);
  j->chunks = cnn_chunk(j->x.count, 8, GRAIN);
  j->each = 0;
  j->run = nll_rows;
}

static cnn_status plan_nll(cnn_call *call) {
  job j;
  start_nll(call, &j);
  return CNN_OK;
}

static cnn_status run_nll(cnn_call *call) {
  job j;
  partial sum;
  int64_t reduction = call->args[4].i;
  start_nll(call, &j);
  j.losses = call->out[0];
  if (reduction != REDUCE_NONE) j.losses.data = NULL;
  CNN_TRY(run_job(call->ctx, &j, &sum));
  finish_loss(call, &j, reduction, &sum, &call->out[1]);
  return CNN_OK;
}

const cnn_kernel cpu_nll_loss_native = {plan_nll, run_nll, NULL};

static void start_nll_backward(cnn_call *call, job *j) {
  const cnn_view *dx = &call->out[0];
  start(call, j, false, dx, dx, &call->in[1], &call->in[2], &call->args[5]);
  j->chunks = cnn_chunk(j->x.count, 8, GRAIN);
  j->each = 0;
  j->run = nll_rows_back;
}

static cnn_status plan_nll_backward(cnn_call *call) {
  job j;
  start_nll_backward(call, &j);
  return CNN_OK;
}

static cnn_status run_nll_backward(cnn_call *call) {
  job j;
  partial sum;
  cnn_view *dx = &call->out[0];
  start_nll_backward(call, &j);
  start_gradient(&call->in[0], &call->in[3], call->args[6].i, &j);
  cnn_parallel_for(cnn_view_numel(dx), 8 * GRAIN, clear, dx);
  return run_job(call->ctx, &j, &sum);
}

const cnn_kernel cpu_nll_loss_backward = {plan_nll_backward, run_nll_backward, NULL};
