// SPDX-License-Identifier: MIT
// Descriptors of the elementwise functions of one tensor (rows of unary.def).
//
// A row makes two ops: `name`, and the internal `name_backward(dy, v)`, the fused derivative. The
// latter's composite is the same formula in ops, so every row can be differentiated any number of
// times.
#include "ops/expression.h"

#include <math.h>

#define PROMOTE_FLOAT CNN_PROMOTE_FLOAT
#define PROMOTE_REAL  CNN_PROMOTE_COMMON

// Which tensor the derivative reads.
enum { SAVED_NONE, SAVED_X, SAVED_OUT };
#define SAVES_NONE NULL
#define SAVES_X    "x"
#define SAVES_OUT  "out"

static cnn_status infer_unary(cnn_infer *I) {
  if (I->dtype == CNN_BOOL)
    return cnn_fail(I->ctx, CNN_DTYPE, "x is bool: convert it first, e.g. x:to(\"int64\")");
  if (!cnn_dtype_is_float(I->dtype)) {
    for (int i = 1; i < I->n_args; i++) {
      double v = I->args[i].d;
      if (I->args[i].kind == CNN_NUMBER && v == v && v - v == 0 && v != rint(v))
        return cnn_fail(I->ctx, CNN_DTYPE,
                        "x is %s but argument %d is %g: convert x first, e.g. x:float()",
                        cnn_dtype_name(I->dtype), i + 1, v);
    }
  }
  return cnn_infer_broadcast(I, I->dtype);
}

static cnn_status infer_predicate(cnn_infer *I) {
  return cnn_infer_broadcast(I, CNN_BOOL);
}

static cnn_status infer_backward(cnn_infer *I) {
  CNN_TRY(cnn_infer_need_float(I));
  return cnn_infer_broadcast(I, I->dtype);
}

// dx = name_backward(dy, v, params ...)
static void backward_row(cnn_grad *g, int op, int saved) {
  cnn_arg args[CNN_MAX_ARGS];
  cnn_tensor *v = saved == SAVED_X ? cnn_in(g, 0) : saved == SAVED_OUT ? cnn_out(g, 0) : g->dy[0];
  if (!v) return;
  args[0] = CNN_A_T(g->dy[0]);
  args[1] = CNN_A_T(v);
  int n = cnn_op_params(g) - 1;
  g->f->spent = g->dy[0];
  for (int i = 0; i < n; i++) args[2 + i] = g->args[1 + i];
  cnn_give(g, 0, cnn_frame_do(g->f, op, args, 2 + n));
}

#define G    args[0]
#define V    args[1]
#define P(i) args[2 + i]

#define UNARY(title, kind, params, forward, saved, derivative, text)                               \
  static void backward_##title(cnn_grad *g) {                                                      \
    backward_row(g, OP_##title##_backward, SAVED_##saved);                                         \
  }                                                                                                \
  static void composite_##title(cnn_frame *f, const cnn_arg *args, cnn_results *r) {               \
    cnn_arg dx = derivative;                                                                       \
    if (f->status == CNN_OK) cnn_results_add(f, r, dx.t);                                          \
  }                                                                                                \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = "x:tensor" params,                                        \
                                 .doc = text,                                                      \
                                 .saves = SAVES_##saved,                                           \
                                 .flags = CNN_OP_IN_PLACE,                                         \
                                 .promote = PROMOTE_##kind,                                        \
                                 .infer = infer_unary,                                             \
                                 .backward = backward_##title};                                    \
  const cnn_op cnn_op_##title##_backward = {                                                       \
      .name = #title "_backward",                                                                  \
      .args = "dy:tensor v:tensor" params,                                                         \
      .doc = "Gradient of " #title " from the result's gradient and the saved " #saved ".",        \
      .flags = CNN_OP_INTERNAL | CNN_OP_IN_PLACE,                                                  \
      .promote = CNN_PROMOTE_COMMON,                                                               \
      .infer = infer_backward,                                                                     \
      .composite = composite_##title};
#define PREDICATE(title, forward, text)                                                            \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = "x:tensor",                                               \
                                 .doc = text,                                                      \
                                 .flags = CNN_OP_NO_GRAD,                                          \
                                 .promote = CNN_PROMOTE_COMMON,                                    \
                                 .infer = infer_predicate};
#include "ops/unary.def"
#undef UNARY
#undef PREDICATE

const cnn_op cnn_op_trigamma = {
    .name = "trigamma",
    .args = "x:tensor",
    .doc = "Derivative of digamma.",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_FLOAT,
    .infer = infer_unary,
};

static int choose_gelu(const cnn_arg *args, int n) {
  return n > 1 && args[1].kind == CNN_INT && args[1].i == 1 ? OP_gelu_tanh : OP_gelu_erf;
}

const cnn_op cnn_op_gelu = {
    .name = "gelu",
    .args = "x:tensor approximate:none|tanh=none",
    .doc = "Gaussian error linear unit x * Phi(x), Phi the normal distribution function; with "
           "approximate = \"tanh\", its tanh approximation.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_IN_PLACE,
    .promote = CNN_PROMOTE_FLOAT,
    .choose = choose_gelu,
};

static bool is_tensor(const cnn_arg *args, int n, int i) {
  return i < n && args[i].kind == CNN_TENSOR;
}

static int choose_clamp(const cnn_arg *args, int n) {
  return is_tensor(args, n, 1) || is_tensor(args, n, 2) ? -1 : OP_clamp_scalar;
}

// With tensors for bounds; numbers among them are bounds of clamp_scalar, which an integer dtype
// need not hold. At a bound the gradient goes to x.
static void clamp(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_arg x = args[0], low = args[1], high = args[2], none = C(INFINITY);
  if (low.kind == CNN_TENSOR)
    x = SEL(LT(x, low), low, x);
  else if (low.kind != CNN_ABSENT)
    x = CNN_A_T(cnn_do(f, clamp_scalar, x, low, none));
  if (high.kind == CNN_TENSOR)
    x = SEL(GT(x, high), high, x);
  else if (high.kind != CNN_ABSENT)
    x = CNN_A_T(cnn_do(f, clamp_scalar, x, C(-INFINITY), high));
  cnn_results_add(f, r, x.t);
}

const cnn_op cnn_op_clamp = {
    .name = "clamp",
    .args = "x:tensor min:operand? max:operand?",
    .doc = "x clamped to [min, max]: numbers, or tensors that broadcast with x. NaN stays NaN.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_IN_PLACE,
    .promote = CNN_PROMOTE_COMMON,
    .choose = choose_clamp,
    .composite = clamp,
};

static cnn_status infer_has_nan(cnn_infer *I) {
  CNN_TRY(cnn_infer_need_float(I));
  cnn_infer_out(I, CNN_BOOL, 0, NULL);
  return CNN_OK;
}

const cnn_op cnn_op_has_nan = {
    .name = "has_nan",
    .args = "x:tensor",
    .doc = "Whether any element is NaN.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_has_nan,
};
