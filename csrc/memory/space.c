// SPDX-License-Identifier: MIT
#include "memory/space.h"

#include <assert.h>
#include <stdlib.h>

#include "memory/poison.h"

// Of the free extents that are large enough by less than a granule, this many are tried.
#define TRIES         32
#define CHUNK_EXTENTS 128
// Structures that one call may need besides those for decommitting.
#define SPARES_PER_CALL 8

struct cnn_extent_chunk {
  struct cnn_extent_chunk *next;
  cnn_extent extents[CHUNK_EXTENTS];
};

static size_t granule_size(const cnn_space *s) {
  return (size_t)1 << s->shift;
}

static uintptr_t round_down(const cnn_space *s, uintptr_t a) {
  return a >> s->shift << s->shift;
}

static uintptr_t round_up(const cnn_space *s, uintptr_t a) {
  return round_down(s, a + granule_size(s) - 1);
}

static size_t granules(const cnn_space *s, size_t bytes) {
  return round_up(s, bytes) >> s->shift;
}

// Granules that lie wholly in [a, b).
static size_t whole_in(const cnn_space *s, uintptr_t a, uintptr_t b) {
  uintptr_t lo = round_up(s, a), hi = round_down(s, b);
  return hi > lo ? (hi - lo) >> s->shift : 0;
}

// Granules that [a, b) touches.
static size_t touched_by(const cnn_space *s, uintptr_t a, uintptr_t b) {
  return (round_up(s, b) - round_down(s, a)) >> s->shift;
}

// The most granules that a taken extent of n bytes may touch. One more than it needs lets extents
// of odd sizes lie end to end: peaks of training steps are within 1 to 4 % of the live bytes so,
// and were 1 to 17 % above them without. Whole granules gain nothing by it, and half a granule
// would pin more than four times its size.
static size_t most_touched(const cnn_space *s, size_t n) {
  size_t part = n & (granule_size(s) - 1);
  return granules(s, n) + (n > granule_size(s) / 2 && part != 0);
}

// Counts free granules for all who count them.
static void count_whole(cnn_space *s, size_t added) {
  if (added == 0) return;
  s->whole_free += added;
  for (cnn_quota *q = s->quota; q; q = q->outer) q->reclaimable += added, q->changes++;
}

// --- Structures -------------------------------------------------------------------------------

// Makes sure that `count` structures are at hand. Plain malloc: one request of a pool is one
// request to the fault injection, however many structures it takes.
static bool have_spares(cnn_space *s, size_t count) {
  while (s->spare_count < count) {
    struct cnn_extent_chunk *c = malloc(sizeof *c);
    if (!c) return false;
    c->next = s->chunks;
    s->chunks = c;
    for (int i = 0; i < CHUNK_EXTENTS; i++) {
      c->extents[i].next = s->spares;
      s->spares = &c->extents[i];
    }
    s->spare_count += CHUNK_EXTENTS;
  }
  return true;
}

static cnn_extent *new_extent(cnn_space *s, uintptr_t begin, uintptr_t end) {
  assert(s->spares);
  cnn_extent *e = s->spares;
  s->spares = e->next;
  s->spare_count--;
  *e = (cnn_extent){.begin = begin, .end = end, .state = CNN_EXTENT_TAKEN};
  return e;
}

static void drop_extent(cnn_space *s, cnn_extent *e) {
  e->next = s->spares;
  s->spares = e;
  s->spare_count++;
}

// --- Trees: treaps ordered by size, then address ------------------------------------------------

static size_t size_of(const cnn_extent *e) {
  return e->end - e->begin;
}

// Whether e is before the key (size, begin).
static bool is_below(const cnn_extent *e, size_t size, uintptr_t begin) {
  return size_of(e) != size ? size_of(e) < size : e->begin < begin;
}

static bool extent_before(const cnn_extent *a, const cnn_extent *b) {
  return is_below(a, size_of(b), b->begin);
}

static cnn_extent **root_of(cnn_space *s, cnn_extent_state state) {
  return state == CNN_EXTENT_FREE ? &s->free : &s->empty;
}

static void tree_insert(cnn_space *s, cnn_extent *e) {
  s->random ^= s->random << 13, s->random ^= s->random >> 17, s->random ^= s->random << 5;
  e->priority = s->random;
  cnn_extent **at = root_of(s, e->state);
  while (*at && (*at)->priority >= e->priority)
    at = extent_before(e, *at) ? &(*at)->left : &(*at)->right;
  // Split what hangs there into the smaller and the larger ones.
  cnn_extent *rest = *at, **smaller = &e->left, **larger = &e->right;
  *at = e;
  while (rest) {
    if (extent_before(rest, e))
      *smaller = rest, smaller = &rest->right, rest = rest->right;
    else
      *larger = rest, larger = &rest->left, rest = rest->left;
  }
  *smaller = *larger = NULL;
  if (e->state == CNN_EXTENT_FREE) count_whole(s, whole_in(s, e->begin, e->end));
}

static void tree_remove(cnn_space *s, cnn_extent *e) {
  cnn_extent **at = root_of(s, e->state);
  while (*at != e) at = extent_before(e, *at) ? &(*at)->left : &(*at)->right;
  cnn_extent *a = e->left, *b = e->right;
  while (a && b) {
    if (a->priority >= b->priority)
      *at = a, at = &a->right, a = a->right;
    else
      *at = b, at = &b->left, b = b->left;
  }
  *at = a ? a : b;
  if (e->state == CNN_EXTENT_FREE) count_whole(s, -whole_in(s, e->begin, e->end));
}

// The first extent that is not below (size, begin).
static cnn_extent *tree_at_least(cnn_extent *root, size_t size, uintptr_t begin) {
  cnn_extent *found = NULL;
  while (root) {
    if (is_below(root, size, begin))
      root = root->right;
    else
      found = root, root = root->left;
  }
  return found;
}

// The last extent that is below (size, begin).
static cnn_extent *tree_below(cnn_extent *root, size_t size, uintptr_t begin) {
  cnn_extent *found = NULL;
  while (root) {
    if (is_below(root, size, begin))
      found = root, root = root->right;
    else
      root = root->left;
  }
  return found;
}

// --- The list by address ------------------------------------------------------------------------

// Cuts [at, end) off a taken extent; both parts are taken then.
static cnn_extent *cut(cnn_space *s, cnn_extent *e, uintptr_t at) {
  cnn_extent *tail = new_extent(s, at, e->end);
  e->end = at;
  tail->prev = e;
  tail->next = e->next;
  if (e->next) e->next->prev = tail;
  e->next = tail;
  return tail;
}

// Joins an extent with the one behind it, which is dropped.
static void join(cnn_space *s, cnn_extent *e) {
  cnn_extent *next = e->next;
  e->end = next->end;
  e->next = next->next;
  if (e->next) e->next->prev = e;
  drop_extent(s, next);
}

static void take_out(cnn_space *s, cnn_extent *e) {
  tree_remove(s, e);
  e->state = CNN_EXTENT_TAKEN;
}

// Makes a taken extent free or void, joined with its neighbours. Returns what it is part of then.
static cnn_extent *put_in(cnn_space *s, cnn_extent *e, cnn_extent_state state) {
  e->owner = NULL;
  e->tag = 0;
  if (e->next && e->next->state == state) {
    take_out(s, e->next);
    join(s, e);
  }
  if (e->prev && e->prev->state == state) {
    e = e->prev;
    take_out(s, e);
    join(s, e);
  }
  e->state = (uint8_t)state;
  tree_insert(s, e);
  return e;
}

// --- Counting -----------------------------------------------------------------------------------

static void count_bytes(cnn_pool_counter *c, int64_t added) {
  c->current += added;
  if (added > 0) c->total += added;
  if (c->current > c->peak) c->peak = c->current;
}

static void count_committed(cnn_space *s, size_t granules_now) {
  int64_t added = ((int64_t)granules_now - (int64_t)s->committed) * (int64_t)granule_size(s);
  for (cnn_quota *q = s->quota; q; q = q->outer) {
    q->committed += granules_now - s->committed;
    q->changes++;
    count_bytes(&q->reserved, added);
    atomic_store_explicit(&q->now, q->reserved.current, memory_order_relaxed);
  }
  s->committed = granules_now;
}

size_t cnn_space_room(const cnn_space *s) {
  size_t room = SIZE_MAX;
  for (const cnn_quota *q = s->quota; q; q = q->outer) {
    size_t left = q->limit > q->committed ? q->limit - q->committed : 0;
    if (left < room) room = left;
  }
  return room;
}

// --- Ranges -------------------------------------------------------------------------------------

// Reserves a range that holds `bytes`. Much larger than needed, so that there is room to move
// memory about and to grow in place.
static bool add_range(cnn_space *s, size_t bytes) {
  if (!have_spares(s, SPARES_PER_CALL)) return false;
  cnn_range *r = malloc(sizeof *r);
  if (!r) return false;
  size_t wanted = bytes > s->range_bytes ? bytes : s->range_bytes;
  void *base = NULL;
  // Steps of 16, not of 2: what is refused for an address limit must not then be used up wholly.
  while (!(base = s->mapper->reserve(s->mapper->self, wanted)) && wanted > bytes)
    wanted = wanted >> 4 > bytes ? round_up(s, wanted >> 4) : bytes;
  if (!base) {
    free(r);
    return false;
  }
  r->base = (uintptr_t)base;
  r->bytes = wanted;
  r->first = new_extent(s, r->base, r->base + wanted);
  r->next = s->ranges;
  s->ranges = r;
  put_in(s, r->first, CNN_EXTENT_VOID);
  return true;
}

bool cnn_space_open(cnn_space *s, const cnn_mapper *mapper, cnn_quota *quota, size_t range_bytes) {
  *s = (cnn_space){.mapper = mapper, .quota = quota, .random = 2463534242u};
  while (granule_size(s) < mapper->granule) s->shift++;
  assert(granule_size(s) == mapper->granule);
  s->range_bytes = round_up(s, range_bytes);
  if (add_range(s, granule_size(s))) return true;
  cnn_space_close(s);
  return false;
}

// Takes all memory from a range: what lies between voids are whole granules.
static void empty_range(cnn_space *s, const cnn_range *r) {
  for (cnn_extent *e = r->first, *last; e; e = last->next) {
    last = e;
    if (e->state == CNN_EXTENT_VOID) continue;
    while (last->next && last->next->state != CNN_EXTENT_VOID) last = last->next;
    CNN_UNPOISON(s->mapper, e->begin, last->end - e->begin);
    s->mapper->decommit(s->mapper->self, (void *)e->begin, last->end - e->begin);
  }
}

void cnn_space_close(cnn_space *s) {
  for (cnn_range *r = s->ranges, *next; r; r = next) {
    next = r->next;
    empty_range(s, r);
    s->mapper->release(s->mapper->self, (void *)r->base, r->bytes);
    free(r);
  }
  for (struct cnn_extent_chunk *c = s->chunks, *next; c; c = next) {
    next = c->next;
    free(c);
  }
  s->ranges = NULL;
  s->chunks = NULL;
  count_whole(s, -s->whole_free);
  count_committed(s, 0);
}

void cnn_space_lose(cnn_space *s, const cnn_mapper *mapper) {
  for (const cnn_range *r = s->ranges; r; r = r->next) {
    empty_range(s, r);
    s->mapper->release(s->mapper->self, (void *)r->base, r->bytes);
  }
  s->mapper = mapper;
}

// --- Commit and decommit ------------------------------------------------------------------------

static bool commit(cnn_space *s, uintptr_t begin, uintptr_t end) {
  for (cnn_quota *q = s->quota; q; q = q->outer) q->maps++;
  if (!s->mapper->commit(s->mapper->self, (void *)begin, end - begin)) return false;
  CNN_POISON(s->mapper, begin, end - begin);
  count_committed(s, s->committed + ((end - begin) >> s->shift));
  return true;
}

// Takes the memory from the last `count` whole granules of a free extent.
static void decommit_end(cnn_space *s, cnn_extent *e, size_t count) {
  uintptr_t end = round_down(s, e->end), begin = end - (count << s->shift);
  take_out(s, e);
  if (end < e->end) put_in(s, cut(s, e, end), CNN_EXTENT_FREE);
  if (begin > e->begin) {
    cnn_extent *tail = cut(s, e, begin);
    put_in(s, e, CNN_EXTENT_FREE);
    e = tail;
  }
  CNN_UNPOISON(s->mapper, begin, end - begin);
  s->mapper->decommit(s->mapper->self, (void *)begin, end - begin);
  for (cnn_quota *q = s->quota; q; q = q->outer) q->unmaps++;
  count_committed(s, s->committed - count);
  put_in(s, e, CNN_EXTENT_VOID);
}

// The largest extents first: fewer calls to the device.
size_t cnn_space_trim(cnn_space *s, size_t wanted) {
  size_t done = 0;
  if (s->whole_free == 0 || wanted == 0 || (s->settle && !s->settle(s->owner))) return 0;
  cnn_extent *e = tree_below(s->free, SIZE_MAX, 0);
  while (e && done < wanted && size_of(e) >= granule_size(s)) {
    size_t size = size_of(e), count = whole_in(s, e->begin, e->end);
    uintptr_t begin = e->begin;
    if (count > wanted - done) count = wanted - done;
    if (count > 0) {
      if (!have_spares(s, SPARES_PER_CALL)) break;
      decommit_end(s, e, count);
      done += count;
    }
    e = tree_below(s->free, size, begin);
  }
  return done;
}

// --- Taking -------------------------------------------------------------------------------------

// Finds where in the free bytes [a, b) an extent of n bytes goes: where it takes the fewest of the
// whole granules. False when it doesn't fit without touching more granules than it may.
static bool place(const cnn_space *s, uintptr_t a, uintptr_t b, size_t n, uintptr_t *start) {
  const uintptr_t at[] = {a, round_up(s, a), b - n};
  size_t most = most_touched(s, n), least = SIZE_MAX, whole = whole_in(s, a, b);
  if (b - a < n) return false;
  for (int i = 0; i < 3; i++) {
    if (at[i] < a || at[i] + n > b || touched_by(s, at[i], at[i] + n) > most) continue;
    size_t spent = whole - whole_in(s, a, at[i]) - whole_in(s, at[i] + n, b);
    if (spent < least) least = spent, *start = at[i];
  }
  return least != SIZE_MAX;
}

// The taken part [start, start + n) of a free extent; the rest stays free.
static cnn_extent *carve(cnn_space *s, cnn_extent *e, uintptr_t start, size_t n) {
  take_out(s, e);
  if (start + n < e->end) put_in(s, cut(s, e, start + n), CNN_EXTENT_FREE);
  if (start > e->begin) {
    cnn_extent *taken = cut(s, e, start);
    put_in(s, e, CNN_EXTENT_FREE);
    e = taken;
  }
  return e;
}

static cnn_extent *take_free(cnn_space *s, size_t n) {
  uintptr_t start;
  cnn_extent *e = tree_at_least(s->free, n, 0);
  for (int i = 0; e && i < TRIES; i++) {
    if (place(s, e->begin, e->end, n, &start)) return carve(s, e, start, n);
    e = tree_at_least(s->free, size_of(e), e->begin + 1);
  }
  // In a granule more than n bytes it fits always.
  if (e) e = tree_at_least(s->free, n + granule_size(s), 0);
  return e && place(s, e->begin, e->end, n, &start) ? carve(s, e, start, n) : NULL;
}

// Takes n bytes of which some get their memory now. *refused: not for want of granules.
static cnn_extent *take_fresh(cnn_space *s, size_t n, bool *refused) {
  size_t need = granules(s, n);
  *refused = false;
  if (need > s->whole_free + cnn_space_room(s)) return NULL;
  cnn_extent *e = tree_at_least(s->empty, need << s->shift, 0);
  if (!e) {
    if (add_range(s, need << s->shift)) e = tree_at_least(s->empty, need << s->shift, 0);
    *refused = !e;
    if (!e) return NULL;
  }
  // Grow the free bytes before it.
  uintptr_t fresh = e->begin, start = fresh;
  cnn_extent *grown = e->prev && e->prev->state == CNN_EXTENT_FREE ? e->prev : NULL;
  if (grown) {
    start = grown->begin;
    if (touched_by(s, start, start + n) > most_touched(s, n)) start = round_up(s, start);
    if (start + n <= fresh) return carve(s, grown, start, n);
  }
  uintptr_t stop = round_up(s, start + n);
  size_t count = (stop - fresh) >> s->shift, room = cnn_space_room(s);
  size_t missing = count > room ? count - room : 0;

  // Out of the trees first, so that making room elsewhere leaves it alone.
  take_out(s, e);
  if (stop < e->end) put_in(s, cut(s, e, stop), CNN_EXTENT_VOID);
  if (grown) e = carve(s, grown, start, fresh - start), join(s, e);
  if (cnn_space_trim(s, missing) < missing || !commit(s, fresh, stop)) {
    if (fresh > e->begin) {
      cnn_extent *tail = cut(s, e, fresh);
      put_in(s, e, CNN_EXTENT_FREE);
      e = tail;
    }
    put_in(s, e, CNN_EXTENT_VOID);
    *refused = true;
    return NULL;
  }
  if (start + n < stop) put_in(s, cut(s, e, start + n), CNN_EXTENT_FREE);
  return e;
}

cnn_extent *cnn_space_take(cnn_space *s, size_t n) {
  bool refused;
  if (!have_spares(s, SPARES_PER_CALL)) return NULL;
  cnn_extent *e = take_free(s, n);
  if (e) return e;
  e = take_fresh(s, n, &refused);
  // The device has no memory left, or the address space is scattered: both may be cured.
  if (!e && refused && cnn_space_trim(s, SIZE_MAX) > 0 && have_spares(s, SPARES_PER_CALL))
    e = take_fresh(s, n, &refused);
  return e;
}

void cnn_space_give(cnn_space *s, cnn_extent *e) {
  put_in(s, e, CNN_EXTENT_FREE);
}

size_t cnn_space_largest(const cnn_space *s) {
  const cnn_extent *e = tree_below(s->free, SIZE_MAX, 0);
  return e ? size_of(e) : 0;
}

// --- Checking -----------------------------------------------------------------------------------

// Counts the extents of a tree, or gives -1 when their order, state or heap is wrong.
static int64_t count_tree(const cnn_extent *e, const cnn_extent *low, const cnn_extent *high,
                          cnn_extent_state state) {
  if (!e) return 0;
  if (e->state != state || (low && !extent_before(low, e)) || (high && !extent_before(e, high)))
    return -1;
  if ((e->left && e->left->priority > e->priority) ||
      (e->right && e->right->priority > e->priority))
    return -1;
  int64_t a = count_tree(e->left, low, e, state), b = count_tree(e->right, e, high, state);
  return a < 0 || b < 0 ? -1 : a + b + 1;
}

const char *cnn_space_check(const cnn_space *s) {
  int64_t counts[3] = {0, 0, 0};
  size_t whole = 0, empty = 0, total = 0;
  for (const cnn_range *r = s->ranges; r; r = r->next) {
    const cnn_extent *last = NULL;
    uintptr_t at = r->base;
    if (!r->first || r->first->prev) return "space: a range's first extent is not the first";
    for (const cnn_extent *e = r->first; e; last = e, e = e->next) {
      if (e->begin != at || e->end <= e->begin) return "space: extents leave a gap or overlap";
      if (e->prev != last) return "space: a back link is wrong";
      if (e->state > CNN_EXTENT_VOID) return "space: an extent's state is none";
      if (last && last->state == e->state && e->state != CNN_EXTENT_TAKEN)
        return "space: neighbours are not joined";
      size_t n = size_of(e);
      if (n % s->mapper->alignment) return "space: an extent is not aligned";
      if (e->state == CNN_EXTENT_VOID && (e->begin % granule_size(s) || n % granule_size(s)))
        return "space: a void extent is not whole granules";
      if (e->state == CNN_EXTENT_TAKEN && touched_by(s, e->begin, e->end) > most_touched(s, n))
        return "space: an extent touches too many granules";
      if (e->state == CNN_EXTENT_FREE) whole += whole_in(s, e->begin, e->end);
      if (e->state == CNN_EXTENT_VOID) empty += n >> s->shift;
      counts[e->state]++;
      at = e->end;
    }
    if (at != r->base + r->bytes) return "space: extents don't fill the range";
    total += r->bytes >> s->shift;
  }
  if (count_tree(s->free, NULL, NULL, CNN_EXTENT_FREE) != counts[CNN_EXTENT_FREE])
    return "space: the tree of free extents is wrong";
  if (count_tree(s->empty, NULL, NULL, CNN_EXTENT_VOID) != counts[CNN_EXTENT_VOID])
    return "space: the tree of void extents is wrong";
  if (whole != s->whole_free) return "space: whole free granules are miscounted";
  if (total - empty != s->committed) return "space: committed granules are miscounted";
  size_t spares = 0;
  for (const cnn_extent *e = s->spares; e; e = e->next) spares++;
  if (spares != s->spare_count) return "space: spare structures are miscounted";
  return NULL;
}
