// SPDX-License-Identifier: MIT
// One function binds every op: a C closure per op and form over the registry's entry. Also
// cnn.ops().
#include "lua/state.h"

#include <string.h>

// Upvalues of an op's closure: 1 the state, 2 the tensors' metatable, 3 the op's id, twice, plus
// whether this is the in-place form.
#define UP_METATABLE lua_upvalueindex(2)

// Creation functions take requires_grad, which concerns the handle and not the op.
static void set_requires_grad(const cnn_lua_args *a, const cnn_op_entry *e, cnn_tensor *t) {
  for (int i = 0; i < e->spec.n; i++)
    if (a->args[i].kind == CNN_INT && a->args[i].i == 1 &&
        strcmp(e->spec.params[i].name, "requires_grad") == 0)
      t->flags |= CNN_REQUIRES_GRAD;
}

static int op_fixed(lua_State *L, cnn_lua *S, int id, const cnn_op_entry *e, cnn_lua_args *a) {
  cnn_box *boxes[CNN_MAX_RESULTS];
  cnn_results r;
  cnn_status status;
  for (int i = 0; i < e->n_results; i++) boxes[i] = cnn_push_tensor_box(L, S, UP_METATABLE);
  CNN_WITH_ROOM(L, S, status, cnn_dispatch(&S->ctx, id, a->args, a->n, &r));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  for (int i = 0; i < r.n; i++) cnn_box_result(S, boxes[i], r.t[i]);
  lua_pop(L, e->n_results - r.n); // an op that was chosen may give fewer
  if (e->op->flags & CNN_OP_FUNCTION) set_requires_grad(a, e, r.t[0]);
  return r.n;
}

static int op_self(lua_State *L, cnn_lua *S, int id, cnn_lua_args *a, bool in_place) {
  cnn_results r;
  cnn_status status;
  if (in_place)
    CNN_WITH_ROOM(L, S, status, cnn_dispatch_in_place(&S->ctx, id, a->args, a->n, &r));
  else
    CNN_WITH_ROOM(L, S, status, cnn_dispatch(&S->ctx, id, a->args, a->n, &r));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  cnn_results_free(&r);
  lua_pushvalue(L, 1);
  return 1;
}

// A variable number of results waits in a box of its own while their boxes are made, so that an
// error on the way loses none.
typedef struct results_box {
  cnn_box box; // object: &results while it holds any
  cnn_results results;
} results_box;

static int results_gc(lua_State *L) {
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_RESULTS);
  if (box && box->object) cnn_results_free(box->object);
  if (box) box->object = NULL;
  return 0;
}

static int op_list(lua_State *L, cnn_lua *S, int id, cnn_lua_args *a) {
  cnn_status status;
  results_box *holder = cnn_newud(L, sizeof *holder, 0);
  holder->box = (cnn_box){(uintptr_t)&cnn_box_magic[CNN_BOX_RESULTS], NULL, NULL, NULL};
  cnn_push_metatable(L, S, CNN_BOX_RESULTS);
  lua_setmetatable(L, -2);
  cnn_results *r = &holder->results;
  CNN_WITH_ROOM(L, S, status, cnn_dispatch(&S->ctx, id, a->args, a->n, r));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  holder->box.object = r;
  lua_createtable(L, r->n, 0);
  for (int i = 0; i < r->n; i++) {
    cnn_box *box = cnn_push_tensor_box(L, S, UP_METATABLE);
    cnn_box_result(S, box, cnn_ref(r->t[i]));
    lua_rawseti(L, -2, i + 1);
  }
  cnn_results_free(r);
  holder->box.object = NULL;
  return 1;
}

static int op_call(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int form = (int)(intptr_t)lua_touserdata(L, lua_upvalueindex(3)), id = form / 2;
  bool in_place = form & 1;
  const cnn_op_entry *e = cnn_op_at(id);
  cnn_lua_args a;
  cnn_pace(L, S);
  cnn_read_args(L, S, e->op->name, &e->spec, 1, &a);
  if (in_place || e->op->flags & CNN_OP_SELF) return op_self(L, S, id, &a, in_place);
  if (e->op->flags & CNN_OP_LIST) return op_list(L, S, id, &a);
  return op_fixed(L, S, id, e, &a);
}

// Lua calls __unm with its operand twice.
static int op_unm(lua_State *L) {
  lua_settop(L, 1);
  return op_call(L);
}

static void push_op(lua_State *L, cnn_lua *S, lua_CFunction f, int id, bool in_place) {
  lua_pushlightuserdata(L, S);
  cnn_push_metatable(L, S, CNN_BOX_TENSOR);
  lua_pushlightuserdata(L, (void *)(intptr_t)(2 * id + in_place));
  lua_pushcclosure(L, f, 3);
}

// One argument of a spec as scripts see it: {name, type, optional, changed, variadic, words,
// default}.
static void push_param(lua_State *L, const cnn_param *p) {
  char word[24];
  lua_newtable(L);
  lua_pushstring(L, p->name), lua_setfield(L, -2, "name");
  lua_pushstring(L, cnn_type_name((cnn_type)p->type)), lua_setfield(L, -2, "type");
  lua_pushboolean(L, p->optional), lua_setfield(L, -2, "optional");
  lua_pushboolean(L, p->changed), lua_setfield(L, -2, "changed");
  lua_pushboolean(L, p->variadic), lua_setfield(L, -2, "variadic");
  if (p->type == CNN_T_ENUM) {
    lua_newtable(L);
    for (int i = 0; cnn_param_word(p, i, word, sizeof word); i++)
      lua_pushstring(L, word), lua_rawseti(L, -2, i + 1);
    lua_setfield(L, -2, "words");
  }
  if (!p->has_default) return;
  if (p->type == CNN_T_ENUM)
    cnn_param_word(p, (int)p->value.i, word, sizeof word), lua_pushstring(L, word);
  else if (p->type == CNN_T_BOOL)
    lua_pushboolean(L, p->value.i != 0);
  else if (p->value.kind == CNN_NUMBER)
    lua_pushnumber(L, p->value.d);
  else {
    int64_t value = p->value.kind == CNN_INTS ? p->value.ints[0] : p->value.i;
    bool counted = p->type == CNN_T_DIM || p->type == CNN_T_DIMS || p->type == CNN_T_POS;
    cnn_pushint(L, value + (counted && value >= 0)); // scripts count from 1
  }
  lua_setfield(L, -2, "default");
}

void cnn_push_params(lua_State *L, const cnn_spec *spec) {
  lua_createtable(L, spec->n, 0);
  for (int i = 0; i < spec->n; i++) push_param(L, &spec->params[i]), lua_rawseti(L, -2, i + 1);
}

// A method is what begins with a tensor: of a list of tensors there is only the function.
static bool is_method(const cnn_op_entry *e) {
  return !(e->op->flags & CNN_OP_FUNCTION) && e->spec.n > 0 && e->input_of[0] == 0 &&
         e->spec.params[0].type != CNN_T_TENSORS;
}

// core.ops(): a list of {name, doc, params, flags ...}, all that the docs are printed from.
static int l_ops(lua_State *L) {
  static const char *const promotions[] = {[CNN_PROMOTE_NONE] = "none",
                                           [CNN_PROMOTE_COMMON] = "common",
                                           [CNN_PROMOTE_FLOAT] = "float",
                                           [CNN_PROMOTE_SAME] = "same"};
  lua_createtable(L, cnn_op_count(), 0);
  for (int id = 0; id < cnn_op_count(); id++) {
    const cnn_op_entry *e = cnn_op_at(id);
    uint32_t flags = e->op->flags;
    lua_newtable(L);
    lua_pushstring(L, e->op->name), lua_setfield(L, -2, "name");
    lua_pushstring(L, e->op->doc), lua_setfield(L, -2, "doc");
    lua_pushstring(L, e->op->args), lua_setfield(L, -2, "spec");
    lua_pushstring(L, e->op->results ? e->op->results : "out"), lua_setfield(L, -2, "results");
    lua_pushstring(L, e->op->saves ? e->op->saves : ""), lua_setfield(L, -2, "saves");
    lua_pushboolean(L, (flags & CNN_OP_IN_PLACE) != 0), lua_setfield(L, -2, "in_place");
    lua_pushboolean(L, (flags & CNN_OP_VIEW) != 0), lua_setfield(L, -2, "view");
    lua_pushboolean(L, (flags & CNN_OP_COMPOSITE) != 0), lua_setfield(L, -2, "composite");
    lua_pushboolean(L, (flags & CNN_OP_RANDOM) != 0), lua_setfield(L, -2, "random");
    lua_pushboolean(L, (flags & CNN_OP_INTERNAL) != 0), lua_setfield(L, -2, "internal");
    lua_pushboolean(L, is_method(e)), lua_setfield(L, -2, "method");
    lua_pushboolean(L, (flags & CNN_OP_LIST) != 0), lua_setfield(L, -2, "list");
    lua_pushboolean(L, (flags & CNN_OP_NO_GRAD) != 0), lua_setfield(L, -2, "no_grad");
    lua_pushboolean(L, e->op->backward != NULL), lua_setfield(L, -2, "backward");
    lua_pushstring(L, promotions[e->op->promote]), lua_setfield(L, -2, "promote");
    cnn_push_params(L, &e->spec), lua_setfield(L, -2, "params");
    lua_rawseti(L, -2, id + 1);
  }
  return 1;
}

// Ops under their names: all but the internal ones in the core's table and in `functions`, the
// methods also in `methods`, the internal ones in `internal`.
void cnn_open_ops(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"ops", l_ops}, {NULL, NULL}};
  char name[64];
  cnn_push_metatable(L, S, CNN_BOX_RESULTS);
  lua_pushcfunction(L, results_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
  lua_newtable(L); // functions
  lua_newtable(L); // methods
  lua_newtable(L); // internal
  for (int id = 0; id < cnn_op_count(); id++) {
    const cnn_op_entry *e = cnn_op_at(id);
    const cnn_op *op = e->op;
    int forms = op->flags & CNN_OP_IN_PLACE ? 2 : 1;
    for (int form = 0; form < forms; form++) {
      size_t n = strlen(op->name);
      memcpy(name, op->name, n + 1);
      if (form) name[n] = '_', name[n + 1] = '\0';
      push_op(L, S, op_call, id, form == 1);
      if (op->flags & CNN_OP_INTERNAL) {
        lua_setfield(L, -2, name);
        continue;
      }
      lua_pushvalue(L, -1);
      lua_setfield(L, -6, name);
      lua_pushvalue(L, -1);
      lua_setfield(L, -5, name);
      if (is_method(e))
        lua_setfield(L, -3, name);
      else
        lua_pop(L, 1);
    }
  }
  lua_setfield(L, -4, "internal");
  lua_setfield(L, -3, "methods");
  lua_setfield(L, -2, "functions");
  cnn_set_functions(L, S, functions);
  push_op(L, S, op_unm, cnn_op_find("neg"), false);
  lua_setfield(L, -2, "_unm");
}
