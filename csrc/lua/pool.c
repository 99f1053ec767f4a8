// SPDX-License-Identifier: MIT
// Pools of a script's own: handles, the mode that sends allocations there, and what the debugging
// aid found.
//
// A handle owns the pool, not its blocks: when it is collected, the pool goes at once or with its
// last block. with_pool runs its function through C: no coroutine can leave with the pool in use,
// so the uses lie on the C stack, and the handle on Lua's.
#include "lua/state.h"

#include <stdio.h>

#include "memory/buffer.h"
#include "memory/guard.h"

static cnn_pool_handle *to_handle(lua_State *L, int i) {
  return (cnn_pool_handle *)cnn_to_box(L, i, CNN_BOX_POOL);
}

cnn_pool *cnn_check_pool(lua_State *L, cnn_lua *S, const char *function) {
  cnn_pool_handle *h = to_handle(L, 1);
  if (h) return h->box.object;
  return cnn_device_pool(lua_isnoneornil(L, 1) ? S->ctx.default_device
                                               : cnn_check_device(L, S, 1, function));
}

static cnn_pool_handle *self(lua_State *L, cnn_lua *S, const char *function, const char *usage) {
  char got[64];
  cnn_pool_handle *h = to_handle(L, 1);
  if (!h)
    cnn_error(L, S, "%s: expected a pool (of cnn.pool), got %s; write %s", function,
              cnn_describe(L, 1, got, sizeof got), usage);
  return h;
}

void cnn_check_room(lua_State *L, cnn_lua *S, const char *function, double bytes, size_t granule) {
  if (bytes < (double)granule)
    cnn_error(L, S,
              "%s: a limit of %.0f bytes has room for nothing: the device's memory comes in "
              "pieces of %.0f bytes; limits are in bytes, e.g. 64 * 2 ^ 20 for 64 MiB",
              function, bytes, (double)granule);
}

// The limit in argument i, in bytes; SIZE_MAX for nil.
static size_t check_limit(lua_State *L, cnn_lua *S, int i, const char *function, size_t granule) {
  char got[64];
  if (lua_isnoneornil(L, i)) return SIZE_MAX;
  if (lua_type(L, i) != LUA_TNUMBER || !(lua_tonumber(L, i) >= 0))
    cnn_error(
        L, S,
        "%s: limit must be a number of bytes, e.g. 2 * 2 ^ 30 (or nil: only the device's), got %s",
        function, cnn_describe(L, i, got, sizeof got));
  double bytes = (double)lua_tonumber(L, i);
  cnn_check_room(L, S, function, bytes, granule);
  return bytes < 0x1p62 ? (size_t)bytes : SIZE_MAX;
}

// new_pool(limit, device, name)
static int l_new_pool(lua_State *L) {
  static atomic_int made;
  cnn_lua *S = cnn_state(L);
  char name[CNN_POOL_NAME];
  cnn_device device =
      lua_isnoneornil(L, 2) ? S->ctx.default_device : cnn_check_device(L, S, 2, "pool");
  cnn_pool *root = cnn_device_pool(device);
  if (!root) return cnn_error(L, S, "pool: %s has no memory of its own", cnn_device_name(device));
  size_t limit = check_limit(L, S, 1, "pool", cnn_pool_granule(root));
  if (lua_type(L, 3) == LUA_TSTRING && *lua_tostring(L, 3))
    snprintf(name, sizeof name, "%s", lua_tostring(L, 3));
  else
    snprintf(name, sizeof name, "%d", atomic_fetch_add(&made, 1) + 1);
  cnn_pace(L, S);
  cnn_pool_handle *h = cnn_newud(L, sizeof *h, 0);
  *h = (cnn_pool_handle){.box = {.magic = (uintptr_t)&cnn_box_magic[CNN_BOX_POOL]},
                         .device = device};
  cnn_push_metatable(L, S, CNN_BOX_POOL);
  lua_setmetatable(L, -2);
  h->box.object = cnn_pool_create_in(root, limit, name);
  if (!h->box.object && cnn_make_room(L, S)) h->box.object = cnn_pool_create_in(root, limit, name);
  if (!h->box.object) return cnn_error(L, S, "pool: out of memory, or of address space");
  return 1;
}

static int pool_gc(lua_State *L) {
  cnn_pool_handle *h = to_handle(L, 1);
  if (h && h->box.object) cnn_pool_close(h->box.object);
  if (h) h->box.object = NULL;
  return 0;
}

static const char current_key; // in the registry: the handle of the pool in use

static void set_current(lua_State *L, int i) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)&current_key);
  lua_pushvalue(L, i);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

// current_pool(): the pool that with_pool is in, or nil.
static int l_current_pool(lua_State *L) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)&current_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  return 1;
}

#define WITH_POOL "cnn.with_pool(pool, fn, ...): it calls fn(...)"

// with_pool(pool, fn, ...)
static int l_with_pool(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_pool_handle *h = self(L, S, "with_pool: argument 1", WITH_POOL), *before = S->pool;
  if (!cnn_callable(L, 2)) {
    char got[64];
    return cnn_error(L, S, "with_pool: expected a function (or a module) to call, got %s; write %s",
                     cnn_describe(L, 2, got, sizeof got), WITH_POOL);
  }
  if (cnn_pool_is_lost(h->box.object))
    return cnn_error(L, S, "with_pool: pool \"%s\" went with cnn.cuda.shutdown(): make it anew",
                     cnn_pool_name(h->box.object));
  luaL_checkstack(L, 4, "with_pool");
  l_current_pool(L);
  set_current(L, 1);
  lua_replace(L, 1); // what was in use, until it is again
  cnn_pool_choice use = {h->box.object, S->ctx.pools};
  S->ctx.pools = &use;
  S->pool = h;
  cnn_pace_pool(S, h);
  int failed = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
  S->ctx.pools = use.outer;
  S->pool = before;
  S->L = L;
  luaL_checkstack(L, 2, "with_pool");
  set_current(L, 1);
  return failed ? lua_error(L) : lua_gettop(L) - 1;
}

// pool:limit() gives it, pool:limit(bytes) sets it.
static int l_limit(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_pool_handle *h = self(L, S, "limit", "pool:limit(bytes), with a colon");
  cnn_pool *pool = h->box.object;
  if (lua_gettop(L) > 1) {
    cnn_pool_set_limit(pool, check_limit(L, S, 2, "limit", cnn_pool_granule(pool)));
    cnn_pace_pool(S, h);
  }
  cnn_pushint(L, cnn_pool_limit(pool));
  return 1;
}

static int l_name(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  lua_pushstring(L, cnn_pool_name(self(L, S, "name", "pool:name(), with a colon")->box.object));
  return 1;
}

static int l_device(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  lua_pushstring(L, cnn_device_name(self(L, S, "device", "pool:device(), with a colon")->device));
  return 1;
}

// ---------------------------------------------------------------------------------------------
// The debugging aid

void cnn_raise_damage(lua_State *L, cnn_lua *S) {
  cnn_damage d;
  char where[160], more[64] = "";
  if (!cnn_guard_take(&d)) return;
  if (d.after)
    snprintf(where, sizeof where, "past its end (%zu byte%s changed, the first at offset %zu)",
             d.after, d.after == 1 ? "" : "s", d.first);
  else
    snprintf(where, sizeof where, "before its begin (%zu byte%s changed)", d.before,
             d.before == 1 ? "" : "s");
  if (d.found > 1) snprintf(more, sizeof more, ", and so were %.0f more", (double)d.found - 1);
  cnn_error(L, S,
            "memory_debug: a block of %zu bytes (%s), freed since the last call, was written %s%s: "
            "some earlier code wrote out of its bounds",
            d.requested, cnn_kind_name((cnn_kind)d.kind), where, more);
}

// memory_debug(on): switches red zones for new blocks; gives whether they were on. Raises what was
// found.
static int l_memory_debug(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  bool before = cnn_guards_on();
  if (!lua_isnoneornil(L, 1)) {
    if (lua_type(L, 1) != LUA_TBOOLEAN)
      return cnn_error(L, S, "memory_debug: expected true or false");
    cnn_guards_set(lua_toboolean(L, 1));
  }
  cnn_raise_damage(L, S);
  lua_pushboolean(L, before);
  return 1;
}

void cnn_open_pool(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"new_pool", l_new_pool},
                                           {"with_pool", l_with_pool},
                                           {"current_pool", l_current_pool},
                                           {"memory_debug", l_memory_debug},
                                           {NULL, NULL}};
  static const cnn_function methods[] = {{"limit", l_limit},
                                         {"name", l_name},
                                         {"device", l_device},
                                         {NULL, NULL}};
  cnn_set_functions(L, S, functions);
  cnn_push_metatable(L, S, CNN_BOX_POOL);
  lua_pushcfunction(L, pool_gc);
  lua_setfield(L, -2, "__gc");
  lua_newtable(L);
  cnn_set_functions(L, S, methods);
  lua_setfield(L, -2, "__index");
  lua_setfield(L, -2, "pool_metatable");
}
