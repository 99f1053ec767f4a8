// SPDX-License-Identifier: MIT
// Status codes and the one error message that a context keeps.
//
// Every function that can fail returns a cnn_status. The reason is written once, where it is found,
// with cnn_fail(); everybody above passes the status on with CNN_TRY(). Nothing in the core exits,
// aborts, prints or jumps.
#ifndef CNN_BASE_STATUS_H
#define CNN_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// X(NAME, text): one row per kind of failure.
#define CNN_STATUS_MAP(X)                                                                          \
  X(OK, "success")                                                                                 \
  X(INVALID, "invalid argument")                                                                   \
  X(SHAPE, "shape mismatch")                                                                       \
  X(DTYPE, "wrong dtype")                                                                          \
  X(DEVICE, "wrong device")                                                                        \
  X(INDEX, "index out of range")                                                                   \
  X(STATE, "not allowed in this state")                                                            \
  X(UNSUPPORTED, "not supported")                                                                  \
  X(IO, "input or output failed")                                                                  \
  X(OOM, "out of memory")                                                                          \
  X(CALL, "a host function must run")                                                              \
  X(HOST, "a host function failed")

typedef enum cnn_status {
#define CNN_STATUS_ENUM(name, text) CNN_##name,
  CNN_STATUS_MAP(CNN_STATUS_ENUM)
#undef CNN_STATUS_ENUM
} cnn_status;

typedef struct cnn_context cnn_context;

// Writes the message (printf format, truncated at CNN_MESSAGE_MAX) into the context and returns
// `code`, so that `return cnn_fail(ctx, CNN_SHAPE, ...)` is the way to raise. Never allocates.
cnn_status cnn_fail(cnn_context *ctx, cnn_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// The name of a status, "success" and the like. Static storage.
const char *cnn_status_text(cnn_status status);

#define CNN_TRY(expr)                                                                              \
  do {                                                                                             \
    cnn_status cnn_try_ = (expr);                                                                  \
    if (__builtin_expect(cnn_try_ != CNN_OK, 0)) return cnn_try_;                                  \
  } while (0)

#ifdef __cplusplus
}
#endif

#endif
