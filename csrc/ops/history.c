// SPDX-License-Identifier: MIT
// Moving elements between a tensor and a view of it, by geometry. The view is given by its shape,
// strides and offset relative to the tensor's first element, in a memory where the tensor has
// `base_strides`. engine/history.c records these for views whose base was changed in place; the
// gradients of all views run through view_scatter_add.
#include "ops/ops.h"

static cnn_status infer_gather(cnn_infer *I) {
  cnn_infer_out(I, I->dtype, I->args[1].n, I->args[1].ints);
  return CNN_OK;
}

// args of view_gather: x shape strides offset base_strides
static void backward_gather(cnn_grad *g) {
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_give(g, 0,
           cnn_do(g->f, view_scatter_add, CNN_A_T(g->dy[0]), CNN_A_INTS(x->ndim, x->shape),
                  g->args[2], g->args[3], g->args[4]));
}

const cnn_op cnn_op_view_gather = {
    .name = "as_strided",
    .args = "x:tensor shape:shape strides:ints offset:int base_strides:ints",
    .doc = "The elements of x that a view of it shows.",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_gather,
    .backward = backward_gather,
};

static cnn_status infer_scatter(cnn_infer *I) {
  cnn_infer_out(I, I->dtype, I->in[0]->ndim, I->in[0]->shape);
  return CNN_OK;
}

// args of view_scatter: x src strides offset base_strides
static void backward_scatter(cnn_grad *g) {
  const cnn_form *src = cnn_in_form(g, 1);
  cnn_tensor *dy = g->dy[0];
  if (cnn_needs(g, 0)) {
    cnn_tensor *zero = cnn_do(g->f, full, CNN_A_INTS(src->ndim, src->shape), CNN_A_I(0),
                              CNN_A_I(dy->dtype), CNN_A_DEVICE(dy->device));
    cnn_give(g, 0,
             cnn_do(g->f, view_scatter, CNN_A_T(dy), CNN_A_T(zero), g->args[2], g->args[3],
                    g->args[4]));
  }
  if (cnn_needs(g, 1))
    cnn_give(g, 1,
             cnn_do(g->f, view_gather, CNN_A_T(dy), CNN_A_INTS(src->ndim, src->shape), g->args[2],
                    g->args[3], g->args[4]));
}

const cnn_op cnn_op_view_scatter = {
    .name = "as_strided_scatter",
    .args = "x:tensor src:tensor strides:ints offset:int base_strides:ints",
    .doc = "x with the elements that a view shows replaced by src's.",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_scatter,
    .backward = backward_scatter,
};

static cnn_status infer_scatter_add(cnn_infer *I) {
  cnn_infer_out(I, I->dtype, I->args[1].n, I->args[1].ints);
  return CNN_OK;
}

// args of view_scatter_add: src shape strides offset base_strides
static void backward_scatter_add(cnn_grad *g) {
  const cnn_form *src = cnn_in_form(g, 0);
  cnn_give(g, 0,
           cnn_do(g->f, view_gather, CNN_A_T(g->dy[0]), CNN_A_INTS(src->ndim, src->shape),
                  g->args[2], g->args[3], g->args[4]));
}

const cnn_op cnn_op_view_scatter_add = {
    .name = "as_strided_scatter_add",
    .args = "src:tensor shape:shape strides:ints offset:int base_strides:ints",
    .doc = "Zeros of that shape, with src added at the elements that a view shows.",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_scatter_add,
    .backward = backward_scatter_add,
};
