// SPDX-License-Identifier: MIT
// Pacing Lua's collector: it sees boxes of a few bytes, not the tensors behind them.
//
//   - PUC 5.3 and 5.4 pile up userdata with finalizers; a step per thousand boxes keeps them few
//     (and is faster, by cache locality).
//   - When live bytes pass a soft threshold, max(minimum, 2 x live bytes after the last
//     collection), a collection is due. It is put off while collections would take more than a
//     share of the time; the share rises from `budget` to everything as live bytes go from a
//     quarter to 80 % of the device's limit.
//   - On entry of backward one is due when handles may keep alive what backward would free: results
//     of a quarter of the minimum, and of an eighth of the live bytes, were handed out since the
//     last backward. (A forward in Lua leaves a handle on every intermediate, and a native module
//     none.) It runs if there is time for it at every backward, as often as they come, or not at
//     all: only at all of them does it lower the peak.
//   - What a collection takes is measured by the clock on the wall, on which a process that had to
//     wait for its core looks slow: one measurement may at most double what is believed.
//   - After an out-of-memory a full collection runs, whatever it costs.
//
// A pool of the script's own that is in use (pool.c) has a threshold besides: a quarter of its
// limit, where that is less than the minimum, and at most halfway from what lived to its limit.
//
// All of it happens on entry of a call that allocates, before anything is held. A collection runs
// finalizers, which may call in here again (`in_gc`) or raise (the call is protected).
#include "lua/state.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "memory/buffer.h"
#include "memory/guard.h"
#include "memory/record.h"

#define STEP_EVERY 1000
#define STEP_SIZE  256
// Seconds per KiB of the Lua heap that a first collection may be believed to take: a slow one's.
#define SLOW_PACE 4e-6

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cnn_pool *paced_pool(void) {
  cnn_device cpu = {CNN_CPU, 0};
  return cnn_device_pool(cpu);
}

// On 5.1 and LuaJIT one giant step is exactly one cycle, at half the cost of LUA_GCCOLLECT.
static int soft_collect(lua_State *L) {
#if LUA_VERSION_NUM == 501
  lua_gc(L, LUA_GCSTEP, 1000000);
#else
  lua_gc(L, LUA_GCCOLLECT, 0);
#endif
  return 0;
}

static int full_collect(lua_State *L) {
  lua_gc(L, LUA_GCCOLLECT, 0);
  return 0;
}

#if LUA_VERSION_NUM >= 503
static int step_collect(lua_State *L) {
  lua_gc(L, LUA_GCSTEP, STEP_SIZE);
  return 0;
}
#endif

// A finalizer that raises must not lose the caller's call.
static void run_protected(lua_State *L, cnn_lua *S, lua_CFunction collect) {
  S->in_gc = true;
  if (lua_checkstack(L, 4)) {
    lua_pushcfunction(L, collect);
    if (lua_pcall(L, 0, 0, 0) != 0) lua_pop(L, 1);
  }
  S->in_gc = false;
  S->L = L;
}

// The pool of GPU i, with thresholds of its own in S->gpus; NULL when it has none.
static const cnn_pool *paced_gpu(cnn_lua *S, int i) {
  cnn_pool *gpu = cnn_gpu_pool(i);
  cnn_pool_handle *h = S->gpus[i];
  if (!gpu) return NULL;
  if (!h) h = S->gpus[i] = cnn_calloc(sizeof *h);
  if (h && h->box.object != gpu) { // the first one, or another after a shutdown
    h->box.object = gpu;
    h->live_after = 0;
    cnn_pace_pool(S, h);
  }
  return h ? gpu : NULL;
}

// A collection that began at `start` is over.
static void note(lua_State *L, cnn_lua *S, cnn_pool *pool, double start) {
  S->last_end = now();
  double took = S->last_end - start;
  double most = S->cost > 0 ? 2 * S->cost : SLOW_PACE * lua_gc(L, LUA_GCCOUNT, 0);
  S->cost = took < most ? took : most;
  S->collecting += took;
  S->collections++;
  if (S->pool) {
    S->pool->live_after = cnn_pool_live(S->pool->box.object);
    cnn_pace_pool(S, S->pool);
  }
  for (int i = 0; i < cnn_gpu_pools(); i++) {
    const cnn_pool *gpu = paced_gpu(S, i);
    if (!gpu) continue;
    S->gpus[i]->live_after = cnn_pool_live(gpu);
    cnn_pace_pool(S, S->gpus[i]);
  }
  if (!pool) return;
  S->live_after = cnn_pool_live(pool);
  S->soft = 2 * S->live_after > S->soft_minimum ? 2 * S->live_after : S->soft_minimum;
}

void cnn_pace_pool(cnn_lua *S, cnn_pool_handle *h) {
  int64_t limit = cnn_pool_limit(h->box.object), least = S->soft_minimum, most;
  if (limit / 4 < least) least = limit / 4;
  most = h->live_after + (limit - h->live_after) / 2;
  h->soft = 2 * h->live_after > least ? 2 * h->live_after : least;
  if (h->soft > most) h->soft = most;
}

// The share of time that collections may take: 1 is no bound.
static double used_share(const cnn_pool *pool) {
  int64_t limit = cnn_pool_limit(pool);
  return (double)cnn_pool_live(pool) / (double)(limit > 0 ? limit : 1);
}

static double allowed_share(const cnn_lua *S, const cnn_pool *pool) {
  double used = used_share(pool), of_own = S->pool ? used_share(S->pool->box.object) : 0;
  if (of_own > used) used = of_own;
  for (int i = 0; i < cnn_gpu_pools(); i++) {
    const cnn_pool *gpu = cnn_gpu_pool(i);
    double of_gpu = gpu ? used_share(gpu) : 0;
    if (of_gpu > used) used = of_gpu;
  }
  if (used <= 0.25) return S->budget;
  if (used >= 0.8) return 1;
  return S->budget + (1 - S->budget) * (used - 0.25) / 0.55;
}

// Whether a collection every `seconds` would take more than a share of the time, d / (d + pause).
static bool too_often(const cnn_lua *S, double seconds, double share) {
  return share < 1 && seconds < S->cost * (1 - share) / share;
}

// *soft is the threshold that `live` bytes of a pool have passed.
static void over_threshold(lua_State *L, cnn_lua *S, cnn_pool *pool, int64_t live, int64_t *soft) {
  double start = now(), share = allowed_share(S, pool);
  if (too_often(S, start - S->last_end, share)) {
    // Not yet: look again when as much again has been allocated, not at every call.
    *soft = live + live / 16;
    return;
  }
  run_protected(L, S, soft_collect);
  note(L, S, pool, start);
}

// The same for the pools of GPUs, each by its own live bytes.
static __attribute__((noinline)) void pace_gpus(lua_State *L, cnn_lua *S, cnn_pool *pool) {
  for (int i = 0; i < cnn_gpu_pools(); i++) {
    const cnn_pool *gpu = paced_gpu(S, i);
    int64_t live = gpu ? cnn_pool_live(gpu) : 0;
    if (gpu && live > S->gpus[i]->soft) over_threshold(L, S, pool, live, &S->gpus[i]->soft);
  }
}

void cnn_pace(lua_State *L, cnn_lua *S) {
  if (__builtin_expect(cnn_record_on(), 0)) cnn_note_origin(L, S);
  if (S->n_dead > 0) cnn_drain(L, S);
  if (S->in_gc) return;
  if (__builtin_expect(atomic_load_explicit(&cnn_guard_found, memory_order_relaxed) != 0, 0))
    cnn_raise_damage(L, S);
  if (!S->paced) return;
#if LUA_VERSION_NUM >= 503
  if (S->boxes_since_step >= STEP_EVERY) {
    S->boxes_since_step = 0;
    S->steps++;
    run_protected(L, S, step_collect);
  }
#endif
  cnn_pool *pool = paced_pool();
  if (!pool) return;
  int64_t live = cnn_pool_live(pool);
  if (__builtin_expect(live > S->soft, 0)) over_threshold(L, S, pool, live, &S->soft);
  if (__builtin_expect(S->pool != NULL, 0)) {
    live = cnn_pool_live(S->pool->box.object);
    if (live > S->pool->soft) over_threshold(L, S, pool, live, &S->pool->soft);
  }
  if (__builtin_expect(cnn_gpu_pools() > 0, 0)) pace_gpus(L, S, pool);
}

void cnn_pace_backward(lua_State *L, cnn_lua *S) {
  cnn_pace(L, S);
  double start = now(), since = start - S->last_backward;
  int64_t handed = S->handed, soft = S->soft;
  S->handed = 0;
  S->last_backward = start;
  if (S->in_gc || !S->paced || handed < S->soft_minimum / 4) return;
  cnn_pool *pool = paced_pool();
  if (!pool || handed < cnn_pool_live(pool) / 8) return;
  if (S->cost == 0) S->cost = SLOW_PACE * lua_gc(L, LUA_GCCOUNT, 0);
  if (start - S->last_end < since) since = start - S->last_end;
  if (too_often(S, since, allowed_share(S, pool))) return;
  run_protected(L, S, soft_collect);
  note(L, S, pool, start);
  // Live bytes are at their height: no measure for what may gather before the next collection.
  if (S->soft > soft) S->soft = soft;
}

bool cnn_make_room(lua_State *L, cnn_lua *S) {
  if (S->in_gc || S->no_room) return false;
  double start = now();
  // Twice: finalizers of the first round may let go of more.
  run_protected(L, S, full_collect);
  run_protected(L, S, full_collect);
  cnn_drain(L, S);
  cnn_pool *pool = paced_pool(), *current = S->pool ? S->pool->box.object : pool;
  // (The others of the device give what they have free when this one asks for it.)
  if (current) cnn_pool_trim(current);
  note(L, S, pool, start);
  return true;
}

bool cnn_make_room_again(lua_State *L, cnn_lua *S) {
  if (!cnn_make_room(L, S)) return false;
  cnn_pool *pool = cnn_current_pool(&S->ctx, S->ctx.default_device);
  if (pool) cnn_pool_retried(pool);
  return true;
}

void cnn_drain(lua_State *L, cnn_lua *S) {
  while (S->n_dead > 0) luaL_unref(L, LUA_REGISTRYINDEX, (int)S->dead[--S->n_dead]);
}

// cnn.gc{...}: sets what is given; returns a table of all settings and counts.
static double number_field(lua_State *L, cnn_lua *S, const char *key, double otherwise) {
  lua_getfield(L, 1, key);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return otherwise;
  }
  if (lua_type(L, -1) != LUA_TNUMBER || lua_tonumber(L, -1) < 0)
    cnn_error(L, S, "gc: %s must be a number >= 0", key);
  double v = (double)lua_tonumber(L, -1);
  lua_pop(L, 1);
  return v;
}

static int l_gc(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  if (lua_istable(L, 1)) {
    lua_pushnil(L);
    while (lua_next(L, 1)) {
      static const char names[] = "paced\0minimum\0budget\0";
      const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
      if (strcmp(key, "paced") != 0 && strcmp(key, "minimum") != 0 && strcmp(key, "budget") != 0) {
        const char *near = cnn_nearest(key, names);
        cnn_error(L, S, "gc: unknown option \"%s\"%s%s%s (it takes paced, minimum, budget)", key,
                  near ? ": did you mean \"" : "", near ? near : "", near ? "\"?" : "");
      }
      lua_pop(L, 1);
    }
    lua_getfield(L, 1, "paced");
    if (!lua_isnil(L, -1)) S->paced = lua_toboolean(L, -1);
    lua_pop(L, 1);
    S->soft_minimum = (int64_t)number_field(L, S, "minimum", (double)S->soft_minimum);
    S->budget = number_field(L, S, "budget", S->budget);
    if (S->budget <= 0 || S->budget > 1) S->budget = S->budget > 1 ? 1 : 0.001;
    S->soft = S->soft_minimum;
  } else if (!lua_isnoneornil(L, 1)) {
    char got[64];
    cnn_error(L, S, "gc: expected a table of options, got %s", cnn_describe(L, 1, got, sizeof got));
  }
  lua_newtable(L);
  lua_pushboolean(L, S->paced), lua_setfield(L, -2, "paced");
  cnn_pushint(L, S->soft_minimum), lua_setfield(L, -2, "minimum");
  lua_pushnumber(L, S->budget), lua_setfield(L, -2, "budget");
  cnn_pushint(L, S->soft), lua_setfield(L, -2, "threshold");
  cnn_pushint(L, S->live_after), lua_setfield(L, -2, "live_after");
  cnn_pushint(L, S->collections), lua_setfield(L, -2, "collections");
  cnn_pushint(L, S->steps), lua_setfield(L, -2, "steps");
  lua_pushnumber(L, S->collecting), lua_setfield(L, -2, "seconds");
  return 1;
}

void cnn_open_gc(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"gc", l_gc}, {NULL, NULL}};
  S->paced = true;
  S->soft_minimum = INT64_C(64) << 20;
  S->soft = S->soft_minimum;
  S->budget = 0.05;
  S->last_backward = now();
  cnn_set_functions(L, S, functions);
}
