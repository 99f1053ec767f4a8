// SPDX-License-Identifier: MIT
// Views: results that share their input's bytes. Their gradients put the pieces back
// (view_scatter_add), in row-major terms of the input's shape.
#include "ops/geometry.h"

#include <inttypes.h>

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

static cnn_status select_geometry(cnn_context *ctx, const cnn_arg *args, cnn_geometry *v) {
  int d;
  int64_t at = 0;
  CNN_TRY(cnn_check_dim(ctx, "dim", args[1].i, v->ndim, &d));
  if (v->ndim == 0) return cnn_fail(ctx, CNN_SHAPE, "x has 0 dims: there is nothing to select");
  CNN_TRY(check_pos(ctx, args[2].i, v->shape[d], d, &at));
  v->offset += at * v->strides[d];
  cnn_geometry_remove(v, d);
  return CNN_OK;
}
CNN_VIEW_OP(select, "x:tensor dim:dim index:pos", 0,
            "The slice at one position of a dim: a view with one dim less.")

// start and length are 0-based and already checked by those who build them.
static cnn_status slice_geometry(cnn_context *ctx, const cnn_arg *args, cnn_geometry *v) {
  int d;
  CNN_TRY(cnn_check_dim(ctx, "dim", args[1].i, v->ndim, &d));
  int64_t start = args[2].i, length = args[3].i, step = args[4].i;
  v->offset += start * v->strides[d];
  v->shape[d] = length;
  if (length > 1) v->strides[d] *= step;
  return CNN_OK;
}
CNN_VIEW_OP(slice, "x:tensor dim:dim start:int length:int step:int=1", CNN_OP_INTERNAL,
            "Every step-th position of a dim: a view.")

static cnn_status narrow_geometry(cnn_context *ctx, const cnn_arg *args, cnn_geometry *v) {
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
CNN_VIEW_OP(narrow, "x:tensor dim:dim start:pos length:int", 0,
            "`length` positions of a dim from `start` on: a view.")

// ---------------------------------------------------------------------------------------------
// expand

static cnn_status infer_expand(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  int n = I->args[1].n;
  cnn_geometry v = {.ndim = n};
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
  return cnn_geometry_view(I, &v);
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

static cnn_status permute_geometry(cnn_context *ctx, const cnn_arg *args, cnn_geometry *v) {
  cnn_geometry old = *v;
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
  return cnn_geometry_infer(I, permute_geometry);
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

static cnn_status transpose_geometry(cnn_context *ctx, const cnn_arg *args, cnn_geometry *v) {
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
  return cnn_geometry_infer(I, transpose_geometry);
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

static cnn_status unsqueeze_geometry(cnn_context *ctx, const cnn_arg *args, cnn_geometry *v) {
  int d;
  CNN_TRY(cnn_check_dim(ctx, "dim", args[1].i, v->ndim + 1, &d));
  int64_t stride = d < v->ndim ? v->strides[d] * v->shape[d] : 1;
  if (!cnn_geometry_insert(v, d, 1, stride))
    return cnn_fail(ctx, CNN_SHAPE, "a tensor has at most %d dims", CNN_MAX_DIMS);
  return CNN_OK;
}
static void reshape_back(cnn_grad *g) {
  const cnn_form *x = cnn_in_form(g, 0);
  cnn_give(g, 0, cnn_do(g->f, reshape, CNN_A_T(g->dy[0]), CNN_A_INTS(x->ndim, x->shape)));
}
static cnn_status infer_unsqueeze(cnn_infer *I) {
  return cnn_geometry_infer(I, unsqueeze_geometry);
}
const cnn_op cnn_op_unsqueeze = {
    .name = "unsqueeze",
    .args = "x:tensor dim:dim",
    .doc = "x with a dim of size 1 inserted at `dim`. A view.",
    .flags = CNN_OP_VIEW,
    .infer = infer_unsqueeze,
    .backward = reshape_back,
};

static cnn_status squeeze_geometry(cnn_context *ctx, const cnn_arg *args, cnn_geometry *v) {
  uint32_t mask;
  CNN_TRY(cnn_check_dims(ctx, "dim", &args[1], v->ndim, &mask));
  for (int d = v->ndim - 1; d >= 0; d--)
    if (mask >> d & 1 && v->shape[d] == 1) cnn_geometry_remove(v, d);
  return CNN_OK;
}
static cnn_status infer_squeeze(cnn_infer *I) {
  return cnn_geometry_infer(I, squeeze_geometry);
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
                                cnn_geometry *v) {
  int64_t n = cnn_numel(x);
  int open = -1;
  cnn_shape_text a, b;
  v->ndim = arg->n;
  v->offset = 0;
  for (int i = 0; i < arg->n; i++) {
    v->shape[i] = arg->ints[i];
    if (v->shape[i] == -1 && open < 0)
      open = i, v->shape[i] = 1;
    else if (v->shape[i] < 0)
      return cnn_fail(ctx, CNN_SHAPE, "shape %s: sizes are >= 0, with at most one -1",
                      cnn_shape_format(&a, arg->n, arg->ints));
  }
  int64_t known = cnn_shape_numel(v->ndim, v->shape);
  bool fits = open < 0 ? known == n : known > 0 && n % known == 0;
  if (!fits)
    return cnn_fail(ctx, CNN_SHAPE,
                    "x of shape %s has %" PRId64 " elements, which don't fit shape %s",
                    cnn_shape_format(&a, x->ndim, x->shape), n,
                    cnn_shape_format(&b, arg->n, arg->ints));
  if (open >= 0) v->shape[open] = n / known;
  return CNN_OK;
}

static cnn_status infer_view(cnn_infer *I) {
  const cnn_tensor *x = I->in[0];
  cnn_geometry v;
  cnn_shape_text a, b;
  CNN_TRY(resolve_shape(I->ctx, x, &I->args[1], &v));
  if (!cnn_strides_reshape(x->ndim, x->shape, x->strides, v.ndim, v.shape, v.strides))
    return cnn_fail(I->ctx, CNN_SHAPE,
                    "x of shape %s with strides %s can't be seen as %s without a copy: use reshape",
                    cnn_shape_format(&a, x->ndim, x->shape),
                    cnn_shape_format(&b, x->ndim, x->strides),
                    cnn_shape_format(&(cnn_shape_text){""}, v.ndim, v.shape));
  return cnn_geometry_view(I, &v);
}
const cnn_op cnn_op_view = {
    .name = "view",
    .args = "x:tensor shape:shape*",
    .doc = "The same elements in another shape, without a copy; -1 stands for what is left.",
    .flags = CNN_OP_VIEW,
    .infer = infer_view,
    .backward = reshape_back,
};

// x in a shape of the same number of elements.
static cnn_tensor *reshaped(cnn_frame *f, cnn_tensor *x, int ndim, const int64_t *shape) {
  int64_t strides[CNN_MAX_DIMS];
  if (!cnn_strides_reshape(x->ndim, x->shape, x->strides, ndim, shape, strides))
    x = cnn_do(f, clone, CNN_A_T(x), CNN_A_I(1));
  return cnn_do(f, view, CNN_A_T(x), CNN_A_INTS(ndim, shape));
}

static void reshape(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_geometry v;
  f->status = resolve_shape(f->ctx, args[0].t, &args[1], &v);
  if (f->status == CNN_OK) cnn_results_add(f, r, reshaped(f, args[0].t, v.ndim, v.shape));
}
const cnn_op cnn_op_reshape = {
    .name = "reshape",
    .args = "x:tensor shape:shape*",
    .doc = "The same elements in another shape: a view where that is possible, else a copy; -1 "
           "stands for what is left.",
    .flags = CNN_OP_COMPOSITE,
    .composite = reshape,
};

static void flatten(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  int first, last, n = 0;
  int64_t shape[CNN_MAX_DIMS] = {1};
  f->status = cnn_check_dim(f->ctx, "start_dim", args[1].i, x->ndim, &first);
  if (f->status == CNN_OK) f->status = cnn_check_dim(f->ctx, "end_dim", args[2].i, x->ndim, &last);
  if (f->status != CNN_OK) return;
  if (first > last) {
    int base = f->ctx->index_base;
    f->status = cnn_fail(f->ctx, CNN_INVALID, "start_dim %d comes after end_dim %d", first + base,
                         last + base);
    return;
  }
  for (int d = 0; d < x->ndim; d++) {
    if (d > first && d <= last)
      shape[n - 1] *= x->shape[d];
    else
      shape[n++] = x->shape[d];
  }
  if (x->ndim == 0) n = 1;
  cnn_results_add(f, r, n == x->ndim ? x : reshaped(f, x, n, shape));
}
const cnn_op cnn_op_flatten = {
    .name = "flatten",
    .args = "x:tensor start_dim:dim=0 end_dim:dim=-1",
    .doc = "x with the dims from start_dim to end_dim joined into one: a view where that is "
           "possible, else a copy; x itself when there is nothing to join.",
    .flags = CNN_OP_COMPOSITE,
    .composite = flatten,
};

static void unflatten(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  const cnn_arg *sizes = &args[2];
  int d, n = 0, open = -1;
  int64_t shape[CNN_MAX_DIMS], known = 1;
  cnn_shape_text a;
  f->status = cnn_check_dim(f->ctx, "dim", args[1].i, x->ndim, &d);
  if (f->status != CNN_OK) return;
  if (x->ndim == 0 || sizes->n == 0 || x->ndim - 1 + sizes->n > CNN_MAX_DIMS) {
    f->status = cnn_fail(f->ctx, CNN_SHAPE,
                         "sizes %s can't stand for a dim of a tensor with %d dim%s: 1 to %d dims "
                         "are allowed in all",
                         cnn_shape_format(&a, sizes->n, sizes->ints), x->ndim,
                         x->ndim == 1 ? "" : "s", CNN_MAX_DIMS);
    return;
  }
  for (int i = 0; i < d; i++) shape[n++] = x->shape[i];
  for (int i = 0; i < sizes->n; i++) {
    shape[n] = sizes->ints[i];
    if (shape[n] == -1 && open < 0)
      open = n;
    else if (shape[n] < 0 || __builtin_mul_overflow(known, shape[n], &known))
      known = 0;
    n++;
  }
  int64_t size = x->shape[d];
  if (open >= 0 && known > 0 && size % known == 0) {
    shape[open] = size / known;
  } else if (open >= 0 || known != size) {
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "sizes %s don't fit dim %d of size %" PRId64,
                         cnn_shape_format(&a, sizes->n, sizes->ints), d + f->ctx->index_base, size);
    return;
  }
  for (int i = d + 1; i < x->ndim; i++) shape[n++] = x->shape[i];
  cnn_results_add(f, r, cnn_do(f, view, CNN_A_T(x), CNN_A_INTS(n, shape)));
}
const cnn_op cnn_op_unflatten = {
    .name = "unflatten",
    .args = "x:tensor dim:dim sizes:shape",
    .doc = "x with one dim split into dims of the given sizes; -1 stands for what is left. A view.",
    .flags = CNN_OP_COMPOSITE,
    .composite = unflatten,
};

// ---------------------------------------------------------------------------------------------
// Short forms

static void t(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  if (x->ndim > 2) {
    f->status = cnn_fail(f->ctx, CNN_SHAPE,
                         "x has %d dims, at most 2 are allowed: use transpose or permute", x->ndim);
    return;
  }
  cnn_results_add(f, r, x->ndim < 2 ? x : cnn_do(f, transpose, CNN_A_T(x), CNN_A_I(0), CNN_A_I(1)));
}
const cnn_op cnn_op_t = {
    .name = "t",
    .args = "x:tensor",
    .doc = "The transpose of a matrix: a view. A tensor with fewer dims is given back as it is.",
    .flags = CNN_OP_COMPOSITE,
    .composite = t,
};

static void movedim(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  const cnn_arg *source = &args[1], *target = &args[2];
  int64_t order[CNN_MAX_DIMS];
  uint32_t from = 0, to = 0;
  if (source->n != target->n) {
    f->status =
        cnn_fail(f->ctx, CNN_INVALID, "source names %d dims, destination %d", source->n, target->n);
    return;
  }
  if (source->n > 0) f->status = cnn_check_dims(f->ctx, "source", source, x->ndim, &from);
  if (source->n > 0 && f->status == CNN_OK)
    f->status = cnn_check_dims(f->ctx, "destination", target, x->ndim, &to);
  if (f->status != CNN_OK) return;
  for (int i = 0; i < source->n && x->ndim > 0; i++) {
    int64_t a = source->ints[i], b = target->ints[i];
    order[b < 0 ? b + x->ndim : b] = a < 0 ? a + x->ndim : a;
  }
  for (int a = 0, b = 0; b < x->ndim; b++) {
    if (to >> b & 1) continue;
    while (from >> a & 1) a++;
    order[b] = a++;
  }
  cnn_results_add(f, r, cnn_do(f, permute, CNN_A_T(x), CNN_A_INTS(x->ndim, order)));
}
const cnn_op cnn_op_movedim = {
    .name = "movedim",
    .args = "x:tensor source:dims destination:dims",
    .doc = "x with the dims `source` at the places `destination`, the others in their order. A "
           "view.",
    .flags = CNN_OP_COMPOSITE,
    .composite = movedim,
};

#define LIKE_OP(title, op, text)                                                                   \
  static void title(cnn_frame *f, const cnn_arg *args, cnn_results *r) {                           \
    const cnn_tensor *other = args[1].t;                                                           \
    cnn_results_add(f, r, cnn_do(f, op, args[0], CNN_A_INTS(other->ndim, other->shape)));          \
  }                                                                                                \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = "x:other other:other",                                    \
                                 .doc = text,                                                      \
                                 .flags = CNN_OP_COMPOSITE | CNN_OP_ANY_DEVICE,                    \
                                 .composite = title};

LIKE_OP(expand_as, expand, "x expanded to the shape of `other`.")
LIKE_OP(view_as, view, "x seen in the shape of `other`.")
LIKE_OP(reshape_as, reshape, "x in the shape of `other`: a view where that is possible.")

CNN_ALIAS_OP(broadcast_to, "x:tensor shape:shape*", expand)
CNN_ALIAS_OP(swapaxes, "x:tensor dim0:dim dim1:dim", transpose)
CNN_ALIAS_OP(swapdims, "x:tensor dim0:dim dim1:dim", transpose)
CNN_ALIAS_OP(moveaxis, "x:tensor source:dims destination:dims", movedim)
CNN_ALIAS_OP(ravel, "x:tensor", flatten)

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
