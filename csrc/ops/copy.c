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
  switch (I->args[1].i) {
  case 0: cnn_strides_like(out->ndim, out->shape, I->in[0]->strides, out->strides); break;
  case 1: break;
  default: return cnn_infer_channels_last(I->ctx, out);
  }
  return CNN_OK;
}

const cnn_op cnn_op_clone = {
    .name = "clone",
    .args = "x:tensor memory_format:preserve|contiguous|channels_last=preserve",
    .doc = "A copy of x with its own bytes. Gradients flow through.",
    .infer = infer_clone,
    .backward = backward_cast,
};

static cnn_status infer_copy(cnn_infer *I) {
  const cnn_tensor *x = I->in[0], *src = I->in[1];
  int n;
  int64_t shape[CNN_MAX_DIMS];
  if (src->device.type == CNN_META && x->device.type != CNN_META)
    return cnn_fail(I->ctx, CNN_DEVICE,
                    "src is a meta tensor, which has a shape and no data: it can't be copied to %s",
                    cnn_device_name(x->device));
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
    .args = "x:other! src:other non_blocking:bool=false",
    .doc = "Copies src, which must broadcast to x's shape, into x, converting dtype and device. "
           "non_blocking lets a copy between pinned memory and a GPU go on behind the call.",
    .flags = CNN_OP_SELF | CNN_OP_ANY_DEVICE,
    .infer = infer_copy,
    .backward = backward_copy,
};

static cnn_status infer_to_device(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  cnn_device to = cnn_device_decode(I->args[1].i);
  if (x->device.type == CNN_META && to.type != CNN_META)
    return cnn_fail(I->ctx, CNN_STATE,
                    "a meta tensor has a shape and no data: it can't be moved to %s; make a tensor "
                    "there, e.g. with cnn.zeros",
                    cnn_device_name(to));
  I->device = to;
  cnn_meta *out = cnn_infer_out(I, (cnn_dtype)x->dtype, x->ndim, x->shape);
  cnn_strides_like(out->ndim, out->shape, x->strides, out->strides);
  return CNN_OK;
}

static void backward_to_device(cnn_grad *g) {
  cnn_give(g, 0,
           cnn_do(g->f, to_device, CNN_A_T(g->dy[0]), CNN_A_DEVICE(cnn_in_form(g, 0)->device)));
}

const cnn_op cnn_op_to_device = {
    .name = "to_device",
    .args = "x:other device:device non_blocking:bool=false",
    .doc = "A copy of x on a device.",
    .flags = CNN_OP_INTERNAL | CNN_OP_ANY_DEVICE,
    .infer = infer_to_device,
    .backward = backward_to_device,
};
