// SPDX-License-Identifier: MIT
// A device that goes away under its pools: their memory is given back at once, blocks in use or
// not, and what is left are structures, that go with their last block.
#include "memory/pool_parts.h"

// What is asked of a device that is gone: it has no memory, and all work on it is over.

static void *reserve(void *self, size_t bytes) {
  (void)self, (void)bytes;
  return NULL;
}
static void release(void *self, void *base, size_t bytes) {
  (void)self, (void)base, (void)bytes;
}
static bool commit(void *self, void *at, size_t bytes) {
  (void)self, (void)at, (void)bytes;
  return false;
}
static void info(void *self, size_t *total, size_t *available, size_t *limit) {
  (void)self;
  *total = *available = *limit = 0;
}
static void *record(void *self, void *stream) {
  (void)stream;
  return self;
}
static bool query(void *self, void *event) {
  (void)self, (void)event;
  return true;
}
static void over(void *self, void *event) {
  (void)self, (void)event;
}

static void lose_lane(lane *l, const cnn_mapper *before, const cnn_mapper *after) {
  if (l->event) before->forget(before->self, l->event);
  l->event = NULL;
  l->dirty = false;
  cnn_space_lose(&l->space, after);
}

void cnn_pool_lose(cnn_pool *root) {
  const cnn_mapper *before = root->mapper, *after = &root->gone;
  cnn_lock_acquire(root->lock);
  pool_abandon(root);
  root->gone = (cnn_mapper){.name = before->name,
                            .granule = before->granule,
                            .alignment = before->alignment,
                            .reserve = reserve,
                            .release = release,
                            .commit = commit,
                            .decommit = release,
                            .info = info,
                            .record = record,
                            .query = query,
                            .wait = over,
                            .forget = over,
                            .self = root};
  for (cnn_pool *p = root; p; p = p->sibling) {
    for (lane *l = &p->first; l; l = l->next) lose_lane(l, before, after);
    p->mapper = after;
  }
  root->patient = false;
  atomic_store_explicit(&root->lost, true, memory_order_relaxed);
  bool empty = pool_is_left(root);
  cnn_lock_release(root->lock);
  if (empty) cnn_pool_destroy(root);
}

bool cnn_pool_is_lost(const cnn_pool *pool) {
  return atomic_load_explicit(&pool->root->lost, memory_order_relaxed);
}
