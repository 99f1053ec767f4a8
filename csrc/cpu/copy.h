// SPDX-License-Identifier: MIT
// Copies between views: any strides, any dtypes.
#ifndef CNN_CPU_COPY_H
#define CNN_CPU_COPY_H

#include "engine/op.h"

// Copies `from`, which broadcasts to `to`, converting its dtype. They must not overlap.
void cnn_copy_view(const cnn_view *to, const cnn_view *from);

// to[i * st] = from[i * sf] for n elements of `size` bytes.
void cnn_copy_run(size_t size, int64_t n, void *to, int64_t st, const void *from, int64_t sf);

// Sets every element to 0.
void cnn_clear_view(const cnn_view *v);

// For kernels that want dense row-major arrays of one type. An input is used where it lies when it
// is such an array, else copied to *scratch, which moves on behind it; likewise a result is
// computed in *scratch when it is not of that type, and cnn_dense_store puts it where it belongs.
// cnn_dense_bytes: the scratch that either takes.
size_t cnn_dense_bytes(const cnn_view *v, cnn_dtype dtype);
const void *cnn_dense(const cnn_view *v, cnn_dtype dtype, void **scratch);
void *cnn_dense_result(const cnn_view *v, cnn_dtype dtype, void **scratch);
void cnn_dense_store(const cnn_view *v, cnn_dtype dtype, const void *dense);

#endif
