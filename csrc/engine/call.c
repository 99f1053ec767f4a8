// SPDX-License-Identifier: MIT
// What kernels read from a call's arguments. Also a part of the plugins of other devices.
#include <inttypes.h>

#include "base/context.h"
#include "engine/call.h"

// Dims as the caller counts them: scripts from 1, C from 0.
static cnn_status bad_dim(cnn_context *ctx, const char *name, int64_t dim, int ndim) {
  int base = ctx->index_base;
  if (dim < 0) {
    return cnn_fail(ctx, CNN_INDEX,
                    "%s %" PRId64 " is out of range for a tensor with %d dim%s (-%d..-1)", name,
                    dim, ndim, ndim == 1 ? "" : "s", ndim);
  }
  if (ndim == 0)
    return cnn_fail(ctx, CNN_INDEX, "%s %" PRId64 " is out of range: the tensor has 0 dims", name,
                    dim + base);
  return cnn_fail(ctx, CNN_INDEX,
                  "%s %" PRId64 " is out of range for a tensor with %d dim%s (%d..%d)", name,
                  dim + base, ndim, ndim == 1 ? "" : "s", base, ndim - 1 + base);
}

cnn_status cnn_check_dim(cnn_context *ctx, const char *name, int64_t dim, int ndim, int *out) {
  int64_t d = dim < 0 ? dim + ndim : dim;
  // A 0-d tensor takes its only imaginable dim, as PyTorch does.
  if (ndim == 0 && (dim == 0 || dim == -1)) return *out = 0, CNN_OK;
  if (d < 0 || d >= ndim) return bad_dim(ctx, name, dim, ndim);
  *out = (int)d;
  return CNN_OK;
}

cnn_status cnn_check_dims(cnn_context *ctx, const char *name, const cnn_arg *arg, int ndim,
                          uint32_t *mask) {
  *mask = 0;
  if (arg->kind == CNN_INT) {
    int d;
    CNN_TRY(cnn_check_dim(ctx, name, arg->i, ndim, &d));
    *mask = 1u << d;
    return CNN_OK;
  }
  if (arg->kind == CNN_ABSENT || arg->n == 0) {
    *mask = (1u << ndim) - 1;
    return CNN_OK;
  }
  for (int i = 0; i < arg->n; i++) {
    int d = 0;
    CNN_TRY(cnn_check_dim(ctx, name, arg->ints[i], ndim, &d));
    if (*mask >> d & 1)
      return cnn_fail(ctx, CNN_INVALID, "%s %d is given twice", name, d + ctx->index_base);
    *mask |= 1u << d;
  }
  return CNN_OK;
}

// The nearest value that the integer dtype has.
static int64_t within(cnn_dtype dtype, int64_t v) {
  if (dtype == CNN_U8) return v < 0 ? 0 : v > UINT8_MAX ? UINT8_MAX : v;
  int bits = 8 * (int)cnn_dtype_size(dtype);
  int64_t largest = INT64_MAX >> (64 - bits);
  return v > largest ? largest : v < -largest - 1 ? -largest - 1 : v;
}

void cnn_number_params(const cnn_call *call, cnn_dtype dtype, double params[4]) {
  char *at = (char *)params;
  int seen = 0;
  bool ends = call->n_in == 1 && !cnn_dtype_is_float(dtype) && dtype != CNN_BOOL;
  for (int i = call->n_in; i < call->n_args && seen < 4; i++) {
    const cnn_arg *a = &call->args[i];
    if (a->kind != CNN_NUMBER && a->kind != CNN_INT) continue;
    if (ends) {
      int64_t v = a->i;
      if (a->kind == CNN_NUMBER) cnn_element_set(CNN_I64, &v, a->d);
      cnn_element_set_int(dtype, at, within(dtype, v));
    } else if (a->kind == CNN_NUMBER) {
      cnn_element_set(dtype, at, a->d);
    } else {
      cnn_element_set_int(dtype, at, a->i);
    }
    at += cnn_dtype_size(dtype);
    seen++;
  }
}
