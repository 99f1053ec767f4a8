// SPDX-License-Identifier: MIT
// A buffer: counted bytes of one device, with a version that every in-place change moves.
//
// All views of the same bytes share the buffer and so its version. On `meta` a buffer has a size
// and no bytes; in a simulation (memory/simulation.h) it has a block of a pool all the same.
#ifndef CNN_MEMORY_BUFFER_H
#define CNN_MEMORY_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "base/context.h"
#include "base/device.h"
#include "base/object.h"
#include "memory/pool.h"

// What a buffer's bytes are for. The pools keep their statistics by it.
#define CNN_KIND_MAP(X)                                                                            \
  X(OTHER, "other")                                                                                \
  X(PARAMETER, "parameters")                                                                       \
  X(GRADIENT, "gradients")                                                                         \
  X(STATE, "optimizer state")                                                                      \
  X(ACTIVATION, "activations")                                                                     \
  X(BUFFER, "buffers")                                                                             \
  X(WORKSPACE, "workspace")                                                                        \
  X(DATA, "data")

typedef enum cnn_kind {
#define CNN_KIND_ENUM(name, text) CNN_KIND_##name,
  CNN_KIND_MAP(CNN_KIND_ENUM)
#undef CNN_KIND_ENUM
} cnn_kind;

const char *cnn_kind_name(cnn_kind kind);

typedef struct cnn_buffer {
  cnn_object object;
  void *data; // NULL on meta and for 0 bytes
  size_t bytes;
  atomic_uint version;
  cnn_device device;
  uint8_t kind;
  cnn_pool *pool;
  cnn_block *block;             // NULL for meta (but simulated), for 0 bytes, for foreign memory
  void (*release)(void *owner); // foreign memory: called once with the last reference
  void *owner;                  // of foreign memory; of a simulated buffer: its simulation
  // Of memory that a device may be at work on: waits until the CPU may touch it. NULL: always.
  cnn_status (*settle)(cnn_context *ctx, struct cnn_buffer *buffer);
  void *parcel; // a counted object that engine/pack.c keeps with the bytes, or NULL
} cnn_buffer;

// The pool that serves a device, made on first use. NULL (no message) when there is none.
cnn_pool *cnn_device_pool(cnn_device device);

// Makes known what pools ask of a device that a plugin brought.
void cnn_device_memory_install(cnn_device device, const cnn_mapper *mapper);

// Ends the pools of GPUs: their memory is given back, and what still lies there is lost.
void cnn_gpu_pools_lose(void);

// The pools of GPUs that are in use have indices below this number; NULL for one that is not.
int cnn_gpu_pools(void);
cnn_pool *cnn_gpu_pool(int index);

// What that pool asks of the device. NULL when there is no such device, and for `meta`.
const cnn_mapper *cnn_device_mapper(cnn_device device);

// The pool that new buffers of the device come from: the innermost of ctx->pools that is on it,
// else the device's own. A pool in ctx->pools must not be closed meanwhile.
cnn_pool *cnn_current_pool(const cnn_context *ctx, cnn_device device);

// The stream that work on the device goes to now; NULL: the default stream. New buffers are for it.
void *cnn_current_stream(const cnn_context *ctx, cnn_device device);

// A buffer of `bytes` on the device, contents undefined, counted as ctx->kind. CNN_OOM with a
// message that says what was asked and what is in use by kind. *out is written on success only.
cnn_status cnn_buffer_create(cnn_context *ctx, cnn_device device, size_t bytes, cnn_buffer **out);

// Wraps memory of somebody else's (a mapped file); release(owner) is called when it is done with,
// and on failure of this call is not.
cnn_status cnn_buffer_wrap(cnn_context *ctx, cnn_device device, void *data, size_t bytes,
                           void (*release)(void *owner), void *owner, cnn_buffer **out);

// Work of this stream will use the bytes, wherever they were made: to be said before it is given.
// CNN_OOM when that can't be noted.
cnn_status cnn_buffer_use(cnn_context *ctx, cnn_buffer *buffer, void *stream);

// CNN_STATE when the bytes went with their device. `what` names them in the message.
cnn_status cnn_buffer_check(cnn_context *ctx, const cnn_buffer *buffer, const char *what);

// The CPU is about to touch the bytes of its memory.
static inline cnn_status cnn_buffer_settle(cnn_context *ctx, cnn_buffer *buffer) {
  return buffer->settle ? buffer->settle(ctx, buffer) : CNN_OK;
}

// Counts the bytes under another kind from now on.
void cnn_buffer_retag(cnn_buffer *buffer, cnn_kind kind);

static inline unsigned cnn_buffer_version(cnn_buffer *b) {
  return atomic_load_explicit(&b->version, memory_order_relaxed);
}
static inline void cnn_buffer_bump(cnn_buffer *b) {
  atomic_fetch_add_explicit(&b->version, 1, memory_order_relaxed);
}

#endif
