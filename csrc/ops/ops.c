// SPDX-License-Identifier: MIT
#include "ops/ops.h"

#include "engine/registry.h"

static const cnn_op *const table[OP_COUNT] = {
#define CNN_OP(name, class, autocast) &cnn_op_##name,
#include "ops/ops.def"
#undef CNN_OP
};

static const char *const names[OP_COUNT] = {
#define CNN_OP(name, class, autocast) #name,
#include "ops/ops.def"
#undef CNN_OP
};

const char *cnn_ops_install(void) {
  const cnn_engine_ops engine_ops = {
      .cast = OP_cast,
      .sum_to = OP_sum_to,
      .add = OP_add,
      .clone = OP_clone,
      .copy_ = OP_copy_,
      .full = OP_full,
      .view_gather = OP_view_gather,
      .view_scatter = OP_view_scatter,
      .has_nan = OP_has_nan,
      .to_device = OP_to_device,
      .names = names,
  };
  return cnn_registry_install(table, OP_COUNT, &engine_ops);
}
