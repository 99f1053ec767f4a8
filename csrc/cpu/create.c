// SPDX-License-Identifier: MIT
// Kernels of ops/create.c.
#include "cpu/copy.h"
#include "cpu/cpu.h"
#include "cpu/elementwise.h"

#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "cpu/clones.h"

// ---------------------------------------------------------------------------------------------
// One value

typedef struct fill {
  cnn_nest nest;
  char piece[CNN_PIECE * 8];
} fill;

static void fill_range(void *arg, int64_t begin, int64_t end) {
  const fill *f = arg;
  for (int64_t at = begin; at < end; at += CNN_PIECE)
    cnn_nest_scatter(&f->nest, 0, at, end - at < CNN_PIECE ? end - at : CNN_PIECE, f->piece);
}

typedef struct clear {
  char *data;
} clear;

static void clear_range(void *arg, int64_t begin, int64_t end) {
  memset(((clear *)arg)->data + begin, 0, (size_t)(end - begin));
}

static void set_element(cnn_dtype dtype, void *p, const cnn_arg *value) {
  if (value->kind == CNN_NUMBER)
    cnn_element_set(dtype, p, value->d);
  else
    cnn_element_set_int(dtype, p, value->i);
}

static cnn_status fill_view(const cnn_view *v, const cnn_arg *value) {
  fill f;
  const cnn_view *views[] = {v};
  size_t size = cnn_dtype_size(v->dtype);
  cnn_nest_make(&f.nest, v->ndim, v->shape, views, 1);
  if (f.nest.numel == 0) return CNN_OK;
  if (value->kind == CNN_INT && value->i == 0 && cnn_nest_dense(&f.nest, 0)) {
    clear c = {v->data};
    cnn_parallel_for(f.nest.numel * (int64_t)size, 1 << 18, clear_range, &c);
    return CNN_OK;
  }
  int64_t n = f.nest.numel < CNN_PIECE ? f.nest.numel : CNN_PIECE;
  set_element(v->dtype, f.piece, value);
  for (int64_t i = 1; i < n; i++) memcpy(f.piece + (size_t)i * size, f.piece, size);
  cnn_parallel_for(f.nest.numel, 1 << 16, fill_range, &f);
  return CNN_OK;
}

void cnn_clear_view(const cnn_view *v) {
  fill_view(v, &CNN_A_I(0));
}

static cnn_status run_full(cnn_call *call) {
  return fill_view(&call->out[0], &call->args[1]);
}
static cnn_status run_zeros(cnn_call *call) {
  return fill_view(&call->out[0], &CNN_A_I(0));
}
static cnn_status run_ones(cnn_call *call) {
  return fill_view(&call->out[0], &CNN_A_I(1));
}
static cnn_status run_fill(cnn_call *call) {
  return fill_view(&call->in[0], &call->args[1]);
}
static cnn_status run_zero(cnn_call *call) {
  return fill_view(&call->in[0], &CNN_A_I(0));
}
static cnn_status run_empty(cnn_call *call) {
  (void)call;
  return CNN_OK;
}

const cnn_kernel cpu_full = {NULL, run_full, NULL};
const cnn_kernel cpu_full_like = {NULL, run_full, NULL};
const cnn_kernel cpu_zeros = {NULL, run_zeros, NULL};
const cnn_kernel cpu_zeros_like = {NULL, run_zeros, NULL};
const cnn_kernel cpu_ones = {NULL, run_ones, NULL};
const cnn_kernel cpu_ones_like = {NULL, run_ones, NULL};
const cnn_kernel cpu_empty = {NULL, run_empty, NULL};
const cnn_kernel cpu_empty_like = {NULL, run_empty, NULL};
const cnn_kernel cpu_fill_ = {NULL, run_fill, NULL};
const cnn_kernel cpu_zero_ = {NULL, run_zero, NULL};

// ---------------------------------------------------------------------------------------------
// Numbers in a row: computed as doubles, or as integers where all is integral.

typedef struct row {
  const cnn_view *y;
  bool integral;
  int64_t first, by; // integral
  double start, stop, step, base;
  bool powers;
  int64_t n;
  bool from_both_ends; // linspace: the second half counts back from stop
} row;

CNN_CLONES static void fill_doubles(const row *r, int64_t at, int64_t n, double *piece) {
  int64_t half = r->from_both_ends ? r->n / 2 : r->n;
  int split = (int)(at >= half ? 0 : half - at < n ? half - at : n), count = (int)n;
  double first = (double)at, last = (double)(r->n - 1 - at);
  for (int i = 0; i < split; i++) piece[i] = r->start + r->step * (first + i);
  for (int i = split; i < count; i++) piece[i] = r->stop - r->step * (last - i);
}

static void row_range(void *arg, int64_t begin, int64_t end) {
  const row *r = arg;
  const cnn_view *y = r->y;
  size_t size = cnn_dtype_size(y->dtype);
  for (int64_t at = begin; at < end; at += CNN_PIECE) {
    int64_t n = end - at < CNN_PIECE ? end - at : CNN_PIECE;
    char *out = (char *)y->data + (size_t)at * size;
    if (r->integral) {
      int64_t piece[CNN_PIECE];
      for (int64_t i = 0; i < n; i++)
        piece[i] = (int64_t)((uint64_t)r->first + (uint64_t)(at + i) * (uint64_t)r->by);
      cnn_convert(n, CNN_I64, piece, y->dtype, out);
      continue;
    }
    double piece[CNN_PIECE];
    fill_doubles(r, at, n, piece);
    if (r->powers)
      for (int64_t i = 0; i < n; i++) piece[i] = pow(r->base, piece[i]);
    cnn_convert(n, CNN_F64, piece, y->dtype, out);
  }
}

static cnn_status run_row(row *r, const cnn_view *y) {
  r->y = y;
  r->n = y->shape[0];
  cnn_parallel_for(r->n, 1 << 15, row_range, r);
  return CNN_OK;
}

static cnn_status run_arange(cnn_call *call) {
  const cnn_arg *a = call->args;
  bool one = !cnn_has(a, 1);
  cnn_arg start = one || !cnn_has(a, 0) ? CNN_A_I(0) : a[0];
  // Floats are exact in a double up to 2^53, and faster so.
  bool is_float = cnn_dtype_is_float(call->out[0].dtype);
  row r = {.integral = start.kind == CNN_INT && a[2].kind == CNN_INT && !is_float,
           .start = cnn_arg_number(&start),
           .step = cnn_arg_number(&a[2])};
  if (r.integral) r.first = start.i, r.by = a[2].i;
  return run_row(&r, &call->out[0]);
}

static cnn_status run_spaced(cnn_call *call, bool powers, double base) {
  row r = {.start = cnn_arg_number(&call->args[0]),
           .stop = cnn_arg_number(&call->args[1]),
           .powers = powers,
           .base = base,
           .from_both_ends = true};
  int64_t n = call->out[0].shape[0];
  r.step = n > 1 ? (r.stop - r.start) / (double)(n - 1) : 0;
  if (n == 1) r.stop = r.start;
  return run_row(&r, &call->out[0]);
}
static cnn_status run_linspace(cnn_call *call) {
  return run_spaced(call, false, 0);
}
static cnn_status run_logspace(cnn_call *call) {
  return run_spaced(call, true, cnn_arg_number(&call->args[3]));
}

static cnn_status run_eye(cnn_call *call) {
  const cnn_view *y = &call->out[0];
  size_t size = cnn_dtype_size(y->dtype);
  int64_t n = y->shape[0] < y->shape[1] ? y->shape[0] : y->shape[1];
  CNN_TRY(fill_view(y, &CNN_A_I(0)));
  for (int64_t i = 0; i < n; i++)
    cnn_element_set_int(y->dtype, (char *)y->data + (size_t)(i * (y->shape[1] + 1)) * size, 1);
  return CNN_OK;
}

const cnn_kernel cpu_arange = {NULL, run_arange, NULL};
const cnn_kernel cpu_linspace = {NULL, run_linspace, NULL};
const cnn_kernel cpu_logspace = {NULL, run_logspace, NULL};
const cnn_kernel cpu_eye = {NULL, run_eye, NULL};
