// SPDX-License-Identifier: MIT
// What infer functions share.
#include "engine/op.h"
#include "engine/registry.h"

#include <inttypes.h>
#include <stdio.h>

cnn_meta *cnn_infer_out(cnn_infer *I, cnn_dtype dtype, int ndim, const int64_t *shape) {
  cnn_meta *out = &I->out[I->n_out++];
  cnn_meta_set(out, dtype, I->device, ndim, shape);
  return out;
}

cnn_status cnn_infer_channels_last(cnn_context *ctx, cnn_meta *out) {
  if (out->ndim != 4)
    return cnn_fail(ctx, CNN_SHAPE, "channels_last is for tensors with 4 dims, not %d", out->ndim);
  int64_t c = out->shape[1] > 1 ? out->shape[1] : 1, h = out->shape[2] > 1 ? out->shape[2] : 1;
  int64_t w = out->shape[3] > 1 ? out->shape[3] : 1;
  out->strides[0] = h * w * c;
  out->strides[1] = 1;
  out->strides[2] = w * c;
  out->strides[3] = c;
  return CNN_OK;
}

cnn_status cnn_infer_need_float(const cnn_infer *I) {
  if (cnn_dtype_is_float(I->dtype)) return CNN_OK;
  return cnn_fail(I->ctx, CNN_DTYPE, "gradients are floats, not %s", cnn_dtype_name(I->dtype));
}

cnn_status cnn_infer_broadcast(cnn_infer *I, cnn_dtype dtype) {
  cnn_meta *out = &I->out[I->n_out++];
  out->dtype = dtype;
  out->device = I->device;
  out->ndim = 0;
  const cnn_tensor *lead = NULL; // first input of the full shape so far
  int first = 0;
  while (first < I->n_in && !I->in[first]) first++;
  if (first < I->n_in) {
    lead = I->in[first];
    out->ndim = lead->ndim;
    for (int k = 0; k < lead->ndim; k++) out->shape[k] = lead->shape[k];
  }
  for (int i = first + 1; i < I->n_in; i++) {
    const cnn_tensor *t = I->in[i];
    if (!t) continue;
    if (lead && cnn_shape_equal(out->ndim, out->shape, t->ndim, t->shape)) continue;
    int before = out->ndim;
    int64_t shape[CNN_MAX_DIMS];
    for (int k = 0; k < before; k++) shape[k] = out->shape[k];
    if (!cnn_shape_broadcast(before, shape, t->ndim, t->shape, &out->ndim, out->shape)) {
      cnn_shape_text a, b;
      return cnn_fail(I->ctx, CNN_SHAPE,
                      "shapes %s and %s don't broadcast: from the last dim on, sizes must be equal "
                      "or 1",
                      cnn_shape_format(&a, before, shape), cnn_shape_format(&b, t->ndim, t->shape));
    }
    if (cnn_shape_equal(out->ndim, out->shape, t->ndim, t->shape))
      lead = t;
    else if (!cnn_shape_equal(out->ndim, out->shape, before, shape))
      lead = NULL;
  }
  if (lead)
    cnn_strides_like(out->ndim, out->shape, lead->strides, out->strides);
  else
    cnn_shape_strides(out->ndim, out->shape, out->strides);
  return CNN_OK;
}
