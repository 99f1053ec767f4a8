// SPDX-License-Identifier: MIT
// Tables looked up by ids from 1 on.
#include "ops/ops.h"

#include <inttypes.h>

// args: input weight padding_idx
static cnn_status infer_embedding(cnn_infer *I) {
  const cnn_tensor *input = I->in[0], *weight = I->in[1];
  const cnn_arg *padding = &I->args[2];
  int64_t shape[CNN_MAX_DIMS];
  cnn_shape_text a;
  if (weight->ndim != 2)
    return cnn_fail(I->ctx, CNN_SHAPE,
                    "weight must have 2 dims (num_embeddings, embedding_dim), not shape %s",
                    cnn_shape_format(&a, weight->ndim, weight->shape));
  if (input->ndim + 1 > CNN_MAX_DIMS)
    return cnn_fail(I->ctx, CNN_SHAPE, "a tensor has at most %d dims", CNN_MAX_DIMS);
  if (cnn_has(I->args, 2) && padding->i >= weight->shape[0])
    return cnn_fail(I->ctx, CNN_INDEX,
                    "padding_idx %" PRId64 " is out of range for %" PRId64 " embeddings",
                    padding->i + I->ctx->index_base, weight->shape[0]);
  for (int d = 0; d < input->ndim; d++) shape[d] = input->shape[d];
  shape[input->ndim] = weight->shape[1];
  cnn_infer_out(I, I->dtype, input->ndim + 1, shape);
  return CNN_OK;
}
static void backward_embedding(cnn_grad *g) {
  const cnn_form *weight = cnn_in_form(g, 1);
  cnn_give(g, 1,
           cnn_do(g->f, embedding_backward, CNN_A_T(g->dy[0]), CNN_A_T(cnn_in(g, 0)),
                  CNN_A_I(weight->shape[0]), g->args[2]));
}
const cnn_op cnn_op_embedding = {
    .name = "embedding",
    .args = "input:index weight:tensor padding_idx:label?",
    .doc = "Rows of weight (num_embeddings, embedding_dim) by ids from 1 on: (...) gives (..., "
           "embedding_dim). The row padding_idx gets no gradient.",
    .saves = "input if weight",
    .flags = CNN_OP_FUNCTION,
    .infer = infer_embedding,
    .backward = backward_embedding,
};

static cnn_status infer_embedding_backward(cnn_infer *I) {
  const cnn_tensor *dy = I->in[0];
  int64_t shape[] = {I->args[2].i, dy->shape[dy->ndim - 1]};
  CNN_TRY(cnn_infer_need_float(I));
  cnn_infer_out(I, I->dtype, 2, shape);
  return CNN_OK;
}
static void backward_embedding_backward(cnn_grad *g) {
  cnn_tensor *dw = g->dy[0];
  if (g->args[3].kind == CNN_INT) { // the padding row's gradient led nowhere
    dw = cnn_do(g->f, clone, CNN_A_T(dw));
    cnn_do(g->f, fill_, CNN_A_T(cnn_do(g->f, select, CNN_A_T(dw), CNN_A_I(0), g->args[3])),
           CNN_A_I(0));
  }
  cnn_give(g, 0, cnn_do(g->f, embedding, CNN_A_T(cnn_in(g, 1)), CNN_A_T(dw)));
}
const cnn_op cnn_op_embedding_backward = {
    .name = "embedding_backward",
    .args = "dy:tensor input:index n:int padding_idx:label?",
    .doc = "The gradient of a table of n rows: each row the sum of dy where its id stands, in the "
           "order of the ids; 0 for the row padding_idx.",
    .saves = "input",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_embedding_backward,
    .backward = backward_embedding_backward,
};

static cnn_status infer_single(cnn_infer *I) {
  cnn_infer_out(I, CNN_I64, 0, NULL);
  return CNN_OK;
}
const cnn_op cnn_op_largest_index = {
    .name = "largest_index",
    .args = "x:index",
    .doc = "The largest position in x, 0 when there is none.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_single,
};

static void one_hot(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  int64_t n = args[1].i, shape[CNN_MAX_DIMS];
  if (n < -1 || x->ndim == CNN_MAX_DIMS) {
    f->status = n < -1 ? cnn_fail(f->ctx, CNN_INVALID, "num_classes must be >= 0, not %" PRId64, n)
                       : cnn_fail(f->ctx, CNN_SHAPE, "a tensor has at most %d dims", CNN_MAX_DIMS);
    return;
  }
  if (n < 0) n = (int64_t)cnn_frame_read(f, cnn_do(f, largest_index, args[0]));
  for (int d = 0; d < x->ndim; d++) shape[d] = x->shape[d];
  shape[x->ndim] = n;
  cnn_tensor *y =
      cnn_do(f, zeros, CNN_A_INTS(x->ndim + 1, shape), CNN_A_I(CNN_I64), CNN_A_DEVICE(x->device));
  cnn_tensor *index = cnn_do(f, unsqueeze, CNN_A_T(x), CNN_A_I(-1));
  cnn_results_add(f, r, cnn_do_(f, scatter, CNN_A_T(y), CNN_A_I(-1), CNN_A_T(index), CNN_A_I(1)));
}
const cnn_op cnn_op_one_hot = {
    .name = "one_hot",
    .args = "x:index num_classes:int=-1",
    .doc = "int64 vectors of size num_classes with a 1 at x's label (from 1 on) and 0 elsewhere; "
           "without num_classes, as many as the largest label.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_FUNCTION,
    .composite = one_hot,
};
