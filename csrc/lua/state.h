// SPDX-License-Identifier: MIT
// What the binding keeps per Lua state, and what its files share.
//
// The rule that keeps every error path free of leaks, on any Lua: a C function reads and checks its
// arguments, then pushes empty boxes, then calls the core, which fills them, and raises once, at
// the end. Whatever the core made is in a box by then, and the collector frees it.
#ifndef CNN_LUA_STATE_H
#define CNN_LUA_STATE_H

#include "engine/dispatch.h"
#include "engine/registry.h"
#include "lua/compat.h"

typedef struct cnn_box cnn_box;
typedef struct cnn_scope cnn_scope;
typedef struct cnn_pool_handle cnn_pool_handle;

typedef struct cnn_lua {
  cnn_context ctx;
  lua_State *L;      // the coroutine that entered last
  bool in_gc;        // a collection runs: finalizers must not start another
  bool no_room;      // a test wants failing requests to fail at once
  char library[256]; // where our own Lua files are: messages skip them
  // Pacing (gc.c).
  unsigned boxes_since_step;
  int64_t live_after; // bytes that lived after the last collection
  int64_t soft;       // live bytes at which the next soft collection is due
  double last_end, budget;
  double cost; // seconds that a collection is believed to take
  int64_t collections, soft_minimum, steps;
  double collecting; // seconds spent
  int64_t handed;    // bytes of results that scripts got since the last backward
  double last_backward;
  bool paced;
  cnn_scope *scope;                       // the innermost open scope (scope.c)
  cnn_pool_handle *pool;                  // of the innermost with_pool (pool.c)
  cnn_pool_handle *gpus[CNN_MAX_DEVICES]; // of GPUs' own pools, for pacing alone
  // Host functions that the core gave back, to be released when Lua may be called.
  int n_dead, dead_capacity;
  int64_t *dead;
} cnn_lua;

// Every C function of the binding has the state as its first upvalue.
static inline cnn_lua *cnn_state(lua_State *L) {
  cnn_lua *S = lua_touserdata(L, lua_upvalueindex(1));
  S->L = L;
  return S;
}

// ---------------------------------------------------------------------------------------------
// Boxes (box.c)

// A userdata with one reference on an object of the core. The magic mixes in the address of a
// static, so no other library's userdata passes for ours.
typedef enum cnn_box_kind {
  CNN_BOX_TENSOR,
  CNN_BOX_NODE,
  CNN_BOX_MODULE,
  CNN_BOX_OPTIMIZER,
  CNN_BOX_RESULTS,
  CNN_BOX_ENGINE,
  CNN_BOX_ARCHIVE,
  CNN_BOX_LOADER,
  CNN_BOX_POOL,
  CNN_BOX_STREAM, // these three: cuda.c
  CNN_BOX_EVENT,
  CNN_BOX_PROGRAM,
  CNN_BOX_KINDS
} cnn_box_kind;

struct cnn_box {
  uintptr_t magic;
  void *object;         // NULL: empty or freed
  cnn_box *prev, *next; // tensors in an open scope
};

extern const char cnn_box_magic[CNN_BOX_KINDS];

static inline cnn_box *cnn_to_box(lua_State *L, int i, cnn_box_kind kind) {
  cnn_box *box = lua_touserdata(L, i); // the length of a light one is 0
  if (box && cnn_rawlen(L, i) >= sizeof(cnn_box) && box->magic == (uintptr_t)&cnn_box_magic[kind])
    return box;
  return NULL;
}

// Pushes an empty box with the metatable of its kind.
cnn_box *cnn_push_box(lua_State *L, cnn_lua *S, cnn_box_kind kind);
// Pushes an empty tensor box; `metatable` is the stack or upvalue index of the tensors' metatable.
cnn_box *cnn_push_tensor_box(lua_State *L, cnn_lua *S, int metatable);
// Pushes the one box of a tensor that Lua can meet again (parameters, gradients, state): from a
// weak table, made on first sight. The tensor must stay alive meanwhile.
void cnn_push_known_tensor(lua_State *L, cnn_lua *S, cnn_tensor *t);
// Makes box i, just filled, the one of its tensor.
void cnn_box_remember(lua_State *L, cnn_lua *S, int i);
// Pushes a nil for NULL, else like cnn_push_known_tensor.
void cnn_push_known_or_nil(lua_State *L, cnn_lua *S, cnn_tensor *t);

// Fills a box with a result, whose reference it takes.
static inline void cnn_box_result(cnn_lua *S, cnn_box *box, cnn_tensor *t) {
  box->object = t;
  S->handed += cnn_numel(t) * (int64_t)cnn_dtype_size((cnn_dtype)t->dtype);
}

// Takes a tensor's box out of the scope that it is in.
void cnn_box_unlink(cnn_box *box);
// Puts a box into the innermost scope that the coroutine L has open, if there is one.
void cnn_scope_add(lua_State *L, cnn_lua *S, cnn_box *box);
// Tensors in the value at i, alone or in tables, outlive the transient scopes that are open: they
// move to the one around them.
void cnn_scope_outlive(lua_State *L, cnn_lua *S, int i);

// The end of a message about a tensor that was freed.
#define CNN_WHO_FREED                                                                              \
  " (by t:free(), or at the end of a cnn.scope or a checkpoint that it was made in: cnn.keep(t) "  \
  "inside of it keeps it)"

// The tensor in argument i, or an error that names function and argument.
cnn_tensor *cnn_check_tensor(lua_State *L, cnn_lua *S, int i, const char *function,
                             const char *argument);
// The metatable of a kind, pushed.
void cnn_push_metatable(lua_State *L, cnn_lua *S, cnn_box_kind kind);

// ---------------------------------------------------------------------------------------------
// Pools of a script's own (pool.c)

struct cnn_pool_handle {
  cnn_box box; // its object is the cnn_pool
  cnn_device device;
  int64_t live_after, soft; // as the state's, for this pool's live bytes
};

// The pool that argument 1 is or, of a device's name or nothing, has (NULL: meta has none).
cnn_pool *cnn_check_pool(lua_State *L, cnn_lua *S, const char *function);
// Raises where a pool of so many bytes would have room for nothing.
void cnn_check_room(lua_State *L, cnn_lua *S, const char *function, double bytes, size_t granule);
// Raises what the debugging aid found (memory/guard.h), if it did.
void cnn_raise_damage(lua_State *L, cnn_lua *S);

// ---------------------------------------------------------------------------------------------
// Errors (error.c)

// Raises the context's message with the script's line.
int cnn_raise(lua_State *L, cnn_lua *S, cnn_status status) __attribute__((noreturn));
// Raises a message of the binding's own (printf format).
int cnn_error(lua_State *L, cnn_lua *S, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
// "script.lua:12" of the innermost function that is not ours, or "".
void cnn_where(lua_State *L, cnn_lua *S, char *text, size_t size);
// "a string", "a number", "nil", "a tensor" ... for "expected X, got Y".
const char *cnn_describe(lua_State *L, int i, char *text, size_t size);
// The entry of a NUL-separated, doubly NUL-terminated list nearest to `name`, or NULL.
const char *cnn_nearest(const char *name, const char *names);

// ---------------------------------------------------------------------------------------------
// Collection (gc.c)

// Called on entry of everything that allocates, before anything is held.
void cnn_pace(lua_State *L, cnn_lua *S);
// The same on entry of a backward pass.
void cnn_pace_backward(lua_State *L, cnn_lua *S);
// After CNN_OOM: collects everything and empties the pools' caches. False when that can't be done
// now.
bool cnn_make_room(lua_State *L, cnn_lua *S);
// The same, to ask for the memory again: counts the refusal as a retry.
bool cnn_make_room_again(lua_State *L, cnn_lua *S);
// Sets the live bytes at which a collection is due for this pool.
void cnn_pace_pool(cnn_lua *S, cnn_pool_handle *handle);
// While memory is recorded: makes the script's line the origin of what this call allocates
// (record.c).
void cnn_note_origin(lua_State *L, cnn_lua *S);
// Releases host functions that the core gave back.
void cnn_drain(lua_State *L, cnn_lua *S);

// Runs `call` and, after CNN_OOM, once more with room made, or with what there is.
#define CNN_WITH_ROOM(L, S, status, call)                                                          \
  do {                                                                                             \
    (status) = (call);                                                                             \
    if ((status) == CNN_OOM && cnn_make_room_again(L, S)) {                                        \
      (S)->ctx.last_try = true;                                                                    \
      (status) = (call);                                                                           \
      (S)->ctx.last_try = false;                                                                   \
    }                                                                                              \
  } while (0)

// ---------------------------------------------------------------------------------------------
// Arguments by a spec (args.c)

#define CNN_ARG_INTS 96
typedef struct cnn_lua_args {
  int n; // = spec->n
  cnn_arg args[CNN_MAX_ARGS];
  int n_ints;
  int64_t ints[CNN_ARG_INTS];
} cnn_lua_args;

// Reads the arguments from stack index `first` to the top by the spec. `name` is the op's. Pushes
// scratch values on the stack as needed. Raises on a mistake.
void cnn_read_args(lua_State *L, cnn_lua *S, const char *name, const cnn_spec *spec, int first,
                   cnn_lua_args *out);
// Pushes a list of a spec's arguments, for help and docs: {name, type, default ...} each.
void cnn_push_params(lua_State *L, const cnn_spec *spec);

// Readers of single values with the same rules and messages, for the rest of the binding.
cnn_dtype cnn_check_dtype(lua_State *L, cnn_lua *S, int i, const char *function);
cnn_device cnn_check_device(lua_State *L, cnn_lua *S, int i, const char *function);

// ---------------------------------------------------------------------------------------------
// Parts of the module: each adds its functions to the table on top of the stack (the core's).

void cnn_open_ops(lua_State *L, cnn_lua *S);
void cnn_open_tensor(lua_State *L, cnn_lua *S);
void cnn_open_values(lua_State *L, cnn_lua *S);
void cnn_open_scope(lua_State *L, cnn_lua *S);
void cnn_open_pack(lua_State *L, cnn_lua *S);
void cnn_open_autograd(lua_State *L, cnn_lua *S);
void cnn_open_gc(lua_State *L, cnn_lua *S);
void cnn_open_record(lua_State *L, cnn_lua *S);
void cnn_open_io(lua_State *L, cnn_lua *S);
void cnn_open_data(lua_State *L, cnn_lua *S);
void cnn_open_interrupt(lua_State *L, cnn_lua *S);
void cnn_open_module(lua_State *L, cnn_lua *S);
void cnn_open_optim(lua_State *L, cnn_lua *S);
void cnn_open_pool(lua_State *L, cnn_lua *S);
void cnn_open_cuda(lua_State *L, cnn_lua *S);
void cnn_open_simulation(lua_State *L, cnn_lua *S);

typedef struct cnn_function {
  const char *name;
  lua_CFunction function;
} cnn_function;
// Adds functions, each with the state and the tensors' metatable as upvalues 1 and 2, to the table
// on top. The list ends with a NULL name.
void cnn_set_functions(lua_State *L, cnn_lua *S, const cnn_function *list);

// Whether the value at i can be called (autograd.c).
bool cnn_callable(lua_State *L, int i);

// A graph node (autograd.c).
void cnn_push_node(lua_State *L, cnn_lua *S, void *node);

// Index expressions x[...] (index.c).
int cnn_index_get(lua_State *L, cnn_lua *S, cnn_tensor *x, int key);
int cnn_index_set(lua_State *L, cnn_lua *S, cnn_tensor *x, int key, int value);

// A shape as Lua sees it: a list with a metatable.
void cnn_push_shape(lua_State *L, cnn_lua *S, int n, const int64_t *shape);

#endif
