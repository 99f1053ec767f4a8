// SPDX-License-Identifier: MIT
// Lua arguments by a spec string: positions first, then one trailing table of options.
#include "lua/state.h"

#include "engine/device.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
  lua_State *L;
  cnn_lua *S;
  const char *name;
  const cnn_spec *spec;
  cnn_lua_args *out;
} reader;

static int wrong(const reader *r, int i, int at, const char *expected) {
  char got[64];
  return cnn_error(r->L, r->S, "%s: argument %d (%s): expected %s, got %s", r->name, i + 1,
                   r->spec->params[i].name, expected, cnn_describe(r->L, at, got, sizeof got));
}

static int wrong_type(const reader *r, int i, int at) {
  const cnn_param *p = &r->spec->params[i];
  if (p->type != CNN_T_ENUM) return wrong(r, i, at, cnn_type_name((cnn_type)p->type));
  char words[200] = "one of", word[24];
  for (int k = 0; cnn_param_word(p, k, word, sizeof word); k++) {
    size_t used = strlen(words);
    snprintf(words + used, sizeof words - used, k ? ", \"%s\"" : " \"%s\"", word);
  }
  return wrong(r, i, at, words);
}

// Room for n integers, in the frame or on the Lua stack.
static int64_t *reserve(reader *r, int n) {
  if (r->out->n_ints + n <= CNN_ARG_INTS) {
    int64_t *p = r->out->ints + r->out->n_ints;
    r->out->n_ints += n;
    return p;
  }
  return cnn_newud(r->L, (size_t)n * sizeof(int64_t), 0);
}

// A dim or position: from 1, or negative from the end. 0-based in C.
static int64_t read_position(const reader *r, int i, int at, const char *what) {
  int64_t v;
  if (!cnn_toint(r->L, at, &v)) wrong_type(r, i, at);
  if (v == 0)
    cnn_error(r->L, r->S, "%s: %s 0: Lua %s start at 1 (or count from the end: -1)", r->name,
              r->spec->params[i].name, what);
  return v > 0 ? v - 1 : v;
}

static cnn_arg read_ints(reader *r, int i, int at, bool dims) {
  lua_State *L = r->L;
  int64_t single;
  at = cnn_absindex(L, at);
  if (lua_type(L, at) == LUA_TNUMBER) {
    int64_t *p = reserve(r, 1);
    if (dims)
      *p = read_position(r, i, at, "dims");
    else if (!cnn_toint(L, at, &single))
      wrong_type(r, i, at);
    else
      *p = single;
    return CNN_A_INTS(1, p);
  }
  if (lua_type(L, at) != LUA_TTABLE) wrong_type(r, i, at);
  int n = (int)cnn_rawlen(L, at);
  int64_t *p = reserve(r, n);
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, at, k + 1);
    if (dims)
      p[k] = read_position(r, i, -1, "dims");
    else if (!cnn_toint(L, -1, &p[k]))
      wrong_type(r, i, -1);
    lua_pop(L, 1);
  }
  return CNN_A_INTS(n, p);
}

static cnn_arg read_shape(reader *r, int i, int at) {
  cnn_arg a = read_ints(r, i, at, false);
  if (a.n > CNN_MAX_DIMS)
    cnn_error(r->L, r->S, "%s: argument %d (%s) has %d dims; a tensor has at most %d", r->name,
              i + 1, r->spec->params[i].name, (int)a.n, CNN_MAX_DIMS);
  return a;
}

// -1 is for view and its like; ops that make tensors refuse it.
static cnn_arg read_pair(reader *r, int i, int at) {
  cnn_arg a = read_ints(r, i, at, false);
  if (a.n == 2) return a;
  if (a.n != 1) wrong_type(r, i, at);
  int64_t *p = reserve(r, 2);
  p[0] = p[1] = a.ints[0];
  return CNN_A_INTS(2, p);
}

static cnn_arg read_tensors(reader *r, int i, int at) {
  lua_State *L = r->L;
  char argument[64];
  if (lua_type(L, at) != LUA_TTABLE) wrong_type(r, i, at);
  at = cnn_absindex(L, at);
  int n = (int)cnn_rawlen(L, at);
  cnn_tensor **list = cnn_newud(L, (size_t)(n ? n : 1) * sizeof *list, 0);
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, at, k + 1);
    snprintf(argument, sizeof argument, "%s[%d]", r->spec->params[i].name, k + 1);
    list[k] = cnn_check_tensor(L, r->S, -1, r->name, argument);
    lua_pop(L, 1);
  }
  return CNN_A_TS(n, list);
}

// Tensors that follow each other as arguments of their own, up to `last`; *at moves behind them.
static cnn_arg read_tensor_run(reader *r, int i, int *at, int last) {
  lua_State *L = r->L;
  char argument[64];
  int first = *at, n = 0;
  while (first + n <= last && lua_type(L, first + n) == LUA_TUSERDATA) n++;
  cnn_tensor **list = cnn_newud(L, (size_t)n * sizeof *list, 0);
  for (int k = 0; k < n; k++) {
    snprintf(argument, sizeof argument, "%s[%d]", r->spec->params[i].name, k + 1);
    list[k] = cnn_check_tensor(L, r->S, first + k, r->name, argument);
  }
  *at = first + n;
  return CNN_A_TS(n, list);
}

// A number of dims, or two lists of as many dims: {{2, 3}, {1, 2}}.
static cnn_arg read_axes(reader *r, int i, int at) {
  lua_State *L = r->L;
  int64_t count;
  at = cnn_absindex(L, at);
  if (cnn_toint(L, at, &count)) return CNN_A_I(count);
  if (lua_type(L, at) != LUA_TTABLE || cnn_rawlen(L, at) != 2) wrong_type(r, i, at);
  lua_rawgeti(L, at, 1);
  lua_rawgeti(L, at, 2);
  int first = lua_gettop(L) - 1;
  cnn_arg a = read_ints(r, i, first, true), b = read_ints(r, i, first + 1, true);
  if (a.n != b.n)
    cnn_error(L, r->S,
              "%s: argument %d (%s): the two lists name %d and %d dims; they must be "
              "equally long",
              r->name, i + 1, r->spec->params[i].name, (int)a.n, (int)b.n);
  int64_t *p = reserve(r, 2 * a.n);
  for (int k = 0; k < a.n; k++) p[k] = a.ints[k], p[a.n + k] = b.ints[k];
  return CNN_A_INTS(2 * a.n, p);
}

static cnn_arg read_number(lua_State *L, int at) {
  int64_t v;
  return cnn_toint(L, at, &v) ? CNN_A_I(v) : CNN_A_N((double)lua_tonumber(L, at));
}

static cnn_arg read_word(const reader *r, int i, int at) {
  char word[24];
  if (lua_type(r->L, at) == LUA_TSTRING)
    for (int k = 0; cnn_param_word(&r->spec->params[i], k, word, sizeof word); k++)
      if (strcmp(word, lua_tostring(r->L, at)) == 0) return CNN_A_I(k);
  wrong_type(r, i, at);
  return CNN_A_NONE;
}

static cnn_arg read_one(reader *r, int i, int at) {
  lua_State *L = r->L;
  const cnn_param *p = &r->spec->params[i];
  int64_t v;
  cnn_box *box;
  if (lua_isnil(L, at)) return CNN_A_NONE;
  switch ((cnn_type)p->type) {
  case CNN_T_DIM_OR_TENSOR:
    if (lua_type(L, at) == LUA_TNUMBER) return CNN_A_I(read_position(r, i, at, "dims"));
    // fall through
  case CNN_T_OPERAND:
    if (lua_type(L, at) == LUA_TNUMBER) return read_number(L, at);
    // fall through
  case CNN_T_TENSOR:
  case CNN_T_INDEX:
  case CNN_T_MASK:
  case CNN_T_OTHER:
    box = cnn_to_box(L, at, CNN_BOX_TENSOR);
    if (!box) wrong_type(r, i, at);
    if (!box->object)
      cnn_error(L, r->S, "%s: argument %d (%s) is a tensor that was freed" CNN_WHO_FREED, r->name,
                i + 1, p->name);
    return CNN_A_T((cnn_tensor *)box->object);
  case CNN_T_TENSORS:
  case CNN_T_INDICES: return read_tensors(r, i, at);
  case CNN_T_VALUE:
    if (lua_type(L, at) == LUA_TBOOLEAN)
      return (cnn_arg){.kind = CNN_INT, .n = 1, .i = lua_toboolean(L, at)};
    // fall through
  case CNN_T_NUMBER:
    if (lua_type(L, at) != LUA_TNUMBER) wrong_type(r, i, at);
    return read_number(L, at);
  case CNN_T_INT:
    if (!cnn_toint(L, at, &v)) wrong_type(r, i, at);
    return CNN_A_I(v);
  case CNN_T_BOOL:
    if (lua_type(L, at) != LUA_TBOOLEAN) wrong_type(r, i, at);
    return CNN_A_I(lua_toboolean(L, at));
  case CNN_T_STRING:
    if (lua_type(L, at) != LUA_TSTRING) wrong_type(r, i, at);
    return (cnn_arg){.kind = CNN_STRING, .s = lua_tostring(L, at)};
  case CNN_T_DTYPE: return CNN_A_I(cnn_check_dtype(L, r->S, at, r->name));
  case CNN_T_DEVICE: return CNN_A_DEVICE(cnn_check_device(L, r->S, at, r->name));
  case CNN_T_INTS: return read_ints(r, i, at, false);
  case CNN_T_DIMS: return read_ints(r, i, at, true);
  case CNN_T_SHAPE: return read_shape(r, i, at);
  case CNN_T_PADDING:
    if (lua_type(L, at) == LUA_TSTRING) {
      if (strcmp(lua_tostring(L, at), "same") == 0) return CNN_A_I(CNN_PAD_SAME);
      if (strcmp(lua_tostring(L, at), "valid") == 0) return CNN_A_I(CNN_PAD_VALID);
    }
    return read_ints(r, i, at, false);
  case CNN_T_PAIR: return read_pair(r, i, at);
  case CNN_T_AXES: return read_axes(r, i, at);
  case CNN_T_DIM: return CNN_A_I(read_position(r, i, at, "dims"));
  case CNN_T_POS: return CNN_A_I(read_position(r, i, at, "indices"));
  case CNN_T_LABEL:
    if (!cnn_toint(L, at, &v)) wrong_type(r, i, at);
    if (v < 1) cnn_error(L, r->S, "%s: %s %d: labels start at 1 in Lua", r->name, p->name, (int)v);
    return CNN_A_I(v - 1);
  case CNN_T_ENUM: return read_word(r, i, at);
  case CNN_T_COUNT: break;
  }
  return CNN_A_NONE;
}

// A table that has a string key holds options; a pure list is a value (an empty one too).
static bool is_options(lua_State *L, int at) {
  if (lua_type(L, at) != LUA_TTABLE) return false;
  bool found = false;
  lua_pushnil(L);
  while (!found && lua_next(L, at)) {
    found = lua_type(L, -2) == LUA_TSTRING;
    lua_pop(L, found ? 2 : 1);
  }
  return found;
}

// Hints of PyTorch's that change nothing here.
static bool is_hint(const char *key) {
  static const char *const hints[] = {"foreach", "fused",        "capturable",  "pin_memory",
                                      "inplace", "non_blocking", "out_variant", NULL};
  for (int i = 0; hints[i]; i++)
    if (strcmp(key, hints[i]) == 0) return true;
  return false;
}

static int unknown_option(const reader *r, const char *key) {
  char names[CNN_MAX_ARGS * 24 + 1], list[400] = "";
  size_t at = 0;
  for (int i = 0; i < r->spec->n; i++) {
    size_t n = strlen(r->spec->params[i].name) + 1, used = strlen(list);
    memcpy(names + at, r->spec->params[i].name, n);
    at += n;
    snprintf(list + used, sizeof list - used, i ? ", %s" : "%s", r->spec->params[i].name);
  }
  names[at] = '\0';
  const char *near = cnn_nearest(key, names);
  if (near)
    return cnn_error(r->L, r->S, "%s: unknown option \"%s\": did you mean \"%s\"? (it takes %s)",
                     r->name, key, near, list);
  return cnn_error(r->L, r->S, "%s: unknown option \"%s\" (it takes %s)", r->name, key, list);
}

static void read_options(reader *r, int at) {
  lua_State *L = r->L;
  lua_pushnil(L);
  while (lua_next(L, at)) {
    if (lua_type(L, -2) != LUA_TSTRING) { // the list part is the shape, and read already
      lua_pop(L, 1);
      continue;
    }
    const char *key = lua_tostring(L, -2);
    int i = 0;
    while (i < r->spec->n && strcmp(r->spec->params[i].name, key) != 0) i++;
    if (i == r->spec->n) {
      if (!is_hint(key)) unknown_option(r, key);
    } else if (r->out->args[i].kind != CNN_ABSENT) {
      cnn_error(L, r->S, "%s: %s is given twice, by position and as an option", r->name, key);
    } else {
      // Scratch values that a list may need must not sit between lua_next's key and value.
      int top = lua_gettop(L);
      r->out->args[i] = read_one(r, i, -1);
      int made = lua_gettop(L) - top;
      for (int k = 0; k < made; k++) lua_insert(L, at + 1);
    }
    lua_pop(L, 1);
  }
}

static bool takes_list(cnn_type type) {
  switch (type) {
  case CNN_T_TENSORS:
  case CNN_T_INDICES:
  case CNN_T_INTS:
  case CNN_T_PAIR:
  case CNN_T_PADDING:
  case CNN_T_DIMS:
  case CNN_T_SHAPE: return true;
  default: return false;
  }
}

// {} is a value where a list is expected. Elsewhere it is a table of options, all of them left out:
// cnn.zeros(2, {dtype = wanted}) with wanted = nil.
static bool is_no_options(lua_State *L, const cnn_spec *spec, int i, int at, int top) {
  if (at != top || lua_type(L, at) != LUA_TTABLE) return false;
  if (i < spec->n) {
    const cnn_param *p = &spec->params[i];
    if (takes_list((cnn_type)p->type) || !(p->optional || p->has_default)) return false;
  }
  lua_pushnil(L);
  if (!lua_next(L, at)) return true;
  lua_pop(L, 2);
  return false;
}

static int first_variadic(const cnn_spec *spec) {
  for (int i = 0; i < spec->n; i++)
    if (spec->params[i].variadic && spec->params[i].type != CNN_T_TENSORS) return i;
  return -1;
}

static cnn_tensor *plain_tensor(lua_State *L, const cnn_param *p, int at) {
  bool takes = p->type == CNN_T_TENSOR || p->type == CNN_T_OPERAND;
  cnn_box *box = takes && !p->variadic ? cnn_to_box(L, at, CNN_BOX_TENSOR) : NULL;
  return box ? box->object : NULL;
}

void cnn_read_args(lua_State *L, cnn_lua *S, const char *name, const cnn_spec *spec, int first,
                   cnn_lua_args *out) {
  int top = lua_gettop(L), last = top, options = 0, i = 0, at = first;
  cnn_tensor *t;
  out->n = spec->n;
  out->n_ints = 0;
  // Most calls are on tensors, and no more.
  while (at <= top && i < spec->n && (t = plain_tensor(L, &spec->params[i], at)) != NULL)
    out->args[i++] = CNN_A_T(t), at++;
  for (int k = i; k < spec->n; k++) out->args[k] = CNN_A_NONE;
  if (at > top) return;
  reader r = {L, S, name, spec, out};
  if (is_options(L, top)) options = top, last = top - 1;
  while (at <= last) {
    if (is_no_options(L, spec, i, at, top)) break;
    bool many = i < spec->n && spec->params[i].variadic;
    bool tensors = many && spec->params[i].type == CNN_T_TENSORS;
    if (i == spec->n) {
      cnn_error(L, S, "%s: takes at most %d argument%s", name, spec->n, spec->n == 1 ? "" : "s");
    } else if (many && !tensors && lua_type(L, at) == LUA_TNUMBER) {
      int end = at, n;
      while (end <= last && lua_type(L, end) == LUA_TNUMBER) end++;
      n = end - at;
      if (n > CNN_MAX_DIMS) cnn_error(L, S, "%s: at most %d sizes or dims", name, CNN_MAX_DIMS);
      int64_t *p = reserve(&r, n);
      bool dims = spec->params[i].type == CNN_T_DIMS;
      for (int k = 0; k < n; k++) p[k] = read_ints(&r, i, at + k, dims).ints[0];
      out->args[i] = CNN_A_INTS(n, p);
      at = end;
    } else if (tensors && lua_type(L, at) == LUA_TUSERDATA) {
      out->args[i] = read_tensor_run(&r, i, &at, last);
    } else {
      out->args[i] = read_one(&r, i, at++);
    }
    i++;
  }
  if (!options) return;
  // Creation functions take the shape in the same table: zeros{2, 3, dtype = "int64"}.
  int shape = first_variadic(spec);
  if (cnn_rawlen(L, options) > 0) {
    if (shape < 0 || out->args[shape].kind != CNN_ABSENT)
      cnn_error(L, S, "%s: a table holds either options or a list, not both", name);
    out->args[shape] = read_one(&r, shape, options);
  }
  read_options(&r, options);
}

cnn_dtype cnn_check_dtype(lua_State *L, cnn_lua *S, int i, const char *function) {
  char got[64];
  if (lua_type(L, i) == LUA_TSTRING) {
    cnn_dtype t = cnn_dtype_from_name(lua_tostring(L, i));
    if (t != CNN_DTYPE_COUNT) return t;
    static const char names[] = "float32\0float64\0float16\0bfloat16\0int64\0int32\0int16\0int8\0"
                                "uint8\0bool\0";
    const char *near = cnn_nearest(lua_tostring(L, i), names);
    if (near)
      cnn_error(L, S, "%s: unknown dtype \"%s\": did you mean \"%s\"?", function,
                lua_tostring(L, i), near);
  }
  cnn_error(L, S,
            "%s: unknown dtype %s: use float32, float64, float16, bfloat16, int64, int32, int16, "
            "int8, uint8 or bool",
            function, cnn_describe(L, i, got, sizeof got));
  return CNN_F32;
}

cnn_device cnn_check_device(lua_State *L, cnn_lua *S, int i, const char *function) {
  char got[64];
  cnn_device device = {CNN_CPU, 0};
  if (lua_type(L, i) != LUA_TSTRING || !cnn_device_parse(lua_tostring(L, i), &device))
    cnn_error(L, S, "%s: unknown device %s: use \"cpu\", \"meta\", \"cuda\" or \"cuda:N\"",
              function, cnn_describe(L, i, got, sizeof got));
  if (strcmp(lua_tostring(L, i), "cuda") == 0) device.index = S->ctx.gpu;
  if (cnn_device_ready(&S->ctx, device) != CNN_OK)
    cnn_error(L, S, "%s: %s", function, S->ctx.message);
  return device;
}
