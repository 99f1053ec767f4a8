// SPDX-License-Identifier: MIT
#include "cpu/accel.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLUGIN "cnn_dnnl.so"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cnn_accel table;
static bool opened; // the table is filled; written once
static atomic_bool off;

// The path of the plugin beside this very shared object (or program).
static bool beside_us(char *path, size_t size) {
  Dl_info info;
  if (!dladdr(&once, &info) || !info.dli_fname) return false;
  const char *slash = strrchr(info.dli_fname, '/');
  int length = slash ? (int)(slash - info.dli_fname) + 1 : 0;
  int n = snprintf(path, size, "%.*s%s", length, info.dli_fname, PLUGIN);
  return length > 0 && n > 0 && (size_t)n < size;
}

static void open_plugin(void) {
  char path[4096];
  const char *name = getenv("CNN_DNNL_PLUGIN");
  if (name && (!*name || strcmp(name, "0") == 0)) return;
  if (!name) {
    if (!beside_us(path, sizeof path)) return;
    name = path;
  }
  setenv("GOMP_SPINCOUNT", "200", 0);
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  // A function pointer can't be had from a data pointer in strict C; POSIX says that it can.
  cnn_accel_entry entry;
  *(void **)&entry = dlsym(library, CNN_ACCEL_SYMBOL);
  if (entry && entry(CNN_ACCEL_ABI, &table) && table.abi == CNN_ACCEL_ABI)
    opened = true;
  else
    dlclose(library);
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
