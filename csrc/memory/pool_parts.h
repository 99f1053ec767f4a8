// SPDX-License-Identifier: MIT
// What a pool is made of: for its own files alone.
//
//   lane.c          the free memory of one stream: slabs of small blocks, large blocks
//   pool_streams.c  lanes, blocks that wait for other streams' work, streams that end
//   pool.c          the ladder of a request over all lanes, limits, making and closing
//   pool_stats.c    counting and looking
//   pool_lost.c     a device that goes away
//   pool_check.c    whether all is in order
//
// Each pool has a lane per stream that took memory from it, with address space of its own: what a
// lane has free is its stream's to use at once, since a stream does its work in order. Nothing else
// may have it until its granules were taken back from the device, and that is done only when the
// stream is known to be done with them (lane_settle).
#ifndef CNN_MEMORY_POOL_PARTS_H
#define CNN_MEMORY_POOL_PARTS_H

#include "base/lock.h"
#include "memory/pool.h"
#include "memory/space.h"

// Small blocks: a granule that serves them (a `bed`) is cut into 64 pages, and runs of pages are
// slabs: arrays of slots of one size class. The block structures are the slab's, one per slot, and
// hold the free list, so that the device's memory itself is never touched.
#define PAGES 64
// Classes: steps of 64 bytes up to 1 KiB, then 8 steps per power of two.
#define FINE_CLASSES 16
#define CLASSES      (FINE_CLASSES + 8 * 8)
_Static_assert(CLASSES == CNN_POOL_SMALL_CLASSES, "the header says how many classes there are");

// What a taken extent is.
enum { BED = 1, BLOCK };

typedef struct slab slab;
typedef struct bed bed;
typedef struct lane lane;
typedef struct use use;

// A block is free, in use, or freed and waiting for streams that used it (block_waits).
typedef struct block {
  cnn_block pub; // `requested` is 0 while the block is free
  void *home;    // the slab of a small block, the extent of a large one
  union {
    struct block *next_free; // of a free one
    use *uses;               // of the others: by other streams than the lane's
  };
} block;

typedef struct large_block {
  block block;
  lane *lane;
} large_block;

// A stream other than the block's own that works, or worked, on it.
struct use {
  use *next;    // of the same block
  void *stream; // read until the event is recorded
  void *event;  // what it was given before the block was freed; NULL: not recorded yet
  bool over;    // that work is done
  bool waiting; // of the first use: the block was freed
  block *block; // and is in the queue of the device's waiting blocks, the first freed first
  lane *lane;
  use *later;
};

struct slab {
  slab *prev, *next;       // among the class's slabs that have both used and free slots
  block *free;             // the last one freed first
  int used, carved, slots; // of the slots, `carved` were used at least once
  int cls, first_page, pages;
  lane *lane;
  bed *bed;
  slab *bed_prev, *bed_next; // among the bed's slabs
  uintptr_t base;
  block blocks[];
};

struct bed {
  cnn_extent *extent;
  uint64_t busy;    // one bit per page
  int run;          // the longest run of free pages, which is its bucket
  int busy_slabs;   // with used slots; 0: the bed is idle, its granule can be reclaimed
  bed *prev, *next; // in the bucket
  slab *slabs;
};

typedef struct size_class {
  slab *partial; // slabs with both used and free slots
  slab *spare;   // one wholly free slab is kept, so that a lone block costs no new slab each time
  uint32_t size, stride, pages, slots;
} size_class;

struct lane {
  cnn_pool *pool;
  lane *next;
  void *stream; // of a dead lane: the lane itself, which is no stream
  // Its stream has ended. It goes with its last block, unless another stream takes it over.
  bool dead;
  bool dirty;              // blocks were freed since its stream was last known to have done all
  bool stale;              // and since `event` was recorded
  void *event;             // of its stream, or NULL
  size_t beds, idle_beds;  // idle: of spare slabs alone
  uint64_t bucket_mask;    // bit n: a bed has n + 1 free pages in a row as its longest run
  bed *buckets[PAGES + 1]; // by the longest run of free pages
  block *spare_blocks;     // structures of large blocks
  cnn_space space;
  size_class classes[CLASSES];
};

// For the counters of bytes that are reserved and in no active block (pool.c).
typedef struct idle_marks {
  // Of the quota, as of the last time that granules came or went; less, while blocks wait.
  size_t changes;
  int64_t reserved, reclaimable, returned; // bytes then; ever given back by blocks until then
  int64_t least;                           // active bytes since
} idle_marks;

// A root's are those of all pools of its device.
typedef struct counts {
  // What every call touches comes first.
  cnn_pool_counter allocated, requested, blocks;
  atomic_llong live;               // allocated.current for readers without the lock
  int64_t waiting, waiting_blocks; // bytes and blocks that were freed and wait for streams
  idle_marks marks;
  cnn_pool_counter kinds[CNN_POOL_KINDS];
  cnn_pool_counter bytes_by[2], blocks_by[2]; // of small blocks, of large ones
  cnn_pool_counter classes[CNN_POOL_CLASSES]; // blocks
  cnn_pool_counter inactive, inactive_split;  // brought up to date by pool_fold_idle
  int64_t active_peak, active_blocks_peak;    // of allocated + waiting, if above allocated's own
  int64_t failures, retries, host_retries, waits;
} counts;

struct cnn_pool {
  cnn_lock *lock; // the root's: the pools of a device give each other memory
  const cnn_mapper *mapper;
  cnn_pool *root;    // itself, if it is one
  cnn_pool *sibling; // in the list of the device's pools, which starts with the root
  cnn_quota quota;   // a root's: the device's
  counts count;
  atomic_llong limit; // as it was set, in bytes
  size_t page;
  bool closed; // goes with its last block
  bool untidy; // closed, or with dead lanes: to be looked after when a block comes back
  char name[CNN_POOL_NAME];
  lane first; // the default stream's, with the others behind it
  // A root's only.
  cnn_lock own_lock;
  cnn_pool *next; // in the list of all roots
  use *queue;     // blocks that wait, by their first uses
  use **queue_end;
  bool patient; // a request is at the end of its ladder: it may wait for streams
  atomic_bool lost;
  cnn_mapper gone; // of a lost one: answers in the device's place
};

static inline int class_of(size_t bytes) {
  if (bytes <= 1024) return (int)((bytes - 1) >> 6);
  int top = 63 - __builtin_clzll(bytes - 1);
  if (bytes <= CNN_POOL_SMALL)
    return FINE_CLASSES + (top - 10) * 8 + (int)(((bytes - 1) >> (top - 3)) & 7);
  int cls = CLASSES + top - 18;
  return cls < CNN_POOL_CLASSES ? cls : CNN_POOL_CLASSES - 1;
}

static inline int longest_run(uint64_t busy) {
  int n = 0;
  for (uint64_t starts = ~busy; starts; starts &= starts >> 1) n++;
  return n;
}

static inline bool is_small(const block *b) {
  return b->pub.size <= CNN_POOL_SMALL;
}

static inline lane *lane_of(const block *b) {
  return is_small(b) ? ((slab *)b->home)->lane : ((const large_block *)b)->lane;
}

static inline bool block_waits(const block *b) {
  return b->pub.requested != 0 && b->uses && b->uses->waiting;
}

// --- lane.c. All with the device's lock held
// ------------------------------------------------------

bool lane_open(lane *l, cnn_pool *pool, void *stream, size_t range_bytes);
// No block may be in use.
void lane_close(lane *l);
// The class's sizes; SIZE_MAX for the last large one.
size_t lane_class_size(int cls);

// A slab with a free slot, at the head of the class's list. NULL when the lane has no memory for
// one, and may commit none.
slab *lane_slab(lane *l, int cls);
block *lane_take_large(lane *l, size_t size);
// What a large block of so many bytes takes of the space.
size_t lane_large_bytes(const lane *l, size_t size);
// A small block's slab has run empty.
void lane_retire(lane *l, slab *s);
void lane_give_large(lane *l, block *b);
// Drops the wholly free slabs that are kept; false when there were none.
bool lane_drop_spares(lane *l);

// Granules that no block in use lies in.
static inline size_t lane_reclaimable(const lane *l) {
  return l->space.whole_free + l->idle_beds;
}

static inline void lane_list_partial(size_class *c, slab *s) {
  s->prev = NULL;
  s->next = c->partial;
  if (s->next) s->next->prev = s;
  c->partial = s;
}

static inline void lane_unlist_partial(size_class *c, slab *s) {
  if (s->prev)
    s->prev->next = s->next;
  else
    c->partial = s->next;
  if (s->next) s->next->prev = s->prev;
}

static inline block *lane_take_small(lane *l, int cls) {
  size_class *c = &l->classes[cls];
  slab *s = c->partial;
  if (__builtin_expect(!s, 0) && !(s = lane_slab(l, cls))) return NULL;
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
  if (__builtin_expect(++s->used == s->slots, 0)) lane_unlist_partial(c, s);
  return b;
}

static inline block *lane_take(lane *l, size_t size) {
  return size <= CNN_POOL_SMALL ? lane_take_small(l, class_of(size)) : lane_take_large(l, size);
}

static inline void lane_give_small(block *b) {
  slab *s = b->home;
  lane *l = s->lane;
  size_class *c = &l->classes[s->cls];
  b->next_free = s->free;
  s->free = b;
  l->dirty = l->stale = true;
  if (s->used-- == s->slots) lane_list_partial(c, s);
  if (__builtin_expect(s->used == 0, 0)) lane_retire(l, s);
}

// A block becomes free.
static inline void lane_give(block *b) {
  b->pub.requested = 0;
  if (is_small(b))
    lane_give_small(b);
  else
    lane_give_large(((large_block *)b)->lane, b);
}

// --- pool_streams.c. All with the device's lock held
// ----------------------------------------------

// The lane of a stream other than the default one; a new one, or a dead one, if it has none. NULL
// when there is no memory or address space for it.
lane *pool_other_lane(cnn_pool *p, void *stream);

static inline lane *pool_lane(cnn_pool *p, void *stream) {
  return __builtin_expect(stream == NULL, 1) ? &p->first : pool_other_lane(p, stream);
}

// Whether the lane's stream is done with all that is free in it. A patient pool waits for it.
bool lane_settle(lane *l);
// Gives a block that other streams used back when they are done with it.
void pool_await(cnn_pool *p, block *b);
// Gives back the waiting blocks whose streams are done.
void pool_poll(cnn_pool *root);
// Waits for the waiting blocks of one lane, of all of the device for NULL; false when there were
// none, or an event could not be recorded.
bool pool_drain(cnn_pool *root, const lane *of);
// Drops dead lanes without blocks; an empty pool that was closed goes.
void pool_tidy(cnn_pool *p);
// The device goes: gives all waiting blocks back, those whose events can't be recorded too.
void pool_abandon(cnn_pool *root);
// Closes all lanes.
void pool_drop_lanes(cnn_pool *p);

// --- pool.c, pool_stats.c
// -------------------------------------------------------------------------

void pool_leave_when_empty(cnn_pool *p);
// A lost root that nobody needs any more: for cnn_pool_destroy, without the lock.
static inline bool pool_is_left(const cnn_pool *root) {
  return atomic_load_explicit(&root->lost, memory_order_relaxed) && !root->sibling &&
         root->count.blocks.current == 0;
}
size_t pool_available(const cnn_pool *p);

// Counts blocks that wait, for the pool and its root.
void pool_count_waiting(cnn_pool *p, int64_t bytes, int64_t blocks);
// After a block of so many bytes became free: likewise counts what is reserved and in no block.
void pool_count_given(cnn_pool *p, int64_t bytes);
// Brings the counters of such bytes up to date.
void pool_fold_idle(cnn_pool *p);

#endif
