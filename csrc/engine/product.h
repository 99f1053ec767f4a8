// SPDX-License-Identifier: MIT
// All ops of ops/matmul.c in one form, for any device:
//
//   C[b] = alpha * sum over s of A[b, s] B[b, s] + beta * C[b]
//
// over batch dims b, and dims s that the result was summed over. Batch dims are folded into rows (a
// linear layer) or into the inner dim (its weight's gradient) where the strides allow it.
#ifndef CNN_ENGINE_PRODUCT_H
#define CNN_ENGINE_PRODUCT_H

#include "engine/call.h"

#ifdef __cplusplus
extern "C" {
#endif

// A dim of the batch: strides in elements.
typedef struct cnn_product_dim {
  int64_t size, a, b, c;
} cnn_product_dim;

typedef struct cnn_product {
  cnn_dtype dtype;
  int64_t m, n, k;
  const char *a, *b;
  char *c;
  int64_t a_rs, a_cs, b_rs, b_cs, c_rs; // C's columns are adjacent
  int n_outer, n_sum;
  cnn_product_dim outer[CNN_MAX_DIMS], sum[CNN_MAX_DIMS]; // innermost first
  int64_t outer_count, sum_count;
  double alpha, beta;
  const cnn_view *start; // what C holds before, NULL: nothing (beta is 0 then)
  const char *bias;      // start, where it is one row that is added to every row as it is
} cnn_product;

// The product of a call of matmul, matmul_to, linear, addmm or baddbmm. Reads no elements.
void cnn_product_make(const cnn_call *call, cnn_product *p);

// The offsets of element `at` of the dims from `first` on.
void cnn_product_offsets(const cnn_product_dim *dims, int first, int n, int64_t at, int64_t *a,
                         int64_t *b, int64_t *c);

#ifdef __cplusplus
}
#endif

#endif
