// SPDX-License-Identifier: MIT
// Checks every invariant of a pool, for tests.
#include "memory/pool_parts.h"

typedef struct sums {
  size_t committed, reclaimable;
  int64_t waiting, waiting_blocks;
  int64_t allocated, requested, blocks, kinds[CNN_POOL_KINDS], classes[CNN_POOL_CLASSES];
} sums;

static uintptr_t start_of(const cnn_pool *p, const cnn_block *b) {
  return (uintptr_t)b->data - (b->guarded ? p->mapper->alignment : 0);
}

static const char *check_block(const block *b, sums *sum) {
  if (b->pub.requested > b->pub.size) return "pool: a block is smaller than was asked for";
  if (b->pub.kind >= CNN_POOL_KINDS) return "pool: a block's kind is none";
  for (const use *u = b->uses; u; u = u->next)
    if (u->block != b || u->lane != lane_of(b) || (u->over && (u->event || !block_waits(b))) ||
        (u->event && !block_waits(b)) || (u->waiting && u != b->uses))
      return "pool: a block's uses by other streams are wrong";
  if (block_waits(b)) {
    sum->waiting += (int64_t)b->pub.size;
    sum->waiting_blocks++;
    return NULL;
  }
  sum->allocated += (int64_t)b->pub.size;
  sum->requested += (int64_t)b->pub.requested;
  sum->blocks++;
  sum->kinds[b->pub.kind] += (int64_t)b->pub.size;
  sum->classes[class_of(b->pub.size)]++;
  return NULL;
}

static const char *check_slab(const lane *l, const slab *s, sums *sum) {
  const cnn_pool *p = l->pool;
  const size_class *c = &l->classes[s->cls];
  int used = 0, free_slots = 0;
  for (int i = 0; i < s->carved; i++) {
    const block *b = &s->blocks[i];
    if (b->home != s || start_of(p, &b->pub) != s->base + (size_t)i * c->stride ||
        b->pub.size != c->size)
      return "pool: a slot's block is wrong";
    const char *wrong = b->pub.requested ? check_block(b, sum) : NULL;
    if (wrong) return wrong;
    used += b->pub.requested != 0;
  }
  for (const block *b = s->free; b; b = b->next_free, free_slots++)
    if (b->home != s || b->pub.requested != 0 || free_slots > s->carved)
      return "pool: a free list is wrong";
  if (used != s->used || used + free_slots != s->carved) return "pool: slots are miscounted";
  bool listed = false;
  for (const slab *x = c->partial; x; x = x->next) listed |= x == s;
  if (listed != (used > 0 && used < s->slots)) return "pool: a slab is in the wrong list";
  if (used == 0 && c->spare != s) return "pool: a free slab is no spare";
  return NULL;
}

static const char *check_bed(const lane *l, const cnn_extent *e, sums *sum) {
  const bed *b = e->owner;
  uint64_t busy = 0;
  size_t granule = l->pool->mapper->granule;
  int busy_slabs = 0;
  if (b->extent != e || e->end - e->begin != granule || e->begin % granule != 0)
    return "pool: a granule of small blocks is wrong";
  for (const slab *s = b->slabs; s; s = s->bed_next) {
    uint64_t pages = (~(uint64_t)0 >> (PAGES - s->pages)) << s->first_page;
    if (s->bed != b || s->lane != l || busy & pages) return "pool: slabs overlap";
    busy |= pages;
    busy_slabs += s->used > 0;
    const char *wrong = check_slab(l, s, sum);
    if (wrong) return wrong;
  }
  if (busy != b->busy || !busy || b->run != longest_run(busy)) return "pool: pages are miscounted";
  if (busy_slabs != b->busy_slabs) return "pool: slabs in use are miscounted";
  bool listed = false;
  for (const bed *x = l->buckets[b->run]; x; x = x->next) listed |= x == b;
  return listed ? NULL : "pool: a granule is in the wrong bucket";
}

static const char *check_large(const lane *l, const cnn_extent *e, sums *sum) {
  const block *b = e->owner;
  if (lane_of(b) != l || e->tag != BLOCK || b->home != e ||
      start_of(l->pool, &b->pub) != e->begin || b->pub.requested == 0 ||
      b->pub.size <= CNN_POOL_SMALL || e->begin + b->pub.size > e->end)
    return "pool: a large block is wrong";
  return check_block(b, sum);
}

static const char *check_lane(const lane *l, sums *sum) {
  size_t beds = 0, idle = 0;
  const char *wrong = cnn_space_check(&l->space);
  for (const cnn_range *r = l->space.ranges; r && !wrong; r = r->next) {
    for (const cnn_extent *e = r->first; e && !wrong; e = e->next) {
      if (e->state != CNN_EXTENT_TAKEN) continue;
      beds += e->tag == BED;
      idle += e->tag == BED && ((const bed *)e->owner)->busy_slabs == 0;
      if (e->tag == BED)
        wrong = check_bed(l, e, sum);
      else
        wrong = check_large(l, e, sum);
    }
  }
  if (wrong) return wrong;
  if (beds != l->beds || idle != l->idle_beds)
    return "pool: granules of small blocks are miscounted";
  for (int n = 0; n <= PAGES; n++)
    if (n > 0 && (l->buckets[n] != NULL) != (l->bucket_mask >> (n - 1) & 1))
      return "pool: the mask of buckets is wrong";
  if (l->dead != (l->stream == l) || (l->dead && (!l->pool->untidy || l == &l->pool->first)))
    return "pool: a dead lane is wrong";
  if (l->event && !l->dirty) return "pool: a lane's event is of no use";
  return NULL;
}

static const char *check_own(const cnn_pool *p, sums *sum) {
  size_t committed = 0, reclaimable = 0;
  for (const lane *l = &p->first; l; l = l->next) {
    if (l->pool != p) return "pool: a lane is in the wrong pool";
    for (const lane *other = l->next; other; other = other->next)
      if (other->stream == l->stream) return "pool: a stream has two lanes";
    const char *wrong = check_lane(l, sum);
    if (wrong) return wrong;
    committed += l->space.committed;
    reclaimable += lane_reclaimable(l);
  }
  if (p != p->root && (committed != p->quota.committed || reclaimable != p->quota.reclaimable))
    return "pool: its granules are miscounted";
  sum->committed += committed;
  sum->reclaimable += reclaimable;
  return NULL;
}

// Every waiting block of the device is in the queue, once.
static const char *check_queue(const cnn_pool *root, const sums *sum) {
  int64_t n = 0;
  use *const *end = &root->queue;
  for (const use *u = root->queue; u; u = u->later, n++) {
    if (n > sum->waiting_blocks || !u->waiting || u->block->uses != u || !block_waits(u->block))
      return "pool: the queue of waiting blocks is wrong";
    end = &u->later;
  }
  if (n != sum->waiting_blocks || (n > 0 && root->queue_end != end))
    return "pool: the queue of waiting blocks is incomplete";
  return NULL;
}

static bool plausible(const cnn_pool_counter *c, int n) {
  for (int i = 0; i < n; i++)
    if (c[i].current < 0 || c[i].current > c[i].peak || c[i].peak > c[i].total) return false;
  return true;
}

// A root is checked with all pools of its device, whose counts it has.
static const char *check(const cnn_pool *p) {
  sums sum = {0};
  const char *wrong = NULL;
  const counts *c = &p->count;
  for (const cnn_pool *q = p; q && !wrong; q = p == p->root ? q->sibling : NULL)
    wrong = check_own(q, &sum);
  if (!wrong && p == p->root) wrong = check_queue(p, &sum);
  if (wrong) return wrong;
  if (sum.waiting != c->waiting || sum.waiting_blocks != c->waiting_blocks)
    return "pool: waiting blocks are miscounted";
  if (sum.allocated != c->allocated.current || sum.requested != c->requested.current ||
      sum.blocks != c->blocks.current || sum.allocated != atomic_load(&c->live))
    return "pool: blocks in use are miscounted";
  for (int k = 0; k < CNN_POOL_KINDS; k++)
    if (sum.kinds[k] != c->kinds[k].current) return "pool: a kind is miscounted";
  int64_t small = 0;
  for (int i = 0; i < CNN_POOL_CLASSES; i++) {
    if (sum.classes[i] != c->classes[i].current) return "pool: a class is miscounted";
    if (i < CLASSES) small += sum.classes[i];
  }
  if (small != c->blocks_by[0].current || sum.blocks - small != c->blocks_by[1].current ||
      c->bytes_by[0].current + c->bytes_by[1].current != sum.allocated)
    return "pool: small and large blocks are miscounted";
  if (sum.committed != p->quota.committed || sum.reclaimable != p->quota.reclaimable ||
      p->quota.reserved.current != (int64_t)(sum.committed * p->mapper->granule) ||
      atomic_load(&p->quota.now) != p->quota.reserved.current)
    return "pool: the device's granules are miscounted";
  if (!plausible(&c->allocated, 1) || !plausible(&c->requested, 1) || !plausible(&c->blocks, 1) ||
      !plausible(c->kinds, CNN_POOL_KINDS) || !plausible(c->bytes_by, 2) ||
      !plausible(c->blocks_by, 2) || !plausible(c->classes, CNN_POOL_CLASSES) ||
      !plausible(&p->quota.reserved, 1) || !plausible(&c->inactive, 1) ||
      !plausible(&c->inactive_split, 1) || c->inactive_split.current > c->inactive.current ||
      sum.allocated + sum.waiting > (int64_t)(sum.committed * p->mapper->granule) ||
      sum.requested > sum.allocated)
    return "pool: a counter is wrong";
  return NULL;
}

const char *cnn_pool_check(cnn_pool *pool) {
  cnn_lock_acquire(pool->lock);
  pool_fold_idle(pool);
  const char *wrong = check(pool);
  cnn_lock_release(pool->lock);
  return wrong;
}
