// SPDX-License-Identifier: MIT
// A record of what the pools hand out and get back: who asked, when, how much.
//
// Off, it costs one load and branch per buffer. On, every block made is stamped with its origin and
// a number that counts on (pool.h), and, unless only stamps are wanted, each making, freeing and
// change of kind is an event with a time in a ring: when it is full, the oldest are overwritten.
//
// An origin is a small number for a text ("train.lua:12 in function step"), the same for the whole
// process. Origins are never forgotten; there are at most 65535, later ones become 0 (unknown).
//
// Every function may be called from any thread.
#ifndef CNN_MEMORY_RECORD_H
#define CNN_MEMORY_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/pool.h"

typedef enum cnn_record_mode {
  CNN_RECORD_OFF,
  CNN_RECORD_STAMPS,
  CNN_RECORD_EVENTS
} cnn_record_mode;

typedef enum cnn_event_kind {
  CNN_EVENT_ALLOC,
  CNN_EVENT_FREE,
  CNN_EVENT_RETAG,
  CNN_EVENT_TRIM // free memory went back to the device, by the user's wish
} cnn_event_kind;

typedef struct cnn_event {
  uint64_t time; // nanoseconds of the monotonic clock
  uintptr_t at;
  size_t bytes;
  uint32_t serial; // of the block, 0 when its making was not recorded
  uint16_t origin;
  uint8_t what;
  uint8_t kind, was;           // `was`: the kind before a RETAG
  const cnn_pool *pool, *root; // to compare: the pool may be gone
  // What they had from the device then: after an ALLOC or a TRIM, before a FREE.
  int64_t reserved, root_reserved;
} cnn_event;

extern atomic_int cnn_record_state;

static inline bool cnn_record_on(void) {
  return atomic_load_explicit(&cnn_record_state, memory_order_relaxed) != CNN_RECORD_OFF;
}

// Empties the ring and makes it hold `capacity` events. False, and nothing changes, when there is
// no memory.
bool cnn_record_reset(size_t capacity);
// Switches; returns the mode before. The events so far stay.
cnn_record_mode cnn_record_switch(cnn_record_mode mode);
// The number that the last recorded block got.
uint32_t cnn_record_serial(void);

// Called by buffers, when recording is on: after a block was made, before it is freed or retagged.
void cnn_record_alloc(cnn_pool *pool, cnn_block *block, uint16_t origin);
void cnn_record_free(cnn_pool *pool, const cnn_block *block);
void cnn_record_retag(cnn_pool *pool, const cnn_block *block, uint8_t kind);
// After the pool gave so many bytes back to the device.
void cnn_record_trim(cnn_pool *pool, size_t bytes);

// A copy of the events of a pool, of a root those of its device, the oldest first, to be freed by
// free(); *lost counts those that were overwritten (of any pool). False when there is no memory.
bool cnn_record_events(const cnn_pool *pool, cnn_event **events, size_t *n, uint64_t *lost);
// A copy of a pool's pieces (pool.h) in the order of addresses, a bed before its blocks; likewise.
bool cnn_record_pieces(cnn_pool *pool, cnn_piece **pieces, size_t *n);

// The number of a text, and back; the text of 0 is "".
uint16_t cnn_origin_of(const char *text);
const char *cnn_origin_text(uint16_t origin);

#endif
