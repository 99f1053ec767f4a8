// SPDX-License-Identifier: MIT
// The state of one user of the core: one Lua state, one thread of a C host. Two contexts share
// nothing but what is process-wide (op registry, memory pools, plugins, the thread pool).
#ifndef CNN_BASE_CONTEXT_H
#define CNN_BASE_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/device.h"
#include "base/dtype.h"
#include "base/philox.h"
#include "base/status.h"

#define CNN_MESSAGE_MAX 2048

typedef struct cnn_simulation cnn_simulation;

// A pool that memory comes from instead of its device's own; the innermost one of a device counts.
typedef struct cnn_pool_choice {
  struct cnn_pool *pool;
  const struct cnn_pool_choice *outer;
} cnn_pool_choice;

struct cnn_context {
  cnn_status code; // of the last failure
  char message[CNN_MESSAGE_MAX];

  bool grad_enabled;
  bool inference; // results are marked: they may never enter a graph
  bool anomaly;   // remember where nodes were made; check every gradient for NaN
  bool replaying; // a checkpoint runs its forward again: running statistics stay as they are

  // No more room will be made when memory runs out: what can do with less, does. (A binding that
  // collects and calls again says so by false.)
  bool last_try;

  uint8_t kind;                 // memory/buffer.h: what new tensors are counted as
  const cnn_pool_choice *pools; // where their memory comes from; NULL: from the device's own pool
  uint16_t origin; // memory/record.h: the line of the user's code under way, while that is recorded
  cnn_dtype default_dtype;
  cnn_device default_device;
  uint8_t gpu;                    // the one that "cuda" names
  void *streams[CNN_MAX_DEVICES]; // of each GPU, where its work goes; NULL: the default stream
  cnn_rng rng;
  uint64_t sequence; // numbers the nodes of the tape

  int index_base;             // how messages count dims and positions: 1 for scripts, 0 for C
  const char *op;             // the op that a message is about: the outermost one under way
  void *engine;               // the backward under way (engine/backward.h)
  int64_t work;               // multiply-adds of the ops that said theirs, counted on
  void *packer;               // where saved tensors go (engine/pack.h), or NULL: they stay
  void *watch;                // a checkpoint's first pass under way (engine/watch.h), or NULL
  cnn_simulation *simulation; // of meta buffers (memory/simulation.h), or NULL
  void *host;                 // the binding's own state
  // Where the user's code stands ("train.lua:12"), written into `text` of `size`, or "" when
  // unknown. May be NULL.
  void (*where)(cnn_context *ctx, char *text, int size);
  // Gives back a reference on a host function that a node or tensor held (see engine/node.h).
  void (*release)(cnn_context *ctx, int64_t function);
};

#endif
