// SPDX-License-Identifier: MIT
// Places named by what is true (or not 0). How many there are depends on the values: they are
// counted first, so these ops raise on meta.
#include "ops/ops.h"

static cnn_status infer_nonzero_count(cnn_infer *I) {
  cnn_infer_out(I, CNN_I64, 0, NULL);
  return CNN_OK;
}
const cnn_op cnn_op_nonzero_count = {
    .name = "nonzero_count",
    .args = "x:tensor",
    .doc = "How many elements are not 0.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_nonzero_count,
};

static cnn_status infer_nonzero_places(cnn_infer *I) {
  int64_t shape[] = {I->args[1].i, I->in[0]->ndim};
  cnn_infer_out(I, CNN_I64, 2, shape);
  return CNN_OK;
}
const cnn_op cnn_op_nonzero_places = {
    .name = "nonzero_places",
    .args = "x:tensor n:int",
    .doc = "The positions of the n elements that are not 0.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_nonzero_places,
};

static void nonzero(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *n = cnn_do(f, nonzero_count, args[0]);
  double count = cnn_frame_read(f, n);
  cnn_results_add(f, r, cnn_do(f, nonzero_places, args[0], CNN_A_I((int64_t)count)));
}
const cnn_op cnn_op_nonzero = {
    .name = "nonzero",
    .args = "x:tensor",
    .doc =
        "The positions of x's elements that are not 0: an int64 tensor (n, x.ndim), in row-major "
        "order. Its size depends on the values, so it raises on meta.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_NO_GRAD,
    .composite = nonzero,
};

// x's leading dims are mask's: one block of the others for each true element.
static cnn_status infer_mask_select(cnn_infer *I) {
  const cnn_tensor *x = I->in[0], *mask = I->in[1];
  int64_t shape[CNN_MAX_DIMS] = {I->args[2].i};
  int n = 1;
  for (int d = mask->ndim; d < x->ndim; d++) shape[n++] = x->shape[d];
  cnn_infer_out(I, I->dtype, n, shape);
  return CNN_OK;
}
static void backward_mask_select(cnn_grad *g) {
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_give(g, 0,
           cnn_do(g->f, mask_spread, CNN_A_T(g->dy[0]), CNN_A_T(cnn_in(g, 1)),
                  CNN_A_INTS(x->ndim, x->shape)));
}
const cnn_op cnn_op_mask_select = {
    .name = "mask_select",
    .args = "x:tensor mask:mask n:int",
    .doc = "The n slices of x, along its leading dims, for which mask is true.",
    .saves = "mask",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_mask_select,
    .backward = backward_mask_select,
};

static cnn_status infer_mask_spread(cnn_infer *I) {
  cnn_infer_out(I, I->dtype, I->args[2].n, I->args[2].ints);
  return CNN_OK;
}
static void backward_mask_spread(cnn_grad *g) {
  cnn_give(g, 0,
           cnn_do(g->f, mask_select, CNN_A_T(g->dy[0]), CNN_A_T(cnn_in(g, 1)),
                  CNN_A_I(cnn_in_form(g, 0)->shape[0])));
}
const cnn_op cnn_op_mask_spread = {
    .name = "mask_spread",
    .args = "x:tensor mask:mask shape:shape",
    .doc = "Zeros of that shape with x's slices, one after the other, where mask is true.",
    .saves = "mask",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_mask_spread,
    .backward = backward_mask_spread,
};

static void masked_select(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t, *mask = args[1].t;
  int n;
  int64_t shape[CNN_MAX_DIMS];
  cnn_shape_text a, b;
  if (!cnn_shape_broadcast(x->ndim, x->shape, mask->ndim, mask->shape, &n, shape)) {
    f->status =
        cnn_fail(f->ctx, CNN_SHAPE, "mask of shape %s does not broadcast with x of shape %s",
                 cnn_shape_format(&a, mask->ndim, mask->shape),
                 cnn_shape_format(&b, x->ndim, x->shape));
    return;
  }
  x = cnn_do(f, expand, CNN_A_T(x), CNN_A_INTS(n, shape));
  mask = cnn_do(f, expand, CNN_A_T(mask), CNN_A_INTS(n, shape));
  double count = cnn_frame_read(f, cnn_do(f, nonzero_count, CNN_A_T(mask)));
  cnn_results_add(f, r, cnn_do(f, mask_select, CNN_A_T(x), CNN_A_T(mask), CNN_A_I((int64_t)count)));
}
const cnn_op cnn_op_masked_select = {
    .name = "masked_select",
    .args = "x:tensor mask:mask",
    .doc =
        "The elements of x where mask is true, in row-major order, as one dim; the two broadcast. "
        "Its size depends on the values, so it raises on meta.",
    .flags = CNN_OP_COMPOSITE,
    .composite = masked_select,
};
