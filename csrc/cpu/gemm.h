// SPDX-License-Identifier: MIT
// Matrix products on the CPU, with any strides.
#ifndef CNN_CPU_GEMM_H
#define CNN_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A matrix view: element (i, j) at data[i * rs + j * cs]. Strides may be 0 or negative for inputs.

// Bytes of scratch that cnn_gemm_f32 / cnn_gemm_f64 need for these sizes with the current number of
// threads; 0 for small products, which run without packing.
size_t cnn_gemm_scratch(size_t element, int64_t m, int64_t n, int64_t k);

// C[m,n] = alpha * A[m,k] B[k,n] + beta * C. With beta = 0, C is written and never read (it may
// hold NaN); with k = 0 the product is 0. m or n may be 0. C must not overlap A or B; its elements
// must not overlap each other. The result does not depend on the number of threads.
void cnn_gemm_f32(int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t a_rs,
                  int64_t a_cs, const float *b, int64_t b_rs, int64_t b_cs, float beta, float *c,
                  int64_t c_rs, int64_t c_cs, void *scratch);
void cnn_gemm_f64(int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t a_rs,
                  int64_t a_cs, const double *b, int64_t b_rs, int64_t b_cs, double beta, double *c,
                  int64_t c_rs, int64_t c_cs, void *scratch);

#endif
