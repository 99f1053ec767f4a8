// SPDX-License-Identifier: MIT
// What a pool has to do with streams: lanes, blocks that wait, streams that end.
//
// Recording an event can fail. Then what it was wanted for stays as it is, and is tried again: a
// later event says as much and more.
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "memory/pool_parts.h"

// Streams that a look at the queue found at work; of more it asks the device again.
#define BUSY 16

// --- Lanes --------------------------------------------------------------------------------------

lane *pool_other_lane(cnn_pool *p, void *stream) {
  lane *dead = NULL;
  for (lane *l = p->first.next; l; l = l->next) {
    if (l->stream == stream) return l;
    if (l->dead) dead = l;
  }
  // Its old stream is done with what is free in it, and what comes back to it later was used by
  // streams that are waited for.
  if (dead) {
    dead->dead = false;
    dead->stream = stream;
    return dead;
  }
  lane *l = cnn_calloc(sizeof *l);
  if (!l) return NULL;
  if (!lane_open(l, p, stream, p->first.space.range_bytes)) {
    cnn_free(l);
    return NULL;
  }
  l->next = p->first.next;
  p->first.next = l;
  return l;
}

static void drop_lane(cnn_pool *p, lane *l) {
  lane **at = &p->first.next;
  while (*at != l) at = &(*at)->next;
  *at = l->next;
  lane_close(l);
  cnn_free(l);
}

void pool_drop_lanes(cnn_pool *p) {
  while (p->first.next) drop_lane(p, p->first.next);
  lane_close(&p->first);
}

void pool_tidy(cnn_pool *p) {
  p->untidy = p->closed;
  for (lane *l = p->first.next, *next; l; l = next) {
    next = l->next;
    if (!l->dead) continue;
    if (lane_reclaimable(l) == l->space.committed)
      drop_lane(p, l);
    else
      p->untidy = true;
  }
  pool_leave_when_empty(p);
}

static void forget_event(const cnn_mapper *m, void **event) {
  m->forget(m->self, *event);
  *event = NULL;
}

static void wait_for(cnn_pool *p, void *event) {
  p->mapper->wait(p->mapper->self, event);
  p->count.waits++;
  if (p != p->root) p->root->count.waits++;
}

bool lane_settle(lane *l) {
  const cnn_mapper *m = l->pool->mapper;
  if (!m->record || l->dead || !l->dirty) return true;
  if (l->event && l->stale) forget_event(m, &l->event);
  if (!l->event) {
    l->event = m->record(m->self, l->stream);
    if (!l->event) return false;
    l->stale = false;
  }
  if (!m->query(m->self, l->event)) {
    if (!l->pool->root->patient) return false;
    wait_for(l->pool, l->event);
  }
  forget_event(m, &l->event);
  l->dirty = false;
  return true;
}

// --- Blocks that wait ---------------------------------------------------------------------------

bool cnn_pool_use(cnn_pool *pool, cnn_block *public, void *stream) {
  block *b = (block *)public;
  if (!pool->mapper->record) return true;
  bool ok = true;
  cnn_lock_acquire(pool->lock);
  assert(b->pub.requested != 0 && !block_waits(b));
  if (lane_of(b)->stream != stream) {
    use *u = b->uses;
    while (u && u->stream != stream) u = u->next;
    if (!u) {
      u = cnn_malloc(sizeof *u);
      ok = u != NULL;
      if (u) *u = (use){.next = b->uses, .stream = stream, .block = b, .lane = lane_of(b)};
      if (u) b->uses = u;
    }
  }
  cnn_lock_release(pool->lock);
  return ok;
}

// Of streams whose events have not passed: all later ones of theirs have not either.
typedef struct busy {
  void *streams[BUSY];
  int n;
} busy;

static bool is_busy(const busy *list, const void *stream) {
  for (int i = 0; i < list->n; i++)
    if (list->streams[i] == stream) return true;
  return false;
}

// Whether that use of the block is over. `wait`: sees to it, unless no event can be recorded.
static bool is_over(cnn_pool *p, use *u, busy *list, bool wait) {
  const cnn_mapper *m = p->mapper;
  if (u->over) return true;
  if (!u->event) u->event = m->record(m->self, u->stream);
  if (!u->event) return false;
  if (wait) {
    if (!m->query(m->self, u->event)) wait_for(p, u->event);
  } else if (is_busy(list, u->stream)) {
    return false;
  } else if (!m->query(m->self, u->event)) {
    if (list->n < BUSY) list->streams[list->n++] = u->stream;
    return false;
  }
  forget_event(m, &u->event);
  return u->over = true;
}

static bool all_over(cnn_pool *p, block *b, busy *list, bool wait) {
  bool all = true;
  // Every use, so that each has its event as early as can be.
  for (use *u = b->uses; u; u = u->next)
    if (!is_over(p, u, list, wait)) all = false;
  return all;
}

static void free_uses(block *b) {
  for (use *u = b->uses, *next; u; u = next) {
    next = u->next;
    cnn_free(u);
  }
  b->uses = NULL;
}

static void give_back(cnn_pool *p, block *b) {
  int64_t size = (int64_t)b->pub.size;
  pool_count_waiting(p, -size, -1);
  free_uses(b);
  lane_give(b); // its structure may be gone
  pool_count_given(p, size);
}

void pool_await(cnn_pool *p, block *b) {
  cnn_pool *root = p->root;
  use *u = b->uses;
  busy list = {.n = 0};
  u->waiting = true;
  pool_count_waiting(p, (int64_t)b->pub.size, 1);
  if (all_over(p, b, &list, false)) {
    give_back(p, b);
    return;
  }
  if (!root->queue) root->queue_end = &root->queue;
  *root->queue_end = u;
  root->queue_end = &u->later;
}

// Takes those out of the queue whose uses are over. False when one of the `of` lane (of any, for
// NULL) is left.
static bool look(cnn_pool *root, const lane *of, bool wait) {
  busy list = {.n = 0};
  bool none_left = true;
  use *queue = root->queue, **end = &root->queue, *back = NULL, **back_end = &back;
  root->queue = NULL;
  for (use *u = queue, *later; u; u = later) {
    later = u->later;
    u->later = NULL;
    bool wanted = !of || u->lane == of;
    if (all_over(u->lane->pool, u->block, &list, wait && wanted)) {
      *back_end = u;
      back_end = &u->later;
    } else {
      if (wanted) none_left = false;
      *end = u;
      end = &u->later;
    }
  }
  root->queue_end = end;
  // Only now, with the queue in order: a pool that was closed may go with its last block.
  for (use *u = back, *later; u; u = later) {
    later = u->later;
    cnn_pool *p = u->lane->pool;
    give_back(p, u->block);
    if (p->untidy) pool_tidy(p);
  }
  return none_left;
}

void pool_poll(cnn_pool *root) {
  look(root, NULL, false);
}

bool pool_drain(cnn_pool *root, const lane *of) {
  bool any = false;
  for (const use *u = root->queue; u && !any; u = u->later) any = !of || u->lane == of;
  if (!any) return false;
  return look(root, of, true);
}

void pool_abandon(cnn_pool *root) {
  root->patient = true;
  pool_drain(root, NULL);
  while (root->queue) { // the device records no events any more
    use *u = root->queue;
    root->queue = u->later;
    for (use *v = u; v; v = v->next)
      if (v->event) forget_event(root->mapper, &v->event);
    cnn_pool *p = u->lane->pool;
    give_back(p, u->block);
    if (p->untidy) pool_tidy(p);
  }
}

// --- Streams that end ---------------------------------------------------------------------------

static void strip(block *b, const void *stream) {
  if (b->pub.requested == 0) return;
  use **at = &b->uses;
  while (*at) {
    use *u = *at;
    if (u->stream != stream) {
      at = &u->next;
    } else if (block_waits(b)) { // it may be the one in the queue
      if (u->event) forget_event(u->lane->pool->mapper, &u->event);
      u->over = true;
      u->stream = u; // a new stream may get the old one's address
      at = &u->next;
    } else {
      *at = u->next;
      cnn_free(u);
    }
  }
}

// All uses of the lane's blocks by that stream are over.
static void strip_lane(lane *l, const void *stream) {
  for (const cnn_range *r = l->space.ranges; r; r = r->next)
    for (const cnn_extent *e = r->first; e; e = e->next) {
      if (e->state != CNN_EXTENT_TAKEN) continue;
      if (e->tag == BLOCK) strip(e->owner, stream);
      if (e->tag != BED) continue;
      for (slab *s = ((bed *)e->owner)->slabs; s; s = s->bed_next)
        for (int i = 0; i < s->carved; i++) strip(&s->blocks[i], stream);
    }
}

bool cnn_pool_forget_stream(cnn_pool *pool, void *stream) {
  cnn_pool *root = pool->root;
  const cnn_mapper *m = root->mapper;
  cnn_lock_acquire(root->lock);
  void *event = m->record ? m->record(m->self, stream) : NULL;
  bool ok = event || !m->record;
  if (event) {
    if (!m->query(m->self, event)) wait_for(root, event);
    m->forget(m->self, event);
  }
  if (ok) {
    for (cnn_pool *p = root, *next; p; p = next) {
      next = p->sibling;
      for (lane *l = &p->first; l; l = l->next) {
        strip_lane(l, stream);
        if (l->stream != stream) continue;
        l->dirty = false;
        if (l->event) forget_event(m, &l->event);
        if (l == &p->first) continue; // the default stream comes back
        l->dead = p->untidy = true;
        l->stream = l;
      }
    }
    look(root, NULL, false); // may close pools
    for (cnn_pool *p = root, *next; p; p = next) {
      next = p->sibling;
      if (p->untidy) pool_tidy(p);
    }
  }
  cnn_lock_release(root->lock);
  return ok;
}
