// SPDX-License-Identifier: MIT
// cnn.scope: frees every tensor handle made while a function runs, but those it returns.
//
// Open scopes form a stack; each is a userdata with the head of a circular list of boxes. The Lua
// side (lua/cnn/memory.lua) calls enter, the function, and leave with the results. Only handles are
// freed: what the graph, a module or an optimizer holds stays.
//
// A scope belongs to the coroutine that opened it: a function may yield out of its scope, and what
// others make meanwhile is none of its business. So scopes need not close in order, and one whose
// coroutine is never resumed is taken off the stack by its finalizer, which frees nothing.
//
// The library opens scopes of its own around functions of Lua under a checkpoint. Those are
// transient: what becomes a module's field meanwhile, or is needed by backward, outlives them.
#include "lua/state.h"

struct cnn_scope {
  cnn_box head;      // of the list; magic 0, so that it passes for no box
  lua_State *owner;  // the coroutine
  cnn_scope *outer;  // NULL at the end of the stack
  cnn_scope **place; // what points at this one: S->scope, or the `outer` of an inner one
  bool open, transient;
};

static const char metatable_key;

static cnn_scope *innermost(cnn_scope *s, const lua_State *L) {
  while (s && s->owner != L) s = s->outer;
  return s;
}

static void link(cnn_scope *s, cnn_box *box) {
  box->prev = s->head.prev;
  box->next = &s->head;
  box->prev->next = box->next->prev = box;
}

void cnn_scope_add(lua_State *L, cnn_lua *S, cnn_box *box) {
  cnn_scope *s = innermost(S->scope, L);
  if (s) link(s, box);
}

static void take_off_the_stack(cnn_scope *s) {
  *s->place = s->outer;
  if (s->outer) s->outer->place = s->place;
  s->open = false;
}

static int scope_gc(lua_State *L) {
  cnn_scope *s = lua_touserdata(L, 1);
  if (!s->open) return 0;
  while (s->head.next != &s->head) cnn_box_unlink(s->head.next);
  take_off_the_stack(s);
  return 0;
}

// enter(transient)
static int l_enter(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  bool transient = lua_toboolean(L, 1);
  cnn_scope *s = cnn_newud(L, sizeof *s, 0);
  *s = (cnn_scope){.owner = L, .open = false, .transient = transient};
  s->head.prev = s->head.next = &s->head;
  lua_pushlightuserdata(L, (void *)(uintptr_t)&metatable_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  lua_setmetatable(L, -2);
  s->outer = S->scope;
  s->place = &S->scope;
  if (s->outer) s->outer->place = &s->outer;
  S->scope = s;
  s->open = true;
  return 1;
}

// Puts the table at the top, if it is one, into the list at `list`, once.
static void add_table(lua_State *L, int list, int *n) {
  if (lua_type(L, -1) != LUA_TTABLE) return;
  lua_pushvalue(L, -1);
  lua_rawget(L, list);
  bool known = !lua_isnil(L, -1);
  lua_pop(L, 1);
  if (known) return;
  lua_pushvalue(L, -1);
  lua_pushboolean(L, true);
  lua_rawset(L, list);
  lua_pushvalue(L, -1);
  lua_rawseti(L, list, ++*n);
}

// Pushes a list of the tables among values `first` to `last` and in those, each once: values may
// refer to each other in circles. Only this raises, not each_box.
static void push_tables(lua_State *L, int first, int last) {
  luaL_checkstack(L, 8, "tables of tensors");
  lua_newtable(L);
  int list = lua_gettop(L), n = 0;
  for (int i = first; i <= last; i++) {
    lua_pushvalue(L, i);
    add_table(L, list, &n);
    lua_pop(L, 1);
  }
  for (int k = 1; k <= n; k++) {
    lua_rawgeti(L, list, k);
    lua_pushnil(L);
    while (lua_next(L, -2)) {
      add_table(L, list, &n);
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
  }
}

// Calls `visit` with every tensor box among values `first` to `last`, and in the tables of the list
// at the top, which it pops.
static void each_box(lua_State *L, int first, int last, void (*visit)(cnn_box *box, void *data),
                     void *data) {
  int list = lua_gettop(L);
  cnn_box *box;
  for (int i = first; i <= last; i++)
    if ((box = cnn_to_box(L, i, CNN_BOX_TENSOR))) visit(box, data);
  for (int k = 1;; k++) {
    lua_rawgeti(L, list, k);
    if (lua_isnil(L, -1)) break;
    lua_pushnil(L);
    while (lua_next(L, -2)) {
      if ((box = cnn_to_box(L, -1, CNN_BOX_TENSOR))) visit(box, data);
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
  }
  lua_settop(L, list - 1);
}

// While a scope closes, its boxes have its head as `prev`: that tells them from others'.
static void survive(cnn_box *box, void *scope) {
  if (box->prev == &((cnn_scope *)scope)->head) box->prev = NULL;
}

// leave(scope, results...): frees, and gives the results on. What is returned, alone or in tables,
// moves to the enclosing scope.
static int l_leave(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_scope *s = lua_touserdata(L, 1);
  if (!s->open) return cnn_error(L, S, "scope: left twice");
  int n = lua_gettop(L);
  push_tables(L, 2, n);
  take_off_the_stack(s);
  for (cnn_box *box = s->head.next; box != &s->head; box = box->next) box->prev = &s->head;
  each_box(L, 2, n, survive, s);
  cnn_scope *enclosing = innermost(S->scope, L);
  for (cnn_box *box = s->head.next, *next; box != &s->head; box = next) {
    next = box->next;
    bool returned = box->prev == NULL;
    box->prev = box->next = NULL;
    if (returned) {
      if (enclosing) link(enclosing, box);
      continue;
    }
    void *object = box->object;
    box->object = NULL;
    cnn_unref(object);
  }
  s->head.prev = s->head.next = &s->head;
  return n - 1;
}

static void take_out(cnn_box *box, void *data) {
  (void)data;
  cnn_box_unlink(box);
}

// keep(...): takes tensors, alone or in tables, out of every scope; returns its arguments.
static int l_keep(lua_State *L) {
  cnn_state(L);
  int n = lua_gettop(L);
  push_tables(L, 1, n);
  each_box(L, 1, n, take_out, NULL);
  return n;
}

// `scope`: the one to move to, or NULL.
static void outlive(cnn_box *box, void *scope) {
  if (!box->prev) return;
  cnn_box_unlink(box);
  if (scope) link(scope, box);
}

void cnn_scope_outlive(lua_State *L, cnn_lua *S, int i) {
  cnn_scope *s = innermost(S->scope, L);
  if (!s || !s->transient) return;
  while (s && s->transient) s = innermost(s->outer, L);
  i = cnn_absindex(L, i);
  push_tables(L, i, i);
  each_box(L, i, i, outlive, s);
}

// scope_outlive(value)
static int l_outlive(lua_State *L) {
  cnn_scope_outlive(L, cnn_state(L), 1);
  return 0;
}

void cnn_open_scope(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"scope_enter", l_enter},
                                           {"scope_leave", l_leave},
                                           {"scope_outlive", l_outlive},
                                           {"keep", l_keep},
                                           {NULL, NULL}};
  lua_pushlightuserdata(L, (void *)(uintptr_t)&metatable_key);
  lua_newtable(L);
  lua_pushcfunction(L, scope_gc);
  lua_setfield(L, -2, "__gc");
  lua_rawset(L, LUA_REGISTRYINDEX);
  cnn_set_functions(L, S, functions);
}
