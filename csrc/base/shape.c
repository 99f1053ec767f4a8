// SPDX-License-Identifier: MIT
#include "base/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int64_t cnn_shape_numel(int ndim, const int64_t *shape) {
  int64_t n = 1;
  bool empty = false;
  for (int i = 0; i < ndim; i++) {
    if (shape[i] == 0)
      empty = true;
    else if (__builtin_mul_overflow(n, shape[i], &n))
      return -1;
  }
  return empty ? 0 : n;
}

bool cnn_shape_equal(int na, const int64_t *a, int nb, const int64_t *b) {
  if (na != nb) return false;
  for (int i = 0; i < na; i++)
    if (a[i] != b[i]) return false;
  return true;
}

void cnn_shape_strides(int ndim, const int64_t *shape, int64_t *strides) {
  // Sizes that fit no memory are refused elsewhere; here their product may wrap.
  uint64_t step = 1;
  for (int i = ndim - 1; i >= 0; i--) {
    strides[i] = (int64_t)step;
    step *= shape[i] > 1 ? (uint64_t)shape[i] : 1;
  }
}

bool cnn_strides_contiguous(int ndim, const int64_t *shape, const int64_t *strides) {
  int64_t step = 1;
  bool ok = true;
  for (int i = ndim - 1; i >= 0; i--) {
    if (shape[i] == 0) return true;
    if (shape[i] == 1) continue;
    ok = ok && strides[i] == step;
    step *= shape[i];
  }
  return ok;
}

bool cnn_strides_channels_last(const int64_t *shape, const int64_t *strides) {
  const int64_t order_shape[] = {shape[0], shape[2], shape[3], shape[1]};
  const int64_t order_strides[] = {strides[0], strides[2], strides[3], strides[1]};
  return cnn_strides_contiguous(4, order_shape, order_strides) &&
         !cnn_strides_contiguous(4, shape, strides);
}

// The dims of more than one element, sorted from the largest stride to the smallest (stable).
static int memory_order(int ndim, const int64_t *shape, const int64_t *strides, int *order) {
  int n = 0;
  for (int i = 0; i < ndim; i++) {
    if (shape[i] == 1) continue;
    int64_t s = strides[i] < 0 ? -strides[i] : strides[i];
    int k = n++;
    for (; k > 0; k--) {
      int64_t before = strides[order[k - 1]];
      if (before < 0) before = -before;
      if (before >= s) break;
      order[k] = order[k - 1];
    }
    order[k] = i;
  }
  return n;
}

bool cnn_strides_dense(int ndim, const int64_t *shape, const int64_t *strides) {
  if (cnn_strides_contiguous(ndim, shape, strides)) return true;
  int order[CNN_MAX_DIMS], n = memory_order(ndim, shape, strides, order);
  int64_t step = 1;
  for (int k = n - 1; k >= 0; k--) {
    if (strides[order[k]] != step) return false;
    step *= shape[order[k]];
  }
  return true;
}

bool cnn_strides_overlap(int ndim, const int64_t *shape, const int64_t *strides) {
  for (int i = 0; i < ndim; i++)
    if (shape[i] == 0) return false;
  int order[CNN_MAX_DIMS], n = memory_order(ndim, shape, strides, order);
  int64_t reach = 0; // highest offset among the dims inside the current one
  for (int k = n - 1; k >= 0; k--) {
    int64_t s = strides[order[k]] < 0 ? -strides[order[k]] : strides[order[k]];
    if (s <= reach) return true;
    reach += s * (shape[order[k]] - 1);
  }
  return false;
}

void cnn_strides_extent(int ndim, const int64_t *shape, const int64_t *strides, int64_t *lowest,
                        int64_t *span) {
  int64_t lo = 0, hi = 0;
  for (int i = 0; i < ndim; i++) {
    if (shape[i] == 0) {
      *lowest = 0, *span = 0;
      return;
    }
    int64_t reach = (shape[i] - 1) * strides[i];
    if (reach < 0)
      lo += reach;
    else
      hi += reach;
  }
  *lowest = lo, *span = hi - lo + 1;
}

void cnn_strides_like(int ndim, const int64_t *shape, const int64_t *strides, int64_t *out) {
  // Broadcast dims (stride 0) say nothing about order: with any of them, row-major it is.
  bool plain = cnn_strides_contiguous(ndim, shape, strides);
  for (int i = 0; i < ndim && !plain; i++)
    if (shape[i] > 1 && strides[i] == 0) plain = true;
  if (plain) {
    cnn_shape_strides(ndim, shape, out);
    return;
  }
  int order[CNN_MAX_DIMS], n = memory_order(ndim, shape, strides, order);
  int64_t step = 1;
  for (int i = 0; i < ndim; i++) out[i] = 1;
  for (int k = n - 1; k >= 0; k--) {
    out[order[k]] = step;
    step *= shape[order[k]];
  }
  // A dim of one element takes the stride that row-major order would give it within the others.
  for (int i = ndim - 1; i >= 0; i--)
    if (shape[i] == 1) out[i] = i + 1 < ndim ? out[i + 1] * shape[i + 1] : 1;
}

bool cnn_shape_broadcast(int na, const int64_t *a, int nb, const int64_t *b, int *n, int64_t *out) {
  int m = na > nb ? na : nb;
  for (int i = 1; i <= m; i++) {
    int64_t x = i <= na ? a[na - i] : 1, y = i <= nb ? b[nb - i] : 1;
    if (x != y && x != 1 && y != 1) return false;
    out[m - i] = x == 1 ? y : x;
  }
  *n = m;
  return true;
}

void cnn_strides_broadcast(int ns, const int64_t *shape, const int64_t *strides, int n,
                           const int64_t *target, int64_t *out) {
  for (int i = 1; i <= n; i++)
    out[n - i] = i <= ns && !(shape[ns - i] == 1 && target[n - i] != 1) ? strides[ns - i] : 0;
}

bool cnn_strides_reshape(int n, const int64_t *shape, const int64_t *strides, int m,
                         const int64_t *target, int64_t *out) {
  for (int i = 0; i < n; i++) {
    if (shape[i] == 0) {
      cnn_shape_strides(m, target, out);
      return true;
    }
  }
  // Walk both shapes from the last dim: a run of source dims that is one piece of memory can be cut
  // into target dims anew.
  int j = m - 1;
  int64_t run = 1, taken = 1, base = n > 0 ? strides[n - 1] : 1;
  for (int i = n - 1; i >= 0; i--) {
    run *= shape[i];
    bool ends = i == 0 || (shape[i - 1] != 1 && strides[i - 1] != run * base);
    if (!ends) continue;
    while (j >= 0 && (taken < run || target[j] == 1)) {
      out[j] = base * taken;
      taken *= target[j--];
    }
    if (taken != run) return false;
    if (i > 0) base = strides[i - 1], run = 1, taken = 1;
  }
  while (j >= 0) {
    if (target[j] != 1) return false;
    out[j--] = base * taken;
  }
  return true;
}

const char *cnn_shape_format(cnn_shape_text *buffer, int ndim, const int64_t *shape) {
  char *p = buffer->text, *end = p + sizeof buffer->text;
  p += snprintf(p, (size_t)(end - p), "(");
  for (int i = 0; i < ndim; i++)
    p += snprintf(p, (size_t)(end - p), i ? ", %" PRId64 : "%" PRId64, shape[i]);
  snprintf(p, (size_t)(end - p), ndim == 1 ? ",)" : ")");
  return buffer->text;
}
