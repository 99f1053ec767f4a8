// SPDX-License-Identifier: MIT
// x[...] and x[...] = v.
//
// A key is a position, a list with one entry per dim, an integer tensor or a mask. In a list: a
// position, a range {first, last, step} (ends included; {} is the whole dim), cnn.newaxis, an
// integer tensor or a mask. Positions and ranges make a view; tensors gather from it. An assignment
// copies into the view, or puts at the gathered places.
#include "lua/state.h"

#include "ops/ops.h"

#define MAX_KEYS CNN_MAX_DIMS

// A key applied so far: the view, and an index tensor per dim of it (NULL: the whole dim).
typedef struct path {
  cnn_frame *f;
  cnn_tensor *view;
  int dim; // the next dim of `view` that a key applies to
  bool gathers;
  cnn_tensor *indices[CNN_MAX_DIMS];
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

static void fail(path *p, cnn_status code, const char *format, long long a, int dim, long long n) {
  if (p->f->status == CNN_OK) p->f->status = cnn_fail(p->f->ctx, code, format, a, dim, n, n);
}

static bool normal_position(path *p, int64_t v, int64_t *pos) {
  int64_t size = p->view->shape[p->dim];
  if (v == 0) {
    fail(p, CNN_INDEX, "index %lld: Lua indices start at 1 (dim %d has positions 1..%lld)", 0,
         p->dim + 1, (long long)size);
    return false;
  }
  *pos = v > 0 ? v - 1 : v + size;
  if (*pos >= 0 && *pos < size) return true;
  fail(p, CNN_INDEX,
       "index %lld is out of range for dim %d of size %lld (1..%lld, or negative from the end)",
       (long long)v, p->dim + 1, (long long)size);
  return false;
}

static void apply_range(path *p, const key *k) {
  int64_t size = p->view->shape[p->dim], first = 0, last = size - 1, step = k->n > 2 ? k->v[2] : 1;
  if (k->n >= 2) {
    if (k->v[0] == 0 || (k->v[1] == 0 && k->v[0] != 1)) {
      fail(p, CNN_INDEX, "index %lld: Lua indices start at 1 (dim %d has positions 1..%lld)", 0,
           p->dim + 1, (long long)size);
      return;
    }
    first = k->v[0] > 0 ? k->v[0] - 1 : k->v[0] + size;
    last = k->v[1] >= 0 ? k->v[1] - 1 : k->v[1] + size;
    if (first < 0 || first > size || last < -1 || last >= size) {
      int64_t culprit = first < 0 || first > size ? k->v[0] : k->v[1];
      fail(p, CNN_INDEX, "index %lld is out of range for dim %d of size %lld (1..%lld)",
           (long long)culprit, p->dim + 1, (long long)size);
      return;
    }
  }
  if (step < 1) {
    fail(
        p, CNN_INVALID,
        "a range's step must be at least 1, not %lld (dim %d, %lld positions); use flip to reverse",
        (long long)step, p->dim + 1, (long long)size);
    return;
  }
  int64_t length = last >= first ? (last - first) / step + 1 : 0;
  if (first != 0 || step != 1 || length != size)
    p->view = cnn_do(p->f, slice, CNN_A_T(p->view), CNN_A_I(p->dim), CNN_A_I(first),
                     CNN_A_I(length), CNN_A_I(step));
  p->dim++;
}

static void apply_tensor(path *p, cnn_tensor *t) {
  p->gathers = true;
  if (t->dtype != CNN_BOOL) {
    p->indices[p->dim++] = t;
    return;
  }
  cnn_shape_text a, b;
  cnn_tensor *v = p->view;
  if (p->dim + t->ndim > v->ndim ||
      !cnn_shape_equal(t->ndim, t->shape, t->ndim, v->shape + p->dim)) {
    p->f->status =
        cnn_fail(p->f->ctx, CNN_SHAPE, "the mask's shape %s does not fit shape %s at dim %d",
                 cnn_shape_format(&a, t->ndim, t->shape), cnn_shape_format(&b, v->ndim, v->shape),
                 p->dim + 1);
    return;
  }
  // A mask stands for the positions where it is true, one index tensor per dim.
  cnn_tensor *places = cnn_do(p->f, nonzero, CNN_A_T(t));
  for (int d = 0; d < t->ndim; d++)
    p->indices[p->dim++] = cnn_do(p->f, select, CNN_A_T(places), CNN_A_I(1), CNN_A_I(d));
}

static void apply(path *p, const key *keys, int n) {
  int used = 0;
  for (int i = 0; i < n; i++)
    used += keys[i].kind == KEY_NEWAXIS                                  ? 0
            : keys[i].kind == KEY_TENSOR && keys[i].t->dtype == CNN_BOOL ? keys[i].t->ndim
                                                                         : 1;
  if (used > p->view->ndim) {
    cnn_shape_text a;
    p->f->status = cnn_fail(p->f->ctx, CNN_INDEX, "%d indices for a tensor with %d dim%s, %s", used,
                            p->view->ndim, p->view->ndim == 1 ? "" : "s",
                            cnn_shape_format(&a, p->view->ndim, p->view->shape));
  }
  for (int i = 0; i < n && p->f->status == CNN_OK; i++) {
    int64_t pos;
    switch (keys[i].kind) {
    case KEY_POS:
      if (normal_position(p, keys[i].v[0], &pos))
        p->view = cnn_do(p->f, select, CNN_A_T(p->view), CNN_A_I(p->dim), CNN_A_I(pos));
      break;
    case KEY_RANGE: apply_range(p, &keys[i]); break;
    case KEY_NEWAXIS:
      p->view = cnn_do(p->f, unsqueeze, CNN_A_T(p->view), CNN_A_I(p->dim));
      p->dim++;
      break;
    case KEY_TENSOR: apply_tensor(p, keys[i].t); break;
    }
  }
}

static cnn_arg indices_arg(const path *p) {
  return CNN_A_TS(p->dim, p->indices);
}

static cnn_status get(cnn_lua *S, cnn_tensor *x, const key *keys, int n, cnn_box *box) {
  cnn_frame f;
  path p = {.f = &f, .view = x};
  const char *outer = S->ctx.op;
  S->ctx.op = "index";
  cnn_frame_open(&f, &S->ctx);
  apply(&p, keys, n);
  if (p.gathers) p.view = cnn_do(&f, index, CNN_A_T(p.view), indices_arg(&p));
  // x[{}] is a new handle on all of x.
  if (p.view == x) p.view = cnn_do(&f, view, CNN_A_T(x), CNN_A_INTS(x->ndim, x->shape));
  if (f.status == CNN_OK) box->object = cnn_ref(p.view);
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

static cnn_status set(cnn_lua *S, cnn_tensor *x, const key *keys, int n, cnn_arg value) {
  cnn_frame f;
  path p = {.f = &f, .view = x};
  const char *outer = S->ctx.op;
  S->ctx.op = "index assignment";
  cnn_frame_open(&f, &S->ctx);
  apply(&p, keys, n);
  bool single = n == 1 && keys[0].kind == KEY_TENSOR && keys[0].t->dtype == CNN_BOOL;
  if (single && value.kind != CNN_TENSOR && f.status == CNN_OK)
    cnn_do_(&f, masked_fill, CNN_A_T(x), CNN_A_T(keys[0].t), value);
  else if (p.gathers && value.kind == CNN_TENSOR)
    cnn_do(&f, index_put_, CNN_A_T(p.view), indices_arg(&p), value);
  else if (p.gathers)
    cnn_do(&f, index_put_, CNN_A_T(p.view), indices_arg(&p),
           CNN_A_T(cnn_do(&f, full, CNN_A_INTS(0, NULL), value, CNN_A_I(x->dtype),
                          CNN_A_DEVICE(x->device))));
  else if (value.kind == CNN_TENSOR)
    cnn_do(&f, copy_, CNN_A_T(p.view), value);
  else
    cnn_do(&f, fill_, CNN_A_T(p.view), value);
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
