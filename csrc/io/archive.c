// SPDX-License-Identifier: MIT
#include "io/archive.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void cnn_archive_free(cnn_archive *a) {
  for (int64_t i = 0; i < a->n; i++) {
    cnn_free(a->entries[i].name);
    cnn_unref(a->entries[i].tensor);
  }
  for (int64_t i = 0; i < a->n_texts; i++) {
    cnn_free(a->texts[i].key);
    cnn_free(a->texts[i].value);
  }
  cnn_free(a->entries);
  cnn_free(a->texts);
  memset(a, 0, sizeof *a);
}

static cnn_status no_memory(cnn_context *ctx) {
  return cnn_fail(ctx, CNN_OOM, "out of memory for a list of tensors");
}

static char *copy_text(const char *text) {
  size_t n = strlen(text) + 1;
  char *copy = cnn_malloc(n);
  return copy ? memcpy(copy, text, n) : NULL;
}

// Room for one more of `size` bytes in a list of n.
static bool grow(void **list, int64_t n, int64_t *capacity, size_t size) {
  if (n < *capacity) return true;
  int64_t wanted = *capacity ? 2 * *capacity : 16;
  void *larger = cnn_realloc(*list, (size_t)wanted * size);
  if (!larger) return false;
  *list = larger;
  *capacity = wanted;
  return true;
}

cnn_status cnn_archive_add(cnn_context *ctx, cnn_archive *a, const char *name, cnn_tensor *tensor) {
  void *list = a->entries;
  if (!grow(&list, a->n, &a->capacity, sizeof *a->entries)) return no_memory(ctx);
  a->entries = list;
  char *copy = copy_text(name);
  if (!copy) return no_memory(ctx);
  a->entries[a->n++] = (cnn_archive_entry){copy, cnn_ref(tensor)};
  return CNN_OK;
}

cnn_status cnn_archive_add_text(cnn_context *ctx, cnn_archive *a, const char *key,
                                const char *value) {
  void *list = a->texts;
  if (!grow(&list, a->n_texts, &a->text_capacity, sizeof *a->texts)) return no_memory(ctx);
  a->texts = list;
  char *k = copy_text(key), *v = copy_text(value);
  if (!k || !v) {
    cnn_free(k);
    cnn_free(v);
    return no_memory(ctx);
  }
  a->texts[a->n_texts++] = (cnn_archive_text){k, v};
  return CNN_OK;
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *first_twice(const char **names, int64_t n) {
  qsort(names, (size_t)n, sizeof *names, by_text);
  for (int64_t i = 1; i < n; i++)
    if (strcmp(names[i - 1], names[i]) == 0) return names[i];
  return NULL;
}

cnn_status cnn_archive_duplicates(cnn_context *ctx, const cnn_archive *a, const char **name,
                                  const char **key) {
  *name = *key = NULL;
  int64_t most = a->n > a->n_texts ? a->n : a->n_texts;
  if (most < 2) return CNN_OK;
  const char **sorted = cnn_malloc((size_t)most * sizeof *sorted);
  if (!sorted) return no_memory(ctx);
  for (int64_t i = 0; i < a->n; i++) sorted[i] = a->entries[i].name;
  *name = first_twice(sorted, a->n);
  for (int64_t i = 0; i < a->n_texts; i++) sorted[i] = a->texts[i].key;
  *key = first_twice(sorted, a->n_texts);
  cnn_free(sorted);
  return CNN_OK;
}

static bool is_utf8(const char *text) {
  return cnn_utf8_valid(text, strlen(text));
}

cnn_status cnn_archive_check(cnn_context *ctx, const cnn_archive *a) {
  const char *name, *key;
  for (int64_t i = 0; i < a->n; i++) {
    const cnn_tensor *t = a->entries[i].tensor;
    if (!is_utf8(a->entries[i].name))
      return cnn_fail(ctx, CNN_INVALID, "a tensor's name is no UTF-8 text");
    if (t->device.type != CNN_CPU)
      return cnn_fail(ctx, CNN_DEVICE, "tensor \"%s\" is on %s: only CPU tensors can be saved",
                      a->entries[i].name, cnn_device_name(t->device));
  }
  for (int64_t i = 0; i < a->n_texts; i++)
    if (!is_utf8(a->texts[i].key) || !is_utf8(a->texts[i].value))
      return cnn_fail(ctx, CNN_INVALID, "metadata must be UTF-8 texts");
  CNN_TRY(cnn_archive_duplicates(ctx, a, &name, &key));
  if (name) return cnn_fail(ctx, CNN_INVALID, "two tensors are named \"%s\"", name);
  if (key) return cnn_fail(ctx, CNN_INVALID, "two metadata texts have the key \"%s\"", key);
  return CNN_OK;
}

bool cnn_utf8_valid(const char *text, size_t n) {
  const unsigned char *p = (const unsigned char *)text, *end = p + n;
  while (p < end) {
    unsigned char c = *p++;
    if (c == 0) return false;
    if (c < 0x80) continue;
    int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
    if (c < 0xc2 || c > 0xf4 || end - p < more) return false;
    // The second byte rules out overlong forms, surrogates and what lies beyond U+10FFFF.
    unsigned char low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    unsigned char high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (*p < low || *p > high) return false;
    for (p++, more--; more > 0; more--, p++)
      if ((*p & 0xc0) != 0x80) return false;
  }
  return true;
}
