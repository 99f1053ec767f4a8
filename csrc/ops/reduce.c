// SPDX-License-Identifier: MIT
// Reductions over some or all dims.
#include "ops/ops.h"

static cnn_status infer_sum(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  uint32_t mask;
  int n = 0;
  int64_t shape[CNN_MAX_DIMS];
  CNN_TRY(cnn_check_dims(I->ctx, "dim", &I->args[1], x->ndim, &mask));
  for (int d = 0; d < x->ndim; d++) {
    if (!(mask >> d & 1)) shape[n++] = x->shape[d];
    else if (I->args[2].i) shape[n++] = 1;
  }
  cnn_infer_out(I, cnn_dtype_is_float(I->dtype) ? I->dtype : CNN_I64, n, shape);
  return CNN_OK;
}

// dy, as it would be with keepdim.
static cnn_tensor *keep_dims(cnn_grad *g, cnn_tensor *dy, uint32_t mask) {
  const cnn_form *x = cnn_in_form(g, 0);
  int64_t shape[CNN_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) shape[d] = mask >> d & 1 ? 1 : x->shape[d];
  return cnn_do(g->f, reshape, CNN_A_T(dy), CNN_A_INTS(x->ndim, shape));
}

static void backward_sum(cnn_grad *g) {
  const cnn_form *x = cnn_in_form(g, 0);
  uint32_t mask;
  g->f->status = cnn_check_dims(g->f->ctx, "dim", &g->args[1], x->ndim, &mask);
  cnn_tensor *dy = keep_dims(g, g->dy[0], mask);
  cnn_give(g, 0, cnn_do(g->f, expand, CNN_A_T(dy), CNN_A_INTS(x->ndim, x->shape)));
}

const cnn_op cnn_op_sum = {
    .name = "sum",
    .args = "x:tensor dim:dims? keepdim:bool=false",
    .doc = "Sum over all elements, or over the given dims. Integers and bools give int64.",
    .infer = infer_sum,
    .backward = backward_sum,
};

static void sum_to(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  int64_t dims[CNN_MAX_DIMS];
  int n = 0, lead = x->ndim - args[1].n;
  for (int d = 0; d < x->ndim; d++)
    if (d < lead || (args[1].ints[d - lead] == 1 && x->shape[d] != 1)) dims[n++] = d;
  if (n > 0) x = cnn_do(f, sum, CNN_A_T(x), CNN_A_INTS(n, dims), CNN_A_I(1));
  cnn_results_add(f, r, cnn_do(f, reshape, CNN_A_T(x), args[1]));
}

const cnn_op cnn_op_sum_to = {
    .name = "sum_to",
    .args = "x:tensor shape:shape",
    .doc = "x summed to a shape that broadcasts to x's: the gradient of broadcasting.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_INTERNAL,
    .composite = sum_to,
};
