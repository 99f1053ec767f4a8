// SPDX-License-Identifier: MIT
// NumPy's .npz: a zip archive with one .npy file per array, stored or deflated.
// The zip format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#ifndef CNN_IO_NPZ_H
#define CNN_IO_NPZ_H

#include "io/archive.h"
#include "io/file.h"

// Reads the file that `mapping` holds into the empty archive; on failure the archive is empty.
// Stored arrays that are aligned are views of the mapped bytes, unless `copy` is set.
cnn_status cnn_npz_load(cnn_context *ctx, const char *path, cnn_mapping *mapping, bool copy,
                        cnn_archive *out);

// Writes the tensors, stored (not compressed). Texts are left out.
cnn_status cnn_npz_save(cnn_context *ctx, const char *path, const cnn_archive *a);

#endif
