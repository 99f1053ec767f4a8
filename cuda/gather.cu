// SPDX-License-Identifier: MIT
// Kernels of ops/gather.c.
#include "indexing.cuh"

// o's strides over the space; one number (no dims) serves all of it.
static void set_other(cuda_indexing *ix, const cnn_view *o) {
  int64_t strides[CNN_MAX_DIMS];
  for (int d = 0; d < ix->ndim; d++) strides[d] = o->ndim > 0 ? o->strides[d] : 0;
  cuda_indexing_other(ix, o, strides);
}

static int dim_of(const cnn_call *call) {
  int dim = 0;
  cnn_check_dim(call->ctx, "dim", call->args[1].i, call->in[0].ndim, &dim); // infer passed it
  return dim;
}

static cuda_indexer *set_index(cuda_indexing *ix, const cnn_view *x, int dim,
                               const cnn_view *index) {
  cuda_indexing_begin(ix, x);
  ix->n = 1;
  ix->index[0].data = index->data;
  ix->index[0].dtype = index->dtype;
  ix->index[0].size = x->ndim ? x->shape[dim] : 1;
  ix->index[0].step = x->ndim ? x->strides[dim] : 0;
  ix->index[0].dim = dim;
  return &ix->index[0];
}

// x with its dim replaced by a list of positions.
static void describe_list(const cnn_call *call, cuda_indexing *ix, const cnn_view *x) {
  const cnn_view *list = &call->in[1];
  const int dim = dim_of(call);
  cuda_indexer *index = set_index(ix, x, dim, list);
  ix->ndim = x->ndim;
  for (int d = 0; d < x->ndim; d++) {
    ix->shape[d] = x->shape[d];
    ix->x_strides[d] = x->strides[d];
  }
  ix->shape[dim] = list->ndim ? list->shape[0] : 1;
  ix->x_strides[dim] = 0;
  index->strides[dim] = list->ndim ? list->strides[0] : 0;
}

// index's shape.
static void describe_grid(const cnn_call *call, cuda_indexing *ix, const cnn_view *x) {
  const cnn_view *grid = &call->in[1];
  const int dim = dim_of(call);
  cuda_indexer *index = set_index(ix, x, dim, grid);
  ix->ndim = grid->ndim;
  for (int d = 0; d < grid->ndim; d++) {
    ix->shape[d] = grid->shape[d];
    ix->x_strides[d] = d == dim ? 0 : x->strides[d];
    index->strides[d] = grid->strides[d];
  }
}

typedef void describe_fn(const cnn_call *call, cuda_indexing *ix, const cnn_view *x);

template <describe_fn describe> static cnn_status read_from(cnn_call *call) {
  cuda_indexing ix;
  if (cnn_view_is_number(&call->in[0])) return cuda_copy_view(call, &call->out[0], &call->in[0]);
  describe(call, &ix, &call->in[0]);
  set_other(&ix, &call->out[0]);
  return cuda_indexing_read(call, &ix);
}

template <describe_fn describe> static cnn_status plan_change(cnn_call *call) {
  cuda_indexing ix;
  describe(call, &ix, &call->out[0]);
  set_other(&ix, &call->in[2]);
  call->scratch_bytes = cuda_indexing_scratch(&ix);
  return CNN_OK;
}

// The result is x, changed: in place the two are one.
template <describe_fn describe, bool adds> static cnn_status change(cnn_call *call) {
  const cnn_view *x = &call->in[0], *y = &call->out[0];
  cuda_indexing ix;
  if (x->data != y->data) CNN_TRY(cuda_copy_view(call, y, x));
  describe(call, &ix, y);
  set_other(&ix, &call->in[2]);
  return adds ? cuda_indexing_add(call, &ix, call->scratch)
              : cuda_indexing_write(call, &ix, call->scratch);
}

CUDA_KERNEL(index_select, nullptr, read_from<describe_list>)
CUDA_KERNEL(index_add, plan_change<describe_list>, (change<describe_list, true>))
CUDA_KERNEL(index_copy, plan_change<describe_list>, (change<describe_list, false>))
CUDA_KERNEL(index_fill, plan_change<describe_list>, (change<describe_list, false>))
CUDA_KERNEL(gather, nullptr, read_from<describe_grid>)
CUDA_KERNEL(scatter, plan_change<describe_grid>, (change<describe_grid, false>))
CUDA_KERNEL(scatter_add, plan_change<describe_grid>, (change<describe_grid, true>))
