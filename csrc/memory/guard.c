// SPDX-License-Identifier: MIT
#include "memory/guard.h"

#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "memory/poison.h"

#define FRESH 0xFF
#define ZONE  0xFA
// 0xFFDE: a NaN in every float dtype too, and in no dtype a fresh one.
static const unsigned char freed[2] = {0xDE, 0xFF};

enum { OFF = -1, UNKNOWN, ON };
atomic_int cnn_guard_mode;

atomic_int cnn_guard_found;
static cnn_damage first_damage;
static cnn_lock damage_lock;

bool cnn_guards_ask(void) {
  int now = atomic_load_explicit(&cnn_guard_mode, memory_order_relaxed);
  if (__builtin_expect(now == UNKNOWN, 0)) {
    const char *text = getenv("CNN_MEMORY_DEBUG");
    int unknown = UNKNOWN, wanted = text && *text && strcmp(text, "0") != 0 ? ON : OFF;
    // Whoever has set it meanwhile is right.
    now = atomic_compare_exchange_strong(&cnn_guard_mode, &unknown, wanted) ? wanted : unknown;
  }
  return now == ON;
}

void cnn_guards_set(bool on) {
  atomic_store(&cnn_guard_mode, on ? ON : OFF);
}

// Where the zones are: [start, data) and [data + requested, start + size).
void cnn_guard_lay(const cnn_mapper *mapper, const cnn_block *b) {
  unsigned char *data = b->data, *start = data - mapper->alignment, *end = data + b->requested;
  size_t rest = (size_t)(start + b->size - end);
  CNN_UNPOISON(mapper, start, b->size);
  memset(start, ZONE, mapper->alignment);
  memset(data, FRESH, b->requested);
  memset(end, ZONE, rest);
  CNN_POISON(mapper, start, mapper->alignment);
  CNN_POISON(mapper, end, rest);
}

// Bytes that differ from the pattern; the first one's position.
static size_t changed(const unsigned char *zone, size_t n, size_t *first) {
  size_t count = 0;
  for (size_t i = n; i-- > 0;)
    if (zone[i] != ZONE) *first = i, count++;
  return count;
}

void cnn_guard_lift(const cnn_mapper *mapper, const cnn_block *b) {
  unsigned char *data = b->data, *start = data - mapper->alignment, *end = data + b->requested;
  size_t rest = (size_t)(start + b->size - end), first = 0, unused;
  CNN_UNPOISON(mapper, start, b->size);
  size_t before = changed(start, mapper->alignment, &unused), after = changed(end, rest, &first);
  if (before || after) {
    cnn_lock_acquire(&damage_lock);
    if (atomic_fetch_add(&cnn_guard_found, 1) == 0)
      first_damage = (cnn_damage){b->requested, before, after, b->requested + first, b->kind, 0};
    cnn_lock_release(&damage_lock);
  }
  for (size_t i = 0; i < b->requested; i++) data[i] = freed[i & 1];
}

bool cnn_guard_take(cnn_damage *damage) {
  cnn_lock_acquire(&damage_lock);
  *damage = first_damage;
  damage->found = atomic_exchange(&cnn_guard_found, 0);
  cnn_lock_release(&damage_lock);
  return damage->found > 0;
}
