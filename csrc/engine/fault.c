// SPDX-License-Identifier: MIT
#include "engine/fault.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/context.h"

static cnn_status bad_index(cnn_context *ctx, const cnn_fault *f) {
  int64_t dim = f->at + ctx->index_base;
  if (f->value == 0)
    return cnn_fail(ctx, CNN_INDEX,
                    "index 0: Lua indices start at 1 (dim %" PRId64 " has positions 1..%" PRId64
                    ")",
                    dim, f->bound);
  if (f->value < 0)
    return cnn_fail(ctx, CNN_INDEX,
                    "index %" PRId64 ": index tensors hold positions from 1 on (dim %" PRId64
                    " has 1..%" PRId64 ")",
                    f->value, dim, f->bound);
  return cnn_fail(ctx, CNN_INDEX,
                  "index %" PRId64 " is out of range for dim %" PRId64 " of size %" PRId64
                  " (1..%" PRId64 ")",
                  f->value, dim, f->bound, f->bound);
}

static cnn_status bad_label(cnn_context *ctx, const cnn_fault *f) {
  const char *are = f->bound == 1 ? "is" : "are", *s = f->bound == 1 ? "" : "es";
  if (f->value == 0)
    return cnn_fail(ctx, CNN_INDEX,
                    "label 0: labels start at 1 (there %s %" PRId64 " class%s, 1..%" PRId64 ")",
                    are, f->bound, s, f->bound);
  return cnn_fail(ctx, CNN_INDEX,
                  "label %" PRId64 " is out of range: there %s %" PRId64 " class%s (1..%" PRId64
                  "); rows to leave out have the label ignore_index",
                  f->value, are, f->bound, s, f->bound);
}

cnn_status cnn_fault_raise(cnn_context *ctx, const cnn_fault *f) {
  char number[32] = "NaN"; // printf knows several NaNs
  int64_t row = f->row + ctx->index_base, at = f->at + ctx->index_base;
  if (f->number == f->number) snprintf(number, sizeof number, "%g", f->number);
  switch (f->kind) {
  case CNN_FAULT_INDEX: return bad_index(ctx, f);
  case CNN_FAULT_LABEL: return bad_label(ctx, f);
  case CNN_FAULT_INPUT:
    return cnn_fail(ctx, CNN_INVALID,
                    "input holds %s but must be probabilities in [0, 1]: apply a sigmoid, or use "
                    "binary_cross_entropy_with_logits",
                    number);
  case CNN_FAULT_TARGET:
    return cnn_fail(ctx, CNN_INVALID, "target holds %s but must be in [0, 1]", number);
  case CNN_FAULT_PROBABILITY:
    return cnn_fail(ctx, CNN_INVALID, "x must hold probabilities from 0 to 1, but an element is %s",
                    number);
  case CNN_FAULT_WEIGHT:
    return cnn_fail(ctx, CNN_INVALID,
                    "x must hold finite numbers >= 0, but element %" PRId64 " of row %" PRId64
                    " is %s",
                    at, row, number);
  case CNN_FAULT_SUM:
    return cnn_fail(ctx, CNN_INVALID, "the sum of row %" PRId64 " of x is %s", row, number);
  case CNN_FAULT_FEW:
    return cnn_fail(ctx, CNN_INVALID,
                    "%" PRId64 " samples without replacement, but row %" PRId64
                    " of x has only %" PRId64 " positive entries",
                    f->value, row, f->bound);
  default: return cnn_fail(ctx, CNN_INVALID, "repeats[%" PRId64 "] is %" PRId64, at, f->value);
  }
}
