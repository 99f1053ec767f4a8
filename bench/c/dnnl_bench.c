// SPDX-License-Identifier: MIT
// What the oneDNN plugin costs and gives: dnnl_bench path/to/cnn_dnnl.so [threads ...]
//
// Every time includes the look-up of the plan and all reorders, as the engine pays them. A figure
// is the best of many short batches: other work on the machine only adds. GF/s counts 2 operations
// per multiply and add.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/accel.h"

static cnn_accel accel;
static char *arena; // operands and scratch, one after the other
static const size_t arena_bytes = (size_t)1 << 30;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct work {
  const cnn_accel_gemm *gemm; // or
  const cnn_accel_conv *conv;
  int threads;
  bool run; // false: the look-up alone
  void *args[4], *scratch;
} work;

static cnn_accel_plan *look_up(const work *w, size_t *scratch) {
  return w->gemm ? accel.gemm(w->gemm, w->threads, scratch)
                 : accel.conv(w->conv, w->threads, scratch);
}

// Best seconds of one call.
static double measure(work *w) {
  double best = 1e9, spent = 0;
  int count = 1;
  for (int batch = 0; batch < 200 && spent < 0.4; batch++) {
    double start = now();
    for (int i = 0; i < count; i++) {
      size_t scratch;
      cnn_accel_plan *plan = look_up(w, &scratch);
      if (w->run && !accel.run(plan, w->args, w->scratch)) abort();
    }
    double t = now() - start;
    spent += t;
    if (t / count < best) best = t / count;
    if (t < 2e-3) count *= 2;
  }
  return best;
}

// Lays the operands of these sizes (in floats) into the arena.
static void lay_out(work *w, const size_t *sizes) {
  size_t at = 0;
  for (int i = 0; i < 4; i++) {
    w->args[i] = arena + at;
    at += (sizes[i] * sizeof(float) + 4095) & ~(size_t)4095;
  }
  w->scratch = arena + at;
}

static void report(const char *name, work *w, double flop) {
  size_t scratch = 0;
  double start = now();
  cnn_accel_plan *plan = look_up(w, &scratch);
  double made = now() - start;
  if (!plan) {
    printf("%-44s refused\n", name);
    return;
  }
  if (scratch > arena_bytes / 2) {
    printf("%-44s scratch of %zu bytes: skipped\n", name, scratch);
    return;
  }
  w->run = true;
  double t = measure(w);
  w->run = false;
  double found = measure(w);
  printf("%-44s %9.2f us %7.1f GF/s  find %.2f us  make %5.0f us  scratch %6zu KiB  %s\n", name,
         1e6 * t, flop / t * 1e-9, 1e6 * found, 1e6 * made, scratch >> 10, accel.describe(plan));
}

static void bench_gemm(int64_t m, int64_t n, int64_t k, cnn_dtype dtype, int threads) {
  // A linear layer x (m, k), w (n, k): y = x w' + b, dx = dy w, dw = dy' x.
  const cnn_accel_gemm all[] = {
      {.dtype = dtype,
       .bias_dtype = CNN_F32,
       .bias = true,
       .batch = 1,
       .m = m,
       .n = n,
       .k = k,
       .a_rs = k,
       .a_cs = 1,
       .b_rs = 1,
       .b_cs = k,
       .c_rs = n},
      {.dtype = dtype,
       .batch = 1,
       .m = m,
       .n = k,
       .k = n,
       .a_rs = n,
       .a_cs = 1,
       .b_rs = k,
       .b_cs = 1,
       .c_rs = k},
      {.dtype = dtype,
       .batch = 1,
       .m = n,
       .n = k,
       .k = m,
       .a_rs = 1,
       .a_cs = n,
       .b_rs = k,
       .b_cs = 1,
       .c_rs = k},
  };
  const char *const names[] = {"forward", "dx", "dw"};
  for (int i = 0; i < 3; i++) {
    const cnn_accel_gemm *d = &all[i];
    char name[64];
    snprintf(name, sizeof name, "linear %s %dx%dx%d %s", dtype == CNN_F32 ? "f32" : "bf16", (int)m,
             (int)n, (int)k, names[i]);
    work w = {.gemm = d, .threads = threads};
    const size_t sizes[] = {(size_t)(d->m * d->k), (size_t)(d->k * d->n), (size_t)d->n,
                            (size_t)(d->m * d->n)};
    lay_out(&w, sizes);
    report(name, &w, 2.0 * (double)m * (double)n * (double)k);
  }
}

static void bench_batched(int64_t batch, int64_t m, int64_t n, int64_t k, int threads) {
  cnn_accel_gemm d = {.dtype = CNN_F32,
                      .batch = batch,
                      .m = m,
                      .n = n,
                      .k = k,
                      .a_rs = k,
                      .a_cs = 1,
                      .b_rs = 1,
                      .b_cs = k,
                      .c_rs = n,
                      .a_bs = m * k,
                      .b_bs = n * k,
                      .c_bs = m * n};
  char name[64];
  snprintf(name, sizeof name, "batched f32 %dx(%dx%dx%d)", (int)batch, (int)m, (int)n, (int)k);
  work w = {.gemm = &d, .threads = threads};
  const size_t sizes[] = {(size_t)(batch * m * k), (size_t)(batch * k * n), 0,
                          (size_t)(batch * m * n)};
  lay_out(&w, sizes);
  report(name, &w, 2.0 * (double)batch * (double)m * (double)n * (double)k);
}

static void bench_conv(int64_t n, int64_t c, int64_t h, int64_t k, int64_t r, int64_t stride,
                       int64_t groups, bool nhwc, cnn_dtype dtype, int threads) {
  const char *const names[] = {"forward", "dx", "dw"};
  int64_t pad = r / 2, p = (h + 2 * pad - r) / stride + 1;
  for (int i = 0; i < 3; i++) {
    // A first layer needs no gradient of its input.
    if (i == 1 && c <= 3) continue;
    cnn_accel_conv d = {.direction = (cnn_accel_direction)i,
                        .dtype = dtype,
                        .bias_dtype = CNN_F32,
                        .bias = i != 1,
                        .nhwc = nhwc,
                        .n = n,
                        .c = c,
                        .h = h,
                        .w = h,
                        .k = k,
                        .r = r,
                        .s = r,
                        .p = p,
                        .q = p,
                        .groups = groups,
                        .stride = {stride, stride},
                        .dilation = {1, 1},
                        .pad_before = {pad, pad},
                        .pad_after = {pad, pad}};
    char name[64];
    snprintf(name, sizeof name, "conv %s%s %dx%dx%d->%d %dx%d/%d%s %s",
             dtype == CNN_F32 ? "f32" : "bf16", nhwc ? " nhwc" : "", (int)n, (int)c, (int)h, (int)k,
             (int)r, (int)r, (int)stride, groups == 1 ? "" : " dw", names[i]);
    size_t x = (size_t)(n * c * h * h), y = (size_t)(n * k * p * p);
    size_t weight = (size_t)(k * c / groups * r * r);
    const size_t sizes[3][4] = {{x, weight, (size_t)k, y},
                                {y, weight, x, 0},
                                {x, y, weight, (size_t)k}};
    work w = {.conv = &d, .threads = threads};
    lay_out(&w, sizes[i]);
    report(name, &w, 2.0 * (double)y * (double)(c / groups * r * r));
  }
}

static void bench(int threads) {
  printf("-- %d thread%s\n", threads, threads == 1 ? "" : "s");
  static const int64_t linear[][3] = {
      {1, 16, 16},    {8, 16, 16},     {8, 32, 32},     {16, 32, 32},    {32, 32, 32},
      {32, 64, 64},   {64, 64, 64},    {64, 128, 128},  {128, 128, 128}, {64, 10, 128},
      {64, 128, 784}, {128, 128, 784}, {64, 512, 784},  {256, 256, 256}, {1, 768, 768},
      {4, 768, 768},  {8, 768, 768},   {512, 512, 512}, {512, 768, 768}, {512, 3072, 768},
  };
  for (size_t i = 0; i < sizeof linear / sizeof *linear; i++) {
    bench_gemm(linear[i][0], linear[i][1], linear[i][2], CNN_F32, threads);
  }
  bench_gemm(64, 128, 784, CNN_BF16, threads);
  bench_gemm(512, 768, 768, CNN_BF16, threads);
  bench_batched(12, 64, 64, 64, threads);
  bench_batched(64, 16, 16, 16, threads);
  bench_batched(512, 8, 8, 8, threads);
  bench_batched(12, 512, 512, 64, threads);

  static const int64_t conv[][7] = {
      // n, c, h, k, r, stride, groups
      {1, 1, 8, 8, 3, 1, 1},      {1, 8, 8, 8, 3, 1, 1},      {1, 1, 28, 32, 3, 1, 1},
      {1, 32, 14, 64, 3, 1, 1},   {8, 16, 14, 16, 3, 1, 1},   {64, 1, 28, 32, 3, 1, 1},
      {64, 32, 14, 64, 3, 1, 1},  {64, 32, 28, 64, 3, 1, 1},  {128, 1, 28, 32, 3, 1, 1},
      {128, 32, 14, 64, 3, 1, 1}, {8, 64, 56, 64, 3, 1, 1},   {8, 3, 224, 64, 7, 2, 1},
      {8, 64, 56, 64, 1, 1, 1},   {8, 256, 14, 256, 3, 1, 1}, {8, 64, 56, 64, 3, 1, 64},
  };
  for (size_t i = 0; i < sizeof conv / sizeof *conv; i++) {
    const int64_t *v = conv[i];
    bench_conv(v[0], v[1], v[2], v[3], v[4], v[5], v[6], false, CNN_F32, threads);
  }
  bench_conv(64, 1, 28, 32, 3, 1, 1, true, CNN_F32, threads);
  bench_conv(64, 32, 14, 64, 3, 1, 1, true, CNN_F32, threads);
  bench_conv(8, 64, 56, 64, 3, 1, 1, true, CNN_F32, threads);
  bench_conv(64, 32, 14, 64, 3, 1, 1, false, CNN_BF16, threads);
  bench_conv(8, 64, 56, 64, 3, 1, 1, true, CNN_BF16, threads);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s path/to/cnn_dnnl.so [threads ...]\n", argv[0]);
    return 2;
  }
  setenv("GOMP_SPINCOUNT", "200", 0);
  double start = now();
  void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  cnn_accel_entry entry = NULL;
  if (plugin) *(void **)&entry = dlsym(plugin, CNN_ACCEL_SYMBOL);
  if (!entry || !entry(CNN_ACCEL_ABI, &accel)) {
    fprintf(stderr, "%s does not open: %s\n", argv[1], plugin ? "no entry or no ABI" : dlerror());
    return 2;
  }
  printf("%s, opened in %.1f ms\n", accel.name, 1e3 * (now() - start));
  arena = aligned_alloc(4096, arena_bytes);
  if (!arena) return 2;
  // Small values, so that no sum runs into subnormals or infinity.
  for (size_t i = 0; i < arena_bytes / sizeof(float) / 2; i++) {
    ((float *)(void *)arena)[i] = (float)(i % 17) / 16 - 0.5f;
  }
  if (argc == 2) {
    bench(1);
    bench(2);
  }
  for (int i = 2; i < argc; i++) bench(atoi(argv[i]));
  free(arena);
  return 0;
}
