// SPDX-License-Identifier: MIT
// Kernels of the elementwise functions of one tensor: each row of unary.def, expanded once per
// type.
#include "cpu/cpu.h"
#include "cpu/elementwise.h"
#include "cpu/expression.h"
#include "cpu/scalar.h"
#include "cpu/clones.h"

// One text serves all types: x < 0 is no news for uint8.
#pragma GCC diagnostic ignored "-Wtype-limits"

// A row makes the functions <type>_<name> and <type>_<name>_backward. Integers take REAL rows only,
// and have no derivatives.
#define LOOP1(expr)                                                                                \
  const T *xs = in[0], *p = params;                                                                \
  T *ys = out;                                                                                     \
  (void)p;                                                                                         \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                            \
    const T x = xs[i];                                                                             \
    ys[i] = (T)(expr);                                                                             \
  }
#define LOOP2(expr)                                                                                \
  const T *gs = in[0], *vs = in[1], *p = params;                                                   \
  T *ys = out;                                                                                     \
  (void)p;                                                                                         \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                            \
    const T G = gs[i], V = vs[i];                                                                  \
    (void)V;                                                                                       \
    (void)G;                                                                                       \
    ys[i] = (T)(expr);                                                                             \
  }
#define LOOP_BOOL(expr)                                                                            \
  const T *xs = in[0];                                                                             \
  cnn_bool *ys = out;                                                                              \
  (void)params;                                                                                    \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                            \
    const T x = xs[i];                                                                             \
    ys[i] = (cnn_bool)(expr);                                                                      \
  }
#define FUNCTION(attributes, title)                                                                \
  attributes static void title(int64_t n, void *out, const void *const *in, const void *params)

#define P(i) p[i]

// float32, with vector code for each instruction set.
#define T    float
#define M(f) m_##f##_f32
#define R(f) r_##f##_f32
#define UNARY(title, kind, spec, forward, saved, derivative, doc)                                  \
  FUNCTION(CNN_CLONES, f32_##title){LOOP1(forward)} FUNCTION(CNN_CLONES, f32_##title##_backward) { \
    LOOP2(derivative)                                                                              \
  }
#define PREDICATE(title, forward, doc)                                                             \
  FUNCTION(CNN_CLONES, f32_##title) {                                                              \
    LOOP_BOOL(forward)                                                                             \
  }
#include "ops/unary.def"
#undef T
#undef M
#undef R
#undef UNARY
#undef PREDICATE

#define T    double
#define M(f) m_##f##_f64
#define R(f) r_##f##_f64
#define UNARY(title, kind, spec, forward, saved, derivative, doc)                                  \
  FUNCTION(, f64_##title){LOOP1(forward)} FUNCTION(, f64_##title##_backward) {                     \
    LOOP2(derivative)                                                                              \
  }
#define PREDICATE(title, forward, doc)                                                             \
  FUNCTION(, f64_##title) {                                                                        \
    LOOP_BOOL(forward)                                                                             \
  }
#include "ops/unary.def"
#undef T
#undef M
#undef R
#undef UNARY
#undef PREDICATE

// The integers.
#define R(f)                                                      r_##f##_int
#define UNARY(title, kind, spec, forward, saved, derivative, doc) UNARY_##kind(title, forward)
#define UNARY_FLOAT(title, forward)
#define PASTE(a, b)          a##b
#define NAMED(prefix, title) PASTE(prefix, title)
#define UNARY_REAL(title, forward)                                                                 \
  FUNCTION(, NAMED(PREFIX, title)) {                                                               \
    LOOP1(forward)                                                                                 \
  }
#define PREDICATE(title, forward, doc)                                                             \
  FUNCTION(, NAMED(PREFIX, title)) {                                                               \
    LOOP_BOOL(forward)                                                                             \
  }
#define T      int64_t
#define PREFIX i64_
#include "ops/unary.def"
#undef T
#undef PREFIX
#define T      int32_t
#define PREFIX i32_
#include "ops/unary.def"
#undef T
#undef PREFIX
#define T      int16_t
#define PREFIX i16_
#include "ops/unary.def"
#undef T
#undef PREFIX
#define T      int8_t
#define PREFIX i8_
#include "ops/unary.def"
#undef T
#undef PREFIX
#define T      uint8_t
#define PREFIX u8_
#include "ops/unary.def"
#undef T
#undef PREFIX
#undef UNARY
#undef PREDICATE

#define INTEGERS(title)                                                                            \
  [CNN_I64] = i64_##title, [CNN_I32] = i32_##title, [CNN_I16] = i16_##title,                       \
  [CNN_I8] = i8_##title, [CNN_U8] = u8_##title
#define FUNCTIONS_FLOAT(title) [CNN_F32] = f32_##title, [CNN_F64] = f64_##title
#define FUNCTIONS_REAL(title)  FUNCTIONS_FLOAT(title), INTEGERS(title)

#define UNARY(title, kind, spec, forward, saved, derivative, doc)                                  \
  static const cnn_row row_##title = {1, {FUNCTIONS_##kind(title)}, 0};                            \
  const cnn_kernel cpu_##title = {NULL, cnn_elementwise_run, &row_##title};                        \
  static const cnn_row row_##title##_backward = {2, {FUNCTIONS_FLOAT(title##_backward)}, 0};       \
  const cnn_kernel cpu_##title##_backward = {NULL, cnn_elementwise_run, &row_##title##_backward};
#define PREDICATE(title, forward, doc)                                                             \
  static const cnn_row row_##title = {1, {FUNCTIONS_REAL(title), [CNN_BOOL] = u8_##title}, 0};     \
  const cnn_kernel cpu_##title = {NULL, cnn_elementwise_run, &row_##title};
#include "ops/unary.def"
#undef UNARY
#undef PREDICATE

static void f32_trigamma(int64_t n, void *out, const void *const *in, const void *p) {
  const float *x = in[0];
  float *y = out;
  (void)p;
  for (int64_t i = 0; i < n; i++) y[i] = m_trigamma_f32(x[i]);
}
static void f64_trigamma(int64_t n, void *out, const void *const *in, const void *p) {
  const double *x = in[0];
  double *y = out;
  (void)p;
  for (int64_t i = 0; i < n; i++) y[i] = cnn_trigamma(x[i]);
}
static const cnn_row row_trigamma = {1, {FUNCTIONS_FLOAT(trigamma)}, 0};
const cnn_kernel cpu_trigamma = {NULL, cnn_elementwise_run, &row_trigamma};

static cnn_status run_has_nan(cnn_call *call) {
  const cnn_view *x = &call->in[0], *views[] = {x};
  cnn_nest nest;
  double piece[CNN_PIECE];
  char raw[CNN_PIECE * 8];
  cnn_bool found = 0;
  cnn_nest_make(&nest, x->ndim, x->shape, views, 1);
  for (int64_t at = 0; at < nest.numel && !found; at += CNN_PIECE) {
    int64_t n = nest.numel - at < CNN_PIECE ? nest.numel - at : CNN_PIECE;
    cnn_nest_gather(&nest, 0, at, n, raw);
    cnn_convert(n, x->dtype, raw, CNN_F64, piece);
    for (int64_t i = 0; i < n; i++) found |= piece[i] != piece[i];
  }
  *(cnn_bool *)call->out[0].data = found;
  return CNN_OK;
}
const cnn_kernel cpu_has_nan = {NULL, run_has_nan, NULL};
