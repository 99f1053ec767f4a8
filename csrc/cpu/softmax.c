// SPDX-License-Identifier: MIT
// Kernels of ops/softmax.c, on dense arrays of float or double (other types by way of scratch).
// Lines that are contiguous are worked on one by one, short ones several at a time; lines along
// another dim many neighbours at a time.
//
// The largest element is subtracted first, so nothing overflows. A NaN or +inf in a line makes all
// of it NaN, and so do elements that are all -inf: there is no softmax of these.
#include <math.h>

#include "base/parallel.h"
#include "cpu/clones.h"
#include "cpu/copy.h"
#include "cpu/cpu.h"
#include "cpu/lines.h"
#include "cpu/vmath.h"

#define GRAIN 16384
#define FLUSH 8192 // elements of a row, and rows of columns, that are summed in T
#define ROWS  128
#define SHORT 1024 // elements of several short rows

typedef struct job {
  cnn_lines lines;
  const void *x;     // in backward: dy
  const void *saved; // the softmax or its logarithm, in backward
  void *y;           // in backward: dx
  bool log, is_double;
} job;

// e^x for x <= 0; what would be subnormal is 0.
V_FN float exp_down_f32(float x) {
  float e = v_exp_normal(x < -87.0f ? -87.0f : x);
  return x < -87.0f ? 0.0f : e;
}
V_FN double exp_down_f64(double x) {
  return v_exp_f64(x);
}

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define N(name)      PASTE(name, SUFFIX)
#define EXP(x)       PASTE(exp_down, SUFFIX)(x)
#define SIMD         _Pragma("omp simd")

#define T      float
#define SUFFIX f32
#define CLONES CNN_CLONES
#define HUGE_  HUGE_VALF
#define LOG(x) v_log(x)
#include "cpu/softmax_body.h"
#undef T
#undef SUFFIX
#undef CLONES
#undef HUGE_
#undef LOG

#define T      double
#define SUFFIX f64
#define CLONES
#define HUGE_  HUGE_VAL
#define LOG(x) log(x)
#include "cpu/softmax_body.h"

static cnn_dtype computed_of(const cnn_call *call) {
  return call->out[0].dtype == CNN_F64 ? CNN_F64 : CNN_F32;
}

static cnn_status plan(cnn_call *call) {
  cnn_dtype computed = computed_of(call);
  call->scratch_bytes = cnn_dense_bytes(&call->out[0], computed);
  for (int i = 0; i < call->n_in; i++)
    call->scratch_bytes += cnn_dense_bytes(&call->in[i], computed);
  return CNN_OK;
}

static void forward_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  (j->is_double ? rows_f64 : rows_f32)(j, begin, end);
}
static void backward_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  (j->is_double ? rows_back_f64 : rows_back_f32)(j, begin, end);
}
static void forward_columns(void *arg, int64_t at, int64_t width) {
  const job *j = arg;
  (j->is_double ? columns_f64 : columns_f32)(j, at, width);
}
static void backward_columns(void *arg, int64_t at, int64_t width) {
  const job *j = arg;
  (j->is_double ? columns_back_f64 : columns_back_f32)(j, at, width);
}

static cnn_status run(cnn_call *call, bool log) {
  const cnn_view *out = &call->out[0];
  bool backward = call->n_in > 1;
  cnn_dtype computed = computed_of(call);
  void *scratch = call->scratch;
  int64_t dim = call->args[backward ? 2 : 1].i;
  job j = {.log = log, .is_double = computed == CNN_F64};
  if (cnn_view_numel(out) == 0) return CNN_OK;
  j.lines = cnn_lines_of(out, dim < 0 && out->ndim > 0 ? dim + out->ndim : dim);
  j.y = cnn_dense_result(out, computed, &scratch);
  j.x = cnn_dense(&call->in[0], computed, &scratch);
  if (backward) j.saved = cnn_dense(&call->in[1], computed, &scratch);
  if (j.lines.inner == 1)
    cnn_parallel_for(j.lines.outer, GRAIN / j.lines.n + 1, backward ? backward_rows : forward_rows,
                     &j);
  else
    cnn_lines_run(&j.lines, GRAIN, backward ? backward_columns : forward_columns, &j);
  cnn_dense_store(out, computed, j.y);
  return CNN_OK;
}

static cnn_status run_softmax(cnn_call *call) {
  return run(call, false);
}
static cnn_status run_log_softmax(cnn_call *call) {
  return run(call, true);
}

const cnn_kernel cpu_softmax = {plan, run_softmax, NULL};
const cnn_kernel cpu_log_softmax = {plan, run_log_softmax, NULL};
const cnn_kernel cpu_softmax_backward = {plan, run_softmax, NULL};
const cnn_kernel cpu_log_softmax_backward = {plan, run_log_softmax, NULL};
