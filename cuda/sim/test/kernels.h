// SPDX-License-Identifier: MIT
//
// Kernels for the simulator's own tests, each launched by a C function. Set `mutation` to plant a
// bug of mutations.txt; 0 is the correct program.
#ifndef SIM_TEST_KERNELS_H
#define SIM_TEST_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

extern int mutation;

typedef struct {
  const float *x;
  float *y;
  float a, b;
  int n;
} axpby_args;

cudaError_t k_vector_add(const float *a, const float *b, float *c, int n, cudaStream_t s);
cudaError_t k_block_sum(const float *x, float *sums, int n, cudaStream_t s); // 256 a block
cudaError_t k_softmax(const float *x, float *y, int rows, int cols, cudaStream_t s);
cudaError_t k_layer_norm(const float *x, float *y, int rows, int cols, cudaStream_t s);
cudaError_t k_matmul(const float *a, const float *b, float *c, int m, int n, int k, int tiled,
                     cudaStream_t s);
cudaError_t k_attention(const float *q, const float *k, const float *v, float *y, int t, int d,
                        cudaStream_t s);
cudaError_t k_embedding_backward(const int *index, const float *dy, float *dw, int n, int d,
                                 cudaStream_t s);
cudaError_t k_half_gelu(const void *x, void *y, int n, cudaStream_t s); // pairs of half
cudaError_t k_axpby(axpby_args a, cudaStream_t s);
cudaError_t k_last_block_sum(const float *x, float *partial, unsigned *ticket, float *out, int n,
                             cudaStream_t s);
cudaError_t k_compact(const float *x, float *y, int *count, int n, cudaStream_t s); // positives
cudaError_t k_copy4(const float *x, float *y, int n, cudaStream_t s);
cudaError_t k_mma_gemm(const void *a, const void *b, float *c, int m, int n, int k, int bf16,
                       cudaStream_t s);
cudaError_t k_transpose(const float *x, float *y, int rows, int cols, cudaStream_t s);
cudaError_t k_scale(float *x, float by, int n, cudaStream_t s);

#ifdef __cplusplus
}
#endif
#endif
