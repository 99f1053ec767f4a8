// SPDX-License-Identifier: MIT
#include "cpu/copy.h"

#include "cpu/cpu.h"
#include "cpu/elementwise.h"

#include "base/parallel.h"

typedef struct copy {
  cnn_nest nest; // target, source
  cnn_dtype to, from;
} copy;

static void copy_range(void *arg, int64_t begin, int64_t end) {
  const copy *c = arg;
  char raw[CNN_PIECE * 8], converted[CNN_PIECE * 8];
  bool dense_to = cnn_nest_dense(&c->nest, 0), dense_from = cnn_nest_dense(&c->nest, 1);
  for (int64_t at = begin; at < end; at += CNN_PIECE) {
    int64_t n = end - at < CNN_PIECE ? end - at : CNN_PIECE;
    char *to = dense_to ? c->nest.data[0] + at * (int64_t)c->nest.size[0] : converted;
    const char *from = dense_from ? c->nest.data[1] + at * (int64_t)c->nest.size[1] : raw;
    if (!dense_from && c->to == c->from && dense_to) {
      cnn_nest_gather(&c->nest, 1, at, n, to);
      continue;
    }
    if (!dense_from) cnn_nest_gather(&c->nest, 1, at, n, raw);
    if (c->to == c->from && !dense_to) {
      cnn_nest_scatter(&c->nest, 0, at, n, from);
      continue;
    }
    cnn_convert(n, c->from, from, c->to, to);
    if (!dense_to) cnn_nest_scatter(&c->nest, 0, at, n, to);
  }
}

void cnn_copy_view(const cnn_view *to, const cnn_view *from) {
  copy c = {.to = to->dtype, .from = from->dtype};
  const cnn_view *views[] = {to, from};
  cnn_nest_make(&c.nest, to->ndim, to->shape, views, 2);
  cnn_parallel_for(c.nest.numel, 1 << 15, copy_range, &c);
}

static bool lies_dense(const cnn_view *v, cnn_dtype dtype) {
  return v->dtype == dtype && cnn_strides_contiguous(v->ndim, v->shape, v->strides);
}

size_t cnn_dense_bytes(const cnn_view *v, cnn_dtype dtype) {
  if (lies_dense(v, dtype)) return 0;
  return ((size_t)cnn_view_numel(v) * cnn_dtype_size(dtype) + 63) & ~(size_t)63;
}

void *cnn_dense_result(const cnn_view *v, cnn_dtype dtype, void **scratch) {
  if (lies_dense(v, dtype)) return v->data;
  void *dense = *scratch;
  *scratch = (char *)dense + cnn_dense_bytes(v, dtype);
  return dense;
}

static cnn_view dense_view(const cnn_view *v, cnn_dtype dtype, const void *dense,
                           int64_t *strides) {
  cnn_shape_strides(v->ndim, v->shape, strides);
  return (cnn_view){(void *)(uintptr_t)dense, v->shape, strides, v->ndim, dtype};
}

const void *cnn_dense(const cnn_view *v, cnn_dtype dtype, void **scratch) {
  int64_t strides[CNN_MAX_DIMS];
  void *dense = cnn_dense_result(v, dtype, scratch);
  if (dense == v->data) return dense;
  cnn_view to = dense_view(v, dtype, dense, strides);
  cnn_copy_view(&to, v);
  return dense;
}

void cnn_dense_store(const cnn_view *v, cnn_dtype dtype, const void *dense) {
  int64_t strides[CNN_MAX_DIMS];
  if (dense == v->data) return;
  cnn_view from = dense_view(v, dtype, dense, strides);
  cnn_copy_view(v, &from);
}

static cnn_status run_fresh(cnn_call *call) {
  cnn_copy_view(&call->out[0], &call->in[0]);
  return CNN_OK;
}
static cnn_status run_into(cnn_call *call) {
  cnn_copy_view(&call->in[0], &call->in[1]);
  return CNN_OK;
}

const cnn_kernel cpu_cast = {NULL, run_fresh, NULL};
const cnn_kernel cpu_clone = {NULL, run_fresh, NULL};
const cnn_kernel cpu_copy_ = {NULL, run_into, NULL};
const cnn_kernel cpu_to_device = {NULL, run_fresh, NULL};
