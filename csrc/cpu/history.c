// SPDX-License-Identifier: MIT
// Kernels of ops/history.c. A scratch image of the memory that the geometry speaks of holds the
// base's elements; where the base is row-major, the image is the tensor itself.
#include "cpu/cpu.h"
#include "cpu/elementwise.h"

#include <string.h>

#include "base/half.h"

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

static void move(const cnn_view *to, const cnn_view *from) {
  const cnn_view *views[] = {to, from};
  char piece[CNN_PIECE * 8];
  cnn_nest nest;
  cnn_nest_make(&nest, to->ndim, to->shape, views, 2);
  for (int64_t at = 0; at < nest.numel; at += CNN_PIECE) {
    int64_t n = nest.numel - at < CNN_PIECE ? nest.numel - at : CNN_PIECE;
    cnn_nest_gather(&nest, 1, at, n, piece);
    cnn_nest_scatter(&nest, 0, at, n, piece);
  }
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
  if (base.data != call->in[0].data) move(&base, &call->in[0]);
  cnn_view from = inner_view(&base, &call->out[0], &call->args[2], &call->args[3]);
  move(&call->out[0], &from);
  return CNN_OK;
}

// The result is row-major: it is the image exactly when the geometry is.
static cnn_status run_scatter(cnn_call *call) {
  cnn_view base = base_view(call, &call->out[0]);
  move(&base, &call->in[0]);
  cnn_view to = inner_view(&base, &call->in[1], &call->args[2], &call->args[3]);
  move(&to, &call->in[1]);
  if (base.data != call->out[0].data) move(&call->out[0], &base);
  return CNN_OK;
}

// Adds one element; the view's elements may overlap, so this is serial and in order.
static void add_element(cnn_dtype dtype, void *to, const void *from) {
  if (dtype == CNN_F32)
    *(float *)to += *(const float *)from;
  else if (cnn_dtype_is_float(dtype))
    cnn_element_set(dtype, to, cnn_element_get(dtype, to) + cnn_element_get(dtype, from));
  else
    cnn_element_set_int(dtype, to,
                        cnn_element_get_int(dtype, to) + cnn_element_get_int(dtype, from));
}

static cnn_status run_scatter_add(cnn_call *call) {
  const cnn_view *src = &call->in[0];
  cnn_view base = base_view(call, &call->out[0]);
  bool direct = base.data == call->out[0].data;
  size_t out_bytes = (size_t)cnn_view_numel(&call->out[0]) * cnn_dtype_size(src->dtype);
  if (out_bytes > 0)
    memset(direct ? base.data : call->scratch, 0, direct ? out_bytes : call->scratch_bytes);
  cnn_view to = inner_view(&base, src, &call->args[2], &call->args[3]);
  if (!cnn_strides_overlap(to.ndim, to.shape, to.strides)) {
    move(&to, src);
  } else {
    int64_t n = cnn_view_numel(src), index[CNN_MAX_DIMS] = {0};
    size_t size = cnn_dtype_size(src->dtype);
    for (int64_t i = 0; i < n; i++) {
      int64_t a = 0, b = 0;
      for (int d = 0; d < src->ndim; d++)
        a += index[d] * to.strides[d], b += index[d] * src->strides[d];
      add_element(src->dtype, (char *)to.data + a * (int64_t)size,
                  (const char *)src->data + b * (int64_t)size);
      for (int d = src->ndim - 1; d >= 0 && ++index[d] == src->shape[d]; d--) index[d] = 0;
    }
  }
  if (!direct) move(&call->out[0], &base);
  return CNN_OK;
}

const cnn_kernel cpu_view_gather = {plan_input, run_gather, NULL};
const cnn_kernel cpu_view_scatter = {plan_result, run_scatter, NULL};
const cnn_kernel cpu_view_scatter_add = {plan_result, run_scatter_add, NULL};
