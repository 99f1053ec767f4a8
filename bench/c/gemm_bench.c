// SPDX-License-Identifier: MIT
// Matrix products of cpu/gemm.c beside dnnl_sgemm, in the same run:
//
//   gemm_bench [threads]
//
// Columns: the product C[m,n] = A[m,k] B[k,n], N or T for each operand as it lies in memory;
// microseconds and GFLOP/s of both, and how many times as fast ours is. The figures are the best of
// many runs, taken in turns.
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parallel.h"
#include "cpu/gemm.h"

void omp_set_num_threads(int n); // libgomp, which runs oneDNN's threads

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

typedef struct shape {
  int m, n, k;
  char ta, tb;
} shape;

static const shape shapes[] = {
    // tiny
    {1, 32, 32, 'N', 'T'},
    {8, 16, 16, 'N', 'T'},
    {16, 16, 16, 'N', 'N'},
    {64, 10, 128, 'N', 'T'},
    {64, 10, 128, 'N', 'N'},
    {10, 128, 64, 'T', 'N'},
    {32, 64, 64, 'N', 'T'},
    // a small network: forward, and the gradients of input and weight
    {64, 512, 784, 'N', 'T'},
    {64, 784, 512, 'N', 'N'},
    {512, 784, 64, 'T', 'N'},
    {128, 512, 784, 'N', 'T'},
    {128, 10, 512, 'N', 'T'},
    {10, 512, 128, 'T', 'N'},
    {100, 100, 100, 'N', 'N'},
    {256, 256, 256, 'N', 'T'},
    // a transformer, its gradients, and its decoding
    {512, 768, 768, 'N', 'T'},
    {512, 768, 768, 'N', 'N'},
    {768, 768, 512, 'T', 'N'},
    {512, 3072, 768, 'N', 'T'},
    {512, 768, 3072, 'N', 'T'},
    {1, 3072, 768, 'N', 'T'},
    {1, 3072, 768, 'N', 'N'},
    {4, 3072, 768, 'N', 'T'},
    {8, 3072, 768, 'N', 'T'},
    {16, 3072, 768, 'N', 'T'},
    {16, 3072, 768, 'N', 'N'},
    {24, 3072, 768, 'N', 'T'},
    {3072, 1, 768, 'N', 'N'},
    {512, 512, 64, 'N', 'T'},
    {512, 64, 512, 'N', 'N'},
    // convolutions through im2col, and the gradient of their weights
    {64, 3136, 576, 'N', 'N'},
    {64, 576, 3136, 'N', 'T'},
    {16, 27, 50176, 'N', 'T'},
};

static double time_ours(const shape *s, const float *a, const float *b, float *c, void *scratch,
                        int repeat) {
  double t = now();
  for (int r = 0; r < repeat; r++)
    cnn_gemm_f32(s->m, s->n, s->k, 1, a, s->ta == 'N' ? s->k : 1, s->ta == 'N' ? 1 : s->m, b,
                 s->tb == 'N' ? s->n : 1, s->tb == 'N' ? 1 : s->k, 0, c, s->n, 1, scratch);
  return (now() - t) / repeat;
}

static double time_dnnl(const shape *s, const float *a, const float *b, float *c, int repeat) {
  double t = now();
  for (int r = 0; r < repeat; r++)
    dnnl_sgemm(s->ta, s->tb, s->m, s->n, s->k, 1, a, s->ta == 'N' ? s->k : s->m, b,
               s->tb == 'N' ? s->n : s->k, 0, c, s->n);
  return (now() - t) / repeat;
}

static void *make(size_t bytes) {
  void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
  if (!p) exit(1);
  memset(p, 0, bytes);
  return p;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1;
  cnn_set_num_threads(threads);
  omp_set_num_threads(threads);
  printf("%d thread(s), level %d\n%22s %10s %8s %10s %8s %7s\n", threads, cnn_gemm_limit(2),
         "m x n x k", "cnn us", "GF/s", "dnnl us", "GF/s", "times");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const shape *s = &shapes[i];
    size_t na = (size_t)s->m * (size_t)s->k, nb = (size_t)s->k * (size_t)s->n;
    size_t nc = (size_t)s->m * (size_t)s->n;
    float *a = make(na * 4), *b = make(nb * 4), *c = make(nc * 4);
    void *scratch = make(cnn_gemm_scratch(4, s->m, s->n, s->k) + 64);
    for (size_t j = 0; j < na; j++) a[j] = (float)(j % 17) - 8;
    for (size_t j = 0; j < nb; j++) b[j] = (float)(j % 13) - 6;
    double flops = 2.0 * s->m * s->n * s->k, ours = 1e30, dnnl = 1e30;
    int repeat = flops > 2e6 ? 1 : (int)(2e6 / flops);
    double end = now() + 3e5;
    for (int r = 0; r < 4 || now() < end; r++) {
      double t = time_ours(s, a, b, c, scratch, repeat);
      if (r && t < ours) ours = t;
      t = time_dnnl(s, a, b, c, repeat);
      if (r && t < dnnl) dnnl = t;
    }
    char text[64];
    snprintf(text, sizeof text, "%d x %d x %d %c%c", s->m, s->n, s->k, s->ta, s->tb);
    printf("%22s %10.2f %8.1f %10.2f %8.1f %7.2f\n", text, ours, flops / ours * 1e-3, dnnl,
           flops / dnnl * 1e-3, dnnl / ours);
    free(a), free(b), free(c), free(scratch);
  }
  return 0;
}
