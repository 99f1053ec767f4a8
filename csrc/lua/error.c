// SPDX-License-Identifier: MIT
// Errors as scripts see them: "script.lua:12: op: what is wrong and what to do".
#include "lua/state.h"

#include <stdio.h>
#include <string.h>

void cnn_where(lua_State *L, cnn_lua *S, char *text, size_t size) {
  lua_Debug ar;
  text[0] = '\0';
  size_t ours = strlen(S->library);
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline <= 0) continue; // C
    if (ours > 0 && ar.source[0] == '@' && strncmp(ar.source + 1, S->library, ours) == 0) continue;
    snprintf(text, size, "%s:%d", ar.short_src, ar.currentline);
    return;
  }
}

static _Noreturn void raise_text(lua_State *L, cnn_lua *S, const char *message) {
  char where[160];
  cnn_where(L, S, where, sizeof where);
  lua_pushfstring(L, where[0] ? "%s: %s" : "%s%s", where, message);
  lua_error(L);
  __builtin_unreachable();
}

int cnn_raise(lua_State *L, cnn_lua *S, cnn_status status) {
  (void)status;
  raise_text(L, S, S->ctx.message);
}

int cnn_error(lua_State *L, cnn_lua *S, const char *format, ...) {
  char message[CNN_MESSAGE_MAX];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  raise_text(L, S, message);
}

const char *cnn_describe(lua_State *L, int i, char *text, size_t size) {
  if (lua_isnone(L, i)) return "nothing";
  switch (lua_type(L, i)) {
  case LUA_TNIL: return "nil";
  case LUA_TNUMBER:
    snprintf(text, size, "the number %.14g", (double)lua_tonumber(L, i));
    return text;
  case LUA_TBOOLEAN: return lua_toboolean(L, i) ? "true" : "false";
  case LUA_TSTRING: snprintf(text, size, "the string \"%.40s\"", lua_tostring(L, i)); return text;
  case LUA_TTABLE: return "a table";
  case LUA_TFUNCTION: return "a function";
  case LUA_TUSERDATA: {
    const cnn_box *box = lua_touserdata(L, i);
    static const char *const names[CNN_BOX_KINDS] = {"a tensor",     "a graph node", "a module",
                                                     "an optimizer", "results",      "an engine",
                                                     "an archive",   "a loader",     "a pool"};
    for (int k = 0; k < CNN_BOX_KINDS; k++)
      if (cnn_to_box(L, i, (cnn_box_kind)k))
        return box->object || k != CNN_BOX_TENSOR ? names[k] : "a freed tensor";
    return "a userdata";
  }
  default: snprintf(text, size, "a %s", lua_typename(L, lua_type(L, i))); return text;
  }
}

// Levenshtein distance, bounded.
static int distance(const char *a, const char *b) {
  int la = (int)strlen(a), lb = (int)strlen(b), row[64];
  if (la > 40 || lb > 60) return 99;
  for (int j = 0; j <= lb; j++) row[j] = j;
  for (int i = 1; i <= la; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= lb; j++) {
      int best = diagonal + (a[i - 1] != b[j - 1]);
      if (row[j] + 1 < best) best = row[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      diagonal = row[j];
      row[j] = best;
    }
  }
  return row[lb];
}

const char *cnn_nearest(const char *name, const char *names) {
  const char *best = NULL;
  int least = (int)strlen(name) / 3 + 1; // more changes than that make another word
  for (; *names; names += strlen(names) + 1) {
    int d = distance(name, names);
    if (d <= least) least = d - 1, best = names;
  }
  return best;
}
