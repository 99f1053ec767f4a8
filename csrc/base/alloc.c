// SPDX-License-Identifier: MIT
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// The armed flag is all that the hot path reads.
static atomic_bool armed;
static atomic_llong seen;
static int64_t first_failure;
static bool failure_is_sticky;

void cnn_fault_set(int64_t n, bool sticky) {
  first_failure = n;
  failure_is_sticky = sticky;
  atomic_store(&seen, 0);
  atomic_store(&armed, true);
}

int64_t cnn_fault_clear(void) {
  atomic_store(&armed, false);
  return (int64_t)atomic_load(&seen);
}

bool cnn_fault_armed(void) {
  return atomic_load_explicit(&armed, memory_order_relaxed);
}

bool cnn_fault_hit(void) {
  if (__builtin_expect(!atomic_load_explicit(&armed, memory_order_relaxed), 1)) return false;
  int64_t n = (int64_t)atomic_fetch_add(&seen, 1) + 1;
  return failure_is_sticky ? n >= first_failure : n == first_failure;
}

void *cnn_malloc(size_t bytes) {
  return cnn_fault_hit() ? NULL : malloc(bytes);
}

void *cnn_calloc(size_t bytes) {
  return cnn_fault_hit() ? NULL : calloc(1, bytes);
}

void *cnn_realloc(void *p, size_t bytes) {
  return cnn_fault_hit() ? NULL : realloc(p, bytes);
}

void cnn_free(void *p) {
  free(p);
}
