// SPDX-License-Identifier: MIT
// Kernels of ops/join.c: each part is copied to its place in the result.
#include "kernel.cuh"

static int dim_of(const cnn_call *call) {
  int d = 0;
  cnn_check_dim(call->ctx, "dim", call->args[1].i, call->out[0].ndim, &d); // infer passed it
  return d;
}

static void *at(const cnn_view *v, int64_t offset) {
  const int64_t size = cnn_dtype_table[v->dtype].bits / 8;
  return static_cast<char *>(v->data) + offset * size;
}

static cnn_status run_cat(cnn_call *call) {
  const cnn_view *y = &call->out[0];
  const int d = dim_of(call);
  int64_t start = 0, shape[CNN_MAX_DIMS];
  for (int k = 0; k < y->ndim; k++) shape[k] = y->shape[k];
  for (int i = 0; i < call->n_in; i++) {
    const cnn_view *x = &call->in[i];
    if (x->ndim != y->ndim || cnn_view_numel(x) == 0) continue; // an empty vector fits anything
    shape[d] = x->shape[d];
    cnn_view to = *y;
    to.shape = shape;
    to.data = at(y, start * y->strides[d]);
    CNN_TRY(cuda_copy_view(call, &to, x));
    start += x->shape[d];
  }
  return CNN_OK;
}

static cnn_status run_stack(cnn_call *call) {
  const cnn_view *y = &call->out[0];
  const int d = dim_of(call);
  int64_t shape[CNN_MAX_DIMS], strides[CNN_MAX_DIMS];
  if (cnn_view_numel(y) == 0) return CNN_OK;
  for (int k = 0; k < y->ndim - 1; k++) {
    shape[k] = y->shape[k < d ? k : k + 1];
    strides[k] = y->strides[k < d ? k : k + 1];
  }
  for (int i = 0; i < call->n_in; i++) {
    const cnn_view to = {at(y, i * y->strides[d]), shape, strides, y->ndim - 1, y->dtype};
    CNN_TRY(cuda_copy_view(call, &to, &call->in[i]));
  }
  return CNN_OK;
}

CUDA_KERNEL(cat, nullptr, run_cat)
CUDA_KERNEL(stack, nullptr, run_stack)
