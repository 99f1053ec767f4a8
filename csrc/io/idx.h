// SPDX-License-Identifier: MIT
// The IDX format of the MNIST family, packed by gzip or not: two zero bytes, a type, the number of
// dims; the sizes as big-endian 32-bit numbers; the elements, row-major, big-endian.
// (Y. LeCun, C. Cortes, C. Burges: "The MNIST database", at the end of its page.)
#ifndef CNN_IO_IDX_H
#define CNN_IO_IDX_H

#include "io/file.h"

// A new tensor with the file's elements. Types: uint8, int8, int16, int32, float32, float64.
cnn_status cnn_idx_load(cnn_context *ctx, const char *path, const cnn_mapping *mapping,
                        cnn_tensor **out);

#endif
