// SPDX-License-Identifier: MIT
// Convolutions over 1 to 3 spatial dims (cross-correlations, as everywhere in deep learning):
//
//   y[n, k, p] = bias[k] + sum over c, t of w[k, c, t] x[n, c, p * stride + t * dilation - before]
//
// A convolution is linear in x and in w. Its two gradients are ops of their own, and the gradients
// of those are convolutions again, so everything can be differentiated any number of times:
//
//   backward_input(dy, w)    is linear in dy and w: its gradients are conv(g, w) and
//                            backward_weight(dy, g)
//   backward_weight(dy, x)   is linear in dy and x: conv(x, g) and backward_input(dy, g)
//
// A transposed convolution is backward_input itself.
#include "ops/fused.h"

#include "engine/window.h"

enum { INPUT, WEIGHT, BIAS, STRIDE, PADDING, DILATION, GROUPS }; // arguments of a convolution

// ---------------------------------------------------------------------------------------------
// Shapes

static const char *sizes(const cnn_tensor *t, cnn_shape_text *text) {
  return cnn_tensor_shape_text(t, text);
}

static cnn_status check_float(cnn_infer *I) {
  if (cnn_dtype_is_float(I->dtype)) return CNN_OK;
  return cnn_fail(I->ctx, CNN_DTYPE, "input is %s: convolutions take floats, e.g. input:float()",
                  cnn_dtype_name(I->dtype));
}

static cnn_status check_groups(cnn_context *ctx, int64_t groups, int64_t out, const char *what) {
  if (groups < 1)
    return cnn_fail(ctx, CNN_INVALID, "groups must be at least 1, not %lld", (long long)groups);
  if (out % groups)
    return cnn_fail(ctx, CNN_SHAPE, "weight has %lld %s channels, which %lld groups don't divide",
                    (long long)out, what, (long long)groups);
  return CNN_OK;
}

// Ranks and channels of input and weight; dim_in is the weight's dim that meets the input's
// channels.
static cnn_status check_operands(cnn_context *ctx, const cnn_tensor *x, const cnn_tensor *w, int n,
                                 int dim_in, int64_t groups) {
  cnn_shape_text a, b;
  if (w->ndim != n + 2)
    return cnn_fail(ctx, CNN_SHAPE, "weight must have %d dims, not %d %s", n + 2, w->ndim,
                    sizes(w, &b));
  if (x->ndim != n + 2 && x->ndim != n + 1)
    return cnn_fail(ctx, CNN_SHAPE, "input must have %d dims, or %d without a batch, not %d %s",
                    n + 2, n + 1, x->ndim, sizes(x, &a));
  for (int d = 2; d < n + 2; d++)
    if (w->shape[d] < 1)
      return cnn_fail(ctx, CNN_SHAPE, "weight has an empty kernel %s", sizes(w, &b));
  int64_t channels = x->shape[x->ndim - n - 1];
  int64_t expected = dim_in == 1 ? w->shape[1] * groups : w->shape[0];
  if (channels == expected) return CNN_OK;
  return cnn_fail(ctx, CNN_SHAPE, "input has %lld channel%s %s but weight expects %lld %s%s",
                  (long long)channels, channels == 1 ? "" : "s", sizes(x, &a), (long long)expected,
                  sizes(w, &b), groups > 1 ? " with these groups" : "");
}

static cnn_status check_bias(cnn_context *ctx, const cnn_tensor *b, int64_t out) {
  cnn_shape_text text;
  if (!b || (b->ndim == 1 && b->shape[0] == out)) return CNN_OK;
  return cnn_fail(ctx, CNN_SHAPE, "bias must be (%lld,), one per output channel, not %s",
                  (long long)out, cnn_shape_format(&text, b->ndim, b->shape));
}

// A result of that shape over n spatial dims, channels-last where `like` is.
static void give_out(cnn_infer *I, const cnn_tensor *like, int n, int ndim, const int64_t *shape) {
  cnn_meta *out = cnn_infer_out(I, I->dtype, ndim, shape);
  if (n == 2 && ndim == 4 && like->ndim == 4 &&
      cnn_strides_channels_last(like->shape, like->strides))
    cnn_infer_channels_last(I->ctx, out);
}

// Multiply-adds: each output channel's place meets a group's channels under the kernel.
static int64_t count_work(int64_t batch, const cnn_window *w, const cnn_tensor *weight) {
  int64_t work = batch * weight->shape[0] * weight->shape[1];
  for (int i = 0; i < w->n; i++) work *= w->out[i] * w->kernel[i];
  return work;
}

static void set_window(cnn_window *w, int n, const int64_t *in, const int64_t *kernel) {
  w->n = n;
  for (int i = 0; i < n; i++) w->in[i] = in[i], w->kernel[i] = kernel[i];
}

static cnn_status infer_conv(cnn_infer *I, int n) {
  const cnn_tensor *x = I->in[INPUT], *w = I->in[WEIGHT];
  int64_t groups = I->args[GROUPS].i, shape[CNN_MAX_DIMS];
  cnn_window window;
  CNN_TRY(check_float(I));
  if (w->ndim == n + 2) CNN_TRY(check_groups(I->ctx, groups, w->shape[0], "output"));
  CNN_TRY(check_operands(I->ctx, x, w, n, 1, groups));
  CNN_TRY(check_bias(I->ctx, I->in[BIAS], w->shape[0]));
  int first = x->ndim - n;
  set_window(&window, n, x->shape + first, w->shape + 2);
  CNN_TRY(
      cnn_window_conv(I->ctx, &window, &I->args[STRIDE], &I->args[PADDING], &I->args[DILATION]));
  if (first == 2) shape[0] = x->shape[0];
  shape[first - 1] = w->shape[0];
  for (int i = 0; i < n; i++) shape[first + i] = window.out[i];
  give_out(I, x, n, x->ndim, shape);
  I->work = count_work(first == 2 ? x->shape[0] : 1, &window, w);
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// The two gradients

// Arguments behind the tensors of both ops: sizes of the result, then the window.
enum { SHAPE = 2, B_STRIDE, B_PADDING, B_DILATION, B_GROUPS, B_BIAS };

static cnn_status infer_conv_backward_input(cnn_infer *I) {
  const cnn_tensor *dy = I->in[0], *w = I->in[1];
  int64_t work = cnn_numel(dy) * w->shape[1];
  CNN_TRY(check_float(I));
  for (int i = 2; i < w->ndim; i++) work *= w->shape[i];
  give_out(I, dy, w->ndim - 2, I->args[SHAPE].n, I->args[SHAPE].ints);
  I->work = work;
  return CNN_OK;
}

// dw and, on demand, db.
static cnn_status infer_conv_backward_weight(cnn_infer *I) {
  const cnn_tensor *dy = I->in[0];
  const int64_t *shape = I->args[SHAPE].ints;
  int64_t work = cnn_numel(dy);
  CNN_TRY(cnn_infer_need_float(I));
  for (int i = 1; i < I->args[SHAPE].n; i++) work *= shape[i];
  cnn_infer_out(I, I->dtype, I->args[SHAPE].n, shape);
  if (I->args[B_BIAS].i) cnn_infer_out(I, I->dtype, 1, shape);
  I->work = work;
  return CNN_OK;
}

static const int conv_ops[] = {0, OP_conv1d, OP_conv2d, OP_conv3d};

static cnn_tensor *conv(cnn_grad *g, cnn_tensor *x, cnn_tensor *w, cnn_tensor *b) {
  if (!x || !w) return NULL;
  return cnn_frame_do(g->f, conv_ops[w->ndim - 2],
                      CNN_ARGS(CNN_A_T(x), CNN_A_T(w), CNN_A_T(b), g->args[B_STRIDE],
                               g->args[B_PADDING], g->args[B_DILATION], g->args[B_GROUPS]));
}

// The gradients of a convolution from dy; `window` are its four arguments from stride on, with
// padding as 2 n sizes. They fill dw and db as wanted.
static cnn_tensor *backward_input(cnn_frame *f, cnn_tensor *dy, cnn_tensor *w, const cnn_form *x,
                                  const cnn_arg *window) {
  return cnn_do(f, conv_backward_input, CNN_A_T(dy), CNN_A_T(w), CNN_A_INTS(x->ndim, x->shape),
                window[0], window[1], window[2], window[3]);
}

static void backward_weight(cnn_frame *f, cnn_tensor *dy, cnn_tensor *x, const cnn_form *w,
                            const cnn_arg *window, bool bias, cnn_tensor **results) {
  cnn_frame_results(f, OP_conv_backward_weight,
                    CNN_ARGS(CNN_A_T(dy), CNN_A_T(x), CNN_A_INTS(w->ndim, w->shape), window[0],
                             window[1], window[2], window[3], CNN_A_I(bias)),
                    results, 2);
}

static void backward_conv_backward_input(cnn_grad *g) {
  if (cnn_needs(g, 0)) cnn_give(g, 0, conv(g, g->dy[0], cnn_in(g, 1), NULL));
  if (cnn_needs(g, 1)) {
    cnn_tensor *results[2];
    backward_weight(g->f, cnn_in(g, 0), g->dy[0], cnn_in_form(g, 1), &g->args[B_STRIDE], false,
                    results);
    cnn_give(g, 1, results[0]);
  }
}

static void backward_conv_backward_weight(cnn_grad *g) {
  cnn_tensor *gw = cnn_dy(g, 0);
  if (cnn_needs(g, 0)) {
    cnn_tensor *x = cnn_in(g, 1);
    cnn_give(g, 0, conv(g, x, gw, g->args[B_BIAS].i ? g->dy[1] : NULL));
  }
  if (cnn_needs(g, 1))
    cnn_give(g, 1, backward_input(g->f, cnn_in(g, 0), gw, cnn_in_form(g, 1), &g->args[B_STRIDE]));
}

const cnn_op cnn_op_conv_backward_input = {
    .name = "conv_backward_input",
    .args = "dy:tensor weight:tensor shape:shape stride:ints padding:ints dilation:ints groups:int",
    .doc = "Gradient of a convolution's input, which has that shape. padding: 2 n sizes.",
    .saves = "dy if weight, weight if dy",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_SAME,
    .infer = infer_conv_backward_input,
    .backward = backward_conv_backward_input,
};

const cnn_op cnn_op_conv_backward_weight = {
    .name = "conv_backward_weight",
    .args = "dy:tensor input:tensor shape:shape stride:ints padding:ints dilation:ints groups:int "
            "bias:bool",
    .doc = "Gradient of a convolution's weight, which has that shape; with bias, that of the bias "
           "as a second result. padding: 2 n sizes.",
    .results = "dw db",
    .saves = "dy if input, input if dy",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_SAME,
    .infer = infer_conv_backward_weight,
    .backward = backward_conv_backward_weight,
};

// ---------------------------------------------------------------------------------------------
// Convolutions

// The gradient of a bias that was added to every place of dim `channel`.
static cnn_tensor *bias_gradient(cnn_frame *f, cnn_tensor *dy, int spatial) {
  int64_t dims[CNN_MAX_DIMS];
  int n = 0, channel = dy->ndim - spatial - 1;
  for (int d = 0; d < dy->ndim; d++)
    if (d != channel) dims[n++] = d;
  return cnn_do(f, sum, CNN_A_T(dy), CNN_A_INTS(n, dims));
}

void cnn_backward_conv(cnn_grad *g, cnn_tensor *dy) {
  const cnn_form *x = cnn_in_form(g, INPUT), *w = cnn_in_form(g, WEIGHT);
  int n = w->ndim - 2;
  int64_t padding[2 * CNN_MAX_SPATIAL];
  cnn_window window;
  set_window(&window, n, x->shape + x->ndim - n, w->shape + 2);
  g->f->status =
      cnn_window_conv(g->f->ctx, &window, &g->args[STRIDE], &g->args[PADDING], &g->args[DILATION]);
  for (int i = 0; i < n; i++) padding[i] = window.before[i], padding[n + i] = window.after[i];
  const cnn_arg args[] = {g->args[STRIDE], CNN_A_INTS(2 * n, padding), g->args[DILATION],
                          g->args[GROUPS]};
  if (cnn_needs(g, INPUT)) cnn_give(g, INPUT, backward_input(g->f, dy, cnn_in(g, WEIGHT), x, args));
  if (cnn_needs(g, WEIGHT)) {
    cnn_tensor *results[2];
    backward_weight(g->f, dy, cnn_in(g, INPUT), w, args, cnn_needs(g, BIAS), results);
    cnn_give(g, WEIGHT, results[0]);
    cnn_give(g, BIAS, results[1]);
  } else if (cnn_needs(g, BIAS)) {
    cnn_give(g, BIAS, bias_gradient(g->f, dy, n));
  }
}

static void backward_conv(cnn_grad *g) {
  cnn_backward_conv(g, g->dy[0]);
}

#define CONV_DOC                                                                                   \
  "A sum over the channels of a group and the places under the kernel, for each output channel; "  \
  "the kernel is not flipped. groups splits the channels: group i of the input makes group i of "  \
  "the output. padding: zeros around the input, one size for all dims, one per dim, or one "       \
  "before "                                                                                        \
  "and one after each dim; \"same\" keeps the size (stride 1), \"valid\" is none. "                \
  "A size becomes (size + padding - dilation * (kernel - 1) - 1) / stride + 1, rounded down."

#define CONV(title, n, sizes_type, text)                                                           \
  static cnn_status infer_##title(cnn_infer *I) {                                                  \
    return infer_conv(I, n);                                                                       \
  }                                                                                                \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args =                                                           \
                                     "input:tensor weight:tensor bias:tensor? stride:" sizes_type  \
                                     "=1 padding:padding=0 dilation:" sizes_type                   \
                                     "=1 groups:int=1",                                            \
                                 .doc = text CONV_DOC,                                             \
                                 .saves = "input if weight, weight if input",                      \
                                 .promote = CNN_PROMOTE_SAME,                                      \
                                 .infer = infer_##title,                                           \
                                 .backward = backward_conv};

CONV(conv1d, 1, "ints",
     "1-d convolution.\n"
     "input (N, C, L) or (C, L), weight (K, C / groups, R), bias (K) give (N, K, L') or (K, L'). ")
CONV(conv2d, 2, "pair",
     "2-d convolution.\n"
     "input (N, C, H, W) or (C, H, W), weight (K, C / groups, R, S), bias (K) give (N, K, H', W') "
     "or (K, H', W'). ")
CONV(conv3d, 3, "ints",
     "3-d convolution.\n"
     "input (N, C, D, H, W) or without N, weight (K, C / groups, Q, R, S), bias (K) give "
     "(N, K, D', H', W'). ")

cnn_status cnn_infer_conv2d(cnn_infer *I) {
  return infer_conv(I, 2);
}

// ---------------------------------------------------------------------------------------------
// Transposed convolutions

static void conv_transpose(cnn_frame *f, const cnn_arg *args, cnn_results *r, int n) {
  enum { T_STRIDE = 3, T_PADDING, T_OUTPUT_PADDING, T_GROUPS, T_DILATION };
  cnn_tensor *x = args[INPUT].t, *w = args[WEIGHT].t,
             *b = cnn_has(args, BIAS) ? args[BIAS].t : NULL;
  cnn_context *ctx = f->ctx;
  int64_t stride[CNN_MAX_SPATIAL], pad[2 * CNN_MAX_SPATIAL], extra[CNN_MAX_SPATIAL],
      dilation[CNN_MAX_SPATIAL], shape[CNN_MAX_DIMS], groups = args[T_GROUPS].i;
  if (w->ndim == n + 2) f->status = check_groups(ctx, groups, w->shape[0], "input");
  if (f->status == CNN_OK) f->status = check_operands(ctx, x, w, n, 0, groups);
  if (f->status != CNN_OK) return;
  int64_t channels = w->shape[1] * groups;
  f->status = check_bias(ctx, b, channels);
  if (f->status == CNN_OK)
    f->status = cnn_window_sizes(ctx, "stride", &args[T_STRIDE], n, 1, stride);
  if (f->status == CNN_OK)
    f->status = cnn_window_sizes(ctx, "padding", &args[T_PADDING], n, 0, pad);
  if (f->status == CNN_OK)
    f->status = cnn_window_sizes(ctx, "output_padding", &args[T_OUTPUT_PADDING], n, 0, extra);
  if (f->status == CNN_OK)
    f->status = cnn_window_sizes(ctx, "dilation", &args[T_DILATION], n, 1, dilation);
  if (f->status != CNN_OK) return;
  int first = x->ndim - n;
  if (first == 2) shape[0] = x->shape[0];
  shape[first - 1] = channels;
  for (int i = 0; i < n; i++) {
    int64_t in = x->shape[first + i];
    int64_t size =
        (in - 1) * stride[i] - 2 * pad[i] + dilation[i] * (w->shape[2 + i] - 1) + extra[i] + 1;
    if (extra[i] >= stride[i] && extra[i] >= dilation[i]) {
      f->status = cnn_fail(ctx, CNN_INVALID,
                           "output_padding %lld must be smaller than stride %lld or dilation %lld",
                           (long long)extra[i], (long long)stride[i], (long long)dilation[i]);
      return;
    }
    if (in < 1 || size < 1) {
      cnn_shape_text a, k;
      f->status = cnn_fail(ctx, CNN_SHAPE,
                           "input %s with weight %s and this padding leaves no output in spatial "
                           "dim %d",
                           sizes(x, &a), sizes(w, &k), i + ctx->index_base);
      return;
    }
    shape[first + i] = size;
    // The convolution whose gradient this is reads as many places as there are: output_padding of
    // a stride or more would be another one, were it not cut off.
    pad[n + i] = pad[i] - (extra[i] >= stride[i] ? extra[i] - stride[i] + 1 : 0);
  }
  cnn_tensor *y = cnn_do(f, conv_backward_input, args[INPUT], args[WEIGHT],
                         CNN_A_INTS(first + n, shape), CNN_A_INTS(n, stride),
                         CNN_A_INTS(2 * n, pad), CNN_A_INTS(n, dilation), args[T_GROUPS]);
  if (b) {
    int64_t column[CNN_MAX_DIMS] = {channels};
    for (int i = 0; i < n; i++) column[1 + i] = 1;
    b = cnn_do(f, reshape, CNN_A_T(b), CNN_A_INTS(n + 1, column));
    y = cnn_do(f, add, CNN_A_T(y), CNN_A_T(b));
  }
  cnn_results_add(f, r, y);
}

#define CONV_TRANSPOSE(title, n, sizes_type, text)                                                 \
  static void title(cnn_frame *f, const cnn_arg *args, cnn_results *r) {                           \
    conv_transpose(f, args, r, n);                                                                 \
  }                                                                                                \
  const cnn_op cnn_op_##title = {                                                                  \
      .name = #title,                                                                              \
      .args =                                                                                      \
          "input:tensor weight:tensor bias:tensor? stride:" sizes_type "=1 padding:" sizes_type    \
          "=0 output_padding:" sizes_type "=0 groups:int=1 dilation:" sizes_type "=1",             \
      .doc = text "The gradient of a convolution by its input, used as a layer: places of the "    \
                  "input scatter the kernel. A size becomes (size - 1) * stride - 2 * padding + "  \
                  "dilation * (kernel - 1) + output_padding + 1.",                                 \
      .flags = CNN_OP_COMPOSITE,                                                                   \
      .promote = CNN_PROMOTE_SAME,                                                                 \
      .composite = title};

CONV_TRANSPOSE(conv_transpose1d, 1, "ints",
               "1-d transposed convolution.\n"
               "input (N, C, L) or (C, L), weight (C, K / groups, R), bias (K) give (N, K, L'). ")
CONV_TRANSPOSE(conv_transpose2d, 2, "pair",
               "2-d transposed convolution.\n"
               "input (N, C, H, W) or (C, H, W), weight (C, K / groups, R, S), bias (K) give "
               "(N, K, H', W'). ")
CONV_TRANSPOSE(conv_transpose3d, 3, "ints",
               "3-d transposed convolution.\n"
               "input (N, C, D, H, W) or without N, weight (C, K / groups, Q, R, S), bias (K) give "
               "(N, K, D', H', W'). ")
