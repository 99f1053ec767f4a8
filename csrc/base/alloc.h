// SPDX-License-Identifier: MIT
// Memory for the core's own structures (not for tensor data: that is memory/pool.h), with fault
// injection: a test can make the n-th request, and all after it, fail.
#ifndef CNN_BASE_ALLOC_H
#define CNN_BASE_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Each returns NULL when there is no memory, or when the injected fault says so. Free with
// cnn_free.
void *cnn_malloc(size_t bytes);
void *cnn_calloc(size_t bytes);
void *cnn_realloc(void *p, size_t bytes);
void cnn_free(void *p);

// Makes the n-th allocation from now (1 is the next one) fail; `sticky` makes all later ones fail
// too, until cnn_fault_clear(). Counts requests of cnn_malloc and of every memory pool.
void cnn_fault_set(int64_t n, bool sticky);

// Disarms, and returns how many requests were seen since cnn_fault_set.
int64_t cnn_fault_clear(void);

// Whether faults are being injected.
bool cnn_fault_armed(void);

// True when this request must fail. Called once per request by whoever hands out memory.
extern atomic_bool cnn_faults_armed;
bool cnn_fault_count(void);
static inline bool cnn_fault_hit(void) {
  return __builtin_expect(atomic_load_explicit(&cnn_faults_armed, memory_order_relaxed), 0) &&
         cnn_fault_count();
}

#endif
