// SPDX-License-Identifier: MIT
// Kernels of ops/conv.c: cuDNN's where it has one, else own ones (conv.cu).
//
// cuDNN takes operands that are dense, all in the layout of the activation that came in: others are
// copied to scratch first, and a result in another layout is copied from there. Where it refuses a
// sum with a bias, it is asked for the sum alone, and the bias is added afterwards. Only engines
// that give the same bits every time are asked for.
#include "conv.h"

#include <string.h>

#include "base/context.h"
#include "engine/parts.h"
#include "engine/window.h"

extern const cnn_kernel cuda_conv2d, cuda_relu;

enum { WAY_OWN, WAY_LIBRARY, WAY_LIBRARY_THEN_BIAS, WAY_PARTS };
enum { X, W, Y, OPERANDS };

// What a call works on.
typedef struct use {
  cuda_conv_kind kind;
  const cnn_view *views[OPERANDS], *b; // b: the bias or, of a weight's gradient, its gradient
  int spatial, channel;                // dims of y
  int64_t after[3];
  bool last; // the activations are channels-last
  bool relu; // a ReLU follows
  cuda_conv_job job;
} use;

static size_t align(size_t bytes) {
  return (bytes + 255) & ~(size_t)255;
}

static cnn_status read_call(use *u, const cnn_call *call, cuda_conv_kind kind) {
  const cnn_view *in = call->in, *out = call->out;
  memset(u, 0, sizeof *u);
  u->kind = kind;
  switch (kind) {
  case CUDA_CONV_FORWARD:
    u->views[X] = &in[0], u->views[W] = &in[1], u->views[Y] = &out[0];
    if (cnn_view_present(&in[2])) u->b = &in[2];
    break;
  case CUDA_CONV_BACKWARD_INPUT:
    u->views[Y] = &in[0], u->views[W] = &in[1], u->views[X] = &out[0];
    break;
  case CUDA_CONV_BACKWARD_WEIGHT:
    u->views[Y] = &in[0], u->views[X] = &in[1], u->views[W] = &out[0];
    if (call->n_out > 1) u->b = &out[1];
    break;
  }
  const cnn_view *x = u->views[X], *w = u->views[W], *y = u->views[Y];
  const cnn_arg *window = &call->args[3];
  int n = w->ndim - 2;
  cnn_window g = {.n = n};
  for (int i = 0; i < n; i++) g.in[i] = x->shape[x->ndim - n + i], g.kernel[i] = w->shape[2 + i];
  CNN_TRY(cnn_window_conv(call->ctx, &g, &window[0], &window[1], &window[2]));
  u->spatial = n;
  u->channel = y->ndim - n - 1;
  const cnn_view *lead = kind == CUDA_CONV_BACKWARD_INPUT ? y : x;
  u->last = n == 2 && lead->ndim == 4 && cnn_strides_channels_last(lead->shape, lead->strides);

  cuda_conv_job *j = &u->job;
  j->kind = kind;
  j->dtype = w->dtype;
  j->n = x->ndim == n + 2 ? x->shape[0] : 1;
  j->groups = window[3].i;
  j->cg = w->shape[1];
  j->kg = w->shape[0] / j->groups;
  j->taps = j->places = 1;
  for (int i = 0; i < 3; i++) {
    int d = i - (3 - n);
    j->in[i] = j->kernel[i] = j->out[i] = j->stride[i] = j->dilation[i] = 1;
    if (d < 0) continue;
    if (g.in[d] + g.before[d] + (g.after[d] > 0 ? g.after[d] : 0) > CUDA_CONV_LONGEST)
      return cnn_fail(call->ctx, CNN_UNSUPPORTED,
                      "spatial dim %d has %lld elements, too many on cuda",
                      d + call->ctx->index_base, (long long)g.in[d]);
    j->in[i] = (int32_t)g.in[d], j->kernel[i] = (int32_t)g.kernel[d];
    j->out[i] = (int32_t)y->shape[y->ndim - n + d];
    j->stride[i] = (int32_t)g.stride[d], j->dilation[i] = (int32_t)g.dilation[d];
    j->before[i] = (int32_t)g.before[d];
    u->after[i] = g.after[d];
    j->taps *= j->kernel[i];
    j->places *= j->out[i];
  }
  cuda_image_read(&j->x, x, n);
  cuda_image_read(&j->y, y, n);
  cuda_image_read(&j->w, w, n);
  if (u->b && kind == CUDA_CONV_FORWARD) j->b = u->b->data, j->b_stride = u->b->strides[0];
  return CNN_OK;
}

static const cnn_view *result(const use *u) {
  return u->views[u->kind == CUDA_CONV_FORWARD ? Y : u->kind == CUDA_CONV_BACKWARD_INPUT ? X : W];
}

// Without input channels there are no weights, and the bias still has a gradient.
static bool has_bias_gradient(const use *u) {
  return u->kind == CUDA_CONV_BACKWARD_WEIGHT && u->b && u->b->shape[0] > 0;
}

// ---------------------------------------------------------------------------------------------
// Operands of cuDNN's

typedef struct dense {
  cnn_view view;
  int64_t strides[CNN_MAX_DIMS];
  bool copied;
} dense;

// t, or a copy that is dense: channels-last, or else row-major.
static void make_dense(dense *d, const cnn_view *t, bool last) {
  d->view = *t;
  d->copied = false;
  if (last) {
    d->strides[1] = 1, d->strides[3] = t->shape[1], d->strides[2] = d->strides[3] * t->shape[3];
    d->strides[0] = d->strides[2] * t->shape[2];
  } else {
    cnn_shape_strides(t->ndim, t->shape, d->strides);
  }
  for (int i = 0; i < t->ndim; i++)
    if (t->shape[i] != 1 && t->strides[i] != d->strides[i]) d->copied = true;
  if (d->copied) d->view.data = NULL; // in scratch, aligned
  d->view.strides = d->strides;
}

static size_t dense_bytes(const dense *d) {
  return d->copied ? align((size_t)cnn_view_numel(&d->view) * cnn_dtype_size(d->view.dtype)) : 0;
}

typedef struct library {
  dense operands[OPERANDS], b;
  cuda_conv conv;
} library;

static void describe(library *l, const cnn_call *call, const use *u) {
  const cuda_conv_job *j = &u->job;
  for (int i = 0; i < OPERANDS; i++) make_dense(&l->operands[i], u->views[i], u->last);
  cuda_conv *c = &l->conv;
  memset(c, 0, sizeof *c);
  c->kind = u->kind;
  c->dtype = j->dtype;
  c->tf32 = cuda_allow_tf32();
  c->deterministic = true;
  c->lean = call->squeeze > 0;
  c->x_last = c->w_last = c->y_last = u->last;
  c->spatial = u->spatial;
  c->n = j->n, c->c = j->cg * j->groups, c->k = j->kg * j->groups, c->groups = j->groups;
  for (int i = 0; i < u->spatial; i++) {
    int d = i + 3 - u->spatial;
    c->in[i] = j->in[d], c->kernel[i] = j->kernel[d], c->out[i] = j->out[d];
    c->stride[i] = j->stride[d], c->dilation[i] = j->dilation[d];
    c->pad_before[i] = j->before[d], c->pad_after[i] = u->after[d];
  }
  c->x = l->operands[X].view.data;
  c->w = l->operands[W].view.data;
  c->y = l->operands[Y].view.data;
}

static void describe_bias(library *l, const use *u) {
  make_dense(&l->b, u->b, false);
  l->conv.bias = true;
  l->conv.b = l->b.view.data;
}

// Padding that is negative cuts off: own kernels alone know it. They take the least memory, too.
static bool may_ask(const cnn_call *call, const use *u) {
  if (call->squeeze > 1) return false;
  for (int i = 0; i < 3; i++)
    if (u->after[i] < 0) return false;
  return true;
}

static bool ask(struct cuda_dnn *dnn, const library *l, size_t *bytes) {
  cuda_message why;
  return cuda_conv_workspace(dnn, &l->conv, bytes, &why) == CUDA_OK;
}

// ---------------------------------------------------------------------------------------------
// Plan and run

static size_t library_bytes(const library *l, size_t workspace) {
  size_t bytes = align(workspace);
  for (int i = 0; i < OPERANDS; i++) bytes += dense_bytes(&l->operands[i]);
  return bytes + (l->conv.bias ? dense_bytes(&l->b) : 0);
}

static cnn_status plan(cnn_call *call, cuda_conv_kind kind) {
  use u;
  library l;
  size_t bytes = 0;
  CNN_TRY(read_call(&u, call, kind));
  call->way = WAY_OWN;
  if (has_bias_gradient(&u))
    call->scratch_bytes = cuda_bias_gradient_bytes(call, u.views[Y], u.channel);
  if (cnn_view_numel(result(&u)) == 0) return CNN_OK;
  struct cuda_dnn *dnn = may_ask(call, &u) ? cuda_dnn_of(call) : NULL;
  if (dnn) {
    describe(&l, call, &u);
    bool along = kind == CUDA_CONV_FORWARD && u.b;
    if (along) describe_bias(&l, &u);
    if (ask(dnn, &l, &bytes)) {
      call->way = WAY_LIBRARY;
    } else if (along) {
      l.conv.bias = false;
      if (ask(dnn, &l, &bytes)) call->way = WAY_LIBRARY_THEN_BIAS;
    }
  }
  if (call->way != WAY_OWN)
    bytes = library_bytes(&l, bytes);
  else if (!call->squeeze) // less is taken as it is
    bytes = cuda_conv_own_bytes(&u.job);
  if (bytes > call->scratch_bytes) call->scratch_bytes = bytes;
  return CNN_OK;
}

static cnn_status bring(const cnn_call *call, dense *d, const cnn_view *from, bool read,
                        char **end) {
  if (!d->copied) return CNN_OK;
  *end -= dense_bytes(d);
  d->view.data = *end;
  return read ? cuda_copy_view(call, &d->view, from) : CNN_OK;
}

// Copies take the end of the scratch, the workspace its start.
static cnn_status run_library(cnn_call *call, const use *u) {
  library l;
  cuda_message why;
  char *start = call->scratch, *end = start + (call->scratch_bytes & ~(size_t)255);
  describe(&l, call, u);
  for (int i = 0; i < OPERANDS; i++)
    CNN_TRY(bring(call, &l.operands[i], u->views[i], u->views[i] != result(u), &end));
  l.conv.x = l.operands[X].view.data;
  l.conv.w = l.operands[W].view.data;
  l.conv.y = l.operands[Y].view.data;
  if (u->kind == CUDA_CONV_FORWARD && u->b && call->way == WAY_LIBRARY) {
    describe_bias(&l, u);
    l.conv.relu = u->relu;
    CNN_TRY(bring(call, &l.b, u->b, true, &end));
    l.conv.b = l.b.view.data;
  }
  if (cuda_conv_run(cuda_dnn_of(call), &l.conv, start, (size_t)(end - start), call->stream, &why) !=
      CUDA_OK)
    return cnn_fail(call->ctx, CNN_DEVICE, "cuDNN: %s", why.text);
  CNN_TRY(cuda_launched(call, cudaSuccess));
  for (int i = 0; i < OPERANDS; i++)
    if (l.operands[i].copied && u->views[i] == result(u))
      CNN_TRY(cuda_copy_view(call, u->views[i], &l.operands[i].view));
  return call->way == WAY_LIBRARY_THEN_BIAS ? cuda_conv_add_bias(call, &u->job) : CNN_OK;
}

static cnn_status run(cnn_call *call, cuda_conv_kind kind) {
  use u;
  CNN_TRY(read_call(&u, call, kind));
  if (cnn_view_numel(result(&u)) > 0) {
    if (call->way == WAY_OWN)
      CNN_TRY(cuda_conv_own(call, &u.job, call->scratch, call->scratch_bytes));
    else
      CNN_TRY(run_library(call, &u));
  }
  return has_bias_gradient(&u) ? cuda_bias_gradient(call, u.views[Y], u.channel) : CNN_OK;
}

// With a ReLU behind: cuDNN's, or by parts.
static cnn_status plan_relu(cnn_call *call) {
  use u;
  library l;
  size_t bytes = 0;
  CNN_TRY(read_call(&u, call, CUDA_CONV_FORWARD));
  bool may = cuda_fuse_relu() && u.b && may_ask(call, &u) && cnn_view_numel(u.views[Y]) > 0;
  struct cuda_dnn *dnn = may ? cuda_dnn_of(call) : NULL;
  if (dnn) {
    describe(&l, call, &u);
    describe_bias(&l, &u);
    l.conv.relu = true;
  }
  if (dnn && ask(dnn, &l, &bytes)) {
    call->way = WAY_LIBRARY;
    call->scratch_bytes = library_bytes(&l, bytes);
    return CNN_OK;
  }
  call->way = WAY_PARTS;
  return cnn_parts_then(call, &cuda_conv2d, &cuda_relu);
}

static cnn_status run_relu(cnn_call *call) {
  use u;
  if (call->way == WAY_PARTS) return cnn_parts_then(call, &cuda_conv2d, &cuda_relu);
  CNN_TRY(read_call(&u, call, CUDA_CONV_FORWARD));
  u.relu = true;
  return run_library(call, &u);
}

#define WAYS(name, kind)                                                                           \
  static cnn_status plan_##name(cnn_call *call) {                                                  \
    return plan(call, kind);                                                                       \
  }                                                                                                \
  static cnn_status run_##name(cnn_call *call) {                                                   \
    return run(call, kind);                                                                        \
  }

WAYS(forward, CUDA_CONV_FORWARD)
WAYS(input, CUDA_CONV_BACKWARD_INPUT)
WAYS(weight, CUDA_CONV_BACKWARD_WEIGHT)

CUDA_KERNEL(conv1d, plan_forward, run_forward)
CUDA_KERNEL(conv2d, plan_forward, run_forward)
CUDA_KERNEL(conv2d_relu, plan_relu, run_relu)
CUDA_KERNEL(conv3d, plan_forward, run_forward)
CUDA_KERNEL(conv_backward_input, plan_input, run_input)
CUDA_KERNEL(conv_backward_weight, plan_weight, run_weight)
