// SPDX-License-Identifier: MIT
// Kernels of ops/history.c. A scratch image of the memory that the geometry speaks of holds the
// base's elements; where the base is row-major, the image is the tensor itself.
#include "cpu/copy.h"
#include "cpu/cpu.h"
#include "cpu/indexing.h"

#include <string.h>

#include "base/parallel.h"

typedef struct image {
  int64_t lowest, span; // extent of the base around its first element, in elements
} image;

static image extent(const cnn_view *base, const int64_t *base_strides) {
  image m;
  cnn_strides_extent(base->ndim, base->shape, base_strides, &m.lowest, &m.span);
  return m;
}

// Whether the tensor's own memory is what the geometry speaks of.
static bool is_image(const cnn_view *base, const int64_t *base_strides) {
  return cnn_shape_equal(base->ndim, base->strides, base->ndim, base_strides);
}

static cnn_status plan(cnn_call *call, const cnn_view *base) {
  const int64_t *strides = call->args[4].ints;
  if (!is_image(base, strides))
    call->scratch_bytes = (size_t)extent(base, strides).span * cnn_dtype_size(base->dtype);
  return CNN_OK;
}

static cnn_status plan_input(cnn_call *call) {
  return plan(call, &call->in[0]);
}
static cnn_status plan_result(cnn_call *call) {
  return plan(call, &call->out[0]);
}

// The base as it lies in the image.
static cnn_view base_view(cnn_call *call, const cnn_view *base) {
  const int64_t *strides = call->args[4].ints;
  if (is_image(base, strides)) return *base;
  cnn_view v = *base;
  v.data =
      (char *)call->scratch - extent(base, strides).lowest * (int64_t)cnn_dtype_size(base->dtype);
  v.strides = strides;
  return v;
}

static cnn_view inner_view(const cnn_view *base, const cnn_view *like, const cnn_arg *strides,
                           const cnn_arg *offset) {
  cnn_view v = *like;
  v.dtype = base->dtype;
  v.data = (char *)base->data + offset->i * (int64_t)cnn_dtype_size(base->dtype);
  v.strides = strides->ints;
  return v;
}

static cnn_status run_gather(cnn_call *call) {
  cnn_view base = base_view(call, &call->in[0]);
  if (base.data != call->in[0].data) cnn_copy_view(&base, &call->in[0]);
  cnn_view from = inner_view(&base, &call->out[0], &call->args[2], &call->args[3]);
  cnn_copy_view(&call->out[0], &from);
  return CNN_OK;
}

// The result is row-major: it is the image exactly when the geometry is.
static cnn_status run_scatter(cnn_call *call) {
  cnn_view base = base_view(call, &call->out[0]);
  cnn_copy_view(&base, &call->in[0]);
  cnn_view to = inner_view(&base, &call->in[1], &call->args[2], &call->args[3]);
  cnn_copy_view(&to, &call->in[1]);
  if (base.data != call->out[0].data) cnn_copy_view(&call->out[0], &base);
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// Sums. Where the view's elements overlap (windows), half types are summed in a float32 image.

typedef struct windows {
  cnn_view to; // may overlap itself; float32 where src has a half type
  const cnn_view *src;
  int dim; // along which the work is cut
} windows;

static void add_windows(void *arg, int64_t begin, int64_t end) {
  const windows *w = arg;
  const cnn_view *src = w->src;
  int inner = src->ndim - 1;
  int64_t shape[CNN_MAX_DIMS], index[CNN_MAX_DIMS] = {0};
  int64_t to_size = (int64_t)cnn_dtype_size(w->to.dtype);
  int64_t size = (int64_t)cnn_dtype_size(src->dtype);
  for (int d = 0; d < src->ndim; d++) shape[d] = d == w->dim ? end - begin : src->shape[d];
  char *to = (char *)w->to.data + begin * w->to.strides[w->dim] * to_size;
  const char *from = (const char *)src->data + begin * src->strides[w->dim] * size;
  for (int d = inner; d >= 0;) {
    cnn_add_run(src->dtype, shape[inner], to, w->to.strides[inner], from, src->strides[inner]);
    for (d = inner - 1; d >= 0; d--) {
      to += w->to.strides[d] * to_size, from += src->strides[d] * size;
      if (++index[d] < shape[d]) break;
      to -= shape[d] * w->to.strides[d] * to_size, from -= shape[d] * src->strides[d] * size;
      index[d] = 0;
    }
  }
}

// Cuts the work along a dim whose steps reach beyond all that the others span, if there is one.
static void add_all(windows *w) {
  const cnn_view *to = &w->to;
  int64_t n = cnn_view_numel(w->src), reach = 0;
  if (n == 0) return;
  for (int d = 0; d < to->ndim; d++) reach += (w->src->shape[d] - 1) * to->strides[d];
  for (int d = 0; d < to->ndim; d++) {
    int64_t size = w->src->shape[d], step = to->strides[d];
    if (size == 1 || step <= reach - (size - 1) * step) continue;
    w->dim = d;
    cnn_parallel_for(size, 32768 / (n / size) + 1, add_windows, w);
    return;
  }
  add_windows(w, 0, w->src->shape[0]);
}

// args: src shape strides offset base_strides
static bool overlaps(const cnn_call *call) {
  return cnn_strides_overlap(call->in[0].ndim, call->in[0].shape, call->args[2].ints);
}

static cnn_status plan_scatter_add(cnn_call *call) {
  const cnn_view *y = &call->out[0];
  CNN_TRY(plan(call, y));
  if (cnn_dtype_is_half(y->dtype) && overlaps(call))
    call->scratch_bytes = (size_t)extent(y, call->args[4].ints).span * sizeof(float);
  return CNN_OK;
}

static cnn_status run_scatter_add(cnn_call *call) {
  const cnn_view *src = &call->in[0], *y = &call->out[0];
  cnn_view base = base_view(call, y);
  bool add = overlaps(call), direct = call->scratch_bytes == 0;
  if (add && cnn_dtype_is_half(y->dtype)) {
    base.dtype = CNN_F32;
    base.strides = call->args[4].ints;
    base.data = (char *)call->scratch - extent(y, base.strides).lowest * (int64_t)sizeof(float);
  }
  if (direct)
    cnn_clear_view(y);
  else
    memset(call->scratch, 0, call->scratch_bytes);
  windows w = {inner_view(&base, src, &call->args[2], &call->args[3]), src, 0};
  if (add)
    add_all(&w);
  else
    cnn_copy_view(&w.to, src);
  if (!direct) cnn_copy_view(y, &base);
  return CNN_OK;
}

const cnn_kernel cpu_view_gather = {plan_input, run_gather, NULL};
const cnn_kernel cpu_view_scatter = {plan_result, run_scatter, NULL};
const cnn_kernel cpu_view_scatter_add = {plan_scatter_add, run_scatter_add, NULL};
