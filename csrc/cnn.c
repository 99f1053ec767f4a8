// SPDX-License-Identifier: MIT
#include "cnn.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/plugin.h"
#include "cpu/cpu.h"
#include "engine/registry.h"
#include "nn/module.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *wrong;

static void install(void) {
  cnn_plugin_locate();
  wrong = cnn_ops_install();
  cnn_backend_install(CNN_CPU, &cnn_cpu_backend);
  if (!wrong) wrong = cnn_layers_install();
}

const char *cnn_init(void) {
  pthread_once(&once, install);
  return wrong;
}

void cnn_context_init(cnn_context *ctx) {
  struct timespec t;
  memset(ctx, 0, sizeof *ctx);
  ctx->grad_enabled = true;
  ctx->last_try = true;
  ctx->default_dtype = CNN_F32;
  clock_gettime(CLOCK_REALTIME, &t);
  ctx->rng.seed = (uint64_t)t.tv_sec * 1000003u ^ (uint64_t)t.tv_nsec;
}
