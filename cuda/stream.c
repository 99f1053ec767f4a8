// SPDX-License-Identifier: MIT
// Streams and events. Streams do not wait for the default stream, nor it for them: whoever uses two
// orders them by events.
#include "plugin.h"

// Streams that nobody holds wait for the next one who wants one: pools know blocks by their
// streams, and a stream's handle must not mean another one later.
typedef struct spare {
  cudaStream_t stream;
  int index, priority;
} spare;

#define SPARES 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static spare spares[SPARES];
static int spare_count;

static cudaStream_t take_spare(int index, int priority) {
  cudaStream_t stream = NULL;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < spare_count && !stream; i++) {
    if (spares[i].index != index || spares[i].priority != priority) continue;
    stream = spares[i].stream;
    spares[i] = spares[--spare_count];
  }
  pthread_mutex_unlock(&lock);
  return stream;
}

static cnn_status stream_create(cnn_context *ctx, int index, int priority, void **stream) {
  if (!cuda_enter(ctx, index)) return ctx->code;
  // Bounds are small and signed: a lower number is a higher priority.
  int least = 0, most = 0;
  CUDA_TRY(ctx, cudaDeviceGetStreamPriorityRange(&least, &most));
  if (priority > least) priority = least;
  if (priority < most) priority = most;
  *stream = take_spare(index, priority);
  if (*stream) return CNN_OK;
  return cuda_check(ctx,
                    cudaStreamCreateWithPriority((cudaStream_t *)stream, cudaStreamNonBlocking,
                                                 priority),
                    "cudaStreamCreateWithPriority");
}

static void stream_destroy(int index, void *stream) {
  int priority = 0;
  if (!cuda_enter_quietly(index)) return;
  if (cudaStreamGetPriority(stream, &priority) != cudaSuccess) (void)cudaGetLastError();
  pthread_mutex_lock(&lock);
  if (spare_count < SPARES) spares[spare_count++] = (spare){stream, index, priority};
  pthread_mutex_unlock(&lock); // more than that are left as they are: never one handle for two
}

void cuda_streams_close(void) {
  pthread_mutex_lock(&lock);
  while (spare_count > 0) {
    spare *s = &spares[--spare_count];
    if (cuda_enter_quietly(s->index)) cudaStreamDestroy(s->stream);
  }
  pthread_mutex_unlock(&lock);
}

static cnn_status answer(cnn_context *ctx, cudaError_t e, const char *what, bool *done) {
  *done = e == cudaSuccess;
  return e == cudaErrorNotReady ? CNN_OK : cuda_check(ctx, e, what);
}

static cnn_status stream_query(cnn_context *ctx, int index, void *stream, bool *done) {
  if (!cuda_enter(ctx, index)) return ctx->code;
  return answer(ctx, cudaStreamQuery(stream), "cudaStreamQuery", done);
}

static cnn_status stream_synchronize(cnn_context *ctx, int index, void *stream) {
  cuda_device *d = cuda_enter(ctx, index);
  return d ? cuda_wait(ctx, d, stream) : ctx->code;
}

static cnn_status event_create(cnn_context *ctx, int index, bool timing, void **event) {
  if (!cuda_enter(ctx, index)) return ctx->code;
  return cuda_check(ctx,
                    cudaEventCreateWithFlags((cudaEvent_t *)event,
                                             timing ? cudaEventDefault : cudaEventDisableTiming),
                    "cudaEventCreateWithFlags");
}

static void event_destroy(int index, void *event) {
  if (cuda_enter_quietly(index)) cudaEventDestroy(event);
}

static cnn_status event_record(cnn_context *ctx, int index, void *event, void *stream) {
  if (!cuda_enter(ctx, index)) return ctx->code;
  return cuda_check(ctx, cudaEventRecord(event, stream), "cudaEventRecord");
}

static cnn_status event_query(cnn_context *ctx, int index, void *event, bool *done) {
  if (!cuda_enter(ctx, index)) return ctx->code;
  return answer(ctx, cudaEventQuery(event), "cudaEventQuery", done);
}

static cnn_status event_synchronize(cnn_context *ctx, int index, void *event) {
  cuda_device *d = cuda_enter(ctx, index);
  if (!d) return ctx->code;
  cuda_count_add(CUDA_COUNT_SYNCS, 1);
  CUDA_TRY(ctx, cudaEventSynchronize(event));
  return cuda_report(ctx, d);
}

static cnn_status event_wait(cnn_context *ctx, int index, void *event, void *stream) {
  if (!cuda_enter(ctx, index)) return ctx->code;
  return cuda_check(ctx, cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

static cnn_status event_elapsed(cnn_context *ctx, int index, void *from, void *to, float *ms) {
  if (!cuda_enter(ctx, index)) return ctx->code;
  cudaError_t e = cudaEventElapsedTime(ms, from, to);
  if (e == cudaErrorNotReady)
    return cnn_fail(ctx, CNN_STATE, "the events are not done: synchronize the second one first");
  return cuda_check(ctx, e, "cudaEventElapsedTime");
}

void cuda_streams_fill(cnn_driver *driver) {
  driver->stream_create = stream_create;
  driver->stream_destroy = stream_destroy;
  driver->stream_query = stream_query;
  driver->stream_synchronize = stream_synchronize;
  driver->event_create = event_create;
  driver->event_destroy = event_destroy;
  driver->event_record = event_record;
  driver->event_query = event_query;
  driver->event_synchronize = event_synchronize;
  driver->event_wait = event_wait;
  driver->event_elapsed = event_elapsed;
}
