// SPDX-License-Identifier: MIT
#include "cpu/cpu.h"
#include "cpu/elementwise.h"

#include "base/parallel.h"

#include <string.h>

typedef struct fill {
  cnn_nest nest;
  char piece[CNN_PIECE * 8];
} fill;

static void fill_range(void *arg, int64_t begin, int64_t end) {
  const fill *f = arg;
  for (int64_t at = begin; at < end; at += CNN_PIECE)
    cnn_nest_scatter(&f->nest, 0, at, end - at < CNN_PIECE ? end - at : CNN_PIECE, f->piece);
}

static cnn_status fill_view(const cnn_view *v, const cnn_arg *value) {
  fill f;
  const cnn_view *views[] = {v};
  size_t size = cnn_dtype_size(v->dtype);
  cnn_nest_make(&f.nest, v->ndim, v->shape, views, 1);
  int64_t n = f.nest.numel < CNN_PIECE ? f.nest.numel : CNN_PIECE;
  for (int64_t i = 0; i < n; i++) {
    void *p = f.piece + (size_t)i * size;
    if (value->kind == CNN_NUMBER)
      cnn_element_set(v->dtype, p, value->d);
    else
      cnn_element_set_int(v->dtype, p, value->i);
  }
  cnn_parallel_for(f.nest.numel, 1 << 16, fill_range, &f);
  return CNN_OK;
}

static cnn_status run_full(cnn_call *call) {
  return fill_view(&call->out[0], &call->args[1]);
}
static cnn_status run_fill(cnn_call *call) {
  return fill_view(&call->in[0], &call->args[1]);
}

const cnn_kernel cpu_full = {NULL, run_full, NULL};
const cnn_kernel cpu_fill_ = {NULL, run_fill, NULL};
