// SPDX-License-Identifier: MIT
// A tensor seen as rows: some of its dims make up a row, the others count the rows. Rows come as
// dense runs of the type that a kernel computes in; where they lie in memory like that they are
// used in place, else they go through a buffer of the kernel's.
//
// Rows and their elements are numbered in row-major order of their dims, whatever the strides.
#ifndef CNN_CPU_ROWS_H
#define CNN_CPU_ROWS_H

#include "cpu/elementwise.h"

typedef struct cnn_rows {
  int64_t count, width; // rows, elements of a row
  char *data;
  cnn_dtype stored, computed;
  bool direct;   // every row is a dense run of the computed type
  int64_t pitch; // elements from row to row, where that is one number; else -1
  cnn_nest lead, row;
} cnn_rows;

// The dims of v whose bit is set in `dims` make up a row. `computed`: the stored dtype, or float32
// for half types.
void cnn_rows_make(cnn_rows *r, const cnn_view *v, uint32_t dims, cnn_dtype computed);

// The offset of row i in elements.
int64_t cnn_rows_offset(const cnn_rows *r, int64_t i);

// Row i: in place, or copied to `buffer` (width elements of the computed type, unused when direct).
const void *cnn_rows_get(const cnn_rows *r, int64_t i, void *buffer);
// Where to write row i: in place or `buffer`; cnn_rows_put then brings it home.
void *cnn_rows_place(const cnn_rows *r, int64_t i, void *buffer);
void cnn_rows_put(const cnn_rows *r, int64_t i, const void *place);

// The elements of a view in row-major order as a dense array of dtype `computed`: in place if that
// is what they are, else copied to `buffer`. NULL for an absent view.
const void *cnn_rows_flat(const cnn_view *v, cnn_dtype computed, void *buffer);
// The bytes of that buffer, a multiple of 64; 0 when it is not needed.
size_t cnn_rows_flat_bytes(const cnn_view *v, cnn_dtype computed);

// Kernels cut their rows into at most CNN_CHUNKS chunks (each with buffers and partial results of
// its own), so that a chunk has at least `grain` elements. How depends on the sizes alone.
#define CNN_CHUNKS 64
typedef struct cnn_chunks {
  int64_t n, size; // chunks, and the rows of each (the last one may have fewer)
} cnn_chunks;
static inline cnn_chunks cnn_chunk(int64_t rows, int64_t width, int64_t grain) {
  cnn_chunks c = {1, rows > 0 ? rows : 1};
  int64_t work = rows * (width > 0 ? width : 1);
  if (work < 2 * grain) return c;
  int64_t n = work / grain < CNN_CHUNKS ? work / grain : CNN_CHUNKS;
  c.size = (rows + n - 1) / n;
  c.n = (rows + c.size - 1) / c.size;
  return c;
}
// The rows of chunk i.
static inline void cnn_chunk_bounds(const cnn_chunks *c, int64_t i, int64_t rows, int64_t *begin,
                                    int64_t *end) {
  *begin = i * c->size;
  *end = i + 1 < c->n ? *begin + c->size : rows;
}

#endif
