// SPDX-License-Identifier: MIT
// Small structures that come and go with every op: tensors, buffers, nodes. Freed ones wait in
// lists of the thread, by size, which is several times faster than malloc when Lua's collector
// frees hundreds at once.
#ifndef CNN_BASE_SMALL_H
#define CNN_BASE_SMALL_H

#include <stddef.h>

// NULL when there is no memory, or an injected fault says so. Contents are undefined.
void *cnn_small_alloc(size_t bytes);
// `bytes` as it was asked for.
void cnn_small_free(void *p, size_t bytes);

#endif
