// SPDX-License-Identifier: MIT
#include "memory/record.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/lock.h"

atomic_int cnn_record_state;

// Guards all below. No pool's lock is taken while it is held.
static cnn_lock lock;

static cnn_event *ring;
static size_t ring_capacity;
static uint64_t ring_total; // events ever written; the newest lies at (total - 1) % capacity
static uint32_t serial;

// Origins: texts by number, and a table of numbers by hash, open addressing, at most half full.
#define ORIGINS 65536
static char **texts;
static uint16_t *buckets;
static size_t text_count = 1, text_capacity, bucket_count;

// --- Forks: a child must not find the lock held
// ---------------------------------------------------

static void before_fork(void) {
  cnn_lock_acquire(&lock);
}

static void after_fork(void) {
  cnn_lock_release(&lock);
}

static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork, after_fork);
}

// --- The ring ------------------------------------------------------------------------------------

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

bool cnn_record_reset(size_t capacity) {
  cnn_event *fresh = NULL;
  if (capacity > SIZE_MAX / sizeof *fresh) return false;
  if (capacity > 0 && !(fresh = malloc(capacity * sizeof *fresh))) return false;
  cnn_lock_acquire(&lock);
  cnn_event *old = ring;
  ring = fresh;
  ring_capacity = capacity;
  ring_total = 0;
  cnn_lock_release(&lock);
  free(old);
  return true;
}

cnn_record_mode cnn_record_switch(cnn_record_mode mode) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  return (cnn_record_mode)atomic_exchange(&cnn_record_state, (int)mode);
}

uint32_t cnn_record_serial(void) {
  cnn_lock_acquire(&lock);
  uint32_t n = serial;
  cnn_lock_release(&lock);
  return n;
}

// With the lock held.
static void add(cnn_event_kind what, cnn_pool *pool, const cnn_block *b, uint8_t kind) {
  if (ring_capacity == 0 || atomic_load(&cnn_record_state) != CNN_RECORD_EVENTS) return;
  ring[ring_total++ % ring_capacity] =
      (cnn_event){.time = now(),
                  .at = (uintptr_t)b->data,
                  .bytes = b->size,
                  .serial = b->serial,
                  .origin = b->origin,
                  .what = (uint8_t)what,
                  .kind = kind,
                  .was = b->kind,
                  .pool = pool,
                  .root = cnn_pool_root(pool),
                  .reserved = cnn_pool_reserved(pool),
                  .root_reserved = cnn_pool_reserved(cnn_pool_root(pool))};
}

void cnn_record_alloc(cnn_pool *pool, cnn_block *block, uint16_t origin) {
  cnn_block copy = *block;
  copy.origin = origin;
  cnn_lock_acquire(&lock);
  if (++serial == 0) serial = 1; // 0: not recorded
  copy.serial = serial;
  add(CNN_EVENT_ALLOC, pool, &copy, copy.kind);
  cnn_lock_release(&lock);
  cnn_pool_stamp(pool, block, copy.origin, copy.serial);
}

void cnn_record_free(cnn_pool *pool, const cnn_block *block) {
  cnn_lock_acquire(&lock);
  add(CNN_EVENT_FREE, pool, block, block->kind);
  cnn_lock_release(&lock);
}

void cnn_record_retag(cnn_pool *pool, const cnn_block *block, uint8_t kind) {
  cnn_lock_acquire(&lock);
  add(CNN_EVENT_RETAG, pool, block, kind);
  cnn_lock_release(&lock);
}

void cnn_record_trim(cnn_pool *pool, size_t bytes) {
  const cnn_block none = {.size = bytes};
  cnn_lock_acquire(&lock);
  add(CNN_EVENT_TRIM, pool, &none, 0);
  cnn_lock_release(&lock);
}

bool cnn_record_events(const cnn_pool *pool, cnn_event **events, size_t *n, uint64_t *lost) {
  cnn_lock_acquire(&lock);
  size_t held = ring_total < ring_capacity ? (size_t)ring_total : ring_capacity;
  cnn_event *copy = malloc((held ? held : 1) * sizeof *copy);
  *n = 0;
  *lost = ring_total - held;
  for (size_t i = 0; copy && i < held; i++) {
    const cnn_event *e = &ring[(ring_total - held + i) % ring_capacity];
    if (e->pool == pool || e->root == pool) copy[(*n)++] = *e;
  }
  cnn_lock_release(&lock);
  *events = copy;
  return copy != NULL;
}

// --- The pieces of a pool
// --------------------------------------------------------------------------

typedef struct pieces {
  cnn_piece *list;
  size_t n, capacity;
  bool failed;
} pieces;

static void collect(void *data, const cnn_piece *piece) {
  pieces *p = data;
  if (p->failed) return;
  if (p->n == p->capacity) {
    size_t capacity = p->capacity ? 2 * p->capacity : 256;
    cnn_piece *list = realloc(p->list, capacity * sizeof *list);
    if (!list) {
      p->failed = true;
      return;
    }
    p->list = list;
    p->capacity = capacity;
  }
  p->list[p->n++] = *piece;
}

static int by_address(const void *a, const void *b) {
  const cnn_piece *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return (x->what > y->what) - (x->what < y->what); // a bed before the block at its start
}

bool cnn_record_pieces(cnn_pool *pool, cnn_piece **list, size_t *n) {
  pieces p = {.n = 0};
  cnn_pool_walk(pool, collect, &p);
  if (p.failed) {
    free(p.list);
    return false;
  }
  if (p.n > 0) qsort(p.list, p.n, sizeof *p.list, by_address);
  *list = p.list;
  *n = p.n;
  return true;
}

// --- Origins -------------------------------------------------------------------------------------

static uint64_t hash(const char *text) {
  uint64_t h = UINT64_C(14695981039346656037); // FNV-1a
  for (; *text; text++) h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
  return h;
}

// The bucket that holds the text's number, or the empty one where it belongs.
static uint16_t *bucket_of(const char *text) {
  size_t i = (size_t)hash(text) & (bucket_count - 1);
  while (buckets[i] && strcmp(texts[buckets[i]], text) != 0) i = (i + 1) & (bucket_count - 1);
  return &buckets[i];
}

static bool grow(void) {
  size_t capacity = text_capacity ? 2 * text_capacity : 64;
  if (capacity > ORIGINS) return false;
  char **more = realloc(texts, capacity * sizeof *more);
  if (!more) return false;
  texts = more;
  uint16_t *fresh = calloc(2 * capacity, sizeof *fresh);
  if (!fresh) return false;
  free(buckets);
  buckets = fresh;
  bucket_count = 2 * capacity;
  text_capacity = capacity;
  for (size_t i = 1; i < text_count; i++) *bucket_of(texts[i]) = (uint16_t)i;
  return true;
}

static uint16_t find_or_add(const char *text) {
  uint16_t *at = bucket_count ? bucket_of(text) : NULL;
  if (at && *at) return *at;
  if (text_count >= text_capacity) {
    if (!grow()) return 0;
    at = bucket_of(text);
  }
  char *copy = strdup(text);
  if (!copy) return 0;
  texts[text_count] = copy;
  *at = (uint16_t)text_count;
  return (uint16_t)text_count++;
}

uint16_t cnn_origin_of(const char *text) {
  if (!*text) return 0;
  cnn_lock_acquire(&lock);
  uint16_t n = find_or_add(text);
  cnn_lock_release(&lock);
  return n;
}

const char *cnn_origin_text(uint16_t origin) {
  cnn_lock_acquire(&lock);
  const char *text = origin > 0 && origin < text_count ? texts[origin] : "";
  cnn_lock_release(&lock);
  return text;
}
