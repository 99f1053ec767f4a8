// SPDX-License-Identifier: MIT
// Random numbers. Element i of an op draws from counter offset + i of the context's generator
// (base/philox.h), so results depend on the seed and on nothing else: not on threads, strides, or
// the device. A failed op, and one with no element, draws nothing.
#include "ops/create.h"

#include <inttypes.h>
#include <math.h>

static uint64_t count(const cnn_tensor *t) {
  return (uint64_t)cnn_numel(t);
}

static uint64_t count_out(const cnn_infer *I) {
  int64_t n = cnn_shape_numel(I->out[0].ndim, I->out[0].shape);
  return n > 0 ? (uint64_t)n : 0;
}

static cnn_status check_float(cnn_infer *I, cnn_dtype dtype) {
  if (cnn_dtype_is_float(dtype)) return CNN_OK;
  return cnn_fail(I->ctx, CNN_DTYPE, "the numbers drawn are floats, not %s", cnn_dtype_name(dtype));
}

static cnn_status check_probability(cnn_context *ctx, const cnn_arg *p) {
  double v = cnn_arg_number(p);
  if (v >= 0 && v <= 1) return CNN_OK;
  return cnn_fail(ctx, CNN_INVALID, "p must be a probability from 0 to 1, not %g", v);
}

// ---------------------------------------------------------------------------------------------
// New tensors

static cnn_status infer_rand(cnn_infer *I) {
  CNN_TRY(cnn_infer_create(I, &I->args[0], 1, I->ctx->default_dtype));
  I->draws = count_out(I);
  return check_float(I, I->out[0].dtype);
}
const cnn_op cnn_op_rand = {
    .name = "rand",
    .args = "shape:shape* " CNN_CREATE_ARGS,
    .doc = "Numbers drawn uniformly from [0, 1).",
    .flags = CNN_OP_FUNCTION | CNN_OP_RANDOM,
    .infer = infer_rand,
};
const cnn_op cnn_op_randn = {
    .name = "randn",
    .args = "shape:shape* " CNN_CREATE_ARGS,
    .doc = "Numbers drawn from the normal distribution with mean 0 and deviation 1.",
    .flags = CNN_OP_FUNCTION | CNN_OP_RANDOM,
    .infer = infer_rand,
};

static cnn_status infer_rand_like(cnn_infer *I) {
  CNN_TRY(cnn_infer_like(I, 1));
  I->draws = count_out(I);
  return check_float(I, I->out[0].dtype);
}
const cnn_op cnn_op_rand_like = {
    .name = "rand_like",
    .args = "x:other " CNN_CREATE_ARGS,
    .doc = "A tensor like x with numbers drawn uniformly from [0, 1).",
    .flags = CNN_OP_FUNCTION | CNN_OP_RANDOM | CNN_OP_NO_GRAD,
    .infer = infer_rand_like,
};
const cnn_op cnn_op_randn_like = {
    .name = "randn_like",
    .args = "x:other " CNN_CREATE_ARGS,
    .doc = "A tensor like x with numbers drawn from the normal distribution with mean 0 and "
           "deviation 1.",
    .flags = CNN_OP_FUNCTION | CNN_OP_RANDOM | CNN_OP_NO_GRAD,
    .infer = infer_rand_like,
};

static cnn_status check_range(cnn_infer *I, int64_t low, int64_t high) {
  if (low < high) return CNN_OK;
  return cnn_fail(I->ctx, CNN_INVALID,
                  "low must be less than high, which is excluded: got %" PRId64 " and %" PRId64,
                  low, high);
}

// The integers that the result's dtype holds, all of them: a draw that it can't hold would come out
// as another number.
static cnn_status check_holds(cnn_infer *I, int64_t low, int64_t last) {
  cnn_dtype t = I->out[0].dtype;
  int bits = 0;
  bool has_sign = true;
  switch (t) {
  case CNN_F64: bits = 53; break;
  case CNN_F32: bits = 24; break;
  case CNN_F16: bits = 11; break;
  case CNN_BF16: bits = 8; break;
  case CNN_BOOL: bits = 1, has_sign = false; break;
  case CNN_U8: bits = 8, has_sign = false; break;
  default: bits = (int)(8 * cnn_dtype_size(t)) - 1;
  }
  if (bits == 63) return CNN_OK;
  // The largest of an integer dtype is 2^bits - 1; floats hold 2^bits too.
  int64_t top = ((int64_t)1 << bits) - !cnn_dtype_is_float(t);
  int64_t bottom = !has_sign ? 0 : cnn_dtype_is_float(t) ? -top : -top - 1;
  if (low >= bottom && last <= top) return CNN_OK;
  return cnn_fail(I->ctx, CNN_DTYPE,
                  "%s holds the integers from %" PRId64 " to %" PRId64 ", not all from %" PRId64
                  " to %" PRId64,
                  cnn_dtype_name(t), bottom, top, low, last);
}

static cnn_status infer_randint(cnn_infer *I) {
  const cnn_arg *high = &I->args[1], *shape = &I->args[2];
  // randint(high, shape) begins at 0.
  bool from_zero = !cnn_has(I->args, 2);
  if (!from_zero && high->n != 1)
    return cnn_fail(I->ctx, CNN_INVALID, "high must be one integer, not a list of %d", high->n);
  int64_t low = from_zero ? 0 : I->args[0].i, end = from_zero ? I->args[0].i : high->ints[0];
  CNN_TRY(check_range(I, low, end));
  if (from_zero && high->n > CNN_MAX_DIMS)
    return cnn_fail(I->ctx, CNN_SHAPE, "a tensor has at most %d dims", CNN_MAX_DIMS);
  CNN_TRY(cnn_infer_create(I, from_zero ? high : shape, 3, CNN_I64));
  I->draws = count_out(I);
  return check_holds(I, low, end - 1);
}
const cnn_op cnn_op_randint = {
    .name = "randint",
    .args = "low:int high:ints shape:shape?* " CNN_CREATE_ARGS,
    .doc = "Integers (int64, unless a dtype is given) drawn uniformly from low to high - 1. "
           "randint(high, shape) draws from 0 on. The dtype must hold all of them.",
    .flags = CNN_OP_FUNCTION | CNN_OP_RANDOM,
    .infer = infer_randint,
};

static cnn_status infer_randint_like(cnn_infer *I) {
  bool from_zero = !cnn_has(I->args, 2);
  int64_t low = from_zero ? 0 : I->args[1].i, end = I->args[from_zero ? 1 : 2].i;
  CNN_TRY(check_range(I, low, end));
  CNN_TRY(cnn_infer_like(I, 3));
  I->draws = count_out(I);
  return check_holds(I, low, end - 1);
}
const cnn_op cnn_op_randint_like = {
    .name = "randint_like",
    .args = "x:other low:int high:int? " CNN_CREATE_ARGS,
    .doc = "A tensor like x with integers drawn uniformly from low to high - 1; "
           "randint_like(x, high) draws from 0 on.",
    .flags = CNN_OP_FUNCTION | CNN_OP_RANDOM | CNN_OP_NO_GRAD,
    .infer = infer_randint_like,
};

static cnn_status infer_randperm(cnn_infer *I) {
  int64_t n = I->args[0].i;
  if (n < 0) return cnn_fail(I->ctx, CNN_INVALID, "n must be >= 0, not %" PRId64, n);
  CNN_TRY(cnn_infer_create(I, &CNN_A_INTS(1, &n), 1, CNN_I64));
  I->draws = count_out(I);
  return n > 0 ? check_holds(I, 1, n) : CNN_OK;
}
const cnn_op cnn_op_randperm = {
    .name = "randperm",
    .args = "n:int " CNN_CREATE_ARGS,
    .doc = "The numbers 1 to n (int64, unless a dtype is given, which must hold them) in random "
           "order.",
    .flags = CNN_OP_FUNCTION | CNN_OP_RANDOM,
    .infer = infer_randperm,
};

// ---------------------------------------------------------------------------------------------
// Filling a tensor

// What was there before has no influence on what is there now.
static void backward_nothing(cnn_grad *g) {
  (void)g;
}

static cnn_status infer_uniform(cnn_infer *I) {
  double low = cnn_arg_number(&I->args[1]), high = cnn_arg_number(&I->args[2]);
  CNN_TRY(check_float(I, (cnn_dtype)I->in[0]->dtype));
  if (!(low <= high) || !isfinite(high - low))
    return cnn_fail(I->ctx, CNN_INVALID, "low must not exceed high, both finite: got %g and %g",
                    low, high);
  I->draws = count(I->in[0]);
  return CNN_OK;
}
const cnn_op cnn_op_uniform_ = {
    .name = "uniform_",
    .args = "x:tensor! low:number=0 high:number=1",
    .doc = "Fills x with numbers drawn uniformly from [low, high).",
    .flags = CNN_OP_SELF | CNN_OP_RANDOM,
    .infer = infer_uniform,
    .backward = backward_nothing,
};

static cnn_status infer_normal(cnn_infer *I) {
  double std = cnn_arg_number(&I->args[2]);
  CNN_TRY(check_float(I, (cnn_dtype)I->in[0]->dtype));
  if (!(std >= 0)) return cnn_fail(I->ctx, CNN_INVALID, "std must be >= 0, not %g", std);
  I->draws = count(I->in[0]);
  return CNN_OK;
}
const cnn_op cnn_op_normal_ = {
    .name = "normal_",
    .args = "x:tensor! mean:number=0 std:number=1",
    .doc = "Fills x with numbers drawn from the normal distribution with that mean and deviation.",
    .flags = CNN_OP_SELF | CNN_OP_RANDOM,
    .infer = infer_normal,
    .backward = backward_nothing,
};

static cnn_status infer_exponential(cnn_infer *I) {
  double rate = cnn_arg_number(&I->args[1]);
  CNN_TRY(check_float(I, (cnn_dtype)I->in[0]->dtype));
  if (!(rate > 0)) return cnn_fail(I->ctx, CNN_INVALID, "lambd must be > 0, not %g", rate);
  I->draws = count(I->in[0]);
  return CNN_OK;
}
const cnn_op cnn_op_exponential_ = {
    .name = "exponential_",
    .args = "x:tensor! lambd:number=1",
    .doc = "Fills x with numbers drawn from the exponential distribution, lambd * e^(-lambd * x).",
    .flags = CNN_OP_SELF | CNN_OP_RANDOM,
    .infer = infer_exponential,
    .backward = backward_nothing,
};

static cnn_status infer_bernoulli_fill(cnn_infer *I) {
  CNN_TRY(check_probability(I->ctx, &I->args[1]));
  I->draws = count(I->in[0]);
  return CNN_OK;
}
const cnn_op cnn_op_bernoulli_ = {
    .name = "bernoulli_",
    .args = "x:tensor! p:number=0.5",
    .doc = "Fills x with 1 with probability p, else 0.",
    .flags = CNN_OP_SELF | CNN_OP_RANDOM,
    .infer = infer_bernoulli_fill,
    .backward = backward_nothing,
};

// ---------------------------------------------------------------------------------------------
// Drawing by probabilities

static cnn_status infer_bernoulli(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  CNN_TRY(check_float(I, I->dtype));
  cnn_meta *out = cnn_infer_out(I, I->dtype, x->ndim, x->shape);
  cnn_strides_like(out->ndim, out->shape, x->strides, out->strides);
  I->draws = count(x);
  return CNN_OK;
}
const cnn_op cnn_op_bernoulli = {
    .name = "bernoulli",
    .args = "x:tensor",
    .doc = "1 with the probability that x's element is, else 0.",
    .flags = CNN_OP_RANDOM | CNN_OP_NO_GRAD,
    .infer = infer_bernoulli,
};

static cnn_status infer_multinomial(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  int64_t n = I->args[1].i;
  CNN_TRY(check_float(I, I->dtype));
  if (x->ndim < 1 || x->ndim > 2)
    return cnn_fail(I->ctx, CNN_SHAPE, "x must have 1 or 2 dims, not %d", x->ndim);
  int64_t classes = x->shape[x->ndim - 1], shape[] = {x->shape[0], n};
  if (n < 1)
    return cnn_fail(I->ctx, CNN_INVALID, "num_samples must be at least 1, not %" PRId64, n);
  if (classes == 0) return cnn_fail(I->ctx, CNN_SHAPE, "there are 0 categories to draw from");
  if (!I->args[2].i && n > classes)
    return cnn_fail(I->ctx, CNN_INVALID,
                    "%" PRId64 " samples without replacement from %" PRId64 " categories", n,
                    classes);
  cnn_infer_out(I, CNN_I64, x->ndim, x->ndim == 1 ? &n : shape);
  I->draws = I->args[2].i ? count_out(I) : count(x);
  return CNN_OK;
}
const cnn_op cnn_op_multinomial = {
    .name = "multinomial",
    .args = "x:tensor num_samples:int replacement:bool=false",
    .doc = "Positions drawn from each row of x with probabilities in proportion to its elements, "
           "which must be >= 0 and finite. A position of probability 0 is never drawn. Without "
           "replacement no position is drawn twice.",
    .flags = CNN_OP_RANDOM | CNN_OP_NO_GRAD,
    .infer = infer_multinomial,
};

// ---------------------------------------------------------------------------------------------
// dropout. No mask is kept: backward draws the numbers of the forward again.

static cnn_status infer_dropout(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  CNN_TRY(check_float(I, I->dtype));
  CNN_TRY(check_probability(I->ctx, &I->args[1]));
  cnn_meta *out = cnn_infer_out(I, I->dtype, x->ndim, x->shape);
  cnn_strides_like(out->ndim, out->shape, x->strides, out->strides);
  I->draws = count(x);
  return CNN_OK;
}

static void backward_dropout(cnn_grad *g) {
  g->f->spent = g->dy[0];
  cnn_give(g, 0,
           cnn_do(g->f, dropout_backward, CNN_A_T(g->dy[0]), g->args[1],
                  CNN_A_I((int64_t)g->rng.seed), CNN_A_I((int64_t)g->rng.offset)));
}

static int choose_dropout(const cnn_arg *args, int n) {
  bool off = n > 2 && args[2].kind == CNN_INT && args[2].i == 0;
  bool none = n > 1 && args[1].kind != CNN_ABSENT && cnn_arg_number(&args[1]) == 0;
  return off || none ? OP_dropout_eval : -1;
}

const cnn_op cnn_op_dropout = {
    .name = "dropout",
    .args = "x:tensor p:number=0.5 training:bool=true",
    .doc = "In training, each element is 0 with probability p, else x / (1 - p). Otherwise x "
           "itself.",
    .flags = CNN_OP_RANDOM | CNN_OP_IN_PLACE,
    .infer = infer_dropout,
    .backward = backward_dropout,
    .choose = choose_dropout,
};

static void dropout_eval(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  f->status = check_probability(f->ctx, &args[1]);
  cnn_results_add(f, r, args[0].t);
}
const cnn_op cnn_op_dropout_eval = {
    .name = "dropout",
    .args = "x:tensor p:number=0.5 training:bool=false",
    .doc = "dropout where it does nothing.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_INTERNAL,
    .composite = dropout_eval,
};

static cnn_status infer_dropout_backward(cnn_infer *I) {
  CNN_TRY(cnn_infer_need_float(I));
  cnn_infer_out(I, I->dtype, I->in[0]->ndim, I->in[0]->shape);
  cnn_strides_like(I->out[0].ndim, I->out[0].shape, I->in[0]->strides, I->out[0].strides);
  return CNN_OK;
}
// It is linear in dy, and its own transpose.
static void backward_dropout_backward(cnn_grad *g) {
  cnn_give(g, 0,
           cnn_do(g->f, dropout_backward, CNN_A_T(g->dy[0]), g->args[1], g->args[2], g->args[3]));
}
const cnn_op cnn_op_dropout_backward = {
    .name = "dropout_backward",
    .args = "dy:tensor p:number seed:int offset:int",
    .doc = "dy where the dropout that drew from that seed and offset kept an element, over 1 - p; "
           "else 0.",
    .flags = CNN_OP_INTERNAL | CNN_OP_IN_PLACE,
    .infer = infer_dropout_backward,
    .backward = backward_dropout_backward,
};
