// SPDX-License-Identifier: MIT
// What a file of named tensors holds: tensors by name, and texts by key. Safetensors and npz files
// are read into one and written from one.
#ifndef CNN_IO_ARCHIVE_H
#define CNN_IO_ARCHIVE_H

#include "tensor/tensor.h"

typedef struct cnn_archive_entry {
  char *name;         // owned
  cnn_tensor *tensor; // one reference
} cnn_archive_entry;

typedef struct cnn_archive_text {
  char *key, *value; // owned
} cnn_archive_text;

typedef struct cnn_archive {
  int64_t n, capacity;
  cnn_archive_entry *entries; // in the file's order
  int64_t n_texts, text_capacity;
  cnn_archive_text *texts;
} cnn_archive;

// Empty: all zero.
void cnn_archive_free(cnn_archive *a);

// Adds a tensor (one more reference) or a text; names and values are copied.
cnn_status cnn_archive_add(cnn_context *ctx, cnn_archive *a, const char *name, cnn_tensor *tensor);
cnn_status cnn_archive_add_text(cnn_context *ctx, cnn_archive *a, const char *key,
                                const char *value);

// The first name that two entries share, and the first key that two texts share, or NULL. CNN_OOM
// is the only failure.
cnn_status cnn_archive_duplicates(cnn_context *ctx, const cnn_archive *a, const char **name,
                                  const char **key);

// Checks what every writer needs: CPU tensors, UTF-8, unique names and keys.
cnn_status cnn_archive_check(cnn_context *ctx, const cnn_archive *a);

// Whether n bytes are UTF-8 (no surrogates, no overlong forms) without a NUL.
bool cnn_utf8_valid(const char *text, size_t n);

#endif
