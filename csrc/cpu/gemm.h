// SPDX-License-Identifier: MIT
// Matrix products on the CPU, with any strides.
#ifndef CNN_CPU_GEMM_H
#define CNN_CPU_GEMM_H

#include <stddef.h>
#include <stdint.h>

// A matrix is a view: element (i, j) at data[i * rs + j * cs], strides in elements. Strides of A
// and B may be 0 or negative.

// Bytes of scratch that cnn_gemm_f32 (element = 4) and cnn_gemm_f64 (8) need for these sizes,
// whatever the strides and the number of threads. 0 for small and for thin products.
size_t cnn_gemm_scratch(size_t element, int64_t m, int64_t n, int64_t k);

// C[m,n] = alpha * A[m,k] B[k,n] + beta * C. With beta = 0, C is written and never read (it may
// hold NaN); with k = 0 the product is 0. m or n may be 0. C must not overlap A or B; its elements
// must not overlap each other. Scratch may lie anywhere (64 bytes of alignment are best), and is
// not read before it is written. Runs on the thread pool when that pays, safe to call from within
// it.
//
// The result does not depend on the number of threads. It does depend on the instruction set, and
// on the layout: equal matrices with different strides may be summed in a different order.
void cnn_gemm_f32(int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t a_rs,
                  int64_t a_cs, const float *b, int64_t b_rs, int64_t b_cs, float beta, float *c,
                  int64_t c_rs, int64_t c_cs, void *scratch);
void cnn_gemm_f64(int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t a_rs,
                  int64_t a_cs, const double *b, int64_t b_rs, int64_t b_cs, double beta, double *c,
                  int64_t c_rs, int64_t c_cs, void *scratch);

// For tests: the highest instruction set that may be used from now on, 0 the baseline, 1 AVX2 with
// FMA, 2 AVX-512. Returns the one that is used.
int cnn_gemm_limit(int level);

#endif
