// SPDX-License-Identifier: MIT
// Numbers between Lua and tensors: cnn.tensor, item, totable, get, set.
#include "lua/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/history.h"
#include "ops/ops.h"

// ---------------------------------------------------------------------------------------------
// cnn.tensor(nested lists)

typedef struct nested {
  int ndim;
  int64_t shape[CNN_MAX_DIMS];
  bool booleans, numbers;
} nested;

static int not_a_value(lua_State *L, cnn_lua *S, int at) {
  char got[64];
  return cnn_error(L, S, "tensor: expected numbers, booleans or nested lists of them, found %s%s",
                   cnn_describe(L, at, got, sizeof got),
                   cnn_to_box(L, at, CNN_BOX_TENSOR) ? ": cnn.stack and cnn.cat join tensors" : "");
}

// The shape that the first element of each list gives.
static void measure(lua_State *L, cnn_lua *S, int at, nested *n) {
  int top = lua_gettop(L);
  lua_pushvalue(L, at);
  n->ndim = 0;
  while (lua_type(L, -1) == LUA_TTABLE) {
    if (n->ndim == CNN_MAX_DIMS)
      cnn_error(L, S, "tensor: lists are nested more than %d deep", CNN_MAX_DIMS);
    int64_t size = (int64_t)cnn_rawlen(L, -1);
    n->shape[n->ndim++] = size;
    if (size == 0) {
      lua_pushnil(L);
      if (lua_next(L, -2)) cnn_error(L, S, "tensor: a list counts from 1, with no string keys");
      break;
    }
    luaL_checkstack(L, 2, "cnn.tensor");
    lua_rawgeti(L, -1, 1);
  }
  lua_settop(L, top);
}

static void survey(lua_State *L, cnn_lua *S, int at, int depth, nested *n) {
  at = cnn_absindex(L, at);
  if (depth == n->ndim) {
    int type = lua_type(L, at);
    if (type == LUA_TNUMBER)
      n->numbers = true;
    else if (type == LUA_TBOOLEAN)
      n->booleans = true;
    else if (type == LUA_TTABLE)
      cnn_error(L, S, "tensor: the lists are not nested alike");
    else
      not_a_value(L, S, at);
    return;
  }
  if (lua_type(L, at) != LUA_TTABLE)
    cnn_error(L, S, "tensor: expected a list of %d at depth %d, found a value",
              (int)n->shape[depth], depth + 1);
  int64_t size = (int64_t)cnn_rawlen(L, at);
  if (size != n->shape[depth])
    cnn_error(L, S, "tensor: lists at depth %d have %d and %d elements: they must be alike",
              depth + 1, (int)n->shape[depth], (int)size);
  // What comes behind the last element: numbers are positions behind a gap.
  if (size > 0) {
    cnn_pushint(L, size);
    while (lua_next(L, at)) {
      if (lua_type(L, -2) == LUA_TNUMBER)
        cnn_error(L, S, "tensor: a list has a nil, or a gap, behind its element %d", (int)size);
      lua_pop(L, 1);
    }
  }
  for (int64_t i = 1; i <= size; i++) {
    lua_rawgeti(L, at, (int)i);
    survey(L, S, -1, depth + 1, n);
    lua_pop(L, 1);
  }
}

static void fill(lua_State *L, cnn_lua *S, int at, int depth, const nested *n, cnn_dtype dtype,
                 char **p) {
  if (depth == n->ndim) {
    int64_t whole = 0;
    bool is_whole = cnn_toint(L, at, &whole);
    if (lua_type(L, at) == LUA_TNUMBER && !(is_whole ? cnn_dtype_holds_int(dtype, whole)
                                                     : cnn_dtype_holds(dtype, lua_tonumber(L, at))))
      cnn_error(L, S, "tensor: %.14g does not fit %s", lua_tonumber(L, at), cnn_dtype_name(dtype));
    if (lua_type(L, at) == LUA_TBOOLEAN)
      cnn_element_set_int(dtype, *p, lua_toboolean(L, at));
    else if (!cnn_dtype_is_float(dtype) && is_whole)
      cnn_element_set_int(dtype, *p, whole);
    else
      cnn_element_set(dtype, *p, (double)lua_tonumber(L, at));
    *p += cnn_dtype_size(dtype);
    return;
  }
  at = cnn_absindex(L, at);
  for (int64_t i = 1; i <= n->shape[depth]; i++) {
    lua_rawgeti(L, at, (int)i);
    fill(L, S, -1, depth + 1, n, dtype, p);
    lua_pop(L, 1);
  }
}

static cnn_status to_device(cnn_lua *S, cnn_tensor *t, cnn_device device, cnn_tensor **out) {
  cnn_results r;
  CNN_TRY(cnn_dispatch(&S->ctx, OP_to_device, CNN_ARGS(CNN_A_T(t), CNN_A_DEVICE(device)), &r));
  *out = cnn_ref(r.t[0]);
  cnn_results_free(&r);
  return CNN_OK;
}

// _tensor(values, dtype or nil, device or nil)
static int l_tensor(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  nested n = {.ndim = 0};
  cnn_meta meta;
  cnn_tensor *t = NULL;
  cnn_status status;
  cnn_device cpu = {CNN_CPU, 0};
  cnn_device device =
      lua_isnoneornil(L, 3) ? S->ctx.default_device : cnn_check_device(L, S, 3, "tensor");
  measure(L, S, 1, &n);
  survey(L, S, 1, 0, &n);
  cnn_dtype dtype = lua_isnoneornil(L, 2)
                        ? n.booleans && !n.numbers ? CNN_BOOL : S->ctx.default_dtype
                        : cnn_check_dtype(L, S, 2, "tensor");
  if (n.booleans && n.numbers) return cnn_error(L, S, "tensor: numbers and booleans are mixed");
  cnn_pace(L, S);
  cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  cnn_box *staged = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  cnn_meta_set(&meta, dtype, cpu, n.ndim, n.shape);
  S->ctx.op = "tensor";
  CNN_WITH_ROOM(L, S, status, cnn_tensor_empty(&S->ctx, &meta, &t));
  S->ctx.op = NULL;
  if (status != CNN_OK) return cnn_raise(L, S, status);
  staged->object = t;
  char *p = cnn_data(t);
  if (p) fill(L, S, 1, 0, &n, dtype, &p);
  lua_pop(L, 1);
  if (device.type == CNN_CPU) {
    box->object = t;
    staged->object = NULL;
    return 1;
  }
  cnn_tensor *moved;
  CNN_WITH_ROOM(L, S, status, to_device(S, t, device, &moved));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = moved;
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Elements to Lua

static int too_large(lua_State *L, cnn_lua *S, const char *function) {
  return cnn_error(L, S,
                   "%s: an int64 value beyond 2^53 does not fit a Lua number here; use Lua 5.3 or "
                   "later, or :to(\"float64\")",
                   function);
}

static void push_element(lua_State *L, cnn_lua *S, cnn_dtype dtype, const void *p,
                         const char *function) {
  if (dtype == CNN_BOOL)
    lua_pushboolean(L, *(const cnn_bool *)p);
  else if (cnn_dtype_is_float(dtype))
    lua_pushnumber(L, cnn_element_get(dtype, p));
  else if (!cnn_pushint(L, cnn_element_get_int(dtype, p)))
    too_large(L, S, function);
}

// The element at the tensor's first place, wherever it lies.
static void push_value(lua_State *L, cnn_lua *S, const cnn_tensor *t, const char *function) {
  double d = 0;
  int64_t i = 0;
  bool is_float = cnn_dtype_is_float((cnn_dtype)t->dtype);
  S->ctx.op = function;
  cnn_status status =
      is_float ? cnn_read_element(&S->ctx, t, &d) : cnn_read_element_int(&S->ctx, t, &i);
  S->ctx.op = NULL;
  if (status != CNN_OK) cnn_raise(L, S, status);
  if (is_float)
    lua_pushnumber(L, d);
  else if (t->dtype == CNN_BOOL)
    lua_pushboolean(L, i != 0);
  else if (!cnn_pushint(L, i))
    too_large(L, S, function);
}

static int l_item(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "item", "argument 1 (x)");
  cnn_shape_text a;
  if (cnn_numel(t) != 1)
    return cnn_error(L, S,
                     "item: the tensor has %d elements (shape %s), not one: use totable or get",
                     (int)cnn_numel(t), cnn_shape_format(&a, t->ndim, t->shape));
  push_value(L, S, t, "item");
  return 1;
}

static void push_nested(lua_State *L, cnn_lua *S, const cnn_tensor *t, int depth, const char *p) {
  if (depth == t->ndim) {
    push_element(L, S, (cnn_dtype)t->dtype, p, "totable");
    return;
  }
  int64_t step = t->strides[depth] * (int64_t)cnn_dtype_size((cnn_dtype)t->dtype);
  luaL_checkstack(L, 3, "totable");
  lua_createtable(L, (int)t->shape[depth], 0);
  for (int64_t i = 0; i < t->shape[depth]; i++) {
    push_nested(L, S, t, depth + 1, p + i * step);
    lua_rawseti(L, -2, (int)i + 1);
  }
}

static int l_totable(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "totable", "argument 1 (x)"), *host = t;
  cnn_device cpu = {CNN_CPU, 0};
  cnn_status status;
  cnn_pace(L, S);
  if (t->device.type != CNN_CPU) {
    cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
    CNN_WITH_ROOM(L, S, status, to_device(S, t, cpu, &host));
    if (status != CNN_OK) return cnn_raise(L, S, status);
    box->object = host;
  }
  if (cnn_buffer_settle(&S->ctx, host->buffer) != CNN_OK) return cnn_raise(L, S, S->ctx.code);
  push_nested(L, S, host, 0, cnn_data(host));
  return 1;
}

// _int_texts(x): the elements of a 1-d integer tensor as decimal texts, for printing: an int64 need
// not fit a Lua number.
static int l_int_texts(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "tostring", "argument 1 (x)"), *host = t;
  cnn_device cpu = {CNN_CPU, 0};
  cnn_status status;
  char text[24];
  if (t->device.type != CNN_CPU) {
    cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
    CNN_WITH_ROOM(L, S, status, to_device(S, t, cpu, &host));
    if (status != CNN_OK) return cnn_raise(L, S, status);
    box->object = host;
  }
  lua_createtable(L, (int)host->shape[0], 0);
  for (int64_t i = 0; i < host->shape[0]; i++) {
    int64_t v = cnn_element_get_int((cnn_dtype)host->dtype, cnn_element_at(host, &i));
    lua_pushlstring(L, text, (size_t)snprintf(text, sizeof text, "%" PRId64, v));
    lua_rawseti(L, -2, (int)i + 1);
  }
  return 1;
}

// _number_text(v, style, precision): v as C prints it, ties to even (LuaJIT's string.format rounds
// them up). Styles: "e", "f".
static int l_number_text(lua_State *L) {
  char text[512];
  double v = luaL_checknumber(L, 1);
  const char *style = luaL_checkstring(L, 2);
  int precision = (int)luaL_checkinteger(L, 3);
  if (precision > 100) precision = 100;
  if (v != v)
    snprintf(text, sizeof text, "nan");
  else
    snprintf(text, sizeof text, *style == 'e' ? "%.*e" : "%.*f", precision, v);
  cnn_state(L);
  lua_pushstring(L, text);
  return 1;
}

// ---------------------------------------------------------------------------------------------
// get(i, j ...) and set(i, j ..., v)

static void read_index(lua_State *L, cnn_lua *S, const cnn_tensor *t, int given,
                       const char *function, int64_t *index) {
  char got[64];
  cnn_shape_text a;
  if (given != t->ndim)
    cnn_error(L, S, "%s: %d indices for a tensor of shape %s", function, given,
              cnn_shape_format(&a, t->ndim, t->shape));
  for (int d = 0; d < t->ndim; d++) {
    int64_t v;
    if (!cnn_toint(L, 2 + d, &v))
      cnn_error(L, S, "%s: index %d: expected an integer, got %s", function, d + 1,
                cnn_describe(L, 2 + d, got, sizeof got));
    if (v == 0)
      cnn_error(L, S, "%s: index 0: Lua indices start at 1 (dim %d has 1..%d)", function, d + 1,
                (int)t->shape[d]);
    index[d] = v > 0 ? v - 1 : v + t->shape[d];
    if (index[d] < 0 || index[d] >= t->shape[d])
      cnn_error(L, S, "%s: index %.0f is out of range for dim %d of size %.0f", function, (double)v,
                d + 1, (double)t->shape[d]);
  }
}

static cnn_tensor element_of(const cnn_tensor *t, const int64_t *index) {
  cnn_tensor e = *t;
  for (int d = 0; d < t->ndim; d++) e.offset += index[d] * t->strides[d];
  e.ndim = 0;
  return e;
}

static int l_get(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "get", "argument 1 (x)");
  int64_t index[CNN_MAX_DIMS];
  read_index(L, S, t, lua_gettop(L) - 1, "get", index);
  cnn_tensor e = element_of(t, index);
  push_value(L, S, &e, "get");
  return 1;
}

static cnn_status set_element(cnn_lua *S, cnn_tensor *t, const int64_t *index, cnn_arg value) {
  cnn_frame f;
  cnn_tensor *at = t;
  const char *outer = S->ctx.op;
  S->ctx.op = "set";
  cnn_frame_open(&f, &S->ctx);
  for (int d = 0; d < t->ndim && at; d++)
    at = cnn_do(&f, select, CNN_A_T(at), CNN_A_I(0), CNN_A_I(index[d]));
  cnn_do(&f, fill_, CNN_A_T(at), value);
  S->ctx.op = outer;
  return cnn_frame_close(&f);
}

static int l_set(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "set", "argument 1 (x)");
  int64_t index[CNN_MAX_DIMS], whole;
  int top = lua_gettop(L);
  cnn_arg value;
  cnn_status status;
  char got[64];
  read_index(L, S, t, top - 2, "set", index);
  if (lua_type(L, top) == LUA_TBOOLEAN)
    value = CNN_A_I(lua_toboolean(L, top));
  else if (cnn_toint(L, top, &whole))
    value = CNN_A_I(whole);
  else if (lua_type(L, top) == LUA_TNUMBER)
    value = CNN_A_N((double)lua_tonumber(L, top));
  else
    return cnn_error(L, S, "set: the value must be a number or a boolean, got %s",
                     cnn_describe(L, top, got, sizeof got));
  if (!(value.kind == CNN_INT ? cnn_dtype_holds_int((cnn_dtype)t->dtype, value.i)
                              : cnn_dtype_holds((cnn_dtype)t->dtype, value.d)))
    return cnn_error(L, S, "set: value %.14g does not fit %s", (double)lua_tonumber(L, top),
                     cnn_dtype_name((cnn_dtype)t->dtype));
  // The common case, without views: a plain CPU tensor outside of any graph.
  bool plain = t->device.type == CNN_CPU && !t->base && !cnn_requires_grad(t);
  if (plain && cnn_history_check(&S->ctx, t, false) == CNN_OK) {
    void *p = cnn_element_at(t, index);
    if (value.kind == CNN_INT)
      cnn_element_set_int((cnn_dtype)t->dtype, p, value.i);
    else
      cnn_element_set((cnn_dtype)t->dtype, p, value.d);
    cnn_buffer_bump(t->buffer);
  } else {
    CNN_WITH_ROOM(L, S, status, set_element(S, t, index, value));
    if (status != CNN_OK) return cnn_raise(L, S, status);
  }
  lua_settop(L, 1);
  return 1;
}

void cnn_open_values(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"_tensor", l_tensor},
                                           {"_int_texts", l_int_texts},
                                           {"_number_text", l_number_text},
                                           {NULL, NULL}};
  static const cnn_function methods[] = {
      {"item", l_item}, {"totable", l_totable}, {"get", l_get}, {"set", l_set}, {NULL, NULL}};
  cnn_set_functions(L, S, functions);
  lua_getfield(L, -1, "methods");
  cnn_set_functions(L, S, methods);
  lua_pop(L, 1);
}
