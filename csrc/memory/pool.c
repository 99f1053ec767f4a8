// SPDX-License-Identifier: MIT
#include "memory/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/lock.h"
#include "memory/guard.h"
#include "memory/poison.h"
#include "memory/pool_parts.h"

// Of address space a pool asks for this at first, a further one for so many times its limit.
#define RANGE_BYTES  ((size_t)1 << 40)
#define RANGE_LIMITS 16

// --- Forks --------------------------------------------------------------------------------------

// A fork waits until no thread is inside of a pool, so that the child finds each one whole and
// unlocked.
static cnn_lock all_lock;
static cnn_pool *all_roots;

static void before_fork(void) {
  cnn_lock_acquire(&all_lock);
  for (cnn_pool *p = all_roots; p; p = p->next) cnn_lock_acquire(p->lock);
}

static void after_fork(void) {
  for (cnn_pool *p = all_roots; p; p = p->next) cnn_lock_release(p->lock);
  cnn_lock_release(&all_lock);
}

static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork, after_fork);
}

// --- Statistics ---------------------------------------------------------------------------------

static void count(cnn_pool_counter *c, int64_t n) {
  c->current += n;
  c->total += n;
  if (c->current > c->peak) c->peak = c->current;
}

static void add(counts *c, const cnn_block *b) {
  int cls = class_of(b->size), large = cls >= CLASSES;
  count(&c->allocated, (int64_t)b->size);
  count(&c->requested, (int64_t)b->requested);
  count(&c->blocks, 1);
  count(&c->kinds[b->kind], (int64_t)b->size);
  count(&c->bytes_by[large], (int64_t)b->size);
  count(&c->blocks_by[large], 1);
  count(&c->classes[cls], 1);
  atomic_store_explicit(&c->live, c->allocated.current, memory_order_relaxed);
}

static void remove_from(counts *c, const cnn_block *b) {
  int cls = class_of(b->size), large = cls >= CLASSES;
  c->allocated.current -= (int64_t)b->size;
  c->requested.current -= (int64_t)b->requested;
  c->blocks.current -= 1;
  c->kinds[b->kind].current -= (int64_t)b->size;
  c->bytes_by[large].current -= (int64_t)b->size;
  c->blocks_by[large].current -= 1;
  c->classes[cls].current -= 1;
  atomic_store_explicit(&c->live, c->allocated.current, memory_order_relaxed);
}

static void count_in(cnn_pool *p, const cnn_block *b) {
  add(&p->count, b);
  if (p != p->root) add(&p->root->count, b);
}

static void count_out(cnn_pool *p, const cnn_block *b) {
  remove_from(&p->count, b);
  if (p != p->root) remove_from(&p->root->count, b);
}

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

static void bucket_remove(cnn_pool *p, bed *b) {
  if (b->prev)
    b->prev->next = b->next;
  else
    p->buckets[b->run] = b->next;
  if (b->next) b->next->prev = b->prev;
  if (b->run && !p->buckets[b->run]) p->bucket_mask &= ~((uint64_t)1 << (b->run - 1));
}

static void bucket_insert(cnn_pool *p, bed *b) {
  b->run = longest_run(b->busy);
  b->prev = NULL;
  b->next = p->buckets[b->run];
  if (b->next) b->next->prev = b;
  p->buckets[b->run] = b;
  if (b->run) p->bucket_mask |= (uint64_t)1 << (b->run - 1);
}

static bed *new_bed(cnn_pool *p) {
  bed *b = malloc(sizeof *b);
  if (!b) return NULL;
  *b = (bed){.extent = cnn_space_take(&p->space, p->mapper->granule)};
  if (!b->extent) {
    free(b);
    return NULL;
  }
  b->extent->owner = b;
  b->extent->tag = BED;
  p->beds++;
  bucket_insert(p, b);
  return b;
}

// --- Slabs --------------------------------------------------------------------------------------

static slab *new_slab(cnn_pool *p, int cls) {
  const size_class *c = &p->classes[cls];
  slab *s = malloc(sizeof *s + c->slots * sizeof(block));
  if (!s) return NULL;
  // The fullest bed that has room, so that others run empty.
  uint64_t fits = p->bucket_mask >> (c->pages - 1) << (c->pages - 1);
  bed *b = fits ? p->buckets[__builtin_ctzll(fits) + 1] : new_bed(p);
  if (!b) {
    free(s);
    return NULL;
  }
  int first = __builtin_ctzll(runs_of(b->busy, (int)c->pages));
  *s = (slab){.slots = (int)c->slots,
              .cls = cls,
              .first_page = first,
              .pages = (int)c->pages,
              .bed = b,
              .base = b->extent->begin + (size_t)first * p->page};
  bucket_remove(p, b);
  b->busy |= (~(uint64_t)0 >> (PAGES - s->pages)) << first;
  bucket_insert(p, b);
  s->bed_next = b->slabs;
  if (b->slabs) b->slabs->bed_prev = s;
  b->slabs = s;
  return s;
}

// Gives a wholly free slab's pages back, and its bed's granule when that was the last slab.
static void drop_slab(cnn_pool *p, slab *s) {
  bed *b = s->bed;
  if (s->bed_prev)
    s->bed_prev->bed_next = s->bed_next;
  else
    b->slabs = s->bed_next;
  if (s->bed_next) s->bed_next->bed_prev = s->bed_prev;
  bucket_remove(p, b);
  b->busy &= ~((~(uint64_t)0 >> (PAGES - s->pages)) << s->first_page);
  if (b->busy) {
    bucket_insert(p, b);
  } else {
    cnn_space_give(&p->space, b->extent);
    p->beds--;
    free(b);
  }
  free(s);
}

// Drops the wholly free slabs that are kept; false when there were none.
static bool drop_spares(cnn_pool *p) {
  bool any = false;
  for (int i = 0; i < CLASSES; i++) {
    slab *s = p->classes[i].spare;
    if (!s) continue;
    p->classes[i].spare = NULL;
    drop_slab(p, s);
    any = true;
  }
  return any;
}

// --- The pools of a device ----------------------------------------------------------------------

// Free granules, and those that only spare slabs occupy.
static size_t reclaimable(const cnn_pool *p) {
  size_t n = p->space.whole_free;
  for (int i = 0; i < CLASSES; i++) {
    const slab *s = p->classes[i].spare;
    if (!s || s->bed_prev) continue; // each bed is looked at from its first slab
    while (s && s->used == 0) s = s->bed_next;
    if (!s) n++;
  }
  return n;
}

static size_t reclaimable_elsewhere(const cnn_pool *p) {
  size_t n = 0;
  for (const cnn_pool *q = p->root; q; q = q->sibling)
    if (q != p) n += reclaimable(q);
  return n;
}

// Makes the other pools of the device give back up to so many granules; returns how many.
static size_t trim_elsewhere(cnn_pool *p, size_t wanted) {
  size_t done = 0;
  for (cnn_pool *q = p->root; q && done < wanted; q = q->sibling)
    if (q != p) done += cnn_space_trim(&q->space, wanted - done);
  for (cnn_pool *q = p->root; q && done < wanted; q = q->sibling)
    if (q != p && drop_spares(q)) done += cnn_space_trim(&q->space, wanted - done);
  return done;
}

// A request for `need` granules failed. Has other pools give back what it lacks; false when that is
// in vain, and then nothing is given.
static bool borrow(cnn_pool *p, size_t need) {
  const cnn_space *s = &p->space;
  if (!p->root->sibling) return false;
  size_t own = s->limit > s->committed ? s->limit - s->committed : 0;
  if (need > s->whole_free + own) return false;
  size_t have = s->whole_free + cnn_space_room(s);
  // Enough under the limits: it was the device that refused.
  if (need <= have) return trim_elsewhere(p, SIZE_MAX) > 0;
  return need - have <= reclaimable_elsewhere(p) && trim_elsewhere(p, need - have) >= need - have;
}

// --- Small blocks -------------------------------------------------------------------------------

static void partial_insert(size_class *c, slab *s) {
  s->prev = NULL;
  s->next = c->partial;
  if (s->next) s->next->prev = s;
  c->partial = s;
}

static void partial_remove(size_class *c, slab *s) {
  if (s->prev)
    s->prev->next = s->next;
  else
    c->partial = s->next;
  if (s->next) s->next->prev = s->prev;
}

static size_t class_size(int cls) {
  if (cls == CNN_POOL_CLASSES - 1) return SIZE_MAX;
  if (cls >= CLASSES) return (size_t)2 * CNN_POOL_SMALL << (cls - CLASSES);
  if (cls < FINE_CLASSES) return (size_t)(cls + 1) * 64;
  cls -= FINE_CLASSES;
  return (size_t)(9 + cls % 8) << (cls / 8 + 7);
}

// As few pages per slab as leave at most a sixteenth unused.
static void init_class(cnn_pool *p, int cls) {
  size_class *c = &p->classes[cls];
  size_t align = p->mapper->alignment, size = class_size(cls);
  size_t stride = (size + CNN_POOL_REDZONE + align - 1) & ~(align - 1), pages = 1;
  while (pages * p->page < stride || pages * p->page % stride > pages * p->page / 16) pages++;
  if (pages > PAGES) pages = PAGES;
  c->size = (uint32_t)size;
  c->stride = (uint32_t)stride;
  c->pages = (uint32_t)pages;
  c->slots = (uint32_t)(pages * p->page / stride);
}

static slab *slab_with_room(cnn_pool *p, int cls) {
  size_class *c = &p->classes[cls];
  slab *s = c->spare;
  c->spare = NULL;
  if (!s) s = new_slab(p, cls);
  // The spares of other classes may be all that keeps a granule from being free.
  if (!s && drop_spares(p)) s = new_slab(p, cls);
  if (!s && borrow(p, 1)) s = new_slab(p, cls);
  if (s) partial_insert(c, s);
  return s;
}

static block *take_small(cnn_pool *p, int cls) {
  size_class *c = &p->classes[cls];
  slab *s = c->partial;
  if (__builtin_expect(!s, 0) && !(s = slab_with_room(p, cls))) return NULL;
  block *b = s->free;
  if (b) {
    s->free = b->next_free;
  } else {
    b = &s->blocks[s->carved];
    b->pub.data = (void *)(s->base + (size_t)s->carved * c->stride);
    b->pub.size = c->size;
    b->home = s;
    s->carved++;
  }
  if (__builtin_expect(++s->used == s->slots, 0)) partial_remove(c, s);
  return b;
}

static void give_small(cnn_pool *p, block *b) {
  slab *s = b->home;
  size_class *c = &p->classes[s->cls];
  b->next_free = s->free;
  s->free = b;
  if (s->used-- == s->slots) partial_insert(c, s);
  if (__builtin_expect(s->used == 0, 0)) {
    partial_remove(c, s);
    if (c->spare)
      drop_slab(p, s);
    else
      c->spare = s;
  }
}

// --- Large blocks -------------------------------------------------------------------------------

static block *take_large(cnn_pool *p, size_t size) {
  size_t align = p->mapper->alignment;
  block *b = p->spare_blocks;
  if (b)
    p->spare_blocks = b->next_free;
  else if (!(b = malloc(sizeof *b)))
    return NULL;
  size_t whole = (size + CNN_POOL_REDZONE + align - 1) & ~(align - 1);
  cnn_extent *e = cnn_space_take(&p->space, whole);
  if (!e && drop_spares(p)) e = cnn_space_take(&p->space, whole);
  if (!e && borrow(p, (whole + p->mapper->granule - 1) / p->mapper->granule))
    e = cnn_space_take(&p->space, whole);
  if (!e) {
    b->next_free = p->spare_blocks;
    p->spare_blocks = b;
    return NULL;
  }
  e->owner = b;
  e->tag = BLOCK;
  b->pub.data = (void *)e->begin;
  b->pub.size = size;
  b->home = e;
  return b;
}

static void give_large(cnn_pool *p, block *b) {
  cnn_space_give(&p->space, b->home);
  b->next_free = p->spare_blocks;
  p->spare_blocks = b;
}

// --- The limit ----------------------------------------------------------------------------------

static void set_limit(cnn_pool *p, size_t bytes) {
  if (bytes > INT64_MAX) bytes = INT64_MAX;
  atomic_store_explicit(&p->limit, (long long)bytes, memory_order_relaxed);
  p->space.limit = bytes / p->mapper->granule;
  if (p == p->root) p->quota.limit = p->space.limit;
}

static bool within_limits(const cnn_space *s) {
  return s->committed <= s->limit && s->quota->committed <= s->quota->limit;
}

static size_t excess(const cnn_space *s) {
  const cnn_quota *q = s->quota;
  size_t own = s->committed > s->limit ? s->committed - s->limit : 0;
  size_t all = q->committed > q->limit ? q->committed - q->limit : 0;
  return own > all ? own : all;
}

// Gives free granules back until the limits hold; false when too much is in use for that.
static bool meet_limit(cnn_pool *p) {
  cnn_space *s = &p->space;
  cnn_space_trim(s, excess(s));
  if (!within_limits(s) && drop_spares(p)) cnn_space_trim(s, excess(s));
  if (s->quota->committed > s->quota->limit)
    trim_elsewhere(p, s->quota->committed - s->quota->limit);
  return within_limits(s);
}

// Granules that a request could have: those that can be reclaimed here, and those that may still be
// committed, for which other pools of the device give way.
static size_t available(const cnn_pool *p) {
  const cnn_space *s = &p->space;
  int64_t own = (int64_t)s->limit - (int64_t)s->committed;
  int64_t all = (int64_t)s->quota->limit - (int64_t)s->quota->committed;
  all += (int64_t)reclaimable_elsewhere(p);
  int64_t n = (own < all ? own : all) + (int64_t)reclaimable(p);
  return n > 0 ? (size_t)n : 0;
}

// --- The interface ------------------------------------------------------------------------------

static cnn_pool *create(const cnn_mapper *mapper, cnn_pool *root, size_t range_bytes) {
  size_t granule = mapper->granule, align = mapper->alignment, page = granule / PAGES;
  // A bed's page must keep the alignment, and the largest class fit into a bed.
  if (granule & (granule - 1) || align & (align - 1) || align < 64 || page < align ||
      granule < 2 * CNN_POOL_SMALL)
    return NULL;
  cnn_pool *p = cnn_calloc(sizeof *p);
  if (!p) return NULL;
  p->mapper = mapper;
  p->page = page;
  p->root = root ? root : p;
  p->lock = &p->root->own_lock;
  // The device is asked for one thing at a time.
  cnn_lock_acquire(p->lock);
  bool opened = cnn_space_open(&p->space, mapper, &p->root->quota, range_bytes);
  cnn_lock_release(p->lock);
  if (!opened) {
    cnn_free(p);
    return NULL;
  }
  for (int i = 0; i < CLASSES; i++) init_class(p, i);
  return p;
}

cnn_pool *cnn_pool_create(const cnn_mapper *mapper) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  cnn_pool *p = create(mapper, NULL, RANGE_BYTES);
  if (!p) return NULL;
  size_t total, free_now, limit;
  mapper->info(mapper->self, &total, &free_now, &limit);
  set_limit(p, limit);
  pthread_once(&once, watch_forks);
  cnn_lock_acquire(&all_lock);
  p->next = all_roots;
  all_roots = p;
  cnn_lock_release(&all_lock);
  return p;
}

cnn_pool *cnn_pool_create_in(cnn_pool *root, size_t limit, const char *name) {
  size_t bound = (size_t)cnn_pool_limit(root);
  if (limit < bound) bound = limit;
  size_t range = bound < RANGE_BYTES / RANGE_LIMITS ? bound * RANGE_LIMITS : RANGE_BYTES;
  cnn_pool *p = create(root->mapper, root, range);
  if (!p) return NULL;
  snprintf(p->name, sizeof p->name, "%s", name);
  set_limit(p, limit);
  cnn_lock_acquire(p->lock);
  p->sibling = root->sibling;
  root->sibling = p;
  cnn_lock_release(p->lock);
  return p;
}

// With the device's lock held, if it is no root.
static void dismantle(cnn_pool *pool) {
  drop_spares(pool);
  cnn_space_close(&pool->space);
  for (block *b = pool->spare_blocks, *next; b; b = next) {
    next = b->next_free;
    free(b);
  }
  cnn_free(pool);
}

void cnn_pool_destroy(cnn_pool *pool) {
  if (!pool) return;
  assert(pool->root == pool && !pool->sibling && pool->count.blocks.current == 0);
  cnn_lock_acquire(&all_lock);
  cnn_pool **at = &all_roots;
  while (*at != pool) at = &(*at)->next;
  *at = pool->next;
  cnn_lock_release(&all_lock);
  dismantle(pool);
}

// With the lock held.
static void leave_when_empty(cnn_pool *p) {
  if (!p->closed || p->count.blocks.current > 0) return;
  cnn_pool **at = &p->root->sibling;
  while (*at != p) at = &(*at)->sibling;
  *at = p->sibling;
  dismantle(p);
}

void cnn_pool_close(cnn_pool *pool) {
  assert(pool->root != pool && !pool->closed);
  cnn_lock *lock = pool->lock;
  cnn_lock_acquire(lock);
  pool->closed = true;
  leave_when_empty(pool);
  cnn_lock_release(lock);
}

cnn_pool *cnn_pool_root(cnn_pool *pool) {
  return pool->root;
}

const char *cnn_pool_name(const cnn_pool *pool) {
  return pool->name;
}

size_t cnn_pool_granule(const cnn_pool *pool) {
  return pool->mapper->granule;
}

cnn_block *cnn_pool_alloc(cnn_pool *pool, size_t bytes, uint8_t kind) {
  size_t align = pool->mapper->alignment;
  bool guarded = cnn_guards_on() && pool->mapper->host;
  if (bytes == 0) bytes = 1;
  size_t size = ((bytes + align - 1) & ~(align - 1)) + (guarded ? 2 * align : 0);
  bool refused = cnn_fault_hit() || bytes > PTRDIFF_MAX;
  block *b = NULL;
  cnn_lock_acquire(pool->lock);
  if (__builtin_expect(!refused, 1) &&
      (__builtin_expect(within_limits(&pool->space), 1) || meet_limit(pool)))
    b = size <= CNN_POOL_SMALL ? take_small(pool, class_of(size)) : take_large(pool, size);
  if (__builtin_expect(b != NULL, 1)) {
    b->pub.requested = bytes;
    b->pub.kind = kind % CNN_POOL_KINDS;
    b->pub.guarded = guarded;
    if (__builtin_expect(guarded, 0)) b->pub.data = (char *)b->pub.data + align;
    b->pub.origin = 0;
    b->pub.serial = 0;
    count_in(pool, &b->pub);
  } else {
    pool->count.failures++;
    if (pool != pool->root) pool->root->count.failures++;
  }
  cnn_lock_release(pool->lock);
  if (!b) return NULL;
  if (__builtin_expect(guarded, 0))
    cnn_guard_lay(pool->mapper, &b->pub);
  else
    CNN_UNPOISON(pool->mapper, b->pub.data, bytes);
  return &b->pub;
}

void cnn_pool_free(cnn_pool *pool, cnn_block *public) {
  block *b = (block *)public;
  cnn_lock *lock = pool->lock;
  assert(b->pub.requested != 0);
  void *start = b->pub.data;
  if (__builtin_expect(b->pub.guarded, 0)) {
    cnn_guard_lift(pool->mapper, &b->pub);
    start = (char *)start - pool->mapper->alignment;
  }
  CNN_POISON(pool->mapper, start, b->pub.size);
  cnn_lock_acquire(lock);
  count_out(pool, &b->pub);
  b->pub.requested = 0;
  b->pub.data = start;
  b->pub.guarded = false;
  if (b->pub.size <= CNN_POOL_SMALL)
    give_small(pool, b);
  else
    give_large(pool, b);
  if (__builtin_expect(pool->closed, 0)) leave_when_empty(pool);
  cnn_lock_release(lock);
}

void cnn_pool_retag(cnn_pool *pool, cnn_block *b, uint8_t kind) {
  kind %= CNN_POOL_KINDS;
  cnn_lock_acquire(pool->lock);
  if (b->kind != kind) {
    counts *both[] = {&pool->count, &pool->root->count};
    for (int i = 0; i < (pool == pool->root ? 1 : 2); i++) {
      both[i]->kinds[b->kind].current -= (int64_t)b->size;
      count(&both[i]->kinds[kind], (int64_t)b->size);
    }
    b->kind = kind;
  }
  cnn_lock_release(pool->lock);
}

void cnn_pool_stamp(cnn_pool *pool, cnn_block *b, uint16_t origin, uint32_t serial) {
  cnn_lock_acquire(pool->lock);
  b->origin = origin;
  b->serial = serial;
  cnn_lock_release(pool->lock);
}

size_t cnn_pool_trim(cnn_pool *pool) {
  cnn_lock_acquire(pool->lock);
  drop_spares(pool);
  size_t done = cnn_space_trim(&pool->space, SIZE_MAX);
  if (pool == pool->root) done += trim_elsewhere(pool, SIZE_MAX);
  cnn_lock_release(pool->lock);
  return done * pool->mapper->granule;
}

void cnn_pool_set_limit(cnn_pool *pool, size_t bytes) {
  cnn_lock_acquire(pool->lock);
  set_limit(pool, bytes);
  meet_limit(pool);
  cnn_lock_release(pool->lock);
}

void cnn_pool_info(const cnn_pool *pool, size_t *total, size_t *available, size_t *limit) {
  pool->mapper->info(pool->mapper->self, total, available, limit);
}

void cnn_pool_get_stats(cnn_pool *pool, cnn_pool_stats *stats) {
  const counts *c = &pool->count;
  bool root = pool == pool->root;
  int64_t granule = (int64_t)pool->mapper->granule;
  cnn_lock_acquire(pool->lock);
  *stats = (cnn_pool_stats){.allocated = c->allocated,
                            .requested = c->requested,
                            .reserved = root ? pool->quota.reserved : pool->space.reserved,
                            .blocks = c->blocks,
                            .small = c->bytes_by[0],
                            .small_blocks = c->blocks_by[0],
                            .large = c->bytes_by[1],
                            .large_blocks = c->blocks_by[1],
                            .limit = cnn_pool_limit(pool),
                            .available = (int64_t)available(pool) * granule,
                            .maps = root ? pool->quota.maps : pool->space.maps,
                            .unmaps = root ? pool->quota.unmaps : pool->space.unmaps,
                            .failures = c->failures};
  for (int k = 0; k < CNN_POOL_KINDS; k++) stats->kinds[k] = c->kinds[k];
  stats->inactive = stats->inactive_split = stats->reserved.current - c->allocated.current;
  for (const cnn_pool *q = pool; q; q = root ? q->sibling : NULL) {
    int64_t largest = (int64_t)cnn_space_largest(&q->space);
    if (largest > stats->largest_free) stats->largest_free = largest;
    stats->small_reserved += (int64_t)q->beds * granule;
    stats->inactive_split -= (int64_t)reclaimable(q) * granule;
  }
  cnn_lock_release(pool->lock);
}

void cnn_pool_get_classes(cnn_pool *pool, cnn_pool_class classes[CNN_POOL_CLASSES]) {
  cnn_lock_acquire(pool->lock);
  for (int i = 0; i < CNN_POOL_CLASSES; i++)
    classes[i] = (cnn_pool_class){class_size(i), pool->count.classes[i]};
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
  reset_peaks(pool == pool->root ? &pool->quota.reserved : &pool->space.reserved, 1);
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

// --- Looking ------------------------------------------------------------------------------------

static void walk_bed(const cnn_pool *p, const bed *b, cnn_piece *piece,
                     void (*visit)(void *data, const cnn_piece *piece), void *data) {
  piece->what = CNN_PIECE_SMALL;
  for (const slab *s = b->slabs; s; s = s->bed_next) {
    size_t stride = p->classes[s->cls].stride;
    for (int i = 0; i < s->carved; i++) {
      if (!s->blocks[i].pub.requested) continue;
      piece->block = s->blocks[i].pub;
      piece->at = s->base + (size_t)i * stride;
      piece->bytes = piece->block.size;
      visit(data, piece);
    }
  }
}

static void walk(const cnn_pool *p, void (*visit)(void *data, const cnn_piece *piece), void *data) {
  cnn_piece piece = {.at = 0};
  memcpy(piece.pool, p->name, sizeof piece.pool);
  for (const cnn_range *r = p->space.ranges; r; r = r->next) {
    for (const cnn_extent *e = r->first; e; e = e->next) {
      bool taken = e->state == CNN_EXTENT_TAKEN, is_bed = taken && e->tag == BED;
      piece.at = e->begin;
      piece.bytes = e->end - e->begin;
      if (!taken)
        piece.what = e->state == CNN_EXTENT_FREE ? CNN_PIECE_FREE : CNN_PIECE_VOID;
      else if (is_bed)
        piece.what = CNN_PIECE_BED;
      else
        piece.what = CNN_PIECE_LARGE, piece.block = ((const block *)e->owner)->pub;
      visit(data, &piece);
      if (is_bed) walk_bed(p, e->owner, &piece, visit, data);
    }
  }
}

void cnn_pool_walk(cnn_pool *pool, void (*visit)(void *data, const cnn_piece *piece), void *data) {
  cnn_lock_acquire(pool->lock);
  for (const cnn_pool *p = pool; p; p = pool == pool->root ? p->sibling : NULL)
    walk(p, visit, data);
  cnn_lock_release(pool->lock);
}
