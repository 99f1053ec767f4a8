// SPDX-License-Identifier: MIT
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/small.h"

static void destroy(cnn_object *o) {
  cnn_tensor *t = (cnn_tensor *)o;
  cnn_unref(t->buffer);
  cnn_unref(t->grad_fn);
  cnn_unref(t->grad);
  cnn_unref(t->base);
  cnn_unref(t->hooks);
  cnn_small_free(t, sizeof *t);
}

static const cnn_class tensor_class = {"tensor", destroy};

void cnn_meta_set(cnn_meta *meta, cnn_dtype dtype, cnn_device device, int ndim,
                  const int64_t *shape) {
  meta->dtype = dtype;
  meta->device = device;
  meta->ndim = ndim;
  for (int i = 0; i < ndim; i++) meta->shape[i] = shape[i];
  cnn_shape_strides(ndim, meta->shape, meta->strides);
}

void cnn_meta_of(const cnn_tensor *t, cnn_meta *meta) {
  meta->dtype = (cnn_dtype)t->dtype;
  meta->device = t->device;
  meta->ndim = t->ndim;
  for (int i = 0; i < t->ndim; i++) meta->shape[i] = t->shape[i], meta->strides[i] = t->strides[i];
}

static cnn_tensor *new_tensor(const cnn_meta *meta) {
  cnn_tensor *t = cnn_small_alloc(sizeof *t);
  if (!t) return NULL;
  cnn_object_init(&t->object, &tensor_class);
  t->buffer = NULL;
  t->offset = 0;
  t->dtype = (uint8_t)meta->dtype;
  t->ndim = (uint8_t)meta->ndim;
  t->device = meta->device;
  t->flags = 0;
  t->slot = 0;
  t->generation = 0;
  t->grad_fn = NULL;
  t->grad = NULL;
  t->base = NULL;
  t->hooks = NULL;
  for (int i = 0; i < meta->ndim; i++)
    t->shape[i] = meta->shape[i], t->strides[i] = meta->strides[i];
  return t;
}

cnn_status cnn_tensor_empty(cnn_context *ctx, const cnn_meta *meta, cnn_tensor **out) {
  int64_t n = cnn_shape_numel(meta->ndim, meta->shape), bytes;
  if (n < 0 || __builtin_mul_overflow(n, (int64_t)cnn_dtype_size(meta->dtype), &bytes) ||
      bytes > INT64_MAX / 2) {
    cnn_shape_text text;
    return cnn_fail(ctx, CNN_SHAPE, "a tensor of shape %s is too large for any memory",
                    cnn_shape_format(&text, meta->ndim, meta->shape));
  }
  cnn_tensor *t = new_tensor(meta);
  if (!t) return cnn_fail(ctx, CNN_OOM, "out of memory for a tensor's header");
  cnn_status status = cnn_buffer_create(ctx, meta->device, (size_t)bytes, &t->buffer);
  if (status != CNN_OK) {
    cnn_small_free(t, sizeof *t);
    return status;
  }
  if (ctx->inference) t->flags |= CNN_INFERENCE;
  *out = t;
  return CNN_OK;
}

cnn_status cnn_tensor_on(cnn_context *ctx, cnn_buffer *buffer, const cnn_meta *meta, int64_t offset,
                         cnn_tensor **out) {
  cnn_tensor *t = new_tensor(meta);
  if (!t) return cnn_fail(ctx, CNN_OOM, "out of memory for a tensor's header");
  t->buffer = cnn_ref(buffer);
  t->offset = offset;
  *out = t;
  return CNN_OK;
}

cnn_status cnn_tensor_alias(cnn_context *ctx, const cnn_tensor *t, cnn_tensor **out) {
  cnn_meta meta;
  cnn_meta_of(t, &meta);
  CNN_TRY(cnn_tensor_on(ctx, t->buffer, &meta, t->offset, out));
  (*out)->flags |= t->flags & CNN_INFERENCE;
  return CNN_OK;
}

void cnn_tensor_swap(cnn_tensor *t, const cnn_tensor *from) {
  cnn_buffer *old = t->buffer;
  t->buffer = cnn_ref(from->buffer);
  cnn_unref(old);
  t->offset = from->offset;
  t->dtype = from->dtype;
  t->ndim = from->ndim;
  t->device = from->device;
  memcpy(t->shape, from->shape, sizeof t->shape);
  memcpy(t->strides, from->strides, sizeof t->strides);
}

void *cnn_element_at(const cnn_tensor *t, const int64_t *index) {
  int64_t at = t->offset;
  for (int i = 0; i < t->ndim; i++) at += index[i] * t->strides[i];
  return (char *)t->buffer->data + at * (int64_t)cnn_dtype_size((cnn_dtype)t->dtype);
}

const char *cnn_tensor_shape_text(const cnn_tensor *t, cnn_shape_text *buffer) {
  return cnn_shape_format(buffer, t->ndim, t->shape);
}
