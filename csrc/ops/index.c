// SPDX-License-Identifier: MIT
// Gathering and scattering by index tensors. Positions are 1-based; out of range is an error, on every
// device; gradients of positions that occur several times add.
#include "ops/ops.h"

// ---------------------------------------------------------------------------------------------
// x[{i, j, ...}]: index tensors for the leading dims

// The shape that the index tensors broadcast to.
static cnn_status broadcast_indices(cnn_context *ctx, cnn_tensor *const *indices, int n, int *ndim,
                                    int64_t *shape) {
  *ndim = 0;
  for (int i = 0; i < n; i++) {
    int64_t before[CNN_MAX_DIMS];
    int dims = *ndim;
    for (int d = 0; d < dims; d++) before[d] = shape[d];
    if (cnn_dtype_category((cnn_dtype)indices[i]->dtype) != CNN_CAT_INT)
      return cnn_fail(ctx, CNN_DTYPE, "an index tensor must be integer, not %s: use :to(\"int64\")",
                      cnn_dtype_name((cnn_dtype)indices[i]->dtype));
    if (!cnn_shape_broadcast(dims, before, indices[i]->ndim, indices[i]->shape, ndim, shape)) {
      cnn_shape_text a, b;
      return cnn_fail(ctx, CNN_SHAPE, "index tensors of shapes %s and %s don't broadcast",
                      cnn_shape_format(&a, dims, before),
                      cnn_shape_format(&b, indices[i]->ndim, indices[i]->shape));
    }
  }
  return CNN_OK;
}

// indices' broadcast shape, then the dims of (ndim, shape) after the first n.
static cnn_status indexed_shape(cnn_context *ctx, cnn_tensor *const *indices, int n, int ndim,
                                const int64_t *shape, int *out_ndim, int64_t *out) {
  CNN_TRY(broadcast_indices(ctx, indices, n, out_ndim, out));
  if (*out_ndim + ndim - n > CNN_MAX_DIMS)
    return cnn_fail(ctx, CNN_SHAPE, "the result would have more than %d dims", CNN_MAX_DIMS);
  for (int d = n; d < ndim; d++) out[(*out_ndim)++] = shape[d];
  return CNN_OK;
}

static cnn_status infer_index_first(cnn_infer *I) {
  int n, k = I->args[1].n;
  int64_t shape[CNN_MAX_DIMS];
  CNN_TRY(indexed_shape(I->ctx, I->in + 1, k, I->in[0]->ndim, I->in[0]->shape, &n, shape));
  cnn_infer_out(I, I->dtype, n, shape);
  return CNN_OK;
}

// The index tensors of a node, unpacked: inputs 1 .. n.
static cnn_arg saved_indices(cnn_grad *g, int first, cnn_tensor **list) {
  int n = cnn_n_in(g) - first;
  for (int i = 0; i < n; i++) list[i] = cnn_in(g, first + i);
  return CNN_A_TS(n, list);
}

static void backward_index_first(cnn_grad *g) {
  cnn_tensor *list[CNN_MAX_DIMS];
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_arg indices = saved_indices(g, 1, list);
  cnn_give(g, 0,
           cnn_do(g->f, index_first_backward, CNN_A_T(g->dy[0]), indices,
                  CNN_A_INTS(x->ndim, x->shape)));
}

const cnn_op cnn_op_index_first = {
    .name = "index_first",
    .args = "x:tensor indices:indices",
    .doc = "x gathered along its leading dims, one index tensor for each.",
    .saves = "indices",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_index_first,
    .backward = backward_index_first,
};

static cnn_status infer_index_first_backward(cnn_infer *I) {
  const cnn_arg *shape = &I->args[2];
  cnn_infer_out(I, I->dtype, shape->n, shape->ints);
  return CNN_OK;
}

static void backward_index_first_backward(cnn_grad *g) {
  cnn_tensor *list[CNN_MAX_DIMS];
  cnn_arg indices = saved_indices(g, 1, list);
  cnn_give(g, 0, cnn_do(g->f, index_first, CNN_A_T(g->dy[0]), indices));
}

const cnn_op cnn_op_index_first_backward = {
    .name = "index_first_backward",
    .args = "dy:tensor indices:indices shape:shape",
    .doc = "Zeros of that shape with dy added at the indexed places.",
    .saves = "indices",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_index_first_backward,
    .backward = backward_index_first_backward,
};

// args: x indices value accumulate. Inputs: x, the indices, value.
static cnn_status infer_index_first_put(cnn_infer *I) {
  int n, m;
  int64_t shape[CNN_MAX_DIMS], both[CNN_MAX_DIMS];
  const cnn_tensor *x = I->in[0], *value = I->in[I->n_in - 1];
  cnn_shape_text a, b;
  CNN_TRY(indexed_shape(I->ctx, I->in + 1, I->args[1].n, x->ndim, x->shape, &n, shape));
  if (value->dtype != x->dtype)
    return cnn_fail(I->ctx, CNN_DTYPE, "value is %s but x is %s",
                    cnn_dtype_name((cnn_dtype)value->dtype), cnn_dtype_name((cnn_dtype)x->dtype));
  if (cnn_shape_broadcast(n, shape, value->ndim, value->shape, &m, both) &&
      cnn_shape_equal(n, shape, m, both))
    return CNN_OK;
  return cnn_fail(I->ctx, CNN_SHAPE, "value of shape %s does not broadcast to the indexed shape %s",
                  cnn_shape_format(&a, value->ndim, value->shape), cnn_shape_format(&b, n, shape));
}

static void backward_index_first_put(cnn_grad *g) {
  cnn_tensor *list[CNN_MAX_DIMS];
  int n = cnn_n_in(g) - 2;
  for (int i = 0; i < n; i++) list[i] = cnn_in(g, 1 + i);
  cnn_tensor *dy = g->dy[0], *dx = dy;
  if (cnn_needs(g, 0)) {
    if (g->args[3].i == 0) {
      cnn_tensor *zero = cnn_do(g->f, full, CNN_A_INTS(0, NULL), CNN_A_I(0), CNN_A_I(dy->dtype),
                                CNN_A_DEVICE(dy->device));
      dx = cnn_do(g->f, clone, CNN_A_T(dy));
      cnn_do(g->f, index_first_put_, CNN_A_T(dx), CNN_A_TS(n, list), CNN_A_T(zero));
    }
    cnn_give(g, 0, dx);
  }
  if (cnn_needs(g, n + 1))
    cnn_give(g, n + 1, cnn_do(g->f, index_first, CNN_A_T(dy), CNN_A_TS(n, list)));
}

const cnn_op cnn_op_index_first_put_ = {
    .name = "index_first_put_",
    .args = "x:tensor! indices:indices value:other accumulate:bool=false",
    .doc = "Writes (or adds) value at the indexed places of the leading dims.",
    .saves = "indices",
    .flags = CNN_OP_SELF | CNN_OP_INTERNAL,
    .infer = infer_index_first_put,
    .backward = backward_index_first_put,
};

// ---------------------------------------------------------------------------------------------
// index, index_put_: index tensors for any dims

// The order of dims that brings the indexed ones to the front, and whether they were neighbours.
static int front_order(const cnn_arg *indices, int ndim, int64_t *order, int *first,
                       bool *adjacent) {
  int k = 0, last = -1;
  *first = -1;
  *adjacent = true;
  for (int d = 0; d < indices->n && d < ndim; d++) {
    if (!indices->ts[d]) continue;
    if (*first < 0) *first = d;
    if (last >= 0 && d != last + 1) *adjacent = false;
    last = d;
    order[k++] = d;
  }
  int n = k;
  for (int d = 0; d < ndim; d++)
    if (d >= indices->n || !indices->ts[d]) order[n++] = d;
  return k;
}

static int present(const cnn_arg *indices, cnn_tensor **list) {
  int k = 0;
  for (int d = 0; d < indices->n; d++)
    if (indices->ts[d]) list[k++] = indices->ts[d];
  return k;
}

// The order that puts the `b` dims of the indices behind the `before` dims that stood before them.
static void restore_order(int ndim, int b, int before, int64_t *order) {
  int n = 0;
  for (int i = 0; i < before; i++) order[n++] = b + i;
  for (int i = 0; i < b; i++) order[n++] = i;
  while (n < ndim) order[n] = n, n++;
}

static void index(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t, *list[CNN_MAX_DIMS];
  int64_t order[CNN_MAX_DIMS];
  int first;
  bool adjacent;
  int k = front_order(&args[1], x->ndim, order, &first, &adjacent);
  present(&args[1], list);
  if (first > 0 || !adjacent) x = cnn_do(f, permute, CNN_A_T(x), CNN_A_INTS(x->ndim, order));
  cnn_tensor *y = cnn_do(f, index_first, CNN_A_T(x), CNN_A_TS(k, list));
  if (y && adjacent && first > 0) {
    int b = y->ndim - (x->ndim - k);
    restore_order(y->ndim, b, first, order);
    y = cnn_do(f, permute, CNN_A_T(y), CNN_A_INTS(y->ndim, order));
  }
  cnn_results_add(f, r, y);
}

const cnn_op cnn_op_index = {
    .name = "index",
    .args = "x:tensor indices:indices",
    .doc = "x gathered by index tensors (x[{i, {}, j}] in scripts): a dim without one stays whole. "
           "The indices' common shape stands where they stood, or first when they were apart.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_INTERNAL,
    .composite = index,
};

static void index_put(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t, *value = args[2].t, *list[CNN_MAX_DIMS];
  int64_t order[CNN_MAX_DIMS];
  int first;
  bool adjacent;
  int k = front_order(&args[1], x->ndim, order, &first, &adjacent);
  present(&args[1], list);
  cnn_tensor *view = x;
  if (first > 0 || !adjacent) view = cnn_do(f, permute, CNN_A_T(x), CNN_A_INTS(x->ndim, order));
  if (value->dtype != x->dtype) value = cnn_do(f, cast, CNN_A_T(value), CNN_A_I(x->dtype));
  if (value && adjacent && first > 0) {
    // The value is shaped like x[indices]: its dims move to the front as the view's did.
    int b = 0;
    for (int i = 0; i < k; i++)
      if (list[i]->ndim > b) b = list[i]->ndim;
    int ndim = x->ndim - k + b;
    int64_t shape[CNN_MAX_DIMS], back[CNN_MAX_DIMS];
    while (value && value->ndim < ndim) {
      for (int i = 0; i < value->ndim; i++) shape[i + 1] = value->shape[i];
      shape[0] = 1;
      value = cnn_do(f, reshape, CNN_A_T(value), CNN_A_INTS(value->ndim + 1, shape));
    }
    restore_order(ndim, b, first, order);
    for (int i = 0; i < ndim; i++) back[order[i]] = i;
    value = cnn_do(f, permute, CNN_A_T(value), CNN_A_INTS(ndim, back));
  }
  cnn_do(f, index_first_put_, CNN_A_T(view), CNN_A_TS(k, list), CNN_A_T(value), args[3]);
  cnn_results_add(f, r, x);
}

const cnn_op cnn_op_index_put_ = {
    .name = "index_put_",
    .args = "x:tensor indices:indices value:other accumulate:bool=false",
    .doc = "Writes value (or adds it) at the places that index tensors name: x[{i, {}, j}] = value.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_INTERNAL,
    .composite = index_put,
};

// ---------------------------------------------------------------------------------------------
// nonzero

static cnn_status infer_nonzero_count(cnn_infer *I) {
  cnn_infer_out(I, CNN_I64, 0, NULL);
  return CNN_OK;
}

const cnn_op cnn_op_nonzero_count = {
    .name = "nonzero_count",
    .args = "x:tensor",
    .doc = "How many elements are not 0.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_nonzero_count,
};

static cnn_status infer_nonzero_places(cnn_infer *I) {
  int64_t shape[] = {I->args[1].i, I->in[0]->ndim};
  cnn_infer_out(I, CNN_I64, 2, shape);
  return CNN_OK;
}

const cnn_op cnn_op_nonzero_places = {
    .name = "nonzero_places",
    .args = "x:tensor n:int",
    .doc = "The positions of the n elements that are not 0.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_nonzero_places,
};

static void nonzero(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *n = cnn_do(f, nonzero_count, args[0]);
  double count = cnn_frame_read(f, n);
  cnn_results_add(f, r, cnn_do(f, nonzero_places, args[0], CNN_A_I((int64_t)count)));
}

const cnn_op cnn_op_nonzero = {
    .name = "nonzero",
    .args = "x:tensor",
    .doc = "The positions of x's elements that are not 0: an int64 tensor (n, x.ndim), in row-major "
           "order. Its size depends on the values, so it raises on meta.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_NO_GRAD,
    .composite = nonzero,
};
