// SPDX-License-Identifier: MIT
// Autograd for scripts: backward and grad, functions and hooks on the tape, modes.
//
// The engine never calls Lua: it returns, this file calls the function with no frame of the core on
// the C stack, and answers. Lua functions that the tape holds are registry references.
#include "lua/state.h"

#include <string.h>

#include "base/alloc.h"
#include "engine/backward.h"
#include "engine/history.h"
#include "engine/node.h"
#include "engine/watch.h"

// ---------------------------------------------------------------------------------------------
// Nodes

void cnn_push_node(lua_State *L, cnn_lua *S, void *node) {
  cnn_box *box = cnn_push_box(L, S, CNN_BOX_NODE);
  box->object = cnn_ref(node);
}

static int node_gc(lua_State *L) {
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_NODE);
  if (!box) return 0;
  void *object = box->object;
  box->object = NULL;
  cnn_unref(object);
  return 0;
}

static cnn_node *check_node(lua_State *L, cnn_lua *S) {
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_NODE);
  if (!box || !box->object) cnn_error(L, S, "grad_fn: expected a graph node");
  return box->object;
}

static int node_eq(lua_State *L) {
  cnn_box *a = cnn_to_box(L, 1, CNN_BOX_NODE), *b = cnn_to_box(L, 2, CNN_BOX_NODE);
  lua_pushboolean(L, a && b && a->object == b->object);
  return 1;
}

// node_info(node): name, sequence (an id), released, origin, saved = list of {shape, dtype, bytes,
// is_input, packed, storage, address}. Tensors that share bytes have one number for `storage`, and
// one address, of its first byte.
static int l_node_info(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_node *node = check_node(L, S);
  char name[80];
  lua_newtable(L);
  lua_pushstring(L, cnn_node_name(node, name, sizeof name)), lua_setfield(L, -2, "name");
  cnn_pushint(L, (int64_t)node->sequence), lua_setfield(L, -2, "sequence");
  lua_pushboolean(L, node->released), lua_setfield(L, -2, "released");
  if (node->origin) lua_pushstring(L, node->origin), lua_setfield(L, -2, "origin");
  lua_newtable(L);
  int n = 0;
  for (int i = 0; i < node->n_in + node->n_out + node->n_kept; i++) {
    const cnn_tensor *t = node->saved[i].t;
    if (!t) continue;
    lua_newtable(L);
    cnn_push_shape(L, S, t->ndim, t->shape), lua_setfield(L, -2, "shape");
    lua_pushstring(L, cnn_dtype_name((cnn_dtype)t->dtype)), lua_setfield(L, -2, "dtype");
    cnn_pushint(L, cnn_numel(t) * (int64_t)cnn_dtype_size((cnn_dtype)t->dtype));
    lua_setfield(L, -2, "bytes");
    lua_pushboolean(L, i < node->n_in || node->saved[i].tie < 0), lua_setfield(L, -2, "is_input");
    lua_pushboolean(L, node->saved[i].packed), lua_setfield(L, -2, "packed");
    cnn_pushint(L, (int64_t)(uintptr_t)t->buffer), lua_setfield(L, -2, "storage");
    cnn_pushint(L, (int64_t)(uintptr_t)t->buffer->data), lua_setfield(L, -2, "address");
    lua_rawseti(L, -2, ++n);
  }
  lua_setfield(L, -2, "saved");
  return 1;
}

// node_next(node): a list of nodes and leaf tensors, in order of the inputs that have either.
static int l_node_next(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_node *node = check_node(L, S);
  int n = 0;
  lua_newtable(L);
  for (int i = 0; i < node->n_in; i++) {
    if (node->edges[i].node)
      cnn_push_node(L, S, node->edges[i].node);
    else if (node->edges[i].leaf)
      cnn_push_known_tensor(L, S, node->edges[i].leaf);
    else
      continue;
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Running the engine

static int engine_gc(lua_State *L) {
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_ENGINE);
  if (!box) return 0;
  cnn_engine *e = box->object;
  box->object = NULL;
  cnn_engine_free(e);
  return 0;
}

// Calls the host function that the engine asks for. Gradients go in and out as tensors.
static void call_host(lua_State *L, cnn_lua *S, cnn_box *box) {
  cnn_engine *e = box->object;
  const cnn_engine_call *call = cnn_engine_pending(e);
  int base = lua_gettop(L), n_in = call->n_in, n_out = call->n_out;
  luaL_checkstack(L, n_in + n_out + 8, "backward");
  lua_rawgeti(L, LUA_REGISTRYINDEX, (int)call->function);
  for (int i = 0; i < n_in; i++) {
    if (!call->in[i]) {
      lua_pushnil(L);
      continue;
    }
    cnn_push_metatable(L, S, CNN_BOX_TENSOR);
    cnn_box *grad = cnn_push_tensor_box(L, S, -1);
    lua_remove(L, -2);
    grad->object = cnn_ref(call->in[i]);
  }
  bool grad_enabled = S->ctx.grad_enabled;
  void *engine = S->ctx.engine;
  uint16_t origin = S->ctx.origin;
  S->ctx.grad_enabled = call->create_graph;
  S->ctx.engine = e;
  int failed = lua_pcall(L, n_in, n_out, 0);
  S->ctx.grad_enabled = grad_enabled;
  S->ctx.origin = origin;
  S->ctx.engine = engine;
  S->L = L;
  if (failed) {
    box->object = NULL;
    cnn_engine_free(e);
    lua_error(L);
  }
  cnn_tensor **results = cnn_newud(L, (size_t)(n_out + 1) * sizeof *results, 0);
  for (int i = 0; i < n_out; i++) {
    cnn_box *r = cnn_to_box(L, base + 1 + i, CNN_BOX_TENSOR);
    if ((!r || !r->object) && !lua_isnil(L, base + 1 + i)) {
      char got[64];
      const char *who = call->hook ? "hook" : "function's backward";
      box->object = NULL;
      cnn_engine_free(e);
      cnn_error(L, S, "backward: a %s must return tensors or nil, not %s", who,
                cnn_describe(L, base + 1 + i, got, sizeof got));
    }
    results[i] = r ? r->object : NULL;
  }
  bool transient = !call->hook && call->node && call->node->transient;
  cnn_status status = cnn_engine_answer(e, results, n_out);
  // Handles that nobody else has would only keep the engine from adding in place.
  for (int i = 0; i < n_out && transient; i++) {
    cnn_box *r = cnn_to_box(L, base + 1 + i, CNN_BOX_TENSOR);
    if (!r) continue;
    void *object = r->object;
    cnn_box_unlink(r);
    r->object = NULL;
    cnn_unref(object);
  }
  lua_settop(L, base);
  if (status == CNN_OK) return;
  box->object = NULL;
  cnn_engine_free(e);
  cnn_raise(L, S, status);
}

static void run_engine(lua_State *L, cnn_lua *S, cnn_box *box) {
  for (;;) {
    cnn_status status;
    CNN_WITH_ROOM(L, S, status, cnn_engine_run(box->object));
    if (status == CNN_OK) return;
    if (status == CNN_CALL) {
      call_host(L, S, box);
      continue;
    }
    cnn_engine *e = box->object;
    box->object = NULL;
    cnn_engine_free(e);
    cnn_raise(L, S, status);
  }
}

// A list of tensors, or one, at stack index i, into a scratch userdata.
static cnn_tensor **read_tensors(lua_State *L, cnn_lua *S, int i, const char *function,
                                 const char *what, bool holes, int expected, int *n) {
  if (cnn_to_box(L, i, CNN_BOX_TENSOR)) {
    cnn_tensor **list = cnn_newud(L, sizeof *list, 0);
    *n = 1;
    list[0] = cnn_check_tensor(L, S, i, function, what);
    return list;
  }
  if (lua_type(L, i) != LUA_TTABLE) {
    char got[64];
    cnn_error(L, S, "%s: %s: expected a tensor or a list of tensors, got %s", function, what,
              cnn_describe(L, i, got, sizeof got));
  }
  *n = expected > 0 ? expected : (int)cnn_rawlen(L, i);
  cnn_tensor **list = cnn_newud(L, (size_t)(*n + 1) * sizeof *list, 0);
  for (int k = 0; k < *n; k++) {
    lua_rawgeti(L, i, k + 1);
    list[k] = holes && lua_isnil(L, -1) ? NULL : cnn_check_tensor(L, S, -1, function, what);
    lua_pop(L, 1);
  }
  return list;
}

static unsigned flag(lua_State *L, int options, const char *name, unsigned bit) {
  if (!lua_istable(L, options)) return 0;
  lua_getfield(L, options, name);
  unsigned on = lua_toboolean(L, -1) ? bit : 0;
  lua_pop(L, 1);
  return on;
}

static void check_options(lua_State *L, cnn_lua *S, int options, const char *function,
                          const char *names) {
  if (!lua_istable(L, options)) return;
  lua_pushnil(L);
  while (lua_next(L, options)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?", *at = names;
    while (*at && strcmp(at, key) != 0) at += strlen(at) + 1;
    if (!*at) {
      const char *near = cnn_nearest(key, names);
      cnn_error(L, S, "%s: unknown option \"%s\"%s%s%s", function, key,
                near ? ": did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    lua_pop(L, 1);
  }
}

// x:backward(gradient, {retain_graph, create_graph, gradient})
static int l_backward(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *x = cnn_check_tensor(L, S, 1, "backward", "argument 1"), *gradient = NULL;
  cnn_engine *e;
  cnn_status status;
  int options = lua_gettop(L) >= 2 && lua_type(L, 2) == LUA_TTABLE ? 2 : 3;
  lua_settop(L, 3);
  if (options == 3 && !lua_isnil(L, 2))
    gradient = cnn_check_tensor(L, S, 2, "backward", "argument 2 (gradient)");
  if (!lua_isnil(L, 3) && !lua_istable(L, 3))
    return cnn_error(L, S, "backward: argument 3: expected a table of options");
  check_options(L, S, options, "backward", "retain_graph\0create_graph\0gradient\0");
  if (lua_istable(L, options)) {
    lua_getfield(L, options, "gradient");
    if (!lua_isnil(L, -1)) gradient = cnn_check_tensor(L, S, -1, "backward", "gradient");
  }
  unsigned flags = flag(L, options, "retain_graph", CNN_BACKWARD_RETAIN) |
                   flag(L, options, "create_graph", CNN_BACKWARD_CREATE);
  cnn_pace_backward(L, S);
  cnn_box *box = cnn_push_box(L, S, CNN_BOX_ENGINE);
  CNN_WITH_ROOM(L, S, status,
                cnn_engine_create(&S->ctx, &x, gradient ? &gradient : NULL, 1, NULL, 0, flags, &e));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = e;
  run_engine(L, S, box);
  box->object = NULL;
  cnn_engine_free(e);
  return 0;
}

static int push_gradients(lua_State *L, cnn_lua *S, cnn_box *box, int n, bool allow_unused) {
  cnn_engine *e = box->object;
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    cnn_tensor *g = cnn_engine_gradient(e, i);
    if (!g && !allow_unused) {
      box->object = NULL;
      cnn_engine_free(e);
      return cnn_error(L, S,
                       "grad: the outputs do not depend on input %d; {allow_unused = true} gives "
                       "nil for it",
                       i + 1);
    }
    if (!g) continue;
    cnn_box *r = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
    r->object = cnn_ref(g);
    lua_rawseti(L, -2, i + 1);
  }
  box->object = NULL;
  cnn_engine_free(e);
  return 1;
}

// _grad(outputs, inputs, grad_outputs or nil, flags, allow_unused): a list.
static int l_grad(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int n_out, n_in, n_grads = 0;
  cnn_engine *e;
  cnn_status status;
  lua_settop(L, 5);
  cnn_tensor **outputs = read_tensors(L, S, 1, "grad", "argument 1 (outputs)", false, 0, &n_out);
  cnn_tensor **inputs = read_tensors(L, S, 2, "grad", "argument 2 (inputs)", false, 0, &n_in);
  cnn_tensor **grads = NULL;
  if (!lua_isnil(L, 3))
    grads = read_tensors(L, S, 3, "grad", "grad_outputs", true, n_out, &n_grads);
  // Holes stand for 1, so that a list may be shorter than the outputs.
  if (lua_istable(L, 3) && (int)cnn_rawlen(L, 3) > n_out) n_grads = (int)cnn_rawlen(L, 3);
  if (grads && n_grads != n_out)
    return cnn_error(L, S, "grad: %d grad_outputs for %d outputs", n_grads, n_out);
  if (n_in == 0) return cnn_error(L, S, "grad: no inputs are given");
  unsigned flags = (unsigned)lua_tointeger(L, 4);
  cnn_pace(L, S);
  cnn_box *box = cnn_push_box(L, S, CNN_BOX_ENGINE);
  CNN_WITH_ROOM(L, S, status,
                cnn_engine_create(&S->ctx, outputs, grads, n_out, inputs, n_in, flags, &e));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = e;
  run_engine(L, S, box);
  return push_gradients(L, S, box, n_in, lua_toboolean(L, 5));
}

// ---------------------------------------------------------------------------------------------
// Functions and hooks on the tape

// The list at index i of tensors and holes, `n` long, as what a host function keeps; ties are
// numbers in the list after it.
static cnn_kept *read_kept(lua_State *L, cnn_lua *S, int i, const char *title, int n) {
  cnn_kept *kept = cnn_newud(L, (size_t)(n + 1) * sizeof *kept, 0);
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, i, k + 1);
    lua_rawgeti(L, i + 1, k + 1);
    kept[k].t = lua_isnil(L, -2) ? NULL : cnn_check_tensor(L, S, -2, title, "a saved tensor");
    kept[k].tie = (int)lua_tointeger(L, -1);
    lua_pop(L, 2);
  }
  return kept;
}

// attach{title =, backward =, inputs =, outputs =, saved =, ties =, transient =}: the outputs
// become results of a host function that keeps the saved tensors (a list with holes, `saved.n`
// long). A tie says that a saved tensor is output number k, or input number -k. transient: nobody
// else holds the gradients that backward gives.
static int l_attach(lua_State *L) {
  static const char *const fields[] = {"title", "backward", "inputs",   "outputs",
                                       "saved", "ties",     "transient"};
  cnn_lua *S = cnn_state(L);
  int n_in, n_out;
  cnn_node *node;
  cnn_status status;
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  for (int i = 0; i < 7; i++) lua_getfield(L, 1, fields[i]);
  lua_remove(L, 1);
  const char *title = luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_getfield(L, 5, "n");
  int n_kept = (int)lua_tointeger(L, -1);
  cnn_tensor **in = read_tensors(L, S, 3, title, "the inputs", false, 0, &n_in);
  cnn_tensor **out = read_tensors(L, S, 4, title, "the outputs", false, 0, &n_out);
  cnn_kept *kept = read_kept(L, S, 5, title, n_kept);
  for (int i = 0; i < n_out; i++)
    if (cnn_requires_grad(out[i]))
      return cnn_error(L, S, "%s: output %d already has a history: return a new tensor", title,
                       i + 1);
  lua_pushvalue(L, 2);
  int function = luaL_ref(L, LUA_REGISTRYINDEX);
  CNN_WITH_ROOM(L, S, status,
                cnn_node_create_host(&S->ctx, function, title, in, n_in, out, n_out, kept, n_kept,
                                     &node));
  if (status != CNN_OK) {
    luaL_unref(L, LUA_REGISTRYINDEX, function);
    return cnn_raise(L, S, status);
  }
  node->transient = lua_toboolean(L, 7);
  for (int i = 0; i < n_out; i++)
    if (cnn_dtype_is_float((cnn_dtype)out[i]->dtype)) cnn_node_attach(node, i, out[i]);
  cnn_unref(node);
  return 0;
}

// saved(k): inside a host function's backward, what it keeps as number k (nil: a hole). With
// gradients on, as part of the graph.
static int l_saved(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int k = (int)luaL_checkinteger(L, 1) - 1;
  const cnn_engine_call *call = S->ctx.engine ? cnn_engine_pending(S->ctx.engine) : NULL;
  cnn_node *node = call && !call->hook ? call->node : NULL;
  cnn_tensor *t = NULL;
  cnn_status status;
  if (!node || k < 0 || k >= node->n_kept)
    return cnn_error(L, S, "saved: saved tensors are there in backward, which is not running");
  cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  CNN_WITH_ROOM(L, S, status, cnn_node_unpack_kept(&S->ctx, node, k, &t));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = t;
  if (!t) {
    lua_pushnil(L);
  } else if (t->flags & CNN_REQUIRES_GRAD) { // a leaf has one handle
    cnn_push_known_tensor(L, S, t);
    cnn_box_unlink(box);
    box->object = NULL;
    cnn_unref(t);
  }
  return 1;
}

// wants_record(...): whether a function of these values belongs on the tape: gradients are on and a
// tensor among them wants one.
static int l_wants_record(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  bool wants = false;
  for (int i = 1; i <= lua_gettop(L); i++) {
    cnn_box *box = cnn_to_box(L, i, CNN_BOX_TENSOR);
    cnn_tensor *t = box ? box->object : NULL;
    cnn_status status = CNN_OK;
    if (t && S->ctx.watch) status = cnn_watch_note(&S->ctx, S->ctx.watch, &t, 1);
    if (status != CNN_OK) return cnn_raise(L, S, status);
    wants = wants || cnn_wants_record(&S->ctx, &t, 1);
  }
  lua_pushboolean(L, wants);
  return 1;
}

// ---------------------------------------------------------------------------------------------
// A checkpoint's first pass

static int watch_gc(lua_State *L) {
  cnn_watch_free(lua_touserdata(L, 1));
  return 0;
}

static const char watch_key;

static cnn_watch *push_watch(lua_State *L, cnn_lua *S) {
  cnn_watch *w = cnn_newud(L, sizeof *w, 0);
  cnn_watch_init(w, &S->ctx);
  lua_pushlightuserdata(L, (void *)(uintptr_t)&watch_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  lua_setmetatable(L, -2);
  return w;
}

// first_pass(fn, ...): calls fn(...) with gradients off. Gives a list of the tensors that it used
// and that want a gradient, a list of where in it each argument is (false: nowhere), and fn's
// results.
static int l_first_pass(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int n_args = lua_gettop(L) - 1;
  luaL_checkstack(L, n_args + 8, "checkpoint");
  cnn_watch *w = push_watch(L, S);
  lua_insert(L, 1);
  lua_newtable(L);
  lua_insert(L, 2);
  lua_createtable(L, n_args, 0);
  lua_insert(L, 3);
  for (int i = 1; i <= n_args; i++) {
    cnn_box *box = cnn_to_box(L, 4 + i, CNN_BOX_TENSOR);
    cnn_tensor *t = box ? cnn_check_tensor(L, S, 4 + i, "checkpoint", "an argument") : NULL;
    cnn_status status = cnn_watch_note(&S->ctx, w, &t, 1);
    if (status != CNN_OK) return cnn_raise(L, S, status);
    int at = t && cnn_requires_grad(t) ? cnn_watch_find(w, t) : -1;
    if (at >= 0)
      cnn_pushint(L, at + 1);
    else
      lua_pushboolean(L, false);
    lua_rawseti(L, 3, i);
  }
  bool grad_enabled = S->ctx.grad_enabled;
  void *outer = S->ctx.watch;
  S->ctx.grad_enabled = false;
  S->ctx.watch = w;
  int failed = lua_pcall(L, n_args, LUA_MULTRET, 0);
  S->ctx.grad_enabled = grad_enabled;
  S->ctx.watch = outer;
  S->L = L;
  if (failed) return lua_error(L);
  luaL_checkstack(L, 4, "checkpoint");
  for (int i = 0; i < w->n; i++) {
    cnn_tensor *t = w->list[i];
    if (t->grad_fn) {
      cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
      cnn_box_unlink(box);
      box->object = cnn_ref(t);
    } else {
      cnn_push_known_tensor(L, S, t);
    }
    lua_rawseti(L, 2, i + 1);
  }
  cnn_watch_free(w); // its references would last until the next collection
  return lua_gettop(L) - 1;
}

static int l_register_hook(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "register_hook", "argument 1 (x)");
  int64_t id;
  cnn_status status;
  if (lua_isnoneornil(L, 2)) return cnn_error(L, S, "register_hook: expected a function");
  lua_pushvalue(L, 2);
  int function = luaL_ref(L, LUA_REGISTRYINDEX);
  CNN_WITH_ROOM(L, S, status, cnn_hook_add(&S->ctx, t, function, &id));
  if (status != CNN_OK) {
    luaL_unref(L, LUA_REGISTRYINDEX, function);
    return cnn_raise(L, S, status);
  }
  cnn_pushint(L, id);
  return 1;
}

static int l_remove_hook(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "remove", "the tensor");
  lua_pushboolean(L, cnn_hook_remove(t, (int64_t)luaL_checknumber(L, 2)));
  cnn_drain(L, S);
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Modes: with(mode, value, fn, ...) sets a mode, calls fn through C (so that no coroutine can leave
// with the mode on), puts the mode back whatever happens, and gives fn's results.

typedef struct modes {
  bool grad_enabled, inference, anomaly, replaying;
} modes;

static modes save_modes(const cnn_lua *S) {
  return (modes){S->ctx.grad_enabled, S->ctx.inference, S->ctx.anomaly, S->ctx.replaying};
}

static void restore_modes(cnn_lua *S, modes m) {
  S->ctx.grad_enabled = m.grad_enabled;
  S->ctx.inference = m.inference;
  S->ctx.anomaly = m.anomaly;
  S->ctx.replaying = m.replaying;
}

bool cnn_callable(lua_State *L, int i) {
  if (lua_isfunction(L, i)) return true;
  if (!luaL_getmetafield(L, i, "__call")) return false;
  lua_pop(L, 1);
  return true;
}

enum { MODE_NO_GRAD, MODE_ENABLE_GRAD, MODE_INFERENCE, MODE_ANOMALY, MODE_REPLAY };

static int l_with_mode(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int mode = (int)lua_tointeger(L, lua_upvalueindex(3));
  static const char *const names[] = {"no_grad", "enable_grad", "inference_mode", "detect_anomaly",
                                      "replay"};
  if (!cnn_callable(L, 1)) {
    char got[64];
    return cnn_error(L, S, "%s: expected a function (or a module) to call, got %s", names[mode],
                     cnn_describe(L, 1, got, sizeof got));
  }
  modes before = save_modes(S);
  switch (mode) {
  case MODE_NO_GRAD: S->ctx.grad_enabled = false; break;
  case MODE_ENABLE_GRAD: S->ctx.grad_enabled = true; break;
  case MODE_INFERENCE: S->ctx.grad_enabled = false, S->ctx.inference = true; break;
  case MODE_ANOMALY: S->ctx.anomaly = true; break;
  default: S->ctx.grad_enabled = true, S->ctx.replaying = true; break;
  }
  int failed = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  restore_modes(S, before);
  S->L = L;
  return failed ? lua_error(L) : lua_gettop(L);
}

static int l_is_grad_enabled(lua_State *L) {
  lua_pushboolean(L, cnn_state(L)->ctx.grad_enabled);
  return 1;
}

static int l_is_inference(lua_State *L) {
  lua_pushboolean(L, cnn_state(L)->ctx.inference);
  return 1;
}

static bool check_boolean(lua_State *L, cnn_lua *S, const char *function) {
  if (lua_type(L, 1) != LUA_TBOOLEAN) cnn_error(L, S, "%s: expected true or false", function);
  return lua_toboolean(L, 1) != 0;
}

static int l_set_grad_enabled(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  S->ctx.grad_enabled = check_boolean(L, S, "set_grad_enabled");
  return 0;
}

static int l_set_detect_anomaly(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  S->ctx.anomaly = check_boolean(L, S, "set_detect_anomaly");
  return 0;
}

// Called by the core, at any moment: the reference waits until Lua may be called.
static void release_function(cnn_context *ctx, int64_t function) {
  cnn_lua *S = (cnn_lua *)ctx->host;
  if (S->n_dead == S->dead_capacity) {
    int capacity = S->dead_capacity ? 2 * S->dead_capacity : 32;
    int64_t *dead = cnn_realloc(S->dead, (size_t)capacity * sizeof *dead);
    if (!dead) return; // the function outlives its node: no memory to remember it by
    S->dead = dead;
    S->dead_capacity = capacity;
  }
  S->dead[S->n_dead++] = function;
}

static void metamethod(lua_State *L, cnn_lua *S, cnn_box_kind kind, const char *name,
                       lua_CFunction f) {
  cnn_push_metatable(L, S, kind);
  lua_pushcfunction(L, f);
  lua_setfield(L, -2, name);
  lua_pop(L, 1);
}

static void mode_function(lua_State *L, cnn_lua *S, const char *name, int mode) {
  lua_pushlightuserdata(L, S);
  lua_pushnil(L);
  lua_pushinteger(L, mode);
  lua_pushcclosure(L, l_with_mode, 3);
  lua_setfield(L, -2, name);
}

void cnn_open_autograd(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"_grad", l_grad},
                                           {"attach", l_attach},
                                           {"saved", l_saved},
                                           {"wants_record", l_wants_record},
                                           {"first_pass", l_first_pass},
                                           {"node_info", l_node_info},
                                           {"node_next", l_node_next},
                                           {"remove_hook", l_remove_hook},
                                           {"is_grad_enabled", l_is_grad_enabled},
                                           {"is_inference_mode_enabled", l_is_inference},
                                           {"set_grad_enabled", l_set_grad_enabled},
                                           {"set_detect_anomaly", l_set_detect_anomaly},
                                           {NULL, NULL}};
  static const cnn_function methods[] = {{"backward", l_backward},
                                         {"_register_hook", l_register_hook},
                                         {NULL, NULL}};
  S->ctx.release = release_function;
  lua_pushlightuserdata(L, (void *)(uintptr_t)&watch_key);
  lua_newtable(L);
  lua_pushcfunction(L, watch_gc);
  lua_setfield(L, -2, "__gc");
  lua_rawset(L, LUA_REGISTRYINDEX);
  cnn_set_functions(L, S, functions);
  mode_function(L, S, "no_grad", MODE_NO_GRAD);
  mode_function(L, S, "enable_grad", MODE_ENABLE_GRAD);
  mode_function(L, S, "inference_mode", MODE_INFERENCE);
  mode_function(L, S, "detect_anomaly", MODE_ANOMALY);
  mode_function(L, S, "replay", MODE_REPLAY);
  lua_getfield(L, -1, "methods");
  cnn_set_functions(L, S, methods);
  lua_pop(L, 1);
  metamethod(L, S, CNN_BOX_NODE, "__gc", node_gc);
  metamethod(L, S, CNN_BOX_NODE, "__eq", node_eq);
  metamethod(L, S, CNN_BOX_ENGINE, "__gc", engine_gc);
  cnn_push_metatable(L, S, CNN_BOX_NODE);
  lua_setfield(L, -2, "node_metatable");
}
