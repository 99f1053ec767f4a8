// SPDX-License-Identifier: MIT
#include "cpu/tasks.h"

#include "base/parallel.h"

void cnn_tasks_plan(cnn_tasks *t, int64_t count, size_t bytes) {
  // Two slots per thread, so that one that lost its core does not hold up the rest for long.
  int64_t threads = cnn_num_threads(), most = threads > 1 ? 2 * threads : 1;
  t->count = count;
  t->slots = count < most ? count : most;
  t->slot_bytes = cnn_align(bytes);
}

static void run_slots(void *arg, int64_t begin, int64_t end) {
  const cnn_tasks *t = arg;
  for (int64_t s = begin; s < end; s++) {
    int64_t first = s * t->count / t->slots, last = (s + 1) * t->count / t->slots;
    for (int64_t i = first; i < last; i++) t->fn(t->arg, i, t->scratch + (size_t)s * t->slot_bytes);
  }
}

void cnn_tasks_run(const cnn_tasks *t, bool parallel) {
  if (!parallel || t->slots == 1)
    run_slots((void *)(uintptr_t)t, 0, t->slots);
  else
    cnn_parallel_for(t->slots, 1, run_slots, (void *)(uintptr_t)t);
}
