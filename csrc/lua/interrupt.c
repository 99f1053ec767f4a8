// SPDX-License-Identifier: MIT
// Ctrl-C for the interactive session: an error in the running script instead of the process's end.
//
// Signal handlers belong to the process, so this state is global; only one session uses it. The
// handler does what Lua's own interpreter does: it sets a hook, the only thing that a handler may
// do to a Lua state, and the hook raises. A second Ctrl-C before that (LuaJIT's compiled loops look
// at no hooks) ends the process after all.
#include "lua/state.h"

#include <signal.h>
#include <string.h>

static lua_State *volatile interrupted;
static volatile sig_atomic_t pending, raises, came;
static struct sigaction before;
static bool installed;

static void raise_interrupted(lua_State *L, lua_Debug *ar) {
  (void)ar;
  lua_sethook(L, NULL, 0, 0);
  pending = 0;
  lua_pushliteral(L, "interrupted");
  lua_error(L);
}

static void on_signal(int number) {
  came = 1;
  if (!raises) return; // a read that it breaks off returns
  if (pending) {
    signal(number, SIG_DFL);
    raise(number);
  }
  pending = 1;
  lua_sethook(interrupted, raise_interrupted, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

// set_interrupt("raise"), ("ignore"), or (nil): as it was before. Gives whether Ctrl-C came since
// the last call.
static int l_set_interrupt(lua_State *L) {
  cnn_state(L);
  const char *mode = lua_tostring(L, 1);
  struct sigaction action;
  if (pending) lua_sethook(L, NULL, 0, 0);
  pending = 0;
  lua_pushboolean(L, came);
  came = 0;
  interrupted = L;
  raises = mode && strcmp(mode, "raise") == 0;
  if (mode && !installed) {
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal; // without SA_RESTART: a read is broken off
    installed = sigaction(SIGINT, &action, &before) == 0;
  } else if (!mode && installed) {
    sigaction(SIGINT, &before, NULL);
    installed = false;
  }
  return 1;
}

void cnn_open_interrupt(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"set_interrupt", l_set_interrupt}, {NULL, NULL}};
  cnn_set_functions(L, S, functions);
}
