// SPDX-License-Identifier: MIT
// Boxes: Lua's handles on objects of the core.
#include "lua/state.h"

const char cnn_box_magic[CNN_BOX_KINDS];

// Registry keys: the metatables by kind, and the weak table of known tensors.
static const char metatable_keys[CNN_BOX_KINDS];
static const char known_key;

void cnn_push_metatable(lua_State *L, cnn_lua *S, cnn_box_kind kind) {
  (void)S;
  lua_pushlightuserdata(L, (void *)(uintptr_t)&metatable_keys[kind]);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushlightuserdata(L, (void *)(uintptr_t)&metatable_keys[kind]);
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

static cnn_box *new_box(lua_State *L, cnn_box_kind kind, int values) {
  cnn_box *box = cnn_newud(L, sizeof *box, values);
  (void)values;
  box->magic = (uintptr_t)&cnn_box_magic[kind];
  box->object = NULL;
  box->prev = box->next = NULL;
  return box;
}

cnn_box *cnn_push_box(lua_State *L, cnn_lua *S, cnn_box_kind kind) {
  cnn_box *box = new_box(L, kind, 1);
  cnn_push_metatable(L, S, kind);
  lua_setmetatable(L, -2);
  return box;
}

cnn_box *cnn_push_tensor_box(lua_State *L, cnn_lua *S, int metatable) {
  cnn_box *box = new_box(L, CNN_BOX_TENSOR, 0);
  lua_pushvalue(L, metatable < 0 && metatable > LUA_REGISTRYINDEX ? metatable - 1 : metatable);
  lua_setmetatable(L, -2);
  S->boxes_since_step++;
  if (S->scope) cnn_scope_add(L, S, box);
  return box;
}

void cnn_box_unlink(cnn_box *box) {
  if (!box->next) return;
  box->prev->next = box->next;
  box->next->prev = box->prev;
  box->prev = box->next = NULL;
}

static void push_known_table(lua_State *L) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)&known_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_newtable(L);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_pushlightuserdata(L, (void *)(uintptr_t)&known_key);
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

// The key is the tensor's address: an entry of a tensor that died and whose address was used again
// is told apart by what the box holds.
void cnn_box_remember(lua_State *L, cnn_lua *S, int i) {
  (void)S;
  i = cnn_absindex(L, i);
  cnn_box *box = lua_touserdata(L, i);
  ((cnn_tensor *)box->object)->flags |= CNN_BOXED;
  cnn_box_unlink(box); // a scope must not free what others can still reach
  push_known_table(L);
  lua_pushlightuserdata(L, box->object);
  lua_pushvalue(L, i);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void cnn_push_known_tensor(lua_State *L, cnn_lua *S, cnn_tensor *t) {
  if (t->flags & CNN_BOXED) {
    push_known_table(L);
    lua_pushlightuserdata(L, t);
    lua_rawget(L, -2);
    lua_remove(L, -2);
    cnn_box *box = cnn_to_box(L, -1, CNN_BOX_TENSOR);
    if (box && box->object == t) return;
    lua_pop(L, 1);
  }
  cnn_push_metatable(L, S, CNN_BOX_TENSOR);
  cnn_box *box = cnn_push_tensor_box(L, S, -1);
  lua_remove(L, -2);
  box->object = cnn_ref(t);
  cnn_box_remember(L, S, -1);
}

void cnn_push_known_or_nil(lua_State *L, cnn_lua *S, cnn_tensor *t) {
  if (t)
    cnn_push_known_tensor(L, S, t);
  else
    lua_pushnil(L);
}

cnn_tensor *cnn_check_tensor(lua_State *L, cnn_lua *S, int i, const char *function,
                             const char *argument) {
  char got[64];
  cnn_box *box = cnn_to_box(L, i, CNN_BOX_TENSOR);
  if (box && box->object) return box->object;
  if (box) cnn_error(L, S, "%s: %s was freed" CNN_WHO_FREED, function, argument);
  cnn_error(L, S, "%s: %s must be a tensor, not %s", function, argument,
            cnn_describe(L, i, got, sizeof got));
}

void cnn_set_functions(lua_State *L, cnn_lua *S, const cnn_function *list) {
  for (; list->name; list++) {
    lua_pushlightuserdata(L, S);
    cnn_push_metatable(L, S, CNN_BOX_TENSOR);
    lua_pushcclosure(L, list->function, 2);
    lua_setfield(L, -2, list->name);
  }
}
