// SPDX-License-Identifier: MIT
// Kernels of ops/join.c: each part is copied to its place in the result.
#include "cpu/copy.h"
#include "cpu/cpu.h"

static cnn_status run_cat(cnn_call *call) {
  const cnn_view *y = &call->out[0];
  int d;
  int64_t start = 0, shape[CNN_MAX_DIMS];
  CNN_TRY(cnn_check_dim(call->ctx, "dim", call->args[1].i, y->ndim, &d));
  for (int k = 0; k < y->ndim; k++) shape[k] = y->shape[k];
  for (int i = 0; i < call->n_in; i++) {
    const cnn_view *x = &call->in[i];
    if (x->ndim != y->ndim) continue; // an empty vector
    cnn_view to = *y;
    shape[d] = x->shape[d];
    to.shape = shape;
    if (cnn_view_numel(x) == 0) continue;
    to.data = (char *)y->data + start * y->strides[d] * (int64_t)cnn_dtype_size(y->dtype);
    cnn_copy_view(&to, x);
    start += x->shape[d];
  }
  return CNN_OK;
}

static cnn_status run_stack(cnn_call *call) {
  const cnn_view *y = &call->out[0];
  int d;
  int64_t strides[CNN_MAX_DIMS];
  CNN_TRY(cnn_check_dim(call->ctx, "dim", call->args[1].i, y->ndim, &d));
  if (cnn_view_numel(y) == 0) return CNN_OK;
  for (int k = 0; k < y->ndim - 1; k++) strides[k] = y->strides[k < d ? k : k + 1];
  for (int i = 0; i < call->n_in; i++) {
    cnn_view to = call->in[i];
    to.strides = strides;
    to.data = (char *)y->data + i * y->strides[d] * (int64_t)cnn_dtype_size(y->dtype);
    cnn_copy_view(&to, &call->in[i]);
  }
  return CNN_OK;
}

const cnn_kernel cpu_cat = {NULL, run_cat, NULL};
const cnn_kernel cpu_stack = {NULL, run_stack, NULL};
