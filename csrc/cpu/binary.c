// SPDX-License-Identifier: MIT
// Kernels of the elementwise functions of two and three operands: each row of binary.def, expanded
// once per type.
#include "cpu/clones.h"
#include "cpu/cpu.h"
#include "cpu/elementwise.h"
#include "cpu/expression.h"
#include "cpu/scalar.h"

// One text serves all types: x < 0 is no news for uint8.
#pragma GCC diagnostic ignored "-Wtype-limits"

#define FUNCTION(attributes, title)                                                                \
  attributes static void title(int64_t n, void *out, const void *const *in, const void *params)
#define OPERANDS                                                                                   \
  const T *xs = in[0], *ys = in[1], *p = params;                                                   \
  (void)p;
#define LOOP(type, expr)                                                                           \
  OPERANDS                                                                                         \
  type *os = out;                                                                                  \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                            \
    const T x = xs[i], y = ys[i];                                                                  \
    os[i] = (type)(expr);                                                                          \
  }
#define LOOP3(expr)                                                                                \
  OPERANDS                                                                                         \
  const T *zs = in[2];                                                                             \
  T *os = out;                                                                                     \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                            \
    const T x = xs[i], y = ys[i], z = zs[i];                                                       \
    os[i] = (T)(expr);                                                                             \
  }
#define P(i)                 p[i]
#define PASTE(a, b)          a##b
#define NAMED(prefix, title) PASTE(prefix, title)
#define DEFINE(title, type, e)                                                                     \
  FUNCTION(CLONES, NAMED(PREFIX, title)) {                                                         \
    LOOP(type, e)                                                                                  \
  }

#define BINARY(title, kind, spec, forward, ...) BINARY_##kind(title, forward)
#define COMPARE(title, forward, doc)            DEFINE(title, cnn_bool, forward)
#define TERNARY(title, kind, arguments, spec, forward, saved, dx, dy, dz, doc)                     \
  TERNARY_##kind(title, forward)
#define TERNARY_MASKED(title, forward)
#define TERNARY_FILLED(title, forward)
#define DEFINE3(title, e)                                                                          \
  FUNCTION(CLONES, NAMED(PREFIX, title)) {                                                         \
    LOOP3(e)                                                                                       \
  }

// Floats.
#define BINARY_FLOAT(title, e) DEFINE(title, T, e)
#define BINARY_REAL(title, e)  DEFINE(title, T, e)
#define BINARY_ANY(title, e)   DEFINE(title, T, e)
#define BINARY_BITS(title, e)
#define TERNARY_FLOAT(title, e) DEFINE3(title, e)
#define TERNARY_REAL(title, e)  DEFINE3(title, e)
#define T                       float
#define M(f)                    m_##f##_f32
#define R(f)                    r_##f##_f32
#define PREFIX                  f32_
#define CLONES                  CNN_CLONES
#include "ops/binary.def"
#undef T
#undef M
#undef R
#undef PREFIX
#undef CLONES
#define CLONES
#define T      double
#define M(f)   m_##f##_f64
#define R(f)   r_##f##_f64
#define PREFIX f64_
#include "ops/binary.def"
#undef T
#undef M
#undef R
#undef PREFIX
#undef BINARY_FLOAT
#undef BINARY_BITS
#undef TERNARY_FLOAT

// Integers.
#define R(f) r_##f##_int
#define BINARY_FLOAT(title, e)
#define TERNARY_FLOAT(title, e)
#define BINARY_BITS(title, e) DEFINE(title, T, e)
#define T                     int64_t
#define PREFIX                i64_
#include "ops/binary.def"
#undef T
#undef PREFIX
#define T      int32_t
#define PREFIX i32_
#include "ops/binary.def"
#undef T
#undef PREFIX
#define T      int16_t
#define PREFIX i16_
#include "ops/binary.def"
#undef T
#undef PREFIX
#define T      int8_t
#define PREFIX i8_
#include "ops/binary.def"
#undef T
#undef PREFIX
#define T      uint8_t
#define PREFIX u8_
#include "ops/binary.def"
#undef T
#undef PREFIX

// bool: the value of an ANY row is whether it is not 0.
#undef BINARY_REAL
#undef BINARY_ANY
#undef BINARY_BITS
#undef TERNARY_REAL
#define BINARY_REAL(title, e)
#define BINARY_ANY(title, e)  DEFINE(title, T, ((e) != 0))
#define BINARY_BITS(title, e) DEFINE(title, T, e)
#define TERNARY_REAL(title, e)
#define T      cnn_bool
#define PREFIX b8_
#include "ops/binary.def"
#undef T
#undef PREFIX
#undef BINARY
#undef COMPARE
#undef TERNARY

// Selections move elements without looking at them: one function per element size.
#define SELECT(T, bits)                                                                            \
  FUNCTION(CNN_CLONES, where_##bits) {                                                             \
    const cnn_bool *c = in[0];                                                                     \
    const T *xs = in[1], *ys = in[2];                                                              \
    T *os = out;                                                                                   \
    (void)params;                                                                                  \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) os[i] = c[i] ? xs[i] : ys[i];              \
  }                                                                                                \
  FUNCTION(, fill_##bits) {                                                                        \
    const void *swapped[] = {in[1], in[2], in[0]};                                                 \
    where_##bits(n, out, swapped, params);                                                         \
  }
SELECT(uint8_t, 8)
SELECT(uint16_t, 16)
SELECT(uint32_t, 32)
SELECT(uint64_t, 64)

#define BY_SIZE(f)                                                                                 \
  [CNN_F32] = f##_32, [CNN_F64] = f##_64, [CNN_F16] = f##_16, [CNN_BF16] = f##_16,                 \
  [CNN_I64] = f##_64, [CNN_I32] = f##_32, [CNN_I16] = f##_16, [CNN_I8] = f##_8, [CNN_U8] = f##_8,  \
  [CNN_BOOL] = f##_8

#define INTEGERS(t)                                                                                \
  [CNN_I64] = i64_##t, [CNN_I32] = i32_##t, [CNN_I16] = i16_##t, [CNN_I8] = i8_##t,                \
  [CNN_U8] = u8_##t
#define FUNCTIONS_FLOAT(t)  [CNN_F32] = f32_##t, [CNN_F64] = f64_##t
#define FUNCTIONS_REAL(t)   FUNCTIONS_FLOAT(t), INTEGERS(t)
#define FUNCTIONS_ANY(t)    FUNCTIONS_REAL(t), [CNN_BOOL] = b8_##t
#define FUNCTIONS_BITS(t)   INTEGERS(t), [CNN_BOOL] = b8_##t
#define FUNCTIONS_MASKED(t) BY_SIZE(where)
#define FUNCTIONS_FILLED(t) BY_SIZE(fill)

#define BINARY(title, kind, ...)                                                                   \
  static const cnn_row row_##title = {2, {FUNCTIONS_##kind(title)}, 0};                            \
  const cnn_kernel cpu_##title = {NULL, cnn_elementwise_run, &row_##title};
#define COMPARE(title, forward, doc)                                                               \
  static const cnn_row row_##title = {2, {FUNCTIONS_ANY(title)}, 0};                               \
  const cnn_kernel cpu_##title = {NULL, cnn_elementwise_run, &row_##title};
#define TERNARY(title, kind, ...)                                                                  \
  static const cnn_row row_##title = {3, {FUNCTIONS_##kind(title)}, 0};                            \
  const cnn_kernel cpu_##title = {NULL, cnn_elementwise_run, &row_##title};
#include "ops/binary.def"
