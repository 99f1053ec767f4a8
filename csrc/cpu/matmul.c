// SPDX-License-Identifier: MIT
// Kernels of ops/matmul.c: all are one form,
//
//   C[b] = alpha * sum over s of A[b, s] B[b, s] + beta * C[b]
//
// over batch dims b, and dims s that the result was summed over. Nothing is copied: batch dims are
// folded into rows (a linear layer) or into the inner dim (its weight's gradient) where the strides
// allow it, and the rest are loops. Large products of float32 and bfloat16 go to the plugin; half
// types are converted matrix by matrix and accumulate in float; integers wrap around.
#include "cpu/cpu.h"

#include <string.h>

#include "base/parallel.h"
#include "cpu/accel.h"
#include "cpu/copy.h"
#include "cpu/elementwise.h"
#include "cpu/gemm.h"
#include "cpu/tasks.h"
#include "engine/product.h"

#define THREAD_LEAST (1 << 16) // multiply-adds that are worth a thread

// What is handed to the plugin. Measured (AVX-512, float32, oneDNN 2.6, 1 and 2 threads): own
// products take 0.2 to 0.9 of the plugin's time with few rows or columns, and 1.0 to 1.1 of it
// elsewhere, so that only large ones are worth loading it: 64 x 784 x 128 is not. Half types have
// to be converted here.
#define ACCEL_LEAST (1 << 23) // multiply-adds
#define ACCEL_ROWS  32
#define ACCEL_COLS  16
#define ACCEL_HALF  (1 << 18) // multiply-adds of half types

enum { WAY_OWN, WAY_ACCEL };

static double work(const cnn_product *p) {
  return (double)p->m * (double)p->n * (double)p->k * (double)p->sum_count;
}

// ---------------------------------------------------------------------------------------------
// The plugin

// Dims beyond the innermost batch dim are a loop of calls.
static cnn_accel_plan *accel_plan(const cnn_product *p, size_t *scratch) {
  if (p->n_sum || p->alpha != 1 || (p->beta != 0 && !p->bias)) return NULL;
  if (p->dtype != CNN_F32 && p->dtype != CNN_BF16) return NULL;
  if (p->dtype == CNN_F32 && (p->m < ACCEL_ROWS || p->n < ACCEL_COLS)) return NULL;
  const cnn_product_dim *batch = p->n_outer ? &p->outer[0] : NULL;
  double calls = batch ? (double)(p->outer_count / batch->size) : 1;
  double least = p->dtype == CNN_F32 ? ACCEL_LEAST : ACCEL_HALF;
  if (work(p) * (double)p->outer_count / calls < least) return NULL;
  const cnn_accel *accel = cnn_accel_get();
  if (!accel) return NULL;
  cnn_accel_gemm d = {
      .dtype = p->dtype,
      .bias_dtype = p->dtype,
      .bias = p->bias != NULL,
      .batch = batch ? batch->size : 1,
      .m = p->m,
      .n = p->n,
      .k = p->k,
      .a_bs = batch ? batch->a : 0,
      .a_rs = p->a_rs,
      .a_cs = p->a_cs,
      .b_bs = batch ? batch->b : 0,
      .b_rs = p->b_rs,
      .b_cs = p->b_cs,
      .c_bs = batch ? batch->c : 0,
      .c_rs = p->c_rs,
  };
  return accel->gemm(&d, cnn_num_threads(), scratch);
}

static bool accel_run(const cnn_product *p, cnn_accel_plan *plan, void *scratch) {
  const cnn_accel *accel = cnn_accel_get();
  int64_t size = (int64_t)cnn_dtype_size(p->dtype), a, b, c;
  int64_t calls = p->n_outer ? p->outer_count / p->outer[0].size : 1;
  for (int64_t i = 0; accel && i < calls; i++) {
    cnn_product_offsets(p->outer, 1, p->n_outer, i, &a, &b, &c);
    void *args[] = {(void *)(uintptr_t)(p->a + a * size), (void *)(uintptr_t)(p->b + b * size),
                    (void *)(uintptr_t)p->bias, p->c + c * size};
    if (!accel->run(plan, args, scratch)) return false;
  }
  return accel != NULL;
}

// ---------------------------------------------------------------------------------------------
// One matrix of the batch

typedef struct matrix {
  const void *data;
  int64_t rs, cs;
} matrix;

static void multiply(const cnn_product *p, matrix a, matrix b, double beta, void *c, int64_t c_rs,
                     void *scratch) {
  if (p->dtype == CNN_F64)
    cnn_gemm_f64(p->m, p->n, p->k, p->alpha, a.data, a.rs, a.cs, b.data, b.rs, b.cs, beta, c, c_rs,
                 1, scratch);
  else
    cnn_gemm_f32(p->m, p->n, p->k, (float)p->alpha, a.data, a.rs, a.cs, b.data, b.rs, b.cs,
                 (float)beta, c, c_rs, 1, scratch);
}

// A half matrix as float, dense, in the order in which it lies.
static matrix widen(cnn_dtype dtype, const cnn_f16 *data, int64_t rows, int64_t cols, int64_t rs,
                    int64_t cs, float *to) {
  matrix m = {to, cols, 1};
  if (cs != 1 && rs == 1) {
    m.rs = 1, m.cs = rows;
    for (int64_t j = 0; j < cols; j++)
      cnn_convert(rows, dtype, data + j * cs, CNN_F32, to + j * rows);
  } else if (cs == 1) {
    for (int64_t i = 0; i < rows; i++)
      cnn_convert(cols, dtype, data + i * rs, CNN_F32, to + i * cols);
  } else {
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < cols; j++)
        cnn_convert(1, dtype, data + i * rs + j * cs, CNN_F32, to + i * cols + j);
  }
  return m;
}

// Integers: in unsigned arithmetic of 64 bits, whose low bits are those of any narrower one.
#define INTEGERS(T)                                                                                \
  do {                                                                                             \
    const T *x = (const T *)a.data, *y = (const T *)b.data;                                        \
    T *z = (T *)c;                                                                                 \
    uint64_t alpha = (uint64_t)(int64_t)p->alpha, scale = (uint64_t)(int64_t)beta;                 \
    for (int64_t i = 0; i < p->m; i++, x += a.rs, z += c_rs) {                                     \
      for (int64_t j = 0; j < p->n; j++) z[j] = (T)(scale ? scale * (uint64_t)z[j] : 0);           \
      for (int64_t q = 0; q < p->k; q++) {                                                         \
        const uint64_t v = alpha * (uint64_t)x[q * a.cs];                                          \
        const T *row = y + q * b.rs;                                                               \
        for (int64_t j = 0; j < p->n; j++)                                                         \
          z[j] = (T)((uint64_t)z[j] + v * (uint64_t)row[j * b.cs]);                                \
      }                                                                                            \
    }                                                                                              \
  } while (0)

static void multiply_integers(const cnn_product *p, matrix a, matrix b, double beta, void *c,
                              int64_t c_rs) {
  switch (p->dtype) {
  case CNN_I64: INTEGERS(int64_t); break;
  case CNN_I32: INTEGERS(int32_t); break;
  case CNN_I16: INTEGERS(int16_t); break;
  case CNN_I8: INTEGERS(int8_t); break;
  default: INTEGERS(uint8_t); break;
  }
}

// What C holds before the products are added.
static void fill_rows(const cnn_product *p, void *c) {
  size_t row = (size_t)p->n * cnn_dtype_size(p->dtype);
  for (int64_t i = 0; i < p->m; i++)
    memcpy((char *)c + (size_t)(i * p->c_rs) * cnn_dtype_size(p->dtype), p->bias, row);
}

// Scratch of one matrix product: for half types A, B and C as floats, then what the product needs.
static size_t own_scratch(const cnn_product *p) {
  if (!cnn_dtype_is_float(p->dtype)) return 0;
  size_t need = cnn_align(cnn_gemm_scratch(p->dtype == CNN_F64 ? 8 : 4, p->m, p->n, p->k));
  if (!cnn_dtype_is_half(p->dtype)) return need;
  return need + cnn_align((size_t)(p->m * p->k) * 4) + cnn_align((size_t)(p->k * p->n) * 4) +
         cnn_align((size_t)(p->m * p->n) * 4);
}

static void one_half(const cnn_product *p, int64_t a_at, int64_t b_at, cnn_f16 *c, char *scratch) {
  float *fa = (float *)(void *)scratch;
  scratch += cnn_align((size_t)(p->m * p->k) * 4);
  float *fb = (float *)(void *)scratch;
  scratch += cnn_align((size_t)(p->k * p->n) * 4);
  float *fc = (float *)(void *)scratch;
  scratch += cnn_align((size_t)(p->m * p->n) * 4);
  for (int64_t i = 0; p->beta != 0 && i < p->m; i++)
    cnn_convert(p->n, p->dtype, c + i * p->c_rs, CNN_F32, fc + i * p->n);
  for (int64_t s = 0; s < p->sum_count; s++) {
    int64_t a, b, unused;
    cnn_product_offsets(p->sum, 0, p->n_sum, s, &a, &b, &unused);
    a += a_at, b += b_at;
    matrix ma =
        widen(p->dtype, (const cnn_f16 *)(const void *)p->a + a, p->m, p->k, p->a_rs, p->a_cs, fa);
    matrix mb =
        widen(p->dtype, (const cnn_f16 *)(const void *)p->b + b, p->k, p->n, p->b_rs, p->b_cs, fb);
    multiply(p, ma, mb, s == 0 ? p->beta : 1, fc, p->n, scratch);
  }
  for (int64_t i = 0; i < p->m; i++)
    cnn_convert(p->n, CNN_F32, fc + i * p->n, p->dtype, c + i * p->c_rs);
}

// Matrix `at` of the batch.
static void one(const void *arg, int64_t at, char *scratch) {
  const cnn_product *p = arg;
  int64_t a_at, b_at, c_at, a, b, unused, size = (int64_t)cnn_dtype_size(p->dtype);
  cnn_product_offsets(p->outer, 0, p->n_outer, at, &a_at, &b_at, &c_at);
  char *c = p->c + c_at * size;
  if (p->bias) fill_rows(p, c);
  if (cnn_dtype_is_half(p->dtype)) {
    one_half(p, a_at, b_at, (cnn_f16 *)(void *)c, scratch);
    return;
  }
  for (int64_t s = 0; s < p->sum_count; s++) {
    cnn_product_offsets(p->sum, 0, p->n_sum, s, &a, &b, &unused);
    matrix ma = {p->a + (a_at + a) * size, p->a_rs, p->a_cs};
    matrix mb = {p->b + (b_at + b) * size, p->b_rs, p->b_cs};
    double beta = s == 0 ? p->beta : 1;
    if (cnn_dtype_is_float(p->dtype))
      multiply(p, ma, mb, beta, c, p->c_rs, scratch);
    else
      multiply_integers(p, ma, mb, beta, c, p->c_rs);
  }
}

// ---------------------------------------------------------------------------------------------
// Kernels

// Small matrices one by one in parallel, large ones one after the other, each in parallel.
static void plan_batch(const cnn_product *p, cnn_tasks *t) {
  int64_t threads = cnn_num_threads();
  if (p->outer_count < threads && work(p) >= 2 * THREAD_LEAST) threads = 1;
  cnn_tasks_plan(t, p->outer_count, own_scratch(p));
  if (threads == 1 || work(p) * (double)p->outer_count < 2 * THREAD_LEAST) t->slots = 1;
}

static cnn_status plan_product(cnn_call *call) {
  cnn_product p;
  cnn_tasks t;
  size_t own, accel = 0;
  if (cnn_view_numel(&call->out[0]) == 0) return CNN_OK;
  cnn_product_make(call, &p);
  plan_batch(&p, &t);
  own = cnn_tasks_bytes(&t);
  call->handle = accel_plan(&p, &accel);
  call->way = call->handle ? WAY_ACCEL : WAY_OWN;
  call->scratch_bytes = own > accel ? own : accel;
  return CNN_OK;
}

static cnn_status run_product(cnn_call *call) {
  cnn_product p;
  cnn_tasks t;
  if (cnn_view_numel(&call->out[0]) == 0) return CNN_OK;
  cnn_product_make(call, &p);
  if (call->way == WAY_ACCEL && accel_run(&p, call->handle, call->scratch)) return CNN_OK;
  if (p.start && !p.bias) cnn_copy_view(&call->out[0], p.start);
  plan_batch(&p, &t);
  t.fn = one, t.arg = &p, t.scratch = call->scratch;
  cnn_tasks_run(&t, t.slots > 1);
  return CNN_OK;
}

const cnn_kernel cpu_matmul = {plan_product, run_product, NULL};
const cnn_kernel cpu_matmul_to = {plan_product, run_product, NULL};
const cnn_kernel cpu_addmm = {plan_product, run_product, NULL};
const cnn_kernel cpu_baddbmm = {plan_product, run_product, NULL};
const cnn_kernel cpu_linear = {plan_product, run_product, NULL};
