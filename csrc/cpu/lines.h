// SPDX-License-Identifier: MIT
// Kernels that work along one dim of dense arrays: `outer` blocks of n rows of `inner` elements. A
// line is what lies along the dim: n elements, `inner` apart.
#ifndef CNN_CPU_LINES_H
#define CNN_CPU_LINES_H

#include "engine/op.h"

// The most neighbouring lines that are worked on at once.
#define CNN_LINES 256

typedef struct cnn_lines {
  int64_t outer, n, inner;
} cnn_lines;

// Along dim `dim` (not negative) of v's shape; a tensor of 0 dims is one line of one element.
cnn_lines cnn_lines_of(const cnn_view *v, int64_t dim);

// Calls fn for all lines, in groups of `width` <= CNN_LINES neighbours, from several threads when
// that pays: the group's first element is at offset `at`.
typedef void (*cnn_lines_fn)(void *arg, int64_t at, int64_t width);
void cnn_lines_run(const cnn_lines *lines, int64_t grain, cnn_lines_fn fn, void *arg);

#endif
