// SPDX-License-Identifier: MIT
// Convolutions over cuDNN's graph API: forward (with bias and ReLU), gradient of the input,
// gradient of the weight.
//
// Refused (CUDA_REFUSED): sizes of zero, tensors of 2^31 elements and more, ReLU without a bias,
// and what cuDNN has no engine for on this device. A refusal of cuDNN's costs a search once per
// shape and is kept; the caller's own kernel computes these. cuda/check/plans.c has what cuDNN
// takes.
//
// Plans are kept in memory by description, device and alignment of the pointers, at most
// CUDA_DNN_KEPT of them, and on disk (see cuda_dnn_create). Building one takes 1 to 500 ms of host
// time, so under capture a shape must have been met before.
//
// A function may be called from any thread; the engine's device must be the current one.
#ifndef CNN_CUDA_DNN_H
#define CNN_CUDA_DNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "answer.h"
#include "base/dtype.h"

enum { CUDA_DNN_KEPT = 512, CUDA_CONV_SPATIAL = 3 };

typedef enum cuda_conv_kind {
  CUDA_CONV_FORWARD,         // y = x * w (+ bias[k]) (then ReLU)
  CUDA_CONV_BACKWARD_INPUT,  // x = the gradient of the input, from y = dy and w
  CUDA_CONV_BACKWARD_WEIGHT, // w = the gradient of the weight, from y = dy and x
} cuda_conv_kind;

// x (N, C, in...), w (K, C / groups, kernel...), y (N, K, out...), as cross-correlation: all dense,
// each either row-major in that order or channels-last (N, in..., C), (K, kernel..., C / groups),
// (N, out..., K). Sums are kept in float32 (float64 for float64).
typedef struct cuda_conv {
  cuda_conv_kind kind;
  cnn_dtype dtype;             // of x, w, y and bias
  bool tf32;                   // float32 may be rounded to TF32; else true float32
  bool deterministic;          // only engines that give the same bits every time
  bool lean;                   // the engine with the least workspace, not the fastest
  bool bias, relu;             // forward only; ReLU only with a bias
  bool x_last, w_last, y_last; // lies channels-last. All three alike is what is fast
  int spatial;                 // 1 to CUDA_CONV_SPATIAL
  int64_t n, c, k, groups;     // c and k are of all groups
  int64_t in[CUDA_CONV_SPATIAL], kernel[CUDA_CONV_SPATIAL], out[CUDA_CONV_SPATIAL];
  int64_t stride[CUDA_CONV_SPATIAL], dilation[CUDA_CONV_SPATIAL]; // dilation 1 is a dense kernel
  // out = (in + before + after - dilation (kernel - 1) - 1) / stride + 1, rounded down
  int64_t pad_before[CUDA_CONV_SPATIAL], pad_after[CUDA_CONV_SPATIAL];
  const void *x, *w, *b, *y; // device pointers; cuda_conv_workspace reads only their alignment
} cuda_conv;

typedef struct cuda_dnn cuda_dnn;

// An engine for the current device. Plans that took long to build (5 ms: cuDNN compiled a kernel)
// are kept on disk in $CNN_CACHE_DIR/cudnn, $XDG_CACHE_HOME/cnn/cudnn or $HOME/.cache/cnn/cudnn
// (made at the first use); an empty CNN_CACHE_DIR keeps none.
// `folder` names another one, for all plans; "" keeps none. Without a folder that can be written it
// works all the same. destroy waits for nothing: the device must be done. destroy(NULL) does
// nothing.
// Refused where the library or what it needs is missing.
cuda_answer cuda_dnn_create(cuda_dnn **out, const char *folder, cuda_message *why);
void cuda_dnn_destroy(cuda_dnn *dnn);

// The library's version: major * 10000 + minor * 100 + patch.
size_t cuda_dnn_version(void);

// Bytes of workspace (aligned to 256) that this convolution needs.
cuda_answer cuda_conv_workspace(cuda_dnn *dnn, const cuda_conv *c, size_t *bytes,
                                cuda_message *why);

// Queues it on `stream`. `bytes` is at least what cuda_conv_workspace said for the same description
// and pointers of the same alignment (CUDA_FAILED otherwise); the workspace is in use until the
// stream has passed.
cuda_answer cuda_conv_run(cuda_dnn *dnn, const cuda_conv *c, void *workspace, size_t bytes,
                          cudaStream_t stream, cuda_message *why);

#endif
