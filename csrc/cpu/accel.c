// SPDX-License-Identifier: MIT
#include "cpu/accel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/plugin.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cnn_accel table;
static bool opened; // the table is filled; written once
static atomic_bool off;

static void open_plugin(void) {
  char reason[256];
  const char *name = getenv("CNN_DNNL_PLUGIN");
  if (name && (!*name || strcmp(name, "0") == 0)) return;
  setenv("GOMP_SPINCOUNT", "200", 0);
  cnn_accel_entry entry;
  void *symbol = cnn_plugin_open("dnnl", CNN_ACCEL_SYMBOL, reason, sizeof reason);
  if (!symbol) return;
  memcpy(&entry, &symbol, sizeof entry); // data to function: as POSIX allows
  opened = entry(CNN_ACCEL_ABI, &table) && table.abi == CNN_ACCEL_ABI;
}

const cnn_accel *cnn_accel_get(void) {
  if (atomic_load_explicit(&off, memory_order_relaxed)) return NULL;
  pthread_once(&once, open_plugin);
  return opened ? &table : NULL;
}

bool cnn_accel_enable(bool on) {
  atomic_store(&off, !on);
  return cnn_accel_get() != NULL;
}
