// SPDX-License-Identifier: MIT
// Views that cut a tensor up: windows and diagonals, and several views made by one op.
//
// chunk, split and unbind record one node for all their results, whose gradient joins the results'
// gradients (cat, stack): one pass over memory, however many pieces there are.
#include "ops/geometry.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "engine/node.h"

// ---------------------------------------------------------------------------------------------
// unfold and diagonal

static cnn_status unfold_geometry(cnn_context *ctx, const cnn_arg *args, cnn_geometry *v) {
  int d;
  int64_t size = args[2].i, step = args[3].i;
  CNN_TRY(cnn_check_dim(ctx, "dim", args[1].i, v->ndim, &d));
  int64_t have = v->ndim > 0 ? v->shape[d] : 1, stride = v->ndim > 0 ? v->strides[d] : 1;
  if (size < 0 || size > have)
    return cnn_fail(ctx, CNN_SHAPE, "windows of size %" PRId64 " don't fit dim %d of size %" PRId64,
                    size, d + ctx->index_base, have);
  if (step < 1) return cnn_fail(ctx, CNN_INVALID, "step must be at least 1, not %" PRId64, step);
  if (v->ndim > 0) {
    v->shape[d] = (have - size) / step + 1;
    // One window has no next one: its stride must not overflow.
    if (v->shape[d] > 1) v->strides[d] *= step;
  }
  if (!cnn_geometry_insert(v, v->ndim, size, stride))
    return cnn_fail(ctx, CNN_SHAPE, "a tensor has at most %d dims", CNN_MAX_DIMS);
  return CNN_OK;
}
CNN_VIEW_OP(unfold, "x:tensor dim:dim size:int step:int=1", 0,
            "Windows of `size` positions along a dim, `step` apart: dim counts the windows, and a "
            "new last dim the positions in one. A view.")

static cnn_status diagonal_geometry(cnn_context *ctx, const cnn_arg *args, cnn_geometry *v) {
  int a, b;
  int64_t offset = args[1].i;
  if (v->ndim < 2)
    return cnn_fail(ctx, CNN_SHAPE, "x has %d dim%s, but a diagonal needs 2", v->ndim,
                    v->ndim == 1 ? "" : "s");
  CNN_TRY(cnn_check_dim(ctx, "dim1", args[2].i, v->ndim, &a));
  CNN_TRY(cnn_check_dim(ctx, "dim2", args[3].i, v->ndim, &b));
  if (a == b)
    return cnn_fail(ctx, CNN_INVALID, "dim1 and dim2 are the same dim, %d", a + ctx->index_base);
  // It starts `right` columns in, or `down` rows down.
  int64_t rows = v->shape[a], columns = v->shape[b], right = 0, down = 0;
  if (offset >= 0)
    right = offset > columns ? columns : offset;
  else
    down = offset < -rows ? rows : -offset;
  int64_t n = rows - down < columns - right ? rows - down : columns - right;
  int64_t stride = v->strides[a] + v->strides[b];
  if (n > 0) v->offset += right * v->strides[b] + down * v->strides[a];
  cnn_geometry_remove(v, a > b ? a : b);
  cnn_geometry_remove(v, a > b ? b : a);
  cnn_geometry_insert(v, v->ndim, n, stride);
  return CNN_OK;
}
CNN_VIEW_OP(diagonal, "x:tensor offset:int=0 dim1:dim=0 dim2:dim=1", 0,
            "The diagonal of the matrices in dims dim1 and dim2, as a new last dim; offset > 0 is "
            "above the main diagonal, < 0 below. A view.")

static cnn_status infer_diag_embed(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  int a, b, n = x->ndim + 1;
  int64_t offset = I->args[1].i;
  if (x->ndim == 0) return cnn_fail(I->ctx, CNN_SHAPE, "x has 0 dims, but its last dim is needed");
  if (n > CNN_MAX_DIMS)
    return cnn_fail(I->ctx, CNN_SHAPE, "a tensor has at most %d dims", CNN_MAX_DIMS);
  CNN_TRY(cnn_check_dim(I->ctx, "dim1", I->args[2].i, n, &a));
  CNN_TRY(cnn_check_dim(I->ctx, "dim2", I->args[3].i, n, &b));
  if (a == b)
    return cnn_fail(I->ctx, CNN_INVALID, "dim1 and dim2 are the same dim, %d",
                    a + I->ctx->index_base);
  int64_t shape[CNN_MAX_DIMS], size;
  if (__builtin_add_overflow(x->shape[x->ndim - 1], offset < 0 ? -offset : offset, &size))
    return cnn_fail(I->ctx, CNN_SHAPE, "offset %" PRId64 " is too large", offset);
  for (int d = 0, k = 0; d < n; d++) shape[d] = d == a || d == b ? size : x->shape[k++];
  cnn_infer_out(I, I->dtype, n, shape);
  return CNN_OK;
}

static void diag_embed(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_infer I = {.ctx = f->ctx,
                 .args = args,
                 .in = &args[0].t,
                 .n_in = 1,
                 .dtype = (cnn_dtype)args[0].t->dtype,
                 .device = args[0].t->device};
  cnn_geometry v;
  f->status = infer_diag_embed(&I);
  if (f->status != CNN_OK) return;
  cnn_meta *out = &I.out[0];
  cnn_geometry_of(&v, out->ndim, out->shape, out->strides);
  f->status = diagonal_geometry(f->ctx, args, &v);
  if (f->status != CNN_OK) return;
  cnn_results_add(f, r,
                  cnn_do(f, view_scatter_add, args[0], CNN_A_INTS(out->ndim, out->shape),
                         CNN_A_INTS(v.ndim, v.strides), CNN_A_I(v.offset),
                         CNN_A_INTS(out->ndim, out->strides)));
}
const cnn_op cnn_op_diag_embed = {
    .name = "diag_embed",
    .args = "x:tensor offset:int=0 dim1:dim=-2 dim2:dim=-1",
    .doc = "Zero matrices, in dims dim1 and dim2 of the result, with x's last dim on a diagonal.",
    .flags = CNN_OP_COMPOSITE,
    .composite = diag_embed,
};

static void diag(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  if (x->ndim == 1)
    cnn_results_add(f, r, cnn_do(f, diag_embed, args[0], args[1]));
  else if (x->ndim == 2)
    cnn_results_add(f, r,
                    cnn_do(f, clone, CNN_A_T(cnn_do(f, diagonal, args[0], args[1])), CNN_A_I(1)));
  else
    f->status = cnn_fail(f->ctx, CNN_SHAPE,
                         "x has %d dims, 1 or 2 are allowed: use diagonal or diag_embed", x->ndim);
}
const cnn_op cnn_op_diag = {
    .name = "diag",
    .args = "x:tensor diagonal:int=0",
    .doc = "The matrix with a vector on its diagonal; of a matrix, a copy of its diagonal.",
    .flags = CNN_OP_COMPOSITE,
    .composite = diag,
};

// ---------------------------------------------------------------------------------------------
// x[{...}] with positions, ranges and new axes

static cnn_status subscript_geometry(cnn_context *ctx, const cnn_arg *args, cnn_geometry *v) {
  const int64_t *key = args[1].ints;
  for (int i = 0, d = 0; i + 3 < args[1].n; i += 4) {
    switch (key[i]) {
    case CNN_KEY_POS:
      v->offset += key[i + 1] * v->strides[d];
      cnn_geometry_remove(v, d);
      break;
    case CNN_KEY_RANGE:
      v->offset += key[i + 1] * v->strides[d];
      v->shape[d] = key[i + 2];
      if (key[i + 2] > 1) v->strides[d] *= key[i + 3];
      d++;
      break;
    case CNN_KEY_NEW:
      if (!cnn_geometry_insert(v, d, 1, d < v->ndim ? v->strides[d] * v->shape[d] : 1))
        return cnn_fail(ctx, CNN_SHAPE, "a tensor has at most %d dims", CNN_MAX_DIMS);
      d++;
      break;
    default: d++;
    }
  }
  return CNN_OK;
}
static cnn_status infer_subscript(cnn_infer *I) {
  return cnn_geometry_infer(I, subscript_geometry);
}
static void backward_subscript(cnn_grad *g) {
  cnn_geometry_backward(g, subscript_geometry);
}
const cnn_op cnn_op_subscript = {
    .name = "index",
    .args = "x:tensor keys:ints",
    .doc = "The view that a list of keys (ops.h) selects, all checked already.",
    .flags = CNN_OP_VIEW | CNN_OP_INTERNAL,
    .infer = infer_subscript,
    .backward = backward_subscript,
};

// ---------------------------------------------------------------------------------------------
// Several views

// Makes the results, all views of x made by one op, one node of the tape. They were made with
// gradients off.
static void record(cnn_frame *f, int op, const cnn_arg *args, int n_args, cnn_tensor *x,
                   cnn_results *r) {
  uint8_t declared = 0;
  cnn_node *node;
  if (f->status != CNN_OK) return;
  for (int i = 0; i < r->n; i++) {
    if (f->ctx->grad_enabled) r->t[i]->flags &= (uint16_t)~CNN_NO_GRAD_VIEW;
    r->t[i]->flags |= CNN_MULTI_VIEW | (x->flags & CNN_NO_GRAD_VIEW);
  }
  if (!cnn_wants_record(f->ctx, &x, 1) || r->n == 0) return;
  f->status = cnn_node_create(f->ctx, op, args, n_args, &x, &declared, 1, r->t, r->n, false, &node);
  if (f->status != CNN_OK) return;
  for (int i = 0; i < r->n; i++) cnn_node_attach(node, i, r->t[i]);
  cnn_unref(node);
}

// The gradients of all results (zeros where none came) joined by `op` along a dim.
static void join_gradients(cnn_grad *g, int op, int dim) {
  int n = g->node->n_out;
  cnn_tensor *few[32], **list = few, *zero = NULL;
  if (n > 32) list = cnn_malloc((size_t)n * sizeof *list);
  if (!list) {
    g->f->status = cnn_fail(g->f->ctx, CNN_OOM, "out of memory for a list of %d tensors", n);
    return;
  }
  for (int i = 0; i < n; i++) {
    const cnn_form *form = cnn_out_form(g, i);
    list[i] = g->dy[i];
    if (list[i]) continue;
    if (!zero)
      zero = cnn_do(g->f, full, CNN_A_INTS(0, NULL), CNN_A_I(0), CNN_A_I(form->dtype),
                    CNN_A_DEVICE(form->device));
    list[i] = cnn_do(g->f, expand, CNN_A_T(zero), CNN_A_INTS(form->ndim, form->shape));
  }
  cnn_give(g, 0, cnn_frame_do(g->f, op, CNN_ARGS(CNN_A_TS(n, list), CNN_A_I(dim))));
  if (list != few) cnn_free(list);
}

static void split_at(cnn_frame *f, cnn_tensor *x, int dim, const int64_t *sizes, int64_t size,
                     int64_t n, cnn_results *r) {
  int64_t start = 0;
  bool enabled = f->ctx->grad_enabled;
  f->ctx->grad_enabled = false;
  for (int64_t i = 0; i < n && f->status == CNN_OK; i++) {
    int64_t rest = x->shape[dim] - start, length = sizes ? sizes[i] : size < rest ? size : rest;
    cnn_results_add(f, r,
                    cnn_do(f, slice, CNN_A_T(x), CNN_A_I(dim), CNN_A_I(start), CNN_A_I(length)));
    start += length;
  }
  f->ctx->grad_enabled = enabled;
}

static void split(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  const cnn_arg *sizes = &args[1];
  int d;
  cnn_shape_text a;
  f->status = cnn_check_dim(f->ctx, "dim", args[2].i, x->ndim, &d);
  if (f->status != CNN_OK) return;
  if (x->ndim == 0) {
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "x has 0 dims: there is nothing to split");
    return;
  }
  int64_t size = x->shape[d];
  if (sizes->n == 1) {
    int64_t each = sizes->ints[0];
    if (each < 0 || (each == 0 && size > 0)) {
      f->status = cnn_fail(f->ctx, CNN_SHAPE,
                           "pieces of size %" PRId64 " can't fill dim %d of size %" PRId64, each,
                           d + f->ctx->index_base, size);
      return;
    }
    split_at(f, x, d, NULL, each, size == 0 ? 1 : (size - 1) / each + 1, r);
  } else {
    int64_t sum = 0;
    bool fits = sizes->n > 0;
    for (int i = 0; i < sizes->n && fits; i++)
      fits = sizes->ints[i] >= 0 && !__builtin_add_overflow(sum, sizes->ints[i], &sum);
    if (!fits || sum != size) {
      f->status = cnn_fail(f->ctx, CNN_SHAPE, "sizes %s don't add up to dim %d's size, %" PRId64,
                           cnn_shape_format(&a, sizes->n < 8 ? sizes->n : 8, sizes->ints),
                           d + f->ctx->index_base, size);
      return;
    }
    split_at(f, x, d, sizes->ints, 0, sizes->n, r);
  }
  record(f, OP_split, args, 3, x, r);
}
static void backward_split(cnn_grad *g) {
  int d;
  cnn_check_dim(g->f->ctx, "dim", g->args[2].i, cnn_in_form(g, 0)->ndim, &d);
  join_gradients(g, OP_cat, d);
}
const cnn_op cnn_op_split = {
    .name = "split",
    .args = "x:tensor size:ints dim:dim=0",
    .doc = "A list of views that cut a dim into pieces of `size` (the last one may be shorter), or "
           "of the sizes in a list.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_LIST,
    .composite = split,
    .backward = backward_split,
};

enum { EMPTY_CHUNKS = 1 << 20 };

static void chunk(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  int d;
  int64_t n = args[1].i;
  f->status = cnn_check_dim(f->ctx, "dim", args[2].i, x->ndim, &d);
  if (f->status != CNN_OK) return;
  if (x->ndim == 0 || n < 1) {
    f->status = x->ndim == 0
                    ? cnn_fail(f->ctx, CNN_SHAPE, "x has 0 dims: there is nothing to split")
                    : cnn_fail(f->ctx, CNN_INVALID, "chunks must be at least 1, not %" PRId64, n);
    return;
  }
  // An empty dim gives as many pieces as are asked for, so that here a slip could take all memory.
  if (x->shape[d] == 0 && n > EMPTY_CHUNKS) {
    f->status =
        cnn_fail(f->ctx, CNN_INVALID, "chunks must be at most %d for a dim of size 0, not %" PRId64,
                 EMPTY_CHUNKS, n);
    return;
  }
  int64_t size = x->shape[d], each = size == 0 ? 0 : (size - 1) / n + 1;
  split_at(f, x, d, NULL, each, size == 0 ? n : (size - 1) / each + 1, r);
  record(f, OP_chunk, args, 3, x, r);
}
const cnn_op cnn_op_chunk = {
    .name = "chunk",
    .args = "x:tensor chunks:int dim:dim=0",
    .doc = "A list of views that cut a dim into `chunks` pieces of equal size; the last one may be "
           "shorter, and where the size doesn't divide there may be fewer.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_LIST,
    .composite = chunk,
    .backward = backward_split,
};

static void unbind(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  int d;
  f->status = cnn_check_dim(f->ctx, "dim", args[1].i, x->ndim, &d);
  if (f->status != CNN_OK) return;
  if (x->ndim == 0) {
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "x has 0 dims: there is nothing to unbind");
    return;
  }
  bool enabled = f->ctx->grad_enabled;
  f->ctx->grad_enabled = false;
  for (int64_t i = 0; i < x->shape[d] && f->status == CNN_OK; i++)
    cnn_results_add(f, r, cnn_do(f, select, CNN_A_T(x), CNN_A_I(d), CNN_A_I(i)));
  f->ctx->grad_enabled = enabled;
  record(f, OP_unbind, args, 2, x, r);
}
static void backward_unbind(cnn_grad *g) {
  int d;
  cnn_check_dim(g->f->ctx, "dim", g->args[1].i, cnn_in_form(g, 0)->ndim, &d);
  join_gradients(g, OP_stack, d);
}
const cnn_op cnn_op_unbind = {
    .name = "unbind",
    .args = "x:tensor dim:dim=0",
    .doc = "A list of the slices along a dim, views with one dim less.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_LIST,
    .composite = unbind,
    .backward = backward_unbind,
};
