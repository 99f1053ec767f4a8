// SPDX-License-Identifier: MIT
// Padding. The list has two numbers per dim, from the last dim on: {left, right, top, bottom ...};
// a negative one cuts off.
#include "ops/ops.h"

#include <inttypes.h>

#include "base/pad.h"

static cnn_status check_pad(cnn_infer *I, const cnn_arg *pad, int mode, int ndim,
                            const int64_t *shape, int64_t *out) {
  cnn_shape_text a;
  if (pad->n % 2 != 0 || pad->n > 2 * ndim)
    return cnn_fail(I->ctx, CNN_INVALID,
                    "pad has %d numbers; two for each padded dim are needed, from the last dim on "
                    "(x has %d)",
                    pad->n, ndim);
  for (int d = 0; d < ndim; d++) out[d] = shape[d];
  for (int i = 0; i < pad->n / 2; i++) {
    int d = ndim - 1 - i, shown = d + I->ctx->index_base;
    int64_t before = pad->ints[2 * i], after = pad->ints[2 * i + 1], size = shape[d], sum;
    int64_t larger = before > after ? before : after;
    if (__builtin_add_overflow(before, after, &sum) || __builtin_add_overflow(size, sum, &out[d]) ||
        out[d] < 0)
      return cnn_fail(I->ctx, CNN_SHAPE,
                      "pad %" PRId64 ", %" PRId64 " leaves no size for dim %d of x, whose shape is "
                      "%s",
                      before, after, shown, cnn_shape_format(&a, ndim, shape));
    if (mode == CNN_PAD_CONSTANT || out[d] == 0) continue;
    // What is left of x after cutting must hold what is asked of it.
    if (mode == CNN_PAD_REFLECT && larger > 0 && larger >= size)
      return cnn_fail(I->ctx, CNN_SHAPE,
                      "reflect needs pads smaller than the dim: dim %d has size %" PRId64
                      ", the pad is %" PRId64,
                      shown, size, larger);
    if (mode == CNN_PAD_CIRCULAR && larger > size)
      return cnn_fail(I->ctx, CNN_SHAPE,
                      "circular needs pads no larger than the dim: dim %d has size %" PRId64
                      ", the pad is %" PRId64,
                      shown, size, larger);
    if (mode == CNN_PAD_REPLICATE && size == 0)
      return cnn_fail(I->ctx, CNN_SHAPE, "replicate can't fill dim %d, which has size 0", shown);
  }
  return CNN_OK;
}

static cnn_status infer_pad(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  int64_t shape[CNN_MAX_DIMS];
  CNN_TRY(check_pad(I, &I->args[1], (int)I->args[2].i, x->ndim, x->shape, shape));
  cnn_infer_out(I, I->dtype, x->ndim, shape);
  return CNN_OK;
}

static void backward_pad(cnn_grad *g) {
  const cnn_form *x = cnn_in_form(g, 0);
  const cnn_arg *pad = &g->args[1];
  if (g->args[2].i != CNN_PAD_CONSTANT) {
    cnn_give(g, 0,
             cnn_do(g->f, pad_backward, CNN_A_T(g->dy[0]), *pad, g->args[2],
                    CNN_A_INTS(x->ndim, x->shape)));
    return;
  }
  int64_t back[2 * CNN_MAX_DIMS];
  for (int i = 0; i < pad->n; i++) back[i] = -pad->ints[i];
  cnn_give(g, 0, cnn_do(g->f, pad, CNN_A_T(g->dy[0]), CNN_A_INTS(pad->n, back)));
}

const cnn_op cnn_op_pad = {
    .name = "pad",
    .args = "x:tensor pad:ints mode:constant|reflect|replicate|circular=constant value:value=0",
    .doc = "x with elements added before and after its dims, or cut off where a pad is negative. "
           "`pad` holds two numbers per dim, from the last dim on. The new elements are `value`, "
           "or x's own: mirrored at the border (reflect), the border's (replicate), or those from "
           "the other end (circular).",
    .flags = CNN_OP_FUNCTION,
    .infer = infer_pad,
    .backward = backward_pad,
};

static cnn_status infer_pad_backward(cnn_infer *I) {
  CNN_TRY(cnn_infer_need_float(I));
  cnn_infer_out(I, I->dtype, I->args[3].n, I->args[3].ints);
  return CNN_OK;
}
static void backward_pad_backward(cnn_grad *g) {
  cnn_give(g, 0, cnn_do(g->f, pad, CNN_A_T(g->dy[0]), g->args[1], g->args[2]));
}
const cnn_op cnn_op_pad_backward = {
    .name = "pad_backward",
    .args = "dy:tensor pad:ints mode:constant|reflect|replicate|circular shape:shape",
    .doc = "Each element of dy added to the element of x that it was a copy of.",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_pad_backward,
    .backward = backward_pad_backward,
};
