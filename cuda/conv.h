// SPDX-License-Identifier: MIT
// Own convolutions (conv.cu), for what cuDNN doesn't take.
#ifndef CNN_CUDA_CONV_H
#define CNN_CUDA_CONV_H

#include "dnn.h"
#include "kernel.h"
#include "spatial.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_CONV_LONGEST (1 << 30)

// y[n, k, p] = b[k] + sum over c, t of w[k, c, t] x[n, c, p * stride + t * dilation - before], or
// the gradient of x or w from dy in y. c and t are those of the group; the spatial dims are three.
// Any strides. No dim is longer than CUDA_CONV_LONGEST, with its padding.
typedef struct cuda_conv_job {
  cuda_conv_kind kind;
  cnn_dtype dtype;
  int64_t n, groups, cg, kg; // channels of one group
  int64_t taps, places;      // under the kernel; of a plane of y
  int32_t in[3], kernel[3], out[3], stride[3], dilation[3], before[3];
  cuda_image x, y;
  cuda_image w; // its n is the stride of output channels, its c that of a group's input channels
  const void *b;
  int64_t b_stride;
} cuda_conv_job;

// The scratch that the gradient of a weight takes at most (less is taken as it is: sums over many
// places are then made by fewer blocks). The other kinds take none.
size_t cuda_conv_own_bytes(const cuda_conv_job *j);
cnn_status cuda_conv_own(const cnn_call *call, const cuda_conv_job *j, void *scratch, size_t bytes);

// y += b, channel by channel.
cnn_status cuda_conv_add_bias(const cnn_call *call, const cuda_conv_job *j);

// db, in the call's second result: the sum of dy over all dims but `channel`. It takes the call's
// scratch from its start.
size_t cuda_bias_gradient_bytes(const cnn_call *call, const cnn_view *dy, int channel);
cnn_status cuda_bias_gradient(const cnn_call *call, const cnn_view *dy, int channel);

#ifdef __cplusplus
}
#endif

#endif
