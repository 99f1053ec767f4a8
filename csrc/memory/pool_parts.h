// SPDX-License-Identifier: MIT
// What a pool is made of: for pool.c, and for pool_check.c, which looks whether it is in order.
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

// A root's are those of all pools of its device.
typedef struct counts {
  cnn_pool_counter allocated, requested, blocks, kinds[CNN_POOL_KINDS];
  cnn_pool_counter bytes_by[2], blocks_by[2]; // of small blocks, of large ones
  cnn_pool_counter classes[CNN_POOL_CLASSES]; // blocks
  atomic_llong live;                          // allocated.current for readers without the lock
  int64_t failures;
} counts;

struct cnn_pool {
  cnn_lock *lock; // the root's: the pools of a device give each other memory
  const cnn_mapper *mapper;
  cnn_pool *root;    // itself, if it is one
  cnn_pool *sibling; // in the list of the device's pools, which starts with the root
  counts count;
  atomic_llong limit; // as it was set, in bytes
  size_t page;
  bool closed; // goes with its last block
  char name[CNN_POOL_NAME];
  size_t beds;
  uint64_t bucket_mask;    // bit n: a bed has n + 1 free pages in a row as its longest run
  bed *buckets[PAGES + 1]; // by the longest run of free pages
  block *spare_blocks;     // structures of large blocks
  cnn_space space;
  size_class classes[CLASSES];
  // A root's only.
  cnn_lock own_lock;
  cnn_quota quota;
  cnn_pool *next; // in the list of all roots
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

#endif
