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

// Checks the descriptors and installs them in the engine's registry. NULL, or what is wrong.
const char *cnn_ops_install(void);

#endif
