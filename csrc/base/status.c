// SPDX-License-Identifier: MIT
#include "base/status.h"

#include <stdio.h>

#include "base/context.h"

cnn_status cnn_fail(cnn_context *ctx, cnn_status code, const char *format, ...) {
  ctx->code = code;
  int used = 0;
  if (ctx->op) used = snprintf(ctx->message, sizeof ctx->message, "%s: ", ctx->op);
  va_list args;
  va_start(args, format);
  vsnprintf(ctx->message + used, sizeof ctx->message - (size_t)used, format, args);
  va_end(args);
  return code;
}

const char *cnn_status_text(cnn_status status) {
  static const char *const texts[] = {
#define TEXT(name, text) text,
      CNN_STATUS_MAP(TEXT)
#undef TEXT
  };
  return texts[status];
}
