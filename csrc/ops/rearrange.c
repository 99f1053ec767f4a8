// SPDX-License-Identifier: MIT
// Copies of a tensor's elements in another order, repeated, or partly zero.
#include "ops/geometry.h"

#include <inttypes.h>

static cnn_status infer_same(cnn_infer *I) {
  cnn_infer_out(I, I->dtype, I->in[0]->ndim, I->in[0]->shape);
  return CNN_OK;
}

// ---------------------------------------------------------------------------------------------
// flip and roll

static cnn_status infer_flip(cnn_infer *I) {
  uint32_t mask = 0;
  // No dims is nothing to flip here, not all of them.
  if (I->args[1].n > 0) CNN_TRY(cnn_check_dims(I->ctx, "dim", &I->args[1], I->in[0]->ndim, &mask));
  return infer_same(I);
}
static void backward_flip(cnn_grad *g) {
  cnn_give(g, 0, cnn_do(g->f, flip, CNN_A_T(g->dy[0]), g->args[1]));
}
const cnn_op cnn_op_flip = {
    .name = "flip",
    .args = "x:tensor dims:dims*",
    .doc = "x with the order of elements reversed along the given dims.",
    .infer = infer_flip,
    .backward = backward_flip,
};

static cnn_status infer_roll(cnn_infer *I) {
  const cnn_arg *shifts = &I->args[1], *dims = &I->args[2];
  uint32_t mask;
  if (!cnn_has(I->args, 2)) {
    if (shifts->n != 1)
      return cnn_fail(I->ctx, CNN_INVALID, "without dims, one shift is allowed, not %d", shifts->n);
    return infer_same(I);
  }
  if (shifts->n != dims->n)
    return cnn_fail(I->ctx, CNN_INVALID, "shifts has %d entries, dims %d", shifts->n, dims->n);
  if (dims->n > 0) CNN_TRY(cnn_check_dims(I->ctx, "dim", dims, I->in[0]->ndim, &mask));
  return infer_same(I);
}
static void backward_roll(cnn_grad *g) {
  int64_t back[CNN_MAX_DIMS];
  int n = g->args[1].n;
  for (int i = 0; i < n; i++) back[i] = (int64_t)(0 - (uint64_t)g->args[1].ints[i]);
  cnn_give(g, 0, cnn_do(g->f, roll, CNN_A_T(g->dy[0]), CNN_A_INTS(n, back), g->args[2]));
}
const cnn_op cnn_op_roll = {
    .name = "roll",
    .args = "x:tensor shifts:ints dims:dims?",
    .doc = "x shifted along the given dims: what leaves at the end comes in at the start. Without "
           "dims, x is shifted as one row of elements.",
    .infer = infer_roll,
    .backward = backward_roll,
};

// ---------------------------------------------------------------------------------------------
// tile and repeat_interleave

// x with dim d repeated: block by block (`inside` false) or element by element.
static cnn_tensor *repeated(cnn_frame *f, cnn_tensor *x, int d, int64_t times, bool inside) {
  int64_t shape[CNN_MAX_DIMS], size;
  cnn_geometry v;
  if (!x || times == 1) return x;
  if (x->ndim == CNN_MAX_DIMS) { // no room for one more dim: the others are joined meanwhile
    int64_t outer = 1, inner = 1;
    for (int k = 0; k < d; k++) outer *= x->shape[k];
    for (int k = d + 1; k < x->ndim; k++) inner *= x->shape[k];
    int64_t three[] = {outer, x->shape[d], inner};
    for (int k = 0; k < x->ndim; k++) shape[k] = x->shape[k];
    if (__builtin_mul_overflow(shape[d], times, &shape[d])) shape[d] = INT64_MAX;
    cnn_tensor *y = cnn_do(f, reshape, CNN_A_T(x), CNN_A_INTS(3, three));
    return cnn_do(f, reshape, CNN_A_T(repeated(f, y, 1, times, inside)),
                  CNN_A_INTS(x->ndim, shape));
  }
  cnn_geometry_of(&v, x->ndim, x->shape, x->strides);
  if (__builtin_mul_overflow(v.shape[d], times, &size)) {
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "the result would be too large");
    return NULL;
  }
  cnn_geometry_insert(&v, inside ? d + 1 : d, times, 0);
  for (int k = 0; k < x->ndim; k++) shape[k] = k == d ? size : x->shape[k];
  x = cnn_do(f, unsqueeze, CNN_A_T(x), CNN_A_I(inside ? d + 1 : d));
  x = cnn_do(f, expand, CNN_A_T(x), CNN_A_INTS(v.ndim, v.shape));
  return cnn_do(f, reshape, CNN_A_T(x), CNN_A_INTS(v.ndim - 1, shape));
}

// y where it has bytes of its own for each element; else (what was repeated had one position, or
// nothing was repeated) a copy.
static cnn_tensor *copied(cnn_frame *f, const cnn_tensor *x, cnn_tensor *y) {
  if (!y || (y->buffer != x->buffer && cnn_is_contiguous(y))) return y;
  return cnn_do(f, clone, CNN_A_T(y), CNN_A_I(1));
}

static void tile(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t, *y = x;
  const cnn_arg *times = &args[1];
  for (int i = 0; i < times->n; i++)
    if (times->ints[i] < 0) {
      f->status = cnn_fail(f->ctx, CNN_INVALID, "can't repeat %" PRId64 " times", times->ints[i]);
      return;
    }
  while (y && y->ndim < times->n) y = cnn_do(f, unsqueeze, CNN_A_T(y), CNN_A_I(0));
  // From the last dim on, so that each copy is of whole runs, as long as they can be.
  for (int i = times->n - 1; i >= 0 && y; i--)
    y = repeated(f, y, y->ndim - times->n + i, times->ints[i], false);
  cnn_results_add(f, r, copied(f, x, y));
}
const cnn_op cnn_op_tile = {
    .name = "tile",
    .args = "x:tensor times:shape*",
    .doc = "x repeated times[i] times along each dim i; more entries than dims add leading dims. "
           "Always a copy. (PyTorch's repeat, which is a reserved word in Lua.)",
    .flags = CNN_OP_COMPOSITE,
    .composite = tile,
};

static void repeat_interleave(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t;
  int d = 0;
  int64_t flat = -1;
  if (args[1].kind != CNN_INT || args[1].i < 0) {
    f->status = cnn_fail(f->ctx, CNN_INVALID, "repeats must be an integer >= 0, or a tensor");
    return;
  }
  if (!cnn_has(args, 2))
    x = cnn_do(f, reshape, CNN_A_T(x), CNN_A_INTS(1, &flat));
  else
    f->status = cnn_check_dim(f->ctx, "dim", args[2].i, x->ndim, &d);
  if (x && x->ndim == 0) x = cnn_do(f, unsqueeze, CNN_A_T(x), CNN_A_I(0));
  if (f->status != CNN_OK) return;
  cnn_results_add(f, r, copied(f, args[0].t, repeated(f, x, d, args[1].i, true)));
}
static int choose_repeat_interleave(const cnn_arg *args, int n) {
  return n > 1 && args[1].kind == CNN_TENSOR ? OP_repeat_each : -1;
}
const cnn_op cnn_op_repeat_interleave = {
    .name = "repeat_interleave",
    .args = "x:tensor repeats:operand dim:dim?",
    .doc = "x with each element repeated along a dim, or each slice i repeats[i] times. Without a "
           "dim, x is flattened first.",
    .flags = CNN_OP_COMPOSITE,
    .composite = repeat_interleave,
    .choose = choose_repeat_interleave,
};

static void repeat_each(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t, *repeats = args[1].t;
  int d = 0;
  int64_t flat = -1;
  if (!cnn_has(args, 2))
    x = cnn_do(f, reshape, CNN_A_T(x), CNN_A_INTS(1, &flat));
  else
    f->status = cnn_check_dim(f->ctx, "dim", args[2].i, x->ndim, &d);
  if (x && x->ndim == 0) x = cnn_do(f, unsqueeze, CNN_A_T(x), CNN_A_I(0));
  if (f->status != CNN_OK) return;
  if (repeats->ndim > 1 || (cnn_numel(repeats) != x->shape[d] && cnn_numel(repeats) != 1)) {
    cnn_shape_text a;
    f->status = cnn_fail(f->ctx, CNN_SHAPE,
                         "repeats of shape %s must have one entry for each of dim %d's %" PRId64
                         " positions",
                         cnn_shape_format(&a, repeats->ndim, repeats->shape),
                         d + f->ctx->index_base, x->shape[d]);
    return;
  }
  repeats = cnn_do(f, expand, CNN_A_T(repeats), CNN_A_INTS(1, &x->shape[d]));
  cnn_tensor *total = cnn_do(f, repeat_count, CNN_A_T(repeats));
  double n = cnn_frame_read(f, total);
  cnn_tensor *positions = cnn_do(f, repeat_positions, CNN_A_T(repeats), CNN_A_I((int64_t)n));
  cnn_results_add(f, r, cnn_do(f, index_select, CNN_A_T(x), CNN_A_I(d), CNN_A_T(positions)));
}
const cnn_op cnn_op_repeat_each = {
    .name = "repeat_interleave",
    .args = "x:tensor repeats:index dim:dim?",
    .doc = "repeat_interleave with one count per position.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_INTERNAL,
    .composite = repeat_each,
};

static cnn_status infer_repeat_count(cnn_infer *I) {
  cnn_infer_out(I, CNN_I64, 0, NULL);
  return CNN_OK;
}
const cnn_op cnn_op_repeat_count = {
    .name = "repeat_count",
    .args = "repeats:index",
    .doc = "The sum of counts, which must not be negative.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_repeat_count,
};

static cnn_status infer_repeat_positions(cnn_infer *I) {
  cnn_infer_out(I, CNN_I64, 1, &I->args[1].i);
  return CNN_OK;
}
const cnn_op cnn_op_repeat_positions = {
    .name = "repeat_positions",
    .args = "repeats:index n:int",
    .doc = "Position i repeated repeats[i] times, n in all.",
    .flags = CNN_OP_INTERNAL | CNN_OP_NO_GRAD,
    .infer = infer_repeat_positions,
};

// ---------------------------------------------------------------------------------------------
// Triangles

static cnn_status infer_triangle(cnn_infer *I) {
  if (I->in[0]->ndim < 2)
    return cnn_fail(I->ctx, CNN_SHAPE, "x has %d dim%s, but matrices have 2", I->in[0]->ndim,
                    I->in[0]->ndim == 1 ? "" : "s");
  return infer_same(I);
}

static void backward_tril(cnn_grad *g) {
  cnn_give(g, 0, cnn_do(g->f, tril, CNN_A_T(g->dy[0]), g->args[1]));
}
const cnn_op cnn_op_tril = {
    .name = "tril",
    .args = "x:tensor diagonal:int=0",
    .doc = "The lower triangles of x's matrices (its last two dims), the rest 0: element (i, j) is "
           "kept where j - i <= diagonal.",
    .flags = CNN_OP_IN_PLACE,
    .infer = infer_triangle,
    .backward = backward_tril,
};

static void backward_triu(cnn_grad *g) {
  cnn_give(g, 0, cnn_do(g->f, triu, CNN_A_T(g->dy[0]), g->args[1]));
}
const cnn_op cnn_op_triu = {
    .name = "triu",
    .args = "x:tensor diagonal:int=0",
    .doc = "The upper triangles of x's matrices (its last two dims), the rest 0: element (i, j) is "
           "kept where j - i >= diagonal.",
    .flags = CNN_OP_IN_PLACE,
    .infer = infer_triangle,
    .backward = backward_triu,
};
