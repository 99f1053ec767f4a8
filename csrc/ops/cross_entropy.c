// SPDX-License-Identifier: MIT
// Cross entropy of logits, and the negative log likelihood of log-probabilities.
//
// Labels are 1-based, of any integer dtype, and checked. The fused ops keep of a row only its
// largest logit and the logarithm of the sum of e^(x - largest): two numbers, so that a
// probability is right however large the logits are. Their gradient makes the probabilities anew.
//
// The class dim is dim 1 of (N, C, ...), or dim 0 of (C).
#include "ops/expression.h"

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

static int class_dim(int ndim) {
  return ndim > 1 ? 1 : 0;
}

// The shape without the class dim.
static int row_shape(const cnn_tensor *x, int64_t *shape) {
  int n = 0;
  for (int d = 0; d < x->ndim; d++)
    if (d != class_dim(x->ndim)) shape[n++] = x->shape[d];
  return n;
}

static cnn_status check_weight(cnn_infer *I, const cnn_tensor *w, int64_t classes) {
  cnn_shape_text a;
  if (!w) return CNN_OK;
  if (w->ndim != 1 || w->shape[0] != classes)
    return cnn_fail(I->ctx, CNN_SHAPE, "weight has shape %s, but there are %lld classes",
                    cnn_shape_format(&a, w->ndim, w->shape), (long long)classes);
  if (!cnn_dtype_is_float((cnn_dtype)w->dtype))
    return cnn_fail(I->ctx, CNN_DTYPE, "weight is %s, not a float: use weight:float()",
                    cnn_dtype_name((cnn_dtype)w->dtype));
  if (!I->ctx->grad_enabled || !cnn_requires_grad(w)) return CNN_OK;
  return cnn_fail(I->ctx, CNN_UNSUPPORTED,
                  "weight requires a gradient, which is not written: detach() it");
}

// What input (N, C, ...), target (N, ...) and weight (C) must be.
static cnn_status check_labels(cnn_infer *I) {
  const cnn_tensor *x = I->in[0], *target = I->in[1];
  int64_t rows[CNN_MAX_DIMS];
  cnn_shape_text a, b, c;
  if (!cnn_dtype_is_float(I->dtype))
    return cnn_fail(I->ctx, CNN_DTYPE, "input is %s, not a float: use input:float()",
                    cnn_dtype_name(I->dtype));
  if (x->ndim == 0)
    return cnn_fail(I->ctx, CNN_SHAPE, "input is a scalar: expected (C), (N, C) or (N, C, ...)");
  if (cnn_dtype_category((cnn_dtype)target->dtype) != CNN_CAT_INT)
    return cnn_fail(I->ctx, CNN_DTYPE, "target is %s: labels are integers, use target:long()",
                    cnn_dtype_name((cnn_dtype)target->dtype));
  int n = row_shape(x, rows);
  if (!cnn_shape_equal(n, rows, target->ndim, target->shape))
    return cnn_fail(
        I->ctx, CNN_SHAPE,
        "input %s (classes in dim %d) needs labels of shape %s, but target has shape %s",
        cnn_shape_format(&a, x->ndim, x->shape), class_dim(x->ndim) + I->ctx->index_base,
        cnn_shape_format(&b, n, rows), cnn_shape_format(&c, target->ndim, target->shape));
  return check_weight(I, I->in[2], x->shape[class_dim(x->ndim)]);
}

static void add_loss(cnn_infer *I, const cnn_arg *reduction) {
  int64_t rows[CNN_MAX_DIMS];
  int n = row_shape(I->in[0], rows);
  cnn_infer_out(I, I->dtype, reduction->i == REDUCE_NONE ? n : 0, rows);
}

// What each row's gradient is a multiple of: dy, for a mean over the total weight. Absent where no
// gradient of the loss came.
static cnn_arg row_gradient(cnn_frame *f, cnn_arg dy, const cnn_arg *reduction, cnn_arg total,
                            int ndim) {
  if (reduction->i == REDUCE_MEAN) return DIV(dy, total);
  if (reduction->i == REDUCE_SUM) return dy;
  return CNN_A_T(cnn_do(f, unsqueeze, dy, CNN_A_I(class_dim(ndim))));
}

// ---------------------------------------------------------------------------------------------
// Cross entropy with labels

// args: input target weight ignore_index reduction label_smoothing
static cnn_status infer_cross_entropy(cnn_infer *I) {
  const cnn_arg *smoothing = &I->args[5];
  double eps = cnn_arg_number(smoothing);
  int64_t rows[CNN_MAX_DIMS];
  CNN_TRY(check_labels(I));
  if (!(eps >= 0 && eps <= 1))
    return cnn_fail(I->ctx, CNN_INVALID, "label_smoothing must be in [0, 1], not %g", eps);
  add_loss(I, &I->args[4]);
  int n = row_shape(I->in[0], rows);
  cnn_infer_out(I, cnn_dtype_computed(I->dtype), n, rows);
  cnn_infer_out(I, cnn_dtype_computed(I->dtype), n, rows);
  cnn_infer_out(I, cnn_dtype_computed(I->dtype), 0, NULL);
  return CNN_OK;
}

// p = e^((x - largest) - log_sum), where the two have the rows' shape. Gradients flow to x and to
// log_sum; `largest` counts as a constant, which its share of log_sum's gradient makes up for.
static cnn_arg probabilities(cnn_frame *f, cnn_arg x, cnn_arg largest, cnn_arg log_sum, int ndim) {
  cnn_arg d = CNN_A_I(class_dim(ndim));
  cnn_arg m = CNN_A_T(cnn_do(f, unsqueeze, largest, d));
  cnn_arg s = CNN_A_T(cnn_do(f, unsqueeze, log_sum, d));
  return EXP(SUB(SUB(x, m), s));
}

static void backward_cross_entropy(cnn_grad *g) {
  cnn_frame *f = g->f;
  int ndim = cnn_in_form(g, 0)->ndim;
  cnn_arg x = CNN_A_T(cnn_in(g, 0)), largest = CNN_A_T(cnn_out(g, 1));
  cnn_arg log_sum = CNN_A_T(cnn_out(g, 2)), dx = CNN_A_NONE;
  if (g->dy[0])
    dx = CNN_A_T(cnn_do(f, cross_entropy_backward, CNN_A_T(g->dy[0]), x, CNN_A_T(cnn_in(g, 1)),
                        CNN_A_T(cnn_in(g, 2)), largest, log_sum, CNN_A_T(cnn_out(g, 3)), g->args[3],
                        g->args[4], g->args[5]));
  // Only gradients of gradients come to log_sum: d log_sum / dx = p.
  if (g->dy[2]) {
    cnn_arg p = probabilities(f, x, largest, log_sum, ndim);
    cnn_arg d = CNN_A_T(cnn_do(f, unsqueeze, CNN_A_T(g->dy[2]), CNN_A_I(class_dim(ndim))));
    dx = cnn_has(&dx, 0) ? ADD(dx, MUL(d, p)) : MUL(d, p);
  }
  if (cnn_has(&dx, 0)) cnn_give(g, 0, dx.t);
}

const cnn_op cnn_op_cross_entropy_native = {
    .name = "cross_entropy_native",
    .args = "input:tensor target:other weight:other? ignore_index:label? "
            "reduction:none|mean|sum label_smoothing:number",
    .doc = "cross_entropy with labels. Of each row its largest logit and the logarithm of the sum "
           "of e^(x - largest); and the total weight of the rows, which is not 0 if all rows are "
           "ignored.",
    .results = "loss largest log_sum total",
    .saves = "input target weight largest log_sum total",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_cross_entropy,
    .backward = backward_cross_entropy,
};

static cnn_status infer_cross_entropy_backward(cnn_infer *I) {
  const cnn_tensor *x = I->in[1];
  CNN_TRY(cnn_infer_need_float(I));
  cnn_meta *dx = cnn_infer_out(I, I->dtype, x->ndim, x->shape);
  cnn_strides_like(x->ndim, x->shape, x->strides, dx->strides);
  return CNN_OK;
}

// With T the weights that the loss gives to each class of a row: dx = g (p sum(T) - T).
static void cross_entropy_backward(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[1].t;
  int d = class_dim(x->ndim);
  cnn_arg g = row_gradient(f, args[0], &args[8], args[6], x->ndim);
  cnn_arg p = probabilities(f, args[1], args[4], args[5], x->ndim);
  cnn_arg t = CNN_A_T(cnn_do(f, class_weights, args[2], args[3], args[7], args[9],
                             CNN_A_INTS(x->ndim, x->shape), CNN_A_I(x->dtype)));
  cnn_arg all = CNN_A_T(cnn_do(f, sum, t, CNN_A_I(d), CNN_A_I(1)));
  cnn_results_add(f, r, MUL(g, SUB(MUL(p, all), t)).t);
}

const cnn_op cnn_op_cross_entropy_backward = {
    .name = "cross_entropy_backward",
    .args = "dy:tensor input:tensor target:other weight:other? largest:other log_sum:other "
            "total:other ignore_index:label? reduction:none|mean|sum label_smoothing:number",
    .doc = "Gradient of cross_entropy for the input, from the loss's gradient dy.",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_cross_entropy_backward,
    .composite = cross_entropy_backward,
};

static cnn_status infer_class_weights(cnn_infer *I) {
  cnn_dtype dtype = (cnn_dtype)I->args[5].i;
  if (!cnn_dtype_is_float(dtype))
    return cnn_fail(I->ctx, CNN_DTYPE, "weights are floats, not %s", cnn_dtype_name(dtype));
  cnn_infer_out(I, dtype, I->args[4].n, I->args[4].ints);
  return CNN_OK;
}

const cnn_op cnn_op_class_weights = {
    .name = "class_weights",
    .args = "target:other weight:other? ignore_index:label? label_smoothing:number shape:shape "
            "dtype:dtype",
    .doc =
        "How much each class of each row counts in the cross entropy: its weight times 1 - "
        "label_smoothing (for the label) plus its weight times label_smoothing / C; 0 in ignored "
        "rows. `shape` is the input's.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_class_weights,
};

// ---------------------------------------------------------------------------------------------
// Cross entropy with class probabilities, in ops

static void reduce_rows(cnn_frame *f, cnn_arg loss, const cnn_arg *reduction, cnn_results *r) {
  if (!loss.t) return;
  double n = (double)cnn_numel(loss.t);
  if (reduction->i != REDUCE_NONE) loss = CNN_A_T(cnn_do(f, sum, loss));
  if (reduction->i == REDUCE_MEAN) loss = DIV(loss, C(n));
  cnn_results_add(f, r, loss.t);
}

static void with_probabilities(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t, *target = args[1].t;
  cnn_shape_text a, b;
  int d = class_dim(x->ndim);
  double eps = cnn_arg_number(&args[5]);
  if (!cnn_shape_equal(x->ndim, x->shape, target->ndim, target->shape))
    f->status = cnn_fail(f->ctx, CNN_SHAPE,
                         "target of %s is class probabilities, and has shape %s where input has "
                         "%s; labels are integers: target:long()",
                         cnn_dtype_name((cnn_dtype)target->dtype),
                         cnn_shape_format(&a, target->ndim, target->shape),
                         cnn_shape_format(&b, x->ndim, x->shape));
  else if (cnn_has(args, 3))
    f->status =
        cnn_fail(f->ctx, CNN_INVALID, "ignore_index is a label, but target is class probabilities");
  else if (!(eps >= 0 && eps <= 1))
    f->status = cnn_fail(f->ctx, CNN_INVALID, "label_smoothing must be in [0, 1], not %g", eps);
  else if (cnn_has(args, 2) && (args[2].t->ndim != 1 || args[2].t->shape[0] != x->shape[d]))
    f->status =
        cnn_fail(f->ctx, CNN_SHAPE, "weight has shape %s, but there are %lld classes",
                 cnn_shape_format(&a, args[2].t->ndim, args[2].t->shape), (long long)x->shape[d]);
  if (f->status != CNN_OK) return;
  cnn_arg t = args[1];
  if (eps > 0) t = ADD(MUL(t, C(1 - eps)), C(eps / (double)x->shape[d]));
  if (cnn_has(args, 2)) {
    int64_t shape[CNN_MAX_DIMS] = {x->shape[d], 1, 1, 1, 1, 1, 1, 1};
    t = MUL(t, CNN_A_T(cnn_do(f, reshape, args[2], CNN_A_INTS(x->ndim - d, shape))));
  }
  cnn_arg log_p = CNN_A_T(cnn_do(f, log_softmax, args[0], CNN_A_I(d)));
  reduce_rows(f, NEG(CNN_A_T(cnn_do(f, sum, MUL(t, log_p), CNN_A_I(d)))), &args[4], r);
}

static void cross_entropy(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  if (args[0].t->ndim > 0 && cnn_dtype_is_float((cnn_dtype)args[1].t->dtype))
    with_probabilities(f, args, r);
  else
    cnn_results_add(f, r,
                    cnn_do(f, cross_entropy_native, args[0], args[1], args[2], args[3], args[4],
                           args[5]));
}

const cnn_op cnn_op_cross_entropy = {
    .name = "cross_entropy",
    .args = "input:tensor target:other weight:other? ignore_index:label? "
            "reduction:none|mean|sum=mean label_smoothing:number=0",
    .doc =
        "-log(softmax(input)) at the target's class. input is (N, C), (N, C, d1, ...) or (C). "
        "target holds labels from 1 to C, of any integer dtype and input's shape without C; or "
        "class probabilities, floats of input's shape. weight (C) multiplies the loss of each "
        "class; rows with the label ignore_index count nothing. \"mean\" divides by the weights of "
        "the rows that count (by the number of rows, for probabilities), and is 0 if all are "
        "ignored. With label_smoothing e, the target is 1 - e parts itself and e parts uniform.",
    .flags = CNN_OP_COMPOSITE,
    .composite = cross_entropy,
};

// ---------------------------------------------------------------------------------------------
// Negative log likelihood

// args: input target weight ignore_index reduction
static cnn_status infer_nll(cnn_infer *I) {
  CNN_TRY(check_labels(I));
  add_loss(I, &I->args[4]);
  cnn_infer_out(I, cnn_dtype_computed(I->dtype), 0, NULL);
  return CNN_OK;
}

static void backward_nll(cnn_grad *g) {
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_give(g, 0,
           cnn_do(g->f, nll_loss_backward, CNN_A_T(cnn_dy(g, 0)), CNN_A_T(cnn_in(g, 1)),
                  CNN_A_T(cnn_in(g, 2)), CNN_A_T(cnn_out(g, 1)), CNN_A_INTS(x->ndim, x->shape),
                  g->args[3], g->args[4]));
}

const cnn_op cnn_op_nll_loss_native = {
    .name = "nll_loss_native",
    .args = "input:tensor target:other weight:other? ignore_index:label? reduction:none|mean|sum",
    .doc = "nll_loss, with the total weight of the rows, which is not 0 if all are ignored.",
    .results = "loss total",
    .saves = "target weight total",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_nll,
    .backward = backward_nll,
};

static cnn_status infer_nll_backward(cnn_infer *I) {
  CNN_TRY(cnn_infer_need_float(I));
  cnn_infer_out(I, I->dtype, I->args[4].n, I->args[4].ints);
  return CNN_OK;
}

// The loss is linear in its input, so this gradient is it once more.
static void backward_nll_backward(cnn_grad *g) {
  cnn_give(g, 0,
           cnn_do(g->f, nll_loss_native, CNN_A_T(g->dy[0]), CNN_A_T(cnn_in(g, 1)),
                  CNN_A_T(cnn_in(g, 2)), g->args[5], g->args[6]));
}

const cnn_op cnn_op_nll_loss_backward = {
    .name = "nll_loss_backward",
    .args = "dy:tensor target:other weight:other? total:other shape:shape ignore_index:label? "
            "reduction:none|mean|sum",
    .doc = "Gradient of nll_loss for the input, which has that shape.",
    .saves = "target weight",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_nll_backward,
    .backward = backward_nll_backward,
};

static void nll_loss(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_results_add(f, r, cnn_do(f, nll_loss_native, args[0], args[1], args[2], args[3], args[4]));
}

const cnn_op cnn_op_nll_loss = {
    .name = "nll_loss",
    .args = "input:tensor target:other weight:other? ignore_index:label? "
            "reduction:none|mean|sum=mean",
    .doc = "-input at the target's class: the negative log likelihood, where input holds "
           "logarithms of probabilities (log_softmax). Arguments as in cross_entropy.",
    .flags = CNN_OP_COMPOSITE,
    .composite = nll_loss,
};
