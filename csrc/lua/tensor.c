// SPDX-License-Identifier: MIT
// The tensor as an object: fields, methods that are no ops, metamethods.
#include "lua/state.h"

#include <string.h>

#include "engine/history.h"
#include "engine/node.h"
#include "memory/guard.h"
#include "ops/ops.h"

static cnn_tensor *self(lua_State *L, cnn_lua *S, const char *function) {
  return cnn_check_tensor(L, S, 1, function, "argument 1 (x)");
}

void cnn_push_shape(lua_State *L, cnn_lua *S, int n, const int64_t *shape) {
  (void)S;
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    cnn_pushint(L, shape[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_getfield(L, LUA_REGISTRYINDEX, "cnn.shape");
  lua_setmetatable(L, -2);
}

// ---------------------------------------------------------------------------------------------
// Small methods

static int64_t dim_argument(lua_State *L, cnn_lua *S, const char *function, int ndim) {
  int64_t d;
  char got[64];
  if (!cnn_toint(L, 2, &d))
    cnn_error(L, S, "%s: argument 2 (dim): expected a dim, got %s", function,
              cnn_describe(L, 2, got, sizeof got));
  if (d == 0)
    cnn_error(L, S, "%s: dim 0: Lua dims start at 1 (or count from the end: -1)", function);
  int64_t at = d > 0 ? d - 1 : d + ndim;
  if (at < 0 || at >= ndim)
    cnn_error(L, S, "%s: dim %d is out of range for a tensor with %d dim%s", function, (int)d, ndim,
              ndim == 1 ? "" : "s");
  return at;
}

static int l_size(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = self(L, S, "size");
  if (lua_isnoneornil(L, 2))
    cnn_push_shape(L, S, t->ndim, t->shape);
  else
    cnn_pushint(L, t->shape[dim_argument(L, S, "size", t->ndim)]);
  return 1;
}

static int l_stride(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = self(L, S, "stride");
  if (lua_isnoneornil(L, 2))
    cnn_push_shape(L, S, t->ndim, t->strides);
  else
    cnn_pushint(L, t->strides[dim_argument(L, S, "stride", t->ndim)]);
  return 1;
}

static int l_dim(lua_State *L) {
  cnn_pushint(L, self(L, cnn_state(L), "dim")->ndim);
  return 1;
}

static int l_numel(lua_State *L) {
  cnn_pushint(L, cnn_numel(self(L, cnn_state(L), "numel")));
  return 1;
}

static int l_storage_offset(lua_State *L) {
  cnn_pushint(L, self(L, cnn_state(L), "storage_offset")->offset);
  return 1;
}

static bool channels_last(const cnn_tensor *t) {
  if (t->ndim != 4) return false;
  int64_t c = t->shape[1], h = t->shape[2], w = t->shape[3];
  const int64_t *s = t->strides;
  return (c == 1 || s[1] == 1) && (w == 1 || s[3] == c) && (h == 1 || s[2] == w * c) &&
         (t->shape[0] == 1 || s[0] == h * w * c);
}

static int l_is_contiguous(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = self(L, S, "is_contiguous");
  bool wants_last = false;
  if (lua_istable(L, 2)) lua_getfield(L, 2, "memory_format"), lua_replace(L, 2);
  if (lua_type(L, 2) == LUA_TSTRING) {
    wants_last = strcmp(lua_tostring(L, 2), "channels_last") == 0;
    if (!wants_last && strcmp(lua_tostring(L, 2), "contiguous") != 0)
      return cnn_error(L, S, "is_contiguous: unknown memory_format \"%s\"", lua_tostring(L, 2));
  }
  lua_pushboolean(L, wants_last ? channels_last(t) : cnn_is_contiguous(t));
  return 1;
}

static int l_element_size(lua_State *L) {
  cnn_pushint(L, (int64_t)cnn_dtype_size((cnn_dtype)self(L, cnn_state(L), "element_size")->dtype));
  return 1;
}

static int l_data_ptr(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = self(L, S, "data_ptr");
  if (cnn_buffer_check(&S->ctx, t->buffer, "the tensor") != CNN_OK ||
      cnn_buffer_settle(&S->ctx, t->buffer) != CNN_OK)
    return cnn_raise(L, S, S->ctx.code);
  cnn_pushint(L, (int64_t)(uintptr_t)cnn_data(t));
  return 1;
}

static int l_version(lua_State *L) {
  cnn_pushint(L, cnn_buffer_version(self(L, cnn_state(L), "version")->buffer));
  return 1;
}

static int l_is_tensor(lua_State *L) {
  cnn_state(L);
  lua_pushboolean(L, cnn_to_box(L, 1, CNN_BOX_TENSOR) != NULL);
  return 1;
}

// Whether two tensors show the same bytes.
static int l_shares_storage(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *a = self(L, S, "shares_storage");
  lua_pushboolean(L,
                  a->buffer == cnn_check_tensor(L, S, 2, "shares_storage", "argument 2")->buffer);
  return 1;
}

static int l_free(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_TENSOR);
  if (!box) {
    char got[64];
    return cnn_error(L, S, "free: expected a tensor, got %s", cnn_describe(L, 1, got, sizeof got));
  }
  void *object = box->object;
  cnn_box_unlink(box);
  box->object = NULL;
  cnn_unref(object);
  if (__builtin_expect(atomic_load_explicit(&cnn_guard_found, memory_order_relaxed) != 0, 0))
    cnn_raise_damage(L, S);
  return 0;
}

static int tensor_gc(lua_State *L) {
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_TENSOR);
  if (!box) return 0;
  void *object = box->object;
  cnn_box_unlink(box);
  box->object = NULL;
  cnn_unref(object);
  return 0;
}

// ---------------------------------------------------------------------------------------------
// detach, requires_grad_, to

static int l_detach(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = self(L, S, "detach"), *alias;
  cnn_status status;
  cnn_pace(L, S);
  cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  CNN_WITH_ROOM(L, S, status, cnn_tensor_alias(&S->ctx, t, &alias));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = alias;
  return 1;
}

static void set_requires_grad(lua_State *L, cnn_lua *S, cnn_tensor *t, bool on,
                              const char *function) {
  if (on && !cnn_dtype_is_float((cnn_dtype)t->dtype))
    cnn_error(L, S, "%s: a %s tensor can't require a gradient: only floats can", function,
              cnn_dtype_name((cnn_dtype)t->dtype));
  if (t->grad_fn && !on)
    cnn_error(L, S, "%s: only a leaf's requires_grad can be turned off: use x:detach()", function);
  if (t->grad_fn) return;
  if (on)
    t->flags |= CNN_REQUIRES_GRAD;
  else
    t->flags &= (uint16_t)~CNN_REQUIRES_GRAD;
}

static int l_requires_grad_(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = self(L, S, "requires_grad_");
  bool on = lua_isnoneornil(L, 2) || lua_toboolean(L, 2);
  set_requires_grad(L, S, t, on, "requires_grad_");
  lua_settop(L, 1);
  return 1;
}

static cnn_status convert(cnn_lua *S, cnn_tensor *t, cnn_dtype dtype, cnn_device device, int format,
                          bool copy, bool non_blocking, cnn_tensor **out) {
  cnn_frame f;
  cnn_tensor *y = t;
  const char *outer = S->ctx.op;
  S->ctx.op = "to";
  cnn_frame_open(&f, &S->ctx);
  if ((cnn_dtype)y->dtype != dtype) y = cnn_do(&f, cast, CNN_A_T(y), CNN_A_I(dtype));
  if (y && !cnn_device_equal(y->device, device))
    y = cnn_do(&f, to_device, CNN_A_T(y), CNN_A_DEVICE(device), CNN_A_I(non_blocking));
  if (y && (format == 2 ? !channels_last(y) : format == 1 && !cnn_is_contiguous(y)))
    y = cnn_do(&f, clone, CNN_A_T(y), CNN_A_I(format));
  if (y == t && copy) y = cnn_do(&f, clone, CNN_A_T(y));
  if (f.status == CNN_OK) *out = cnn_ref(y);
  S->ctx.op = outer;
  return cnn_frame_close(&f);
}

// _to(x, dtype or nil, device or nil, memory_format or nil, copy, non_blocking): x itself when
// nothing changes.
static int l_to(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = self(L, S, "to"), *out = NULL;
  cnn_dtype dtype = lua_isnoneornil(L, 2) ? (cnn_dtype)t->dtype : cnn_check_dtype(L, S, 2, "to");
  cnn_device device = lua_isnoneornil(L, 3) ? t->device : cnn_check_device(L, S, 3, "to");
  bool copy = lua_toboolean(L, 5), non_blocking = lua_toboolean(L, 6);
  int format = 0;
  cnn_status status;
  if (!lua_isnoneornil(L, 4)) {
    const char *name = lua_tostring(L, 4);
    format = name && strcmp(name, "channels_last") == 0 ? 2
             : name && strcmp(name, "contiguous") == 0  ? 1
             : name && strcmp(name, "preserve") == 0    ? 0
                                                        : -1;
    if (format < 0)
      return cnn_error(L, S,
                       "to: memory_format is \"contiguous\", \"channels_last\" or \"preserve\"");
    if (format == 2 && t->ndim != 4)
      return cnn_error(L, S, "to: channels_last is for tensors with 4 dims, not %d", t->ndim);
  }
  cnn_pace(L, S);
  cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  CNN_WITH_ROOM(L, S, status, convert(S, t, dtype, device, format, copy, non_blocking, &out));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  if (out == t) {
    cnn_unref(out);
    lua_pushvalue(L, 1);
    return 1;
  }
  box->object = out;
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Fields

#define FIELDS(X)                                                                                  \
  X(shape)                                                                                         \
  X(ndim)                                                                                          \
  X(dtype)                                                                                         \
  X(device) X(requires_grad) X(grad) X(grad_fn) X(is_leaf) X(nbytes) X(data) X(T) X(is_parameter)
enum {
  FIELD_NONE,
#define FIELD_ENUM(name) FIELD_##name,
  FIELDS(FIELD_ENUM)
};

static cnn_status make_T(cnn_lua *S, cnn_tensor *t, cnn_tensor **out) {
  int64_t order[CNN_MAX_DIMS];
  cnn_frame f;
  for (int i = 0; i < t->ndim; i++) order[i] = t->ndim - 1 - i;
  cnn_frame_open(&f, &S->ctx);
  cnn_tensor *y = cnn_do(&f, permute, CNN_A_T(t), CNN_A_INTS(t->ndim, order));
  if (f.status == CNN_OK) *out = cnn_ref(y);
  return cnn_frame_close(&f);
}

static int push_field(lua_State *L, cnn_lua *S, cnn_tensor *t, int field) {
  cnn_box *box;
  cnn_tensor *out = NULL;
  cnn_status status;
  switch (field) {
  case FIELD_shape: cnn_push_shape(L, S, t->ndim, t->shape); return 1;
  case FIELD_ndim: cnn_pushint(L, t->ndim); return 1;
  case FIELD_dtype: lua_pushstring(L, cnn_dtype_name((cnn_dtype)t->dtype)); return 1;
  case FIELD_device: lua_pushstring(L, cnn_device_name(t->device)); return 1;
  case FIELD_requires_grad: lua_pushboolean(L, cnn_requires_grad(t)); return 1;
  case FIELD_is_parameter: lua_pushboolean(L, (t->flags & CNN_PARAMETER) != 0); return 1;
  case FIELD_is_leaf: lua_pushboolean(L, t->grad_fn == NULL); return 1;
  case FIELD_grad: cnn_push_known_or_nil(L, S, t->grad); return 1;
  case FIELD_grad_fn:
    if (t->base) {
      status = cnn_history_refresh(&S->ctx, t);
      if (status != CNN_OK) return cnn_raise(L, S, status);
    }
    if (t->grad_fn)
      cnn_push_node(L, S, t->grad_fn);
    else
      lua_pushnil(L);
    return 1;
  case FIELD_nbytes:
    cnn_pushint(L, cnn_numel(t) * (int64_t)cnn_dtype_size((cnn_dtype)t->dtype));
    return 1;
  case FIELD_data:
  case FIELD_T:
    box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
    CNN_WITH_ROOM(L, S, status,
                  field == FIELD_T ? make_T(S, t, &out) : cnn_tensor_alias(&S->ctx, t, &out));
    if (status != CNN_OK) return cnn_raise(L, S, status);
    box->object = out;
    return 1;
  default: return 0;
  }
}

// Upvalues: 1 the state, 2 the tensors' metatable, 3 methods, 4 field numbers by name.
static int tensor_index(lua_State *L) {
  if (lua_type(L, 2) == LUA_TSTRING) {
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(3));
    if (!lua_isnil(L, -1)) return 1;
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(4));
    cnn_lua *S = cnn_state(L);
    int field = (int)lua_tointeger(L, -1);
    const char *name = lua_tostring(L, 2);
    if (!field)
      return cnn_error(L, S, "a tensor has no method or field \"%s\" (cnn.help() lists them)",
                       name);
    return push_field(L, S, cnn_check_tensor(L, S, 1, name, "the tensor"), field);
  }
  cnn_lua *S = cnn_state(L);
  return cnn_index_get(L, S, cnn_check_tensor(L, S, 1, "index", "the tensor"), 2);
}

static int set_grad(lua_State *L, cnn_lua *S, cnn_tensor *t) {
  cnn_tensor *g = NULL;
  cnn_shape_text a, b;
  if (!lua_isnil(L, 3)) {
    g = cnn_check_tensor(L, S, 3, "grad", "the gradient");
    if (t->grad_fn) return cnn_error(L, S, "grad: only a leaf has a .grad");
    if (!cnn_shape_equal(g->ndim, g->shape, t->ndim, t->shape))
      return cnn_error(L, S, "grad: the gradient's shape %s is not the tensor's, %s",
                       cnn_shape_format(&a, g->ndim, g->shape),
                       cnn_shape_format(&b, t->ndim, t->shape));
    if (g->dtype != t->dtype || !cnn_device_equal(g->device, t->device))
      return cnn_error(L, S, "grad: the gradient is %s on %s, the tensor %s on %s",
                       cnn_dtype_name((cnn_dtype)g->dtype), cnn_device_name(g->device),
                       cnn_dtype_name((cnn_dtype)t->dtype), cnn_device_name(t->device));
    if (g == t) return cnn_error(L, S, "grad: a tensor can't be its own gradient");
    cnn_ref(g);
    cnn_box_remember(L, S, 3);
  }
  void *old = t->grad;
  t->grad = g;
  cnn_unref(old);
  return 0;
}

static int tensor_newindex(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "assignment", "the tensor");
  if (lua_type(L, 2) != LUA_TSTRING) return cnn_index_set(L, S, t, 2, 3);
  const char *name = lua_tostring(L, 2);
  if (strcmp(name, "grad") == 0) return set_grad(L, S, t);
  if (strcmp(name, "requires_grad") == 0) {
    if (lua_type(L, 3) != LUA_TBOOLEAN)
      return cnn_error(L, S, "requires_grad: expected true or false");
    set_requires_grad(L, S, t, lua_toboolean(L, 3), "requires_grad");
    return 0;
  }
  return cnn_error(L, S, "a tensor's field \"%s\" can't be set: only requires_grad and grad can",
                   name);
}

static int tensor_eq(lua_State *L) {
  cnn_box *a = cnn_to_box(L, 1, CNN_BOX_TENSOR), *b = cnn_to_box(L, 2, CNN_BOX_TENSOR);
  lua_pushboolean(L, a && b && a->object == b->object && a->object);
  return 1;
}

static int tensor_len(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "#", "the tensor");
  if (t->ndim == 0) return cnn_error(L, S, "#: a tensor with 0 dims has no length");
  cnn_pushint(L, t->shape[0]);
  return 1;
}

static int tensor_compare(lua_State *L) {
  return cnn_error(L, cnn_state(L),
                   "Lua's < and <= give one boolean: compare elements with x:lt(y), x:le(y), "
                   "x:gt(y), x:ge(y)");
}

static int tensor_concat(lua_State *L) {
  return cnn_error(L, cnn_state(L), "..: join tensors with cnn.cat, or write tostring(x)");
}

static void set_metamethod(lua_State *L, cnn_lua *S, const char *name, lua_CFunction f) {
  lua_pushlightuserdata(L, S);
  lua_pushvalue(L, -2);
  lua_pushcclosure(L, f, 2);
  lua_setfield(L, -2, name);
}

static void operator_metamethod(lua_State *L, const char *name, const char *op, int core) {
  lua_getfield(L, core, op);
  lua_setfield(L, -2, name);
}

void cnn_open_tensor(lua_State *L, cnn_lua *S) {
  static const cnn_function methods[] = {{"size", l_size},
                                         {"stride", l_stride},
                                         {"dim", l_dim},
                                         {"numel", l_numel},
                                         {"storage_offset", l_storage_offset},
                                         {"is_contiguous", l_is_contiguous},
                                         {"element_size", l_element_size},
                                         {"data_ptr", l_data_ptr},
                                         {"version", l_version},
                                         {"free", l_free},
                                         {"detach", l_detach},
                                         {"requires_grad_", l_requires_grad_},
                                         {"shares_storage", l_shares_storage},
                                         {NULL, NULL}};
  static const cnn_function functions[] = {{"is_tensor", l_is_tensor}, {"_to", l_to}, {NULL, NULL}};
  static const char *const fields[] = {"",
#define FIELD_NAME(name) #name,
                                       FIELDS(FIELD_NAME)};
  int core = lua_gettop(L);
  cnn_set_functions(L, S, functions);
  lua_getfield(L, core, "methods");
  cnn_set_functions(L, S, methods);

  cnn_push_metatable(L, S, CNN_BOX_TENSOR);
  lua_pushlightuserdata(L, S);
  lua_pushvalue(L, -2);
  lua_pushvalue(L, -4);
  lua_newtable(L);
  for (int i = 1; i < (int)(sizeof fields / sizeof *fields); i++) {
    lua_pushinteger(L, i);
    lua_setfield(L, -2, fields[i]);
  }
  lua_pushcclosure(L, tensor_index, 4);
  lua_setfield(L, -2, "__index");
  set_metamethod(L, S, "__newindex", tensor_newindex);
  set_metamethod(L, S, "__gc", tensor_gc);
  set_metamethod(L, S, "__close", tensor_gc);
  set_metamethod(L, S, "__eq", tensor_eq);
  set_metamethod(L, S, "__len", tensor_len);
  set_metamethod(L, S, "__lt", tensor_compare);
  set_metamethod(L, S, "__le", tensor_compare);
  set_metamethod(L, S, "__concat", tensor_concat);
  operator_metamethod(L, "__add", "add", core);
  operator_metamethod(L, "__sub", "sub", core);
  operator_metamethod(L, "__mul", "mul", core);
  operator_metamethod(L, "__div", "div", core);
  operator_metamethod(L, "__mod", "remainder", core);
  operator_metamethod(L, "__pow", "pow", core);
  operator_metamethod(L, "__unm", "_unm", core);
  operator_metamethod(L, "__idiv", "floor_divide", core);
  lua_pushliteral(L, "cnn.Tensor");
  lua_setfield(L, -2, "__name");
  lua_setfield(L, core, "tensor_metatable");
  lua_pop(L, 1);
  lua_newtable(L); // the metatable of shapes; its functions come from Lua
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, "cnn.shape");
  lua_setfield(L, core, "shape_metatable");
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, "cnn.newaxis");
  lua_setfield(L, core, "newaxis");
}
