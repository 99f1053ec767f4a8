// SPDX-License-Identifier: MIT
// cnn.save_on_cpu: a packer (engine/pack.h) is set while a function runs.
#include "lua/state.h"

#include "engine/pack.h"

// _save_on_cpu(path or nil, fn, ...): fn's results.
static int l_save_on_cpu(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  const char *path = luaL_optstring(L, 1, NULL);
  cnn_packer *packer;
  cnn_status status;
  cnn_pace(L, S);
  CNN_WITH_ROOM(L, S, status, cnn_packer_create(&S->ctx, path, &packer));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  void *outer = S->ctx.packer;
  S->ctx.packer = packer;
  int failed = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
  S->ctx.packer = outer;
  S->L = L;
  cnn_unref(packer); // nodes hold the file that they need
  return failed ? lua_error(L) : lua_gettop(L) - 1;
}

void cnn_open_pack(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"_save_on_cpu", l_save_on_cpu}, {NULL, NULL}};
  cnn_set_functions(L, S, functions);
}
