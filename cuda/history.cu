// SPDX-License-Identifier: MIT
// Kernels of ops/history.c. A scratch image of the memory that the geometry speaks of holds the
// base's elements; where the base is row-major, the image is the tensor itself. Where a view's
// elements overlap (windows), sums are made by indexing.cu.
#include "indexing.cuh"

static size_t size_of(const cnn_view *v) {
  return cnn_dtype_table[v->dtype].bits / 8;
}

// The base as it lies in an image, which begins at the scratch.
typedef struct image {
  cnn_view view;
  size_t bytes; // 0: the tensor's own memory is what the geometry speaks of
} image;

static image image_of(const cnn_call *call, const cnn_view *base) {
  const int64_t *strides = call->args[4].ints;
  int64_t lowest, span;
  image m = {*base, 0};
  if (cnn_shape_equal(base->ndim, base->strides, base->ndim, strides)) return m;
  cnn_strides_extent(base->ndim, base->shape, strides, &lowest, &span);
  m.bytes = (static_cast<size_t>(span) * size_of(base) + 63) / 64 * 64;
  m.view.strides = strides;
  if (call->scratch)
    m.view.data = static_cast<char *>(call->scratch) - lowest * static_cast<int64_t>(size_of(base));
  return m;
}

static cnn_view inner_view(const cnn_view *base, const cnn_view *like, const cnn_arg *strides,
                           const cnn_arg *offset) {
  cnn_view v = *like;
  v.dtype = base->dtype;
  v.data = static_cast<char *>(base->data) + offset->i * static_cast<int64_t>(size_of(base));
  v.strides = strides->ints;
  return v;
}

static cnn_status plan_input(cnn_call *call) {
  call->scratch_bytes = image_of(call, &call->in[0]).bytes;
  return CNN_OK;
}
static cnn_status plan_result(cnn_call *call) {
  call->scratch_bytes = image_of(call, &call->out[0]).bytes;
  return CNN_OK;
}

static cnn_status run_gather(cnn_call *call) {
  const image base = image_of(call, &call->in[0]);
  if (base.bytes > 0) CNN_TRY(cuda_copy_view(call, &base.view, &call->in[0]));
  const cnn_view from = inner_view(&base.view, &call->out[0], &call->args[2], &call->args[3]);
  return cuda_copy_view(call, &call->out[0], &from);
}

// The result is row-major: it is the image exactly when the geometry is.
static cnn_status run_scatter(cnn_call *call) {
  const image base = image_of(call, &call->out[0]);
  CNN_TRY(cuda_copy_view(call, &base.view, &call->in[0]));
  const cnn_view to = inner_view(&base.view, &call->in[1], &call->args[2], &call->args[3]);
  CNN_TRY(cuda_copy_view(call, &to, &call->in[1]));
  return base.bytes > 0 ? cuda_copy_view(call, &call->out[0], &base.view) : CNN_OK;
}

// args: src shape strides offset base_strides
static void describe(cuda_indexing *ix, const cnn_call *call, const cnn_view *base) {
  const cnn_view *src = &call->in[0];
  const cnn_view to = inner_view(base, src, &call->args[2], &call->args[3]);
  cuda_indexing_begin(ix, &to);
  ix->ndim = src->ndim;
  for (int d = 0; d < src->ndim; d++) {
    ix->shape[d] = src->shape[d];
    ix->x_strides[d] = to.strides[d];
  }
  cuda_indexing_other(ix, src, src->strides);
}

static cnn_status plan_scatter_add(cnn_call *call) {
  cuda_indexing ix;
  const image base = image_of(call, &call->out[0]);
  describe(&ix, call, &base.view);
  call->scratch_bytes = base.bytes + cuda_indexing_scratch(&ix);
  return CNN_OK;
}

static cnn_status run_scatter_add(cnn_call *call) {
  const image base = image_of(call, &call->out[0]);
  cuda_indexing ix;
  describe(&ix, call, &base.view);
  CNN_TRY(cuda_fill_view(call, &base.view, 0));
  CNN_TRY(cuda_indexing_add(call, &ix, static_cast<char *>(call->scratch) + base.bytes));
  return base.bytes > 0 ? cuda_copy_view(call, &call->out[0], &base.view) : CNN_OK;
}

CUDA_KERNEL(view_gather, plan_input, run_gather)
CUDA_KERNEL(view_scatter, plan_result, run_scatter)
CUDA_KERNEL(view_scatter_add, plan_scatter_add, run_scatter_add)
