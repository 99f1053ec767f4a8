// SPDX-License-Identifier: MIT
#include "cpu/cpu.h"
static cnn_status run_sum(cnn_call *call) {
  const cnn_view *x = &call->in[0];
  cnn_view *y = &call->out[0];
  int64_t n = cnn_view_numel(x), m = cnn_view_numel(y), index[CNN_MAX_DIMS] = {0};
  uint32_t mask;
  cnn_check_dims(call->ctx, "dim", &call->args[1], x->ndim, &mask);
  int64_t ys[CNN_MAX_DIMS];
  int64_t step = 1;
  for (int d = x->ndim - 1; d >= 0; d--) { ys[d] = mask >> d & 1 ? 0 : step; if (ys[d]) step *= x->shape[d]; }
  size_t xsz = cnn_dtype_size(x->dtype), ysz = cnn_dtype_size(y->dtype);
  for (int64_t i = 0; i < m; i++) cnn_element_set(y->dtype, (char *)y->data + (size_t)i * ysz, 0);
  for (int64_t i = 0; i < n; i++) {
    int64_t a = 0, b = 0;
    for (int d = 0; d < x->ndim; d++) a += index[d] * x->strides[d], b += index[d] * ys[d];
    char *q = (char *)y->data + b * (int64_t)ysz;
    cnn_element_set(y->dtype, q, cnn_element_get(y->dtype, q) + cnn_element_get(x->dtype, (char *)x->data + a * (int64_t)xsz));
    for (int d = x->ndim - 1; d >= 0 && ++index[d] == x->shape[d]; d--) index[d] = 0;
  }
  return CNN_OK;
}
const cnn_kernel cpu_sum = {NULL, run_sum, NULL};
