// SPDX-License-Identifier: MIT
// Sliding windows over 1 to 3 spatial dims: the geometry that convolutions and pools share, read
// from their arguments by infer and by kernels alike.
#ifndef CNN_ENGINE_WINDOW_H
#define CNN_ENGINE_WINDOW_H

#include "engine/call.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CNN_MAX_SPATIAL 3

typedef struct cnn_window {
  int n; // spatial dims
  int64_t in[CNN_MAX_SPATIAL], kernel[CNN_MAX_SPATIAL], out[CNN_MAX_SPATIAL];
  int64_t stride[CNN_MAX_SPATIAL], dilation[CNN_MAX_SPATIAL];
  int64_t before[CNN_MAX_SPATIAL], after[CNN_MAX_SPATIAL]; // padding
} cnn_window;

// A list argument of one size for all n dims, or of n sizes, each at least `least`.
cnn_status cnn_window_sizes(cnn_context *ctx, const char *name, const cnn_arg *arg, int n,
                            int64_t least, int64_t *sizes);

// The window of a convolution over w->in with w->kernel, which the caller has set along with w->n.
// Padding may also be 2 n sizes, those before all dims and then those after (which cut off when
// negative), or "same" (which asks for stride 1) or "valid". Fails where the kernel is larger than
// the padded input.
cnn_status cnn_window_conv(cnn_context *ctx, cnn_window *w, const cnn_arg *stride,
                           const cnn_arg *padding, const cnn_arg *dilation);

// The window of a pool over w->in; w->n is set. An absent stride is the kernel; dilation may be
// NULL. With `ceil` a last window that hangs over the end counts if it starts inside the input or
// the padding before it.
cnn_status cnn_window_pool(cnn_context *ctx, cnn_window *w, const cnn_arg *kernel,
                           const cnn_arg *stride, const cnn_arg *padding, const cnn_arg *dilation,
                           bool ceil);

#ifdef __cplusplus
}
#endif

#endif
