// SPDX-License-Identifier: MIT
#include "engine/pass.h"

#include "base/alloc.h"

static size_t hash(const void *key) {
  return (size_t)(((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u) >> 16;
}

int cnn_pass_find(const cnn_pass *p, const void *key) {
  if (p->table_size == 0) return -1;
  size_t mask = (size_t)p->table_size - 1;
  for (size_t i = hash(key) & mask; p->table[i]; i = (i + 1) & mask)
    if (p->entries[p->table[i] - 1].key == key) return p->table[i] - 1;
  return -1;
}

static cnn_status no_memory(cnn_context *ctx) {
  return cnn_fail(ctx, CNN_OOM, "out of memory for the backward pass");
}

static void put(int *table, size_t mask, const void *key, int number) {
  size_t i = hash(key) & mask;
  while (table[i]) i = (i + 1) & mask;
  table[i] = number + 1;
}

static cnn_status grow(cnn_context *ctx, cnn_pass *p) {
  int capacity = p->capacity ? 2 * p->capacity : 32;
  cnn_pass_entry *entries = cnn_realloc(p->entries, (size_t)capacity * sizeof *entries);
  if (!entries) return no_memory(ctx);
  p->entries = entries;
  int *table = cnn_calloc((size_t)(2 * capacity) * sizeof *table);
  if (!table) return no_memory(ctx);
  for (int k = 0; k < p->n; k++) put(table, (size_t)(2 * capacity) - 1, entries[k].key, k);
  cnn_free(p->table);
  p->table = table;
  p->table_size = 2 * capacity;
  p->capacity = capacity;
  return CNN_OK;
}

cnn_status cnn_pass_obtain(cnn_context *ctx, cnn_pass *p, cnn_object *key, bool leaf, int n,
                           int *at) {
  *at = cnn_pass_find(p, key);
  if (*at >= 0) return CNN_OK;
  if (p->n == p->capacity) CNN_TRY(grow(ctx, p));
  cnn_pass_entry entry = {.key = key, .leaf = leaf, .n_grads = n};
  if (n > 1) {
    entry.grads = cnn_calloc((size_t)n * sizeof(cnn_tensor *));
    if (!entry.grads) return no_memory(ctx);
  }
  cnn_ref(key);
  *at = p->n++;
  p->entries[*at] = entry;
  put(p->table, (size_t)p->table_size - 1, key, *at);
  return CNN_OK;
}

void cnn_pass_free(cnn_pass *p) {
  for (int k = 0; k < p->n; k++) {
    cnn_pass_entry *x = &p->entries[k];
    for (int i = 0; i < x->n_grads; i++) cnn_unref(*cnn_pass_grad(x, i));
    cnn_free(x->grads);
    cnn_unref(x->key);
  }
  cnn_free(p->entries);
  cnn_free(p->table);
}
