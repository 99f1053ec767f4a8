// SPDX-License-Identifier: MIT
// What the files of the CUDA plugin share: devices, errors, what surrounds a launch.
//
// Host code is C; .cu files hold kernels and what launches them, and see only kernel.h. A function
// that fails writes its reason into the context and returns the status.
#ifndef CNN_CUDA_PLUGIN_H
#define CNN_CUDA_PLUGIN_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "answer.h"
#include "base/context.h"
#include "engine/driver.h"
#include "kernel.h"

#define CUDA_SPARE_EVENTS 256

// A library's engine on a device, made by its first use.
typedef struct cuda_library {
  struct cuda_blas *blas; // of these, its own: NULL until it is there
  struct cuda_dnn *dnn;
  bool settled;     // it is there, or never will be
  cuda_message why; // not
} cuda_library;

typedef struct cuda_device {
  int index;
  atomic_bool ready; // initialised; written under the lock
  unsigned life;     // which of its contexts this is: a shutdown ends one
  struct cudaDeviceProp properties;
  size_t taken;                         // bytes that were not free once the context was there
  cuda_fault *fault;                    // on the device
  cudaStream_t aside;                   // for reading it, whatever other streams do
  cnn_mapper mapper;                    // what pools ask
  cudaEvent_t spare[CUDA_SPARE_EVENTS]; // of the pools (memory.c)
  int spare_count;
  bool virtual_memory; // it maps memory into reserved addresses; else cudaMalloc serves
  struct cuda_range *ranges;
  unsigned met, readers;   // bits: devices it copied with, and that reach its memory (memory.c)
  pthread_mutex_t staging; // guards the ring
  struct cuda_ring *ring;  // of copies from and to pageable memory (transfer.c), or NULL
  cuda_library cublaslt, cudnn;
} cuda_device;

extern cnn_host cuda_host;
extern int cuda_count;

// The device, made the current one of this thread and initialised. NULL, with the reason in the
// context, when it can't be used.
cuda_device *cuda_enter(cnn_context *ctx, int index);
// The same without a context to fail in: NULL is all that is said.
cuda_device *cuda_enter_quietly(int index);
// The device as it is.
cuda_device *cuda_device_at(int index);
// One that is initialised, else the first.
int cuda_any_device(void);
// An error of the runtime as a status, `what` in front of its text.
cnn_status cuda_check(cnn_context *ctx, cudaError_t error, const char *what);
#define CUDA_TRY(ctx, call) CNN_TRY(cuda_check(ctx, call, #call))

// Waits for the stream and raises what kernels of the device have reported.
cnn_status cuda_wait(cnn_context *ctx, cuda_device *d, cudaStream_t stream);
// Raises what kernels of the device have reported; the device must have finished them.
cnn_status cuda_report(cnn_context *ctx, cuda_device *d);

// Counts (count.c).
typedef enum cuda_count_kind {
  CUDA_COUNT_KERNELS,
  CUDA_COUNT_SYNCS,
  CUDA_COUNT_READ,
  CUDA_COUNT_WRITTEN,
  CUDA_COUNT_TO_DEVICE,
  CUDA_COUNT_TO_HOST,
  CUDA_COUNT_WITHIN,
  CUDA_COUNT_KINDS
} cuda_count_kind;
void cuda_count_add(cuda_count_kind kind, int64_t n);
// The op that is counted for from now on, on this thread; -1 for none. Returns the one before.
int cuda_count_for(int id);
// What the call's op reads and writes at least.
void cuda_count_bytes(const cnn_call *call);
void cuda_counts_get(int id, cnn_launch_counts *out);
bool cuda_kernel_counts_get(int i, cnn_kernel_counts *out);

// Memory (memory.c).
void cuda_memory_open(cuda_device *d);
// A function of the driver's, by name, into the function pointer at `function`: the plugin links
// with the runtime alone.
bool cuda_look_up(const char *name, void *function);
// Lets two devices reach each other's memory, where they can.
void cuda_peers_meet(int a, int b);
// Gives up what a device holds beside pools' memory.
void cuda_memory_close(cuda_device *d);

// Pinned memory (pinned.c): see engine/driver.h.
cnn_status cuda_host_alloc(cnn_context *ctx, size_t bytes, void **memory);
void cuda_host_free(void *memory);
bool cuda_host_owns(const void *memory);
cnn_status cuda_host_settle(cnn_context *ctx, const void *memory);
size_t cuda_host_trim(void);
// Whether it is pinned memory; then the stream waits for the copies that use it already.
cnn_status cuda_pin_order(cnn_context *ctx, const void *host, cudaStream_t stream, bool *pinned);
// The pinned memory is in use until the stream has done what it was given. False: that can't be
// noted.
bool cuda_pin_until(const void *host, int index, cudaStream_t stream);
// Makes it all ordinary memory.
void cuda_host_close(void);

// Copies (transfer.c).
cnn_status cuda_copy(cnn_context *ctx, void *to, cnn_device to_device, const void *from,
                     cnn_device from_device, size_t bytes, bool non_blocking);
void cuda_ring_free(cuda_device *d);

// Streams and events (stream.c), programs (program.c), libraries (libraries.c): fill their part of
// the table.
void cuda_streams_fill(cnn_driver *driver);
void cuda_streams_close(void);
void cuda_programs_fill(cnn_driver *driver);
// Raises the faults of programs that the simulator has seen.
cnn_status cuda_program_faults(cnn_context *ctx);
void cuda_libraries_fill(cnn_driver *driver);

// Gives up the engines of a device, which must be at rest; its next use makes them anew.
void cuda_libraries_close(cuda_device *d);
// The version of NVRTC, opened if need be; false, with the reason, where there is none.
bool cuda_nvrtc_version(int *major, int *minor, char *reason, size_t size);

// Kernels by op (table.c).
extern const cnn_kernel *const cuda_kernels[];
extern const char *const cuda_op_names[];
extern const int cuda_op_count;
const char *cuda_op_name(int id);

// Whether it is linked with the simulator.
bool cuda_is_simulated(void);

#endif
