// SPDX-License-Identifier: MIT
#include "memory/buffer.h"

#include <pthread.h>
#include <stdio.h>

#include "base/small.h"
#include "memory/cpu_memory.h"
#include "memory/record.h"
#include "memory/simulation.h"

const char *cnn_kind_name(cnn_kind kind) {
  static const char *const names[] = {
#define NAME(name, text) text,
      CNN_KIND_MAP(NAME)
#undef NAME
  };
  return names[kind];
}

static cnn_pool *cpu_pool;
static pthread_once_t cpu_once = PTHREAD_ONCE_INIT;

static void make_cpu_pool(void) {
  cpu_pool = cnn_pool_create(&cnn_cpu_mapper);
}

// Of GPUs, by index. A pool is made at its first use.
static const cnn_mapper *gpu_mappers[CNN_MAX_DEVICES];
static cnn_pool *_Atomic gpu_pools[CNN_MAX_DEVICES];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

void cnn_device_memory_install(cnn_device device, const cnn_mapper *mapper) {
  gpu_mappers[device.index] = mapper;
}

static atomic_int gpu_pool_count;

int cnn_gpu_pools(void) {
  return atomic_load_explicit(&gpu_pool_count, memory_order_relaxed);
}

cnn_pool *cnn_gpu_pool(int index) {
  return atomic_load_explicit(&gpu_pools[index], memory_order_acquire);
}

static cnn_pool *gpu_pool(int index) {
  cnn_pool *pool = atomic_load_explicit(&gpu_pools[index], memory_order_acquire);
  if (pool || !gpu_mappers[index]) return pool;
  pthread_mutex_lock(&making);
  pool = atomic_load(&gpu_pools[index]);
  if (!pool) {
    pool = cnn_pool_create(gpu_mappers[index]);
    atomic_store(&gpu_pools[index], pool);
    if (pool && index >= atomic_load(&gpu_pool_count)) atomic_store(&gpu_pool_count, index + 1);
  }
  pthread_mutex_unlock(&making);
  return pool;
}

void cnn_gpu_pools_lose(void) {
  pthread_mutex_lock(&making);
  for (int i = 0; i < CNN_MAX_DEVICES; i++) {
    cnn_pool *pool = atomic_exchange(&gpu_pools[i], NULL);
    if (pool) cnn_pool_lose(pool);
  }
  atomic_store(&gpu_pool_count, 0);
  pthread_mutex_unlock(&making);
}

cnn_pool *cnn_device_pool(cnn_device device) {
  if (device.type == CNN_CUDA && device.index < CNN_MAX_DEVICES) return gpu_pool(device.index);
  if (device.type != CNN_CPU) return NULL;
  if (__builtin_expect(cpu_pool == NULL, 0)) pthread_once(&cpu_once, make_cpu_pool);
  return cpu_pool;
}

cnn_pool *cnn_current_pool(const cnn_context *ctx, cnn_device device) {
  cnn_pool *root = cnn_device_pool(device);
  for (const cnn_pool_choice *use = ctx->pools; use; use = use->outer)
    if (cnn_pool_root(use->pool) == root) return use->pool;
  return root;
}

void *cnn_current_stream(const cnn_context *ctx, cnn_device device) {
  return device.type == CNN_CUDA ? ctx->streams[device.index] : NULL;
}

const cnn_mapper *cnn_device_mapper(cnn_device device) {
  if (device.type == CNN_CUDA && device.index < CNN_MAX_DEVICES) return gpu_mappers[device.index];
  return device.type == CNN_CPU ? &cnn_cpu_mapper : NULL;
}

static void destroy(cnn_object *o) {
  cnn_buffer *b = (cnn_buffer *)o;
  cnn_unref(b->parcel);
  if (cnn_is_simulated(b)) {
    cnn_simulation_give(b);
  } else if (b->block) {
    if (__builtin_expect(cnn_record_on(), 0)) cnn_record_free(b->pool, b->block);
    cnn_pool_free(b->pool, b->block);
  } else if (b->release) {
    b->release(b->owner);
  }
  cnn_small_free(b, sizeof *b);
}

static const cnn_class buffer_class = {"buffer", destroy};

static void describe_bytes(char *text, size_t size, double bytes) {
  if (bytes < 1024)
    snprintf(text, size, "%.0f bytes", bytes);
  else if (bytes < 0x1p20)
    snprintf(text, size, "%.1f KiB", bytes * 0x1p-10);
  else if (bytes < 0x1p30)
    snprintf(text, size, "%.1f MiB", bytes * 0x1p-20);
  else
    snprintf(text, size, "%.2f GiB", bytes * 0x1p-30);
}

static cnn_status out_of_memory(cnn_context *ctx, cnn_device device, size_t bytes) {
  cnn_pool *pool = cnn_current_pool(ctx, device);
  char asked[32], used[32], limit[32], room[32], kinds[320] = "", named[64] = "";
  char elsewhere[96] = "";
  describe_bytes(asked, sizeof asked, (double)bytes);
  if (!pool)
    return cnn_fail(ctx, CNN_OOM, "out of memory on %s: %s asked for", cnn_device_name(device),
                    asked);
  cnn_pool_stats s;
  cnn_pool_get_stats(pool, &s);
  describe_bytes(used, sizeof used, (double)s.allocated.current);
  describe_bytes(limit, sizeof limit, (double)s.limit);
  describe_bytes(room, sizeof room, (double)s.available);
  const char *name = cnn_pool_name(pool);
  if (*name) {
    // Which of the two limits it was.
    cnn_pool_stats all;
    char reserved[32], whole[32];
    cnn_pool_get_stats(cnn_pool_root(pool), &all);
    snprintf(named, sizeof named, " in pool \"%s\"", name);
    if (s.limit - s.reserved.current > all.limit - all.reserved.current) {
      describe_bytes(reserved, sizeof reserved, (double)all.reserved.current);
      describe_bytes(whole, sizeof whole, (double)all.limit);
      snprintf(elsewhere, sizeof elsewhere, " (the device: %s of %s)", reserved, whole);
    }
  }
  int at = 0;
  for (int k = 0; k < CNN_POOL_KINDS; k++) {
    if (s.kinds[k].current == 0 || at >= (int)sizeof kinds - 1) continue;
    char part[32];
    describe_bytes(part, sizeof part, (double)s.kinds[k].current);
    at += snprintf(kinds + at, sizeof kinds - (size_t)at, "%s%s %s", at ? ", " : " (",
                   cnn_kind_name((cnn_kind)k), part);
  }
  return cnn_fail(ctx, CNN_OOM,
                  "out of memory on %s%s: %s asked for, %s in use%s%s, limit %s%s, room for %s; "
                  "use a smaller batch, free tensors (t:free(), cnn.scope), or raise the limit",
                  cnn_device_name(device), named, asked, used, kinds, at ? ")" : "", limit,
                  elsewhere, room);
}

static cnn_buffer *new_buffer(cnn_device device, size_t bytes, cnn_kind kind) {
  cnn_buffer *b = cnn_small_alloc(sizeof *b);
  if (!b) return NULL;
  cnn_object_init(&b->object, &buffer_class);
  b->data = NULL;
  b->bytes = bytes;
  atomic_init(&b->version, 0);
  b->device = device;
  b->kind = (uint8_t)kind;
  b->pool = NULL;
  b->block = NULL;
  b->release = NULL;
  b->owner = NULL;
  b->settle = NULL;
  b->parcel = NULL;
  return b;
}

cnn_status cnn_buffer_create(cnn_context *ctx, cnn_device device, size_t bytes, cnn_buffer **out) {
  cnn_buffer *b = new_buffer(device, bytes, (cnn_kind)ctx->kind);
  if (!b) return out_of_memory(ctx, device, bytes);
  if (device.type == CNN_META) {
    if (bytes > 0 && ctx->simulation && !cnn_simulation_take(ctx->simulation, b)) {
      cnn_small_free(b, sizeof *b);
      return out_of_memory(ctx, device, bytes);
    }
  } else if (bytes > 0) {
    b->pool = cnn_current_pool(ctx, device);
    b->block =
        b->pool ? cnn_pool_alloc(b->pool, bytes, b->kind, cnn_current_stream(ctx, device)) : NULL;
    if (!b->block) {
      cnn_small_free(b, sizeof *b);
      return out_of_memory(ctx, device, bytes);
    }
    b->data = b->block->data;
    if (__builtin_expect(cnn_record_on(), 0)) cnn_record_alloc(b->pool, b->block, ctx->origin);
  }
  *out = b;
  return CNN_OK;
}

cnn_status cnn_buffer_wrap(cnn_context *ctx, cnn_device device, void *data, size_t bytes,
                           void (*release)(void *owner), void *owner, cnn_buffer **out) {
  cnn_buffer *b = new_buffer(device, bytes, (cnn_kind)ctx->kind);
  if (!b) return out_of_memory(ctx, device, bytes);
  b->data = data;
  b->release = release;
  b->owner = owner;
  *out = b;
  return CNN_OK;
}

cnn_status cnn_buffer_check(cnn_context *ctx, const cnn_buffer *buffer, const char *what) {
  if (!buffer->pool || !cnn_pool_is_lost(buffer->pool)) return CNN_OK;
  return cnn_fail(ctx, CNN_STATE, "%s was on %s, and its memory went with cnn.cuda.shutdown()",
                  what, cnn_device_name(buffer->device));
}

cnn_status cnn_buffer_use(cnn_context *ctx, cnn_buffer *buffer, void *stream) {
  if (!buffer->block || cnn_is_simulated(buffer)) return CNN_OK;
  if (cnn_pool_use(buffer->pool, buffer->block, stream)) return CNN_OK;
  return cnn_fail(ctx, CNN_OOM, "out of memory to note a stream's use of a tensor");
}

void cnn_buffer_retag(cnn_buffer *buffer, cnn_kind kind) {
  if (cnn_is_simulated(buffer)) {
    buffer->kind = (uint8_t)kind;
    cnn_simulation_retag(buffer, kind);
    return;
  }
  if (buffer->kind == kind) return;
  buffer->kind = (uint8_t)kind;
  if (buffer->block && __builtin_expect(cnn_record_on(), 0))
    cnn_record_retag(buffer->pool, buffer->block, (uint8_t)kind);
  if (buffer->block) cnn_pool_retag(buffer->pool, buffer->block, (uint8_t)kind);
}
