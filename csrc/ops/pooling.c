// SPDX-License-Identifier: MIT
// Pooling over 1 to 3 spatial dims.
//
// Max pooling keeps, as a second result, where each maximum was: int32 positions from 1 within its
// plane (one channel's spatial dims, row-major). By them its gradient is a scatter and the gradient
// of that a gather, which are each other's derivatives; both carry the windows, which say where an
// element of the plane can have been found. Average pooling is linear: its gradient's gradient is
// average pooling.
#include "ops/ops.h"

#include "engine/window.h"

// ---------------------------------------------------------------------------------------------
// Shapes

// Spatial dims of the input, into w->in. Fails for other ranks, and for planes too large for int32.
static cnn_status read_input(cnn_infer *I, int n, cnn_window *w) {
  const cnn_tensor *x = I->in[0];
  cnn_shape_text text;
  if (x->ndim != n + 1 && x->ndim != n + 2)
    return cnn_fail(I->ctx, CNN_SHAPE, "input must have %d dims, or %d without a batch, not %d %s",
                    n + 2, n + 1, x->ndim, cnn_tensor_shape_text(x, &text));
  int64_t places = 1;
  w->n = n;
  for (int i = 0; i < n; i++) {
    w->in[i] = x->shape[x->ndim - n + i];
    if (w->in[i] < 1)
      return cnn_fail(I->ctx, CNN_SHAPE, "input %s has an empty spatial dim",
                      cnn_tensor_shape_text(x, &text));
    if (__builtin_mul_overflow(places, w->in[i], &places) || places > INT32_MAX)
      return cnn_fail(I->ctx, CNN_SHAPE, "input %s has planes of more than 2^31 - 1 places",
                      cnn_tensor_shape_text(x, &text));
  }
  return CNN_OK;
}

// A result like the input with these spatial sizes, channels-last where the input is.
static void give_out(cnn_infer *I, cnn_dtype dtype, int n, const int64_t *sizes) {
  const cnn_tensor *x = I->in[0];
  int64_t shape[CNN_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) shape[d] = x->shape[d];
  for (int i = 0; i < n; i++) shape[x->ndim - n + i] = sizes[i];
  cnn_meta *out = cnn_infer_out(I, dtype, x->ndim, shape);
  if (x->ndim == 4 && n == 2 && cnn_strides_channels_last(x->shape, x->strides))
    cnn_infer_channels_last(I->ctx, out);
}

// A result of another shape in the layout of input 0: gradients.
static void give_like(cnn_infer *I, int n, const cnn_arg *shape) {
  const cnn_tensor *dy = I->in[0];
  cnn_meta *out = cnn_infer_out(I, I->dtype, shape->n, shape->ints);
  if (dy->ndim == 4 && n == 2 && cnn_strides_channels_last(dy->shape, dy->strides))
    cnn_infer_channels_last(I->ctx, out);
}

static cnn_status check_float(cnn_infer *I) {
  if (cnn_dtype_is_float(I->dtype)) return CNN_OK;
  return cnn_fail(I->ctx, CNN_DTYPE, "input is %s: a mean takes floats, e.g. input:float()",
                  cnn_dtype_name(I->dtype));
}

static cnn_status check_not_bool(cnn_infer *I) {
  if (I->dtype != CNN_BOOL) return CNN_OK;
  return cnn_fail(I->ctx, CNN_DTYPE, "input is bool: convert it first, e.g. input:to(\"uint8\")");
}

static cnn_status read_output_size(cnn_context *ctx, const cnn_arg *arg, int n, int64_t *sizes) {
  return cnn_window_sizes(ctx, "output_size", arg, n, 1, sizes);
}

// ---------------------------------------------------------------------------------------------
// Max pooling

enum { M_SPATIAL = 1, M_KERNEL, M_STRIDE, M_PADDING, M_DILATION, M_CEIL };

static cnn_status infer_max_pool(cnn_infer *I) {
  const cnn_arg *a = I->args;
  cnn_window w;
  int n = (int)a[M_SPATIAL].i;
  CNN_TRY(check_not_bool(I));
  CNN_TRY(read_input(I, n, &w));
  CNN_TRY(cnn_window_pool(I->ctx, &w, &a[M_KERNEL], &a[M_STRIDE], &a[M_PADDING], &a[M_DILATION],
                          a[M_CEIL].i));
  // With dilation a window may step over a small input altogether; only those that begin in the
  // padding can.
  for (int d = 0; d < n; d++) {
    for (int64_t i = 0; i < w.out[d] && i * w.stride[d] < w.before[d]; i++) {
      int64_t start = i * w.stride[d] - w.before[d];
      int64_t tap = (w.dilation[d] - 1 - start) / w.dilation[d];
      if (tap < w.kernel[d] && start + tap * w.dilation[d] < w.in[d]) continue;
      return cnn_fail(I->ctx, CNN_SHAPE,
                      "a window with dilation %lld and padding %lld has no element inside the "
                      "input, of size %lld in spatial dim %d",
                      (long long)w.dilation[d], (long long)w.before[d], (long long)w.in[d],
                      d + I->ctx->index_base);
    }
  }
  give_out(I, I->dtype, n, w.out);
  give_out(I, CNN_I32, n, w.out);
  return CNN_OK;
}

static cnn_status infer_adaptive_max_pool(cnn_infer *I) {
  cnn_window w;
  int n = (int)I->args[1].i;
  CNN_TRY(check_not_bool(I));
  CNN_TRY(read_input(I, n, &w));
  CNN_TRY(read_output_size(I->ctx, &I->args[2], n, w.out));
  give_out(I, I->dtype, n, w.out);
  give_out(I, CNN_I32, n, w.out);
  return CNN_OK;
}

// The gradient of max pooling: see max_pool_backward for `window`.
static void give_scattered(cnn_grad *g, int n, const int64_t *window) {
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_tensor *indices = cnn_out(g, 1);
  cnn_give(g, 0,
           cnn_do(g->f, max_pool_backward, CNN_A_T(g->dy[0]), CNN_A_T(indices),
                  CNN_A_INTS(x->ndim, x->shape), g->args[1], CNN_A_INTS(n, window)));
}

static void backward_max_pool(cnn_grad *g) {
  const cnn_form *x = cnn_in_form(g, 0);
  const cnn_arg *a = g->args;
  int n = (int)a[M_SPATIAL].i;
  int64_t window[4 * CNN_MAX_SPATIAL];
  cnn_window w = {.n = n};
  for (int i = 0; i < n; i++) w.in[i] = x->shape[x->ndim - n + i];
  g->f->status = cnn_window_pool(g->f->ctx, &w, &a[M_KERNEL], &a[M_STRIDE], &a[M_PADDING],
                                 &a[M_DILATION], a[M_CEIL].i);
  for (int i = 0; i < n; i++) {
    window[i] = w.kernel[i], window[n + i] = w.stride[i];
    window[2 * n + i] = w.before[i], window[3 * n + i] = w.dilation[i];
  }
  give_scattered(g, 4 * n, window);
}

static void backward_adaptive_max_pool(cnn_grad *g) {
  const int64_t parts = 0;
  give_scattered(g, 1, &parts);
}

const cnn_op cnn_op_max_pool = {
    .name = "max_pool",
    .args = "input:tensor spatial:int kernel_size:ints stride:ints? padding:ints=0 dilation:ints=1 "
            "ceil_mode:bool=false",
    .doc = "Max pooling over the last `spatial` dims, and where the maxima are.",
    .results = "out indices",
    .saves = "indices",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_max_pool,
    .backward = backward_max_pool,
};

const cnn_op cnn_op_adaptive_max_pool = {
    .name = "adaptive_max_pool",
    .args = "input:tensor spatial:int output_size:ints",
    .doc = "Adaptive max pooling over the last `spatial` dims, and where the maxima are.",
    .results = "out indices",
    .saves = "indices",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_adaptive_max_pool,
    .backward = backward_adaptive_max_pool,
};

// Places are kept as int32.
static cnn_status check_places(cnn_infer *I, int n, const cnn_arg *window) {
  cnn_dtype dtype = (cnn_dtype)I->in[1]->dtype;
  if (dtype != CNN_I32)
    return cnn_fail(I->ctx, CNN_DTYPE, "indices are %s, not int32", cnn_dtype_name(dtype));
  if (!cnn_has(window, 0) || window->n == 4 * n || window->n == 1) return CNN_OK;
  return cnn_fail(I->ctx, CNN_INVALID, "window has %d sizes, not %d", (int)window->n, 4 * n);
}

static cnn_status infer_max_pool_backward(cnn_infer *I) {
  CNN_TRY(cnn_infer_need_float(I));
  CNN_TRY(check_places(I, (int)I->args[3].i, &I->args[4]));
  give_like(I, (int)I->args[3].i, &I->args[2]);
  return CNN_OK;
}

static void backward_max_pool_backward(cnn_grad *g) {
  cnn_tensor *indices = cnn_in(g, 1);
  cnn_give(g, 0,
           cnn_do(g->f, max_pool_gather, CNN_A_T(g->dy[0]), CNN_A_T(indices), g->args[3],
                  g->args[4]));
}

const cnn_op cnn_op_max_pool_backward = {
    .name = "max_pool_backward",
    .args = "dy:tensor indices:index shape:shape spatial:int window:ints?",
    .doc = "Zeros of that shape, with dy added at the indices of each plane. window: each lies in "
           "its window; the kernel, stride, padding and dilation of these for all dims, or one 0 "
           "for the parts of adaptive pooling.",
    .saves = "indices",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_max_pool_backward,
    .backward = backward_max_pool_backward,
};

static cnn_status infer_max_pool_gather(cnn_infer *I) {
  const cnn_tensor *indices = I->in[1];
  int n = (int)I->args[2].i;
  CNN_TRY(check_places(I, n, &I->args[3]));
  give_out(I, I->dtype, n, indices->shape + indices->ndim - n);
  return CNN_OK;
}

static void backward_max_pool_gather(cnn_grad *g) {
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_tensor *indices = cnn_in(g, 1);
  cnn_give(g, 0,
           cnn_do(g->f, max_pool_backward, CNN_A_T(g->dy[0]), CNN_A_T(indices),
                  CNN_A_INTS(x->ndim, x->shape), g->args[2], g->args[3]));
}

const cnn_op cnn_op_max_pool_gather = {
    .name = "max_pool_gather",
    .args = "input:tensor indices:index spatial:int window:ints?",
    .doc = "The elements of each plane at its indices. window: as for max_pool_backward.",
    .saves = "indices",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_max_pool_gather,
    .backward = backward_max_pool_gather,
};

// Gives the values and, on demand, the indices as int64.
static void add_results(cnn_frame *f, cnn_results *r, cnn_tensor *const *both, bool indices) {
  cnn_results_add(f, r, both[0]);
  if (indices) cnn_results_add(f, r, cnn_do(f, cast, CNN_A_T(both[1]), CNN_A_I(CNN_I64)));
}

#define MAX_POOL(title, n, sizes_type, shapes)                                                     \
  static void title(cnn_frame *f, const cnn_arg *args, cnn_results *r) {                           \
    cnn_tensor *both[2];                                                                           \
    cnn_frame_results(f, OP_max_pool,                                                              \
                      CNN_ARGS(args[0], CNN_A_I(n), args[1], args[2], args[3], args[4], args[5]),  \
                      both, 2);                                                                    \
    add_results(f, r, both, args[6].i);                                                            \
  }                                                                                                \
  const cnn_op cnn_op_##title = {                                                                  \
      .name = #title,                                                                              \
      .args = "input:tensor kernel_size:" sizes_type " stride:" sizes_type "? padding:" sizes_type \
              "=0 dilation:" sizes_type "=1 ceil_mode:bool=false return_indices:bool=false",       \
      .doc = "Maximum of each window over " #n " spatial dims.\n" shapes                           \
             "stride is kernel_size by default; padding, at most half the kernel, never wins; "    \
             "with ceil_mode a last window may hang over the end if it begins inside. NaN wins. "  \
             "return_indices: also where the maxima are, int64 positions within a plane. "         \
             "Integers stay integers.",                                                            \
      .results = "out indices",                                                                    \
      .flags = CNN_OP_COMPOSITE,                                                                   \
      .composite = title};

#define ADAPTIVE_MAX_POOL(title, n, sizes_type)                                                    \
  static void title(cnn_frame *f, const cnn_arg *args, cnn_results *r) {                           \
    cnn_tensor *both[2];                                                                           \
    cnn_frame_results(f, OP_adaptive_max_pool, CNN_ARGS(args[0], CNN_A_I(n), args[1]), both, 2);   \
    add_results(f, r, both, args[2].i);                                                            \
  }                                                                                                \
  const cnn_op cnn_op_##title = {                                                                  \
      .name = #title,                                                                              \
      .args = "input:tensor output_size:" sizes_type " return_indices:bool=false",                 \
      .doc = "Maximum of windows that divide " #n " spatial dims into output_size parts, which "   \
             "overlap where the size is no multiple. return_indices: also where they are.",        \
      .results = "out indices",                                                                    \
      .flags = CNN_OP_COMPOSITE,                                                                   \
      .composite = title};

MAX_POOL(max_pool1d, 1, "ints", "input (N, C, L) or (C, L). ")
MAX_POOL(max_pool2d, 2, "pair", "input (N, C, H, W) or (C, H, W). ")
MAX_POOL(max_pool3d, 3, "ints", "input (N, C, D, H, W) or (C, D, H, W). ")
ADAPTIVE_MAX_POOL(adaptive_max_pool1d, 1, "ints")
ADAPTIVE_MAX_POOL(adaptive_max_pool2d, 2, "pair")
ADAPTIVE_MAX_POOL(adaptive_max_pool3d, 3, "ints")

// ---------------------------------------------------------------------------------------------
// Average pooling

enum { A_KERNEL = 1, A_STRIDE, A_PADDING, A_CEIL, A_INCLUDE_PAD, A_DIVISOR };

static cnn_status infer_avg_pool(cnn_infer *I, int n) {
  const cnn_arg *a = I->args;
  cnn_window w;
  CNN_TRY(check_float(I));
  CNN_TRY(read_input(I, n, &w));
  CNN_TRY(
      cnn_window_pool(I->ctx, &w, &a[A_KERNEL], &a[A_STRIDE], &a[A_PADDING], NULL, a[A_CEIL].i));
  if (cnn_has(a, A_DIVISOR) && a[A_DIVISOR].i == 0)
    return cnn_fail(I->ctx, CNN_INVALID, "divisor_override must not be 0");
  give_out(I, I->dtype, n, w.out);
  return CNN_OK;
}

static void backward_avg_pool(cnn_grad *g, int n) {
  const cnn_form *x = cnn_in_form(g, 0);
  const cnn_arg *a = g->args;
  cnn_give(g, 0,
           cnn_do(g->f, avg_pool_backward, CNN_A_T(g->dy[0]), a[A_KERNEL], a[A_STRIDE],
                  a[A_PADDING], a[A_CEIL], a[A_INCLUDE_PAD], a[A_DIVISOR],
                  CNN_A_INTS(x->ndim, x->shape), CNN_A_I(n)));
}

#define AVG_POOL(title, n, sizes_type, shapes)                                                     \
  static cnn_status infer_##title(cnn_infer *I) {                                                  \
    return infer_avg_pool(I, n);                                                                   \
  }                                                                                                \
  static void backward_##title(cnn_grad *g) {                                                      \
    backward_avg_pool(g, n);                                                                       \
  }                                                                                                \
  const cnn_op cnn_op_##title = {                                                                  \
      .name = #title,                                                                              \
      .args = "input:tensor kernel_size:" sizes_type " stride:" sizes_type "? padding:" sizes_type \
              "=0 ceil_mode:bool=false count_include_pad:bool=true divisor_override:int?",         \
      .doc = "Mean of each window over " #n " spatial dims.\n" shapes                              \
             "stride is kernel_size by default; padding is at most half the kernel and counts as " \
             "zeros, or not at all without count_include_pad; with ceil_mode a last window may "   \
             "hang over the end if it begins inside. divisor_override replaces the count.",        \
      .infer = infer_##title,                                                                      \
      .backward = backward_##title};

AVG_POOL(avg_pool1d, 1, "ints", "input (N, C, L) or (C, L). ")
AVG_POOL(avg_pool2d, 2, "pair", "input (N, C, H, W) or (C, H, W). ")
AVG_POOL(avg_pool3d, 3, "ints", "input (N, C, D, H, W) or (C, D, H, W). ")

enum { B_SHAPE = 7, B_SPATIAL };

static cnn_status infer_avg_pool_backward(cnn_infer *I) {
  CNN_TRY(cnn_infer_need_float(I));
  give_like(I, (int)I->args[B_SPATIAL].i, &I->args[B_SHAPE]);
  return CNN_OK;
}

static void backward_avg_pool_backward(cnn_grad *g) {
  static const int ops[] = {0, OP_avg_pool1d, OP_avg_pool2d, OP_avg_pool3d};
  const cnn_arg *a = g->args;
  cnn_give(g, 0,
           cnn_frame_do(g->f, ops[a[B_SPATIAL].i],
                        CNN_ARGS(CNN_A_T(g->dy[0]), a[A_KERNEL], a[A_STRIDE], a[A_PADDING],
                                 a[A_CEIL], a[A_INCLUDE_PAD], a[A_DIVISOR])));
}

const cnn_op cnn_op_avg_pool_backward = {
    .name = "avg_pool_backward",
    .args = "dy:tensor kernel_size:ints stride:ints? padding:ints ceil_mode:bool "
            "count_include_pad:bool divisor_override:int? shape:shape spatial:int",
    .doc = "Gradient of average pooling's input, which has that shape.",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_avg_pool_backward,
    .backward = backward_avg_pool_backward,
};

static cnn_status infer_adaptive_avg_pool(cnn_infer *I, int n) {
  cnn_window w;
  CNN_TRY(check_float(I));
  CNN_TRY(read_input(I, n, &w));
  CNN_TRY(read_output_size(I->ctx, &I->args[1], n, w.out));
  give_out(I, I->dtype, n, w.out);
  return CNN_OK;
}

static void backward_adaptive_avg_pool(cnn_grad *g, int n) {
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_give(g, 0,
           cnn_do(g->f, adaptive_avg_pool_backward, CNN_A_T(g->dy[0]), g->args[1],
                  CNN_A_INTS(x->ndim, x->shape), CNN_A_I(n)));
}

#define ADAPTIVE_AVG_POOL(title, n, sizes_type)                                                    \
  static cnn_status infer_##title(cnn_infer *I) {                                                  \
    return infer_adaptive_avg_pool(I, n);                                                          \
  }                                                                                                \
  static void backward_##title(cnn_grad *g) {                                                      \
    backward_adaptive_avg_pool(g, n);                                                              \
  }                                                                                                \
  const cnn_op cnn_op_##title = {                                                                  \
      .name = #title,                                                                              \
      .args = "input:tensor output_size:" sizes_type,                                              \
      .doc = "Mean of windows that divide " #n " spatial dims into output_size parts, which "      \
             "overlap where the size is no multiple: part i of m covers floor(i * size / m) to "   \
             "ceil((i + 1) * size / m).",                                                          \
      .infer = infer_##title,                                                                      \
      .backward = backward_##title};

ADAPTIVE_AVG_POOL(adaptive_avg_pool1d, 1, "ints")
ADAPTIVE_AVG_POOL(adaptive_avg_pool2d, 2, "pair")
ADAPTIVE_AVG_POOL(adaptive_avg_pool3d, 3, "ints")

static cnn_status infer_adaptive_avg_pool_backward(cnn_infer *I) {
  CNN_TRY(cnn_infer_need_float(I));
  give_like(I, (int)I->args[3].i, &I->args[2]);
  return CNN_OK;
}

static void backward_adaptive_avg_pool_backward(cnn_grad *g) {
  static const int ops[] = {0, OP_adaptive_avg_pool1d, OP_adaptive_avg_pool2d,
                            OP_adaptive_avg_pool3d};
  cnn_give(g, 0, cnn_frame_do(g->f, ops[g->args[3].i], CNN_ARGS(CNN_A_T(g->dy[0]), g->args[1])));
}

const cnn_op cnn_op_adaptive_avg_pool_backward = {
    .name = "adaptive_avg_pool_backward",
    .args = "dy:tensor output_size:ints shape:shape spatial:int",
    .doc = "Gradient of adaptive average pooling's input, which has that shape.",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_adaptive_avg_pool_backward,
    .backward = backward_adaptive_avg_pool_backward,
};
