// SPDX-License-Identifier: MIT
// Running sums, products and extremes along a dim.
#include "ops/reduction.h"

#include "ops/expression.h"

// ---------------------------------------------------------------------------------------------
// cumsum, cumprod. args: x dim dtype

static cnn_status infer_scan(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  int d;
  cnn_dtype dtype = cnn_dtype_is_float(I->dtype) ? I->dtype : CNN_I64;
  if (I->args[2].kind != CNN_ABSENT) dtype = (cnn_dtype)I->args[2].i;
  CNN_TRY(cnn_check_dim(I->ctx, "dim", I->args[1].i, x->ndim, &d));
  if (dtype == CNN_BOOL)
    return cnn_fail(I->ctx, CNN_DTYPE, "a running sum of bools needs a number dtype");
  cnn_infer_out(I, dtype, x->ndim, x->shape);
  return CNN_OK;
}

static void backward_cumsum(cnn_grad *g) {
  cnn_give(g, 0, cnn_do(g->f, cumsum_backward, CNN_A_T(g->dy[0]), g->args[1]));
}

const cnn_op cnn_op_cumsum = {
    .name = "cumsum",
    .args = "x:tensor dim:dim dtype:dtype?",
    .doc = "Running sums along a dim: y_i = x_1 + ... + x_i. Integers and bools give int64.",
    .infer = infer_scan,
    .backward = backward_cumsum,
};

static cnn_status infer_like_dy(cnn_infer *I) {
  cnn_infer_out(I, I->dtype, I->in[0]->ndim, I->in[0]->shape);
  return CNN_OK;
}

static void backward_cumsum_backward(cnn_grad *g) {
  cnn_give(g, 0, cnn_do(g->f, cumsum, CNN_A_T(g->dy[0]), g->args[1]));
}

const cnn_op cnn_op_cumsum_backward = {
    .name = "cumsum_backward",
    .args = "dy:tensor dim:dim",
    .doc = "Running sums from the end: the gradient of cumsum.",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_like_dy,
    .backward = backward_cumsum_backward,
};

static void backward_cumprod(cnn_grad *g) {
  cnn_arg x = CNN_A_T(cnn_in(g, 0));
  if (g->args[2].kind != CNN_ABSENT) x = CNN_A_T(cnn_do(g->f, cast, x, g->args[2]));
  cnn_give(g, 0, cnn_do(g->f, cumprod_backward, CNN_A_T(g->dy[0]), x, g->args[1]));
}

const cnn_op cnn_op_cumprod = {
    .name = "cumprod",
    .args = "x:tensor dim:dim dtype:dtype?",
    .doc = "Running products along a dim: y_i = x_1 * ... * x_i. Integers and bools give int64. "
           "Gradients are right at zeros too.",
    .saves = "x",
    .infer = infer_scan,
    .backward = backward_cumprod,
};

// The positions 1 .. n along dim d of `ndim` dims, the others of size 1.
static cnn_tensor *positions(cnn_frame *f, cnn_device device, int ndim, int d, int64_t n) {
  int64_t shape[CNN_MAX_DIMS];
  cnn_tensor *t = cnn_do(f, arange, CNN_A_I(1), CNN_A_I(n + 1), CNN_A_I(1), CNN_A_I(CNN_I64),
                         CNN_A_DEVICE(device));
  for (int i = 0; i < ndim && i < CNN_MAX_DIMS; i++) shape[i] = i == d ? n : 1;
  return cnn_do(f, view, CNN_A_T(t), CNN_A_INTS(ndim, shape));
}

// dx_i = sum over k >= i of dy_k times the product of x_j with j <= k but j = i: with i a dim of
// its own before `dim`, that is a running product of x with 1 at place i.
static void cumprod_backward(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[1].t;
  int d = 0, ndim = x->ndim;
  if (ndim == 0) {
    cnn_results_add(f, r, args[0].t);
    return;
  }
  f->status = cnn_check_dim(f->ctx, "dim", args[2].i, ndim, &d);
  cnn_tensor *i = positions(f, x->device, ndim + 1, d, x->shape[d]);
  cnn_tensor *k = cnn_do(f, transpose, CNN_A_T(i), CNN_A_I(d), CNN_A_I(d + 1));
  cnn_arg xs = CNN_A_T(cnn_do(f, unsqueeze, CNN_A_T(x), CNN_A_I(d)));
  cnn_arg dy = CNN_A_T(cnn_do(f, unsqueeze, args[0], CNN_A_I(d)));
  cnn_arg without = SEL(EQ(CNN_A_T(i), CNN_A_T(k)), C(1), xs);
  cnn_arg p = CNN_A_T(cnn_do(f, cumprod, without, CNN_A_I(d + 1)));
  cnn_arg terms = SEL(GE(CNN_A_T(k), CNN_A_T(i)), MUL(dy, p), C(0));
  cnn_results_add(f, r, cnn_do(f, sum, terms, CNN_A_I(d + 1)));
}

static cnn_status infer_cumprod_backward(cnn_infer *I) {
  CNN_TRY(cnn_infer_need_float(I));
  return infer_like_dy(I);
}

const cnn_op cnn_op_cumprod_backward = {
    .name = "cumprod_backward",
    .args = "dy:tensor x:tensor dim:dim",
    .doc = "The gradient of cumprod.",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_COMMON,
    .infer = infer_cumprod_backward,
    .composite = cumprod_backward,
};

// ---------------------------------------------------------------------------------------------
// cummax, cummin. args: x dim

static cnn_status infer_cummax(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  int d;
  CNN_TRY(cnn_check_dim(I->ctx, "dim", I->args[1].i, x->ndim, &d));
  cnn_infer_out(I, I->dtype, x->ndim, x->shape);
  cnn_infer_out(I, CNN_I64, x->ndim, x->shape);
  return CNN_OK;
}

static void backward_cummax(cnn_grad *g) {
  if (g->dy[0]) cnn_give_picked(g, g->dy[0], cnn_out(g, 1), g->args[1].i);
}

#define RUNNING_OP(title, text)                                                                    \
  const cnn_op cnn_op_##title = {                                                                  \
      .name = #title,                                                                              \
      .args = "x:tensor dim:dim",                                                                  \
      .doc = text,                                                                                 \
      .results = "values indices",                                                                 \
      .saves = "indices",                                                                          \
      .infer = infer_cummax,                                                                       \
      .backward = backward_cummax,                                                                 \
  };
RUNNING_OP(cummax, "The largest element so far along a dim, and its position, the last one of "
                   "equals. From a NaN on it is NaN.")
RUNNING_OP(cummin, "The smallest element so far along a dim, and its position, the last one of "
                   "equals. From a NaN on it is NaN.")

// ---------------------------------------------------------------------------------------------
// diff. args: x n dim prepend append

static void diff(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t, *parts[3];
  int d = 0, n_parts = 0;
  f->status = cnn_check_dim(f->ctx, "dim", args[2].i, x->ndim, &d);
  if (f->status == CNN_OK && x->ndim == 0)
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "x has 0 dims: there are no neighbours to subtract");
  if (f->status == CNN_OK && args[1].i < 0)
    f->status =
        cnn_fail(f->ctx, CNN_INVALID, "n is %lld: it counts how many times to take differences",
                 (long long)args[1].i);
  if (cnn_has(args, 3)) parts[n_parts++] = args[3].t;
  parts[n_parts++] = x;
  if (cnn_has(args, 4)) parts[n_parts++] = args[4].t;
  if (n_parts > 1) x = cnn_do(f, cat, CNN_A_TS(n_parts, parts), CNN_A_I(d));
  for (int64_t i = 0; f->status == CNN_OK && i < args[1].i && x->shape[d] > 0; i++) {
    cnn_arg n = CNN_A_I(x->shape[d] - 1), along = CNN_A_I(d);
    cnn_arg late = CNN_A_T(cnn_do(f, narrow, CNN_A_T(x), along, CNN_A_I(1), n));
    cnn_arg early = CNN_A_T(cnn_do(f, narrow, CNN_A_T(x), along, CNN_A_I(0), n));
    x = x->dtype == CNN_BOOL ? cnn_do(f, ne, late, early) : cnn_do(f, sub, late, early);
  }
  cnn_results_add(f, r, x);
}

const cnn_op cnn_op_diff = {
    .name = "diff",
    .args = "x:tensor n:int=1 dim:dim=-1 prepend:tensor? append:tensor?",
    .doc = "Differences x_{i+1} - x_i of neighbours along a dim, n times over, of x with the given "
           "tensors joined before and behind; of bools, whether they differ.",
    .flags = CNN_OP_COMPOSITE,
    .composite = diff,
};
