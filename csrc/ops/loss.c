// SPDX-License-Identifier: MIT
// Losses that compare an input with a target element by element (rows of loss.def). A row makes two
// ops: `name`, fused with its reduction, and the internal `name_backward`, whose composite is the
// same formula in ops.
#include "ops/expression.h"

#include <inttypes.h>

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

// A loss of shapes that only broadcast is nearly always a mistake: (N, 1) beside (N) would compare
// every element with every other.
static cnn_status check_shapes(cnn_context *ctx, const cnn_tensor *x, const cnn_tensor *y) {
  cnn_shape_text a, b, c;
  if (cnn_shape_equal(x->ndim, x->shape, y->ndim, y->shape)) return CNN_OK;
  if (cnn_numel(x) == cnn_numel(y))
    return cnn_fail(ctx, CNN_SHAPE,
                    "input has shape %s but target has %s, and they are compared element by "
                    "element: reshape one, e.g. target:reshape%s",
                    cnn_shape_format(&a, x->ndim, x->shape),
                    cnn_shape_format(&b, y->ndim, y->shape),
                    cnn_shape_format(&c, x->ndim, x->shape));
  return cnn_fail(ctx, CNN_SHAPE,
                  "input has shape %s but target has %s: they must be equal (expand_as makes a "
                  "broadcast that is meant)",
                  cnn_shape_format(&a, x->ndim, x->shape), cnn_shape_format(&b, y->ndim, y->shape));
}

// The third tensor broadcasts to the input, not beyond it.
static cnn_status check_broadcasts(cnn_context *ctx, const char *name, const cnn_tensor *x,
                                   const cnn_tensor *w) {
  cnn_shape_text a, b;
  int64_t shape[CNN_MAX_DIMS];
  int n;
  if (cnn_shape_broadcast(x->ndim, x->shape, w->ndim, w->shape, &n, shape) &&
      cnn_shape_equal(x->ndim, x->shape, n, shape))
    return CNN_OK;
  return cnn_fail(ctx, CNN_SHAPE, "%s of shape %s does not broadcast to the input's shape %s", name,
                  cnn_shape_format(&a, w->ndim, w->shape), cnn_shape_format(&b, x->ndim, x->shape));
}

// beta and delta are widths: smooth_l1_loss is l1_loss at 0, huber_loss would be nothing.
static cnn_status check_width(cnn_infer *I, int at) {
  if (at >= I->n_args) return CNN_OK;
  double width = cnn_arg_number(&I->args[at]);
  bool zero = I->op != &cnn_op_huber_loss;
  if (width > 0 || (zero && width == 0)) return CNN_OK;
  return cnn_fail(I->ctx, CNN_INVALID, "%s must be %s 0, not %g", zero ? "beta" : "delta",
                  zero ? ">=" : ">", width);
}

static int choose_smooth_l1(const cnn_arg *args, int n) {
  return n > 3 && cnn_has(args, 3) && cnn_arg_number(&args[3]) == 0 ? OP_l1_loss : -1;
}

// The arguments: input, target, a third tensor for some, reduction, numbers.
static cnn_status infer(cnn_infer *I, bool has_third) {
  CNN_TRY(check_shapes(I->ctx, I->in[0], I->in[1]));
  CNN_TRY(check_width(I, has_third ? 4 : 3));
  if (has_third && I->in[2]) {
    CNN_TRY(check_broadcasts(I->ctx, "pos_weight", I->in[0], I->in[2]));
    if (I->ctx->grad_enabled && cnn_requires_grad(I->in[2]))
      return cnn_fail(I->ctx, CNN_UNSUPPORTED,
                      "pos_weight requires a gradient, which is not written: detach() it");
  }
  if (I->args[has_third ? 3 : 2].i == REDUCE_NONE) return cnn_infer_broadcast(I, I->dtype);
  cnn_infer_out(I, I->dtype, 0, NULL);
  return CNN_OK;
}

// The gradient of the input or target: `side` is the last argument.
static cnn_status infer_backward(cnn_infer *I) {
  const cnn_tensor *x = I->in[1];
  CNN_TRY(cnn_infer_need_float(I));
  cnn_meta *dx = cnn_infer_out(I, I->dtype, x->ndim, x->shape);
  cnn_strides_like(x->ndim, x->shape, x->strides, dx->strides);
  return CNN_OK;
}

static void backward(cnn_grad *g, int op, bool has_third) {
  cnn_arg args[CNN_MAX_ARGS];
  int n = 0, tensors = has_third ? 3 : 2;
  args[n++] = CNN_A_T(g->dy[0]);
  for (int i = 0; i < tensors; i++) args[n++] = CNN_A_T(cnn_in(g, i));
  for (int i = tensors; i < cnn_op_params(g); i++) args[n++] = g->args[i];
  for (int side = 0; side < 2; side++) {
    if (!cnn_needs(g, side)) continue;
    args[n] = CNN_A_I(side);
    cnn_give(g, side, cnn_frame_do(g->f, op, args, n + 1));
  }
}

// What the gradient of every element begins with: dy, divided by their number under "mean".
static cnn_arg element_gradient(cnn_frame *f, const cnn_arg *args, const cnn_arg *reduction) {
  if (reduction->i != REDUCE_MEAN) return args[0];
  return DIV(args[0], C((double)cnn_numel(args[1].t)));
}

#define SPEC_NONE        ""
#define SPEC_POS_WEIGHT  " pos_weight:tensor?"
#define SAVES_NONE       "input target"
#define SAVES_POS_WEIGHT "input target pos_weight"
enum { THIRD_NONE, THIRD_POS_WEIGHT };

#define X    args[1]
#define Y    args[2]
#define W    (cnn_has(args, 3) ? args[3] : C(1))
#define P(i) args[4 + THIRD + (i)]
#define G    g

#define LOSS(title, more_flags, third, domain, params, forward, dx, dy, ...)                       \
  static cnn_status infer_##title(cnn_infer *I) {                                                  \
    return infer(I, THIRD_##third);                                                                \
  }                                                                                                \
  static void backward_##title(cnn_grad *grad) {                                                   \
    backward(grad, OP_##title##_backward, THIRD_##third);                                          \
  }                                                                                                \
  static void composite_##title(cnn_frame *f, const cnn_arg *args, cnn_results *r) {               \
    enum { THIRD = THIRD_##third, PARAMS = sizeof params > 1 };                                    \
    cnn_arg g = element_gradient(f, args, &args[3 + THIRD]);                                       \
    cnn_arg d = args[4 + THIRD + PARAMS].i == 0 ? dx : dy;                                         \
    cnn_results_add(f, r, d.t);                                                                    \
  }                                                                                                \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = "input:tensor target:tensor" SPEC_##third                 \
                                 " reduction:none|mean|sum=mean" params,                           \
                                 .saves = SAVES_##third,                                           \
                                 .flags = more_flags,                                              \
                                 .promote = CNN_PROMOTE_FLOAT,                                     \
                                 .infer = infer_##title,                                           \
                                 .backward = backward_##title,                                     \
                                 .doc = __VA_ARGS__};                                              \
  const cnn_op cnn_op_##title##_backward = {                                                       \
      .name = #title "_backward",                                                                  \
      .args = "dy:tensor input:tensor target:tensor" SPEC_##third                                  \
      " reduction:none|mean|sum" params " side:int",                                               \
      .doc = "Gradient of " #title " for the input (side 0) or the target (side 1).",              \
      .flags = CNN_OP_INTERNAL,                                                                    \
      .promote = CNN_PROMOTE_COMMON,                                                               \
      .infer = infer_backward,                                                                     \
      .composite = composite_##title};
#include "ops/loss.def"
#undef LOSS

// ---------------------------------------------------------------------------------------------
// Binary cross entropy: with weights, each element's loss times its weight, in ops

static void reduce(cnn_frame *f, cnn_tensor *loss, const cnn_arg *reduction, cnn_results *r) {
  if (!loss) return;
  if (reduction->i != REDUCE_NONE) {
    double n = (double)cnn_numel(loss);
    loss = cnn_do(f, sum, CNN_A_T(loss));
    if (reduction->i == REDUCE_MEAN) loss = cnn_do(f, div, CNN_A_T(loss), CNN_A_N(n));
  }
  cnn_results_add(f, r, loss);
}

static cnn_arg loss_reduction(const cnn_arg *weight, cnn_arg reduction) {
  return weight->kind == CNN_TENSOR ? CNN_A_I(REDUCE_NONE) : reduction;
}

static void weigh(cnn_frame *f, const cnn_arg *args, cnn_tensor *loss, cnn_results *r) {
  if (cnn_has(args, 2)) {
    if (f->status == CNN_OK) f->status = check_broadcasts(f->ctx, "weight", args[0].t, args[2].t);
    loss = cnn_do(f, mul, CNN_A_T(loss), args[2]);
    reduce(f, loss, &args[3], r);
  } else {
    cnn_results_add(f, r, loss);
  }
}

static void binary_cross_entropy(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  weigh(f, args, cnn_do(f, bce_native, args[0], args[1], loss_reduction(&args[2], args[3])), r);
}

const cnn_op cnn_op_binary_cross_entropy = {
    .name = "binary_cross_entropy",
    .args = "input:tensor target:tensor weight:tensor? reduction:none|mean|sum=mean",
    .doc = "-weight (target log(input) + (1 - target) log(1 - input)) for probabilities in [0, 1]. "
           "Logarithms are at least -100. Shapes are equal, weight broadcasts to them; the result "
           "is the mean, the sum, or each element's loss.",
    .flags = CNN_OP_COMPOSITE,
    .promote = CNN_PROMOTE_FLOAT,
    .composite = binary_cross_entropy,
};

static void bce_logits(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  weigh(f, args,
        cnn_do(f, bce_logits_native, args[0], args[1], args[4], loss_reduction(&args[2], args[3])),
        r);
}

const cnn_op cnn_op_binary_cross_entropy_with_logits = {
    .name = "binary_cross_entropy_with_logits",
    .args = "input:tensor target:tensor weight:tensor? reduction:none|mean|sum=mean "
            "pos_weight:tensor?",
    .doc = "binary_cross_entropy of sigmoid(input), right for logits of any size; the term of "
           "target is multiplied by pos_weight, which broadcasts to the input.",
    .flags = CNN_OP_COMPOSITE,
    .promote = CNN_PROMOTE_FLOAT,
    .composite = bce_logits,
};
