// SPDX-License-Identifier: MIT
#include "io/codec.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/plugin.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool ready;
static cnn_codec table;
static char reason[512];

static void load(void) {
  static const cnn_codec_host host = {cnn_malloc, cnn_free, cnn_fault_armed};
  cnn_codec_entry entry;
  void *symbol = cnn_plugin_open("codec", CNN_CODEC_SYMBOL, reason, sizeof reason);
  if (!symbol) return;
  memcpy(&entry, &symbol, sizeof entry);
  ready = entry(CNN_CODEC_ABI, &host, &table);
  if (!ready) snprintf(reason, sizeof reason, "it was built for another version of the core");
}

const cnn_codec *cnn_codec_get(cnn_context *ctx, const char *what) {
  pthread_once(&once, load);
  if (ready) return &table;
  cnn_fail(
      ctx, CNN_UNSUPPORTED,
      "%s needs the codec plugin, which can't be loaded (%s): install zlib and cJSON (on Debian "
      "and Ubuntu: apt install zlib1g-dev libcjson-dev) and build again",
      what, reason);
  return NULL;
}
