// SPDX-License-Identifier: MIT
#include "dnn_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_TEXT = 16 << 20 };

static const char magic[8] = "cnnplan"; // and its NUL

// A file: this, the key, the text. The numbers are the machine's own: a file of another byte order
// has no valid sizes.
typedef struct header {
  char magic[8];
  uint64_t version, device, key_size, text_size, sum; // sum: of all that follows the header
} header;

static uint64_t hash(uint64_t h, const void *data, size_t size) { // FNV-1a
  const unsigned char *p = data;
  for (size_t i = 0; i < size; i++) h = (h ^ p[i]) * 0x100000001B3u;
  return h;
}

static const uint64_t hash_start = 0xCBF29CE484222325u;

char *dnn_disk_folder(const char *wanted) {
  static const struct {
    const char *variable, *rest;
  } places[] = {
      {"CNN_CACHE_DIR", "/cudnn"},
      {"XDG_CACHE_HOME", "/cnn/cudnn"}, // the specification: relative paths are to be ignored
      {"HOME", "/.cache/cnn/cudnn"},
  };
  if (wanted) return *wanted ? strdup(wanted) : NULL;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const char *base = getenv(places[i].variable);
    if (i == 0 && base && !*base) return NULL;
    if (!base || (i > 0 && *base != '/')) continue;
    size_t size = strlen(base) + strlen(places[i].rest) + 1;
    char *folder = malloc(size);
    if (folder) snprintf(folder, size, "%s%s", base, places[i].rest);
    return folder;
  }
  return NULL;
}

// folder/hash.plan plus `more`; malloc'ed.
static char *path_of(const char *folder, const dnn_disk_key *k, const char *more) {
  uint64_t h = hash(hash_start, k->key, k->size);
  h = hash(hash(h, &k->version, sizeof k->version), &k->device, sizeof k->device);
  size_t size = strlen(folder) + strlen(more) + 32;
  char *path = malloc(size);
  if (path) snprintf(path, size, "%s/%016llx.plan%s", folder, (unsigned long long)h, more);
  return path;
}

char *dnn_disk_read(const char *folder, const dnn_disk_key *k) {
  header h;
  char *text = NULL, *body = NULL, *path = path_of(folder, k, "");
  FILE *f = path ? fopen(path, "rbe") : NULL;
  if (!f) goto done;
  if (fread(&h, sizeof h, 1, f) != 1 || memcmp(h.magic, magic, sizeof magic) != 0) goto done;
  if (h.version != k->version || h.device != k->device || h.key_size != k->size) goto done;
  if (h.text_size == 0 || h.text_size > MAX_TEXT) goto done;
  body = malloc(k->size + h.text_size);
  if (!body || fread(body, k->size + h.text_size, 1, f) != 1 || fgetc(f) != EOF) goto done;
  if (hash(hash_start, body, k->size + h.text_size) != h.sum) goto done;
  if (memcmp(body, k->key, k->size) != 0 || memchr(body + k->size, 0, h.text_size)) goto done;
  text = malloc(h.text_size + 1);
  if (!text) goto done;
  memcpy(text, body + k->size, h.text_size);
  text[h.text_size] = 0;
done:
  if (f) fclose(f);
  free(body);
  free(path);
  return text;
}

// mkdir -p, readable by nobody else where it is made here.
static void make_folder(const char *folder) {
  char *path = strdup(folder);
  if (!path) return;
  for (char *p = path + 1; *p; p++) {
    if (*p != '/') continue;
    *p = 0;
    mkdir(path, 0700);
    *p = '/';
  }
  mkdir(path, 0700);
  free(path);
}

static int write_all(int fd, const void *data, size_t size) {
  const char *p = data;
  while (size) {
    ssize_t n = write(fd, p, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    p += n;
    size -= (size_t)n;
  }
  return 1;
}

void dnn_disk_write(const char *folder, const dnn_disk_key *k, const char *text) {
  size_t size = strlen(text);
  header h = {.version = k->version, .device = k->device, .key_size = k->size, .text_size = size};
  if (size == 0 || size > MAX_TEXT) return;
  memcpy(h.magic, magic, sizeof magic);
  h.sum = hash(hash(hash_start, k->key, k->size), text, size);
  char *path = path_of(folder, k, ""), *beside = path_of(folder, k, ".XXXXXX");
  int fd = -1;
  if (!path || !beside) goto done;
  fd = mkostemp(beside, O_CLOEXEC);
  if (fd < 0) {
    make_folder(folder);
    strcpy(beside + strlen(beside) - 6, "XXXXXX");
    fd = mkostemp(beside, O_CLOEXEC);
  }
  if (fd < 0) goto done;
  int good =
      write_all(fd, &h, sizeof h) && write_all(fd, k->key, k->size) && write_all(fd, text, size);
  if (close(fd) != 0) good = 0;
  if (!good || rename(beside, path) != 0) unlink(beside);
done:
  free(path);
  free(beside);
}
