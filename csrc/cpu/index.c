// SPDX-License-Identifier: MIT
// Kernels of ops/index.c. Every position is checked before the first element is written.
#include "cpu/cpu.h"
#include "cpu/elementwise.h"

#include <inttypes.h>
#include <string.h>

static cnn_status bad_index(cnn_context *ctx, int64_t v, int dim, int64_t size) {
  if (v == 0)
    return cnn_fail(ctx, CNN_INDEX, "index 0: Lua indices start at 1 (dim %d has positions 1..%" PRId64 ")",
                    dim + 1, size);
  if (v < 0)
    return cnn_fail(ctx, CNN_INDEX, "index %" PRId64 ": index tensors hold positions from 1 (dim %d has 1..%" PRId64 ")",
                    v, dim + 1, size);
  return cnn_fail(ctx, CNN_INDEX, "index %" PRId64 " is out of range for dim %d of size %" PRId64 " (1..%" PRId64 ")",
                  v, dim + 1, size, size);
}

// A walk over index tensors that broadcast: the offset of each indexed place.
typedef struct places {
  int n;              // index tensors
  int ndim;           // of their common shape
  int64_t count;      // places
  int64_t shape[CNN_MAX_DIMS];
  int64_t strides[CNN_MAX_DIMS][CNN_MAX_DIMS]; // of each index tensor
  const cnn_view *views;
  int64_t sizes[CNN_MAX_DIMS], steps[CNN_MAX_DIMS]; // of the indexed dims
} places;

static void make_places(places *p, const cnn_view *indices, int n, const int64_t *shape, int ndim,
                        const int64_t *sizes, const int64_t *steps) {
  p->n = n;
  p->ndim = ndim;
  p->views = indices;
  p->count = 1;
  for (int d = 0; d < ndim; d++) p->count *= p->shape[d] = shape[d];
  for (int i = 0; i < n; i++) {
    cnn_strides_broadcast(indices[i].ndim, indices[i].shape, indices[i].strides, ndim, shape,
                          p->strides[i]);
    p->sizes[i] = sizes[i];
    p->steps[i] = steps[i];
  }
}

// The offset of place number `at`, or -1 with *dim and *value set when an index is out of range.
static bool place_offset(const places *p, int64_t at, int64_t *offset, int *dim, int64_t *value) {
  int64_t at_index[CNN_MAX_DIMS] = {0};
  for (int d = 0; d < p->ndim; d++) at_index[d] = 0;
  for (int d = p->ndim - 1; d >= 0; d--) {
    at_index[d] = at % p->shape[d];
    at /= p->shape[d];
  }
  *offset = 0;
  for (int i = 0; i < p->n; i++) {
    int64_t k = 0;
    for (int d = 0; d < p->ndim; d++) k += at_index[d] * p->strides[i][d];
    const cnn_view *v = &p->views[i];
    int64_t pos = cnn_element_get_int(v->dtype, (const char *)v->data +
                                                    k * (int64_t)cnn_dtype_size(v->dtype));
    if (pos < 1 || pos > p->sizes[i]) {
      *dim = i;
      *value = pos;
      return false;
    }
    *offset += (pos - 1) * p->steps[i];
  }
  return true;
}

static cnn_status check_places(cnn_context *ctx, const places *p) {
  int64_t offset, value = 0;
  int dim = 0;
  for (int64_t i = 0; i < p->count; i++)
    if (!place_offset(p, i, &offset, &dim, &value)) return bad_index(ctx, value, dim, p->sizes[dim]);
  return CNN_OK;
}

// The block of elements behind one place: the dims of v from `first` on.
static cnn_view block(const cnn_view *v, int first) {
  cnn_view b = *v;
  b.ndim = v->ndim - first;
  b.shape = v->shape + first;
  b.strides = v->strides + first;
  return b;
}

static char *element(const cnn_view *v, int64_t offset) {
  return (char *)v->data + offset * (int64_t)cnn_dtype_size(v->dtype);
}

static void add_piece(cnn_dtype dtype, int64_t n, void *to, const void *from) {
  size_t size = cnn_dtype_size(dtype);
  if (dtype == CNN_F32) {
    float *t = to;
    const float *s = from;
    for (int64_t i = 0; i < n; i++) t[i] += s[i];
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    char *t = (char *)to + (size_t)i * size;
    const char *s = (const char *)from + (size_t)i * size;
    if (cnn_dtype_is_float(dtype)) cnn_element_set(dtype, t, cnn_element_get(dtype, t) + cnn_element_get(dtype, s));
    else cnn_element_set_int(dtype, t, cnn_element_get_int(dtype, t) + cnn_element_get_int(dtype, s));
  }
}

// Moves (or adds) a block, piece by piece.
static void move_block(const cnn_view *to, const cnn_view *from, bool add) {
  const cnn_view *views[] = {to, from};
  char a[CNN_PIECE * 8], b[CNN_PIECE * 8];
  cnn_nest nest;
  cnn_nest_make(&nest, to->ndim, to->shape, views, 2);
  for (int64_t at = 0; at < nest.numel; at += CNN_PIECE) {
    int64_t n = nest.numel - at < CNN_PIECE ? nest.numel - at : CNN_PIECE;
    cnn_nest_gather(&nest, 1, at, n, b);
    if (add) {
      cnn_nest_gather(&nest, 0, at, n, a);
      add_piece(to->dtype, n, a, b);
      cnn_nest_scatter(&nest, 0, at, n, a);
    } else {
      cnn_nest_scatter(&nest, 0, at, n, b);
    }
  }
}

// The offset in `v` (whose leading ndim dims are the places' shape) of place number `at`.
static int64_t leading_offset(const places *p, const cnn_view *v, const int64_t *strides,
                              int64_t at) {
  int64_t offset = 0;
  (void)v;
  for (int d = p->ndim - 1; d >= 0; d--) {
    offset += at % p->shape[d] * strides[d];
    at /= p->shape[d];
  }
  return offset;
}

static cnn_status run_index_first(cnn_call *call) {
  const cnn_view *x = &call->in[0], *y = &call->out[0];
  int k = call->n_in - 1, b = y->ndim - (x->ndim - k), dim;
  places p;
  int64_t offset, value;
  make_places(&p, call->in + 1, k, y->shape, b, x->shape, x->strides);
  CNN_TRY(check_places(call->ctx, &p));
  cnn_view from = block(x, k), to = block(y, b);
  for (int64_t i = 0; i < p.count; i++) {
    place_offset(&p, i, &offset, &dim, &value);
    from.data = element(x, offset);
    to.data = element(y, leading_offset(&p, y, y->strides, i));
    move_block(&to, &from, false);
  }
  return CNN_OK;
}

static cnn_status run_index_first_backward(cnn_call *call) {
  const cnn_view *dy = &call->in[0], *dx = &call->out[0];
  int k = call->n_in - 1, b = dy->ndim - (dx->ndim - k), dim;
  places p;
  int64_t offset, value, n = cnn_view_numel(dx);
  make_places(&p, call->in + 1, k, dy->shape, b, dx->shape, dx->strides);
  CNN_TRY(check_places(call->ctx, &p));
  if (n > 0) memset(dx->data, 0, (size_t)n * cnn_dtype_size(dx->dtype));
  cnn_view to = block(dx, k), from = block(dy, b);
  for (int64_t i = 0; i < p.count; i++) {
    place_offset(&p, i, &offset, &dim, &value);
    to.data = element(dx, offset);
    from.data = element(dy, leading_offset(&p, dy, dy->strides, i));
    move_block(&to, &from, true);
  }
  return CNN_OK;
}

static cnn_status run_index_first_put(cnn_call *call) {
  const cnn_view *x = &call->in[0], *value = &call->in[call->n_in - 1];
  int k = call->n_in - 2, dim;
  int64_t shape[CNN_MAX_DIMS], strides[CNN_MAX_DIMS], offset, bad;
  int n = 0;
  for (int i = 0; i < k; i++) {
    int64_t before[CNN_MAX_DIMS];
    int m = n;
    for (int d = 0; d < m; d++) before[d] = shape[d];
    cnn_shape_broadcast(m, before, call->in[1 + i].ndim, call->in[1 + i].shape, &n, shape);
  }
  int b = n;
  for (int d = k; d < x->ndim; d++) shape[n++] = x->shape[d];
  cnn_strides_broadcast(value->ndim, value->shape, value->strides, n, shape, strides);
  places p;
  make_places(&p, call->in + 1, k, shape, b, x->shape, x->strides);
  CNN_TRY(check_places(call->ctx, &p));
  cnn_view to = block(x, k);
  cnn_view from = {NULL, shape + b, strides + b, n - b, value->dtype};
  for (int64_t i = 0; i < p.count; i++) {
    place_offset(&p, i, &offset, &dim, &bad);
    to.data = element(x, offset);
    from.data = element(value, leading_offset(&p, value, strides, i));
    move_block(&to, &from, call->args[3].i != 0);
  }
  return CNN_OK;
}

const cnn_kernel cpu_index_first = {NULL, run_index_first, NULL};
const cnn_kernel cpu_index_first_backward = {NULL, run_index_first_backward, NULL};
const cnn_kernel cpu_index_first_put_ = {NULL, run_index_first_put, NULL};

// ---------------------------------------------------------------------------------------------
// nonzero

// Calls for every element that is not 0, in row-major order, with its index.
typedef void (*visit_fn)(void *arg, const int64_t *index);

static int64_t visit_nonzero(const cnn_view *x, visit_fn visit, void *arg) {
  int64_t n = cnn_view_numel(x), index[CNN_MAX_DIMS] = {0}, found = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t offset = 0;
    for (int d = 0; d < x->ndim; d++) offset += index[d] * x->strides[d];
    const void *p = element(x, offset);
    bool set = cnn_dtype_is_float(x->dtype) ? cnn_element_get(x->dtype, p) != 0
                                            : cnn_element_get_int(x->dtype, p) != 0;
    if (set && visit) visit(arg, index);
    found += set;
    for (int d = x->ndim - 1; d >= 0 && ++index[d] == x->shape[d]; d--) index[d] = 0;
  }
  return found;
}

static cnn_status run_nonzero_count(cnn_call *call) {
  *(int64_t *)call->out[0].data = visit_nonzero(&call->in[0], NULL, NULL);
  return CNN_OK;
}

typedef struct writer {
  int64_t *at;
  int ndim;
} writer;

static void write_place(void *arg, const int64_t *index) {
  writer *w = arg;
  for (int d = 0; d < w->ndim; d++) *w->at++ = index[d] + 1;
}

static cnn_status run_nonzero_places(cnn_call *call) {
  writer w = {call->out[0].data, call->in[0].ndim};
  visit_nonzero(&call->in[0], write_place, &w);
  return CNN_OK;
}

const cnn_kernel cpu_nonzero_count = {NULL, run_nonzero_count, NULL};
const cnn_kernel cpu_nonzero_places = {NULL, run_nonzero_places, NULL};
