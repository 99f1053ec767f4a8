// SPDX-License-Identifier: MIT
// Kernels of ops/random.c. A piece of elements has its counters, words and numbers in turn, each a
// loop that vectorises; strides and dtypes are the driver's.
#include "cpu/cpu.h"
#include "cpu/elementwise.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "cpu/clones.h"
#include "cpu/philox.h"
#include "cpu/vmath.h"
#include "engine/fault.h"

#define PIECE CNN_PHILOX_PIECE

typedef struct draw draw;

// out[0..n) from the words (and in[0..n)), in the computed type.
typedef void (*draw_fn)(const draw *d, int64_t n, const cnn_philox_words *w, const void *in,
                        void *out);

struct draw {
  cnn_nest nest; // the result, the counters, and perhaps an input
  cnn_rng rng;
  draw_fn fn;
  int n_words;
  bool has_in;
  cnn_dtype stored, computed;
  // What fn needs.
  double a, b, top;
  int bits;           // of a uniform float
  uint32_t threshold; // of 24 bits: below it lies the share p of all words
  int64_t low;
  uint64_t range; // 0: all of 2^64
};

// ---------------------------------------------------------------------------------------------
// The driver

static void draw_range(void *arg, int64_t begin, int64_t end) {
  const draw *d = arg;
  int64_t offsets[PIECE];
  uint64_t counters[PIECE];
  cnn_philox_words words;
  double out_piece[PIECE], in_piece[PIECE], raw[PIECE];
  bool same = d->stored == d->computed;
  bool direct = same && cnn_nest_dense(&d->nest, 0);
  bool direct_in = same && d->has_in && cnn_nest_dense(&d->nest, 2);
  size_t size = cnn_dtype_size(d->stored);
  for (int64_t at = begin; at < end; at += PIECE) {
    int64_t n = end - at < PIECE ? end - at : PIECE;
    cnn_nest_offsets(&d->nest, 1, at, n, offsets);
    for (int64_t i = 0; i < n; i++) counters[i] = d->rng.offset + (uint64_t)offsets[i];
    cnn_philox_fill(d->rng.seed, counters, n, d->n_words, &words);
    const void *in = in_piece;
    if (direct_in) {
      in = d->nest.data[2] + (size_t)at * size;
    } else if (d->has_in) {
      cnn_nest_gather(&d->nest, 2, at, n, same ? in_piece : raw);
      if (!same) cnn_convert(n, d->stored, raw, d->computed, in_piece);
    }
    if (direct) {
      d->fn(d, n, &words, in, d->nest.data[0] + (size_t)at * size);
      continue;
    }
    d->fn(d, n, &words, in, out_piece);
    if (!same) cnn_convert(n, d->computed, out_piece, d->stored, raw);
    cnn_nest_scatter(&d->nest, 0, at, n, same ? out_piece : raw);
  }
}

static cnn_dtype computed_type(cnn_dtype t) {
  return cnn_dtype_is_half(t) ? CNN_F32 : cnn_dtype_is_float(t) ? t : CNN_I64;
}

// One function per computed type.
typedef struct row {
  draw_fn f32, f64, i64;
  int words32, words64; // words for a float, and for a double or an integer
} row;

static cnn_status run_row(draw *d, const row *r, cnn_rng rng, const cnn_view *y,
                          const cnn_view *x) {
  int64_t strides[CNN_MAX_DIMS];
  cnn_shape_strides(y->ndim, y->shape, strides);
  cnn_view counter = {NULL, y->shape, strides, y->ndim, CNN_U8};
  const cnn_view *views[] = {y, &counter, x};
  cnn_nest_make(&d->nest, y->ndim, y->shape, views, x ? 3 : 2);
  d->has_in = x != NULL;
  d->rng = rng;
  d->stored = y->dtype;
  d->computed = computed_type(y->dtype);
  d->fn = d->computed == CNN_F32 ? r->f32 : d->computed == CNN_F64 ? r->f64 : r->i64;
  d->n_words = d->computed == CNN_F32 ? r->words32 : r->words64;
  cnn_parallel_for(d->nest.numel, 1 << 14, draw_range, d);
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// Distributions

static inline double word_pair(const cnn_philox_words *w, int k, int64_t i) {
  return (double)((((uint64_t)w->v[k][i] << 32) | w->v[k + 1][i]) >> 11);
}

// low + u (high - low), kept below high, which rounding might reach. Half types have few bits, so
// u has no more: it would round up to 1.
CNN_CLONES static void uniform_f32(const draw *d, int64_t n, const cnn_philox_words *w,
                                   const void *in, void *out) {
  float *y = out, low = (float)d->a, width = (float)d->b, top = (float)d->top;
  int shift = 32 - d->bits;
  float unit = 1.0f / (float)(1 << d->bits);
  (void)in;
  for (int64_t i = 0; i < n; i++) {
    float v = low + (float)(int32_t)(w->v[0][i] >> shift) * unit * width;
    y[i] = v > top ? top : v;
  }
}
CNN_CLONES static void uniform_f64(const draw *d, int64_t n, const cnn_philox_words *w,
                                   const void *in, void *out) {
  double *y = out;
  (void)in;
  for (int64_t i = 0; i < n; i++) {
    double v = d->a + word_pair(w, 0, i) * 0x1p-53 * d->b;
    y[i] = v > d->top ? d->top : v;
  }
}
static const row uniform = {uniform_f32, uniform_f64, NULL, 1, 2};

static cnn_status fill_uniform(cnn_rng rng, const cnn_view *y, double low, double high) {
  draw d = {.a = low, .b = high - low, .top = cnn_dtype_below(y->dtype, high)};
  d.bits = y->dtype == CNN_F16 ? 11 : y->dtype == CNN_BF16 ? 8 : 24;
  if (d.top < low) d.top = low;
  return run_row(&d, &uniform, rng, y, NULL);
}

// cos(2 pi u) for u in [0, 1), which is sin(2 pi (|u - 1/2| - 1/4)): Taylor's series, with an error
// below 6e-8.
static inline float cos_turn(float u) {
  float x = (v_abs(u - 0.5f) - 0.25f) * 6.28318531f, xx = x * x;
  float p = 1.0f / 362880 - xx * (1.0f / 39916800);
  p = 1.0f / 120 - xx * (1.0f / 5040 - xx * p);
  return x - x * xx * (1.0f / 6 - xx * p);
}

// Box and Muller: one number per counter. The first uniform is never 0.
CNN_CLONES static void normal_f32(const draw *d, int64_t n, const cnn_philox_words *w,
                                  const void *in, void *out) {
  float *y = out, mean = (float)d->a, std = (float)d->b;
  (void)in;
  for (int64_t i = 0; i < n; i++) {
    float u = ((float)w->v[0][i] + 0.5f) * 0x1p-32f;
    float turn = (float)(int32_t)(w->v[1][i] >> 8) * 0x1p-24f;
    y[i] = mean + std * sqrtf(-2.0f * v_log(u)) * cos_turn(turn);
  }
}
CNN_CLONES static void normal_f64(const draw *d, int64_t n, const cnn_philox_words *w,
                                  const void *in, void *out) {
  double *y = out;
  (void)in;
  for (int64_t i = 0; i < n; i++) {
    double u = (word_pair(w, 0, i) + 0.5) * 0x1p-53;
    double angle = word_pair(w, 2, i) * (0x1p-53 * 6.283185307179586);
    y[i] = d->a + d->b * sqrt(-2 * log(u)) * cos(angle);
  }
}
static const row normal = {normal_f32, normal_f64, NULL, 2, 4};

// By inversion, from a uniform number that is never 0.
CNN_CLONES static void exponential_f32(const draw *d, int64_t n, const cnn_philox_words *w,
                                       const void *in, void *out) {
  float *y = out, scale = (float)d->a;
  (void)in;
  for (int64_t i = 0; i < n; i++)
    y[i] = -scale * v_log(((float)(int32_t)(w->v[0][i] >> 8) + 0.5f) * 0x1p-24f);
}
CNN_CLONES static void exponential_f64(const draw *d, int64_t n, const cnn_philox_words *w,
                                       const void *in, void *out) {
  double *y = out;
  (void)in;
  for (int64_t i = 0; i < n; i++) y[i] = -d->a * log((word_pair(w, 0, i) + 0.5) * 0x1p-53);
}
static const row exponential = {exponential_f32, exponential_f64, NULL, 1, 2};

static void integer_i64(const draw *d, int64_t n, const cnn_philox_words *w, const void *in,
                        void *out) {
  int64_t *y = out;
  uint64_t low = (uint64_t)d->low, range = d->range;
  (void)in;
  if (range >> 32 == 0)
    for (int64_t i = 0; i < n; i++)
      y[i] = (int64_t)(low + cnn_below_range(w->v[0][i], w->v[1][i], range & UINT32_MAX));
  else
    for (int64_t i = 0; i < n; i++)
      y[i] = (int64_t)(low + cnn_below_range(w->v[0][i], w->v[1][i], range));
}
static void integer_f32(const draw *d, int64_t n, const cnn_philox_words *w, const void *in,
                        void *out) {
  int64_t piece[PIECE];
  integer_i64(d, n, w, in, piece);
  cnn_convert(n, CNN_I64, piece, CNN_F32, out);
}
static void integer_f64(const draw *d, int64_t n, const cnn_philox_words *w, const void *in,
                        void *out) {
  int64_t piece[PIECE];
  integer_i64(d, n, w, in, piece);
  cnn_convert(n, CNN_I64, piece, CNN_F64, out);
}
static const row integer = {integer_f32, integer_f64, integer_i64, 2, 2};

// How many of the 2^24 values of a word's upper bits count as "with probability p".
static uint32_t threshold(double p) {
  return (uint32_t)ceil(p * 0x1p24);
}

#define BERNOULLI(suffix, type)                                                                    \
  CNN_CLONES static void bernoulli_##suffix(const draw *d, int64_t n, const cnn_philox_words *w,   \
                                            const void *in, void *out) {                           \
    type *y = out;                                                                                 \
    int32_t t = (int32_t)d->threshold;                                                             \
    (void)in;                                                                                      \
    for (int64_t i = 0; i < n; i++) y[i] = (int32_t)(w->v[0][i] >> 8) < t ? 1 : 0;                 \
  }
BERNOULLI(f32, float)
BERNOULLI(f64, double)
BERNOULLI(i64, int64_t)
static const row bernoulli = {bernoulli_f32, bernoulli_f64, bernoulli_i64, 1, 1};

#define EACH(suffix, type)                                                                         \
  CNN_CLONES static void each_##suffix(const draw *d, int64_t n, const cnn_philox_words *w,        \
                                       const void *in, void *out) {                                \
    type *y = out;                                                                                 \
    const type *p = in;                                                                            \
    (void)d;                                                                                       \
    for (int64_t i = 0; i < n; i++)                                                                \
      y[i] = (type)(int32_t)(w->v[0][i] >> 8) * (type)0x1p-24 < p[i] ? 1 : 0;                      \
  }
EACH(f32, float)
EACH(f64, double)
static const row each = {each_f32, each_f64, NULL, 1, 1};

#define DROPOUT(suffix, type)                                                                      \
  CNN_CLONES static void dropout_##suffix(const draw *d, int64_t n, const cnn_philox_words *w,     \
                                          const void *in, void *out) {                             \
    type *y = out, scale = (type)d->a;                                                             \
    const type *x = in;                                                                            \
    int32_t t = (int32_t)d->threshold;                                                             \
    for (int64_t i = 0; i < n; i++) {                                                              \
      type v = x[i] * scale;                                                                       \
      y[i] = (int32_t)(w->v[0][i] >> 8) < t ? 0 : v;                                               \
    }                                                                                              \
  }
DROPOUT(f32, float)
DROPOUT(f64, double)
static const row dropout = {dropout_f32, dropout_f64, NULL, 1, 1};

// ---------------------------------------------------------------------------------------------
// Kernels

static cnn_status run_rand(cnn_call *call) {
  return fill_uniform(call->rng, &call->out[0], 0, 1);
}
static cnn_status run_uniform(cnn_call *call) {
  return fill_uniform(call->rng, &call->in[0], cnn_arg_number(&call->args[1]),
                      cnn_arg_number(&call->args[2]));
}
static cnn_status run_randn(cnn_call *call) {
  draw d = {.a = 0, .b = 1};
  return run_row(&d, &normal, call->rng, &call->out[0], NULL);
}
static cnn_status run_normal(cnn_call *call) {
  draw d = {.a = cnn_arg_number(&call->args[1]), .b = cnn_arg_number(&call->args[2])};
  return run_row(&d, &normal, call->rng, &call->in[0], NULL);
}
static cnn_status run_exponential(cnn_call *call) {
  draw d = {.a = 1 / cnn_arg_number(&call->args[1])};
  return run_row(&d, &exponential, call->rng, &call->in[0], NULL);
}
static cnn_status run_bernoulli_fill(cnn_call *call) {
  draw d = {.threshold = threshold(cnn_arg_number(&call->args[1]))};
  return run_row(&d, &bernoulli, call->rng, &call->in[0], NULL);
}

static cnn_status draw_integers(cnn_call *call, int64_t low, int64_t high) {
  draw d = {.low = low, .range = (uint64_t)high - (uint64_t)low};
  return run_row(&d, &integer, call->rng, &call->out[0], NULL);
}
static cnn_status run_randint(cnn_call *call) {
  const cnn_arg *a = call->args;
  return cnn_has(a, 2) ? draw_integers(call, a[0].i, a[1].ints[0]) : draw_integers(call, 0, a[0].i);
}
static cnn_status run_randint_like(cnn_call *call) {
  const cnn_arg *a = call->args;
  return cnn_has(a, 2) ? draw_integers(call, a[1].i, a[2].i) : draw_integers(call, 0, a[1].i);
}

const cnn_kernel cpu_rand = {NULL, run_rand, NULL};
const cnn_kernel cpu_rand_like = {NULL, run_rand, NULL};
const cnn_kernel cpu_randn = {NULL, run_randn, NULL};
const cnn_kernel cpu_randn_like = {NULL, run_randn, NULL};
const cnn_kernel cpu_randint = {NULL, run_randint, NULL};
const cnn_kernel cpu_randint_like = {NULL, run_randint_like, NULL};
const cnn_kernel cpu_uniform_ = {NULL, run_uniform, NULL};
const cnn_kernel cpu_normal_ = {NULL, run_normal, NULL};
const cnn_kernel cpu_exponential_ = {NULL, run_exponential, NULL};
const cnn_kernel cpu_bernoulli_ = {NULL, run_bernoulli_fill, NULL};

// Probabilities are looked at before anything is drawn.
static cnn_status run_bernoulli(cnn_call *call) {
  const cnn_view *x = &call->in[0], *views[] = {x};
  cnn_nest nest;
  char raw[PIECE * 8];
  double piece[PIECE];
  draw d = {0};
  cnn_nest_make(&nest, x->ndim, x->shape, views, 1);
  for (int64_t at = 0; at < nest.numel; at += PIECE) {
    int64_t n = nest.numel - at < PIECE ? nest.numel - at : PIECE;
    cnn_nest_gather(&nest, 0, at, n, raw);
    cnn_convert(n, x->dtype, raw, CNN_F64, piece);
    bool good = true;
    for (int64_t i = 0; i < n; i++) good &= piece[i] >= 0 && piece[i] <= 1;
    for (int64_t i = 0; i < n && !good; i++)
      if (!(piece[i] >= 0 && piece[i] <= 1))
        return cnn_fault_raise(call->ctx,
                               &(cnn_fault){.kind = CNN_FAULT_PROBABILITY, .number = piece[i]});
  }
  return run_row(&d, &each, call->rng, &call->out[0], x);
}
const cnn_kernel cpu_bernoulli = {NULL, run_bernoulli, NULL};

static cnn_status run_dropout(cnn_call *call) {
  double p = cnn_arg_number(&call->args[1]);
  draw d = {.a = 1 / (1 - p), .threshold = threshold(p)};
  return run_row(&d, &dropout, call->rng, &call->out[0], &call->in[0]);
}
static cnn_status run_dropout_backward(cnn_call *call) {
  call->rng = (cnn_rng){(uint64_t)call->args[2].i, (uint64_t)call->args[3].i};
  return run_dropout(call);
}
const cnn_kernel cpu_dropout = {NULL, run_dropout, NULL};
const cnn_kernel cpu_dropout_backward = {NULL, run_dropout_backward, NULL};

// ---------------------------------------------------------------------------------------------
// randperm: Fisher and Yates, element i exchanged with one of the first i + 1.

static cnn_status run_randperm(cnn_call *call) {
  const cnn_view *y = &call->out[0];
  int64_t n = y->shape[0], *order = y->data;
  uint64_t counters[PIECE];
  cnn_philox_words w;
  if (y->dtype != CNN_I64) order = call->scratch;
  for (int64_t at = 0; at < n; at += PIECE) {
    int64_t m = n - at < PIECE ? n - at : PIECE;
    for (int64_t i = 0; i < m; i++) counters[i] = call->rng.offset + (uint64_t)(at + i);
    cnn_philox_fill(call->rng.seed, counters, m, 2, &w);
    for (int64_t i = 0; i < m; i++) {
      int64_t k = at + i, j = (int64_t)cnn_below_range(w.v[0][i], w.v[1][i], (uint64_t)k + 1);
      order[k] = order[j];
      order[j] = k + 1;
    }
  }
  if (y->dtype != CNN_I64) cnn_convert(n, CNN_I64, order, y->dtype, y->data);
  return CNN_OK;
}
static cnn_status plan_randperm(cnn_call *call) {
  if (call->out[0].dtype != CNN_I64)
    call->scratch_bytes = (size_t)call->out[0].shape[0] * sizeof(int64_t);
  return CNN_OK;
}
const cnn_kernel cpu_randperm = {plan_randperm, run_randperm, NULL};

// ---------------------------------------------------------------------------------------------
// multinomial. With replacement: the place of a uniform number in the running sums. Without: the
// race of exponential clocks (Efraimidis and Spirakis, 2006): the positions whose e / p are least,
// e exponential, in order.

static double uniform_at(cnn_rng rng, uint64_t i) {
  return cnn_uniform_f64(cnn_philox_at(rng.seed, rng.offset + i));
}

static cnn_status read_weights(cnn_call *call, int64_t r, double *p, int64_t *positive) {
  const cnn_view *x = &call->in[0];
  int last = x->ndim - 1;
  double sum = 0;
  *positive = 0;
  for (int64_t i = 0; i < x->shape[last]; i++) {
    int64_t offset = i * x->strides[last] + (last > 0 ? r * x->strides[0] : 0);
    p[i] = cnn_element_get(x->dtype,
                           (const char *)x->data + offset * (int64_t)cnn_dtype_size(x->dtype));
    if (!(p[i] >= 0) || isinf(p[i]))
      return cnn_fault_raise(
          call->ctx, &(cnn_fault){.kind = CNN_FAULT_WEIGHT, .row = r, .at = i, .number = p[i]});
    sum += p[i];
    *positive += p[i] > 0;
  }
  if (*positive == 0 || isinf(sum))
    return cnn_fault_raise(call->ctx, &(cnn_fault){.kind = CNN_FAULT_SUM, .row = r, .number = sum});
  return CNN_OK;
}

static void draw_with_replacement(cnn_rng rng, int64_t r, int64_t n, double *p, int64_t m,
                                  int64_t *out) {
  int64_t last = 0;
  for (int64_t i = 0; i < n; i++)
    if (p[i] > 0) last = i;
  for (int64_t i = 1; i < n; i++) p[i] += p[i - 1];
  for (int64_t k = 0; k < m; k++) {
    double u = uniform_at(rng, (uint64_t)(r * m + k)) * p[n - 1];
    // The first position whose running sum exceeds u: one that adds nothing is never it.
    int64_t low = 0, high = last;
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      if (p[middle] > u)
        high = middle;
      else
        low = middle + 1;
    }
    out[k] = low + 1;
  }
}

// Keeps the m least keys in a heap with the greatest on top.
static void sift(double *key, int64_t *at, int64_t m, int64_t i) {
  for (;;) {
    int64_t child = 2 * i + 1;
    if (child >= m) return;
    if (child + 1 < m && key[at[child + 1]] > key[at[child]]) child++;
    if (key[at[child]] <= key[at[i]]) return;
    int64_t t = at[i];
    at[i] = at[child], at[child] = t;
    i = child;
  }
}

static void draw_without(cnn_rng rng, int64_t r, int64_t n, double *p, int64_t m, int64_t *out) {
  int64_t held = 0;
  for (int64_t i = 0; i < n; i++) {
    double u = uniform_at(rng, (uint64_t)(r * n + i));
    bool possible = p[i] > 0;
    p[i] = -log1p(-u) / p[i];
    if (!possible) continue;
    if (held < m) {
      out[held++] = i;
      if (held == m)
        for (int64_t k = m / 2; k >= 0; k--) sift(p, out, m, k);
    } else if (p[i] < p[out[0]]) {
      out[0] = i;
      sift(p, out, m, 0);
    }
  }
  for (int64_t k = m - 1; k >= 0; k--) {
    int64_t t = out[0];
    out[0] = out[k], out[k] = t;
    sift(p, out, k, 0);
  }
  for (int64_t k = 0; k < m; k++) out[k]++;
}

static cnn_status run_multinomial(cnn_call *call) {
  const cnn_view *x = &call->in[0];
  int64_t rows = x->ndim == 1 ? 1 : x->shape[0], n = x->shape[x->ndim - 1], m = call->args[1].i;
  int64_t positive, *out = call->out[0].data;
  double *p = call->scratch;
  for (int64_t r = 0; r < rows; r++) {
    CNN_TRY(read_weights(call, r, p, &positive));
    if (call->args[2].i) {
      draw_with_replacement(call->rng, r, n, p, m, out + r * m);
      continue;
    }
    if (positive < m)
      return cnn_fault_raise(
          call->ctx, &(cnn_fault){.kind = CNN_FAULT_FEW, .value = m, .bound = positive, .row = r});
    draw_without(call->rng, r, n, p, m, out + r * m);
  }
  return CNN_OK;
}
static cnn_status plan_multinomial(cnn_call *call) {
  const cnn_view *x = &call->in[0];
  call->scratch_bytes = (size_t)x->shape[x->ndim - 1] * sizeof(double);
  return CNN_OK;
}
const cnn_kernel cpu_multinomial = {plan_multinomial, run_multinomial, NULL};
