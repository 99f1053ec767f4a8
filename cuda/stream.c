// SPDX-License-Identifier: MIT
// Streams and events. Streams do not wait for the default stream, nor it for them: whoever uses two
// orders them by events.
#include "plugin.h"

static cnn_status stream_create(cnn_context *ctx, int index, int priority, void **stream) {
  if (!cuda_enter(ctx, index)) return ctx->code;
  return cuda_check(ctx,
                    cudaStreamCreateWithPriority((cudaStream_t *)stream, cudaStreamNonBlocking,
                                                 priority),
                    "cudaStreamCreateWithPriority");
}

static void stream_destroy(int index, void *stream) {
  if (cuda_enter_quietly(index)) cudaStreamDestroy(stream);
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
