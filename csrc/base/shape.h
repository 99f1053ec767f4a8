// SPDX-License-Identifier: MIT
// Arithmetic on shapes and strides. A shape is `ndim` sizes >= 0; strides count elements.
#ifndef CNN_BASE_SHAPE_H
#define CNN_BASE_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CNN_MAX_DIMS 8

// The product of the sizes, or -1 when it does not fit an int64.
int64_t cnn_shape_numel(int ndim, const int64_t *shape);

bool cnn_shape_equal(int na, const int64_t *a, int nb, const int64_t *b);

// Row-major strides.
void cnn_shape_strides(int ndim, const int64_t *shape, int64_t *strides);

// Whether the strides are row-major, sizes of 1 (and empty tensors) aside.
bool cnn_strides_contiguous(int ndim, const int64_t *shape, const int64_t *strides);

// Whether 4 dims (N, C, H, W) lie densely with the channels innermost, and not row-major as well.
bool cnn_strides_channels_last(const int64_t *shape, const int64_t *strides);

// Whether the elements fill a piece of memory without gaps or overlaps, in whatever order.
bool cnn_strides_dense(int ndim, const int64_t *shape, const int64_t *strides);

// Whether two different indices may name one element (conservative: a true may be wrong for exotic
// strides, a false never is).
bool cnn_strides_overlap(int ndim, const int64_t *shape, const int64_t *strides);

// The lowest offset that an element has relative to the first one, and the number of elements
// spanned from there to the highest (0 for an empty tensor).
void cnn_strides_extent(int ndim, const int64_t *shape, const int64_t *strides, int64_t *lowest,
                        int64_t *span);

// Dense strides for `shape` with its dims in the memory order that `strides` has: what an
// elementwise result keeps of its input.
void cnn_strides_like(int ndim, const int64_t *shape, const int64_t *strides, int64_t *out);

// Broadcasts two shapes into out (capacity CNN_MAX_DIMS); false when they don't fit.
bool cnn_shape_broadcast(int na, const int64_t *a, int nb, const int64_t *b, int *n, int64_t *out);

// Strides that view a tensor of (ns, shape, strides) as (n, target): 0 where a dim is broadcast.
// The shapes must be broadcastable.
void cnn_strides_broadcast(int ns, const int64_t *shape, const int64_t *strides, int n,
                           const int64_t *target, int64_t *out);

// New strides for viewing (n, shape, strides) as (m, target), both of one numel, without a copy;
// false when there are none.
bool cnn_strides_reshape(int n, const int64_t *shape, const int64_t *strides, int m,
                         const int64_t *target, int64_t *out);

// A text such as "(2, 3)" or "()" in a buffer of the caller's; returns it. PyTorch writes (3,).
#define CNN_SHAPE_TEXT 176
typedef struct cnn_shape_text {
  char text[CNN_SHAPE_TEXT];
} cnn_shape_text;
const char *cnn_shape_format(cnn_shape_text *buffer, int ndim, const int64_t *shape);

#ifdef __cplusplus
}
#endif

#endif
