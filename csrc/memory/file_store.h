// SPDX-License-Identifier: MIT
// Bytes in a temporary file, for tensors that are not needed for a while.
//
// The file has no name: it is gone with its last buffer, whatever becomes of the process. Space is
// taken from the file system before it is promised, so that a full disk is an error here and never
// a signal later. A buffer's bytes are mapped: whoever reads them reads the file's pages, which the
// system keeps in memory as long as there is room. Freed ranges go back to the file system at once.
#ifndef CNN_MEMORY_FILE_STORE_H
#define CNN_MEMORY_FILE_STORE_H

#include "memory/buffer.h"

typedef struct cnn_file_store cnn_file_store;

// A store (counted, cnn_unref) in a folder, or in a new file of that path; NULL: in $TMPDIR or
// /tmp. CNN_IO, with the reason, when the file can't be made.
cnn_status cnn_file_store_create(cnn_context *ctx, const char *path, cnn_file_store **out);

// A buffer of the CPU's with `bytes` (> 0) in the file, contents undefined. CNN_OOM when the disk
// or the address space has no room for it.
cnn_status cnn_file_store_buffer(cnn_context *ctx, cnn_file_store *store, size_t bytes,
                                 cnn_buffer **out);

// Copies `bytes` to the start of such a buffer. Never fails.
void cnn_file_store_write(cnn_buffer *buffer, const void *data, size_t bytes);

#endif
