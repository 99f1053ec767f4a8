// SPDX-License-Identifier: MIT
// Kernels of ops/embedding.c. Looking up is bound by the bytes of the rows, which are moved 16 at a
// time; the gradient adds the rows of dy to zeros, ids sorted (indexing.cu).
#include "indexing.cuh"
#include "reduce.cuh"

// The rows of a table at ids, over ids' dims and the row.
static void describe(cuda_indexing *ix, const cnn_view *table, const cnn_view *ids,
                     const cnn_view *o) {
  cuda_indexing_begin(ix, table);
  ix->ndim = ids->ndim + 1;
  ix->n = 1;
  ix->index[0].data = ids->data;
  ix->index[0].dtype = ids->dtype;
  ix->index[0].size = table->shape[0];
  ix->index[0].step = table->strides[0];
  for (int d = 0; d < ids->ndim; d++) {
    ix->shape[d] = ids->shape[d];
    ix->index[0].strides[d] = ids->strides[d];
  }
  ix->shape[ids->ndim] = table->shape[1];
  ix->x_strides[ids->ndim] = table->strides[1];
  cuda_indexing_other(ix, o, o->strides);
}

static cnn_status run_embedding(cnn_call *call) {
  cuda_indexing ix;
  describe(&ix, &call->in[1], &call->in[0], &call->out[0]);
  return cuda_indexing_read(call, &ix);
}

// args: dy input n padding_idx
static void describe_backward(cuda_indexing *ix, const cnn_call *call) {
  describe(ix, &call->out[0], &call->in[1], &call->in[0]);
  if (call->args[3].kind == CNN_INT) ix->left_out = call->args[3].i + 1;
}
CUDA_KERNEL(embedding, nullptr, run_embedding)
CUDA_KERNEL(embedding_backward, cuda_indexing_plan<describe_backward>,
            cuda_indexing_gradient<describe_backward>)

struct fold_largest {
  typedef int64_t T, Acc;
  __device__ Acc zero() const { return 0; }
  __device__ Acc take(Acc a, T x, int64_t) const { return merge(a, x); }
  __device__ Acc merge(Acc a, Acc b) const { return a > b ? a : b; }
  __device__ void store(const k_reduce_form &f, int64_t o, Acc a) const {
    static_cast<int64_t *>(f.out[0])[o] = a;
  }
};

static cnn_status plan_largest_index(cnn_call *call) {
  k_reduce_form f;
  cuda_reduce_make(&f, call, &call->in[0], ~0u);
  call->scratch_bytes = k_reduce_scratch(&f, sizeof(int64_t));
  return CNN_OK;
}
static cnn_status run_largest_index(cnn_call *call) {
  k_reduce_form f;
  cuda_reduce_make(&f, call, &call->in[0], ~0u);
  return f.dtype == CNN_I64 ? k_reduce_launch<k_direct<int64_t, int64_t>>(call, fold_largest(), &f)
                            : k_reduce_launch<k_converted<int64_t>>(call, fold_largest(), &f);
}
CUDA_KERNEL(largest_index, plan_largest_index, run_largest_index)
