// SPDX-License-Identifier: MIT
// Counts of launches, of bytes, of synchronisations, by op; the simulator's, by kernel.
#include <stdatomic.h>
#include <string.h>

#include "plugin.h"
#include "sim/include/sim.h"

#pragma weak sim_kernel_at

#define OPS 1024 // more than there are; the last counts what no op did

static atomic_llong counts[OPS][CUDA_COUNT_KINDS];
static _Thread_local int current = -1;
// Whether somebody looks at counts: before, what ops read and write is not added up.
static atomic_bool asked;

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

void cuda_counts_get(int id, cnn_launch_counts *out) {
  const atomic_llong *c = counts[row_of(id)];
  atomic_store_explicit(&asked, true, memory_order_relaxed);
  *out = (cnn_launch_counts){.kernels = c[CUDA_COUNT_KERNELS],
                             .syncs = c[CUDA_COUNT_SYNCS],
                             .read = c[CUDA_COUNT_READ],
                             .written = c[CUDA_COUNT_WRITTEN],
                             .to_device = c[CUDA_COUNT_TO_DEVICE],
                             .to_host = c[CUDA_COUNT_TO_HOST],
                             .within = c[CUDA_COUNT_WITHIN]};
}

bool cuda_kernel_counts_get(int i, cnn_kernel_counts *out) {
  sim_kernel_counts c;
  const char *name;
  if (!sim_kernel_at || !sim_kernel_at(i, &name, &c)) return false;
  *out = (cnn_kernel_counts){.name = name,
                             .launches = (int64_t)c.launches,
                             .blocks = (int64_t)c.blocks,
                             .threads = (int64_t)c.threads,
                             .barriers = (int64_t)c.barriers,
                             .counted = c.checked_launches > 0,
                             .loads = (int64_t)c.global_loads,
                             .stores = (int64_t)c.global_stores,
                             .load_bytes = (int64_t)c.global_load_bytes,
                             .store_bytes = (int64_t)c.global_store_bytes,
                             .shared_loads = (int64_t)c.shared_loads,
                             .shared_stores = (int64_t)c.shared_stores,
                             .atomics = (int64_t)c.atomics};
  return true;
}

// ---------------------------------------------------------------------------------------------
// What ops read and write

// Elements that lie at one place (stride 0) are counted once.
static int64_t bytes_of(const cnn_view *v) {
  int64_t n = (int64_t)cnn_dtype_size(v->dtype);
  if (!cnn_view_present(v) || cnn_view_is_number(v)) return 0;
  for (int i = 0; i < v->ndim; i++)
    if (v->strides[i] != 0 || v->shape[i] == 0) n *= v->shape[i];
  return n;
}

static bool is_tensor(const char *type) {
  static const char *const types[] = {"tensor", "operand", "index", "indices", "mask", "other"};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strncmp(type, types[i], strlen(types[i])) == 0) return true;
  return false;
}

// Of the arguments that are marked `!`.
static int64_t bytes_changed(const cnn_call *call) {
  int64_t bytes = 0;
  const char *at = call->op->args;
  for (int i = 0, view = 0; i < call->n_args && view < call->n_in; i++) {
    size_t end = strcspn(at, " ");
    const char *colon = memchr(at, ':', end);
    if (colon && is_tensor(colon + 1)) {
      bool changed = memchr(at, '!', end) != NULL;
      int n = call->args[i].kind == CNN_TENSORS ? call->args[i].n : 1;
      for (; n > 0; n--, view++)
        if (changed) bytes += bytes_of(&call->in[view]);
    }
    at += end + (at[end] == ' ');
  }
  return bytes;
}

void cuda_count_bytes(const cnn_call *call) {
  if (!atomic_load_explicit(&asked, memory_order_relaxed)) return;
  int64_t read = 0, written = bytes_changed(call);
  for (int i = 0; i < call->n_in; i++) read += bytes_of(&call->in[i]);
  for (int i = 0; i < call->n_out; i++) written += bytes_of(&call->out[i]);
  cuda_count_add(CUDA_COUNT_READ, read);
  cuda_count_add(CUDA_COUNT_WRITTEN, written);
}
