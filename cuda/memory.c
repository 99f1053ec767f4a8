// SPDX-License-Identifier: MIT
// Device memory as pools ask for it.
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

// A reserved range, with a bit for each granule that has memory.
typedef struct cuda_range {
  uintptr_t base;
  size_t granules;
  struct cuda_range *next;
  unsigned char mapped[];
} range;

// Guards the ranges of all devices and who reads them.
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

static bool has_memory(const range *r, size_t i) {
  return r->mapped[i / 8] >> i % 8 & 1;
}

static void note_mapped(cuda_device *d, uintptr_t at, size_t bytes, bool mapped) {
  range *r = d->ranges;
  size_t g = d->mapper.granule;
  while (at - r->base >= r->granules * g) r = r->next;
  for (size_t i = (at - r->base) / g, end = i + bytes / g; i < end; i++)
    r->mapped[i / 8] =
        (unsigned char)(mapped ? r->mapped[i / 8] | 1 << i % 8 : r->mapped[i / 8] & ~(1 << i % 8));
}

static void *reserve(void *self, size_t bytes) {
  cuda_device *d = self;
  CUdeviceptr at = 0;
  if (!cuda_enter_quietly(d->index)) return NULL;
  // (The simulator has little address space, and every stream has ranges of its own.)
  if (bytes >
      (cuda_is_simulated() ? d->properties.totalGlobalMem : 16 * d->properties.totalGlobalMem))
    return NULL;
  size_t granules = bytes / d->mapper.granule;
  range *r = cuda_host.alloc(sizeof *r + granules / 8 + 1);
  if (!r) return NULL;
  if (driver.reserve(&at, bytes, d->mapper.granule, 0, 0) != CUDA_SUCCESS) {
    cuda_host.free(r);
    return NULL;
  }
  memset(r->mapped, 0, granules / 8 + 1);
  r->base = (uintptr_t)at;
  r->granules = granules;
  pthread_mutex_lock(&ranges_lock);
  r->next = d->ranges;
  d->ranges = r;
  pthread_mutex_unlock(&ranges_lock);
  return (void *)(uintptr_t)at;
}

static void release(void *self, void *base, size_t bytes) {
  cuda_device *d = self;
  pthread_mutex_lock(&ranges_lock);
  range **at = &d->ranges;
  while ((*at)->base != (uintptr_t)base) at = &(*at)->next;
  range *r = *at;
  *at = r->next;
  pthread_mutex_unlock(&ranges_lock);
  cuda_host.free(r);
  if (cuda_enter_quietly(d->index)) driver.release((CUdeviceptr)(uintptr_t)base, bytes);
}

static void unmap(cuda_device *d, CUdeviceptr at, size_t bytes) {
  // One by one: a mapping can only be taken away as it was made.
  for (size_t i = 0; i < bytes; i += d->mapper.granule) driver.unmap(at + i, d->mapper.granule);
}

// Lets the devices whose bits are set read and write the memory.
static bool give_access(CUdeviceptr at, size_t bytes, unsigned devices) {
  CUmemAccessDesc list[CNN_MAX_DEVICES];
  size_t n = 0;
  for (int i = 0; i < CNN_MAX_DEVICES; i++)
    if (devices >> i & 1)
      list[n++] = (CUmemAccessDesc){.location = pinned_on(i).location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return driver.access(at, bytes, list, n) == CUDA_SUCCESS;
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
  pthread_mutex_lock(&ranges_lock);
  bool all = done == bytes && give_access(base, bytes, 1u << d->index | d->readers);
  if (all) note_mapped(d, (uintptr_t)at, bytes, true);
  pthread_mutex_unlock(&ranges_lock);
  if (!all) unmap(d, base, done);
  return all;
}

static void decommit(void *self, void *at, size_t bytes) {
  cuda_device *d = self;
  if (!cuda_enter_quietly(d->index)) return;
  // Work under way may still use it; cudaFree would wait as well.
  cudaDeviceSynchronize();
  pthread_mutex_lock(&ranges_lock);
  note_mapped(d, (uintptr_t)at, bytes, false);
  pthread_mutex_unlock(&ranges_lock);
  unmap(d, (CUdeviceptr)(uintptr_t)at, bytes);
}

// ---------------------------------------------------------------------------------------------
// Peers: devices that reach each other's memory, so that a copy between them needs no detour by the
// CPU's. Memory that was mapped is opened to a device when it first takes part in a copy.

// Opens the memory of d, what there is and what will be, to device `reader`.
static void open_to(cuda_device *d, int reader) {
  size_t g = d->mapper.granule;
  for (range *r = d->ranges; r; r = r->next)
    for (size_t i = 0, end; i < r->granules; i = end + 1) {
      for (end = i; end < r->granules && has_memory(r, end);) end++;
      if (end > i && !give_access(r->base + i * g, (end - i) * g, 1u << reader)) return;
    }
  d->readers |= 1u << reader;
}

void cuda_peers_meet(int a, int b) {
  cuda_device *pair[2] = {cuda_device_at(a), cuda_device_at(b)};
  pthread_mutex_lock(&ranges_lock);
  for (int i = 0; i < 2; i++) {
    cuda_device *owner = pair[i], *reader = pair[1 - i];
    int can = 0;
    if (owner->met >> reader->index & 1) continue;
    owner->met |= 1u << reader->index;
    if (cudaDeviceCanAccessPeer(&can, reader->index, owner->index) != cudaSuccess || !can ||
        !cuda_enter_quietly(reader->index))
      continue;
    cudaError_t e = cudaDeviceEnablePeerAccess(owner->index, 0);
    if ((e == cudaSuccess || e == cudaErrorPeerAccessAlreadyEnabled) && owner->virtual_memory)
      open_to(owner, reader->index);
  }
  (void)cudaGetLastError();
  pthread_mutex_unlock(&ranges_lock);
  (void)cuda_enter_quietly(a);
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

void cuda_memory_close(cuda_device *d) {
  while (d->spare_count > 0) cudaEventDestroy(d->spare[--d->spare_count]);
  d->met = d->readers = 0;
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
