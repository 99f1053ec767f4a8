// SPDX-License-Identifier: MIT
// Activations that are no elementwise function of one tensor (those are rows of unary.def), and
// normalize.
#include "ops/expression.h"

#include <math.h>

// ---------------------------------------------------------------------------------------------
// prelu

static cnn_status infer_prelu_row(cnn_infer *I) {
  return cnn_infer_broadcast(I, I->dtype);
}

static void backward_prelu_row(cnn_grad *g) {
  cnn_frame *f = g->f;
  cnn_arg x = CNN_A_T(cnn_in(g, 0)), dy = CNN_A_T(g->dy[0]), positive = GT(x, C(0));
  if (cnn_needs(g, 0)) cnn_give(g, 0, SEL(positive, dy, MUL(dy, CNN_A_T(cnn_in(g, 1)))).t);
  if (cnn_needs(g, 1)) cnn_give(g, 1, SEL(positive, C(0), MUL(dy, x)).t);
}

const cnn_op cnn_op_prelu_row = {
    .name = "prelu_row",
    .args = "x:tensor weight:tensor",
    .doc = "x for x > 0, weight * x otherwise; weight broadcasts.",
    .saves = "x, weight if x",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_FLOAT,
    .infer = infer_prelu_row,
    .backward = backward_prelu_row,
};

static void prelu(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t, *weight = args[1].t;
  int64_t shape[CNN_MAX_DIMS], n = cnn_numel(weight);
  int64_t channels = x->ndim > 1 ? x->shape[1] : 1;
  cnn_shape_text a, b;
  if (n != 1 && n != channels) {
    f->status =
        cnn_fail(f->ctx, CNN_SHAPE,
                 "weight of shape %s has %lld elements: it takes one, or one for each of the "
                 "%lld channels (dim %d) of x, %s",
                 cnn_shape_format(&a, weight->ndim, weight->shape), (long long)n,
                 (long long)channels, 1 + f->ctx->index_base,
                 cnn_shape_format(&b, x->ndim, x->shape));
    return;
  }
  for (int d = 0; d < x->ndim; d++) shape[d] = d == 1 ? n : 1;
  if (n == 1) shape[0] = 1;
  int dims = n == 1 ? (x->ndim > 0) : x->ndim;
  cnn_tensor *w = cnn_do(f, reshape, args[1], CNN_A_INTS(dims, shape));
  cnn_results_add(f, r, cnn_do(f, prelu_row, args[0], CNN_A_T(w)));
}

const cnn_op cnn_op_prelu = {
    .name = "prelu",
    .args = "x:tensor weight:tensor",
    .doc =
        "Rectified linear unit with learned slopes: x for x > 0, weight * x otherwise. weight has "
        "one element, or one for each channel (dim 2 of x).",
    .flags = CNN_OP_COMPOSITE,
    .composite = prelu,
};

// ---------------------------------------------------------------------------------------------
// glu

static void glu(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  int d = 0;
  cnn_shape_text text;
  f->status = cnn_check_dim(f->ctx, "dim", args[1].i, x->ndim, &d);
  if (f->status == CNN_OK && (x->ndim == 0 || x->shape[d] % 2 != 0))
    f->status = cnn_fail(f->ctx, CNN_SHAPE,
                         "x of shape %s can't be halved in dim %d: its size must be even",
                         cnn_shape_format(&text, x->ndim, x->shape), d + f->ctx->index_base);
  if (f->status != CNN_OK) return;
  cnn_arg half = CNN_A_I(x->shape[d] / 2), along = CNN_A_I(d);
  cnn_arg a = CNN_A_T(cnn_do(f, narrow, args[0], along, CNN_A_I(0), half));
  cnn_arg b = CNN_A_T(cnn_do(f, narrow, args[0], along, half, half));
  cnn_results_add(f, r, MUL(a, SIGMOID(b)).t);
}

const cnn_op cnn_op_glu = {
    .name = "glu",
    .args = "x:tensor dim:dim=-1",
    .doc = "Gated linear unit a * sigmoid(b), where a and b are x's halves along a dim.",
    .flags = CNN_OP_COMPOSITE,
    .composite = glu,
};

// ---------------------------------------------------------------------------------------------
// normalize

static void normalize(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  double eps = cnn_arg_number(&args[3]), smallest = 0x1p-24;
  // What is too small for float16 must not become 0, which would make zeros NaN.
  if (args[0].t->dtype == CNN_F16 && eps > 0 && eps < smallest) eps = smallest;
  cnn_arg norm = CNN_A_T(cnn_do(f, norm, args[0], args[1], args[2], CNN_A_I(1)));
  cnn_arg least = CNN_A_T(cnn_do(f, clamp_scalar, norm, CNN_A_N(eps), CNN_A_N(INFINITY)));
  cnn_results_add(f, r, DIV(args[0], least).t);
}

const cnn_op cnn_op_normalize = {
    .name = "normalize",
    .args = "x:tensor p:number=2 dim:dims=1 eps:number=1e-12",
    .doc =
        "x divided by its p-norm over the given dims (dim 2, when left out), or by eps where the "
        "norm is smaller.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_FUNCTION,
    .composite = normalize,
};
