// SPDX-License-Identifier: MIT
// Gathering from, and scattering into, one dim of a tensor. Positions are 1-based; one that is out
// of range is an error, on every device; gradients of positions that occur several times add.
#include "ops/ops.h"

#include <inttypes.h>

// Zeros like an input of the forward.
static cnn_tensor *zeros_of(cnn_grad *g, const cnn_form *form) {
  return cnn_do(g->f, zeros, CNN_A_INTS(form->ndim, form->shape), CNN_A_I(form->dtype),
                CNN_A_DEVICE(form->device));
}

static cnn_status infer_like_x(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  cnn_meta *out = cnn_infer_out(I, I->dtype, x->ndim, x->shape);
  cnn_strides_like(out->ndim, out->shape, x->strides, out->strides);
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// A list of positions: index_select, index_add, index_copy, index_fill

// index is a list of positions in dim d of x; *n of them.
static cnn_status check_list(cnn_infer *I, int *d, int64_t *n) {
  const cnn_tensor *x = I->in[0], *index = I->in[1];
  CNN_TRY(cnn_check_dim(I->ctx, "dim", I->args[1].i, x->ndim, d));
  if (x->ndim == 0) return cnn_fail(I->ctx, CNN_SHAPE, "x has 0 dims: there is nothing to index");
  if (index->ndim > 1)
    return cnn_fail(I->ctx, CNN_SHAPE, "index must be a list (1 dim), but has %d dims",
                    index->ndim);
  *n = index->ndim ? index->shape[0] : 1;
  return CNN_OK;
}

static cnn_status infer_index_select(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  int d;
  int64_t shape[CNN_MAX_DIMS], n;
  CNN_TRY(check_list(I, &d, &n));
  for (int k = 0; k < x->ndim; k++) shape[k] = k == d ? n : x->shape[k];
  cnn_infer_out(I, I->dtype, x->ndim, shape);
  return CNN_OK;
}
static void backward_index_select(cnn_grad *g) {
  cnn_give(g, 0,
           cnn_do_(g->f, index_add, CNN_A_T(zeros_of(g, cnn_in_form(g, 0))), g->args[1],
                   CNN_A_T(cnn_in(g, 1)), CNN_A_T(g->dy[0])));
}
const cnn_op cnn_op_index_select = {
    .name = "index_select",
    .args = "x:tensor dim:dim index:index",
    .doc = "The slices of x at a list of positions in a dim.",
    .saves = "index",
    .infer = infer_index_select,
    .backward = backward_index_select,
};

// src has x's shape, but index's size in dim.
static cnn_status infer_slices(cnn_infer *I) {
  const cnn_tensor *x = I->in[0], *src = I->in[2];
  int d;
  int64_t shape[CNN_MAX_DIMS], n;
  cnn_shape_text a, b;
  CNN_TRY(check_list(I, &d, &n));
  for (int k = 0; k < x->ndim; k++) shape[k] = k == d ? n : x->shape[k];
  if (!cnn_shape_equal(x->ndim, shape, src->ndim, src->shape))
    return cnn_fail(I->ctx, CNN_SHAPE, "src must have shape %s, not %s",
                    cnn_shape_format(&a, x->ndim, shape),
                    cnn_shape_format(&b, src->ndim, src->shape));
  return infer_like_x(I);
}

static void backward_index_add(cnn_grad *g) {
  cnn_give(g, 0, g->dy[0]);
  if (cnn_needs(g, 2))
    cnn_give(g, 2,
             cnn_do(g->f, index_select, CNN_A_T(g->dy[0]), g->args[1], CNN_A_T(cnn_in(g, 1))));
}
static int choose_index_add(const cnn_arg *args, int n) {
  bool scaled = n > 4 && args[4].kind != CNN_ABSENT && cnn_arg_number(&args[4]) != 1;
  return scaled ? OP_index_add_scaled : -1;
}
const cnn_op cnn_op_index_add = {
    .name = "index_add",
    .args = "x:tensor dim:dim index:index src:tensor alpha:number=1",
    .doc = "x with alpha times the slices of src added at a list of positions in a dim. Slices for "
           "one position add.",
    .saves = "index if src",
    .flags = CNN_OP_IN_PLACE | CNN_OP_MOVES,
    .infer = infer_slices,
    .backward = backward_index_add,
    .choose = choose_index_add,
};

static void index_add_scaled(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *src = cnn_do(f, mul, args[3], args[4]);
  cnn_results_add(f, r, cnn_do(f, index_add, args[0], args[1], args[2], CNN_A_T(src)));
}
const cnn_op cnn_op_index_add_scaled = {
    .name = "index_add",
    .args = "x:tensor dim:dim index:index src:tensor alpha:number",
    .doc = "index_add with alpha other than 1.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_INTERNAL,
    .composite = index_add_scaled,
};

static void backward_index_copy(cnn_grad *g) {
  cnn_tensor *index = cnn_in(g, 1);
  if (cnn_needs(g, 0))
    cnn_give(g, 0,
             cnn_do(g->f, index_fill, CNN_A_T(g->dy[0]), g->args[1], CNN_A_T(index), CNN_A_I(0)));
  if (cnn_needs(g, 2))
    cnn_give(g, 2, cnn_do(g->f, index_select, CNN_A_T(g->dy[0]), g->args[1], CNN_A_T(index)));
}
const cnn_op cnn_op_index_copy = {
    .name = "index_copy",
    .args = "x:tensor dim:dim index:index src:tensor",
    .doc = "x with the slices of src put at a list of positions in a dim. Of slices for one "
           "position, the last one stays.",
    .saves = "index",
    .flags = CNN_OP_IN_PLACE | CNN_OP_MOVES,
    .infer = infer_slices,
    .backward = backward_index_copy,
};

static cnn_status infer_index_fill(cnn_infer *I) {
  const cnn_tensor *value = I->in[2];
  int d;
  int64_t n;
  CNN_TRY(check_list(I, &d, &n));
  if (value && value->ndim != 0)
    return cnn_fail(I->ctx, CNN_SHAPE, "value must be a number or a tensor with 0 dims, not %d",
                    value->ndim);
  return infer_like_x(I);
}
static void backward_index_fill(cnn_grad *g) {
  cnn_tensor *dy = g->dy[0];
  cnn_tensor *dx =
      cnn_do(g->f, index_fill, CNN_A_T(dy), g->args[1], CNN_A_T(cnn_in(g, 1)), CNN_A_I(0));
  cnn_give(g, 0, dx);
  // What x did not get, summed to a single number by cnn_give: a slice that is named twice counts
  // once.
  if (cnn_needs(g, 2)) cnn_give(g, 2, cnn_do(g->f, sub, CNN_A_T(dy), CNN_A_T(dx)));
}
const cnn_op cnn_op_index_fill = {
    .name = "index_fill",
    .args = "x:tensor dim:dim index:index value:operand",
    .doc = "x with the slices at a list of positions in a dim set to a value.",
    .saves = "index",
    .flags = CNN_OP_IN_PLACE | CNN_OP_MOVES,
    .infer = infer_index_fill,
    .backward = backward_index_fill,
};

// ---------------------------------------------------------------------------------------------
// A position for every element: gather, scatter, scatter_add

// index has x's dims, and in every dim but `dim` no more than `size` allows.
static cnn_status check_grid(cnn_infer *I, const char *name, const cnn_tensor *t, int but) {
  const cnn_tensor *index = I->in[1];
  cnn_shape_text a, b;
  bool fits = index->ndim == t->ndim;
  for (int k = 0; k < t->ndim && fits; k++) fits = k == but || index->shape[k] <= t->shape[k];
  if (fits) return CNN_OK;
  if (but < 0)
    return cnn_fail(I->ctx, CNN_SHAPE, "index of shape %s must not exceed %s, of shape %s",
                    cnn_shape_format(&a, index->ndim, index->shape), name,
                    cnn_shape_format(&b, t->ndim, t->shape));
  return cnn_fail(I->ctx, CNN_SHAPE,
                  "index of shape %s must not exceed %s, of shape %s, in any dim but %d",
                  cnn_shape_format(&a, index->ndim, index->shape), name,
                  cnn_shape_format(&b, t->ndim, t->shape), but + I->ctx->index_base);
}

static cnn_status infer_gather(cnn_infer *I) {
  int d;
  CNN_TRY(cnn_check_dim(I->ctx, "dim", I->args[1].i, I->in[0]->ndim, &d));
  CNN_TRY(check_grid(I, "x", I->in[0], d));
  cnn_infer_out(I, I->dtype, I->in[1]->ndim, I->in[1]->shape);
  return CNN_OK;
}
static void backward_gather(cnn_grad *g) {
  cnn_give(g, 0,
           cnn_do_(g->f, scatter_add, CNN_A_T(zeros_of(g, cnn_in_form(g, 0))), g->args[1],
                   CNN_A_T(cnn_in(g, 1)), CNN_A_T(g->dy[0])));
}
const cnn_op cnn_op_gather = {
    .name = "gather",
    .args = "x:tensor dim:dim index:index",
    .doc = "Elements of x along a dim: with dim = 1, y[{i, j}] = x[{index[{i, j}], j}]. The result "
           "has index's shape.",
    .saves = "index",
    .infer = infer_gather,
    .backward = backward_gather,
};

static cnn_status infer_scatter(cnn_infer *I) {
  int d;
  CNN_TRY(cnn_check_dim(I->ctx, "dim", I->args[1].i, I->in[0]->ndim, &d));
  CNN_TRY(check_grid(I, "x", I->in[0], d));
  if (I->in[2]) CNN_TRY(check_grid(I, "src", I->in[2], -1));
  return infer_like_x(I);
}

// What src gets: dy where index points. Elements of src that index does not cover get nothing.
static cnn_tensor *gather_for_src(cnn_grad *g) {
  const cnn_form *src = cnn_in_form(g, 2), *index = cnn_in_form(g, 1);
  int64_t pad[2 * CNN_MAX_DIMS];
  cnn_tensor *dx = cnn_do(g->f, gather, CNN_A_T(g->dy[0]), g->args[1], CNN_A_T(cnn_in(g, 1)));
  if (cnn_shape_equal(src->ndim, src->shape, index->ndim, index->shape)) return dx;
  for (int d = 0; d < src->ndim; d++) {
    int i = src->ndim - 1 - d;
    pad[2 * i] = 0;
    pad[2 * i + 1] = src->shape[d] - index->shape[d];
  }
  return cnn_do(g->f, pad, CNN_A_T(dx), CNN_A_INTS(2 * src->ndim, pad));
}

static void backward_scatter(cnn_grad *g) {
  if (cnn_needs(g, 0))
    cnn_give(g, 0,
             cnn_do(g->f, scatter, CNN_A_T(g->dy[0]), g->args[1], CNN_A_T(cnn_in(g, 1)),
                    CNN_A_I(0)));
  if (cnn_needs(g, 2)) cnn_give(g, 2, gather_for_src(g));
}
const cnn_op cnn_op_scatter = {
    .name = "scatter",
    .args = "x:tensor dim:dim index:index src:operand",
    .doc = "x with elements of src (or one number) put along a dim: with dim = 1, "
           "x[{index[{i, j}], j}] = src[{i, j}]. Of elements for one place, the last one stays "
           "(the gradient takes it that no place occurs twice).",
    .saves = "index",
    .flags = CNN_OP_IN_PLACE | CNN_OP_MOVES,
    .infer = infer_scatter,
    .backward = backward_scatter,
};

static void backward_scatter_add(cnn_grad *g) {
  cnn_give(g, 0, g->dy[0]);
  if (cnn_needs(g, 2)) cnn_give(g, 2, gather_for_src(g));
}
const cnn_op cnn_op_scatter_add = {
    .name = "scatter_add",
    .args = "x:tensor dim:dim index:index src:tensor",
    .doc = "x with elements of src added along a dim: with dim = 1, "
           "x[{index[{i, j}], j}] += src[{i, j}].",
    .saves = "index if src",
    .flags = CNN_OP_IN_PLACE | CNN_OP_MOVES,
    .infer = infer_scatter,
    .backward = backward_scatter_add,
};

// ---------------------------------------------------------------------------------------------
// Forms written in the others

static void take(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  const cnn_tensor *index = args[1].t;
  int64_t flat = -1;
  if (index->ndim == 0 || cnn_numel(index) == 0) flat = cnn_numel(index);
  cnn_tensor *row = cnn_do(f, ravel, args[0]);
  cnn_tensor *list = cnn_do(f, reshape, args[1], CNN_A_INTS(1, &flat));
  cnn_tensor *y = cnn_do(f, index_select, CNN_A_T(row), CNN_A_I(0), CNN_A_T(list));
  cnn_results_add(f, r, cnn_do(f, reshape, CNN_A_T(y), CNN_A_INTS(index->ndim, index->shape)));
}
const cnn_op cnn_op_take = {
    .name = "take",
    .args = "x:tensor index:index",
    .doc = "The elements of x at positions in its row-major order, in index's shape.",
    .flags = CNN_OP_COMPOSITE,
    .composite = take,
};

static void take_along_dim(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t, *index = args[1].t;
  int d = 0, n;
  int64_t shape[CNN_MAX_DIMS], like[CNN_MAX_DIMS];
  cnn_shape_text a, b;
  if (!cnn_has(args, 2)) {
    x = cnn_do(f, ravel, args[0]);
    index = cnn_do(f, ravel, args[1]);
    cnn_results_add(f, r, cnn_do(f, gather, CNN_A_T(x), CNN_A_I(0), CNN_A_T(index)));
    return;
  }
  f->status = cnn_check_dim(f->ctx, "dim", args[2].i, x->ndim, &d);
  if (f->status != CNN_OK) return;
  // They broadcast in every other dim.
  for (int k = 0; k < index->ndim; k++) like[k] = k == d ? 1 : index->shape[k];
  for (int k = 0; k < x->ndim; k++) shape[k] = k == d ? 1 : x->shape[k];
  int64_t both[CNN_MAX_DIMS];
  if (index->ndim != x->ndim || !cnn_shape_broadcast(x->ndim, shape, index->ndim, like, &n, both)) {
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "index of shape %s does not fit x of shape %s",
                         cnn_shape_format(&a, index->ndim, index->shape),
                         cnn_shape_format(&b, x->ndim, x->shape));
    return;
  }
  if (x->ndim > 0) both[d] = x->shape[d];
  x = cnn_do(f, expand, CNN_A_T(x), CNN_A_INTS(n, both));
  if (n > 0) both[d] = index->shape[d];
  index = cnn_do(f, expand, CNN_A_T(index), CNN_A_INTS(n, both));
  cnn_results_add(f, r, cnn_do(f, gather, CNN_A_T(x), CNN_A_I(d), CNN_A_T(index)));
}
const cnn_op cnn_op_take_along_dim = {
    .name = "take_along_dim",
    .args = "x:tensor index:index dim:dim?",
    .doc = "gather, with x and index broadcast to each other in every dim but `dim`: the companion "
           "of argmax and argsort. Without a dim, both are taken as rows.",
    .flags = CNN_OP_COMPOSITE,
    .composite = take_along_dim,
};
