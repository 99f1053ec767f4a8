// SPDX-License-Identifier: MIT
//
// What a test can set and ask of the simulated GPUs. Plain C, so that it can be called from C, C++
// and through an ffi. Every knob has an environment variable, read at the first call of the
// simulator; a function wins over its variable.
//
//   SIM_ORDER=forward|reverse|random   order of the threads in a block and of the blocks in a grid
//   SIM_STREAMS=eager|lazy|random      when queued work runs: at once; only when a wait needs it,
//                                      the last stream first; a few items at any call
//   SIM_SEED=n                         of everything that is random (default 1)
//   SIM_MEMORY=bytes (K, M, G)         of one device (default 8G)
//   SIM_CONTEXT=bytes                  that a device's context takes of it (default 64M)
//   SIM_FAIL_ALLOC=n                   the n-th allocation from now fails, once
//   SIM_PROTECT=0|1                    device memory is closed while host code runs (default 1)
//   SIM_STRICT=0|1                     reports what is legal but unwise: threads that leave before
//                                      a barrier, __activemask; cudaFree does not wait (default 0)
//   SIM_DEVICES=n                      number of devices, 0 to 8 (default 1); an empty
//                                      CUDA_VISIBLE_DEVICES hides them
//   SIM_PEERS=0|1                      devices can reach each other's memory (default 1)
//   SIM_DRIVER=version (12020)         the CUDA that the driver serves; 0: there is no driver
//   SIM_NOISE=0|1                      approximate functions (__expf ...) err by up to 2 ulp
//   SIM_LEAKS=0|1                      reports live device allocations at exit
//   SIM_QUIET=0|1                      reports are counted, not printed
//   SIM_LIBRARIES=whole|missing|exhausted|refusing   what cuBLASLt and cuDNN answer: as they do;
//                                      that a part of them is missing; when one is opened, that
//                                      there is no memory for it, the first two times; that they
//                                      have no algorithm
//   SIM_NVRTC=arch (80)                the newest architecture that NVRTC knows
//   SIM_REAL_NVRTC=path                the real NVRTC compiles all programs too (nvrtc_real.cpp)
//   SIM_EXIT=status                    of a process that ends after reports; 0: its own (default)
//   SIM_CATCH=0|1                      says which kernel was running when the process crashes. The
//                                      simulator touches no signal unless asked by this
//
// A report is a fault of the program under test. It is printed to stderr with the kernel, block,
// thread and, in the checker build, file and line. Equal reports are counted once per launch.
#ifndef SIM_H
#define SIM_H

#include <stddef.h>
#include <stdint.h>

#define SIM_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum { SIM_ORDER_FORWARD, SIM_ORDER_REVERSE, SIM_ORDER_RANDOM };
enum {
  SIM_LIBRARIES_WHOLE,
  SIM_LIBRARIES_MISSING,
  SIM_LIBRARIES_EXHAUSTED,
  SIM_LIBRARIES_REFUSING
};
enum { SIM_STREAMS_EAGER, SIM_STREAMS_LAZY, SIM_STREAMS_RANDOM };

SIM_API void sim_set_order(int order);
SIM_API void sim_set_streams(int mode);
SIM_API void sim_set_seed(uint64_t seed);
SIM_API void sim_set_memory(size_t bytes);
SIM_API uint64_t sim_device_used(int device); // bytes, its context's with them
SIM_API uint64_t sim_live_objects(void);      // streams, events, pieces of pinned memory
SIM_API void sim_fail_alloc(long n);          // 0: none fails
SIM_API void sim_set_protect(int on);
SIM_API void sim_set_strict(int on);
SIM_API void sim_set_noise(int on);
SIM_API void sim_set_quiet(int on);
SIM_API void sim_set_libraries(int mode);
SIM_API int sim_set_devices(int n); // only before the first use of a device; returns 0 if refused

// "plain", "asan" or "check".
SIM_API const char *sim_flavour(void);

// Faults since the start or the last clear; the text of the latest, "" if there is none.
SIM_API long sim_faults(void);
SIM_API const char *sim_last_report(void);
SIM_API void sim_clear_faults(void);

// Makes a device answer `error` (a cudaError_t) to everything until it is reset, as after a
// kernel that failed; 0 heals it.
SIM_API void sim_poison_device(int device, int error);

// A caching allocator says so when it takes back a piece of device memory and when it hands one
// out: unused memory is filled with NaN, and the sanitized and checked builds report its use.
SIM_API void sim_mark_unused(void *p, size_t bytes);
SIM_API void sim_mark_used(void *p, size_t bytes);

typedef struct sim_counts {
  uint64_t launches; // kernels, also those that a graph replays
  uint64_t graph_launches;
  uint64_t library_calls; // work enqueued by the stand-ins for libraries
  uint64_t copies, bytes_h2d, bytes_d2h, bytes_d2d, bytes_set;
  uint64_t synchronisations; // calls in which the host waits: device, stream, event, blocking copy
  uint64_t allocations, frees;
  uint64_t live_bytes, peak_bytes; // of all devices
  uint64_t live_blocks;
} sim_counts;

SIM_API void sim_get_counts(sim_counts *out);
SIM_API void sim_clear_counts(void); // but not what is live

// What the threads of all launches of one kernel did. Loads and stores are those that the compiled
// code does, one for a thread's access of any width, of launches that were checked: all in the
// checker build, elsewhere those of kernels compiled at run time. `name` as written in LAUNCH,
// without template arguments' parentheses. Returns 0 if no such kernel ran.
typedef struct sim_kernel_counts {
  uint64_t launches, checked_launches, blocks, threads, barriers, warp_ops;
  uint64_t global_loads, global_stores, global_load_bytes, global_store_bytes;
  uint64_t shared_loads, shared_stores, atomics;
} sim_kernel_counts;

SIM_API int sim_get_kernel_counts(const char *name, sim_kernel_counts *out);
// The i-th kernel that ran, from 0; 0 behind the last.
SIM_API int sim_kernel_at(int i, const char **name, sim_kernel_counts *out);

// Kernels of a user who is to be told and to go on. The next kernel that this thread launches may
// touch of global memory only these pieces (what its arguments point to). Its faults end the kernel
// alone, not the device; they are not printed or counted, but kept until sim_take_faults asks: then
// as lines, as many as fit. Returns their number.
typedef struct sim_extent {
  const void *start;
  size_t bytes;
  int argument; // its number, for messages
} sim_extent;

SIM_API void sim_guard_next(const sim_extent *extents, int n);
SIM_API int sim_take_faults(char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
