// SPDX-License-Identifier: MIT
// The record of memory, for the Lua side (lua/cnn/record.lua): modes, origins, raw pieces and
// events.
#include "lua/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/buffer.h"
#include "memory/record.h"

// "train.lua:12 in function step": the innermost function that is not ours.
void cnn_note_origin(lua_State *L, cnn_lua *S) {
  lua_Debug ar;
  char text[256];
  size_t ours = strlen(S->library);
  S->ctx.origin = 0;
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline <= 0) continue; // C
    if (ours > 0 && ar.source[0] == '@' && strncmp(ar.source + 1, S->library, ours) == 0) continue;
    lua_getinfo(L, "n", &ar);
    if (strcmp(ar.what, "main") == 0)
      snprintf(text, sizeof text, "%s:%d in main chunk", ar.short_src, ar.currentline);
    else if (ar.name)
      snprintf(text, sizeof text, "%s:%d in function %s", ar.short_src, ar.currentline, ar.name);
    else
      snprintf(text, sizeof text, "%s:%d in function <%s:%d>", ar.short_src, ar.currentline,
               ar.short_src, ar.linedefined);
    S->ctx.origin = cnn_origin_of(text);
    return;
  }
}

// _record(mode, max): mode "off", "stamps" or "events"; max: makes a new, empty ring of as many
// events. Gives the mode before.
static int l_record(lua_State *L) {
  static const char *const names[] = {"off", "stamps", "events", NULL};
  cnn_lua *S = cnn_state(L);
  int mode = luaL_checkoption(L, 1, NULL, names);
  if (!lua_isnoneornil(L, 2)) {
    double max = (double)luaL_checknumber(L, 2);
    if (!cnn_record_reset(max < 0x1p48 ? (size_t)max : SIZE_MAX))
      return cnn_error(L, S, "record_memory: no memory for %.0f events", max);
  }
  if (mode == CNN_RECORD_OFF) S->ctx.origin = 0;
  lua_pushstring(L, names[cnn_record_switch((cnn_record_mode)mode)]);
  return 1;
}

// _record_serial(): the number of the last block that was recorded.
static int l_record_serial(lua_State *L) {
  cnn_state(L);
  cnn_pushint(L, cnn_record_serial());
  return 1;
}

static void set_int(lua_State *L, const char *key, int64_t value) {
  cnn_pushint(L, value);
  lua_setfield(L, -2, key);
}

static void set_origin(lua_State *L, uint16_t origin) {
  if (!origin) return;
  lua_pushstring(L, cnn_origin_text(origin));
  lua_setfield(L, -2, "origin");
}

// What malloc gave waits in a userdata while Lua tables are made of it, which may raise.
typedef struct holder {
  void *list;
} holder;

static const char holder_key;

static int holder_gc(lua_State *L) {
  holder *h = lua_touserdata(L, 1);
  free(h->list);
  h->list = NULL;
  return 0;
}

static holder *push_holder(lua_State *L) {
  holder *h = cnn_newud(L, sizeof *h, 0);
  h->list = NULL;
  lua_pushlightuserdata(L, (void *)(uintptr_t)&holder_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  lua_setmetatable(L, -2);
  return h;
}

static void push_piece(lua_State *L, const cnn_piece *p) {
  static const char *const names[] = {"void", "free", "bed", "large", "small"};
  lua_createtable(L, 0, p->what < CNN_PIECE_LARGE ? 5 : 12);
  lua_pushstring(L, names[p->what]), lua_setfield(L, -2, "what");
  set_int(L, "address", (int64_t)p->at);
  set_int(L, "size", (int64_t)p->bytes);
  if (*p->pool) lua_pushstring(L, p->pool), lua_setfield(L, -2, "pool");
  if (p->stream) set_int(L, "stream", (int64_t)(uintptr_t)p->stream);
  if (p->what < CNN_PIECE_LARGE) return;
  if (p->waiting) lua_pushboolean(L, true), lua_setfield(L, -2, "waiting");
  set_int(L, "taken", (int64_t)p->block.size);
  set_int(L, "data", (int64_t)(uintptr_t)p->block.data);
  set_int(L, "requested", (int64_t)p->block.requested);
  set_int(L, "serial", p->block.serial);
  lua_pushstring(L, cnn_kind_name((cnn_kind)p->block.kind)), lua_setfield(L, -2, "kind");
  set_origin(L, p->block.origin);
}

// _memory_pieces(dev): what the device's address space consists of, by address.
static int l_memory_pieces(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_pool *pool = cnn_check_pool(L, S, "memory_snapshot");
  holder *h = push_holder(L);
  cnn_piece *list = NULL;
  size_t n = 0;
  if (pool && !cnn_record_pieces(pool, &list, &n))
    return cnn_error(L, S, "memory_snapshot: no memory for the list of blocks");
  h->list = list;
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) push_piece(L, &list[i]), lua_rawseti(L, -2, (int)i + 1);
  return 1;
}

static void push_event(lua_State *L, const cnn_event *e, const cnn_pool *pool) {
  static const char *const names[] = {"alloc", "free", "retag", "trim"};
  lua_createtable(L, 0, 9);
  lua_pushstring(L, names[e->what]), lua_setfield(L, -2, "what");
  lua_pushnumber(L, 1e-9 * (lua_Number)e->time), lua_setfield(L, -2, "time");
  set_int(L, "size", (int64_t)e->bytes);
  set_int(L, "reserved", pool == e->root ? e->root_reserved : e->reserved);
  if (e->what == CNN_EVENT_TRIM) return;
  set_int(L, "address", (int64_t)e->at);
  set_int(L, "serial", e->serial);
  lua_pushstring(L, cnn_kind_name((cnn_kind)e->kind)), lua_setfield(L, -2, "kind");
  if (e->what == CNN_EVENT_RETAG)
    lua_pushstring(L, cnn_kind_name((cnn_kind)e->was)), lua_setfield(L, -2, "was");
  set_origin(L, e->origin);
}

// _memory_events(dev): the events, the oldest first, and how many were overwritten.
static int l_memory_events(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_pool *pool = cnn_check_pool(L, S, "memory_snapshot");
  holder *h = push_holder(L);
  cnn_event *list = NULL;
  size_t n = 0;
  uint64_t lost = 0;
  if (pool && !cnn_record_events(pool, &list, &n, &lost))
    return cnn_error(L, S, "memory_snapshot: no memory for the list of events");
  h->list = list;
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) push_event(L, &list[i], pool), lua_rawseti(L, -2, (int)i + 1);
  cnn_pushint(L, (int64_t)lost);
  return 2;
}

static void push_place(lua_State *L, cnn_lua *S, const cnn_tensor *t) {
  const cnn_buffer *b = t->buffer;
  lua_createtable(L, 0, 8);
  set_int(L, "address", (int64_t)(uintptr_t)b->data);
  set_int(L, "bytes", cnn_numel(t) * (int64_t)cnn_dtype_size((cnn_dtype)t->dtype));
  cnn_push_shape(L, S, t->ndim, t->shape), lua_setfield(L, -2, "shape");
  lua_pushstring(L, cnn_dtype_name((cnn_dtype)t->dtype)), lua_setfield(L, -2, "dtype");
  lua_pushstring(L, cnn_device_name(t->device)), lua_setfield(L, -2, "device");
  lua_pushboolean(L, cnn_requires_grad(t)), lua_setfield(L, -2, "requires_grad");
}

// _tensor_place(t): where its bytes are: {address (of the storage), bytes, shape, dtype, device,
// requires_grad}, and the same of its gradient; nil for what is no tensor or was freed.
static int l_tensor_place(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_TENSOR);
  const cnn_tensor *t = box ? box->object : NULL;
  if (!t) return 0;
  push_place(L, S, t);
  if (!t->grad) return 1;
  push_place(L, S, t->grad);
  return 2;
}

// _drain(): releases the functions that graphs held; true when there were any.
static int l_drain(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  lua_pushboolean(L, S->n_dead > 0);
  cnn_drain(L, S);
  return 1;
}

void cnn_open_record(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"_record", l_record},
                                           {"_record_serial", l_record_serial},
                                           {"_memory_pieces", l_memory_pieces},
                                           {"_memory_events", l_memory_events},
                                           {"_tensor_place", l_tensor_place},
                                           {"_drain", l_drain},
                                           {NULL, NULL}};
  lua_pushlightuserdata(L, (void *)(uintptr_t)&holder_key);
  lua_newtable(L);
  lua_pushcfunction(L, holder_gc);
  lua_setfield(L, -2, "__gc");
  lua_rawset(L, LUA_REGISTRYINDEX);
  cnn_set_functions(L, S, functions);
}
