// SPDX-License-Identifier: MIT
// Time per allocation and per free, of the pool against malloc: median and 99.9th percentile, each
// timed by itself, less what the clock costs. The memory isn't touched. Calls in which the pool
// asked the device to map or unmap are kept apart (malloc can't be asked; it maps what is large).
//
// build/release/bin/bench/c/pool_bench [operations]
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "memory/cpu_memory.h"
#include "memory/pool.h"

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t rng_state;
static size_t below(size_t n) {
  rng_state ^= rng_state << 13;
  rng_state ^= rng_state >> 7;
  rng_state ^= rng_state << 17;
  return (size_t)((rng_state * 0x2545F4914F6CDD1Dull >> 11) % n);
}

typedef struct times {
  int64_t *at;
  int n;
} times;

static int ascending(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static double quantile(times *t, double q, int64_t clock) {
  if (t->n == 0) return 0;
  qsort(t->at, (size_t)t->n, sizeof *t->at, ascending);
  int64_t v = t->at[(int)(q * (t->n - 1))] - clock;
  return v > 0 ? (double)v : 0;
}

// Sizes of a work: up to `most` bytes, evenly over their logarithms from `least` on.
typedef struct work {
  const char *name;
  size_t least, most;
  int live;
} work;

static size_t size_in(const work *w) {
  size_t n = w->least;
  int doublings = 0;
  while ((w->least << doublings) < w->most) doublings++;
  if (doublings > 0) n <<= below((size_t)doublings);
  return doublings > 0 ? n + below(n) : n;
}

enum { ALLOC, FREE, MAPPING, SERIES };

static void run(const work *w, cnn_pool *pool, int operations, int64_t clock, times *series) {
  void **live = calloc((size_t)w->live, sizeof *live);
  cnn_pool_stats s = {0};
  rng_state = 88172645463325252ull;
  for (int i = 0; i < SERIES; i++) series[i].n = 0;
  for (int op = -operations / 4; op < operations; op++) { // the first ones warm up
    int k = (int)below((size_t)w->live);
    bool give = live[k] != NULL;
    size_t bytes = size_in(w);
    int64_t calls = s.maps + s.unmaps, start = now();
    if (give && pool)
      cnn_pool_free(pool, live[k]);
    else if (give)
      free(live[k]);
    else
      live[k] = pool ? (void *)cnn_pool_alloc(pool, bytes, 0, NULL) : malloc(bytes);
    int64_t took = now() - start;
    if (give) live[k] = NULL;
    if (pool) cnn_pool_get_stats(pool, &s);
    bool mapped = calls != s.maps + s.unmaps; // the first ones do most of it
    if (op < 0 && !mapped) continue;
    times *t = &series[mapped ? MAPPING : give ? FREE : ALLOC];
    t->at[t->n++] = took;
  }
  for (int k = 0; k < w->live; k++) {
    if (live[k] && pool) cnn_pool_free(pool, live[k]);
    if (live[k] && !pool) free(live[k]);
  }
  free(live);
  printf("%-34s %-7s %8.0f %9.0f %9.0f %9.0f", w->name, pool ? "pool" : "malloc",
         quantile(&series[ALLOC], 0.5, clock), quantile(&series[ALLOC], 0.999, clock),
         quantile(&series[FREE], 0.5, clock), quantile(&series[FREE], 0.999, clock));
  if (pool)
    printf("   %d calls mapped: %.0f, %.0f", series[MAPPING].n,
           quantile(&series[MAPPING], 0.5, clock), quantile(&series[MAPPING], 0.999, clock));
  printf("\n");
}

// Nanoseconds per allocation and free together, without a clock between: the least of several runs.
static double pairs(const work *w, cnn_pool *pool) {
  enum { N = 1 << 12, ROUNDS = 64, RUNS = 15 };
  static size_t sizes[N];
  cnn_block *live[64] = {0};
  double least = 1e9;
  rng_state = 88172645463325252ull;
  for (int i = 0; i < N; i++) sizes[i] = size_in(w);
  for (int r = 0; r < RUNS; r++) {
    int64_t start = now();
    for (int i = 0; i < N * ROUNDS; i++) {
      cnn_block **b = &live[i & 63];
      if (*b) cnn_pool_free(pool, *b);
      *b = cnn_pool_alloc(pool, sizes[i & (N - 1)], 0, NULL);
    }
    double took = (double)(now() - start) / (N * ROUNDS);
    if (took < least) least = took;
  }
  for (int i = 0; i < 64; i++) cnn_pool_free(pool, live[i]);
  return least;
}

int main(int argc, char **argv) {
  int operations = argc > 1 ? atoi(argv[1]) : 400000;
  static const work works[] = {
      {"1 KiB, one block", 1024, 1024, 1},
      {"64 B to 4 KiB, 1000 blocks", 64, 4096, 1000},
      {"64 B to 256 KiB, 1000 blocks", 64, 256 * 1024, 1000},
      {"256 KiB to 16 MiB, 50 blocks", 256 * 1024, (size_t)16 << 20, 50},
      {"64 B to 64 MiB, 100 blocks", 64, (size_t)64 << 20, 100},
  };
  times clocks = {malloc((size_t)operations * sizeof(int64_t)), operations}, series[SERIES];
  for (int i = 0; i < operations; i++) {
    int64_t start = now();
    clocks.at[i] = now() - start;
  }
  int64_t clock = (int64_t)quantile(&clocks, 0.5, 0);
  for (int i = 0; i < SERIES; i++)
    series[i].at = malloc((size_t)operations * 5 / 4 * sizeof(int64_t));
  printf("ns; the clock's %.0f are taken off       alloc     99.9%%      free     99.9%%\n",
         (double)clock);
  for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
    cnn_pool *pool = cnn_pool_create(&cnn_cpu_mapper);
    if (!pool) return 1;
    run(&works[i], pool, operations, clock, series);
    run(&works[i], NULL, operations, clock, series);
    cnn_pool_destroy(pool);
  }
  printf("back to back, 64 blocks in use, ns per allocation and free together:");
  for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
    cnn_pool *pool = cnn_pool_create(&cnn_cpu_mapper);
    printf(" %.1f", pairs(&works[i], pool));
    cnn_pool_destroy(pool);
  }
  printf("\n");
  return 0;
}
