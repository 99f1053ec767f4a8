// SPDX-License-Identifier: MIT
// Predicting memory: what lua/cnn/estimate.lua needs of memory/simulation.h.
#include "memory/simulation.h"

#include <string.h>

#include "lua/state.h"

// simulate(device, limit or nil): from now on tensors on meta take simulated memory of the device,
// up to so many bytes; without an argument no longer.
static int l_simulate(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_simulation *s = NULL;
  if (!lua_isnoneornil(L, 1)) {
    cnn_device device = cnn_check_device(L, S, 1, "simulate");
    if (S->ctx.simulation)
      return cnn_error(L, S,
                       "simulate: a prediction is under way: what runs in it can't make another");
    double bytes = (double)luaL_optnumber(L, 2, 0x1p62);
    cnn_status status =
        cnn_simulation_create(&S->ctx, device, bytes < 0x1p62 ? (size_t)bytes : SIZE_MAX, &s);
    if (status != CNN_OK) return cnn_raise(L, S, status);
  }
  cnn_unref(S->ctx.simulation);
  S->ctx.simulation = s;
  return 0;
}

static void set_bytes(lua_State *L, const char *name, int64_t bytes) {
  cnn_pushint(L, bytes);
  lua_setfield(L, -2, name);
}

// simulated(): the counts of the simulation under way. The fields named after parts, and overhead,
// add up to peak; total is what was ever asked for.
static int l_simulated(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_simulation_stats s;
  if (!S->ctx.simulation) return cnn_error(L, S, "simulated: there is no simulation");
  cnn_simulation_get_stats(S->ctx.simulation, &s);
  lua_newtable(L);
  lua_newtable(L);
  for (int p = 0; p < CNN_PARTS; p++) {
    const char *name = cnn_part_name((cnn_part)p);
    set_bytes(L, name, s.most[p]);
    cnn_pushint(L, s.parts[p]);
    lua_setfield(L, -3, name);
  }
  lua_setfield(L, -2, "most");
  set_bytes(L, "overhead", s.overhead);
  set_bytes(L, "peak", s.pool.allocated.peak);
  set_bytes(L, "peak_requested", s.pool.requested.peak);
  set_bytes(L, "peak_reserved", s.pool.reserved.peak);
  set_bytes(L, "total", s.pool.requested.total);
  return 1;
}

// simulated_output(t): counts a tensor as a result of the model.
static int l_simulated_output(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "simulated_output", "argument 1");
  if (cnn_is_simulated(t->buffer) && t->buffer->kind != CNN_KIND_DATA &&
      t->buffer->kind != CNN_KIND_PARAMETER)
    cnn_simulation_mark(t->buffer, CNN_PART_OUTPUT);
  return 0;
}

// count_as(kind): new tensors are counted as "parameters", "buffers", "data"; nil: as usual.
static int l_count_as(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  const char *name = luaL_optstring(L, 1, cnn_kind_name(CNN_KIND_OTHER));
  for (int k = 0; k < CNN_POOL_KINDS; k++)
    if (strcmp(cnn_kind_name((cnn_kind)k), name) == 0) S->ctx.kind = (uint8_t)k;
  return 0;
}

void cnn_open_simulation(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"simulate", l_simulate},
                                           {"simulated", l_simulated},
                                           {"simulated_output", l_simulated_output},
                                           {"count_as", l_count_as},
                                           {NULL, NULL}};
  cnn_set_functions(L, S, functions);
}
