// SPDX-License-Identifier: MIT
// Tensors of one value.
#include "ops/ops.h"

// The dtype and device arguments of creation functions; an absent one is the context's default.
static cnn_dtype dtype_arg(const cnn_infer *I, int i, cnn_dtype otherwise) {
  return I->args[i].kind == CNN_INT ? (cnn_dtype)I->args[i].i : otherwise;
}

static void device_arg(cnn_infer *I, int i) {
  I->device = I->args[i].kind == CNN_INT ? cnn_device_decode(I->args[i].i) : I->ctx->default_device;
}

static cnn_status infer_full(cnn_infer *I) {
  device_arg(I, 3);
  cnn_infer_out(I, dtype_arg(I, 2, I->ctx->default_dtype), I->args[0].n, I->args[0].ints);
  return CNN_OK;
}

const cnn_op cnn_op_full = {
    .name = "full",
    .args = "shape:shape value:number dtype:dtype? device:device?",
    .doc = "A tensor of that shape with every element `value`.",
    .flags = CNN_OP_FUNCTION,
    .infer = infer_full,
};

static cnn_status infer_self(cnn_infer *I) {
  (void)I;
  return CNN_OK;
}

// What was there before has no influence on what is there now.
static void backward_fill(cnn_grad *g) {
  (void)g;
}

const cnn_op cnn_op_fill_ = {
    .name = "fill_",
    .args = "x:tensor! value:number",
    .doc = "Sets every element of x to `value`.",
    .flags = CNN_OP_SELF,
    .infer = infer_self,
    .backward = backward_fill,
};
