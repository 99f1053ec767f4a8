// SPDX-License-Identifier: MIT
//
// CUDA's device side for a C++ compiler: qualifiers, built-in variables, barriers, warp operations,
// atomics and intrinsics. A kernel is a plain function; the simulator calls it once per thread, on
// a fiber where it must wait (exec.cpp). Everything that can wait or has a fault to show goes
// through the few functions of SIM_API_LIST; modules that the NVRTC stand-in compiles reach them
// through a table, because the library that holds the simulator exports nothing.
//
// The places (file, line) in reports come from default arguments.
#ifndef SIM_DEVICE_H
#define SIM_DEVICE_H

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <cmath>
#include <tuple>
#include <type_traits>
#include <utility>

// ---- Qualifiers -------------------------------------------------------------------------------

// Kernels and shared variables lie in sections of their own: so the simulator finds, in the symbol
// table, which shared variables a kernel owns. With dots in the name, AddressSanitizer puts red
// zones round them as round other globals.
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __launch_bounds__
#undef __grid_constant__
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __grid_constant__
#ifdef __clang__
#define __global__ __attribute__((section(".sim_kernel")))
#define __shared__ static __attribute__((section(".sim_shared")))
#else // g++ 12 can't mix such sections with templates
#define __global__
#define __shared__ static
#endif

#define SIM_HERE_ARGS const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define SIM_HERE      file, line
// For what must not be seen by the checker's instrumentation.
#define SIM_RAW __attribute__((noinline, no_sanitize("thread")))

// ---- The simulator's functions that kernels call ----------------------------------------------

// What the running thread sees. One OS thread runs kernels at a time.
struct SimState {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
  unsigned lane; // in the warp
  int noise;
#ifdef SIM_CHECK // whether the object's kernels call the checker
  bool checked = true;
#else
  bool checked = false;
#endif
};

// A kernel with its arguments: what a launch needs besides its shape.
struct SimPointer {
  const void *p;
  int index;
  void *place; // in args
};
struct SimKernel {
  const char *name;
  const void *function;
  void *args; // owned by the launch: freed by destroy
  size_t args_bytes;
  void (*invoke)(const void *function, void *args);
  void (*destroy)(void *args);
  SimState *state;
  const SimPointer *pointers; // those among the arguments; only read at the call
  int pointer_count;
};

enum { SIM_BAR_SYNC, SIM_BAR_COUNT, SIM_BAR_AND, SIM_BAR_OR };
enum { SIM_READ, SIM_WRITE, SIM_ATOMIC };

//      result        name             parameters, arguments
#define SIM_API_LIST(X)                                                                            \
  X(void *, sim_dynamic_shared, (void), ())                                                        \
  X(int, sim_barrier, (int kind, int predicate, const char *file, int line),                       \
    (kind, predicate, file, line))                                                                 \
  X(const void *, sim_meet,                                                                        \
    (unsigned mask, const char *op, const void *mine, size_t bytes, unsigned *arrived,             \
     const char *file, int line),                                                                  \
    (mask, op, mine, bytes, arrived, file, line))                                                  \
  X(void, sim_warp_fault, (const char *op, int source, const char *file, int line),                \
    (op, source, file, line))                                                                      \
  X(unsigned, sim_active_mask, (const char *file, int line), (file, line))                         \
  X(void, sim_atomic, (const void *p, size_t bytes, void *pc), (p, bytes, pc))                     \
  X(void, sim_fence, (int scope), (scope))                                                         \
  X(void, sim_copy_async,                                                                          \
    (void *to, const void *from, size_t bytes, size_t valid, const char *file, int line),          \
    (to, from, bytes, valid, file, line))                                                          \
  X(void, sim_copy_commit, (void), ())                                                             \
  X(void, sim_copy_wait, (int left), (left))                                                       \
  X(void, sim_trap, (const char *what, const char *file, int line), (what, file, line))            \
  X(void, sim_access, (const void *p, size_t bytes, int kind, void *pc), (p, bytes, kind, pc))     \
  X(void, sim_undefined, (const char *what, int error, const char *file, unsigned line),           \
    (what, error, file, line))                                                                     \
  X(float, sim_noise, (float x), (x))                                                              \
  X(cudaError_t, sim_enqueue_kernel,                                                               \
    (const SimKernel *k, dim3 grid, dim3 block, size_t shared, cudaStream_t stream),               \
    (k, grid, block, shared, stream))

#define SIM_DECLARE(result, name, params, args) extern "C" result name params;
SIM_API_LIST(SIM_DECLARE)
#undef SIM_DECLARE

// One in each linked object that holds kernels; a launch says which.
extern "C" SimState sim_state;

// References to one object: they cost nothing, and clash with no member of that name.
static const uint3 &threadIdx = sim_state.thread;
static const uint3 &blockIdx = sim_state.block;
static const dim3 &blockDim = sim_state.block_dim;
static const dim3 &gridDim = sim_state.grid_dim;
static const int warpSize = 32;

// ---- Launching --------------------------------------------------------------------------------

template <class T> void sim_collect(SimPointer *out, int *n, int index, T &v) {
  if constexpr (std::is_pointer_v<T>) {
    if constexpr (!std::is_function_v<std::remove_pointer_t<T>>)
      out[(*n)++] = {static_cast<const void *>(v), index, static_cast<void *>(&v)};
  }
}

template <class... P> struct SimCall {
  typedef std::tuple<std::decay_t<P>...> Args;
  // Every thread gets its own copies, as on a GPU.
  SIM_RAW static void invoke(const void *function, void *args) {
    std::apply(reinterpret_cast<void (*)(P...)>(const_cast<void *>(function)),
               *static_cast<Args *>(args));
  }
  static void destroy(void *args) { delete static_cast<Args *>(args); }
};

template <class... P, class... A>
cudaError_t sim_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                       cudaStream_t stream, A &&...a) {
  static_assert(sizeof...(P) == sizeof...(A), "number of the kernel's arguments");
  typedef typename SimCall<P...>::Args Args;
  Args *args = new Args(static_cast<std::decay_t<P>>(std::forward<A>(a))...);
  SimPointer pointers[sizeof...(P) + 1];
  int n = 0, index = 0;
  std::apply([&](auto &...v) { (sim_collect(pointers, &n, ++index, v), ...); }, *args);
  const SimKernel k = {name,
                       reinterpret_cast<const void *>(kernel),
                       args,
                       sizeof(Args),
                       SimCall<P...>::invoke,
                       SimCall<P...>::destroy,
                       &sim_state,
                       pointers,
                       n};
  return sim_enqueue_kernel(&k, grid, block, shared, stream);
}

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A &&...a) {
  return sim_launch("kernel", kernel, c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream,
                    std::forward<A>(a)...);
}

// ---- Barriers, fences -------------------------------------------------------------------------

inline void __syncthreads(SIM_HERE_ARGS) {
  sim_barrier(SIM_BAR_SYNC, 0, SIM_HERE);
}
inline int __syncthreads_count(int p, SIM_HERE_ARGS) {
  return sim_barrier(SIM_BAR_COUNT, p, SIM_HERE);
}
inline int __syncthreads_and(int p, SIM_HERE_ARGS) {
  return sim_barrier(SIM_BAR_AND, p, SIM_HERE);
}
inline int __syncthreads_or(int p, SIM_HERE_ARGS) {
  return sim_barrier(SIM_BAR_OR, p, SIM_HERE);
}
inline void __threadfence_block(void) {
  sim_fence(0);
}
inline void __threadfence(void) {
  sim_fence(1);
}
inline void __threadfence_system(void) {
  sim_fence(2);
}
inline void __trap(SIM_HERE_ARGS) {
  sim_trap("__trap()", SIM_HERE);
}
inline void __nanosleep(unsigned) {}
inline long long clock64(void) {
  return static_cast<long long>(__builtin_readcyclecounter());
}

// ---- Warp operations --------------------------------------------------------------------------

// The lanes of the mask meet; each then computes its own result from the values of all.
template <class T> struct SimGather {
  const T *all;
  unsigned arrived;
  SIM_RAW SimGather(unsigned mask, const char *op, const T &mine, const char *file, int line) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64, "a value of a lane");
    all = static_cast<const T *>(sim_meet(mask, op, &mine, sizeof(T), &arrived, file, line));
  }
  SIM_RAW T from(int lane, const char *op, const char *file, int line) const {
    if (lane < 0 || lane > 31 || !(arrived >> lane & 1)) {
      sim_warp_fault(op, lane, file, line);
      T poison;
      memset(static_cast<void *>(&poison), 0xff, sizeof(T));
      return poison;
    }
    return all[lane];
  }
};

inline void __syncwarp(unsigned mask = 0xffffffffu, SIM_HERE_ARGS) {
  unsigned arrived;
  sim_meet(mask, "__syncwarp", nullptr, 0, &arrived, SIM_HERE);
}
inline unsigned __activemask(SIM_HERE_ARGS) {
  return sim_active_mask(SIM_HERE);
}

template <class T> T __shfl_sync(unsigned mask, T v, int source, int width = 32, SIM_HERE_ARGS) {
  const SimGather<T> g(mask, "__shfl_sync", v, SIM_HERE);
  const int lane = static_cast<int>(sim_state.lane);
  return g.from((lane & ~(width - 1)) | (source & (width - 1)), "__shfl_sync", SIM_HERE);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, SIM_HERE_ARGS) {
  const SimGather<T> g(mask, "__shfl_up_sync", v, SIM_HERE);
  const int lane = static_cast<int>(sim_state.lane), source = lane - static_cast<int>(delta);
  return source < (lane & ~(width - 1)) ? v : g.from(source, "__shfl_up_sync", SIM_HERE);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, SIM_HERE_ARGS) {
  const SimGather<T> g(mask, "__shfl_down_sync", v, SIM_HERE);
  const int lane = static_cast<int>(sim_state.lane), source = lane + static_cast<int>(delta);
  return source > (lane | (width - 1)) ? v : g.from(source, "__shfl_down_sync", SIM_HERE);
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, SIM_HERE_ARGS) {
  const SimGather<T> g(mask, "__shfl_xor_sync", v, SIM_HERE);
  const int lane = static_cast<int>(sim_state.lane), source = lane ^ bits;
  return source > (lane | (width - 1)) ? v : g.from(source, "__shfl_xor_sync", SIM_HERE);
}

template <class F> SIM_RAW unsigned sim_lanes_where(const SimGather<unsigned long long> &g, F &&f) {
  unsigned r = 0;
  for (unsigned i = 0; i < 32; i++)
    if (g.arrived >> i & 1 && f(g.all[i])) r |= 1u << i;
  return r;
}
inline unsigned __ballot_sync(unsigned mask, int p, SIM_HERE_ARGS) {
  const SimGather<unsigned long long> g(mask, "__ballot_sync", p != 0, SIM_HERE);
  return sim_lanes_where(g, [](unsigned long long v) { return v != 0; });
}
inline int __any_sync(unsigned mask, int p, SIM_HERE_ARGS) {
  const SimGather<unsigned long long> g(mask, "__any_sync", p != 0, SIM_HERE);
  return sim_lanes_where(g, [](unsigned long long v) { return v != 0; }) != 0;
}
inline int __all_sync(unsigned mask, int p, SIM_HERE_ARGS) {
  const SimGather<unsigned long long> g(mask, "__all_sync", p != 0, SIM_HERE);
  return sim_lanes_where(g, [](unsigned long long v) { return v == 0; }) == 0;
}
template <class T> SIM_RAW unsigned long long sim_bits(const T &v) {
  unsigned long long bits = 0;
  static_assert(sizeof(T) <= 8, "a value that can be matched");
  memcpy(&bits, &v, sizeof(T));
  return bits;
}
template <class T> unsigned __match_any_sync(unsigned mask, T v, SIM_HERE_ARGS) {
  const unsigned long long mine = sim_bits(v);
  const SimGather<unsigned long long> g(mask, "__match_any_sync", mine, SIM_HERE);
  return sim_lanes_where(g, [=](unsigned long long x) { return x == mine; });
}
template <class T> unsigned __match_all_sync(unsigned mask, T v, int *pred, SIM_HERE_ARGS) {
  const unsigned long long mine = sim_bits(v);
  const SimGather<unsigned long long> g(mask, "__match_all_sync", mine, SIM_HERE);
  *pred = sim_lanes_where(g, [=](unsigned long long x) { return x != mine; }) == 0;
  return *pred ? g.arrived : 0;
}

template <class T, class F>
SIM_RAW T sim_reduce(unsigned mask, const char *op, T v, F &&f, const char *file, int line) {
  const SimGather<T> g(mask, op, v, file, line);
  bool first = true;
  T r = v;
  for (unsigned i = 0; i < 32; i++)
    if (g.arrived >> i & 1) {
      r = first ? g.all[i] : f(r, g.all[i]);
      first = false;
    }
  return r;
}
#define SIM_REDUCE(name, T, expr)                                                                  \
  inline T name(unsigned mask, T v, SIM_HERE_ARGS) {                                               \
    return sim_reduce(                                                                             \
        mask, #name, v, [](T a, T b) { return static_cast<T>(expr); }, SIM_HERE);                  \
  }
SIM_REDUCE(__reduce_add_sync, unsigned, a + b)
SIM_REDUCE(__reduce_add_sync, int, static_cast<unsigned>(a) + static_cast<unsigned>(b))
SIM_REDUCE(__reduce_min_sync, unsigned, b < a ? b : a)
SIM_REDUCE(__reduce_min_sync, int, b < a ? b : a)
SIM_REDUCE(__reduce_max_sync, unsigned, b > a ? b : a)
SIM_REDUCE(__reduce_max_sync, int, b > a ? b : a)
SIM_REDUCE(__reduce_and_sync, unsigned, a &b)
SIM_REDUCE(__reduce_or_sync, unsigned, a | b)
SIM_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef SIM_REDUCE

#include "sim_atomic.h"
#include "sim_math.h"

#endif
