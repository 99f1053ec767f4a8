// SPDX-License-Identifier: MIT
// Largest and smallest elements, and where they are. NaN is larger and smaller than everything: a
// NaN among the elements is the result, and its position. Of equal elements the first one is taken.
#include "ops/reduction.h"

#include "ops/expression.h"

// ---------------------------------------------------------------------------------------------
// amax, amin. args: x dim keepdim

cnn_tensor *cnn_share(cnn_grad *g, cnn_tensor *x, cnn_tensor *out, const cnn_arg *dim) {
  cnn_frame *f = g->f;
  cnn_arg chosen = EQ(CNN_A_T(x), CNN_A_T(cnn_spread(g, out, dim)));
  cnn_arg count = CNN_A_T(cnn_do(f, sum, chosen, *dim, CNN_A_I(1)));
  cnn_arg share = DIV(CNN_A_T(cnn_spread(g, g->dy[0], dim)), count);
  // Without a place (NaN) the share is not finite, and 0 times it is NaN: the gradient says so.
  return SEL(chosen, share, MUL(share, C(0))).t;
}

static cnn_status infer_amax(cnn_infer *I) {
  CNN_TRY(cnn_check_reduces(I, &I->args[1]));
  return cnn_infer_reduced(I, I->dtype, &I->args[1], I->args[2].i != 0);
}

static void backward_amax(cnn_grad *g) {
  cnn_give(g, 0, cnn_share(g, cnn_in(g, 0), cnn_out(g, 0), &g->args[1]));
}

#define VALUE_OP(title, text)                                                                      \
  const cnn_op cnn_op_##title = {                                                                  \
      .name = #title,                                                                              \
      .args = "x:tensor dim:dims? keepdim:bool=false",                                             \
      .doc = text,                                                                                 \
      .saves = "x out",                                                                            \
      .infer = infer_amax,                                                                         \
      .backward = backward_amax,                                                                   \
  };
VALUE_OP(amax, "The largest element of all, or over the given dims. Equal ones share the gradient.")
VALUE_OP(amin,
         "The smallest element of all, or over the given dims. Equal ones share the gradient.")

// ---------------------------------------------------------------------------------------------
// argmax, argmin. args: x dim keepdim

static cnn_status infer_argmax(cnn_infer *I) {
  CNN_TRY(cnn_check_reduces(I, &I->args[1]));
  return cnn_infer_reduced(I, CNN_I64, &I->args[1], I->args[2].i != 0);
}

#define PLACE_OP(title, text)                                                                      \
  const cnn_op cnn_op_##title = {                                                                  \
      .name = #title,                                                                              \
      .args = "x:tensor dim:dim? keepdim:bool=false",                                              \
      .doc = text,                                                                                 \
      .flags = CNN_OP_NO_GRAD,                                                                     \
      .infer = infer_argmax,                                                                       \
  };
PLACE_OP(argmax, "Position of the largest element along a dim, or among all elements in row-major "
                 "order, as int64; the first one of equals.")
PLACE_OP(argmin, "Position of the smallest element along a dim, or among all elements in row-major "
                 "order, as int64; the first one of equals.")

// ---------------------------------------------------------------------------------------------
// max, min: x; x and dim; x and another tensor

static cnn_status infer_max_dim(cnn_infer *I) {
  CNN_TRY(cnn_check_reduces(I, &I->args[1]));
  CNN_TRY(cnn_infer_reduced(I, I->dtype, &I->args[1], I->args[2].i != 0));
  return cnn_infer_reduced(I, CNN_I64, &I->args[1], I->args[2].i != 0);
}

void cnn_give_picked(cnn_grad *g, cnn_tensor *dy, cnn_tensor *places, int64_t d) {
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_tensor *dx = cnn_do(g->f, full, CNN_A_INTS(x->ndim, x->shape), CNN_A_I(0), CNN_A_I(x->dtype),
                          CNN_A_DEVICE(x->device));
  cnn_give(g, 0, cnn_do_(g->f, scatter_add, CNN_A_T(dx), CNN_A_I(d), CNN_A_T(places), CNN_A_T(dy)));
}

// args: x dim keepdim. The gradient goes to the one element that was taken.
static void backward_pick(cnn_grad *g) {
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_tensor *dy = g->dy[0], *places;
  int d = 0;
  if (!dy) return;
  cnn_check_dim(g->f->ctx, "dim", g->args[1].i, x->ndim, &d); // infer has passed it
  if (!(places = cnn_out(g, 1))) return;
  if (dy->ndim < x->ndim) {
    dy = cnn_do(g->f, unsqueeze, CNN_A_T(dy), CNN_A_I(d));
    places = cnn_do(g->f, unsqueeze, CNN_A_T(places), CNN_A_I(d));
  }
  cnn_give_picked(g, dy, places, d);
}

#define PICK_OP(title, infer_fn, text)                                                             \
  const cnn_op cnn_op_##title = {                                                                  \
      .name = #title,                                                                              \
      .args = "x:tensor dim:dim keepdim:bool=false",                                               \
      .doc = text,                                                                                 \
      .results = "values indices",                                                                 \
      .saves = "indices",                                                                          \
      .flags = CNN_OP_INTERNAL,                                                                    \
      .infer = infer_fn,                                                                           \
      .backward = backward_pick,                                                                   \
  };
PICK_OP(max_dim, infer_max_dim, "The largest elements along a dim and their positions.")
PICK_OP(min_dim, infer_max_dim, "The smallest elements along a dim and their positions.")
PICK_OP(median_dim, infer_max_dim, "The medians along a dim and their positions.")

static int choose_max(const cnn_arg *args, int n) {
  if (n < 2 || args[1].kind == CNN_ABSENT) return OP_amax;
  return args[1].kind == CNN_TENSOR ? OP_maximum : OP_max_dim;
}
static int choose_min(const cnn_arg *args, int n) {
  if (n < 2 || args[1].kind == CNN_ABSENT) return OP_amin;
  return args[1].kind == CNN_TENSOR ? OP_minimum : OP_min_dim;
}

const cnn_op cnn_op_max = {
    .name = "max",
    .args = "x:tensor dim:dim_or_tensor? keepdim:bool=false",
    .doc = "The largest element (one result, equal ones share the gradient); with a dim, the "
           "largest elements along it and their positions (two results; the first of equals has "
           "the gradient); with another tensor, the larger of each two elements (see maximum).",
    .results = "values indices",
    .flags = CNN_OP_COMPOSITE,
    .choose = choose_max,
};

const cnn_op cnn_op_min = {
    .name = "min",
    .args = "x:tensor dim:dim_or_tensor? keepdim:bool=false",
    .doc = "The smallest element (one result, equal ones share the gradient); with a dim, the "
           "smallest elements along it and their positions (two results; the first of equals has "
           "the gradient); with another tensor, the smaller of each two elements (see minimum).",
    .results = "values indices",
    .flags = CNN_OP_COMPOSITE,
    .choose = choose_min,
};

// ---------------------------------------------------------------------------------------------
// median. args: x dim keepdim

static int choose_median(const cnn_arg *args, int n) {
  return n < 2 || args[1].kind == CNN_ABSENT ? OP_median_all : OP_median_dim;
}

const cnn_op cnn_op_median = {
    .name = "median",
    .args = "x:tensor dim:dim? keepdim:bool=false",
    .doc = "The median, the lower one of two (one result); with a dim, the medians along it and "
           "their positions (two results). NaN if any element is; of no floats it is NaN too.",
    .results = "values indices",
    .flags = CNN_OP_COMPOSITE,
    .choose = choose_median,
};

static cnn_status infer_median_all(cnn_infer *I) {
  if (!cnn_dtype_is_float(I->dtype)) CNN_TRY(cnn_check_reduces(I, &CNN_A_NONE));
  cnn_infer_out(I, I->dtype, 0, NULL);
  return CNN_OK;
}

static void backward_median_all(cnn_grad *g) {
  cnn_give(g, 0, cnn_share(g, cnn_in(g, 0), cnn_out(g, 0), &CNN_A_NONE));
}

const cnn_op cnn_op_median_all = {
    .name = "median_all",
    .args = "x:tensor",
    .doc = "The median of all elements.",
    .saves = "x out",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_median_all,
    .backward = backward_median_all,
};
