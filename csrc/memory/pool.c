// SPDX-License-Identifier: MIT
#include "memory/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
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

// --- Counting -----------------------------------------------------------------------------------

static inline void count(cnn_pool_counter *c, int64_t n) {
  c->current += n;
  c->total += n;
  if (c->current > c->peak) c->peak = c->current;
}

static inline __attribute__((always_inline)) void add(counts *c, const cnn_block *b) {
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

static inline __attribute__((always_inline)) void remove_from(counts *c, const cnn_block *b) {
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

static int64_t active_bytes(const counts *c) {
  return c->allocated.current + c->waiting;
}

static void raise_to(int64_t *peak, int64_t value) {
  if (value > *peak) *peak = value;
}

// Bytes in no active block: reserved ones, and those of them that can't be given back. As long as
// granules neither come nor go they follow the active bytes, so the fast paths only keep the least
// of those; here what that says is entered, and the next such time begins. `before`: active bytes
// before the change. While blocks wait for streams every call comes here.
static __attribute__((noinline)) void fold(cnn_pool *p, int64_t before) {
  counts *c = &p->count;
  idle_marks *m = &c->marks;
  int64_t active = active_bytes(c), returned = c->allocated.total - active;
  int64_t split_before = m->reserved - before - m->reclaimable;
  raise_to(&c->inactive.peak, m->reserved - m->least);
  raise_to(&c->inactive_split.peak, m->reserved - m->least - m->reclaimable);
  c->inactive_split.total += returned - (before > active ? before - active : 0) - m->returned;
  m->reserved = p->quota.reserved.current;
  m->reclaimable = (int64_t)(p->quota.reclaimable << p->first.space.shift);
  m->least = active;
  m->returned = returned;
  m->changes = p->quota.changes;
  int64_t split = m->reserved - active - m->reclaimable;
  if (split > split_before) c->inactive_split.total += split - split_before;
  if (__builtin_expect(c->waiting_blocks == 0, 1)) return;
  m->changes--;
  raise_to(&c->active_peak, active);
  raise_to(&c->active_blocks_peak, c->blocks.current + c->waiting_blocks);
}

void pool_fold_idle(cnn_pool *p) {
  counts *c = &p->count;
  fold(p, active_bytes(c));
  c->inactive.current = c->marks.reserved - c->marks.least;
  c->inactive.total = p->quota.reserved.total + c->marks.returned;
  c->inactive_split.current = c->inactive.current - c->marks.reclaimable;
  raise_to(&c->inactive.peak, c->inactive.current);
  raise_to(&c->inactive_split.peak, c->inactive_split.current);
}

static inline bool is_folded(const cnn_pool *p) {
  return __builtin_expect(p->quota.changes == p->count.marks.changes, 1);
}

static inline void note_taken(cnn_pool *p, int64_t bytes) {
  if (!is_folded(p)) fold(p, active_bytes(&p->count) - bytes);
}

static inline void note_given(cnn_pool *p, int64_t bytes) {
  counts *c = &p->count; // when all is folded no block waits
  if (!is_folded(p))
    fold(p, active_bytes(c) + bytes);
  else if (c->allocated.current < c->marks.least)
    c->marks.least = c->allocated.current;
}

void pool_count_given(cnn_pool *p, int64_t bytes) {
  note_given(p, bytes);
  if (p != p->root) note_given(p->root, bytes);
}

static void count_in(cnn_pool *p, const cnn_block *b) {
  add(&p->count, b);
  note_taken(p, (int64_t)b->size);
  if (__builtin_expect(p == p->root, 1)) return;
  add(&p->root->count, b);
  note_taken(p->root, (int64_t)b->size);
}

static void count_out(cnn_pool *p, const cnn_block *b) {
  remove_from(&p->count, b);
  if (__builtin_expect(p != p->root, 0)) remove_from(&p->root->count, b);
}

void pool_count_waiting(cnn_pool *p, int64_t bytes, int64_t blocks) {
  for (;; p = p->root) {
    p->count.waiting += bytes;
    p->count.waiting_blocks += blocks;
    p->quota.changes++;
    if (p == p->root) return;
  }
}

// --- Over the lanes of a device -----------------------------------------------------------------

// Runs through all lanes of the device.
static lane *next_lane(lane *l) {
  if (l->next) return l->next;
  return l->pool->sibling ? &l->pool->sibling->first : NULL;
}

// Granules that other lanes could give back, those of the same pool apart.
static void reclaimable_elsewhere(lane *but, size_t *same_pool, size_t *others) {
  *same_pool = *others = 0;
  for (lane *l = &but->pool->root->first; l; l = next_lane(l)) {
    if (l == but || lane_reclaimable(l) == 0 || !lane_settle(l)) continue;
    *(l->pool == but->pool ? same_pool : others) += lane_reclaimable(l);
  }
}

// Makes lanes give back up to so many granules; returns how many. Of one pool alone, if it is
// given.
static size_t trim_lanes(cnn_pool *root, const lane *but, const cnn_pool *only, size_t wanted) {
  size_t done = 0;
  for (int round = 0; round < 2; round++)
    for (lane *l = &root->first; l && done < wanted; l = next_lane(l)) {
      if (l == but || (only && l->pool != only) || !lane_settle(l)) continue;
      if (round == 0 || lane_drop_spares(l)) done += cnn_space_trim(&l->space, wanted - done);
    }
  return done;
}

static size_t missing(const cnn_quota *q, size_t need, size_t have) {
  size_t room = q->limit > q->committed ? q->limit - q->committed : 0;
  return need > have + room ? need - have - room : 0;
}

// A request for `need` granules failed. Has other lanes give back what it lacks; false when that is
// in vain, and then nothing is given.
static bool borrow(lane *l, size_t need) {
  cnn_pool *p = l->pool, *root = p->root;
  if (!root->sibling && !root->first.next) return false;
  size_t same, others, have = l->space.whole_free;
  if (need <= have + cnn_space_room(&l->space)) // it was the device that refused
    return trim_lanes(root, l, NULL, SIZE_MAX) > 0;
  size_t in_pool = missing(&p->quota, need, have), in_all = missing(&root->quota, need, have);
  reclaimable_elsewhere(l, &same, &others);
  if (p == root) in_pool = 0;
  if (in_pool > same || in_all > same + others) return false;
  size_t done = in_pool > 0 ? trim_lanes(root, l, p, in_pool) : 0;
  if (done < in_pool) return false;
  return done >= in_all || trim_lanes(root, l, NULL, in_all - done) >= in_all - done;
}

// A block from the lane, with what others give back. *again: something was made room for.
static block *take_or_borrow(lane *l, size_t size, size_t need, bool *again) {
  block *b = lane_take(l, size);
  if (b || !borrow(l, need)) return *again |= b != NULL, b;
  *again = true;
  return lane_take(l, size);
}

// The lane has no such block, nor memory that it may commit. What the device is known to be done
// with comes first, then what must be waited for: blocks of this lane, other lanes' free granules,
// all other blocks.
static __attribute__((noinline)) block *climb(lane *l, size_t size) {
  cnn_pool *p = l->pool, *root = p->root;
  size_t g = p->mapper->granule;
  size_t need = size <= CNN_POOL_SMALL ? 1 : (lane_large_bytes(l, size) + g - 1) / g;
  bool again = borrow(l, need);
  block *b = again ? lane_take(l, size) : NULL;
  if (!b && p->mapper->record) {
    root->patient = true;
    if (pool_drain(root, l)) again = true, b = lane_take(l, size);
    if (!b) b = take_or_borrow(l, size, need, &again);
    if (!b && pool_drain(root, NULL)) b = take_or_borrow(l, size, need, &again);
    root->patient = false;
  }
  if (again) p->count.retries++;
  if (again && p != root) root->count.retries++;
  return b;
}

// --- The limit ----------------------------------------------------------------------------------

static void set_limit(cnn_pool *p, size_t bytes) {
  if (bytes > INT64_MAX) bytes = INT64_MAX;
  atomic_store_explicit(&p->limit, (long long)bytes, memory_order_relaxed);
  p->quota.limit = bytes / p->mapper->granule;
}

static bool within_limits(const cnn_pool *p) {
  const cnn_quota *all = &p->root->quota;
  return p->quota.committed <= p->quota.limit && all->committed <= all->limit;
}

static void trim_to_limit(cnn_pool *p) {
  cnn_quota *own = &p->quota, *all = &p->root->quota;
  if (own->committed > own->limit && own != all)
    trim_lanes(p->root, NULL, p, own->committed - own->limit);
  if (all->committed > all->limit) trim_lanes(p->root, NULL, p, all->committed - all->limit);
  if (all->committed > all->limit) trim_lanes(p->root, NULL, NULL, all->committed - all->limit);
}

// Gives free granules back until the limits hold; false when too much is in use for that.
static bool meet_limit(cnn_pool *p) {
  p->root->patient = true;
  trim_to_limit(p);
  if (!within_limits(p) && pool_drain(p->root, NULL)) trim_to_limit(p);
  p->root->patient = false;
  return within_limits(p);
}

static int64_t within(const cnn_quota *q) {
  return (int64_t)q->limit - (int64_t)q->committed + (int64_t)q->reclaimable;
}

size_t pool_available(const cnn_pool *p) {
  int64_t own = within(&p->quota), all = within(&p->root->quota), n = own < all ? own : all;
  return n > 0 ? (size_t)n : 0;
}

// --- Making and closing -------------------------------------------------------------------------

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
  p->quota.outer = root ? &root->quota : NULL;
  // The device is asked for one thing at a time.
  cnn_lock_acquire(p->lock);
  bool opened = lane_open(&p->first, p, NULL, range_bytes);
  cnn_lock_release(p->lock);
  if (opened) return p;
  cnn_free(p);
  return NULL;
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
  pool_drop_lanes(pool);
  cnn_free(pool);
}

void cnn_pool_destroy(cnn_pool *pool) {
  if (!pool) return;
  cnn_lock_acquire(pool->lock);
  pool_abandon(pool);
  cnn_lock_release(pool->lock);
  assert(pool->root == pool && !pool->sibling && pool->count.blocks.current == 0);
  cnn_lock_acquire(&all_lock);
  cnn_pool **at = &all_roots;
  while (*at != pool) at = &(*at)->next;
  *at = pool->next;
  cnn_lock_release(&all_lock);
  dismantle(pool);
}

void pool_leave_when_empty(cnn_pool *p) {
  if (!p->closed || p->count.blocks.current > 0 || p->count.waiting_blocks > 0) return;
  cnn_pool **at = &p->root->sibling;
  while (*at != p) at = &(*at)->sibling;
  *at = p->sibling;
  dismantle(p);
}

void cnn_pool_close(cnn_pool *pool) {
  assert(pool->root != pool && !pool->closed);
  cnn_pool *root = pool->root;
  cnn_lock_acquire(root->lock);
  pool->closed = pool->untidy = true;
  pool_leave_when_empty(pool);
  bool left = pool_is_left(root);
  cnn_lock_release(root->lock);
  if (left) cnn_pool_destroy(root);
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

// --- Blocks -------------------------------------------------------------------------------------

cnn_block *cnn_pool_alloc(cnn_pool *pool, size_t bytes, uint8_t kind, void *stream) {
  size_t align = pool->mapper->alignment;
  bool guarded = cnn_guards_on() && pool->mapper->host;
  if (bytes == 0) bytes = 1;
  size_t size = ((bytes + align - 1) & ~(align - 1)) + (guarded ? 2 * align : 0);
  bool refused = cnn_fault_hit() || bytes > PTRDIFF_MAX || cnn_pool_is_lost(pool);
  block *b = NULL;
  cnn_lock_acquire(pool->lock);
  if (__builtin_expect(!refused, 1) &&
      (__builtin_expect(within_limits(pool), 1) || meet_limit(pool))) {
    lane *l = pool_lane(pool, stream);
    if (__builtin_expect(l != NULL, 1)) {
      b = lane_take(l, size);
      if (__builtin_expect(!b, 0)) b = climb(l, size);
    }
  }
  if (__builtin_expect(b != NULL, 1)) {
    b->pub.requested = bytes;
    b->pub.kind = kind % CNN_POOL_KINDS;
    b->pub.guarded = guarded;
    if (__builtin_expect(guarded, 0)) b->pub.data = (char *)b->pub.data + align;
    b->pub.origin = 0;
    b->pub.serial = 0;
    b->uses = NULL;
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
  int64_t size = (int64_t)b->pub.size;
  CNN_POISON(pool->mapper, start, b->pub.size);
  cnn_lock_acquire(lock);
  assert(!block_waits(b));
  b->pub.data = start;
  b->pub.guarded = false;
  count_out(pool, &b->pub);
  if (__builtin_expect(b->uses != NULL, 0)) {
    pool_await(pool, b);
  } else {
    lane_give(b); // its structure may be gone
    pool_count_given(pool, size);
  }
  cnn_pool *root = pool->root;
  if (__builtin_expect(pool->untidy, 0)) pool_tidy(pool);
  bool left = __builtin_expect(pool_is_left(root), 0);
  cnn_lock_release(lock);
  if (left) cnn_pool_destroy(root);
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
  cnn_pool *root = pool->root;
  cnn_lock_acquire(pool->lock);
  root->patient = true;
  pool_drain(root, NULL);
  size_t done = trim_lanes(root, NULL, pool == root ? NULL : pool, SIZE_MAX);
  root->patient = false;
  cnn_lock_release(pool->lock);
  return done * pool->mapper->granule;
}

void cnn_pool_set_limit(cnn_pool *pool, size_t bytes) {
  cnn_lock_acquire(pool->lock);
  set_limit(pool, bytes);
  meet_limit(pool);
  cnn_lock_release(pool->lock);
}
