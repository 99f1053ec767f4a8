// SPDX-License-Identifier: MIT
// Modules as Lua objects.
//
// A module's box has a Lua table of its own (uservalue; the environment on 5.1): free fields, and
// the boxes of its parameters and children. A parent so keeps its children's boxes, and with them
// the Lua fields of modules of Lua classes. Built-in layers share one metatable; every Lua class
// has its own, made here, whose __call comes from Lua (lua/cnn/nn/module.lua).
#include "lua/state.h"

#include <stdio.h>
#include <string.h>

#include "nn/module.h"

static cnn_module *check_module(lua_State *L, cnn_lua *S, int i, const char *function) {
  char got[64];
  cnn_box *box = cnn_to_box(L, i, CNN_BOX_MODULE);
  if (!box || !box->object)
    cnn_error(L, S, "%s: expected a module, got %s", function, cnn_describe(L, i, got, sizeof got));
  return box->object;
}

// Pushes an empty box with its own fields.
static cnn_box *push_module_box(lua_State *L, cnn_lua *S) {
  cnn_box *box = cnn_push_box(L, S, CNN_BOX_MODULE);
  lua_newtable(L);
  cnn_setuv(L, -2);
  return box;
}

static int module_gc(lua_State *L) {
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_MODULE);
  if (!box) return 0;
  void *object = box->object;
  box->object = NULL;
  cnn_unref(object);
  return 0;
}

static int module_eq(lua_State *L) {
  cnn_box *a = cnn_to_box(L, 1, CNN_BOX_MODULE), *b = cnn_to_box(L, 2, CNN_BOX_MODULE);
  lua_pushboolean(L, a && b && a->object == b->object);
  return 1;
}

static int module_len(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_pushint(L, cnn_module_child_count(check_module(L, S, 1, "#")));
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Reading a field

// A constructor argument as the script gave it.
static bool push_argument(lua_State *L, const cnn_module *m, const char *name) {
  if (!m->layer) return false;
  const cnn_spec *spec = cnn_layer_spec(m->layer);
  char word[24];
  int i = 0;
  while (i < spec->n && strcmp(spec->params[i].name, name) != 0) i++;
  if (i == spec->n) return false;
  const cnn_arg *a = &m->args[i];
  cnn_type type = (cnn_type)spec->params[i].type;
  bool shifted = type == CNN_T_DIM || type == CNN_T_LABEL || type == CNN_T_POS;
  switch (a->kind) {
  case CNN_NUMBER: lua_pushnumber(L, a->d); return true;
  case CNN_INT:
    if (type == CNN_T_BOOL)
      lua_pushboolean(L, a->i != 0);
    else if (type == CNN_T_ENUM && cnn_param_word(&spec->params[i], (int)a->i, word, sizeof word))
      lua_pushstring(L, word);
    else if (type == CNN_T_DTYPE)
      lua_pushstring(L, cnn_dtype_name((cnn_dtype)a->i));
    else if (type == CNN_T_DEVICE)
      lua_pushstring(L, cnn_device_name(cnn_device_decode(a->i)));
    else if (type == CNN_T_PADDING)
      lua_pushstring(L, a->i == CNN_PAD_SAME ? "same" : "valid");
    else
      cnn_pushint(L, a->i + (shifted && a->i >= 0));
    return true;
  case CNN_INTS:
    lua_createtable(L, a->n, 0);
    for (int k = 0; k < a->n; k++) cnn_pushint(L, a->ints[k]), lua_rawseti(L, -2, k + 1);
    return true;
  default: return false;
  }
}

// Pushes the tensor of an entry and keeps its box among the fields (at `fields`).
static int push_entry(lua_State *L, cnn_lua *S, const cnn_entry *e, int fields) {
  if (!e->tensor) {
    lua_pushnil(L);
    return 1;
  }
  cnn_push_known_tensor(L, S, e->tensor);
  lua_pushstring(L, e->name);
  lua_pushvalue(L, -2);
  lua_rawset(L, fields);
  return 1;
}

static const cnn_entry *nth_child(const cnn_module *m, int64_t n) {
  for (int i = 0; i < m->n_entries; i++)
    if (m->entries[i].child && --n == 0) return &m->entries[i];
  return NULL;
}

static int index_position(lua_State *L, cnn_lua *S, const cnn_module *m) {
  int64_t n = 0;
  int count = cnn_module_child_count(m);
  cnn_toint(L, 2, &n);
  if (n < 0) n += count + 1;
  const cnn_entry *e = n > 0 ? nth_child(m, n) : NULL;
  if (!e)
    return cnn_error(L, S, "module index %.14g is out of range: it has %d child%s (1..%d)",
                     (double)lua_tonumber(L, 2), count, count == 1 ? "" : "ren", count);
  cnn_getuv(L, 1);
  lua_getfield(L, -1, e->name);
  return 1;
}

// Upvalues: 1 the state, 2 the class (a table), or nil.
static int module_index(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_module *m = check_module(L, S, 1, "module");
  if (lua_type(L, 2) == LUA_TNUMBER) return index_position(L, S, m);
  cnn_getuv(L, 1);
  lua_pushvalue(L, 2);
  lua_rawget(L, 3);
  if (!lua_isnil(L, -1)) return 1;
  lua_pushvalue(L, 2);
  lua_gettable(L, lua_upvalueindex(2));
  if (!lua_isnil(L, -1)) return 1;
  const char *name = lua_tostring(L, 2);
  if (!name) return 0;
  if (strcmp(name, "training") == 0) {
    lua_pushboolean(L, m->training);
    return 1;
  }
  const cnn_entry *e = cnn_module_find(m, name);
  if (e && e->kind != CNN_ENTRY_CHILD) return push_entry(L, S, e, 3);
  return push_argument(L, m, name) ? 1 : 0;
}

// ---------------------------------------------------------------------------------------------
// Writing a field

static bool holds_modules(lua_State *L, int i) {
  bool found = false;
  lua_pushnil(L);
  while (!found && lua_next(L, i)) {
    cnn_box *box = cnn_to_box(L, -1, CNN_BOX_TENSOR);
    found = cnn_to_box(L, -1, CNN_BOX_MODULE) ||
            (box && box->object && ((cnn_tensor *)box->object)->flags & CNN_PARAMETER);
    lua_pop(L, found ? 2 : 1);
  }
  return found;
}

static int registered_name(lua_State *L, cnn_lua *S, const char *name, const cnn_entry *e) {
  static const char *const kinds[] = {"parameter", "buffer", "module"};
  char got[64];
  return cnn_error(L, S, "\"%s\" is a registered %s: assign a %s or nil, not %s", name,
                   kinds[e->kind], e->kind == CNN_ENTRY_PARAMETER ? "nn.Parameter" : kinds[e->kind],
                   cnn_describe(L, 3, got, sizeof got));
}

// Keeps value 3 among the fields under key 2.
static void keep_field(lua_State *L, cnn_lua *S) {
  cnn_scope_outlive(L, S, 3);
  cnn_getuv(L, 1);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

static int assign_named(lua_State *L, cnn_lua *S, cnn_module *m, const char *name) {
  cnn_box *module = cnn_to_box(L, 3, CNN_BOX_MODULE), *tensor = cnn_to_box(L, 3, CNN_BOX_TENSOR);
  cnn_entry *e = cnn_module_find(m, name);
  cnn_status status = CNN_OK;
  if (strcmp(name, "training") == 0) {
    if (lua_type(L, 3) != LUA_TBOOLEAN)
      return cnn_error(L, S, "training: expected true or false (see train() and eval())");
    m->training = lua_toboolean(L, 3) != 0;
    return 0;
  }
  if (tensor && !tensor->object) return cnn_error(L, S, "\"%s\": the tensor was freed", name);
  cnn_tensor *t = tensor ? tensor->object : NULL;
  if (module) {
    if (e && e->kind != CNN_ENTRY_CHILD) return registered_name(L, S, name, e);
    cnn_module *child = check_module(L, S, 3, name);
    CNN_WITH_ROOM(L, S, status, cnn_module_set_child(&S->ctx, m, name, child));
  } else if (t && t->flags & CNN_PARAMETER) {
    if (e && e->kind == CNN_ENTRY_CHILD) return registered_name(L, S, name, e);
    CNN_WITH_ROOM(L, S, status, cnn_module_set_parameter(&S->ctx, m, name, t));
  } else if (e && t && e->kind == CNN_ENTRY_BUFFER) {
    cnn_box_remember(L, S, 3);
    CNN_WITH_ROOM(L, S, status, cnn_module_set_buffer(&S->ctx, m, name, t, e->persistent));
  } else if (e && lua_isnil(L, 3)) {
    cnn_module_remove(m, name);
  } else if (e) {
    return registered_name(L, S, name, e);
  } else if (lua_type(L, 3) == LUA_TTABLE && holds_modules(L, 3)) {
    return cnn_error(L, S,
                     "\"%s\": modules and parameters in a plain table are not registered: use "
                     "nn.ModuleList{...} or nn.ModuleDict{...}",
                     name);
  }
  if (status != CNN_OK) return cnn_raise(L, S, status);
  keep_field(L, S);
  return 0;
}

static int module_newindex(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_module *m = check_module(L, S, 1, "module");
  int64_t n;
  if (cnn_toint(L, 2, &n)) { // model[i] = module replaces the i-th child
    const cnn_entry *e = n > 0 ? nth_child(m, n) : NULL;
    int count = cnn_module_child_count(m);
    if (!e)
      return cnn_error(L, S,
                       "module index %.14g is out of range: it has %d children; append adds one",
                       (double)n, count);
    lua_pushstring(L, e->name);
    lua_replace(L, 2);
  }
  if (lua_type(L, 2) != LUA_TSTRING) {
    keep_field(L, S);
    return 0;
  }
  size_t length;
  const char *name = lua_tolstring(L, 2, &length);
  if (strlen(name) != length &&
      (cnn_to_box(L, 3, CNN_BOX_MODULE) || cnn_to_box(L, 3, CNN_BOX_TENSOR)))
    return cnn_error(L, S, "\"%s...\" can't be an entry's name: it has a zero byte in it", name);
  return assign_named(L, S, m, name);
}

// ---------------------------------------------------------------------------------------------
// Making modules

// Upvalues: 1 the state, 2 nil, 3 the layer's number.
static int layer_new(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int id = (int)lua_tointeger(L, lua_upvalueindex(3));
  const cnn_layer *layer = cnn_layer_at(id);
  cnn_lua_args a;
  cnn_module *m;
  cnn_status status;
  cnn_pace(L, S);
  cnn_read_args(L, S, layer->name, cnn_layer_spec(layer), 1, &a);
  cnn_box *box = push_module_box(L, S);
  CNN_WITH_ROOM(L, S, status, cnn_module_create(&S->ctx, layer, a.args, a.n, &m));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = m;
  return 1;
}

// module_foreign(metatable): an empty module of a Lua class.
static int l_foreign(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_module *m;
  luaL_checktype(L, 1, LUA_TTABLE);
  cnn_box *box = push_module_box(L, S);
  cnn_status status;
  CNN_WITH_ROOM(L, S, status, cnn_module_create_foreign(&S->ctx, &m));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = m;
  lua_pushvalue(L, 1);
  lua_setmetatable(L, -2);
  return 1;
}

static void set_metamethods(lua_State *L, cnn_lua *S, int metatable, int class) {
  static const struct {
    const char *name;
    lua_CFunction f;
  } list[] = {{"__index", module_index},
              {"__newindex", module_newindex},
              {"__gc", module_gc},
              {"__eq", module_eq},
              {"__len", module_len}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    lua_pushlightuserdata(L, S);
    lua_pushvalue(L, class);
    lua_pushcclosure(L, list[i].f, 2);
    lua_setfield(L, metatable, list[i].name);
  }
}

// module_class(class): the metatable of its instances; methods are looked up in `class`.
static int l_class(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_newtable(L);
  set_metamethods(L, S, lua_gettop(L), 1);
  return 1;
}

// parameter(t, requires_grad): a new handle on t's bytes that modules list and optimizers train.
static int l_parameter(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "Parameter", "argument 1"), *p;
  bool wants = lua_isnoneornil(L, 2) || lua_toboolean(L, 2);
  if (!cnn_dtype_is_float((cnn_dtype)t->dtype))
    return cnn_error(L, S, "Parameter: a parameter must be of a float dtype, not %s",
                     cnn_dtype_name((cnn_dtype)t->dtype));
  cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  cnn_status status;
  CNN_WITH_ROOM(L, S, status, cnn_tensor_alias(&S->ctx, t, &p));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  p->flags |= CNN_PARAMETER | (wants ? CNN_REQUIRES_GRAD : 0);
  p->flags &= (uint16_t)~CNN_INFERENCE;
  cnn_buffer_retag(p->buffer, CNN_KIND_PARAMETER);
  box->object = p;
  cnn_box_remember(L, S, -1);
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Registering by hand

static int l_register(lua_State *L) {
  // register(m, name, tensor or nil, kind: "parameter" | "buffer", persistent)
  cnn_lua *S = cnn_state(L);
  cnn_module *m = check_module(L, S, 1, "register");
  const char *name = luaL_checkstring(L, 2), *kind = luaL_checkstring(L, 4);
  cnn_tensor *t = lua_isnil(L, 3) ? NULL : cnn_check_tensor(L, S, 3, "register", name);
  bool persistent = lua_isnoneornil(L, 5) || lua_toboolean(L, 5);
  if (t) cnn_box_remember(L, S, 3);
  bool buffer = strcmp(kind, "buffer") == 0;
  cnn_status status;
  CNN_WITH_ROOM(L, S, status,
                buffer ? cnn_module_set_buffer(&S->ctx, m, name, t, persistent)
                       : cnn_module_set_parameter(&S->ctx, m, name, t));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  keep_field(L, S);
  return 0;
}

// append(m, child): under the next number.
static int l_append(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_module *m = check_module(L, S, 1, "append");
  char name[16];
  snprintf(name, sizeof name, "%d", cnn_module_child_count(m));
  cnn_module *child = check_module(L, S, 2, "append");
  cnn_status status;
  CNN_WITH_ROOM(L, S, status, cnn_module_set_child(&S->ctx, m, name, child));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  cnn_getuv(L, 1);
  lua_pushvalue(L, 2);
  lua_setfield(L, -2, name);
  return 0;
}

// ---------------------------------------------------------------------------------------------
// The tree

typedef struct found {
  int n;
  size_t text_size;
  char *text;
  struct {
    cnn_tensor *t;
    const char *path;
    bool persistent;
  } * list;
} found;

static cnn_status count_tensor(void *arg, cnn_tensor *t, const char *path, const cnn_entry *e) {
  found *f = arg;
  (void)t;
  (void)e;
  f->n++;
  f->text_size += strlen(path) + 1;
  return CNN_OK;
}

static cnn_status note_tensor(void *arg, cnn_tensor *t, const char *path, const cnn_entry *e) {
  found *f = arg;
  size_t n = strlen(path) + 1;
  char *copy = memcpy(f->text + f->text_size, path, n);
  f->text_size += n;
  f->list[f->n].t = t;
  f->list[f->n].path = copy;
  f->list[f->n++].persistent = e->persistent;
  return CNN_OK;
}

// tensors(m, "parameter" | "buffer", duplicates): names, tensors, persistent flags, as three lists.
static int l_tensors(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_module *m = check_module(L, S, 1, "parameters");
  cnn_entry_kind kind =
      strcmp(luaL_checkstring(L, 2), "buffer") == 0 ? CNN_ENTRY_BUFFER : CNN_ENTRY_PARAMETER;
  bool duplicates = lua_toboolean(L, 3) != 0;
  found f;
  cnn_status status;
  CNN_WITH_ROOM(L, S, status,
                (f = (found){0},
                 cnn_module_tensors(&S->ctx, m, kind, duplicates, count_tensor, &f)));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  // Nothing may raise while the core walks: it writes into memory of Lua's, made beforehand.
  f.list = cnn_newud(L, (size_t)(f.n + 1) * sizeof *f.list, 0);
  f.text = cnn_newud(L, f.text_size + 1, 0);
  CNN_WITH_ROOM(L, S, status,
                (f.n = 0, f.text_size = 0,
                 cnn_module_tensors(&S->ctx, m, kind, duplicates, note_tensor, &f)));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  lua_createtable(L, f.n, 0), lua_createtable(L, f.n, 0), lua_createtable(L, f.n, 0);
  int names = lua_gettop(L) - 2;
  for (int i = 0; i < f.n; i++) {
    lua_pushstring(L, f.list[i].path), lua_rawseti(L, names, i + 1);
    cnn_push_known_tensor(L, S, f.list[i].t), lua_rawseti(L, names + 1, i + 1);
    lua_pushboolean(L, f.list[i].persistent), lua_rawseti(L, names + 2, i + 1);
  }
  return 3;
}

// children(m): names and modules, as two lists, in order.
static int l_children(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_module *m = check_module(L, S, 1, "children");
  cnn_getuv(L, 1);
  int fields = lua_gettop(L), n = 0;
  lua_newtable(L), lua_newtable(L);
  for (int i = 0; i < m->n_entries; i++) {
    if (!m->entries[i].child) continue;
    lua_pushstring(L, m->entries[i].name);
    lua_rawseti(L, -3, ++n);
    lua_getfield(L, fields, m->entries[i].name);
    lua_rawseti(L, -2, n);
  }
  return 2;
}

// own(m): names, tensors (or false) and kinds of the entries of this module alone.
static int l_own(lua_State *L) {
  static const char *const kinds[] = {"parameter", "buffer", "child"};
  cnn_lua *S = cnn_state(L);
  cnn_module *m = check_module(L, S, 1, "entries");
  lua_newtable(L), lua_newtable(L), lua_newtable(L);
  int kind_list = lua_gettop(L);
  for (int i = 0; i < m->n_entries; i++) {
    const cnn_entry *e = &m->entries[i];
    lua_pushstring(L, e->name);
    lua_rawseti(L, kind_list - 2, i + 1);
    if (e->tensor)
      cnn_push_known_tensor(L, S, e->tensor);
    else
      lua_pushboolean(L, 0);
    lua_rawseti(L, kind_list - 1, i + 1);
    lua_pushstring(L, kinds[e->kind]);
    lua_rawseti(L, kind_list, i + 1);
  }
  return 3;
}

static int l_train(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_module *m = check_module(L, S, 1, "train");
  S->ctx.op = "train";
  cnn_status status = cnn_module_train(&S->ctx, m, lua_toboolean(L, 2) != 0);
  S->ctx.op = NULL;
  if (status != CNN_OK) return cnn_raise(L, S, status);
  return 0;
}

// to(m, dtype or nil, device or nil, memory_format or nil)
static int l_to(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_module *m = check_module(L, S, 1, "to");
  cnn_dtype dtype = lua_isnoneornil(L, 2) ? CNN_DTYPE_COUNT : cnn_check_dtype(L, S, 2, "to");
  cnn_device device = {CNN_CPU, 0};
  const char *format = luaL_optstring(L, 4, "");
  bool moves = !lua_isnoneornil(L, 3);
  cnn_status status;
  if (moves) device = cnn_check_device(L, S, 3, "to");
  if (dtype != CNN_DTYPE_COUNT && !cnn_dtype_is_float(dtype))
    return cnn_error(L, S, "to: a module's parameters are floats: %s is none",
                     cnn_dtype_name(dtype));
  int layout = strcmp(format, "channels_last") == 0 ? 2 : strcmp(format, "contiguous") == 0 ? 1 : 0;
  if (*format && !layout)
    return cnn_error(L, S, "to: memory_format is \"contiguous\" or \"channels_last\"");
  S->ctx.op = "to";
  CNN_WITH_ROOM(L, S, status, cnn_module_to(&S->ctx, m, dtype, moves ? &device : NULL, layout));
  S->ctx.op = NULL;
  if (status != CNN_OK) return cnn_raise(L, S, status);
  return 0;
}

// ---------------------------------------------------------------------------------------------
// Calls

static int read_inputs(lua_State *L, cnn_lua *S, const cnn_module *m, cnn_tensor **in) {
  int n = lua_gettop(L) - 1;
  const char *name = m->layer ? m->layer->name : "module";
  if (n > 4) cnn_error(L, S, "%s: too many arguments", name);
  for (int i = 0; i < n; i++) {
    char argument[32];
    snprintf(argument, sizeof argument, "argument %d", i + 1);
    in[i] = cnn_check_tensor(L, S, i + 2, name, argument);
  }
  return n;
}

// call(m, x ...): the result, or nil when some module of the tree is Lua's to compute.
static int l_call(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_module *m = check_module(L, S, 1, "module");
  cnn_tensor *in[4];
  cnn_forward *fw;
  cnn_results r;
  cnn_status status;
  if (!cnn_module_is_native(m)) return 0;
  cnn_pace(L, S);
  int n = read_inputs(L, S, m, in);
  cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  CNN_WITH_ROOM(L, S, status, cnn_forward_create(&S->ctx, m, in, n, &fw));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  CNN_WITH_ROOM(L, S, status, cnn_forward_run(fw, &r));
  cnn_forward_free(fw);
  if (status != CNN_OK) return cnn_raise(L, S, status);
  cnn_box_result(S, box, r.t[0]);
  return 1;
}

static cnn_status compute(cnn_lua *S, cnn_module *m, cnn_tensor *const *in, cnn_tensor **out) {
  cnn_frame f;
  cnn_results r;
  const char *outer = S->ctx.op;
  S->ctx.op = m->layer->name;
  cnn_results_init(&r, &S->ctx);
  cnn_frame_open(&f, &S->ctx);
  cnn_module_compute(&f, m, in, &r);
  cnn_status status = cnn_frame_close(&f);
  if (status == CNN_OK) *out = cnn_ref(r.t[0]);
  cnn_results_free(&r);
  S->ctx.op = outer;
  return status;
}

// compute(m, x ...): a layer's own computation, whatever hooks it has.
static int l_compute(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_module *m = check_module(L, S, 1, "module");
  cnn_tensor *in[4], *out;
  cnn_status status;
  if (!m->layer || m->layer->n_inputs == 0)
    return cnn_error(L, S, "%s has no forward: call the modules in it",
                     m->layer ? m->layer->name : "the module");
  cnn_pace(L, S);
  int n = read_inputs(L, S, m, in);
  if (n != m->layer->n_inputs)
    return cnn_error(L, S, "%s: takes %d tensor%s, got %d", m->layer->name, m->layer->n_inputs,
                     m->layer->n_inputs == 1 ? "" : "s", n);
  cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  CNN_WITH_ROOM(L, S, status, compute(S, m, in, &out));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  cnn_box_result(S, box, out);
  return 1;
}

// is_native(m): whether a call runs in C alone: no Lua class and no hook in the tree.
static int l_is_native(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  lua_pushboolean(L, cnn_module_is_native(check_module(L, S, 1, "module_is_native")));
  return 1;
}

static int l_set_hooked(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  check_module(L, S, 1, "register_forward_hook")->hooked = lua_toboolean(L, 2) != 0;
  return 0;
}

static int l_fields(lua_State *L) {
  check_module(L, cnn_state(L), 1, "module");
  cnn_getuv(L, 1);
  return 1;
}

static int l_is_module(lua_State *L) {
  cnn_state(L);
  lua_pushboolean(L, cnn_to_box(L, 1, CNN_BOX_MODULE) != NULL);
  return 1;
}

static int l_layer_name(lua_State *L) {
  const cnn_module *m = check_module(L, cnn_state(L), 1, "module");
  if (m->layer)
    lua_pushstring(L, m->layer->name);
  else
    lua_pushnil(L);
  return 1;
}

// arguments(m): names and values of the constructor's arguments, as two lists, in order.
static int l_arguments(lua_State *L) {
  const cnn_module *m = check_module(L, cnn_state(L), 1, "module");
  int n = 0;
  lua_newtable(L), lua_newtable(L);
  const cnn_spec *spec = m->layer ? cnn_layer_spec(m->layer) : NULL;
  for (int i = 0; spec && i < spec->n; i++) {
    if (!push_argument(L, m, spec->params[i].name)) continue;
    lua_rawseti(L, -2, ++n);
    lua_pushstring(L, spec->params[i].name);
    lua_rawseti(L, -3, n);
  }
  return 2;
}

// swap(a, b): a and b exchange what they look at (for running a model on other tensors for a
// while). Needs no memory, so that it can't fail.
static int l_swap(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *a = cnn_check_tensor(L, S, 1, "swap", "argument 1");
  cnn_tensor *b = cnn_check_tensor(L, S, 2, "swap", "argument 2");
  cnn_tensor saved = *a; // no object of its own: only what a looks at
  cnn_ref(saved.buffer);
  cnn_tensor_swap(a, b);
  cnn_tensor_swap(b, &saved);
  cnn_unref(saved.buffer);
  return 0;
}

// layer_specs(): for each built-in layer its name, arguments, doc and op.
static int l_layers(lua_State *L) {
  cnn_state(L);
  lua_newtable(L);
  for (int i = 0; i < cnn_layer_count(); i++) {
    const cnn_layer *layer = cnn_layer_at(i);
    lua_newtable(L);
    lua_pushstring(L, layer->name), lua_setfield(L, -2, "name");
    cnn_push_params(L, cnn_layer_spec(layer)), lua_setfield(L, -2, "params");
    lua_pushstring(L, layer->doc), lua_setfield(L, -2, "doc");
    if (layer->op) lua_pushstring(L, layer->op), lua_setfield(L, -2, "op");
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

void cnn_open_module(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"module_foreign", l_foreign},
                                           {"module_class", l_class},
                                           {"module_register", l_register},
                                           {"module_append", l_append},
                                           {"module_tensors", l_tensors},
                                           {"module_children", l_children},
                                           {"module_own", l_own},
                                           {"module_train", l_train},
                                           {"module_to", l_to},
                                           {"module_call", l_call},
                                           {"module_compute", l_compute},
                                           {"module_is_native", l_is_native},
                                           {"module_set_hooked", l_set_hooked},
                                           {"module_fields", l_fields},
                                           {"module_layer", l_layer_name},
                                           {"module_arguments", l_arguments},
                                           {"is_module", l_is_module},
                                           {"parameter", l_parameter},
                                           {"tensor_swap", l_swap},
                                           {"layer_specs", l_layers},
                                           {NULL, NULL}};
  cnn_set_functions(L, S, functions);
  lua_newtable(L); // constructors of the built-in layers
  for (int i = 0; i < cnn_layer_count(); i++) {
    lua_pushlightuserdata(L, S);
    lua_pushnil(L);
    lua_pushinteger(L, i);
    lua_pushcclosure(L, layer_new, 3);
    lua_setfield(L, -2, cnn_layer_at(i)->name);
  }
  lua_setfield(L, -2, "layers");
  lua_newtable(L); // methods of built-in layers; filled from Lua
  int methods = lua_gettop(L);
  cnn_push_metatable(L, S, CNN_BOX_MODULE);
  set_metamethods(L, S, lua_gettop(L), methods);
  lua_setfield(L, methods - 1, "module_metatable");
  lua_setfield(L, -2, "module_methods");
}
