// SPDX-License-Identifier: MIT
#include "memory/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/lock.h"
#include "memory/poison.h"
#include "memory/space.h"

// Small blocks: a granule that serves them (a `bed`) is cut into 64 pages, and runs of pages are
// slabs: arrays of slots of one size class. The block structures are the slab's, one per slot, and
// hold the free list, so that the device's memory itself is never touched.
#define PAGES 64
// Classes: steps of 64 bytes up to 1 KiB, then 8 steps per power of two.
#define FINE_CLASSES 16
#define CLASSES      (FINE_CLASSES + 8 * 8)

// What a taken extent is.
enum { BED = 1, BLOCK };

typedef struct slab slab;
typedef struct bed bed;

typedef struct block {
  cnn_block pub; // `requested` is 0 while the block is free
  void *home;    // the slab of a small block, the extent of a large one
  struct block *next_free;
} block;

struct slab {
  slab *prev, *next;       // among the class's slabs that have both used and free slots
  block *free;             // the last one freed first
  int used, carved, slots; // of the slots, `carved` were used at least once
  int cls, first_page, pages;
  bed *bed;
  slab *bed_prev, *bed_next; // among the bed's slabs
  uintptr_t base;
  block blocks[];
};

struct bed {
  cnn_extent *extent;
  uint64_t busy;    // one bit per page
  int run;          // the longest run of free pages, which is its bucket
  bed *prev, *next; // in the bucket
  slab *slabs;
};

typedef struct size_class {
  slab *partial; // slabs with both used and free slots
  slab *spare;   // one wholly free slab is kept, so that a lone block costs no new slab each time
  uint32_t size, stride, pages, slots;
} size_class;

struct cnn_pool {
  cnn_lock lock;
  const cnn_mapper *mapper;
  cnn_pool_counter allocated, requested, blocks, kinds[CNN_POOL_KINDS];
  atomic_llong live; // allocated.current for readers without the lock
  int64_t failures;
  size_t limit; // as it was set, in bytes, at most INT64_MAX
  size_t page;
  uint64_t bucket_mask;    // bit n: a bed has n + 1 free pages in a row as its longest run
  bed *buckets[PAGES + 1]; // by the longest run of free pages
  block *spare_blocks;     // structures of large blocks
  cnn_space space;
  cnn_pool *next; // in the list of all pools
  size_class classes[CLASSES];
};

// --- Forks --------------------------------------------------------------------------------------

// A fork waits until no thread is inside of a pool, so that the child finds each one whole and
// unlocked.
static cnn_lock all_lock;
static cnn_pool *all_pools;

static void before_fork(void) {
  cnn_lock_acquire(&all_lock);
  for (cnn_pool *p = all_pools; p; p = p->next) cnn_lock_acquire(&p->lock);
}

static void after_fork(void) {
  for (cnn_pool *p = all_pools; p; p = p->next) cnn_lock_release(&p->lock);
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

static void count_in(cnn_pool *p, const cnn_block *b) {
  count(&p->allocated, (int64_t)b->size);
  count(&p->requested, (int64_t)b->requested);
  count(&p->blocks, 1);
  count(&p->kinds[b->kind], (int64_t)b->size);
  atomic_store_explicit(&p->live, p->allocated.current, memory_order_relaxed);
}

static void count_out(cnn_pool *p, const cnn_block *b) {
  p->allocated.current -= (int64_t)b->size;
  p->requested.current -= (int64_t)b->requested;
  p->blocks.current -= 1;
  p->kinds[b->kind].current -= (int64_t)b->size;
  atomic_store_explicit(&p->live, p->allocated.current, memory_order_relaxed);
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

static int longest_run(uint64_t busy) {
  int n = 0;
  for (uint64_t starts = ~busy; starts; starts &= starts >> 1) n++;
  return n;
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

// --- Small blocks -------------------------------------------------------------------------------

static int class_of(size_t bytes) {
  if (bytes <= 1024) return (int)((bytes - 1) >> 6);
  int top = 63 - __builtin_clzll(bytes - 1);
  return FINE_CLASSES + (top - 10) * 8 + (int)(((bytes - 1) >> (top - 3)) & 7);
}

static size_t class_size(int cls) {
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
  p->limit = bytes < INT64_MAX ? bytes : INT64_MAX;
  p->space.limit = p->limit / p->mapper->granule;
}

// Gives free granules back until the limit holds; false when too much is in use for that.
static bool meet_limit(cnn_pool *p) {
  cnn_space *s = &p->space;
  if (s->committed > s->limit) cnn_space_trim(s, s->committed - s->limit);
  if (s->committed > s->limit && drop_spares(p)) cnn_space_trim(s, s->committed - s->limit);
  return s->committed <= s->limit;
}

// Granules that a request could have: free ones, those that only spare slabs occupy, and those not
// committed yet.
static size_t available(const cnn_pool *p) {
  size_t n = p->space.whole_free + p->space.limit;
  for (int i = 0; i < CLASSES; i++) {
    const slab *s = p->classes[i].spare;
    if (!s || s->bed_prev) continue; // each bed is looked at from its first slab
    while (s && s->used == 0) s = s->bed_next;
    if (!s) n++;
  }
  return n > p->space.committed ? n - p->space.committed : 0;
}

// --- The interface ------------------------------------------------------------------------------

cnn_pool *cnn_pool_create(const cnn_mapper *mapper) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  size_t granule = mapper->granule, align = mapper->alignment, page = granule / PAGES;
  // A bed's page must keep the alignment, and the largest class fit into a bed.
  if (granule & (granule - 1) || align & (align - 1) || align < 64 || page < align ||
      granule < 2 * CNN_POOL_SMALL)
    return NULL;
  cnn_pool *p = cnn_calloc(sizeof *p);
  if (!p) return NULL;
  p->mapper = mapper;
  p->page = page;
  if (!cnn_space_open(&p->space, mapper)) {
    cnn_free(p);
    return NULL;
  }
  for (int i = 0; i < CLASSES; i++) init_class(p, i);
  size_t total, free_now;
  mapper->info(mapper->self, &total, &free_now, &p->limit);
  set_limit(p, p->limit);
  pthread_once(&once, watch_forks);
  cnn_lock_acquire(&all_lock);
  p->next = all_pools;
  all_pools = p;
  cnn_lock_release(&all_lock);
  return p;
}

void cnn_pool_destroy(cnn_pool *pool) {
  if (!pool) return;
  cnn_lock_acquire(&all_lock);
  cnn_pool **at = &all_pools;
  while (*at != pool) at = &(*at)->next;
  *at = pool->next;
  cnn_lock_release(&all_lock);

  assert(pool->blocks.current == 0);
  drop_spares(pool);
  cnn_space_close(&pool->space);
  for (block *b = pool->spare_blocks, *next; b; b = next) {
    next = b->next_free;
    free(b);
  }
  cnn_free(pool);
}

cnn_block *cnn_pool_alloc(cnn_pool *pool, size_t bytes, uint8_t kind) {
  size_t align = pool->mapper->alignment;
  if (bytes == 0) bytes = 1;
  size_t size = (bytes + align - 1) & ~(align - 1);
  bool refused = cnn_fault_hit() || bytes > PTRDIFF_MAX;
  block *b = NULL;
  cnn_lock_acquire(&pool->lock);
  if (__builtin_expect(!refused, 1) &&
      (__builtin_expect(pool->space.committed <= pool->space.limit, 1) || meet_limit(pool)))
    b = size <= CNN_POOL_SMALL ? take_small(pool, class_of(size)) : take_large(pool, size);
  if (__builtin_expect(b != NULL, 1)) {
    b->pub.requested = bytes;
    b->pub.kind = kind % CNN_POOL_KINDS;
    b->pub.origin = 0;
    b->pub.serial = 0;
    count_in(pool, &b->pub);
  } else {
    pool->failures++;
  }
  cnn_lock_release(&pool->lock);
  if (!b) return NULL;
  CNN_UNPOISON(pool->mapper, b->pub.data, bytes);
  return &b->pub;
}

void cnn_pool_free(cnn_pool *pool, cnn_block *public) {
  block *b = (block *)public;
  assert(b->pub.requested != 0);
  CNN_POISON(pool->mapper, b->pub.data, b->pub.size);
  cnn_lock_acquire(&pool->lock);
  count_out(pool, &b->pub);
  b->pub.requested = 0;
  if (b->pub.size <= CNN_POOL_SMALL)
    give_small(pool, b);
  else
    give_large(pool, b);
  cnn_lock_release(&pool->lock);
}

void cnn_pool_retag(cnn_pool *pool, cnn_block *b, uint8_t kind) {
  kind %= CNN_POOL_KINDS;
  cnn_lock_acquire(&pool->lock);
  if (b->kind != kind) {
    pool->kinds[b->kind].current -= (int64_t)b->size;
    count(&pool->kinds[kind], (int64_t)b->size);
    b->kind = kind;
  }
  cnn_lock_release(&pool->lock);
}

void cnn_pool_stamp(cnn_pool *pool, cnn_block *b, uint16_t origin, uint32_t serial) {
  cnn_lock_acquire(&pool->lock);
  b->origin = origin;
  b->serial = serial;
  cnn_lock_release(&pool->lock);
}

size_t cnn_pool_trim(cnn_pool *pool) {
  cnn_lock_acquire(&pool->lock);
  drop_spares(pool);
  size_t done = cnn_space_trim(&pool->space, SIZE_MAX);
  cnn_lock_release(&pool->lock);
  return done * pool->mapper->granule;
}

void cnn_pool_set_limit(cnn_pool *pool, size_t bytes) {
  cnn_lock_acquire(&pool->lock);
  set_limit(pool, bytes);
  meet_limit(pool);
  cnn_lock_release(&pool->lock);
}

void cnn_pool_info(const cnn_pool *pool, size_t *total, size_t *available, size_t *limit) {
  pool->mapper->info(pool->mapper->self, total, available, limit);
}

void cnn_pool_get_stats(cnn_pool *pool, cnn_pool_stats *stats) {
  cnn_lock_acquire(&pool->lock);
  *stats = (cnn_pool_stats){.allocated = pool->allocated,
                            .requested = pool->requested,
                            .reserved = pool->space.reserved,
                            .blocks = pool->blocks,
                            .limit = (int64_t)pool->limit,
                            .largest_free = (int64_t)cnn_space_largest(&pool->space),
                            .available = (int64_t)(available(pool) * pool->mapper->granule),
                            .maps = pool->space.maps,
                            .unmaps = pool->space.unmaps,
                            .failures = pool->failures};
  for (int k = 0; k < CNN_POOL_KINDS; k++) stats->kinds[k] = pool->kinds[k];
  cnn_lock_release(&pool->lock);
}

void cnn_pool_reset_peaks(cnn_pool *pool) {
  cnn_lock_acquire(&pool->lock);
  pool->allocated.peak = pool->allocated.current;
  pool->requested.peak = pool->requested.current;
  pool->blocks.peak = pool->blocks.current;
  pool->space.reserved.peak = pool->space.reserved.current;
  for (int k = 0; k < CNN_POOL_KINDS; k++) pool->kinds[k].peak = pool->kinds[k].current;
  cnn_lock_release(&pool->lock);
}

int64_t cnn_pool_live(const cnn_pool *pool) {
  return atomic_load_explicit(&pool->live, memory_order_relaxed);
}

// --- Looking ------------------------------------------------------------------------------------

static void walk_bed(const bed *b, void (*visit)(void *data, const cnn_piece *piece), void *data) {
  for (const slab *s = b->slabs; s; s = s->bed_next) {
    for (int i = 0; i < s->carved; i++) {
      const cnn_block *x = &s->blocks[i].pub;
      if (x->requested)
        visit(data, &(cnn_piece){CNN_PIECE_SMALL, (uintptr_t)x->data, x->size, .block = *x});
    }
  }
}

void cnn_pool_walk(cnn_pool *pool, void (*visit)(void *data, const cnn_piece *piece), void *data) {
  cnn_lock_acquire(&pool->lock);
  for (const cnn_range *r = pool->space.ranges; r; r = r->next) {
    for (const cnn_extent *e = r->first; e; e = e->next) {
      cnn_piece piece = {.at = e->begin, .bytes = e->end - e->begin};
      bool taken = e->state == CNN_EXTENT_TAKEN, is_bed = taken && e->tag == BED;
      if (!taken)
        piece.what = e->state == CNN_EXTENT_FREE ? CNN_PIECE_FREE : CNN_PIECE_VOID;
      else if (is_bed)
        piece.what = CNN_PIECE_BED;
      else
        piece.what = CNN_PIECE_LARGE, piece.block = ((const block *)e->owner)->pub;
      visit(data, &piece);
      if (is_bed) walk_bed(e->owner, visit, data);
    }
  }
  cnn_lock_release(&pool->lock);
}

// --- Checking -----------------------------------------------------------------------------------

typedef struct sums {
  int64_t allocated, requested, blocks, kinds[CNN_POOL_KINDS];
} sums;

static const char *check_block(const block *b, sums *sum) {
  if (b->pub.requested > b->pub.size) return "pool: a block is smaller than was asked for";
  if (b->pub.kind >= CNN_POOL_KINDS) return "pool: a block's kind is none";
  sum->allocated += (int64_t)b->pub.size;
  sum->requested += (int64_t)b->pub.requested;
  sum->blocks++;
  sum->kinds[b->pub.kind] += (int64_t)b->pub.size;
  return NULL;
}

static const char *check_slab(const cnn_pool *p, const slab *s, sums *sum) {
  const size_class *c = &p->classes[s->cls];
  int used = 0, free_slots = 0;
  for (int i = 0; i < s->carved; i++) {
    const block *b = &s->blocks[i];
    if (b->home != s || (uintptr_t)b->pub.data != s->base + (size_t)i * c->stride ||
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

static const char *check_bed(const cnn_pool *p, const cnn_extent *e, sums *sum) {
  const bed *b = e->owner;
  uint64_t busy = 0;
  if (b->extent != e || e->end - e->begin != p->mapper->granule ||
      e->begin % p->mapper->granule != 0)
    return "pool: a granule of small blocks is wrong";
  for (const slab *s = b->slabs; s; s = s->bed_next) {
    uint64_t pages = (~(uint64_t)0 >> (PAGES - s->pages)) << s->first_page;
    if (s->bed != b || busy & pages) return "pool: slabs overlap";
    busy |= pages;
    const char *wrong = check_slab(p, s, sum);
    if (wrong) return wrong;
  }
  if (busy != b->busy || !busy || b->run != longest_run(busy)) return "pool: pages are miscounted";
  bool listed = false;
  for (const bed *x = p->buckets[b->run]; x; x = x->next) listed |= x == b;
  return listed ? NULL : "pool: a granule is in the wrong bucket";
}

static const char *check_large(const cnn_extent *e, sums *sum) {
  const block *b = e->owner;
  if (e->tag != BLOCK || b->home != e || (uintptr_t)b->pub.data != e->begin ||
      b->pub.requested == 0 || b->pub.size <= CNN_POOL_SMALL || e->begin + b->pub.size > e->end)
    return "pool: a large block is wrong";
  return check_block(b, sum);
}

static const char *check(const cnn_pool *p) {
  sums sum = {0};
  const char *wrong = cnn_space_check(&p->space);
  for (const cnn_range *r = p->space.ranges; r && !wrong; r = r->next) {
    for (const cnn_extent *e = r->first; e && !wrong; e = e->next) {
      if (e->state != CNN_EXTENT_TAKEN) continue;
      if (e->tag == BED)
        wrong = check_bed(p, e, &sum);
      else
        wrong = check_large(e, &sum);
    }
  }
  if (wrong) return wrong;
  if (sum.allocated != p->allocated.current || sum.requested != p->requested.current ||
      sum.blocks != p->blocks.current || sum.allocated != atomic_load(&p->live))
    return "pool: blocks in use are miscounted";
  for (int k = 0; k < CNN_POOL_KINDS; k++)
    if (sum.kinds[k] != p->kinds[k].current || sum.kinds[k] > p->kinds[k].peak)
      return "pool: a kind is miscounted";
  for (int n = 0; n <= PAGES; n++)
    if (n > 0 && (p->buckets[n] != NULL) != (p->bucket_mask >> (n - 1) & 1))
      return "pool: the mask of buckets is wrong";
  if (p->allocated.current > p->allocated.peak || p->allocated.peak > p->allocated.total ||
      p->allocated.current > p->space.reserved.current ||
      p->requested.current > p->allocated.current)
    return "pool: a counter is wrong";
  return NULL;
}

const char *cnn_pool_check(cnn_pool *pool) {
  cnn_lock_acquire(&pool->lock);
  const char *wrong = check(pool);
  cnn_lock_release(&pool->lock);
  return wrong;
}
