// SPDX-License-Identifier: MIT
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// The armed flag is all that the hot path reads.
atomic_bool cnn_faults_armed;
static atomic_llong seen;
static int64_t first_failure;
static bool failure_is_sticky;

void cnn_fault_set(int64_t n, bool sticky) {
  first_failure = n;
  failure_is_sticky = sticky;
  atomic_store(&seen, 0);
  atomic_store(&cnn_faults_armed, true);
}

int64_t cnn_fault_clear(void) {
  atomic_store(&cnn_faults_armed, false);
  return (int64_t)atomic_load(&seen);
}

bool cnn_fault_armed(void) {
  return atomic_load_explicit(&cnn_faults_armed, memory_order_relaxed);
}

bool cnn_fault_count(void) {
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
