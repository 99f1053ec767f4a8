// SPDX-License-Identifier: MIT
// Batch normalisation (Ioffe and Szegedy, 2015).
//
// batch_norm is a composite that chooses between two internal ops, one that takes statistics of the
// batch and updates the running ones, and one that uses the running ones. Both also give the mean
// and 1 / std that they used: their gradient reads those, so that later updates don't disturb it.
#include "ops/norm.h"
#include "ops/reduction.h"

static cnn_status check_vector(cnn_infer *I, int input, const char *name) {
  const cnn_tensor *x = I->in[0], *v = I->in[input];
  cnn_shape_text a, b;
  if (!v) return CNN_OK;
  if (v->ndim != 1 || v->shape[0] != x->shape[1])
    return cnn_fail(I->ctx, CNN_SHAPE, "%s has shape %s but x %s has %lld channel%s", name,
                    cnn_shape_format(&a, v->ndim, v->shape),
                    cnn_shape_format(&b, x->ndim, x->shape), (long long)x->shape[1],
                    x->shape[1] == 1 ? "" : "s");
  return cnn_check_beside(I, name, v);
}

static cnn_status check_running(cnn_infer *I, int input, const char *name) {
  CNN_TRY(check_vector(I, input, name));
  if (!I->in[input] || !I->ctx->grad_enabled || !cnn_requires_grad(I->in[input])) return CNN_OK;
  return cnn_fail(I->ctx, CNN_STATE,
                  "%s requires a gradient, which statistics don't have: "
                  "detach() it",
                  name);
}

static cnn_status infer_batch_norm(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  cnn_shape_text a;
  CNN_TRY(cnn_check_float(I, I->dtype));
  if (x->ndim < 2)
    return cnn_fail(I->ctx, CNN_SHAPE, "x has shape %s, expected (N, C), (N, C, L) or (N, C, H, W)",
                    cnn_shape_format(&a, x->ndim, x->shape));
  CNN_TRY(check_vector(I, 1, "weight"));
  CNN_TRY(check_vector(I, 2, "bias"));
  CNN_TRY(check_running(I, 3, "running_mean"));
  CNN_TRY(check_running(I, 4, "running_var"));
  cnn_meta *out = cnn_infer_out(I, I->dtype, x->ndim, x->shape);
  cnn_strides_like(x->ndim, x->shape, x->strides, out->strides);
  cnn_infer_out(I, cnn_dtype_computed(I->dtype), 1, &x->shape[1]);
  cnn_infer_out(I, cnn_dtype_computed(I->dtype), 1, &x->shape[1]);
  return CNN_OK;
}

// Elements of a channel.
static int64_t channel_size(const cnn_tensor *x) {
  int64_t n = 1;
  for (int d = 0; d < x->ndim; d++)
    if (d != 1) n *= x->shape[d];
  return n;
}

static cnn_status infer_train(cnn_infer *I) {
  cnn_shape_text a;
  CNN_TRY(infer_batch_norm(I));
  if (!I->in[3] != !I->in[4])
    return cnn_fail(I->ctx, CNN_INVALID, "running_mean and running_var are given together");
  if (channel_size(I->in[0]) != 1) return CNN_OK;
  return cnn_fail(I->ctx, CNN_SHAPE,
                  "x of shape %s has one value per channel, and training needs more to take a "
                  "variance: use a larger batch, or eval()",
                  cnn_shape_format(&a, I->in[0]->ndim, I->in[0]->shape));
}

// Gradients wanted: bits of batch_norm_backward's `needs`.
enum { NEEDS_X = 1, NEEDS_W = 2, NEEDS_B = 4 };

static void backward_batch_norm(cnn_grad *g, bool training, int eps) {
  cnn_tensor *d[3];
  int64_t needs = 0;
  for (int i = 0; i < 3; i++)
    if (cnn_needs(g, i)) needs |= 1 << i;
  cnn_frame_results(g->f, OP_batch_norm_backward,
                    CNN_ARGS(CNN_A_T(cnn_dy(g, 0)), CNN_A_T(cnn_in(g, 0)), CNN_A_T(cnn_out(g, 1)),
                             CNN_A_T(cnn_out(g, 2)), CNN_A_T(needs & NEEDS_X ? cnn_in(g, 1) : NULL),
                             CNN_A_I(training), g->args[eps], CNN_A_I(needs)),
                    d, 3);
  for (int i = 0; i < 3; i++) cnn_give(g, i, d[i]);
}

static void backward_train(cnn_grad *g) {
  backward_batch_norm(g, true, 6);
}

static void backward_eval(cnn_grad *g) {
  backward_batch_norm(g, false, 5);
}

const cnn_op cnn_op_batch_norm_train = {
    .name = "batch_norm_train",
    .args = "x:tensor weight:other? bias:other? running_mean:other?! running_var:other?! "
            "momentum:number eps:number",
    .doc = "batch_norm by the batch's statistics, with the mean and 1 / std of each channel.",
    .results = "out mean rstd",
    .saves = "x, weight if x, mean rstd",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_train,
    .backward = backward_train,
};

const cnn_op cnn_op_batch_norm_eval = {
    .name = "batch_norm_eval",
    .args = "x:tensor weight:other? bias:other? running_mean:other running_var:other eps:number",
    .doc = "batch_norm by the running statistics, with the mean and 1 / std of each channel.",
    .results = "out mean rstd",
    .saves = "x, weight if x, mean rstd",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_batch_norm,
    .backward = backward_eval,
};

static cnn_status infer_backward(cnn_infer *I) {
  const cnn_tensor *x = I->in[1];
  int64_t needs = I->args[7].i, none = 0;
  CNN_TRY(cnn_infer_need_float(I));
  cnn_meta *dx =
      cnn_infer_out(I, I->dtype, needs & NEEDS_X ? x->ndim : 1, needs & NEEDS_X ? x->shape : &none);
  if (needs & NEEDS_X) cnn_strides_like(x->ndim, x->shape, x->strides, dx->strides);
  for (int i = 1; i < 3; i++)
    cnn_infer_out(I, cnn_dtype_computed(I->dtype), 1, needs >> i & 1 ? &x->shape[1] : &none);
  return CNN_OK;
}

// Means over all dims but the channels', kept as dims of size 1; and a vector of channels so.
static cnn_tensor *channel_mean(cnn_frame *f, cnn_tensor *x, int n, const int64_t *dims,
                                double count) {
  cnn_tensor *s = cnn_do(f, sum, CNN_A_T(x), CNN_A_INTS(n, dims), CNN_A_I(1));
  return cnn_do(f, div, CNN_A_T(s), CNN_A_N(count));
}

static cnn_tensor *channel_vector(cnn_frame *f, cnn_tensor *v, int ndim) {
  int64_t shape[CNN_MAX_DIMS];
  if (!v) return NULL;
  for (int d = 0; d < ndim - 1; d++) shape[d] = 1;
  shape[0] = v->shape[0];
  return cnn_do(f, reshape, CNN_A_T(v), CNN_A_INTS(ndim - 1, shape));
}

// With xh = (x - mean) rstd: dx = rstd weight (dy - mean(dy) - xh mean(dy xh)) in training, where
// mean and rstd are made anew from x so that gradients reach x through them; and rstd weight dy
// otherwise. dw is the sum of dy xh, db that of dy.
static void batch_norm_backward(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *dy = args[0].t, *x = args[1].t, *rstd, *xc;
  int64_t needs = args[7].i, dims[CNN_MAX_DIMS], none = 0, c = x->shape[1];
  bool training = args[5].i != 0;
  double count = (double)channel_size(x);
  int n = 0;
  for (int d = 0; d < x->ndim; d++)
    if (d != 1) dims[n++] = d;
  if (training) {
    xc = cnn_do(f, sub, CNN_A_T(x), CNN_A_T(channel_mean(f, x, n, dims, count)));
    cnn_tensor *var = channel_mean(f, cnn_do(f, square, CNN_A_T(xc)), n, dims, count);
    rstd = cnn_do(f, rsqrt, CNN_A_T(cnn_do(f, add, CNN_A_T(var), args[6])));
  } else {
    xc = cnn_do(f, sub, CNN_A_T(x), CNN_A_T(channel_vector(f, args[2].t, x->ndim)));
    rstd = channel_vector(f, args[3].t, x->ndim);
  }
  cnn_tensor *xh = cnn_do(f, mul, CNN_A_T(xc), CNN_A_T(rstd));
  cnn_tensor *dyxh = cnn_do(f, mul, CNN_A_T(dy), CNN_A_T(xh));
  cnn_tensor *empty =
      cnn_do(f, full, CNN_A_INTS(1, &none), CNN_A_I(0), CNN_A_I(x->dtype), CNN_A_DEVICE(x->device));
  cnn_tensor *d[3] = {empty, empty, empty}, *whole[3] = {NULL, dyxh, dy};
  if (needs & NEEDS_X) {
    cnn_tensor *dx = dy, *scale = rstd;
    if (training) {
      cnn_tensor *b = cnn_do(f, mul, CNN_A_T(xh), CNN_A_T(channel_mean(f, dyxh, n, dims, count)));
      dx = cnn_do(f, sub, CNN_A_T(dy), CNN_A_T(channel_mean(f, dy, n, dims, count)));
      dx = cnn_do(f, sub, CNN_A_T(dx), CNN_A_T(b));
    }
    if (cnn_has(args, 4))
      scale = cnn_do(f, mul, CNN_A_T(rstd), CNN_A_T(channel_vector(f, args[4].t, x->ndim)));
    d[0] = cnn_do(f, mul, CNN_A_T(dx), CNN_A_T(scale));
  }
  for (int i = 1; i < 3; i++)
    if (needs >> i & 1) {
      d[i] = cnn_do(f, sum, CNN_A_T(whole[i]), CNN_A_INTS(n, dims), CNN_A_I(0));
      d[i] = cnn_do(f, reshape, CNN_A_T(d[i]), CNN_A_INTS(1, &c));
    }
  for (int i = 0; i < 3; i++) cnn_results_add(f, r, d[i]);
}

const cnn_op cnn_op_batch_norm_backward = {
    .name = "batch_norm_backward",
    .args = "dy:tensor x:tensor mean:other rstd:other weight:other? training:bool eps:number "
            "needs:int",
    .doc = "Gradients of batch_norm: of x, weight and bias where bits 0, 1, 2 of `needs` are set, "
           "else an empty tensor.",
    .results = "dx dw db",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_backward,
    .composite = batch_norm_backward,
};

// A checkpoint's replay does not update the statistics a second time.
static void batch_norm(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *y;
  if (args[5].i) {
    cnn_arg mean = args[1], var = args[2];
    if (f->ctx->replaying) mean = var = CNN_A_NONE;
    y = cnn_do(f, batch_norm_train, args[0], args[3], args[4], mean, var, args[6], args[7]);
  } else if (cnn_has(args, 1) && cnn_has(args, 2)) {
    y = cnn_do(f, batch_norm_eval, args[0], args[3], args[4], args[1], args[2], args[7]);
  } else {
    f->status = cnn_fail(f->ctx, CNN_INVALID,
                         "running_mean and running_var are missing: outside of training they are "
                         "what x is normalised by");
    return;
  }
  cnn_results_add(f, r, y);
}

const cnn_op cnn_op_batch_norm = {
    .name = "batch_norm",
    .args = "x:tensor running_mean:other? running_var:other? weight:other? bias:other? "
            "training:bool=false momentum:number=0.1 eps:number=1e-5",
    .doc =
        "Normalises each channel: (x - mean) / sqrt(var + eps) * weight + bias, for x (N, C), "
        "(N, C, L), (N, C, H, W) and all other arguments (C). In training, mean and var are the "
        "batch's, and the running ones become (1 - momentum) * running + momentum * batch's (var "
        "divided by n - 1); one value per channel is an error, and an empty batch changes nothing. "
        "Else mean and var are the running ones.",
    .flags = CNN_OP_COMPOSITE,
    .composite = batch_norm,
};
