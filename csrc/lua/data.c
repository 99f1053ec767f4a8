// SPDX-License-Identifier: MIT
// Loaders of batches, for lua/cnn/data: orders of rows, and batches gathered by them.
#include "lua/state.h"

#include <string.h>

#include "base/alloc.h"
#include "io/loader.h"

static int loader_gc(lua_State *L) {
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_LOADER);
  if (!box) return 0;
  void *object = box->object;
  box->object = NULL;
  cnn_unref(object);
  return 0;
}

// ---------------------------------------------------------------------------------------------
// Orders

static int64_t integer_argument(lua_State *L, cnn_lua *S, int i, const char *function,
                                const char *what) {
  int64_t v;
  char got[64];
  if (!cnn_toint(L, i, &v))
    cnn_error(L, S, "%s: %s: expected an integer, got %s", function, what,
              cnn_describe(L, i, got, sizeof got));
  return v;
}

// A dense int64 tensor of one dim, as orders are.
static const cnn_tensor *check_order(lua_State *L, cnn_lua *S, int i, const char *function) {
  const cnn_tensor *t = cnn_check_tensor(L, S, i, function, "the order");
  if (t->dtype != CNN_I64 || t->ndim != 1 || t->device.type != CNN_CPU || !cnn_is_contiguous(t))
    cnn_error(L, S, "%s: the indices must be a contiguous int64 tensor of one dim on the CPU",
              function);
  return t;
}

// data_order(n or indices, seed or nil, epoch): the rows 1..n, or a copy of the indices; shuffled
// when there is a seed.
static int l_order(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  const cnn_tensor *indices = NULL;
  cnn_tensor *t;
  cnn_meta meta;
  cnn_status status;
  cnn_device cpu = {CNN_CPU, 0};
  int64_t n, seed = 0, epoch = 0;
  bool shuffled = !lua_isnoneornil(L, 2);
  if (lua_type(L, 1) == LUA_TUSERDATA) indices = check_order(L, S, 1, "DataLoader");
  n = indices ? indices->shape[0] : integer_argument(L, S, 1, "DataLoader", "the size");
  if (shuffled) seed = integer_argument(L, S, 2, "DataLoader", "seed");
  if (shuffled) epoch = integer_argument(L, S, 3, "DataLoader", "the epoch");
  if (n < 0) return cnn_error(L, S, "DataLoader: the data set's size is negative");
  cnn_pace(L, S);
  cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  cnn_meta_set(&meta, CNN_I64, cpu, 1, &n);
  S->ctx.op = "DataLoader";
  CNN_WITH_ROOM(L, S, status, cnn_tensor_empty(&S->ctx, &meta, &t));
  S->ctx.op = NULL;
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = t;
  int64_t *order = cnn_data(t);
  if (indices && cnn_buffer_settle(&S->ctx, indices->buffer) != CNN_OK)
    return cnn_raise(L, S, S->ctx.code);
  const int64_t *from = indices ? cnn_data(indices) : NULL;
  for (int64_t i = 0; i < n; i++) order[i] = from ? from[i] : i + 1;
  if (shuffled) cnn_shuffle(order, n, (uint64_t)seed, (uint64_t)epoch);
  return 1;
}

// data_seed(): a number of 53 bits drawn from the state's generator.
static int l_seed(lua_State *L) {
  cnn_rng *rng = &cnn_state(L)->ctx.rng;
  cnn_philox r = cnn_philox_at(rng->seed, rng->offset++);
  cnn_pushint(L, (int64_t)(((uint64_t)r.v[0] << 32 | r.v[1]) >> 11));
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Loaders

// A list of numbers into a scratch userdata, left on the stack.
static float *read_floats(lua_State *L, cnn_lua *S, const char *key, int *n) {
  lua_getfield(L, -1, key);
  if (!lua_istable(L, -1)) cnn_error(L, S, "DataLoader: %s must be a list of numbers", key);
  *n = (int)cnn_rawlen(L, -1);
  float *list = cnn_newud(L, (size_t)(*n + 1) * sizeof *list, 0);
  for (int i = 0; i < *n; i++) {
    lua_rawgeti(L, -2, i + 1);
    if (lua_type(L, -1) != LUA_TNUMBER)
      cnn_error(L, S, "DataLoader: %s must be a list of numbers", key);
    list[i] = (float)lua_tonumber(L, -1);
    lua_pop(L, 1);
  }
  lua_insert(L, -3); // below the source's table, which stays on top
  lua_pop(L, 1);
  return list;
}

// A list of sources {tensor =, scale = {...}, shift = {...}} (both or neither). Leaves scratch on
// the stack.
static int read_sources(lua_State *L, cnn_lua *S, int i, cnn_rows *rows) {
  luaL_checktype(L, i, LUA_TTABLE);
  int n = (int)cnn_rawlen(L, i);
  if (n < 1 || n > CNN_LOADER_SOURCES)
    cnn_error(L, S, "DataLoader: a data set has 1 to %d tensors, not %d", CNN_LOADER_SOURCES, n);
  luaL_checkstack(L, 4 * n + 8, "DataLoader");
  for (int k = 0; k < n; k++) {
    int shifts = 0;
    lua_rawgeti(L, i, k + 1);
    luaL_checktype(L, -1, LUA_TTABLE);
    lua_getfield(L, -1, "tensor");
    rows[k] = (cnn_rows){cnn_check_tensor(L, S, -1, "DataLoader", "a tensor of the data set"), 0,
                         NULL, NULL};
    lua_pop(L, 1);
    lua_getfield(L, -1, "scale");
    bool scaled = !lua_isnil(L, -1);
    lua_pop(L, 1);
    if (scaled) {
      rows[k].scale = read_floats(L, S, "scale", &rows[k].channels);
      rows[k].shift = read_floats(L, S, "shift", &shifts);
      if (shifts != rows[k].channels)
        cnn_error(L, S, "DataLoader: as many shifts as scales are needed");
    }
    lua_pop(L, 1);
  }
  return n;
}

static cnn_status make_loader(cnn_lua *S, const cnn_rows *rows, int n, const cnn_tensor *order,
                              int64_t batch, bool drop_last, int threads, cnn_loader **out) {
  int64_t count = order->shape[0], least = INT64_MAX;
  const int64_t *from = cnn_data(order);
  for (int k = 0; k < n; k++) CNN_TRY(cnn_buffer_settle(&S->ctx, rows[k].tensor->buffer));
  for (int k = 0; k < n; k++)
    if (rows[k].tensor->ndim > 0 && rows[k].tensor->shape[0] < least)
      least = rows[k].tensor->shape[0];
  int64_t *zero_based = cnn_malloc((size_t)(count + 1) * sizeof *zero_based);
  if (!zero_based) return cnn_fail(&S->ctx, CNN_OOM, "out of memory for a loader");
  cnn_status status = CNN_OK;
  for (int64_t i = 0; i < count && status == CNN_OK; i++) {
    zero_based[i] = from[i] - 1;
    if (from[i] < 1 || from[i] > least)
      status = cnn_fail(&S->ctx, CNN_INDEX, "index %.0f is out of range (1..%.0f)", (double)from[i],
                        (double)least);
  }
  if (status == CNN_OK)
    status = cnn_loader_create(&S->ctx, rows, n, zero_based, count, batch, drop_last, threads, out);
  cnn_free(zero_based);
  return status;
}

// data_loader(sources, order, batch_size, drop_last, threads)
static int l_loader(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_rows rows[CNN_LOADER_SOURCES];
  cnn_status status;
  cnn_loader *l;
  const cnn_tensor *order = check_order(L, S, 2, "DataLoader");
  int64_t batch = integer_argument(L, S, 3, "DataLoader", "batch_size");
  bool drop_last = lua_toboolean(L, 4);
  int64_t threads = integer_argument(L, S, 5, "DataLoader", "num_workers");
  if (threads < 0) return cnn_error(L, S, "DataLoader: num_workers must be at least 0");
  cnn_pace(L, S);
  int n = read_sources(L, S, 1, rows);
  cnn_box *box = cnn_push_box(L, S, CNN_BOX_LOADER);
  S->ctx.op = "DataLoader";
  CNN_WITH_ROOM(L, S, status,
                make_loader(S, rows, n, order, batch, drop_last,
                            threads > 1024 ? 1024 : (int)threads, &l));
  S->ctx.op = NULL;
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = l;
  return 1;
}

// data_next(loader): the tensors of the next batch; nothing past the last one, or of a closed
// loader.
static int l_next(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_LOADER), *boxes[CNN_LOADER_SOURCES];
  cnn_tensor *batch[CNN_LOADER_SOURCES];
  cnn_status status;
  bool more;
  if (!box) return cnn_error(L, S, "data_next: expected a loader");
  cnn_pace(L, S);
  if (!box->object) return 0;
  int n = cnn_loader_sources(box->object);
  luaL_checkstack(L, n + 4, "DataLoader");
  for (int k = 0; k < n; k++) boxes[k] = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  cnn_loader *l = box->object ? cnn_ref(box->object) : NULL; // making room runs finalizers
  if (!l) return 0;
  S->ctx.op = "DataLoader";
  CNN_WITH_ROOM(L, S, status, cnn_loader_next(&S->ctx, l, batch, &more));
  S->ctx.op = NULL;
  cnn_unref(l);
  if (status != CNN_OK) return cnn_raise(L, S, status);
  if (!more) return 0;
  for (int k = 0; k < n; k++) boxes[k]->object = batch[k];
  return n;
}

// data_close(loader): ends its workers now.
static int l_close(lua_State *L) {
  cnn_state(L);
  return loader_gc(L);
}

void cnn_open_data(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"data_order", l_order},   {"data_seed", l_seed},
                                           {"data_loader", l_loader}, {"data_next", l_next},
                                           {"data_close", l_close},   {NULL, NULL}};
  cnn_push_metatable(L, S, CNN_BOX_LOADER);
  lua_pushcfunction(L, loader_gc);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "__gc");
  lua_setfield(L, -2, "__close"); // Lua 5.4 ends the workers where a loop is left
  lua_pop(L, 1);
  cnn_set_functions(L, S, functions);
}
