// SPDX-License-Identifier: MIT
// A debugging aid: blocks between red zones.
//
// While it is on, a new block's bytes are all 0xFF (NaN in every float dtype, -1 in every signed
// one), one alignment unit before its data and everything from the last byte that was asked for to
// the block's end hold a pattern, which is looked at when the block is freed, and a freed block's
// bytes become another NaN. Only memory that the CPU can touch is treated so.
//
// Freeing can't fail: what is found is kept here until somebody takes it and raises.
#ifndef CNN_MEMORY_GUARD_H
#define CNN_MEMORY_GUARD_H

#include <stdatomic.h>

#include "memory/pool.h"

// What was found about one block.
typedef struct cnn_damage {
  size_t requested;     // bytes that the block's user asked for
  size_t before, after; // bytes changed before its begin and behind its end
  size_t first;         // the first changed byte behind its end, counted from its begin
  uint8_t kind;
  int64_t found; // damaged blocks since the last one was taken, this one included
} cnn_damage;

// Whether new blocks get red zones. At first by the environment: CNN_MEMORY_DEBUG=1.
void cnn_guards_set(bool on);
extern atomic_int cnn_guard_mode; // 0: not asked yet, -1: off, 1: on
bool cnn_guards_ask(void);
static inline bool cnn_guards_on(void) {
  return atomic_load_explicit(&cnn_guard_mode, memory_order_relaxed) >= 0 && cnn_guards_ask();
}

// For the pool, of a block whose `data` is one alignment unit behind its begin: writes the
// patterns, and looks at them.
void cnn_guard_lay(const cnn_mapper *mapper, const cnn_block *block);
void cnn_guard_lift(const cnn_mapper *mapper, const cnn_block *block);

// Damaged blocks that nobody has taken yet.
extern atomic_int cnn_guard_found;
// The first of them; false when there is none. The count starts anew.
bool cnn_guard_take(cnn_damage *damage);

#endif
