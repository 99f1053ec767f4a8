// SPDX-License-Identifier: MIT
// Pinned memory: the CPU's own, registered with the driver, so that GPUs read and write it
// themselves. When the devices are shut down it stays good, as ordinary memory.
//
// A copy may use a piece behind the call that asked for it. The piece knows the event behind the
// last such copy: further copies are ordered behind it, the CPU waits for it before it touches the
// bytes (cuda_host_settle), and freeing waits for nothing: the piece becomes a spare one, for the
// next who wants as much once the event has passed. Registering costs some 100 us a MiB, a spare
// nothing.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

#define PAGE 4096

typedef struct piece {
  char *at;
  size_t bytes;
  cudaEvent_t event; // behind the last copy that used it behind a call; NULL: none ever did
  int device;        // of the event
  bool pending;      // the event may not have passed
  unsigned uses;     // counts such copies
  bool registered;   // not any more after a shutdown
  struct piece *next;
} piece;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// Pieces in use, by address; and those that wait to be used again.
static piece **pieces;
static int count, capacity;
static piece *spares;

// The index of the first piece that ends behind p.
static int place_of(const void *p) {
  int low = 0, high = count;
  while (low < high) {
    int middle = (low + high) / 2;
    if (pieces[middle]->at + pieces[middle]->bytes <= (const char *)p)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static piece *find(const void *p) {
  int i = place_of(p);
  return i < count && pieces[i]->at <= (const char *)p ? pieces[i] : NULL;
}

static bool insert(piece *p) {
  if (count == capacity) {
    int more = capacity ? 2 * capacity : 64;
    piece **list = realloc(pieces, (size_t)more * sizeof *list);
    if (!list) return false;
    pieces = list;
    capacity = more;
  }
  int i = place_of(p->at);
  memmove(pieces + i + 1, pieces + i, (size_t)(count - i) * sizeof *pieces);
  pieces[i] = p;
  count++;
  return true;
}

static piece *take_out(const void *at) {
  int i = place_of(at);
  if (i == count || pieces[i]->at != at) return NULL;
  piece *p = pieces[i];
  count--;
  memmove(pieces + i, pieces + i + 1, (size_t)(count - i) * sizeof *pieces);
  return p;
}

// So that sizes recur: steps of an eighth of their power of two.
static size_t rounded(size_t bytes) {
  size_t step = PAGE;
  while (bytes / 8 > step) step *= 2;
  return bytes ? (bytes + step - 1) / step * step : step;
}

// Whether the copies that use the piece are done.
static bool is_over(piece *p) {
  if (!p->pending) return true;
  if (!cuda_enter_quietly(p->device)) return true; // and so is all work
  if (cudaEventQuery(p->event) == cudaErrorNotReady) return false;
  (void)cudaGetLastError();
  p->pending = false;
  return true;
}

static void unpin(piece *p) {
  if (p->event && cuda_enter_quietly(p->device)) {
    if (p->pending) cudaEventSynchronize(p->event);
    cudaEventDestroy(p->event);
  }
  if (p->registered && cudaHostUnregister(p->at) != cudaSuccess) (void)cudaGetLastError();
  p->event = NULL;
  p->pending = p->registered = false;
}

static void drop(piece *p) {
  unpin(p);
  free(p->at);
  cuda_host.free(p);
}

// A spare piece of exactly so many bytes that nothing works on.
static piece *take_spare(size_t bytes) {
  for (piece **at = &spares; *at; at = &(*at)->next) {
    piece *p = *at;
    if (p->bytes != bytes || !is_over(p)) continue;
    *at = p->next;
    return p;
  }
  return NULL;
}

static piece *make(size_t bytes, cudaError_t *error) {
  void *at = NULL;
  piece *p = cuda_host.alloc(sizeof *p);
  *error = cudaErrorMemoryAllocation;
  if (!p || posix_memalign(&at, PAGE, bytes) != 0) {
    cuda_host.free(p);
    return NULL;
  }
  *error = cudaHostRegister(at, bytes, cudaHostRegisterPortable);
  if (*error == cudaSuccess) {
    *p = (piece){.at = at, .bytes = bytes, .registered = true};
    return p;
  }
  (void)cudaGetLastError();
  free(at);
  cuda_host.free(p);
  return NULL;
}

size_t cuda_host_trim(void) {
  size_t bytes = 0;
  pthread_mutex_lock(&lock);
  for (piece *p = spares, *next; p; p = next) {
    next = p->next;
    bytes += p->bytes;
    drop(p);
  }
  spares = NULL;
  pthread_mutex_unlock(&lock);
  return bytes;
}

cnn_status cuda_host_alloc(cnn_context *ctx, size_t bytes, void **memory) {
  cudaError_t error = cudaSuccess;
  size_t size = rounded(bytes);
  if (!cuda_enter(ctx, cuda_any_device())) return ctx->code;
  pthread_mutex_lock(&lock);
  piece *p = take_spare(size);
  if (!p) p = make(size, &error);
  pthread_mutex_unlock(&lock);
  if (!p && cuda_host_trim() > 0) p = make(size, &error);
  pthread_mutex_lock(&lock);
  bool done = p && insert(p);
  pthread_mutex_unlock(&lock);
  if (done) {
    *memory = p->at;
    return CNN_OK;
  }
  if (p) drop(p);
  return cnn_fail(ctx, CNN_OOM, "no pinned memory: %zu bytes asked for (%s)", bytes,
                  cudaGetErrorString(error ? error : cudaErrorMemoryAllocation));
}

void cuda_host_free(void *memory) {
  pthread_mutex_lock(&lock);
  piece *p = take_out(memory);
  if (p && p->registered) {
    p->next = spares;
    spares = p;
    p = NULL;
  }
  pthread_mutex_unlock(&lock);
  if (p) drop(p);
}

bool cuda_host_owns(const void *memory) {
  pthread_mutex_lock(&lock);
  const piece *p = find(memory);
  bool owned = p && p->registered;
  pthread_mutex_unlock(&lock);
  return owned;
}

cnn_status cuda_host_settle(cnn_context *ctx, const void *memory) {
  pthread_mutex_lock(&lock);
  piece *p = find(memory); // the caller holds it
  bool pending = p && p->pending;
  unsigned uses = p ? p->uses : 0;
  pthread_mutex_unlock(&lock);
  if (!pending) return CNN_OK;
  cuda_device *d = cuda_enter(ctx, p->device);
  if (!d) return ctx->code;
  cuda_count_add(CUDA_COUNT_SYNCS, 1);
  CUDA_TRY(ctx, cudaEventSynchronize(p->event));
  pthread_mutex_lock(&lock);
  if (p->uses == uses) p->pending = false;
  pthread_mutex_unlock(&lock);
  return cuda_report(ctx, d);
}

cnn_status cuda_pin_order(cnn_context *ctx, const void *host, cudaStream_t stream, bool *pinned) {
  pthread_mutex_lock(&lock);
  piece *p = find(host);
  *pinned = p && p->registered;
  cudaError_t e = *pinned && p->pending ? cudaStreamWaitEvent(stream, p->event, 0) : cudaSuccess;
  pthread_mutex_unlock(&lock);
  return cuda_check(ctx, e, "cudaStreamWaitEvent");
}

bool cuda_pin_until(const void *host, int index, cudaStream_t stream) {
  pthread_mutex_lock(&lock);
  piece *p = find(host);
  bool done = false;
  // An event belongs to a device. What the old one stood for, the stream has been told to wait for.
  if (p->event && p->device != index) {
    cudaEventDestroy(p->event);
    p->event = NULL;
  }
  if (p->event || cudaEventCreateWithFlags(&p->event, cudaEventDisableTiming) == cudaSuccess)
    done = cudaEventRecord(p->event, stream) == cudaSuccess;
  if (done) {
    p->device = index;
    p->pending = true;
    p->uses++;
  } else {
    (void)cudaGetLastError();
  }
  pthread_mutex_unlock(&lock);
  return done;
}

void cuda_host_close(void) {
  cuda_host_trim();
  pthread_mutex_lock(&lock);
  for (int i = 0; i < count; i++) unpin(pieces[i]);
  pthread_mutex_unlock(&lock);
}
