// SPDX-License-Identifier: MIT
// What a pool says of itself: counters, and pieces.
#include <string.h>

#include "memory/pool_parts.h"

void cnn_pool_info(const cnn_pool *pool, size_t *total, size_t *available, size_t *limit) {
  pool->mapper->info(pool->mapper->self, total, available, limit);
}

static cnn_pool_counter active(cnn_pool_counter c, int64_t waiting, int64_t peak) {
  c.current += waiting; // ever added: the same
  if (peak > c.peak) c.peak = peak;
  return c;
}

void cnn_pool_get_stats(cnn_pool *pool, cnn_pool_stats *stats) {
  const counts *c = &pool->count;
  bool root = pool == pool->root;
  int64_t granule = (int64_t)pool->mapper->granule;
  cnn_lock_acquire(pool->lock);
  pool_fold_idle(pool);
  *stats =
      (cnn_pool_stats){.allocated = c->allocated,
                       .requested = c->requested,
                       .reserved = pool->quota.reserved,
                       .blocks = c->blocks,
                       .active = active(c->allocated, c->waiting, c->active_peak),
                       .active_blocks = active(c->blocks, c->waiting_blocks, c->active_blocks_peak),
                       .small = c->bytes_by[0],
                       .small_blocks = c->blocks_by[0],
                       .large = c->bytes_by[1],
                       .large_blocks = c->blocks_by[1],
                       .inactive = c->inactive,
                       .inactive_split = c->inactive_split,
                       .waiting = c->waiting,
                       .limit = cnn_pool_limit(pool),
                       .available = (int64_t)pool_available(pool) * granule,
                       .maps = pool->quota.maps,
                       .unmaps = pool->quota.unmaps,
                       .failures = c->failures,
                       .retries = c->retries + c->host_retries,
                       .ooms = c->failures - c->host_retries,
                       .waits = c->waits};
  for (int k = 0; k < CNN_POOL_KINDS; k++) stats->kinds[k] = c->kinds[k];
  for (const cnn_pool *q = pool; q; q = root ? q->sibling : NULL)
    for (const lane *l = &q->first; l; l = l->next) {
      int64_t largest = (int64_t)cnn_space_largest(&l->space);
      if (largest > stats->largest_free) stats->largest_free = largest;
      stats->small_reserved += (int64_t)l->beds * granule;
    }
  cnn_lock_release(pool->lock);
}

void cnn_pool_retried(cnn_pool *pool) {
  cnn_lock_acquire(pool->lock);
  for (cnn_pool *p = pool;; p = p->root) {
    if (p->count.host_retries < p->count.failures) p->count.host_retries++;
    if (p == p->root) break;
  }
  cnn_lock_release(pool->lock);
}

void cnn_pool_get_classes(cnn_pool *pool, cnn_pool_class classes[CNN_POOL_CLASSES]) {
  cnn_lock_acquire(pool->lock);
  for (int i = 0; i < CNN_POOL_CLASSES; i++)
    classes[i] = (cnn_pool_class){lane_class_size(i), pool->count.classes[i]};
  cnn_lock_release(pool->lock);
}

static void reset_peaks(cnn_pool_counter *c, int n) {
  for (int i = 0; i < n; i++) c[i].peak = c[i].current;
}

void cnn_pool_reset_peaks(cnn_pool *pool) {
  counts *c = &pool->count;
  cnn_lock_acquire(pool->lock);
  reset_peaks(&c->allocated, 1);
  reset_peaks(&c->requested, 1);
  reset_peaks(&c->blocks, 1);
  reset_peaks(c->kinds, CNN_POOL_KINDS);
  reset_peaks(c->bytes_by, 2);
  reset_peaks(c->blocks_by, 2);
  reset_peaks(c->classes, CNN_POOL_CLASSES);
  reset_peaks(&pool->quota.reserved, 1);
  pool_fold_idle(pool);
  reset_peaks(&c->inactive, 1);
  reset_peaks(&c->inactive_split, 1);
  c->active_peak = c->allocated.current + c->waiting;
  c->active_blocks_peak = c->blocks.current + c->waiting_blocks;
  cnn_lock_release(pool->lock);
}

int64_t cnn_pool_live(const cnn_pool *pool) {
  return atomic_load_explicit(&pool->count.live, memory_order_relaxed);
}

int64_t cnn_pool_limit(const cnn_pool *pool) {
  int64_t own = atomic_load_explicit(&pool->limit, memory_order_relaxed);
  int64_t all = atomic_load_explicit(&pool->root->limit, memory_order_relaxed);
  return own < all ? own : all;
}

int64_t cnn_pool_reserved(const cnn_pool *pool) {
  return atomic_load_explicit(&pool->quota.now, memory_order_relaxed);
}

// --- Looking ------------------------------------------------------------------------------------

static void show(const block *b, cnn_piece *piece) {
  piece->block = b->pub;
  piece->waiting = block_waits(b);
}

static void walk_bed(const lane *l, const bed *b, cnn_piece *piece,
                     void (*visit)(void *data, const cnn_piece *piece), void *data) {
  piece->what = CNN_PIECE_SMALL;
  for (const slab *s = b->slabs; s; s = s->bed_next) {
    size_t stride = l->classes[s->cls].stride;
    for (int i = 0; i < s->carved; i++) {
      if (!s->blocks[i].pub.requested) continue;
      show(&s->blocks[i], piece);
      piece->at = s->base + (size_t)i * stride;
      piece->bytes = piece->block.size;
      visit(data, piece);
    }
  }
}

static void walk(const lane *l, void (*visit)(void *data, const cnn_piece *piece), void *data) {
  cnn_piece piece = {.stream = l->stream};
  memcpy(piece.pool, l->pool->name, sizeof piece.pool);
  for (const cnn_range *r = l->space.ranges; r; r = r->next) {
    for (const cnn_extent *e = r->first; e; e = e->next) {
      bool taken = e->state == CNN_EXTENT_TAKEN, is_bed = taken && e->tag == BED;
      piece.waiting = false;
      piece.at = e->begin;
      piece.bytes = e->end - e->begin;
      if (!taken)
        piece.what = e->state == CNN_EXTENT_FREE ? CNN_PIECE_FREE : CNN_PIECE_VOID;
      else if (is_bed)
        piece.what = CNN_PIECE_BED;
      else
        piece.what = CNN_PIECE_LARGE, show(e->owner, &piece);
      visit(data, &piece);
      if (is_bed) walk_bed(l, e->owner, &piece, visit, data);
    }
  }
}

void cnn_pool_walk(cnn_pool *pool, void (*visit)(void *data, const cnn_piece *piece), void *data) {
  cnn_lock_acquire(pool->lock);
  for (const cnn_pool *p = pool; p; p = pool == pool->root ? p->sibling : NULL)
    for (const lane *l = &p->first; l; l = l->next) walk(l, visit, data);
  cnn_lock_release(pool->lock);
}
