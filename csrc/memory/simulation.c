// SPDX-License-Identifier: MIT
#include "memory/simulation.h"

#include <string.h>

#include "base/alloc.h"

struct cnn_simulation {
  cnn_object object;
  cnn_device target;
  cnn_mapper mapper;
  cnn_pool *pool;
  size_t limit;
  uintptr_t next; // the first made-up address not reserved yet
  int64_t peak, requested, overhead;
  int64_t now[CNN_PARTS], at_peak[CNN_PARTS], most[CNN_PARTS];
};

const char *cnn_part_name(cnn_part part) {
  static const char *const names[] = {
#define NAME(name, text) text,
      CNN_PART_MAP(NAME)
#undef NAME
  };
  return names[part];
}

// ---------------------------------------------------------------------------------------------
// A device without memory

// Far from what a process maps, so that a stray access faults.
#define FIRST_ADDRESS ((uintptr_t)1 << 56)

static void *reserve(void *self, size_t bytes) {
  cnn_simulation *s = self;
  uintptr_t at = s->next;
  if (bytes > UINTPTR_MAX / 2 - at) return NULL;
  s->next += (bytes + s->mapper.granule - 1) / s->mapper.granule * s->mapper.granule;
  return (void *)at;
}

static void release(void *self, void *base, size_t bytes) {
  (void)self, (void)base, (void)bytes;
}

static bool commit(void *self, void *at, size_t bytes) {
  (void)self, (void)at, (void)bytes;
  return true;
}

static void decommit(void *self, void *at, size_t bytes) {
  (void)self, (void)at, (void)bytes;
}

static void info(void *self, size_t *total, size_t *available, size_t *limit) {
  const cnn_simulation *s = self;
  *total = *available = (size_t)1 << 62;
  *limit = s->limit < *total ? s->limit : *total;
}

// ---------------------------------------------------------------------------------------------

static void destroy(cnn_object *o) {
  cnn_simulation *s = (cnn_simulation *)o;
  cnn_pool_destroy(s->pool);
  cnn_free(s);
}

static const cnn_class simulation_class = {"simulation", destroy};

cnn_status cnn_simulation_create(cnn_context *ctx, cnn_device target, size_t limit,
                                 cnn_simulation **out) {
  const cnn_mapper *real = cnn_device_mapper(target);
  if (!real)
    return cnn_fail(ctx, CNN_DEVICE, "there is no %s here whose memory could be predicted",
                    cnn_device_name(target));
  cnn_simulation *s = cnn_calloc(sizeof *s);
  if (!s) return cnn_fail(ctx, CNN_OOM, "out of memory for a simulation");
  cnn_object_init(&s->object, &simulation_class);
  s->target = target;
  s->limit = limit;
  s->next = FIRST_ADDRESS;
  s->mapper = (cnn_mapper){.name = real->name,
                           .granule = real->granule,
                           .alignment = real->alignment,
                           .host = false,
                           .reserve = reserve,
                           .release = release,
                           .commit = commit,
                           .decommit = decommit,
                           .info = info,
                           .self = s};
  s->pool = cnn_pool_create(&s->mapper);
  if (!s->pool) {
    cnn_free(s);
    return cnn_fail(ctx, CNN_OOM, "out of memory for a simulation");
  }
  *out = s;
  return CNN_OK;
}

cnn_device cnn_simulation_target(const cnn_simulation *s) {
  return s->target;
}

void cnn_simulation_get_stats(cnn_simulation *s, cnn_simulation_stats *stats) {
  cnn_pool_get_stats(s->pool, &stats->pool);
  memcpy(stats->parts, s->at_peak, sizeof stats->parts);
  memcpy(stats->most, s->most, sizeof stats->most);
  stats->overhead = s->overhead;
}

// ---------------------------------------------------------------------------------------------
// Counting

// The block's kind holds the part.
_Static_assert(CNN_PARTS <= CNN_POOL_KINDS, "parts are a pool's kinds");

static cnn_part part_of(cnn_kind kind) {
  switch (kind) {
  case CNN_KIND_PARAMETER: return CNN_PART_PARAMETERS;
  case CNN_KIND_STATE: return CNN_PART_OPTIMIZER_STATE;
  case CNN_KIND_BUFFER: return CNN_PART_BUFFERS;
  case CNN_KIND_WORKSPACE: return CNN_PART_WORKSPACE;
  case CNN_KIND_DATA: return CNN_PART_INPUT;
  default: return CNN_PART_ACTIVATIONS;
  }
}

static void count(cnn_simulation *s, cnn_part part, int64_t bytes) {
  s->now[part] += bytes;
  if (s->now[part] > s->most[part]) s->most[part] = s->now[part];
}

static cnn_simulation *simulation_of(const cnn_buffer *b) {
  return b->owner;
}

bool cnn_is_simulated(const cnn_buffer *b) {
  return b->device.type == CNN_META && b->block != NULL;
}

void *cnn_simulated_data(const cnn_buffer *b) {
  return cnn_is_simulated(b) ? b->block->data : NULL;
}

bool cnn_simulation_take(cnn_simulation *s, cnn_buffer *b) {
  cnn_part part = part_of((cnn_kind)b->kind);
  b->block = cnn_pool_alloc(s->pool, b->bytes, (uint8_t)part, NULL);
  if (!b->block) return false;
  b->pool = s->pool;
  b->owner = cnn_ref(s);
  s->requested += (int64_t)b->bytes;
  count(s, part, (int64_t)b->bytes);
  int64_t live = cnn_pool_live(s->pool);
  if (live > s->peak) {
    s->peak = live;
    s->overhead = live - s->requested;
    memcpy(s->at_peak, s->now, sizeof s->at_peak);
  }
  return true;
}

void cnn_simulation_give(cnn_buffer *b) {
  cnn_simulation *s = simulation_of(b);
  s->requested -= (int64_t)b->bytes;
  s->now[b->block->kind] -= (int64_t)b->bytes;
  cnn_pool_free(s->pool, b->block);
  cnn_unref(s);
}

void cnn_simulation_mark(cnn_buffer *b, cnn_part part) {
  cnn_simulation *s = simulation_of(b);
  s->now[b->block->kind] -= (int64_t)b->bytes;
  count(s, part, (int64_t)b->bytes);
  cnn_pool_retag(s->pool, b->block, (uint8_t)part);
}

void cnn_simulation_retag(cnn_buffer *b, cnn_kind kind) {
  cnn_simulation_mark(b, kind == CNN_KIND_GRADIENT ? CNN_PART_GRADIENTS : part_of(kind));
}
