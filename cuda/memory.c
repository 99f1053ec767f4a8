// SPDX-License-Identifier: MIT
// Device memory as pools ask for it, pinned host memory, copies.
//
// A pool's address space is reserved once and memory is mapped into it granule by granule (cuMem*,
// the driver's virtual memory), so that it grows in place and every free granule can be given back.
// Where the driver has no virtual memory, cudaMalloc serves: a reservation then is the memory, and
// only goes back as a whole.
#include <cuda.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

#define LEAST_GRANULE ((size_t)2 << 20)
#define MOST_GRANULE  ((size_t)32 << 20)
#define GRANULES      8192 // about as many on a device: mapping one costs some 10 us

// The driver's functions are asked for by name: the plugin links with the runtime alone.
static struct {
  CUresult (*granularity)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
  CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
  CUresult (*release)(CUdeviceptr, size_t);
  CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                     unsigned long long);
  CUresult (*drop)(CUmemGenericAllocationHandle);
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
  CUresult (*unmap)(CUdeviceptr, size_t);
  CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
  CUresult (*attribute)(int *, CUdevice_attribute, CUdevice);
} driver;

bool cuda_look_up(const char *name, void *function) {
  void *address = NULL;
  enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess || !address) {
    (void)cudaGetLastError();
    return false;
  }
  memcpy(function, &address, sizeof address);
  return true;
}

static bool find_driver(void) {
  static int found = -1;
  if (found < 0)
    found = cuda_look_up("cuMemGetAllocationGranularity", &driver.granularity) &&
            cuda_look_up("cuMemAddressReserve", &driver.reserve) &&
            cuda_look_up("cuMemAddressFree", &driver.release) &&
            cuda_look_up("cuMemCreate", &driver.create) &&
            cuda_look_up("cuMemRelease", &driver.drop) && cuda_look_up("cuMemMap", &driver.map) &&
            cuda_look_up("cuMemUnmap", &driver.unmap) &&
            cuda_look_up("cuMemSetAccess", &driver.access) &&
            cuda_look_up("cuDeviceGetAttribute", &driver.attribute);
  return found;
}

static CUmemAllocationProp pinned_on(int index) {
  CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = index;
  return p;
}

// ---------------------------------------------------------------------------------------------
// Virtual memory

static void *reserve(void *self, size_t bytes) {
  cuda_device *d = self;
  CUdeviceptr at = 0;
  if (!cuda_enter_quietly(d->index)) return NULL;
  // (The simulator has little address space, and every stream has ranges of its own.)
  if (bytes >
      (cuda_is_simulated() ? d->properties.totalGlobalMem : 16 * d->properties.totalGlobalMem))
    return NULL;
  if (driver.reserve(&at, bytes, d->mapper.granule, 0, 0) != CUDA_SUCCESS) return NULL;
  return (void *)(uintptr_t)at;
}

static void release(void *self, void *base, size_t bytes) {
  cuda_device *d = self;
  if (cuda_enter_quietly(d->index)) driver.release((CUdeviceptr)(uintptr_t)base, bytes);
}

static void unmap(cuda_device *d, CUdeviceptr at, size_t bytes) {
  // One by one: a mapping can only be taken away as it was made.
  for (size_t i = 0; i < bytes; i += d->mapper.granule) driver.unmap(at + i, d->mapper.granule);
}

static bool commit(void *self, void *at, size_t bytes) {
  cuda_device *d = self;
  CUdeviceptr base = (CUdeviceptr)(uintptr_t)at;
  if (!cuda_enter_quietly(d->index)) return false;
  CUmemAllocationProp p = pinned_on(d->index);
  size_t granule = d->mapper.granule, done = 0;
  for (; done < bytes; done += granule) {
    CUmemGenericAllocationHandle handle;
    if (driver.create(&handle, granule, &p, 0) != CUDA_SUCCESS) break;
    CUresult r = driver.map(base + done, granule, 0, handle, 0);
    driver.drop(handle); // the mapping keeps the memory
    if (r != CUDA_SUCCESS) break;
  }
  CUmemAccessDesc access = {.location = p.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (done == bytes && driver.access(base, bytes, &access, 1) == CUDA_SUCCESS) return true;
  unmap(d, base, done);
  return false;
}

static void decommit(void *self, void *at, size_t bytes) {
  cuda_device *d = self;
  if (!cuda_enter_quietly(d->index)) return;
  // Work under way may still use it; cudaFree would wait as well.
  cudaDeviceSynchronize();
  unmap(d, (CUdeviceptr)(uintptr_t)at, bytes);
}

// ---------------------------------------------------------------------------------------------
// Without it: a reservation is memory. (A pool asks for less and less until it gets some.)

typedef struct whole {
  void *base, *memory; // base: the first multiple of the granule
  struct whole *next;
} whole;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static whole *wholes;

static void *reserve_whole(void *self, size_t bytes) {
  cuda_device *d = self;
  size_t available = 0, total = 0, granule = d->mapper.granule;
  if (!cuda_enter_quietly(d->index)) return NULL;
  cudaMemGetInfo(&available, &total);
  if (bytes > available) return NULL;
  whole *w = cuda_host.alloc(sizeof *w);
  if (!w) return NULL;
  if (cudaMalloc(&w->memory, bytes + granule) != cudaSuccess) {
    (void)cudaGetLastError();
    cuda_host.free(w);
    return NULL;
  }
  w->base = (void *)(((uintptr_t)w->memory + granule - 1) & ~(uintptr_t)(granule - 1));
  pthread_mutex_lock(&lock);
  w->next = wholes;
  wholes = w;
  pthread_mutex_unlock(&lock);
  return w->base;
}

static void release_whole(void *self, void *base, size_t bytes) {
  cuda_device *d = self;
  (void)bytes;
  pthread_mutex_lock(&lock);
  whole **at = &wholes;
  while (*at && (*at)->base != base) at = &(*at)->next;
  whole *w = *at;
  if (w) *at = w->next;
  pthread_mutex_unlock(&lock);
  if (w && cuda_enter_quietly(d->index)) cudaFree(w->memory);
  cuda_host.free(w);
}

static bool commit_nothing(void *self, void *at, size_t bytes) {
  (void)self, (void)at, (void)bytes;
  return true;
}

static void decommit_nothing(void *self, void *at, size_t bytes) {
  (void)self, (void)at, (void)bytes;
}

// ---------------------------------------------------------------------------------------------
// Events of pools: kept for reuse, since one is recorded for every block that changes streams. The
// pool calls one thing at a time.

static void *record_event(void *self, void *stream) {
  cuda_device *d = self;
  cudaEvent_t event = NULL;
  if (!cuda_enter_quietly(d->index)) return NULL;
  if (d->spare_count > 0)
    event = d->spare[--d->spare_count];
  else if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess)
    event = NULL;
  if (event && cudaEventRecord(event, stream) != cudaSuccess) {
    cudaEventDestroy(event);
    event = NULL;
  }
  if (!event) (void)cudaGetLastError();
  return event;
}

static bool query_event(void *self, void *event) {
  cuda_device *d = self;
  // What can't be asked for any more is over.
  if (!cuda_enter_quietly(d->index)) return true;
  cudaError_t e = cudaEventQuery(event);
  if (e != cudaSuccess) (void)cudaGetLastError();
  return e != cudaErrorNotReady;
}

static void wait_event(void *self, void *event) {
  cuda_device *d = self;
  if (!cuda_enter_quietly(d->index)) return;
  cuda_count_add(CUDA_COUNT_SYNCS, 1);
  if (cudaEventSynchronize(event) != cudaSuccess) (void)cudaGetLastError();
}

static void forget_event(void *self, void *event) {
  cuda_device *d = self;
  if (d->spare_count < CUDA_SPARE_EVENTS)
    d->spare[d->spare_count++] = event;
  else if (cuda_enter_quietly(d->index))
    cudaEventDestroy(event);
}

// ---------------------------------------------------------------------------------------------

static void info(void *self, size_t *total, size_t *available, size_t *limit) {
  cuda_device *d = self;
  *total = *available = *limit = 0;
  if (!cuda_enter_quietly(d->index)) return;
  if (cudaMemGetInfo(available, total) != cudaSuccess) (void)cudaGetLastError();
  // What was taken before the first tensor, the context's own above all, can't be had.
  *limit = *total - (d->taken < *total ? d->taken : *total);
}

void cuda_memory_open(cuda_device *d) {
  size_t total = 0, least = LEAST_GRANULE, granule = LEAST_GRANULE;
  int supported = 0;
  if (find_driver() &&
      driver.attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                       d->index) == CUDA_SUCCESS &&
      supported) {
    CUmemAllocationProp p = pinned_on(d->index);
    d->virtual_memory =
        driver.granularity(&least, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS &&
        (least & (least - 1)) == 0;
  }
  struct cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, d->index) == cudaSuccess)
    total = properties.totalGlobalMem;
  while (granule < least || (granule < MOST_GRANULE && granule < total / GRANULES)) granule *= 2;
  d->mapper = (cnn_mapper){.name = cnn_device_name((cnn_device){CNN_CUDA, (uint8_t)d->index}),
                           .granule = granule,
                           .alignment = 256,
                           .host = false,
                           .reserve = d->virtual_memory ? reserve : reserve_whole,
                           .release = d->virtual_memory ? release : release_whole,
                           .commit = d->virtual_memory ? commit : commit_nothing,
                           .decommit = d->virtual_memory ? decommit : decommit_nothing,
                           .info = info,
                           .record = record_event,
                           .query = query_event,
                           .wait = wait_event,
                           .forget = forget_event,
                           .self = d};
}

// ---------------------------------------------------------------------------------------------
// Pinned memory

// Pieces in use, so that a copy knows which host memory needs no waiting. `event` follows the last
// copy that used the piece behind a call.
typedef struct piece {
  char *at;
  size_t bytes;
  int device;        // of the event
  cudaEvent_t event; // NULL: never used so
  struct piece *next;
} piece;

static piece *pieces;

static piece *find(const void *p) {
  for (piece *q = pieces; q; q = q->next)
    if ((const char *)p >= q->at && (const char *)p < q->at + q->bytes) return q;
  return NULL;
}

cnn_status cuda_host_alloc(cnn_context *ctx, size_t bytes, void **memory) {
  if (!cuda_enter(ctx, 0)) return ctx->code;
  piece *p = cuda_host.alloc(sizeof *p);
  if (!p) return cnn_fail(ctx, CNN_OOM, "out of memory for pinned memory");
  cudaError_t e = cudaHostAlloc(memory, bytes ? bytes : 1, cudaHostAllocPortable);
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    cuda_host.free(p);
    return cnn_fail(ctx, CNN_OOM, "no pinned memory: %zu bytes asked for (%s)", bytes,
                    cudaGetErrorString(e));
  }
  *p = (piece){.at = *memory, .bytes = bytes ? bytes : 1};
  pthread_mutex_lock(&lock);
  p->next = pieces;
  pieces = p;
  pthread_mutex_unlock(&lock);
  return CNN_OK;
}

void cuda_host_free(void *memory) {
  pthread_mutex_lock(&lock);
  piece **at = &pieces;
  while (*at && (*at)->at != memory) at = &(*at)->next;
  piece *p = *at;
  if (p) *at = p->next;
  pthread_mutex_unlock(&lock);
  if (!p) return;
  if (cuda_enter_quietly(p->event ? p->device : 0)) {
    if (p->event) cudaEventSynchronize(p->event), cudaEventDestroy(p->event);
    cudaFreeHost(memory);
  }
  cuda_host.free(p);
}

bool cuda_host_owns(const void *memory) {
  pthread_mutex_lock(&lock);
  bool owned = find(memory) != NULL;
  pthread_mutex_unlock(&lock);
  return owned;
}

// Makes freeing the piece wait for what the stream has been given. False when it is no pinned
// memory, or that can't be done.
static bool pin_until(const void *host, int index, cudaStream_t stream) {
  pthread_mutex_lock(&lock);
  piece *p = find(host);
  bool done = false;
  if (p && (!p->event || p->device == index)) {
    p->device = index;
    if (p->event || cudaEventCreateWithFlags(&p->event, cudaEventDisableTiming) == cudaSuccess)
      done = cudaEventRecord(p->event, stream) == cudaSuccess;
  }
  pthread_mutex_unlock(&lock);
  return done;
}

// ---------------------------------------------------------------------------------------------
// Copies

static cnn_status copy_peer(cnn_context *ctx, void *to, int to_index, const void *from,
                            int from_index, size_t bytes) {
  cudaEvent_t event;
  cudaStream_t there = ctx->streams[from_index], here = ctx->streams[to_index];
  // On the source's stream; the target's goes on when it is done, and it begins when the target's
  // has come so far.
  if (!cuda_enter(ctx, to_index)) return ctx->code;
  CUDA_TRY(ctx, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  cudaError_t e = cudaEventRecord(event, here);
  if (!cuda_enter(ctx, from_index)) return ctx->code;
  if (e == cudaSuccess) e = cudaStreamWaitEvent(there, event, 0);
  cudaEventDestroy(event);
  CUDA_TRY(ctx, e);
  CUDA_TRY(ctx, cudaMemcpyPeerAsync(to, to_index, from, from_index, bytes, there));
  CUDA_TRY(ctx, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  e = cudaEventRecord(event, there);
  if (e == cudaSuccess) e = cudaStreamWaitEvent(here, event, 0);
  cudaEventDestroy(event);
  return cuda_check(ctx, e, "cudaMemcpyPeerAsync");
}

cnn_status cuda_copy(cnn_context *ctx, void *to, cnn_device to_device, const void *from,
                     cnn_device from_device, size_t bytes, bool non_blocking) {
  bool up = from_device.type == CNN_CPU, down = to_device.type == CNN_CPU;
  int index = up ? to_device.index : from_device.index;
  cuda_count_add(up     ? CUDA_COUNT_TO_DEVICE
                 : down ? CUDA_COUNT_TO_HOST
                        : CUDA_COUNT_WITHIN,
                 (int64_t)bytes);
  if (!up && !down && to_device.index != index)
    return copy_peer(ctx, to, to_device.index, from, index, bytes);
  cuda_device *d = cuda_enter(ctx, index);
  if (!d) return ctx->code;
  cudaStream_t stream = ctx->streams[index];
  CUDA_TRY(ctx, cudaMemcpyAsync(to, from, bytes,
                                up     ? cudaMemcpyHostToDevice
                                : down ? cudaMemcpyDeviceToHost
                                       : cudaMemcpyDeviceToDevice,
                                stream));
  if (!up && !down) return CNN_OK;
  const void *host = up ? from : to;
  // From pageable memory the runtime has read all of it when it returns.
  if (up && !cuda_host_owns(host)) return CNN_OK;
  if (non_blocking && pin_until(host, index, stream)) return CNN_OK;
  return cuda_wait(ctx, d, stream);
}
