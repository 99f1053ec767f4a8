// SPDX-License-Identifier: MIT
// Normalisation over the last dims.
//
// layer_norm is a composite around an internal op that also gives the mean and 1 / std of each row,
// which its gradient reads.
#include "ops/norm.h"

#include "ops/reduction.h"

cnn_status cnn_check_beside(cnn_infer *I, const char *name, const cnn_tensor *t) {
  if (!t || t->dtype == I->dtype) return CNN_OK;
  if (t->dtype == CNN_F32 && cnn_dtype_is_half(I->dtype)) return CNN_OK;
  return cnn_fail(I->ctx, CNN_DTYPE, "%s is %s but x is %s: convert one, e.g. %s:to(\"%s\")", name,
                  cnn_dtype_name((cnn_dtype)t->dtype), cnn_dtype_name(I->dtype), name,
                  cnn_dtype_name(I->dtype));
}

static cnn_status check_weight(cnn_infer *I, int input, const char *name, int ndim,
                               const int64_t *shape) {
  const cnn_tensor *w = I->in[input];
  cnn_shape_text a, b;
  if (w && !cnn_shape_equal(w->ndim, w->shape, ndim, shape))
    return cnn_fail(I->ctx, CNN_SHAPE, "%s has shape %s but normalized_shape is %s", name,
                    cnn_shape_format(&a, w->ndim, w->shape), cnn_shape_format(&b, ndim, shape));
  return cnn_check_beside(I, name, w);
}

static cnn_status infer_layer_norm(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  const cnn_arg *last = &I->args[3];
  int lead = x->ndim - last->n;
  cnn_shape_text a, b;
  CNN_TRY(cnn_check_float(I, I->dtype));
  if (last->n == 0)
    return cnn_fail(I->ctx, CNN_SHAPE,
                    "normalized_shape is empty: give the sizes of the last dims");
  if (lead < 0 || !cnn_shape_equal(last->n, x->shape + lead, last->n, last->ints))
    return cnn_fail(I->ctx, CNN_SHAPE,
                    "x has shape %s, whose last dims are not normalized_shape %s",
                    cnn_shape_format(&a, x->ndim, x->shape),
                    cnn_shape_format(&b, last->n, last->ints));
  CNN_TRY(check_weight(I, 1, "weight", last->n, last->ints));
  CNN_TRY(check_weight(I, 2, "bias", last->n, last->ints));
  cnn_infer_out(I, I->dtype, x->ndim, x->shape);
  cnn_infer_out(I, cnn_dtype_computed(I->dtype), lead, x->shape);
  cnn_infer_out(I, cnn_dtype_computed(I->dtype), lead, x->shape);
  return CNN_OK;
}

// Gradients wanted: bits of layer_norm_backward's `needs`.
enum { NEEDS_X = 1, NEEDS_W = 2, NEEDS_B = 4 };

static void backward_layer_norm(cnn_grad *g) {
  cnn_tensor *d[3];
  int64_t needs = 0;
  for (int i = 0; i < 3; i++)
    if (cnn_needs(g, i)) needs |= 1 << i;
  cnn_frame_results(g->f, OP_layer_norm_backward,
                    CNN_ARGS(CNN_A_T(cnn_dy(g, 0)), CNN_A_T(cnn_in(g, 0)), CNN_A_T(cnn_out(g, 1)),
                             CNN_A_T(cnn_out(g, 2)), CNN_A_T(needs & NEEDS_X ? cnn_in(g, 1) : NULL),
                             g->args[3], g->args[4], CNN_A_I(needs)),
                    d, 3);
  for (int i = 0; i < 3; i++) cnn_give(g, i, d[i]);
}

const cnn_op cnn_op_layer_norm_native = {
    .name = "layer_norm_native",
    .args = "x:tensor weight:other? bias:other? normalized_shape:shape eps:number",
    .doc = "layer_norm, with the mean and 1 / std of each row.",
    .results = "out mean rstd",
    .saves = "x, weight if x, mean rstd",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_layer_norm,
    .backward = backward_layer_norm,
};

static cnn_status infer_layer_norm_backward(cnn_infer *I) {
  const cnn_tensor *x = I->in[1];
  const cnn_arg *last = &I->args[5];
  int64_t needs = I->args[7].i, none = 0;
  cnn_dtype sums = cnn_dtype_computed(I->dtype);
  CNN_TRY(cnn_infer_need_float(I));
  cnn_infer_out(I, I->dtype, needs & NEEDS_X ? x->ndim : 1, needs & NEEDS_X ? x->shape : &none);
  for (int i = 1; i < 3; i++) {
    bool wanted = needs >> i & 1;
    cnn_infer_out(I, sums, wanted ? last->n : 1, wanted ? last->ints : &none);
  }
  return CNN_OK;
}

static cnn_tensor *mean_over(cnn_frame *f, cnn_tensor *x, int n, const int64_t *dims,
                             double count) {
  cnn_tensor *s = cnn_do(f, sum, CNN_A_T(x), CNN_A_INTS(n, dims), CNN_A_I(1));
  return cnn_do(f, div, CNN_A_T(s), CNN_A_N(count));
}

// With xh = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - xh mean(g xh)), dw = the
// sum of dy xh and db that of dy over all rows. mean and rstd are made anew from x, so that
// gradients reach x through them.
static void layer_norm_backward(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *dy = args[0].t, *x = args[1].t;
  const cnn_arg *last = &args[5];
  int64_t needs = args[7].i, dims[CNN_MAX_DIMS], none = 0;
  double count = 1;
  for (int i = 0; i < last->n; i++) {
    dims[i] = x->ndim - last->n + i;
    count *= (double)last->ints[i];
  }
  cnn_tensor *empty =
      cnn_do(f, full, CNN_A_INTS(1, &none), CNN_A_I(0), CNN_A_I(x->dtype), CNN_A_DEVICE(x->device));
  cnn_tensor *xc = cnn_do(f, sub, CNN_A_T(x), CNN_A_T(mean_over(f, x, last->n, dims, count)));
  cnn_tensor *var = mean_over(f, cnn_do(f, square, CNN_A_T(xc)), last->n, dims, count);
  cnn_tensor *rstd = cnn_do(f, rsqrt, CNN_A_T(cnn_do(f, add, CNN_A_T(var), args[6])));
  cnn_tensor *xh = cnn_do(f, mul, CNN_A_T(xc), CNN_A_T(rstd));
  cnn_tensor *dx = empty, *dw = empty, *db = empty;
  if (needs & NEEDS_X) {
    cnn_tensor *g = cnn_has(args, 4) ? cnn_do(f, mul, CNN_A_T(dy), args[4]) : dy;
    cnn_tensor *a = mean_over(f, g, last->n, dims, count);
    cnn_tensor *gxh = cnn_do(f, mul, CNN_A_T(g), CNN_A_T(xh));
    cnn_tensor *b = cnn_do(f, mul, CNN_A_T(xh), CNN_A_T(mean_over(f, gxh, last->n, dims, count)));
    dx = cnn_do(f, sub, CNN_A_T(g), CNN_A_T(a));
    dx = cnn_do(f, mul, CNN_A_T(rstd), CNN_A_T(cnn_do(f, sub, CNN_A_T(dx), CNN_A_T(b))));
  }
  if (needs & NEEDS_W)
    dw = cnn_do(f, sum_to, CNN_A_T(cnn_do(f, mul, CNN_A_T(dy), CNN_A_T(xh))), *last);
  if (needs & NEEDS_B) db = cnn_do(f, sum_to, CNN_A_T(dy), *last);
  cnn_results_add(f, r, dx);
  cnn_results_add(f, r, dw);
  cnn_results_add(f, r, db);
}

const cnn_op cnn_op_layer_norm_backward = {
    .name = "layer_norm_backward",
    .args = "dy:tensor x:tensor mean:other rstd:other weight:other? normalized_shape:shape "
            "eps:number needs:int",
    .doc = "Gradients of layer_norm: of x, weight and bias where bits 0, 1, 2 of `needs` are set, "
           "else an empty tensor.",
    .results = "dx dw db",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_layer_norm_backward,
    .composite = layer_norm_backward,
};

static void layer_norm(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_results_add(f, r, cnn_do(f, layer_norm_native, args[0], args[2], args[3], args[1], args[4]));
}

const cnn_op cnn_op_layer_norm = {
    .name = "layer_norm",
    .args = "x:tensor normalized_shape:shape weight:other? bias:other? eps:number=1e-5",
    .doc = "Normalises over the last dims: (x - mean) / sqrt(var + eps) * weight + bias. "
           "normalized_shape gives the sizes of those dims, which weight and bias have too; mean "
           "and var (divided by the number of elements) are taken over them.",
    .flags = CNN_OP_COMPOSITE,
    .composite = layer_norm,
};
