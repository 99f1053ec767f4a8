// SPDX-License-Identifier: MIT
#include "memory/cpu_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define GRANULE    ((size_t)2 << 20) // a huge page of x86-64 and of most arm64 kernels
#define PATH_BYTES 1024
#define LINE_BYTES 4096

// --- Mapping ------------------------------------------------------------------------------------

static void *reserve(void *self, size_t bytes) {
  (void)self;
  if (bytes > SIZE_MAX - GRANULE) return NULL;
  char *p =
      mmap(NULL, bytes + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return NULL;
  size_t before = -(uintptr_t)p & (GRANULE - 1);
  if (before > 0) munmap(p, before);
  munmap(p + before + bytes, GRANULE - before);
  // For the whole range at once, so that committed and other parts differ in nothing but their
  // protection and the kernel joins neighbours. Without huge pages everything works, only slower.
  madvise(p + before, bytes, MADV_HUGEPAGE);
  return p + before;
}

static void release(void *self, void *base, size_t bytes) {
  (void)self;
  munmap(base, bytes);
}

static bool commit(void *self, void *at, size_t bytes) {
  (void)self;
  return mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0;
}

static void decommit(void *self, void *at, size_t bytes) {
  (void)self;
  // The memory goes here. The protection is for stray accesses; it may fail when the process has
  // too many mappings, and nothing depends on it.
  madvise(at, bytes, MADV_DONTNEED);
  mprotect(at, bytes, PROT_NONE);
}

// --- What is left -------------------------------------------------------------------------------

// The number after `key` at the start of a line, or of the whole file for "". False when there is
// none.
static bool read_number(const char *path, const char *key, uint64_t *value) {
  FILE *f = fopen(path, "re");
  if (!f) return false;
  char line[LINE_BYTES];
  size_t n = strlen(key);
  bool found = false;
  while (!found && fgets(line, sizeof line, f))
    found = strncmp(line, key, n) == 0 && sscanf(line + n, "%" SCNu64, value) == 1;
  fclose(f);
  return found;
}

typedef struct hierarchy {
  const char *type, *option;          // of its mount: a file system type, a super option or NULL
  const char *limit, *usage, *unused; // files; the row of memory.stat that the kernel can reclaim
} hierarchy;

static const hierarchy hierarchies[] = {
    {"cgroup2", NULL, "memory.max", "memory.current", "inactive_file "},
    {"cgroup", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
};

static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += n)
    if ((at == list || at[-1] == ',') && strchr(",: \n", at[n])) return true; // '\0' included
  return false;
}

// The directory of this process's group in the hierarchy: where it is mounted, and the path from
// there. False when it isn't mounted or the process is in no group of it.
static bool find_group(const char *root, const hierarchy *h, char *mount, char *group) {
  char line[LINE_BYTES], path[PATH_BYTES], inside[PATH_BYTES] = "";
  bool found = false;
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *f = fopen(path, "re");
  if (!f) return false;
  // "4:memory:/path", or "0::/path" for v2.
  while (!found && fgets(line, sizeof line, f)) {
    char *controllers = strchr(line, ':'), *at = controllers ? strchr(++controllers, ':') : NULL;
    if (!at) continue;
    *at++ = 0;
    found = h->option ? has_word(controllers, h->option) : *controllers == 0;
    if (found) snprintf(group, PATH_BYTES, "%.*s", (int)strcspn(at, "\n"), at);
  }
  fclose(f);
  if (!found) return false;

  // "36 35 98:0 /root /mount options - type source super-options": the root is the part of the
  // hierarchy that is mounted there.
  snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
  f = fopen(path, "re");
  if (!f) return false;
  found = false;
  while (!found && fgets(line, sizeof line, f)) {
    char type[32], options[PATH_BYTES];
    const char *rest = strstr(line, " - ");
    found = rest && sscanf(line, "%*s %*s %*s %1023s %1023s", inside, mount) == 2 &&
            sscanf(rest, " - %31s %*s %1023s", type, options) == 2 && strcmp(type, h->type) == 0 &&
            (!h->option || has_word(options, h->option));
  }
  fclose(f);
  size_t n = strlen(inside);
  if (n > 1 && strncmp(group, inside, n) == 0 && (group[n] == '/' || group[n] == 0))
    memmove(group, group + n, strlen(group + n) + 1);
  return found;
}

static void lower(size_t *value, uint64_t bound) {
  if (bound < *value) *value = (size_t)bound;
}

static void apply_limits(const char *root, const hierarchy *h, size_t *total, size_t *left) {
  char mount[PATH_BYTES], group[PATH_BYTES], path[4 * PATH_BYTES];
  if (!find_group(root, h, mount, group)) return;
  // From the group up to the mount: each ancestor's limit binds too. A group that the container
  // doesn't show has no files, and its visible ancestors count.
  for (;;) {
    uint64_t limit, usage = 0, unused = 0;
    snprintf(path, sizeof path, "%s%s%s/%s", root, mount, group, h->limit);
    if (read_number(path, "", &limit)) { // v2 says "max" for none
      snprintf(path, sizeof path, "%s%s%s/%s", root, mount, group, h->usage);
      read_number(path, "", &usage);
      snprintf(path, sizeof path, "%s%s%s/memory.stat", root, mount, group);
      read_number(path, h->unused, &unused);
      usage = usage > unused ? usage - unused : 0;
      lower(total, limit);
      lower(left, limit > usage ? limit - usage : 0);
    }
    char *slash = strrchr(group, '/');
    if (!slash) break;
    *slash = 0;
  }
}

void cnn_cpu_memory_left(const char *root, size_t *total, size_t *left) {
  char path[PATH_BYTES];
  uint64_t kib;
  *total = *left = SIZE_MAX;
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  if (read_number(path, "MemTotal:", &kib)) lower(total, kib * 1024);
  if (read_number(path, "MemAvailable:", &kib)) lower(left, kib * 1024);
  for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++)
    apply_limits(root, &hierarchies[i], total, left);
  if (*left > *total) *left = *total;
}

static void info(void *self, size_t *total, size_t *available, size_t *limit) {
  (void)self;
  cnn_cpu_memory_left("", total, available);
  *limit = *available / 5 * 4;
}

const cnn_mapper cnn_cpu_mapper = {.name = "cpu",
                                   .granule = GRANULE,
                                   .alignment = 64,
                                   .host = true,
                                   .reserve = reserve,
                                   .release = release,
                                   .commit = commit,
                                   .decommit = decommit,
                                   .info = info};
