// SPDX-License-Identifier: MIT
#include "map.cuh"

#include <string.h>

extern "C" void cuda_map_make(k_map_form *m, const cnn_view *out, const cnn_view *const *in, int n,
                              int widest) {
  const cnn_view *views[1 + K_OPERANDS] = {out};
  for (int k = 0; k < n; k++) views[1 + k] = in[k];
  cuda_walk_make(&m->walk, out->ndim, out->shape, views, 1 + n);
  m->out = out->data;
  m->numbers = m->constants = m->along = 0;
  const int64_t each = 16 / widest;
  const int last = m->walk.ndim - 1;
  bool packs = last <= 0 || m->walk.shape[last] % each == 0;
  // Whether view k, dense along the innermost dim, is aligned wherever a pack begins.
  const auto fits = [&](int k, const cnn_view *v) {
    const size_t size = cnn_dtype_table[v->dtype].bits / 8;
    for (int d = 0; d < last; d++)
      if (m->walk.strides[k][d] % each) return false;
    return (last < 0 || m->walk.strides[k][last] == 1) &&
           k_aligned(v->data, static_cast<size_t>(each) * size);
  };
  packs = packs && fits(0, out);
  for (int k = 0; k < n; k++) {
    const size_t size = cnn_dtype_table[in[k]->dtype].bits / 8;
    m->in[k] = in[k]->data;
    if (cnn_view_is_number(in[k])) {
      memcpy(&m->number[k], in[k]->data, size);
      m->in[k] = nullptr;
      m->numbers |= 1u << k;
    } else if (m->walk.numel > 1 && cuda_walk_constant(&m->walk, 1 + k)) {
      // (Threads without work read it too: it may be no element that another writes, as the one
      // element of an argument that is changed in place.)
      m->constants |= 1u << k;
    } else if (last > 0 && m->walk.strides[1 + k][last] == 0) {
      m->along |= 1u << k;
    } else {
      packs = packs && fits(1 + k, in[k]);
    }
  }
  m->packs = packs ? m->walk.numel / each : 0;
  if (packs) cuda_walk_pack(&m->packed, &m->walk, each);
}
