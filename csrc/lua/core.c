// SPDX-License-Identifier: MIT
// The module cnn.core: the state, settings, statistics; opens the parts.
#include "lua/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "cnn.h"
#include "cpu/accel.h"
#include "memory/buffer.h"
#include "memory/record.h"
#include "ops/ops.h"

int luaopen_cnn_core(lua_State *L);

// ---------------------------------------------------------------------------------------------
// Settings

static int l_set_default_dtype(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_dtype t = cnn_check_dtype(L, S, 1, "set_default_dtype");
  if (!cnn_dtype_is_float(t))
    return cnn_error(L, S, "set_default_dtype: %s is no float dtype", cnn_dtype_name(t));
  S->ctx.default_dtype = t;
  return 0;
}

static int l_get_default_dtype(lua_State *L) {
  lua_pushstring(L, cnn_dtype_name(cnn_state(L)->ctx.default_dtype));
  return 1;
}

static int l_set_default_device(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  S->ctx.default_device = cnn_check_device(L, S, 1, "set_default_device");
  return 0;
}

static int l_get_default_device(lua_State *L) {
  lua_pushstring(L, cnn_device_name(cnn_state(L)->ctx.default_device));
  return 1;
}

static int l_manual_seed(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int64_t seed;
  if (!cnn_toint(L, 1, &seed)) return cnn_error(L, S, "manual_seed: expected an integer");
  S->ctx.rng = (cnn_rng){(uint64_t)seed, 0};
  return 0;
}

// The generator's state as four numbers of 32 bits: exact on every Lua.
static int l_get_rng_state(lua_State *L) {
  cnn_rng r = cnn_state(L)->ctx.rng;
  uint64_t parts[] = {r.seed >> 32, r.seed & UINT32_MAX, r.offset >> 32, r.offset & UINT32_MAX};
  lua_createtable(L, 4, 0);
  for (int i = 0; i < 4; i++) cnn_pushint(L, (int64_t)parts[i]), lua_rawseti(L, -2, i + 1);
  return 1;
}

static int l_set_rng_state(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  uint64_t parts[4];
  if (!lua_istable(L, 1) || cnn_rawlen(L, 1) != 4)
    return cnn_error(L, S, "set_rng_state: expected what get_rng_state gave");
  for (int i = 0; i < 4; i++) {
    int64_t v;
    lua_rawgeti(L, 1, i + 1);
    if (!cnn_toint(L, -1, &v) || v < 0 || v > (int64_t)UINT32_MAX)
      return cnn_error(L, S, "set_rng_state: expected what get_rng_state gave");
    parts[i] = (uint64_t)v;
    lua_pop(L, 1);
  }
  S->ctx.rng = (cnn_rng){parts[0] << 32 | parts[1], parts[2] << 32 | parts[3]};
  return 0;
}

static int l_set_num_threads(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int64_t n;
  if (!cnn_toint(L, 1, &n) || n < 0 || n > 1024)
    return cnn_error(L, S, "set_num_threads: expected an integer from 0 (the default) to 1024");
  cnn_set_num_threads((int)n);
  return 0;
}

// _accel(on): switches the plugin for large products and convolutions; gives whether it is in use.
static int l_accel(lua_State *L) {
  cnn_state(L);
  lua_pushboolean(L, cnn_accel_enable(lua_toboolean(L, 1)));
  return 1;
}

static int l_get_num_threads(lua_State *L) {
  cnn_state(L);
  cnn_pushint(L, cnn_num_threads());
  return 1;
}

static int l_set_library(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  size_t n;
  const char *path = luaL_checklstring(L, 1, &n);
  if (n < sizeof S->library) memcpy(S->library, path, n + 1);
  return 0;
}

// fail(message): raises it with the script's line, as the binding's own errors.
static int l_fail(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  return cnn_error(L, S, "%s", luaL_checkstring(L, 1));
}

// describe(value): "a string", "the number 3" ... for messages.
static int l_describe(lua_State *L) {
  char text[64];
  cnn_state(L);
  lua_pushstring(L, cnn_describe(L, 1, text, sizeof text));
  return 1;
}

// nearest(name, list of names): the nearest one, or nil when none is near.
static int l_nearest(lua_State *L) {
  cnn_state(L);
  const char *name = luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  luaL_Buffer names;
  luaL_buffinit(L, &names);
  for (int i = 1, n = (int)cnn_rawlen(L, 2); i <= n; i++) {
    lua_rawgeti(L, 2, i);
    luaL_addvalue(&names);
    luaL_addlstring(&names, "", 1);
  }
  luaL_pushresult(&names);
  lua_pushstring(L, cnn_nearest(name, lua_tostring(L, -1))); // NULL gives nil
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Memory

static void push_counter(lua_State *L, const char *name, const cnn_pool_counter *c) {
  lua_createtable(L, 0, 4);
  cnn_pushint(L, c->current), lua_setfield(L, -2, "current");
  cnn_pushint(L, c->peak), lua_setfield(L, -2, "peak");
  cnn_pushint(L, c->total), lua_setfield(L, -2, "total");
  cnn_pushint(L, c->total - c->current), lua_setfield(L, -2, "freed");
  lua_setfield(L, -2, name);
}

static void push_size_class(lua_State *L, const char *name, const cnn_pool_counter *bytes,
                            const cnn_pool_counter *blocks, int64_t reserved) {
  lua_createtable(L, 0, 3);
  push_counter(L, "allocated_bytes", bytes);
  push_counter(L, "blocks", blocks);
  cnn_pushint(L, reserved), lua_setfield(L, -2, "reserved_bytes");
  lua_setfield(L, -2, name);
}

// A list of the classes that ever had a block: {size, small, blocks}.
static void push_classes(lua_State *L, cnn_pool *pool) {
  cnn_pool_class classes[CNN_POOL_CLASSES];
  int n = 0;
  lua_newtable(L);
  if (pool) cnn_pool_get_classes(pool, classes);
  for (int i = 0; pool && i < CNN_POOL_CLASSES; i++) {
    if (classes[i].blocks.total == 0) continue;
    bool small = i < CNN_POOL_SMALL_CLASSES;
    lua_createtable(L, 0, 3);
    if (classes[i].size == SIZE_MAX)
      lua_pushnumber(L, HUGE_VAL);
    else
      cnn_pushint(L, (int64_t)classes[i].size);
    lua_setfield(L, -2, "size");
    lua_pushboolean(L, small), lua_setfield(L, -2, "small");
    push_counter(L, "blocks", &classes[i].blocks);
    lua_rawseti(L, -2, ++n);
  }
}

static int l_memory_stats(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_pool *pool = cnn_check_pool(L, S, "memory_stats");
  cnn_pool_stats s;
  memset(&s, 0, sizeof s);
  if (pool) cnn_pool_get_stats(pool, &s);
  lua_newtable(L);
  push_counter(L, "allocated_bytes", &s.allocated);
  push_counter(L, "requested_bytes", &s.requested);
  push_counter(L, "reserved_bytes", &s.reserved);
  push_counter(L, "blocks", &s.blocks);
  push_counter(L, "active_bytes", &s.active);
  push_counter(L, "active", &s.active_blocks);
  push_size_class(L, "small", &s.small, &s.small_blocks, s.small_reserved);
  push_size_class(L, "large", &s.large, &s.large_blocks, s.reserved.current - s.small_reserved);
  push_classes(L, pool);
  lua_setfield(L, -2, "classes");
  push_counter(L, "inactive_bytes", &s.inactive);
  push_counter(L, "inactive_split_bytes", &s.inactive_split);
  cnn_pushint(L, s.available), lua_setfield(L, -2, "available");
  lua_newtable(L);
  for (int k = 0; k < CNN_POOL_KINDS; k++) push_counter(L, cnn_kind_name((cnn_kind)k), &s.kinds[k]);
  lua_setfield(L, -2, "kinds");
  cnn_pushint(L, s.limit), lua_setfield(L, -2, "limit");
  cnn_pushint(L, s.largest_free), lua_setfield(L, -2, "largest_free");
  cnn_pushint(L, s.maps), lua_setfield(L, -2, "maps");
  cnn_pushint(L, s.unmaps), lua_setfield(L, -2, "unmaps");
  cnn_pushint(L, s.failures), lua_setfield(L, -2, "failures");
  cnn_pushint(L, s.retries), lua_setfield(L, -2, "num_alloc_retries");
  cnn_pushint(L, s.ooms), lua_setfield(L, -2, "num_ooms");
  cnn_pushint(L, s.waiting), lua_setfield(L, -2, "waiting_bytes");
  cnn_pushint(L, s.waits), lua_setfield(L, -2, "stream_waits");
  return 1;
}

static int l_memory_allocated(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_pool *pool = cnn_check_pool(L, S, "memory_allocated");
  cnn_pushint(L, pool ? cnn_pool_live(pool) : 0);
  return 1;
}

static int l_reset_peaks(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_pool *pool = cnn_check_pool(L, S, "reset_peak_memory_stats");
  if (pool) cnn_pool_reset_peaks(pool);
  return 0;
}

static int l_empty_cache(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_pool *pool = cnn_check_pool(L, S, "empty_cache");
  cnn_pool_stats before = {0}, after = {0};
  if (pool) cnn_pool_get_stats(pool, &before);
  cnn_make_room(L, S);
  if (pool) cnn_pool_trim(pool), cnn_pool_get_stats(pool, &after);
  int64_t given = before.reserved.current - after.reserved.current;
  if (pool && given > 0 && cnn_record_on()) cnn_record_trim(pool, (size_t)given);
  cnn_pushint(L, given);
  return 1;
}

static int l_set_memory_limit(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  bool given = !lua_isnoneornil(L, 1);
  char got[64];
  if (given && (lua_type(L, 1) != LUA_TNUMBER || !(lua_tonumber(L, 1) >= 0)))
    return cnn_error(L, S,
                     "set_memory_limit: expected a number of bytes (or nil: the default), got %s",
                     cnn_describe(L, 1, got, sizeof got));
  double bytes = (double)lua_tonumber(L, 1);
  if (lua_gettop(L) > 0) lua_remove(L, 1);
  cnn_pool *pool = cnn_check_pool(L, S, "set_memory_limit");
  size_t total, left, limit = bytes < 0x1p62 ? (size_t)bytes : (size_t)1 << 62;
  if (pool && given && pool != cnn_pool_root(pool))
    cnn_check_room(L, S, "set_memory_limit", bytes, cnn_pool_granule(pool));
  if (pool && !given) cnn_pool_info(pool, &total, &left, &limit);
  if (pool && !given && pool != cnn_pool_root(pool)) limit = SIZE_MAX;
  if (pool) cnn_pool_set_limit(pool, limit);
  return 0;
}

// mem_get_info(dev): free and total bytes of the device, as the system sees it.
static int l_mem_get_info(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  size_t total = 0, left = 0, limit;
  cnn_pool *pool = cnn_check_pool(L, S, "mem_get_info");
  if (pool) cnn_pool_info(pool, &total, &left, &limit);
  cnn_pushint(L, (int64_t)left);
  cnn_pushint(L, (int64_t)total);
  return 2;
}

// fault_set(n, sticky = true, at_once = false): see base/alloc.h. at_once: without the collection
// and the second try that a failing request leads to.
static int l_fault_set(lua_State *L) {
  cnn_state(L)->no_room = lua_toboolean(L, 3);
  cnn_fault_set((int64_t)luaL_checknumber(L, 1), lua_isnoneornil(L, 2) || lua_toboolean(L, 2));
  return 0;
}

static int l_fault_clear(lua_State *L) {
  cnn_state(L)->no_room = false;
  cnn_pushint(L, cnn_fault_clear());
  return 1;
}

static int l_clock(lua_State *L) {
  struct timespec t;
  cnn_state(L);
  clock_gettime(CLOCK_MONOTONIC, &t);
  lua_pushnumber(L, (lua_Number)t.tv_sec + 1e-9 * (lua_Number)t.tv_nsec);
  return 1;
}

static int l_isatty(lua_State *L) {
  cnn_state(L);
  lua_pushboolean(L, isatty((int)luaL_optinteger(L, 1, 1)));
  return 1;
}

// work_count(): multiply-adds of the ops so far, of those that are made of them.
static int l_work_count(lua_State *L) {
  cnn_pushint(L, cnn_state(L)->ctx.work);
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Opening

static void where(cnn_context *ctx, char *text, int size) {
  cnn_lua *S = ctx->host;
  cnn_where(S->L, S, text, (size_t)size);
}

static int state_gc(lua_State *L) {
  cnn_lua *S = lua_touserdata(L, 1);
  cnn_free(S->dead);
  for (int i = 0; i < CNN_MAX_DEVICES; i++) cnn_free(S->gpus[i]), S->gpus[i] = NULL;
  S->dead = NULL;
  S->n_dead = S->dead_capacity = 0;
  return 0;
}

// The state lives in a userdata that the registry keeps. Finalizers of other objects may still run
// after its own when Lua closes: it owns nothing that they need.
static cnn_lua *new_state(lua_State *L) {
  cnn_lua *S = cnn_newud(L, sizeof *S, 0);
  memset(S, 0, sizeof *S);
  cnn_context_init(&S->ctx);
  S->L = L;
  S->ctx.host = S;
  S->ctx.where = where;
  S->ctx.index_base = 1;
  S->ctx.last_try = false; // CNN_WITH_ROOM
  lua_newtable(L);
  lua_pushcfunction(L, state_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_setfield(L, LUA_REGISTRYINDEX, "cnn.state");
  return S;
}

__attribute__((visibility("default"))) int luaopen_cnn_core(lua_State *L) {
  static const cnn_function functions[] = {{"set_default_dtype", l_set_default_dtype},
                                           {"get_default_dtype", l_get_default_dtype},
                                           {"set_default_device", l_set_default_device},
                                           {"get_default_device", l_get_default_device},
                                           {"manual_seed", l_manual_seed},
                                           {"get_rng_state", l_get_rng_state},
                                           {"set_rng_state", l_set_rng_state},
                                           {"set_num_threads", l_set_num_threads},
                                           {"get_num_threads", l_get_num_threads},
                                           {"_accel", l_accel},
                                           {"set_library", l_set_library},
                                           {"fail", l_fail},
                                           {"describe", l_describe},
                                           {"nearest", l_nearest},
                                           {"memory_stats", l_memory_stats},
                                           {"memory_allocated", l_memory_allocated},
                                           {"reset_peak_memory_stats", l_reset_peaks},
                                           {"empty_cache", l_empty_cache},
                                           {"set_memory_limit", l_set_memory_limit},
                                           {"mem_get_info", l_mem_get_info},
                                           {"fault_set", l_fault_set},
                                           {"fault_clear", l_fault_clear},
                                           {"clock", l_clock},
                                           {"isatty", l_isatty},
                                           {"work_count", l_work_count},
                                           {NULL, NULL}};
  const char *wrong = cnn_init();
  if (wrong) return luaL_error(L, "cnn: %s", wrong);
  cnn_lua *S = new_state(L);
  lua_newtable(L);
  cnn_set_functions(L, S, functions);
  cnn_open_ops(L, S);
  cnn_open_tensor(L, S);
  cnn_open_values(L, S);
  cnn_open_scope(L, S);
  cnn_open_pack(L, S);
  cnn_open_autograd(L, S);
  cnn_open_gc(L, S);
  cnn_open_record(L, S);
  cnn_open_interrupt(L, S);
  cnn_open_module(L, S);
  cnn_open_optim(L, S);
  cnn_open_simulation(L, S);
  cnn_open_io(L, S);
  cnn_open_data(L, S);
  cnn_open_pool(L, S);
  cnn_open_cuda(L, S);
  return 1;
}
