// SPDX-License-Identifier: MIT
// Views: results that share their input's bytes. Their gradients put the pieces back
// (view_scatter_add), in row-major terms of the input's shape.
#include "ops/ops.h"

// Geometry of a view under construction.
typedef struct geometry {
  int ndim;
  int64_t offset; // relative to the input's first element
  int64_t shape[CNN_MAX_DIMS], strides[CNN_MAX_DIMS];
} geometry;

static void geometry_of(geometry *v, int ndim, const int64_t *shape, const int64_t *strides) {
  v->ndim = ndim;
  v->offset = 0;
  for (int i = 0; i < ndim; i++) v->shape[i] = shape[i], v->strides[i] = strides[i];
}

// Result 0 with that geometry over input 0.
static cnn_status give_view(cnn_infer *I, const geometry *v) {
  cnn_meta *out = cnn_infer_out(I, (cnn_dtype)I->in[0]->dtype, v->ndim, v->shape);
  for (int i = 0; i < v->ndim; i++) out->strides[i] = v->strides[i];
  I->offset = I->in[0]->offset + v->offset;
  return CNN_OK;
}

// A view op's geometry from the input's and the arguments: one function serves infer (with the real
// strides) and backward (with row-major ones).
typedef cnn_status (*geometry_fn)(cnn_context *ctx, const cnn_arg *args, geometry *v);

static cnn_status infer_geometry(cnn_infer *I, geometry_fn fn) {
  geometry v;
  geometry_of(&v, I->in[0]->ndim, I->in[0]->shape, I->in[0]->strides);
  CNN_TRY(fn(I->ctx, I->args, &v));
  return give_view(I, &v);
}

static void backward_geometry(cnn_grad *g, geometry_fn fn) {
  const cnn_form *x = cnn_in_form(g, 0);
  int64_t strides[CNN_MAX_DIMS];
  geometry v;
  cnn_shape_strides(x->ndim, x->shape, strides);
  geometry_of(&v, x->ndim, x->shape, strides);
  if (fn(g->f->ctx, g->args, &v) != CNN_OK) return; // it succeeded in the forward
  cnn_give(g, 0,
           cnn_do(g->f, view_scatter_add, CNN_A_T(g->dy[0]), CNN_A_INTS(x->ndim, x->shape),
                  CNN_A_INTS(v.ndim, v.strides), CNN_A_I(v.offset), CNN_A_INTS(x->ndim, strides)));
}

#define VIEW_OP(title, arguments, text)                                                            \
  static cnn_status infer_##title(cnn_infer *I) {                                                  \
    return infer_geometry(I, title##_geometry);                                                    \
  }                                                                                                \
  static void backward_##title(cnn_grad *g) {                                                      \
    backward_geometry(g, title##_geometry);                                                        \
  }                                                                                                \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = arguments,                                                \
                                 .doc = text,                                                      \
                                 .flags = CNN_OP_VIEW,                                             \
                                 .infer = infer_##title,                                           \
                                 .backward = backward_##title};

static void remove_dim(geometry *v, int d) {
  v->ndim--;
  for (; d < v->ndim; d++) v->shape[d] = v->shape[d + 1], v->strides[d] = v->strides[d + 1];
}

// A 0-based position in a dim of `size`, negative from the end.
static cnn_status check_pos(cnn_context *ctx, int64_t pos, int64_t size, int dim, int64_t *out) {
  int64_t p = pos < 0 ? pos + size : pos;
  int base = ctx->index_base;
  if (p < 0 || p >= size) {
    if (size == 0)
      return cnn_fail(ctx, CNN_INDEX, "index %lld: dim %d has size 0",
                      (long long)(pos < 0 ? pos : pos + base), dim + base);
    return cnn_fail(ctx, CNN_INDEX, "index %lld is out of range for dim %d of size %lld (%d..%lld)",
                    (long long)(pos < 0 ? pos : pos + base), dim + base, (long long)size, base,
                    (long long)(size - 1 + base));
  }
  *out = p;
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// select and slice

static cnn_status select_geometry(cnn_context *ctx, const cnn_arg *args, geometry *v) {
  int d;
  int64_t at = 0;
  CNN_TRY(cnn_check_dim(ctx, "dim", args[1].i, v->ndim, &d));
  if (v->ndim == 0) return cnn_fail(ctx, CNN_SHAPE, "x has 0 dims: there is nothing to select");
  CNN_TRY(check_pos(ctx, args[2].i, v->shape[d], d, &at));
  v->offset += at * v->strides[d];
  remove_dim(v, d);
  return CNN_OK;
}
VIEW_OP(select, "x:tensor dim:dim index:pos",
        "The slice at one position of a dim: a view with one dim less.")

// start and length are 0-based and already checked by those who build them.
static cnn_status slice_geometry(cnn_context *ctx, const cnn_arg *args, geometry *v) {
  int d;
  CNN_TRY(cnn_check_dim(ctx, "dim", args[1].i, v->ndim, &d));
  int64_t start = args[2].i, length = args[3].i, step = args[4].i;
  v->offset += start * v->strides[d];
  v->shape[d] = length;
  v->strides[d] *= step;
  return CNN_OK;
}
static cnn_status infer_slice(cnn_infer *I) {
  return infer_geometry(I, slice_geometry);
}
static void backward_slice(cnn_grad *g) {
  backward_geometry(g, slice_geometry);
}
const cnn_op cnn_op_slice = {
    .name = "slice",
    .args = "x:tensor dim:dim start:int length:int step:int=1",
    .doc = "Every step-th position of a dim: a view.",
    .flags = CNN_OP_VIEW | CNN_OP_INTERNAL,
    .infer = infer_slice,
    .backward = backward_slice,
};

static cnn_status narrow_geometry(cnn_context *ctx, const cnn_arg *args, geometry *v) {
  int d;
  CNN_TRY(cnn_check_dim(ctx, "dim", args[1].i, v->ndim, &d));
  if (v->ndim == 0) return cnn_fail(ctx, CNN_SHAPE, "x has 0 dims: there is nothing to narrow");
  int64_t size = v->shape[d], start = args[2].i < 0 ? args[2].i + size : args[2].i;
  int64_t length = args[3].i;
  if (start < 0 || length < 0 || start > size || length > size - start)
    return cnn_fail(ctx, CNN_INDEX, "start %lld with length %lld does not fit dim %d of size %lld",
                    (long long)(start + ctx->index_base), (long long)length, d + ctx->index_base,
                    (long long)size);
  v->offset += start * v->strides[d];
  v->shape[d] = length;
  return CNN_OK;
}
VIEW_OP(narrow, "x:tensor dim:dim start:pos length:int",
        "`length` positions of a dim from `start` on: a view.")

// ---------------------------------------------------------------------------------------------
// expand

static cnn_status infer_expand(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  int n = I->args[1].n;
  geometry v = {.ndim = n};
  cnn_shape_text a, b;
  for (int i = 0; i < n; i++) {
    int own = i - (n - x->ndim);
    int64_t want = I->args[1].ints[i], have = own >= 0 ? x->shape[own] : 1;
    if (n < x->ndim || (want == -1 && own < 0) || (want != -1 && want != have && have != 1) ||
        want < -1)
      return cnn_fail(I->ctx, CNN_SHAPE,
                      "x of shape %s can't expand to %s: only dims of size 1 and new leading dims "
                      "grow; -1 keeps a size",
                      cnn_shape_format(&a, x->ndim, x->shape),
                      cnn_shape_format(&b, n, I->args[1].ints));
    v.shape[i] = want == -1 ? have : want;
    v.strides[i] = own >= 0 && v.shape[i] == have ? x->strides[own] : 0;
  }
  if (n < x->ndim)
    return cnn_fail(I->ctx, CNN_SHAPE, "x of shape %s can't expand to fewer dims, %s",
                    cnn_shape_format(&a, x->ndim, x->shape),
                    cnn_shape_format(&b, n, I->args[1].ints));
  return give_view(I, &v);
}
static void backward_expand(cnn_grad *g) {
  cnn_give(g, 0, g->dy[0]);
}
const cnn_op cnn_op_expand = {
    .name = "expand",
    .args = "x:tensor shape:shape*",
    .doc = "x with dims of size 1 repeated to the given sizes, without a copy; -1 keeps a size.",
    .flags = CNN_OP_VIEW,
    .infer = infer_expand,
    .backward = backward_expand,
};

// ---------------------------------------------------------------------------------------------
// Order and number of dims

static cnn_status permute_geometry(cnn_context *ctx, const cnn_arg *args, geometry *v) {
  geometry old = *v;
  uint32_t seen;
  if (args[1].n != v->ndim)
    return cnn_fail(ctx, CNN_INVALID, "dims names %d dims of a tensor with %d", args[1].n, v->ndim);
  CNN_TRY(cnn_check_dims(ctx, "dim", &args[1], v->ndim, &seen));
  for (int i = 0; i < v->ndim; i++) {
    int64_t d = args[1].ints[i] < 0 ? args[1].ints[i] + v->ndim : args[1].ints[i];
    v->shape[i] = old.shape[d];
    v->strides[i] = old.strides[d];
  }
  return CNN_OK;
}
static cnn_status infer_permute(cnn_infer *I) {
  return infer_geometry(I, permute_geometry);
}
static void backward_permute(cnn_grad *g) {
  int64_t inverse[CNN_MAX_DIMS];
  int n = g->args[1].n;
  for (int i = 0; i < n; i++) {
    int64_t d = g->args[1].ints[i];
    inverse[d < 0 ? d + n : d] = i;
  }
  cnn_give(g, 0, cnn_do(g->f, permute, CNN_A_T(g->dy[0]), CNN_A_INTS(n, inverse)));
}
const cnn_op cnn_op_permute = {
    .name = "permute",
    .args = "x:tensor dims:dims*",
    .doc = "x with its dims in another order: result dim i is x's dim dims[i]. A view.",
    .flags = CNN_OP_VIEW,
    .infer = infer_permute,
    .backward = backward_permute,
};

static cnn_status transpose_geometry(cnn_context *ctx, const cnn_arg *args, geometry *v) {
  int a, b;
  CNN_TRY(cnn_check_dim(ctx, "dim", args[1].i, v->ndim, &a));
  CNN_TRY(cnn_check_dim(ctx, "dim", args[2].i, v->ndim, &b));
  if (v->ndim == 0) return CNN_OK;
  int64_t size = v->shape[a], stride = v->strides[a];
  v->shape[a] = v->shape[b], v->strides[a] = v->strides[b];
  v->shape[b] = size, v->strides[b] = stride;
  return CNN_OK;
}
static cnn_status infer_transpose(cnn_infer *I) {
  return infer_geometry(I, transpose_geometry);
}
static void backward_transpose(cnn_grad *g) {
  cnn_give(g, 0, cnn_do(g->f, transpose, CNN_A_T(g->dy[0]), g->args[1], g->args[2]));
}
const cnn_op cnn_op_transpose = {
    .name = "transpose",
    .args = "x:tensor dim0:dim dim1:dim",
    .doc = "x with two dims exchanged. A view.",
    .flags = CNN_OP_VIEW,
    .infer = infer_transpose,
    .backward = backward_transpose,
};

static cnn_status unsqueeze_geometry(cnn_context *ctx, const cnn_arg *args, geometry *v) {
  int d;
  CNN_TRY(cnn_check_dim(ctx, "dim", args[1].i, v->ndim + 1, &d));
  if (v->ndim == CNN_MAX_DIMS)
    return cnn_fail(ctx, CNN_SHAPE, "a tensor has at most %d dims", CNN_MAX_DIMS);
  int64_t stride = d < v->ndim ? v->strides[d] * v->shape[d] : 1;
  for (int i = v->ndim++; i > d; i--)
    v->shape[i] = v->shape[i - 1], v->strides[i] = v->strides[i - 1];
  v->shape[d] = 1;
  v->strides[d] = stride;
  return CNN_OK;
}
static void reshape_back(cnn_grad *g) {
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_give(g, 0, cnn_do(g->f, reshape, CNN_A_T(g->dy[0]), CNN_A_INTS(x->ndim, x->shape)));
}
static cnn_status infer_unsqueeze(cnn_infer *I) {
  return infer_geometry(I, unsqueeze_geometry);
}
const cnn_op cnn_op_unsqueeze = {
    .name = "unsqueeze",
    .args = "x:tensor dim:dim",
    .doc = "x with a dim of size 1 inserted at `dim`. A view.",
    .flags = CNN_OP_VIEW,
    .infer = infer_unsqueeze,
    .backward = reshape_back,
};

static cnn_status squeeze_geometry(cnn_context *ctx, const cnn_arg *args, geometry *v) {
  uint32_t mask;
  CNN_TRY(cnn_check_dims(ctx, "dim", &args[1], v->ndim, &mask));
  for (int d = v->ndim - 1; d >= 0; d--)
    if (mask >> d & 1 && v->shape[d] == 1) remove_dim(v, d);
  return CNN_OK;
}
static cnn_status infer_squeeze(cnn_infer *I) {
  return infer_geometry(I, squeeze_geometry);
}
const cnn_op cnn_op_squeeze = {
    .name = "squeeze",
    .args = "x:tensor dim:dims?",
    .doc = "x without its dims of size 1, or without those of `dim` that have size 1. A view.",
    .flags = CNN_OP_VIEW,
    .infer = infer_squeeze,
    .backward = reshape_back,
};

// ---------------------------------------------------------------------------------------------
// Shapes anew

// A wanted shape with at most one -1, resolved for n elements.
static cnn_status resolve_shape(cnn_context *ctx, const cnn_tensor *x, const cnn_arg *arg,
                                geometry *v) {
  int64_t n = cnn_numel(x), known = 1;
  int open = -1;
  cnn_shape_text a, b;
  v->ndim = arg->n;
  v->offset = 0;
  for (int i = 0; i < arg->n; i++) {
    v->shape[i] = arg->ints[i];
    if (arg->ints[i] == -1 && open < 0)
      open = i;
    else if (arg->ints[i] < 0)
      return cnn_fail(ctx, CNN_SHAPE, "shape %s: sizes are >= 0, with at most one -1",
                      cnn_shape_format(&a, arg->n, arg->ints));
    else
      known *= arg->ints[i];
  }
  bool fits = open < 0 ? known == n : known > 0 && n % known == 0;
  if (!fits)
    return cnn_fail(ctx, CNN_SHAPE, "x of shape %s has %lld elements, which don't fit shape %s",
                    cnn_shape_format(&a, x->ndim, x->shape), (long long)n,
                    cnn_shape_format(&b, arg->n, arg->ints));
  if (open >= 0) v->shape[open] = n / known;
  return CNN_OK;
}

static cnn_status infer_view(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  geometry v;
  cnn_shape_text a, b;
  CNN_TRY(resolve_shape(I->ctx, x, &I->args[1], &v));
  if (!cnn_strides_reshape(x->ndim, x->shape, x->strides, v.ndim, v.shape, v.strides))
    return cnn_fail(I->ctx, CNN_SHAPE,
                    "x of shape %s with strides %s can't be seen as %s without a copy: use reshape",
                    cnn_tensor_shape_text(x, &a), cnn_shape_format(&b, x->ndim, x->strides),
                    cnn_shape_format(&(cnn_shape_text){""}, v.ndim, v.shape));
  return give_view(I, &v);
}
const cnn_op cnn_op_view = {
    .name = "view",
    .args = "x:tensor shape:shape*",
    .doc = "The same elements in another shape, without a copy; -1 stands for what is left.",
    .flags = CNN_OP_VIEW,
    .infer = infer_view,
    .backward = reshape_back,
};

static void reshape(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  geometry v;
  f->status = resolve_shape(f->ctx, x, &args[1], &v);
  if (f->status != CNN_OK) return;
  if (!cnn_strides_reshape(x->ndim, x->shape, x->strides, v.ndim, v.shape, v.strides))
    x = cnn_do(f, clone, CNN_A_T(x), CNN_A_I(1));
  cnn_results_add(f, r, cnn_do(f, view, CNN_A_T(x), CNN_A_INTS(v.ndim, v.shape)));
}
const cnn_op cnn_op_reshape = {
    .name = "reshape",
    .args = "x:tensor shape:shape*",
    .doc = "The same elements in another shape: a view where that is possible, else a copy; -1 "
           "stands for what is left.",
    .flags = CNN_OP_COMPOSITE,
    .composite = reshape,
};

static void contiguous(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  cnn_meta last;
  bool same = args[1].i == 0 && cnn_is_contiguous(x);
  if (args[1].i == 1) {
    cnn_meta_of(x, &last);
    f->status = cnn_infer_channels_last(f->ctx, &last);
    same = f->status == CNN_OK && cnn_shape_equal(4, last.strides, 4, x->strides);
  }
  cnn_results_add(f, r, same ? x : cnn_do(f, clone, CNN_A_T(x), CNN_A_I(1 + args[1].i)));
}
const cnn_op cnn_op_contiguous = {
    .name = "contiguous",
    .args = "x:tensor memory_format:contiguous|channels_last=contiguous",
    .doc = "x itself when it is contiguous (row-major) or, on demand, channels-last; else a copy "
           "that is.",
    .flags = CNN_OP_COMPOSITE,
    .composite = contiguous,
};
