// SPDX-License-Identifier: MIT
// Descriptors of the elementwise functions of two and three operands (rows of binary.def). Their
// derivatives run as ops; gradients of operands that were broadcast are summed by cnn_give.
#include "ops/expression.h"

static cnn_status refuse_bool(cnn_infer *I) {
  if (I->dtype != CNN_BOOL) return CNN_OK;
  return cnn_fail(I->ctx, CNN_DTYPE,
                  "the operands are bool: convert one first, e.g. x:to(\"int64\"), or use "
                  "logical_and, logical_or, logical_xor");
}

static cnn_status infer_any(cnn_infer *I) {
  return cnn_infer_broadcast(I, I->dtype);
}

static cnn_status infer_real(cnn_infer *I) {
  CNN_TRY(refuse_bool(I));
  return cnn_infer_broadcast(I, I->dtype);
}

static cnn_status infer_bits(cnn_infer *I) {
  if (cnn_dtype_is_float(I->dtype))
    return cnn_fail(I->ctx, CNN_DTYPE, "the operands are %s: only integers and bools have bits",
                    cnn_dtype_name(I->dtype));
  return cnn_infer_broadcast(I, I->dtype);
}

static cnn_status infer_compare(cnn_infer *I) {
  return cnn_infer_broadcast(I, CNN_BOOL);
}

#define INFER_FLOAT  infer_any
#define INFER_REAL   infer_real
#define INFER_ANY    infer_any
#define INFER_BITS   infer_bits
#define INFER_MASKED infer_any
#define INFER_FILLED infer_any

#define PROMOTE_FLOAT  CNN_PROMOTE_FLOAT
#define PROMOTE_REAL   CNN_PROMOTE_COMMON
#define PROMOTE_ANY    CNN_PROMOTE_COMMON
#define PROMOTE_BITS   CNN_PROMOTE_COMMON
#define PROMOTE_MASKED CNN_PROMOTE_COMMON
#define PROMOTE_FILLED CNN_PROMOTE_COMMON

static int choose_div(const cnn_arg *args, int n) {
  if (n < 3 || args[2].kind != CNN_INT || args[2].i == 0) return -1;
  return args[2].i == 1 ? OP_floor_divide : OP_trunc_divide;
}

// Operand i as a word of a formula: the saved tensor, or the number that it was.
static cnn_arg operand(cnn_grad *g, int i) {
  return g->args[i].kind == CNN_TENSOR ? CNN_A_T(cnn_in(g, i)) : g->args[i];
}

static void give(cnn_grad *g, int i, cnn_arg dx) {
  if (dx.kind == CNN_TENSOR) cnn_give(g, i, dx.t);
}

#define NONE CNN_A_NONE
#define G    CNN_A_T(g->dy[0])
#define X    operand(g, 0)
#define Y    operand(g, 1)
#define Z    operand(g, 2)
#define OUT  CNN_A_T(cnn_out(g, 0))
// The parameters follow the operands.
#define P(i) g->args[2 + i]

#define BINARY(title, kind, params, forward, saved, dx, dy, ...)                                   \
  static void backward_##title(cnn_grad *g) {                                                      \
    cnn_frame *f = g->f;                                                                           \
    (void)f;                                                                                       \
    if (cnn_needs(g, 0)) give(g, 0, dx);                                                           \
    if (cnn_needs(g, 1)) give(g, 1, dy);                                                           \
  }                                                                                                \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = "x:operand y:operand" params,                             \
                                 .saves = saved,                                                   \
                                 .flags = CNN_OP_IN_PLACE,                                         \
                                 .promote = PROMOTE_##kind,                                        \
                                 .infer = INFER_##kind,                                            \
                                 .backward = backward_##title,                                     \
                                 .doc = __VA_ARGS__};
#define COMPARE(title, forward, text)                                                              \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = "x:operand y:operand",                                    \
                                 .doc = text,                                                      \
                                 .flags = CNN_OP_IN_PLACE | CNN_OP_NO_GRAD,                        \
                                 .promote = CNN_PROMOTE_COMMON,                                    \
                                 .infer = infer_compare};
#define TERNARY(title, kind, arguments, params, forward, saved, dx, dy, dz, text)
#include "ops/binary.def"
#undef BINARY
#undef COMPARE
#undef TERNARY

#undef P
#define P(i) g->args[3 + i]

#define BINARY(...)
#define COMPARE(...)
#define TERNARY(title, kind, arguments, params, forward, saved, dx, dy, dz, text)                  \
  static void backward_##title(cnn_grad *g) {                                                      \
    cnn_frame *f = g->f;                                                                           \
    if (cnn_needs(g, 0)) give(g, 0, dx);                                                           \
    if (cnn_needs(g, 1)) give(g, 1, dy);                                                           \
    if (cnn_needs(g, 2)) give(g, 2, dz);                                                           \
  }                                                                                                \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = arguments params,                                         \
                                 .doc = text,                                                      \
                                 .saves = saved,                                                   \
                                 .flags = IN_PLACE_##kind,                                         \
                                 .promote = PROMOTE_##kind,                                        \
                                 .infer = INFER_##kind,                                            \
                                 .backward = backward_##title};
// where's first argument is a mask: there is nothing to change in place.
#define IN_PLACE_MASKED 0
#define IN_PLACE_FILLED CNN_OP_IN_PLACE
#define IN_PLACE_FLOAT  CNN_OP_IN_PLACE
#define IN_PLACE_REAL   CNN_OP_IN_PLACE
#include "ops/binary.def"
