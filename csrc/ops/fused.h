// SPDX-License-Identifier: MIT
// What fused ops (fused.c) share with the ops that begin them.
#ifndef CNN_OPS_FUSED_H
#define CNN_OPS_FUSED_H

#include "ops/ops.h"

// The result of linear, of conv2d, from input, weight, bias and what follows.
cnn_status cnn_infer_linear(cnn_infer *I);
cnn_status cnn_infer_conv2d(cnn_infer *I);

// Give input, weight and bias of such an op their gradients, from dy at the layer's own result.
void cnn_backward_linear(cnn_grad *g, cnn_tensor *dy);
void cnn_backward_conv(cnn_grad *g, cnn_tensor *dy);

#endif
