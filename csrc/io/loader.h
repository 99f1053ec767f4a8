// SPDX-License-Identifier: MIT
// Batches of rows, gathered ahead of time by threads.
//
// A loader is made of a few tensors with equally many rows and an order of row numbers. Each call
// of cnn_loader_next gives the next batch. Worker threads fill batches that the caller has
// allocated: they never allocate, never fail, never see the host language. What comes out depends
// on the order alone, not on the number of workers.
//
// Forks: the child has no workers; a loader that it inherited goes on without them.
#ifndef CNN_IO_LOADER_H
#define CNN_IO_LOADER_H

#include "tensor/tensor.h"

#define CNN_LOADER_SOURCES 16

// One tensor of a data set: CPU, at least 1 dim, every row dense. With channels > 0 the batch is
// float32: x * scale[c] + shift[c], where c counts along dim 1 (channels must be its size), or is 0
// for all elements when channels is 1.
typedef struct cnn_rows {
  cnn_tensor *tensor;
  int channels;
  const float *scale, *shift;
} cnn_rows;

typedef struct cnn_loader cnn_loader;

// `order` holds row numbers counted from 0, all below the number of rows (the caller has checked);
// it and the rows' scales are copied. At most CNN_LOADER_SOURCES sources. threads = 0: no workers.
// Release with cnn_unref, which waits for the workers.
cnn_status cnn_loader_create(cnn_context *ctx, const cnn_rows *rows, int n_rows,
                             const int64_t *order, int64_t n_order, int64_t batch, bool drop_last,
                             int threads, cnn_loader **out);

int cnn_loader_sources(const cnn_loader *l);

// The next batch: one tensor per source into out[0..n_rows), one reference each. *more is false,
// and nothing is given, past the last one. After a failure the same batch is next.
cnn_status cnn_loader_next(cnn_context *ctx, cnn_loader *l, cnn_tensor **out, bool *more);

// order[0..n): the numbers order[i] shuffled (Fisher and Yates), by Philox from (seed, epoch).
void cnn_shuffle(int64_t *order, int64_t n, uint64_t seed, uint64_t epoch);

#endif
