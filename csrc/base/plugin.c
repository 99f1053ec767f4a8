// SPDX-License-Identifier: MIT
#include "base/plugin.h"

#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[PATH_MAX]; // ends with a slash; empty: unknown

static void locate(void) {
  Dl_info info;
  // A function's address as data: POSIX allows it, ISO C has no cast for it.
  void (*here)(void) = cnn_plugin_locate;
  void *address;
  memcpy(&address, &here, sizeof address);
  if (!dladdr(address, &info) || !info.dli_fname || !realpath(info.dli_fname, folder)) {
    folder[0] = '\0';
    return;
  }
  char *slash = strrchr(folder, '/');
  slash[1] = '\0';
}

void cnn_plugin_locate(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, locate);
}

static const char *from_environment(const char *name) {
  char variable[64] = "CNN_";
  size_t n = strlen(variable);
  for (; *name && n < 48; name++) variable[n++] = (char)toupper((unsigned char)*name);
  snprintf(variable + n, sizeof variable - n, "_PLUGIN");
  const char *path = secure_getenv(variable);
  return path && *path ? path : NULL;
}

void *cnn_plugin_open(const char *name, const char *symbol, char *reason, size_t size) {
  return cnn_plugin_open_at(name, NULL, symbol, reason, size);
}

void *cnn_plugin_open_at(const char *name, const char *wanted, const char *symbol, char *reason,
                         size_t size) {
  char path[PATH_MAX + 64];
  bool beside = wanted && !strchr(wanted, '/');
  const char *asked = from_environment(name);
  const char *chosen = wanted ? (beside ? NULL : wanted) : asked;
  cnn_plugin_locate();
  if (asked && strcmp(asked, "none") == 0) {
    snprintf(reason, size, "the environment switches it off");
    return NULL;
  }
  if (!chosen && !folder[0]) {
    snprintf(reason, size, "the place of this library is unknown");
    return NULL;
  }
  if (chosen)
    snprintf(path, sizeof path, "%s", chosen);
  else if (beside)
    snprintf(path, sizeof path, "%s%s", folder, wanted);
  else
    snprintf(path, sizeof path, "%scnn_%s.so", folder, name);
  if (access(path, R_OK) != 0) {
    snprintf(reason, size, "there is no %s", path);
    return NULL;
  }
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *entry = library ? dlsym(library, symbol) : NULL;
  if (entry) return entry;
  const char *error = dlerror();
  snprintf(reason, size, "%s", error ? error : "it has no entry");
  if (library) dlclose(library);
  return NULL;
}
