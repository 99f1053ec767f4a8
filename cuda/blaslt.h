// SPDX-License-Identifier: MIT
// Matrix products over cuBLASLt, row-major in the eyes of the caller:
//
//   D[b] = epilogue(alpha A[b] B[b] + beta C[b])        A (m, k), B (k, n), C and D (m, n)
//
// One description serves all uses: plain (`epilogue` 0), batched (`batch` > 1), and products that
// take the next pointwise step, or its gradient, along. Sums are kept in float32 (float64 for
// float64). Chosen algorithms are kept by shape, strides, epilogue and alignment, at most
// CUDA_BLAS_KEPT of them.
//
// Refused (CUDA_REFUSED): dtypes other than f32, f64, f16, bf16; sizes of zero or from 2^31 on;
// strides that are no matrix of a library (see cuda_matrix); what the library has no algorithm for.
// The caller's own kernel computes these. A, B and D are never written beyond their m, n, k; D must
// overlap nothing but C.
//
// A function may be called from any thread. The device that the engine was made for must be the
// current one. Under capture, a shape must have been met before: choosing is host work only, but
// the library loads kernels at the first run of one.
#ifndef CNN_CUDA_BLASLT_H
#define CNN_CUDA_BLASLT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "answer.h"
#include "base/dtype.h"

#define CUDA_BLAS_KEPT 1024

// What follows the product, in float32 and before rounding to D's dtype. `bias` is an n-vector,
// dense, of D's dtype, added to every row; the "gradient of the bias" is one that is written. GELU
// is the tanh form and nothing else (gelu(x, "tanh")): the exact form is refused by not existing.
// Not seen on a GPU yet: that GELU is this form to the last digits, whether ReLU of NaN is NaN or
// 0, and whether _BGRAD sums D before or after it is rounded.
typedef enum cuda_epilogue {
  CUDA_EPI_NONE,
  CUDA_EPI_BIAS,      // D = P + bias
  CUDA_EPI_RELU,      // D = max(P, 0)
  CUDA_EPI_RELU_BIAS, // D = max(P + bias, 0)
  CUDA_EPI_GELU,
  CUDA_EPI_GELU_BIAS,
  // As above; besides, `aux` keeps what the gradient needs: GELU's input as a matrix of D's dtype,
  // or a bit for every element of ReLU's output that is > 0 (cuda_aux_* say the sizes).
  CUDA_EPI_RELU_AUX,
  CUDA_EPI_RELU_AUX_BIAS,
  CUDA_EPI_GELU_AUX,
  CUDA_EPI_GELU_AUX_BIAS,
  // Gradients: the product is that of the next layer (dH = dY W), D = P * f'(aux) is the gradient
  // at the activation's input. With _BGRAD, bias[n] = the sum of D over its rows.
  CUDA_EPI_DRELU,
  CUDA_EPI_DRELU_BGRAD,
  CUDA_EPI_DGELU,
  CUDA_EPI_DGELU_BGRAD,
  // D = P, and besides the sum of an operand over k: of A's rows, bias[m] (dW = dY^T X gives the
  // bias's gradient), or of B's columns, bias[n].
  CUDA_EPI_BGRAD_A,
  CUDA_EPI_BGRAD_B,
  CUDA_EPI_COUNT
} cuda_epilogue;

// A matrix (or `batch` of them, bs apart; bs may be 0 for A and B) with strides in elements: either
// stride may be the 1, the other then is at least the length of a row (of a column). D, C and aux
// are row-major: cs is 1.
typedef struct cuda_matrix {
  const void *p; // device pointer, only its alignment is read by cuda_gemm_workspace
  int64_t rs, cs, bs;
} cuda_matrix;

// Whether it is a matrix of the library with these sizes. A stride along a dimension of size 1 says
// nothing.
static inline bool cuda_matrix_fits(const cuda_matrix *x, int64_t rows, int64_t cols) {
  return ((x->cs == 1 || cols == 1) && (rows == 1 || x->rs >= cols)) ||
         ((x->rs == 1 || rows == 1) && (cols == 1 || x->cs >= rows));
}

typedef struct cuda_gemm {
  cnn_dtype dtype; // of A, B, C, D, bias and a GELU aux
  bool out_f32;    // C and D are float32 whatever dtype is; only without an epilogue
  bool tf32;       // float32 products may round A and B to TF32
  bool lean;       // without workspace
  cuda_epilogue epilogue;
  int64_t batch, m, n, k;
  double alpha, beta;  // alpha 0 is taken as 0, not as 1; beta 0 never reads C
  cuda_matrix a, b, c; // c is read only where beta is not 0; c.p == d.p is allowed
  cuda_matrix d;       // written
  cuda_matrix aux;  // rs as cuda_aux_rs says, in bits for ReLU; batch must be 1 where there is one
  const void *bias; // read, or written by the *BGRAD* epilogues; batch must be 1 where there is one
} cuda_gemm;

typedef struct cuda_blas cuda_blas;

// An engine for the current device. Refused where the library or what it needs is missing.
// destroy(NULL) does nothing.
cuda_answer cuda_blas_create(cuda_blas **out, cuda_message *why);
void cuda_blas_destroy(cuda_blas *blas);

// The library's version: major * 10000 + minor * 100 + patch.
size_t cuda_blas_version(void);

// Bytes of workspace (aligned to 256) that this product wants: at most 32 MiB on Hopper and later,
// 4 MiB before, 0 where the chosen algorithm needs none.
cuda_answer cuda_gemm_workspace(cuda_blas *blas, const cuda_gemm *g, size_t *bytes,
                                cuda_message *why);

// Queues the product on `stream`. `bytes` is at least what cuda_gemm_workspace said for the same
// description and pointers of the same alignment (CUDA_FAILED otherwise); the workspace is in use
// until the stream has passed. alpha and beta are read before it returns.
cuda_answer cuda_gemm_run(cuda_blas *blas, const cuda_gemm *g, void *workspace, size_t bytes,
                          cudaStream_t stream, cuda_message *why);

// The row stride of an aux matrix of n columns: in elements for GELU (a multiple of 8), in bits for
// ReLU (a multiple of 128). Bytes of one for m rows: cuda_aux_bytes. `relu` picks the kind.
static inline int64_t cuda_aux_rs(bool relu, int64_t n) {
  return relu ? (n + 127) / 128 * 128 : (n + 7) / 8 * 8;
}
static inline size_t cuda_aux_bytes(bool relu, cnn_dtype dtype, int64_t m, int64_t n) {
  size_t count = (size_t)m * (size_t)cuda_aux_rs(relu, n);
  return relu ? count / 8 : count * cnn_dtype_size(dtype);
}

#endif
