// SPDX-License-Identifier: MIT
// Copies: of dtype, of layout, into an existing tensor.
#include "ops/ops.h"

static cnn_status infer_cast(cnn_infer *I) {
  return cnn_infer_broadcast(I, (cnn_dtype)I->args[1].i);
}

static void backward_cast(cnn_grad *g) {
  cnn_give(g, 0, g->dy[0]);
}

const cnn_op cnn_op_cast = {
    .name = "cast",
    .args = "x:tensor dtype:dtype",
    .doc = "x as another dtype, always a copy. Floats become integers towards zero, saturating.",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_cast,
    .backward = backward_cast,
};

static cnn_status infer_clone(cnn_infer *I) {
  cnn_meta *out = cnn_infer_out(I, I->dtype, I->in[0]->ndim, I->in[0]->shape);
  if (I->args[1].i == 1) return CNN_OK;
  cnn_strides_like(out->ndim, out->shape, I->in[0]->strides, out->strides);
  return CNN_OK;
}

const cnn_op cnn_op_clone = {
    .name = "clone",
    .args = "x:tensor memory_format:preserve|contiguous=preserve",
    .doc = "A copy of x with its own bytes. Gradients flow through.",
    .infer = infer_clone,
    .backward = backward_cast,
};

static cnn_status infer_copy(cnn_infer *I) {
  const cnn_tensor *x = I->in[0], *src = I->in[1];
  int n;
  int64_t shape[CNN_MAX_DIMS];
  if (cnn_shape_broadcast(x->ndim, x->shape, src->ndim, src->shape, &n, shape) &&
      cnn_shape_equal(n, shape, x->ndim, x->shape))
    return CNN_OK;
  cnn_shape_text a, b;
  return cnn_fail(I->ctx, CNN_SHAPE, "the source's shape %s does not broadcast to x's, %s",
                  cnn_shape_format(&b, src->ndim, src->shape),
                  cnn_shape_format(&a, x->ndim, x->shape));
}

static void backward_copy(cnn_grad *g) {
  cnn_give(g, 1, g->dy[0]);
}

const cnn_op cnn_op_copy_ = {
    .name = "copy_",
    .args = "x:other! src:other",
    .doc = "Copies src, which must broadcast to x's shape, into x, converting dtype and device.",
    .flags = CNN_OP_SELF | CNN_OP_ANY_DEVICE,
    .infer = infer_copy,
    .backward = backward_copy,
};
