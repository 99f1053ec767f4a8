// SPDX-License-Identifier: MIT
// The address space of a pool: which ranges are reserved, which granules have memory behind them,
// which bytes are taken.
//
// Each reserved range is cut into extents, kept as a list in the order of addresses. An extent is
// taken, free (memory behind it, nobody's) or void (no memory; whole granules). Neighbours that are
// both free or both void are always joined.
//
// A request for n bytes succeeds whenever ceil(n / granule) granules are wholly free or may still
// be committed: address space is plenty, so memory is moved to where it is needed, by decommitting
// free granules elsewhere. And what is taken pins few granules, whatever its neighbours do: extents
// of up to half a granule and of whole granules touch no more granules than they need, others at
// most one more. Within that rule extents lie end to end.
//
// Not locked: the pool does that.
#ifndef CNN_MEMORY_SPACE_H
#define CNN_MEMORY_SPACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/pool.h"

typedef enum cnn_extent_state {
  CNN_EXTENT_TAKEN,
  CNN_EXTENT_FREE,
  CNN_EXTENT_VOID
} cnn_extent_state;

typedef struct cnn_extent cnn_extent;
struct cnn_extent {
  uintptr_t begin, end;
  cnn_extent *prev, *next;  // the neighbours by address; of a spare one, `next` is the next spare
  cnn_extent *left, *right; // in the tree of its state
  uint32_t priority;        // in the tree
  uint8_t state;
  uint8_t tag; // for whoever took it, 0 at first
  void *owner; // likewise
};

typedef struct cnn_range {
  uintptr_t base;
  size_t bytes;
  cnn_extent *first;
  struct cnn_range *next;
} cnn_range;

// What the spaces of one pool share and, further out, those of one device.
typedef struct cnn_quota {
  struct cnn_quota *outer;   // the device's, NULL for that one
  size_t limit, committed;   // granules
  size_t reclaimable;        // granules that no block in use lies in
  size_t changes;            // of `committed` and `reclaimable`, counted on
  cnn_pool_counter reserved; // `committed`, in bytes
  atomic_llong now;          // reserved.current for readers without the lock
  int64_t maps, unmaps;
} cnn_quota;

typedef struct cnn_space {
  const cnn_mapper *mapper;
  cnn_quota *quota; // the pool's: it and those further out hold
  // Before memory is taken from free granules: waits, or finds out, that the device is done with
  // them. False: they must stay. NULL: it always is.
  bool (*settle)(void *owner);
  void *owner;
  int shift;                // log2 of the granule
  size_t committed;         // granules
  size_t whole_free;        // granules that lie in one free extent; its quotas count them too
  size_t range_bytes;       // address space to ask for at a time
  cnn_range *ranges;        // the newest first
  cnn_extent *free, *empty; // roots of the trees of free and void extents
  cnn_extent *spares;       // extent structures not in use
  size_t spare_count;
  struct cnn_extent_chunk *chunks;
  uint32_t random;
} cnn_space;

// Reserves the first range, of about `range_bytes`: much more than will be used, so that there is
// room to move memory about. False when there is no address space or no memory for structures.
bool cnn_space_open(cnn_space *space, const cnn_mapper *mapper, cnn_quota *quota,
                    size_t range_bytes);
void cnn_space_close(cnn_space *space);

// Gives all memory and address space back, that of taken extents as well. The structures stay, and
// from now on ask `mapper`.
void cnn_space_lose(cnn_space *space, const cnn_mapper *mapper);

// Granules that may still be committed under all limits.
size_t cnn_space_room(const cnn_space *space);

// Takes `bytes` (a multiple of the mapper's alignment, not 0). NULL when too few granules are free
// under the limits, or the device refuses.
cnn_extent *cnn_space_take(cnn_space *space, size_t bytes);
// Gives a taken extent back. Never fails.
void cnn_space_give(cnn_space *space, cnn_extent *extent);

// Decommits up to `granules` free granules, if the device is done with them; returns how many.
size_t cnn_space_trim(cnn_space *space, size_t granules);

// Bytes of the largest free extent.
size_t cnn_space_largest(const cnn_space *space);

// NULL when all invariants hold, else what is wrong.
const char *cnn_space_check(const cnn_space *space);

#endif
