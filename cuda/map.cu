// SPDX-License-Identifier: MIT
#include "map.cuh"

#include <string.h>

// The integers that have a dtype's size.
static cnn_dtype of_size(cnn_dtype dtype) {
  switch (cnn_dtype_size(dtype)) {
  case 8: return CNN_I64;
  case 4: return CNN_I32;
  case 2: return CNN_I16;
  default: return CNN_U8;
  }
}

// A number's element as it is computed.
static uint64_t computed(cnn_dtype dtype, const void *element) {
  uint64_t bits = 0;
  const double v = cnn_element_get(dtype, element);
  const float f = static_cast<float>(v);
  const int64_t i = cnn_element_get_int(dtype, element);
  if (dtype == CNN_F64)
    memcpy(&bits, &v, sizeof v);
  else if (cnn_dtype_is_float(dtype))
    memcpy(&bits, &f, sizeof f);
  else
    memcpy(&bits, &i, sizeof i);
  return bits;
}

// Whether view k, v, is loaded at once wherever a group of elements begins.
static bool grouped(const cuda_walk *w, int k, const cnn_view *v) {
  const size_t bytes = K_GROUP * cnn_dtype_size(v->dtype);
  const int last = w->ndim - 1;
  for (int d = 0; d < last; d++)
    if (w->strides[k][d] % K_GROUP) return false;
  return (last < 0 || w->strides[k][last] == 1) && k_aligned(v->data, bytes < 16 ? bytes : 16);
}

extern "C" void cuda_map_make(k_map_form *m, const cnn_view *out, const cnn_view *const *in, int n,
                              bool bits) {
  const cnn_view *views[1 + K_OPERANDS] = {out};
  for (int k = 0; k < n; k++) views[1 + k] = in[k];
  cuda_walk_make(&m->walk, out->ndim, out->shape, views, 1 + n);
  m->out = out->data;
  m->out_dtype = bits ? of_size(out->dtype) : out->dtype;
  m->numbers = m->constants = m->along = 0;
  const int last = m->walk.ndim - 1;
  bool groups = grouped(&m->walk, 0, out) && (last <= 0 || m->walk.shape[last] % K_GROUP == 0);
  for (int k = 0; k < n; k++) {
    m->in[k] = in[k]->data;
    m->dtype[k] = bits ? of_size(in[k]->dtype) : in[k]->dtype;
    if (cnn_view_is_number(in[k])) {
      m->number[k] = computed(m->dtype[k], in[k]->data);
      m->in[k] = nullptr;
      m->numbers |= 1u << k;
    } else if (m->walk.numel > 1 && cuda_walk_constant(&m->walk, 1 + k)) {
      // (Threads without work read it too: it may be no element that another writes, as the one
      // element of an argument that is changed in place.)
      m->constants |= 1u << k;
    } else if (last > 0 && m->walk.strides[1 + k][last] == 0) {
      m->along |= 1u << k;
    } else {
      groups = groups && grouped(&m->walk, 1 + k, in[k]);
    }
  }
  m->groups = groups ? m->walk.numel / K_GROUP : 0;
  if (groups) cuda_walk_group(&m->grouped, &m->walk, K_GROUP);
}

extern "C" void cuda_map_params(const cnn_call *call, cnn_dtype dtype, uint64_t params[4]) {
  double elements[4] = {};
  dtype = cnn_dtype_computed(dtype);
  cnn_number_params(call, dtype, elements);
  for (size_t i = 0; i < 4; i++)
    params[i] =
        computed(dtype, reinterpret_cast<const char *>(elements) + i * cnn_dtype_size(dtype));
}
