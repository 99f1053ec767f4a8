// SPDX-License-Identifier: MIT
// Optimizers for lua/cnn/optim.lua: boxes and plain functions on them.
#include "lua/state.h"

#include <string.h>

#include "optim/optimizer.h"

static cnn_optimizer *check_optimizer(lua_State *L, cnn_lua *S) {
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_OPTIMIZER);
  if (!box || !box->object) cnn_error(L, S, "optimizer: expected an optimizer");
  return box->object;
}

static int optimizer_gc(lua_State *L) {
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_OPTIMIZER);
  if (!box) return 0;
  void *object = box->object;
  box->object = NULL;
  cnn_unref(object);
  return 0;
}

// A list of parameters into a scratch userdata.
static cnn_tensor **read_params(lua_State *L, cnn_lua *S, int i, const char *function, int *n) {
  char got[64];
  if (lua_type(L, i) != LUA_TTABLE)
    cnn_error(L, S, "%s: expected a list of parameters, got %s", function,
              cnn_describe(L, i, got, sizeof got));
  *n = (int)cnn_rawlen(L, i);
  cnn_tensor **list = cnn_newud(L, (size_t)(*n + 1) * sizeof *list, 0);
  for (int k = 0; k < *n; k++) {
    lua_rawgeti(L, i, k + 1);
    list[k] = cnn_check_tensor(L, S, -1, function, "a parameter");
    lua_pop(L, 1);
  }
  return list;
}

// optimizer_new(kind)
static int l_new(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  const cnn_optimizer_kind *kind = cnn_optimizer_kind_find(luaL_checkstring(L, 1));
  cnn_optimizer *o;
  if (!kind) return cnn_error(L, S, "optim: there is no optimizer \"%s\"", lua_tostring(L, 1));
  cnn_box *box = cnn_push_box(L, S, CNN_BOX_OPTIMIZER);
  cnn_status status;
  CNN_WITH_ROOM(L, S, status, cnn_optimizer_create(&S->ctx, kind, &o));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = o;
  return 1;
}

static double setting_value(lua_State *L, cnn_lua *S, int i, const cnn_optimizer_kind *kind,
                            const cnn_setting *s) {
  char got[64];
  if (s->flag && lua_type(L, i) == LUA_TBOOLEAN) return lua_toboolean(L, i);
  if (s->flag || lua_type(L, i) != LUA_TNUMBER)
    cnn_error(L, S, "%s: %s: expected %s, got %s", kind->name, s->name,
              s->flag ? "true or false" : "a number", cnn_describe(L, i, got, sizeof got));
  return (double)lua_tonumber(L, i);
}

// Overwrites the settings that the table at index i gives.
static void read_settings(lua_State *L, cnn_lua *S, int i, const cnn_optimizer_kind *kind,
                          double *settings) {
  luaL_checktype(L, i, LUA_TTABLE);
  for (int k = 0; k < kind->n_settings; k++) {
    const cnn_setting *s = &kind->settings[k];
    lua_getfield(L, i, s->name);
    if (!lua_isnil(L, -1)) settings[k] = setting_value(L, S, -1, kind, s);
    lua_pop(L, 1);
  }
}

// optimizer_add_group(o, params, settings): a setting left out takes the kind's default.
static int l_add_group(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_optimizer *o = check_optimizer(L, S);
  double settings[CNN_MAX_SETTINGS] = {0};
  int n;
  cnn_status status;
  for (int k = 0; k < o->kind->n_settings; k++) settings[k] = o->kind->settings[k].value;
  read_settings(L, S, 3, o->kind, settings);
  cnn_tensor **params = read_params(L, S, 2, o->kind->name, &n);
  CNN_WITH_ROOM(L, S, status, cnn_optimizer_add_group(&S->ctx, o, params, n, settings));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  return 0;
}

static int check_group(lua_State *L, cnn_lua *S, const cnn_optimizer *o) {
  int g = (int)luaL_checkinteger(L, 2) - 1;
  if (g < 0 || g >= o->n_groups)
    cnn_error(L, S, "%s: there is no parameter group %d (1..%d)", o->kind->name, g + 1,
              o->n_groups);
  return g;
}

static int check_setting(lua_State *L, cnn_lua *S, const cnn_optimizer *o) {
  int k = cnn_setting_find(o->kind, luaL_checkstring(L, 3));
  if (k < 0) cnn_error(L, S, "%s: there is no setting \"%s\"", o->kind->name, lua_tostring(L, 3));
  return k;
}

static int l_get(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_optimizer *o = check_optimizer(L, S);
  int g = check_group(L, S, o), k = check_setting(L, S, o);
  double v = o->groups[g].settings[k];
  if (o->kind->settings[k].flag)
    lua_pushboolean(L, v != 0);
  else
    lua_pushnumber(L, v);
  return 1;
}

// optimizer_set(o, group, settings): those given, together.
static int l_set(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_optimizer *o = check_optimizer(L, S);
  double settings[CNN_MAX_SETTINGS];
  int g = check_group(L, S, o);
  memcpy(settings, o->groups[g].settings, sizeof settings);
  read_settings(L, S, 3, o->kind, settings);
  cnn_status status = cnn_optimizer_set(&S->ctx, o, g, settings);
  if (status != CNN_OK) return cnn_raise(L, S, status);
  return 0;
}

static int l_group_count(lua_State *L) {
  cnn_pushint(L, check_optimizer(L, cnn_state(L))->n_groups);
  return 1;
}

static int l_params(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_optimizer *o = check_optimizer(L, S);
  const cnn_group *g = &o->groups[check_group(L, S, o)];
  lua_createtable(L, g->n, 0);
  for (int i = 0; i < g->n; i++) {
    cnn_push_known_tensor(L, S, g->slots[i].param);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

// optimizer_state(o, param): step count and a table of state tensors; nil before the first step.
static int l_state(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_optimizer *o = check_optimizer(L, S);
  cnn_slot *slot = cnn_optimizer_slot(o, cnn_check_tensor(L, S, 2, "state", "the parameter"));
  if (!slot || slot->steps == 0) return 0;
  cnn_pushint(L, slot->steps);
  lua_newtable(L);
  for (int k = 0; k < o->kind->n_states; k++) {
    if (!slot->state[k]) continue;
    cnn_push_known_tensor(L, S, slot->state[k]);
    lua_setfield(L, -2, o->kind->states[k]);
  }
  return 2;
}

// optimizer_load_state(o, param, steps, {name = tensor}): keeps the given tensors (copies are the
// caller's business).
static int l_load_state(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_optimizer *o = check_optimizer(L, S);
  cnn_tensor *param = cnn_check_tensor(L, S, 2, "load_state_dict", "the parameter");
  cnn_slot *slot = cnn_optimizer_slot(o, param);
  int64_t steps;
  cnn_tensor *fresh[CNN_MAX_STATE] = {NULL};
  cnn_shape_text a, b;
  if (!slot)
    return cnn_error(L, S, "load_state_dict: the tensor is no parameter of this optimizer");
  if (!cnn_toint(L, 3, &steps) || steps < 0)
    return cnn_error(L, S, "load_state_dict: the step count must be an integer >= 0");
  luaL_checktype(L, 4, LUA_TTABLE);
  for (int k = 0; k < o->kind->n_states; k++) {
    lua_getfield(L, 4, o->kind->states[k]);
    if (!lua_isnil(L, -1)) {
      cnn_tensor *t = fresh[k] = cnn_check_tensor(L, S, -1, "load_state_dict", o->kind->states[k]);
      if (!cnn_shape_equal(t->ndim, t->shape, param->ndim, param->shape))
        return cnn_error(L, S, "load_state_dict: %s has shape %s, the parameter %s",
                         o->kind->states[k], cnn_shape_format(&a, t->ndim, t->shape),
                         cnn_shape_format(&b, param->ndim, param->shape));
      cnn_box_remember(L, S, -1);
    }
    lua_pop(L, 1);
  }
  for (int k = 0; k < CNN_MAX_STATE; k++) {
    cnn_tensor *old = slot->state[k];
    slot->state[k] = fresh[k] ? cnn_ref(fresh[k]) : NULL;
    if (fresh[k]) cnn_buffer_retag(fresh[k]->buffer, CNN_KIND_STATE);
    cnn_unref(old);
  }
  slot->steps = steps;
  return 0;
}

static int l_step(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_optimizer *o = check_optimizer(L, S);
  cnn_status status;
  int next = 0;
  cnn_pace(L, S);
  S->ctx.op = o->kind->name;
  CNN_WITH_ROOM(L, S, status, cnn_optimizer_step_on(&S->ctx, o, &next));
  S->ctx.op = NULL;
  if (status != CNN_OK) return cnn_raise(L, S, status);
  return 0;
}

static int l_zero_grad(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_optimizer *o = check_optimizer(L, S);
  bool set_to_none = lua_isnoneornil(L, 2) || lua_toboolean(L, 2);
  cnn_status status;
  CNN_WITH_ROOM(L, S, status, cnn_optimizer_zero_grad(&S->ctx, o, set_to_none));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  return 0;
}

static int l_reset(lua_State *L) {
  cnn_optimizer_reset(check_optimizer(L, cnn_state(L)));
  return 0;
}

// optimizer_attach(o, params or nil): nil is all of them.
static int l_attach(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_optimizer *o = check_optimizer(L, S);
  cnn_tensor **params = NULL;
  int n = -1;
  cnn_status status;
  if (!lua_isnoneornil(L, 2)) params = read_params(L, S, 2, "attach", &n);
  CNN_WITH_ROOM(L, S, status, cnn_optimizer_attach(&S->ctx, o, params, n));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  return 0;
}

static int l_detach(lua_State *L) {
  cnn_optimizer_detach(check_optimizer(L, cnn_state(L)));
  return 0;
}

// optimizer_accumulate(o, fn, ...): fn(...) with the optimizer's steps within backward put off.
static int l_accumulate(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_optimizer *o = check_optimizer(L, S);
  cnn_optimizer_pause(o, true);
  int failed = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
  cnn_optimizer_pause(o, false);
  S->L = L;
  return failed ? lua_error(L) : lua_gettop(L) - 1;
}

// clip_grad_norm(params, max_norm, p, error_if_nonfinite): the norm before clipping.
static int l_clip_norm(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int n;
  double norm = 0, max_norm = (double)luaL_checknumber(L, 2), p = (double)luaL_checknumber(L, 3);
  bool check = lua_toboolean(L, 4);
  cnn_status status;
  cnn_tensor **params = read_params(L, S, 1, "clip_grad_norm_", &n);
  CNN_WITH_ROOM(L, S, status, cnn_clip_grad_norm(&S->ctx, params, n, max_norm, p, check, &norm));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  lua_pushnumber(L, norm);
  return 1;
}

static int l_clip_value(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int n;
  double value = (double)luaL_checknumber(L, 2);
  cnn_status status;
  cnn_tensor **params = read_params(L, S, 1, "clip_grad_value_", &n);
  CNN_WITH_ROOM(L, S, status, cnn_clip_grad_value(&S->ctx, params, n, value));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  return 0;
}

// optimizer_kinds(): for each its name, doc, settings in order (name, default), state names.
static int l_kinds(lua_State *L) {
  cnn_state(L);
  lua_newtable(L);
  for (int i = 0; i < cnn_optimizer_kind_count(); i++) {
    const cnn_optimizer_kind *kind = cnn_optimizer_kind_at(i);
    lua_newtable(L);
    lua_pushstring(L, kind->name), lua_setfield(L, -2, "name");
    lua_pushstring(L, kind->doc), lua_setfield(L, -2, "doc");
    lua_newtable(L);
    for (int k = 0; k < kind->n_settings; k++) {
      lua_newtable(L);
      lua_pushstring(L, kind->settings[k].name), lua_setfield(L, -2, "name");
      if (kind->settings[k].flag)
        lua_pushboolean(L, kind->settings[k].value != 0);
      else
        lua_pushnumber(L, kind->settings[k].value);
      lua_setfield(L, -2, "default");
      lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "settings");
    lua_newtable(L);
    for (int k = 0; k < kind->n_states; k++)
      lua_pushstring(L, kind->states[k]), lua_rawseti(L, -2, k + 1);
    lua_setfield(L, -2, "states");
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

void cnn_open_optim(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"optimizer_new", l_new},
                                           {"optimizer_add_group", l_add_group},
                                           {"optimizer_get", l_get},
                                           {"optimizer_set", l_set},
                                           {"optimizer_group_count", l_group_count},
                                           {"optimizer_params", l_params},
                                           {"optimizer_state", l_state},
                                           {"optimizer_load_state", l_load_state},
                                           {"optimizer_step", l_step},
                                           {"optimizer_zero_grad", l_zero_grad},
                                           {"optimizer_reset", l_reset},
                                           {"optimizer_attach", l_attach},
                                           {"optimizer_detach", l_detach},
                                           {"optimizer_accumulate", l_accumulate},
                                           {"clip_grad_norm", l_clip_norm},
                                           {"clip_grad_value", l_clip_value},
                                           {"optimizer_kinds", l_kinds},
                                           {NULL, NULL}};
  cnn_set_functions(L, S, functions);
  cnn_push_metatable(L, S, CNN_BOX_OPTIMIZER);
  lua_pushcfunction(L, optimizer_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
}
