// SPDX-License-Identifier: MIT
// GPUs as scripts see them, beyond tensors: whether there are any, streams, events, pinned memory,
// counts of launches, kernels of the user's own. lua/cnn/cuda.lua puts PyTorch's names on it.
#include "lua/state.h"

#include <string.h>

#include "base/alloc.h"
#include "engine/device.h"

// A box's object: a stream, an event or a program of the driver's.
typedef struct handle {
  int index; // of the device
  void *native;
  unsigned shutdowns; // before it was made
  bool timing;        // events
} handle;

static const cnn_driver *need_driver(lua_State *L, cnn_lua *S, const char *function) {
  const char *why;
  const cnn_driver *driver = cnn_cuda_driver(&why);
  if (!driver) cnn_error(L, S, "%s: there is no GPU to use: %s", function, why);
  return driver;
}

// The index of the GPU that argument i names ("cuda:1", or 1); the current one for nil.
static int device_index(lua_State *L, cnn_lua *S, int i, const char *function) {
  cnn_device device = {CNN_CUDA, S->ctx.gpu};
  int64_t index;
  if (lua_type(L, i) == LUA_TNUMBER) {
    if (!cnn_toint(L, i, &index) || index < 0 || index >= CNN_MAX_DEVICES)
      cnn_error(L, S, "%s: GPUs have numbers from 0 on, got %g", function, lua_tonumber(L, i));
    device.index = (uint8_t)index;
    if (cnn_device_ready(&S->ctx, device) != CNN_OK)
      cnn_error(L, S, "%s: %s", function, S->ctx.message);
    return device.index;
  }
  if (!lua_isnoneornil(L, i))
    device = cnn_check_device(L, S, i, function);
  else if (cnn_device_ready(&S->ctx, device) != CNN_OK)
    cnn_error(L, S, "%s: %s", function, S->ctx.message);
  if (device.type != CNN_CUDA)
    cnn_error(L, S, "%s: %s is no GPU", function, cnn_device_name(device));
  return device.index;
}

// Argument 2 is what a mode runs.
static void check_callable(lua_State *L, cnn_lua *S, const char *function) {
  char got[64];
  if (!cnn_callable(L, 2))
    cnn_error(L, S, "%s: expected a function (or a module) to call, got %s", function,
              cnn_describe(L, 2, got, sizeof got));
}

static handle *check_handle(lua_State *L, cnn_lua *S, int i, cnn_box_kind kind,
                            const char *function, const char *what) {
  char got[64];
  cnn_box *box = cnn_to_box(L, i, kind);
  if (!box || !box->object)
    cnn_error(L, S, "%s: expected %s, got %s", function, what, cnn_describe(L, i, got, sizeof got));
  handle *h = box->object;
  if (h->native && h->shutdowns != cnn_cuda_shutdowns())
    cnn_error(L, S, "%s: it went with cnn.cuda.shutdown(): make %s anew", function, what);
  return h;
}
static handle *check_stream(lua_State *L, cnn_lua *S, int i, const char *function) {
  return check_handle(L, S, i, CNN_BOX_STREAM, function, "a stream (of cnn.cuda.Stream)");
}
static handle *check_event(lua_State *L, cnn_lua *S, int i, const char *function) {
  return check_handle(L, S, i, CNN_BOX_EVENT, function, "an event (of cnn.cuda.Event)");
}

// A box with an empty handle in it: what follows may fail without a leak.
static handle *push_handle(lua_State *L, cnn_lua *S, cnn_box_kind kind, int index) {
  cnn_box *box = cnn_push_box(L, S, kind);
  handle *h = cnn_calloc(sizeof *h);
  if (!h) cnn_error(L, S, "cuda: out of memory");
  h->index = index;
  h->shutdowns = cnn_cuda_shutdowns();
  box->object = h;
  return h;
}

static int handle_gc(lua_State *L) {
  const cnn_driver *driver = cnn_cuda_open();
  for (int kind = CNN_BOX_STREAM; kind <= CNN_BOX_PROGRAM; kind++) {
    cnn_box *box = cnn_to_box(L, 1, (cnn_box_kind)kind);
    handle *h = box ? box->object : NULL;
    if (!h) continue;
    box->object = NULL;
    if (h->native && kind == CNN_BOX_PROGRAM) {
      driver->program_destroy(h->native);
    } else if (h->native && h->shutdowns == cnn_cuda_shutdowns()) {
      if (kind == CNN_BOX_STREAM) driver->stream_destroy(h->index, h->native);
      if (kind == CNN_BOX_EVENT) driver->event_destroy(h->index, h->native);
    }
    cnn_free(h);
  }
  return 0;
}

// Raises under the name of the function.
static int raise_as(lua_State *L, cnn_lua *S, const char *function) {
  return cnn_error(L, S, "%s: %s", function, S->ctx.message);
}
#define TRY(L, S, function, call)                                                                  \
  do {                                                                                             \
    if ((call) != CNN_OK) return raise_as(L, S, function);                                         \
  } while (0)

// ---------------------------------------------------------------------------------------------
// Devices

// available(): true; or false and why not.
static int l_available(lua_State *L) {
  const char *why;
  cnn_state(L);
  const cnn_driver *driver = cnn_cuda_driver(&why);
  lua_pushboolean(L, driver != NULL);
  if (driver) return 1;
  lua_pushstring(L, why);
  return 2;
}

// load(path): the plugin at this path as the driver.
static int l_load(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  if (cnn_cuda_load(&S->ctx, luaL_checkstring(L, 1)) != CNN_OK)
    return raise_as(L, S, "cuda.simulate");
  return 0;
}

static int l_count(lua_State *L) {
  const char *why;
  cnn_state(L);
  const cnn_driver *driver = cnn_cuda_driver(&why);
  lua_pushinteger(L, driver ? driver->count : 0);
  return 1;
}

// device_name(device, the function's name for messages): "cuda:1".
static int l_device_name(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int index = device_index(L, S, 1, luaL_checkstring(L, 2));
  lua_pushstring(L, cnn_device_name((cnn_device){CNN_CUDA, (uint8_t)index}));
  return 1;
}

// set_device(device): what "cuda" names from now on. Gives the number of the one before.
static int l_set_device(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int index = device_index(L, S, 1, "cuda.set_device");
  lua_pushinteger(L, S->ctx.gpu);
  S->ctx.gpu = (uint8_t)index;
  return 1;
}

// with_device(device, fn, ...): through C, so that no coroutine leaves with it.
static int l_with_device(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int index = device_index(L, S, 1, "cuda.device");
  check_callable(L, S, "cuda.device");
  uint8_t before = S->ctx.gpu;
  S->ctx.gpu = (uint8_t)index;
  int failed = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
  S->ctx.gpu = before;
  S->L = L;
  return failed ? lua_error(L) : lua_gettop(L) - 1;
}

// driver(): its name, and whether it is simulated; nothing when none is open.
static int l_driver(lua_State *L) {
  cnn_state(L);
  const cnn_driver *driver = cnn_cuda_open();
  if (!driver) return 0;
  lua_pushstring(L, driver->name);
  lua_pushboolean(L, driver->simulated);
  return 2;
}

// properties(device, the function's name for messages)
static int l_properties(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_device_properties p;
  const char *function = luaL_optstring(L, 2, "cuda.get_device_properties");
  int index = device_index(L, S, 1, function);
  TRY(L, S, function, cnn_cuda_open()->properties(&S->ctx, index, &p));
  lua_newtable(L);
#define TEXT(field) lua_pushstring(L, p.field), lua_setfield(L, -2, #field)
#define INT(field)  cnn_pushint(L, p.field), lua_setfield(L, -2, #field)
#define BOOL(field) lua_pushboolean(L, p.field), lua_setfield(L, -2, #field)
  TEXT(name);
  TEXT(uuid);
  INT(major);
  INT(minor);
  INT(total_memory);
  INT(context_memory);
  INT(shared_memory_per_block);
  INT(shared_memory_per_block_optin);
  INT(l2_cache_size);
  INT(multi_processor_count);
  INT(warp_size);
  INT(registers_per_block);
  INT(max_threads_per_block);
  INT(max_threads_per_multi_processor);
  INT(pci_bus);
  INT(pci_device);
  BOOL(integrated);
#undef TEXT
#undef INT
#undef BOOL
  return 1;
}

// libraries(device): {name = {version =} or {reason =}, ...}
static int l_libraries(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_device_library all[CNN_DEVICE_LIBRARIES];
  int index = device_index(L, S, 1, "cuda.libraries");
  TRY(L, S, "cuda.libraries", cnn_cuda_open()->libraries(&S->ctx, index, all));
  lua_newtable(L);
  for (int i = 0; i < CNN_DEVICE_LIBRARIES; i++) {
    lua_newtable(L);
    lua_pushstring(L, all[i].text);
    lua_setfield(L, -2, all[i].used ? "version" : "reason");
    lua_setfield(L, -2, all[i].name);
  }
  return 1;
}

// synchronize(device)
static int l_synchronize(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_device device =
      lua_isnoneornil(L, 1) ? S->ctx.default_device : cnn_check_device(L, S, 1, "synchronize");
  if (cnn_device_synchronize(&S->ctx, device) != CNN_OK) return cnn_raise(L, S, S->ctx.code);
  return 0;
}

// set_sync(on), allow_tf32(on), fuse_relu(on): set when given; give how it was.
static int l_set_sync(lua_State *L) {
  const cnn_driver *driver = need_driver(L, cnn_state(L), "cuda.set_sync");
  lua_pushboolean(L, driver->is_sync());
  if (!lua_isnoneornil(L, 1)) driver->set_sync(lua_toboolean(L, 1));
  return 1;
}
static int l_allow_tf32(lua_State *L) {
  const cnn_driver *driver = need_driver(L, cnn_state(L), "cuda.allow_tf32");
  lua_pushboolean(L, driver->allows_tf32());
  if (!lua_isnoneornil(L, 1)) driver->set_tf32(lua_toboolean(L, 1));
  return 1;
}

static int l_fuse_relu(lua_State *L) {
  const cnn_driver *driver = need_driver(L, cnn_state(L), "cuda.fuse_relu");
  lua_pushboolean(L, driver->fuses_relu());
  if (!lua_isnoneornil(L, 1)) driver->set_fuse_relu(lua_toboolean(L, 1));
  return 1;
}

// shutdown(force)
static int l_shutdown(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_drain(L, S);
  TRY(L, S, "cuda.shutdown", cnn_cuda_shutdown(&S->ctx, lua_toboolean(L, 1)));
  return 0;
}

// trim_pinned(): unregisters the pinned memory that is kept for reuse; gives its bytes.
static int l_trim_pinned(lua_State *L) {
  cnn_state(L);
  const cnn_driver *driver = cnn_cuda_open();
  cnn_pushint(L, driver ? (int64_t)driver->host_trim() : 0);
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Counts

#define PUSH_COUNT(L, counts, field) (cnn_pushint(L, (counts).field), lua_setfield(L, -2, #field))

// counts(): {op = {kernels =, read =, ...}, ...}, of which differences count: read and written
// since the first call, the rest since the process began. What no op did is under the name "".
static int l_counts(lua_State *L) {
  cnn_state(L);
  const cnn_driver *driver = cnn_cuda_open();
  lua_newtable(L);
  for (int i = -1; driver && i < cnn_op_count(); i++) {
    cnn_launch_counts c;
    driver->counts_get(i, &c);
    if (!(c.kernels | c.read | c.written | c.to_device | c.to_host | c.within | c.syncs)) continue;
    lua_createtable(L, 0, 7);
    PUSH_COUNT(L, c, kernels);
    PUSH_COUNT(L, c, read);
    PUSH_COUNT(L, c, written);
    PUSH_COUNT(L, c, to_device);
    PUSH_COUNT(L, c, to_host);
    PUSH_COUNT(L, c, within);
    PUSH_COUNT(L, c, syncs);
    lua_setfield(L, -2, i < 0 ? "" : cnn_op_at(i)->op->name);
  }
  return 1;
}

// kernel_counts(): {kernel = {launches =, blocks =, ...}, ...} on a simulator, since the process
// began; loads and stores where they were counted.
static int l_kernel_counts(lua_State *L) {
  cnn_state(L);
  const cnn_driver *driver = cnn_cuda_open();
  cnn_kernel_counts c;
  lua_newtable(L);
  for (int i = 0; driver && driver->kernel_counts_get(i, &c); i++) {
    lua_createtable(L, 0, 11);
    PUSH_COUNT(L, c, launches);
    PUSH_COUNT(L, c, blocks);
    PUSH_COUNT(L, c, threads);
    PUSH_COUNT(L, c, barriers);
    if (c.counted) {
      PUSH_COUNT(L, c, loads);
      PUSH_COUNT(L, c, stores);
      PUSH_COUNT(L, c, load_bytes);
      PUSH_COUNT(L, c, store_bytes);
      PUSH_COUNT(L, c, shared_loads);
      PUSH_COUNT(L, c, shared_stores);
      PUSH_COUNT(L, c, atomics);
    }
    lua_setfield(L, -2, c.name);
  }
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Streams

// new_stream(device, priority)
static int l_new_stream(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int index = device_index(L, S, 1, "cuda.Stream");
  int64_t priority = 0;
  char got[64];
  if (!lua_isnoneornil(L, 2) && !(cnn_toint(L, 2, &priority) && priority > -100 && priority < 100))
    return cnn_error(L, S, "cuda.Stream: priority must be an integer, got %s",
                     cnn_describe(L, 2, got, sizeof got));
  handle *h = push_handle(L, S, CNN_BOX_STREAM, index);
  TRY(L, S, "cuda.Stream",
      cnn_cuda_open()->stream_create(&S->ctx, index, (int)priority, &h->native));
  return 1;
}

// default_stream(device): a handle on it.
static int l_default_stream(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  push_handle(L, S, CNN_BOX_STREAM, device_index(L, S, 1, "cuda.default_stream"));
  return 1;
}

// A text that two handles share exactly when they are on the same stream.
static void push_key(lua_State *L, int index, const void *native) {
  lua_pushfstring(L, "%d:%p", index, native);
}

static int l_stream_key(lua_State *L) {
  handle *h = check_stream(L, cnn_state(L), 1, "stream");
  push_key(L, h->index, h->native);
  return 1;
}

// current_key(device): the key of its current stream.
static int l_current_key(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int index = device_index(L, S, 1, "cuda.current_stream");
  push_key(L, index, S->ctx.streams[index]);
  return 1;
}

// Current streams that scripts set, by the number of their device (from 1 on): while they are
// current they must not be collected. Pushes that table.
static void push_current(lua_State *L) {
  static char key;
  lua_pushlightuserdata(L, &key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushlightuserdata(L, &key);
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

// Makes the stream at stack index i, or the default one for nil and for what went with a shutdown,
// the current one of its device.
static void make_current(lua_State *L, cnn_lua *S, int i, int index) {
  cnn_box *box = cnn_to_box(L, i, CNN_BOX_STREAM);
  push_current(L);
  lua_pushvalue(L, i);
  lua_rawseti(L, -2, index + 1);
  lua_pop(L, 1);
  handle *h = box ? box->object : NULL;
  S->ctx.streams[index] = h && h->shutdowns == cnn_cuda_shutdowns() ? h->native : NULL;
}

// set_stream(stream): from now on.
static int l_set_stream(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  handle *h = check_stream(L, S, 1, "set_stream");
  make_current(L, S, 1, h->index);
  return 0;
}

// with_stream(stream, fn, ...): through C, so that no coroutine leaves with it.
static int l_with_stream(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  int index = check_stream(L, S, 1, "cuda.stream: argument 1")->index;
  check_callable(L, S, "cuda.stream");
  luaL_checkstack(L, 4, "cuda.stream");
  push_current(L);
  lua_rawgeti(L, -1, index + 1);
  lua_replace(L, -2);
  lua_insert(L, 1); // the one before, below the stream
  make_current(L, S, 2, index);
  int failed = lua_pcall(L, lua_gettop(L) - 3, LUA_MULTRET, 0);
  make_current(L, S, 1, index);
  S->L = L;
  return failed ? lua_error(L) : lua_gettop(L) - 2;
}

static int l_stream_synchronize(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  handle *h = check_stream(L, S, 1, "synchronize");
  if (cnn_cuda_open()->stream_synchronize(&S->ctx, h->index, h->native) != CNN_OK)
    return cnn_raise(L, S, S->ctx.code);
  return 0;
}

static int l_stream_query(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  bool done = false;
  handle *h = check_stream(L, S, 1, "query");
  TRY(L, S, "cuda.Stream.query",
      cnn_cuda_open()->stream_query(&S->ctx, h->index, h->native, &done));
  lua_pushboolean(L, done);
  return 1;
}

static int l_stream_device(lua_State *L) {
  handle *h = check_stream(L, cnn_state(L), 1, "device");
  lua_pushstring(L, cnn_device_name((cnn_device){CNN_CUDA, (uint8_t)h->index}));
  return 1;
}

// stream:wait_event(event): what comes later on the stream waits for it. Gives the stream.
static int l_wait_event(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  handle *h = check_stream(L, S, 1, "wait_event"), *e = check_event(L, S, 2, "wait_event");
  if (e->native)
    TRY(L, S, "cuda.Stream.wait_event",
        cnn_cuda_open()->event_wait(&S->ctx, h->index, e->native, h->native));
  lua_settop(L, 1);
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Events: made on the device of the stream that they are first recorded on

static int l_new_event(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  need_driver(L, S, "cuda.Event");
  push_handle(L, S, CNN_BOX_EVENT, -1)->timing = lua_toboolean(L, 1);
  return 1;
}

// record(event, stream): gives the event.
static int l_event_record(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  handle *e = check_event(L, S, 1, "record"), *h = check_stream(L, S, 2, "record");
  const cnn_driver *driver = cnn_cuda_open();
  if (!e->native) {
    TRY(L, S, "cuda.Event.record", driver->event_create(&S->ctx, h->index, e->timing, &e->native));
    e->index = h->index;
  }
  if (e->index != h->index)
    return cnn_error(L, S, "cuda.Event.record: the event is of cuda:%d, the stream of cuda:%d",
                     e->index, h->index);
  TRY(L, S, "cuda.Event.record", driver->event_record(&S->ctx, h->index, e->native, h->native));
  lua_settop(L, 1);
  return 1;
}

static int l_event_query(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  bool done = true; // nothing recorded, nothing to wait for
  handle *e = check_event(L, S, 1, "query");
  if (e->native)
    TRY(L, S, "cuda.Event.query",
        cnn_cuda_open()->event_query(&S->ctx, e->index, e->native, &done));
  lua_pushboolean(L, done);
  return 1;
}

static int l_event_synchronize(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  handle *e = check_event(L, S, 1, "synchronize");
  if (e->native && cnn_cuda_open()->event_synchronize(&S->ctx, e->index, e->native) != CNN_OK)
    return cnn_raise(L, S, S->ctx.code);
  return 0;
}

// from:elapsed_time(to): milliseconds between them.
static int l_event_elapsed(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  float ms = 0;
  handle *from = check_event(L, S, 1, "elapsed_time"), *to = check_event(L, S, 2, "elapsed_time");
  if (!from->timing || !to->timing)
    return cnn_error(L, S,
                     "cuda.Event.elapsed_time: both events must be made with "
                     "cnn.cuda.Event{enable_timing = true}");
  if (!from->native || !to->native)
    return cnn_error(L, S, "cuda.Event.elapsed_time: both events must have been recorded");
  if (from->index != to->index)
    return cnn_error(L, S, "cuda.Event.elapsed_time: the events are of cuda:%d and cuda:%d",
                     from->index, to->index);
  TRY(L, S, "cuda.Event.elapsed_time",
      cnn_cuda_open()->event_elapsed(&S->ctx, from->index, from->native, to->native, &ms));
  lua_pushnumber(L, (lua_Number)ms);
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Pinned memory

static void free_pinned(void *memory) {
  cnn_cuda_open()->host_free(memory);
}

static cnn_status settle_pinned(cnn_context *ctx, cnn_buffer *buffer) {
  return cnn_cuda_open()->host_settle(ctx, buffer->data);
}

static cnn_status pin(cnn_context *ctx, const cnn_tensor *t, cnn_tensor **out) {
  const cnn_driver *driver = cnn_cuda_open();
  cnn_device cpu = {CNN_CPU, 0};
  cnn_meta meta;
  cnn_buffer *buffer;
  void *memory;
  cnn_meta_of(t, &meta);
  cnn_strides_like(t->ndim, t->shape, t->strides, meta.strides);
  size_t bytes = (size_t)cnn_numel(t) * cnn_dtype_size(meta.dtype);
  CNN_TRY(driver->host_alloc(ctx, bytes, &memory));
  cnn_status status = cnn_buffer_wrap(ctx, cpu, memory, bytes, free_pinned, memory, &buffer);
  if (status != CNN_OK) {
    driver->host_free(memory);
    return status;
  }
  buffer->settle = settle_pinned;
  cnn_tensor *y;
  status = cnn_tensor_on(ctx, buffer, &meta, 0, &y);
  cnn_unref(buffer);
  if (status != CNN_OK) return status;
  cnn_results r;
  bool recorded = ctx->grad_enabled;
  ctx->grad_enabled = false;
  status = cnn_dispatch(ctx, cnn_ops_of_engine()->copy_,
                        CNN_ARGS(CNN_A_T(y), CNN_A_T((cnn_tensor *)(uintptr_t)t)), &r);
  ctx->grad_enabled = recorded;
  if (status == CNN_OK) cnn_results_free(&r);
  if (status == CNN_OK)
    *out = y;
  else
    cnn_unref(y);
  return status;
}

// pin_memory(x): a copy of the CPU tensor x in pinned memory; x itself if it is there.
static int l_pin_memory(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "pin_memory", "argument 1 (x)"), *out = NULL;
  cnn_status status;
  if (t->device.type != CNN_CPU)
    return cnn_error(L, S, "pin_memory: only CPU tensors can be pinned, x is on %s",
                     cnn_device_name(t->device));
  const cnn_driver *driver = need_driver(L, S, "pin_memory");
  if (t->buffer->data && driver->host_owns(t->buffer->data)) {
    lua_settop(L, 1);
    return 1;
  }
  cnn_pace(L, S);
  cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  CNN_WITH_ROOM(L, S, status, pin(&S->ctx, t, &out));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = out;
  return 1;
}

static int l_is_pinned(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "is_pinned", "argument 1 (x)");
  const cnn_driver *driver = cnn_cuda_open();
  lua_pushboolean(L, t->device.type == CNN_CPU && driver && t->buffer->data &&
                         driver->host_owns(t->buffer->data));
  return 1;
}

// record_stream(x, stream): the stream uses x's memory, which must not be another's before it is
// done with it. Gives x.
static int l_record_stream(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  cnn_tensor *t = cnn_check_tensor(L, S, 1, "record_stream", "argument 1 (x)");
  handle *h = check_stream(L, S, 2, "record_stream");
  if (t->device.type != CNN_CUDA || t->device.index != h->index)
    return cnn_error(L, S, "record_stream: x is on %s, the stream on cuda:%d",
                     cnn_device_name(t->device), h->index);
  TRY(L, S, "record_stream", cnn_buffer_use(&S->ctx, t->buffer, h->native));
  lua_settop(L, 1);
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Kernels of the user's own

// new_program(device, source, name, options): options is a list of the compiler's.
static int l_new_program(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  const char *options[CNN_PROGRAM_OPTIONS], *source = luaL_checkstring(L, 2),
                                            *name = luaL_checkstring(L, 3);
  int index = device_index(L, S, 1, "cuda.kernel"), n = 0;
  char got[64];
  luaL_checkstack(L, CNN_PROGRAM_OPTIONS + 8, "kernel");
  if (!lua_isnoneornil(L, 4) && !lua_istable(L, 4))
    return cnn_error(L, S, "cuda.kernel: options must be a list of strings, got %s",
                     cnn_describe(L, 4, got, sizeof got));
  for (; lua_istable(L, 4); n++) {
    lua_rawgeti(L, 4, n + 1); // stays on the stack, so that the text stays
    if (lua_isnil(L, -1)) break;
    if (n == CNN_PROGRAM_OPTIONS)
      return cnn_error(L, S, "cuda.kernel: more than %d options", CNN_PROGRAM_OPTIONS);
    if (lua_type(L, -1) != LUA_TSTRING)
      return cnn_error(L, S, "cuda.kernel: option %d: expected a string, got %s", n + 1,
                       cnn_describe(L, -1, got, sizeof got));
    options[n] = lua_tostring(L, -1);
  }
  handle *h = push_handle(L, S, CNN_BOX_PROGRAM, index);
  TRY(L, S, "cuda.kernel",
      cnn_cuda_open()->program_create(&S->ctx, index, source, name, options, n, &h->native));
  return 1;
}

// The three sizes of a grid or block.
static void read_dims(lua_State *L, cnn_lua *S, int first, const char *kernel, const char *what,
                      unsigned out[3]) {
  for (int i = 0; i < 3; i++) {
    int64_t size;
    char got[64];
    if (!cnn_toint(L, first + i, &size) || size < 1 || size > INT32_MAX)
      cnn_error(L, S, "%s: %s must be numbers from 1 on, got %s", kernel, what,
                cnn_describe(L, first + i, got, sizeof got));
    out[i] = (unsigned)size;
  }
}

// Argument i of a kernel by its letter: p a pointer to what the kernel only reads, P to what it
// writes, f d i l numbers. The caller (kernel.lua) has checked it.
static cnn_program_arg read_program_arg(lua_State *L, cnn_lua *S, int i, char letter) {
  cnn_program_arg a = {0};
  if (letter == 'p' || letter == 'P') {
    const cnn_tensor *t = cnn_check_tensor(L, S, i, "kernel", "an argument");
    if (cnn_buffer_check(&S->ctx, t->buffer, "an argument") != CNN_OK)
      cnn_error(L, S, "kernel: %s", S->ctx.message);
    a.pointer = cnn_data(t);
    a.extent = (size_t)cnn_numel(t) * cnn_dtype_size((cnn_dtype)t->dtype);
    a.changes = letter == 'P';
    return a;
  }
  double n = luaL_checknumber(L, i);
  switch (letter) {
  case 'f': a.f32 = (float)n; break;
  case 'd': a.f64 = n; break;
  case 'i': a.i32 = (int32_t)(int64_t)n; break;
  default: a.i64 = n < 0x1p63 ? (int64_t)n : INT64_MAX;
  }
  return a;
}

// launch(program, name, letters, gx, gy, gz, bx, by, bz, shared, ...)
static int l_launch(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  handle *h = check_handle(L, S, 1, CNN_BOX_PROGRAM, "kernel", "a kernel (of cnn.cuda.kernel)");
  const char *name = luaL_checkstring(L, 2), *letters = luaL_checkstring(L, 3);
  int n = (int)strlen(letters);
  unsigned grid[3], block[3];
  cnn_program_arg args[CNN_PROGRAM_ARGS];
  const int first = 11;
  int64_t shared;
  char got[64];
  read_dims(L, S, 4, name, "grid", grid);
  read_dims(L, S, 7, name, "block", block);
  if (!cnn_toint(L, 10, &shared) || shared < 0 || shared > INT32_MAX)
    return cnn_error(L, S, "%s: shared must be a number of bytes, got %s", name,
                     cnn_describe(L, 10, got, sizeof got));
  if (n > CNN_PROGRAM_ARGS)
    return cnn_error(L, S, "%s: it has more than %d parameters", name, CNN_PROGRAM_ARGS);
  for (int i = 0; i < n; i++) args[i] = read_program_arg(L, S, first + i, letters[i]);
  cnn_status status =
      cnn_cuda_open()->program_launch(&S->ctx, h->native, grid, block, (size_t)shared, args, n,
                                      S->ctx.streams[h->index]);
  for (int i = 0; i < n; i++) // also of a kernel that failed halfway
    if (letters[i] == 'P')
      cnn_buffer_bump(cnn_check_tensor(L, S, first + i, "kernel", "an argument")->buffer);
  if (status == CNN_OK) return 0;
  // (Faults that the simulator saw name the kernel themselves.)
  return strncmp(S->ctx.message, name, strlen(name)) == 0 ? cnn_raise(L, S, status)
                                                          : raise_as(L, S, name);
}

// ---------------------------------------------------------------------------------------------

void cnn_open_cuda(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"available", l_available},
                                           {"load", l_load},
                                           {"count", l_count},
                                           {"driver", l_driver},
                                           {"properties", l_properties},
                                           {"device_name", l_device_name},
                                           {"set_device", l_set_device},
                                           {"with_device", l_with_device},
                                           {"libraries", l_libraries},
                                           {"synchronize", l_synchronize},
                                           {"set_sync", l_set_sync},
                                           {"allow_tf32", l_allow_tf32},
                                           {"fuse_relu", l_fuse_relu},
                                           {"shutdown", l_shutdown},
                                           {"trim_pinned", l_trim_pinned},
                                           {"counts", l_counts},
                                           {"kernel_counts", l_kernel_counts},
                                           {"new_stream", l_new_stream},
                                           {"default_stream", l_default_stream},
                                           {"stream_key", l_stream_key},
                                           {"current_key", l_current_key},
                                           {"set_stream", l_set_stream},
                                           {"with_stream", l_with_stream},
                                           {"new_event", l_new_event},
                                           {"event_record", l_event_record},
                                           {"pin_memory", l_pin_memory},
                                           {"is_pinned", l_is_pinned},
                                           {"record_stream", l_record_stream},
                                           {"new_program", l_new_program},
                                           {"launch", l_launch},
                                           {NULL, NULL}};
  static const cnn_function stream_methods[] = {{"synchronize", l_stream_synchronize},
                                                {"query", l_stream_query},
                                                {"device", l_stream_device},
                                                {"wait_event", l_wait_event},
                                                {NULL, NULL}};
  static const cnn_function event_methods[] = {{"synchronize", l_event_synchronize},
                                               {"query", l_event_query},
                                               {"elapsed_time", l_event_elapsed},
                                               {NULL, NULL}};
  static const cnn_function *const methods[] = {stream_methods, event_methods, NULL};
  static const char *const names[] = {"stream_metatable", "event_metatable", "program_metatable"};
  lua_newtable(L);
  cnn_set_functions(L, S, functions);
  for (int i = 0; i < 3; i++) {
    cnn_push_metatable(L, S, (cnn_box_kind)(CNN_BOX_STREAM + i));
    lua_pushcfunction(L, handle_gc);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    if (methods[i]) cnn_set_functions(L, S, methods[i]);
    lua_setfield(L, -2, "__index");
    lua_setfield(L, -2, names[i]);
  }
  lua_setfield(L, -2, "cuda");
}
