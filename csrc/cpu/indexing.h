// SPDX-License-Identifier: MIT
// Moving elements between a tensor x, indexed by tensors of positions, and another tensor o.
//
// Both are walked over one space: first the places, where index tensors may vary, then the block of
// elements behind each place. In a dim of the space x has either a stride of its own (0 where the
// dim is not x's), or is moved by the index tensors: element p lies at
//   x[sum over dims p[d] * x_strides[d] + sum over index tensors (value - 1) * step].
// So one core serves x[{i, j}], index_select, gather, scatter and embedding, for any strides.
#ifndef CNN_CPU_INDEXING_H
#define CNN_CPU_INDEXING_H

#include "engine/op.h"

typedef struct cnn_indexer {
  char *data;
  cnn_dtype dtype;
  int64_t strides[CNN_MAX_DIMS]; // over the places; 0 where it does not vary
  int64_t size, step;            // of the dim of x that it indexes
  int dim;                       // that dim's number, for messages (0-based)
  const cnn_view *view;          // the index tensor itself
} cnn_indexer;

typedef struct cnn_indexing {
  int ndim, n_places; // dims of the space; the first n_places are places
  int64_t shape[CNN_MAX_DIMS];
  char *x, *o;
  cnn_dtype x_dtype, o_dtype;
  int64_t x_strides[CNN_MAX_DIMS], o_strides[CNN_MAX_DIMS];
  int n;
  cnn_indexer index[CNN_MAX_DIMS];
} cnn_indexing;

// CNN_INDEX, naming the first index that is out of range. Writing and adding need checked indices.
cnn_status cnn_indexing_check(cnn_context *ctx, const cnn_indexing *ix);

// o = x[...], o being a fresh result: checks on its way.
cnn_status cnn_indexing_read(cnn_context *ctx, const cnn_indexing *ix);
void cnn_indexing_write(const cnn_indexing *ix); // x[...] = o; of equal places the last one stays
// x[...] += o, in the order of the space. x is float32 where o has a half type, else of o's dtype.
void cnn_indexing_add(const cnn_indexing *ix);

// Adds n elements: x[i * sx] += o[i * so], with x's type as in cnn_indexing_add.
void cnn_add_run(cnn_dtype o_dtype, int64_t n, void *x, int64_t sx, const void *o, int64_t so);

// Where additions into the result y are to be made: y itself or, for half types, a float32 image of
// it in the call's scratch. Plan asks for the scratch; begin sets the target to start's elements
// (NULL: zeros); end brings the sums home.
typedef struct cnn_sums {
  cnn_view target;
  int64_t strides[CNN_MAX_DIMS];
} cnn_sums;
void cnn_sums_plan(cnn_call *call, const cnn_view *y);
void cnn_sums_begin(cnn_sums *s, cnn_call *call, const cnn_view *y, const cnn_view *start);
void cnn_sums_end(const cnn_sums *s, const cnn_view *y);

#endif
