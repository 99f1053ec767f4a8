// SPDX-License-Identifier: MIT
// Safetensors files (https://github.com/huggingface/safetensors): 8 bytes with the length of the
// header, little-endian; the header, a JSON object {name: {dtype, shape, data_offsets: [begin,
// end]},
// __metadata__: {key: text}}; the tensors' bytes, row-major, little-endian, without gaps.
#ifndef CNN_IO_SAFETENSORS_H
#define CNN_IO_SAFETENSORS_H

#include "io/archive.h"
#include "io/file.h"

// Reads the file that `mapping` holds (`path` is for messages) into the empty archive. Every rule
// of the header is checked before any tensor is made. The tensors are views of the mapped bytes,
// each on a buffer of its own, unless `copy` is set. On failure the archive is empty.
cnn_status cnn_safetensors_load(cnn_context *ctx, const char *path, cnn_mapping *mapping, bool copy,
                                cnn_archive *out);

// Writes a file, which replaces `path` only when it is complete.
cnn_status cnn_safetensors_save(cnn_context *ctx, const char *path, const cnn_archive *a);

#endif
