// SPDX-License-Identifier: MIT
// Sums of products by subscripts (einsum, tensordot), written in matmul, mul, sum and views.
//
// Operands are contracted from left to right. In each pair every label has one of five roles: a
// batch dim (in both, still needed), contracted (in both, needed by nobody else), free on the left
// or on the right, or summed beforehand (in one of the two, needed by nobody else). So a pair is
// one matmul over batch dims, on views of the operands wherever the free and the contracted dims
// are one each.
#include "ops/ops.h"

#include <string.h>

// Labels: A-Z, a-z, then the dims of `...`, aligned from the right as in broadcasting.
#define LETTERS 52
#define LABELS  (LETTERS + CNN_MAX_DIMS)

typedef struct labels {
  int n;
  int8_t at[CNN_MAX_DIMS];
} labels;

// A tensor and the label of each of its dims, all different.
typedef struct term {
  cnn_tensor *t;
  labels dims;
} term;

static int find(const labels *l, int label) {
  for (int i = 0; i < l->n; i++)
    if (l->at[i] == label) return i;
  return -1;
}

// ---------------------------------------------------------------------------------------------
// Subscripts

static int letter(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return 26 + c - 'a';
  return -1;
}

// The next piece of an equation, up to `,`, `->` or the end: letters, with -1 for `...`.
typedef struct piece {
  int n;
  int8_t at[LETTERS + 1];
  bool ellipsis;
} piece;

static const char *read_piece(cnn_frame *f, const char *at, piece *p) {
  p->n = 0;
  p->ellipsis = false;
  for (; *at && *at != ',' && !(at[0] == '-' && at[1] == '>'); at++) {
    if (*at == ' ') continue;
    bool dots = strncmp(at, "...", 3) == 0;
    if (dots ? p->ellipsis : letter(*at) < 0) {
      f->status = cnn_fail(f->ctx, CNN_INVALID,
                           dots ? "equation: a subscript has at most one `...`, at \"%s\""
                                : "equation: expected letters, `,`, `...` or `->`, at \"%s\"",
                           at);
      return NULL;
    }
    if (p->n > LETTERS) {
      f->status = cnn_fail(f->ctx, CNN_INVALID, "equation: a subscript is too long");
      return NULL;
    }
    p->ellipsis = p->ellipsis || dots;
    p->at[p->n++] = (int8_t)(dots ? -1 : letter(*at));
    if (dots) at += 2;
  }
  return at;
}

// An operand with the labels of its subscript; repeated letters take diagonals.
static void label_operand(cnn_frame *f, cnn_tensor *t, const piece *p, int number, term *out) {
  cnn_shape_text text;
  int letters = p->n - p->ellipsis, dots = t->ndim - letters;
  if (dots < 0 || (dots > 0 && !p->ellipsis)) {
    f->status =
        cnn_fail(f->ctx, CNN_SHAPE, "operand %d has %d dims %s, but its subscript names %d%s",
                 number, t->ndim, cnn_shape_format(&text, t->ndim, t->shape), letters,
                 p->ellipsis ? " besides `...`" : "");
    return;
  }
  labels dims = {0, {0}};
  for (int i = 0; i < p->n; i++) {
    if (p->at[i] >= 0) dims.at[dims.n++] = p->at[i];
    for (int k = 0; p->at[i] < 0 && k < dots; k++) dims.at[dims.n++] = (int8_t)(LABELS - dots + k);
  }
  for (int i = 0; t && i < dims.n; i++) {
    int8_t label = dims.at[i];
    int twin = -1;
    for (int k = i + 1; k < dims.n && twin < 0; k++)
      if (dims.at[k] == label) twin = k;
    if (twin < 0) continue;
    if (t->shape[i] != t->shape[twin]) {
      f->status =
          cnn_fail(f->ctx, CNN_SHAPE, "operand %d: dims under one letter have sizes %lld and %lld",
                   number, (long long)t->shape[i], (long long)t->shape[twin]);
      return;
    }
    t = cnn_do(f, diagonal, CNN_A_T(t), CNN_A_I(0), CNN_A_I(i), CNN_A_I(twin));
    int n = 0;
    for (int k = 0; k < dims.n; k++)
      if (k != i && k != twin) dims.at[n++] = dims.at[k];
    dims.at[n++] = label;
    dims.n = n;
    i--;
  }
  out->t = t;
  out->dims = dims;
}

enum { MOST_OPERANDS = 64 };

typedef struct equation {
  int n;
  term terms[MOST_OPERANDS];
  int occurs[LETTERS];  // times that the letter stands in subscripts of operands
  int uses[LABELS];     // operands that have the label
  int64_t size[LABELS]; // 0: not met yet (a size of 0 is kept as -1)
  labels out;
} equation;

static void meet_sizes(cnn_frame *f, equation *e, const term *x, int number) {
  for (int d = 0; d < x->dims.n; d++) {
    int label = x->dims.at[d];
    int64_t size = x->t->shape[d] ? x->t->shape[d] : -1, *known = &e->size[label];
    e->uses[label]++;
    if (*known == 0 || *known == 1) *known = size;
    if (size == *known || size == 1 || f->status != CNN_OK) continue;
    char name[4] = "...";
    if (label < LETTERS) name[0] = (char)(label < 26 ? 'A' + label : 'a' + label - 26), name[1] = 0;
    f->status =
        cnn_fail(f->ctx, CNN_SHAPE,
                 "operand %d: %s has size %lld there and %lld before: sizes must be equal "
                 "or 1",
                 number, name, (long long)x->t->shape[d], (long long)(*known < 0 ? 0 : *known));
  }
}

static void add_output(cnn_frame *f, equation *e, int label) {
  if (e->out.n == CNN_MAX_DIMS) {
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "the result has more than %d dims", CNN_MAX_DIMS);
    return;
  }
  e->out.at[e->out.n++] = (int8_t)label;
}

static void add_ellipsis(cnn_frame *f, equation *e) {
  for (int label = LETTERS; label < LABELS && f->status == CNN_OK; label++)
    if (e->size[label]) add_output(f, e, label);
}

// The result's labels: those after `->`, or else `...` and the letters that occur once, in order.
static void read_output(cnn_frame *f, equation *e, const char *at) {
  if (*at) {
    piece p;
    at = read_piece(f, at + 2, &p);
    if (!at) return;
    if (*at) {
      f->status = cnn_fail(f->ctx, CNN_INVALID,
                           "equation: the result has one subscript, and \"%s\" follows it", at);
      return;
    }
    for (int i = 0; i < p.n && f->status == CNN_OK; i++) {
      if (p.at[i] < 0) {
        add_ellipsis(f, e);
        continue;
      }
      bool twice = find(&e->out, p.at[i]) >= 0;
      if (twice || !e->size[p.at[i]]) {
        const char name[] = {(char)(p.at[i] < 26 ? 'A' + p.at[i] : 'a' + p.at[i] - 26), 0};
        f->status = cnn_fail(f->ctx, CNN_INVALID, "equation: %s %s", name,
                             twice ? "stands twice in the result" : "is in no operand");
        return;
      }
      add_output(f, e, p.at[i]);
    }
    return;
  }
  add_ellipsis(f, e);
  for (int label = 0; label < LETTERS && f->status == CNN_OK; label++)
    if (e->occurs[label] == 1) add_output(f, e, label);
}

// ---------------------------------------------------------------------------------------------
// Contraction

// t with its dims in the order `order` (of t's dims).
static cnn_tensor *permuted(cnn_frame *f, cnn_tensor *t, int n, const int64_t *order) {
  for (int i = 0; t && i < n; i++)
    if (order[i] != i) return cnn_do(f, permute, CNN_A_T(t), CNN_A_INTS(n, order));
  return t;
}

static cnn_tensor *reshaped(cnn_frame *f, cnn_tensor *t, int n, const int64_t *shape) {
  if (!t || cnn_shape_equal(t->ndim, t->shape, n, shape)) return t;
  return cnn_do(f, reshape, CNN_A_T(t), CNN_A_INTS(n, shape));
}

// Sums over the dims in `mask` and drops them; integers keep their dtype.
static void sum_dims(cnn_frame *f, term *x, uint32_t mask) {
  int64_t dims[CNN_MAX_DIMS];
  labels left = {0, {0}};
  int n = 0;
  if (!mask || !x->t) return;
  for (int d = 0; d < x->dims.n; d++) {
    if (mask >> d & 1)
      dims[n++] = d;
    else
      left.at[left.n++] = x->dims.at[d];
  }
  int64_t dtype = x->t->dtype;
  x->t = cnn_do(f, sum, CNN_A_T(x->t), CNN_A_INTS(n, dims));
  if (x->t && x->t->dtype != dtype) x->t = cnn_do(f, cast, CNN_A_T(x->t), CNN_A_I(dtype));
  x->dims = left;
}

static int64_t size_of(const term *x, int label) {
  int d = find(&x->dims, label);
  return d < 0 ? 1 : x->t->shape[d];
}

// x with one dim per label, in that order; size 1 where it has none.
static cnn_tensor *spread(cnn_frame *f, const term *x, const labels *order) {
  int64_t dims[CNN_MAX_DIMS], shape[CNN_MAX_DIMS];
  int n = 0;
  for (int i = 0; i < order->n; i++) {
    int d = find(&x->dims, order->at[i]);
    shape[i] = d < 0 ? 1 : x->t->shape[d];
    if (d >= 0) dims[n++] = d;
  }
  return reshaped(f, permuted(f, x->t, n, dims), order->n, shape);
}

// x as a batch of matrices: dims `batch` apart, then `rows` and `cols` merged into one each.
static cnn_tensor *matrices(cnn_frame *f, const term *x, const labels *batch, const labels *rows,
                            const labels *cols) {
  const labels *parts[] = {batch, rows, cols};
  int64_t dims[CNN_MAX_DIMS], shape[CNN_MAX_DIMS];
  int n = 0, m = 0;
  for (int p = 0; p < 3; p++) {
    int64_t merged = 1;
    for (int i = 0; i < parts[p]->n; i++) {
      int d = find(&x->dims, parts[p]->at[i]);
      dims[n++] = d;
      merged *= x->t->shape[d];
      if (p == 0) shape[m++] = x->t->shape[d];
    }
    if (p > 0) shape[m++] = merged;
  }
  return reshaped(f, permuted(f, x->t, n, dims), m, shape);
}

static void append(labels *to, const labels *from) {
  for (int i = 0; i < from->n; i++) to->at[to->n++] = from->at[i];
}

// Sums of x and y's product over what neither the result nor a later operand needs.
static void contract(cnn_frame *f, term *x, term *y, const bool *needed) {
  labels batch = {0, {0}}, inner = {0, {0}}, left = {0, {0}}, right = {0, {0}};
  uint32_t sum_x = 0, sum_y = 0;
  for (int d = 0; d < x->dims.n; d++) {
    int8_t label = x->dims.at[d];
    int twin = find(&y->dims, label);
    if (twin < 0) {
      if (needed[label])
        left.at[left.n++] = label;
      else
        sum_x |= 1u << d;
    } else if (needed[label]) {
      batch.at[batch.n++] = label;
    } else if (x->t->shape[d] == y->t->shape[twin]) {
      inner.at[inner.n++] = label;
    } else { // one of the two is repeated along the other: each is summed alone
      sum_x |= 1u << d;
      sum_y |= 1u << twin;
    }
  }
  for (int d = 0; d < y->dims.n; d++) {
    int8_t label = y->dims.at[d];
    if (find(&x->dims, label) >= 0) continue;
    if (needed[label])
      right.at[right.n++] = label;
    else
      sum_y |= 1u << d;
  }
  sum_dims(f, x, sum_x);
  sum_dims(f, y, sum_y);
  if (!x->t || !y->t) return;
  if (batch.n + left.n + right.n > CNN_MAX_DIMS || batch.n > CNN_MAX_DIMS - 2) {
    f->status =
        cnn_fail(f->ctx, CNN_SHAPE, "a product on the way has more than %d dims", CNN_MAX_DIMS);
    return;
  }
  labels order = {0, {0}};
  append(&order, &batch);
  append(&order, &left);
  append(&order, &right);
  int64_t shape[CNN_MAX_DIMS];
  for (int i = 0; i < order.n; i++) {
    int64_t a = size_of(x, order.at[i]), b = size_of(y, order.at[i]);
    shape[i] = a == 1 ? b : a;
  }
  cnn_tensor *p, *q;
  if (inner.n == 0) {
    p = spread(f, x, &order);
    q = spread(f, y, &order);
    x->t = cnn_do(f, mul, CNN_A_T(p), CNN_A_T(q));
  } else {
    p = matrices(f, x, &batch, &left, &inner);
    q = matrices(f, y, &batch, &inner, &right);
    x->t = reshaped(f, cnn_do(f, matmul, CNN_A_T(p), CNN_A_T(q)), order.n, shape);
  }
  x->dims = order;
}

static void read_equation(cnn_frame *f, equation *e, const char *text, const cnn_arg *operands) {
  const char *at = text;
  piece p;
  e->n = operands->n;
  if (e->n < 1 || e->n > MOST_OPERANDS) {
    f->status = cnn_fail(f->ctx, CNN_INVALID, "operands: expected 1 to %d tensors, got %d",
                         MOST_OPERANDS, e->n);
    return;
  }
  for (int k = 0; k < e->n; k++) {
    at = read_piece(f, text, &p);
    if (!at) return;
    bool last = k == e->n - 1;
    if ((*at == ',') == last) {
      f->status = cnn_fail(f->ctx, CNN_INVALID,
                           "equation: %s subscripts than operands, of which there are %d",
                           last ? "more" : "fewer", e->n);
      return;
    }
    text = at + 1;
    for (int i = 0; i < p.n; i++)
      if (p.at[i] >= 0) e->occurs[p.at[i]]++;
    label_operand(f, operands->ts[k], &p, k + 1, &e->terms[k]);
    if (f->status != CNN_OK) return;
    meet_sizes(f, e, &e->terms[k], k + 1);
  }
  if (f->status == CNN_OK) read_output(f, e, at);
}

static void einsum(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  equation e;
  bool needed[LABELS];
  int64_t order[CNN_MAX_DIMS];
  memset(&e, 0, sizeof e);
  read_equation(f, &e, args[0].s, &args[1]);
  term *x = &e.terms[0];
  for (int k = 0; k < e.n && f->status == CNN_OK; k++) {
    const labels *dims = &e.terms[k].dims;
    for (int d = 0; d < dims->n; d++) e.uses[dims->at[d]]--;
    for (int l = 0; l < LABELS; l++) needed[l] = e.uses[l] > 0 || find(&e.out, l) >= 0;
    if (k > 0) {
      contract(f, x, &e.terms[k], needed);
      continue;
    }
    uint32_t mask = 0;
    for (int d = 0; d < dims->n; d++)
      if (!needed[dims->at[d]]) mask |= 1u << d;
    sum_dims(f, x, mask);
  }
  if (f->status != CNN_OK) return;
  for (int i = 0; i < e.out.n; i++) order[i] = find(&x->dims, e.out.at[i]);
  cnn_results_add(f, r, permuted(f, x->t, e.out.n, order));
}

const cnn_op cnn_op_einsum = {
    .name = "einsum",
    .args = "equation:string operands:tensors*",
    .doc = "Sum of products by subscripts: einsum(\"ij,jk->ik\", x, y) is the matrix product.\n"
           "Each letter names a dim; letters that are not after `->` are summed over; a letter "
           "twice in one operand takes the diagonal; `...` stands for the dims that are not named, "
           "which broadcast. Without `->` the result has the letters that occur once, in "
           "alphabetical order. Operands are contracted from left to right.",
    .flags = CNN_OP_COMPOSITE | CNN_OP_FUNCTION,
    .promote = CNN_PROMOTE_SAME,
    .composite = einsum,
};

// ---------------------------------------------------------------------------------------------
// tensordot

// The dims of an operand: the contracted ones as given, the others in order. False: failed.
static bool split_dims(cnn_frame *f, const char *name, const cnn_tensor *t, const int64_t *given,
                       int n, int64_t *inner, int64_t *free) {
  uint32_t seen = 0;
  int m = 0;
  for (int i = 0; i < n; i++) {
    int d = 0;
    f->status = cnn_check_dim(f->ctx, name, given[i], t->ndim, &d);
    if (f->status == CNN_OK && seen >> d & 1)
      f->status =
          cnn_fail(f->ctx, CNN_INVALID, "%s: dim %d is given twice", name, d + f->ctx->index_base);
    if (f->status != CNN_OK) return false;
    seen |= 1u << d;
    inner[i] = d;
  }
  for (int d = 0; d < t->ndim; d++)
    if (!(seen >> d & 1)) free[m++] = d;
  return true;
}

static void tensordot(cnn_frame *f, const cnn_arg *args, cnn_results *r) {
  cnn_tensor *x = args[0].t, *y = args[1].t;
  cnn_shape_text a, b;
  int64_t given[2][CNN_MAX_DIMS], xi[CNN_MAX_DIMS], yi[CNN_MAX_DIMS], xf[CNN_MAX_DIMS],
      yf[CNN_MAX_DIMS], shape[2 * CNN_MAX_DIMS], order[CNN_MAX_DIMS];
  int64_t count = args[2].kind == CNN_INTS ? args[2].n / 2 : args[2].i;
  if (count < 0 || count > x->ndim || count > y->ndim) {
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "dims: %lld dims can't be taken of x %s and y %s",
                         (long long)count, cnn_shape_format(&a, x->ndim, x->shape),
                         cnn_shape_format(&b, y->ndim, y->shape));
    return;
  }
  int n = (int)count, nx = x->ndim - n, ny = y->ndim - n;
  for (int i = 0; i < n; i++) {
    given[0][i] = args[2].kind == CNN_INTS ? args[2].ints[i] : nx + i;
    given[1][i] = args[2].kind == CNN_INTS ? args[2].ints[n + i] : i;
  }
  if (!split_dims(f, "dims of x", x, given[0], n, xi, xf)) return;
  if (!split_dims(f, "dims of y", y, given[1], n, yi, yf)) return;
  int64_t rows = 1, inner = 1, cols = 1;
  for (int i = 0; i < n; i++) {
    inner *= x->shape[xi[i]];
    if (x->shape[xi[i]] == y->shape[yi[i]]) continue;
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "dim %d of x %s and dim %d of y %s differ in size",
                         (int)xi[i] + f->ctx->index_base, cnn_shape_format(&a, x->ndim, x->shape),
                         (int)yi[i] + f->ctx->index_base, cnn_shape_format(&b, y->ndim, y->shape));
    return;
  }
  if (nx + ny > CNN_MAX_DIMS) {
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "the result has more than %d dims", CNN_MAX_DIMS);
    return;
  }
  for (int i = 0; i < nx; i++) rows *= shape[i] = x->shape[xf[i]];
  for (int i = 0; i < ny; i++) cols *= shape[nx + i] = y->shape[yf[i]];
  const int64_t left[] = {rows, inner}, right[] = {inner, cols};
  for (int i = 0; i < x->ndim; i++) order[i] = i < nx ? xf[i] : xi[i - nx];
  x = reshaped(f, permuted(f, x, nx + n, order), 2, left);
  for (int i = 0; i < y->ndim; i++) order[i] = i < n ? yi[i] : yf[i - n];
  y = reshaped(f, permuted(f, y, ny + n, order), 2, right);
  cnn_tensor *z = cnn_do(f, matmul, CNN_A_T(x), CNN_A_T(y));
  cnn_results_add(f, r, reshaped(f, z, nx + ny, shape));
}

const cnn_op cnn_op_tensordot = {
    .name = "tensordot",
    .args = "x:tensor y:tensor dims:axes=2",
    .doc = "Sum of products over pairs of dims: dims = {{2, 3}, {1, 2}} pairs x's dim 2 with y's "
           "dim 1 and x's 3 with y's 2; a number n pairs x's last n dims with y's first n. The "
           "result has x's other dims, then y's.",
    .flags = CNN_OP_COMPOSITE,
    .promote = CNN_PROMOTE_SAME,
    .composite = tensordot,
};
