// SPDX-License-Identifier: MIT
// Kernels of ops/scan.c, on dense arrays of float, double or int64 (other types by way of scratch).
// Running values are kept in double, so that float32 loses nothing but the rounding of its results.
#include <string.h>

#include "cpu/copy.h"
#include "cpu/cpu.h"
#include "cpu/lines.h"

#define GRAIN 16384

typedef struct scan {
  cnn_lines lines;
  cnn_dtype computed;
  const void *x, *dy;
  void *y;
  int64_t *places;
} scan;

static cnn_dtype computed_of(cnn_dtype dtype) {
  return cnn_dtype_is_half(dtype) ? CNN_F32 : cnn_dtype_is_float(dtype) ? dtype : CNN_I64;
}

static cnn_lines lines_of(const cnn_call *call, int arg) {
  const cnn_view *v = &call->out[0];
  int64_t dim = call->args[arg].i;
  return cnn_lines_of(v, dim < 0 ? dim + (v->ndim ? v->ndim : 1) : dim);
}

// Inputs that are values (not positions) are read as `computed`, result 0 is written as that.
static cnn_status plan_values(cnn_call *call) {
  cnn_dtype computed = computed_of(call->out[0].dtype);
  call->scratch_bytes = cnn_dense_bytes(&call->out[0], computed);
  for (int i = 0; i < call->n_in; i++)
    call->scratch_bytes += cnn_dense_bytes(&call->in[i], computed);
  return CNN_OK;
}

// Runs fn by the type computed in: float, double, int64.
static cnn_status run_scan(cnn_call *call, scan *s, int64_t dim_arg, const cnn_lines_fn *fns) {
  void *scratch = call->scratch;
  s->computed = computed_of(call->out[0].dtype);
  s->lines = lines_of(call, (int)dim_arg);
  if (cnn_view_numel(&call->out[0]) == 0) return CNN_OK;
  s->y = cnn_dense_result(&call->out[0], s->computed, &scratch);
  const void **inputs[] = {&s->x, &s->dy};
  for (int i = 0; i < call->n_in; i++) *inputs[i] = cnn_dense(&call->in[i], s->computed, &scratch);
  cnn_lines_run(&s->lines, GRAIN,
                fns[s->computed == CNN_F32   ? 0
                    : s->computed == CNN_F64 ? 1
                                             : 2],
                s);
  cnn_dense_store(&call->out[0], s->computed, s->y);
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// Sums and products: y_i = y_{i-1} + x_i, from either end.

#define RUNNING(name, T, A, start, OP, backwards)                                                  \
  static void name(void *arg, int64_t at, int64_t width) {                                         \
    const scan *s = arg;                                                                           \
    const int64_t n = s->lines.n, d = s->lines.inner;                                              \
    int64_t i = backwards ? at + (n - 1) * d : at;                                                 \
    A acc[CNN_LINES];                                                                              \
    const T *x = s->x;                                                                             \
    T *y = s->y;                                                                                   \
    if (width == 1) {                                                                              \
      A a = start;                                                                                 \
      for (int64_t k = 0; k < n; k++, i += backwards ? -d : d) {                                   \
        a = a OP(A) x[i];                                                                          \
        y[i] = (T)a;                                                                               \
      }                                                                                            \
      return;                                                                                      \
    }                                                                                              \
    for (int64_t j = 0; j < width; j++) acc[j] = start;                                            \
    for (int64_t k = 0; k < n; k++, i += backwards ? -d : d) {                                     \
      _Pragma("omp simd") for (int64_t j = 0; j < width; j++) {                                    \
        acc[j] = acc[j] OP(A) x[i + j];                                                            \
        y[i + j] = (T)acc[j];                                                                      \
      }                                                                                            \
    }                                                                                              \
  }
#define SCAN_KERNEL(title, start, OP, backwards)                                                   \
  RUNNING(title##_f32, float, double, start, OP, backwards)                                        \
  RUNNING(title##_f64, double, double, start, OP, backwards)                                       \
  RUNNING(title##_i64, int64_t, uint64_t, start, OP, backwards)                                    \
  static cnn_status run_##title(cnn_call *call) {                                                  \
    static const cnn_lines_fn fns[] = {title##_f32, title##_f64, title##_i64};                     \
    scan s;                                                                                        \
    return run_scan(call, &s, 1, fns);                                                             \
  }                                                                                                \
  const cnn_kernel cpu_##title = {plan_values, run_##title, NULL};

SCAN_KERNEL(cumsum, 0, +, false)
SCAN_KERNEL(cumsum_backward, 0, +, true)
SCAN_KERNEL(cumprod, 1, *, false)

// dx_i = L_i R_i: L_i = x_1 ... x_{i-1}, and R_i = dy_i + x_{i+1} R_{i+1} gathers what comes after.
// No division, so zeros need no care.
#define CUMPROD_BACKWARD(name, T)                                                                  \
  static void name(void *arg, int64_t at, int64_t width) {                                         \
    const scan *s = arg;                                                                           \
    const int64_t n = s->lines.n, d = s->lines.inner;                                              \
    const T *dy = s->x, *x = s->dy;                                                                \
    T *dx = s->y;                                                                                  \
    for (int64_t j = at; j < at + width; j++) {                                                    \
      double right = 0, left = 1;                                                                  \
      for (int64_t k = n - 1, i = j + k * d; k >= 0; k--, i -= d) {                                \
        right = (double)dy[i] + (k + 1 < n ? (double)x[i + d] * right : 0);                        \
        dx[i] = (T)right;                                                                          \
      }                                                                                            \
      for (int64_t k = 0, i = j; k < n; k++, i += d) {                                             \
        dx[i] = (T)(left * (double)dx[i]);                                                         \
        left *= (double)x[i];                                                                      \
      }                                                                                            \
    }                                                                                              \
  }
CUMPROD_BACKWARD(cumprod_backward_f32, float)
CUMPROD_BACKWARD(cumprod_backward_f64, double)

static cnn_status run_cumprod_backward(cnn_call *call) {
  static const cnn_lines_fn fns[] = {cumprod_backward_f32, cumprod_backward_f64};
  scan s;
  return run_scan(call, &s, 2, fns);
}
const cnn_kernel cpu_cumprod_backward = {plan_values, run_cumprod_backward, NULL};

// ---------------------------------------------------------------------------------------------
// Extremes

#define EXTREME(name, T, NOT_WORSE)                                                                \
  static void name(void *arg, int64_t at, int64_t width) {                                         \
    const scan *s = arg;                                                                           \
    const int64_t n = s->lines.n, d = s->lines.inner;                                              \
    const T *x = s->x;                                                                             \
    T *y = s->y, best[CNN_LINES];                                                                  \
    int64_t place[CNN_LINES];                                                                      \
    for (int64_t j = 0; j < width; j++) best[j] = x[at + j], place[j] = 1;                         \
    for (int64_t k = 0, i = at; k < n; k++, i += d) {                                              \
      for (int64_t j = 0; j < width; j++) {                                                        \
        const T v = x[i + j];                                                                      \
        const bool better = (v NOT_WORSE best[j]) | IS_NAN(v);                                     \
        best[j] = better ? v : best[j];                                                            \
        place[j] = better ? k + 1 : place[j];                                                      \
        y[i + j] = best[j];                                                                        \
        s->places[i + j] = place[j];                                                               \
      }                                                                                            \
    }                                                                                              \
  }
#define EXTREME_KERNEL(title, NOT_WORSE)                                                           \
  static cnn_status run_##title(cnn_call *call) {                                                  \
    static const cnn_lines_fn fns[] = {title##_f32, title##_f64, title##_i64};                     \
    scan s = {.places = call->out[1].data};                                                        \
    return run_scan(call, &s, 1, fns);                                                             \
  }                                                                                                \
  const cnn_kernel cpu_##title = {plan_values, run_##title, NULL};

#define IS_NAN(v) ((v) != (v))
EXTREME(cummax_f32, float, >=)
EXTREME(cummax_f64, double, >=)
EXTREME(cummin_f32, float, <=)
EXTREME(cummin_f64, double, <=)
#undef IS_NAN
#define IS_NAN(v) 0
EXTREME(cummax_i64, int64_t, >=)
EXTREME(cummin_i64, int64_t, <=)
EXTREME_KERNEL(cummax, >=)
EXTREME_KERNEL(cummin, <=)
