// SPDX-License-Identifier: MIT
// Kernels of ops/index.c.
#include "indexing.cuh"

// The space of x[{...}]: x's dims without an index tensor, and the index tensors' common shape
// where cnn_index_place puts it.
static void describe(cuda_indexing *ix, const cnn_view *x, const cnn_view *indices, int n_indices) {
  int64_t common[CNN_MAX_DIMS];
  int dims = 0, seen = 0, first = 0;
  uint32_t mask = 0;
  for (int i = 0; i < n_indices; i++) {
    if (!cnn_view_present(&indices[i])) continue;
    int64_t before[CNN_MAX_DIMS];
    const int k = dims;
    for (int d = 0; d < k; d++) before[d] = common[d];
    mask |= 1u << i;
    cnn_shape_broadcast(k, before, indices[i].ndim, indices[i].shape, &dims, common);
  }
  const int place = cnn_index_place(mask);
  cuda_indexing_begin(ix, x);
  for (int d = 0; d <= x->ndim; d++) {
    if (seen == place) {
      first = ix->ndim;
      for (int k = 0; k < dims; k++) ix->shape[ix->ndim++] = common[k];
      seen = CNN_MAX_DIMS; // past it
    }
    if (d == x->ndim || mask >> d & 1) continue;
    ix->x_strides[ix->ndim] = x->strides[d];
    ix->shape[ix->ndim++] = x->shape[d];
    seen++;
  }
  for (int i = 0; i < n_indices; i++) {
    if (!cnn_view_present(&indices[i])) continue;
    cuda_indexer *index = &ix->index[ix->n++];
    cnn_strides_broadcast(indices[i].ndim, indices[i].shape, indices[i].strides, dims, common,
                          index->strides + first);
    index->data = indices[i].data;
    index->dtype = indices[i].dtype;
    index->size = x->shape[i];
    index->step = x->strides[i];
    index->dim = i;
  }
}

static void set_other(cuda_indexing *ix, const cnn_view *o) {
  int64_t strides[CNN_MAX_DIMS];
  if (!cnn_view_is_number(o))
    cnn_strides_broadcast(o->ndim, o->shape, o->strides, ix->ndim, ix->shape, strides);
  cuda_indexing_other(ix, o, strides);
}

static cnn_status run_index(cnn_call *call) {
  cuda_indexing ix;
  describe(&ix, &call->in[0], call->in + 1, call->n_in - 1);
  set_other(&ix, &call->out[0]);
  return cuda_indexing_read(call, &ix);
}

// args: dy indices shape
static void describe_backward(cuda_indexing *ix, const cnn_call *call) {
  describe(ix, &call->out[0], call->in + 1, call->n_in - 1);
  set_other(ix, &call->in[0]);
}
// args: x indices value accumulate names. Inputs: x, the indices, value.
static void describe_put(cuda_indexing *ix, const cnn_call *call) {
  describe(ix, &call->in[0], call->in + 1, call->n_in - 2);
  set_other(ix, &call->in[call->n_in - 1]);
}
static cnn_status run_index_put(cnn_call *call) {
  cuda_indexing ix;
  describe_put(&ix, call);
  return call->args[3].i ? cuda_indexing_add(call, &ix, call->scratch)
                         : cuda_indexing_write(call, &ix, call->scratch);
}

CUDA_KERNEL(index, nullptr, run_index)
CUDA_KERNEL(index_backward, cuda_indexing_plan<describe_backward>,
            cuda_indexing_gradient<describe_backward>)
CUDA_KERNEL(index_put_, cuda_indexing_plan<describe_put>, run_index_put)
