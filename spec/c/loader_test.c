// SPDX-License-Identifier: MIT
// The loader of batches: the same batches whatever the number of workers, early ends, short memory,
// forks.
#include "io/loader.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "check.h"
#include "cnn.h"

enum { ROWS = 1000, WIDTH = 24 };

static cnn_context ctx;
static cnn_tensor *pixels, *labels;
static int64_t order[ROWS];

static cnn_tensor *make(cnn_dtype dtype, int ndim, const int64_t *shape) {
  cnn_meta meta;
  cnn_tensor *t = NULL;
  cnn_device cpu = {CNN_CPU, 0};
  cnn_meta_set(&meta, dtype, cpu, ndim, shape);
  if (cnn_tensor_empty(&ctx, &meta, &t) != CNN_OK) abort();
  return t;
}

static void make_data(void) {
  const int64_t shape[] = {ROWS, 2, WIDTH / 2};
  pixels = make(CNN_U8, 3, shape);
  labels = make(CNN_I64, 1, shape);
  uint8_t *p = cnn_data(pixels);
  int64_t *y = cnn_data(labels);
  for (int i = 0; i < ROWS * WIDTH; i++) p[i] = (uint8_t)(i * 7 + i / WIDTH);
  for (int i = 0; i < ROWS; i++) y[i] = i, order[i] = i;
  cnn_shuffle(order, ROWS, 42, 3);
}

static cnn_loader *open_loader(int64_t batch, bool drop_last, int threads) {
  static const float scale[] = {0.5f, 2.0f}, shift[] = {-1.0f, 3.0f};
  const cnn_rows rows[] = {{pixels, 2, scale, shift},
                           {labels, 0, NULL, NULL},
                           {pixels, 0, NULL, NULL}};
  cnn_loader *l = NULL;
  if (cnn_loader_create(&ctx, rows, 3, order, ROWS, batch, drop_last, threads, &l) != CNN_OK)
    return NULL;
  return l;
}

static bool right_row(cnn_tensor *const *batch, int64_t i, int64_t row) {
  const float *x = (const float *)cnn_data(batch[0]) + i * WIDTH;
  const uint8_t *raw = (const uint8_t *)cnn_data(batch[2]) + i * WIDTH;
  const uint8_t *from = (const uint8_t *)cnn_data(pixels) + row * WIDTH;
  if (((const int64_t *)cnn_data(batch[1]))[i] != row) return false;
  for (int k = 0; k < WIDTH; k++) {
    float want = k < WIDTH / 2 ? (float)from[k] * 0.5f - 1.0f : (float)from[k] * 2.0f + 3.0f;
    if (!(x[k] == want) || raw[k] != from[k]) return false;
  }
  return true;
}

// Takes batches until the end or `most`; the rows seen, or -1 when one is wrong.
static int64_t drain(cnn_loader *l, int64_t most) {
  int64_t at = 0;
  bool more = true;
  for (int64_t k = 0; k < most; k++) {
    cnn_tensor *batch[3];
    if (cnn_loader_next(&ctx, l, batch, &more) != CNN_OK) return -1;
    if (!more) break;
    bool ok = true;
    for (int64_t i = 0; i < batch[0]->shape[0]; i++) ok = ok && right_row(batch, i, order[at + i]);
    at += batch[0]->shape[0];
    for (int i = 0; i < 3; i++) cnn_unref(batch[i]);
    if (!ok) return -1;
  }
  return at;
}

static void test_batches(void) {
  static const int sizes[] = {1, 7, 64, 999, 1000, 1001};
  for (int threads = 0; threads <= 5; threads++)
    for (int s = 0; s < 6; s++)
      for (int drop = 0; drop < 2; drop++) {
        cnn_loader *l = open_loader(sizes[s], drop, threads);
        CHECK(l != NULL);
        CHECK(drain(l, INT64_MAX) == (drop ? ROWS / sizes[s] * sizes[s] : ROWS));
        CHECK(drain(l, INT64_MAX) == 0); // stays at its end
        cnn_unref(l);
      }
}

static void test_early_ends(void) {
  for (int round = 0; round < 200; round++) {
    cnn_loader *l = open_loader(10, false, 1 + round % 4);
    CHECK(drain(l, round % 7) == round % 7 * 10);
    cnn_unref(l);
  }
}

// While several epochs run side by side.
static void test_side_by_side(void) {
  cnn_loader *a = open_loader(10, false, 2), *b = open_loader(10, false, 3);
  CHECK(drain(a, 5) == 50);
  CHECK(drain(b, 5) == 50);
  cnn_unref(a);
  cnn_unref(b);
}

// Every allocation fails in turn: a clean failure, then the same batch.
static void test_short_memory(void) {
  int64_t failures = 0;
  for (int sticky = 0; sticky < 2; sticky++)
    for (int64_t n = 1;; n++) {
      cnn_tensor *batch[3];
      bool more = true;
      cnn_fault_set(n, sticky);
      cnn_loader *l = open_loader(100, false, 2);
      cnn_status status = l ? cnn_loader_next(&ctx, l, batch, &more) : CNN_OOM;
      int64_t seen = cnn_fault_clear();
      if (status != CNN_OK) {
        CHECK(status == CNN_OOM);
        failures++;
      }
      if (l && status != CNN_OK) status = cnn_loader_next(&ctx, l, batch, &more);
      if (l) {
        CHECK(status == CNN_OK && right_row(batch, 0, order[0]) && right_row(batch, 99, order[99]));
        for (int i = 0; i < 3; i++) cnn_unref(batch[i]);
      }
      cnn_unref(l);
      if (seen < n) break;
    }
  CHECK(failures > 5);
}

#ifdef __SANITIZE_THREAD__
static const bool children_may_start_threads = false; // TSan can't follow them
#else
static const bool children_may_start_threads = true;
#endif

// A child goes on with the loader that it inherited; so does the parent.
static void test_forks(void) {
  for (int round = 0; round < 20; round++) {
    cnn_loader *l = open_loader(10, false, 3);
    CHECK(drain(l, 1 + round) == 10 * (1 + round));
#ifdef __SANITIZE_ADDRESS__
    // gcc's sanitizer does not let go of its own allocator's locks in a child: a thread that is
    // inside of malloc at this moment would block the child for ever. So let them all come to rest.
    usleep(50000);
#endif
    pid_t child = fork();
    if (child == 0) {
      int64_t at = 10 * (1 + round);
      bool ok = true, more = true;
      while (ok) {
        cnn_tensor *batch[3];
        ok = cnn_loader_next(&ctx, l, batch, &more) == CNN_OK;
        if (!ok || !more) break;
        ok = right_row(batch, 0, order[at]);
        at += 10;
        for (int i = 0; i < 3; i++) cnn_unref(batch[i]);
      }
      cnn_unref(l);
      // The thread sanitizer does not take new threads in a child.
#ifndef __SANITIZE_THREAD__
      cnn_loader *fresh = open_loader(10, false, 2);
      ok = ok && drain(fresh, INT64_MAX) == ROWS;
      cnn_unref(fresh);
#endif
      _exit(ok && at == ROWS ? 0 : 1);
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    cnn_tensor *batch[3];
    bool more = false;
    CHECK(cnn_loader_next(&ctx, l, batch, &more) == CNN_OK && more);
    CHECK(right_row(batch, 9, order[10 * (1 + round) + 9]));
    for (int i = 0; i < 3; i++) cnn_unref(batch[i]);
    cnn_unref(l);
  }
}

static void test_shuffle(void) {
  int64_t a[ROWS], b[ROWS], count[8][8] = {{0}};
  bool seen[ROWS] = {false};
  for (int i = 0; i < ROWS; i++) a[i] = b[i] = i;
  cnn_shuffle(a, ROWS, 1, 0);
  cnn_shuffle(b, ROWS, 1, 1);
  CHECK(memcmp(a, b, sizeof a) != 0);
  for (int i = 0; i < ROWS; i++) seen[a[i]] = true;
  bool all = true;
  for (int i = 0; i < ROWS; i++) all = all && seen[i];
  CHECK(all);
  // Every element comes to every place equally often: chi-squared with 49 degrees of freedom.
  for (uint64_t seed = 0; seed < 8000; seed++) {
    int64_t small[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    cnn_shuffle(small, 8, seed, 5);
    for (int i = 0; i < 8; i++) count[i][small[i]]++;
  }
  double chi = 0;
  for (int i = 0; i < 64; i++) {
    double d = (double)count[i / 8][i % 8] - 1000;
    chi += d * d / 1000;
  }
  CHECK(chi < 100);
}

int main(void) {
  if (cnn_init()) return 1;
  cnn_context_init(&ctx);
  make_data();
  test_shuffle();
  test_batches();
  test_early_ends();
  test_side_by_side();
  test_short_memory();
  if (children_may_start_threads) test_forks();
  cnn_unref(pixels);
  cnn_unref(labels);
  printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
