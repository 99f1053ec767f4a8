// SPDX-License-Identifier: MIT
#include "ops/geometry.h"

void cnn_geometry_of(cnn_geometry *v, int ndim, const int64_t *shape, const int64_t *strides) {
  v->ndim = ndim;
  v->offset = 0;
  for (int i = 0; i < ndim; i++) v->shape[i] = shape[i], v->strides[i] = strides[i];
}

void cnn_geometry_remove(cnn_geometry *v, int dim) {
  v->ndim--;
  for (int d = dim; d < v->ndim; d++)
    v->shape[d] = v->shape[d + 1], v->strides[d] = v->strides[d + 1];
}

bool cnn_geometry_insert(cnn_geometry *v, int dim, int64_t size, int64_t stride) {
  if (v->ndim == CNN_MAX_DIMS) return false;
  for (int d = v->ndim++; d > dim; d--)
    v->shape[d] = v->shape[d - 1], v->strides[d] = v->strides[d - 1];
  v->shape[dim] = size;
  v->strides[dim] = stride;
  return true;
}

cnn_status cnn_geometry_view(cnn_infer *I, const cnn_geometry *v) {
  cnn_meta *out = cnn_infer_out(I, (cnn_dtype)I->in[0]->dtype, v->ndim, v->shape);
  for (int i = 0; i < v->ndim; i++) out->strides[i] = v->strides[i];
  I->offset = I->in[0]->offset + v->offset;
  return CNN_OK;
}

cnn_status cnn_geometry_infer(cnn_infer *I, cnn_geometry_fn fn) {
  cnn_geometry v;
  cnn_geometry_of(&v, I->in[0]->ndim, I->in[0]->shape, I->in[0]->strides);
  CNN_TRY(fn(I->ctx, I->args, &v));
  return cnn_geometry_view(I, &v);
}

void cnn_geometry_backward(cnn_grad *g, cnn_geometry_fn fn) {
  const cnn_form *x = cnn_in_form(g, 0);
  int64_t strides[CNN_MAX_DIMS];
  cnn_geometry v;
  cnn_shape_strides(x->ndim, x->shape, strides);
  cnn_geometry_of(&v, x->ndim, x->shape, strides);
  if (fn(g->f->ctx, g->args, &v) != CNN_OK) return; // it succeeded in the forward
  cnn_give(g, 0,
           cnn_do(g->f, view_scatter_add, CNN_A_T(g->dy[0]), CNN_A_INTS(x->ndim, x->shape),
                  CNN_A_INTS(v.ndim, v.strides), CNN_A_I(v.offset), CNN_A_INTS(x->ndim, strides)));
}
