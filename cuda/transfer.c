// SPDX-License-Identifier: MIT
// Copies between a device and the CPU, within a device, and between two.
//
// The driver copies from ordinary (pageable) memory by way of pinned buffers of its own, and waits
// for the stream first. A large copy therefore goes through a ring of pinned buffers of ours, one
// for each device: the CPU fills one, by several threads, while the device reads the others. So a
// copy to the device returns when its source has been read, whatever the stream still has to do,
// and the order of chunks is the stream's. A buffer is filled again when the event behind its last
// copy has passed.
//
// Sizes: at 25 GB/s (PCIe 4) a chunk of 4 MiB takes 170 us, against which the 10 us of giving it to
// the driver are little, and four of them keep the device busy while one is filled; smaller copies
// are cut into four, so that they overlap too. Up to 64 KiB the driver does not wait either.
#include <string.h>

#include "plugin.h"

#define SLOTS  4
#define CHUNK  ((size_t)4 << 20)
#define LEAST  ((size_t)256 << 10) // of a chunk
#define DIRECT ((size_t)64 << 10)  // up to this a copy goes as it is
#define GRAIN  (128 << 10)         // bytes that a thread moves at least

typedef struct slot {
  void *at;
  cudaEvent_t event; // behind the last copy that used it
  bool pending;
} slot;

struct cuda_ring {
  slot slots[SLOTS];
  unsigned next;
};

typedef struct bytes {
  char *to;
  const char *from;
} bytes;

static void move_range(void *arg, int64_t begin, int64_t end) {
  const bytes *b = arg;
  memcpy(b->to + begin, b->from + begin, (size_t)(end - begin));
}

static void move_bytes(void *to, const void *from, size_t n) {
  bytes b = {to, from};
  cuda_host.parallel_for((int64_t)n, GRAIN, move_range, &b);
}

void cuda_ring_free(cuda_device *d) {
  struct cuda_ring *r = d->ring;
  if (!r) return;
  for (int i = 0; i < SLOTS; i++) {
    if (r->slots[i].pending) cudaEventSynchronize(r->slots[i].event);
    if (r->slots[i].event) cudaEventDestroy(r->slots[i].event);
    if (r->slots[i].at) cudaFreeHost(r->slots[i].at);
  }
  (void)cudaGetLastError();
  cuda_host.free(r);
  d->ring = NULL;
}

// The device's ring; NULL when there is no memory for it: then copies go without.
static struct cuda_ring *ring_of(cuda_device *d) {
  if (d->ring) return d->ring;
  struct cuda_ring *r = cuda_host.alloc(sizeof *r);
  if (!r) return NULL;
  memset(r, 0, sizeof *r);
  d->ring = r;
  for (int i = 0; i < SLOTS; i++) {
    slot *s = &r->slots[i];
    if (cudaHostAlloc(&s->at, CHUNK, cudaHostAllocDefault) == cudaSuccess &&
        cudaEventCreateWithFlags(&s->event, cudaEventDisableTiming) == cudaSuccess)
      continue;
    cuda_ring_free(d);
    return NULL;
  }
  return r;
}

static size_t chunk_of(size_t n) {
  size_t part = (n / SLOTS + LEAST - 1) / LEAST * LEAST;
  return part < LEAST ? LEAST : part > CHUNK ? CHUNK : part;
}

static cudaError_t is_free(slot *s) {
  cudaError_t e = s->pending ? cudaEventSynchronize(s->event) : cudaSuccess;
  s->pending = false;
  return e;
}

static cudaError_t copy_slot(slot *s, void *to, const void *from, size_t n,
                             enum cudaMemcpyKind kind, cudaStream_t stream) {
  cudaError_t e = cudaMemcpyAsync(to, from, n, kind, stream);
  if (e != cudaSuccess) return e;
  e = cudaEventRecord(s->event, stream);
  if (e == cudaSuccess)
    s->pending = true;
  else
    cudaStreamSynchronize(stream); // nobody could tell when the buffer is free
  return e;
}

static cudaError_t stage_up(struct cuda_ring *r, char *to, const char *from, size_t n,
                            cudaStream_t stream) {
  size_t chunk = chunk_of(n);
  for (size_t at = 0; at < n; at += chunk) {
    slot *s = &r->slots[r->next++ % SLOTS];
    size_t part = n - at < chunk ? n - at : chunk;
    cudaError_t e = is_free(s);
    if (e != cudaSuccess) return e;
    move_bytes(s->at, from + at, part);
    e = copy_slot(s, to + at, s->at, part, cudaMemcpyHostToDevice, stream);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

// All buffers but one are on their way while the CPU empties that one.
static cudaError_t stage_down(struct cuda_ring *r, char *to, const char *from, size_t n,
                              cudaStream_t stream) {
  size_t chunk = chunk_of(n), chunks = (n + chunk - 1) / chunk;
  unsigned first = r->next;
  r->next += (unsigned)chunks;
  for (size_t i = 0; i < chunks + SLOTS - 1; i++) {
    cudaError_t e = cudaSuccess;
    if (i < chunks) {
      slot *s = &r->slots[(first + i) % SLOTS];
      size_t at = i * chunk;
      e = is_free(s);
      if (e == cudaSuccess)
        e = copy_slot(s, s->at, from + at, n - at < chunk ? n - at : chunk, cudaMemcpyDeviceToHost,
                      stream);
      if (e != cudaSuccess) return e;
    }
    if (i < SLOTS - 1) continue;
    size_t at = (i - (SLOTS - 1)) * chunk;
    if (at >= n) continue;
    slot *s = &r->slots[(first + i - (SLOTS - 1)) % SLOTS];
    e = is_free(s);
    if (e != cudaSuccess) return e;
    move_bytes(to + at, s->at, n - at < chunk ? n - at : chunk);
  }
  return cudaSuccess;
}

// To or from pageable memory.
static cnn_status copy_pageable(cnn_context *ctx, cuda_device *d, void *to, const void *from,
                                size_t n, bool up, cudaStream_t stream) {
  cudaError_t e = cudaSuccess;
  pthread_mutex_lock(&d->staging);
  struct cuda_ring *r = n > DIRECT ? ring_of(d) : NULL;
  if (r) e = (up ? stage_up : stage_down)(r, to, from, n, stream);
  pthread_mutex_unlock(&d->staging);
  if (!r)
    e = cudaMemcpyAsync(to, from, n, up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream);
  CUDA_TRY(ctx, e);
  if (up) return CNN_OK; // all of it has been read
  if (!r) return cuda_wait(ctx, d, stream);
  cuda_count_add(CUDA_COUNT_SYNCS, 1);
  return cuda_report(ctx, d);
}

static cnn_status copy_pinned(cnn_context *ctx, cuda_device *d, void *to, const void *from,
                              size_t n, bool up, cudaStream_t stream, bool behind) {
  CUDA_TRY(ctx, cudaMemcpyAsync(to, from, n, up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                                stream));
  if (behind && cuda_pin_until(up ? from : to, d->index, stream)) return CNN_OK;
  return cuda_wait(ctx, d, stream);
}

// ---------------------------------------------------------------------------------------------
// Between devices

// Work that `stream` of device `index` gets from now on waits for all that `behind` has been given,
// a stream of device `other`.
static cudaError_t order(int index, cudaStream_t stream, int other, cudaStream_t behind) {
  cudaEvent_t event;
  if (!cuda_enter_quietly(other)) return cudaErrorInvalidDevice;
  cudaError_t e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (e != cudaSuccess) return e;
  e = cudaEventRecord(event, behind);
  if (e == cudaSuccess && !cuda_enter_quietly(index)) e = cudaErrorInvalidDevice;
  if (e == cudaSuccess) e = cudaStreamWaitEvent(stream, event, 0);
  cudaEventDestroy(event);
  return e;
}

// On the source's stream, which begins when the target's has come so far; the target's goes on when
// it is done.
static cnn_status copy_peer(cnn_context *ctx, void *to, int to_index, const void *from,
                            int from_index, size_t n) {
  cudaStream_t there = ctx->streams[from_index], here = ctx->streams[to_index];
  if (!cuda_enter(ctx, to_index) || !cuda_enter(ctx, from_index)) return ctx->code;
  cuda_peers_meet(from_index, to_index);
  CUDA_TRY(ctx, order(from_index, there, to_index, here));
  CUDA_TRY(ctx, cudaMemcpyPeerAsync(to, to_index, from, from_index, n, there));
  cudaError_t e = order(to_index, here, from_index, there);
  // A copy that the target's stream doesn't wait for must not go on.
  if (e != cudaSuccess) cudaStreamSynchronize(there);
  return cuda_check(ctx, e, "cudaMemcpyPeerAsync");
}

cnn_status cuda_copy(cnn_context *ctx, void *to, cnn_device to_device, const void *from,
                     cnn_device from_device, size_t n, bool non_blocking) {
  bool up = from_device.type == CNN_CPU, down = to_device.type == CNN_CPU, pinned;
  int index = up ? to_device.index : from_device.index;
  cuda_count_add(up     ? CUDA_COUNT_TO_DEVICE
                 : down ? CUDA_COUNT_TO_HOST
                        : CUDA_COUNT_WITHIN,
                 (int64_t)n);
  if (!up && !down && to_device.index != index)
    return copy_peer(ctx, to, to_device.index, from, index, n);
  cuda_device *d = cuda_enter(ctx, index);
  if (!d) return ctx->code;
  cudaStream_t stream = ctx->streams[index];
  if (!up && !down)
    return cuda_check(ctx, cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, stream),
                      "cudaMemcpyAsync");
  CNN_TRY(cuda_pin_order(ctx, up ? from : to, stream, &pinned));
  return pinned ? copy_pinned(ctx, d, to, from, n, up, stream, non_blocking)
                : copy_pageable(ctx, d, to, from, n, up, stream);
}
