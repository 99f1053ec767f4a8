// SPDX-License-Identifier: MIT
// The oneDNN plugin against plain loops in double: dnnl_test path/to/cnn_dnnl.so
//
// Every case runs twice on outputs and scratch that start as NaN, with canaries behind both, so
// that an element that is not written, a read of stale scratch or a write past an end shows.
// Tolerances are relative to the sum of the absolute products, which bounds what any order of
// summation can do.
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/accel.h"

static cnn_accel accel;
static int passed, failed, refused;

// oneDNN has kernels for all of float32 on every x86-64; elsewhere refusing is right.
#ifdef __x86_64__
static const bool must_take = true;
#else
static const bool must_take = false;
#endif

static void check(bool ok, const char *what) {
  if (ok) {
    passed++;
  } else {
    failed++;
    printf("FAIL %s\n", what);
  }
}

// ---- Data: arrays of float32 or bfloat16 with a canary behind them

enum { CANARY = 64 };

typedef struct array {
  cnn_dtype dtype;
  int64_t count;
  void *data;
} array;

static uint32_t seed = 1;

static double random_value(void) {
  seed = seed * 1664525u + 1013904223u;
  return (double)(seed >> 8) / (1 << 24) - 0.5;
}

static size_t element_size(cnn_dtype t) {
  return t == CNN_F32 ? 4 : 2;
}

static double get(const array *a, int64_t i) {
  float f;
  if (a->dtype == CNN_F32) {
    memcpy(&f, (char *)a->data + 4 * i, 4);
  } else {
    uint16_t h;
    memcpy(&h, (char *)a->data + 2 * i, 2);
    uint32_t bits = (uint32_t)h << 16;
    memcpy(&f, &bits, 4);
  }
  return f;
}

static void set(array *a, int64_t i, double v) {
  float f = (float)v;
  if (a->dtype == CNN_F32) {
    memcpy((char *)a->data + 4 * i, &f, 4);
  } else {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint16_t h = (uint16_t)(bits >> 16);
    memcpy((char *)a->data + 2 * i, &h, 2);
  }
}

// All bytes 0xFF: a NaN in both types.
static array make(cnn_dtype dtype, int64_t count) {
  size_t bytes = (size_t)count * element_size(dtype);
  array a = {dtype, count, malloc(bytes + CANARY)};
  if (!a.data) abort();
  memset(a.data, 0xFF, bytes + CANARY);
  return a;
}

static array make_random(cnn_dtype dtype, int64_t count) {
  array a = make(dtype, count);
  for (int64_t i = 0; i < count; i++) set(&a, i, random_value());
  return a;
}

static bool canary_lives(const void *data, size_t bytes) {
  for (size_t i = 0; i < CANARY; i++) {
    if (((const unsigned char *)data)[bytes + i] != 0xFF) return false;
  }
  return true;
}

static bool intact(const array *a) {
  return canary_lives(a->data, (size_t)a->count * element_size(a->dtype));
}

static bool near_enough(const array *a, int64_t i, double want, double magnitude) {
  double err = fabs(get(a, i) - want);
  double tol = 2e-6 * magnitude + 1e-30;
  if (a->dtype == CNN_BF16) tol += fabs(want) / 256;
  return err <= tol;
}

static bool run_plan(cnn_accel_plan *plan, void *const *args, size_t scratch) {
  void *s = NULL;
  if (posix_memalign(&s, 64, scratch + CANARY)) abort();
  memset(s, 0xFF, scratch + CANARY);
  bool ok = accel.run(plan, args, s);
  ok = canary_lives(s, scratch) && ok;
  free(s);
  return ok;
}

// ---- Matrix products

typedef struct gemm_case {
  int64_t batch, m, n, k;
  const char *layout; // N or T for A, then B
  int64_t pad;        // added to every row stride
  bool bias;
  const char *batched; // "" or: s = strided A and B, a / b = shared A / B, c = shared B and a
                       // gap between the C, i = heads interleaved
} gemm_case;

static const gemm_case gemm_cases[] = {
    {1, 1, 1, 1, "NN", 0, false, ""},       {1, 5, 7, 3, "NN", 0, true, ""},
    {1, 64, 128, 784, "NT", 0, true, ""},   {1, 64, 10, 128, "NT", 0, true, ""},
    {1, 64, 784, 128, "NN", 0, false, ""},  {1, 128, 784, 64, "TN", 0, false, ""},
    {1, 10, 128, 64, "TN", 0, false, ""},   {1, 33, 65, 17, "TT", 0, true, ""},
    {1, 33, 65, 17, "NN", 5, true, ""},     {1, 33, 65, 17, "TT", 5, false, ""},
    {1, 1, 300, 200, "NT", 0, true, ""},    {1, 1, 300, 200, "NN", 3, false, ""},
    {1, 2, 300, 200, "NT", 0, false, ""},   {1, 4, 31, 77, "TN", 2, true, ""},
    {1, 300, 1, 200, "NN", 0, true, ""},    {1, 300, 1, 200, "TT", 1, false, ""},
    {1, 40, 50, 1, "NN", 0, true, ""},      {1, 256, 256, 256, "NN", 0, false, ""},
    {1, 257, 129, 300, "TN", 0, false, ""}, {1, 300, 500, 260, "TN", 0, true, ""},
    {4, 17, 19, 23, "NN", 0, true, "s"},    {4, 17, 19, 23, "NT", 3, false, "s"},
    {4, 17, 19, 23, "TN", 0, false, "s"},   {4, 17, 19, 23, "TT", 0, false, "a"},
    {4, 17, 19, 23, "NN", 0, true, "a"},    {4, 17, 19, 23, "NT", 0, true, "b"},
    {4, 17, 19, 23, "TN", 0, false, "b"},   {6, 1, 64, 48, "NT", 0, true, "b"},
    {6, 1, 64, 48, "NN", 0, false, "s"},    {6, 32, 32, 16, "NT", 0, false, "i"},
    {6, 32, 16, 32, "NN", 0, false, "i"},   {8, 64, 48, 80, "NT", 0, true, "s"},
    {8, 64, 64, 64, "TN", 0, false, "i"},   {300, 2, 40, 50, "NN", 0, true, "b"},
    {1, 40, 300, 2100, "TN", 0, true, ""},  {2, 128, 64, 64, "NN", 3, false, "a"},
    {4, 17, 19, 23, "NN", 0, true, "c"},    {4, 1, 19, 23, "NT", 0, false, "c"},
    {3, 1, 1, 1, "NN", 0, false, "s"},
};

static void fill_gemm(const gemm_case *c, cnn_dtype dtype, cnn_dtype bias_dtype,
                      cnn_accel_gemm *d) {
  bool heads = *c->batched == 'i';
  int64_t step = heads ? c->batch : 1;
  *d = (cnn_accel_gemm){.dtype = dtype,
                        .bias_dtype = bias_dtype,
                        .bias = c->bias,
                        .batch = c->batch,
                        .m = c->m,
                        .n = c->n,
                        .k = c->k};
  int64_t a_inner = c->layout[0] == 'N' ? c->k : c->m, a_outer = c->layout[0] == 'N' ? c->m : c->k;
  int64_t b_inner = c->layout[1] == 'N' ? c->n : c->k, b_outer = c->layout[1] == 'N' ? c->k : c->n;
  int64_t a_ld = (a_inner + c->pad) * step, b_ld = (b_inner + c->pad) * step;
  d->a_rs = c->layout[0] == 'N' ? a_ld : 1;
  d->a_cs = c->layout[0] == 'N' ? 1 : a_ld;
  d->b_rs = c->layout[1] == 'N' ? b_ld : 1;
  d->b_cs = c->layout[1] == 'N' ? 1 : b_ld;
  d->c_rs = (c->n + c->pad) * step;
  d->a_bs = heads ? a_inner + c->pad : a_outer * a_ld;
  d->b_bs = heads ? b_inner + c->pad : b_outer * b_ld;
  d->c_bs = heads ? c->n + c->pad : c->m * d->c_rs;
  if (*c->batched == 'a') d->a_bs = 0;
  if (*c->batched == 'b' || *c->batched == 'c') d->b_bs = 0;
  if (*c->batched == 'c') d->c_bs += 7;
}

static int64_t last(int64_t batch, int64_t bs, int64_t rows, int64_t rs, int64_t cols, int64_t cs) {
  return (batch - 1) * bs + (rows - 1) * rs + (cols - 1) * cs + 1;
}

// Compares C to A B + bias; elements of C between the rows must still be NaN.
static bool gemm_right(const cnn_accel_gemm *d, const array *a, const array *b, const array *bias,
                       const array *c) {
  bool ok = intact(c);
  bool *seen = calloc((size_t)c->count, sizeof *seen);
  if (!seen) abort();
  for (int64_t t = 0; t < d->batch; t++) {
    for (int64_t i = 0; i < d->m; i++) {
      for (int64_t j = 0; j < d->n; j++) {
        double sum = d->bias ? get(bias, j) : 0, magnitude = fabs(sum);
        for (int64_t l = 0; l < d->k; l++) {
          double p = get(a, t * d->a_bs + i * d->a_rs + l * d->a_cs) *
                     get(b, t * d->b_bs + l * d->b_rs + j * d->b_cs);
          sum += p;
          magnitude += fabs(p);
        }
        int64_t at = t * d->c_bs + i * d->c_rs + j;
        seen[at] = true;
        ok = near_enough(c, at, sum, magnitude) && ok;
      }
    }
  }
  for (int64_t i = 0; i < c->count; i++) {
    if (!seen[i]) ok = isnan(get(c, i)) && ok;
  }
  free(seen);
  return ok;
}

static void test_gemm(const gemm_case *g, cnn_dtype dtype, cnn_dtype bias_dtype, int threads) {
  cnn_accel_gemm d;
  fill_gemm(g, dtype, bias_dtype, &d);
  char what[128];
  snprintf(what, sizeof what, "gemm %s%s %dx%dx%dx%d %s pad %d%s batch '%s' threads %d",
           dtype == CNN_F32 ? "f32" : "bf16", bias_dtype == CNN_F32 ? "" : " bf16 bias",
           (int)g->batch, (int)g->m, (int)g->n, (int)g->k, g->layout, (int)g->pad,
           g->bias ? " bias" : "", g->batched, threads);
  size_t scratch = 0;
  cnn_accel_plan *plan = accel.gemm(&d, threads, &scratch);
  if (!plan) {
    refused++;
    printf("refused: %s\n", what);
    if (must_take) check(dtype != CNN_F32, what);
    return;
  }
  array a = make_random(dtype, last(d.batch, d.a_bs, d.m, d.a_rs, d.k, d.a_cs));
  array b = make_random(dtype, last(d.batch, d.b_bs, d.k, d.b_rs, d.n, d.b_cs));
  array bias = make_random(bias_dtype, d.n);
  for (int pass = 0; pass < 2; pass++) {
    array c = make(dtype, last(d.batch, d.c_bs, d.m, d.c_rs, d.n, 1));
    void *args[] = {a.data, b.data, g->bias ? bias.data : NULL, c.data};
    check(run_plan(plan, args, scratch) && gemm_right(&d, &a, &b, &bias, &c), what);
    free(c.data);
  }
  free(a.data);
  free(b.data);
  free(bias.data);
}

// ---- Convolutions

typedef struct conv_case {
  int n, c, h, w, k, r, s, groups;
  int stride[2], dilation[2], before[2], after[2];
} conv_case;

static const conv_case conv_cases[] = {
    // n, c, h, w, k, r, s, groups, stride, dilation, padding before, after
    {2, 1, 12, 12, 32, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}},  // first layer
    {2, 3, 15, 17, 16, 7, 7, 1, {2, 2}, {1, 1}, {3, 3}, {3, 3}},  // stem
    {1, 32, 8, 8, 64, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}},   // N = 1
    {3, 16, 9, 7, 24, 3, 3, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}},   //
    {2, 5, 9, 9, 7, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}},     // odd channels
    {2, 17, 8, 8, 33, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}},   //
    {2, 16, 8, 8, 32, 1, 1, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}},   // 1x1
    {2, 16, 9, 9, 32, 1, 1, 1, {2, 2}, {1, 1}, {0, 0}, {0, 0}},   //
    {2, 20, 7, 7, 12, 1, 1, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}},   //
    {2, 16, 10, 10, 16, 3, 3, 1, {2, 2}, {1, 1}, {1, 1}, {1, 1}}, // (10 + 2 - 3) % 2 = 1
    {2, 16, 11, 12, 16, 3, 2, 1, {3, 3}, {1, 1}, {0, 0}, {0, 0}}, // remainders 2 and 1
    {2, 8, 10, 10, 8, 5, 5, 1, {4, 3}, {1, 1}, {2, 1}, {2, 1}},   //
    {2, 16, 12, 12, 16, 3, 3, 1, {1, 1}, {2, 2}, {2, 2}, {2, 2}}, // dilation
    {2, 16, 13, 13, 16, 3, 3, 1, {2, 2}, {2, 3}, {2, 2}, {2, 2}}, // with a stride
    {2, 16, 9, 9, 16, 3, 3, 1, {1, 1}, {1, 1}, {0, 0}, {1, 2}},   // asymmetric
    {2, 8, 9, 9, 8, 4, 4, 1, {2, 2}, {1, 1}, {1, 0}, {2, 3}},     //
    {2, 16, 9, 9, 16, 2, 2, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}},   // even kernel, "same"
    {2, 32, 8, 8, 32, 3, 3, 2, {1, 1}, {1, 1}, {1, 1}, {1, 1}},   // groups
    {2, 24, 8, 8, 12, 3, 3, 4, {1, 1}, {1, 1}, {1, 1}, {1, 1}},   //
    {2, 6, 8, 8, 9, 3, 3, 3, {2, 1}, {1, 1}, {1, 1}, {1, 1}},     //
    {2, 32, 8, 8, 32, 3, 3, 32, {1, 1}, {1, 1}, {1, 1}, {1, 1}},  // depthwise
    {2, 16, 9, 9, 16, 5, 5, 16, {2, 2}, {1, 1}, {2, 2}, {2, 2}},  //
    {2, 7, 9, 9, 7, 3, 3, 7, {1, 1}, {1, 1}, {1, 1}, {1, 1}},     //
    {2, 8, 9, 9, 16, 3, 3, 8, {1, 1}, {1, 1}, {1, 1}, {1, 1}},    // with a multiplier
    {2, 16, 9, 9, 16, 3, 3, 16, {1, 1}, {2, 2}, {2, 2}, {2, 2}},  // depthwise, dilated
    {2, 16, 1, 30, 32, 1, 5, 1, {1, 2}, {1, 1}, {0, 2}, {0, 2}},  // one dimension
    {2, 16, 5, 5, 16, 5, 5, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}},   // one output
    {2, 8, 3, 3, 8, 3, 3, 1, {1, 1}, {1, 1}, {2, 2}, {2, 2}},     // more padding than input
    {1, 1, 1, 1, 1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}},     //
    {2, 64, 7, 7, 128, 3, 3, 1, {2, 2}, {1, 1}, {1, 1}, {1, 1}},  //
};

typedef struct conv_data {
  cnn_accel_conv d;
  array x, w, bias, y, dx, dw, db; // y is the output gradient, too
} conv_data;

static int64_t at4(bool nhwc, int64_t c, int64_t h, int64_t w, int64_t i, int64_t j, int64_t k,
                   int64_t l) {
  return nhwc ? ((i * h + k) * w + l) * c + j : ((i * c + j) * h + k) * w + l;
}

// Visits every product of the convolution: x index, w index, y index, output channel.
typedef void (*visitor)(void *to, int64_t x, int64_t w, int64_t y);

static void visit(const cnn_accel_conv *d, visitor fn, void *to) {
  const int64_t cg = d->c / d->groups, kg = d->k / d->groups;
  for (int64_t n = 0; n < d->n; n++) {
    for (int64_t k = 0; k < d->k; k++) {
      for (int64_t p = 0; p < d->p; p++) {
        for (int64_t q = 0; q < d->q; q++) {
          int64_t y = at4(d->nhwc, d->k, d->p, d->q, n, k, p, q);
          for (int64_t c = 0; c < cg; c++) {
            for (int64_t r = 0; r < d->r; r++) {
              int64_t h = p * d->stride[0] - d->pad_before[0] + r * d->dilation[0];
              if (h < 0 || h >= d->h) continue;
              for (int64_t s = 0; s < d->s; s++) {
                int64_t w = q * d->stride[1] - d->pad_before[1] + s * d->dilation[1];
                if (w < 0 || w >= d->w) continue;
                fn(to, at4(d->nhwc, d->c, d->h, d->w, n, k / kg * cg + c, h, w),
                   ((k * cg + c) * d->r + r) * d->s + s, y);
              }
            }
          }
        }
      }
    }
  }
}

// What a direction sums: output[o] += left * right.
typedef struct sums {
  const cnn_accel_conv *d;
  const array *x, *w, *y;
  double *sum, *magnitude;
} sums;

static void add_product(void *to, int64_t x, int64_t w, int64_t y) {
  sums *s = to;
  double p = 0;
  int64_t o = 0;
  switch (s->d->direction) {
  case CNN_ACCEL_FORWARD: p = get(s->x, x) * get(s->w, w), o = y; break;
  case CNN_ACCEL_BACKWARD_DATA: p = get(s->y, y) * get(s->w, w), o = x; break;
  case CNN_ACCEL_BACKWARD_WEIGHT: p = get(s->x, x) * get(s->y, y), o = w; break;
  }
  s->sum[o] += p;
  s->magnitude[o] += fabs(p);
}

// Fills sum and magnitude with what the direction gives, by plain loops.
static void reference(const conv_data *c, double *sum, double *magnitude) {
  const cnn_accel_conv *d = &c->d;
  sums s = {d, &c->x, &c->w, &c->y, sum, magnitude};
  visit(d, add_product, &s);
  if (d->direction != CNN_ACCEL_FORWARD || !d->bias) return;
  for (int64_t i = 0; i < c->y.count; i++) {
    double b = get(&c->bias, d->nhwc ? i % d->k : i / (d->p * d->q) % d->k);
    sum[i] += b;
    magnitude[i] += fabs(b);
  }
}

static bool conv_right(const array *out, const double *sum, const double *magnitude) {
  bool ok = intact(out);
  for (int64_t i = 0; i < out->count; i++) ok = near_enough(out, i, sum[i], magnitude[i]) && ok;
  return ok;
}

static bool bias_gradient_right(const conv_data *c) {
  const cnn_accel_conv *d = &c->d;
  bool ok = intact(&c->db);
  for (int64_t k = 0; k < d->k; k++) {
    double sum = 0, magnitude = 0;
    for (int64_t n = 0; n < d->n; n++) {
      for (int64_t i = 0; i < d->p * d->q; i++) {
        double v = get(&c->y, d->nhwc ? (n * d->p * d->q + i) * d->k + k
                                      : (n * d->k + k) * d->p * d->q + i);
        sum += v;
        magnitude += fabs(v);
      }
    }
    ok = near_enough(&c->db, k, sum, magnitude) && ok;
  }
  return ok;
}

static const char *const direction_names[] = {"forward", "backward data", "backward weight"};

static void test_conv(const conv_case *v, cnn_dtype dtype, bool nhwc, bool bias, int threads) {
  conv_data c = {.d = {.dtype = dtype,
                       .bias_dtype = dtype,
                       .nhwc = nhwc,
                       .n = v->n,
                       .c = v->c,
                       .h = v->h,
                       .w = v->w,
                       .k = v->k,
                       .r = v->r,
                       .s = v->s,
                       .groups = v->groups}};
  cnn_accel_conv *d = &c.d;
  int64_t in[] = {d->h, d->w}, kernel[] = {d->r, d->s}, out[2];
  for (int i = 0; i < 2; i++) {
    d->stride[i] = v->stride[i];
    d->dilation[i] = v->dilation[i];
    d->pad_before[i] = v->before[i];
    d->pad_after[i] = v->after[i];
    out[i] =
        (in[i] + v->before[i] + v->after[i] - (kernel[i] - 1) * v->dilation[i] - 1) / v->stride[i] +
        1;
  }
  d->p = out[0];
  d->q = out[1];
  // Small work gets one thread whatever is asked for: make it large enough.
  while (threads > 1 && d->n * d->k * d->p * d->q * d->c / d->groups * d->r * d->s < 1 << 21)
    d->n *= 2;
  c.x = make_random(dtype, d->n * d->c * d->h * d->w);
  c.w = make_random(dtype, d->k * d->c / d->groups * d->r * d->s);
  c.y = make_random(dtype, d->n * d->k * d->p * d->q);
  c.bias = make_random(dtype, d->k);
  for (int direction = 0; direction < 3; direction++) {
    char what[192];
    snprintf(what, sizeof what,
             "conv %s %s%s %dx%dx%dx%d -> %d %dx%d groups %d stride %d,%d dilation %d,%d pad "
             "%d,%d %d,%d%s threads %d",
             direction_names[direction], dtype == CNN_F32 ? "f32" : "bf16", nhwc ? " nhwc" : "",
             (int)d->n, v->c, v->h, v->w, v->k, v->r, v->s, v->groups, v->stride[0], v->stride[1],
             v->dilation[0], v->dilation[1], v->before[0], v->before[1], v->after[0], v->after[1],
             bias ? " bias" : "", threads);
    d->direction = (cnn_accel_direction)direction;
    d->bias = bias && direction != CNN_ACCEL_BACKWARD_DATA;
    size_t scratch = 0;
    cnn_accel_plan *plan = accel.conv(d, threads, &scratch);
    if (!plan) {
      refused++;
      printf("refused: %s\n", what);
      if (must_take) check(dtype != CNN_F32, what);
      continue;
    }
    check(!strstr(accel.describe(plan), "ref:"), what);
    if (threads > 1) check(strstr(accel.describe(plan), "threads 2") != NULL, what);
    if (getenv("CNN_TEST_VERBOSE")) printf("%s: %s\n", what, accel.describe(plan));
    const array *like = direction == 0 ? &c.y : direction == 1 ? &c.x : &c.w;
    double *sum = calloc((size_t)like->count, sizeof *sum);
    double *magnitude = calloc((size_t)like->count, sizeof *magnitude);
    if (!sum || !magnitude) abort();
    reference(&c, sum, magnitude);
    for (int pass = 0; pass < 2; pass++) {
      c.db = make(dtype, d->k);
      array result = make(dtype, like->count);
      void *args[4] = {c.x.data, c.w.data, d->bias ? c.bias.data : NULL, result.data};
      if (direction == 1) args[0] = c.y.data, args[2] = result.data, args[3] = NULL;
      if (direction == 2) {
        args[1] = c.y.data, args[2] = result.data, args[3] = d->bias ? c.db.data : NULL;
      }
      bool ok = run_plan(plan, args, scratch) && conv_right(&result, sum, magnitude);
      if (direction == 2 && d->bias) ok = bias_gradient_right(&c) && ok;
      check(ok, what);
      free(result.data);
      free(c.db.data);
    }
    free(sum);
    free(magnitude);
  }
  free(c.x.data);
  free(c.w.data);
  free(c.y.data);
  free(c.bias.data);
}

// ---- The cache

static void test_refusals(void) {
  size_t scratch;
  cnn_accel_gemm g;
  fill_gemm(&gemm_cases[2], CNN_F32, CNN_F32, &g);
  cnn_accel_plan *plan = accel.gemm(&g, 1, &scratch);
  check(plan && accel.gemm(&g, 1, &scratch) == plan, "the same description gives the same plan");
  check(plan && accel.gemm(&g, 2, &scratch) != plan, "another thread count gives another plan");
  cnn_accel_gemm bad = g;
  bad.dtype = CNN_F64;
  check(!accel.gemm(&bad, 1, &scratch), "gemm refuses float64");
  bad = g;
  bad.k = 0;
  check(!accel.gemm(&bad, 1, &scratch), "gemm refuses an empty sum");
  bad = g;
  bad.a_cs = 2;
  check(!accel.gemm(&bad, 1, &scratch), "gemm refuses A without a unit stride");
  bad = g;
  bad.c_rs = bad.n - 1;
  check(!accel.gemm(&bad, 1, &scratch), "gemm refuses a C that overlaps itself");
  bad = g;
  bad.a_rs = 0;
  check(!accel.gemm(&bad, 1, &scratch), "gemm refuses an expanded A");
  cnn_accel_conv c = {.dtype = CNN_F32,
                      .bias_dtype = CNN_F32,
                      .n = 1,
                      .c = 4,
                      .h = 8,
                      .w = 8,
                      .k = 4,
                      .r = 3,
                      .s = 3,
                      .p = 6,
                      .q = 6,
                      .groups = 1,
                      .stride = {1, 1},
                      .dilation = {1, 1}};
  check(accel.conv(&c, 1, &scratch) != NULL, "conv takes a plain one");
  cnn_accel_conv wrong = c;
  wrong.p = 7;
  check(!accel.conv(&wrong, 1, &scratch), "conv refuses a wrong output size");
  check(!accel.conv(&wrong, 1, &scratch), "conv refuses it again");
  wrong = c;
  wrong.groups = 3;
  check(!accel.conv(&wrong, 1, &scratch), "conv refuses groups that do not divide");
  wrong = c;
  wrong.n = wrong.h = wrong.w = INT32_MAX;
  check(!accel.conv(&wrong, 1, &scratch), "conv refuses a tensor of 2^93 elements");
  wrong = c;
  wrong.dtype = CNN_I8;
  check(!accel.conv(&wrong, 1, &scratch), "conv refuses int8");
}

// Distinct small plans: only the row stride of A differs. Runs every step-th; true when all is
// right.
enum { MANY = 600 };

static bool run_many(cnn_accel_plan **plans, size_t *scratch, bool look_up, int step) {
  array b = make_random(CNN_F32, 8 * 5);
  bool ok = true;
  for (int i = 0; i < MANY; i += step) {
    cnn_accel_gemm d;
    fill_gemm(&(gemm_case){1, 8, 5, 8, "NN", 0, false, ""}, CNN_F32, CNN_F32, &d);
    d.a_rs += i;
    if (look_up) plans[i] = accel.gemm(&d, 1, &scratch[i]);
    array a = make_random(CNN_F32, 8 * d.a_rs), c = make(CNN_F32, 40);
    void *args[] = {a.data, b.data, NULL, c.data};
    ok = plans[i] && run_plan(plans[i], args, scratch[i]) && gemm_right(&d, &a, &b, NULL, &c) && ok;
    free(a.data);
    free(c.data);
  }
  free(b.data);
  return ok;
}

static void test_eviction(void) {
  static cnn_accel_plan *plans[MANY], *again[MANY];
  static size_t scratch[MANY];
  check(run_many(plans, scratch, true, 1), "more plans than programs are kept");
  check(run_many(plans, scratch, false, 100), "plans outlive their programs");
  check(run_many(again, scratch, true, 100) && again[0] == plans[0], "and are found again");
  accel.trim();
  check(run_many(plans, scratch, false, 100), "plans outlive trim");
}

// ---- Threads and processes

enum { WORKERS = 4, ROUNDS = 100 };

typedef struct worker {
  pthread_t thread;
  uint32_t mark;
  bool ok;
} worker;

static const cnn_accel_conv shared_conv = {.dtype = CNN_F32,
                                           .bias_dtype = CNN_F32,
                                           .n = 32,
                                           .c = 16,
                                           .h = 6,
                                           .w = 6,
                                           .k = 16,
                                           .r = 3,
                                           .s = 3,
                                           .p = 6,
                                           .q = 6,
                                           .groups = 1,
                                           .stride = {1, 1},
                                           .dilation = {1, 1},
                                           .pad_before = {1, 1},
                                           .pad_after = {1, 1}};

// x and w hold one value each: every inner output is 144 * value.
static bool shared_run(float value, int threads, int rounds) {
  enum { MAPS = 32 * 16, N = MAPS * 6 * 6, NW = 16 * 16 * 9 };
  float *x = malloc(sizeof(float) * N), *w = malloc(sizeof(float) * NW);
  float *y = malloc(sizeof(float) * N);
  if (!x || !w || !y) abort();
  bool ok = true;
  for (int i = 0; i < N; i++) x[i] = value;
  for (int i = 0; i < NW; i++) w[i] = 1;
  for (int i = 0; i < rounds && ok; i++) {
    size_t scratch = 0;
    cnn_accel_plan *plan = accel.conv(&shared_conv, threads, &scratch);
    void *args[] = {x, w, NULL, y};
    memset(y, 0xFF, sizeof(float) * N);
    ok = plan && run_plan(plan, args, scratch);
    for (int k = 0; k < MAPS && ok; k++)
      ok = y[k * 36 + 14] == 144 * value && y[k * 36] == 64 * value;
  }
  free(x);
  free(w);
  free(y);
  return ok;
}

static void *work(void *arg) {
  worker *me = arg;
  me->ok = shared_run((float)me->mark, (int)(me->mark % 2) + 1, ROUNDS);
  return NULL;
}

static void test_threads(void) {
  worker workers[WORKERS];
  for (uint32_t i = 0; i < WORKERS; i++) {
    workers[i].mark = i + 1;
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i])) abort();
  }
  bool ok = true;
  for (int i = 0; i < WORKERS; i++) {
    pthread_join(workers[i].thread, NULL);
    ok = workers[i].ok && ok;
  }
  check(ok, "one plan runs in several threads at once");
}

static void test_fork(void) {
  check(shared_run(2, 2, 3), "before fork");
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    alarm(30); // a child that waits for its parent's workers would wait for ever
    bool ok = shared_run(3, 2, 3);
    cnn_accel_gemm d;
    fill_gemm(&gemm_cases[2], CNN_F32, CNN_F32, &d);
    d.k = 77; // a plan that the parent does not have
    size_t scratch;
    ok = accel.gemm(&d, 2, &scratch) && ok;
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a forked child computes");
  check(shared_run(4, 2, 3), "after fork");
}

static void test_thread_count_restored(void) {
  void *gomp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!gomp) return;
  void (*set_threads)(int) = NULL;
  int (*max_threads)(void) = NULL;
  *(void **)&set_threads = dlsym(gomp, "omp_set_num_threads");
  *(void **)&max_threads = dlsym(gomp, "omp_get_max_threads");
  int before = max_threads();
  set_threads(7);
  shared_run(1, 2, 1);
  check(max_threads() == 7, "the host's number of OpenMP threads is restored");
  set_threads(before);
  dlclose(gomp);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s path/to/cnn_dnnl.so\n", argv[0]);
    return 2;
  }
  setenv("GOMP_SPINCOUNT", "200", 0);
  void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!plugin) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  cnn_accel_entry entry = NULL;
  *(void **)&entry = dlsym(plugin, CNN_ACCEL_SYMBOL);
  check(entry && !entry(CNN_ACCEL_ABI + 1, &accel), "another ABI is refused");
  if (!entry || !entry(CNN_ACCEL_ABI, &accel)) {
    printf("the plugin does not open\n0 passed, 1 failed\n");
    return 1;
  }
  printf("%s\n", accel.name);
  for (int threads = 1; threads <= 2; threads++) {
    for (size_t i = 0; i < sizeof gemm_cases / sizeof *gemm_cases; i++) {
      test_gemm(&gemm_cases[i], CNN_F32, CNN_F32, threads);
      test_gemm(&gemm_cases[i], CNN_BF16, CNN_F32, threads);
      if (gemm_cases[i].bias) test_gemm(&gemm_cases[i], CNN_BF16, CNN_BF16, threads);
    }
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++) {
      // With two threads the cases are large: every other one in each layout.
      for (int nhwc = 0; nhwc < 2; nhwc++) {
        if (threads > 1) {
          if ((int)(i % 2) == nhwc) test_conv(&conv_cases[i], CNN_F32, nhwc, true, threads);
          continue;
        }
        test_conv(&conv_cases[i], CNN_F32, nhwc, true, threads);
        test_conv(&conv_cases[i], CNN_BF16, nhwc, true, threads);
        test_conv(&conv_cases[i], CNN_F32, nhwc, false, threads);
      }
    }
  }
  test_refusals();
  test_thread_count_restored();
  test_threads();
  test_fork();
  test_eviction();
  dlclose(plugin); // must leave the code of sleeping workers where it is
  if (refused) printf("%d refused\n", refused);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
