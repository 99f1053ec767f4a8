// SPDX-License-Identifier: MIT
// New tensors: of one value, of numbers in a row, and like another.
#include "ops/create.h"

#include <inttypes.h>
#include <math.h>

cnn_dtype cnn_dtype_arg(const cnn_infer *I, int i, cnn_dtype otherwise) {
  return I->args[i].kind == CNN_INT ? (cnn_dtype)I->args[i].i : otherwise;
}

cnn_status cnn_infer_create(cnn_infer *I, const cnn_arg *shape, int dtype, cnn_dtype otherwise) {
  const cnn_arg *device = &I->args[dtype + 1], *grad = &I->args[dtype + 2];
  cnn_dtype t = cnn_dtype_arg(I, dtype, otherwise);
  cnn_shape_text a;
  for (int d = 0; d < shape->n; d++)
    if (shape->ints[d] < 0)
      return cnn_fail(I->ctx, CNN_SHAPE, "shape %s: sizes must be >= 0",
                      cnn_shape_format(&a, shape->n, shape->ints));
  if (grad->i && !cnn_dtype_is_float(t))
    return cnn_fail(I->ctx, CNN_DTYPE, "%s tensors can't require a gradient: only floats can",
                    cnn_dtype_name(t));
  I->device = device->kind == CNN_INT ? cnn_device_decode(device->i) : I->ctx->default_device;
  cnn_infer_out(I, t, shape->n, shape->ints);
  return CNN_OK;
}

cnn_status cnn_infer_like(cnn_infer *I, int dtype) {
  const cnn_tensor *x = I->in[0];
  const cnn_arg *device = &I->args[dtype + 1], *grad = &I->args[dtype + 2];
  cnn_dtype t = cnn_dtype_arg(I, dtype, (cnn_dtype)x->dtype);
  if (grad->i && !cnn_dtype_is_float(t))
    return cnn_fail(I->ctx, CNN_DTYPE, "%s tensors can't require a gradient: only floats can",
                    cnn_dtype_name(t));
  if (device->kind == CNN_INT) I->device = cnn_device_decode(device->i);
  cnn_meta *out = cnn_infer_out(I, t, x->ndim, x->shape);
  cnn_strides_like(out->ndim, out->shape, x->strides, out->strides);
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// One value

// A boolean value makes a bool tensor.
static cnn_dtype dtype_of_value(const cnn_context *ctx, const cnn_arg *value) {
  return value->kind == CNN_INT && value->n == 1 ? CNN_BOOL : ctx->default_dtype;
}

static cnn_status check_value(cnn_infer *I, cnn_dtype t) {
  const cnn_arg *value = &I->args[1];
  if (value->kind == CNN_NUMBER && !cnn_dtype_holds(t, value->d))
    return cnn_fail(I->ctx, CNN_INVALID, "value %.14g does not fit %s", value->d,
                    cnn_dtype_name(t));
  if (value->kind == CNN_INT && !cnn_dtype_holds_int(t, value->i))
    return cnn_fail(I->ctx, CNN_INVALID, "value %" PRId64 " does not fit %s", value->i,
                    cnn_dtype_name(t));
  return CNN_OK;
}

static cnn_status infer_full(cnn_infer *I) {
  CNN_TRY(cnn_infer_create(I, &I->args[0], 2, dtype_of_value(I->ctx, &I->args[1])));
  return check_value(I, I->out[0].dtype);
}
const cnn_op cnn_op_full = {
    .name = "full",
    .args = "shape:shape value:value " CNN_CREATE_ARGS,
    .doc = "A tensor of that shape with every element `value`. A boolean gives a bool tensor.",
    .flags = CNN_OP_FUNCTION,
    .infer = infer_full,
};

static cnn_status infer_shape(cnn_infer *I) {
  return cnn_infer_create(I, &I->args[0], 1, I->ctx->default_dtype);
}
const cnn_op cnn_op_zeros = {
    .name = "zeros",
    .args = "shape:shape* " CNN_CREATE_ARGS,
    .doc = "A tensor of that shape, all 0.",
    .flags = CNN_OP_FUNCTION,
    .infer = infer_shape,
};
const cnn_op cnn_op_ones = {
    .name = "ones",
    .args = "shape:shape* " CNN_CREATE_ARGS,
    .doc = "A tensor of that shape, all 1.",
    .flags = CNN_OP_FUNCTION,
    .infer = infer_shape,
};

static cnn_status infer_empty(cnn_infer *I) {
  CNN_TRY(infer_shape(I));
  return I->args[4].i == 1 ? cnn_infer_channels_last(I->ctx, &I->out[0]) : CNN_OK;
}
const cnn_op cnn_op_empty = {
    .name = "empty",
    .args = "shape:shape* " CNN_CREATE_ARGS " memory_format:contiguous|channels_last=contiguous",
    .doc = "A tensor of that shape whose elements are not set.",
    .flags = CNN_OP_FUNCTION,
    .infer = infer_empty,
};

static cnn_status infer_like(cnn_infer *I) {
  return cnn_infer_like(I, 1);
}
#define LIKE_OP(title, text)                                                                       \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = "x:other " CNN_CREATE_ARGS,                               \
                                 .doc = text,                                                      \
                                 .flags = CNN_OP_FUNCTION | CNN_OP_NO_GRAD,                        \
                                 .infer = infer_like};
LIKE_OP(zeros_like, "A tensor of x's shape, dtype, device and stride order, all 0.")
LIKE_OP(ones_like, "A tensor of x's shape, dtype, device and stride order, all 1.")
LIKE_OP(empty_like,
        "A tensor of x's shape, dtype, device and stride order whose elements are not set.")

static cnn_status infer_full_like(cnn_infer *I) {
  CNN_TRY(cnn_infer_like(I, 2));
  return check_value(I, I->out[0].dtype);
}
const cnn_op cnn_op_full_like = {
    .name = "full_like",
    .args = "x:other value:value " CNN_CREATE_ARGS,
    .doc = "A tensor of x's shape, dtype, device and stride order with every element `value`.",
    .flags = CNN_OP_FUNCTION | CNN_OP_NO_GRAD,
    .infer = infer_full_like,
};

static cnn_status infer_self(cnn_infer *I) {
  (void)I;
  return CNN_OK;
}
static cnn_status infer_fill(cnn_infer *I) {
  return check_value(I, (cnn_dtype)I->in[0]->dtype);
}
// What was there before has no influence on what is there now.
static void backward_fill(cnn_grad *g) {
  (void)g;
}
const cnn_op cnn_op_fill_ = {
    .name = "fill_",
    .args = "x:tensor! value:value",
    .doc = "Sets every element of x to `value`.",
    .flags = CNN_OP_SELF,
    .infer = infer_fill,
    .backward = backward_fill,
};
const cnn_op cnn_op_zero_ = {
    .name = "zero_",
    .args = "x:tensor!",
    .doc = "Sets every element of x to 0.",
    .flags = CNN_OP_SELF,
    .infer = infer_self,
    .backward = backward_fill,
};

// ---------------------------------------------------------------------------------------------
// Numbers in a row

static cnn_status infer_arange(cnn_infer *I) {
  // arange(n) is arange(0, n).
  bool one = !cnn_has(I->args, 1);
  cnn_arg start = one || !cnn_has(I->args, 0) ? CNN_A_I(0) : I->args[0];
  cnn_arg stop = I->args[one ? 0 : 1], step = I->args[2];
  if (stop.kind == CNN_ABSENT)
    return cnn_fail(I->ctx, CNN_INVALID, "argument 2 (stop) is missing: expected a number");
  double from = cnn_arg_number(&start), to = cnn_arg_number(&stop), by = cnn_arg_number(&step);
  if (!(isfinite(from) && isfinite(to) && isfinite(by)))
    return cnn_fail(I->ctx, CNN_INVALID, "start, stop and step must be finite");
  if (by == 0) return cnn_fail(I->ctx, CNN_INVALID, "step must not be 0");
  double count = ceil((to - from) / by);
  if (start.kind == CNN_INT && stop.kind == CNN_INT && step.kind == CNN_INT) {
    // Exactly, where doubles might round.
    __extension__ typedef __int128 wide;
    wide span = (wide)stop.i - start.i,
         n = step.i > 0 ? (span + step.i - 1) / step.i : (span + step.i + 1) / step.i;
    count = (double)n;
  }
  if (count < 0) count = 0;
  if (count >= 0x1p62)
    return cnn_fail(I->ctx, CNN_SHAPE, "the range would have %g elements", count);
  int64_t n = (int64_t)count;
  return cnn_infer_create(I, &CNN_A_INTS(1, &n), 3, I->ctx->default_dtype);
}
const cnn_op cnn_op_arange = {
    .name = "arange",
    .args = "start:number? stop:number? step:number=1 " CNN_CREATE_ARGS,
    .doc = "The numbers from start to stop, step apart, stop excluded: ceil((stop - start) / step) "
           "of them. arange(n) counts from 0 to n - 1. The default float dtype, unless a dtype is "
           "given.",
    .flags = CNN_OP_FUNCTION,
    .infer = infer_arange,
};

static cnn_status infer_steps(cnn_infer *I, int dtype) {
  int64_t n = I->args[2].i;
  if (n < 0) return cnn_fail(I->ctx, CNN_INVALID, "steps must be >= 0, not %" PRId64, n);
  return cnn_infer_create(I, &CNN_A_INTS(1, &n), dtype, I->ctx->default_dtype);
}
static cnn_status infer_linspace(cnn_infer *I) {
  return infer_steps(I, 3);
}
const cnn_op cnn_op_linspace = {
    .name = "linspace",
    .args = "start:number stop:number steps:int " CNN_CREATE_ARGS,
    .doc = "`steps` numbers, evenly spaced from start to stop, both included.",
    .flags = CNN_OP_FUNCTION,
    .infer = infer_linspace,
};

static cnn_status infer_logspace(cnn_infer *I) {
  return infer_steps(I, 4);
}
const cnn_op cnn_op_logspace = {
    .name = "logspace",
    .args = "start:number stop:number steps:int base:number=10 " CNN_CREATE_ARGS,
    .doc = "`steps` powers of base, with exponents evenly spaced from start to stop.",
    .flags = CNN_OP_FUNCTION,
    .infer = infer_logspace,
};

static cnn_status infer_eye(cnn_infer *I) {
  int64_t shape[] = {I->args[0].i, cnn_has(I->args, 1) ? I->args[1].i : I->args[0].i};
  return cnn_infer_create(I, &CNN_A_INTS(2, shape), 2, I->ctx->default_dtype);
}
const cnn_op cnn_op_eye = {
    .name = "eye",
    .args = "n:int m:int? " CNN_CREATE_ARGS,
    .doc = "The n x m matrix (n x n without m) with 1 on the diagonal and 0 elsewhere.",
    .flags = CNN_OP_FUNCTION,
    .infer = infer_eye,
};
