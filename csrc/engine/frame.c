// SPDX-License-Identifier: MIT
#include "engine/dispatch.h"
#include "engine/registry.h"

#include "base/alloc.h"

#include <string.h>

void cnn_frame_open(cnn_frame *f, cnn_context *ctx) {
  f->ctx = ctx;
  f->status = CNN_OK;
  f->n = 0;
  f->capacity = (int)(sizeof f->inline_owned / sizeof *f->inline_owned);
  f->owned = f->inline_owned;
  f->spent = NULL;
}

cnn_status cnn_frame_close(cnn_frame *f) {
  for (int i = 0; i < f->n; i++) cnn_unref(f->owned[i]);
  if (f->owned != f->inline_owned) cnn_free(f->owned);
  return f->status;
}

static bool grow(cnn_frame *f) {
  int capacity = 2 * f->capacity;
  bool first = f->owned == f->inline_owned;
  cnn_tensor **list = cnn_realloc(first ? NULL : f->owned, (size_t)capacity * sizeof *list);
  if (!list) return false;
  if (first) memcpy(list, f->inline_owned, sizeof f->inline_owned);
  f->owned = list;
  f->capacity = capacity;
  return true;
}

cnn_tensor *cnn_frame_own(cnn_frame *f, cnn_tensor *t) {
  if (!t) return NULL;
  if (f->n == f->capacity && !grow(f)) {
    cnn_unref(t);
    f->status = cnn_fail(f->ctx, CNN_OOM, "out of memory for intermediate results");
    return NULL;
  }
  return f->owned[f->n++] = t;
}

static int take(cnn_frame *f, cnn_status status, cnn_results *r, cnn_tensor **results,
                int capacity) {
  if (status != CNN_OK) {
    f->status = status;
    return 0;
  }
  int n = r->n < capacity ? r->n : capacity;
  for (int i = 0; i < n; i++) results[i] = cnn_frame_own(f, cnn_ref(r->t[i]));
  cnn_results_free(r);
  return f->status == CNN_OK ? n : 0;
}

int cnn_frame_results(cnn_frame *f, int op, const cnn_arg *args, int n_args, cnn_tensor **results,
                      int capacity) {
  cnn_results r;
  memset(results, 0, (size_t)capacity * sizeof *results);
  if (f->status != CNN_OK) return 0;
  cnn_tensor *spent = f->spent;
  f->spent = NULL;
  return take(f, cnn_dispatch_over(f->ctx, op, args, n_args, spent, &r), &r, results, capacity);
}

cnn_tensor *cnn_frame_do(cnn_frame *f, int op, const cnn_arg *args, int n_args) {
  cnn_tensor *result = NULL;
  return cnn_frame_results(f, op, args, n_args, &result, 1) ? result : NULL;
}

cnn_tensor *cnn_frame_in_place(cnn_frame *f, int op, const cnn_arg *args, int n_args) {
  cnn_results r;
  cnn_tensor *result = NULL;
  if (f->status != CNN_OK) return NULL;
  return take(f, cnn_dispatch_in_place(f->ctx, op, args, n_args, &r), &r, &result, 1) ? result
                                                                                      : NULL;
}

double cnn_frame_read(cnn_frame *f, cnn_tensor *t) {
  double value = 0;
  if (f->status == CNN_OK) f->status = cnn_read_element(f->ctx, t, &value);
  return value;
}

void cnn_results_add(cnn_frame *f, cnn_results *r, cnn_tensor *t) {
  if (!t || f->status != CNN_OK) return;
  if (r->n == r->capacity) {
    int capacity = 2 * r->capacity;
    bool first = r->t == r->inline_t;
    cnn_tensor **list = cnn_realloc(first ? NULL : r->t, (size_t)capacity * sizeof *list);
    if (!list) {
      f->status = cnn_fail(f->ctx, CNN_OOM, "out of memory for a list of results");
      return;
    }
    if (first) memcpy(list, r->inline_t, sizeof r->inline_t);
    r->t = list;
    r->capacity = capacity;
  }
  r->t[r->n++] = cnn_ref(t);
}

static cnn_status read_bytes(cnn_context *ctx, const cnn_tensor *t, void *element) {
  size_t size = cnn_dtype_size((cnn_dtype)t->dtype);
  if (t->device.type == CNN_META)
    return cnn_fail(ctx, CNN_STATE,
                    "a meta tensor has a shape and no data, so its values can't be read");
  const cnn_backend *backend = cnn_backend_of((cnn_device_type)t->device.type);
  CNN_TRY(cnn_buffer_check(ctx, t->buffer, "the tensor"));
  if (!backend->copy) {
    CNN_TRY(cnn_buffer_settle(ctx, t->buffer));
    memcpy(element, cnn_data(t), size);
    return CNN_OK;
  }
  cnn_device cpu = {CNN_CPU, 0};
  return backend->copy(ctx, element, cpu, cnn_data(t), t->device, size, false);
}

cnn_status cnn_read_element(cnn_context *ctx, const cnn_tensor *t, double *value) {
  uint64_t element = 0;
  CNN_TRY(read_bytes(ctx, t, &element));
  *value = cnn_element_get((cnn_dtype)t->dtype, &element);
  return CNN_OK;
}

cnn_status cnn_read_element_int(cnn_context *ctx, const cnn_tensor *t, int64_t *value) {
  uint64_t element = 0;
  CNN_TRY(read_bytes(ctx, t, &element));
  *value = cnn_element_get_int((cnn_dtype)t->dtype, &element);
  return CNN_OK;
}
