// SPDX-License-Identifier: MIT
//
// The frame of a module that the NVRTC stand-in compiles: the simulator's functions come through a
// table, the kernels go out through another.
#ifndef SIM_MODULE_FRAME_H
#define SIM_MODULE_FRAME_H

#include <stdio.h> // printf, which kernels have without it

#include "sim_device.h"

// The simulator's functions, in the order of the list.
struct SimApi {
#define SIM_MEMBER(result, name, params, args) result(*name) params;
  SIM_API_LIST(SIM_MEMBER)
#undef SIM_MEMBER
};

struct SimEntry {
  const char *name;
  const void *function;
  // params[i] points to argument i
  cudaError_t (*launch)(void **params, dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
};

#ifdef SIM_MODULE

// The frame itself is not to be seen by the checker.
#ifdef SIM_CHECK
#pragma clang attribute push(__attribute__((no_sanitize("thread", "undefined"))),                  \
                             apply_to = function)
#endif

SimState sim_state;
static const SimApi *sim_api;
static void sim_use(const SimApi *api) {
  sim_api = api;
} // before anything else
extern "C" {
// (What the module's objects run as they are made, before the table is there, is no kernel.)
#define SIM_THROUGH(result, name, params, args)                                                    \
  result name params {                                                                             \
    return sim_api ? sim_api->name args : static_cast<result>(0);                                  \
  }
SIM_API_LIST(SIM_THROUGH)
#undef SIM_THROUGH
}

#ifdef SIM_CHECK
#include "sim_hooks.h"
#pragma clang attribute pop
#endif

template <class... P> struct SimUnpack {
  template <size_t... I>
  static cudaError_t launch(const char *name, void (*kernel)(P...), void **params, dim3 grid,
                            dim3 block, size_t shared, cudaStream_t stream,
                            std::index_sequence<I...>) {
    return sim_launch(name, kernel, grid, block, shared, stream,
                      *static_cast<std::decay_t<P> *>(params[I])...);
  }
};
template <class... P>
cudaError_t sim_launch_packed(const char *name, void (*kernel)(P...), void **params, dim3 grid,
                              dim3 block, size_t shared, cudaStream_t stream) {
  return SimUnpack<P...>::launch(name, kernel, params, grid, block, shared, stream,
                                 std::index_sequence_for<P...>());
}

// A kernel by the name that it is found by, and the one that is shown.
#define SIM_MODULE_ENTRY(name, shown, ...)                                                         \
  {                                                                                                \
    name, reinterpret_cast<const void *>(&__VA_ARGS__),                                            \
        [](void **params, dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {             \
          return sim_launch_packed(shown, &__VA_ARGS__, params, grid, block, shared, stream);      \
        }                                                                                          \
  }

// Nobody's shared memory, before and behind all others, so that an index that leaves these is seen.
static __attribute__((section(".sim_shared"), used)) char sim_shared_pad[4096];
template <int> void sim_last_shared() { // instances come in the order of their first use
  static __attribute__((section(".sim_shared"), used)) char sim_shared_pad[4096];
}

// extern __shared__ T x[]; outside of functions
template <class T> struct SimDynamicShared {
  operator T *() const { return static_cast<T *>(sim_dynamic_shared()); }
};

// CUDA's, which ends the kernel and not the process.
#define SIM_ASSERT(condition)                                                                      \
  ((condition) ? (void)0 : sim_trap("assertion failed: " #condition, __FILE__, __LINE__))
#undef assert
#define assert SIM_ASSERT

#endif
#endif
