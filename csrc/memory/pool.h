// SPDX-License-Identifier: MIT
// The caching allocator of every device.
//
// A pool hands out blocks of device memory. Freed blocks are kept and reused: asking the system
// costs 10 to 70 times a reuse. The pool knows a device only through a small table (cnn_mapper),
// and of its callers only an opaque tag, the kind, by which it keeps its statistics.
//
// Address space is reserved once, much more than is used, and grows in place: so free memory stays
// one piece. Small blocks (up to CNN_POOL_SMALL bytes) live in granules of their own, so that they
// never pin a large one. Free large blocks coalesce with free neighbours. Under a limit, free
// granules anywhere are given back to make room for a request that fits no free block: a request
// succeeds whenever enough whole granules are free.
//
// A device has one pool, made by cnn_pool_create: its root. More can be made on it, each with a
// limit of its own and no memory in common with the others; the limit of the root is on the sum.
// Free granules of one pool go to another that needs them. What the root counts is the device's:
// all of its pools together.
//
// A device that works in streams has events in its table. A block belongs to the stream that it was
// allocated for: freed, it is that stream's to reuse at once, and nobody else's before the work
// that the stream was given until then is known to be done. A block that other streams use as well
// (cnn_pool_use) is free for anybody only when the work is done that they were given before it was
// freed. A request waits for streams when it would be refused otherwise. The CPU has no events: its
// work is done when a call returns.
//
// With cnn_guards_set blocks lie between red zones, and what is written there is found when they
// are freed (guard.h).
//
// Every function may be called from any thread.
#ifndef CNN_MEMORY_POOL_H
#define CNN_MEMORY_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a pool asks of a device, one thing at a time but for info. `self` is the table's own
// pointer.
typedef struct cnn_mapper {
  const char *name;
  size_t granule; // bytes, a power of two, at least 512 KiB; commit and decommit work on multiples
  size_t alignment; // of every block, a power of two from 64 to granule / 64
  bool host;        // the CPU may touch the memory (poisoning in sanitizer builds)
  // Reserves address space (no memory yet) from a multiple of the granule on; NULL when there is
  // none.
  void *(*reserve)(void *self, size_t bytes);
  void (*release)(void *self, void *base, size_t bytes);
  // Puts memory behind a range, or takes it away.
  bool (*commit)(void *self, void *at, size_t bytes);
  void (*decommit)(void *self, void *at, size_t bytes);
  // The bytes that the device has in all and has free now, and the default limit.
  void (*info)(void *self, size_t *total, size_t *available, size_t *limit);
  // Events: all four, or none (NULL) for a device whose work is done when a call returns. Records
  // one behind all work that the stream has been given; NULL when the device refuses. Whether that
  // work is done; waits until it is; gives the event back, done or not. NULL is the default stream.
  void *(*record)(void *self, void *stream);
  bool (*query)(void *self, void *event);
  void (*wait)(void *self, void *event);
  void (*forget)(void *self, void *event);
  void *self;
} cnn_mapper;

#define CNN_POOL_SMALL (256 * 1024)
#define CNN_POOL_KINDS 8
// Size classes of small blocks, and of large ones by powers of two (the last without an end).
#define CNN_POOL_SMALL_CLASSES 80
#define CNN_POOL_LARGE_CLASSES 20
#define CNN_POOL_CLASSES       (CNN_POOL_SMALL_CLASSES + CNN_POOL_LARGE_CLASSES)
#define CNN_POOL_NAME          32

typedef struct cnn_pool cnn_pool;

// A block in use. The fields are for reading; `user` belongs to the caller.
typedef struct cnn_block {
  void *data;
  size_t size;      // bytes that the block takes
  size_t requested; // bytes that were asked for
  uint8_t kind;
  bool guarded;    // `data` lies between red zones, which `size` counts
  uint16_t origin; // who made it and the number of its making (memory/record.h), 0 when it was not
  uint32_t serial; // recorded
} cnn_block;

typedef struct cnn_pool_counter {
  int64_t current, peak, total; // total: ever added
} cnn_pool_counter;

typedef struct cnn_pool_stats {
  cnn_pool_counter allocated; // bytes of blocks in use
  cnn_pool_counter requested; // bytes that their users asked for
  cnn_pool_counter reserved;  // bytes committed from the device
  cnn_pool_counter blocks;    // blocks in use
  // Bytes and blocks that are in use or, freed, wait for other streams' work.
  cnn_pool_counter active, active_blocks;
  cnn_pool_counter kinds[CNN_POOL_KINDS]; // allocated bytes by kind
  // Allocated bytes and blocks in use, of small blocks and of large ones.
  cnn_pool_counter small, small_blocks, large, large_blocks;
  int64_t small_reserved;          // bytes of the granules that serve small blocks
  cnn_pool_counter inactive;       // reserved bytes that no active block has
  cnn_pool_counter inactive_split; // those in granules that blocks hold: not to be given back
  int64_t waiting;      // bytes of blocks that were freed and wait for other streams' work
  int64_t limit;        // on reserved bytes, for a further pool at most the root's
  int64_t largest_free; // bytes of the largest free block
  int64_t available;    // a request for as much would succeed: whole granules that are free or
                        // may still be committed under the limit
  int64_t maps, unmaps; // calls to the device
  int64_t failures;     // requests refused
  int64_t retries;      // requests that were tried again: after other lanes or pools gave memory,
                        // after a wait, and by the caller (cnn_pool_retried)
  int64_t ooms;         // requests refused for good
  int64_t waits;        // times that the host waited for a stream
} cnn_pool_stats;

typedef struct cnn_pool_class {
  size_t size; // of the blocks; of large ones the upper bound, SIZE_MAX for none
  cnn_pool_counter blocks;
} cnn_pool_class;

// NULL when there is no memory for the pool's own structures or no address space.
cnn_pool *cnn_pool_create(const cnn_mapper *mapper);
// All blocks must have been freed, and all further pools of the device be gone.
void cnn_pool_destroy(cnn_pool *pool);

// The device goes away: all memory is given back to it, that of blocks in use as well, whose data
// then must not be touched. Such a root and its further pools allocate nothing any more, and go
// with their last blocks; a new root may be made meanwhile.
void cnn_pool_lose(cnn_pool *root);
bool cnn_pool_is_lost(const cnn_pool *pool);

// A further pool on the root's device. The name (cut at CNN_POOL_NAME - 1 bytes) is for messages.
// NULL as above.
cnn_pool *cnn_pool_create_in(cnn_pool *root, size_t limit, const char *name);
// Gives such a pool up. It goes at once, or with its last block.
void cnn_pool_close(cnn_pool *pool);
// The pool of the whole device; of a root itself.
cnn_pool *cnn_pool_root(cnn_pool *pool);
// "" for a root.
const char *cnn_pool_name(const cnn_pool *pool);
// The bytes of which limits are multiples: parts of it have no use.
size_t cnn_pool_granule(const cnn_pool *pool);

// A block of at least `bytes` (0 counts as 1). NULL when the limit, the device or an injected fault
// refuses it, after free memory was given back to make room and, if need be, waited for. `stream`
// is the one whose work will use the block; NULL: the device's default stream.
cnn_block *cnn_pool_alloc(cnn_pool *pool, size_t bytes, uint8_t kind, void *stream);
void cnn_pool_free(cnn_pool *pool, cnn_block *block);

// Another stream than the block's own will use it: to be said before that work is given. False when
// there is no memory to note it: then that work must not be given.
bool cnn_pool_use(cnn_pool *pool, cnn_block *block, void *stream);

// The stream is about to end: waits for its work and gives its lane up, in all pools of the device.
// Its blocks stay good. False when the device records no event: the stream must stay.
bool cnn_pool_forget_stream(cnn_pool *pool, void *stream);

// The caller made room after a refusal and asks again: that refusal counts as a retry.
void cnn_pool_retried(cnn_pool *pool);

// Counts the block under another kind from now on.
void cnn_pool_retag(cnn_pool *pool, cnn_block *block, uint8_t kind);

// Marks a block in use with its origin and number.
void cnn_pool_stamp(cnn_pool *pool, cnn_block *block, uint16_t origin, uint32_t serial);

// What a pool's address space consists of. A bed is a granule of small blocks; what of it no small
// block takes is free for other small ones.
typedef enum cnn_piece_kind {
  CNN_PIECE_VOID, // reserved, without memory
  CNN_PIECE_FREE,
  CNN_PIECE_BED,
  CNN_PIECE_LARGE, // a block in use
  CNN_PIECE_SMALL  // a block in use, inside of the bed before it
} cnn_piece_kind;

typedef struct cnn_piece {
  cnn_piece_kind what;
  uintptr_t at;
  size_t bytes;
  cnn_block block;          // of LARGE and SMALL: a copy
  bool waiting;             // of those: it was freed, and other streams' work on it is not done
  void *stream;             // whose it is; of a stream that has ended: none's address
  char pool[CNN_POOL_NAME]; // the name of the pool whose it is, "" for the root
} cnn_piece;

// Calls visit with every piece of the pool, of a root with those of all pools of its device, under
// the lock: it may call no pool. Extents come in the order of addresses within each reserved range,
// small blocks in any order after their bed.
void cnn_pool_walk(cnn_pool *pool, void (*visit)(void *data, const cnn_piece *piece), void *data);

// Gives every free granule back to the device, a root those of all pools, and waits for streams to
// be done with them; returns the bytes given back.
size_t cnn_pool_trim(cnn_pool *pool);

// The most bytes that may be reserved. Free granules above it are given back at once; as long as
// blocks in use keep more than that, new ones are refused and nothing else happens.
void cnn_pool_set_limit(cnn_pool *pool, size_t bytes);

// The bytes that the device has in all and has free now, and the default limit.
void cnn_pool_info(const cnn_pool *pool, size_t *total, size_t *available, size_t *limit);

void cnn_pool_get_stats(cnn_pool *pool, cnn_pool_stats *stats);
void cnn_pool_get_classes(cnn_pool *pool, cnn_pool_class classes[CNN_POOL_CLASSES]);
void cnn_pool_reset_peaks(cnn_pool *pool);

// Bytes of blocks in use, without the lock: for pacing.
int64_t cnn_pool_live(const cnn_pool *pool);
// Likewise the limit: for a further pool at most the root's.
int64_t cnn_pool_limit(const cnn_pool *pool);
// Likewise reserved bytes.
int64_t cnn_pool_reserved(const cnn_pool *pool);

// Checks every invariant (for tests; slow). NULL when all hold, else what is wrong.
const char *cnn_pool_check(cnn_pool *pool);

#endif
