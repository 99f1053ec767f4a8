// SPDX-License-Identifier: MIT
// The functions of cpu/vmath.h against libm in the next larger type.
//
//   vmath_test          every 1009th float, and the neighbourhoods of the special ones
//   vmath_test 1        every float (an hour)
//   vmath_test bench    time per element against libm
//
// Each function runs twice: in a loop with CNN_CLONES, and in one for the baseline instruction set,
// which on x86-64 has no fused multiply-add.
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/clones.h"
#include "cpu/vmath.h"

static int passed, failed;

static void check(bool ok, const char *what) {
  if (ok) {
    passed++;
  } else {
    failed++;
    printf("FAIL %s\n", what);
  }
}

static double sigmoid64(double x) {
  return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}
static double softplus64(double x) {
  return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}
static float sigmoidf(float x) {
  return 1 / (1 + expf(-x));
}
static float softplusf(float x) {
  return log1pf(expf(x));
}

// name, reference in double, libm in float (for the time), bound in ulp as in vmath.h.
#define FUNCTIONS(X)                                                                               \
  X(v_exp, exp, expf, 1.1)                                                                         \
  X(v_exp2, exp2, exp2f, 1.1)                                                                      \
  X(v_expm1, expm1, expm1f, 1.5)                                                                   \
  X(v_log, log, logf, 1.0)                                                                         \
  X(v_log2, log2, log2f, 1.4)                                                                      \
  X(v_log10, log10, log10f, 1.2)                                                                   \
  X(v_log1p, log1p, log1pf, 1.5)                                                                   \
  X(v_tanh, tanh, tanhf, 1.4)                                                                      \
  X(v_sigmoid, sigmoid64, sigmoidf, 1.6)                                                           \
  X(v_softplus, softplus64, softplusf, 1.8)                                                        \
  X(v_erf, erf, erff, 1.3)                                                                         \
  X(v_erfc, erfc, erfcf, 0.6)                                                                      \
  X(v_sin, sin, sinf, 1.6)                                                                         \
  X(v_cos, cos, cosf, 1.6)

static long double sigmoid80(long double x) {
  return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

#define FUNCTIONS64(X)                                                                             \
  X(v_exp_f64, expl, exp, 1.1)                                                                     \
  X(v_expm1_f64, expm1l, expm1, 1.9)                                                               \
  X(v_log_f64, logl, log, 0.8)                                                                     \
  X(v_tanh_f64, tanhl, tanh, 2.3)                                                                  \
  X(v_sigmoid_f64, sigmoid80, sigmoid64, 2.2)

#define N 4096

// noinline: inlined into their callers, they would lose their clones.
#define LOOP(name, f, T, attributes)                                                               \
  attributes static __attribute__((noinline)) void name(int64_t n, const T *x, T *y) {             \
    for (int64_t i = 0; i < n; i++) y[i] = f(x[i]);                                                \
  }
#define LOOPS32(f, reference, libm, bound)                                                         \
  LOOP(clones_##f, f, float, CNN_CLONES)                                                           \
  LOOP(plain_##f, f, float, )                                                                      \
  LOOP(libm_##f, libm, float, )
#define LOOPS64(f, reference, libm, bound)                                                         \
  LOOP(clones_##f, f, double, CNN_CLONES)                                                          \
  LOOP(plain_##f, f, double, )                                                                     \
  LOOP(libm_##f, libm, double, )
FUNCTIONS(LOOPS32)
FUNCTIONS64(LOOPS64)

CNN_CLONES static __attribute__((noinline)) void clones_pow(int64_t n, const float *x,
                                                            const float *y, float *z) {
  for (int64_t i = 0; i < n; i++) z[i] = v_pow(x[i], y[i]);
}
static __attribute__((noinline)) void plain_pow(int64_t n, const float *x, const float *y,
                                                float *z) {
  for (int64_t i = 0; i < n; i++) z[i] = v_pow(x[i], y[i]);
}
static __attribute__((noinline)) void libm_pow(int64_t n, const float *x, const float *y,
                                               float *z) {
  for (int64_t i = 0; i < n; i++) z[i] = powf(x[i], y[i]);
}

// ---- Errors

// Of y against the exact r, in units of the last place that a float near r has; infinity when a
// special value or the sign of a zero is wrong.
static double ulps(float y, double r) {
  if (isnan(r)) return isnan(y) ? 0 : INFINITY;
  if (isinf(r) || isinf(y)) {
    if (isinf(r) && isinf(y)) return (r > 0) == (y > 0) ? 0 : INFINITY;
    // Either is the right rounding of the other, or an overflow is off by less than an ulp.
    if (isinf(y) && fabs(r) > (double)FLT_MAX * (1 - 0x1p-24) && (r > 0) == (y > 0)) return 0.5;
    return isinf(r) ? INFINITY : fabs(r) > (double)FLT_MAX ? 1 : INFINITY;
  }
  if (isnan(y)) return INFINITY;
  if (r == 0) return y == 0 && !signbit(y) == !signbit(r) ? 0 : INFINITY;
  int e;
  frexp(r, &e);
  return fabs((double)y - r) / ldexp(1, e - 24 > -149 ? e - 24 : -149);
}

static double ulps64(double y, long double r) {
  if (isnan(r)) return isnan(y) ? 0 : INFINITY;
  if (isinf(r) || isinf(y)) {
    if (isinf(r) && isinf(y)) return (r > 0) == (y > 0) ? 0 : INFINITY;
    return fabsl(r) > (long double)DBL_MAX * (1 - 0x1p-53L) ? 1 : INFINITY;
  }
  if (isnan(y)) return INFINITY;
  if (r == 0) return y == 0 && !signbit(y) == !signbit(r) ? 0 : INFINITY;
  int e;
  frexpl(r, &e);
  return (double)(fabsl((long double)y - r) / ldexpl(1, e - 53 > -1074 ? e - 53 : -1074));
}

typedef void (*loop32)(int64_t, const float *, float *);
typedef void (*loop64)(int64_t, const double *, double *);

typedef struct worst {
  double ulps, x;
} worst;

static void note(worst *w, double error, double x) {
  if (!(error <= w->ulps)) *w = (worst){error, x};
}

static void try32(const float *x, int64_t n, double (*reference)(double), const loop32 loops[2],
                  worst w[2]) {
  static float y[2][N];
  for (int k = 0; k < 2; k++) loops[k](n, x, y[k]);
  for (int64_t i = 0; i < n; i++) {
    double r = reference((double)x[i]);
    for (int k = 0; k < 2; k++) note(&w[k], ulps(y[k][i], r), (double)x[i]);
  }
}

static void report(const char *name, const worst w[2], double bound) {
  printf("%-14s clones %.3f ulp at %a, plain %.3f at %a\n", name, w[0].ulps, w[0].x, w[1].ulps,
         w[1].x);
  check(w[0].ulps <= bound && w[1].ulps <= bound, name);
}

static void sweep32(const char *name, double (*reference)(double), const loop32 loops[2],
                    double bound, uint32_t stride) {
  static float x[N];
  worst w[2] = {{0, 0}, {0, 0}};
  int64_t n = 0;
  // The floats around each power of two, the special ones and the subnormals among them.
  for (uint32_t e = 0; e < 512; e++) {
    for (uint32_t k = 0; k < 64; k++) {
      x[n++] = cnn_bits_float((e << 23) + k - 32);
      if (n == N) try32(x, n, reference, loops, w), n = 0;
    }
  }
  for (uint64_t u = 0; u < UINT64_C(1) << 32; u += stride) {
    x[n++] = cnn_bits_float((uint32_t)u);
    if (n == N) try32(x, n, reference, loops, w), n = 0;
  }
  try32(x, n, reference, loops, w);
  report(name, w, bound);
}

static uint64_t state = 88172645463325252u;
static uint64_t next(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

static void sweep64(const char *name, long double (*reference)(long double), const loop64 loops[2],
                    double bound) {
  static double x[N], y[N];
  worst w[2] = {{0, 0}, {0, 0}};
  for (int round = 0; round < 256; round++) {
    for (int i = 0; i < N; i++) {
      uint64_t u = next();
      // Any bit pattern, powers of two and their neighbours, and [-32, 32] and [-800, 800].
      x[i] = round % 4 == 0   ? v_from_bits64(u)
             : round % 4 == 1 ? v_from_bits64((u & 0xFFF0000000000000u) + (u & 7) - 4)
             : round % 4 == 2 ? ((double)(u >> 11) * 0x1p-53 - 0.5) * 64
                              : ((double)(u >> 11) * 0x1p-53 - 0.5) * 1600;
    }
    for (int k = 0; k < 2; k++) {
      loops[k](N, x, y);
      for (int i = 0; i < N; i++) note(&w[k], ulps64(y[i], reference((long double)x[i])), x[i]);
    }
  }
  report(name, w, bound);
}

static void test_pow(double bound) {
  static float x[N], y[N], z[N];
  static const float special[] = {0,         -0.0f,      1,
                                  -1,        2,          -2,
                                  3,         -3,         0.5f,
                                  -0.5f,     1.5f,       -1.5f,
                                  INFINITY,  NAN,        -INFINITY,
                                  FLT_MAX,   -FLT_MAX,   FLT_MIN,
                                  1e-45f,    -1e-45f,    16777215,
                                  -16777215, 16777216,   33554436,
                                  0x1p31f,   -0x1p31f,   1 + FLT_EPSILON,
                                  127,       -149,       -150,
                                  0x1p-149f, 5e-39f,     128,
                                  -126,      8388607.5f, -8388608};
  const int count = (int)(sizeof special / sizeof *special);
  void (*const loops[2])(int64_t, const float *, const float *, float *) = {clones_pow, plain_pow};
  worst w[2] = {{0, 0}, {0, 0}};
  for (int round = 0; round < 1024; round++) {
    for (int i = 0; i < N; i++) {
      uint64_t u = next();
      x[i] = cnn_bits_float((uint32_t)u), y[i] = cnn_bits_float((uint32_t)(u >> 32));
      if (round == 0 && i < count * count) {
        x[i] = special[i / count], y[i] = special[i % count];
      } else if (round % 4 == 1) { // results over the whole range, x > 0
        x[i] = v_abs(x[i]);
        y[i] = (float)(((double)(u >> 40) * 0x1p-24 - 0.5) * 310 / log2((double)x[i]));
      } else if (round % 4 == 2) { // x near 1
        x[i] = 1 + (float)((int)(u & 0xFFFF) - 0x8000) * 0x1p-18f;
        y[i] = (float)((int)(u >> 40) - (1 << 23)) * 0x1p-8f;
      } else if (round % 4 == 3) { // whole exponents
        y[i] = (float)((int)(u >> 58) - 32);
      }
    }
    for (int k = 0; k < 2; k++) {
      loops[k](N, x, y, z);
      for (int i = 0; i < N; i++) {
        double error = ulps(z[i], pow((double)x[i], (double)y[i]));
        if (error > bound) printf("pow(%a, %a) = %a\n", (double)x[i], (double)y[i], (double)z[i]);
        note(&w[k], error, (double)x[i]);
      }
    }
  }
  report("v_pow", w, bound);
}

// ---- Time

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define BEST(best, loop)                                                                           \
  double best = INFINITY;                                                                          \
  for (int r = 0; r < 300; r++) {                                                                  \
    double t = now();                                                                              \
    loop;                                                                                          \
    t = (now() - t) / N;                                                                           \
    best = t < best ? t : best;                                                                    \
  }

static void bench(void) {
  static float x[N], y[N], e[N];
  static double xd[N], yd[N];
  for (int i = 0; i < N; i++) {
    xd[i] = ((double)(next() >> 11) * 0x1p-53) * 8 - 4;
    x[i] = (float)xd[i], e[i] = (float)(next() >> 40) * 0x1p-22f;
  }
  printf("ns per element, x in [-4, 4]:  clones, baseline, libm\n");
#define BENCH(f, xs, ys)                                                                           \
  {                                                                                                \
    BEST(clones, clones_##f(N, xs, ys))                                                            \
    BEST(plain, plain_##f(N, xs, ys))                                                              \
    BEST(libm, libm_##f(N, xs, ys))                                                                \
    printf("%-14s %6.3f %6.3f %7.3f\n", #f, clones, plain, libm);                                  \
  }
#define BENCH32(f, reference, libm, bound) BENCH(f, x, y)
#define BENCH64(f, reference, libm, bound) BENCH(f, xd, yd)
  FUNCTIONS(BENCH32)
  FUNCTIONS64(BENCH64)
  for (int i = 0; i < N; i++) x[i] = v_abs(x[i]);
  BEST(clones, clones_pow(N, x, e, y))
  BEST(plain, plain_pow(N, x, e, y))
  BEST(libm, libm_pow(N, x, e, y))
  printf("%-14s %6.3f %6.3f %7.3f\n", "v_pow", clones, plain, libm);
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "bench") == 0) {
    bench();
    return 0;
  }
  uint32_t stride = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
  if (stride == 0) stride = 1009;
#define SWEEP32(f, reference, libm, bound)                                                         \
  sweep32(#f, reference, (const loop32[2]){clones_##f, plain_##f}, bound, stride);
#define SWEEP64(f, reference, libm, bound)                                                         \
  sweep64(#f, reference, (const loop64[2]){clones_##f, plain_##f}, bound);
  FUNCTIONS(SWEEP32)
  FUNCTIONS64(SWEEP64)
  test_pow(0.8);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
