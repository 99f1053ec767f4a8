// SPDX-License-Identifier: MIT
// Ctrl-C as a question, for training loops: LuaJIT's compiled loops never look at the hook by which
// a Lua program is usually interrupted. While a script listens, the first Ctrl-C sets a flag; a
// second one ends the process as usual.
#include "lua/state.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t interrupted;

static void note(int number) {
  (void)number;
  interrupted = 1;
}

// listen_interrupt(on): on, Ctrl-C sets the flag; off, it is what it was before.
static int l_listen(lua_State *L) {
  static struct sigaction before;
  static bool listening;
  bool on = lua_toboolean(L, 1) != 0;
  cnn_state(L);
  if (on == listening) return 0;
  if (on) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = note;
    action.sa_flags = SA_RESTART | (int)SA_RESETHAND;
    interrupted = 0;
    sigaction(SIGINT, &action, &before);
  } else {
    sigaction(SIGINT, &before, NULL);
  }
  listening = on;
  return 0;
}

// interrupted(): whether Ctrl-C was pressed since listening began.
static int l_interrupted(lua_State *L) {
  cnn_state(L);
  lua_pushboolean(L, interrupted);
  return 1;
}

void cnn_open_interrupt(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"listen_interrupt", l_listen},
                                           {"interrupted", l_interrupted},
                                           {NULL, NULL}};
  cnn_set_functions(L, S, functions);
}
