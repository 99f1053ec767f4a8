// SPDX-License-Identifier: MIT
// Softmax and its logarithm along one dim.
#include "ops/reduction.h"

#include "ops/expression.h"

// args: x dim dtype
static cnn_status infer_softmax(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  int d;
  bool given = I->args[2].kind != CNN_ABSENT;
  cnn_dtype dtype = given ? (cnn_dtype)I->args[2].i : I->dtype;
  if (given && !cnn_dtype_is_float(dtype))
    return cnn_fail(I->ctx, CNN_DTYPE, "dtype is %s: the result is a float", cnn_dtype_name(dtype));
  CNN_TRY(cnn_check_float(I, dtype));
  CNN_TRY(cnn_check_dim(I->ctx, "dim", I->args[1].i, x->ndim, &d));
  cnn_infer_out(I, dtype, x->ndim, x->shape);
  return CNN_OK;
}

static void backward_softmax(cnn_grad *g) {
  cnn_give(g, 0,
           cnn_do(g->f, softmax_backward, CNN_A_T(g->dy[0]), CNN_A_T(cnn_out(g, 0)), g->args[1]));
}

static void backward_log_softmax(cnn_grad *g) {
  cnn_give(g, 0,
           cnn_do(g->f, log_softmax_backward, CNN_A_T(g->dy[0]), CNN_A_T(cnn_out(g, 0)),
                  g->args[1]));
}

const cnn_op cnn_op_softmax = {
    .name = "softmax",
    .args = "x:tensor dim:dim dtype:dtype?",
    .doc = "e^x over its sum along a dim: positive numbers that sum to 1.",
    .saves = "out",
    .infer = infer_softmax,
    .backward = backward_softmax,
};

const cnn_op cnn_op_log_softmax = {
    .name = "log_softmax",
    .args = "x:tensor dim:dim dtype:dtype?",
    .doc =
        "Logarithm of the softmax along a dim, x - log(sum(e^x)), exact also where the softmax is "
        "close to 0.",
    .saves = "out",
    .infer = infer_softmax,
    .backward = backward_log_softmax,
};

// args: dy y dim
static cnn_status infer_backward(cnn_infer *I) {
  CNN_TRY(cnn_infer_need_float(I));
  cnn_infer_out(I, I->dtype, I->in[0]->ndim, I->in[0]->shape);
  return CNN_OK;
}

// y (dy - sum(dy y))
static void softmax_backward(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_arg dy = args[0], y = args[1];
  cnn_arg sum = CNN_A_T(cnn_do(f, sum, MUL(dy, y), args[2], CNN_A_I(1)));
  cnn_results_add(f, r, MUL(y, SUB(dy, sum)).t);
}

// dy - e^y sum(dy)
static void log_softmax_backward(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_arg dy = args[0], y = args[1];
  cnn_arg sum = CNN_A_T(cnn_do(f, sum, dy, args[2], CNN_A_I(1)));
  cnn_results_add(f, r, SUB(dy, MUL(EXP(y), sum)).t);
}

#define BACKWARD_OP(title)                                                                         \
  const cnn_op cnn_op_##title = {                                                                  \
      .name = #title,                                                                              \
      .args = "dy:tensor y:tensor dim:dim",                                                        \
      .doc = "Gradient of the op of that name from its result y.",                                 \
      .flags = CNN_OP_INTERNAL,                                                                    \
      .promote = CNN_PROMOTE_COMMON,                                                               \
      .infer = infer_backward,                                                                     \
      .composite = title,                                                                          \
  };
BACKWARD_OP(softmax_backward)
BACKWARD_OP(log_softmax_backward)

static void softmin(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_results_add(f, r, cnn_do(f, softmax, NEG(args[0]), args[1], args[2]));
}

const cnn_op cnn_op_softmin = {
    .name = "softmin",
    .args = "x:tensor dim:dim dtype:dtype?",
    .doc = "Softmax of -x along a dim.",
    .flags = CNN_OP_COMPOSITE,
    .composite = softmin,
};
