// SPDX-License-Identifier: MIT
#include "cpu/rows.h"

// A nest over the dims of v in `dims`, in row-major order: a nest is ordered by its first view, so
// that is a dense one.
static void make_nest(cnn_nest *nest, const cnn_view *v, uint32_t dims) {
  int64_t shape[CNN_MAX_DIMS], strides[CNN_MAX_DIMS], dense[CNN_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < v->ndim; d++)
    if (dims >> d & 1) shape[n] = v->shape[d], strides[n++] = v->strides[d];
  cnn_shape_strides(n, shape, dense);
  cnn_view order = {v->data, shape, dense, n, v->dtype};
  cnn_view own = {v->data, shape, strides, n, v->dtype};
  const cnn_view *views[] = {&order, &own};
  cnn_nest_make(nest, n, shape, views, 2);
}

// A nest over n elements that are `step` apart.
static void make_line(cnn_nest *nest, const cnn_view *v, int64_t n, int64_t step) {
  nest->ndim = n != 1;
  nest->n_views = 2;
  nest->numel = nest->shape[0] = n;
  nest->strides[1][0] = step;
  nest->data[1] = v->data;
  nest->size[1] = cnn_dtype_size(v->dtype);
}

static bool contiguous(const cnn_view *v) {
  return cnn_strides_contiguous(v->ndim, v->shape, v->strides);
}

void cnn_rows_make(cnn_rows *r, const cnn_view *v, uint32_t dims, cnn_dtype computed) {
  uint32_t all = (1u << v->ndim) - 1, own = dims & all, rest = all & ~dims;
  if (contiguous(v) && (rest & (rest + 1)) == 0) { // the last dims: nothing to find out
    int64_t count = 1, width = 1;
    for (int d = 0; d < v->ndim; d++)
      if (own >> d & 1)
        width *= v->shape[d];
      else
        count *= v->shape[d];
    make_line(&r->lead, v, count, width);
    make_line(&r->row, v, width, 1);
  } else {
    make_nest(&r->lead, v, rest);
    make_nest(&r->row, v, own);
  }
  r->count = r->lead.numel;
  r->width = r->row.numel;
  r->data = v->data;
  r->stored = v->dtype;
  r->computed = computed;
  r->direct = v->dtype == computed && cnn_nest_dense(&r->row, 1);
  r->pitch = r->lead.ndim == 0 ? 0 : r->lead.ndim == 1 ? r->lead.strides[1][0] : -1;
}

int64_t cnn_rows_offset(const cnn_rows *r, int64_t i) {
  if (r->pitch >= 0) return i * r->pitch;
  int64_t offset = 0;
  for (int d = r->lead.ndim - 1; d >= 0; d--) {
    offset += i % r->lead.shape[d] * r->lead.strides[1][d];
    i /= r->lead.shape[d];
  }
  return offset;
}

static char *row_at(const cnn_rows *r, int64_t i) {
  return r->data + cnn_rows_offset(r, i) * (int64_t)cnn_dtype_size(r->stored);
}

static cnn_nest moved(const cnn_rows *r, int64_t i) {
  cnn_nest nest = r->row;
  nest.data[1] = row_at(r, i);
  return nest;
}

const void *cnn_rows_get(const cnn_rows *r, int64_t i, void *buffer) {
  if (r->direct) return row_at(r, i);
  if (cnn_nest_dense(&r->row, 1)) {
    cnn_convert(r->width, r->stored, row_at(r, i), r->computed, buffer);
    return buffer;
  }
  cnn_nest nest = moved(r, i);
  if (r->stored == r->computed) {
    cnn_nest_gather(&nest, 1, 0, r->width, buffer);
    return buffer;
  }
  _Alignas(64) char raw[CNN_PIECE * 8];
  size_t size = cnn_dtype_size(r->computed);
  for (int64_t at = 0; at < r->width; at += CNN_PIECE) {
    int64_t n = r->width - at < CNN_PIECE ? r->width - at : CNN_PIECE;
    cnn_nest_gather(&nest, 1, at, n, raw);
    cnn_convert(n, r->stored, raw, r->computed, (char *)buffer + (size_t)at * size);
  }
  return buffer;
}

void *cnn_rows_place(const cnn_rows *r, int64_t i, void *buffer) {
  return r->direct ? row_at(r, i) : buffer;
}

void cnn_rows_put(const cnn_rows *r, int64_t i, const void *place) {
  if (r->direct) return;
  if (cnn_nest_dense(&r->row, 1)) {
    cnn_convert(r->width, r->computed, place, r->stored, row_at(r, i));
    return;
  }
  cnn_nest nest = moved(r, i);
  if (r->stored == r->computed) {
    cnn_nest_scatter(&nest, 1, 0, r->width, place);
    return;
  }
  _Alignas(64) char raw[CNN_PIECE * 8];
  size_t size = cnn_dtype_size(r->computed);
  for (int64_t at = 0; at < r->width; at += CNN_PIECE) {
    int64_t n = r->width - at < CNN_PIECE ? r->width - at : CNN_PIECE;
    cnn_convert(n, r->computed, (const char *)place + (size_t)at * size, r->stored, raw);
    cnn_nest_scatter(&nest, 1, at, n, raw);
  }
}

size_t cnn_rows_flat_bytes(const cnn_view *v, cnn_dtype computed) {
  if (!cnn_view_present(v) || (v->dtype == computed && contiguous(v))) return 0;
  return ((size_t)cnn_view_numel(v) * cnn_dtype_size(computed) + 63) & ~(size_t)63;
}

const void *cnn_rows_flat(const cnn_view *v, cnn_dtype computed, void *buffer) {
  if (!cnn_view_present(v)) return NULL;
  cnn_rows r;
  cnn_rows_make(&r, v, UINT32_MAX, computed);
  return cnn_rows_get(&r, 0, buffer);
}
