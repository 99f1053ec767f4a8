// SPDX-License-Identifier: MIT
// Sums and their like over some or all dims. Half types accumulate in float32 or better. Empty sums
// are 0, empty products 1, empty means NaN.
#include "ops/reduction.h"

#include <math.h>

#include "ops/expression.h"

cnn_status cnn_infer_reduced(cnn_infer *I, cnn_dtype dtype, const cnn_arg *dim, bool keepdim) {
  const cnn_tensor *x = I->in[0];
  uint32_t mask;
  int n = 0;
  int64_t shape[CNN_MAX_DIMS];
  CNN_TRY(cnn_check_dims(I->ctx, "dim", dim, x->ndim, &mask));
  for (int d = 0; d < x->ndim; d++) {
    if (!(mask >> d & 1))
      shape[n++] = x->shape[d];
    else if (keepdim)
      shape[n++] = 1;
  }
  cnn_infer_out(I, dtype, n, shape);
  return CNN_OK;
}

cnn_status cnn_check_reduces(cnn_infer *I, const cnn_arg *dim) {
  const cnn_tensor *x = I->in[0];
  uint32_t mask;
  cnn_shape_text text;
  CNN_TRY(cnn_check_dims(I->ctx, "dim", dim, x->ndim, &mask));
  for (int d = 0; d < x->ndim; d++)
    if (mask >> d & 1 && x->shape[d] == 0)
      return cnn_fail(I->ctx, CNN_SHAPE,
                      "x of shape %s has no element to choose from in dim %d: of nothing there is "
                      "no largest, smallest or middle one",
                      cnn_shape_format(&text, x->ndim, x->shape), d + I->ctx->index_base);
  return CNN_OK;
}

cnn_status cnn_check_float(cnn_infer *I, cnn_dtype dtype) {
  if (cnn_dtype_is_float(dtype)) return CNN_OK;
  return cnn_fail(I->ctx, CNN_DTYPE, "x is %s: convert it first, e.g. x:float()",
                  cnn_dtype_name(dtype));
}

static uint32_t mask_of(cnn_grad *g, const cnn_arg *dim) {
  uint32_t mask = 0;
  cnn_check_dims(g->f->ctx, "dim", dim, cnn_in_form(g, 0)->ndim, &mask); // infer has passed it
  return mask;
}

cnn_tensor *cnn_spread(cnn_grad *g, cnn_tensor *t, const cnn_arg *dim) {
  const cnn_form *x = cnn_in_form(g, 0);
  uint32_t mask = mask_of(g, dim);
  int64_t shape[CNN_MAX_DIMS];
  if (!t || t->ndim == x->ndim || (mask & (mask + 1)) == 0)
    return t; // leading dims come by themselves
  for (int d = 0; d < x->ndim; d++) shape[d] = mask >> d & 1 ? 1 : x->shape[d];
  return cnn_do(g->f, view, CNN_A_T(t), CNN_A_INTS(x->ndim, shape));
}

double cnn_reduced_count(cnn_grad *g, const cnn_arg *dim) {
  const cnn_form *x = cnn_in_form(g, 0);
  uint32_t mask = mask_of(g, dim);
  double n = 1;
  for (int d = 0; d < x->ndim; d++)
    if (mask >> d & 1) n *= (double)x->shape[d];
  return n;
}

static cnn_tensor *expand_to_x(cnn_grad *g, cnn_tensor *t, const cnn_arg *dim) {
  const cnn_form *x = cnn_in_form(g, 0);
  return cnn_do(g->f, expand, CNN_A_T(cnn_spread(g, t, dim)), CNN_A_INTS(x->ndim, x->shape));
}

// ---------------------------------------------------------------------------------------------
// sum, mean, prod. args: x dim keepdim dtype

static cnn_dtype sum_dtype(const cnn_infer *I) {
  if (I->args[3].kind != CNN_ABSENT) return (cnn_dtype)I->args[3].i;
  return cnn_dtype_is_float(I->dtype) ? I->dtype : CNN_I64;
}

static cnn_status infer_sum(cnn_infer *I) {
  return cnn_infer_reduced(I, sum_dtype(I), &I->args[1], I->args[2].i != 0);
}

static void backward_sum(cnn_grad *g) {
  cnn_give(g, 0, expand_to_x(g, g->dy[0], &g->args[1]));
}

const cnn_op cnn_op_sum = {
    .name = "sum",
    .args = "x:tensor dim:dims? keepdim:bool=false dtype:dtype?",
    .doc = "Sum over all elements, or over the given dims. Integers and bools give int64; dtype "
           "sets the result's and what is added in.",
    .infer = infer_sum,
    .backward = backward_sum,
};

static cnn_status infer_sum_to(cnn_infer *I) {
  cnn_infer_out(I, I->dtype, I->args[1].n, I->args[1].ints);
  return CNN_OK;
}

static void backward_sum_to(cnn_grad *g) {
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_give(g, 0, cnn_do(g->f, expand, CNN_A_T(g->dy[0]), CNN_A_INTS(x->ndim, x->shape)));
}

const cnn_op cnn_op_sum_to = {
    .name = "sum_to",
    .args = "x:tensor shape:shape",
    .doc = "x summed to a shape that broadcasts to x's: the gradient of broadcasting.",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_sum_to,
    .backward = backward_sum_to,
};

static cnn_status infer_mean(cnn_infer *I) {
  cnn_dtype dtype = I->args[3].kind != CNN_ABSENT ? (cnn_dtype)I->args[3].i : I->dtype;
  if (!cnn_dtype_is_float(dtype))
    return cnn_fail(I->ctx, CNN_DTYPE,
                    "a mean of %s is no integer: convert x first, e.g. x:float(), or name a float "
                    "dtype for the result, {dtype = \"float32\"}",
                    cnn_dtype_name(dtype));
  return cnn_infer_reduced(I, dtype, &I->args[1], I->args[2].i != 0);
}

static void backward_mean(cnn_grad *g) {
  cnn_frame *f = g->f;
  cnn_arg dy = CNN_A_T(g->dy[0]), n = CNN_A_N(cnn_reduced_count(g, &g->args[1]));
  cnn_give(g, 0, expand_to_x(g, DIV(dy, n).t, &g->args[1]));
}

const cnn_op cnn_op_mean = {
    .name = "mean",
    .args = "x:tensor dim:dims? keepdim:bool=false dtype:dtype?",
    .doc = "Mean of all elements, or over the given dims; of nothing it is NaN. Integers need a "
           "float dtype.",
    .infer = infer_mean,
    .backward = backward_mean,
};

// The derivative by x_i is the product of the others. With `one` in place of zeros it is P / one_i
// where there is no zero, P at a single zero, and else 0.
static cnn_tensor *product_of_others(cnn_grad *g, cnn_tensor *x, cnn_tensor *dy) {
  cnn_frame *f = g->f;
  int64_t dims[CNN_MAX_DIMS];
  int n = 0;
  uint32_t mask = mask_of(g, &g->args[1]);
  for (int d = 0; d < x->ndim; d++)
    if (mask >> d & 1) dims[n++] = d;
  cnn_arg over = CNN_A_INTS(n, dims), keep = CNN_A_I(1);
  cnn_arg zero = EQ(CNN_A_T(x), C(0)), one = SEL(zero, C(1), CNN_A_T(x));
  cnn_arg zeros = CNN_A_T(cnn_do(f, sum, zero, over, keep));
  cnn_arg p = MUL(CNN_A_T(cnn_do(f, prod, one, over, keep)), CNN_A_T(dy));
  return SEL(zero, SEL(EQ(zeros, C(1)), p, C(0)), SEL(EQ(zeros, C(0)), DIV(p, one), C(0))).t;
}

// The products of the elements before each of t's, along its last dim.
static cnn_tensor *products_before(cnn_frame *f, cnn_tensor *t, cnn_tensor *ones) {
  if (f->status != CNN_OK) return NULL;
  cnn_arg last = CNN_A_I(1), n = CNN_A_I(t->shape[1] - 1);
  cnn_tensor *p =
      cnn_do(f, cumprod, CNN_A_T(cnn_do(f, narrow, CNN_A_T(t), last, CNN_A_I(0), n)), last);
  return cnn_do(f, cat, CNN_A_TS(2, ((cnn_tensor *[]){ones, p})), last);
}

// The same in a form that can be differentiated at zeros too: the products of the elements before
// and of those behind.
static cnn_tensor *products_around(cnn_grad *g, cnn_tensor *x, cnn_tensor *dy) {
  cnn_frame *f = g->f;
  uint32_t mask = mask_of(g, &g->args[1]);
  int64_t order[CNN_MAX_DIMS], back[CNN_MAX_DIMS], shape[CNN_MAX_DIMS], n = 1, kept = 1;
  int k = 0;
  for (int reduced = 0; reduced < 2; reduced++)
    for (int d = 0; d < x->ndim; d++)
      if ((int)(mask >> d & 1) == reduced) order[k] = d, back[d] = k++;
  for (int d = 0; d < x->ndim; d++) {
    shape[d] = x->shape[order[d]];
    *(mask >> order[d] & 1 ? &n : &kept) *= shape[d];
  }
  if (n * kept == 0) return x; // nothing to multiply
  cnn_tensor *t = cnn_do(f, permute, CNN_A_T(x), CNN_A_INTS(x->ndim, order));
  t = cnn_do(f, reshape, CNN_A_T(t), CNN_A_INTS(2, ((const int64_t[]){kept, n})));
  cnn_arg last = CNN_A_INTS(1, &(const int64_t){1});
  cnn_tensor *ones = cnn_do(f, full, CNN_A_INTS(2, ((const int64_t[]){kept, 1})), CNN_A_I(1),
                            CNN_A_I(x->dtype), CNN_A_DEVICE(x->device));
  cnn_tensor *behind = products_before(f, cnn_do(f, flip, CNN_A_T(t), last), ones);
  t = cnn_do(f, mul, CNN_A_T(products_before(f, t, ones)),
             CNN_A_T(cnn_do(f, flip, CNN_A_T(behind), last)));
  t = cnn_do(f, reshape, CNN_A_T(t), CNN_A_INTS(x->ndim, shape));
  t = cnn_do(f, permute, CNN_A_T(t), CNN_A_INTS(x->ndim, back));
  return cnn_do(f, mul, CNN_A_T(t), CNN_A_T(dy));
}

static void backward_prod(cnn_grad *g) {
  cnn_tensor *x = cnn_in(g, 0);
  if (!x) return;
  if (g->args[3].kind != CNN_ABSENT) x = cnn_do(g->f, cast, CNN_A_T(x), g->args[3]);
  cnn_tensor *dy = cnn_spread(g, g->dy[0], &g->args[1]);
  if (g->f->status != CNN_OK) return;
  cnn_give(g, 0, g->f->ctx->grad_enabled ? products_around(g, x, dy) : product_of_others(g, x, dy));
}

const cnn_op cnn_op_prod = {
    .name = "prod",
    .args = "x:tensor dim:dims? keepdim:bool=false dtype:dtype?",
    .doc =
        "Product of all elements, or over the given dims; of nothing it is 1. Integers and bools "
        "give int64. Gradients are right at zeros too.",
    .saves = "x",
    .infer = infer_sum,
    .backward = backward_prod,
};

// ---------------------------------------------------------------------------------------------
// Counting. args: x dim keepdim

static cnn_status infer_all(cnn_infer *I) {
  return cnn_infer_reduced(I, I->dtype == CNN_U8 ? CNN_U8 : CNN_BOOL, &I->args[1],
                           I->args[2].i != 0);
}

#define COUNT_OP(title, text)                                                                      \
  const cnn_op cnn_op_##title = {                                                                  \
      .name = #title,                                                                              \
      .args = "x:tensor dim:dims? keepdim:bool=false",                                             \
      .doc = text,                                                                                 \
      .flags = CNN_OP_NO_GRAD,                                                                     \
      .infer = infer_all,                                                                          \
  };
COUNT_OP(all, "Whether all elements are true (not 0), of the tensor or over the given dims; of "
              "nothing it is true.")
COUNT_OP(any, "Whether any element is true (not 0), of the tensor or over the given dims; of "
              "nothing it is false.")

static cnn_status infer_count_nonzero(cnn_infer *I) {
  return cnn_infer_reduced(I, CNN_I64, &I->args[1], false);
}

const cnn_op cnn_op_count_nonzero = {
    .name = "count_nonzero",
    .args = "x:tensor dim:dims?",
    .doc = "The number of elements that are not 0, of the tensor or over the given dims, as int64.",
    .flags = CNN_OP_NO_GRAD,
    .infer = infer_count_nonzero,
};

// ---------------------------------------------------------------------------------------------
// var, std. args: x dim unbiased keepdim correction

static cnn_status infer_var(cnn_infer *I) {
  CNN_TRY(cnn_check_float(I, I->dtype));
  if (I->args[2].kind != CNN_ABSENT && I->args[4].kind != CNN_ABSENT)
    return cnn_fail(
        I->ctx, CNN_INVALID,
        "unbiased and correction say the same: unbiased = true is correction = 1, false "
        "is 0; give one of them");
  return cnn_infer_reduced(I, I->dtype, &I->args[1], I->args[3].i != 0);
}

// dx = dy * 2 (x - mean) / (n - correction)
static void give_var(cnn_grad *g, cnn_arg dy) {
  cnn_frame *f = g->f;
  const cnn_arg *args = g->args;
  double correction = args[2].kind == CNN_INT ? (double)args[2].i : 1;
  if (args[4].kind != CNN_ABSENT) correction = cnn_arg_number(&args[4]);
  double n = cnn_reduced_count(g, &args[1]) - correction;
  cnn_arg x = CNN_A_T(cnn_in(g, 0));
  cnn_arg mean = CNN_A_T(cnn_do(f, mean, x, args[1], CNN_A_I(1)));
  cnn_arg scale = MUL(dy, C(2 / n));
  cnn_give(g, 0, MUL(SUB(x, mean), CNN_A_T(cnn_spread(g, scale.t, &args[1]))).t);
}

static void backward_var(cnn_grad *g) {
  give_var(g, CNN_A_T(g->dy[0]));
}

// The root's derivative, 0 where it is 0.
static void backward_std(cnn_grad *g) {
  cnn_frame *f = g->f;
  cnn_arg out = CNN_A_T(cnn_out(g, 0)), dy = CNN_A_T(g->dy[0]);
  give_var(g, SEL(EQ(out, C(0)), C(0), DIV(dy, MUL(C(2), out))));
}

const cnn_op cnn_op_var = {
    .name = "var",
    .args = "x:tensor dim:dims? unbiased:bool? keepdim:bool=false correction:number?",
    .doc = "Variance of all elements, or over the given dims: the sum of squared deviations from "
           "the mean, divided by n - correction. correction is 1; unbiased = false makes it 0.",
    .saves = "x",
    .infer = infer_var,
    .backward = backward_var,
};

const cnn_op cnn_op_std = {
    .name = "std",
    .args = "x:tensor dim:dims? unbiased:bool? keepdim:bool=false correction:number?",
    .doc =
        "Standard deviation: the square root of the variance (see var). Where it is 0, so is its "
        "gradient.",
    .saves = "x out",
    .infer = infer_var,
    .backward = backward_std,
};

static void var_mean(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_results_add(f, r, cnn_do(f, var, args[0], args[1], args[2], args[3], args[4]));
  cnn_results_add(f, r, cnn_do(f, mean, args[0], args[1], args[3]));
}

const cnn_op cnn_op_var_mean = {
    .name = "var_mean",
    .args = "x:tensor dim:dims? unbiased:bool? keepdim:bool=false correction:number?",
    .doc = "Variance (see var) and mean of all elements, or over the given dims.",
    .results = "var mean",
    .flags = CNN_OP_COMPOSITE,
    .composite = var_mean,
};

// ---------------------------------------------------------------------------------------------
// norm. args: x p dim keepdim

static cnn_status infer_norm(cnn_infer *I) {
  double p = cnn_arg_number(&I->args[1]);
  CNN_TRY(cnn_check_float(I, I->dtype));
  if (p != p) return cnn_fail(I->ctx, CNN_INVALID, "p is NaN");
  if (p < 0 || p == INFINITY) CNN_TRY(cnn_check_reduces(I, &I->args[2]));
  return cnn_infer_reduced(I, I->dtype, &I->args[2], I->args[3].i != 0);
}

// With y the norm: dy / y^(p-1) * |x|^(p-1) sign x, the subgradient 0 where y or x is 0.
static void backward_norm(cnn_grad *g) {
  cnn_frame *f = g->f;
  const cnn_arg *dim = &g->args[2];
  double p = cnn_arg_number(&g->args[1]);
  const cnn_form *form = cnn_in_form(g, 0);
  cnn_arg x = CNN_A_T(cnn_in(g, 0)), y = CNN_A_T(cnn_out(g, 0)), dy = CNN_A_T(g->dy[0]), dx;
  if (f->status != CNN_OK) return;
  if (p == 0) {
    dx = CNN_A_T(cnn_do(f, full, CNN_A_INTS(form->ndim, form->shape), CNN_A_I(0),
                        CNN_A_I(form->dtype), CNN_A_DEVICE(form->device)));
  } else if (p == 1) {
    dx = MUL(SIGN(x), CNN_A_T(cnn_spread(g, dy.t, dim)));
  } else if (p - p != 0) {
    dx = MUL(SIGN(x), CNN_A_T(cnn_share(g, ABS(x).t, y.t, dim)));
  } else {
    cnn_arg zero = EQ(y, C(0)), power = p == 2 ? y : POW(SEL(zero, C(1), y), C(p - 1));
    cnn_arg scale = SEL(zero, C(0), DIV(dy, power));
    if (p != 2) x = MUL(SIGN(x), POW(SEL(EQ(x, C(0)), C(1), ABS(x)), C(p - 1)));
    dx = MUL(x, CNN_A_T(cnn_spread(g, scale.t, dim)));
  }
  cnn_give(g, 0, dx.t);
}

const cnn_op cnn_op_norm = {
    .name = "norm",
    .args = "x:tensor p:number=2 dim:dims? keepdim:bool=false",
    .doc =
        "The p-norm (sum of |x|^p)^(1/p) of all elements, or over the given dims. p = math.huge: "
        "the largest |x|; -math.huge: the smallest; 0: the number of elements that are not 0. "
        "Where the norm is 0, so is its gradient.",
    .saves = "x out",
    .infer = infer_norm,
    .backward = backward_norm,
};

// ---------------------------------------------------------------------------------------------
// logsumexp. args: x dim keepdim

static cnn_status infer_logsumexp(cnn_infer *I) {
  CNN_TRY(cnn_check_float(I, I->dtype));
  return cnn_infer_reduced(I, I->dtype, &I->args[1], I->args[2].i != 0);
}

// dy * e^(x - y); where y is -inf there is nothing that could change it.
static void backward_logsumexp(cnn_grad *g) {
  cnn_frame *f = g->f;
  const cnn_arg *dim = &g->args[1];
  cnn_arg x = CNN_A_T(cnn_in(g, 0)), y = CNN_A_T(cnn_out(g, 0));
  y = SEL(EQ(y, C(-INFINITY)), C(0), y);
  cnn_arg dy = CNN_A_T(cnn_spread(g, g->dy[0], dim));
  cnn_give(g, 0, MUL(EXP(SUB(x, CNN_A_T(cnn_spread(g, y.t, dim)))), dy).t);
}

const cnn_op cnn_op_logsumexp = {
    .name = "logsumexp",
    .args = "x:tensor dim:dims? keepdim:bool=false",
    .doc = "log of the sum of e^x over all elements, or over the given dims, without overflow.",
    .saves = "x out",
    .infer = infer_logsumexp,
    .backward = backward_logsumexp,
};
