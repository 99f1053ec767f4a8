// SPDX-License-Identifier: MIT
// Also a part of the plugins of other devices.
#include "engine/product.h"

// One more dim around it all.
static void add_dim(cnn_product *p, int64_t size, int64_t a, int64_t b, int64_t c) {
  if (size == 1) return;
  bool summed = c == 0;
  if (summed && size == 0) {
    p->k = 0; // an empty sum
    return;
  }
  // Rows: B is shared, and the rows of A and of C go on evenly.
  if (!summed && b == 0 && (p->m == 1 || (a == p->m * p->a_rs && c == p->m * p->c_rs))) {
    if (p->m == 1) p->a_rs = a, p->c_rs = c;
    p->m *= size;
    return;
  }
  // The inner dim: columns of A and rows of B go on evenly.
  if (summed && (p->k == 1 || (a == p->k * p->a_cs && b == p->k * p->b_rs))) {
    if (p->k == 1) p->a_cs = a, p->b_rs = b;
    p->k *= size;
    return;
  }
  cnn_product_dim *list = summed ? p->sum : p->outer;
  int *n = summed ? &p->n_sum : &p->n_outer;
  cnn_product_dim *last = *n ? &list[*n - 1] : NULL;
  if (last && a == last->a * last->size && b == last->b * last->size && c == last->c * last->size)
    last->size *= size;
  else
    list[(*n)++] = (cnn_product_dim){size, a, b, c};
  *(summed ? &p->sum_count : &p->outer_count) *= size;
}

// Stride of dim d counted from the last batch dim (0); 0 where the view has no such dim, or one of
// size 1.
static int64_t batch_stride(const cnn_view *v, int matrix_dims, int d) {
  int at = v->ndim - matrix_dims - 1 - d;
  return at < 0 || v->shape[at] == 1 ? 0 : v->strides[at];
}
static int64_t batch_size(const cnn_view *v, int matrix_dims, int d) {
  int at = v->ndim - matrix_dims - 1 - d;
  return at < 0 ? 1 : v->shape[at];
}

// Vectors are a row on the left and a column on the right.
static void make(cnn_product *p, const cnn_view *x, bool tx, const cnn_view *y, bool ty,
                 const cnn_view *out) {
  int dx = x->ndim > 1 ? 2 : 1, dy = y->ndim > 1 ? 2 : 1, dc = dx + dy - 2;
  const int64_t *xs = x->shape + x->ndim - dx, *xt = x->strides + x->ndim - dx;
  const int64_t *ys = y->shape + y->ndim - dy, *yt = y->strides + y->ndim - dy;
  int row = tx ? 1 : 0, col = dx - 1 - row;
  p->dtype = out->dtype;
  p->m = dx > 1 ? xs[row] : 1;
  p->a_rs = dx > 1 ? xt[row] : 0;
  p->k = xs[col];
  p->a_cs = xt[col];
  row = ty ? 1 : 0, col = 1 - row;
  p->b_rs = yt[row];
  p->n = dy > 1 ? ys[col] : 1;
  p->b_cs = dy > 1 ? yt[col] : 0;
  p->c_rs = p->n;
  p->a = x->data, p->b = y->data, p->c = out->data;
  p->n_outer = p->n_sum = 0;
  p->outer_count = p->sum_count = 1;
  p->alpha = 1;
  p->beta = 0;
  p->start = NULL;
  p->bias = NULL;
  int nx = x->ndim - dx, ny = y->ndim - dy, n = nx > ny ? nx : ny;
  for (int d = 0; d < n; d++) {
    int64_t size = batch_size(x, dx, d) == 1 ? batch_size(y, dy, d) : batch_size(x, dx, d);
    add_dim(p, size, batch_stride(x, dx, d), batch_stride(y, dy, d), batch_stride(out, dc, d));
  }
}

// C starts as beta * start, which broadcasts to it.
static void start_with(cnn_product *p, const cnn_view *start, double beta) {
  if (beta == 0) return;
  p->beta = beta;
  p->start = start;
  int last = start->ndim - 1;
  if (beta != 1 || p->alpha != 1 || start->ndim < 1 || start->shape[last] != p->n) return;
  for (int d = 0; d < last; d++)
    if (start->shape[d] != 1) return;
  if (start->strides[last] == 1 || p->n == 1) p->bias = start->data;
}

void cnn_product_make(const cnn_call *call, cnn_product *p) {
  const cnn_view *in = call->in;
  if (call->n_in == 2) {
    bool to = call->n_args == 5;
    make(p, &in[0], to && call->args[3].i, &in[1], to && call->args[4].i, &call->out[0]);
  } else if (call->n_args == 3) { // linear
    make(p, &in[0], false, &in[1], true, &call->out[0]);
    if (cnn_view_present(&in[2])) start_with(p, &in[2], 1);
  } else {
    make(p, &in[1], false, &in[2], false, &call->out[0]);
    p->alpha = cnn_arg_number(&call->args[4]);
    start_with(p, &in[0], cnn_arg_number(&call->args[3]));
  }
}

void cnn_product_offsets(const cnn_product_dim *dims, int first, int n, int64_t at, int64_t *a,
                         int64_t *b, int64_t *c) {
  *a = *b = *c = 0;
  for (int d = first; d < n; d++) {
    int64_t i = at % dims[d].size;
    at /= dims[d].size;
    *a += i * dims[d].a, *b += i * dims[d].b, *c += i * dims[d].c;
  }
}
