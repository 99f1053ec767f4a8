// SPDX-License-Identifier: MIT
// Products as other files of the plugin ask for them.
#ifndef CNN_CUDA_GEMM_H
#define CNN_CUDA_GEMM_H

#include "engine/product.h"

#ifdef __cplusplus
extern "C" {
#endif

// Computes the product by an own kernel; C holds its start already where beta is not 0. Any dtype,
// any strides.
cnn_status cuda_gemm_own(const cnn_call *call, const cnn_product *p);

#ifdef __cplusplus
}
#else

#include "blaslt.h"

// The product of a call of linear, matmul or matmul_to, and what follows it (`epilogue`, without a
// bias: a linear layer's is added by itself), by one call of the library. `aux` is a matrix of the
// result's form or NULL; `sums` takes what a _BGRAD epilogue writes. While the call is planning:
// says whether the library does that, and the scratch for it. Else queues it: what was planned
// must be done.
bool cuda_gemm_plan_with(cnn_call *call, cuda_epilogue epilogue, const cnn_view *aux, void *sums);
cnn_status cuda_gemm_run_with(cnn_call *call, cuda_epilogue epilogue, const cnn_view *aux,
                              void *sums);
#endif

#endif
