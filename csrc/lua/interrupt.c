// SPDX-License-Identifier: MIT
// Ctrl-C: as a question for training loops, as an error in the interactive session.
//
// LuaJIT's compiled loops never look at the hook by which a Lua program is usually interrupted: so
// a script that trains may listen, and ask between two steps. The session does what Lua's own
// interpreter does: the handler sets a hook, the only thing that it may do to a Lua state, and the
// hook raises. In both, a second Ctrl-C that comes before the first was seen ends the process.
//
// Signal handlers belong to the process, and so does this state.
#include "lua/state.h"

#include <signal.h>
#include <string.h>

typedef enum way {
  WAY_NONE,   // as it was before
  WAY_NOTE,   // sets a flag
  WAY_RAISE,  // raises in the running script
  WAY_IGNORE, // breaks off a read, and sets the flag
} way;

static volatile sig_atomic_t current, noted, pending;
static lua_State *volatile running;
static struct sigaction before;

static void raise_interrupted(lua_State *L, lua_Debug *ar) {
  (void)ar;
  lua_sethook(L, NULL, 0, 0);
  pending = 0;
  lua_pushliteral(L, "interrupted");
  lua_error(L);
}

static void on_signal(int number) {
  bool again = current == WAY_NOTE ? noted : current == WAY_RAISE && pending;
  if (again) {
    signal(number, SIG_DFL);
    raise(number);
  }
  noted = 1;
  if (current != WAY_RAISE) return;
  pending = 1;
  lua_sethook(running, raise_interrupted, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

// Gives whether Ctrl-C came since the last change.
static bool change(lua_State *L, way next) {
  bool came = noted != 0;
  struct sigaction action;
  if (pending) lua_sethook(L, NULL, 0, 0);
  pending = noted = 0;
  running = L;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = next == WAY_NOTE ? SA_RESTART : 0;
  if (next == WAY_NONE && current != WAY_NONE) sigaction(SIGINT, &before, NULL);
  if (next != WAY_NONE) sigaction(SIGINT, &action, current == WAY_NONE ? &before : NULL);
  current = next;
  return came;
}

// listen_interrupt(on): on, Ctrl-C sets the flag; off, it is what it was before.
static int l_listen(lua_State *L) {
  static way outer;
  bool on = lua_toboolean(L, 1) != 0;
  cnn_state(L);
  if (on == (current == WAY_NOTE)) return 0;
  if (on) outer = (way)current;
  change(L, on ? WAY_NOTE : outer);
  return 0;
}

// interrupted(): whether Ctrl-C was pressed since listening began.
static int l_interrupted(lua_State *L) {
  cnn_state(L);
  lua_pushboolean(L, noted);
  return 1;
}

// set_interrupt("raise"), ("ignore"), or (nil): as it was before. Gives whether Ctrl-C came since
// the last call.
static int l_set_interrupt(lua_State *L) {
  cnn_state(L);
  const char *name = lua_tostring(L, 1);
  lua_pushboolean(L, change(L, !name                        ? WAY_NONE
                               : strcmp(name, "raise") == 0 ? WAY_RAISE
                                                            : WAY_IGNORE));
  return 1;
}

void cnn_open_interrupt(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"listen_interrupt", l_listen},
                                           {"interrupted", l_interrupted},
                                           {"set_interrupt", l_set_interrupt},
                                           {NULL, NULL}};
  cnn_set_functions(L, S, functions);
}
