// SPDX-License-Identifier: MIT
// Counts of launches, copied bytes and synchronisations, in all and by op.
#include <stdatomic.h>
#include <string.h>

#include "plugin.h"

#define OPS 1024 // more than there are; the last counts what no op did

static atomic_llong counts[OPS][CUDA_COUNT_KINDS];
static _Thread_local int current = -1;

static int row_of(int id) {
  return id < 0 || id >= OPS - 1 ? OPS - 1 : id;
}

int cuda_count_for(int id) {
  int before = current;
  current = id;
  return before;
}

void cuda_count_add(cuda_count_kind kind, int64_t n) {
  atomic_fetch_add_explicit(&counts[row_of(current)][kind], n, memory_order_relaxed);
}

void cuda_counts_clear(void) {
  for (int i = 0; i < OPS; i++)
    for (int k = 0; k < CUDA_COUNT_KINDS; k++) atomic_store(&counts[i][k], 0);
}

void cuda_counts_get(int id, cnn_launch_counts *out) {
  const atomic_llong *c = counts[row_of(id)];
  *out = (cnn_launch_counts){.kernels = c[CUDA_COUNT_KERNELS],
                             .to_device = c[CUDA_COUNT_TO_DEVICE],
                             .to_host = c[CUDA_COUNT_TO_HOST],
                             .within = c[CUDA_COUNT_WITHIN],
                             .syncs = c[CUDA_COUNT_SYNCS]};
}
