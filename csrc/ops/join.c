// SPDX-License-Identifier: MIT
// Tensors joined into one. The gradients of the parts are views of the whole's.
#include "ops/geometry.h"

#include <inttypes.h>

#include "base/alloc.h"

// PyTorch's old rule: an empty vector fits with anything, and adds nothing.
static bool is_nothing(int ndim, const int64_t *shape) {
  return ndim == 1 && shape[0] == 0;
}

static cnn_status infer_cat(cnn_infer *I) {
  int d = 0, first = -1;
  int64_t shape[CNN_MAX_DIMS], total = 0;
  cnn_shape_text a, b;
  if (I->n_in == 0) return cnn_fail(I->ctx, CNN_INVALID, "the list of tensors is empty");
  for (int i = 0; i < I->n_in && first < 0; i++)
    if (!is_nothing(I->in[i]->ndim, I->in[i]->shape)) first = i;
  const cnn_tensor *lead = I->in[first < 0 ? 0 : first];
  if (lead->ndim == 0)
    return cnn_fail(I->ctx, CNN_SHAPE, "tensor %d has 0 dims: use stack to join single numbers",
                    (first < 0 ? 0 : first) + 1);
  CNN_TRY(cnn_check_dim(I->ctx, "dim", I->args[1].i, lead->ndim, &d));
  for (int k = 0; k < lead->ndim; k++) shape[k] = lead->shape[k];
  for (int i = 0; i < I->n_in; i++) {
    const cnn_tensor *t = I->in[i];
    if (is_nothing(t->ndim, t->shape)) continue;
    bool fits = t->ndim == lead->ndim;
    for (int k = 0; k < t->ndim && fits; k++) fits = k == d || t->shape[k] == lead->shape[k];
    if (!fits)
      return cnn_fail(I->ctx, CNN_SHAPE,
                      "tensor %d has shape %s and tensor %d %s: sizes must agree in every dim but "
                      "dim %d",
                      first + 1, cnn_shape_format(&a, lead->ndim, lead->shape), i + 1,
                      cnn_shape_format(&b, t->ndim, t->shape), d + I->ctx->index_base);
    if (__builtin_add_overflow(total, t->shape[d], &total))
      return cnn_fail(I->ctx, CNN_SHAPE, "the result would be too large");
  }
  shape[d] = total;
  cnn_infer_out(I, I->dtype, lead->ndim, shape);
  return CNN_OK;
}

static void backward_cat(cnn_grad *g) {
  const cnn_form *out = cnn_out_form(g, 0);
  int d;
  int64_t start = 0;
  cnn_check_dim(g->f->ctx, "dim", g->args[1].i, out->ndim, &d);
  for (int i = 0; i < cnn_n_in(g); i++) {
    const cnn_form *form = cnn_in_form(g, i);
    if (is_nothing(form->ndim, form->shape)) {
      cnn_give(g, i,
               cnn_do(g->f, zeros, CNN_A_INTS(1, form->shape), CNN_A_I(form->dtype),
                      CNN_A_DEVICE(form->device)));
      continue;
    }
    if (cnn_needs(g, i))
      cnn_give(g, i,
               cnn_do(g->f, slice, CNN_A_T(g->dy[0]), CNN_A_I(d), CNN_A_I(start),
                      CNN_A_I(form->shape[d])));
    start += form->shape[d];
  }
}

const cnn_op cnn_op_cat = {
    .name = "cat",
    .args = "tensors:tensors dim:dim=0",
    .doc = "The tensors one after the other along a dim; the other sizes must agree.",
    .flags = CNN_OP_FUNCTION,
    .promote = CNN_PROMOTE_COMMON,
    .infer = infer_cat,
    .backward = backward_cat,
};

CNN_ALIAS_OP(concat, "tensors:tensors dim:dim=0", cat)

static cnn_status infer_stack(cnn_infer *I) {
  int d = 0;
  cnn_shape_text a, b;
  cnn_geometry v;
  if (I->n_in == 0) return cnn_fail(I->ctx, CNN_INVALID, "the list of tensors is empty");
  const cnn_tensor *lead = I->in[0];
  CNN_TRY(cnn_check_dim(I->ctx, "dim", I->args[1].i, lead->ndim + 1, &d));
  for (int i = 1; i < I->n_in; i++) {
    const cnn_tensor *t = I->in[i];
    if (!cnn_shape_equal(lead->ndim, lead->shape, t->ndim, t->shape))
      return cnn_fail(I->ctx, CNN_SHAPE,
                      "tensor 1 has shape %s and tensor %d %s: stack needs equal shapes",
                      cnn_shape_format(&a, lead->ndim, lead->shape), i + 1,
                      cnn_shape_format(&b, t->ndim, t->shape));
  }
  cnn_geometry_of(&v, lead->ndim, lead->shape, lead->strides);
  if (!cnn_geometry_insert(&v, d, I->n_in, 0))
    return cnn_fail(I->ctx, CNN_SHAPE, "a tensor has at most %d dims", CNN_MAX_DIMS);
  cnn_infer_out(I, I->dtype, v.ndim, v.shape);
  return CNN_OK;
}

static void backward_stack(cnn_grad *g) {
  int d;
  cnn_check_dim(g->f->ctx, "dim", g->args[1].i, cnn_out_form(g, 0)->ndim, &d);
  for (int i = 0; i < cnn_n_in(g); i++)
    if (cnn_needs(g, i))
      cnn_give(g, i, cnn_do(g->f, select, CNN_A_T(g->dy[0]), CNN_A_I(d), CNN_A_I(i)));
}

const cnn_op cnn_op_stack = {
    .name = "stack",
    .args = "tensors:tensors dim:dim=0",
    .doc = "Tensors of one shape along a new dim.",
    .flags = CNN_OP_FUNCTION,
    .promote = CNN_PROMOTE_COMMON,
    .infer = infer_stack,
    .backward = backward_stack,
};

// Joins the tensors along the first dim as rows, or along the second.
static void join(cnn_frame *f, const cnn_arg *args, cnn_results *r, bool rows) {
  int n = args[0].n;
  cnn_tensor *few[16], **list = few;
  if (n > 16) list = cnn_malloc((size_t)n * sizeof *list);
  if (!list) {
    f->status = cnn_fail(f->ctx, CNN_OOM, "out of memory for a list of %d tensors", n);
    return;
  }
  for (int i = 0; i < n; i++) {
    list[i] = args[0].ts[i];
    for (int least = rows ? 2 : 1; list[i] && list[i]->ndim < least;)
      list[i] = cnn_do(f, unsqueeze, CNN_A_T(list[i]), CNN_A_I(0));
  }
  int dim = !rows && n > 0 && list[0] && list[0]->ndim > 1 ? 1 : 0;
  cnn_results_add(f, r, cnn_do(f, cat, CNN_A_TS(n, list), CNN_A_I(dim)));
  if (list != few) cnn_free(list);
}

static void hstack(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  join(f, args, r, false);
}
const cnn_op cnn_op_hstack = {
    .name = "hstack",
    .args = "tensors:tensors",
    .doc = "The tensors side by side: along the second dim, vectors along the first.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_FUNCTION,
    .promote = CNN_PROMOTE_COMMON,
    .composite = hstack,
};

static void vstack(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  join(f, args, r, true);
}
const cnn_op cnn_op_vstack = {
    .name = "vstack",
    .args = "tensors:tensors",
    .doc = "The tensors below each other: along the first dim, vectors as rows.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_FUNCTION,
    .promote = CNN_PROMOTE_COMMON,
    .composite = vstack,
};

static void meshgrid(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  int n = args[0].n;
  bool swap = args[1].i == 1 && n >= 2;
  int64_t shape[CNN_MAX_DIMS];
  if (n == 0 || n > CNN_MAX_DIMS) {
    f->status =
        cnn_fail(f->ctx, CNN_INVALID, "1 to %d tensors are allowed, not %d", CNN_MAX_DIMS, n);
    return;
  }
  for (int i = 0; i < n; i++) {
    const cnn_tensor *t = args[0].ts[i];
    if (t->ndim > 1) {
      f->status = cnn_fail(f->ctx, CNN_SHAPE, "tensor %d has %d dims, at most 1 is allowed", i + 1,
                           t->ndim);
      return;
    }
    shape[i] = t->ndim ? t->shape[0] : 1;
  }
  if (swap) {
    int64_t size = shape[0];
    shape[0] = shape[1], shape[1] = size;
  }
  for (int i = 0; i < n; i++) {
    int64_t own[CNN_MAX_DIMS];
    int d = swap && i < 2 ? 1 - i : i;
    for (int k = 0; k < n; k++) own[k] = k == d ? shape[d] : 1;
    cnn_tensor *t = cnn_do(f, reshape, CNN_A_T(args[0].ts[i]), CNN_A_INTS(n, own));
    cnn_results_add(f, r, cnn_do(f, expand, CNN_A_T(t), CNN_A_INTS(n, shape)));
  }
}
const cnn_op cnn_op_meshgrid = {
    .name = "meshgrid",
    .args = "tensors:tensors indexing:ij|xy=ij",
    .doc = "A list of grids, one per vector: grid k holds vector k's value at every point. With "
           "indexing \"xy\" the first two dims are exchanged.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_FUNCTION | CNN_OP_LIST,
    .composite = meshgrid,
};
