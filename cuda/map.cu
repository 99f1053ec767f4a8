// SPDX-License-Identifier: MIT
#include "map.cuh"

#include <string.h>

extern "C" void cuda_map_make(k_map_form *m, const cnn_view *out, const cnn_view *const *in, int n,
                              int widest) {
  const cnn_view *views[1 + K_OPERANDS] = {out};
  for (int k = 0; k < n; k++) views[1 + k] = in[k];
  cuda_walk_make(&m->walk, out->ndim, out->shape, views, 1 + n);
  m->out = out->data;
  m->numbers = m->constants = 0;
  bool packs = cuda_walk_dense(&m->walk, 0);
  const size_t most = 16 / static_cast<size_t>(widest);
  packs = packs && k_aligned(out->data, most * cnn_dtype_table[out->dtype].bits / 8);
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
    } else {
      packs = packs && cuda_walk_dense(&m->walk, 1 + k) && k_aligned(in[k]->data, most * size);
    }
  }
  m->packs = packs;
}
