// SPDX-License-Identifier: MIT
// Kernels of ops/index.c.
#include "cpu/cpu.h"
#include "cpu/indexing.h"

// The space of x[{...}]: x's dims without an index tensor, and the index tensors' common shape
// where cnn_index_place puts it.
static void describe(cnn_indexing *ix, const cnn_view *x, const cnn_view *indices, int n_indices,
                     const cnn_arg *names) {
  int64_t common[CNN_MAX_DIMS];
  int dims = 0, seen = 0;
  uint32_t mask = 0;
  for (int i = 0; i < n_indices; i++) {
    if (!cnn_view_present(&indices[i])) continue;
    int64_t before[CNN_MAX_DIMS];
    int k = dims;
    for (int d = 0; d < k; d++) before[d] = common[d];
    mask |= 1u << i;
    cnn_shape_broadcast(k, before, indices[i].ndim, indices[i].shape, &dims, common);
  }
  int place = cnn_index_place(mask);
  ix->x = x->data;
  ix->x_dtype = x->dtype;
  ix->ndim = 0;
  for (int d = 0; d <= x->ndim; d++) {
    if (seen == place) {
      for (int k = 0; k < dims; k++) {
        ix->x_strides[ix->ndim] = 0;
        ix->shape[ix->ndim++] = common[k];
      }
      ix->n_places = ix->ndim;
      seen = CNN_MAX_DIMS; // past it
    }
    if (d == x->ndim || mask >> d & 1) continue;
    ix->x_strides[ix->ndim] = x->strides[d];
    ix->shape[ix->ndim++] = x->shape[d];
    seen++;
  }
  ix->n = 0;
  for (int i = 0; i < n_indices; i++) {
    if (!cnn_view_present(&indices[i])) continue;
    cnn_indexer *index = &ix->index[ix->n++];
    int lead = ix->n_places - dims;
    for (int d = 0; d < lead; d++) index->strides[d] = 0;
    cnn_strides_broadcast(indices[i].ndim, indices[i].shape, indices[i].strides, dims, common,
                          index->strides + lead);
    index->data = indices[i].data;
    index->dtype = indices[i].dtype;
    index->view = &indices[i];
    index->size = x->shape[i];
    index->step = x->strides[i];
    index->dim = names && names->kind == CNN_INTS && i < names->n ? (int)names->ints[i] : i;
  }
}

static void set_other(cnn_indexing *ix, const cnn_view *o) {
  ix->o = o->data;
  ix->o_dtype = o->dtype;
  cnn_strides_broadcast(o->ndim, o->shape, o->strides, ix->ndim, ix->shape, ix->o_strides);
}

static cnn_status run_index(cnn_call *call) {
  cnn_indexing ix;
  describe(&ix, &call->in[0], call->in + 1, call->n_in - 1, &call->args[2]);
  set_other(&ix, &call->out[0]);
  return cnn_indexing_read(call->ctx, &ix);
}

static cnn_status run_index_backward(cnn_call *call) {
  const cnn_view *dx = &call->out[0];
  cnn_indexing ix;
  cnn_sums sums;
  cnn_sums_begin(&sums, call, dx, NULL);
  describe(&ix, &sums.target, call->in + 1, call->n_in - 1, NULL);
  set_other(&ix, &call->in[0]);
  CNN_TRY(cnn_indexing_check(call->ctx, &ix));
  cnn_indexing_add(&ix);
  cnn_sums_end(&sums, dx);
  return CNN_OK;
}
static cnn_status plan_index_backward(cnn_call *call) {
  cnn_sums_plan(call, &call->out[0]);
  return CNN_OK;
}

static cnn_status run_index_put(cnn_call *call) {
  const cnn_view *x = &call->in[0], *value = &call->in[call->n_in - 1];
  cnn_indexing ix;
  cnn_sums sums;
  describe(&ix, x, call->in + 1, call->n_in - 2, &call->args[4]);
  CNN_TRY(cnn_indexing_check(call->ctx, &ix));
  if (!call->args[3].i) {
    set_other(&ix, value);
    cnn_indexing_write(&ix);
    return CNN_OK;
  }
  cnn_sums_begin(&sums, call, x, x);
  describe(&ix, &sums.target, call->in + 1, call->n_in - 2, NULL);
  set_other(&ix, value);
  cnn_indexing_add(&ix);
  cnn_sums_end(&sums, x);
  return CNN_OK;
}
static cnn_status plan_index_put(cnn_call *call) {
  if (call->args[3].i) cnn_sums_plan(call, &call->in[0]);
  return CNN_OK;
}

const cnn_kernel cpu_index = {NULL, run_index, NULL};
const cnn_kernel cpu_index_backward = {plan_index_backward, run_index_backward, NULL};
const cnn_kernel cpu_index_put_ = {plan_index_put, run_index_put, NULL};
