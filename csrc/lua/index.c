// SPDX-License-Identifier: MIT
// x[...] and x[...] = v.
//
// A key is a position, a list with one entry per dim, an integer tensor or a mask. In a list: a
// position, a range {first, last, step} (ends included; {} is the whole dim), cnn.newaxis, an
// integer tensor or a mask. Positions and ranges make a view; tensors gather from it. An assignment
// copies into the view, or puts at the gathered places.
#include "lua/state.h"

#include <string.h>

#include "ops/ops.h"

#define MAX_KEYS CNN_MAX_DIMS

// Keys applied so far: those of the op subscript, which makes the view, and an index tensor per dim
// of that view (NULL: none). `dim` and `out` are the next dims of x and of the view.
typedef struct path {
  cnn_frame *f;
  cnn_tensor *x;
  int dim, out;
  int n_steps;
  int64_t steps[4 * (CNN_MAX_DIMS + MAX_KEYS)];
  int n_tensors;    // index tensors among the keys
  cnn_tensor *mask; // the only one, when it is a mask for the view's leading dims
  cnn_tensor *indices[CNN_MAX_DIMS];
  int64_t names[CNN_MAX_DIMS]; // for messages: x's dims, by dims of the view
} path;

static int bad_key(lua_State *L, cnn_lua *S, int at) {
  char got[64];
  return cnn_error(L, S,
                   "index: expected a position, a list such as {2, {1, 3}}, or an index tensor, "
                   "got %s",
                   cnn_describe(L, at, got, sizeof got));
}

static int64_t whole(lua_State *L, cnn_lua *S, int at) {
  int64_t v;
  if (!cnn_toint(L, at, &v)) bad_key(L, S, at);
  return v;
}

// Keys are checked for their types before a frame is open: nothing may raise while it is.
typedef enum key_kind { KEY_POS, KEY_RANGE, KEY_NEWAXIS, KEY_TENSOR } key_kind;
typedef struct key {
  key_kind kind;
  int n; // numbers of a range
  int64_t v[3];
  cnn_tensor *t;
} key;

static bool is_newaxis(lua_State *L, int at) {
  lua_getfield(L, LUA_REGISTRYINDEX, "cnn.newaxis");
  bool same = lua_rawequal(L, -1, at < 0 ? at - 1 : at) != 0;
  lua_pop(L, 1);
  return same;
}

static void read_key(lua_State *L, cnn_lua *S, int at, bool nested, key *k) {
  at = cnn_absindex(L, at);
  cnn_box *box = cnn_to_box(L, at, CNN_BOX_TENSOR);
  if (box) {
    k->kind = KEY_TENSOR;
    k->t = cnn_check_tensor(L, S, at, "index", "the index");
  } else if (lua_type(L, at) == LUA_TNUMBER) {
    k->kind = KEY_POS;
    k->v[0] = whole(L, S, at);
  } else if (lua_type(L, at) != LUA_TTABLE || !nested) {
    bad_key(L, S, at);
  } else if (is_newaxis(L, at)) {
    k->kind = KEY_NEWAXIS;
  } else {
    k->kind = KEY_RANGE;
    k->n = (int)cnn_rawlen(L, at);
    if (k->n == 1)
      cnn_error(L, S, "index: a range needs two ends: write {%d, %d} for one position, {} for all",
                1, 1);
    if (k->n > 3) cnn_error(L, S, "index: a range is {first, last} or {first, last, step}");
    for (int i = 0; i < k->n; i++) {
      lua_rawgeti(L, at, i + 1);
      k->v[i] = whole(L, S, -1);
      lua_pop(L, 1);
    }
  }
}

static int read_keys(lua_State *L, cnn_lua *S, int at, key *keys) {
  if (lua_type(L, at) != LUA_TTABLE || is_newaxis(L, at)) {
    read_key(L, S, at, true, &keys[0]);
    return 1;
  }
  int n = (int)cnn_rawlen(L, at);
  if (n > MAX_KEYS) cnn_error(L, S, "index: at most %d entries", MAX_KEYS);
  if (n == 0 && (lua_pushnil(L), lua_next(L, at))) {
    lua_pop(L, 2);
    cnn_error(L, S, "index: the entries of an index list count from 1");
  }
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, at, i + 1);
    read_key(L, S, -1, true, &keys[i]); // tensors stay anchored by the list
    lua_pop(L, 1);
  }
  return n;
}

static void fail(path *p, cnn_status code, const char *format, int64_t a, int64_t size) {
  if (p->f->status == CNN_OK)
    p->f->status = cnn_fail(p->f->ctx, code, format, (long long)a, p->dim + 1, (long long)size,
                            (long long)size);
}

static void step(path *p, int kind, int64_t a, int64_t b, int64_t c) {
  int64_t *s = p->steps + 4 * p->n_steps++;
  s[0] = kind, s[1] = a, s[2] = b, s[3] = c;
  if (kind != CNN_KEY_NEW) p->dim++;
  if (kind != CNN_KEY_POS) p->out++;
}

static void apply_position(path *p, int64_t v) {
  int64_t size = p->x->shape[p->dim], pos = v > 0 ? v - 1 : v + size;
  if (v == 0)
    fail(p, CNN_INDEX, "index %lld: Lua indices start at 1 (dim %d has positions 1..%lld)", v,
         size);
  else if (pos < 0 || pos >= size)
    fail(p, CNN_INDEX,
         "index %lld is out of range for dim %d of size %lld (1..%lld, or negative from the end)",
         v, size);
  step(p, CNN_KEY_POS, pos, 0, 0);
}

static void apply_range(path *p, const key *k) {
  int64_t size = p->x->shape[p->dim], first = 0, last = size - 1, by = k->n > 2 ? k->v[2] : 1;
  if (k->n >= 2) {
    if (k->v[0] == 0 || (k->v[1] == 0 && k->v[0] != 1))
      fail(p, CNN_INDEX, "index %lld: Lua indices start at 1 (dim %d has positions 1..%lld)", 0,
           size);
    first = k->v[0] > 0 ? k->v[0] - 1 : k->v[0] + size;
    last = k->v[1] >= 0 ? k->v[1] - 1 : k->v[1] + size;
    if (first < 0 || first > size || last < -1 || last >= size)
      fail(p, CNN_INDEX, "index %lld is out of range for dim %d of size %lld (1..%lld)",
           first < 0 || first > size ? k->v[0] : k->v[1], size);
  }
  if (by < 1)
    fail(
        p, CNN_INVALID,
        "a range's step must be at least 1, not %lld (dim %d, %lld positions); use flip to reverse",
        by, size);
  if (p->f->status != CNN_OK) return;
  int64_t length = last >= first ? (last - first) / by + 1 : 0;
  bool whole_dim = first == 0 && by == 1 && length == size;
  step(p, whole_dim ? CNN_KEY_WHOLE : CNN_KEY_RANGE, first, length, by);
}

static void add_index(path *p, cnn_tensor *t) {
  p->indices[p->out] = t;
  p->names[p->out] = p->dim;
  step(p, CNN_KEY_WHOLE, 0, 0, 0);
}

static void apply_mask(path *p, cnn_tensor *mask, bool only) {
  cnn_shape_text a, b;
  const cnn_tensor *x = p->x;
  if (!cnn_shape_equal(mask->ndim, mask->shape, mask->ndim, x->shape + p->dim)) {
    p->f->status =
        cnn_fail(p->f->ctx, CNN_SHAPE, "the mask's shape %s does not fit shape %s at dim %d",
                 cnn_shape_format(&a, mask->ndim, mask->shape),
                 cnn_shape_format(&b, x->ndim, x->shape), p->dim + 1);
    return;
  }
  if (only && p->out == 0) {
    p->mask = mask;
    for (int d = 0; d < mask->ndim; d++) step(p, CNN_KEY_WHOLE, 0, 0, 0);
    return;
  }
  // A mask stands for the positions where it is true, one index tensor per dim.
  cnn_tensor *places = cnn_do(p->f, nonzero, CNN_A_T(mask));
  for (int d = 0; d < mask->ndim; d++)
    add_index(p, cnn_do(p->f, select, CNN_A_T(places), CNN_A_I(1), CNN_A_I(d)));
}

// How many dims of x a key is for.
static int width(const key *k) {
  if (k->kind == KEY_NEWAXIS) return 0;
  return k->kind == KEY_TENSOR && k->t->dtype == CNN_BOOL ? k->t->ndim : 1;
}

// Applies the keys; the view that the positions, ranges and new axes make.
static cnn_tensor *apply(path *p, cnn_frame *f, cnn_tensor *x, const key *keys, int n) {
  int used = 0, fresh = 0;
  memset(p, 0, sizeof *p);
  p->f = f;
  p->x = x;
  for (int i = 0; i < n; i++) {
    used += width(&keys[i]);
    fresh += keys[i].kind == KEY_NEWAXIS;
    p->n_tensors += keys[i].kind == KEY_TENSOR;
  }
  cnn_shape_text a;
  if (used > x->ndim)
    f->status = cnn_fail(f->ctx, CNN_INDEX, "%d indices for a tensor with %d dim%s, %s", used,
                         x->ndim, x->ndim == 1 ? "" : "s", cnn_shape_format(&a, x->ndim, x->shape));
  else if (x->ndim + fresh > CNN_MAX_DIMS)
    f->status = cnn_fail(f->ctx, CNN_SHAPE, "a tensor has at most %d dims", CNN_MAX_DIMS);
  for (int i = 0; i < n && f->status == CNN_OK; i++) {
    const key *k = &keys[i];
    switch (k->kind) {
    case KEY_POS: apply_position(p, k->v[0]); break;
    case KEY_RANGE: apply_range(p, k); break;
    case KEY_NEWAXIS: step(p, CNN_KEY_NEW, 0, 0, 0); break;
    case KEY_TENSOR:
      if (k->t->dtype == CNN_BOOL)
        apply_mask(p, k->t, p->n_tensors == 1);
      else
        add_index(p, k->t);
      break;
    }
  }
  bool same = true; // no key but whole dims
  for (int i = 0; i < p->n_steps; i++) same = same && p->steps[4 * i] == CNN_KEY_WHOLE;
  if (same && p->n_tensors > 0) return x;
  return cnn_do(f, subscript, CNN_A_T(x), CNN_A_INTS(4 * p->n_steps, p->steps));
}

static cnn_status get(cnn_lua *S, cnn_tensor *x, const key *keys, int n, cnn_box *box) {
  cnn_frame f;
  path p;
  const char *outer = S->ctx.op;
  S->ctx.op = "index";
  cnn_frame_open(&f, &S->ctx);
  cnn_tensor *y = apply(&p, &f, x, keys, n);
  if (p.mask) {
    double count = cnn_frame_read(&f, cnn_do(&f, nonzero_count, CNN_A_T(p.mask)));
    y = cnn_do(&f, mask_select, CNN_A_T(y), CNN_A_T(p.mask), CNN_A_I((int64_t)count));
  } else if (p.n_tensors > 0) {
    y = cnn_do(&f, index, CNN_A_T(y), CNN_A_TS(p.out, p.indices), CNN_A_INTS(p.out, p.names));
  }
  if (f.status == CNN_OK) box->object = cnn_ref(y);
  S->ctx.op = outer;
  return cnn_frame_close(&f);
}

int cnn_index_get(lua_State *L, cnn_lua *S, cnn_tensor *x, int at) {
  key keys[MAX_KEYS];
  cnn_status status;
  int n = read_keys(L, S, at, keys);
  cnn_pace(L, S);
  cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  CNN_WITH_ROOM(L, S, status, get(S, x, keys, n, box));
  return status == CNN_OK ? 1 : cnn_raise(L, S, status);
}

// The value as a tensor of x's dtype.
static cnn_arg value_for(cnn_frame *f, const cnn_tensor *x, cnn_arg value) {
  if (value.kind != CNN_TENSOR)
    return CNN_A_T(
        cnn_do(f, full, CNN_A_INTS(0, NULL), value, CNN_A_I(x->dtype), CNN_A_DEVICE(x->device)));
  if (value.t->dtype == x->dtype) return value;
  return CNN_A_T(cnn_do(f, cast, value, CNN_A_I(x->dtype)));
}

// y[mask] = value, the mask being for y's leading dims.
static void set_masked(cnn_frame *f, cnn_tensor *y, cnn_tensor *mask, cnn_arg value) {
  cnn_tensor *places, *indices[CNN_MAX_DIMS];
  int64_t shape[CNN_MAX_DIMS];
  bool is_float = y && cnn_dtype_is_float((cnn_dtype)y->dtype);
  if (!y) return;
  if (value.kind == CNN_TENSOR ? value.t->ndim == 0 : true) {
    for (int d = 0; d < y->ndim; d++) shape[d] = d < mask->ndim ? mask->shape[d] : 1;
    if (mask->ndim < y->ndim) mask = cnn_do(f, reshape, CNN_A_T(mask), CNN_A_INTS(y->ndim, shape));
    // A number goes as it is where its kind fits, else it is converted as fill_ does.
    if (value.kind == CNN_TENSOR || !is_float) value = value_for(f, y, value);
    cnn_do_(f, masked_fill, CNN_A_T(y), CNN_A_T(mask), value);
    return;
  }
  places = cnn_do(f, nonzero, CNN_A_T(mask));
  for (int d = 0; d < mask->ndim; d++)
    indices[d] = cnn_do(f, select, CNN_A_T(places), CNN_A_I(1), CNN_A_I(d));
  cnn_do(f, index_put_, CNN_A_T(y), CNN_A_TS(mask->ndim, indices), value_for(f, y, value));
}

static cnn_status set(cnn_lua *S, cnn_tensor *x, const key *keys, int n, cnn_arg value) {
  cnn_frame f;
  path p;
  const char *outer = S->ctx.op;
  S->ctx.op = "index assignment";
  cnn_frame_open(&f, &S->ctx);
  cnn_tensor *y = apply(&p, &f, x, keys, n);
  if (p.mask)
    set_masked(&f, y, p.mask, value);
  else if (p.n_tensors > 0)
    cnn_do(&f, index_put_, CNN_A_T(y), CNN_A_TS(p.out, p.indices), value_for(&f, x, value),
           CNN_A_I(0), CNN_A_INTS(p.out, p.names));
  else if (value.kind == CNN_TENSOR)
    cnn_do(&f, copy_, CNN_A_T(y), value);
  else
    cnn_do(&f, fill_, CNN_A_T(y), value);
  S->ctx.op = outer;
  return cnn_frame_close(&f);
}

int cnn_index_set(lua_State *L, cnn_lua *S, cnn_tensor *x, int at, int value) {
  key keys[MAX_KEYS];
  cnn_arg v;
  int64_t whole_value;
  cnn_status status;
  char got[64];
  int n = read_keys(L, S, at, keys);
  cnn_box *box = cnn_to_box(L, value, CNN_BOX_TENSOR);
  if (box)
    v = CNN_A_T(cnn_check_tensor(L, S, value, "index assignment", "the value"));
  else if (lua_type(L, value) == LUA_TBOOLEAN)
    v = CNN_A_I(lua_toboolean(L, value));
  else if (cnn_toint(L, value, &whole_value))
    v = CNN_A_I(whole_value);
  else if (lua_type(L, value) == LUA_TNUMBER)
    v = CNN_A_N((double)lua_tonumber(L, value));
  else
    return cnn_error(L, S, "index assignment: expected a number or a tensor, got %s",
                     cnn_describe(L, value, got, sizeof got));
  cnn_pace(L, S);
  CNN_WITH_ROOM(L, S, status, set(S, x, keys, n, v));
  return status == CNN_OK ? 0 : cnn_raise(L, S, status);
}
