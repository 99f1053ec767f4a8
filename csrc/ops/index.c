// SPDX-License-Identifier: MIT
// x[{i, {}, j}] and its assignment: index tensors in some dims. Positions are 1-based; one that is
// out of range is an error, on every device; gradients of positions that occur several times add.
//
// `names` are the dims as messages name them, where x is a view that the binding made of another
// tensor.
#include "ops/ops.h"

// The result's shape: the index tensors' common shape among x's other dims.
static cnn_status indexed_shape(cnn_infer *I, cnn_tensor *const *indices, int n, int *ndim,
                                int64_t *shape) {
  const cnn_tensor *x = I->in[0];
  int64_t common[CNN_MAX_DIMS];
  int dims = 0, left = 0;
  uint32_t mask = 0;
  cnn_shape_text a, b;
  if (n > x->ndim)
    return cnn_fail(I->ctx, CNN_INDEX, "%d indices for a tensor with %d dim%s", n, x->ndim,
                    x->ndim == 1 ? "" : "s");
  for (int i = 0; i < n; i++) {
    const cnn_tensor *t = indices[i];
    if (!t) continue;
    mask |= 1u << i;
    if (cnn_dtype_category((cnn_dtype)t->dtype) != CNN_CAT_INT)
      return cnn_fail(I->ctx, CNN_DTYPE,
                      "an index tensor must be integer, not %s: use :to(\"int64\")",
                      cnn_dtype_name((cnn_dtype)t->dtype));
    int64_t before[CNN_MAX_DIMS];
    int k = dims;
    for (int d = 0; d < k; d++) before[d] = common[d];
    if (!cnn_shape_broadcast(k, before, t->ndim, t->shape, &dims, common))
      return cnn_fail(I->ctx, CNN_SHAPE, "index tensors of shapes %s and %s don't broadcast",
                      cnn_shape_format(&a, k, before), cnn_shape_format(&b, t->ndim, t->shape));
  }
  for (int d = 0; d < x->ndim; d++) left += !(mask >> d & 1);
  if (mask == 0) return cnn_fail(I->ctx, CNN_INVALID, "there is no index tensor");
  if (dims + left > CNN_MAX_DIMS)
    return cnn_fail(I->ctx, CNN_SHAPE, "the result would have more than %d dims", CNN_MAX_DIMS);
  int place = cnn_index_place(mask), seen = 0;
  *ndim = 0;
  for (int d = 0; d <= x->ndim; d++) {
    if (seen == place)
      for (int k = 0; k < dims; k++) shape[(*ndim)++] = common[k];
    if (seen == place) place = -1;
    if (d == x->ndim || mask >> d & 1) continue;
    shape[(*ndim)++] = x->shape[d];
    seen++;
  }
  return CNN_OK;
}

static cnn_status infer_index(cnn_infer *I) {
  int n;
  int64_t shape[CNN_MAX_DIMS];
  CNN_TRY(indexed_shape(I, I->in + 1, I->args[1].n, &n, shape));
  cnn_infer_out(I, I->dtype, n, shape);
  return CNN_OK;
}

// The index tensors of a node, unpacked: inputs 1 .. n.
static cnn_arg saved_indices(cnn_grad *g, int n, cnn_tensor **list) {
  for (int i = 0; i < n; i++) list[i] = cnn_in(g, 1 + i);
  return CNN_A_TS(n, list);
}

static void backward_index(cnn_grad *g) {
  cnn_tensor *list[CNN_MAX_DIMS];
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_arg indices = saved_indices(g, cnn_n_in(g) - 1, list);
  cnn_give(g, 0,
           cnn_do(g->f, index_backward, CNN_A_T(g->dy[0]), indices, CNN_A_INTS(x->ndim, x->shape)));
}

const cnn_op cnn_op_index = {
    .name = "index",
    .args = "x:tensor indices:indices names:ints?",
    .doc = "x gathered by index tensors (x[{i, {}, j}] in scripts): a dim without one stays whole. "
           "The indices' common shape stands where they stood, or first when they were apart.",
    .saves = "indices",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_index,
    .backward = backward_index,
};

static cnn_status infer_index_backward(cnn_infer *I) {
  const cnn_arg *shape = &I->args[2];
  CNN_TRY(cnn_infer_need_float(I));
  cnn_infer_out(I, I->dtype, shape->n, shape->ints);
  return CNN_OK;
}

static void backward_index_backward(cnn_grad *g) {
  cnn_tensor *list[CNN_MAX_DIMS];
  cnn_arg indices = saved_indices(g, cnn_n_in(g) - 1, list);
  cnn_give(g, 0, cnn_do(g->f, index, CNN_A_T(g->dy[0]), indices));
}

const cnn_op cnn_op_index_backward = {
    .name = "index_backward",
    .args = "dy:tensor indices:indices shape:shape",
    .doc = "Zeros of that shape with dy added at the indexed places.",
    .saves = "indices",
    .flags = CNN_OP_INTERNAL,
    .infer = infer_index_backward,
    .backward = backward_index_backward,
};

// args: x indices value accumulate. Inputs: x, the indices, value.
static cnn_status infer_index_put(cnn_infer *I) {
  int n, m;
  int64_t shape[CNN_MAX_DIMS], both[CNN_MAX_DIMS];
  const cnn_tensor *x = I->in[0], *value = I->in[I->n_in - 1];
  cnn_shape_text a, b;
  CNN_TRY(indexed_shape(I, I->in + 1, I->args[1].n, &n, shape));
  if (value->dtype != x->dtype)
    return cnn_fail(I->ctx, CNN_DTYPE, "value is %s but x is %s",
                    cnn_dtype_name((cnn_dtype)value->dtype), cnn_dtype_name((cnn_dtype)x->dtype));
  if (cnn_shape_broadcast(n, shape, value->ndim, value->shape, &m, both) &&
      cnn_shape_equal(n, shape, m, both))
    return CNN_OK;
  return cnn_fail(I->ctx, CNN_SHAPE, "value of shape %s does not broadcast to the indexed shape %s",
                  cnn_shape_format(&a, value->ndim, value->shape), cnn_shape_format(&b, n, shape));
}

static void backward_index_put(cnn_grad *g) {
  cnn_tensor *list[CNN_MAX_DIMS], *dy = g->dy[0], *dx = dy;
  int n = cnn_n_in(g) - 2;
  cnn_arg indices = saved_indices(g, n, list);
  if (cnn_needs(g, 0)) {
    if (g->args[3].i == 0) {
      cnn_tensor *zero = cnn_do(g->f, full, CNN_A_INTS(0, NULL), CNN_A_I(0), CNN_A_I(dy->dtype),
                                CNN_A_DEVICE(dy->device));
      dx = cnn_do(g->f, clone, CNN_A_T(dy));
      cnn_do(g->f, index_put_, CNN_A_T(dx), indices, CNN_A_T(zero));
    }
    cnn_give(g, 0, dx);
  }
  if (cnn_needs(g, n + 1)) cnn_give(g, n + 1, cnn_do(g->f, index, CNN_A_T(dy), indices));
}

const cnn_op cnn_op_index_put_ = {
    .name = "index_put_",
    .args = "x:tensor! indices:indices value:other accumulate:bool=false names:ints?",
    .doc = "Writes value (or adds it) at the places that index tensors name: x[{i, {}, j}] = "
           "value. Of places that occur several times, the last one stays.",
    .saves = "indices",
    .flags = CNN_OP_SELF | CNN_OP_INTERNAL,
    .infer = infer_index_put,
    .backward = backward_index_put,
};
