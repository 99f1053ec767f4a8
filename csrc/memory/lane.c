// SPDX-License-Identifier: MIT
// The free memory of one stream.
#include <stdlib.h>

#include "memory/poison.h"
#include "memory/pool_parts.h"

// --- Beds: granules of small blocks -------------------------------------------------------------

// Bit i of the result: pages i to i + n - 1 are all free.
static uint64_t runs_of(uint64_t busy, int n) {
  uint64_t starts = ~busy;
  for (int have = 1; have < n;) {
    int step = have < n - have ? have : n - have;
    starts &= starts >> step;
    have += step;
  }
  return starts;
}

static void bucket_remove(lane *l, bed *b) {
  if (b->prev)
    b->prev->next = b->next;
  else
    l->buckets[b->run] = b->next;
  if (b->next) b->next->prev = b->prev;
  if (b->run && !l->buckets[b->run]) l->bucket_mask &= ~((uint64_t)1 << (b->run - 1));
}

static void bucket_insert(lane *l, bed *b) {
  b->run = longest_run(b->busy);
  b->prev = NULL;
  b->next = l->buckets[b->run];
  if (b->next) b->next->prev = b;
  l->buckets[b->run] = b;
  if (b->run) l->bucket_mask |= (uint64_t)1 << (b->run - 1);
}

// Counts idle beds for all who count what can be reclaimed.
static void count_idle(lane *l, size_t added) {
  l->idle_beds += added;
  for (cnn_quota *q = l->space.quota; q; q = q->outer) q->reclaimable += added, q->changes++;
}

static bed *new_bed(lane *l) {
  bed *b = malloc(sizeof *b);
  if (!b) return NULL;
  *b = (bed){.extent = cnn_space_take(&l->space, l->pool->mapper->granule)};
  if (!b->extent) {
    free(b);
    return NULL;
  }
  b->extent->owner = b;
  b->extent->tag = BED;
  l->beds++;
  count_idle(l, 1);
  bucket_insert(l, b);
  return b;
}

// --- Slabs --------------------------------------------------------------------------------------

static slab *new_slab(lane *l, int cls) {
  const size_class *c = &l->classes[cls];
  slab *s = malloc(sizeof *s + c->slots * sizeof(block));
  if (!s) return NULL;
  // The fullest bed that has room, so that others run empty.
  uint64_t fits = l->bucket_mask >> (c->pages - 1) << (c->pages - 1);
  bed *b = fits ? l->buckets[__builtin_ctzll(fits) + 1] : new_bed(l);
  if (!b) {
    free(s);
    return NULL;
  }
  int first = __builtin_ctzll(runs_of(b->busy, (int)c->pages));
  *s = (slab){.slots = (int)c->slots,
              .cls = cls,
              .first_page = first,
              .pages = (int)c->pages,
              .lane = l,
              .bed = b,
              .base = b->extent->begin + (size_t)first * l->pool->page};
  bucket_remove(l, b);
  b->busy |= (~(uint64_t)0 >> (PAGES - s->pages)) << first;
  bucket_insert(l, b);
  s->bed_next = b->slabs;
  if (b->slabs) b->slabs->bed_prev = s;
  b->slabs = s;
  return s;
}

// Gives a wholly free slab's pages back, and its bed's granule when that was the last slab.
static void drop_slab(lane *l, slab *s) {
  bed *b = s->bed;
  if (s->bed_prev)
    s->bed_prev->bed_next = s->bed_next;
  else
    b->slabs = s->bed_next;
  if (s->bed_next) s->bed_next->bed_prev = s->bed_prev;
  bucket_remove(l, b);
  b->busy &= ~((~(uint64_t)0 >> (PAGES - s->pages)) << s->first_page);
  if (b->busy) {
    bucket_insert(l, b);
  } else {
    count_idle(l, (size_t)-1);
    cnn_space_give(&l->space, b->extent);
    l->beds--;
    free(b);
  }
  free(s);
}

bool lane_drop_spares(lane *l) {
  bool any = false;
  for (int i = 0; i < CLASSES; i++) {
    slab *s = l->classes[i].spare;
    if (!s) continue;
    l->classes[i].spare = NULL;
    drop_slab(l, s);
    any = true;
  }
  return any;
}

// --- Small blocks -------------------------------------------------------------------------------

size_t lane_class_size(int cls) {
  if (cls == CNN_POOL_CLASSES - 1) return SIZE_MAX;
  if (cls >= CLASSES) return (size_t)2 * CNN_POOL_SMALL << (cls - CLASSES);
  if (cls < FINE_CLASSES) return (size_t)(cls + 1) * 64;
  cls -= FINE_CLASSES;
  return (size_t)(9 + cls % 8) << (cls / 8 + 7);
}

// As few pages per slab as leave at most a sixteenth unused.
static void init_class(lane *l, int cls) {
  size_class *c = &l->classes[cls];
  size_t align = l->pool->mapper->alignment, size = lane_class_size(cls), page = l->pool->page;
  size_t stride = (size + CNN_POOL_REDZONE + align - 1) & ~(align - 1), pages = 1;
  while (pages * page < stride || pages * page % stride > pages * page / 16) pages++;
  if (pages > PAGES) pages = PAGES;
  c->size = (uint32_t)size;
  c->stride = (uint32_t)stride;
  c->pages = (uint32_t)pages;
  c->slots = (uint32_t)(pages * page / stride);
}

slab *lane_slab(lane *l, int cls) {
  size_class *c = &l->classes[cls];
  // Blocks that other streams have done with come before fresh memory.
  if (l->pool->root->queue) pool_poll(l->pool->root);
  if (c->partial) return c->partial;
  slab *s = c->spare;
  c->spare = NULL;
  if (!s) s = new_slab(l, cls);
  // The spares of other classes may be all that keeps a granule from being free.
  if (!s && lane_drop_spares(l)) s = new_slab(l, cls);
  if (!s) return NULL;
  if (s->bed->busy_slabs++ == 0) count_idle(l, (size_t)-1);
  lane_list_partial(c, s);
  return s;
}

void lane_retire(lane *l, slab *s) {
  size_class *c = &l->classes[s->cls];
  lane_unlist_partial(c, s);
  if (--s->bed->busy_slabs == 0) count_idle(l, 1);
  if (c->spare)
    drop_slab(l, s);
  else
    c->spare = s;
}

// --- Large blocks -------------------------------------------------------------------------------

size_t lane_large_bytes(const lane *l, size_t size) {
  size_t align = l->pool->mapper->alignment;
  return (size + CNN_POOL_REDZONE + align - 1) & ~(align - 1);
}

block *lane_take_large(lane *l, size_t size) {
  block *b = l->spare_blocks;
  if (b) {
    l->spare_blocks = b->next_free;
  } else {
    large_block *new = malloc(sizeof *new);
    if (!new) return NULL;
    new->lane = l;
    b = &new->block;
  }
  if (l->pool->root->queue) pool_poll(l->pool->root);
  size_t whole = lane_large_bytes(l, size);
  cnn_extent *e = cnn_space_take(&l->space, whole);
  if (!e && lane_drop_spares(l)) e = cnn_space_take(&l->space, whole);
  if (!e) {
    b->next_free = l->spare_blocks;
    l->spare_blocks = b;
    return NULL;
  }
  e->owner = b;
  e->tag = BLOCK;
  b->pub.data = (void *)e->begin;
  b->pub.size = size;
  b->home = e;
  return b;
}

void lane_give_large(lane *l, block *b) {
  l->dirty = l->stale = true;
  cnn_space_give(&l->space, b->home);
  b->next_free = l->spare_blocks;
  l->spare_blocks = b;
}

// --- Opening and closing ------------------------------------------------------------------------

static bool settle(void *owner) {
  return lane_settle(owner);
}

bool lane_open(lane *l, cnn_pool *pool, void *stream, size_t range_bytes) {
  l->pool = pool;
  l->stream = stream;
  if (!cnn_space_open(&l->space, pool->mapper, &pool->quota, range_bytes)) return false;
  l->space.settle = pool->mapper->record ? settle : NULL;
  l->space.owner = l;
  for (int i = 0; i < CLASSES; i++) init_class(l, i);
  return true;
}

void lane_close(lane *l) {
  lane_drop_spares(l);
  bool patient = l->pool->root->patient;
  l->pool->root->patient = true;
  lane_settle(l);
  l->pool->root->patient = patient;
  if (l->event) l->pool->mapper->forget(l->pool->mapper->self, l->event);
  cnn_space_close(&l->space);
  for (block *b = l->spare_blocks, *next; b; b = next) {
    next = b->next_free;
    free(b);
  }
}
