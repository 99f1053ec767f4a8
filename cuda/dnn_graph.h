// SPDX-License-Identifier: MIT
// From a convolution to a cuDNN execution plan: graphs, choice of an engine, plans as text. No
// caches and no execution (dnn.c), so that plans can be built for a device that is not there
// (check/plans.c).
#ifndef CNN_CUDA_DNN_GRAPH_H
#define CNN_CUDA_DNN_GRAPH_H

#include <cudnn_graph.h>

#include "dnn.h"

// All that a plan depends on but the device. Words alone, so that it is compared and hashed by its
// bytes. One spatial dimension is written as two (cuDNN's convolutions begin there) with height 1;
// sizes beyond `spatial` are 1, paddings 0. `align` is of x, w, b and y: 1 to 16 bytes.
typedef struct dnn_key {
  int64_t kind, dtype, tf32, deterministic, lean, bias, relu, x_last, w_last, y_last, spatial;
  int64_t n, c, k, groups, in[CUDA_CONV_SPATIAL], kernel[CUDA_CONV_SPATIAL], out[CUDA_CONV_SPATIAL],
      stride[CUDA_CONV_SPATIAL], dilation[CUDA_CONV_SPATIAL], before[CUDA_CONV_SPATIAL],
      after[CUDA_CONV_SPATIAL], align[4];
} dnn_key;

// Names of the tensors in a variant pack.
enum { DNN_X = 'x', DNN_W = 'w', DNN_B = 'b', DNN_Y = 'y' };

// Where plans are for: a handle, or with handle NULL a finalized DEVICEPROP descriptor.
typedef struct dnn_target {
  cudnnHandle_t handle;
  cudnnBackendDescriptor_t device;
} dnn_target;

typedef struct dnn_plan {
  cudnnBackendDescriptor_t plan;
  size_t workspace;
} dnn_plan;

// Checks the description and reduces it. Refuses zero sizes and other dtypes; fails for what no
// caller may ask (sizes that contradict each other).
cuda_answer dnn_key_make(const cuda_conv *c, dnn_key *key, cuda_message *why);

// Builds the plan that cuDNN's heuristics like best among those that keep the key's promises.
cuda_answer dnn_plan_build(const dnn_target *target, const dnn_key *key, dnn_plan *out,
                           cuda_message *why);

// A plan as text (malloc'ed, NUL at its end; NULL: it has none), and back. Text that this library
// or device doesn't take is refused.
char *dnn_plan_text(const dnn_plan *plan);
cuda_answer dnn_plan_load(const dnn_target *target, const char *text, dnn_plan *out,
                          cuda_message *why);

void dnn_plan_free(dnn_plan *plan);

// Whether the status tells of memory that could not be had, which the next call may find.
bool dnn_out_of_memory(cudnnStatus_t status);

// Writes a message of this kind: "<what>: <cuDNN's words> (<its last error>)".
void dnn_say(cuda_message *why, const char *what, cudnnStatus_t status);

#endif
