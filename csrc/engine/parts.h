// SPDX-License-Identifier: MIT
// Fused ops in parts, for any device: each is a product or a convolution and what follows it, and
// is computed by the kernels of those, one after the other over the same memory, where a device has
// nothing better. So both give the same bits.
//
// Each function plans while the call is planning, and computes else. Also a part of the plugins of
// other devices.
#ifndef CNN_ENGINE_PARTS_H
#define CNN_ENGINE_PARTS_H

#include "engine/call.h"

#ifdef __cplusplus
extern "C" {
#endif

// One part: another op's kernel on views of the call, or of one's own. Plans (and then widens the
// call's scratch) or computes, as the call does.
cnn_status cnn_part(cnn_call *call, const cnn_kernel *kernel, const cnn_view *in, int n_in,
                    cnn_view *out, int n_out, const cnn_arg *args, int n_args);

// out = f(first(in...)), elementwise f, for a first part that takes the call's own arguments. With
// a second result, f's argument is kept there.
cnn_status cnn_parts_then(cnn_call *call, const cnn_kernel *first, const cnn_kernel *f);

// out = f_backward(dy weight, kept), of in = dy, weight, kept.
cnn_status cnn_parts_backward(cnn_call *call, const cnn_kernel *matmul, const cnn_kernel *f);

// dw = dy^T x, of in = dy, x and args[2] the shape of dw; with a second result, db = dy summed over
// its rows.
cnn_status cnn_parts_weight(cnn_call *call, const cnn_kernel *matmul_to, const cnn_kernel *sum_to);

#ifdef __cplusplus
}
#endif

#endif
