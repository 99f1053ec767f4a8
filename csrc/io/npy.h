// SPDX-License-Identifier: MIT
// NumPy's .npy: a magic, a version, the length of a header, the header (a Python dict literal with
// the keys descr, fortran_order and shape), the elements.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
//
// The header is read by a parser for just that dict; nothing is executed, and arrays of Python
// objects are refused.
#ifndef CNN_IO_NPY_H
#define CNN_IO_NPY_H

#include "io/file.h"

#define CNN_NPY_MAGIC "\x93NUMPY"

typedef struct cnn_npy {
  cnn_meta meta;
  size_t data;  // where the elements start
  size_t bytes; // how many bytes they take
  bool swapped; // big-endian elements
} cnn_npy;

// Reads and checks the header of the `bytes` bytes at `file`; the elements must fill the rest
// exactly. `path` and `member` ("" or the name inside an npz) are for messages.
cnn_status cnn_npy_parse(cnn_context *ctx, const char *path, const char *member, const char *file,
                         size_t bytes, cnn_npy *out);

// Checks or swaps the elements of a tensor just made from such a file.
cnn_status cnn_npy_finish(cnn_context *ctx, const char *path, const cnn_npy *npy, cnn_tensor *t);

cnn_status cnn_npy_load(cnn_context *ctx, const char *path, cnn_mapping *mapping, bool copy,
                        cnn_tensor **out);

cnn_status cnn_npy_save(cnn_context *ctx, const char *path, const cnn_tensor *t);
// Puts the header and the elements.
cnn_status cnn_npy_put(cnn_context *ctx, cnn_writer *w, const cnn_tensor *t);

#endif
