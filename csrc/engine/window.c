// SPDX-License-Identifier: MIT
#include "engine/window.h"

#include <inttypes.h>

#include "engine/op.h"

cnn_status cnn_window_sizes(cnn_context *ctx, const char *name, const cnn_arg *arg, int n,
                            int64_t least, int64_t *sizes) {
  if (arg->n != 1 && arg->n != n)
    return cnn_fail(ctx, CNN_SHAPE, "%s has %d sizes for %d spatial dim%s", name, (int)arg->n, n,
                    n == 1 ? "" : "s");
  for (int i = 0; i < n; i++) {
    sizes[i] = arg->ints[arg->n == 1 ? 0 : i];
    if (sizes[i] < least)
      return cnn_fail(ctx, CNN_INVALID, "%s must be at least %" PRId64 ", not %" PRId64, name,
                      least, sizes[i]);
    if (sizes[i] > INT32_MAX) // so that no product of two overflows
      return cnn_fail(ctx, CNN_INVALID, "%s %" PRId64 " is too large", name, sizes[i]);
  }
  return CNN_OK;
}

static cnn_status read_padding(cnn_context *ctx, cnn_window *w, const cnn_arg *padding) {
  if (padding->kind == CNN_INT) {
    for (int i = 0; i < w->n; i++) {
      int64_t total = padding->i == CNN_PAD_SAME ? w->dilation[i] * (w->kernel[i] - 1) : 0;
      if (padding->i == CNN_PAD_SAME && w->stride[i] != 1)
        return cnn_fail(ctx, CNN_INVALID, "padding \"same\" needs stride 1, not %" PRId64,
                        w->stride[i]);
      w->before[i] = total / 2;
      w->after[i] = total - total / 2;
    }
    return CNN_OK;
  }
  if (w->n > 0 && padding->n == 2 * w->n) {
    const cnn_arg before = CNN_A_INTS(w->n, padding->ints);
    const cnn_arg after = CNN_A_INTS(w->n, padding->ints + w->n);
    CNN_TRY(cnn_window_sizes(ctx, "padding", &before, w->n, 0, w->before));
    return cnn_window_sizes(ctx, "padding", &after, w->n, -INT32_MAX, w->after);
  }
  CNN_TRY(cnn_window_sizes(ctx, "padding", padding, w->n, 0, w->before));
  for (int i = 0; i < w->n; i++) w->after[i] = w->before[i];
  return CNN_OK;
}

// What is left of dim i when one window stands at its start; fails when it does not fit.
static cnn_status room(cnn_context *ctx, const cnn_window *w, int i, int64_t *rest) {
  int64_t span = w->dilation[i] * (w->kernel[i] - 1) + 1;
  *rest = w->in[i] + w->before[i] + w->after[i] - span;
  if (*rest >= 0) return CNN_OK;
  cnn_shape_text in, kernel;
  return cnn_fail(ctx, CNN_SHAPE,
                  "the kernel %s spans %" PRId64 " in spatial dim %d, which is more than the input "
                  "%s with its padding, %" PRId64,
                  cnn_shape_format(&kernel, w->n, w->kernel), span, i + ctx->index_base,
                  cnn_shape_format(&in, w->n, w->in), w->in[i] + w->before[i] + w->after[i]);
}

cnn_status cnn_window_conv(cnn_context *ctx, cnn_window *w, const cnn_arg *stride,
                           const cnn_arg *padding, const cnn_arg *dilation) {
  CNN_TRY(cnn_window_sizes(ctx, "stride", stride, w->n, 1, w->stride));
  CNN_TRY(cnn_window_sizes(ctx, "dilation", dilation, w->n, 1, w->dilation));
  CNN_TRY(read_padding(ctx, w, padding));
  for (int i = 0; i < w->n; i++) {
    int64_t rest = 0;
    CNN_TRY(room(ctx, w, i, &rest));
    w->out[i] = rest / w->stride[i] + 1;
  }
  return CNN_OK;
}

cnn_status cnn_window_pool(cnn_context *ctx, cnn_window *w, const cnn_arg *kernel,
                           const cnn_arg *stride, const cnn_arg *padding, const cnn_arg *dilation,
                           bool ceil) {
  const int64_t one = 1;
  const cnn_arg no_dilation = CNN_A_INTS(1, &one);
  CNN_TRY(cnn_window_sizes(ctx, "kernel_size", kernel, w->n, 1, w->kernel));
  CNN_TRY(
      cnn_window_sizes(ctx, "stride", cnn_has(stride, 0) ? stride : kernel, w->n, 1, w->stride));
  CNN_TRY(
      cnn_window_sizes(ctx, "dilation", dilation ? dilation : &no_dilation, w->n, 1, w->dilation));
  CNN_TRY(cnn_window_sizes(ctx, "padding", padding, w->n, 0, w->before));
  for (int i = 0; i < w->n; i++) {
    int64_t rest = 0;
    w->after[i] = w->before[i];
    if (2 * w->before[i] > w->kernel[i])
      return cnn_fail(ctx, CNN_INVALID,
                      "padding %" PRId64 " is more than half of kernel_size %" PRId64, w->before[i],
                      w->kernel[i]);
    CNN_TRY(room(ctx, w, i, &rest));
    w->out[i] = (ceil ? rest + w->stride[i] - 1 : rest) / w->stride[i] + 1;
    if (ceil && (w->out[i] - 1) * w->stride[i] >= w->in[i] + w->before[i]) w->out[i]--;
  }
  return CNN_OK;
}
