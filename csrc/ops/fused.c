// SPDX-License-Identifier: MIT
// A layer and the activation behind it as one op: what Sequential runs for neighbours
// (cnn_module_fuses). Libraries of GPUs compute them in one pass; elsewhere they save a call, and
// values are those of the two ops.
//
// Where the GELU's argument is kept, the gradient goes on through it: the linear layer that comes
// next computes dh * gelu'(z) with its own product (linear_backward_gelu), and this op's backward
// finds that done (g->through).
#include "ops/fused.h"

// The gradient at the ReLU's argument, or NULL.
static cnn_tensor *before_relu(cnn_grad *g) {
  cnn_tensor *out = cnn_out(g, 0);
  if (!out) return NULL;
  g->f->spent = g->dy[0];
  return cnn_do(g->f, relu_backward, CNN_A_T(g->dy[0]), CNN_A_T(out));
}

static void backward_linear_relu(cnn_grad *g) {
  cnn_tensor *dz = before_relu(g);
  if (dz) cnn_backward_linear(g, dz);
}

static void backward_conv2d_relu(cnn_grad *g) {
  cnn_tensor *dz = before_relu(g);
  if (dz) cnn_backward_conv(g, dz);
}

const cnn_op cnn_op_linear_relu = {
    .name = "linear_relu",
    .args = "input:tensor weight:tensor bias:tensor?",
    .doc = "max(input weight^T + bias, 0).",
    .saves = "input if weight, weight if input, out",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_SAME,
    .infer = cnn_infer_linear,
    .backward = backward_linear_relu,
};

const cnn_op cnn_op_conv2d_relu = {
    .name = "conv2d_relu",
    .args = "input:tensor weight:tensor bias:tensor? stride:pair=1 padding:padding=0 "
            "dilation:pair=1 groups:int=1",
    .doc = "max(conv2d(...), 0).",
    .saves = "input if weight, weight if input, out",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_SAME,
    .infer = cnn_infer_conv2d,
    .backward = backward_conv2d_relu,
};

// ---------------------------------------------------------------------------------------------
// GELU, in its tanh form

static cnn_status infer_linear_gelu(cnn_infer *I) {
  if (!cnn_dtype_is_float(I->dtype))
    return cnn_fail(I->ctx, CNN_DTYPE, "input is %s: convert it first, e.g. input:float()",
                    cnn_dtype_name(I->dtype));
  return cnn_infer_linear(I);
}

static void composite_linear_gelu(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *z = cnn_do(f, linear, args[0], args[1], args[2]);
  cnn_results_add(f, r, cnn_do(f, gelu_tanh, CNN_A_T(z)));
}

const cnn_op cnn_op_linear_gelu = {
    .name = "linear_gelu",
    .args = "input:tensor weight:tensor bias:tensor?",
    .doc = "gelu(input weight^T + bias, \"tanh\").",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_SAME,
    .infer = infer_linear_gelu,
    .composite = composite_linear_gelu,
};

static cnn_status infer_linear_gelu_kept(cnn_infer *I) {
  CNN_TRY(infer_linear_gelu(I));
  I->out[I->n_out] = I->out[0];
  I->n_out++;
  return CNN_OK;
}

static void backward_linear_gelu_kept(cnn_grad *g) {
  cnn_frame *f = g->f;
  cnn_tensor *dz = g->dy[0];
  if (dz && !g->through) {
    cnn_tensor *z = cnn_out(g, 1);
    if (z) dz = cnn_do(f, gelu_tanh_backward, CNN_A_T(dz), CNN_A_T(z));
  }
  if (dz && g->dy[1]) dz = cnn_do(f, add, CNN_A_T(dz), CNN_A_T(g->dy[1]));
  if (f->status == CNN_OK) cnn_backward_linear(g, dz ? dz : g->dy[1]);
}

const cnn_op cnn_op_linear_gelu_kept = {
    .name = "linear_gelu_kept",
    .args = "input:tensor weight:tensor bias:tensor?",
    .doc = "linear_gelu, and the GELU's argument, which its gradient reads.",
    .results = "out kept",
    .saves = "input if weight, weight if input, kept",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_SAME,
    .infer = infer_linear_gelu_kept,
    .backward = backward_linear_gelu_kept,
};

static cnn_status infer_linear_backward_gelu(cnn_infer *I) {
  const cnn_tensor *kept = I->in[2];
  CNN_TRY(cnn_infer_need_float(I));
  cnn_infer_out(I, I->dtype, kept->ndim, kept->shape);
  I->work = cnn_numel(kept) * I->in[1]->shape[0];
  return CNN_OK;
}

static void composite_linear_backward_gelu(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *dh = cnn_do(f, matmul, args[0], args[1]);
  cnn_results_add(f, r, cnn_do(f, gelu_tanh_backward, CNN_A_T(dh), args[2]));
}

const cnn_op cnn_op_linear_backward_gelu = {
    .name = "linear_backward_gelu",
    .args = "dy:tensor weight:tensor kept:tensor",
    .doc = "The gradient at a GELU's argument (kept) from that of the linear layer behind it: "
           "(dy weight) * gelu'(kept).",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_SAME,
    .infer = infer_linear_backward_gelu,
    .composite = composite_linear_backward_gelu,
};
