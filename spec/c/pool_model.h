// SPDX-License-Identifier: MIT
// What the tests of pools share: a device of plain memory that counts its granules, and a naive
// model of what a pool holds.
#ifndef CNN_SPEC_POOL_MODEL_H
#define CNN_SPEC_POOL_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "memory/poison.h"
#include "memory/pool.h"

// Sanitizers make an operation 10 to 20 times as slow: there the long tests do a tenth.
#if defined(CNN_POISONED) || defined(__SANITIZE_THREAD__)
#define THINNED 10
#else
#define THINNED 1
#endif

#define CHECK_POOL(pool)                                                                           \
  do {                                                                                             \
    const char *wrong_ = cnn_pool_check(pool);                                                     \
    report(wrong_ == NULL, wrong_ ? wrong_ : "", __LINE__);                                        \
  } while (0)

static uint64_t rng_state;
static uint64_t rng(void) {
  rng_state ^= rng_state << 13;
  rng_state ^= rng_state >> 7;
  rng_state ^= rng_state << 17;
  return rng_state * 0x2545F4914F6CDD1Dull >> 11;
}
static size_t below(size_t n) {
  return (size_t)(rng() % n);
}

// --- A device of plain memory -------------------------------------------------------------------

#define MIB            ((size_t)1 << 20)
#define GRANULE        (512 * (size_t)1024)
#define ARENAS         64
#define ARENA_GRANULES 1024

typedef struct fake {
  size_t largest;   // reservations above this are refused
  size_t capacity;  // granules that may be committed
  size_t committed; // granules
  int refuse;       // so many commits, one by one, are refused
  int arenas;
  char *base[ARENAS];
  size_t bytes[ARENAS];
  bool there[ARENAS][ARENA_GRANULES];
  int wrong; // calls that break the contract
  size_t limit;
  bool virtual_only;
} fake;

static void *fake_reserve(void *self, size_t bytes) {
  fake *f = self;
  int i = 0;
  while (i < f->arenas && f->base[i]) i++;
  if (bytes > f->largest || i == ARENAS || bytes > ARENA_GRANULES * GRANULE) return NULL;
  char *p = f->virtual_only ? (char *)((uintptr_t)(i + 1) << 36) : aligned_alloc(GRANULE, bytes);
  if (!p) return NULL;
  f->base[i] = p;
  f->bytes[i] = bytes;
  memset(f->there[i], 0, sizeof f->there[i]);
  if (i == f->arenas) f->arenas++;
  return p;
}

static void fake_release(void *self, void *base, size_t bytes) {
  fake *f = self;
  for (int i = 0; i < f->arenas; i++) {
    if (f->base[i] != base) continue;
    f->wrong += f->bytes[i] != bytes;
    for (int g = 0; g < ARENA_GRANULES; g++) f->committed -= f->there[i][g];
    if (!f->virtual_only) free(base);
    f->base[i] = NULL;
    return;
  }
  f->wrong++;
}

static void fake_flip(fake *f, char *at, size_t bytes, bool there) {
  for (int i = 0; i < f->arenas; i++) {
    if (!f->base[i] || at < f->base[i] || at >= f->base[i] + f->bytes[i]) continue;
    size_t first = (size_t)(at - f->base[i]) / GRANULE, n = bytes / GRANULE;
    f->wrong += (size_t)(at - f->base[i]) % GRANULE != 0 || bytes % GRANULE != 0 || n == 0 ||
                at + bytes > f->base[i] + f->bytes[i];
    for (size_t g = first; g < first + n; g++) {
      f->wrong += f->there[i][g] == there;
      f->there[i][g] = there;
    }
    f->committed += there ? n : -n;
    if (!f->virtual_only) memset(at, there ? 0xA5 : 0xDD, bytes);
    return;
  }
  f->wrong++;
}

static bool fake_commit(void *self, void *at, size_t bytes) {
  fake *f = self;
  if (f->refuse > 0) {
    f->refuse--;
    return false;
  }
  if (f->committed + bytes / GRANULE > f->capacity) return false;
  fake_flip(f, at, bytes, true);
  return true;
}

static void fake_decommit(void *self, void *at, size_t bytes) {
  fake_flip(self, at, bytes, false);
}

static void fake_info(void *self, size_t *total, size_t *available, size_t *limit) {
  fake *f = self;
  *total = f->capacity * GRANULE;
  *available = (f->capacity - f->committed) * GRANULE;
  *limit = f->limit;
}

static fake device;
static cnn_mapper fake_mapper = {.name = "fake",
                                 .granule = GRANULE,
                                 .alignment = 64,
                                 .host = true,
                                 .reserve = fake_reserve,
                                 .release = fake_release,
                                 .commit = fake_commit,
                                 .decommit = fake_decommit,
                                 .info = fake_info,
                                 .self = &device};

static void fresh_device(size_t limit_granules) {
  device = (fake){.largest = 256 * MIB, .capacity = SIZE_MAX, .limit = limit_granules * GRANULE};
  fake_mapper.host = true;
  fake_mapper.alignment = 64;
}

static cnn_pool_stats stats_of(cnn_pool *p) {
  cnn_pool_stats s;
  cnn_pool_get_stats(p, &s);
  return s;
}

// Granules that a request of so many bytes needs: what cnn_pool_stats.available is about.
static size_t granules_for(size_t bytes, size_t granule) {
  bytes = (bytes + 63) / 64 * 64;
  if (bytes > CNN_POOL_SMALL) bytes += CNN_POOL_REDZONE;
  return (bytes + granule - 1) / granule;
}

// --- The model ----------------------------------------------------------------------------------

#define MAX_LIVE 600

typedef struct item {
  cnn_block *block;
  size_t bytes;
  uint8_t kind, fill;
} item;

typedef struct model {
  item items[MAX_LIVE];
  int n;
  int64_t requested, allocated, small, total, kinds[CNN_POOL_KINDS], peak;
  int64_t inactive_peak, split, split_peak, split_total;
} model;

static inline void touch(const item *it) {
  unsigned char *d = it->block->data;
  size_t n = it->bytes < 256 ? it->bytes : 128;
  memset(d, it->fill, n);
  memset(d + it->bytes - n, it->fill, n);
}

static inline bool intact(const item *it) {
  const unsigned char *d = it->block->data;
  size_t n = it->bytes < 256 ? it->bytes : 128;
  for (size_t i = 0; i < n; i++)
    if (d[i] != it->fill || d[it->bytes - 1 - i] != it->fill) return false;
  return true;
}

static inline bool overlaps(const model *m, const cnn_block *b) {
  uintptr_t lo = (uintptr_t)b->data, hi = lo + b->size;
  for (int i = 0; i < m->n; i++) {
    uintptr_t l = (uintptr_t)m->items[i].block->data, h = l + m->items[i].block->size;
    if (lo < h && l < hi) return true;
  }
  return false;
}

static inline bool model_add(model *m, cnn_block *b, size_t bytes, uint8_t kind) {
  bool ok = b->requested == bytes && b->size >= bytes && b->kind == kind &&
            (uintptr_t)b->data % 64 == 0 && !overlaps(m, b);
  // A function of the request alone: at most an eighth above it, or 64 bytes.
  ok = ok && b->size < bytes + (bytes / 8 > 64 ? bytes / 8 + 64 : 64);
  if (bytes > CNN_POOL_SMALL) ok = ok && b->size < bytes + 64;
  item *it = &m->items[m->n++];
  *it = (item){b, bytes, kind, (uint8_t)rng()};
  touch(it);
  m->requested += (int64_t)bytes;
  m->allocated += (int64_t)b->size;
  m->total += (int64_t)b->size;
  if (b->size <= CNN_POOL_SMALL) m->small += (int64_t)b->size;
  m->kinds[kind] += (int64_t)b->size;
  if (m->allocated > m->peak) m->peak = m->allocated;
  return ok;
}

static inline bool model_free(model *m, cnn_pool *p, int i) {
  item it = m->items[i];
  bool ok = intact(&it) && it.block->requested == it.bytes;
  m->requested -= (int64_t)it.bytes;
  m->allocated -= (int64_t)it.block->size;
  m->kinds[it.kind] -= (int64_t)it.block->size;
  if (it.block->size <= CNN_POOL_SMALL) m->small -= (int64_t)it.block->size;
  cnn_pool_free(p, it.block);
  m->items[i] = m->items[--m->n];
  return ok;
}

// Reserved bytes in no block, of a pool that was asked after every call.
static inline bool agrees_on_inactive(model *m, const cnn_pool_stats *s) {
  if (s->inactive.current > m->inactive_peak) m->inactive_peak = s->inactive.current;
  if (s->inactive_split.current > m->split_peak) m->split_peak = s->inactive_split.current;
  if (s->inactive_split.current > m->split) m->split_total += s->inactive_split.current - m->split;
  m->split = s->inactive_split.current;
  return s->inactive.peak == m->inactive_peak && s->inactive_split.peak == m->split_peak &&
         s->inactive_split.total == m->split_total &&
         s->inactive.total == s->reserved.total + s->allocated.total - s->allocated.current;
}

static inline bool agrees(const model *m, cnn_pool *p) {
  cnn_pool_stats s = stats_of(p);
  bool ok = s.requested.current == m->requested && s.allocated.current == m->allocated &&
            s.allocated.total == m->total && s.allocated.peak == m->peak &&
            s.blocks.current == m->n && cnn_pool_live(p) == m->allocated &&
            s.small.current == m->small && s.large.current == m->allocated - m->small &&
            s.small_blocks.current + s.large_blocks.current == m->n &&
            s.inactive.current == s.reserved.current - m->allocated &&
            s.inactive_split.current >= 0 && s.inactive_split.current <= s.inactive.current;
  for (int k = 0; k < CNN_POOL_KINDS; k++) ok = ok && s.kinds[k].current == m->kinds[k];
  return ok;
}

static size_t random_bytes(void) {
  switch (below(8)) {
  case 0: return below(65);
  case 1:
  case 2: return 1 + below(2048);
  case 3: return 1 + below(64 * 1024);
  case 4: return 1 + below(CNN_POOL_SMALL);
  case 5: return CNN_POOL_SMALL - 64 + below(129);
  case 6: return CNN_POOL_SMALL + below(GRANULE);
  default: return below(2) ? GRANULE * (1 + below(8)) : 1 + below(8 * GRANULE);
  }
}

#endif
