// SPDX-License-Identifier: MIT
// Tasks that need scratch memory, run by the thread pool.
//
// Tasks are cut by shapes alone, so that results do not depend on the number of threads. A few
// slots, each with its own scratch, run them: slot s the s-th share of them, in order.
#ifndef CNN_CPU_TASKS_H
#define CNN_CPU_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*cnn_task_fn)(const void *arg, int64_t task, char *scratch);

typedef struct cnn_tasks {
  cnn_task_fn fn;
  const void *arg;
  int64_t count, slots;
  size_t slot_bytes; // a multiple of 64
  char *scratch;     // slots * slot_bytes, aligned to 64
} cnn_tasks;

// Sets count, slots and slot_bytes: as many slots as the present number of threads is worth.
void cnn_tasks_plan(cnn_tasks *t, int64_t count, size_t bytes);

static inline size_t cnn_tasks_bytes(const cnn_tasks *t) {
  return (size_t)t->slots * t->slot_bytes;
}

// Runs all of them; in the caller alone when they are not worth a thread.
void cnn_tasks_run(const cnn_tasks *t, bool parallel);

static inline size_t cnn_align(size_t bytes) {
  return (bytes + 63) & ~(size_t)63;
}

// The next piece of some scratch, and the rest.
static inline void *cnn_take(char **scratch, size_t bytes) {
  void *p = *scratch;
  *scratch += cnn_align(bytes);
  return p;
}

#endif
