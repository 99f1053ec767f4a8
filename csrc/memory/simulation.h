// SPDX-License-Identifier: MIT
// Runs that take no memory: while a context has a simulation, its buffers on `meta` get blocks of a
// pool whose device maps nothing. The pool is the one that serves real devices, with the target's
// granule and alignment: so what is counted here is what the target would count.
//
// Addresses are made up, and distinct; nothing may read or write there. The simulation lives until
// the last of its buffers is gone.
#ifndef CNN_MEMORY_SIMULATION_H
#define CNN_MEMORY_SIMULATION_H

#include "base/context.h"
#include "memory/buffer.h"

// What bytes are for: parts of a peak. Gradients are those of leaves (parameters); gradients of
// what is between, and other values on the way, count as activations.
#define CNN_PART_MAP(X)                                                                            \
  X(PARAMETERS, "parameters")                                                                      \
  X(GRADIENTS, "gradients")                                                                        \
  X(OPTIMIZER_STATE, "optimizer_state")                                                            \
  X(ACTIVATIONS, "activations")                                                                    \
  X(INPUT, "input")                                                                                \
  X(OUTPUT, "output")                                                                              \
  X(WORKSPACE, "workspace")                                                                        \
  X(BUFFERS, "buffers")

typedef enum cnn_part {
#define CNN_PART_ENUM(name, text) CNN_PART_##name,
  CNN_PART_MAP(CNN_PART_ENUM)
#undef CNN_PART_ENUM
      CNN_PARTS
} cnn_part;

const char *cnn_part_name(cnn_part part);

typedef struct cnn_simulation_stats {
  cnn_pool_stats pool;
  int64_t parts[CNN_PARTS]; // requested bytes when allocated bytes were at their peak
  int64_t overhead;         // what their blocks took beyond that
  int64_t most[CNN_PARTS];  // the most of each part at any time
} cnn_simulation_stats;

// A simulation of the device, empty, with a limit in bytes (SIZE_MAX: none), beyond which it is out
// of memory as the device would be. CNN_DEVICE when there is no such device to imitate.
cnn_status cnn_simulation_create(cnn_context *ctx, cnn_device target, size_t limit,
                                 cnn_simulation **out);

cnn_device cnn_simulation_target(const cnn_simulation *s);
void cnn_simulation_get_stats(cnn_simulation *s, cnn_simulation_stats *stats);

// Whether the buffer is a simulation's; where its bytes would be, or NULL.
bool cnn_is_simulated(const cnn_buffer *buffer);
void *cnn_simulated_data(const cnn_buffer *buffer);

// Counts a simulated buffer as another part from now on.
void cnn_simulation_mark(cnn_buffer *buffer, cnn_part part);

// For memory/buffer.c: gives the buffer a block, takes it back, follows a new kind.
bool cnn_simulation_take(cnn_simulation *s, cnn_buffer *buffer);
void cnn_simulation_give(cnn_buffer *buffer);
void cnn_simulation_retag(cnn_buffer *buffer, cnn_kind kind);

#endif
