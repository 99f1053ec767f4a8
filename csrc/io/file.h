// SPDX-License-Identifier: MIT
// Files: mapped whole for reading, written whole or not at all.
//
// A mapping is private: what a script changes in place in a tensor over mapped bytes stays in
// memory and never reaches the file. The file's bytes are read when they are first touched: a
// process that truncates the file meanwhile takes them away (SIGBUS), as for every mapped file.
// Replacing it, as the writer here does, is harmless.
#ifndef CNN_IO_FILE_H
#define CNN_IO_FILE_H

#include "tensor/tensor.h"

// A message about a file: "PATH: ..." with CNN_IO.
cnn_status cnn_file_fail(cnn_context *ctx, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// --- Reading ------------------------------------------------------------------------------------

typedef struct cnn_mapping {
  cnn_object object;
  char *data;
  size_t bytes;
} cnn_mapping;

// Maps a whole regular file. An empty file is an error. Release with cnn_unref.
cnn_status cnn_file_map(cnn_context *ctx, const char *path, cnn_mapping **out);

// A tensor over the mapped bytes from `at` on, which lie inside the mapping and keep it alive. Its
// own copy when they are not aligned for the dtype, or when `copy` asks for one. Strides as in
// meta, dense.
cnn_status cnn_mapping_tensor(cnn_context *ctx, cnn_mapping *mapping, size_t at,
                              const cnn_meta *meta, bool copy, cnn_tensor **out);

// Reverses the bytes of each element of `size` bytes: big-endian to little-endian.
void cnn_swap_bytes(void *data, size_t bytes, size_t size);

// --- Writing ------------------------------------------------------------------------------------

// Writes to a temporary file in the same folder, which replaces `path` when all is on the disk: so
// a reader meets the old file or the new one, whatever happens. A symbolic link is followed. An
// existing file's permissions are kept.
typedef struct cnn_writer {
  int descriptor; // -1: closed
  bool counting;  // nothing is written: only `bytes` moves and `seen` is called
  char *path;     // the file to replace, links followed
  char *temporary;
  char *buffer;
  size_t used;
  uint64_t bytes; // put so far
  // Sees all bytes put, when set (check sums).
  void (*seen)(void *arg, const void *data, size_t bytes);
  void *arg;
} cnn_writer;

// On failure nothing is left to be done. After success every way ends in cnn_writer_commit or
// cnn_writer_abandon.
cnn_status cnn_writer_open(cnn_context *ctx, const char *path, cnn_writer *w);
cnn_status cnn_writer_put(cnn_context *ctx, cnn_writer *w, const void *data, size_t bytes);
// The elements of a CPU tensor in row-major order, whatever its strides.
cnn_status cnn_writer_put_tensor(cnn_context *ctx, cnn_writer *w, const cnn_tensor *t);
// Ends the writer; on failure the temporary file is gone and `path` as it was.
cnn_status cnn_writer_commit(cnn_context *ctx, cnn_writer *w);
void cnn_writer_abandon(cnn_writer *w);

#endif
