// SPDX-License-Identifier: MIT
// cnn.scope: frees every tensor handle made while a function runs, but those it returns.
//
// Open scopes form a stack; each is a userdata with the head of a circular list of boxes. The Lua side
// (lua/cnn/init.lua) calls enter, the function, and leave with the results. Only handles are freed:
// what the graph, a module or an optimizer holds stays.
#include "lua/state.h"

typedef struct scope {
  cnn_box head; // of the list; magic 0, so that it passes for no box
  cnn_box *outer;
  bool open;
} scope;

static int l_enter(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  scope *s = cnn_newud(L, sizeof *s, 0);
  s->head.magic = 0;
  s->head.object = NULL;
  s->head.prev = s->head.next = &s->head;
  s->outer = S->scope;
  s->open = true;
  S->scope = &s->head;
  return 1;
}

static void keep_value(lua_State *L, int i, int depth) {
  cnn_box *box = cnn_to_box(L, i, CNN_BOX_TENSOR);
  if (box) {
    cnn_box_unlink(box);
    return;
  }
  if (lua_type(L, i) != LUA_TTABLE || depth > 16) return;
  i = cnn_absindex(L, i);
  luaL_checkstack(L, 4, "cnn.scope");
  lua_pushnil(L);
  while (lua_next(L, i)) {
    keep_value(L, -1, depth + 1);
    lua_pop(L, 1);
  }
}

// leave(scope, results...): frees, and gives the results on. What is returned, alone or in tables,
// moves to the enclosing scope.
static int l_leave(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  scope *s = lua_touserdata(L, 1);
  if (!s->open) return cnn_error(L, S, "scope: left twice");
  int n = lua_gettop(L);
  for (int i = 2; i <= n; i++) keep_value(L, i, 0);
  s->open = false;
  S->scope = s->outer;
  while (s->head.next != &s->head) {
    cnn_box *box = s->head.next;
    void *object = box->object;
    cnn_box_unlink(box);
    box->object = NULL;
    cnn_unref(object);
  }
  // Results join the enclosing scope.
  for (int i = 2; i <= n && S->scope; i++) {
    cnn_box *box = cnn_to_box(L, i, CNN_BOX_TENSOR);
    if (!box || box->next || !box->object || ((cnn_tensor *)box->object)->flags & CNN_BOXED)
      continue;
    box->prev = S->scope->prev;
    box->next = S->scope;
    box->prev->next = box->next->prev = box;
  }
  return n - 1;
}

static int l_keep(lua_State *L) {
  cnn_state(L);
  for (int i = 1; i <= lua_gettop(L); i++) keep_value(L, i, 0);
  return lua_gettop(L);
}

void cnn_open_scope(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {
      {"scope_enter", l_enter}, {"scope_leave", l_leave}, {"keep", l_keep}, {NULL, NULL}};
  cnn_set_functions(L, S, functions);
}
