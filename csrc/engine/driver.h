// SPDX-License-Identifier: MIT
// What a plugin for a device brings (cuda/): one table, filled by its one exported function.
//
// The plugin resolves no symbol of the core. It compiles the few files of the core that have no
// state (base/dtype.c, base/shape.c, base/status.c, engine/call.c) a second time; all else that it
// needs comes in the host table. Op ids are those of ops.def: both sides say how many ops there
// are, a checksum of their names, and the sizes of the structures they share, so that a plugin of
// another build is refused.
//
// Functions take the context only for messages and its current streams. `stream` is the device's
// own (a cudaStream_t); NULL is the default stream.
#ifndef CNN_ENGINE_DRIVER_H
#define CNN_ENGINE_DRIVER_H

#include "engine/registry.h"
#include "memory/pool.h"

#define CNN_DRIVER_ABI    2
#define CNN_DRIVER_SYMBOL "cnn_driver_open"

typedef struct cnn_host {
  int abi;
  int op_count;
  uint64_t op_names;                           // cnn_driver_names
  size_t context_size, call_size, driver_size; // of cnn_context, cnn_call, cnn_driver
  const char *(*op_name)(int id);              // static storage
  void *(*alloc)(size_t bytes);                // as malloc, counted by fault injection
  void (*free)(void *p);
  // base/parallel.h
  void (*parallel_for)(int64_t n, int64_t grain, void (*fn)(void *, int64_t, int64_t), void *arg);
} cnn_host;

// Bytes and numbers of a device, as its maker calls them.
typedef struct cnn_device_properties {
  char name[256];
  char uuid[40];
  int major, minor;                     // compute capability
  int64_t total_memory, context_memory, // what was taken before the first tensor
      shared_memory_per_block, shared_memory_per_block_optin, l2_cache_size;
  int multi_processor_count, warp_size, registers_per_block, max_threads_per_block,
      max_threads_per_multi_processor, pci_bus, pci_device;
  bool integrated, peer_access; // whether another GPU's memory can be reached
} cnn_device_properties;

// A library that serves a device: what version, or why it does not, and own kernels do.
enum { CNN_DEVICE_LIBRARIES = 3 };
typedef struct cnn_device_library {
  const char *name; // static storage
  bool used;
  char text[256];
} cnn_device_library;

// What was launched and moved since the process began.
typedef struct cnn_launch_counts {
  int64_t kernels, syncs;
  int64_t read, written;              // bytes of what kernels took, gave and changed
  int64_t to_device, to_host, within; // bytes copied
} cnn_launch_counts;

// What a simulator saw the threads of one kernel do since the process began.
typedef struct cnn_kernel_counts {
  const char *name; // valid until the driver is asked again
  int64_t launches, blocks, threads, barriers;
  bool counted; // whether the following are known
  int64_t loads, stores, load_bytes, store_bytes, shared_loads, shared_stores, atomics;
} cnn_kernel_counts;

// A kernel written by the user, compiled at run time: at most so many arguments, and options of the
// compiler.
enum { CNN_PROGRAM_ARGS = 64, CNN_PROGRAM_OPTIONS = 32 };
typedef struct cnn_program_arg {
  size_t extent; // of a pointer: the bytes that it may be used for
  bool changes;  // whether it is written to
  union {
    void *pointer;
    float f32;
    double f64;
    int32_t i32;
    int64_t i64;
  };
} cnn_program_arg;

typedef struct cnn_driver {
  int abi;
  const char *name; // "CUDA 13.0", "CUDA 13.0, simulated on the CPU"
  bool simulated;
  int count; // of devices
  cnn_backend backend;
  // What pools ask of device `index`: valid as long as the process.
  const cnn_mapper *(*mapper)(int index);
  cnn_status (*properties)(cnn_context *ctx, int index, cnn_device_properties *out);
  // Whether the device has a context: since its first use, until a shutdown.
  bool (*is_used)(int index);
  // The libraries of device `index`, opened if need be.
  cnn_status (*libraries)(cnn_context *ctx, int index,
                          cnn_device_library out[CNN_DEVICE_LIBRARIES]);
  // Waits until all that was asked of the device is done; raises what its kernels reported.
  cnn_status (*synchronize)(cnn_context *ctx, int index);
  // Whether each op is to be waited for, so that an error is raised by the call that made it.
  void (*set_sync)(bool on);
  bool (*is_sync)(void);
  // Whether float32 products and convolutions may round their factors to TF32. Off at first.
  void (*set_tf32)(bool on);
  bool (*allows_tf32)(void);
  // Whether products take a ReLU along where that makes NaN 0. Off at first.
  void (*set_fuse_relu)(bool on);
  bool (*fuses_relu)(void);

  cnn_status (*stream_create)(cnn_context *ctx, int index, int priority, void **stream);
  void (*stream_destroy)(int index, void *stream);
  cnn_status (*stream_query)(cnn_context *ctx, int index, void *stream, bool *done);
  cnn_status (*stream_synchronize)(cnn_context *ctx, int index, void *stream);

  cnn_status (*event_create)(cnn_context *ctx, int index, bool timing, void **event);
  void (*event_destroy)(int index, void *event);
  cnn_status (*event_record)(cnn_context *ctx, int index, void *event, void *stream);
  cnn_status (*event_query)(cnn_context *ctx, int index, void *event, bool *done);
  cnn_status (*event_synchronize)(cnn_context *ctx, int index, void *event);
  cnn_status (*event_wait)(cnn_context *ctx, int index, void *event, void *stream);
  cnn_status (*event_elapsed)(cnn_context *ctx, int index, void *from, void *to, float *ms);

  // Host memory that devices read and write without the CPU's help. A copy from or to it may go on
  // behind its call: host_settle waits for those that use it, and raises what kernels reported;
  // host_free waits for nothing. What is freed is kept for reuse until host_trim, which returns its
  // bytes.
  cnn_status (*host_alloc)(cnn_context *ctx, size_t bytes, void **memory);
  void (*host_free)(void *memory);
  bool (*host_owns)(const void *memory);
  cnn_status (*host_settle)(cnn_context *ctx, const void *memory);
  size_t (*host_trim)(void);

  // Of op `id`, or with -1 of what no op did (copies, kernels of the user's).
  void (*counts_get)(int id, cnn_launch_counts *out);
  // Of the i-th kernel of a simulator's, from 0; false behind the last, and on a GPU.
  bool (*kernel_counts_get)(int i, cnn_kernel_counts *out);

  // Compiles `source` for the device and finds the kernel `name` in it. On failure the message is
  // the compiler's.
  cnn_status (*program_create)(cnn_context *ctx, int index, const char *source, const char *name,
                               const char *const *options, int n_options, void **program);
  void (*program_destroy)(void *program);
  cnn_status (*program_launch)(cnn_context *ctx, void *program, const unsigned grid[3],
                               const unsigned block[3], size_t shared, const cnn_program_arg *args,
                               int n_args, void *stream);
  // Ends all use of the devices: waits, and drops their contexts with all that is theirs; pinned
  // memory becomes ordinary. Pools' memory must have been given back. The next use starts anew.
  cnn_status (*shutdown)(cnn_context *ctx);
} cnn_driver;

// The one symbol of a plugin. NULL when the table is filled, else why it serves not (static
// storage).
typedef const char *(*cnn_driver_entry)(const cnn_host *host, cnn_driver *driver);

// A checksum (FNV-1a) of names in their order.
static inline uint64_t cnn_driver_names(int n, const char *(*name)(int id)) {
  uint64_t h = 0xcbf29ce484222325u;
  for (int i = 0; i < n; i++)
    for (const char *at = name(i);; at++) {
      h = (h ^ (unsigned char)*at) * 0x100000001b3u;
      if (!*at) break;
    }
  return h;
}

#endif
