// SPDX-License-Identifier: MIT
// The ids of all ops (OP_add ...) and their descriptors.
#ifndef CNN_OPS_OPS_H
#define CNN_OPS_OPS_H

#include "engine/dispatch.h"
#include "engine/op.h"

enum {
#define CNN_OP(name, class, autocast) OP_##name,
#include "ops/ops.def"
#undef CNN_OP
  OP_COUNT
};

#define CNN_OP(name, class, autocast) extern const cnn_op cnn_op_##name;
#include "ops/ops.def"
#undef CNN_OP

// The keys of the op subscript, one per dim of x but for the new ones, each of four integers: its
// kind and up to three numbers (0-based). Dims without a key stay whole.
enum {
  CNN_KEY_WHOLE,
  CNN_KEY_POS,   // position
  CNN_KEY_RANGE, // first position, length, step
  CNN_KEY_NEW    // a new dim of size 1 before the next one
};

// Checks the descriptors and installs them in the engine's registry. NULL, or what is wrong.
const char *cnn_ops_install(void);

#endif
