// SPDX-License-Identifier: MIT
// The Lua C API that the binding uses, alike on LuaJIT and PUC Lua 5.1, 5.3 and 5.4. Built against
// the 5.1 headers, the module serves both 5.1 and LuaJIT, so nothing that only one of them has is
// used.
#ifndef CNN_LUA_COMPAT_H
#define CNN_LUA_COMPAT_H

#include <lauxlib.h>
#include <lua.h>

#include <stdbool.h>
#include <stdint.h>

#if LUA_VERSION_NUM >= 504
#define cnn_newud(L, size, values) lua_newuserdatauv(L, size, values)
#define cnn_getuv(L, i)            lua_getiuservalue(L, i, 1)
#define cnn_setuv(L, i)            lua_setiuservalue(L, i, 1)
#elif LUA_VERSION_NUM >= 503
#define cnn_newud(L, size, values) lua_newuserdata(L, size)
#define cnn_getuv(L, i)            lua_getuservalue(L, i)
#define cnn_setuv(L, i)            lua_setuservalue(L, i)
#else
#define cnn_newud(L, size, values) lua_newuserdata(L, size)
#define cnn_getuv(L, i)            lua_getfenv(L, i)
#define cnn_setuv(L, i)            lua_setfenv(L, i)
#endif

#if LUA_VERSION_NUM >= 502
#define cnn_rawlen(L, i)   lua_rawlen(L, i)
#define cnn_absindex(L, i) lua_absindex(L, i)
#else
#define cnn_rawlen(L, i)   lua_objlen(L, i)
#define cnn_absindex(L, i) ((i) > 0 || (i) <= LUA_REGISTRYINDEX ? (i) : lua_gettop(L) + (i) + 1)
#endif

#if LUA_VERSION_NUM >= 503
#define CNN_HAS_INTEGERS 1
#else
#define CNN_HAS_INTEGERS 0
#endif

// A number with an integral value that an int64 holds; nothing else (no strings).
static inline bool cnn_toint(lua_State *L, int i, int64_t *value) {
  if (lua_type(L, i) != LUA_TNUMBER) return false;
#if CNN_HAS_INTEGERS
  if (lua_isinteger(L, i)) return *value = (int64_t)lua_tointeger(L, i), true;
#endif
  double d = (double)lua_tonumber(L, i);
  if (!(d >= -0x1p63 && d < 0x1p63) || d != (double)(int64_t)d) return false;
  *value = (int64_t)d;
  return true;
}

// Pushes an integer as the Lua at hand has them; false when a double can't hold it exactly.
static inline bool cnn_pushint(lua_State *L, int64_t value) {
#if CNN_HAS_INTEGERS
  lua_pushinteger(L, (lua_Integer)value);
  return true;
#else
  lua_pushnumber(L, (lua_Number)value);
  return value >= -(INT64_C(1) << 53) && value <= (INT64_C(1) << 53);
#endif
}

#endif
