// SPDX-License-Identifier: MIT
// The driver of all elementwise kernels.
//
// A row computes on pieces: contiguous runs of at most CNN_PIECE elements, all of one type. The
// driver does the rest: broadcasting, any strides, half types (converted to float piece by piece),
// numbers, threads. So a row's loop is the simplest one there is, and vectorises.
#ifndef CNN_CPU_ELEMENTWISE_H
#define CNN_CPU_ELEMENTWISE_H

#include "engine/op.h"

#define CNN_PIECE 1024

// out[0..n) from in[k][0..n); p holds the op's number arguments as elements of the computed type.
// out may be the same memory as an input.
typedef void (*cnn_piece_fn)(int64_t n, void *out, const void *const *in, const void *p);

typedef struct cnn_row {
  uint8_t n_in;
  // By the dtype of the promoted inputs. For half types NULL means: by the float32 function, with
  // conversion. For other types NULL means: not taken.
  cnn_piece_fn fn[CNN_DTYPE_COUNT];
  int64_t grain; // elements that are worth a thread; 0: the default
} cnn_row;

// Kernel of any op whose kernel data is a cnn_row. Mask inputs are passed as they are.
cnn_status cnn_elementwise_run(cnn_call *call);

// ---------------------------------------------------------------------------------------------
// Building blocks for other kernels

// Views reduced to the fewest dims that they share, ordered by the first view's strides.
#define CNN_MAX_OPERANDS 5
typedef struct cnn_nest {
  int ndim;
  int n_views;
  int64_t numel;
  int64_t shape[CNN_MAX_DIMS];
  int64_t strides[CNN_MAX_OPERANDS][CNN_MAX_DIMS];
  char *data[CNN_MAX_OPERANDS];
  size_t size[CNN_MAX_OPERANDS]; // bytes of an element
} cnn_nest;

// Builds the nest over `shape`; views broadcast to it. A view with ndim 0 and shape NULL is a
// scalar.
void cnn_nest_make(cnn_nest *nest, int ndim, const int64_t *shape, const cnn_view *const *views,
                   int n);

// Copies n elements from linear index `at` (in the nest's order) of view k to a dense buffer, and
// back.
void cnn_nest_gather(const cnn_nest *nest, int k, int64_t at, int64_t n, void *buffer);
void cnn_nest_scatter(const cnn_nest *nest, int k, int64_t at, int64_t n, const void *buffer);

// The offsets of n elements of view k from linear index `at`, in elements.
void cnn_nest_offsets(const cnn_nest *nest, int k, int64_t at, int64_t n, int64_t *offsets);

// Whether view k is one dense run in the nest's order.
static inline bool cnn_nest_dense(const cnn_nest *nest, int k) {
  return nest->ndim == 0 || (nest->ndim == 1 && nest->strides[k][0] == 1);
}

// n elements from one dtype to another, dense. `from` and `to` may be the same when sizes are
// equal.
void cnn_convert(int64_t n, cnn_dtype from, const void *source, cnn_dtype to, void *target);

#endif
