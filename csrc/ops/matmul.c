// SPDX-License-Identifier: MIT
// Matrix products. Every gradient of a product is a product again: with P = X Y,
//   dX = dP Y^T  and  dY = X^T dP,
// summed over the batch dims that were broadcast. matmul_to computes both, transposing and summing
// as it multiplies, and is its own derivative; so all of it can be differentiated any number of
// times without a copy.
#include "ops/fused.h"

static cnn_status refuse_bool(cnn_infer *I, const char *name) {
  if (I->dtype != CNN_BOOL) return CNN_OK;
  return cnn_fail(I->ctx, CNN_DTYPE, "%s is bool: convert it first, e.g. %s:to(\"int64\")", name,
                  name);
}

static cnn_status bad_inner(cnn_infer *I, const char *x_name, const cnn_tensor *x, int64_t k,
                            const char *y_name, const cnn_tensor *y, int64_t rows) {
  cnn_shape_text a, b;
  return cnn_fail(I->ctx, CNN_SHAPE,
                  "%s has %lld columns %s but %s has %lld rows %s: they must be equal", x_name,
                  (long long)k, cnn_shape_format(&a, x->ndim, x->shape), y_name, (long long)rows,
                  cnn_shape_format(&b, y->ndim, y->shape));
}

// The batch dims of a product: those before the last two, broadcast.
static cnn_status batch_shape(cnn_infer *I, const cnn_tensor *x, const cnn_tensor *y, int *n,
                              int64_t *shape) {
  int nx = x->ndim > 2 ? x->ndim - 2 : 0, ny = y->ndim > 2 ? y->ndim - 2 : 0;
  if (cnn_shape_broadcast(nx, x->shape, ny, y->shape, n, shape)) return CNN_OK;
  cnn_shape_text a, b;
  return cnn_fail(I->ctx, CNN_SHAPE,
                  "the dims before the last two of x %s and y %s don't broadcast: from the last of "
                  "them on, sizes must be equal or 1",
                  cnn_shape_format(&a, x->ndim, x->shape), cnn_shape_format(&b, y->ndim, y->shape));
}

// ---------------------------------------------------------------------------------------------
// matmul

static cnn_status infer_matmul(cnn_infer *I) {
  const cnn_tensor *x = I->in[0], *y = I->in[1];
  int64_t shape[CNN_MAX_DIMS];
  int n;
  CNN_TRY(refuse_bool(I, "x"));
  if (x->ndim == 0 || y->ndim == 0)
    return cnn_fail(I->ctx, CNN_SHAPE, "%s has 0 dims: matmul takes at least 1, use * or mul",
                    x->ndim == 0 ? "x" : "y");
  int64_t k = x->shape[x->ndim - 1], rows = y->shape[y->ndim == 1 ? 0 : y->ndim - 2];
  if (k != rows) return bad_inner(I, "x", x, k, "y", y, rows);
  CNN_TRY(batch_shape(I, x, y, &n, shape));
  if (x->ndim > 1) shape[n++] = x->shape[x->ndim - 2];
  if (y->ndim > 1) shape[n++] = y->shape[y->ndim - 1];
  const cnn_meta *out = cnn_infer_out(I, I->dtype, n, shape);
  I->work = cnn_shape_numel(out->ndim, out->shape) * k;
  return CNN_OK;
}

static cnn_tensor *matmul_to(cnn_frame *f, cnn_tensor *x, cnn_tensor *y, int n,
                             const int64_t *shape, bool transpose_x, bool transpose_y) {
  return cnn_do(f, matmul_to, CNN_A_T(x), CNN_A_T(y), CNN_A_INTS(n, shape), CNN_A_I(transpose_x),
                CNN_A_I(transpose_y));
}

// Gradients where x or y is a vector: as a matrix of one row or one column.
static void backward_vector(cnn_grad *g) {
  const cnn_form *fx = cnn_in_form(g, 0), *fy = cnn_in_form(g, 1);
  cnn_frame *f = g->f;
  cnn_tensor *dy = g->dy[0];
  bool row = fx->ndim == 1, column = fy->ndim == 1;
  cnn_tensor *x = cnn_needs(g, 1) ? cnn_in(g, 0) : NULL;
  cnn_tensor *y = cnn_needs(g, 0) ? cnn_in(g, 1) : NULL;
  if (row && column) {
    if (y) cnn_give(g, 0, cnn_do(f, mul, CNN_A_T(dy), CNN_A_T(y)));
    if (x) cnn_give(g, 1, cnn_do(f, mul, CNN_A_T(dy), CNN_A_T(x)));
    return;
  }
  int64_t shape[2] = {row ? 1 : fy->shape[0], row ? fx->shape[0] : 1};
  dy = cnn_do(f, unsqueeze, CNN_A_T(dy), CNN_A_I(row ? -2 : -1));
  if (row) {
    if (x) x = cnn_do(f, unsqueeze, CNN_A_T(x), CNN_A_I(0));
    if (y) {
      cnn_tensor *dx = matmul_to(f, dy, y, 2, shape, false, true);
      cnn_give(g, 0, cnn_do(f, reshape, CNN_A_T(dx), CNN_A_INTS(1, fx->shape)));
    }
    if (x) cnn_give(g, 1, matmul_to(f, x, dy, fy->ndim, fy->shape, true, false));
  } else {
    if (y) y = cnn_do(f, unsqueeze, CNN_A_T(y), CNN_A_I(1));
    if (y) cnn_give(g, 0, matmul_to(f, dy, y, fx->ndim, fx->shape, false, true));
    if (x) {
      cnn_tensor *d = matmul_to(f, x, dy, 2, shape, true, false);
      cnn_give(g, 1, cnn_do(f, reshape, CNN_A_T(d), CNN_A_INTS(1, fy->shape)));
    }
  }
}

// Gives inputs i and i + 1 of a product the gradients from dy, its result's.
static void give_product(cnn_grad *g, int i, cnn_tensor *dy) {
  const cnn_form *fx = cnn_in_form(g, i), *fy = cnn_in_form(g, i + 1);
  if (cnn_needs(g, i))
    cnn_give(g, i, matmul_to(g->f, dy, cnn_in(g, i + 1), fx->ndim, fx->shape, false, true));
  if (cnn_needs(g, i + 1))
    cnn_give(g, i + 1, matmul_to(g->f, cnn_in(g, i), dy, fy->ndim, fy->shape, true, false));
}

static void backward_matmul(cnn_grad *g) {
  if (cnn_in_form(g, 0)->ndim == 1 || cnn_in_form(g, 1)->ndim == 1)
    backward_vector(g);
  else
    give_product(g, 0, g->dy[0]);
}

const cnn_op cnn_op_matmul = {
    .name = "matmul",
    .args = "x:tensor y:tensor",
    .doc = "Matrix product x y.\n"
           "Matrices (n, k) and (k, m) give (n, m). A vector is a row on the left and a column on "
           "the right, and its dim is left out of the result: (k) and (k) give a scalar. Dims "
           "before the last two are batch dims and broadcast: (b, 1, n, k) and (c, k, m) give "
           "(b, c, n, m). Both have the same dtype, integers wrap around.",
    .saves = "x if y, y if x",
    .promote = CNN_PROMOTE_SAME,
    .infer = infer_matmul,
    .backward = backward_matmul,
};

// ---------------------------------------------------------------------------------------------
// matmul_to

static cnn_status infer_matmul_to(cnn_infer *I) {
  CNN_TRY(refuse_bool(I, "x"));
  cnn_meta *out = cnn_infer_out(I, I->dtype, I->args[2].n, I->args[2].ints);
  const cnn_tensor *x = I->in[0];
  I->work = cnn_numel(x) * out->shape[out->ndim - 1];
  return CNN_OK;
}

// The gradient of x (or y) in matmul_to, from the product with the batch dims of dy and `other`.
// Where those two have size 1 but x has not, x was summed over: each of its slices gets the same.
static cnn_tensor *spread(cnn_grad *g, int i, cnn_tensor *dy, const cnn_form *other,
                          cnn_tensor *left, cnn_tensor *right, bool tl, bool tr) {
  const cnn_form *x = cnn_in_form(g, i);
  int64_t shape[CNN_MAX_DIMS];
  if (!dy || !left || !right) return NULL;
  for (int d = 0; d < x->ndim; d++) {
    int in_dy = d - (x->ndim - dy->ndim), in_other = d - (x->ndim - other->ndim);
    bool summed = d < x->ndim - 2 && (in_dy < 0 || dy->shape[in_dy] == 1) &&
                  (in_other < 0 || other->shape[in_other] == 1);
    shape[d] = summed ? 1 : x->shape[d];
  }
  cnn_tensor *dx = matmul_to(g->f, left, right, x->ndim, shape, tl, tr);
  if (cnn_shape_equal(x->ndim, shape, x->ndim, x->shape)) return dx;
  return cnn_do(g->f, expand, CNN_A_T(dx), CNN_A_INTS(x->ndim, x->shape));
}

static void backward_matmul_to(cnn_grad *g) {
  bool tx = g->args[3].i, ty = g->args[4].i;
  cnn_tensor *dy = g->dy[0];
  if (cnn_needs(g, 0)) {
    cnn_tensor *y = cnn_in(g, 1);
    const cnn_form *other = cnn_in_form(g, 1);
    cnn_give(g, 0,
             tx ? spread(g, 0, dy, other, y, dy, ty, true)
                : spread(g, 0, dy, other, dy, y, false, !ty));
  }
  if (cnn_needs(g, 1)) {
    cnn_tensor *x = cnn_in(g, 0);
    const cnn_form *other = cnn_in_form(g, 0);
    cnn_give(g, 1,
             ty ? spread(g, 1, dy, other, dy, x, true, tx)
                : spread(g, 1, dy, other, x, dy, !tx, false));
  }
}

const cnn_op cnn_op_matmul_to = {
    .name = "matmul_to",
    .args = "x:tensor y:tensor shape:shape transpose_x:bool transpose_y:bool",
    .doc = "The product of matrices x and y, each transposed or not, with batch dims that "
           "broadcast, summed to a shape that broadcasts to the product's: what gradients of "
           "products are.",
    .saves = "x if y, y if x",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_SAME,
    .infer = infer_matmul_to,
    .backward = backward_matmul_to,
};

// ---------------------------------------------------------------------------------------------
// Products of given ranks

static bool has_dims(cnn_frame *f, const char *name, const cnn_tensor *t, int ndim) {
  cnn_shape_text text;
  if (t->ndim == ndim) return true;
  f->status =
      cnn_fail(f->ctx, CNN_SHAPE, "%s must have %d dim%s, not %d %s: use matmul for others", name,
               ndim, ndim == 1 ? "" : "s", t->ndim, cnn_shape_format(&text, t->ndim, t->shape));
  return false;
}

static void ranked(cnn_frame *f, const cnn_arg *args, cnn_results *r, int nx, int ny) {
  if (!has_dims(f, "x", args[0].t, nx) || !has_dims(f, "y", args[1].t, ny)) return;
  cnn_results_add(f, r, cnn_do(f, matmul, args[0], args[1]));
}

#define RANKED(title, nx, ny, text)                                                                \
  static void title(cnn_frame *f, const cnn_arg *args, cnn_results *r) {                           \
    ranked(f, args, r, nx, ny);                                                                    \
  }                                                                                                \
  const cnn_op cnn_op_##title = {.name = #title,                                                   \
                                 .args = "x:tensor y:tensor",                                      \
                                 .doc = text,                                                      \
                                 .flags = CNN_OP_COMPOSITE,                                        \
                                 .promote = CNN_PROMOTE_SAME,                                      \
                                 .composite = title};

RANKED(mm, 2, 2, "Product of two matrices: (n, k) and (k, m) give (n, m).")
RANKED(mv, 2, 1, "Product of a matrix and a vector: (n, k) and (k) give (n).")
RANKED(dot, 1, 1, "Inner product of two vectors of one length: a scalar.")

static void bmm(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  const cnn_tensor *x = args[0].t, *y = args[1].t;
  cnn_shape_text a, b;
  if (!has_dims(f, "x", x, 3) || !has_dims(f, "y", y, 3)) return;
  if (x->shape[0] != y->shape[0]) {
    f->status = cnn_fail(f->ctx, CNN_SHAPE,
                         "x %s and y %s must hold equally many matrices; use matmul to broadcast",
                         cnn_shape_format(&a, 3, x->shape), cnn_shape_format(&b, 3, y->shape));
    return;
  }
  cnn_results_add(f, r, cnn_do(f, matmul, args[0], args[1]));
}

const cnn_op cnn_op_bmm = {
    .name = "bmm",
    .args = "x:tensor y:tensor",
    .doc = "Products of matrices, pair by pair: (b, n, k) and (b, k, m) give (b, n, m).",
    .flags = CNN_OP_COMPOSITE,
    .promote = CNN_PROMOTE_SAME,
    .composite = bmm,
};

static void outer(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  if (!has_dims(f, "x", args[0].t, 1) || !has_dims(f, "y", args[1].t, 1)) return;
  cnn_tensor *column = cnn_do(f, unsqueeze, args[0], CNN_A_I(1));
  cnn_results_add(f, r, cnn_do(f, mul, CNN_A_T(column), args[1]));
}

const cnn_op cnn_op_outer = {
    .name = "outer",
    .args = "x:tensor y:tensor",
    .doc = "Outer product of two vectors: (n) and (m) give (n, m), x[i] * y[j].",
    .flags = CNN_OP_COMPOSITE,
    .promote = CNN_PROMOTE_COMMON,
    .composite = outer,
};

// ---------------------------------------------------------------------------------------------
// addmm and baddbmm

static cnn_status infer_add_product(cnn_infer *I, int ndim, const char *x_name,
                                    const char *y_name) {
  const cnn_tensor *input = I->in[0], *x = I->in[1], *y = I->in[2];
  cnn_shape_text a, b;
  int64_t shape[CNN_MAX_DIMS], together[CNN_MAX_DIMS];
  int n;
  CNN_TRY(refuse_bool(I, "input"));
  if (x->ndim != ndim || y->ndim != ndim || (ndim == 3 && x->shape[0] != y->shape[0]))
    return cnn_fail(I->ctx, CNN_SHAPE, "%s %s and %s %s must be %s", x_name,
                    cnn_shape_format(&a, x->ndim, x->shape), y_name,
                    cnn_shape_format(&b, y->ndim, y->shape),
                    ndim == 2 ? "matrices" : "equally many matrices (3 dims)");
  int64_t k = x->shape[ndim - 1], rows = y->shape[ndim - 2];
  if (k != rows) return bad_inner(I, x_name, x, k, y_name, y, rows);
  for (int d = 0; d < ndim; d++) shape[d] = x->shape[d];
  shape[ndim - 1] = y->shape[ndim - 1];
  if (!cnn_shape_broadcast(input->ndim, input->shape, ndim, shape, &n, together) ||
      !cnn_shape_equal(n, together, ndim, shape))
    return cnn_fail(I->ctx, CNN_SHAPE, "input %s does not broadcast to the product's shape, %s",
                    cnn_shape_format(&a, input->ndim, input->shape),
                    cnn_shape_format(&b, ndim, shape));
  for (int i = 3; i < 5 && !cnn_dtype_is_float(I->dtype); i++)
    if (I->args[i].kind == CNN_NUMBER)
      return cnn_fail(I->ctx, CNN_DTYPE, "input is %s but %s is %g: convert the tensors first",
                      cnn_dtype_name(I->dtype), i == 3 ? "beta" : "alpha", I->args[i].d);
  const cnn_meta *out = cnn_infer_out(I, I->dtype, ndim, shape);
  I->work = cnn_shape_numel(out->ndim, out->shape) * k;
  return CNN_OK;
}

static cnn_tensor *scaled(cnn_grad *g, const cnn_arg *factor) {
  if (cnn_arg_number(factor) == 1) return g->dy[0];
  return cnn_do(g->f, mul, CNN_A_T(g->dy[0]), *factor);
}

static void backward_add_product(cnn_grad *g) {
  if (cnn_needs(g, 0)) cnn_give(g, 0, scaled(g, &g->args[3]));
  if (cnn_needs(g, 1) || cnn_needs(g, 2)) give_product(g, 1, scaled(g, &g->args[4]));
}

static cnn_status infer_addmm(cnn_infer *I) {
  return infer_add_product(I, 2, "mat1", "mat2");
}
static cnn_status infer_baddbmm(cnn_infer *I) {
  return infer_add_product(I, 3, "batch1", "batch2");
}

const cnn_op cnn_op_addmm = {
    .name = "addmm",
    .args = "input:tensor mat1:tensor mat2:tensor beta:number=1 alpha:number=1",
    .doc = "beta * input + alpha * (mat1 mat2): (n, k) and (k, m) and an input that broadcasts to "
           "(n, m). With beta = 0 the input's values don't matter, not even NaN.",
    .saves = "mat1 if mat2, mat2 if mat1",
    .promote = CNN_PROMOTE_SAME,
    .infer = infer_addmm,
    .backward = backward_add_product,
};

const cnn_op cnn_op_baddbmm = {
    .name = "baddbmm",
    .args = "input:tensor batch1:tensor batch2:tensor beta:number=1 alpha:number=1",
    .doc = "beta * input + alpha * (batch1 batch2), matrix by matrix: (b, n, k) and (b, k, m) and "
           "an input that broadcasts to (b, n, m). With beta = 0 the input's values don't matter.",
    .saves = "batch1 if batch2, batch2 if batch1",
    .promote = CNN_PROMOTE_SAME,
    .infer = infer_baddbmm,
    .backward = backward_add_product,
};

// ---------------------------------------------------------------------------------------------
// linear and bilinear

cnn_status cnn_infer_linear(cnn_infer *I) {
  const cnn_tensor *x = I->in[0], *w = I->in[1], *b = I->in[2];
  cnn_shape_text ts, tw;
  int64_t shape[CNN_MAX_DIMS];
  CNN_TRY(refuse_bool(I, "input"));
  if (w->ndim != 2)
    return cnn_fail(I->ctx, CNN_SHAPE, "weight must be (out, in), not %s",
                    cnn_shape_format(&tw, w->ndim, w->shape));
  if (x->ndim == 0 || x->shape[x->ndim - 1] != w->shape[1])
    return cnn_fail(I->ctx, CNN_SHAPE,
                    "input %s must end with %lld features, which weight %s expects",
                    cnn_shape_format(&ts, x->ndim, x->shape), (long long)w->shape[1],
                    cnn_shape_format(&tw, w->ndim, w->shape));
  if (b && (b->ndim != 1 || b->shape[0] != w->shape[0]))
    return cnn_fail(I->ctx, CNN_SHAPE, "bias must be (%lld,) for weight %s, not %s",
                    (long long)w->shape[0], cnn_shape_format(&tw, w->ndim, w->shape),
                    cnn_shape_format(&ts, b->ndim, b->shape));
  for (int d = 0; d < x->ndim - 1; d++) shape[d] = x->shape[d];
  shape[x->ndim - 1] = w->shape[0];
  const cnn_meta *out = cnn_infer_out(I, I->dtype, x->ndim, shape);
  I->work = cnn_shape_numel(out->ndim, out->shape) * w->shape[1];
  return CNN_OK;
}

// dX = dY W, through the activation that made X where that is still to be done; dW = dY^T X, with
// the sum of dY's rows for the bias.
void cnn_backward_linear(cnn_grad *g, cnn_tensor *dy) {
  cnn_frame *f = g->f;
  if (cnn_needs(g, 0)) {
    cnn_tensor *w = cnn_in(g, 1), *kept = cnn_source_result(g, 0, OP_linear_gelu_kept, 1);
    if (kept)
      cnn_give_through(g, 0,
                       cnn_do(f, linear_backward_gelu, CNN_A_T(dy), CNN_A_T(w), CNN_A_T(kept)));
    else
      cnn_give(g, 0, cnn_do(f, matmul, CNN_A_T(dy), CNN_A_T(w)));
  }
  if (cnn_needs(g, 1)) {
    const cnn_form *w = cnn_in_form(g, 1);
    cnn_tensor *x = cnn_in(g, 0), *rows = dy, *results[2];
    if (cnn_in_form(g, 0)->ndim == 1) {
      x = cnn_do(f, unsqueeze, CNN_A_T(x), CNN_A_I(0));
      rows = cnn_do(f, unsqueeze, CNN_A_T(dy), CNN_A_I(0));
    }
    cnn_frame_results(f, OP_linear_backward_weight,
                      CNN_ARGS(CNN_A_T(rows), CNN_A_T(x), CNN_A_INTS(2, w->shape),
                               CNN_A_I(cnn_needs(g, 2))),
                      results, 2);
    cnn_give(g, 1, results[0]);
    cnn_give(g, 2, results[1]);
  } else if (cnn_needs(g, 2)) {
    cnn_give(g, 2, cnn_do(f, sum_to, CNN_A_T(dy), CNN_A_INTS(1, cnn_in_form(g, 2)->shape)));
  }
}

static void backward_linear(cnn_grad *g) {
  cnn_backward_linear(g, g->dy[0]);
}

static cnn_status infer_linear_backward_weight(cnn_infer *I) {
  const int64_t *shape = I->args[2].ints;
  CNN_TRY(cnn_infer_need_float(I));
  cnn_infer_out(I, I->dtype, 2, shape);
  if (I->args[3].i) cnn_infer_out(I, I->dtype, 1, shape);
  I->work = cnn_numel(I->in[0]) * shape[1];
  return CNN_OK;
}

static void backward_linear_backward_weight(cnn_grad *g) {
  cnn_tensor *dw = cnn_dy(g, 0);
  if (cnn_needs(g, 0)) {
    cnn_tensor *x = cnn_in(g, 1), *db = g->args[3].i ? g->dy[1] : NULL;
    cnn_give(g, 0, cnn_do(g->f, linear, CNN_A_T(x), CNN_A_T(dw), CNN_A_T(db)));
  }
  if (cnn_needs(g, 1)) {
    cnn_tensor *dy = cnn_in(g, 0);
    cnn_give(g, 1, cnn_do(g->f, matmul, CNN_A_T(dy), CNN_A_T(dw)));
  }
}

const cnn_op cnn_op_linear_backward_weight = {
    .name = "linear_backward_weight",
    .args = "dy:tensor input:tensor shape:shape bias:bool",
    .doc = "Gradient of a linear layer's weight, which has that shape: dy^T input over all dims "
           "before the last; with bias, that of the bias as a second result.",
    .results = "dw db",
    .saves = "dy if input, input if dy",
    .flags = CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_SAME,
    .infer = infer_linear_backward_weight,
    .backward = backward_linear_backward_weight,
};

static int choose_linear(const cnn_arg *args, int n) {
  return n > 1 && args[1].kind == CNN_TENSOR && args[1].t->ndim == 1 ? OP_linear_vector : -1;
}

const cnn_op cnn_op_linear = {
    .name = "linear",
    .args = "input:tensor weight:tensor bias:tensor?",
    .doc = "input weight^T + bias: the features of the last dim, mapped.\n"
           "input (..., in), weight (out, in), bias (out) give (..., out); a weight (in) gives "
           "(...).",
    .saves = "input if weight, weight if input",
    .promote = CNN_PROMOTE_SAME,
    .infer = cnn_infer_linear,
    .backward = backward_linear,
    .choose = choose_linear,
};

static void linear_vector(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *y = cnn_do(f, matmul, args[0], args[1]);
  if (cnn_has(args, 2)) y = cnn_do(f, add, CNN_A_T(y), args[2]);
  cnn_results_add(f, r, y);
}

const cnn_op cnn_op_linear_vector = {
    .name = "linear_vector",
    .args = "input:tensor weight:tensor bias:tensor?",
    .doc = "linear with one output feature and no dim for it.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_INTERNAL,
    .promote = CNN_PROMOTE_SAME,
    .composite = linear_vector,
};

// y[n, o] = sum over j of (x1[n, :] W[o])[j] x2[n, j]
static void bilinear(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x1 = args[0].t, *x2 = args[1].t, *w = args[2].t;
  cnn_shape_text a, b, c;
  int n = x1->ndim;
  if (w->ndim != 3 || n == 0 || x2->ndim != n ||
      !cnn_shape_equal(n - 1, x1->shape, n - 1, x2->shape) || x1->shape[n - 1] != w->shape[1] ||
      x2->shape[n - 1] != w->shape[2]) {
    f->status =
        cnn_fail(f->ctx, CNN_SHAPE,
                 "input1 %s and input2 %s must be (..., in1) and (..., in2) for a weight "
                 "(out, in1, in2), which is %s",
                 cnn_shape_format(&a, n, x1->shape), cnn_shape_format(&b, x2->ndim, x2->shape),
                 cnn_shape_format(&c, w->ndim, w->shape));
    return;
  }
  int64_t rows = 1, out = w->shape[0], shape[CNN_MAX_DIMS];
  for (int d = 0; d < n - 1; d++) rows *= shape[d] = x1->shape[d];
  shape[n - 1] = out;
  const int64_t flat1[] = {rows, w->shape[1]}, flat2[] = {rows, w->shape[2], 1};
  const int64_t front[] = {1, 0, 2};
  x1 = cnn_do(f, reshape, CNN_A_T(x1), CNN_A_INTS(2, flat1));
  x2 = cnn_do(f, reshape, CNN_A_T(x2), CNN_A_INTS(3, flat2));
  cnn_tensor *t = cnn_do(f, matmul, CNN_A_T(x1), args[2]); // (out, rows, in2)
  t = cnn_do(f, permute, CNN_A_T(t), CNN_A_INTS(3, front));
  cnn_tensor *y = cnn_do(f, matmul, CNN_A_T(t), CNN_A_T(x2)); // (rows, out, 1)
  y = cnn_do(f, reshape, CNN_A_T(y), CNN_A_INTS(n, shape));
  if (cnn_has(args, 3)) y = cnn_do(f, add, CNN_A_T(y), args[3]);
  cnn_results_add(f, r, y);
}

const cnn_op cnn_op_bilinear = {
    .name = "bilinear",
    .args = "input1:tensor input2:tensor weight:tensor bias:tensor?",
    .doc = "Bilinear form: y[..., o] = input1[...] weight[o] input2[...] + bias[o].\n"
           "input1 (..., in1), input2 (..., in2), weight (out, in1, in2), bias (out) give "
           "(..., out).",
    .flags = CNN_OP_COMPOSITE,
    .promote = CNN_PROMOTE_SAME,
    .composite = bilinear,
};
