// SPDX-License-Identifier: MIT
// Kernels of ops/gather.c.
#include "cpu/copy.h"
#include "cpu/cpu.h"
#include "cpu/indexing.h"

// o's strides over the space; one number (no dims) serves all of it.
static void set_other(cnn_indexing *ix, const cnn_view *o) {
  ix->o = o->data;
  ix->o_dtype = o->dtype;
  for (int d = 0; d < ix->ndim; d++) ix->o_strides[d] = o->ndim > 0 ? o->strides[d] : 0;
}

static void set_index(cnn_indexing *ix, const cnn_view *x, int dim, const cnn_view *index) {
  ix->x = x->data;
  ix->x_dtype = x->dtype;
  ix->n = 1;
  ix->index[0] = (cnn_indexer){.data = index->data,
                               .dtype = index->dtype,
                               .size = x->ndim ? x->shape[dim] : 1,
                               .step = x->ndim ? x->strides[dim] : 0,
                               .dim = dim,
                               .view = index};
}

// x with its dim replaced by a list of positions.
static cnn_status describe_list(cnn_call *call, cnn_indexing *ix, const cnn_view *x) {
  const cnn_view *index = &call->in[1];
  int dim = 0;
  CNN_TRY(cnn_check_dim(call->ctx, "dim", call->args[1].i, x->ndim, &dim));
  set_index(ix, x, dim, index);
  ix->ndim = x->ndim;
  ix->n_places = dim + 1;
  for (int d = 0; d < x->ndim; d++) {
    ix->shape[d] = x->shape[d];
    ix->x_strides[d] = x->strides[d];
    ix->index[0].strides[d] = 0;
  }
  ix->shape[dim] = index->ndim ? index->shape[0] : 1;
  ix->x_strides[dim] = 0;
  ix->index[0].strides[dim] = index->ndim ? index->strides[0] : 0;
  return CNN_OK;
}

// index's shape. The last dims in which index does not vary are blocks.
static cnn_status describe_grid(cnn_call *call, cnn_indexing *ix, const cnn_view *x) {
  const cnn_view *index = &call->in[1];
  int dim = 0;
  CNN_TRY(cnn_check_dim(call->ctx, "dim", call->args[1].i, x->ndim, &dim));
  set_index(ix, x, dim, index);
  ix->ndim = ix->n_places = index->ndim;
  for (int d = 0; d < index->ndim; d++) {
    ix->shape[d] = index->shape[d];
    ix->x_strides[d] = d == dim ? 0 : x->strides[d];
    ix->index[0].strides[d] = index->strides[d];
  }
  while (ix->n_places > dim + 1 &&
         (index->strides[ix->n_places - 1] == 0 || index->shape[ix->n_places - 1] == 1))
    ix->n_places--;
  return CNN_OK;
}

typedef cnn_status (*describe_fn)(cnn_call *call, cnn_indexing *ix, const cnn_view *x);

static cnn_status read_from(cnn_call *call, describe_fn describe) {
  cnn_indexing ix;
  CNN_TRY(describe(call, &ix, &call->in[0]));
  set_other(&ix, &call->out[0]);
  return cnn_indexing_read(call->ctx, &ix);
}

// The result is x, changed: in place the two are one, so nothing is written before the check.
static cnn_status write_to(cnn_call *call, describe_fn describe) {
  const cnn_view *x = &call->in[0], *y = &call->out[0];
  cnn_indexing ix;
  CNN_TRY(describe(call, &ix, y));
  CNN_TRY(cnn_indexing_check(call->ctx, &ix));
  if (x->data != y->data) cnn_copy_view(y, x);
  set_other(&ix, &call->in[2]);
  cnn_indexing_write(&ix);
  return CNN_OK;
}

static cnn_status add_to(cnn_call *call, describe_fn describe) {
  const cnn_view *y = &call->out[0];
  cnn_indexing ix;
  cnn_sums sums;
  CNN_TRY(describe(call, &ix, y));
  CNN_TRY(cnn_indexing_check(call->ctx, &ix));
  cnn_sums_begin(&sums, call, y, &call->in[0]);
  CNN_TRY(describe(call, &ix, &sums.target));
  set_other(&ix, &call->in[2]);
  cnn_indexing_add(&ix);
  cnn_sums_end(&sums, y);
  return CNN_OK;
}
static cnn_status plan_add(cnn_call *call) {
  cnn_sums_plan(call, &call->out[0]);
  return CNN_OK;
}

static cnn_status run_index_select(cnn_call *call) {
  return read_from(call, describe_list);
}
static cnn_status run_index_add(cnn_call *call) {
  return add_to(call, describe_list);
}
static cnn_status run_index_write(cnn_call *call) {
  return write_to(call, describe_list);
}
static cnn_status run_gather(cnn_call *call) {
  return read_from(call, describe_grid);
}
static cnn_status run_scatter(cnn_call *call) {
  return write_to(call, describe_grid);
}
static cnn_status run_scatter_add(cnn_call *call) {
  return add_to(call, describe_grid);
}

const cnn_kernel cpu_index_select = {NULL, run_index_select, NULL};
const cnn_kernel cpu_index_add = {plan_add, run_index_add, NULL};
const cnn_kernel cpu_index_copy = {NULL, run_index_write, NULL};
const cnn_kernel cpu_index_fill = {NULL, run_index_write, NULL};
const cnn_kernel cpu_gather = {NULL, run_gather, NULL};
const cnn_kernel cpu_scatter = {NULL, run_scatter, NULL};
const cnn_kernel cpu_scatter_add = {plan_add, run_scatter_add, NULL};
